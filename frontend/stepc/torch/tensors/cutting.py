# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Views that follow from a parameter's shape: dims are merged, and long ones cut.

A text is one or several of these, with commas between them, which apply in this order:

- ``merge_first(N)``: dims of a parameter that has several become one while their product is at
  most ``N``, from the first on, as the authors' SOAP merges them; one that is left is a row
- ``merge_last(N, D)``: the same from the last dim on, without dims of 1, until there are ``D``
  dims, as Distributed Shampoo merges them; also ``merge_last(N)``, with ``D`` 1
- ``vectors``: what has one dim is a matrix of one row
- ``blocks(N)``: what is longer than ``N`` along a dim is cut, the last piece being what remains

What comes out has at most two dims. Each block is stepped as a parameter of its own; in the
parameter's memory its rows lie apart, so blocks have strides.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from dataclasses import dataclass

import torch

Shape = tuple[int, ...]
_WORD = re.compile(r"(merge_first|merge_last|blocks)\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)|(vectors)")
_ORDER = ("merge_first", "merge_last", "vectors", "blocks")
EXPECTED = "merge_first(N), merge_last(N, D), vectors and blocks(N), in this order"


def is_cutting(text: str) -> bool:
    """Whether a view's text is one of these, and not einops'."""
    return "->" not in text and re.match(r"\s*(merge_|vectors|blocks)", text) is not None


@dataclass(frozen=True)
class Cutting:
    """A parsed text. To what asks it is as a view whose ``parts`` are stepped by themselves, in the
    shape that the parameter has (:class:`~stepc.torch.tensors.patterns.View`)."""

    text: str
    first: int | None = None
    last: int | None = None
    dims: int = 1
    rows: bool = False
    side: int | None = None
    parts = True

    def __str__(self) -> str:
        return f"view '{self.text}'"

    def shape(self, shape: Shape, *, part: bool = False) -> Shape:
        """That of the parameter; ValueError where more than two dims are left, unless it may be a
        ``part`` of one."""
        merged = self._merged(tuple(shape))
        if len(merged) > 2 and not part:
            raise ValueError(
                f"{self} makes dims {merged} of the shape {tuple(shape)}, expected at most two: "
                "merge more of them, or say the matrix, as in 'o i h w -> o (i h w)'"
            )
        return tuple(shape)

    def shapes(self, shape: Shape, *, part: bool = False) -> list[Shape]:
        """Those of the blocks, in row-major order."""
        merged = self._merged(tuple(shape))
        lengths = [_lengths(extent, self.side) for extent in merged]
        return [self._seen(own) for own in itertools.product(*lengths)]

    def cut(self, tensor: torch.Tensor, shape: Shape) -> list[torch.Tensor]:
        """The blocks of a tensor that has the elements of a parameter of the shape: views of it,
        where it is contiguous."""
        found = [tensor.reshape(self._merged(tuple(shape)))]
        for dim, extent in enumerate(found[0].shape):
            lengths = _lengths(extent, self.side)
            found = [piece for own in found for piece in own.split(lengths, dim)]
        return [own if len(own.shape) == len(self._seen(own.shape)) else own[None] for own in found]

    def count_of_dims(self, shape: Shape) -> int:
        """How many the parameter has to rules of elements."""
        return len(shape)

    def own_dim(self, number: int) -> int | None:
        return None

    def lies_apart(self, shape: Shape) -> bool:
        """Whether rows of a block have something else between them."""
        merged = self._merged(tuple(shape))
        return self.side is not None and any(extent > self.side for extent in merged[1:])

    def _seen(self, shape: Shape) -> Shape:
        return (1, *shape) if self.rows and len(shape) == 1 else tuple(shape)

    def _merged(self, shape: Shape) -> Shape:
        if self.first is not None and len(shape) > 1:
            shape = merge_first(shape, self.first)
            shape = shape if len(shape) > 1 else (1, *shape)
        if self.last is not None and 0 in shape:
            return (0,)
        if self.last is not None and shape:
            shape = merge_last(shape, self.last, self.dims)
        return shape


def merge_first(shape: Shape, most: int) -> Shape:
    """``SOAP.merge_dims`` of its authors."""
    merged, current = [], 1
    for extent in shape:
        if current * extent <= most:
            current *= extent
        elif current > 1:
            merged.append(current)
            current = extent
        else:
            merged.append(extent)
    return (*merged, current) if current > 1 or not merged else tuple(merged)


def merge_last(shape: Shape, most: int, dims: int) -> Shape:
    """``merge_small_dims`` of Distributed Shampoo, whose ``target_tensor_dimensionality`` is
    ``dims``, of a shape without a 0."""
    left = [extent for extent in reversed(shape) if extent != 1] or [1]
    merged = left[:1]
    for number, extent in enumerate(left[1:], 1):
        many = len(merged) + len(left) - number > dims
        if many and merged[-1] * extent <= most:
            merged[-1] *= extent
        else:
            merged.append(extent)
    return tuple(reversed(merged))


def _lengths(extent: int, side: int | None) -> list[int]:
    if side is None or extent <= side:
        return [extent]
    return [min(side, extent - at) for at in range(0, extent, side)]


@functools.lru_cache(maxsize=256)
def parse(text: str) -> Cutting:
    """ValueError, without the words before it, for a text that is none."""
    found: dict[str, tuple[int, ...]] = {}
    for word in re.split(r",(?![^(]*\))", text):
        if (match := _WORD.fullmatch(word.strip())) is None:
            raise ValueError(f"has {word.strip()!r}, expected {EXPECTED}")
        name = match[1] or match[4]
        numbers = tuple(int(own) for own in match.group(2, 3) if own is not None)
        if name in found or [*map(_ORDER.index, (*found, name))] != sorted(
            map(_ORDER.index, (*found, name))
        ):
            raise ValueError(f"has {word.strip()!r} where it cannot be, expected {EXPECTED}")
        if 0 in numbers or (len(numbers) == 2 and name != "merge_last"):
            raise ValueError(f"has {word.strip()!r}, expected {EXPECTED}")
        found[name] = numbers
    last = found.get("merge_last", (None,))
    return Cutting(
        text,
        found.get("merge_first", (None,))[0],
        last[0],
        last[1] if len(last) > 1 else 1,
        "vectors" in found,
        found.get("blocks", (None,))[0],
    )


def text_of(
    *, first: int | None = None, last: tuple[int, int] | None = None, rows: bool = False,
    side: float | None = None,
) -> str | None:  # fmt: skip
    """The text that says so; None where nothing is said."""
    words = [
        f"merge_first({first})" if first is not None else "",
        f"merge_last({last[0]}, {last[1]})" if last is not None else "",
        "vectors" if rows else "",
        f"blocks({int(side)})" if side not in (None, math.inf) else "",
    ]
    return ", ".join(filter(None, words)) or None
