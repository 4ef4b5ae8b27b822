"""Training runs beside each other.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import math
import statistics
import sys
import time

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
        line = f"  {self.title} [{bar}] {done:>4}/{self.total}  {note}  {left:3.0f} s left"
        end = "\n" if not self.live or done == self.total else ""
        print(("\r\033[K" if self.live else "") + line, end=end, flush=True)


def learning_rate(step, steps):
    """A short warm-up, then half a cosine: a new float at every step."""
    warm = max(1, steps // 20)
    if step < warm:
        return LR * (step + 1) / warm
    return LR * (0.1 + 0.45 * (1 + math.cos(math.pi * (step - warm) / (steps - warm))))


class Run:
    """One model with its optimizer. All runs begin at the same parameters."""

    def __init__(self, make_optimizer, rows, shape):
        self.gpt = model.make(SEED, shape)
        self.optimizer = make_optimizer(self.gpt.parameters())
        self.rows, self.length = rows, shape.length
        self.losses, self.step_seconds = [], []

    def step(self, inputs, targets, lr):
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        loss = self.gpt(inputs, targets)
        self.optimizer.zero_grad()
        loss.backward()
        begin = time.perf_counter()
        self.optimizer.step()
        self.step_seconds.append(time.perf_counter() - begin)
        self.losses.append(loss.item())

    @torch.no_grad()
    def held_out_loss(self, data, batches=16):
        generator = torch.Generator().manual_seed(SEED + 1)
        total = 0.0
        for _ in range(batches):
            total += self.gpt(*corpus.batch(data, self.rows, self.length, generator)).item()
        return total / batches


def train(makers, data, held_out, steps, rows, shape=model.DEMO):
    """Trains one model for each maker of an optimizer, on the same batches.

    The runs go step by step beside each other, in turns first: whatever else the
    machine does falls on all of them. Returns what each was like, by title.
    """
    runs = {title: Run(make, rows, shape) for title, make in makers.items()}
    before = {title: run.held_out_loss(held_out) for title, run in runs.items()}
    generator = torch.Generator().manual_seed(SEED)
    bar, order = ProgressBar("training", steps), list(runs.values())
    for step in range(steps):
        pieces = corpus.batch(data, rows, shape.length, generator)
        for run in order:
            run.step(*pieces, learning_rate(step, steps))
        order.reverse()
        bar.show(step + 1, "loss " + ", ".join(f"{run.losses[-1]:.3f}" for run in runs.values()))
    return {
        title: {
            "held_out_before": before[title],
            "held_out": run.held_out_loss(held_out),
            "step_median": statistics.median(run.step_seconds),
            "losses": run.losses,
            "step_seconds": run.step_seconds,
        }
        for title, run in runs.items()
    }
