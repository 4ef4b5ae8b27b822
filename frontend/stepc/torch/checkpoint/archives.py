# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files as ``torch.save`` writes them: a zip of a pickle and the bytes of each storage."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import shutil
import struct
import zipfile

import torch

from ...errors import CheckpointError
from .form import Stored, in_file, open_file
from .pickles import STORAGES, RefusedError, unpickled

_MAGIC = b"PK\x03\x04"
_ALIGNMENT = 64  # of the bytes of a storage, as torch has it
_WIDE = 2**31  # bytes of a record from which on a zip has its size in other words
_LOCAL = struct.Struct("<4s5H3I2H")  # a zip's header before a file


@contextlib.contextmanager
def reading(path: str):
    """Makes of whatever a broken file leads to an error that names the file."""
    try:
        yield
    except CheckpointError:
        raise
    except RefusedError as error:
        raise CheckpointError(path, str(error)) from None
    except Exception as error:
        words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise CheckpointError(path, f"is damaged, or no checkpoint ({words[:300]})") from error


class _Window(io.RawIOBase):
    """Some bytes of a file, as a file."""

    def __init__(self, file, begin: int, size: int):
        self._file, self._begin, self._size, self._at = file, begin, size, 0

    def readable(self):
        return True

    def seekable(self):
        return True

    def tell(self):
        return self._at

    def seek(self, offset, whence=0):
        self._at = max(offset + (0, self._at, self._size)[whence], 0)
        return self._at

    def readinto(self, into):
        self._file.seek(self._begin + self._at)
        count = self._file.readinto(memoryview(into)[: max(self._size - self._at, 0)])
        self._at += count
        return count


def is_archive(path: str) -> bool:
    """Whether a file begins as a zip does."""
    with open_file(path) as file:
        return file.read(4) == _MAGIC


def read_archive(path: str, begin: int = 0, size: int | None = None) -> object:
    """What ``torch.save`` was given, with :class:`Stored` where tensors were, of which none is
    read. ``begin``, ``size``: where in the file it lies.

    CheckpointError for what is no such file, is cut off, or has what is not read.
    """
    with reading(path), open_file(path) as file:
        whole = os.fstat(file.fileno()).st_size
        size = whole - begin if size is None else size
        if begin < 0 or size < 0 or begin + size > whole:
            raise CheckpointError(path, f"has {whole} bytes, expected {begin + size} or more")
        file.seek(begin)
        head = file.read(4)
        if head != _MAGIC:
            old = "was saved by torch.save of before 1.6: " if head[:2] == b"\x80\x02" else ""
            raise CheckpointError(path, f"{old}is no zip, as torch.save writes it")
        try:
            archive = zipfile.ZipFile(io.BufferedReader(_Window(file, begin, size)))
        except zipfile.BadZipFile as error:
            raise CheckpointError(path, f"is cut off or damaged: {error}") from None
        with archive:
            return _Archive(path, file, begin, size, archive).load()


class _Archive:
    """An open file and what lies where in it."""

    def __init__(self, path, file, begin, size, archive):
        self._path, self._file, self._begin, self._size = path, file, begin, size
        self._archive = archive
        self._infos = {info.filename: info for info in archive.infolist()}
        pickles = [name for name in self._infos if name.endswith("data.pkl")]
        if len(pickles) != 1:
            raise CheckpointError(path, "is a zip without data.pkl: nothing that torch.save wrote")
        self._folder = pickles[0].removesuffix("data.pkl")

    def load(self) -> object:
        order = self._infos.get(f"{self._folder}byteorder")
        if order:
            self._place(order)  # nothing that is unpacked to more than the file has
        if order and (order.file_size > 16 or self._archive.read(order) != b"little"):
            raise CheckpointError(self._path, "was saved by a processor of another byte order")
        info = self._infos[f"{self._folder}data.pkl"]
        self._place(info)
        return unpickled(self._archive.read(info), self._vector)

    def _vector(self, key: str, dtype: torch.dtype, numel: int) -> Stored:
        info = self._infos.get(f"{self._folder}data/{key}")
        if info is None:
            raise CheckpointError(self._path, f"lacks the storage '{key}' of a tensor")
        if not 0 <= numel * dtype.itemsize <= info.file_size:
            raise CheckpointError(
                self._path, f"has {info.file_size} bytes for a storage of {numel} {dtype}"
            )
        return in_file(self._path, self._place(info), dtype, numel)

    def _place(self, info: zipfile.ZipInfo) -> int:
        """Where in the file the bytes of a record begin."""
        self._file.seek(self._begin + info.header_offset)
        head = self._file.read(_LOCAL.size)
        if info.compress_type != zipfile.ZIP_STORED or head[:4] != _MAGIC:
            raise CheckpointError(self._path, f"has a record '{info.filename}' that is not plain")
        name, extra = _LOCAL.unpack(head)[-2:]
        at = info.header_offset + _LOCAL.size + name + extra
        if at + info.file_size > self._size:
            raise CheckpointError(self._path, f"ends within its record '{info.filename}'")
        return self._begin + at


