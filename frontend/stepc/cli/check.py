# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether everything works here, in some ten seconds: compiler, runtime, cache, a step, torch."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import tempfile
from collections.abc import Callable, Iterator

from .. import _cache, _compiler, _library, _runtime, _structures, definition
from .._cache_files import Entry
from ..errors import StepcError

_SIZE = 1000  # elements of the tensor that is stepped


class Fault(Exception):
    """What does not work, and what to do."""


def add(parser: argparse.ArgumentParser) -> None:
    """It has no arguments."""


def run(given: argparse.Namespace) -> int:
    """A line for each part; 1 where any fails."""
    failed = 0
    with _own_cache():
        for name, part in PARTS.items():
            try:
                said = part()
            except (Fault, StepcError, OSError, ImportError) as error:
                said, failed = f"failed: {error}", 1
            print(f"{name:10} {said}", flush=True)
    return failed


@contextlib.contextmanager
def _own_cache() -> Iterator[None]:
    """Nothing that was kept before is used, so that what is kept is tried."""
    before = os.environ.get("STEPC_CACHE_DIR"), definition._packages
    with tempfile.TemporaryDirectory() as folder:
        os.environ["STEPC_CACHE_DIR"], definition._packages = folder, {}
        try:
            yield
        finally:
            os.environ.pop("STEPC_CACHE_DIR")
            if before[0] is not None:
                os.environ["STEPC_CACHE_DIR"] = before[0]
            definition._packages = before[1]


def _check_compiler() -> str:
    return f"ok: '{_compiler.find_compiler()}'"


def _check_runtime() -> str:
    library = _library.load_library()
    return f"ok: '{library._name}', for {library.stepcCpuTarget().decode()}"


def _check_step() -> str:
    """A step of SGD, compiled now, against the same in Python."""
    sgd = definition.Definition.from_zoo("sgd")
    plan = _runtime.Plan(sgd.package(("param=f32,grad=f32",)))
    hypers = dict(sgd.interface().hypers)
    values = {**dict.fromkeys(hypers, 0.0), "lr": 0.5}
    plan.add_group({}, tuple(values[name] for name in hypers))
    param, grad = ((ctypes.c_float * _SIZE)() for _ in range(2))
    for i in range(_SIZE):
        param[i], grad[i] = i, 2 * (i % 7)
    shape = (ctypes.c_int64 * 1)(_SIZE)
    described = (_structures.DLTensor * 2)()
    for tensor, memory in zip(described, (param, grad), strict=True):
        tensor.data, tensor.ndim, tensor.shape = ctypes.addressof(memory), 1, shape
        tensor.device.device_type = 1  # the processor
        tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes = 2, 32, 1
    binding = _structures.Binding()
    binding.name = b"w"
    binding.param = ctypes.addressof(described)
    binding.grad = binding.param + ctypes.sizeof(_structures.DLTensor)
    plan.bind((_structures.Binding * 1)(binding))
    plan.step()
    wrong = [i for i in range(_SIZE) if param[i] != i - i % 7]
    if wrong:
        i = wrong[0]
        raise Fault(f"element {i} is {param[i]} after a step of SGD, expected {i - i % 7}")
    return f"ok: {_SIZE} elements of SGD, compiled and stepped"


def _check_cache() -> str:
    """The user's own, by an entry that is written, read and removed."""
    with _users_cache():
        root = _cache.directory()
        if root is None:
            raise Fault("there is no home directory; set STEPC_CACHE_DIR")
        entry = Entry(root, f"{_cache.key('check', str(os.getpid()))}.interface")
        entry.write(b"{}")
        found = entry.read()
        with entry.folder() as folder:
            os.unlink(entry.name, dir_fd=folder)
        if found != b"{}":
            raise Fault(f"what was written to '{entry.path}' was not read again")
    return f"ok: '{root}'"


@contextlib.contextmanager
def _users_cache() -> Iterator[None]:
    ours = os.environ.pop("STEPC_CACHE_DIR")
    if _NAMED is not None:
        os.environ["STEPC_CACHE_DIR"] = _NAMED
    try:
        yield
    finally:
        os.environ["STEPC_CACHE_DIR"] = ours


_NAMED = os.environ.get("STEPC_CACHE_DIR")


def _check_torch() -> str:
    """AdamW beside torch's, some steps."""
    try:
        from ..torch import self_check as _self_check
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return "left out: torch is not installed"
    far = _self_check.distance()
    if not far < 1e-5:
        raise Fault(f"AdamW is {far} away from torch.optim's after some steps")
    return f"ok: {_self_check.described()}"


PARTS: dict[str, Callable[[], str]] = {
    "compiler": _check_compiler,
    "runtime": _check_runtime,
    "cache": _check_cache,
    "step": _check_step,
    "torch": _check_torch,
}
