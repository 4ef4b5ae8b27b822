# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Learning rates by the formulas of DeepSpeed's and ColossalAI's schedules, written down a second
time: ``CASES`` has of each a class, its arguments and the formula."""

import math

# --- DeepSpeed: the learning rate of a group before its step number k + 1, t = k - 1 ----------


def share(t, n, kind):
    n = max(2, n)
    return math.log(t + 1) / math.log(n) if kind == "log" else t / n


def warmup(k, base, low=0.0, high=None, n=1000, kind="log"):
    t, high = k - 1, base if high is None else high
    if t < 0:
        return low
    return low + (high - low) * (share(t, n, kind) if t < max(2, n) else 1.0)


def warmup_decay(k, base, total, low=0.0, high=0.001, n=1000, kind="log"):
    t, n = k - 1, max(2, n)
    if t < n:
        return warmup(k, base, low, high, n, kind)
    return low + (high - low) * max(0.0, (total - t) / max(1, total - n))


def warmup_cosine(k, base, total, r=0.0, n=1000, c=1e-4, kind="log"):
    t, n = k - 1, max(2, n)
    if t < 0:
        return 0.0
    if t < n:
        return base * (r + (1 - r) * share(t, n, kind))
    angle = math.pi * min(1.0, (t - n + 1) / max(1, total - n))
    return base * max(0.0, c + (1 - c) * (1 + math.cos(angle)) / 2)


def range_test(k, base, low=1e-3, size=2000, rate=1.0, stairs=False):
    return low * (1 + rate * (k // size if stairs else k / size))


def cycle_place(k, first, second, stairs, stairs_down):
    """How high the cycle is before step k + 1, 0 to 1."""
    within = k % (first + second)
    rises = within <= first
    place = within / first if rises else (first + second - within) / second
    count = stairs if rises else stairs_down
    if not count:
        return place
    exact = within * count // first if rises else (first + second - within) * count // second
    return exact / count


def one_cycle(k, base, low, high, first=2000, second=None, stairs=0, down=None, size=0, rate=0.0):
    second = first if second is None else second
    t, total = k - 1, first + second
    if t < total:
        height = cycle_place(k, first, second, stairs, stairs if down is None else down)
        return low + (high - low) * height
    return low / (1 + rate * (t - total + 1) / size) if size else low


DEEPSPEED = {
    "WarmupLR": ("WarmupLR", {"warmup_num_steps": 100}, lambda k, b: warmup(k, b, n=100)),
    "WarmupLR of 1": ("WarmupLR", {"warmup_num_steps": 1}, lambda k, b: warmup(k, b, n=2)),
    "WarmupLR linear": (
        "WarmupLR",
        {"warmup_min_lr": 1e-4, "warmup_max_lr": 0.1, "warmup_type": "linear"},
        lambda k, b: warmup(k, b, 1e-4, 0.1, kind="linear"),
    ),
    "WarmupDecayLR": (
        "WarmupDecayLR",
        {"total_num_steps": 700, "warmup_min_lr": 1e-5, "warmup_num_steps": 80},
        lambda k, b: warmup_decay(k, b, 700, 1e-5, n=80),
    ),
    "WarmupDecayLR linear": (
        "WarmupDecayLR",
        {"total_num_steps": 2000, "warmup_num_steps": 10, "warmup_type": "linear"},
        lambda k, b: warmup_decay(k, b, 2000, n=10, kind="linear"),
    ),
    "WarmupCosineLR": (
        "WarmupCosineLR",
        {"total_num_steps": 600, "warmup_num_steps": 50},
        lambda k, b: warmup_cosine(k, b, 600, n=50),
    ),
    "WarmupCosineLR ratios": (
        "WarmupCosineLR",
        {
            "total_num_steps": 1500, "warmup_min_ratio": 0.2, "warmup_num_steps": 7,
            "cos_min_ratio": 0.1, "warmup_type": "linear",
        },
        lambda k, b: warmup_cosine(k, b, 1500, 0.2, 7, 0.1, "linear"),
    ),
    "LRRangeTest": (
        "LRRangeTest",
        {"lr_range_test_min_lr": 0.01, "lr_range_test_step_rate": 3.0},
        lambda k, b: range_test(k, b, 0.01, rate=3.0),
    ),
    "LRRangeTest stairs": (
        "LRRangeTest",
        {"lr_range_test_step_size": 37, "lr_range_test_staircase": True},
        lambda k, b: range_test(k, b, size=37, stairs=True),
    ),
    "OneCycle": (
        "OneCycle",
        {"cycle_min_lr": 0.001, "cycle_max_lr": 0.1, "cycle_first_step_size": 150},
        lambda k, b: one_cycle(k, b, 0.001, 0.1, 150),
    ),
    "OneCycle decay": (
        "OneCycle",
        {
            "cycle_min_lr": 0.001, "cycle_max_lr": 0.1, "cycle_first_step_size": 37,
            "cycle_second_step_size": 91, "decay_lr_rate": 0.5, "decay_step_size": 10,
        },
        lambda k, b: one_cycle(k, b, 0.001, 0.1, 37, 91, size=10, rate=0.5),
    ),
    "OneCycle stairs": (
        "OneCycle",
        {
            "cycle_min_lr": 0.001, "cycle_max_lr": 0.1, "cycle_first_step_size": 90,
            "cycle_second_step_size": 60, "cycle_first_stair_count": 7,
            "cycle_second_stair_count": 4,
        },
        lambda k, b: one_cycle(k, b, 0.001, 0.1, 90, 60, 7, 4),
    ),
}  # fmt: skip


# --- ColossalAI: the learning rate after e steps of the schedule --------------------------------


def cosine(e, base, total, low=0.0):
    return low + (base - low) * (1 + math.cos(math.pi * e / total)) / 2


def polynomial(e, base, total, end=1e-4, power=1.0):
    return (base - end) * (1 - min(e, total) / total) ** power + end


def behind(ramp, flat, after):
    def rate(e, base):
        if e < ramp:
            return base * (e + 1) / ramp
        return base if e < ramp + flat else after(e - ramp - flat, base)

    return rate


def linear(e, base, total, ramp):
    return base * ((e + 1) / (ramp + 1) if e < ramp else (total - e) / (total - ramp))


def falls(e, base, milestones, gamma):
    return base * gamma ** sum(e >= m for m in milestones)


# Cosines are torch's, whose recursion loses digits near their end and goes up again behind it.
COLOSSAL = {
    "CosineAnnealingLR": ({"total_steps": 1100}, lambda e, b: cosine(e, b, 1100)),
    "CosineAnnealingWarmupLR": (
        {"total_steps": 1100, "warmup_steps": 90, "eta_min": 1e-3},
        behind(90, 0, lambda e, b: cosine(e, b, 1010, 1e-3)),
    ),
    "CosineAnnealingWarmupLR without": (
        {"total_steps": 1100},
        behind(0, 0, lambda e, b: cosine(e, b, 1100)),
    ),
    "FlatAnnealingLR": (
        {"total_steps": 1200},
        behind(0, 864, lambda e, b: cosine(e, b, 336)),
    ),
    "FlatAnnealingWarmupLR": (
        {"total_steps": 1200, "warmup_steps": 100, "pct_start": 0.5, "eta_min": 1e-4},
        behind(100, 550, lambda e, b: cosine(e, b, 550, 1e-4)),
    ),
    "LinearWarmupLR": (
        {"total_steps": 900, "warmup_steps": 70},
        lambda e, b: linear(e, b, 900, 70),
    ),
    "MultiStepLR": (
        {"total_steps": 1, "milestones": [3, 500, 500], "gamma": 0.5},
        lambda e, b: falls(e, b, [3, 500, 500], 0.5),
    ),
    "MultiStepWarmupLR": (
        {"total_steps": 1, "warmup_steps": 20, "milestones": [5, 20, 100, 700]},
        behind(20, 0, lambda e, b: falls(e, b, [0, 80, 680], 0.1)),
    ),
    "PolynomialLR": ({"total_steps": 800}, lambda e, b: polynomial(e, b, 800)),
    "PolynomialWarmupLR": (
        {"total_steps": 800, "warmup_steps": 50, "end_lr": 1e-5, "power": 2.0},
        behind(50, 0, lambda e, b: polynomial(e, b, 750, 1e-5, 2.0)),
    ),
    "LambdaLR": (
        {"total_steps": 1, "lr_lambda": lambda e: 1 / (1 + e)},
        lambda e, b: b / (1 + e),
    ),
    "MultiplicativeLR": (
        {"total_steps": 1, "lr_lambda": lambda e: 0.999},
        lambda e, b: b * 0.999**e,
    ),
    "StepLR": ({"total_steps": 1, "step_size": 100}, lambda e, b: b * 0.1 ** (e // 100)),
    "ExponentialLR": ({"total_steps": 1, "gamma": 0.99}, lambda e, b: b * 0.99**e),
}
CASES = DEEPSPEED | {name: (name.split()[0], *case) for name, case in COLOSSAL.items()}
