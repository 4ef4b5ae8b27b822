# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Manifests of packages, and the variant that updates a part of a tensor."""

from __future__ import annotations

import functools
import io
import json
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .. import _compiler, errors
from .._describe import Query, Tensor, is_scale
from .._mesh import Layout as WholeLayout
from ..definition import _zoo_text
from ..interface import Interface, describe_option
from .failure import PlanError
from .kept import MASTERS, Kept
from .layouts import Part


@dataclass(frozen=True)
class Source:
    """A definition with the fragments before it, path and text of each; or a package."""

    name: str
    text: str = ""
    fragments: tuple[tuple[str, str], ...] = ()
    package: bytes | None = None


def _text_of(name: str, folder: str = "") -> tuple[str, str]:
    """A file, or one of the zoo by its name."""
    path = Path(name)
    if path.suffix == ".mlir" or path.exists():
        try:
            return name, path.read_text(encoding="utf-8")
        except OSError as error:
            raise PlanError(f"'{name}' cannot be read: {error.strerror}") from None
    try:
        return _zoo_text(folder + name)
    except errors.StepcError:
        raise PlanError(f"'{name}' is no file and no name of the zoo") from None


def open_source(name: str, fragments: Iterable[str] = ()) -> Source:
    """A ``.stepc`` package, a ``.mlir`` definition, or a name of the zoo."""
    texts = tuple(_text_of(fragment, "fragments/") for fragment in fragments)
    if name.endswith(".stepc"):
        if texts:
            raise PlanError(f"'{name}' is a package: it has the fragments it was compiled with")
        try:
            return Source(name, package=Path(name).read_bytes())
        except OSError as error:
            raise PlanError(f"'{name}' cannot be read: {error.strerror}") from None
    path, text = _text_of(name)
    return Source(path, text, texts)


