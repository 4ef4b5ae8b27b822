# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bars of memory by rank, and a time line, as SVG. Lengths are in units of the picture."""

from __future__ import annotations

from html import escape

from ..._units import seconds, size
from ..timeline import Event

WIDTH = 900
_LEFT, _ROW = 150, 16  # of the names of rows, and the height of one
_LEAST = 1.5  # of a bar that is there, so that it can be seen
COLORS = 9  # page.html has as many, k0 to k8


def _text(x: float, y: float, said: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(said)}</text>'


def _bar(x: float, y: float, width: float, color: int, said: str) -> str:
    title = f"<title>{escape(said)}</title>"
    return (
        f'<rect class="k{color % COLORS}" x="{x:.2f}" y="{y:.1f}" width="{width:.2f}" '
        f'height="{_ROW - 4}">{title}</rect>'
    )


def _picture(height: float, name: str, inside: list[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(name)}">'
        + "".join(inside)
        + "</svg>"
    )


def legend(names: list[str]) -> str:
    """The colours of ``names``, in their order."""
    colors = (f'<i class="k{i % COLORS}"></i>{escape(name)}' for i, name in enumerate(names))
    return f'<ul class="legend">{"".join(f"<li>{color}</li>" for color in colors)}</ul>'


def memory(ranks: dict[int, dict[str, int]], kinds: list[str]) -> str:
    """A bar for each rank, of bytes by kind."""
    most = max(sum(parts.values()) for parts in ranks.values()) or 1
    unit = (WIDTH - _LEFT - 90) / most
    found = []
    for row, (rank, parts) in enumerate(ranks.items()):
        x, y = float(_LEFT), row * _ROW
        found.append(_text(_LEFT - 8, y + 10, f"rank {rank}", "end"))
        for color, kind in enumerate(kinds):
            amount = parts.get(kind, 0)
            if amount:
                said = f"rank {rank}, {kind}: {size(amount)}"
                found.append(_bar(x, y, amount * unit, color, said))
                x += amount * unit
        found.append(_text(x + 6, y + 10, size(sum(parts.values()))))
    return _picture(len(ranks) * _ROW, "memory by rank", found)


def timeline(events: list[Event], name: str) -> str:
    """A lane for the rank's memory and one for each set of axes; bars are as long as their
    seconds, one after the other. Colours are of when it is, or where all is at once of lanes."""
    total = sum(event.seconds for event in events) or 1.0
    unit = (WIDTH - _LEFT - 20) / total
    lanes = list(dict.fromkeys(event.lane for event in events))
    whens = list(dict.fromkeys(event.when for event in events))
    bottom = 20 + len(lanes) * _ROW
    found = [_text(_LEFT - 8, 30 + i * _ROW, lane, "end") for i, lane in enumerate(lanes)]
    start = 0.0
    for event in events:
        x, y = _LEFT + start * unit, 20 + lanes.index(event.lane) * _ROW
        said = f"{event.what}: {size(event.bytes)}, {seconds(event.seconds)}"
        color = whens.index(event.when) if len(whens) > 1 else lanes.index(event.lane)
        found.append(_bar(x, y, max(event.seconds * unit, _LEAST), color, said))
        start += event.seconds
    found.append(f'<line x1="{_LEFT}" y1="{bottom}" x2="{WIDTH - 20}" y2="{bottom}"/>')
    found.append(_text(_LEFT, bottom + 14, "0"))
    found.append(_text(WIDTH - 20, bottom + 14, seconds(total), "end"))
    return _picture(bottom + 20, name, found) + (legend(whens) if len(whens) > 1 else "")
