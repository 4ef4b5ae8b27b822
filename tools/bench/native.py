"""The stream of stream.c, built on first use, and memory on huge pages.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import ctypes
import hashlib
import subprocess
import time
from pathlib import Path

import numpy
import torch
from filling import fill

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FLAGS = ["-O3", "-march=native", "-mprefer-vector-width=512", "-fopenmp", "-fPIC", "-shared"]
DISTANCES = (8, 12, 16, 20, 24, 32, 40)
BYTES = {"f32": (4, 4, 4, 4), "bf16": (2, 2, 4, 4)}  # of param, grad, exp_avg, exp_avg_sq


def build(folder=ROOT / "build" / "bench"):
    """Compiles stream.c for this machine; returns the path of the library."""
    source = HERE / "stream.c"
    key = hashlib.sha256(source.read_bytes() + " ".join(FLAGS).encode()).hexdigest()[:16]
    library = folder / f"libstepc_bench_stream_{key}.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        made = library.with_suffix(".tmp")
        subprocess.run(["cc", *FLAGS, "-o", str(made), str(source)], check=True)
        made.rename(library)
    return library


def load(threads):
    library = ctypes.CDLL(str(build()))
    pointer, long = ctypes.c_void_p, ctypes.c_int64
    library.benchAllocate.restype = pointer
    library.benchAllocate.argtypes = [ctypes.c_size_t]
    for function in (library.benchStreamF32, library.benchStreamBF16):
        function.restype = None
        function.argtypes = [pointer] * 4 + [long] * 2
    library.benchRead.restype = ctypes.c_uint64
    library.benchRead.argtypes = [pointer, long, long]
    library.benchSetThreads(threads)
    return library


class Arena:
    """Four arrays on huge pages with the sizes of a shape's tensors together."""

    def __init__(self, library, dtype, elements):
        self.elements = (elements + 31) // 32 * 32
        self.item_bytes = BYTES[dtype]
        self.addresses = []
        for size in self.item_bytes:
            address = library.benchAllocate(self.elements * size)
            if not address:
                raise MemoryError(f"no memory for {self.elements * size} bytes")
            self.addresses.append(address)
        self._fill()

    def _fill(self):
        """Ordinary positive numbers: a step on zeros would be faster than life."""
        generator = torch.Generator().manual_seed(2)
        for address, size in zip(self.addresses, self.item_bytes, strict=True):
            kind = ctypes.c_float if size == 4 else ctypes.c_int16
            memory = numpy.ctypeslib.as_array((kind * self.elements).from_address(address))
            tensor = torch.from_numpy(memory)
            if size == 2:
                tensor = tensor.view(torch.bfloat16)
            fill(tensor, lambda t: t.uniform_(1e-3, 2e-2, generator=generator))


class Passes:
    """Something that runs over an arena, with a prefetch distance to choose."""

    def __init__(self, arena, run):
        self.arena, self._run = arena, run
        self.distance, self.tried = 0, {}

    def plain(self):
        self._run(0)

    def fast(self):
        self._run(self.distance)

    def tune(self, tries=4):
        """Tries the distances and keeps the best."""
        for _ in range(tries):
            for distance in DISTANCES:
                begin = time.perf_counter()
                self._run(distance)
                seconds = time.perf_counter() - begin
                self.tried[distance] = min(seconds, self.tried.get(distance, seconds))
        self.distance = min(self.tried, key=self.tried.get)


class Stream(Passes):
    """The in-place stream, of one or two states."""

    def __init__(self, library, arena, dtype, states=2):
        function = library.benchStreamF32 if dtype == "f32" else library.benchStreamBF16
        arrays = arena.addresses[: 2 + states] + [None] * (2 - states)
        super().__init__(arena, lambda distance: function(*arrays, arena.elements, distance))
        item_bytes = arena.item_bytes[: 2 + states]
        self.bytes = arena.elements * (sum(item_bytes) * 2 - item_bytes[1])


class Read(Passes):
    """Reads the gradient and writes nothing."""

    def __init__(self, library, arena):
        self.bytes = arena.elements * arena.item_bytes[1]
        super().__init__(
            arena, lambda distance: library.benchRead(arena.addresses[1], self.bytes, distance)
        )
