"""The numbers to reach, and whether a run reached them.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

from collections.abc import Callable
from typing import NamedTuple

from optimizers import ENTRIES
from summary import paired

F32_BYTES, BF16_BYTES = 28, 22


class Key(NamedTuple):
    """Which case: what is measured in one process."""

    family: str
    shape: str
    dtype: str = "f32"
    mode: str = "default"


class Target(NamedTuple):
    """`measure` gets the case of `key`, or all results where that is None."""

    name: str
    key: Key | None
    relation: str  # ">=" or "<="
    goal: float
    unit: str
    measure: Callable


# --- What is measured ---------------------------------------------------------


def _share_f32(case):
    ratio = case["summary"].get("kernel", {}).get("ratio")
    return ratio and 1 / ratio


def _share_bf16(case):
    """The f32 stream's time of the same rounds, cut to our bytes, by our time."""
    ratio = paired(case, "stream-f32", "kernel")
    return ratio and ratio * BF16_BYTES / F32_BYTES


def _above_kernel(divisor):
    """Microseconds of a Python step above the same step's call of the runtime."""

    def measure(case):
        above = case["summary"].get("stepc", {}).get("above_kernel")
        return above and above / divisor * 1e6

    return measure


def _ratio(name, *others):
    return lambda case: paired(case, name, *others)


def _milliseconds(key):
    def measure(results):
        seconds = results.get("compile", {}).get(key)
        return seconds and seconds * 1e3

    return measure


# --- The tables ---------------------------------------------------------------

ADAMW = [
    Target(
        "AdamW f32 on GPT-2, share of the in-place stream",
        Key("adamw", "gpt2"), ">=", 0.95, "", _share_f32,
    ),
    Target(
        "AdamW bf16 on GPT-2, share of the stream by bytes",
        Key("adamw", "gpt2", "bf16"), ">=", 0.95, "", _share_bf16,
    ),
    Target(
        "10 000 x 64 from Python, new gradient tensors, against torch fused",
        Key("adamw", "tiny"), ">=", 40, "times faster", _ratio("fused", "stepc"),
    ),
    Target(
        "10 000 x 64 from Python, above the kernel",
        Key("adamw", "tiny"), "<=", 0.15, "us a tensor", _above_kernel(10_000),
    ),
    Target(
        "10 000 x 64 from Python, fixed gradient tensors, against torch fused",
        Key("adamw", "tiny"), ">=", 150, "times faster", _ratio("fused", "stepc-static"),
    ),
    Target(
        "148 tensors from Python, above the kernel",
        Key("adamw", "host"), "<=", 50, "us", _above_kernel(1),
    ),
]  # fmt: skip

# Ours, the case, and the most that its time may be of our AdamW's.
MOST_OF_ADAMW = [
    ("stepc-hf-adafactor", Key("adafactor", "gpt2"), 1.0),
    ("stepc-hf-adafactor", Key("adafactor", "gpt2", "bf16"), 1.0),
    ("stepc-torch-adafactor", Key("adafactor", "gpt2"), 1.0),
    ("stepc-hf-exclusive", Key("adafactor", "gpt2"), 1.0),
    ("stepc-hf-exclusive", Key("adafactor", "gpt2", "bf16"), 1.0),
    ("stepc-torch-exclusive", Key("adafactor", "gpt2"), 1.0),
    ("stepc-came", Key("came", "gpt2"), 1.1),
    ("stepc-lamb", Key("lamb", "gpt2"), 1.25),
    ("stepc-adalomo", Key("adalomo", "gpt2"), 1.0),
    ("stepc-adalomo", Key("adalomo", "gpt2", "bf16"), 1.0),
    ("stepc-hf-adafactor", Key("adafactor", "tiny"), 3.0),
    ("stepc-torch-adafactor", Key("adafactor", "tiny"), 3.0),
    ("stepc-came", Key("came", "tiny"), 3.0),
    ("stepc-lamb", Key("lamb", "tiny"), 3.0),
    ("stepc-adalomo", Key("adalomo", "tiny"), 3.0),
    ("stepc-clip", Key("clip", "tiny"), 3.0),
]

