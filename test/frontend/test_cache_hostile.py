# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A cache in which others have been: each start ends in a compilation or a refusal, within
seconds, runs nothing that others could have written, and leaves alone what is not the cache's.

A start is a process of its own with a limit of time and of memory. What is put in the place of
entries, locks, folders and the cache itself is drawn at random, together.
"""

import json
import os
import random
import re
import shutil
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from common import FRONTEND
from stepc import _cache_files

OTHER = 54321  # a user who is neither this one nor root
MONTH = 40 * 86400
HEX = "ab" * 32
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")

START = """
import json, resource, sys, warnings
from stepc import _compiler
from stepc.definition import Definition
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
runs, real = [], _compiler._run
def counting(*args):
    runs.append(1)
    return real(*args)
_compiler._run = counting
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    lion = Definition.from_zoo("lion")
    hypers = str(lion.interface().hypers)
    package = lion.package(("param=f32,grad=f32,option.maximize=false",))
said = [str(warning.message) for warning in caught]
print(json.dumps([hypers, package.manifest["optimizer"], len(runs), said]))
"""


def start(cache, seconds=30.0):
    """Defaults and name of the optimizer, runs of the compiler, warnings."""
    env = {**os.environ, "PYTHONPATH": str(FRONTEND), "STEPC_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", START]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A cache with the two entries of a start, and what the start says."""
    folder = tmp_path_factory.mktemp("filled") / "cache"
    found = start(folder)
    assert found[2] == 2 and not found[3]
    assert start(folder) == [*found[:2], 0, []]
    return folder, found[:2]


@pytest.fixture
def cache(filled, tmp_path):
    """A copy of it, and a folder outside."""
    shutil.copytree(filled[0], tmp_path / "cache")
    outside = tmp_path / "outside"
    outside.mkdir()
    return tmp_path / "cache", outside


def contents(folder):
    """All that is in a folder, without following links."""
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mode,
            path.read_bytes() if path.is_file() and not path.is_symlink() else None,
        )
        for path in sorted(folder.rglob("*"))
    }


def entries(folder, kind="*"):
    """Those of a start."""
    names = [path.relative_to(folder) for path in folder.glob(f"??/*.{kind}")]
    own = [folder / name for name in names if re.fullmatch(r"(..)/\1\w{62}\.\w+", str(name))]
    return sorted(path for path in own if HEX not in path.name)


# --- What may stand in the place of an entry -----------------------------------


def flipped(path, rng, outside):
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def noise(path, rng, outside):
    path.write_bytes(rng.randbytes(rng.choice([0, 1, 100, path.stat().st_size, 10**6])))


def noise_inside(path, rng, outside):
    data = bytearray(path.read_bytes())
    at = rng.randrange(len(data))
    data[at : at + 100] = rng.randbytes(len(data[at : at + 100]))
    path.write_bytes(data)


def truncated(path, rng, outside):
    os.truncate(path, rng.randrange(path.stat().st_size))


def longer(path, rng, outside):
    with open(path, "ab") as file:
        file.write(b"\0" * rng.randrange(1, 100))


def huge(path, rng, outside):
    os.truncate(path, 1 << 40)  # a hole, most of it


def other_entry(path, rng, outside):
    other = rng.choice([each for each in entries(path.parents[1]) if each != path])
    if other.is_file() and other.stat().st_size < 1 << 20:
        (outside / "copy").write_bytes(other.read_bytes())
        os.replace(outside / "copy", path)


def fifo(path, rng, outside):
    path.unlink()
    os.mkfifo(path)


def listening(path, rng, outside):
    path.unlink()
    before = os.open(".", os.O_RDONLY)
    try:
        os.chdir(path.parent)  # the name of a socket may have 107 bytes
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.fchdir(before)
        os.close(before)


def link(target):
    def put(path, rng, outside):
        path.unlink()
        path.symlink_to(target(outside))

    return put


def to_its_copy(path, rng, outside):
    os.rename(path, outside / "entry")
    path.symlink_to(outside / "entry")


def folder(path, rng, outside):
    path.unlink()
    path.mkdir()
    (path / "mine.txt").write_text("mine")


def writable(path, rng, outside):
    path.chmod(rng.choice([0o666, 0o664, 0o646]))


def unreadable(path, rng, outside):
    path.chmod(0)


def missing(path, rng, outside):
    path.unlink()


def given_away(path, rng, outside):
    os.chown(path, OTHER, OTHER)


def mine_in(outside):
    (outside / "linked").write_text("mine")
    return outside / "linked"


