# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Packages of the zoo, compiled once for all tests."""

import itertools
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("test/exact", "test/interpreter", "frontend")]

from driver import STORAGES, Checker, compile_package  # noqa: E402
from formulas import OPTIONS  # noqa: E402
from oracle import ZOO  # noqa: E402
from stepc import _library, _runtime  # noqa: E402


def variants(name):
    """Each storage with each value of the options that are not derived."""
    for storages, values in itertools.product(
        STORAGES, itertools.product(["false", "true"], repeat=len(OPTIONS[name]))
    ):
        param, grad, state = storages
        spec = f"param={param},grad={grad}"
        for option, value in zip(OPTIONS[name], values, strict=True):
            spec += f",option.{option}={value}"
        yield f"--variant={spec}", f"--state={state}"


@pytest.fixture(scope="session")
def packages(tmp_path_factory):
    """A function from an optimizer and the storage of its states to a loaded package."""

    folder = tmp_path_factory.mktemp("packages")
    loaded = {}

    def get(name, state):
        if (name, state) not in loaded:
            arguments = [f"--state={state}"]
            arguments += [spec for spec, storage in variants(name) if storage == f"--state={state}"]
            data = compile_package(ZOO / f"{name}.mlir", folder, f"{name}-{state}", arguments)
            loaded[name, state] = _runtime.Package.from_bytes(data)
        return loaded[name, state]

    return get


@pytest.fixture
def checker():
    """Collects steps, which the test's own end compares with the interpreter's."""
    return Checker()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    """What a checker has collected is part of the test, not of what follows it."""
    result = yield
    if "checker" in pyfuncitem.funcargs:
        pyfuncitem.funcargs["checker"].verify()
    return result


TARGETS = ["x86-64-v3", "x86-64-v4"]


@pytest.fixture(params=TARGETS)
def target(request):
    if not _library.cpu_target().startswith(request.param) and request.param != "x86-64-v3":
        pytest.skip("this processor has no AVX-512")
    return request.param
