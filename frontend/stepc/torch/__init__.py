# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimizers for PyTorch. ``stepc.torch.X`` is ``torch.optim.X`` where torch has
one, and ``stepc.torch.LIBRARY.X`` is the X of that library; ``Optimizer`` takes any
definition. ``ClipByNorm``, ``ClipByValue``, ``DynamicLossScale``, ``EMA`` and ``SWA`` go with
all of them."""

from .._codes import Codes
from . import (
    _release,
    apex,
    bitsandbytes,
    came,
    checkpoint,
    colossal,
    deepspeed,
    hf,
    lomo,
    moonlight,
    muon,
    schedules,
)
from .about import info
from .binding.features import EMA, SWA, ClipByNorm, ClipByValue, DynamicLossScale
from .binding.placement import Place
from .optimizers.apollo import APOLLOAdamW
from .optimizers.dion import Dion
from .optimizers.galore import GaLoreAdafactor, GaLoreAdamW
from .optimizers.lars import LARS
from .optimizers.lion import Lion
from .optimizers.normuon import NorMuon
from .optimizers.of_torch import (
    ASGD,
    SGD,
    Adadelta,
    Adafactor,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    NAdam,
    RAdam,
    RMSprop,
    Rprop,
)
from .optimizers.optimizer import Optimizer
from .optimizers.shampoo import Shampoo
from .optimizers.sm3 import SM3
from .optimizers.soap import SOAP
from .optimizers.sophia import SophiaG
from .ranks.clipping import clip_grad_norm_
from .ranks.layouts import Layout
from .ranks.saved_codes import decode_state
from .ranks.zero.settings import Zero
from .step.profiling import profile_kernels
from .step.report import StepReport
from .step.scaler import GradScaler

__all__ = [
    "APOLLOAdamW",
    "ASGD",
    "EMA",
    "LARS",
    "SGD",
    "SM3",
    "SOAP",
    "SWA",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "ClipByNorm",
    "ClipByValue",
    "Codes",
    "Dion",
    "DynamicLossScale",
    "GaLoreAdafactor",
    "GaLoreAdamW",
    "GradScaler",
    "Layout",
    "Lion",
    "NAdam",
    "NorMuon",
    "Optimizer",
    "Place",
    "RAdam",
    "RMSprop",
    "Rprop",
    "Shampoo",
    "SophiaG",
    "StepReport",
    "Zero",
    "apex",
    "bitsandbytes",
    "came",
    "checkpoint",
    "clip_grad_norm_",
    "colossal",
    "decode_state",
    "deepspeed",
    "hf",
    "info",
    "lomo",
    "moonlight",
    "muon",
    "profile_kernels",
    "schedules",
]

if _release.has_muon():
    from .optimizers.muon import GramMuon, Muon

    __all__ += ["GramMuon", "Muon"]
