# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""AdamW with states on disk: against the disk, by a plain ring of the same windows, and against
the schemes of DeepSpeed and ColossalAI, imitated. Rounds are interleaved, medians are printed.

    tools/bench/placement.py --path /mnt/nvme --tensors 24 --rounds 5
"""

from __future__ import annotations

import argparse
import dataclasses
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import stepc.torch as st
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
from machine import describe

SIDE = 2048
REQUEST = 1 << 20
STATES = 2


class Blocks:
    """A file and memory for as much of it, moved by threads in requests of 1 MiB."""

    def __init__(self, folder: str, size: int, memory: int, threads: int, *, direct: bool = True):
        flags = os.O_RDWR | os.O_TMPFILE | (os.O_DIRECT if direct else 0)
        self.file = os.open(folder, flags)
        os.posix_fallocate(self.file, 0, size)
        self.memory = mmap.mmap(-1, memory)
        self.view = memoryview(self.memory)
        self.pool = ThreadPoolExecutor(threads)

    def start(self, move: Callable, offset: int, size: int, at: int) -> list:
        """Futures of ``os.preadv`` or ``os.pwritev``."""
        return [
            self.pool.submit(move, self.file, [self.view[at + k : at + k + REQUEST]], offset + k)
            for k in range(0, size, REQUEST)
        ]


def wait(futures: list) -> None:
    for future in futures:
        if future.result() != REQUEST:
            raise OSError("a transfer was short")


class PlainRing:
    """Reads and writes all bytes in windows, as steps do, and nothing else."""

    name = "plain ring"

    def __init__(self, folder: str, size: int, place: st.Place):
        self.size, self.window, self.slots = size, place.window_bytes, place.buffers
        self.blocks = Blocks(folder, size, self.window * self.slots, place.threads)

    def step(self) -> None:
        blocks, count = self.blocks, self.size // self.window
        reads, writes = {}, {}

        def load(i: int) -> None:
            if i < count:
                wait(writes.pop(i - self.slots, []))
                at = i % self.slots * self.window
                reads[i] = blocks.start(os.preadv, i * self.window, self.window, at)

        for i in range(self.slots - 1):
            load(i)
        for i in range(count):
            wait(reads.pop(i))
            at = i % self.slots * self.window
            writes[i] = blocks.start(os.pwritev, i * self.window, self.window, at)
            load(i + self.slots - 1)
        for left in writes.values():
            wait(left)


class Ours:
    def __init__(self, params, place: st.Place | None, name: str):
        self.name = name
        self.optimizer = st.AdamW(params, place=place)

    def step(self) -> None:
        self.optimizer.step()


def fused(param, states: list[torch.Tensor]) -> None:
    count = torch.ones(())
    torch._fused_adamw_(
        [param.detach()], [param.grad], [states[0]], [states[1]], [], [count], amsgrad=False,
        lr=1e-3, beta1=0.9, beta2=0.999, weight_decay=0.01, eps=1e-8, maximize=False,
    )  # fmt: skip


class OneFileAState:
    """DeepSpeed's swapper without its pipeline, which is off by default: a file of each state; of a
    subgroup all states are read, then stepped, then written."""

    name = "as DeepSpeed: subgroup by subgroup"

    def __init__(self, params, folder: str, threads: int, group: int = 4):
        self.groups = [params[i : i + group] for i in range(0, len(params), group)]
        size = params[0].numel() * 4
        self.files = {id(p): [Blocks(folder, size, size, 1) for _ in range(STATES)] for p in params}
        self.pool = ThreadPoolExecutor(threads)
        for own in self.files.values():
            for blocks in own:
                blocks.pool = self.pool

    def _start(self, group, move: Callable) -> list:
        files = [blocks for param in group for blocks in self.files[id(param)]]
        return [f for own in files for f in own.start(move, 0, len(own.view), 0)]

    def _work(self, group) -> None:
        for param in group:
            own = [torch.frombuffer(blocks.memory, dtype=torch.float32).view(param.shape)
                   for blocks in self.files[id(param)]]  # fmt: skip
            fused(param, own)

    def step(self) -> None:
        for group in self.groups:
            wait(self._start(group, os.preadv))
            self._work(group)
            wait(self._start(group, os.pwritev))


class Pipelined(OneFileAState):
    """The same with ``pipeline_read`` and ``pipeline_write``: while a subgroup is stepped the next
    is read and the one before is written, in two sets of buffers."""

    name = "as DeepSpeed, pipelined"

    def step(self) -> None:
        reading, writing = self._start(self.groups[0], os.preadv), []
        for group, following in zip(self.groups, [*self.groups[1:], []], strict=True):
            wait(reading)
            wait(writing)  # its buffers are those of the next
            reading = self._start(following, os.preadv)
            self._work(group)
            writing = self._start(group, os.pwritev)
        wait(writing)


class OneAhead:
    """ColossalAI's: through the system's cache, the next parameter's states are read while one is
    stepped, and written behind."""

    name = "as ColossalAI: one parameter ahead"

    def __init__(self, params, folder: str, threads: int):
        self.params, self.size = params, params[0].numel() * 4 * STATES
        self.blocks = Blocks(folder, self.size * len(params), 3 * self.size, threads, direct=False)

    def step(self) -> None:
        blocks, size = self.blocks, self.size
        reads, writes = {}, {}

        def load(i: int) -> None:
            if i < len(self.params):
                wait(writes.pop(i - 3, []))
                reads[i] = blocks.start(os.preadv, i * size, size, i % 3 * size)

        load(0)
        for i, param in enumerate(self.params):
            load(i + 1)
            wait(reads.pop(i))
            line = torch.frombuffer(blocks.memory, dtype=torch.float32, offset=i % 3 * size,
                                    count=size // 4)  # fmt: skip
            fused(param, [part.view(param.shape) for part in line.chunk(STATES)])
            writes[i] = blocks.start(os.pwritev, i * size, size, i % 3 * size)
        for left in writes.values():
            wait(left)


def make_params(count: int) -> list[torch.nn.Parameter]:
    torch.manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(SIDE, SIDE)) for _ in range(count)]
    for param in params:
        param.grad = torch.randn_like(param)
    return params


def peak_of(folder: str, tensors: int, where: str) -> int:
    """Bytes at most in memory of a process with these steps, its own at the start off."""
    words = [sys.executable, __file__, "--path", folder, "--tensors", str(tensors), "--peak", where]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return int(said.split()[-1])


def high_water() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def show_peak(folder: str, tensors: int, where: str) -> None:
    params = make_params(tensors)
    small = [torch.nn.Parameter(torch.zeros(8))]  # what is loaded with the first step
    small[0].grad = torch.zeros(8)
    st.AdamW(small).step()
    before = high_water()
    place = None if where == "memory" else st.Place("disk", path=folder)
    optimizer = st.AdamW(params, place=place)
    for _ in range(2):
        optimizer.step()
    print(high_water() - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--path", default=tempfile.gettempdir())
    parser.add_argument("--tensors", type=int, default=24, help=f"of {SIDE} x {SIDE}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peak", choices=("memory", "disk"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak:
        show_peak(arguments.path, arguments.tensors, arguments.peak)
        return
    folder, place = arguments.path, st.Place("disk", path=arguments.path)
    if (Path(folder) / place.name).exists():
        raise SystemExit(f"'{Path(folder) / place.name}' is there, of another run")
    params = make_params(arguments.tensors)
    size = sum(param.numel() for param in params) * 4 * STATES
    ways = [
        PlainRing(folder, size, place),
        Ours(params, place, "stepc, on disk"),
        Ours(params, dataclasses.replace(place, direct=False), "stepc, through the system's cache"),
        Ours(params, dataclasses.replace(place, durable=True), "stepc, durable"),
        OneFileAState(params, folder, place.threads),
        Pipelined(params, folder, place.threads),
        OneAhead(params, folder, place.threads),
        Ours(params, None, "stepc, in memory"),
    ]
    for way in ways:
        way.step()
    times: dict[str, list[float]] = {way.name: [] for way in ways}
    for _ in range(arguments.rounds):
        for way in ways:
            begin = time.perf_counter()
            way.step()
            times[way.name].append(time.perf_counter() - begin)
    medians = {name: statistics.median(own) for name, own in times.items()}
    print(describe())
    print(f"{size / 2**30:.2f} GiB of states in '{folder}', {arguments.rounds} rounds")
    disk = medians[PlainRing.name]
    for name, own in medians.items():
        print(f"  {own * 1e3:8.0f} ms  {disk / own:5.2f} of the disk's rate  {name}")
    print(f"  a step reads and writes {size / 2**30:.2f} GiB each")
    window = place.buffers * place.window_bytes
    for where in ("memory", "disk"):
        peak = peak_of(folder, arguments.tensors, where)
        print(f"  {peak / 2**20:8.0f} MiB more memory with states in {where}")
    print(f"  {window / 2**20:8.0f} MiB of windows")
    (Path(folder) / place.name).unlink()


if __name__ == "__main__":
    main()
