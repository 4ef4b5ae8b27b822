# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimizers of ColossalAI, with a compiled step, and its loss scaler. ``master=`` of each keeps
the float32 that ColossalAI's plugins keep beside parameters of 16 bits; without it there is one
warning.

Its Adafactor ignores ``lr`` and never measures the parameters' root mean square: the one here is
transformers', of which it was made. ``Distributed...`` are the classes that its plugins put in the
place of others; here every class steps over ranks, and those names are for its arguments.
"""

from __future__ import annotations

import math
import tempfile

import torch

from . import apex, came
from .binding.hypers import BETAS, named
from .binding.placement import Place
from .bitsandbytes.bits import OF_BITS, settings_of, tell_of_pages, with_bits
from .bitsandbytes.percentile import PercentileClipping
from .colossal_plugins import DynamicGradScaler, configure
from .optimizers import hf_adafactor
from .optimizers.checks import check_betas
from .optimizers.galore import GaLoreStep
from .optimizers.masters import OfMasters
from .optimizers.peer import Peer, not_negative
from .optimizers.peer_adam import GroupCounts, PeerAdam

__all__ = [
    "Adafactor",
    "CAME",
    "CPUAdam",
    "DistGaloreAwamW",
    "DistributedAdaFactor",
    "DistributedCAME",
    "DistributedLamb",
    "DynamicGradScaler",
    "FusedAdam",
    "FusedLAMB",
    "HybridAdam",
    "Lamb",
    "configure",
    "get_galore_param_groups",
]


class _OfPlugins(OfMasters):
    """What the plugins' ``master_weights``, True by default, are beside."""

    _keeper = "ColossalAI's plugin"


class CAME(_OfPlugins, came.CAME):
    __doc__ = came.CAME.__doc__


class Adafactor(_OfPlugins, hf_adafactor.Adafactor):
    __doc__ = hf_adafactor.Adafactor.__doc__


class FusedLAMB(_OfPlugins, apex.FusedLAMB):
    __doc__ = apex.FusedLAMB.__doc__


DistributedCAME = CAME
# With the numbers of ColossalAI's, and the `lr` that it is given.
DistributedAdaFactor = Adafactor


class CPUAdam(_OfPlugins, PeerAdam, torch.optim.Optimizer):
    """Adam as in ``colossalai.nn.optimizer.CPUAdam``; definition ``cpu_adam.mlir``.

    ``state`` has ``step``, ``exp_avg`` and ``exp_avg_sq``: float32, or float64 beside
    float64 parameters.

    Args:
        model_params: parameters, named parameters, or dicts of parameter groups.
        lr: learning rate.
        bias_correction: divide the averages by their weights' sums (ColossalAI does it
            for bfloat16 gradients in any case).
        betas: decays of the averages of the gradient and of its square.
        eps: added to the root of the latter.
        weight_decay: in the update or in the gradient, where it is positive.
        adamw_mode: decay the parameter itself, else in the gradient.
        nvme_offload_fraction: of the parameters' elements, from the first parameter on, how
            much has its states on disk (docs/placement.md).
        nvme_offload_dir: the folder for it; None: that of temporary files.
        features: ``static_grads``, ``clip`` and ``loss_scale``, as for
            :class:`stepc.torch.Optimizer`; ``loss_scale`` in place of ``div_scale``.

    Raises ValueError for an ``nvme_offload_fraction`` that is none, or with ``place``.
    """

    _attributes = ("nvme_offload_fraction", "nvme_offload_dir")
    # Parameter, gradient and moments, for those who ask how much memory it takes.
    num_fp32_shards_per_param = 4

    _not_keys = ("adamw_mode", "nvme_offload_fraction", "nvme_offload_dir")

    def __init__(
        self,
        model_params,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        adamw_mode: bool = True,
        nvme_offload_fraction: float = 0.0,
        nvme_offload_dir: str | None = None,
        **features,
    ) -> None:
        features = _on_disk(nvme_offload_fraction, nvme_offload_dir, features)
        self.adamw_mode = adamw_mode  # which _read_options asks for
        self.nvme_offload_fraction = nvme_offload_fraction
        self.nvme_offload_dir = nvme_offload_dir
        self._begin(CPUAdam, locals())


