# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is in an optimizer's checkpoint of any layout, and the same in another.

Files of torch, torch.distributed.checkpoint, DeepSpeed, ColossalAI, bitsandbytes and safetensors
are read, by stepc.torch.checkpoint; nothing in them is run (docs/checkpoints.md).
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator

from .._units import size


def add(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="show|convert")
    show = actions.add_parser("show", help="parameters, states, dtypes, shapes, bytes, groups")
    show.add_argument("path", metavar="PATH", help="a file or folder")
    show.add_argument("--layout", help="the layout of PATH (default: whichever it is)")
    convert = actions.add_parser("convert", help="writes it in another layout")
    convert.add_argument("source", metavar="SRC", help="a file or folder")
    convert.add_argument("path", metavar="DST", help="where nothing is yet")
    convert.add_argument("--layout", required=True, help="dcp, universal, torch or safetensors")
    convert.add_argument("--from", dest="source_layout", metavar="LAYOUT",
                         help="the layout of SRC (default: whichever it is)")  # fmt: skip


def run(given: argparse.Namespace) -> int:
    (_show if given.action == "show" else _convert)(given)
    return 0


def _show(given: argparse.Namespace) -> None:
    from ..torch import checkpoint

    found = checkpoint.read(given.path, given.layout)
    rows = [("parameter", "state", "dtype", "shape", "bytes")]
    total, before = 0, None
    for name, state, stored in found.tensors():
        shown = "" if name == before else name
        shape = "x".join(map(str, stored.shape)) or "-"
        dtype = str(stored.dtype).removeprefix("torch.")
        rows.append((shown, state or "(itself)", dtype, shape, size(stored.nbytes)))
        total, before = total + stored.nbytes, name
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        print("  ".join([*cells[:-1], row[-1].rjust(widths[-1])]))
    for number, group in enumerate(found.groups):
        hypers = ", ".join(f"{k}={v}" for k, v in group.items() if k != "params")
        print(f"group {number}: {len(group['params'])} parameters; {hypers}")
    of = "" if found.named else ", without names"
    print(f"'{given.path}': layout {found.layout}, {len(found.names)} parameters{of}, "
          f"{_steps(found)}, {size(total)}")  # fmt: skip


def _steps(found) -> str:
    counts = {
        int(own["step"].read()) for own in found.states.values()
        if "step" in own and own["step"].numel == 1
    }  # fmt: skip
    if not counts:
        return "no count of steps"
    return f"step {min(counts)}" + (f" to {max(counts)}" if len(counts) > 1 else "")


def _convert(given: argparse.Namespace) -> None:
    from ..torch import checkpoint

    found = checkpoint.read(given.source, given.source_layout)
    total = sum(stored.nbytes for _, _, stored in found.tensors())
    with _progress(total) as each:
        checkpoint.write(found, given.path, given.layout, each)
    print(f"'{given.path}': layout {given.layout}, {len(found.names)} parameters, {size(total)}, "
          f"of '{given.source}', layout {found.layout}")  # fmt: skip


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[int], object]]:
    """A bar on a terminal, where tqdm is installed."""
    try:
        from tqdm import tqdm
    except ImportError:
        yield lambda _: None
        return
    with tqdm(total=total, unit="B", unit_scale=True, unit_divisor=1024, disable=None) as bar:
        yield bar.update
