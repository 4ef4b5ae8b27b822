# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``python -m stepc checkpoint``: what it shows, what it writes, and how much memory it takes."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
import stepc.torch as st
import torch
from deepspeed_files import Zero2
from stepc.cli import main
from stepc.torch import checkpoint as ck

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "frontend")}


@pytest.fixture
def saved(tmp_path):
    params = {
        "up": torch.nn.Parameter(torch.ones(300, 20)),
        "norm": torch.nn.Parameter(torch.ones(7)),
    }
    optimizer = st.AdamW(params.items(), lr=0.25)
    for param in params.values():
        param.grad = torch.full_like(param, 0.5)
    optimizer.step()
    ck.save(optimizer, tmp_path / "saved", "torch")
    return tmp_path / "saved"


def test_show(saved, capsys):
    assert main(["checkpoint", "show", str(saved)]) == 0
    shown = capsys.readouterr().out.splitlines()
    lines = [line.split() for line in shown]
    assert lines[0] == ["parameter", "state", "dtype", "shape", "bytes"]
    assert lines[1] == ["up", "(itself)", "float32", "300x20", "23.4", "KiB"]
    assert lines[2] == ["step", "float32", "-", "4", "B"]
    assert lines[3] == ["exp_avg", "float32", "300x20", "23.4", "KiB"]
    assert ["norm", "(itself)", "float32", "7", "28", "B"] in lines
    group, last = shown[-2:]
    assert group.startswith("group 0: 2 parameters; ") and "lr=0.25" in group
    assert last == f"'{saved}': layout torch, 2 parameters, step 1, 70.4 KiB"


def test_convert(saved, tmp_path, capsys):
    target = tmp_path / "b"
    assert main(["checkpoint", "convert", str(saved), str(target), "--layout=universal"]) == 0
    said = capsys.readouterr()
    assert said.err == "" and said.out == (
        f"'{target}': layout universal, 2 parameters, 70.4 KiB, of '{saved}', layout torch\n"
    )
    assert torch.equal(ck.read(target).states["up"]["exp_avg"].read(),
                       ck.read(saved).states["up"]["exp_avg"].read())  # fmt: skip


def test_errors_are_a_line(saved, tmp_path, capsys):
    for arguments, words in {
        ("show", tmp_path / "none"): "does not exist",
        ("convert", saved, saved, "--layout=dcp"): "is there already",
        ("convert", saved, tmp_path / "b", "--layout=dpc"): "did you mean 'dcp'?",
        ("convert", saved, tmp_path / "b", "--layout=dcp", "--from=universal"): "has no folder",
    }.items():
        assert main(["checkpoint", *map(str, arguments)]) == 1
        said = capsys.readouterr().err
        assert words in said and said.startswith("stepc: error: ") and said.count("\n") == 1


def test_a_bar_on_a_terminal(saved, tmp_path):
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    command = [sys.executable, "-m", "stepc", "checkpoint", "convert", saved, tmp_path / "b",
               "--layout=torch"]  # fmt: skip
    done = subprocess.run(command, env=ENVIRONMENT, stderr=theirs, stdout=theirs, check=False)
    shown = os.read(ours, 100_000)
    os.close(theirs)
    os.close(ours)
    assert done.returncode == 0 and b"100%" in shown and b"70.4k/70.4k" in shown, shown


# In a process of its own: the largest amount of memory that it had, beyond what it had before.
MEASURE = """
import resource, sys, threading
from pathlib import Path
from stepc.torch import checkpoint as ck

def kept():
    return int(open('/proc/self/statm').read().split()[1]) * resource.getpagesize()

def convert(source, target, layout):
    before, peak, done = kept(), 0, threading.Event()
    def watch():
        nonlocal peak
        while not done.wait(0.0005):
            peak = max(peak, kept())
    thread = threading.Thread(target=watch)
    thread.start()
    ck.convert(source, target, layout)
    done.set()
    thread.join()
    return peak - before

folder, layouts = Path(sys.argv[1]), sys.argv[2:]
for size in 'small', 'large':  # the first: what is imported late
    for source in 'deepspeed', 'torch':
        for layout in layouts:
            name = f'{source}-{size}'
            print(name, layout, convert(folder / name, folder / f'{name}-{layout}', layout))
"""
TENSORS, ELEMENTS = 16, 2**20  # of 4 MiB


def test_memory_is_that_of_the_largest_tensor(tmp_path):
    """Of 128 MiB in 32 tensors, from files of four ranks and from one file, into each layout."""
    for size, name in ((16, "small"), (ELEMENTS, "large")):
        values = {f"w{k}": torch.full((size,), float(k)) for k in range(TENSORS)}
        run = Zero2([{"params": values, "lr": 0.1}], 4, torch.optim.Adagrad)
        run.step(values)
        run.save(tmp_path / f"deepspeed-{name}")
        ck.convert(tmp_path / f"deepspeed-{name}", tmp_path / f"torch-{name}", "torch")
    layouts = [name for name, own in ck.LAYOUTS.items() if hasattr(own, "write")]
    command = [sys.executable, "-c", MEASURE, tmp_path, *layouts]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    largest, lines = 4 * ELEMENTS, [line.split() for line in done.stdout.splitlines()]
    taken = {(s, n): int(count) for s, n, count in lines if s.endswith("large")}
    assert len(taken) == 2 * len(layouts)
    assert max(taken.values()) < 6 * largest, taken
    for source, layout in taken:
        found = ck.read(tmp_path / f"{source}-{layout}")
        assert sum(stored.nbytes for *_, stored in found.tensors()) > 2 * TENSORS * largest
        assert torch.equal(found.parameters["w7"].read(), run.params()["w7"])
