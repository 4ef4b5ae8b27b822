"""Figures of a case from its single values.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import statistics

ADAMW = "stepc"  # ours, in every case


def by_round(case, name):
    """Seconds by number of the round; empty for who did not take part."""
    if name not in case["seconds"]:
        return {}
    return dict(zip(case["rounds"][name], case["seconds"][name], strict=True))


def paired(case, name, *others):
    """The median over the rounds that all took part in of a contestant's time
    divided by the sum of the others', or None."""
    times = [by_round(case, each) for each in (name, *others)]
    common = set.intersection(*map(set, times))
    if not common:
        return None
    return statistics.median(
        times[0][number] / sum(time[number] for time in times[1:]) for number in common
    )


def summarize(case):
    """Adds medians, bests and ratios to a case's raw seconds."""
    case["summary"] = {}
    for name, seconds in case["seconds"].items():
        beside = case["stream_beside"][name]
        case["summary"][name] = {
            "rounds": len(seconds),
            "median": statistics.median(seconds),
            "best": min(seconds),
            "ratio": statistics.median(a / b for a, b in zip(seconds, beside, strict=True)),
            "of_adamw": paired(case, name, ADAMW),
        }
    for name, seconds in case["above_kernel"].items():
        case["summary"][name]["above_kernel"] = statistics.median(seconds)
    stream = [value for values in case["stream_beside"].values() for value in values]
    wide = len(stream) > 1
    case["stream_spread"] = statistics.quantiles(stream, n=10)[8] / min(stream) if wide else 1.0
    return case
