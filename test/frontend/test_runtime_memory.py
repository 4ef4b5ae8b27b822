# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Memory of the runtime's as tensors of torch."""

import ctypes
import tracemalloc

import pytest
import torch
from stepc.torch.tensors.device_memory import tensor_at

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    "dtype, kind", [(torch.float64, ctypes.c_double), (torch.int64, ctypes.c_int64)]
)
def test_the_memory_itself(dtype, kind):
    words = (kind * 5)(*range(5))
    tensor = tensor_at(ctypes.addressof(words), 5, dtype, CPU)
    assert tensor.tolist() == list(range(5)) and tensor.dtype == dtype
    tensor += 1
    assert list(words) == list(range(1, 6))
    part = tensor[2:]
    del tensor
    assert part.tolist() == [3, 4, 5]


def test_what_describes_it_goes_with_it():
    """However many addresses there are: buffers of exchanges move whenever a plan is made."""
    words = (ctypes.c_double * 5000)()
    base = ctypes.addressof(words)
    tensor_at(base, 1, torch.float64, CPU)
    tracemalloc.start()
    try:
        made = [tensor_at(base + 8 * i, 1, torch.float64, CPU) for i in range(5000)]
        held = tracemalloc.get_traced_memory()[0]
        made.clear()
        left = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held > 5000 * 64 and left < held / 10
