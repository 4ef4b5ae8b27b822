# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What ColossalAI puts before a schedule: a warm-up, constant learning rates, or both."""

from __future__ import annotations

from torch.optim.lr_scheduler import LRScheduler

from .rates import write


class _TwoStages(LRScheduler):
    """A schedule behind another. Saved states are those of ColossalAI: the schedule behind lies
    in ``after_scheduler_dict``, and ``last_epoch`` stays where it begins."""

    warmup_epochs = 0
    delay_epochs = 0  # behind the warm-up, with the groups' own learning rates

    def _begin(self, optimizer, after_scheduler: LRScheduler, last_epoch: int) -> None:
        if not isinstance(after_scheduler, LRScheduler):
            raise TypeError(f"after_scheduler is {after_scheduler!r}, expected one of torch's")
        self.after_scheduler = after_scheduler
        self.finished = False
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list:
        """Of each group at ``last_epoch``, or of the schedule behind in the step it begins."""
        if self.last_epoch < self.warmup_epochs:
            return [(self.last_epoch + 1) / self.warmup_epochs * rate for rate in self.base_lrs]
        if self.last_epoch < self.warmup_epochs + self.delay_epochs:
            return self.base_lrs
        if not self.finished:
            self.after_scheduler.base_lrs = self.base_lrs
            self._take_over()
            self.finished = True
        after = self.after_scheduler
        after._get_lr_called_within_step = True
        try:
            return after.get_lr()
        finally:
            after._get_lr_called_within_step = False

    def _take_over(self) -> None:
        """What is done to the groups where the schedule behind begins."""

    def step(self, epoch: int | None = None) -> None:
        """Sets the next learning rates; of the schedule behind, once it has begun."""
        if not self.finished:
            return super().step(epoch)
        # The constant part is not taken off where both are there: so it is in ColossalAI.
        before = vars(self).get("warmup_epochs", self.delay_epochs)
        self.after_scheduler.step(None if epoch is None else epoch - before)
        self._last_lr = self.after_scheduler.get_last_lr()

    def state_dict(self) -> dict:
        """As ColossalAI saves it."""
        left_out = ("optimizer", "after_scheduler")
        saved = {key: value for key, value in self.__dict__.items() if key not in left_out}
        saved["after_scheduler_type"] = type(self.after_scheduler).__name__
        saved["after_scheduler_dict"] = self.after_scheduler.state_dict()
        return saved

    def load_state_dict(self, state_dict: dict) -> None:
        """Takes a state of ours or of ColossalAI's; ValueError for that of another schedule."""
        own, name = type(self).__name__, type(self.after_scheduler).__name__
        for key in ("finished", "last_epoch", "after_scheduler_dict"):
            if key not in state_dict:
                raise ValueError(
                    f"the state of a schedule has no '{key}', which {own} needs; it is of another"
                )
        kind = state_dict.get("after_scheduler_type", name)
        if kind != name:
            raise ValueError(f"the state is of a schedule with {kind} behind, {own} has {name}")
        self.after_scheduler.load_state_dict(state_dict["after_scheduler_dict"])
        left_out = ("after_scheduler_type", "after_scheduler_dict")
        super().load_state_dict({k: v for k, v in state_dict.items() if k not in left_out})


def _check_epochs(name: str, value: int) -> None:
    if value < 0:
        raise ValueError(f"{name} must >= 0, got {value}")


class WarmupScheduler(_TwoStages):
    """``base * (epoch + 1) / warmup_epochs`` for so many epochs, then ``after_scheduler`` from its
    beginning, as in ``colossalai.nn.lr_scheduler``."""

    def __init__(self, optimizer, warmup_epochs, after_scheduler, last_epoch: int = -1) -> None:
        self.warmup_epochs = int(warmup_epochs)
        self._begin(optimizer, after_scheduler, last_epoch)


class DelayerScheduler(_TwoStages):
    """The groups' learning rates for ``delay_epochs``, then ``after_scheduler``."""

    def __init__(self, optimizer, delay_epochs, after_scheduler, last_epoch: int = -1) -> None:
        _check_epochs("delay_epochs", delay_epochs)
        self.delay_epochs = delay_epochs
        self._begin(optimizer, after_scheduler, last_epoch)


class WarmupDelayerScheduler(_TwoStages):
    """A warm-up as of :class:`WarmupScheduler`, ``delay_epochs`` with the groups' learning rates,
    then ``after_scheduler``."""

    def __init__(
        self, optimizer, warmup_epochs, delay_epochs, after_scheduler, last_epoch: int = -1
    ) -> None:
        _check_epochs("delay_epochs", delay_epochs)
        _check_epochs("warmup_epochs", warmup_epochs)
        self.warmup_epochs = warmup_epochs
        self.delay_epochs = delay_epochs
        self._begin(optimizer, after_scheduler, last_epoch)

    def _take_over(self) -> None:
        write(self.optimizer, self.base_lrs)
