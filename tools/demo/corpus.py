"""Text, in bytes or in words, from the source files of Python's own standard library.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import re
import sysconfig
from collections import Counter
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


_WORDS = re.compile(rb"[A-Za-z_]+|[0-9]+|\s+|.", re.DOTALL)


def load_words(vocabulary):
    """(training tokens, held-out tokens): runs of letters, of digits, of blanks, and other bytes.
    Numbers are shuffled, as those of a tokenizer say nothing of how frequent a token is; what is
    not among the most frequent is one token more."""
    train, held_out = (_WORDS.findall(bytes(part.numpy())) for part in load())
    kept = [word for word, _ in Counter(train).most_common(vocabulary - 1)]
    numbers = torch.randperm(vocabulary, generator=torch.Generator().manual_seed(1)).tolist()
    known = dict(zip(kept, numbers, strict=False))
    return tuple(
        torch.tensor([known.get(word, numbers[-1]) for word in part], dtype=torch.int32)
        for part in (train, held_out)
    )


def batch(data, rows, length, generator):
    """Inputs and targets: `rows` pieces of the text, the targets one token further."""
    starts = torch.randint(len(data) - length - 1, (rows,), generator=generator)
    pieces = torch.stack([data[start : start + length + 1] for start in starts.tolist()]).long()
    return pieces[:, :-1], pieces[:, 1:]