def _on_disk(fraction: float, folder: str | None, features: dict) -> dict:
    """The features with the place of states that ColossalAI's arguments say; ValueError."""
    if isinstance(fraction, bool) or not 0.0 <= fraction <= 1.0:
        raise ValueError(f"nvme_offload_fraction is {fraction!r}, expected a number from 0 to 1")
    if fraction == 0.0:
        return features
    if features.get("place") is not None:
        raise ValueError("nvme_offload_fraction and place both say where states lie")
    path = tempfile.gettempdir() if folder is None else folder
    return {**features, "place": Place("disk", path=path, fraction=float(fraction))}


class HybridAdam(CPUAdam):
    """Adam as in ``colossalai.nn.optimizer.HybridAdam``, which is its :class:`CPUAdam`
    where parameters are on the CPU. On a GPU ColossalAI takes the count of the last
    parameter for all; here each has its own."""


class FusedAdam(_OfPlugins, GroupCounts, torch.optim.Optimizer):
    """Adam as in ``colossalai.nn.optimizer.FusedAdam``; definition ``fused_adam.mlir``.

    ``state`` has ``exp_avg`` and ``exp_avg_sq``: float32, or float64 beside float64
    parameters. There is one count for a group, of the steps in which a parameter of
    it had a gradient: ``opt.scalars["step"]``, and ``step`` of a saved group.

    Args:
        params: parameters, named parameters, or dicts of parameter groups.
        lr: learning rate.
        bias_correction: divide the averages by their weights' sums.
        betas: decays of the averages of the gradient and of its square.
        eps: added to the root of the latter.
        adamw_mode: decay in the update, else in the gradient.
        weight_decay: see ``adamw_mode``.
        amsgrad: must be False.
        set_grad_none: what ``zero_grad()`` does (ColossalAI has it, and ignores it).
        features: what every class takes, see :class:`stepc.torch.Optimizer`.

    Raises RuntimeError, as ColossalAI does, for ``amsgrad``. ``step`` takes a closure only.
    """

    def __init__(
        self,
        params,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        adamw_mode: bool = True,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        set_grad_none: bool = True,
        **features,
    ) -> None:
        self._begin_fused(FusedAdam, locals())


class Lamb(_OfPlugins, Peer, torch.optim.Optimizer):
    """LAMB as in ``colossalai.nn.optimizer.Lamb``; definition ``deepspeed_lamb.mlir``,
    without a clamp.

    You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76
    minutes", ICLR 2020. ``state`` has ``step``, ``exp_avg`` and ``exp_avg_sq``: float32,
    or float64 beside float64 parameters.

    Args:
        params: parameters, named parameters, or dicts of parameter groups.
        lr: learning rate.
        betas: decays of the averages of the gradient and of its square.
        eps: added to the root of the latter.
        weight_decay: in the update, times the parameter.
        adam: a trust ratio of 1.
        bias_correction: times ``sqrt(1 - beta2^t) / (1 - beta1^t)`` for the whole step.
        features: what every class takes, see :class:`stepc.torch.Optimizer`.

    Raises ValueError, in the words of ColossalAI, for values out of range.
    """

    _zoo_name = "deepspeed_lamb"
    _attributes = ("adam",)
    _hypers = named(
        "lr",
        "eps",
        "weight_decay",
        # Of the clamp, which is off.
        min_coeff=lambda group: 0.0,
        max_coeff=lambda group: math.inf,
        **BETAS,
    )
    _transient_states = frozenset({"weight_norm", "adam_norm", "trust_ratio"})
    _ranges = {
        "lr": not_negative("learning rate"),
        "eps": not_negative("epsilon value"),
        "betas": check_betas,
    }

    _not_keys = ("adam",)

    def __init__(
        self,
        params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0,
        adam: bool = False,
        bias_correction: bool = False,
        **features,
    ) -> None:
        self.adam = adam
        self._begin(Lamb, locals())

    def _read_options(self, group: dict) -> dict[str, bool]:
        return {
            "bias_correction": bool(group.get("bias_correction", False)),
            "eps_inside_sqrt": False,
            "clamp_ratio": False,
            "adam": bool(self.adam),
        }