def _manifest(data: bytes, name: str) -> bytes:
    """Its text."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return archive.read("manifest.json")
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise PlanError(f"'{name}' is no package: {error}") from None


@functools.cache
def _interface_of(source: Source) -> Interface:
    if source.package is not None:
        return Interface.from_text(_manifest(source.package, source.name))
    text = _compiler.interface(source.text, source.name, source.fragments)
    return Interface.from_text(text.encode())


def _resolve(interface: Interface, values: dict[str, float]) -> tuple[int, ...]:
    """The values of all options, where these are not at their default."""
    known = {*interface.option_names, *interface.hyper_names}
    for name in values:
        if name not in known:
            raise PlanError(
                f"'{interface.name}' has no option or hyper-parameter '{name}', it has: "
                f"{', '.join(sorted(known))}"
            )
    hypers = tuple(values.get(n, default) for n, default in interface.hypers)
    options = {n: v for n, v in values.items() if n in interface.option_names}
    return interface.in_order(interface.resolve(options, hypers))


class Definition:
    """What the library says of tensors before there is a package."""

    def __init__(self, source: Source, values: dict[str, float]):
        self._interface = _interface_of(source)
        self._values = _resolve(self._interface, values)
        self._found: dict[Query, Tensor] = {}

    def describe(self, query: Query) -> Tensor:
        """Of a query without options."""
        if query not in self._found:
            [self._found[query]] = self._interface.describe([query._replace(options=self._values)])
        if self._found[query].rule is None:
            raise PlanError(f"no rule of '{self._interface.name}' takes shape {query.shape}")
        return self._found[query]

    def tensor(self, shape: tuple[int, ...]) -> Tensor:
        """Of a whole tensor."""
        return self.describe(Query((), shape))

    def has_codes(self, shape: tuple[int, ...], dtype: str, kept: Kept) -> bool:
        """Whether states beside a whole tensor are kept as codes."""
        coded = kept.coded(self._interface, dtype)
        states = self.describe(Query((), shape, coded=coded)).states if coded else ()
        return any(is_scale(state.name) for state in states)


@functools.cache
def _compiled(source: Source, requests: tuple[str, ...], state: str | None) -> bytes:
    arguments = [f"--variant={request}" for request in requests]
    arguments += [f"--state={state}"] if state else []
    data = _compiler.compile_package(source.text, source.name, arguments, source.fragments)
    return _manifest(data, source.name)


# What a parameter may be kept in beside itself, and whether it is rounded by random bits.
_KEPT = ((None, False), (None, True), ("master", True), ("remainder", True))


def whole_layout(part: Part) -> WholeLayout:
    """The layout as the frontend says it."""
    return WholeLayout(part.shape, part.dims, part.flat, part.begin)


class Package:
    """A manifest under one set of options. ``values``: options and hyper-parameters by name
    that are not at their default; ``grads``: storage of the gradient by that of the
    parameter, where it is another one."""

    def __init__(self, source: Source, parts: Iterable[Part], values: dict[str, float],
                 grads: dict[str, str] | None = None, kept: Kept | None = None):  # fmt: skip
        self._grads, self.kept = grads or {}, kept or Kept()
        options = "".join(f",option.{n}={describe_option(bool(v))}" for n, v in values.items()
                          if isinstance(v, bool))  # fmt: skip
        requests = set()
        for part in parts:
            layout = whole_layout(part).request()
            types = f"param={part.dtype},grad={self.grad_of(part.dtype)}"
            if form := self.kept.form_of(part.dtype):
                types += f",master={form}"
            requests.add(types + options + ("," + layout if layout else ""))
        self.kept.check(_interface_of(source))
        if source.package is not None:
            text = _manifest(source.package, source.name)
        else:
            text = _compiled(source, tuple(sorted(requests)), self.kept.compiled)
        try:
            self.manifest = json.loads(text)
        except ValueError as error:
            raise PlanError(f"'{source.name}' is no package: {error}") from None
        self.interface = Interface.from_json(self.manifest, text)
        self._values = _resolve(self.interface, values)
        self._tensors: dict[tuple, Tensor] = {}
        self._parts: dict[Part, Tensor] = {}

    def grad_of(self, dtype: str) -> str:
        """The storage of gradients of parameters of this one."""
        return self._grads.get(dtype, dtype)

    @property
    def name(self) -> str:
        return self.manifest["optimizer"]

    def tensor(self, shape: tuple[int, ...]) -> Tensor:
        """The rule of a whole tensor, and its states."""
        if shape not in self._tensors:
            [self._tensors[shape]] = self.interface.describe([Query(self._values, shape)])
        if self._tensors[shape].rule is None:
            raise PlanError(f"no rule of '{self.name}' takes shape {shape}")
        return self._tensors[shape]

    def part(self, part: Part) -> Tensor:
        """What updates a part, with which states and how much memory."""
        if part not in self._parts:
            self._parts[part] = self._describe(part)
        return self._parts[part]

    def variant(self, part: Part) -> dict:
        """The variant that updates a part."""
        return self.manifest["variants"][self.part(part).variant]

    def _describe(self, part: Part) -> Tensor:
        rule = self.tensor(part.shape).rule
        sharded = whole_layout(part).sharded
        query = Query(
            self._values,
            part.shape,
            part.local if sharded else None,
            0 if part.flat else sharded,
            (part.begin, part.end) if part.flat else None,
            part.dtype,
            self.grad_of(part.dtype),
            coded=self.kept.coded(self.interface, part.dtype),
            first=functools.reduce(
                lambda index, dim: index * dim[1] + dim[0],
                zip(part.start, part.shape, strict=False), 0,
            ),
        )  # fmt: skip
        # A package may have those with a master alone: seldom, so one after the other.
        refusal, form = "", self.kept.form_of(part.dtype)
        for master, rounds in ((MASTERS[form], False),) if form else _KEPT:
            [found] = self.interface.describe([query._replace(master=master, rounds=rounds)])
            if found.variant is not None:
                return found
            refusal = refusal or found.refusal
        raise PlanError(
            f"'{self.name}' has no variant of rule '{rule.name}' for {part.dtype} of shape "
            f"{part.shape}: {refusal.partition(': ')[2]}"
        )
