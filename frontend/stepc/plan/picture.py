# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A picture of what ``stepc --explain=json`` says (docs/explain.md), by matplotlib, as SVG.

A lane for each thing in memory, a column for each kernel, finish and round, in the order in
which they run. What is read goes up the left line of a column, what is written comes down the
right one.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from itertools import groupby

from .failure import PlanError

# Lengths are points, which are units of the picture. All text is of a fixed width, so that its
# extent is known: these are the widest of common fonts, for 12 and 11 points.
_CHAR, _SMALL_CHAR = 7.4, 6.8
_MARGIN, _LINE, _LANE, _GAP = 20, 17, 25, 16
_COLUMN = 180  # the least, wide enough for a label beside each line
_PER_BYTE = 8  # of the bars

_INK, _SOFT, _RULE, _GRAY = "#17242b", "#4a5459", "#d3dadd", "#7a868c"
_READ, _WRITE = "#1f6f8b", "#b3261e"
_BOXES = {
    "kernel": ("#e3f0f5", "#1f6f8b"),
    "finish": ("#fdf1e3", "#b5651d"),
    "round": ("#efe7f7", "#7a4fa3"),
    "exchange": ("#e8f3e8", "#3f7d4e"),
}
_LANES = {
    "full": "with the parameter's dims",
    "vector": "vectors, between kernels and of states",
    "partial": "partial sums, which kernels leave",
    "exchange": "what crosses ranks",
    "scalar": "for all tensors",
}
_SETTINGS = {
    "font.family": "monospace",
    "font.monospace": ["DejaVu Sans Mono"],
    "svg.fonttype": "none",
    "svg.hashsalt": "stepc",
    "path.simplify": False,
}


