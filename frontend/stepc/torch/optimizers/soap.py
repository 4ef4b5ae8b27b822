# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""SOAP, of its authors' repository (nikhilvyas/SOAP), with a compiled step."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..binding.hypers import BETAS, named
from ..tensors.cutting import text_of
from ..tensors.patterns import KEY as VIEW
from ..tensors.patterns import seen_shapes, with_views
from .checks import (
    check_betas,
    check_lr,
    check_not_negative,
    check_whole,
    tell_of_fallbacks,
)
from .limited import OfLimitedDims

__all__ = ["SOAP"]


def _shampoo_beta(group: dict) -> float:
    """That of the squares of the rotated gradient, where it is below zero or None."""
    beta = group["shampoo_beta"]
    return group["betas"][1] if beta is None or beta < 0.0 else beta


def _check_settings(group: dict) -> None:
    """ValueError for what a group can be told, also later, that is not here."""
    check_whole(group["precondition_frequency"], "precondition_frequency")
    check_whole(group["max_precond_dim"], "max_precond_dim")
    if group.get("block_size") is not None:  # the authors' groups do not have it
        check_whole(group["block_size"], "block_size")


def _view(group: dict) -> str | None:
    """The view by which parameters are merged and cut, if they are."""
    return text_of(
        first=int(group["max_precond_dim"]) if group.get("merge_dims") else None,
        rows=bool(group.get("precondition_1d")),
        side=group.get("block_size"),
    )


def _of_the_authors(own: dict, is_row: bool) -> dict:
    """A parameter's saved state by our names. The authors do not count the first step, in which
    the bases are made. ``is_row``: whether rules see a matrix of one row, where theirs see a dim,
    which may have no matrix."""
    if not isinstance(own, dict) or "GG" not in own:
        return own
    kept = {name: own[name] for name in ("exp_avg", "exp_avg_sq") if name in own}
    for name in ("GG", "Q"):
        matrices = own[name] or ()
        if is_row and len(matrices) == 1 and not len(matrices[0]) and "exp_avg" in own:
            matrices = own["exp_avg"].new_ones(1, 1), ()
        if len(matrices) == 1 and len(matrices[0]):  # of one dim: here a row
            matrices = matrices[0].new_ones(1, 1), matrices[0]
        kept |= {f"{name}_{dim}": matrix for dim, matrix in enumerate(matrices) if len(matrix)}
    return {"step": own["step"] + 1, **kept}