BAD = {
    "flipped": flipped,
    "noise": noise,
    "noise inside": noise_inside,
    "truncated": truncated,
    "longer": longer,
    "huge": huge,
    "another's": other_entry,
    "fifo": fifo,
    "socket": listening,
    "to a device": link(lambda outside: "/dev/zero"),
    "to a terminal": link(lambda outside: "/dev/tty"),
    "to a file": link(mine_in),
    "to its copy": to_its_copy,
    "to nothing": link(lambda outside: outside / "nothing"),
    "folder": folder,
    "writable": writable,
    "missing": missing,
    **({"given away": given_away} if os.geteuid() == 0 else {"unreadable": unreadable}),
}


@pytest.mark.parametrize("kind", _cache_files.KINDS)
@pytest.mark.parametrize("bad", BAD)
def test_what_is_no_entry_is_made_anew(cache, filled, bad, kind):
    """To the byte, as compiling says the same each time."""
    where, outside = cache
    (path,) = entries(where, kind)
    BAD[bad](path, random.Random(f"{bad} {kind}"), outside)
    before = contents(outside)
    assert start(where)[:3] == [*filled[1], 1]
    if bad != "folder":  # in place of which nothing is put
        assert path.read_bytes() == (filled[0] / path.relative_to(where)).read_bytes()
        assert start(where) == [*filled[1], 0, []]
    else:
        assert (path / "mine.txt").read_text() == "mine"
    assert contents(outside) == before


def test_no_bit_of_an_interface_can_change(cache, filled):
    """A digit of a default, where JSON stays JSON."""
    where, _ = cache
    (path,) = entries(where, "interface")
    good = path.read_bytes()
    at = good.index(b"0.9")
    for place in (at, at + 2):
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        assert start(where)[:3] == [*filled[1], 1]


def test_an_entry_in_the_place_of_another(tmp_path):
    """Both are whole, and of one kind."""
    one, two = (_cache_files.Entry(tmp_path, f"{digit * 64}.package") for digit in "ab")
    for entry in (one, two):
        entry.write(entry.name.encode())
    os.replace(one.path, two.path)
    assert two.read() is None


# --- Locks, folders, the cache --------------------------------------------------


def test_a_folder_that_leads_out(cache, filled):
    """Neither read, nor written, nor cleaned."""
    where, outside = cache
    for place in where.iterdir():
        os.rename(place, outside / place.name)
        place.symlink_to(outside / place.name)
    before = contents(outside)
    found = start(where)
    assert found[:3] == [*filled[1], 2] and "Not a directory" in found[3][0]
    assert contents(outside) == before


def owned_by(words):
    """What the warning says of the owner, for this user's files or the other's."""
    return f"user {OTHER}" if words == "owner" else f"user {os.geteuid()}"


@pytest.mark.parametrize("what", ["cache", "folder"])
@pytest.mark.parametrize("how", [0o775, 0o757, 0o1777, pytest.param("owner", marks=as_root)])
def test_where_others_may_write_nothing_is_read(cache, filled, what, how):
    where, _ = cache
    for path in [where] if what == "cache" else where.iterdir():
        if how == "owner":
            os.chown(path, OTHER, OTHER)
        else:
            path.chmod(how)
    before = contents(where)
    begin = time.monotonic()
    found = start(where)
    assert found[:3] == [*filled[1], 2] and len(found[3]) == 1
    assert owned_by(how) in found[3][0] and str(where) in found[3][0]
    assert how == "owner" or f"mode {how:04o}" in found[3][0]
    assert contents(where) == before and time.monotonic() - begin < 20


def test_a_cache_that_is_linked_to(cache, filled):
    """Its user named it, wherever it lies."""
    where, outside = cache
    (outside / "cache").symlink_to(where)
    assert start(outside / "cache") == [*filled[1], 0, []]


