# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dion, of Microsoft's package (microsoft/dion), with a compiled step."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import torch

from ..binding.hypers import named
from ..binding.rules import OfShape
from .checks import (
    check_not_negative,
    check_whole,
    list_params,
    shapes_of,
    unchanged_where_refused,
)
from .peer import Peer

__all__ = ["Dion"]

_ALGORITHMS = ("dion", "lion", "adamw")
_FULL = 2**31  # more than any dim: the rank is that of the matrix
_OF_ALL = (1.0, 1)  # rank_fraction and rank_multiple_of, of which the same follows


def _check_settings(group: dict) -> None:
    """ValueError for what a group can be told, also later, that is not here."""
    if group["algorithm"] not in _ALGORITHMS:
        raise ValueError(f"Unknown algorithm: {group['algorithm']}")
    fraction, multiple = _fraction(group)
    if not 0.0 < fraction <= 1.0:
        raise ValueError(f"Invalid rank fraction: {fraction}")
    if not multiple > 0:
        raise ValueError(f"Invalid rank multiple of: {multiple}")
    check_whole(multiple, "rank_multiple_of")
    if group["rank"] is None:
        return
    check_whole(group["rank"], "rank")
    if (fraction, multiple) != _OF_ALL:
        raise ValueError(
            f"rank is {group['rank']}, with rank_fraction {fraction} and rank_multiple_of "
            f"{multiple}: a group has the one or the others"
        )


def _fraction(group: dict) -> tuple[float, int]:
    """``rank_fraction`` and ``rank_multiple_of``, which old checkpoints' groups do not have."""
    return group.get("rank_fraction", _OF_ALL[0]), group.get("rank_multiple_of", _OF_ALL[1])


def _rank_of(fraction: float, multiple: int, shape: Sequence[int]) -> dict[str, int]:
    """The columns of Q, as the package rounds: up to a multiple, and no more than there are."""
    least = min(shape, default=0)
    columns = multiple * math.ceil(fraction * least / multiple)
    return {"rank": max(min(columns, least), 1)}


def _choose_one(given: dict) -> None:
    """Of a group that is added: its own rank stands for the constructor's fraction, and its own
    fraction for the constructor's rank."""
    if given.get("rank") is not None:
        given.setdefault("rank_fraction", _OF_ALL[0])
        given.setdefault("rank_multiple_of", _OF_ALL[1])
    elif "rank_fraction" in given or "rank_multiple_of" in given:
        given.setdefault("rank", None)


def _check_matrices(group: dict) -> None:
    """ValueError for what is no matrix."""
    for words, shape in shapes_of(group, one_by_one=True):
        if len(shape) != 2:
            raise ValueError(
                f"{words} has shape {shape}, expected a matrix: give others to a "
                "group with algorithm 'lion' or 'adamw'"
            )


