# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Schedules of DeepSpeed, as ``deepspeed.runtime.lr_schedules`` of 0.19 computes them.

They count iterations from -1: the first optimizer step is made before the first ``step()`` of the
schedule, and has the learning rate of its construction. Below, t is ``last_batch_iteration``.
"""

from __future__ import annotations

import math
import warnings

import torch
from torch.optim.lr_scheduler import LRScheduler

from ..tensors.callers import level_of_caller
from .rates import rates_of, write


def _check_steps(name: str, value) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ValueError(f"{name} must be a positive integer, got {value}")


def _of_groups(optimizer: torch.optim.Optimizer, name: str, value) -> list:
    """A number for each group; ValueError, in DeepSpeed's words, for a list of another length."""
    if not isinstance(value, list | tuple):
        return [value] * len(optimizer.param_groups)
    if len(value) != len(optimizer.param_groups):
        raise ValueError(
            f"expected {len(optimizer.param_groups)} value for {name}, got {len(value)}"
        )
    return list(value)


def _optimizer_in(optimizer) -> torch.optim.Optimizer:
    """The optimizer, or the one that a wrapper has; TypeError."""
    for own in (optimizer, getattr(optimizer, "optimizer", None)):
        if isinstance(own, torch.optim.Optimizer):
            return own
    raise TypeError(f"{type(optimizer).__name__} is not a subclass of torch.optim.Optimizer")


