# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Schedules of ColossalAI, as ``colossalai.nn.lr_scheduler`` of 0.5 computes them: most are torch's
with ``total_steps`` as the first number. Below, e is ``last_epoch`` and b a group's learning rate.
"""

from __future__ import annotations

import inspect
import warnings

from torch.optim import lr_scheduler as _torchs
from torch.optim.lr_scheduler import LRScheduler

from ..tensors.callers import level_of_caller
from .rates import rates_of
from .stages import DelayerScheduler, WarmupDelayerScheduler, WarmupScheduler


def _tell_of(kind: type, others: dict) -> None:
    """ColossalAI's take any keyword, and do nothing with those that they do not know."""
    if others:
        known = [
            n for n in inspect.signature(kind.__init__).parameters if n not in ("self", "others")
        ]
        warnings.warn(
            f"{kind.__name__} has no {', '.join(map(repr, others))}, which is without meaning; it "
            f"has {', '.join(known)}",
            stacklevel=level_of_caller(),
        )


class CosineAnnealingLR(_torchs.CosineAnnealingLR):
    """torch's: ``eta_min + (b - eta_min) * (1 + cos(pi * e / T)) / 2`` with T = ``total_steps``."""

    def __init__(
        self, optimizer, total_steps: int, eta_min: float = 0, last_epoch: int = -1, **others
    ) -> None:
        _tell_of(CosineAnnealingLR, others)
        super().__init__(optimizer, total_steps, eta_min=eta_min, last_epoch=last_epoch)

    def get_lr(self) -> list:
        """Of each group at e."""
        # Newer releases of torch take e = 0 for the beginning in the constructor alone, and else
        # multiply by what is more than 1. Behind a warm-up it is asked for later.
        if self.last_epoch == 0:
            return [group["lr"] for group in self.optimizer.param_groups]
        return super().get_lr()