class SOAP(OfLimitedDims, torch.optim.Optimizer):
    """Adam in the eigenbasis of Shampoo's preconditioner; definition ``soap.mlir``.

    Vyas et al., "SOAP: Improving and Stabilizing Shampoo using Adam", ICLR 2025, algorithm 3.
    The arguments are those of the authors' ``SOAP``.

    The first step of a parameter makes the bases and moves nothing. ``state`` has ``step``,
    ``exp_avg`` and ``exp_avg_sq`` of the rotated gradient, and of each dim that has a basis
    ``GG_0``, ``Q_0`` (rows) and ``GG_1``, ``Q_1`` (columns): float32, or float64 beside
    float64 parameters. A matrix of ``[n, m]`` has n * n and m * m elements in each. A matrix
    that ranks have parts of is stepped whole by one of them (docs/distributed.md). On CUDA
    devices the host makes the decompositions. Scalars are stepped as by Adam, and so are vectors
    without ``precondition_1d``; one warning for each group that is added names them.

    With ``merge_dims``, ``precondition_1d`` or ``block_size`` the group has a ``view`` that says
    so, as ``"merge_first(10000), vectors, blocks(1024)"``. A vector, and what is merged into one,
    is a matrix of one row, whose ``Q_0`` is 1.

    A state of the authors' loads. Where a parameter loses its bases, as where a checkpoint lacks
    them or a higher ``max_precond_dim`` gives it one more, they and the averages begin anew.

    Args:
        params: parameters, named parameters, or dicts of parameter groups.
        lr: learning rate.
        betas: decays of the averages of the rotated gradient and of its square.
        shampoo_beta: decay of the preconditioner; below 0, or None: ``betas[1]``.
        eps: added to the root of the squares' average.
        weight_decay: decoupled, times ``lr``, behind the update.
        precondition_frequency: in how many steps a basis is turned once.
        max_precond_dim: a dim with more elements has no basis. It cannot be lowered below a dim
            that has one, nor set so that some blocks of a parameter get one and others have it.
        merge_dims: dims become one while their product is at most ``max_precond_dim``, from the
            first on. No more than two may be left.
        precondition_1d: whether vectors have a basis.
        data_format: as the authors' default; others are refused. Parameters are matrices, vectors
            or scalars: give convolutions that are not merged, experts and heads a ``view``, by
            which each matrix has bases of its own, in states of ``[E, n, n]``.
        normalize_grads: divide each update by the root of its mean square.
        correct_bias: divide the averages by their weights' sums.
        block_size: cut what is longer along a dim, when it is merged, into blocks of at most so
            many, each stepped as a parameter of its own; the authors' does not cut.
        features: what every class takes, see :class:`stepc.torch.Optimizer`.

    Raises ValueError for values out of range, and for parameters that have more than two dims, or
    more than two left when they are merged.
    """

    _zoo_name = "soap"
    _hypers = named(
        "lr", "eps", "weight_decay", "precondition_frequency", shampoo_beta=_shampoo_beta, **BETAS
    )

    _not_keys = ("data_format",)
    _limit_key, _of_dim = "max_precond_dim", "Q_"
    _why_kept = ", in whose basis its averages are: a dim keeps the basis that it began with"
    _dims_words = "at most two dims: bases are of a matrix's rows and columns"
    _asks = {"merge_dims": False, "precondition_1d": False, "block_size": None}
    _view_of = staticmethod(_view)

    def __init__(
        self,
        params,
        lr: float = 3e-3,
        betas: tuple[float, float] = (0.95, 0.95),
        shampoo_beta: float = -1,
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        precondition_frequency: int = 10,
        max_precond_dim: int = 10000,
        merge_dims: bool = False,
        precondition_1d: bool = False,
        normalize_grads: bool = False,
        data_format: str = "channels_first",
        correct_bias: bool = True,
        block_size: int | None = None,
        **features,
    ) -> None:
        if data_format != "channels_first":
            raise ValueError(f"data_format is {data_format!r}, expected 'channels_first'")
        self._begin(SOAP, locals())

    def _check_values(self, group: dict) -> None:
        check_lr(group["lr"])
        check_betas(group["betas"])
        if not _shampoo_beta(group) < 1.0:
            raise ValueError(f"Invalid shampoo_beta: {group['shampoo_beta']}")
        check_not_negative(group["eps"], "epsilon value")
        check_not_negative(group["weight_decay"], "weight_decay value")
        _check_settings(group)

    @staticmethod
    def _limit(group: dict) -> Callable[[int], bool]:
        most = int(group["max_precond_dim"])
        return lambda size: size <= most

    def _tell_of_fallbacks(self, group: dict) -> None:
        most = int(group["max_precond_dim"])
        tell_of_fallbacks(
            group,
            lambda shape: len(shape) < 2 or max(shape) > most,
            f"SOAP has no bases of vectors, and of dims of more than {most} elements",
            "are stepped in that of their other dim, or as by Adam",
        )

    def _read_settings(self, group: dict) -> tuple:
        """What is compared before each step: options look at the parameters too."""
        names = ("max_precond_dim", "correct_bias", "normalize_grads")
        return *(group[name] for name in names), _view(group)

    def _read_options(self, group: dict) -> dict[str, bool | int]:
        _check_settings(group)
        self._check_view(group)
        self._check_limit(group)
        return {
            "precondition": True,
            "max_precond_dim": int(group["max_precond_dim"]),
            "correct_bias": bool(group["correct_bias"]),
            "normalize_grads": bool(group["normalize_grads"]),
        }

    def _check_saved(self, state_dict: dict) -> None:
        super()._check_saved(state_dict)
        groups = with_views(state_dict["param_groups"], self.param_groups)
        for group in groups:
            self._check_values({**self.defaults, **group})
            self._check_view(group)
        for key, own in state_dict["state"].items():
            if isinstance(own, dict) and "GG" in own and "step" not in own:
                raise ValueError(
                    f"the saved state of parameter {key} has 'GG' and no 'step', as "
                    "pytorch_optimizer's SOAP has, whose averages are in no basis"
                )

    def _adopt(self, state_dict: dict) -> dict:
        rows = set()
        groups = with_views(state_dict["param_groups"], self.param_groups)
        for saved, group in zip(groups, self.param_groups, strict=True):
            for key, param in zip(saved["params"], group["params"], strict=True):
                shapes = seen_shapes({VIEW: saved.get(VIEW)}, param, "")
                if [shape[:-1] for shape in shapes] == [(1,)]:
                    rows.add(key)
        states = {
            key: _of_the_authors(own, key in rows) for key, own in state_dict["state"].items()
        }
        return super()._adopt({**state_dict, "state": states})
