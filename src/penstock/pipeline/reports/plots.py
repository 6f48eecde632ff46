"""Curves and bars as SVG, written by hand: a report needs two kinds of picture, and no library for it.

Plots share their width and their time axis, so that what happened at the same moment stands below each other.
A value that is None leaves a gap in its curve. Texts are escaped: names and keys are other people's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from itertools import groupby
from math import ceil, log10

WIDTH, HEIGHT = 860, 190
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 14, 26
INK, FAINT, BAND, ALARM = "#43658b", "#d5dce4", "#e4edf6", "#b3453b"
COLOURS = ("#43658b", "#b07d2b", "#4b8b5a", "#7d4b8b", "#2b8a9b", "#8b5a4b")
TICKS = 4
TIME_TICKS = 6

Values = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Curve:
    name: str
    values: Values
    colour: str = INK
    is_dashed: bool = False


@dataclass(frozen=True, slots=True)
class Span:
    """Windows that are marked, half-open."""

    first: int
    end: int
    text: str


def curves(label: str, starts: Sequence[int], lines: Sequence[Curve], *, unit: str = "", band: tuple[Values, Values] | None = None,
           spans: Sequence[Span] = ()) -> str:  # fmt: skip
    """Curves over windows of time; `band` is a low and a high edge that is shaded, `spans` are marked."""
    highest = max((value for values in _all(lines, band) for value in values if value is not None), default=0.0)
    top = _round_up(highest)
    scale = _Scale(len(starts), top)
    parts = [_frame(scale, starts, unit)]
    if band is not None:
        parts.append(_area(scale, *band))
    for span in spans:
        width = max(2.0, scale.x(span.end) - scale.x(span.first))
        shape = _box(scale.x(span.first - 0.5), TOP, width, scale.height, f'fill="{ALARM}" opacity="0.16"')
        parts.append(f"<g>{shape}<title>{escape(span.text)}</title></g>")
    parts.extend(_path(scale, line) for line in lines)
    return _svg(label, HEIGHT, parts) + (_legend(lines) if len(lines) > 1 else "")


def bars(label: str, values: Sequence[float], *, names: Sequence[str], line: float | None = None, unit: str = "") -> str:
    """A bar for each value; `line` is drawn across, as what each of them should be."""
    top = _round_up(max([*values, line or 0.0], default=0.0))
    scale = _Scale(len(values), top)
    step = scale.width / max(len(values), 1)
    parts = [_rules(scale, unit)]
    for number, (name, value) in enumerate(zip(names, values, strict=True)):
        x, y = LEFT + number * step + step * 0.12, scale.y(value)
        is_over = line is not None and value > 1.5 * line
        shape = _box(x, y, step * 0.76, TOP + scale.height - y, f'fill="{ALARM if is_over else INK}"')
        parts.append(f"<g>{shape}<title>{escape(name)}: {short(value)}{escape(unit)}</title></g>")
        if len(values) <= 40:
            parts.append(_text(x + step * 0.38, HEIGHT - 8, name, "middle"))
    if line is not None:
        parts.append(f'<path d="M{LEFT} {scale.y(line):.1f}H{WIDTH - RIGHT}" stroke="#4b8b5a" stroke-width="1.5" stroke-dasharray="6 4"/>')
    return _svg(label, HEIGHT, parts)


def short(value: float) -> str:
    """1200000 as 1.2 M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g} {letter}"
    return f"{value:.3g}"


def clock(second: float, pattern: str = "%H:%M:%S") -> str:
    try:
        return datetime.fromtimestamp(second, UTC).strftime(pattern)
    except (ValueError, OverflowError, OSError):
        return f"{second:.0f} s"  # Since 1970; of a year that no calendar here has.


@dataclass(frozen=True, slots=True)
class _Scale:
    count: int
    top: float
    width: float = WIDTH - LEFT - RIGHT
    height: float = HEIGHT - TOP - BOTTOM

    def x(self, number: float) -> float:
        return LEFT + self.width * (number + 0.5) / max(self.count, 1)

    def y(self, value: float) -> float:
        return TOP + self.height * (1 - value / self.top)


def _all(lines: Sequence[Curve], band: tuple[Values, Values] | None) -> list[Values]:
    return [*(line.values for line in lines), *([band[1]] if band else [])]


def _round_up(value: float) -> float:
    if value <= 0:
        return 1.0
    size = 10.0 ** (ceil(log10(value)) - 1)
    return next(step * size for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 15) if step * size >= value)


def _frame(scale: _Scale, starts: Sequence[int], unit: str) -> str:
    marks = []
    every = max(1, ceil(len(starts) / TIME_TICKS))
    has_days = bool(starts) and starts[-1] - starts[0] > 86_400
    for number in range(0, len(starts), every):
        text = clock(starts[number], "%d %b %H:%M" if has_days else "%H:%M:%S")
        marks.append(_text(scale.x(number), HEIGHT - 8, text, "middle"))
    return _rules(scale, unit) + "".join(marks)


def _rules(scale: _Scale, unit: str) -> str:
    rules = []
    for tick in range(TICKS + 1):
        value = scale.top * tick / TICKS
        rules.append(f'<path d="M{LEFT} {scale.y(value):.1f}H{WIDTH - RIGHT}" stroke="{FAINT}"/>')
        rules.append(_text(LEFT - 6, scale.y(value) + 4, short(value) + (unit if tick == TICKS else ""), "end"))
    return "".join(rules)


def _path(scale: _Scale, line: Curve) -> str:
    pieces = []
    for is_there, run in groupby(enumerate(line.values), key=lambda pair: pair[1] is not None):
        points = [f"{scale.x(number):.1f} {scale.y(value or 0.0):.1f}" for number, value in run]
        if is_there:
            pieces.append("M" + "L".join(points) + ("h0.1" if len(points) == 1 else ""))
    dashes = ' stroke-dasharray="5 4"' if line.is_dashed else ""
    shape = f'<path d="{"".join(pieces)}" fill="none" stroke="{line.colour}" stroke-width="1.6" stroke-linecap="round"{dashes}/>'
    return f"<g>{shape}<title>{escape(line.name)}</title></g>"


def _area(scale: _Scale, low: Values, high: Values) -> str:
    areas = []
    for is_there, run in groupby(enumerate(zip(low, high, strict=True)), key=lambda pair: None not in pair[1]):
        if is_there:
            edges = [(number, bottom or 0.0, top or 0.0) for number, (bottom, top) in run]
            upper = [f"{scale.x(number):.1f} {scale.y(top):.1f}" for number, _, top in edges]
            lower = [f"{scale.x(number):.1f} {scale.y(bottom):.1f}" for number, bottom, _ in reversed(edges)]
            areas.append(f'<path d="M{"L".join([*upper, *lower])}Z" fill="{BAND}"/>')
    return "".join(areas)


def _legend(lines: Sequence[Curve]) -> str:
    items = "".join(f'<li><i style="background:{line.colour}"></i>{escape(line.name)}</li>' for line in lines)
    return f'<ul class="legend">{items}</ul>'


def _box(x: float, y: float, width: float, height: float, look: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" {look}/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(label: str, height: int, parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'