# --- Writing ------------------------------------------------------------------


class _Kept:
    """What the pickle has of a storage."""

    def __init__(self, stored: Stored, key: str):
        self.stored, self.key = stored, key


class _Writer(pickle._Pickler):
    """A pickle as torch's, in which :class:`Stored` are tensors. In Python, as torch's classes
    of storages have to go in as the globals that they were."""

    dispatch = dict(pickle._Pickler.dispatch)

    def __init__(self, file):
        super().__init__(file, protocol=2)
        self.kept: list[_Kept] = []

    def persistent_id(self, value):
        if not isinstance(value, _Kept):
            return None
        stored = value.stored
        kind = getattr(torch, next(n for n, own in STORAGES.items() if own is stored.dtype))
        return ("storage", kind, value.key, "cpu", stored.numel)

    def save_stored(self, value):
        kept = _Kept(value, str(len(self.kept)))
        self.kept.append(kept)
        strides, step = [], 1
        for extent in reversed(value.shape):
            strides.append(step)
            step *= max(extent, 1)
        args = (kept, 0, value.shape, tuple(reversed(strides)), False, {})
        self.save_reduce(torch._utils._rebuild_tensor_v2, args, obj=value)

    dispatch[Stored] = save_stored


def write_archive(path: str, tree: object, each=lambda _: None) -> None:
    """A file that ``torch.load`` reads, of a tree with :class:`Stored` in the place of tensors;
    each of them is read and written by itself. ``each``: called with the bytes of each."""
    with writing(path) as beside, zipfile.ZipFile(beside, "w", zipfile.ZIP_STORED) as archive:
        pickled = io.BytesIO()
        writer = _Writer(pickled)
        writer.dump(tree)
        _record(archive, "archive/data.pkl", pickled.getbuffer())
        _record(archive, "archive/byteorder", b"little")
        for kept in writer.kept:
            _record(archive, f"archive/data/{kept.key}", kept.stored)
            each(kept.stored.nbytes)
        _record(archive, "archive/version", b"3\n")


def _record(archive: zipfile.ZipFile, name: str, data) -> None:
    info = zipfile.ZipInfo(name)
    size = data.nbytes if isinstance(data, Stored) else len(data)
    wide = size >= _WIDE  # then its sizes have 20 bytes more in the header
    behind = archive.fp.tell() + _LOCAL.size + len(name) + (20 if wide else 0) + 4
    fill = -behind % _ALIGNMENT
    info.extra = b"FB" + struct.pack("<H", fill) + b"Z" * fill
    with archive.open(info, "w", force_zip64=wide) as file:
        file.write(bytes_of(data.read()) if isinstance(data, Stored) else data)


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """The memory of a dense tensor."""
    flat = tensor.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8)
    return memoryview(flat.numpy())


@contextlib.contextmanager
def writing(path: str, folder: bool = False):
    """A path beside, which is put in the place of ``path`` when all has been written.

    CheckpointError where something is there already, or nothing can be written.
    """
    path = os.path.normpath(path)  # "out/" is a folder that is not there yet
    if os.path.lexists(path):  # also a link to what is not there
        raise CheckpointError(path, "is there already; nothing is written over it")
    beside = f"{path}.partial-{os.getpid()}"
    try:
        if folder:
            os.makedirs(beside)
        yield beside
        os.rename(beside, path)
    except OSError as error:
        raise CheckpointError(path, f"cannot be written: {error.strerror}") from error
    finally:
        if os.path.isdir(beside):
            shutil.rmtree(beside, ignore_errors=True)
        elif os.path.exists(beside):
            os.unlink(beside)
