# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files of the cache: which are taken for ours, how they are read, written and removed.

An entry is a regular file ``<two digits>/<64 digits>.<kind>``, the two being the first of the 64.
Its first line has the size of what follows, and the SHA-256 of that behind the entry's name, so
that what is cut off, changed or another entry's is no entry: it is as if there were none. Beside
it, with a dot before the name, are what is being written and the lock of who is writing it.

What is in the cache is run. So a folder or an entry is read only if nobody else can have
written it: its owner is this user, root, or who owns this installation of Stepc, which is run
as well; and neither its group nor others may write. Each is opened in the folder that was
looked at, by its descriptor and through no link, and what is no regular file is not waited
for: between look and use nothing can take its place, and nothing outside of the directory is
touched. The directory itself may be a link: the user named it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import pwd
import re
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

KINDS = ("package", "interface")
_MAGIC = b"stepc-cache-2 "
_HEADER = re.compile(_MAGIC + rb"(?P<size>\d{1,12}) (?P<sha>[0-9a-f]{64})\n")
_HEADER_BYTES = len(_MAGIC) + 12 + 1 + 64 + 1  # the most
_MOST_BYTES = 1 << 30  # of an entry; packages have some 100 KB
_ENTRY = rf"[0-9a-f]{{64}}\.(?:{'|'.join(KINDS)})"
_NAME = re.compile(rf"(?P<entry>{_ENTRY})|\.(?P<of>{_ENTRY})\.(?:lock|new-[0-9a-f]{{8}})")
_FOLDER = re.compile("[0-9a-f]{2}")
_DAY = 86400.0  # seconds
_KEEP_DAYS = 30

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


# --- Whose it is --------------------------------------------------------------


def _check_trusted(path: Path, status: os.stat_result) -> None:
    """PermissionError where others could have put there what they want this user to run."""
    owner = status.st_uid
    if owner not in (os.geteuid(), 0, os.stat(__file__).st_uid):
        raise PermissionError(errno.EPERM, f"it belongs to {_user(owner)}", str(path))
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode = stat.S_IMODE(status.st_mode)
        words = f"others than its owner, {_user(owner)}, may write to it: mode {mode:04o}"
        raise PermissionError(errno.EPERM, words, str(path))


def _user(number: int) -> str:
    try:
        return f"user {number} ('{pwd.getpwuid(number).pw_name}')"
    except KeyError:
        return f"user {number}"


@contextlib.contextmanager
def _opened(path: Path, inside: int | None = None) -> Iterator[int]:
    """The descriptor of a directory; with that of the one it is in, through no link."""
    if inside is None:
        handle = os.open(path, _DIRECTORY)
    else:
        handle = os.open(path.name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=inside)
    try:
        _check_trusted(path, os.fstat(handle))
        yield handle
    finally:
        os.close(handle)


@contextlib.contextmanager
def _regular(name: str, folder: int) -> Iterator[tuple[BinaryIO, os.stat_result]]:
    """A file of the folder, to be read. FileNotFoundError for what is none: a link, a pipe."""
    try:
        handle = os.open(name, os.O_RDONLY | _FILE, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.ENODEV):
            raise FileNotFoundError(errno.ENOENT, "it is no regular file", name) from None
        raise
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise FileNotFoundError(errno.ENOENT, "it is no regular file", name)
        with os.fdopen(handle, "rb", closefd=False) as file:
            yield file, status
    finally:
        os.close(handle)


# --- An entry -----------------------------------------------------------------