class _OfIterations(LRScheduler):
    """What DeepSpeed's have in common. A saved state is ``{"last_batch_iteration": t}``."""

    def _begin(self, optimizer: torch.optim.Optimizer, last_batch_iteration: int) -> None:
        """Behind all that may be refused: writes the first learning rates, but for one that goes
        on at a later iteration, whose groups have theirs."""
        if last_batch_iteration != -1:  # torch asks for what DeepSpeed does not
            for group, rate in zip(optimizer.param_groups, rates_of(optimizer), strict=True):
                group.setdefault("initial_lr", rate)
        super().__init__(optimizer, last_batch_iteration)

    @property
    def last_batch_iteration(self) -> int:
        """The number of the last iteration, -1 before the first."""
        return self.last_epoch

    def _initial_step(self) -> None:
        self._step_count = 0
        if self.last_epoch == -1:
            self._write()
        self._last_lr = rates_of(self.optimizer)

    def _write(self) -> None:
        write(self.optimizer, self.get_lr())

    def step(self, last_batch_iteration: int | None = None) -> None:
        """Sets the learning rates of the next iteration, or of the one given. Call it behind each
        step of the optimizer that was not skipped."""
        following = self.last_epoch + 1
        self.last_epoch = following if last_batch_iteration is None else last_batch_iteration
        self._step_count += 1
        self._write()
        self._last_lr = rates_of(self.optimizer)

    def state_dict(self) -> dict[str, int]:
        """As DeepSpeed saves it."""
        return {"last_batch_iteration": self.last_epoch}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Takes a state of ours or of DeepSpeed's. The learning rates are the optimizer's to load.
        ValueError for the state of another schedule."""
        if "last_batch_iteration" not in state_dict:
            raise ValueError(
                f"the state of a schedule has no 'last_batch_iteration', which "
                f"{type(self).__name__} needs; it has {', '.join(map(repr, state_dict)) or 'none'}"
            )
        self.last_epoch = state_dict["last_batch_iteration"]
        self._last_lr = rates_of(self.optimizer)


class _OfBatches(_OfIterations):
    """One whose ``step`` calls its argument as the class in DeepSpeed does."""

    def step(self, batch_iteration: int | None = None) -> None:
        """Sets the learning rates of the next iteration, or of the one given. Call it behind each
        step of the optimizer that was not skipped."""
        super().step(batch_iteration)


class LRRangeTest(_OfBatches):
    """A learning rate that grows, to find the largest that trains; L. N. Smith, arXiv 1803.09820.

    ``lr = min_lr * (1 + step_rate * (t + 1) / step_size)``; with ``lr_range_test_staircase`` the
    fraction is rounded down.

    Args:
        optimizer: any of torch's, ours or a wrapper with one in ``optimizer``.
        lr_range_test_min_lr: learning rate of the first step, or a list, one for each group.
        lr_range_test_step_size: iterations in which it grows by ``step_rate`` times itself.
        lr_range_test_step_rate: see above.
        lr_range_test_staircase: see above.
        last_batch_iteration: t of a run that goes on.
    """

    def __init__(
        self,
        optimizer,
        lr_range_test_min_lr: float | list[float] = 1e-3,
        lr_range_test_step_size: int = 2000,
        lr_range_test_step_rate: float = 1.0,
        lr_range_test_staircase: bool = False,
        last_batch_iteration: int = -1,
    ) -> None:
        optimizer = _optimizer_in(optimizer)
        self.min_lr = _of_groups(optimizer, "lr_range_test_min_lr", lr_range_test_min_lr)
        _check_steps("lr_range_test_step_size", lr_range_test_step_size)
        self.step_size = lr_range_test_step_size
        self.step_rate = lr_range_test_step_rate
        self.staircase = lr_range_test_staircase
        self._begin(optimizer, last_batch_iteration)

    def get_lr(self) -> list:
        """Of each group at t."""
        interval = float(self.last_epoch + 1) / self.step_size
        if self.staircase:
            interval = math.floor(interval)
        return [rate * (1 + self.step_rate * interval) for rate in self.min_lr]


class _Warmup(_OfIterations):
    """The warm-up that the three below share: of n iterations, by t / n or ln(t + 1) / ln(n)."""

    def _set_warmup(self, warmup_num_steps: int, warmup_type: str, total: int | None) -> None:
        _check_steps("warmup_num_steps", warmup_num_steps)
        if warmup_type not in ("log", "linear"):
            self._warn(
                f"warmup_type is {warmup_type!r}, expected 'log' or 'linear'; taken as 'log'"
            )
            warmup_type = "log"
        self.warmup_type = warmup_type
        self.warmup_num_steps = max(2, warmup_num_steps)  # ln(1) is 0
        self.inverse_log_warm_up = 1.0 / math.log(self.warmup_num_steps)
        self.total_num_steps = total
        if total is not None and total < self.warmup_num_steps:
            n = self.warmup_num_steps
            self._warn(f"total_num_steps {total} is less than warmup_num_steps {n}")

    def _warn(self, words: str) -> None:
        warnings.warn(f"{type(self).__name__}: {words}", stacklevel=level_of_caller())

    def _share(self) -> float | None:
        """Of the warm-up that is done at t; None behind it."""
        if self.last_epoch >= self.warmup_num_steps:
            return None
        if self.warmup_type == "log":
            return self.inverse_log_warm_up * math.log(self.last_epoch + 1)
        return self.last_epoch / self.warmup_num_steps


class WarmupLR(_Warmup):
    """From ``warmup_min_lr`` to ``warmup_max_lr`` in n iterations, then constant.

    ``lr = min + (max - min) * s``, with s = ln(t + 1) / ln(n), or t / n, then 1. The first two
    optimizer steps are made with ``min``: s is 0 at t = 0 too.

    Args:
        optimizer: any of torch's, ours or a wrapper with one in ``optimizer``.
        warmup_min_lr: a number, or a list of one for each group.
        warmup_max_lr: likewise; by default the groups' learning rates.
        warmup_num_steps: n, of which 1 is taken as 2.
        warmup_type: "log" or "linear".
        last_batch_iteration: t of a run that goes on.
    """

    def __init__(
        self,
        optimizer,
        warmup_min_lr: float | list[float] = 0.0,
        warmup_max_lr: float | list[float] | None = None,
        warmup_num_steps: int = 1000,
        warmup_type: str = "log",
        last_batch_iteration: int = -1,
    ) -> None:
        self._set(optimizer, warmup_min_lr, warmup_max_lr, warmup_num_steps, warmup_type, None)
        self._begin(_optimizer_in(optimizer), last_batch_iteration)

    def _set(self, optimizer, least, most, warmup_num_steps, warmup_type, total) -> None:
        optimizer = _optimizer_in(optimizer)
        self._set_warmup(warmup_num_steps, warmup_type, total)
        most = rates_of(optimizer) if most is None else most
        self.min_lrs = _of_groups(optimizer, "min_lr", least)
        self.max_lrs = _of_groups(optimizer, "max_lr", most)
        self.delta_lrs = [
            big - small for big, small in zip(self.max_lrs, self.min_lrs, strict=True)
        ]

    def _behind(self) -> float:
        return 1.0

    def get_lr(self) -> list:
        """Of each group at t."""
        if self.last_epoch < 0:
            return self.min_lrs
        share = self._share()
        share = self._behind() if share is None else share
        return [
            low + delta * share for low, delta in zip(self.min_lrs, self.delta_lrs, strict=True)
        ]


class WarmupDecayLR(WarmupLR):
    """:class:`WarmupLR`, then a decay to ``warmup_min_lr`` at T = ``total_num_steps``.

    Behind the warm-up s = max(0, (T - t) / max(1, T - n)). Arguments are those of
    :class:`WarmupLR`, with T in front, and ``warmup_max_lr`` 0.001 by default.
    """

    def __init__(
        self,
        optimizer,
        total_num_steps: int,
        warmup_min_lr: float | list[float] = 0.0,
        warmup_max_lr: float | list[float] | None = 0.001,
        warmup_num_steps: int = 1000,
        warmup_type: str = "log",
        last_batch_iteration: int = -1,
    ) -> None:
        own = (warmup_min_lr, warmup_max_lr, warmup_num_steps, warmup_type, total_num_steps)
        self._set(optimizer, *own)
        self._begin(_optimizer_in(optimizer), last_batch_iteration)

    def _behind(self) -> float:
        left = float(self.total_num_steps - self.last_epoch)
        return max(0.0, left / float(max(1.0, self.total_num_steps - self.warmup_num_steps)))


class WarmupCosineLR(_Warmup):
    """Shares of the groups' learning rates: a warm-up, then a cosine.

    ``lr = base * (r + (1 - r) * s)`` with r = ``warmup_min_ratio`` in the warm-up, then
    ``base * max(0, c + (1 - c) * (1 + cos(pi * min(1, (t - n + 1) / max(1, T - n)))) / 2)`` with
    c = ``cos_min_ratio``. The first optimizer step has a learning rate of 0, whatever r is.

    Args:
        optimizer: any of torch's, ours or a wrapper with one in ``optimizer``.
        total_num_steps: T.
        warmup_min_ratio: r.
        warmup_num_steps: n, of which 1 is taken as 2.
        cos_min_ratio: c.
        warmup_type: "log" or "linear".
        last_batch_iteration: t of a run that goes on.
    """

    def __init__(
        self,
        optimizer,
        total_num_steps: int,
        warmup_min_ratio: float = 0.0,
        warmup_num_steps: int = 1000,
        cos_min_ratio: float = 0.0001,
        warmup_type: str = "log",
        last_batch_iteration: int = -1,
    ) -> None:
        optimizer = _optimizer_in(optimizer)
        self._set_warmup(warmup_num_steps, warmup_type, total_num_steps)
        self.warmup_min_ratio = warmup_min_ratio
        self.cos_min_ratio = cos_min_ratio
        self.org_lrs = rates_of(optimizer)
        self._begin(optimizer, last_batch_iteration)

    def get_lr_ratio(self) -> float:
        """Of the groups' learning rates at t."""
        if self.last_epoch < 0:
            return 0.0
        share = self._share()
        if share is not None:
            return self.warmup_min_ratio + share * (1.0 - self.warmup_min_ratio)
        done = self.last_epoch - self.warmup_num_steps + 1
        progress = min(1.0, done / max(1, self.total_num_steps - self.warmup_num_steps))
        ratio = (1 + math.cos(math.pi * progress)) / 2
        return max(0.0, self.cos_min_ratio + (1.0 - self.cos_min_ratio) * ratio)

    def get_lr(self) -> list:
        """Of each group at t."""
        ratio = self.get_lr_ratio()
        return [rate * ratio for rate in self.org_lrs]


