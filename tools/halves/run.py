#!/usr/bin/env python3
# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Takes every f32 apart into a bf16 and an int16 remainder and puts it together again,
in compiled code: all 2^32, or every N-th of them.

    tools/halves/run.py            all, some minutes and 1.5 GB of memory
    tools/halves/run.py --every 997

Exit status: 0 where every one that is no NaN came back bit for bit, NaN came back as NaN,
and the bf16 was the nearest, a tie away from zero.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "frontend"))
import stepc.torch

BLOCK = 1 << 26
# The parameter becomes the state, or with `back` the state the parameter.
DEFINITION = """
step.optimizer @halves {
  %back = step.hyper "back" = 0.0
  step.rule @any(%p: param[*], %g: grad[*], %s: state "whole"[*] kept) {
    %zero = step.constant 0.0
    %goes_back = step.compare ne, %back, %zero : f64
    %x = step.select %goes_back, %p, %s : [*]
    step.return %x, %x
  }
}
"""


def wrong(param: torch.Tensor, state: dict, bits: torch.Tensor, step) -> int:
    """How many of the f32 with these bits do not come back, or have another bf16."""
    floats = bits.view(torch.float32)
    state["whole"].copy_(floats)
    step(back=0.0)
    nan = floats.isnan()
    upper = ((bits + 0x8000) >> 16).to(torch.int16)
    count = int(((param.detach().view(torch.int16) != upper) & ~nan).sum())
    state["whole"].zero_()
    step(back=1.0)
    found = state["whole"]
    count += int(((found.view(torch.int32) != bits) & ~nan).sum())
    return count + int((nan & ~(found.isnan() & param.detach().isnan())).sum())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=1, metavar="N", help="default: 1, all")
    every = parser.parse_args().every
    size = min(BLOCK, -(-(1 << 32) // every))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "halves.mlir"
        path.write_text(DEFINITION)
        param = torch.nn.Parameter(torch.zeros(size, dtype=torch.bfloat16))
        optimizer = stepc.torch.Optimizer([param], path, master="remainder", static_grads=True)
        param.grad = torch.zeros_like(param)

        def step(back):
            optimizer.param_groups[0]["back"] = back
            optimizer.step()

        step(0.0)
        count = 0
        for begin in range(0, 1 << 32, size * every):
            bits = torch.arange(begin, begin + size * every, every, dtype=torch.int64)
            bits = (bits - ((bits >> 31 & 1) << 32)).to(torch.int32)
            count += wrong(param, optimizer.state[param], bits, step)
    print(f"{(1 << 32) // every} of 4294967296 f32, {count} wrong")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