def test_a_cache_that_an_administrator_filled(cache, filled):
    """It is read, by users who can write nothing there; what it lacks they compile."""
    where, _ = cache
    for path in [*where.rglob("*"), where]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    env = {**os.environ, "PYTHONPATH": str(FRONTEND), "STEPC_CACHE_DIR": str(where)}
    as_user = ["setpriv", f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups"]
    if os.geteuid() != 0:
        assert start(where) == [*filled[1], 0, []]
        return
    for path in (where, *where.parents):  # as folders of tests are the tester's alone
        if path.stat().st_uid == 0 and not path.stat().st_mode & 0o005:
            pytest.skip(f"{path} is for root alone") if path == Path("/root") else path.chmod(0o755)
    command = [*as_user, sys.executable, "-c", START]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [*filled[1], 0, []]


def test_modes_of_what_is_made(cache, filled, tmp_path, monkeypatch):
    """Others may read a cache that was named, but not lock it; nobody may write it."""
    where, _ = cache
    assert stat.S_IMODE(filled[0].stat().st_mode) == 0o755
    assert {stat.S_IMODE(path.stat().st_mode) for path in entries(where)} == {0o644}
    monkeypatch.delenv("STEPC_CACHE_DIR")
    _cache_files.Entry(tmp_path / "own", "ab" * 32 + ".package").write(b"x")
    assert stat.S_IMODE((tmp_path / "own").stat().st_mode) == 0o700


@pytest.mark.parametrize("bad", ["fifo", "folder", "to a device", "to a file"])
def test_what_is_no_lock(cache, filled, bad):
    where, outside = cache
    for path in entries(where):
        lock = path.with_name(f".{path.name}.lock")
        path.rename(lock)
        BAD[bad](lock, random.Random(0), outside)
    begin = time.monotonic()
    assert start(where)[:3] == [*filled[1], 2]
    assert time.monotonic() - begin < 20
    assert start(where)[2] == 0


# --- Cleaning -------------------------------------------------------------------


FOREIGN = [
    "ab/thesis.tex",
    "ab/data.package",
    f"ab/{HEX}",
    f"ab/{HEX}.json",
    f"ab/{HEX}.package",  # without the header
    f"ab/{HEX}.package.bak",
    f"ab/.{HEX}.package.new-0123456789",
    f"cd/{HEX}.package",  # in another's folder
    f"abc/{HEX}.package",
    f"{HEX}.package",
    "notes/mine.txt",
]
OURS = [
    f"ab/{HEX}.interface",
    f"ab/.{HEX}.interface.lock",
    f"ab/.{HEX}.interface.new-01234567",
    f"ab/.{HEX}.package.new-76543210",
]


def test_cleaning_removes_what_the_cache_made_alone(cache):
    where, outside = cache
    header = _cache_files._MAGIC
    for name in (*FOREIGN, *OURS):
        path = where / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"mine")
    for name, data in zip(OURS, (header + b"...", b"", header[:5], header), strict=True):
        (where / name).write_bytes(data)
    for name in FOREIGN:
        if name != f"ab/{HEX}.package":
            (where / name).write_bytes(header + (b"x" if "/" in name else b""))
    # Through links out of it: a file, and a folder (of a name that no entry of the start has).
    linked = next(name for name in (f"{k:02x}" for k in range(256)) if not (where / name).exists())
    (outside / f"{linked * 32}.package").write_bytes(header)
    (where / linked).symlink_to(outside)
    (where / "ab" / f"ab{'0' * 62}.package").symlink_to(outside / f"{linked * 32}.package")
    (where / "ab" / f"ab{'1' * 62}.package").mkdir()
    os.mkfifo(where / "ab" / f"ab{'2' * 62}.package")
    long_ago = time.time() - MONTH
    for path in (*where.rglob("*"), *outside.rglob("*")):
        os.utime(path, (long_ago, long_ago), follow_symlinks=False)
    _cache_files.drop_old(where)
    for name in FOREIGN:
        assert (where / name).exists(), name
    for name in OURS:
        assert not (where / name).exists(), name
    assert len(list((where / "ab").glob("ab[012]*.package"))) == 3
    assert list(outside.iterdir()) and (where / linked).is_symlink()
    assert not entries(where, "interface")  # they are as old


def test_cleaning_leaves_what_is_in_use(cache):
    where, _ = cache
    before = contents(where)
    _cache_files.drop_old(where)
    assert contents(where) == before


# --- All of it together ---------------------------------------------------------


def corrupt(where, outside, rng):
    """Does something to several places of the cache; says what."""
    done = []
    for path in entries(where):
        if rng.random() < 0.3:
            continue
        name = rng.choice(sorted(BAD))
        BAD[name](path, rng, outside)
        done.append(name)
        if rng.random() < 0.3:
            lock = path.with_name(f".{path.name}.lock")
            lock.write_bytes(b"")
            name = rng.choice([bad for bad in sorted(BAD) if bad not in ("flipped", "truncated")])
            BAD[name](lock, rng, outside)
            done.append(f"lock: {name}")
    if rng.random() < 0.3:
        path = rng.choice([where, *(path for path in where.iterdir() if path.is_dir())])
        path.chmod(rng.choice([0o700, 0o775, 0o777, 0o1777]))
        done.append(f"mode of {'the cache' if path == where else 'a folder'}")
    return done


@pytest.mark.parametrize("seed", range(8))
def test_anything_anywhere(cache, filled, seed):
    where, outside = cache
    rng = random.Random(seed)
    foreign = {where / name: name.encode() for name in FOREIGN}
    for path, data in foreign.items():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        os.utime(path, (0, 0))
    for _ in range(2):
        done = corrupt(where, outside, rng)
        before = contents(outside)
        assert start(where)[:2] == filled[1], done
        for path, data in foreign.items():
            assert path.read_bytes() == data, (path, done)
        assert contents(outside) == before, done
