# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Definitions: what an optimizer's ``.mlir`` file, or package, asks for."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from . import _cache, _compiler, _runtime, errors
from .interface import Interface, Options, describe_options

_packages: dict[str, _runtime.Package] = {}  # by key, for this process
_REPEAT = re.compile(r"(?<=step\.repeat )\d+(?= \()")


def zoo() -> Path | None:
    """The folder of the definitions that come with this installation: in the package, or in the
    tree around it."""
    here = Path(__file__).resolve().parent
    folders = (here / "optimizers", here.parent / "optimizers")
    return next((folder for folder in folders if folder.is_dir()), None)


def _zoo_text(name: str) -> tuple[str, str]:
    """Path and text of a file of the zoo, named without its ending."""
    folder = zoo()
    path = folder / f"{name}.mlir" if folder else None
    if path is None or not path.is_file():
        raise errors.StepcError(f"no optimizer '{name}' comes with this installation")
    return str(path), path.read_text(encoding="utf-8")


@dataclass(frozen=True)
class Definition:
    """An optimizer: the text of a definition, or the bytes of a package.

    ``fragments``: path and text of what is done to gradients before, in order.
    Holds no handle and may be copied and pickled.
    """

    path: str
    text: str | None = None
    package_bytes: bytes | None = field(default=None, repr=False)
    fragments: tuple[tuple[str, str], ...] = ()

    @classmethod
    def open(cls, path: str | os.PathLike) -> Definition:
        """Reads a ``.mlir`` definition or a ``.stepc`` package.

        Raises FileNotFoundError and its like, PackageError for a damaged package,
        and DefinitionError with file, line and column where the definition does
        not parse or verify.
        """
        path = os.fspath(path)
        data = Path(path).read_bytes()
        if path.endswith(".stepc") or data[:4] == b"PK\x03\x04":
            definition = cls(path, package_bytes=data)
        else:
            try:
                definition = cls(path, text=data.decode())
            except UnicodeDecodeError as error:
                raise errors.DefinitionError(
                    f"{path}: error: neither a definition in UTF-8 nor a package "
                    f"(byte {error.start})"
                ) from None
        definition.interface()
        return definition

    @classmethod
    def from_zoo(cls, name: str) -> Definition:
        """The definition of an optimizer that comes with Stepc, unchecked."""
        path, text = _zoo_text(name)
        return cls(path, text=text)

    def with_fragments(self, names: tuple[str, ...]) -> Definition:
        """This definition behind fragments of the zoo, the first applied first.

        A package is returned as it is: what it was compiled with stays.
        """
        if self.package_bytes is not None or not names:
            return self
        texts = tuple(_zoo_text(f"fragments/{name}") for name in names)
        return dataclasses.replace(self, fragments=(*self.fragments, *texts))

    def with_repeats(self, more: int) -> Definition:
        """This definition with each ``step.repeat`` done ``more`` times more, or fewer where that
        is negative. It is compiled once for each number.

        A package is returned as it is; ValueError where a number would be negative.
        """
        if self.text is None or not more:
            return self
        counts = [int(count) for count in _REPEAT.findall(self.text)]
        if min(counts, default=0) + more < 0:
            raise ValueError(f"'{self.path}' repeats {min(counts)} times, {-more} fewer is none")
        text = _REPEAT.sub(lambda found: str(int(found[0]) + more), self.text)
        return dataclasses.replace(self, text=text)

    def digest(self) -> str:
        """The same for the same text, fragments and package, wherever they lie."""
        texts = [self.text or "", *(text for _, text in self.fragments)]
        content = self.package_bytes or "\0".join(texts).encode()
        return hashlib.sha256(content).hexdigest()[:16]

    def _key(self, kind: str, arguments: list[str] = ()) -> str:
        """The name in the cache of what the compiler makes of this."""
        fragments = [f"fragment {text}" for _, text in self.fragments]
        return _cache.key(kind, self.text, _compiler.identity(), *arguments, *fragments)

    def interface(self) -> Interface:
        """The definition's names, those of its fragments too; asks the compiler, or
        its cache."""
        if self.package_bytes is not None:
            package = self.package(())
            return Interface.from_json(package.manifest, package.text)
        return _cache.load_or_make(
            self._key("interface"),
            "interface",
            lambda: _compiler.interface(self.text, self.path, self.fragments).encode(),
            Interface.from_text,
        )

    def check_options(self, options: Options, hypers: tuple[float, ...]) -> None:
        """PackageError where this is a package without a variant of the options.

        ``hypers`` in the order of the interface. Integers choose rules only.
        """
        if self.package_bytes is None:
            return
        wanted = self.interface().resolve(options, hypers)
        wanted = {name: on for name, on in wanted.items() if isinstance(on, bool)}
        there = [variant["options"] for variant in self.package(()).manifest["variants"]]
        if wanted in there:
            return
        found = sorted({describe_options(options) or "no options" for options in there})
        raise errors.PackageError(
            f"package '{self.path}' has no variant with {describe_options(wanted)}; "
            f"it has: {'; '.join(found) or 'none'}",
            "STEPC_UNKNOWN_NAME",
        )

    def package(self, variants: tuple[str, ...], flags: tuple[str, ...] = ()) -> _runtime.Package:
        """A package with the variants, each a SPEC of the compiler's ``--variant``.

        ``flags``: other options of the compiler.

        Compiles once; later calls, in this process or another, find it. A
        definition that is a package already is returned as it is.
        """
        if self.package_bytes is not None:
            name = _cache.key("bytes", self.package_bytes.hex())
            if name not in _packages:
                _packages[name] = _runtime.Package.from_bytes(self.package_bytes, self.path)
            return _packages[name]
        name, make = self._making(variants, flags)
        if name not in _packages:
            _packages[name] = _cache.load_or_make(
                name, "package", make, _runtime.Package.from_bytes
            )
        return _packages[name]

    def precompile(self, variants: tuple[str, ...], flags: tuple[str, ...]) -> None:
        """Puts into the cache what :meth:`package` is going to look for, here or where the
        cache is read: this processor need not be able to run it."""
        if self.package_bytes is None:
            name, make = self._making(variants, flags)
            _cache.load_or_make(name, "package", make, lambda data: data)

    def _making(self, variants, flags) -> tuple[str, Callable[[], bytes]]:
        """The name of a package in the cache, and what compiles it."""
        arguments = [*flags, *(f"--variant={spec}" for spec in sorted(variants))]
        return self._key("package", arguments), lambda: _compiler.compile_package(
            self.text, self.path, arguments, self.fragments
        )
