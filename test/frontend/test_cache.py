# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cache of packages: found again, shared, replaced, done without."""

import errno
import os
import pwd
import subprocess
import sys
import threading
import time

import pytest
import stepc.torch
from common import FRONTEND, ZOO
from stepc import _cache, _cache_files, _cache_lock, _compiler, definition, errors
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
    monkeypatch.setenv("STEPC_CACHE_DIR", "~/c")
    assert str(_cache.directory()) == "/h/c"


@pytest.mark.parametrize("named", [None, "~/cache", "~nobody-of-this-name/cache"])
def test_without_a_home_there_is_no_cache(own_cache, monkeypatch, tmp_path, named):
    """As in a container with a user that it does not know; nothing is made where it stands."""

    def unknown(user):
        raise KeyError(user)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("HOME", "XDG_CACHE_HOME", "STEPC_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    if named:
        monkeypatch.setenv("STEPC_CACHE_DIR", named)
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert _cache.directory() is None and stepc.torch.info()["cache"] is None
    works_without_cache("there is no cache: the home directory of .* is not known")
    assert list(folder.iterdir()) == []


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


def refusing(monkeypatch, number):
    """Has whoever opens a file to write it hear that it cannot be."""
    real = os.open

    def refuse(path, flags, *args, **kwargs):
        if flags & os.O_CREAT:
            raise OSError(number, os.strerror(number), path)
        return real(path, flags, *args, **kwargs)

    monkeypatch.setattr(_cache_files.os, "open", refuse)


def test_unwritable_cache(own_cache, monkeypatch):
    """As for a user who may not write there (root may write anywhere)."""
    refusing(monkeypatch, errno.EACCES)
    works_without_cache("Permission denied")
    assert entries(own_cache) == []


def test_full_cache(own_cache, monkeypatch):
    """A write that finds the disk full leaves nothing behind."""

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(_cache_files.os, "fsync", full)
    works_without_cache("No space left on device")
    assert entries(own_cache) == []


def test_full_file_system(own_cache, monkeypatch):
    real = os.open

    def in_full(path, flags, *args, **kwargs):
        handle = real(path, flags, *args, **kwargs)
        if flags & os.O_EXCL:
            os.close(handle)
            return real("/dev/full", os.O_WRONLY)
        return handle

    monkeypatch.setattr(_cache_files.os, "open", in_full)
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


def entry_of(folder, spec=SPEC) -> _cache_files.Entry:
    name = lion()._key("package", [f"--variant={spec[0]}"])
    return _cache_files.Entry(folder, f"{name}.package")


def test_a_lock_that_nobody_gives_back(own_cache, compiler_runs):
    """A process that was stopped delays the others a little, it does not stop them."""
    entry = entry_of(own_cache)
    lock = entry.path.with_name(f".{entry.name}.lock")
    lock.parent.mkdir(parents=True)
    held = "import fcntl, sys, time; fcntl.flock(open(sys.argv[1], 'w'), fcntl.LOCK_EX)"
    holder = subprocess.Popen(
        [sys.executable, "-c", f"{held}; print(flush=True); time.sleep(600)", lock],
        stdout=subprocess.PIPE,
    )
    try:
        holder.stdout.readline()
        begin = time.monotonic()
        lion().package(SPEC)
        assert time.monotonic() - begin < _cache_lock._SILENCE + 10
    finally:
        holder.kill()
        holder.communicate()
    assert len(compiler_runs) == 1


def test_who_makes_an_entry_is_waited_for(own_cache, compiler_runs, monkeypatch):
    """However long it takes, as it says again and again that it does."""
    monkeypatch.setattr(_cache_lock, "_SILENCE", 0.5)
    monkeypatch.setattr(_cache_lock, "_BEAT", 0.05)
    data = entry_of(own_cache)
    lion().package(SPEC)
    made = data.read()
    os.unlink(data.path)
    definition._packages.clear()
    thread = threading.Thread(target=lambda: lion().package(SPEC))
    with _cache_lock.making(data) as locked:
        assert locked
        thread.start()
        time.sleep(2.0)
        data.write(made)
    thread.join()
    assert len(compiler_runs) == 1


def test_files_that_cannot_be_locked(own_cache, compiler_runs, monkeypatch):
    def refuse(handle, operation):
        raise OSError("no locks here")

    monkeypatch.setattr(_cache_lock.fcntl, "flock", refuse)
    lion().package(SPEC)
    assert len(compiler_runs) == 1 and len(entries(own_cache)) == 1


def test_many_writers_one_entry(own_cache):
    """Readers see nothing or a whole entry, whoever writes at the time."""
    entry = _cache_files.Entry(own_cache, "ab" * 32 + ".package")
    blobs = [bytes([65 + i]) * 200_000 for i in range(4)]
    stop = threading.Event()

    def write(blob):
        while not stop.is_set():
            entry.write(blob)

    threads = [threading.Thread(target=write, args=(blob,)) for blob in blobs]
    for thread in threads:
        thread.start()
    seen = set()
    try:
        end = time.monotonic() + 30
        reads = 0
        while (reads < 500 or len(seen - {None}) < 2) and time.monotonic() < end:
            data = entry.read()
            seen.add(data if data in (None, *blobs) else "torn")
            reads += 1
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert seen <= {None, *blobs} and len(seen - {None}) > 1
    assert entries(own_cache) == [entry.path]


def test_zoo_has_its_files():
    assert {path.stem for path in ZOO.glob("*.mlir")} >= {"adamw", "sgd", "lion"}
    with pytest.raises(errors.StepcError, match="no optimizer 'adamish'"):
        Definition.from_zoo("adamish")


def test_entries_that_are_not_used_are_dropped(own_cache):
    """When something is added; reading one is using it."""
    lion().package(SPEC)
    (old,) = entries(own_cache)
    month = time.time() - 31 * 86400
    unused = _cache_files.Entry(own_cache, "ab" * 32 + ".package")
    unused.write(b"x")
    for path in (old, unused.path):
        os.utime(path, (month, month))
    definition._packages.clear()
    lion().package(SPEC)  # used, nothing added
    assert unused.path.exists() and old.stat().st_mtime > month + 86400
    lion().package(("param=f64,grad=f64,option.maximize=false",))
    assert not unused.path.exists() and old.exists()
    assert len(entries(own_cache)) == 2
