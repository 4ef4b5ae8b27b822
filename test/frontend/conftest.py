# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Shared by the tests of the frontend. They run on what is built in ``build/``
(or where STEPC_COMPILER and STEPC_RUNTIME_LIBRARY point) and fail without it."""

import os
import stat
from pathlib import Path

import pytest
from stepc import _cache, _compiler, definition
from stepc.torch.tensors import walk as _walk


@pytest.fixture(scope="session", autouse=True)
def session_cache(tmp_path_factory):
    """One cache for all tests, empty at the start; all processes of the run share it."""
    folder = tmp_path_factory.getbasetemp() / "cache"
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parents[1] / "cache"
    folder.mkdir(exist_ok=True)
    before = os.environ.get("STEPC_CACHE_DIR")
    os.environ["STEPC_CACHE_DIR"] = str(folder)
    yield folder
    if before is None:
        del os.environ["STEPC_CACHE_DIR"]
    else:
        os.environ["STEPC_CACHE_DIR"] = before


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """A cache of this test alone, and no package known to the process."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("STEPC_CACHE_DIR", str(folder))
    monkeypatch.setattr(definition, "_packages", {})
    monkeypatch.setattr(_cache, "_warned", False)
    return folder


@pytest.fixture
def compiler_runs(monkeypatch):
    """The argument lists of all runs of the compiler in this test."""
    runs = []
    real = _compiler._run

    def counting(text, name, arguments, folder, fragments=()):
        runs.append(arguments)
        return real(text, name, arguments, folder, fragments)

    monkeypatch.setattr(_compiler, "_run", counting)
    return runs


@pytest.fixture
def fake_compiler(tmp_path, monkeypatch):
    """Makes a shell script the compiler."""

    def install(script: str) -> Path:
        path = tmp_path / "fake-stepc"
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("STEPC_COMPILER", str(path))
        return path

    return install


@pytest.fixture
def way(request, monkeypatch):
    """How parameters and gradients are re-read: by torch's functions, by Python objects in the
    extension, or in Python."""
    if request.param == "python":
        monkeypatch.setattr(_walk, "load_extension", lambda: None)
    elif request.param == "objects":
        monkeypatch.setattr(_walk, "direct_functions", lambda: _walk._NO_DIRECT)
    return request.param
