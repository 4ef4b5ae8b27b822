# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Moonshot's Muon, of the training script of MoonshotAI/Moonlight, with a compiled step."""

from __future__ import annotations

import itertools

import torch

from .binding.hypers import Part
from .optimizers.checks import (
    CheckedGroups,
    check_betas,
    check_lr,
    check_matrices,
    check_not_negative,
)
from .optimizers.factors import Factors
from .optimizers.newton_schulz import STEPS, OfSteps, is_number_of_steps
from .step.compiled import CompiledStep

__all__ = ["Muon"]


def _check_steps(group: dict) -> None:
    if not is_number_of_steps(group["ns_steps"]):
        raise ValueError(f"ns_steps is {group['ns_steps']}, expected a number from 0 to 99")


def _as_groups(saved: dict, groups: list[dict]) -> dict:
    """Moonshot's state: one group of matrices and then of others, by the groups here."""
    (only,) = saved["param_groups"]
    numbers, made = iter(only["params"]), []
    for group in groups:
        own = list(itertools.islice(numbers, len(group["params"])))
        made.append({**only, "use_muon": group["use_muon"], "params": own})
    return {**saved, "param_groups": made}


class Muon(OfSteps, CheckedGroups, Factors, CompiledStep, torch.optim.Optimizer):
    """Muon and AdamW in one optimizer, as in Moonshot's ``toy_train.Muon``; definition
    ``moonlight_muon.mlir``.

    J. Liu et al., "Muon is Scalable for LLM Training", 2025, section 2.2: updates are scaled by
    ``0.2 * sqrt(max(rows, columns))``, so that ``lr`` and ``wd`` can be AdamW's. There is one
    group of ``muon_params``, with the key ``use_muon`` True, and one of ``adamw_params``, with
    False; Moonshot's has one group for both, and its states load. ``state`` has
    ``momentum_buffer``, or ``moment1`` and ``moment2``, and ``step`` of all: float32, or float64
    beside float64 parameters. The orthogonalization is computed in these types too, Moonshot's
    is in bfloat16. A parameter without a gradient is left out. A matrix that ranks have parts of
    is stepped whole by one of them (docs/distributed.md).

    Args:
        lr: learning rate of both.
        wd: decoupled weight decay, times ``lr``.
        muon_params: matrices, named or not.
        momentum: decay of the sum of gradients.
        nesterov: orthogonalize the sum and the gradient together.
        ns_steps: of Newton and Schulz, from 0 to 99; a step is compiled for each number.
        adamw_params: others, or None.
        adamw_betas: decays of the averages of the gradient and of its square.
        adamw_eps: added to the root of the latter, which is not corrected for bias.
        features: ``static_grads``, ``clip`` and ``loss_scale``, as for
            :class:`stepc.torch.Optimizer`.

    Raises ValueError for values out of range, and for ``muon_params`` that are no matrices.
    """

    _zoo_name = "moonlight_muon"
    _options = {"use_muon": "use_muon", "nesterov": "nesterov"}
    _hypers = {
        "lr": "lr",
        "weight_decay": "wd",
        "momentum": "momentum",
        "beta1": Part("adamw_betas", 0),
        "beta2": Part("adamw_betas", 1),
        "eps": "adamw_eps",
    }
    _transient_states = frozenset({"use_muon"})

    def __init__(
        self,
        lr: float = 1e-3,
        wd: float = 0.1,
        muon_params=None,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_steps: int = STEPS,
        adamw_params=None,
        adamw_betas: tuple[float, float] = (0.9, 0.95),
        adamw_eps: float = 1e-8,
        **features,
    ) -> None:
        defaults = {
            "lr": lr,
            "wd": wd,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_steps": ns_steps,
            "adamw_betas": adamw_betas,
            "adamw_eps": adamw_eps,
            "use_muon": True,
        }
        self._check_values(defaults)
        groups = [
            {"params": list(params), "use_muon": use_muon}
            for params, use_muon in ((muon_params, True), (adamw_params, False))
            if params is not None
        ]
        groups = [group for group in groups if group["params"]]
        super().__init__(groups, defaults, **features)

    @staticmethod
    def _check_values(group: dict) -> None:
        check_lr(group["lr"])
        check_not_negative(group["wd"], "weight_decay value")
        if not 0.0 <= group["momentum"] < 1.0:
            raise ValueError(f"Invalid momentum value: {group['momentum']}")
        check_betas(group["adamw_betas"])
        check_not_negative(group["adamw_eps"], "epsilon value")
        _check_steps(group)

    def add_param_group(self, param_group: dict) -> None:
        """Adds a parameter group, as torch's; one without ``use_muon`` is of matrices. Raises
        ValueError for values out of range, as the constructor does, and for what is no matrix."""
        if isinstance(param_group, dict):
            self._check_shapes(param_group)
        super().add_param_group(param_group)

    def _check_shapes(self, group: dict) -> None:
        if group.get("use_muon", True):
            check_matrices(group, "a matrix: give others as adamw_params")

    def _read_options(self, group: dict) -> dict[str, bool]:
        _check_steps(group)
        if group["use_muon"] and group["ns_steps"] != self._num_steps_of_all():
            raise ValueError(
                f"ns_steps is {group['ns_steps']}, and {self._num_steps_of_all()} of others, "
                "expected one number for all groups of matrices"
            )
        return super()._read_options(group)

    def load_state_dict(self, state_dict: dict) -> None:
        """As torch's; also of Moonshot's one group, where the groups here have as many parameters
        in its order."""
        saved = state_dict["param_groups"]
        held = sum(len(group["params"]) for group in self.param_groups)
        if len(saved) == 1 and "use_muon" not in saved[0] and len(saved[0]["params"]) == held:
            state_dict = _as_groups(state_dict, self.param_groups)
        super().load_state_dict(state_dict)
