"""Byte-level text from the source files of Python's own standard library.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import sysconfig
from pathlib import Path

import torch

SKIPPED = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}
HELD_OUT = 10  # one file in so many is kept aside


def source_files():
    folder = Path(sysconfig.get_paths()["stdlib"])
    found = sorted(folder.rglob("*.py"))
    return [file for file in found if not SKIPPED & set(file.relative_to(folder).parts)]


def load():
    """(training bytes, held-out bytes) as tensors; no file is in both."""
    parts = ([], [])
    for number, file in enumerate(source_files()):
        parts[number % HELD_OUT == 0].append(file.read_bytes())
    train, held_out = (bytearray(b"\n".join(part)) for part in parts)
    return torch.frombuffer(train, dtype=torch.uint8), torch.frombuffer(held_out, dtype=torch.uint8)


def batch(data, rows, length, generator):
    """Inputs and targets: `rows` pieces of the text, the targets one byte further."""
    starts = torch.randint(len(data) - length - 1, (rows,), generator=generator)
    pieces = torch.stack([data[start : start + length + 1] for start in starts.tolist()]).long()
    return pieces[:, :-1], pieces[:, 1:]
