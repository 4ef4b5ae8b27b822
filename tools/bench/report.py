"""The results as text and as a plot.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

from optimizers import ENTRIES, FAMILIES, LABELS
from shapes import LABELS as SHAPE_LABELS
from summary import ADAMW, paired

MODES = {
    "default": "default allocator",
    "heap-kept": "heap kept",
    "huge-pages": "torch's huge pages",
}

HEADINGS = f"{'times':>6} {'x AdamW':>8} {'ms':>8} {'best':>8}"
NOISY = 1.15  # how far the stream may move in a case
WIDTH = 35  # of a cell
COLORS = {"limit": "#999999", "ours": "#1f6f8b", "peer": "#d98f4e"}


def milliseconds(seconds):
    value = seconds * 1e3
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def merged(cases):
    """Cases of several families as one: who is in more than one is as in the first."""
    whole = dict(cases[0])
    for field in ("summary", "absent"):
        whole[field] = {k: v for case in cases[::-1] for k, v in case[field].items()}
    return whole


def groups(results):
    """The cases by (shape, dtype), each a dictionary by mode, families in one."""
    found = {}
    for case in results["cases"]:
        by_mode = found.setdefault((case["shape"], case["dtype"]), {})
        by_mode.setdefault(case["mode"], []).append(case)
    return {
        key: {mode: merged(cases) for mode, cases in by_mode.items()}
        for key, by_mode in found.items()
    }


def families(results):
    """The cases by (family, shape, dtype), each a dictionary by mode."""
    found = {}
    for case in results["cases"]:
        key = (case["family"], case["shape"], case["dtype"])
        found.setdefault(key, {})[case["mode"]] = case
    return found


def order(by_mode):
    """Names of contestants: the limit first, then as in LABELS."""
    present = {name for case in by_mode.values() for name in (*case["summary"], *case["absent"])}
    return [name for name in LABELS if name in present]


def times(ratio):
    return f"{ratio:.2f}" if ratio < 100 else f"{ratio:.0f}"


def cell(case, name):
    if name in case["absent"]:
        reason = case["absent"][name]
        return reason if len(reason) <= 34 else reason[:31] + "..."
    if name not in case["summary"]:
        return ""
    row = case["summary"][name]
    of_adamw = "-" if row["of_adamw"] is None else times(row["of_adamw"])
    fewer = row["rounds"] < max(each["rounds"] for each in case["summary"].values())
    return (
        f"{times(row['ratio']):>6} {of_adamw:>8} {milliseconds(row['median']):>8} "
        f"{milliseconds(row['best']):>8}{'*' if fewer else ''}"
    )


def case_table(key, by_mode):
    family, shape, dtype = key
    first = next(iter(by_mode.values()))
    lines = [
        f"{FAMILIES[family].label}, {SHAPE_LABELS[shape]}, {dtype}: "
        f"{first['elements'] / 1e6:.2f} M elements, "
        f"{first['bytes'] / 1e6:.0f} MB of traffic a step of AdamW, {first['threads']} threads",
        " " * 34 + "".join(f"  {MODES[mode]:<{WIDTH}}" for mode in by_mode),
        " " * 34 + f"  {HEADINGS:<{WIDTH}}" * len(by_mode),
    ]
    lines = [line.rstrip() for line in lines]
    for name in order(by_mode):
        cells = "".join(f"  {cell(case, name):<{WIDTH}}" for case in by_mode.values())
        lines.append(f"  {LABELS[name]:<32}{cells}".rstrip())
    if any("*" in line for line in lines):
        fewest = min(row["rounds"] for case in by_mode.values() for row in case["summary"].values())
        lines.append(f"  * slow, in fewer rounds (at least {fewest})")
    noisy = [MODES[mode] for mode, case in by_mode.items() if case["stream_spread"] > NOISY]
    if noisy:
        lines.append(f"  noisy: the stream itself moved by more than 15 % ({', '.join(noisy)})")
    return lines


def compile_lines(measured):
    if "warm_median" not in measured:
        return [f"compiler: {measured.get('absent', 'not measured')}"]
    left = [share for share in measured["cold_resident_share"] if share is not None]
    lines = [
        f"stepc adamw.mlir, whole process: warm {milliseconds(measured['warm_median'])} ms, "
        f"cold {milliseconds(measured['cold_median'])} ms"
        + (f" ({min(left):.0%} of its files' bytes were still in memory)" if left else "")
    ]
    zoo = sorted(measured["zoo_medians"].items(), key=lambda pair: -pair[1])
    slowest = ", ".join(f"{name} {milliseconds(seconds)} ms" for name, seconds in zoo[:3])
    lines.append(f"the slowest of {len(zoo)} definitions, warm: {slowest}")
    if "cache_hit_median" in measured:
        lines.append(
            f"first step from Python: {milliseconds(measured['first_step_compiled'])} ms when it "
            f"compiles, {milliseconds(measured['cache_hit_median'])} ms when the package is cached"
        )
    elif "cache_hit_absent" in measured:
        lines.append(f"first step from Python: {measured['cache_hit_absent']}")
    return lines


def target_lines(targets):
    words = {True: "reached", False: "NOT REACHED", None: "not measured"}
    lines = ["targets"]
    for target in targets:
        value = "-" if target["value"] is None else f"{target['value']:.3g}"
        goal = f"{target['relation']} {target['goal']:g} {target['unit']}".strip()
        lines.append(f"  {words[target['reached']]:<13}{value:>8}  {goal:<22} {target['name']}")
    return lines


def faster_lines(results):
    """What each of our optimizers takes beside our AdamW and its peers, a line a case."""
    lines = ["ours at a glance: times our AdamW's time; and how many times faster than each peer"]
    for (family, shape, dtype), by_mode in families(results).items():
        if family == "adamw":
            continue
        for mode, case in by_mode.items():
            peers = [name for name in FAMILIES[family].peers if name in case["summary"]]
            for name in FAMILIES[family].ours:
                of_adamw = paired(case, name, ADAMW)
                if of_adamw is None:
                    continue
                ratios = [f"{times(paired(case, p, name))} {LABELS[p]}" for p in peers]
                where = f"{SHAPE_LABELS[shape]}, {dtype}, {MODES[mode]}"
                lines.append(
                    f"  {LABELS[name]:<32}{where:<52}{times(of_adamw):>6}; {', '.join(ratios)}"
                )
    return [*lines, ""] if len(lines) > 1 else []


def text(results):
    machine, settings = results["machine"], results["settings"]
    packages = ", ".join(f"{name} {v or '-'}" for name, v in machine["packages"].items())
    lines = [
        f"{machine['cpu']}, {machine['cores']} cores, caches {machine['caches']}, "
        f"huge pages: {machine['huge_pages']}",
        f"Linux {machine['kernel']}, {machine['libc']}, Python {machine['python']}, {packages}",
        f"{settings['rounds']} interleaved rounds; 'times' is the median over rounds of the time "
        "divided by the in-place stream's beside it,",
        "'x AdamW' that of the time divided by our AdamW's of the same round",
        "",
    ]
    for key, by_mode in families(results).items():
        lines += [*case_table(key, by_mode), ""]
    lines += faster_lines(results)
    lines += [*compile_lines(results["compile"]), "", *target_lines(results["targets"])]
    return "\n".join(lines) + "\n"


def draw_case(axes, key, by_mode):
    """Bars of one case: times the stream's time, on a logarithmic axis."""
    case = by_mode.get("default") or next(iter(by_mode.values()))
    names = [name for name in order({"": case}) if name in case["summary"]][::-1]
    ratios = [case["summary"][name]["ratio"] for name in names]
    colors = [COLORS[ENTRIES[name].kind] for name in names]
    axes.barh([LABELS[name] for name in names], ratios, color=colors)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    axes.axvline(1.0, color="black", linewidth=0.8)
    for number, name in enumerate(names):
        row = case["summary"][name]
        label = f" {times(row['ratio'])}x, {milliseconds(row['median'])} ms"
        axes.text(max(ratios[number], 1.0), number, label, va="center", fontsize=8)
    axes.set_xlim(0.8 * min([0.9, *ratios]), max(ratios) * 6)
    axes.set_title(f"{SHAPE_LABELS[key[0]]}, {key[1]}", fontsize=10)
    axes.set_xlabel("times the in-place stream's time", fontsize=8)
    axes.tick_params(labelsize=8)


def plot(results, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    found = {key: by_mode for key, by_mode in groups(results).items() if key[0] != "host"}
    if not found:
        return
    bars = [max(len(order(by_mode)), 3) for by_mode in found.values()]
    figure, axes = pyplot.subplots(
        len(found),
        1,
        figsize=(10, sum(0.9 + 0.25 * n for n in bars)),
        height_ratios=[0.9 + 0.25 * n for n in bars],
        squeeze=False,
        layout="constrained",
    )
    for row, (key, by_mode) in zip(axes[:, 0], found.items(), strict=True):
        draw_case(row, key, by_mode)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
