# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The key ``view`` of a parameter group: the shape in which a rule sees the group's parameters.

The notation is that of ``einops.rearrange``, of which only what moves no element is taken:
``"o i h w -> o (i h w)"``, ``"(3 n) m -> 3 n m"``. So the view has the memory of a contiguous
parameter. Sizes that do not follow from the shape are written as numbers, where ``rearrange``
has a name and an argument beside the text: ``"(h n) m -> h n m", h=3``.

A first dim may be a sum, of parts that have a view each, which ``rearrange`` does not know:
``"(4 n + n + n) m -> 4 n m + n m + n m"``.

A text without an arrow is one of :mod:`.cutting`: ``"blocks(1024)"``.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch.nn.parameter import is_lazy

from . import cutting
from .members import parameter_name

KEY = "view"
SEEN = "seen as"  # the same in a group of what the plan steps, which has that shape already
_PLUS = "+"
_TOKEN = re.compile(r"\s*([A-Za-z_]\w*|[0-9]+|[()]|\.\.\.|\S)")

Dim = tuple[str, ...]  # the names and numbers that are one dim
Error = Callable[[str], Exception]


class _NoViewError(Exception):
    """What is wrong with a text, behind what it is called."""


def _is_number(atom: str) -> bool:
    """Of tokens: digits of other scripts, and superscripts, are none."""
    return atom.isascii() and atom.isdigit()