class CosineAnnealingWarmupLR(WarmupScheduler):
    """``b * (e + 1) / warmup_steps``, then :class:`CosineAnnealingLR` over what is left of
    ``total_steps``.

    Args:
        optimizer: of torch, or ours.
        total_steps: of both parts.
        warmup_steps: of the first.
        eta_min: where the cosine ends.
        last_epoch: e of a run that goes on, whose groups have ``initial_lr``.
    """

    def __init__(
        self,
        optimizer,
        total_steps: int,
        warmup_steps: int = 0,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        left = total_steps - warmup_steps
        after = CosineAnnealingLR(optimizer, left, eta_min=eta_min, last_epoch=last_epoch)
        super().__init__(optimizer, warmup_steps, after, last_epoch=last_epoch)


def _check_share(pct_start: float) -> None:
    if not 0.0 <= pct_start <= 1.0:
        raise ValueError(f"pct_start must >= 0.0 and <= 1.0, got {pct_start}")


class FlatAnnealingLR(DelayerScheduler):
    """b for ``int(total_steps * pct_start)`` steps, then a cosine to 0 over the others."""

    def __init__(
        self,
        optimizer,
        total_steps: int,
        pct_start: float = 0.72,
        last_epoch: int = -1,
        **others,
    ) -> None:
        _check_share(pct_start)
        _tell_of(FlatAnnealingLR, others)
        flat = int(total_steps * pct_start)
        after = CosineAnnealingLR(optimizer, total_steps - flat)
        super().__init__(optimizer, flat, after, last_epoch=last_epoch)


class FlatAnnealingWarmupLR(WarmupDelayerScheduler):
    """``b * (e + 1) / warmup_steps``, b for ``pct_start`` of what is left, then a cosine to
    ``eta_min``."""

    def __init__(
        self,
        optimizer,
        total_steps: int,
        warmup_steps: int = 0,
        pct_start: float = 0.72,
        eta_min: float = 0,
        last_epoch: int = -1,
        **others,
    ) -> None:
        _check_share(pct_start)
        _tell_of(FlatAnnealingWarmupLR, others)
        flat = int((total_steps - warmup_steps) * pct_start)
        after = CosineAnnealingLR(optimizer, total_steps - warmup_steps - flat, eta_min=eta_min)
        super().__init__(optimizer, warmup_steps, flat, after, last_epoch=last_epoch)


class LinearWarmupLR(LRScheduler):
    """``b * (e + 1) / (w + 1)`` for w = ``warmup_steps``, then ``b * (T - e) / (T - w)`` with T =
    ``total_steps``, below 0 behind it."""

    def __init__(
        self, optimizer, total_steps: int, warmup_steps: int = 0, last_epoch: int = -1, **others
    ) -> None:
        _tell_of(LinearWarmupLR, others)
        self.warmup_steps, self.total_steps = warmup_steps, total_steps
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list:
        """Of each group at e."""
        if self.last_epoch < self.warmup_steps:
            share = (self.last_epoch + 1) / (self.warmup_steps + 1)
        else:
            share = (self.total_steps - self.last_epoch) / (self.total_steps - self.warmup_steps)
        return [share * rate for rate in self.base_lrs]


class MultiStepLR(_torchs.MultiStepLR):
    """torch's: times ``gamma`` at each of ``milestones``. ``total_steps`` is without meaning."""

    def __init__(
        self,
        optimizer,
        total_steps: int,
        milestones: list[int] | None = None,
        gamma: float = 0.1,
        last_epoch: int = -1,
        **others,
    ) -> None:
        _tell_of(MultiStepLR, others)
        super().__init__(optimizer, milestones or (), gamma=gamma, last_epoch=last_epoch)


class MultiStepWarmupLR(WarmupScheduler):
    """``b * (e + 1) / warmup_steps``, then :class:`MultiStepLR`; ``milestones`` count from the
    beginning of the warm-up, and those within it are left out."""

    def __init__(
        self,
        optimizer,
        total_steps: int,
        warmup_steps: int = 0,
        milestones: list[int] | None = None,
        gamma: float = 0.1,
        last_epoch: int = -1,
        **others,
    ) -> None:
        if not milestones:
            raise ValueError("milestones cannot be empty")
        _tell_of(MultiStepWarmupLR, others)
        behind = [number - warmup_steps for number in milestones if number >= warmup_steps]
        after = MultiStepLR(optimizer, total_steps, behind, gamma)
        super().__init__(optimizer, warmup_steps, after, last_epoch=last_epoch)


class PolynomialLR(LRScheduler):
    """``(b - end_lr) * (1 - min(e, T) / T) ** power + end_lr`` with T = ``total_steps``."""

    def __init__(
        self,
        optimizer,
        total_steps: int,
        end_lr: float = 0.0001,
        power: float = 1.0,
        last_epoch: int = -1,
        **others,
    ) -> None:
        if end_lr < 0:
            raise ValueError(f"end_lr must >= 0, got {end_lr}")
        _tell_of(PolynomialLR, others)
        self.total_steps, self.end_lr, self.power = total_steps, end_lr, power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list:
        """Of each group at e."""
        left = (1 - min(self.last_epoch, self.total_steps) / self.total_steps) ** self.power
        return [(rate - self.end_lr) * left + self.end_lr for rate in self.base_lrs]


class PolynomialWarmupLR(WarmupScheduler):
    """``b * (e + 1) / warmup_steps``, then :class:`PolynomialLR` over what is left."""

    def __init__(
        self,
        optimizer,
        total_steps: int,
        warmup_steps: int = 0,
        end_lr: float = 0.0001,
        power: float = 1.0,
        last_epoch: int = -1,
        **others,
    ) -> None:
        _tell_of(PolynomialWarmupLR, others)
        after = PolynomialLR(optimizer, total_steps - warmup_steps, end_lr=end_lr, power=power)
        super().__init__(optimizer, warmup_steps, after, last_epoch=last_epoch)


class OneCycleLR(_torchs.OneCycleLR):
    """torch's, with the groups' learning rates as ``max_lr``."""

    def __init__(
        self,
        optimizer,
        total_steps: int,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float = 0.85,
        max_momentum: float = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 10000.0,
        last_epoch: int = -1,
        **others,
    ) -> None:
        _tell_of(OneCycleLR, others)
        super().__init__(
            optimizer,
            rates_of(optimizer),
            total_steps=total_steps,
            pct_start=pct_start,
            anneal_strategy=anneal_strategy,
            cycle_momentum=cycle_momentum,
            base_momentum=base_momentum,
            max_momentum=max_momentum,
            div_factor=div_factor,
            final_div_factor=final_div_factor,
            last_epoch=last_epoch,
        )


class LambdaLR(_torchs.LambdaLR):
    """torch's. ``total_steps`` is without meaning."""

    def __init__(self, optimizer, total_steps, lr_lambda=None, last_epoch: int = -1) -> None:
        super().__init__(optimizer, lr_lambda, last_epoch=last_epoch)


class MultiplicativeLR(_torchs.MultiplicativeLR):
    """torch's. ``total_steps`` is without meaning."""

    def __init__(self, optimizer, total_steps, lr_lambda=None, last_epoch: int = -1) -> None:
        super().__init__(optimizer, lr_lambda, last_epoch=last_epoch)


class StepLR(_torchs.StepLR):
    """torch's. ``total_steps`` is without meaning."""

    def __init__(
        self, optimizer, total_steps, step_size: int = 1, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        super().__init__(optimizer, step_size, gamma=gamma, last_epoch=last_epoch)


class ExponentialLR(_torchs.ExponentialLR):
    """torch's. ``total_steps`` is without meaning."""

    def __init__(self, optimizer, total_steps, gamma: float = 1.0, last_epoch: int = -1) -> None:
        super().__init__(optimizer, gamma, last_epoch=last_epoch)
