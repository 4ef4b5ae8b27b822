# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What files of cases share, on every rank."""

from __future__ import annotations

import datetime
import json
import os
import sys
import traceback
from pathlib import Path

import torch
import torch.distributed as dist

_CASES: dict = {}


def case(function):
    """Marks a function that all ranks call together; of a file that is imported none."""
    if function.__module__ == "__main__":
        _CASES[function.__name__] = function
    return function


def main() -> None:
    """Runs the cases that STEPC_CASES names, or all; after one that fails on a rank the others
    may hang, so it ends all."""
    folder, rank, world = sys.argv[1], int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group(
        "gloo", store=dist.FileStore(f"{folder}/store", world), rank=rank, world_size=world,
        timeout=datetime.timedelta(seconds=30),
    )  # fmt: skip
    said, path = {}, Path(folder, f"{rank}.json")
    names = os.environ.get("STEPC_CASES", ",".join(_CASES)).split(",")
    for name, function in _CASES.items():
        if name not in names:
            continue
        torch.manual_seed(0)
        try:
            function()
            said[name] = ""
            dist.barrier()
        except BaseException:
            said[name] = traceback.format_exc()
            path.write_text(json.dumps(said))
            os._exit(1)
        path.write_text(json.dumps(said))
    dist.barrier()
    os._exit(0)  # an interpreter on its way out aborts where a thread of Gloo still frees


def _words(tensor: torch.Tensor) -> torch.Tensor:
    """The bits as integers; any NaN is one."""
    kinds = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    if tensor.is_floating_point():
        tensor = torch.where(tensor.isnan(), torch.nan, tensor)
    return tensor.contiguous().view(kinds[tensor.element_size()])


def same_bits(left: torch.Tensor, right: torch.Tensor, what: str) -> None:
    left, right = left.detach(), right.detach()
    assert left.shape == right.shape, f"{what}: {tuple(left.shape)} and {tuple(right.shape)}"
    assert left.dtype == right.dtype, f"{what}: {left.dtype} and {right.dtype}"
    if not torch.equal(_words(left), _words(right)):
        off = (left.double() - right.double()).abs()
        raise AssertionError(f"{what}: {int((off != 0).sum())} elements differ, by {off.max()}")


def whole(tensor) -> torch.Tensor:
    """Of a DTensor the whole tensor: all ranks together."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
