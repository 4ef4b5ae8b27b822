# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cache of packages: found again, shared, replaced, done without."""

import os
import subprocess
import sys
import threading
import time

import pytest
from common import FRONTEND, ZOO
from stepc import _cache, _compiler, definition, errors
from stepc.definition import Definition

SPEC = ("param=f32,grad=f32,option.maximize=false",)


def lion() -> Definition:
    return Definition.from_zoo("lion")


def entries(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_directory(monkeypatch):
    monkeypatch.setenv("STEPC_CACHE_DIR", "/a")
    assert str(_cache.directory()) == "/a"
    monkeypatch.delenv("STEPC_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert str(_cache.directory()) == "/b/stepc"
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", "/h")
    assert str(_cache.directory()) == "/h/.cache/stepc"


def test_keys_do_not_run_together():
    assert _cache.key("a", "bc") != _cache.key("ab", "c")
    assert _cache.key("a") == _cache.key("a")


def test_second_start_compiles_nothing(own_cache, compiler_runs, monkeypatch):
    lion().package(SPEC)
    assert len(compiler_runs) == 1 and len(entries(own_cache)) == 1
    lion().package(SPEC)
    monkeypatch.setattr(definition, "_packages", {})  # as another process
    assert lion().package(SPEC).manifest["optimizer"] == "lion"
    assert len(compiler_runs) == 1


def test_what_the_key_depends_on(own_cache, compiler_runs, monkeypatch):
    lion().package(SPEC)
    lion().package(("param=f64,grad=f64,option.maximize=false",))
    assert len(compiler_runs) == 2
    changed = Definition("x.mlir", text=lion().text + "\n// a remark\n")
    changed.package(SPEC)
    assert len(compiler_runs) == 3
    monkeypatch.setattr(_compiler, "identity", lambda: "another compiler")
    lion().package(SPEC)
    assert len(compiler_runs) == 4


def test_fragments_are_in_the_key(own_cache, compiler_runs):
    """By their text and their order, for interfaces too."""
    one, two = ("unscale",), ("unscale", "clip_by_value")
    for fragments in (one, two, two[::-1]):
        definition = lion().with_fragments(fragments)
        definition.package(SPEC)
        definition.interface()
    assert len(compiler_runs) == len(entries(own_cache)) == 6
    lion().with_fragments(one).with_fragments(two[1:]).package(SPEC)
    assert len(compiler_runs) == 6
    changed = definition.fragments[0][1] + "\n// a remark\n"
    Definition("lion.mlir", lion().text, fragments=(("x.mlir", changed),)).package(SPEC)
    assert len(compiler_runs) == 7


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "text"])
def test_corrupt_entry_is_replaced(own_cache, compiler_runs, monkeypatch, damage):
    lion().package(SPEC)
    (entry,) = entries(own_cache)
    good = entry.read_bytes()
    middle = len(good) // 2
    entry.write_bytes(
        {
            "flip": good[:middle] + bytes([good[middle] ^ 4]) + good[middle + 1 :],
            "truncate": good[:middle],
            "empty": b"",
            "text": b"hello",
        }[damage]
    )
    monkeypatch.setattr(definition, "_packages", {})
    assert lion().package(SPEC).manifest["optimizer"] == "lion"
    assert len(compiler_runs) == 2
    assert len(entries(own_cache)) == 1 and entry.stat().st_size == len(good)


def test_corrupt_interface_is_replaced(own_cache, compiler_runs):
    first = lion().interface()
    (entry,) = entries(own_cache)
    entry.write_text('{"optimizer": "li')
    assert lion().interface() == first
    assert len(compiler_runs) == 2 and entry.read_text() != '{"optimizer": "li'


def works_without_cache(match: str) -> None:
    """Two packages, one warning."""
    with pytest.warns(RuntimeWarning, match=match) as caught:
        assert lion().package(SPEC).manifest["optimizer"] == "lion"
        lion().package(("param=f64,grad=f64,option.maximize=false",))
    assert len(caught) == 1


def test_cache_that_is_a_file(own_cache):
    own_cache.write_text("in the way")
    works_without_cache("cache directory .* cannot be used .*STEPC_CACHE_DIR")


def test_cache_that_cannot_be_made(own_cache, monkeypatch):
    monkeypatch.setenv("STEPC_CACHE_DIR", "/proc/no/such/place")
    works_without_cache("'/proc/no/such/place' cannot be used")


def test_unwritable_cache(own_cache, monkeypatch):
    """As for a user who may not write there (root may write anywhere)."""

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(_cache.tempfile, "mkstemp", refuse)
    works_without_cache("Permission denied")
    assert entries(own_cache) == []


def test_full_cache(own_cache, monkeypatch):
    """A write that finds the disk full leaves nothing behind."""

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_cache.os, "fsync", full)
    works_without_cache("No space left on device")
    assert entries(own_cache) == []


