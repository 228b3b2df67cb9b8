"""Results for people: aligned columns, as wide as the terminal, and never cut when stdout is a pipe or file."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Any

from rich.cells import cell_len, set_cell_size

from paimon_cli.cli.messages import say
from paimon_cli.cli.results import Item, Listing
from paimon_cli.cli.value_kinds import Records, cell_text

WIDTH_SAMPLE_ROWS = 1000
"""Rows of a stream whose width decides the columns; later, wider cells shift their line."""
GAP = "  "
NARROWEST_TEXT = 19
"""Columns of text are cut to this at most, which leaves times whole; a terminal that is narrower still wraps the lines."""
BOLD, PLAIN = "\x1b[1m", "\x1b[0m"

Header = tuple[str, bool]
"""Title of a column, and whether it is right-aligned."""


def show(result: Listing | Item) -> None:
    if isinstance(result, Listing):
        _show_listing(result)
    else:
        _show_item(result)


def _show_listing(listing: Listing) -> None:
    shown = [column for column in listing.columns if column.title is not None]
    if listing.heading:
        say(listing.heading)
    if listing.rows:
        headers = [(str(column.title), column.kind.right_aligned) for column in shown]
        print_table(headers, ([column.kind.text(getattr(row, column.name)) for column in shown] for row in listing.rows))
    if listing.footer:
        say(listing.footer)


def _show_item(item: Item) -> None:
    titled = [column for column in item.columns if column.title is not None]
    lines = [column for column in titled if not isinstance(column.kind, Records)]
    width = max(cell_len(str(column.title)) for column in lines)
    for column in lines:
        print(f"{column.title:<{width}}  {column.kind.text(getattr(item.row, column.name))}".rstrip())
    for column in titled:
        if isinstance(column.kind, Records):
            _show_records(str(column.title), column.kind.names, getattr(item.row, column.name))
    if item.footer:
        say(item.footer)


def _show_records(title: str, names: Sequence[str], rows: Sequence[Any]) -> None:
    print(f"\n{title}" if rows else f"{title}: none")
    if rows:
        print_table([(name, False) for name in names], ([cell_text(getattr(row, name)) for name in names] for row in rows))


def is_terminal() -> bool:
    return sys.stdout.isatty()


def print_table(headers: Sequence[Header], rows: Iterable[Sequence[str]]) -> int:
    """Print rows as they come, columns as wide as the first rows need; the number of rows printed."""
    rows = iter(rows)
    sample = list(islice(rows, WIDTH_SAMPLE_ROWS))
    titles, rights = zip(*headers, strict=True)
    widths = [max(map(cell_len, column)) for column in zip(titles, *sample, strict=True)]
    terminal = is_terminal()
    if terminal:
        widths = _fitted(widths, rights, shutil.get_terminal_size().columns)
    head = _line(titles, widths, rights, cut=terminal)
    coloured = terminal and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    print(f"{BOLD}{head}{PLAIN}" if coloured else head)
    count = 0
    for row in chain(sample, rows):
        print(_line(row, widths, rights, cut=terminal))
        count += 1
    return count


def _fitted(widths: Sequence[int], rights: Sequence[bool], available: int) -> list[int]:
    """Narrower columns of text, the widest first, until the line fits or none can give way."""
    fitted = list(widths)
    texts = [index for index, right in enumerate(rights) if not right]
    while sum(fitted) + len(GAP) * (len(fitted) - 1) > available:
        widest = max(texts, key=fitted.__getitem__, default=None)
        if widest is None or fitted[widest] <= NARROWEST_TEXT:
            break
        fitted[widest] -= 1
    return fitted


def _line(cells: Sequence[str], widths: Sequence[int], rights: Sequence[bool], *, cut: bool) -> str:
    sized = (_sized(cell, width, right, cut) for cell, width, right in zip(cells, widths, rights, strict=True))
    return GAP.join(sized).rstrip()


def _sized(cell: str, width: int, right: bool, cut: bool) -> str:
    space = " " * (width - cell_len(cell))
    if cut and cell_len(cell) > width:
        return set_cell_size(cell, width - 1) + "…"
    return space + cell if right else cell + space
