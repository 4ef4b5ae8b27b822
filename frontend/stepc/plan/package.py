# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Manifests of packages, and the variant that updates a part of a tensor."""

from __future__ import annotations

import functools
import io
import json
import math
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .. import _compiler, errors
from .._mesh import Layout as WholeLayout
from ..definition import _zoo_text
from ..interface import Interface, Rule, describe_option
from .failure import PlanError
from .layouts import Part
from .models import BYTES

ROW_LEAF, LEAF, TILE_COLUMNS = 64, 1024, 4096  # of kernel_abi.h


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


def _manifest(data: bytes, name: str) -> dict:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return json.loads(archive.read("manifest.json"))
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise PlanError(f"'{name}' is no package: {error}") from None


@functools.cache
def _compiled(source: Source, requests: tuple[str, ...], state: str | None) -> dict:
    arguments = [f"--variant={request}" for request in requests]
    arguments += [f"--state={state}"] if state else []
    data = _compiler.compile_package(source.text, source.name, arguments, source.fragments)
    return _manifest(data, source.name)


def whole_layout(part: Part) -> WholeLayout:
    """The layout as the frontend says it."""
    return WholeLayout(part.shape, part.dims, part.flat, part.begin)


class Package:
    """A manifest under one set of options. ``values``: options and hyper-parameters by name
    that are not at their default; ``grads``: storage of the gradient by that of the
    parameter, where it is another one."""

    def __init__(self, source: Source, parts: Iterable[Part], values: dict[str, float],
                 grads: dict[str, str] | None = None, state: str | None = None):  # fmt: skip
        self._grads = grads or {}
        options = "".join(f",option.{n}={describe_option(bool(v))}" for n, v in values.items()
                          if isinstance(v, bool))  # fmt: skip
        requests = set()
        for part in parts:
            layout = whole_layout(part).request()
            types = f"param={part.dtype},grad={self.grad_of(part.dtype)}"
            requests.add(types + options + ("," + layout if layout else ""))
        if source.package is not None:
            self.manifest = _manifest(source.package, source.name)
        else:
            self.manifest = _compiled(source, tuple(sorted(requests)), state)
        self.interface = Interface.from_json(self.manifest)
        self.options = self._resolve(values)
        self._switches = {n: v for n, v in self.options.items() if isinstance(v, bool)}

    def grad_of(self, dtype: str) -> str:
        """The storage of gradients of parameters of this one."""
        return self._grads.get(dtype, dtype)

    @property
    def name(self) -> str:
        return self.manifest["optimizer"]

    def _resolve(self, values: dict[str, float]) -> dict:
        known = {*self.interface.option_names, *self.interface.hyper_names}
        for name in values:
            if name not in known:
                raise PlanError(
                    f"'{self.name}' has no option or hyper-parameter '{name}', it has: "
                    f"{', '.join(sorted(known))}"
                )
        hypers = tuple(values.get(n, default) for n, default in self.interface.hypers)
        options = {n: v for n, v in values.items() if n in self.interface.option_names}
        return self.interface.resolve(options, hypers)

    def rule(self, shape: tuple[int, ...]) -> Rule:
        rule = self.interface.rule_of(shape, self.options)
        if rule is None:
            raise PlanError(f"no rule of '{self.name}' takes shape {shape}")
        return rule

    def variant(self, part: Part) -> dict:
        """The variant that updates a part; one of elements serves every layout."""
        rule = self.rule(part.shape)
        sharded = whole_layout(part).sharded_dims(rule.dims)
        elements, grad = None, self.grad_of(part.dtype)
        for variant in self.manifest["variants"]:
            storage = {o["role"]: o["storage"] for o in variant["operands"]}
            if (variant["rule"] != rule.name or variant["options"] != self._switches
                    or storage["param"] != part.dtype
                    or storage.get("grad", grad) != grad):  # fmt: skip
                continue
            if frozenset(variant["layout"]) == sharded:
                return variant
            if variant["space"] == "elements" and not variant["layout"]:
                elements = elements or variant
        if elements is None:
            raise PlanError(
                f"'{self.name}' has no variant of rule '{rule.name}' for {part.dtype}, sharded in "
                f"{', '.join(sorted(sharded)) or 'no dims'}"
            )
        return elements