class OneCycle(_OfBatches):
    """Up in F iterations, down in S, then a decay, with a momentum that goes the other way;
    L. N. Smith, arXiv 1803.09820.

    With i = t + 1 and x the fraction of i / (F + S), f is x / q up to q = F / (F + S), then
    (x - 1) / (q - 1); ``lr = min + (max - min) * f`` and ``betas = (max_mom - (max_mom - min_mom)
    * f, 0.99)``. Where a half has stairs, f is rounded down to a part of their number. Behind
    the cycle, with k = (t + 1 - F - S) / ``decay_step_size``: ``lr = min / (1 + decay_lr_rate *
    k)`` and ``betas = (max_mom * (1 + decay_mom_rate * k), 0.99)``.

    As there the second beta is 0.99 whatever the group had, and the first step has the momentum
    of the peak, ``cycle_min_mom``.

    Args:
        optimizer: any of torch's, ours or a wrapper with one in ``optimizer``.
        cycle_min_lr: a number, or a list of one for each group.
        cycle_max_lr: likewise.
        decay_lr_rate: see above.
        cycle_first_step_size: F.
        cycle_second_step_size: S, by default F.
        cycle_first_stair_count: number of stairs up; 0: none.
        cycle_second_stair_count: down; by default as up.
        decay_step_size: 0: no decay.
        cycle_momentum: whether ``betas`` are written; with one warning not where the optimizer
            has none.
        cycle_min_mom: a number, or a list of one for each group.
        cycle_max_mom: likewise.
        decay_mom_rate: see above.
        last_batch_iteration: t of a run that goes on.
    """

    def __init__(
        self,
        optimizer,
        cycle_min_lr: float | list[float],
        cycle_max_lr: float | list[float],
        decay_lr_rate: float = 0.0,
        cycle_first_step_size: int = 2000,
        cycle_second_step_size: int | None = None,
        cycle_first_stair_count: int = 0,
        cycle_second_stair_count: int | None = None,
        decay_step_size: int = 0,
        cycle_momentum: bool = True,
        cycle_min_mom: float | list[float] = 0.8,
        cycle_max_mom: float | list[float] = 0.9,
        decay_mom_rate: float = 0.0,
        last_batch_iteration: int = -1,
    ) -> None:
        optimizer = _optimizer_in(optimizer)
        self._set_sizes(cycle_first_step_size, cycle_second_step_size)
        self.first_stair_count = self.second_stair_count = cycle_first_stair_count
        if cycle_second_stair_count is not None:
            self.second_stair_count = cycle_second_stair_count
        self.decay_step_size = decay_step_size
        self.decay_lr_rate, self.decay_mom_rate = decay_lr_rate, decay_mom_rate
        self.min_lrs = _of_groups(optimizer, "cycle_min_lr", cycle_min_lr)
        self.max_lrs = _of_groups(optimizer, "cycle_max_lr", cycle_max_lr)
        self.min_moms = _of_groups(optimizer, "cycle_min_mom", cycle_min_mom)
        self.max_moms = _of_groups(optimizer, "cycle_max_mom", cycle_max_mom)
        self.cycle_momentum = cycle_momentum and "betas" in optimizer.defaults
        if cycle_momentum and not self.cycle_momentum:
            warnings.warn(
                f"OneCycle: cycle_momentum is True, and {type(optimizer).__name__} has no betas; "
                "its momentum stays as it is",
                stacklevel=level_of_caller(),
            )
        self._begin(optimizer, last_batch_iteration)

    def _set_sizes(self, first, second) -> None:
        first = float(first)
        second = first if second is None else float(second)
        if first <= 0:
            raise ValueError(f"cycle_first_step_size must be positive, got {first}")
        if second < 0:
            raise ValueError(f"cycle_second_step_size must be non-negative, got {second}")
        self.first_step_size, self.second_step_size = first, second
        self.total_size = first + second
        self.step_ratio = first / self.total_size

    def _factor(self) -> float:
        """f at t: 0 at either end, 1 at the peak."""
        iteration = self.last_epoch + 1
        cycle = math.floor(1 + iteration / self.total_size)
        x = 1.0 + iteration / self.total_size - cycle
        rises = x <= self.step_ratio
        stairs = self.first_stair_count if rises else self.second_stair_count
        if stairs <= 0:
            return x / self.step_ratio if rises else (x - 1) / (self.step_ratio - 1)
        # Of whole iterations, as a fraction that is rounded may lie below its stair.
        within = iteration % self.total_size
        if within <= self.first_step_size:
            place = within * stairs / self.first_step_size
        else:
            place = (self.total_size - within) * stairs / self.second_step_size
        return math.floor(place) / stairs

    @property
    def _is_over(self) -> bool:
        return self.last_epoch >= self.total_size

    def _decay(self, rate: float) -> float:
        """What is multiplied, or divided, by behind the cycle."""
        if self.decay_step_size == 0 or rate == 0:
            return 1.0
        return 1 + rate * ((self.last_epoch - self.total_size + 1) / self.decay_step_size)

    def get_lr(self) -> list:
        """Of each group at t."""
        if self._is_over:
            decay = self._decay(self.decay_lr_rate)
            return [low / decay for low in self.min_lrs]
        factor, bounds = self._factor(), zip(self.min_lrs, self.max_lrs, strict=True)
        return [low + (high - low) * factor for low, high in bounds]

    def get_mom(self) -> list[tuple[float, float]] | None:
        """``betas`` of each group at t; None where they are not cycled."""
        if not self.cycle_momentum:
            return None
        if self._is_over:
            decay = self._decay(self.decay_mom_rate)
            return [(high * decay, 0.99) for high in self.max_moms]
        factor, bounds = self._factor(), zip(self.min_moms, self.max_moms, strict=True)
        return [(high - (high - low) * factor, 0.99) for low, high in bounds]

    def _write(self) -> None:
        super()._write()
        momenta = self.get_mom()
        if momenta is not None and self.last_epoch == -1:
            momenta = [(low, 0.99) for low in self.min_moms]
        for group, betas in zip(self.optimizer.param_groups, momenta or (), strict=bool(momenta)):
            group["betas"] = betas