def test_full_file_system(own_cache, monkeypatch):
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    real = _cache.tempfile.mkstemp

    def in_full(**kwargs):
        handle, path = real(**kwargs)
        os.close(handle)
        return os.open("/dev/full", os.O_WRONLY), path

    monkeypatch.setattr(_cache.tempfile, "mkstemp", in_full)
    works_without_cache("No space left on device")
    assert entries(own_cache) == []


def test_failed_compilation_is_not_cached(own_cache, fake_compiler):
    fake_compiler("echo 'definition.mlir:1:1: error: no' >&2; exit 1\n")
    with pytest.raises(errors.DefinitionError):
        lion().package(SPEC)
    assert not own_cache.exists() or entries(own_cache) == []


RACE = """
import sys, time
from stepc.definition import Definition
while time.time() < float(sys.argv[1]): pass
package = Definition.from_zoo("lion").package(("param=f32,grad=f32,option.maximize=false",))
print(package.manifest["optimizer"])
"""


def race(folder, compiler):
    """What three processes say that ask for one package at the same time."""
    env = {**os.environ, "PYTHONPATH": str(FRONTEND), "STEPC_CACHE_DIR": str(folder),
           "STEPC_COMPILER": str(compiler)}  # fmt: skip
    at = str(time.time() + 0.5)
    running = [
        subprocess.Popen([sys.executable, "-c", RACE, at], env=env, stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    return [process.communicate()[0] for process in running]


def counting_compiler(folder):
    """A compiler that notes its runs; the path, and a function that counts them."""
    real, script, notes = _compiler.find_compiler(), folder / "stepc", folder / "runs"
    script.write_text(f'#!/bin/sh\necho >>"{notes}"\nexec "{real}" "$@"\n')
    script.chmod(0o755)
    return script, lambda: len(notes.read_text().splitlines())


def test_processes_that_lack_the_same_entry(own_cache, tmp_path):
    """One compiles, the others wait for what it made."""
    compiler, runs = counting_compiler(tmp_path)
    assert race(own_cache, compiler) == [b"lion\n"] * 3
    assert runs() == 1
    assert len(entries(own_cache)) == 1  # no locks or temporary files either
    assert race(own_cache, compiler) == [b"lion\n"] * 3
    assert runs() == 1


def test_a_lock_that_nobody_gives_back(own_cache, compiler_runs, monkeypatch):
    """A process that was stopped delays the others, it does not stop them."""
    monkeypatch.setattr(_cache, "_WAIT", 0.1)
    name = lion()._key("package", [f"--variant={SPEC[0]}"])
    path = own_cache / name[:2] / (name + ".stepc")
    with _cache._making(path) as locked:
        assert locked
        lion().package(SPEC)
    assert len(compiler_runs) == 1


def test_files_that_cannot_be_locked(own_cache, compiler_runs, monkeypatch):
    def refuse(handle, operation):
        raise OSError("no locks here")

    monkeypatch.setattr(_cache.fcntl, "flock", refuse)
    lion().package(SPEC)
    assert len(compiler_runs) == 1 and len(entries(own_cache)) == 1


def test_many_writers_one_entry(own_cache):
    """Readers see nothing or a whole entry, whoever writes at the time."""
    path = own_cache / "ab" / "abc.stepc"
    blobs = [bytes([65 + i]) * 200_000 for i in range(4)]
    stop = threading.Event()

    def write(blob):
        while not stop.is_set():
            _cache._write(path, blob)

    threads = [threading.Thread(target=write, args=(blob,)) for blob in blobs]
    for thread in threads:
        thread.start()
    seen = set()
    try:
        end = time.monotonic() + 30
        reads = 0
        while (reads < 500 or len(seen - {None}) < 2) and time.monotonic() < end:
            data = _cache._read(path)
            seen.add(data if data in (None, *blobs) else "torn")
            reads += 1
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert seen <= {None, *blobs} and len(seen - {None}) > 1
    assert entries(own_cache) == [path]


def test_zoo_has_its_files():
    assert {path.stem for path in ZOO.glob("*.mlir")} >= {"adamw", "sgd", "lion"}
    with pytest.raises(errors.StepcError, match="no optimizer 'adamish'"):
        Definition.from_zoo("adamish")


def test_entries_that_are_not_used_are_dropped(own_cache):
    """When something is added; reading one is using it."""
    lion().package(SPEC)
    (old,) = entries(own_cache)
    month = time.time() - 31 * 86400
    unused = own_cache / "ab" / ("ab" * 32 + ".stepc")
    foreign = own_cache / "notes" / "mine.txt"
    for path in (unused, foreign):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    for path in (old, unused, foreign):
        os.utime(path, (month, month))
    definition._packages.clear()
    lion().package(SPEC)  # used, nothing added
    assert unused.exists() and old.stat().st_mtime > month + 86400
    lion().package(("param=f64,grad=f64,option.maximize=false",))
    assert not unused.exists() and old.exists() and foreign.exists()
    assert len(entries(own_cache)) == 3
