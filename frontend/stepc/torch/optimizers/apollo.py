# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""APOLLO, of its authors' repository (zhuhanqing/APOLLO), with a compiled step."""

from __future__ import annotations

from typing import ClassVar

import torch

from .checks import shapes_of
from .galore import SIDES, GaLoreAdamW, LowRankGroups, check_low_rank
from .peer import Peer

__all__ = ["APOLLOAdamW"]


def _check_low_rank(group: dict) -> None:
    """ValueError for what a group with a rank cannot have."""
    check_low_rank(group)
    for name, words in (("proj", ("random", "svd")), ("scale_type", ("channel", "tensor"))):
        if group[name] not in words:
            raise ValueError(f"{name} is {group[name]!r}, expected {words[0]!r} or {words[1]!r}")
    kind = group["proj_type"]
    if kind == "full":
        raise ValueError("proj_type is 'full', expected a projection of one side")
    if group["scale_type"] == "tensor":
        return
    for words, shape in shapes_of(group, one_by_one=True):
        tall = shape[0] >= shape[1]
        if (SIDES[kind].tall_right if tall else SIDES[kind].wide_right) != tall:
            raise ValueError(
                f"{words} has shape {shape} and proj_type {kind!r}, which projects "
                "the longer side: a scale for each channel is of the shorter one, use "
                "proj_type 'std' or scale_type 'tensor'"
            )


class APOLLOAdamW(LowRankGroups, Peer, torch.optim.Optimizer):
    """APOLLO, as in ``apollo_torch.APOLLOAdamW``; definition ``apollo.mlir``.

    Zhu et al., "APOLLO: SGD-like Memory, AdamW-level Performance", MLSys 2025. Matrices of a
    group with the key ``rank`` have AdamW's averages of a random projection of their gradients;
    what AdamW makes of it says by how much each channel of the gradient itself is scaled. Other
    groups are AdamW::

        APOLLOAdamW([
            {"params": matrices, "rank": 256, "proj": "random", "scale_type": "channel",
             "scale": 1, "update_proj_gap": 200, "proj_type": "std"},
            {"params": others},
        ], lr=1e-2)

    These are the defaults where a group has a rank. APOLLO-Mini is ``rank`` 1, ``scale_type``
    "tensor" and ``scale`` 128. ``proj`` is "random", or "svd": the first singular vectors. The
    projection is made again in the first step and each time that ``update_proj_gap`` more have
    been taken. ``proj_type`` is "std" (of the shorter side), "reverse_std", "left" or "right";
    a scale for each channel is of the shorter side.

    ``state`` has ``step``, ``exp_avg``, ``exp_avg_sq`` and, where there is a rank,
    ``projection`` and ``scaled_grad`` (the norm of the last step's gradient, as scaled, of shape
    [1, 1]): float32, or float64 beside float64 parameters. So checkpoints hold no objects, and
    training goes on to the bit in the middle of a gap. Random numbers follow from
    ``projection_seed``, the number of the parameter among those of the optimizer, and the step,
    and from nothing else: not from torch's generator, nor from ranks or devices. Of several
    matrices in one parameter, by a group's ``view``, each counts as a parameter.

    Args:
        params: parameters, named parameters, or dicts of parameter groups.
        lr: learning rate.
        betas: decays of the averages of the projected gradient and of its square.
        eps: added to the root of the latter.
        weight_decay: decoupled, times ``lr``, behind the update.
        correct_bias: divide the averages by their weights' sums.
        scale_front: multiply by ``scale``'s root before the growth is limited, not behind it.
        disable_nl: do not limit by how much the norm of a matrix's update may grow in a step.
        no_deprecation_warning: makes no difference.
        projection_seed: of random projections, any number.
        features: what every class takes, see :class:`stepc.torch.Optimizer`.

    Raises ValueError for values out of range.
    """

    _zoo_name = "apollo"
    _hypers: ClassVar[dict] = {**GaLoreAdamW._hypers, "projection_seed": "projection_seed"}
    _low_rank_defaults: ClassVar[dict] = {
        "proj": "random",
        "scale_type": "channel",
        "scale": 1,
        "update_proj_gap": 200,
        "proj_type": "std",
    }
    _check_low_rank = staticmethod(_check_low_rank)
    _check_values = GaLoreAdamW._check_values

    _not_keys = ("no_deprecation_warning",)

    def __init__(
        self,
        params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        correct_bias: bool = True,
        scale_front: bool = False,
        disable_nl: bool = False,
        no_deprecation_warning: bool = True,
        projection_seed: float = 0.0,
        **features,
    ) -> None:
        self._begin(APOLLOAdamW, locals())

    def _read_options(self, group: dict) -> dict[str, bool | int]:
        options = super()._read_options(group)
        del options["both_sides"]
        return {
            **options,
            "by_channel": group.get("scale_type", "channel") == "channel",
            "svd": group.get("proj", "random") == "svd",
            "limit_growth": not group.get("disable_nl", False),
            "scale_front": bool(group.get("scale_front", False)),
            "correct_bias": bool(group.get("correct_bias", True)),
        }