class Entry:
    """The place of an entry in the cache at ``root``, whether or not it is there."""

    def __init__(self, root: Path, name: str):
        self.root, self.name = root, name
        self.path = root / name[:2] / name

    @contextlib.contextmanager
    def folder(self) -> Iterator[int]:
        """The descriptor of the folder, which is made where it is not there."""
        # An own cache is the user's alone, as XDG's specification of cache directories asks;
        # one that was named may be filled for others.
        mode = 0o755 if os.environ.get("STEPC_CACHE_DIR") else 0o700
        if not self.root.is_dir():
            self.root.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.root, mode)
        with _opened(self.root) as top:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.name[:2], 0o755, dir_fd=top)
            with _opened(self.path.parent, top) as folder:
                yield folder

    def read(self) -> bytes | None:
        """What was written; None where there is nothing, or not what was written. OSError:
        it may not be read, or not be trusted."""
        with contextlib.suppress(FileNotFoundError), contextlib.ExitStack() as opened:
            top = opened.enter_context(_opened(self.root))
            folder = opened.enter_context(_opened(self.path.parent, top))
            file, status = opened.enter_context(_regular(self.name, folder))
            _check_trusted(self.path, status)
            data = self._content(file, status.st_size)
            with contextlib.suppress(OSError):
                if data is not None and time.time() - status.st_mtime > _DAY:
                    os.utime(file.fileno())  # it is in use
            return data
        return None

    def _content(self, file: BinaryIO, size: int) -> bytes | None:
        """What stands behind the header of a file of the size; None where that says otherwise."""
        header = _HEADER.match(file.readline(_HEADER_BYTES))
        if header is None or size > _MOST_BYTES or int(header["size"]) != size - header.end():
            return None
        data = file.read()
        return data if self._digest(data).encode() == header["sha"] else None

    def _digest(self, data: bytes) -> str:
        return hashlib.sha256(self.name.encode() + b"\0" + data).hexdigest()

    def write(self, data: bytes) -> None:
        """Puts the entry in place, whole or not at all. OSError."""
        header = _MAGIC + f"{len(data)} {self._digest(data)}\n".encode()
        temporary = f".{self.name}.new-{secrets.token_hex(4)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE
        with self.folder() as folder:
            handle = os.open(temporary, flags, 0o644, dir_fd=folder)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(header + data)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, self.name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                raise


# --- All of a cache -----------------------------------------------------------


class Found(NamedTuple):
    """A file of this user's cache; ``used``: when it was made, or read, to a day."""

    name: str
    size: int  # bytes
    used: float  # seconds since the epoch


def drop_old(root: Path) -> None:
    """Removes what was not read for long, whenever something is added: that
    took a compilation, beside which a look at each entry is nothing."""
    drop(root, time.time() - _KEEP_DAYS * _DAY)


def drop(root: Path, limit: float) -> list[Found]:
    """Removes what was not used since the limit; returns what that was. OSError where the
    directory may not be read, or not be trusted."""
    dropped = []
    for found, folder in _files(root):
        if found.used < limit:
            os.unlink(found.name, dir_fd=folder)
            dropped.append(found)
    return dropped


def listed(root: Path) -> list[Found]:
    """The entries, the one that was used last first. OSError as of :func:`drop`."""
    entries = [found for found, _ in _files(root) if not found.name.startswith(".")]
    return sorted(entries, key=lambda found: -found.used)


def _files(root: Path) -> Iterator[tuple[Found, int]]:
    """What was made by this user's cache, each with the descriptor of its folder."""
    with _opened(root) as top:
        for digits in filter(_FOLDER.fullmatch, os.listdir(top)):
            with contextlib.suppress(OSError), _opened(root / digits, top) as folder:
                for name in os.listdir(folder):
                    found = _ours(folder, digits, name)
                    if found is not None:
                        yield found, folder


def _ours(folder: int, digits: str, name: str) -> Found | None:
    """None for a file that this user's cache has not made. What is being written, and a lock,
    may have less than a header, and no more."""
    match = _NAME.fullmatch(name)
    if match is None or not (match["entry"] or match["of"]).startswith(digits):
        return None
    with contextlib.suppress(OSError), _regular(name, folder) as (file, status):
        ours = status.st_uid == os.geteuid() and _MAGIC.startswith(file.read(len(_MAGIC)))
        return Found(name, status.st_size, status.st_mtime) if ours else None
    return None
