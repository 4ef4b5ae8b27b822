# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimizers of DeepSpeed, with a compiled step. ``master=`` of each keeps the float32 that its
engine keeps beside parameters of 16 bits; without it there is one warning."""

from __future__ import annotations

import torch

from ..binding.features import ClipByNorm, clips
from ..binding.hypers import BETAS, named
from ..optimizers.masters import OfMasters
from ..optimizers.peer import Peer
from ..optimizers.peer_adam import LastCounts, PeerAdam


class _OfEngine(OfMasters):
    """What the engine's masters, of its blocks ``fp16`` and ``bf16``, are beside."""

    _keeper = "DeepSpeed's engine"


class FusedAdam(_OfEngine, LastCounts, torch.optim.Optimizer):
    """Adam as in ``deepspeed.ops.adam.FusedAdam``; definition ``fused_adam.mlir``.

    ``state`` has ``step``, ``exp_avg`` and ``exp_avg_sq``: float32, or float64 beside
    float64 parameters. Each parameter has its count, as DeepSpeed says that it has;
    there only the last parameter with a gradient is counted for, and a checkpoint of
    it gives all parameters of a group that count.

    Args:
        params: parameters, named parameters, or dicts of parameter groups.
        lr: learning rate.
        bias_correction: divide the averages by their weights' sums.
        betas: decays of the averages of the gradient and of its square.
        eps: added to the root of the latter.
        adam_w_mode: decay in the update, else in the gradient.
        weight_decay: see ``adam_w_mode``.
        amsgrad: must be False.
        set_grad_none: what ``zero_grad()`` does.
        features: what every class takes, see :class:`stepc.torch.Optimizer`.

    Raises RuntimeError, as DeepSpeed does, for ``amsgrad``. ``step`` takes a closure only.
    """

    _mode_name = "adam_w_mode"

    def __init__(
        self,
        params,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        adam_w_mode: bool = True,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        set_grad_none: bool = True,
        **features,
    ) -> None:
        self._begin_fused(FusedAdam, locals())


class DeepSpeedCPUAdam(_OfEngine, PeerAdam, torch.optim.Optimizer):
    """Adam as in ``deepspeed.ops.adam.DeepSpeedCPUAdam``; definition ``cpu_adam.mlir``.

    ``state`` has ``step``, ``exp_avg`` and ``exp_avg_sq``: float32, or float64 beside
    float64 parameters.

    Args:
        model_params: parameters, named parameters, or dicts of parameter groups.
        lr: learning rate.
        bias_correction: divide the averages by their weights' sums.
        betas: decays of the averages of the gradient and of its square.
        eps: added to the root of the latter.
        weight_decay: in the update or in the gradient, where it is positive.
        amsgrad: must be False (DeepSpeed ignores it).
        adamw_mode: decay the parameter itself, else in the gradient.
        fp32_optimizer_states: must be True.
        features: what every class takes, see :class:`stepc.torch.Optimizer`.

    Raises RuntimeError for ``amsgrad``, ValueError for states of the parameter's dtype.
    """

    _mode_name = "adam_w_mode"
    _attributes = ("fp32_optimizer_states",)

    _not_keys = ("adamw_mode", "fp32_optimizer_states")

    def __init__(
        self,
        model_params,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        adamw_mode: bool = True,
        fp32_optimizer_states: bool = True,
        **features,
    ) -> None:
        if amsgrad:
            raise RuntimeError("DeepSpeedCPUAdam does not support the AMSGrad variant.")
        if not fp32_optimizer_states:
            raise ValueError("fp32_optimizer_states is False, expected True: states are float32")
        self.adam_w_mode = adamw_mode  # which _read_options asks for
        self.fp32_optimizer_states = fp32_optimizer_states
        self._begin(DeepSpeedCPUAdam, locals())


class FusedLamb(_OfEngine, Peer, torch.optim.Optimizer):
    """LAMB as in ``deepspeed.ops.lamb.FusedLamb``; definition ``deepspeed_lamb.mlir``.

    You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76
    minutes", ICLR 2020. ``state`` has ``step``, ``exp_avg`` and ``exp_avg_sq``: float32,
    or float64 beside float64 parameters.

    Args:
        params: parameters, named parameters, or dicts of parameter groups.
        lr: learning rate.
        bias_correction: times ``sqrt(1 - beta2^t) / (1 - beta1^t)`` for the whole step.
        betas: decays of the averages of the gradient and of its square.
        eps: added to the root of the latter.
        eps_inside_sqrt: or to it, before the root.
        weight_decay: in the update, times the parameter.
        max_grad_norm: above 0: clips by the norm of all gradients first, as
            ``clip=ClipByNorm(max_grad_norm)``; read here only, as ``opt.clip`` has it.
        max_coeff: largest trust ratio.
        min_coeff: smallest trust ratio.
        amsgrad: must be False.
        features: what every class takes, see :class:`stepc.torch.Optimizer`.

    Raises RuntimeError, as DeepSpeed does, for ``amsgrad``. ``step`` takes a closure
    only, not DeepSpeed's lists of gradients, and ``get_lamb_coeffs`` is not there.
    """

    _zoo_name = "deepspeed_lamb"
    _attributes = ("eps_mode",)
    _hypers = named("lr", "eps", "weight_decay", "min_coeff", "max_coeff", **BETAS)

    _not_keys = ("amsgrad", "eps_inside_sqrt")

    def __init__(
        self,
        params,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        eps_inside_sqrt: bool = False,
        weight_decay: float = 0.0,
        max_grad_norm: float = 0.0,
        max_coeff: float = 10.0,
        min_coeff: float = 0.01,
        amsgrad: bool = False,
        **features,
    ) -> None:
        if amsgrad:
            raise RuntimeError("FusedLamb does not support the AMSGrad variant.")
        if max_grad_norm > 0:
            features["clip"] = [*clips(features.get("clip")), ClipByNorm(max_grad_norm)]
        self.eps_mode = 0 if eps_inside_sqrt else 1  # which _read_options asks for
        self._begin(FusedLamb, locals())

    def _read_options(self, group: dict) -> dict[str, bool]:
        return {
            "bias_correction": bool(group["bias_correction"]),
            "eps_inside_sqrt": self.eps_mode == 0,
            "clamp_ratio": True,
        }
