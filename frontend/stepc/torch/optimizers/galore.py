# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""GaLore-AdamW and GaLore-Adafactor, of their authors' repository (jiaweizzhao/GaLore), with a
compiled step."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import torch

from ..binding.hypers import BETAS, named
from .checks import check_whole, list_params, shapes_of, unchanged_where_refused
from .hf_adafactor import Adafactor
from .peer import Peer

__all__ = ["GaLoreAdafactor", "GaLoreAdamW"]

# What the authors' README has, where a group with a rank does not say.
_DEFAULTS = {"update_proj_gap": 200, "scale": 0.25, "proj_type": "std"}


class _Sides(NamedTuple):
    """On which side a projection is: of matrices with no fewer rows than columns, of others,
    and whether on both."""

    tall_right: bool
    wide_right: bool
    both_sides: bool = False


SIDES = {
    "std": _Sides(True, False),
    "reverse_std": _Sides(False, True),
    "right": _Sides(True, True),
    "left": _Sides(False, False),
    "full": _Sides(False, False, True),
}


def check_low_rank(group: dict) -> None:
    """ValueError for what a group with a rank cannot have."""
    check_whole(group["rank"], "rank")
    check_whole(group["update_proj_gap"], "update_proj_gap")
    if group["proj_type"] not in SIDES:
        kinds = ", ".join(SIDES)
        raise ValueError(f"proj_type is {group['proj_type']!r}, expected one of {kinds}")
    if group.get("dim", 2) > 2:
        raise ValueError(f"dim is {group['dim']}, expected 2: only matrices are projected")
    if group.get("proj_quant", False):
        raise ValueError("proj_quant is True, expected False: projections are not quantized")
    for words, shape in shapes_of(group, one_by_one=True):
        if len(shape) != 2:
            raise ValueError(
                f"{words} of a group with rank {group['rank']} has shape "
                f"{shape}: only matrices are projected, others are for a group "
                "without rank"
            )


# Of a group without a rank nothing reads them.
_HYPERS = {
    "update_proj_gap": lambda group: group.get("update_proj_gap", 1),
    "scale": lambda group: group.get("scale", 1.0),
}


class LowRankGroups:
    """Mix-in before ``CompiledStep``: a group with a ``rank`` may have ``update_proj_gap``,
    ``scale`` and ``proj_type``, and its matrices are projected.

    ``_low_rank_defaults``: these and others, where a group with a rank does not say.
    """

    _low_rank_defaults: ClassVar[dict] = _DEFAULTS
    _check_low_rank = staticmethod(check_low_rank)

    def add_param_group(self, param_group: dict) -> None:
        """Adds a parameter group, as torch's; raises ValueError for values out of range, as the
        constructor does, and for a ``rank`` of what are no matrices."""
        with unchanged_where_refused(param_group):
            if isinstance(param_group, dict) and "rank" in param_group:
                list_params(param_group)
                self._check_shapes(param_group)
                for name, value in self._low_rank_defaults.items():
                    param_group.setdefault(name, value)
            super().add_param_group(param_group)

    def _steps_one_by_one(self, group: dict) -> bool:
        return "rank" in group

    def _check_shapes(self, group: dict) -> None:
        if "rank" in group:
            self._check_low_rank({**self._low_rank_defaults, **group})

    def _read_options(self, group: dict) -> dict[str, bool | int]:
        low_rank = "rank" in group
        sides = SIDES[group["proj_type"]] if low_rank else SIDES["std"]
        return {
            "rank": int(group["rank"]) if low_rank else 1,
            "low_rank": low_rank,
            **sides._asdict(),
            **super()._read_options(group),
        }


class GaLoreStep(LowRankGroups, Peer):
    """Mix-in before ``torch.optim.Optimizer``; definition ``galore_adamw.mlir``.

    A group without a rank is AdamW. ``_corrected_eps``: whether eps is corrected for bias as
    the root beside it is.
    """

    _zoo_name = "galore_adamw"
    _corrected_eps = False
    _hypers = named("lr", "eps", "weight_decay", **BETAS, **_HYPERS)

    def _read_options(self, group: dict) -> dict[str, bool | int]:
        return {
            **super()._read_options(group),
            "correct_bias": bool(group.get("correct_bias", True)),
            "corrected_eps": self._corrected_eps,
        }


