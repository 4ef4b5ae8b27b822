# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loss scalers as state machines in Python, from the documentation of their originals.

Each is fed with whether a step overflowed and holds the scale of the next one.
"""

import numpy as np


class TorchScaler:
    """torch.amp.GradScaler, its scale in f32."""

    def __init__(self, growth_factor, backoff_factor, growth_interval, scale=65536.0):
        self.growth, self.backoff, self.interval = growth_factor, backoff_factor, growth_interval
        self.scale, self.tracker = np.float32(scale), 0

    def update(self, overflow):
        if overflow:
            self.scale = np.float32(self.scale * np.float32(self.backoff))
            self.tracker = 0
            return
        self.tracker += 1
        if self.tracker == self.interval:
            with np.errstate(over="ignore"):
                grown = np.float32(self.scale * np.float32(self.growth))
            if np.isfinite(grown):
                self.scale = grown
            self.tracker = 0


class DeepSpeedScaler:
    """DynamicLossScaler, counting iterations as it does."""

    def __init__(self, scale_factor, scale_window, min_scale, delayed_shift,
                 consecutive_hysteresis, late_growth, scale=2.0**32):  # fmt: skip
        self.factor, self.window, self.min = scale_factor, scale_window, min_scale
        self.shift = self.hysteresis = delayed_shift
        self.consecutive, self.late = consecutive_hysteresis, late_growth
        self.iteration, self.last_overflow = 0, -1
        self.scale, self.failed = scale, False

    def update(self, overflow):
        self.failed = False
        if overflow:
            if self.shift == 1 or self.hysteresis == 1:
                self.failed = self.scale == self.min
                self.scale = max(self.scale / self.factor, self.min)
            else:
                self.hysteresis -= 1
            self.last_overflow = self.iteration
        else:
            if self.consecutive:
                self.hysteresis = self.shift
            stable = self.iteration - self.last_overflow - (1 if self.late else 0)
            if stable > 0 and stable % self.window == 0:
                if not self.consecutive:
                    self.hysteresis = self.shift
                self.scale *= self.factor
        self.iteration += 1


class ColossalScaler:
    """DynamicGradScaler."""

    def __init__(self, growth_factor, backoff_factor, growth_interval, hysteresis, min_scale,
                 max_scale, scale=65536.0):  # fmt: skip
        self.growth, self.backoff, self.interval = growth_factor, backoff_factor, growth_interval
        self.hysteresis, self.min, self.max = hysteresis, min_scale, max_scale
        self.scale, self.steps, self.overflows = scale, 0, 0

    def update(self, overflow):
        if overflow:
            self.overflows += 1
            self.steps = 0
            if self.overflows >= self.hysteresis:
                self.scale = max(self.scale * self.backoff, self.min)
            return
        self.steps += 1
        if self.steps == self.interval:
            self.steps = self.overflows = 0
            self.scale = min(self.scale * self.growth, self.max)


SCALERS = {
    "torch_scaler": TorchScaler,
    "deepspeed_scaler": DeepSpeedScaler,
    "colossal_scaler": ColossalScaler,
}


def overflows(count, seed, rate):
    """Whether each step overflows: runs of both, of random lengths, so that scales
    reach both ends."""
    rng = np.random.default_rng(seed)
    result = rng.random(count) < rate
    for start in range(0, count, 2500):
        result[start + 1000 : start + 1000 + rng.integers(900)] = False
        result[start + 2200 : start + 2200 + rng.integers(80)] = True
    return result