class DistributedLamb(Lamb):
    """LAMB as in ``colossalai.nn.optimizer.DistributedLamb``: :class:`Lamb` that is corrected for
    bias unless it is told not to be, without ``adam``.

    ColossalAI takes a parameter's norm of its half precision copy under ZeRO; here it is that of
    the float32 that is stepped. Raises ValueError as :class:`Lamb`.
    """

    def __init__(
        self,
        params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0,
        bias_correction: bool = True,
        **features,
    ) -> None:
        self.adam = False
        self._begin(DistributedLamb, locals())


def get_galore_param_groups(
    model: torch.nn.Module,
    weight_decay: float,
    rank: int = 256,
    update_proj_gap: int = 200,
    scale: float = 0.25,
    proj_type: str = "std",
) -> list[dict]:
    """Groups of a model for :class:`DistGaloreAwamW`, as in ``colossalai.nn.optimizer.galore``:
    matrices with a rank, other parameters, and those that do not decay, whose names have "bias"
    or "LayerNorm.weight" in them."""
    matrices, others, fixed = [], [], []
    for name, param in model.named_parameters():
        if "bias" in name or "LayerNorm.weight" in name:
            fixed.append(param)
        else:
            (matrices if param.dim() == 2 else others).append(param)
    low = {
        "rank": rank, "update_proj_gap": update_proj_gap, "scale": scale, "proj_type": proj_type,
    }  # fmt: skip
    return [
        {"params": matrices, **low, "weight_decay": weight_decay},
        {"params": others, "weight_decay": weight_decay},
        {"params": fixed, "weight_decay": 0.0},
    ]


class DistGaloreAwamW(_OfPlugins, PercentileClipping, GaLoreStep, torch.optim.Optimizer):
    """GaLore as in ``colossalai.nn.optimizer.DistGaloreAwamW``; definition
    ``galore_adamw.mlir``, with the Adam of bitsandbytes, whose eps is corrected for bias.

    Groups and ``state`` are as in :class:`stepc.torch.GaLoreAdamW`. Over ranks each matrix is
    projected as a whole by one of them, so that the result is that of one process; ColossalAI
    cuts the projected gradient into equal parts, whichever side it is on.

    Args:
        params: parameters, named parameters, or dicts of parameter groups; see
            :func:`get_galore_param_groups`.
        lr: learning rate.
        betas: decays of the averages of the projected gradient and of its square.
        eps: added to the root of the latter.
        weight_decay: decoupled, times ``lr``, behind the update.
        nbits: of an element of ``exp_avg`` and of ``exp_avg_sq``, 8 or 32. With 8 they are as
            with ``state_dtype="q8"``, where they have ``min_8bit_size`` elements: of a matrix with
            a rank they are of its projected gradient. The projection is float32.
        min_8bit_size: the least number of elements of a state of 8 bits.
        percentile_clipping: as for :class:`stepc.torch.bitsandbytes.Adam`; the norm is the
            gradient's, where ColossalAI takes that of the projected gradient.
        block_wise: must be True.
        is_paged: makes no difference, which is said once: states stay in memory.
        args: as for :class:`stepc.torch.bitsandbytes.Adam`.
        features: what every class takes, see :class:`stepc.torch.Optimizer`; with ``nbits=8``
            not ``state_dtype``.

    Raises ValueError for another ``block_wise`` and for values out of range;
    NotImplementedError for another ``nbits``.
    """

    _corrected_eps = True
    _ranges = {
        "lr": not_negative("learning rate"),
        "eps": not_negative("epsilon value"),
        "betas": check_betas,
        "weight_decay": not_negative("weight_decay value"),
    }

    _attributes = ("nbits", "is_paged")
    _not_keys = ("nbits", "min_8bit_size", "is_paged", "args", "percentile_clipping")
    _only = OF_BITS

    def __init__(
        self,
        params,
        lr: float = 1e-2,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        nbits: int = 8,
        min_8bit_size: int = 4096,
        percentile_clipping: int = 100,
        block_wise: bool = True,
        is_paged: bool = False,
        args=None,
        **features,
    ) -> None:
        settings = settings_of(locals(), nbits)
        self.nbits, self.is_paged = settings["optim_bits"], bool(is_paged)
        of_bits = with_bits(features, settings, ("exp_avg", "exp_avg_sq"))
        self._set_percentile(settings["percentile_clipping"], features)
        self._begin(DistGaloreAwamW, {**locals(), **settings, "features": of_bits})
        if is_paged:
            tell_of_pages(type(self).__name__)
