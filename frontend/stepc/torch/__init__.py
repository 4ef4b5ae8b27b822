# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimizers for PyTorch. ``stepc.torch.X`` is ``torch.optim.X`` where torch has
one, and ``stepc.torch.LIBRARY.X`` is the X of that library; ``Optimizer`` takes any
definition. ``ClipByNorm``, ``ClipByValue``, ``DynamicLossScale``, ``EMA`` and ``SWA`` go with
all of them."""

from . import (
    _release,  # first: it may refuse
    apex,
    came,
    colossal,
    deepspeed,
    hf,
    lomo,
)
from ._clipping import clip_grad_norm_
from ._features import EMA, SWA, ClipByNorm, ClipByValue, DynamicLossScale
from ._info import info
from ._layouts import Layout
from ._profiling import profile_kernels
from ._report import StepReport
from ._scaler import GradScaler
from .adadelta import Adadelta
from .adafactor import Adafactor
from .adagrad import Adagrad
from .adam import Adam
from .adamax import Adamax
from .adamw import AdamW
from .asgd import ASGD
from .lars import LARS
from .lion import Lion
from .nadam import NAdam
from .optimizer import Optimizer
from .radam import RAdam
from .rmsprop import RMSprop
from .rprop import Rprop
from .sgd import SGD
from .sm3 import SM3
from .sophia import SophiaG

__all__ = [
    "ASGD",
    "EMA",
    "LARS",
    "SGD",
    "SM3",
    "SWA",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "ClipByNorm",
    "ClipByValue",
    "DynamicLossScale",
    "GradScaler",
    "Layout",
    "Lion",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SophiaG",
    "StepReport",
    "apex",
    "came",
    "clip_grad_norm_",
    "colossal",
    "deepspeed",
    "hf",
    "info",
    "lomo",
    "profile_kernels",
]

if _release.has_muon():
    from .muon import Muon

    __all__ += ["Muon"]
