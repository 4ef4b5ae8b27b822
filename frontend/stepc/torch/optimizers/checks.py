# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks of arguments, in the words that torch and others use."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator

from torch import Tensor

from ..._log import log
from ..tensors.callers import level_of_caller
from ..tensors.members import named_in
from ..tensors.patterns import KEY as VIEW
from ..tensors.patterns import SEEN, seen_shapes

MAX_DIMS = 65  # more than a tensor has


def check_one(lr: float | Tensor) -> None:
    """ValueError for a learning rate of several elements."""
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")


def check_lr(lr: float | Tensor) -> None:
    """ValueError for a learning rate below 0, or of several elements."""
    check_one(lr)
    if not lr >= 0.0:
        raise ValueError(f"Invalid learning rate: {lr}")


def check_betas(betas: tuple) -> None:
    """ValueError unless there are two, each in [0, 1)."""
    if len(betas) != 2:
        raise ValueError(f"Invalid betas: {betas}")
    for index, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {index}: {beta}")


def check_not_negative(value: float, words: str) -> None:
    """ValueError, ``Invalid <words>: <value>``, for a number below 0."""
    if not value >= 0.0:
        raise ValueError(f"Invalid {words}: {value}")


def check_whole(value: int, name: str) -> None:
    """ValueError unless it is a whole number from 1 on, and one of 64 bits."""
    try:
        whole = not isinstance(value, bool) and 1 <= int(value) == value < 2**63
    except (TypeError, ValueError, OverflowError):  # None, NaN, an infinity
        whole = False
    if not whole:
        raise ValueError(f"{name} is {value}, expected a whole number from 1 on")


def list_params(group: dict) -> None:
    """Makes a list of the group's parameters, which may be one or come from a generator: in the
    caller's dict, as torch does."""
    params = group["params"]
    if not isinstance(params, set):  # which torch refuses, as it has no order
        group["params"] = [params] if isinstance(params, Tensor) else list(params)


@contextlib.contextmanager
def unchanged_where_refused(group: dict) -> Iterator[None]:
    """The caller's dict has its own keys again where adding it raises; but for the list that has
    been made of its parameters."""
    before = dict(group) if isinstance(group, dict) else None
    try:
        yield
    except BaseException:
        if before is not None:
            if isinstance(before.get("params"), Iterator):  # which is at its end
                before["params"] = group["params"]
            group.clear()
            group.update(before)
        raise


def params_of(group: dict) -> Iterator[tuple[str, Tensor]]:
    """What to call each of a group's parameters, and the tensor; what is none is torch's to
    refuse."""
    for number, item in enumerate(group["params"]):
        name, param = item if isinstance(item, tuple) and len(item) == 2 else (number, item)
        if isinstance(param, Tensor):
            yield f"parameter {name!r}", param


def shapes_of(group: dict, *, one_by_one: bool = False) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The same with the shapes that rules see, as the group's ``view`` says, each once; ValueError.
    ``one_by_one``: rules take one matrix, and where a view has more dims they see its last two."""
    dims = 2 if one_by_one and group.get(VIEW) is not None else MAX_DIMS
    for words, param in params_of(group):
        for shape in dict.fromkeys(s[-dims:] for s in seen_shapes(group, param, words)):
            yield words, shape


def check_dims(group: dict, allowed: range, expected: str, *, one_by_one: bool = False) -> None:
    """ValueError for a parameter of the group of which a rule sees another number of dims."""
    list_params(group)
    for words, shape in shapes_of(group, one_by_one=one_by_one):
        if len(shape) not in allowed:
            raise ValueError(f"{words} has shape {shape}, expected {expected}")


def check_matrices(group: dict, expected: str) -> None:
    """ValueError for a parameter of the group that is no matrix. By a view it may be several, of
    which the last two dims are rows and columns."""
    check_dims(group, range(2, 3 if group.get(VIEW) is None else MAX_DIMS), expected)


def tell_of_fallbacks(
    group: dict, falls_back: Callable[[tuple[int, ...]], bool], why: str, how: str
) -> None:
    """One warning that names the parameters of a group, added by an optimizer, that its method
    does not step as matrices: those of whose shapes, as rules see them, ``falls_back`` says so. All
    are logged. ``why`` and ``how`` stand before and behind the names."""
    told = [
        f"{words.removeprefix('parameter ')} {shape}"
        for words, shape in shapes_of({**group, "params": named_in(group)}, one_by_one=True)
        if math.prod(shape) > 1 and falls_back(shape)
    ]
    if not told:
        return
    log.info("%s: parameters %s %s", why, ", ".join(told), how)
    more = f" and {len(told) - 8} more, which are logged" if len(told) > 8 else ""
    warnings.warn(
        f"stepc: {why}: parameters {', '.join(told[:8])}{more} {how}",
        RuntimeWarning,
        stacklevel=level_of_caller(),
    )


def check_given_view(group: dict, text: str | None, off: dict[str, object]) -> None:
    """ValueError where a group's keys, which may have been set since, ask for another view.
    ``off``: these keys, with what each is where it asks for none."""
    given = group.get(VIEW, group.get(SEEN))
    if text is not None and given != text:
        how = [
            f"{key} to {value}" for key, value in off.items() if group.get(key) not in (value, 0)
        ]
        raise ValueError(
            f"the group has view '{given}', and its other keys ask for '{text}': a "
            "parameter keeps the blocks that it began with, and either says which; in this group "
            f"set {' and '.join(how)} beside a view of your own"
        )


class CheckedGroups:
    """Mix-in: groups that are added are checked as the constructor's defaults are,
    by ``_check_values``, which gets the values that a group will have."""

    @staticmethod
    def _check_values(group: dict) -> None:
        """Raises for values out of range."""

    def add_param_group(self, param_group: dict) -> None:
        """Adds a parameter group, as torch's; raises for values out of range, as the
        constructor does."""
        if isinstance(param_group, dict):
            self._check_values({**self.defaults, **param_group})
        super().add_param_group(param_group)
