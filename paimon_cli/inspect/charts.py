"""Charts as SVG, and the HTML of the figures and tables around them. Colours are classes of `STYLE`.

Every chart has a title and a description for screen readers, and a bounded number of shapes. All texts are escaped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape as escape_html
from typing import TypeVar

WIDTH = 720
LABELS, NOTES = 200, 110
"""Pixels: width of the labels left of bars, and of the notes right of them."""
MARGIN = 12
"""Pixels around a drawing that stands alone: the texts of charts begin and end at its edges."""
MAX_POINTS, _MAX_COLUMNS = 240, 60
LONGEST_LABEL, LONGEST_TEXT = 28, 300
_TOP, _BOTTOM = 14, 26
T = TypeVar("T")
Chart = tuple[float, list[str]]
"""The height of a chart, and its shapes."""


@dataclass(frozen=True)
class Sheet:
    """The place of a drawing, in pixels. `labels`, `notes`: the widths left and right of bars; without, they stand above them.

    `row`: height of a row; `axis`: width of the labels of an axis.
    """

    width: int = WIDTH
    labels: int = LABELS
    notes: int = NOTES
    row: int = 20
    axis: int = 74

    @property
    def above(self) -> int:
        """The height of the text above a bar."""
        return 0 if self.labels else 16


WIDE, NARROW = Sheet(), Sheet(340, 0, 0, 38, 58)
"""A page has each chart on both, and shows the one on which texts have the size of those around them."""
Drawn = Callable[[Sheet], Chart]

STYLE = """\
:root { color-scheme: light dark; --page: #ffffff; --panel: #f6f8fa; --ink: #1c2430; --faint: #566171; --line: #d5dbe3;
  --l0: #d9480f; --l1: #d98a1f; --l2: #7d9c1f; --l3: #1f9070; --l4: #1f7fb4; --l5: #4457b8; --l6: #6f42a8;
  --append: #1f7fb4; --compact: #1f9070; --overwrite: #d9480f; --analyze: #7a828c; --accent: #1f5fb4; --soft: #1f5fb422;
  --good: #1a7f37; --care: #9a6700; --bad: #cf222e; }
@media screen and (prefers-color-scheme: dark) { :root { --page: #11161d; --panel: #1a212b; --ink: #e4e9f0; --faint: #9ba7b6;
  --line: #343e4c; --l0: #ff8a4c; --l1: #f0b04a; --l2: #a9c84a; --l3: #4cc39c; --l4: #56b1e6; --l5: #8b9cf5; --l6: #b48af0;
  --append: #56b1e6; --compact: #4cc39c; --overwrite: #ff8a4c; --analyze: #9aa3ae; --accent: #6fa8f5; --soft: #6fa8f533;
  --good: #4ac26b; --care: #d4a72c; --bad: #ff7b72; } }
svg text { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; fill: var(--ink); }
svg .faint { fill: var(--faint); } svg .end { text-anchor: end; }
svg .axis { stroke: var(--line); stroke-width: 1; } svg .line { fill: none; stroke: var(--accent); stroke-width: 2; }
svg .area { fill: var(--soft); stroke: none; } svg .second { fill: none; stroke: var(--l0); stroke-width: 2; }
svg .back { fill: var(--page); }
svg .l0 { fill: var(--l0); } svg .l1 { fill: var(--l1); } svg .l2 { fill: var(--l2); } svg .l3 { fill: var(--l3); }
svg .l4 { fill: var(--l4); } svg .l5 { fill: var(--l5); } svg .l6 { fill: var(--l6); } svg .append { fill: var(--append); }
svg .compact { fill: var(--compact); } svg .overwrite { fill: var(--overwrite); } svg .analyze { fill: var(--analyze); }
svg .bar { fill: var(--accent); }
"""


def level_class(level: int) -> str:
    """The colour class of a level; levels from 6 on share one."""
    return f"l{min(max(level, 0), 6)}"


def escape(text: object) -> str:
    """Text for HTML and SVG, with invisible characters made visible."""
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(text))
    return escape_html(shown, quote=True)


@dataclass(frozen=True)
class Part:
    """A piece of a bar or column: its length, its colour class, and its tooltip."""

    value: float
    colour: str
    tooltip: str


@dataclass(frozen=True)
class Bar:
    """One row of a bar chart, or one column of a column chart."""

    label: str
    parts: Sequence[Part]
    note: str = ""

    @property
    def total(self) -> float:
        return sum(part.value for part in self.parts)


@dataclass(frozen=True)
class Range:
    """One row of a chart of ranges, from `begin` to `end` between 0 and 1."""

    label: str
    begin: float
    end: float
    colour: str
    tooltip: str
    note: str = ""


@dataclass(frozen=True)
class Line:
    """One line: `points` are (x, y), ascending in x. `colour` is `line` or `second`."""

    points: Sequence[tuple[float, float]]
    colour: str = "line"
    filled: bool = True


@dataclass(frozen=True)
class Axis:
    """The labels of an axis: `text` formats its values, `ends` label both ends; `base`: 1024 for bytes."""

    text: Callable[[float], str]
    base: int = 10
    ends: tuple[str, str] = ("", "")


def drawing(
    ident: str,
    title: str,
    description: str,
    height: float,
    body: Sequence[str],
    *,
    standalone: bool = False,
    width: int = WIDTH,
) -> str:
    """An SVG; `standalone`: a separate file, with its own style, background and margin."""
    head, style, margin = "", "", 0
    if standalone:
        head, margin = ' xmlns="http://www.w3.org/2000/svg"', MARGIN
        corner = f'x="{-margin}" y="{-margin}" width="{width + 2 * margin}" height="{height + 2 * margin:.0f}"'
        style = f'<style>{STYLE}</style><rect class="back" {corner} rx="6"/>'
    box = f"{-margin} {-margin} {width + 2 * margin} {height + 2 * margin:.0f}"
    return (
        f'<svg{head} viewBox="{box}" role="img" aria-labelledby="{ident}-t {ident}-d">'
        f'<title id="{ident}-t">{escape(title)}</title><desc id="{ident}-d">{escape(description)}</desc>'
        f"{style}{''.join(body)}</svg>"
    )


def figure(
    ident: str,
    title: str,
    description: str,
    chart: Drawn,
    legend: Sequence[tuple[str, str]] = (),
    heading: str | None = None,
    explained: str = "",
) -> str:
    """A chart in a page, for wide and for narrow windows. `legend`: colour and meaning of each entry; `explained`: in words."""
    items = "".join(f'<li><i style="background: var(--{colour})"></i>{escape(text)}</li>' for colour, text in legend)
    key = f'<ul class="legend">{items}</ul>' if items else ""
    words = f'<p class="faint">{escape(explained)}</p>' if explained else ""
    drawn = ""
    for kind, sheet in (("wide", WIDE), ("narrow", NARROW)):
        svg = drawing(f"{ident}-{kind}", title, description[:LONGEST_TEXT], *chart(sheet), width=sheet.width)
        drawn += f'<div class="{kind}">{svg}</div>'
    return f"<figure><h3>{escape(heading or title)}</h3>{words}{key}{drawn}</figure>"


def table_of(
    titles: Sequence[str],
    rows: Iterable[Sequence[str]],
    numbers: Iterable[int] = (),
    summary: str = "The same as a table",
    *,
    is_open: bool = False,
) -> str:
    """A table in a page, collapsed below its `summary` unless it `is_open`; the columns `numbers` are aligned to the right."""
    right, right_aligned = frozenset(numbers), ' class="number"'

    def cell(tag: str, number: int, text: str) -> str:
        short = text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"
        return f"<{tag}{right_aligned if number in right else ''}>{escape(short)}</{tag}>"

    head = "".join(cell("th", number, title) for number, title in enumerate(titles))
    body = "".join(f"<tr>{''.join(cell('td', number, text) for number, text in enumerate(row))}</tr>\n" for row in rows)
    content = f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>"
    return (
        f'<details{" open" if is_open else ""}><summary>{escape(summary)}</summary><div class="scroll">{content}</div></details>'
    )


def bars(rows: Sequence[Bar], sheet: Sheet = WIDE) -> Chart:
    """Horizontal bars of stacked parts on a common scale."""
    body, full_width = [], sheet.width - sheet.labels - sheet.notes
    most = max((row.total for row in rows), default=0) or 1
    for number, row in enumerate(rows):
        y, x = number * sheet.row, float(sheet.labels)
        body.append(_label(row.label, y, sheet))
        for part in row.parts:
            width = max(1.0, part.value / most * full_width) if part.value else 0.0
            body.append(_box(x, y + sheet.above + 3, width, 14, part.colour, part.tooltip))
            x += width
        body.append(_text(x + 6, y + 14, row.note, "faint") if sheet.notes else _text(sheet.width, y + 14, row.note, "faint end"))
    return max(1, len(rows)) * sheet.row, body


def ranges(rows: Sequence[Range], sheet: Sheet = WIDE) -> Chart:
    """Ranges on a common axis, one below the other."""
    body, full_width = [], sheet.width - sheet.labels - sheet.notes
    for number, row in enumerate(rows):
        y, x = number * sheet.row, sheet.labels + row.begin * full_width
        middle = y + sheet.above + 10
        body.append(_label(row.label, y, sheet))
        body.append(f'<line class="axis" x1="{sheet.labels}" x2="{sheet.labels + full_width}" y1="{middle}" y2="{middle}"/>')
        body.append(_box(x, middle - 7, max(2.0, (row.end - row.begin) * full_width), 14, row.colour, row.tooltip))
        body.append(_text(sheet.width, y + 14, row.note, "faint end"))
    return max(1, len(rows)) * sheet.row, body


def lines(series: Sequence[Line], y_axis: Axis, x_axis: Axis, sheet: Sheet = WIDE) -> Chart:
    """Step lines: each value holds until the next one."""
    height = 150
    left, right, top, bottom = sheet.axis, sheet.width - 8, _TOP, height - _BOTTOM
    xs = [x for line in series for x, _ in line.points]
    first, last = min(xs, default=0), max(xs, default=0) + 1  # shows that the last value holds, too
    most = nice_ceiling(max((y for line in series for _, y in line.points), default=0), y_axis.base)
    body = _grid(sheet, bottom, most, y_axis)

    def position(point: tuple[float, float]) -> tuple[float, float]:
        x = left + (point[0] - first) / (last - first) * (right - left)
        return x, bottom - point[1] / most * (bottom - top)

    for line in series:
        points = [position(point) for point in _thinned(line.points)]
        if not points:
            continue
        path = f"M{points[0][0]:.1f} {points[0][1]:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in points[1:]) + f"H{right}"
        if line.filled:
            body.append(f'<path class="area" d="{path}V{bottom}H{points[0][0]:.1f}Z"/>')
        body.append(f'<path class="{line.colour}" d="{path}"/>')
    return height, [*body, *_ends(sheet, height, x_axis)]


def columns(rows: Sequence[Bar], y_axis: Axis, x_axis: Axis, sheet: Sheet = WIDE) -> Chart:
    """Stacked columns side by side."""
    height = 130
    left, top, bottom = sheet.axis, _TOP, height - _BOTTOM
    most = nice_ceiling(max((row.total for row in rows), default=0), y_axis.base)
    body, step = _grid(sheet, bottom, most, y_axis), (sheet.width - left - 8) / max(1, len(rows))
    for number, row in enumerate(rows):
        y = float(bottom)
        for part in row.parts:
            part_height = part.value / most * (bottom - top)
            y -= part_height
            body.append(_box(left + number * step, y, max(1.0, min(step - 1, 40.0)), part_height, part.colour, part.tooltip))
    return height, [*body, *_ends(sheet, height, x_axis)]


def binned(items: Sequence[T], most: int = _MAX_COLUMNS) -> list[Sequence[T]]:
    """The items in at most `most` groups of neighbours, all of the same size except the last."""
    size = max(1, math.ceil(len(items) / most))
    return [items[begin : begin + size] for begin in range(0, len(items), size)]


def nice_ceiling(value: float, base: int = 10) -> float:
    """The smallest round number that is not below the value; for bytes (`base` 1024) round in units of 1024."""
    if value <= 0:
        return 1.0
    unit = float(base) ** math.floor(math.log(value, base)) if base != 10 else 1.0
    scaled = value / unit
    power = 10.0 ** math.floor(math.log10(scaled))
    found = next(step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * power >= scaled * (1 - 1e-9))
    return found * unit if found * unit >= 1 or base == 10 else 1.0


def _thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """At most `MAX_POINTS` points: the highest of each group of neighbours, and the last point."""
    if len(points) <= MAX_POINTS:
        return points
    return [max(group, key=lambda point: point[1]) for group in binned(points[:-1], MAX_POINTS - 1)] + [points[-1]]


def _grid(sheet: Sheet, bottom: int, most: float, axis: Axis) -> list[str]:
    body = []
    for share in (0.0, 0.5, 1.0):
        y = bottom - share * (bottom - _TOP)
        body.append(f'<line class="axis" x1="{sheet.axis}" x2="{sheet.width - 8}" y1="{y:.1f}" y2="{y:.1f}"/>')
        body.append(_text(sheet.axis - 8, y + 4, axis.text(share * most), "faint end"))
    return body


def _ends(sheet: Sheet, height: int, axis: Axis) -> list[str]:
    begin = sheet.axis if sheet.labels else 0
    return [_text(begin, height - 8, axis.ends[0], "faint"), _text(sheet.width - 8, height - 8, axis.ends[1], "faint end")]


def _label(text: str, y: float, sheet: Sheet) -> str:
    short = text if len(text) <= LONGEST_LABEL else f"{text[:12]}…{text[13 - LONGEST_LABEL :]}"
    drawn = _text(sheet.labels - 8, y + 14, short, "end") if sheet.labels else _text(0, y + 14, short, "start")
    return f"<g><title>{escape(text)}</title>{drawn}</g>"


def _text(x: float, y: float, text: str, colour: str) -> str:
    return f'<text class="{colour}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>' if text else ""


def _box(x: float, y: float, width: float, height: float, colour: str, tooltip: str) -> str:
    if height <= 0 or width <= 0:
        return ""
    box = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="{colour}" {box} rx="1.5"><title>{escape(tooltip)}</title></rect>'
