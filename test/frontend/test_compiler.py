# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Running the compiler: what happens when it is missing, slow, killed, refuses."""

import os
import pickle
import tempfile
import time

import pytest
from common import ZOO
from stepc import _compiler, errors


def compile_it(text="step.optimizer @x {}\n", name="/home/me/x.mlir"):
    return _compiler.compile_package(text, name, ["--variant=param=f32,grad=f32"])


def test_missing_compiler(monkeypatch):
    monkeypatch.setenv("STEPC_COMPILER", "/nonexistent/stepc")
    with pytest.raises(errors.CompilerNotFoundError, match="'/nonexistent/stepc'.*STEPC_COMPILER"):
        compile_it()


def test_compiler_that_cannot_run(tmp_path, monkeypatch):
    path = tmp_path / "stepc"
    path.write_text("not a program")
    monkeypatch.setenv("STEPC_COMPILER", str(path))
    with pytest.raises(errors.CompilerNotFoundError, match="cannot run the compiler .*ermission"):
        compile_it()


def test_arguments_and_snapshot(fake_compiler):
    """No shell, a definition of its own, and the request as it was made."""
    fake_compiler('printf "%s\\n" "$@" > "$3"; cat "$1" >> "$3"; ls >> "$3"\n')
    out = compile_it("the text; $(touch x)\n").decode()
    assert out.splitlines() == [
        *["definition.mlir", "-o", "out.stepc", "--variant=param=f32,grad=f32"],
        "the text; $(touch x)",
        *["definition.mlir", "out.stepc"],
    ]


def test_temporary_files_are_removed(fake_compiler, tmp_path, monkeypatch):
    monkeypatch.setattr(_compiler.tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    fake_compiler('echo package > "$3"\n')
    assert compile_it() == b"package\n"
    fake_compiler("kill -9 $$\n")
    with pytest.raises(errors.CompilerCrashedError):
        compile_it()
    assert list((tmp_path / "tmp").iterdir()) == []


def test_killed_compiler(fake_compiler):
    fake_compiler("echo some words >&2; kill -SEGV $$\n")
    with pytest.raises(errors.CompilerCrashedError, match=r"SIGSEGV.*x\.mlir.*\n.*some words"):
        compile_it()


def test_compiler_out_of_time(fake_compiler, monkeypatch, tmp_path):
    """The deadline holds for what the compiler started, too."""
    fake_compiler(f"(sleep 3; touch {tmp_path}/survived) & sleep 30\n")
    monkeypatch.setenv("STEPC_COMPILE_TIMEOUT", "0.3")
    start = time.monotonic()
    with pytest.raises(errors.CompilerTimeoutError, match=r"x\.mlir.* 0\.3 s.*STEPC_COMPILE_TIM"):
        compile_it()
    assert time.monotonic() - start < 2.5
    time.sleep(max(0.0, 3.5 - (time.monotonic() - start)))
    assert not (tmp_path / "survived").exists()


@pytest.mark.parametrize("text", ["soon", "-1", "0", "nan", "inf", "1e7"])
def test_bad_deadline(fake_compiler, monkeypatch, text):
    fake_compiler('echo package > "$3"\n')
    monkeypatch.setenv("STEPC_COMPILE_TIMEOUT", text)
    with pytest.raises(errors.CompilerError, match=f"STEPC_COMPILE_TIMEOUT is '{text}'"):
        compile_it()


def test_refused_definition(fake_compiler):
    """The exception has the user's file, line and column, not the snapshot's."""
    fake_compiler(
        'echo "definition.mlir:3:14: error: no op of this name" >&2\n'
        'echo "  %a = step.frob" >&2\n'
        'echo "definition.mlir:1:1: note: in this optimizer" >&2\n'
        "exit 1\n"
    )
    with pytest.raises(errors.DefinitionError) as caught:
        compile_it(name="/home/a b/my.mlir")
    first, second = caught.value.diagnostics
    assert str(first) == "/home/a b/my.mlir:3:14: error: no op of this name"
    assert (second.line, second.column, second.severity) == (1, 1, "note")
    assert str(caught.value).startswith("/home/a b/my.mlir:3:14: error: no op of this name\n  %a")
    assert "definition.mlir" not in str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.diagnostics == caught.value.diagnostics


def test_a_full_temporary_folder(monkeypatch):
    """It is no error of the definition."""

    class Full(tempfile.TemporaryDirectory):
        def __enter__(self):
            os.symlink("/dev/full", os.path.join(self.name, "out.stepc"))
            return super().__enter__()

    monkeypatch.setattr(_compiler.tempfile, "TemporaryDirectory", Full)
    text = (ZOO / "sgd.mlir").read_text()
    with pytest.raises(errors.CompilerError) as caught:
        _compiler.compile_package(text, "sgd.mlir", [])
    assert type(caught.value) is errors.CompilerError
    words = "cannot write 'out.stepc': No space left on device"
    assert str(caught.value) == f"the compiler could not finish 'sgd.mlir': {words}"


def test_no_temporary_folder(fake_compiler, monkeypatch, tmp_path):
    fake_compiler("exit 0\n")
    monkeypatch.setattr(_compiler.tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(errors.CompilerError, match="No such file or directory.*; TMPDIR names"):
        compile_it()


def test_other_exit_status(fake_compiler):
    fake_compiler("echo usage: >&2; exit 2\n")
    with pytest.raises(errors.CompilerCrashedError, match=r"status 2 .*\nusage:"):
        compile_it()


def test_success_without_a_package(fake_compiler):
    fake_compiler("exit 0\n")
    with pytest.raises(errors.CompilerCrashedError, match="wrote no package"):
        compile_it()


def test_identity_follows_the_file(fake_compiler):
    path = fake_compiler("exit 0\n")
    first = _compiler.identity()
    assert _compiler.identity() == first
    os.utime(path, ns=(1, 1))
    assert _compiler.identity() != first


def test_errors_are_one_family():
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, Exception):
            assert issubclass(kind, errors.StepcError), kind
