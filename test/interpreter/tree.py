# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The order of additions of ``docs/statistics.md``, with numpy's doubles."""

import numpy as np

LANES, LANE_LEAF, SEQUENCE_LEAF = 16, 1024, 64


def larger(x, y):
    """By step.maximum: NaN if either is, and +0 above -0."""
    picked = np.where(x == y, np.where(np.signbit(x), y, x), np.where(x > y, x, y))
    return np.where(np.isnan(x) | np.isnan(y), np.nan, picked)


KINDS = {"sum": (np.add, 0.0), "mean": (np.add, 0.0), "amax": (larger, -np.inf)}


def split(x, size):
    return [x[begin : begin + size] for begin in range(0, len(x), size)]


def in_lanes(x, combine, start):
    """`x` is one leaf; its last axes are other values' business."""
    lanes = np.full((LANES, *x.shape[1:]), start)
    for part in split(x, LANES):
        lanes[: len(part)] = combine(lanes[: len(part)], part)
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = combine(lanes[:half], lanes[half:])
    return lanes[0]


def in_sequence(x, combine, start):
    result = np.full(x.shape[1:], start)
    for value in x:
        result = combine(result, value)
    return result


def over_first(x, kind, lanes):
    """`x` reduced over its first axis."""
    combine, start = KINDS[kind]
    leaf = in_lanes if lanes else in_sequence
    parts = [leaf(part, combine, start) for part in split(x, LANE_LEAF if lanes else SEQUENCE_LEAF)]
    if not parts:
        return np.full(x.shape[1:], start)
    while len(parts) > 1:
        pairs = split(parts, 2)
        parts = [combine(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return parts[0]


def statistic(values, kind="sum"):
    """What the tensors' contributions make."""
    return float(over_first(np.array(values, dtype="f8"), kind, lanes=False))


def reduce(x, dims, over, kind):
    """`x` as float64, reduced over the dims named; `over` None: the whole, a float.

    `dims` are those of the definition, the first perhaps "...b" or "*", which
    stands for all that the others leave.
    """
    with np.errstate(all="ignore"):
        named = dims[1:] if dims[0] in ("*",) or dims[0].startswith("...") else dims
        leading = x.shape[: x.ndim - len(named)]
        shape = x.shape[x.ndim - len(named) :]
        if len(named) < len(dims):
            shape = (int(np.prod(leading, dtype=int)), *shape)
        y = x.astype("f8").reshape(shape)
        innermost = max((i for i, dim in enumerate(dims) if dim != "1"), default=-1)
        count = 1
        for axis in reversed(range(len(dims))):
            if over is not None and dims[axis] not in over:
                continue
            count *= y.shape[axis]
            reduced = over_first(np.moveaxis(y, axis, 0), kind, lanes=axis == innermost)
            y = np.expand_dims(reduced, axis)
        if kind == "mean":
            y = y / np.float64(count)
        if over is None:
            return float(y.reshape(()))
        kept = tuple(
            1 if dim in over else extent for dim, extent in zip(dims, y.shape, strict=True)
        )
        return y.reshape((*leading, *kept[len(dims) - len(named) :]))
