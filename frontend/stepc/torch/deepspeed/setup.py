# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a configuration becomes: an optimizer, its schedule, and what the loop has to know."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from .reading import Said

_log = logging.getLogger("stepc.torch.deepspeed")


@dataclass
class Setup:
    """What :func:`from_config` returns. With it a loop is::

        for number, batch in enumerate(batches, 1):
            setup.backward(loss_of(model, batch))
            if number % setup.gradient_accumulation_steps == 0:
                setup.step()

    or without it ``optimizer`` and ``lr_scheduler`` as any others.

    Attributes:
        optimizer: it unscales, divides by ``gradient_accumulation_steps``, clips and steps.
        lr_scheduler: None where the file has none.
        gradient_accumulation_steps: backward passes to a step.
        train_micro_batch_size_per_gpu: samples of a rank to a pass.
        train_batch_size: samples of all ranks to a step.
        gradient_clipping: the largest norm; 0: none.
        zero_stage: 0 to 3.
        dtype: of the model's parameters.
        steps_per_print: after so many steps ``step`` logs, to the logger ``stepc.torch.deepspeed``.
        wall_clock_breakdown: whether it logs milliseconds too; by itself of each step.
        keys: by key of the file what was done about it.
        global_steps, skipped_steps: counted by ``step``.
    """

    optimizer: torch.optim.Optimizer
    lr_scheduler: torch.optim.lr_scheduler.LRScheduler | None
    gradient_accumulation_steps: int
    train_micro_batch_size_per_gpu: int
    train_batch_size: int
    gradient_clipping: float
    zero_stage: int
    dtype: torch.dtype
    steps_per_print: int | None = None
    wall_clock_breakdown: bool = False
    keys: dict[str, str] = field(default_factory=dict)
    global_steps: int = 0
    skipped_steps: int = 0

    @classmethod
    def of(cls, said: Said, optimizer, lr_scheduler, **more) -> Setup:
        """With what the file says to the loop, and ``more`` of the attributes."""
        return cls(
            optimizer,
            lr_scheduler,
            gradient_clipping=said["gradient_clipping"],
            zero_stage=said["zero_optimization.stage"],
            steps_per_print=said["steps_per_print"],
            wall_clock_breakdown=said["wall_clock_breakdown"],
            **more,
        )

    def backward(self, loss: torch.Tensor) -> None:
        """The backward pass of the loss of a micro batch, times the loss scale."""
        self.optimizer.scale(loss).backward()

    def step(self) -> None:
        """Steps the optimizer, clears gradients, and moves the schedule on, unless the step was
        skipped, as DeepSpeed's engine does. LossScaleError at the least loss scale of stages 1 to
        3."""
        begin = time.perf_counter()
        self.optimizer.step()
        seconds = time.perf_counter() - begin
        self.global_steps += 1
        report = self.optimizer.last_step
        if report is not None and report.skipped:
            self.skipped_steps += 1
        elif self.lr_scheduler is not None:
            self.lr_scheduler.step()
        self.optimizer.zero_grad()
        every = self.steps_per_print or int(self.wall_clock_breakdown)
        if every and self.global_steps % every == 0:
            self._tell(seconds)

    def _tell(self, seconds: float) -> None:
        if dist.is_initialized() and dist.get_rank() != 0:
            return
        groups = self.optimizer.param_groups
        words = f"step={self.global_steps}, skipped={self.skipped_steps}"
        words += f", lr={[float(group['lr']) for group in groups]}"
        words += f", mom={[group.get('betas', group.get('momentum')) for group in groups]}"
        if self.wall_clock_breakdown:
            words += f" | step: {1e3 * seconds:.2f} ms"
        _log.info(words)