def draw(explanation: dict) -> str:
    """The picture, as the text of an SVG file: the same for the same document."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PlanError("pictures need matplotlib: pip install matplotlib") from error
    with matplotlib.rc_context(_SETTINGS):
        picture = _Picture(Figure())
        picture.head(explanation)
        for program in explanation["programs"]:
            picture.program(program)
        if explanation["ranks"]:
            picture.ranks(explanation["ranks"])
        return picture.save(f"The step of {explanation['optimizer']}")


def _count(number: int, what: str) -> str:
    plural = "" if number == 1 else "es" if what.endswith("sh") else "s"
    return f"{number} {what}{plural}"


def _share(value: float) -> str:
    """Without digits that say nothing."""
    return f"{value:.3f}".rstrip("0").rstrip(".")


def _layout(dims: list[dict]) -> str:
    return ", ".join(f"{one['dim']} over {'+'.join(one['axes'])}" for one in dims)


def _said(entry: dict) -> list[str]:
    """What stands in the box of an entry."""
    lines = [entry["name"]]
    if entry["kind"] == "kernel":
        trails = "trailing kernel" if entry.get("trails") else "kernel"
        moved = entry["bytes"]
        lines.append(f"{trails}, {_count(entry['operations'], 'operation')}")
        lines.append(f"reads {moved['reads']} B, writes {moved['writes']} B")
    elif entry["kind"] == "finish":
        lines.append("finish, once for a tensor")
        lines.append(f"{_count(entry['operations'], 'operation')} on vectors, scalars")
    elif entry["kind"] == "exchange":
        lines.append(f"of the {entry['of']} over {'+'.join(entry['axes'])}")
        crosses = f"{entry['wire']} B of an element" if "wire" in entry else "nothing crosses"
        lines.append(crosses + (", while others step" if entry.get("overlaps") else ""))
    else:
        if "exchanged" in entry:
            lines.append(f"reduces {entry['exchanged']} B over ranks")
        for call in entry.get("calls", ()):
            skip = ", may skip" if call["may_skip"] else ""
            lines.append(f"{call['function']} over {call['scope']}{skip}")
    return lines


class _Mark:
    """That a lane is read or written, with what is said beside it. ``thin``: it costs nothing."""

    def __init__(self, lane, writes: bool, said: str, thin: bool = False):
        self.lane, self.writes, self.said, self.thin = lane, writes, said, thin


def _memory_marks(entry: dict, memory: list[dict]) -> Iterable[_Mark]:
    cached = entry.get("cached", ())
    for name in ("reads", "writes", "accumulates"):
        for index in entry.get(name, ()):
            one, thin = memory[index], name == "reads" and index in cached
            said = f"{one['bytes']} B" + ("" if one["kind"] == "full" else " each")
            if one["kind"] == "partial":
                said = f"{_share(one['share'])} B"
            yield _Mark(index, name != "reads", "cached" if thin else said, thin)


def _scalar_marks(entry: dict) -> Iterable[_Mark]:
    """Of statistics and kept scalars."""
    for one in entry.get("contributes", ()):
        said = "adds a part" if one["part"] else "adds"
        yield _Mark(f"statistic {one['statistic']}", True, said)
    for call in entry.get("calls", ()):
        for name in call["statistics"]:
            yield _Mark(f"statistic {name}", False, "8 B")
        for name in call["scalars"]:
            yield _Mark(f"scalar {name}", False, "8 B")
        for one in call["updates"]:
            yield _Mark(f"scalar {one['scalar']}", True, "8 B always" if one["always"] else "8 B")


class _Picture:
    """Grows downwards: ``width`` of what was drawn so far, and ``y`` below it."""

    def __init__(self, figure):
        self.figure = figure
        self.axes = figure.add_axes((0, 0, 1, 1))
        self.axes.set_axis_off()
        self.width, self.y = 0.0, float(_MARGIN)

    def save(self, title: str) -> str:
        width, height = self.width + _MARGIN, self.y
        self.axes.set(xlim=(0, width), ylim=(height, 0))
        self.figure.set_size_inches(width / 72, height / 72)
        unsaid = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        file = io.StringIO()
        self.figure.savefig(file, format="svg", metadata={"Title": title, **unsaid})
        return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())

    # --- Words ----------------------------------------------------------------

    def write(self, x: float, y: float, said: str, small: bool = False, bold: bool = False) -> None:
        self.axes.text(
            x, y, said, fontsize=11 if small else 12, color=_SOFT if small else _INK,
            fontweight="bold" if bold else "normal", parse_math=False,
        )  # fmt: skip
        self.width = max(self.width, x + len(said) * (_SMALL_CHAR if small else _CHAR))

    def line(self, said: str, small: bool = True, bold: bool = False) -> None:
        self.y += _LINE
        self.write(_MARGIN, self.y, said, small, bold)

    def head(self, explanation: dict) -> None:
        self.line(f"optimizer {explanation['optimizer']}", small=False, bold=True)
        for one in explanation["statistics"]:
            self.line(f"statistic {one['name']}: {one['kind']} over {one['scope']}")
        for one in explanation["scalars"]:
            self.line(f"scalar {one['name']}: kept over {one['scope']}, {one['init']:g} at first")
        for one in explanation["reports"]:
            self.line(f"report {one['name']}: over {one['scope']}")
        self.line(
            "B: bytes for each element of the parameter; of vectors, for each of their own. "
            "What is read goes up, what is written comes down."
        )
        self.y += _GAP

    def ranks(self, ranks: dict) -> None:
        said = f"across ranks: {_count(ranks['rounds'], 'round')}"
        if ranks["reductions"]:
            calls = _count(len(ranks["reductions"]), "call")
            said += f", at most {calls} in a step, whatever the number of tensors"
        else:
            said += ", whatever the layout" if ranks["elementwise"] else " in these layouts"
        self.line(said, small=False, bold=True)
        for one in ranks["reductions"]:
            axes, of = "+".join(one["axes"]) or "all axes", ", ".join(one["of"])
            self.line(f"round {one['round']}: {one['op']} over {axes} of {of}")
        self.y += _GAP

    # --- Programs -------------------------------------------------------------

    def program(self, program: dict) -> None:
        options = [f"{name}={str(is_on).lower()}" for name, is_on in program["options"].items()]
        parts = [f"rule {program['rule']}", *options, f"computed in {program['compute']}"]
        self.line(program["name"], small=False, bold=True)
        self.line(", ".join([*parts, *filter(None, [_layout(program["layout"])])]))
        marks = [
            [*_memory_marks(entry, program["memory"]), *_scalar_marks(entry)]
            for entry in program["entries"]
        ]
        self.y += _GAP
        self._columns(program, _lanes(program, marks), marks)
        self._totals(program)
        self.y += 2 * _GAP

    def _columns(self, program: dict, lanes: dict, marks: list[list[_Mark]]) -> None:
        entries = program["entries"]
        left = _MARGIN + max(len(said) for said, _ in lanes.values()) * _CHAR + _GAP
        boxes = [_said(entry) for entry in entries]
        widths = [max(_COLUMN, max(map(len, said)) * _CHAR + 20) for said in boxes]
        starts = [left + sum(widths[:i]) + _GAP * i for i in range(len(widths))]
        right = starts[-1] + widths[-1]
        self.width = max(self.width, right)
        begin = self.y
        self.y += _LINE if len(program["rows"]) > 1 else 0
        top, height = self.y, max(map(len, boxes)) * _LINE + 10
        self.y += height + 12
        places = self._draw_lanes(lanes, left, right)
        if len(program["rows"]) > 1:
            segments = zip((entry["segment"] for entry in entries), starts, strict=True)
            for segment, group in groupby(segments, key=lambda one: one[0]):
                x = next(group)[1] - _GAP / 2
                self._line((x, x), (begin, self.y), _GRAY, linewidth=1, dashes=(5, 4))
                self.write(x + 6, begin + 11, f"segment {segment}", small=True)
        for entry, said, x, width, own in zip(entries, boxes, starts, widths, marks, strict=True):
            self._draw_box(entry["kind"], said, (x, top, width, height))
            self._draw_marks(x, width, top + height, own, places)

    def _draw_lanes(self, lanes: dict, left: float, right: float) -> dict:
        """Where each lane is."""
        places = {}
        for kind, group in groupby(lanes.items(), key=lambda lane: lane[1][1]):
            self.y += _LINE
            self.write(_MARGIN, self.y, _LANES[kind], small=True)
            self.y -= 3
            for key, (said, _) in group:
                self.y += _LANE
                places[key] = self.y
                self.write(_MARGIN, self.y + 4, said)
                self._line((left, right), (self.y, self.y), _RULE, linewidth=1, zorder=1)
            self.y += 14
        return places

    def _draw_box(self, kind: str, said: list[str], place: tuple) -> None:
        from matplotlib.patches import FancyBboxPatch

        x, y, width, height = place
        fill, edge = _BOXES[kind]
        round_ = "round,pad=0,rounding_size=5"
        self.axes.add_patch(
            FancyBboxPatch((x, y), width, height, boxstyle=round_, fc=fill, ec=edge, zorder=2)
        )
        for i, one in enumerate(said):
            self.write(x + 10, y + _LINE * (i + 1) + 2, one, small=i > 0, bold=i == 0)

    def _draw_marks(
        self, x: float, width: float, bottom: float, marks: list[_Mark], places: dict
    ) -> None:
        """Two lines hang from a box: the left one for what is read."""
        for writes in (False, True):
            own = [mark for mark in marks if mark.writes == writes]
            if not own:
                continue
            at, color = (x + width / 2 + 4, _WRITE) if writes else (x + 14, _READ)
            heights = [places[mark.lane] for mark in own]
            self._line((at, at), (bottom, max(heights)), color, linewidth=1.4, zorder=3)
            for mark, height in zip(own, heights, strict=True):
                self.write(at + 8, height - 4, mark.said, small=True)
            for thin in (False, True):
                found = [h for m, h in zip(own, heights, strict=True) if m.thin == thin]
                if found:
                    self._points([at] * len(found), found, "v" if writes else "o", color, thin)
            if not writes:
                self._points([at], [bottom + 5], "^", color)

    def _points(self, x: list, y: list, shape: str, color: str, thin: bool = False) -> None:
        inside = "white" if thin else color
        self.axes.plot(
            x, y, shape, color=color, mfc=inside, markersize=7, zorder=4, clip_on=False
        )  # fmt: skip

    def _line(self, x: tuple, y: tuple, color: str, **style) -> None:
        self.axes.plot(x, y, color=color, clip_on=False, **style)

    def _totals(self, program: dict) -> None:
        moved = program["bytes"]
        kernels = _count(program["kernels"], "kernel")
        self._bar(_READ, moved["moved"], f"{moved['moved']} bytes per parameter in {kernels}")
        if "needed" in moved:
            said = f"{moved['needed']} where what may be left out is"
            self._bar(_READ, moved["needed"], said)
        self._bar(_GRAY, moved["least"], f"{moved['least']} least possible")
        self.y += 3
        if moved["partial"]:
            share = _share(moved["partial"])
            self.line(
                f"partial sums beside them: {share} bytes per parameter written, and as many read"
            )
        if program["layout"]:
            crossing = program["exchanged"]
            what = f"{crossing['bytes']} bytes" if crossing["rounds"] else "nothing"
            rounds = _count(crossing["rounds"], "round")
            self.line(f"across ranks: {what} of a tensor, in {rounds}")
        for entry in program["entries"]:
            for group in entry.get("exchanges", ()):
                for one in group["of"]:
                    self.line(f"{one['name']}, over {'+'.join(group['axes'])}: {one['value']}")
        for name in ("read_again", "read_back", "recomputed"):
            for one in program[name]:
                kernels = (kernel.removeprefix(f"{program['name']}_") for kernel in one["entries"])
                self.line(f"{name.replace('_', ' ')}: {one['value']} in {', '.join(kernels)}")

    def _bar(self, color: str, amount: int, said: str) -> None:
        from matplotlib.patches import Rectangle

        self.y += _LINE + 3
        length = amount * _PER_BYTE
        self.axes.add_patch(Rectangle((_MARGIN, self.y - 11), length, 13, color=color))
        self.write(_MARGIN + length + 8, self.y, said)


def _lanes(program: dict, marks: list[list[_Mark]]) -> dict:
    """By what marks call it, what is said of a lane and its kind: memory, behind it statistics
    and kept scalars."""
    between = {"full": "", "vector": "", "partial": " ", "exchange": ", "}
    lanes = {}
    for index, one in enumerate(program["memory"]):
        said = f"{one['name']} {one['storage']}{between[one['kind']]}{one['extent']}"
        lanes[index] = said, one["kind"]
    others = dict.fromkeys(m.lane for own in marks for m in own if m.lane not in lanes)
    for name in sorted(others, key=lambda name: not name.startswith("statistic ")):
        lanes[name] = name, "scalar"
    return lanes
