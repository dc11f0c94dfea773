"""Plots as SVG text. Pure. All text is escaped: ids, keys and messages come from a topology."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from html import escape

# Distinguishable for colour-blind people too (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a6d00", "#777777")
_WIDTH, _HEIGHT = 860, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 16, 26
_TICKS = 4

Line = tuple[str, Sequence[float | None]]


def text_of(value: object) -> str:
    """Text for HTML and SVG: escaped, without characters that XML forbids or that reverse text."""
    shown = "".join(c if c.isprintable() or c == " " else "\ufffd" for c in str(value))
    return escape(shown, quote=True)


def number(value: float | None) -> str:
    """A number for people: three digits and the letter of a unit."""
    if value is None or not math.isfinite(value):
        return "-"
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if unit == 'k' else limit):.3g}{unit}"
    if value == int(value):
        return str(int(value))
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def nice_ceiling(value: float) -> float:
    """The next of 1, 2, 2.5, 5 times a power of ten: the end of an axis."""
    if not math.isfinite(value) or value < sys.float_info.min:
        return 1.0  # (a smaller value may have no power of ten)
    power = 10.0 ** math.floor(math.log10(value))
    for factor in (1.0, 2.0, 2.5, 5.0, 10.0):
        if value <= factor * power * (1 + 1e-9):
            return factor * power
    return 10.0 * power


def clock(at_ms: float, span_ms: float) -> str:
    shape = "%H:%M:%S" if span_ms < 7_200_000 else "%m-%d %H:%M"
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime(shape)


def line_plot(
    title: str,
    steps_ms: Sequence[int],
    lines: Sequence[Line],
    *,
    unit: str,
    marks: Sequence[tuple[int, str]] = (),
    gaps: Sequence[tuple[int, int, str]] = (),
    order: Sequence[str] = (),
) -> str:
    """Values over time, one line per name; None leaves a gap. `marks` are named moments, `gaps` are
    named spans without a history; `order` has all names of a page, each with its own colour. A step
    shows its values when the pointer is over it."""
    places = {name: place for place, name in enumerate(order)}
    values = [v for _, line in lines for v in line if v is not None and math.isfinite(v)]
    if not steps_ms or not values:
        return f'<p class="none">{text_of(title)}: nothing was recorded.</p>'
    top = nice_ceiling(max(values))
    first, last = steps_ms[0], steps_ms[-1]
    span = max(1, last - first)

    def x(at_ms: float) -> float:
        share = (at_ms - first) / span if last > first else 0.5
        return _LEFT + max(0.0, min(1.0, share)) * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _TOP + (1 - value / top) * (_HEIGHT - _TOP - _BOTTOM)

    parts = [_begin(f"{title} ({unit})", _HEIGHT)]
    shown_gaps = False
    for from_ms, to_ms, name in gaps:
        if to_ms < first or from_ms > last:
            continue
        shown_gaps = True
        width = max(1.5, x(to_ms) - x(from_ms))
        parts.append(
            f'<rect class="gap" x="{x(from_ms):.1f}" y="{_TOP}" width="{width:.1f}" '
            f'height="{_HEIGHT - _TOP - _BOTTOM}"><title>the history of {text_of(name)} from '
            f"{clock(from_ms, span)} to {clock(to_ms, span)} died with it</title></rect>"
        )
    parts.append(
        f'<text class="unit" x="{_LEFT}" y="{_TOP - 5}">{text_of(unit)}</text>'
        f'<text class="unit" x="{_WIDTH - _RIGHT}" y="{_HEIGHT - _BOTTOM - 4}" text-anchor="end">'
        "time (UTC)</text>"
    )
    for tick in range(_TICKS + 1):
        value = top * tick / _TICKS
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(value):.1f}" '
            f'y2="{y(value):.1f}"/><text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" '
            f'text-anchor="end">{number(value)}</text>'
        )
        at = first + span * tick / _TICKS
        anchor = ("start", "middle", "middle", "middle", "end")[tick]
        if last > first or tick == 2:
            parts.append(
                f'<text x="{x(at):.1f}" y="{_HEIGHT - 8}" text-anchor="{anchor}">'
                f"{clock(at, span)}</text>"
            )
    for at_ms, name in marks:
        if first <= at_ms <= last + span / max(1, len(steps_ms)):
            parts.append(
                f'<line class="mark" x1="{x(at_ms):.1f}" x2="{x(at_ms):.1f}" y1="{_TOP}" '
                f'y2="{_HEIGHT - _BOTTOM}"><title>{text_of(name)} {clock(at_ms, span)}</title>'
                "</line>"
            )
    for own, (name, line) in enumerate(lines):
        index = places.get(name, own)
        colour = COLOURS[index % len(COLOURS)]
        dash = ' stroke-dasharray="5 3"' if index >= len(COLOURS) else ""
        for piece in _pieces([(x(t), v) for t, v in zip(steps_ms, line, strict=False)]):
            points = " ".join(f"{px:.1f},{y(value):.1f}" for px, value in piece)
            if len(piece) == 1:
                px, value = piece[0]
                parts.append(f'<circle cx="{px:.1f}" cy="{y(value):.1f}" r="2" fill="{colour}"/>')
            else:
                parts.append(
                    f'<polyline points="{points}" stroke="{colour}"{dash}>'
                    f"<title>{text_of(name)}</title></polyline>"
                )
    parts += _hover(steps_ms, lines, x, unit, span)
    parts.append("</svg>")
    shown_marks = any(first <= at_ms <= last + span / max(1, len(steps_ms)) for at_ms, _ in marks)
    also = ["red, dotted: an event"] if shown_marks else []
    also += ["grey: the history of a worker is missing"] if shown_gaps else []
    return "".join(parts) + legend(
        {name: places.get(name, own) for own, (name, _) in enumerate(lines)}, also
    )


def _hover(
    steps_ms: Sequence[int],
    lines: Sequence[Line],
    x: Callable[[float], float],
    unit: str,
    span: float,
) -> Iterator[str]:
    """A transparent bar over each step, with the values of all lines."""
    for index, at_ms in enumerate(steps_ms):
        values = [(name, line[index]) for name, line in lines if index < len(line)]
        if all(value is None for _, value in values):
            continue
        before = x(steps_ms[index - 1]) if index else x(at_ms)
        after = x(steps_ms[index + 1]) if index + 1 < len(steps_ms) else x(at_ms)
        left, right = (before + x(at_ms)) / 2, (x(at_ms) + after) / 2
        shown = "\n".join(
            f"{text_of(name)}: {number(value)} {text_of(unit)}" for name, value in values
        )
        yield (
            f'<rect class="hover" x="{left:.1f}" y="{_TOP}" width="{max(2.0, right - left):.1f}" '
            f'height="{_HEIGHT - _TOP - _BOTTOM}"><title>{clock(at_ms, span)}\n{shown}</title>'
            "</rect>"
        )


def _pieces(points: Sequence[tuple[float, float | None]]) -> list[list[tuple[float, float]]]:
    """Runs of values without a gap."""
    found: list[list[tuple[float, float]]] = [[]]
    for px, value in points:
        if value is None or not math.isfinite(value):
            found.append([])
        else:
            found[-1].append((px, value))
    return [piece for piece in found if piece]


def bar_plot(
    title: str,
    bars: Mapping[str, float],
    *,
    unit: str,
    mean: float | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
) -> str:
    """One horizontal bar per name; `mean` is marked. `ranges` are in which the values may be."""
    if not bars:
        return ""
    height = 20 * len(bars) + 28
    of_ranges = {name: ranges[name] for name in bars if name in ranges} if ranges else {}
    top = nice_ceiling(
        max([*bars.values(), mean or 0.0, *(high for _, high in of_ranges.values())])
    )
    left, width = 180, _WIDTH - 180 - 90
    parts = [_begin(f"{title} ({unit})", height)]
    for index, (name, value) in enumerate(bars.items()):
        at = 6 + 20 * index
        length = width * max(0.0, value) / top
        parts.append(
            f'<text x="{left - 6}" y="{at + 13}" text-anchor="end">{text_of(_short(name))}</text>'
            f'<rect x="{left}" y="{at + 2}" width="{length:.1f}" height="15" fill="{COLOURS[0]}">'
            f"<title>{text_of(name)}: {number(value)} {text_of(unit)}</title></rect>"
        )
        end = length
        if name in of_ranges:
            low, high = (width * of / top for of in of_ranges[name])
            end = max(length, high)
            parts.append(
                f'<line x1="{left + low:.1f}" x2="{left + high:.1f}" y1="{at + 9}" y2="{at + 9}" '
                'stroke="currentColor"/>'
            )
        parts.append(f'<text x="{left + end + 6:.1f}" y="{at + 13}">{number(value)}</text>')
    parts.append(
        f'<text x="{left}" y="{height - 4}">0</text><text x="{left + width}" y="{height - 4}" '
        f'text-anchor="end">{number(top)}</text><text class="unit" x="{left + width / 2:.1f}" '
        f'y="{height - 4}" text-anchor="middle">{text_of(unit)}</text>'
    )
    if mean is not None:
        px = left + width * mean / top
        parts.append(
            f'<line class="mark" x1="{px:.1f}" x2="{px:.1f}" y1="2" y2="{height - 18}">'
            f"<title>mean {number(mean)} {text_of(unit)}</title></line>"
        )
    parts.append("</svg>")
    return "".join(parts) + ("" if mean is None else legend({}, ["red, dotted: the mean"]))


def _short(name: str) -> str:
    return name if len(name) <= 24 else name[:23] + "…"


def legend(places: Mapping[str, int], also: Sequence[str] = ()) -> str:
    items = "".join(
        f'<li><span style="background:{COLOURS[i % len(COLOURS)]}"></span>{text_of(name)}</li>'
        for name, i in places.items()
    ) + "".join(f"<li>{text_of(one)}</li>" for one in also)
    return f'<ul class="legend">{items}</ul>'


def _begin(title: str, height: int) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="{text_of(title)}">'
    )
