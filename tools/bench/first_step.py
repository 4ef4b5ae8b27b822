"""Prints the seconds of the first step of a new optimizer in a new process.

What a hit in the package cache saves is the compiler; what is left is finding the
package, loading it, and binding a model of a few tensors.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import time

import stepc.torch
import torch

params = [torch.nn.Parameter(torch.ones(64, 64)) for _ in range(4)]
for param in params:
    param.grad = torch.ones(64, 64)
torch.optim.AdamW(params, fused=True).step()  # torch's own first-time work
optimizer = stepc.torch.AdamW(params)
begin = time.perf_counter()
optimizer.step()
print(time.perf_counter() - begin)
