"""One training run.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import math
import statistics
import sys
import time
from dataclasses import dataclass

import corpus
import model
import torch

SEED, LR, WEIGHT_DECAY = 7, 1e-3, 0.1


class ProgressBar:
    """One line that is rewritten on a terminal; elsewhere a line each tenth."""

    def __init__(self, title, total):
        self.title, self.total = title, total
        self.begin = time.monotonic()
        self.live, self.tenth = sys.stdout.isatty(), 0

    def show(self, done, note):
        elapsed = time.monotonic() - self.begin
        left = elapsed / done * (self.total - done)
        tenth = 10 * done // self.total
        if not self.live and tenth == self.tenth:
            return
        self.tenth = tenth
        bar = ("#" * (30 * done // self.total)).ljust(30, ".")
        line = f"  {self.title:<20} [{bar}] {done:>4}/{self.total}  {note}  {left:3.0f} s left"
        end = "\n" if not self.live or done == self.total else ""
        print(("\r\033[K" if self.live else "") + line, end=end, flush=True)


@dataclass
class Outcome:
    losses: list  # of each step
    held_out_before: float
    held_out: float
    step_seconds: float  # median of the optimizer's steps
    seconds: float


@torch.no_grad()
def held_out_loss(gpt, data, rows, batches=16):
    generator = torch.Generator().manual_seed(SEED + 1)
    total = 0.0
    for _ in range(batches):
        total += gpt(*corpus.batch(data, rows, model.LENGTH, generator)).item()
    return total / batches


def learning_rate(step, steps):
    """A short warm-up, then half a cosine: a new float at every step."""
    warm = max(1, steps // 20)
    if step < warm:
        return LR * (step + 1) / warm
    return LR * (0.1 + 0.45 * (1 + math.cos(math.pi * (step - warm) / (steps - warm))))


def run(title, make_optimizer, data, held_out, steps, rows):
    """Trains from the same start on the same batches, whatever the optimizer."""
    begin = time.monotonic()
    gpt = model.make(SEED)
    optimizer = make_optimizer(gpt.parameters())
    generator = torch.Generator().manual_seed(SEED)
    before = held_out_loss(gpt, held_out, rows)
    bar, losses, times = ProgressBar(title, steps), [], []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps)
        loss = gpt(*corpus.batch(data, rows, model.LENGTH, generator))
        optimizer.zero_grad()
        loss.backward()
        start = time.perf_counter()
        optimizer.step()
        times.append(time.perf_counter() - start)
        losses.append(loss.item())
        bar.show(step + 1, f"loss {losses[-1]:.3f}")
    after = held_out_loss(gpt, held_out, rows)
    seconds = time.monotonic() - begin
    return Outcome(losses, before, after, statistics.median(times), seconds)
