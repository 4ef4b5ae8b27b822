"""The numbers to reach, and whether a run reached them.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

F32_BYTES, BF16_BYTES = 28, 22


def find(results, shape, dtype, mode="default"):
    for case in results["cases"]:
        if (case["shape"], case["dtype"], case["mode"]) == (shape, dtype, mode):
            return case["summary"]
    return {}


def median(summary, name):
    return summary.get(name, {}).get("median")


def _share_f32(results):
    ratio = find(results, "gpt2", "f32").get("kernel", {}).get("ratio")
    return ratio and 1 / ratio


def _share_bf16(results):
    """The f32 stream's time of the same rounds, cut to our bytes, by our time."""
    summary = find(results, "gpt2", "bf16")
    stream, ours = median(summary, "stream-f32"), median(summary, "kernel")
    return stream and ours and stream * BF16_BYTES / F32_BYTES / ours


def _times_faster(results, name):
    summary = find(results, "tiny", "f32")
    peer, ours = median(summary, "fused"), median(summary, name)
    return peer and ours and peer / ours


def _above_kernel(results, shape):
    """Seconds of a Python step above the same step's call of the runtime."""
    return find(results, shape, "f32").get("stepc", {}).get("above_kernel")


def _per_tensor(results):
    above = _above_kernel(results, "tiny")
    return above and above / 10_000 * 1e6


def _host(results):
    above = _above_kernel(results, "host")
    return above and above * 1e6


def _milliseconds(results, key):
    seconds = results.get("compile", {}).get(key)
    return seconds and seconds * 1e3


# what, unit, "at least" or "at most", the number, how it follows from the results
TARGETS = [
    ("AdamW f32 on GPT-2, share of the in-place stream", "", ">=", 0.95, _share_f32),
    ("AdamW bf16 on GPT-2, share of the stream by bytes", "", ">=", 0.95, _share_bf16),
    (
        "10 000 x 64 from Python, new gradient tensors, against torch fused",
        "times faster",
        ">=",
        40,
        lambda results: _times_faster(results, "stepc"),
    ),
    ("10 000 x 64 from Python, above the kernel", "us a tensor", "<=", 0.15, _per_tensor),
    (
        "10 000 x 64 from Python, fixed gradient tensors, against torch fused",
        "times faster",
        ">=",
        150,
        lambda results: _times_faster(results, "stepc-static"),
    ),
    ("148 tensors from Python, above the kernel", "us", "<=", 50, _host),
    (
        "adamw.mlir to a package, warm",
        "ms",
        "<=",
        250,
        lambda results: _milliseconds(results, "warm_median"),
    ),
    (
        "first step from Python, package in the cache",
        "ms",
        "<=",
        10,
        lambda results: _milliseconds(results, "cache_hit_median"),
    ),
]


def judge(results):
    """One dictionary for each target; `reached` is None where nothing was measured."""
    judged = []
    for name, unit, relation, goal, measure in TARGETS:
        value = measure(results)
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
