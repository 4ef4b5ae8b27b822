# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What SOAP and Shampoo have in common: a matrix of each dim of a matrix, up to a limit."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable

from torch import Tensor

from ..ranks.parts import is_distributed
from ..tensors.patterns import KEY as VIEW
from ..tensors.patterns import seen_shapes
from .checks import (
    check_dims,
    check_given_view,
    list_params,
    params_of,
    unchanged_where_refused,
)
from .peer import Peer


class OfLimitedDims(Peer):
    """Mix-in before ``torch.optim.Optimizer``.

    ``_limit_key``: of the limit in a group. ``_of_dim``: how the state of a dim is named, before
    its number. ``_why_kept``: what the state is, in an error. ``_dims_words``: what shapes are
    expected. ``_asks``: the keys that ask for a view, with what each is where it does not.
    """

    _limit_key: str
    _of_dim: str
    _why_kept: str
    _dims_words: str
    _asks: dict[str, object]

    @staticmethod
    def _view_of(group: dict) -> str | None:
        """The view that a group's other keys ask for, or None."""
        raise NotImplementedError

    @staticmethod
    def _limit(group: dict) -> Callable[[int], bool]:
        """Whether a dim of so many elements has a matrix."""
        raise NotImplementedError

    def _tell_of_fallbacks(self, group: dict) -> None:
        """Warns of what has no matrices."""
        raise NotImplementedError

    def add_param_group(self, param_group: dict) -> None:
        """Adds a parameter group, as torch's; raises ValueError for values out of range, as the
        constructor does, and for parameters of more than two dims. Warns of what has no matrices
        of its dims."""
        with unchanged_where_refused(param_group):
            if isinstance(param_group, dict):
                group = {**self.defaults, **param_group}
                self._check_values(group)
                list_params(param_group)
                text = self._view_of(group)
                if text is not None and param_group.get(VIEW) is None:
                    param_group[VIEW] = text
                group = {**group, **param_group}
                self._check_shapes(group)
                self._tell_of_fallbacks(group)  # ahead: a filter may make an error of it
            super().add_param_group(param_group)

    def _steps_one_by_one(self, group: dict) -> bool:
        return True

    def _check_shapes(self, group: dict) -> None:
        self._check_view(group)
        check_dims(group, range(3), self._dims_words, one_by_one=True)

    def _check_view(self, group: dict) -> None:
        """ValueError where a group has another view than its other keys ask for."""
        check_given_view(group, self._view_of(group), self._asks)

    def _check_limit(self, group: dict) -> None:
        """ValueError where a limit that was set since takes a matrix from a parameter, or gives one
        to some of its blocks, whose matrices lie together. Ranks may have a part of these: there
        only a limit that takes all is seen. Matrices of other blocks are not of a limit's doing."""
        fits, is_exact = self._limit(group), not is_distributed(self)
        for words, param in params_of(group):
            own = self.state.get(param, {})
            shapes = [s for s in seen_shapes(group, param, words) if len(s) > 1] if own else []
            total = _elements_of(shapes, fits)
            for dim in range(2 if shapes else 0):
                name = f"{self._of_dim}{dim}"
                if not isinstance(own.get(name), Tensor):
                    continue
                there = own[name].numel()
                is_known = is_exact and there in _of_limits(shapes, dim)
                if there > total[dim] and (is_known or not total[dim]):
                    self._refuse_limit(group, words, param, f"has state '{name}'")
                if there < total[dim] and is_known:
                    more = f"has state '{name}', which only some of its blocks have"
                    self._refuse_limit(group, words, param, more)

    def _refuse_limit(self, group: dict, words: str, param: Tensor, has: str) -> None:
        raise ValueError(
            f"{self._limit_key} is {group[self._limit_key]}, but {words} of shape "
            f"{tuple(param.shape)} {has}{self._why_kept}"
        )


def _elements_of(shapes: Iterable[tuple[int, ...]], fits: Callable[[int], bool]) -> Counter[int]:
    """Of each dim of matrices, which may have leading dims, how many elements its matrices have."""
    total: Counter[int] = Counter()
    for shape in shapes:
        for dim, size in enumerate(shape[-2:]):
            if fits(size):
                total[dim] += math.prod(shape[:-2]) * size * size
    return total


def _of_limits(shapes: list[tuple[int, ...]], dim: int) -> set[int]:
    """How many elements the matrices of a dim have by any limit, with or without those of 1."""
    sizes = {shape[-2:][dim] for shape in shapes}
    return {
        _elements_of(shapes, lambda size, most=most, least=least: least <= size <= most)[dim]
        for most in sizes
        for least in (1, 2)
    }