class Dion(Peer, torch.optim.Optimizer):
    """Orthonormal updates of low rank; definition ``dion.mlir``.

    Ahn et al., "Dion: Distributed Orthonormalized Updates", 2025, algorithm 1, as in
    ``dion.dion_reference.Dion`` with ``qr_method="qr"`` and one power iteration. A group has an
    ``algorithm``: "dion", of matrices, or "lion" or "adamw", of any parameters::

        Dion([
            {"params": matrices, "rank_fraction": 0.25},
            {"params": others, "algorithm": "lion"},
        ], lr=0.01)

    Q has ``rank_fraction`` times as many columns as the matrix has rows or columns, whichever
    are fewer, rounded up to a multiple of ``rank_multiple_of``, and no more than there are: so
    each matrix of a group may have another rank. Or a group says the columns, by ``rank``, no
    more than the matrix has rows or columns. With "dion" ``state`` has ``momentum`` of the
    parameter's shape and ``Q``, of ``[columns, rank]``, or ``[rows, rank]`` where there are
    fewer rows than columns; with "lion" ``momentum``; with "adamw" ``momentum`` and
    ``variance``; and ``step``. All are float32, or float64 beside float64 parameters. The first
    Q is random; it follows from ``projection_seed`` and the number of the parameter among those
    of the optimizer, and from nothing else. A matrix that ranks have parts of is stepped whole
    by one of them (docs/distributed.md); gradients are the mean over ranks, as for every
    optimizer. On CUDA devices the host makes the decompositions. By a group's ``view`` a
    parameter may be several matrices: experts of ``[E, m, n]`` have ``Q`` of ``[E, n, rank]``.

    Args:
        params: parameters, named parameters, or dicts of parameter groups.
        lr: learning rate; that of a matrix is times the root of rows / columns.
        mu: decay of what an update takes out of the momentum.
        betas: decays of "lion" and "adamw".
        weight_decay: decoupled, times ``lr``.
        rank: columns of Q; None: as the following two say.
        epsilon: added to norms of columns; and to the root in "adamw".
        projection_seed: of the first Q, any number.
        rank_fraction: columns of Q, as a fraction of the matrix's least extent.
        rank_multiple_of: to a multiple of which that is rounded up.
        features: what every class takes, see :class:`stepc.torch.Optimizer`.

    Raises ValueError for values out of range, and for parameters that are no matrices in a
    group with "dion".
    """

    _zoo_name = "dion"
    _hypers = named("lr", "mu", "beta1", "beta2", "weight_decay", "epsilon", "projection_seed")

    _not_keys = ("betas",)

    def __init__(
        self,
        params,
        lr: float = 0.01,
        mu: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.95),
        weight_decay: float = 0.01,
        rank: int | None = None,
        epsilon: float = 1e-8,
        projection_seed: float = 0.0,
        rank_fraction: float = 1.0,
        rank_multiple_of: int = 1,
        **features,
    ) -> None:
        if len(betas) != 2 or not all(beta >= 0.0 for beta in betas):
            raise ValueError(f"Invalid betas: {betas}")
        more = {"beta1": betas[0], "beta2": betas[1], "algorithm": "dion"}
        self._begin(Dion, locals(), **more)

    def _check_values(self, group: dict) -> None:
        check_not_negative(group["lr"], "learning rate")
        check_not_negative(group["mu"], "momentum factor (mu)")
        betas = group["beta1"], group["beta2"]
        if not all(beta >= 0.0 for beta in betas):
            raise ValueError(f"Invalid betas: {betas}")
        check_not_negative(group["weight_decay"], "weight_decay value")

    def add_param_group(self, param_group: dict) -> None:
        """Adds a parameter group, as torch's; raises ValueError for values out of range, as the
        constructor does, and for parameters that are no matrices where they are to be."""
        with unchanged_where_refused(param_group):
            if isinstance(param_group, dict):
                list_params(param_group)
                _choose_one(param_group)
                group = {**self.defaults, **param_group}
                _check_settings(group)
                self._check_shapes(group)
            super().add_param_group(param_group)

    def _steps_one_by_one(self, group: dict) -> bool:
        return group["algorithm"] == "dion"

    def _check_shapes(self, group: dict) -> None:
        if group["algorithm"] == "dion":
            _check_matrices(group)

    def _read_options(self, group: dict) -> dict[str, bool | int]:
        _check_settings(group)
        return {
            "rank": _FULL if group["rank"] is None else int(group["rank"]),
            "dion": group["algorithm"] == "dion",
            "lion": group["algorithm"] == "lion",
        }

    def _read_settings(self, group: dict) -> tuple:
        return *super()._read_settings(group), *_fraction(group)

    def _options_of_shape(self, group: dict) -> OfShape | None:
        fraction = _fraction(group)
        if group["algorithm"] != "dion" or group["rank"] is not None or fraction == _OF_ALL:
            return None
        return functools.partial(_rank_of, *fraction)

    def _words_of_shape(self, group: dict) -> str:
        fraction, multiple = _fraction(group)
        return f"rank_fraction {fraction} and rank_multiple_of {multiple}"
