"""Draws the three arrangements of writers and committers, for docs/concurrency.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from paimon_cli.inspect.charts import WIDTH, drawing, escape

WRITERS, BUCKETS, HEIGHT = 2, 4, 226
TOP, BOTTOM = 30, 200
GAP = 30
PANEL = (WIDTH + GAP) / 3
WRITER, BUCKET, COMMITTER = (0.0, 66.0), (92.0, 36.0), (154.0, 66.0)
"""Where the boxes begin in a panel, and how wide they are: the longest text takes two thirds of it in any font."""


@dataclass(frozen=True)
class Arrangement:
    """`owned`: whether each bucket has one writer; `committers`: one for all, or one for each writer."""

    title: str
    owned: bool
    committers: int
    wrong: str

    def writes(self, writer: int, bucket: int) -> bool:
        return not self.owned or bucket % WRITERS == writer


ARRANGEMENTS = (
    Arrangement("As in a Flink job", True, 1, "nothing can go wrong"),
    Arrangement("Topology 1", True, WRITERS, "lost races: tried again"),
    Arrangement("Topology 2", False, WRITERS, "disorder, lost updates"),
)


def topology_picture() -> str:
    """Which writer writes to which buckets, and who commits."""
    body = [shape for number, one in enumerate(ARRANGEMENTS) for shape in _panel(number * PANEL, one)]
    says = "; ".join(
        f"{one.title}: {'one writer' if one.owned else 'any writer'} per bucket, "
        f"{'one committer' if one.committers == 1 else 'each writer commits'}"
        for one in ARRANGEMENTS
    )
    return drawing("topologies", "Which writers may do what", says, HEIGHT, body, standalone=True)


def _panel(left: float, one: Arrangement) -> Iterator[str]:
    """Writers on the left, buckets in the middle, committers on the right."""
    writers = [_place(number, WRITERS) for number in range(WRITERS)]
    buckets = [_place(number, BUCKETS) for number in range(BUCKETS)]
    committers = [_place(number, one.committers) for number in range(one.committers)]
    colours = ("overwrite", "append")
    for writer, y in enumerate(writers):
        for bucket, other in enumerate(buckets):
            if one.writes(writer, bucket):
                yield _line(left + _end(WRITER), y, left + BUCKET[0], other, colours[writer])
    for bucket, y in enumerate(buckets):
        for writer, other in enumerate(committers):
            if one.committers == 1 or one.writes(writer, bucket):
                colour = "analyze" if one.committers == 1 else colours[writer]
                yield _line(left + _end(BUCKET), y, left + COMMITTER[0], other, colour)
    yield _text(left, 16, one.title, "")
    for writer, y in enumerate(writers):
        yield _box(left, y, WRITER, f"writer {'AB'[writer]}", colours[writer])
    for bucket, y in enumerate(buckets):
        yield _box(left, y, BUCKET, f"b {bucket}", "compact")
    for number, y in enumerate(committers):
        yield _box(left, y, COMMITTER, "commits", "analyze" if one.committers == 1 else colours[number])
    yield _text(left, HEIGHT - 4, one.wrong, "faint")


def _end(box: tuple[float, float]) -> float:
    return sum(box)


def _place(number: int, count: int) -> float:
    return TOP + (BOTTOM - TOP) * (number + 0.5) / count


def _line(x: float, y: float, to_x: float, to_y: float, colour: str) -> str:
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" style="stroke: var(--{colour}); stroke-width: 1.5"/>'


def _box(left: float, y: float, box: tuple[float, float], text: str, colour: str) -> str:
    x, width = left + box[0], box[1]
    shape = f'x="{x:.1f}" y="{y - 13:.1f}" width="{width}" height="26" rx="4"'
    style = f"fill: var(--panel); stroke: var(--{colour}); stroke-width: 1.5"
    return f'<rect {shape} style="{style}"/>{_text(x + width / 2, y + 4, text, "", "middle")}'


def _text(x: float, y: float, text: str, kind: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