# Ours, a peer, the case, and how many times faster ours is at least.
TIMES_FASTER = [
    ("stepc-hf-adafactor", "hf-adafactor", Key("adafactor", "gpt2"), 6),
    ("stepc-hf-adafactor", "hf-adafactor", Key("adafactor", "gpt2", "bf16"), 25),
    ("stepc-torch-adafactor", "torch-adafactor", Key("adafactor", "gpt2"), 10),
    ("stepc-hf-exclusive", "hf-adafactor", Key("adafactor", "gpt2"), 6),
    ("stepc-hf-exclusive", "hf-adafactor", Key("adafactor", "gpt2", "bf16"), 25),
    ("stepc-torch-exclusive", "torch-adafactor", Key("adafactor", "gpt2"), 10),
    ("stepc-came", "came-pytorch", Key("came", "gpt2", mode="heap-kept"), 10),
    ("stepc-lamb", "po-lamb", Key("lamb", "gpt2"), 5),
    ("stepc-adalomo", "hf-adafactor", Key("adalomo", "gpt2"), 6),
    ("stepc-adalomo", "hf-adafactor", Key("adalomo", "gpt2", "bf16"), 25),
    ("stepc-adalomo", "torch-adafactor", Key("adalomo", "gpt2"), 10),
    ("stepc-hf-adafactor", "hf-adafactor", Key("adafactor", "tiny"), 100),
    ("stepc-torch-adafactor", "torch-adafactor", Key("adafactor", "tiny"), 100),
    ("stepc-came", "came-pytorch", Key("came", "tiny"), 100),
    ("stepc-lamb", "po-lamb", Key("lamb", "tiny"), 100),
    ("stepc-adalomo", "hf-adafactor", Key("adalomo", "tiny"), 100),
    ("stepc-clip", "clip-fused", Key("clip", "tiny"), 100),
    ("stepc-hf-adafactor-static", "hf-adafactor", Key("adafactor", "tiny"), 100),
    ("stepc-torch-adafactor-static", "torch-adafactor", Key("adafactor", "tiny"), 100),
    ("stepc-came-static", "came-pytorch", Key("came", "tiny"), 100),
    ("stepc-lamb-static", "po-lamb", Key("lamb", "tiny"), 100),
    ("stepc-clip-static", "clip-fused", Key("clip", "tiny"), 100),
]

CLIP = [
    Target(
        "AdamW with clip, unscale and skip on GPT-2, against AdamW plus a read of the gradient",
        Key("clip", "gpt2"), "<=", 1.0, "times", _ratio("stepc-clip", "stepc", "read-gradient"),
    ),
]  # fmt: skip

COMPILER = [
    Target("adamw.mlir to a package, warm", None, "<=", 250, "ms", _milliseconds("warm_median")),
    Target(
        "the slowest definition to a package, warm",
        None, "<=", 400, "ms", _milliseconds("zoo_slowest"),
    ),
    Target(
        "first step from Python, package in the cache",
        None, "<=", 10, "ms", _milliseconds("cache_hit_median"),
    ),
]  # fmt: skip

PLACES = {"gpt2": "GPT-2", "tiny": "10 000 x 64"}


def _title(name, key, against):
    heap = ", heap kept" if key.mode == "heap-kept" else ""
    return f"{ENTRIES[name].label} {key.dtype} on {PLACES[key.shape]}, against {against}{heap}"


def _all():
    yield from ADAMW
    for name, key, most in MOST_OF_ADAMW:
        title = _title(name, key, "our AdamW")
        yield Target(title, key, "<=", most, "times", _ratio(name, "stepc"))
    for name, peer, key, least in TIMES_FASTER:
        title = _title(name, key, ENTRIES[peer].label)
        yield Target(title, key, ">=", least, "times faster", _ratio(peer, name))
    yield from CLIP
    yield from COMPILER


TARGETS = list(_all())


def judge(results):
    """One dictionary for each target; `reached` is None where nothing was measured."""
    cases = {Key(*(case[field] for field in Key._fields)): case for case in results["cases"]}
    judged = []
    for name, key, relation, goal, unit, measure in TARGETS:
        subject = results if key is None else cases.get(key)
        value = None if subject is None else measure(subject)
        reached = None
        if value is not None:
            reached = bool(value >= goal if relation == ">=" else value <= goal)
        judged.append(
            {
                "name": name,
                "unit": unit,
                "relation": relation,
                "goal": goal,
                "value": value,
                "reached": reached,
            }
        )
    return judged
