# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Machines that Stepc is not made for are told so in one line, where something does not run."""

import platform
import sys

import pytest
from stepc import _compiler, _library, _platform, errors

OTHERS = {
    "musl": (platform, "libc_ver", lambda: ("", ""), "this Python has another C library"),
    "processor": (platform, "machine", lambda: "aarch64", "for x86-64 processors, this is aarch64"),
    "system": (sys, "platform", "darwin", "for Linux, this is darwin"),
}


@pytest.fixture(params=OTHERS)
def words(request, monkeypatch):
    module, name, value, said = OTHERS[request.param]
    monkeypatch.setattr(module, name, value)
    return said


def test_a_library_that_cannot_be_loaded(words, tmp_path, monkeypatch):
    library = tmp_path / "libstepc_runtime.so"
    library.write_bytes(b"\x7fELF of another machine")
    monkeypatch.setenv("STEPC_RUNTIME_LIBRARY", str(library))
    with pytest.raises(errors.RuntimeLibraryError, match=words) as caught:
        _library.load_library()
    assert "\n" not in str(caught.value)


def test_a_compiler_that_cannot_be_run(words, tmp_path, monkeypatch):
    compiler = tmp_path / "stepc"
    compiler.write_bytes(b"\x7fELF of another machine")
    compiler.chmod(0o755)
    monkeypatch.setenv("STEPC_COMPILER", str(compiler))
    with pytest.raises(errors.CompilerNotFoundError, match=words) as caught:
        _compiler.interface("", "none.mlir")
    assert "\n" not in str(caught.value)


def test_here_nothing_is_known():
    assert _platform.why_not() is None