# --- Sizes --------------------------------------------------------------------


def _tile_extents(dims: tuple[str, ...], extents: tuple[int, ...]) -> tuple[int, ...]:
    """Of the rule's dims: leading ones are one, and so are all where the rule names none."""
    named = len(dims) - dims[0].startswith("...") if dims else 0
    if named == 0 or dims[0] == "*":
        return (math.prod(extents),)
    leading = extents[: len(extents) - named]
    return (*([math.prod(leading)] if len(dims) > named else []), *extents[len(leading) :])


def _up(size: int, by: int) -> int:
    return -(-size // by)


class Tiles:
    """A part as kernels see it (docs/statistics.md)."""

    def __init__(self, rule: Rule, part: Part, options: dict):
        self.dims = rule.dims or ("*",)
        whole = _tile_extents(rule.dims, part.shape)
        is_cut = bool(part.flat) and len(rule.dims) > 1
        if is_cut:
            self.extents, begin, end = whole, part.begin, part.end
        elif part.flat:
            self.extents = (part.end - part.begin,)
        else:
            self.extents = _tile_extents(rule.dims, part.local)
        single = [k for k, dim in enumerate(self.dims) if dim != "1" and dim[:3] != "..."]
        self.m = self.extents[single[-1] if single else 0]
        self.n = self.extents[single[-2]] if len(single) > 1 else 1
        if not is_cut:
            begin, end = 0, math.prod(self.extents)
        self.elements = end - begin
        rows = blocks = 0
        if begin < end:
            rows = (end - 1) // self.m - begin // self.m + 1
            blocks = self._block((end - 1) // self.m) - self._block(begin // self.m) + 1
        self.tiles = blocks * _up(self.m, TILE_COLUMNS)
        self._touched = {"range rows": rows, "range blocks": blocks}
        for bound in rule.bound_dims:
            self._touched[bound.name] = bound.extent(rule.extents(part.shape), options)

    def _block(self, row: int) -> int:
        return row // self.n * _up(self.n, ROW_LEAF) + row % self.n // ROW_LEAF

    def _factor(self, text: str) -> int:
        """Of a factor of a buffer's size: "n", "m/1024", "range rows"."""
        dim, _, leaf = text.partition("/")
        extent = self._touched.get(dim)
        if extent is None:
            extent = self.extents[self.dims.index(dim)]
        return _up(extent, int(leaf or 1))

    def entries(self, buffer: dict) -> int:
        return math.prod(map(self._factor, buffer["size"]))

    def bytes(self, buffer: dict) -> int:
        """Of a buffer in the workspace, to whole lines of 64 bytes."""
        return _up(self.entries(buffer) * buffer["bytes"], 64) * 64


def reach(operand: dict, rule: Rule) -> str:
    """ "full" in the parameter's dims, "single" of one element, or "reduced"."""
    dims = tuple(operand["dims"])
    if dims == rule.dims:
        return "full"
    return "single" if dims in ((), ("1",)) else "reduced"


def state_elements(operand: dict, rule: Rule, part: Part, options: dict) -> int:
    """Of the part's state; with a flat range states of fewer dims are whole."""
    kind = reach(operand, rule)
    if kind == "single":
        return 1
    if kind == "full":
        return part.end - part.begin if part.flat else math.prod(part.local)
    shape = part.shape if part.flat else part.local
    return math.prod(rule.state_shape(tuple(operand["dims"]), shape, options))


def operand_bytes(operand: dict) -> int:
    return BYTES[operand["storage"]]
