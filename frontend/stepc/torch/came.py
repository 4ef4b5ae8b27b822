# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""CAME, of the package ``came_pytorch``, with a compiled step."""

from __future__ import annotations

import torch

from .binding.hypers import Part, named
from .optimizers.peer import Peer

__all__ = ["CAME"]


def _check_lr(lr: float) -> None:
    if not lr > 0.0:
        raise AssertionError(f"lr is {lr}, expected a number above 0")


def _check_betas(betas: tuple[float, ...]) -> None:
    for index, beta in enumerate(betas):
        if not 0.0 <= beta <= 1.0:
            raise AssertionError(f"beta {index} is {beta}, expected one in [0, 1]")


class CAME(Peer, torch.optim.Optimizer):
    """CAME as in ``came_pytorch.CAME``; definition ``came.mlir``.

    Luo et al., "CAME: Confidence-guided Adaptive Memory Efficient Optimization",
    ACL 2023. ``state`` has ``step``, ``exp_avg``, and of a matrix ``exp_avg_sq_row``,
    ``exp_avg_sq_col``, ``exp_avg_res_row`` and ``exp_avg_res_col`` (the parameter's shape
    without the last dim, or without the last but one), else ``exp_avg_sq``; all
    float32, or float64 beside float64 parameters. ``state["RMS"]``, which
    came_pytorch notes down and never reads, is not kept.

    Args:
        params: parameters, named parameters, or dicts of parameter groups.
        lr: learning rate; must be given.
        eps: added to the squared gradient; added to the squared instability.
        clip_threshold: of the root mean square of an update.
        betas: decays of the averages of updates, squared gradients, instability.
        weight_decay: decoupled, times ``lr``.
        features: what every class takes, see :class:`stepc.torch.Optimizer`.

    Raises AssertionError, as came_pytorch does, for ``lr`` not above 0 and for a beta
    outside [0, 1]; TypeError where ``lr`` is not given.
    """

    _zoo_name = "came"
    _hypers = named(
        "lr",
        "clip_threshold",
        "weight_decay",
        eps1=Part("eps", 0),
        eps2=Part("eps", 1),
        **{f"beta{i + 1}": Part("betas", i, 3) for i in range(3)},
    )
    _dropped_dims = {
        "exp_avg_sq_row": -1,
        "exp_avg_sq_col": -2,
        "exp_avg_res_row": -1,
        "exp_avg_res_col": -2,
    }
    _transient_states = frozenset({"RMS"})
    _ranges = {"lr": _check_lr, "betas": _check_betas}

    def __init__(
        self,
        params,
        lr: float | None = None,
        eps: tuple[float, float] = (1e-30, 1e-16),
        clip_threshold: float = 1.0,
        betas: tuple[float, float, float] = (0.9, 0.999, 0.9999),
        weight_decay: float = 0.0,
        **features,
    ) -> None:
        self._begin(CAME, locals())