class GaLoreAdamW(GaLoreStep, torch.optim.Optimizer):
    """AdamW of low rank, as in ``galore_torch.GaLoreAdamW``; definition ``galore_adamw.mlir``.

    Zhao et al., "GaLore: Memory-Efficient LLM Training by Gradient Low-Rank Projection",
    ICML 2024. Matrices of a group with the key ``rank`` have averages of a projection of their
    gradients; other groups are AdamW::

        GaLoreAdamW([
            {"params": matrices, "rank": 128, "update_proj_gap": 200, "scale": 0.25,
             "proj_type": "std"},
            {"params": others},
        ], lr=1e-2)

    The projection is on the first ``rank`` singular vectors of the gradient, found again in
    the first step and each time that ``update_proj_gap`` more have been taken. ``proj_type``
    is "std" (of the shorter side), "reverse_std", "left", "right" or "full".

    ``state`` has ``step``, ``exp_avg``, ``exp_avg_sq`` and, where there is a rank,
    ``projection`` (with "full" ``projection_right`` too): float32, or float64 beside float64
    parameters. So checkpoints hold no objects, and training goes on to the bit in the middle
    of a gap. The sign of a singular vector is that with which its largest component is
    positive. By a group's ``view`` a parameter may be several matrices, each with a projection:
    experts of ``[E, m, n]`` have ``projection`` of ``[E, n, rank]``. On CUDA devices groups with
    a rank are refused.

    Args:
        params: parameters, named parameters, or dicts of parameter groups.
        lr: learning rate.
        betas: decays of the averages of the projected gradient and of its square.
        eps: added to the root of the latter.
        weight_decay: decoupled, times ``lr``, behind the update.
        correct_bias: divide the averages by their weights' sums.
        no_deprecation_warning: makes no difference.
        features: what every class takes, see :class:`stepc.torch.Optimizer`.

    Raises ValueError for values out of range.
    """

    _not_keys = ("no_deprecation_warning",)

    def __init__(
        self,
        params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        correct_bias: bool = True,
        no_deprecation_warning: bool = False,
        **features,
    ) -> None:
        self._begin(GaLoreAdamW, locals())

    def _check_values(self, group: dict) -> None:
        if not group["lr"] >= 0.0:
            raise ValueError(f"Invalid learning rate: {group['lr']} - should be >= 0.0")
        for beta in group["betas"]:
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter: {beta} - should be in [0.0, 1.0)")
        if not group["eps"] >= 0.0:
            raise ValueError(f"Invalid epsilon value: {group['eps']} - should be >= 0.0")


class GaLoreAdafactor(LowRankGroups, Adafactor):
    """Adafactor of low rank, as in ``galore_torch.GaLoreAdafactor``; definition
    ``galore_adafactor.mlir``.

    Groups with a ``rank`` are as in :class:`GaLoreAdamW`: their matrices' gradients are
    projected, and the projection's squares are factored. Other groups, and all arguments, are
    those of :class:`stepc.torch.hf.Adafactor`, which is transformers'.

    ``state`` has ``step``, ``exp_avg`` where ``beta1`` is given, and of a matrix
    ``exp_avg_sq_row`` and ``exp_avg_sq_col``, else ``exp_avg_sq``; where there is a rank they
    have the extents of the projected gradient, of ``[rows, rank]`` or ``[rank, columns]``, and
    ``projection`` is beside them (with "full" ``projection_right`` too). All are float32, or
    float64 beside float64 parameters. The learning rate is scaled by the root mean square of
    the whole parameter, the update bounded by that of the projected one. On CUDA devices
    groups with a rank are refused.

    Args:
        params: parameters, named parameters, or dicts of parameter groups.
        lr: external learning rate; None with ``relative_step``.
        eps: added to the squared gradient; least scale of a parameter.
        clip_threshold: of the root mean square of an update.
        decay_rate: exponent of the decay of the squared gradient's average.
        beta1: decay of the average of updates; None: no such average.
        weight_decay: decoupled, times the learning rate of the parameter.
        scale_parameter: multiply the learning rate by the parameter's root mean square.
        relative_step: learning rate from the step count, instead of ``lr``.
        warmup_init: begin with small ones; needs ``relative_step``.
        features: what every class takes, see :class:`stepc.torch.Optimizer`.

    Raises ValueError, in the words of the authors, for ``lr`` with ``relative_step`` and for
    ``warmup_init`` without, and for a rank that is out of range or of what is no matrix.
    """

    _zoo_name = "galore_adafactor"
    _hypers = {**Adafactor._hypers, **_HYPERS}
