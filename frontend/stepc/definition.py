# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Definitions: what an optimizer's ``.mlir`` file, or package, asks for."""

from __future__ import annotations

import json
import operator
import os
from dataclasses import dataclass, field
from pathlib import Path

from . import _cache, _compiler, _runtime, errors

_PREDICATES = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


@dataclass(frozen=True)
class Interface:
    """The names of a definition, from ``stepc --interface`` or a manifest.

    ``hypers``: name and default, in the order in which values are passed.
    ``options``: name and default of those that a user may set.
    ``derived``: name, hyper-parameter, predicate and value of those that follow
    from a hyper-parameter. ``states``: names of those of all rules.
    """

    name: str
    hypers: tuple[tuple[str, float], ...]
    options: tuple[tuple[str, bool], ...]
    derived: tuple[tuple[str, str, str, float], ...]
    states: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, data: dict) -> Interface:
        given = data["options"]
        return cls(
            data["optimizer"],
            tuple((hyper["name"], float(hyper["default"])) for hyper in data["hypers"]),
            tuple((o["name"], bool(o["default"])) for o in given if "derived" not in o),
            tuple(
                (o["name"], d["hyper"], d["predicate"], float(d["value"]))
                for o in given
                if (d := o.get("derived"))
            ),
            tuple({s["name"]: 0 for rule in data.get("rules", ()) for s in rule["states"]}),
        )

    @property
    def hyper_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.hypers)

    @property
    def option_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.options)

    def resolve(self, options: dict[str, bool], hypers: tuple[float, ...]) -> dict[str, bool]:
        """The value of every option, the derived ones evaluated.

        ``hypers`` in the order of the interface.
        """
        values = dict(zip(self.hyper_names, hypers, strict=True))
        full = {name: bool(options.get(name, default)) for name, default in self.options}
        for name, hyper, predicate, value in self.derived:
            full[name] = _PREDICATES[predicate](values[hyper], value)
        return full

    def check_names(self, given: dict) -> None:
        """TypeError for a name that is neither a hyper-parameter nor an option."""
        for name in given:
            if name in self.hyper_names or name in self.option_names:
                continue
            if any(name == derived[0] for derived in self.derived):
                raise TypeError(
                    f"option '{name}' of optimizer '{self.name}' follows from its "
                    "hyper-parameters and cannot be given"
                )
            raise TypeError(
                f"optimizer '{self.name}' has no hyper-parameter or option '{name}'; "
                f"hyper-parameters: {', '.join(self.hyper_names) or 'none'}; "
                f"options: {', '.join(self.option_names) or 'none'}"
            )


def describe_options(options: dict[str, bool]) -> str:
    """As messages write them."""
    return ", ".join(f"{name}={str(on).lower()}" for name, on in sorted(options.items()))


_packages: dict[str, _runtime.Package] = {}  # by key, for this process


@dataclass(frozen=True)
class Definition:
    """An optimizer: the text of a definition, or the bytes of a package.

    Holds no handle and may be copied and pickled.
    """

    path: str
    text: str | None = None
    package_bytes: bytes | None = field(default=None, repr=False)

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
        here = Path(__file__).resolve().parent
        for folder in (here / "optimizers", here.parent / "optimizers"):
            path = folder / f"{name}.mlir"
            if path.is_file():
                return cls(str(path), text=path.read_text(encoding="utf-8"))
        raise errors.StepcError(f"no optimizer '{name}' comes with this installation")

    def interface(self) -> Interface:
        """The definition's names; asks the compiler, or its cache."""
        if self.package_bytes is not None:
            return Interface.from_json(self.package(()).manifest)
        return _cache.load_or_make(
            _cache.key("interface", self.text, _compiler.identity()),
            ".json",
            lambda: _compiler.interface(self.text, self.path).encode(),
            lambda data: Interface.from_json(json.loads(data)),
        )

    def check_options(self, options: dict[str, bool], hypers: tuple[float, ...]) -> None:
        """PackageError where this is a package without a variant of the options."""
        if self.package_bytes is None:
            return
        manifest = self.package(()).manifest
        wanted = Interface.from_json(manifest).resolve(options, hypers)
        there = [variant["options"] for variant in manifest["variants"]]
        if wanted in there:
            return
        found = sorted({describe_options(options) or "no options" for options in there})
        raise errors.PackageError(
            f"package '{self.path}' has no variant with {describe_options(wanted)}; "
            f"it has: {'; '.join(found) or 'none'}",
            "STEPC_UNKNOWN_NAME",
        )

    def package(self, variants: tuple[str, ...]) -> _runtime.Package:
        """A package with the variants, each a SPEC of the compiler's ``--variant``.

        Compiles once; later calls, in this process or another, find it. A
        definition that is a package already is returned as it is.
        """
        if self.package_bytes is not None:
            name = _cache.key("bytes", self.package_bytes.hex())
            if name not in _packages:
                _packages[name] = _runtime.Package.from_bytes(self.package_bytes, self.path)
            return _packages[name]
        arguments = [f"--variant={spec}" for spec in sorted(variants)]
        name = _cache.key("package", self.text, _compiler.identity(), *arguments)
        if name not in _packages:
            _packages[name] = _cache.load_or_make(
                name,
                ".stepc",
                lambda: _compiler.compile_package(self.text, self.path, arguments),
                _runtime.Package.from_bytes,
            )
        return _packages[name]