@dataclass(frozen=True)
class View:
    """A parsed text: the dims of a parameter, and those that a rule sees. Where the first dim is a
    sum, ``parts`` has a view of each part, which rules see by themselves, and both are the
    parameter's."""

    text: str
    own: tuple[Dim, ...]
    seen: tuple[Dim, ...]
    parts: tuple[View, ...] = ()

    def __str__(self) -> str:
        return f"view '{self.text}'"

    def shape(self, shape: tuple[int, ...], *, part: bool = False) -> tuple[int, ...]:
        """What a rule sees of a parameter of this shape, or of a sum the parameter's; ValueError
        where it does not fit. Of what may be a ``part`` of one, whose extents say nothing of the
        whole's, about so."""
        self._check_dims(shape)
        if self.parts:
            self.shapes(shape, part=part)
            return tuple(shape)
        sizes: dict[str, int] = {}
        for number, (dim, extent) in enumerate(zip(self.own, shape, strict=True)):
            known = math.prod(int(atom) for atom in dim if _is_number(atom))
            free = [atom for atom in dim if not _is_number(atom)]
            if free and known and (part or extent % known == 0):
                sizes[free[0]] = -(-extent // known)
            elif not part and (free or extent != known):
                expected = f"a multiple of {known}" if free else str(known)
                raise ValueError(
                    f"{self} does not fit the shape {tuple(shape)}: dim {number} is {extent}, "
                    f"expected {expected}"
                )
        return tuple(
            math.prod(int(atom) if _is_number(atom) else sizes.get(atom, 0) for atom in dim)
            for dim in self.seen
        )

    def shapes(self, shape: tuple[int, ...], *, part: bool = False) -> list[tuple[int, ...]]:
        """What rules see of a parameter of this shape, of one part after the other; as
        :meth:`shape`."""
        if not self.parts:
            return [self.shape(shape, part=part)]
        self._check_dims(shape)
        at = next(number for number, dim in enumerate(self.own) if _PLUS in dim)
        sizes = [_size_of(view.own[at]) for view in self.parts]
        fixed = sum(number for number, is_free in sizes if not is_free)
        per = sum(number for number, is_free in sizes if is_free)
        rest = shape[at] - fixed
        fits = rest >= 0 and rest % per == 0 if per else rest == 0
        if not fits and not part:
            expected = f"{fixed} and a multiple of {per}" if fixed else f"a multiple of {per}"
            raise ValueError(
                f"{self} does not fit the shape {tuple(shape)}: dim {at} is {shape[at]}, expected "
                f"{expected if per else fixed}"
            )
        size = max(-(-rest // per), 0) if per else 0
        extents = [number * size if is_free else number for number, is_free in sizes]
        return [
            view.shape((*shape[:at], extent, *shape[at + 1 :]), part=part)
            for view, extent in zip(self.parts, extents, strict=True)
        ]

    def _check_dims(self, shape: tuple[int, ...]) -> None:
        if len(shape) != len(self.own):
            raise ValueError(
                f"{self} is of {_counted(len(self.own))}, and the shape is {tuple(shape)}"
            )

    def count_of_dims(self, shape: tuple[int, ...]) -> int:
        """How many of a parameter of this shape are seen."""
        return len(self.seen)

    def own_dim(self, number: int) -> int | None:
        """The dim of the parameter that a seen one is, neither cut nor merged; None where there
        is none."""
        wanted = _spans(self.seen)[number]
        own = _spans(self.own)
        return own.index(wanted) if wanted[1] and wanted in own else None


def _size_of(term: Dim) -> tuple[int, bool]:
    """Of a part of a sum the product of its numbers, and whether a name is behind them."""
    numbers = [int(atom) for atom in term if _is_number(atom)]
    return math.prod(numbers), len(numbers) < len(term)


def _counted(dims: int) -> str:
    return f"{dims} dim{'s' if dims != 1 else ''}"


def _without_ones(dim: Dim) -> Dim:
    return tuple(atom for atom in dim if atom != "1")


def _spans(dims: tuple[Dim, ...]) -> list[tuple[int, Dim]]:
    """Of each dim how much stands before it, and what it is of: the same on both sides where the
    dim is the same."""
    atoms = [_without_ones(dim) for dim in dims]
    starts = itertools.accumulate(map(len, atoms), initial=0)
    return list(zip(starts, atoms, strict=False))


def _dims(text: str, *, sums: bool = False) -> tuple[Dim, ...]:
    """Those of one side; numbers as they are written without zeros before them. ``sums``: within
    ( ) there may be a plus."""
    dims: list[Dim] = []
    inside: list[str] | None = None
    for token in _TOKEN.findall(text):
        if token == "(" and inside is None:
            inside = []
        elif token == ")" and inside is not None:
            dims.append(tuple(inside))
            inside = None
        elif token == _PLUS and inside is not None and sums:
            inside.append(token)
        elif not token.isidentifier() and not _is_number(token):
            raise _NoViewError(f"has {token!r}, expected names, numbers and ( )")
        else:
            atom = str(int(token)) if _is_number(token) else token
            if inside is None:
                dims.append((atom,))
            else:
                inside.append(atom)
    if inside is not None:
        raise _NoViewError("has a '(' without ')'")
    return tuple(dims)


def _check(view: View) -> None:
    sides = []
    for dims in (view.own, view.seen):
        atoms = [atom for dim in dims for atom in _without_ones(dim)]
        names = [atom for atom in atoms if not _is_number(atom)]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise _NoViewError(f"has '{twice}' twice on one side")
        sides.append(atoms)
    for dim in view.own:
        free = [atom for atom in dim if not _is_number(atom)]
        if len(free) > 1:
            raise _NoViewError(
                f"does not say how large {' and '.join(map(repr, free))} are: write all but one "
                "as numbers"
            )
    own, seen = sides
    alone = [a for a in sorted({*own, *seen}) if own.count(a) != seen.count(a)]
    if alone:
        raise _NoViewError(f"has {', '.join(map(repr, alone))} on one side alone")
    if own != seen:
        raise _NoViewError(
            "changes the order of dims, which moves elements: a view is a reshape alone"
        )


@functools.lru_cache(maxsize=256)
def _parsed(text: str) -> View | cutting.Cutting:
    if cutting.is_cutting(text):
        try:
            return cutting.parse(text)
        except ValueError as error:
            raise _NoViewError(str(error)) from None
    sides = text.split("->")
    if len(sides) != 2:
        raise _NoViewError(f"has {len(sides) - 1} '->', expected one")
    own, seen = _dims(sides[0], sums=True), re.split(r"\+(?![^(]*\))", sides[1])
    sums = [number for number, dim in enumerate(own) if _PLUS in dim]
    if sums:
        return View(text, own, own, _parts(text, own, sums, seen))
    if len(seen) > 1:
        raise _NoViewError(f"has {len(seen)} views and no sum, as (2 n + n) m, of which they are")
    view = View(text, own, _dims(sides[1]))
    _check(view)
    return view


def _parts(text: str, own: tuple[Dim, ...], sums: list[int], seen: list[str]) -> tuple[View, ...]:
    """The views of the parts of a sum."""
    at = sums[0]
    if len(sums) > 1 or any(_without_ones(dim) for dim in own[:at]):
        raise _NoViewError("has a sum that is not the first dim: parts of others lie apart")
    terms = [tuple(own) for is_plus, own in _runs(own[at]) if not is_plus]
    if len(terms) != own[at].count(_PLUS) + 1 or not all(map(str.strip, seen)):
        raise _NoViewError("has a '+' without a part before it or behind it")
    if len(terms) != len(seen):
        raise _NoViewError(f"has a sum of {len(terms)} parts, and {len(seen)} views of them")
    free = dict.fromkeys(a for a in own[at] if a != _PLUS and not _is_number(a))
    if len(free) > 1:
        names = " and ".join(map(repr, free))
        raise _NoViewError(
            f"does not say how large {names} are: parts are numbers times one name, or numbers"
        )
    views = [
        View(text, (*own[:at], term, *own[at + 1 :]), _dims(side))
        for term, side in zip(terms, seen, strict=True)
    ]
    for view in views:
        _check(view)
    return tuple(views)


def _runs(dim: Dim) -> Iterator[tuple[bool, Iterator[str]]]:
    """Of a sum its parts, and what is between them."""
    return itertools.groupby(dim, lambda atom: atom == _PLUS)


def parse(text: str, whose: str = "") -> View | cutting.Cutting:
    """ValueError, naming what is wrong, for a text that is no view. ``whose`` is behind it then."""
    try:
        return _parsed(text)
    except _NoViewError as error:
        raise ValueError(f"view '{text}'{whose} {error}") from None


def view_of(group: dict, number: int | None = None) -> View | cutting.Cutting | None:
    """Of a parameter group, of which errors say the number; TypeError and ValueError."""
    text, whose = group.get(KEY), "" if number is None else f" of group {number}"
    if text is None:
        return None
    if not isinstance(text, str):
        raise TypeError(f"view{whose} is {text!r}, expected a text as 'o i h w -> o (i h w)'")
    return parse(text, whose)


def shape_seen(
    view: View, shape: tuple[int, ...], words: str, *, part: bool, error: Error = ValueError
) -> tuple[int, ...]:
    """As :meth:`View.shape`, of what ``words`` call; ``error`` where it does not fit."""
    try:
        return view.shape(shape, part=part)
    except ValueError as why:
        raise error(f"{words}: {why}") from None


def check_memory(
    view: View, tensor: torch.Tensor, words: str, *, error: Error = ValueError
) -> None:
    """``error`` for a tensor that is not contiguous, which no view can be of."""
    if not tensor.is_contiguous():
        raise error(
            f"{words} has strides {tuple(tensor.stride())} for shape {tuple(tensor.shape)}: {view} "
            "is of the memory of a contiguous parameter, as param.data = param.data.contiguous() "
            "makes it"
        )


def seen_shapes(group: dict, param: torch.Tensor, words: str) -> list[tuple[int, ...]]:
    """What rules see of a group's parameter, which ``words`` call and which may be a part;
    TypeError and ValueError."""
    try:
        view = view_of(group)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{words}: {error}") from None
    shape = tuple(param.shape)
    if view is None:
        return [shape]
    shape_seen(view, shape, words, part=True)
    return view.shapes(shape, part=True)


def check_view(group: dict, number: int, parts: bool) -> None:
    """TypeError and ValueError for a view that is none, or of another shape than a parameter's;
    plain ones may be ``parts``. Of a part an owner sees the whole, whatever its memory is."""
    view = view_of(group, number)
    for place, param in enumerate(group["params"] if view is not None else ()):
        words = parameter_name(group, number, place)
        if is_lazy(param):
            raise ValueError(f"{words} has no shape yet, of which {view} could be")
        local = getattr(param, "_local_tensor", param)
        is_plain = local is param
        shape_seen(view, tuple(param.shape), words, part=parts and is_plain)
        part = parts if is_plain else not all(p.is_replicate() for p in param.placements)
        if not part and local.layout is torch.strided:
            check_memory(view, local, words)


def with_views(saved: list[dict], own: list[dict]) -> list[dict]:
    """Loaded groups, each with the view that the optimizer's has where it has none, as torch's."""
    if len(saved) != len(own):
        return saved
    kept = [{KEY: group[KEY]} if KEY in group else {} for group in own]
    return [
        {**group, **view} if group.get(KEY) is None else group
        for view, group in zip(kept, saved, strict=True)
    ]


def views_of(optimizer) -> list:
    """The text of each group, or None."""
    return [group.get(KEY) for group in optimizer.param_groups]


def has_views(optimizer) -> bool:
    """Whether a rule is to see parameters of the optimizer in another shape."""
    return any(text is not None for text in views_of(optimizer))
