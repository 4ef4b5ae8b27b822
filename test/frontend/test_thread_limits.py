# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where a thread cannot be started, steps take those that can be: to the bit the same."""

import ctypes
import hashlib
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from stepc import _runtime, _structures

ROOT = Path(__file__).parents[2]
STEPC = os.environ.get("STEPC_COMPILER", str(ROOT / "build" / "bin" / "stepc"))
ZOO = ROOT / "frontend" / "optimizers"
ELEMENTS = 1 << 18
MEBIBYTES = 1 << 20


def step(package, threads, room):
    """The bits of a parameter after three steps, with room for so many bytes more in the address
    space; and the threads of the process after them."""
    loaded = _runtime.Package.from_bytes(Path(package).read_bytes())
    plan = _runtime.Plan(loaded, threads=threads)
    plan.add_group({}, tuple(hyper["default"] for hyper in loaded.manifest["hypers"]))
    values = (ctypes.c_float * ELEMENTS)(*(i % 1009 / 7 for i in range(ELEMENTS)))
    grads = (ctypes.c_float * ELEMENTS)(*(i % 997 / 3 - 100 for i in range(ELEMENTS)))
    shape = (ctypes.c_int64 * 1)(ELEMENTS)
    made = (_structures.DLTensor * 2)()
    for described, array in zip(made, (values, grads), strict=True):
        described.data, described.ndim = ctypes.addressof(array), 1
        described.device.device_type = 1
        described.dtype = _structures.DLDataType(2, 32, 1)
        described.shape = ctypes.cast(shape, type(described.shape))
    if room:
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + room, used + room))
    binding = _structures.Binding()
    binding.param, binding.grad = (ctypes.addressof(each) for each in made)
    plan.bind((_structures.Binding * 1)(binding))
    for _ in range(3):
        plan.step()
    return hashlib.sha256(bytes(values)).hexdigest(), len(os.listdir("/proc/self/task"))


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """SGD, at a place of its own."""
    path = tmp_path_factory.mktemp("threads") / "sgd.stepc"
    subprocess.run([STEPC, ZOO / "sgd.mlir", "-o", path], check=True)
    return path


def run(package, threads, room=0, **environment):
    finished = subprocess.run(
        [sys.executable, __file__, str(package), str(threads), str(room)],
        capture_output=True, text=True, timeout=120, check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT / "frontend")} | environment,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr[-2000:]
    bits, count = finished.stdout.split()
    return bits, int(count)


def test_all_threads_where_there_is_room(package):
    alone, four = run(package, 1), run(package, 4)
    assert alone == (four[0], 1) and four[1] == 4


@pytest.mark.parametrize("stack", [None, "64M", "65536", "67108864 B"])
def test_as_many_as_there_is_room_for(package, stack):
    """Stacks of 8 MiB, or of what OMP_STACKSIZE says, and room for some of 64."""
    bits, _ = run(package, 1)
    size = 64 if stack else 8
    environment = {"OMP_STACKSIZE": stack} if stack else {}
    limited = run(package, 64, (6 * size + 40) * MEBIBYTES, **environment)
    assert limited[0] == bits and 2 <= limited[1] < 16, limited


def test_none_but_the_caller(package):
    bits, count = run(package, 64, 4 * MEBIBYTES)
    assert (bits, count) == (run(package, 1)[0], 1)


MANY = """
import hashlib, os, resource, sys, torch, stepc.torch
torch.set_num_threads(1)
params = [torch.nn.Parameter(torch.arange(6.0)) for _ in range(6000)]
for param in params:
    param.grad = torch.ones(6)
optimizer = stepc.torch.SGD(params, lr=0.1)
optimizer.step()
if int(sys.argv[1]):
    with open("/proc/self/statm") as file:
        room = int(file.read().split()[0]) * resource.getpagesize() + (100 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (room, room))
    torch.set_num_threads(64)
optimizer.step()
optimizer.step()
bits = b"".join(param.detach().numpy().tobytes() for param in params)
print(hashlib.sha256(bits).hexdigest(), len(os.listdir("/proc/self/task")))
"""


def test_parameters_are_read_by_those_that_there_are():
    """By the extension, whose regions are its own."""
    found = []
    for limited in (0, 1):
        run = subprocess.run(
            [sys.executable, "-c", MANY, str(limited)], capture_output=True, text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT / "frontend")}, timeout=120, check=False,
        )  # fmt: skip
        assert run.returncode == 0, run.stderr[-2000:]
        bits, threads = run.stdout.split()
        found.append(bits)
        assert int(threads) < 40, threads
    assert found[0] == found[1]


if __name__ == "__main__":
    print(*step(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
