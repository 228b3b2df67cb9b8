"""Results for people: Rich tables as wide as the terminal, and never cut when stdout is a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from paimon_cli.cli.results import Item, Listing
from paimon_cli.cli.value_kinds import Records, cell_text

UNLIMITED_WIDTH = 1 << 20
WIDTH_SAMPLE_ROWS = 1000
"""Rows of a stream whose width decides the columns; later, wider cells shift their line."""


def stdout_console() -> Console:
    """Colours and width of the terminal (NO_COLOR, COLUMNS are Rich's business); no limit for pipes and files."""
    terminal = sys.stdout.isatty()
    return Console(
        file=sys.stdout, width=None if terminal else UNLIMITED_WIDTH, soft_wrap=False, highlight=False, markup=False, emoji=False
    )


def show(result: Listing | Item) -> None:
    if isinstance(result, Listing):
        _show_listing(result)
    else:
        _show_item(result)


def _show_listing(listing: Listing) -> None:
    shown = [column for column in listing.columns if column.title is not None]
    if listing.heading:
        print(listing.heading)
    if listing.rows:
        cells = [[column.kind.text(getattr(row, column.name)) for column in shown] for row in listing.rows]
        _print_table([(str(column.title), column.kind.right_aligned) for column in shown], cells)
    if listing.footer:
        print(listing.footer)


def _show_item(item: Item) -> None:
    titled = [column for column in item.columns if column.title is not None]
    lines = [column for column in titled if not isinstance(column.kind, Records)]
    width = max(cell_len(str(column.title)) for column in lines)
    for column in lines:
        print(f"{column.title:<{width}}  {column.kind.text(getattr(item.row, column.name))}".rstrip())
    for column in titled:
        if isinstance(column.kind, Records):
            _show_records(str(column.title), column.kind, getattr(item.row, column.name))
    if item.footer:
        print(item.footer)


def _show_records(title: str, kind: Records, rows: Sequence[Any]) -> None:
    print(f"\n{title}" if rows else f"{title}: none")
    if rows:
        _print_table(
            [(name, False) for name in kind.names], [[cell_text(getattr(row, name)) for name in kind.names] for row in rows]
        )


def _print_table(columns: Sequence[tuple[str, bool]], cells: list[list[str]]) -> None:
    """`columns`: title and whether it is right-aligned."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for title, right in columns:
        table.add_column(title, justify="right" if right else "left", no_wrap=True)
    for row in cells:
        table.add_row(*map(Text, row))
    console = stdout_console()
    with console.capture() as capture:
        console.print(table)
    sys.stdout.writelines(line.rstrip() + "\n" for line in capture.get().splitlines())


def stream_rows(names: Sequence[str], right_aligned: Sequence[bool], rows: Iterable[Sequence[str]]) -> int:
    """Print rows of text as they come, columns as wide as the first rows need; the number of rows printed."""
    rows = iter(rows)
    sample = list(islice(rows, WIDTH_SAMPLE_ROWS))
    widths = [max(map(cell_len, column)) for column in zip(names, *sample, strict=True)]
    print(_line(names, widths, right_aligned))
    count = 0
    for row in chain(sample, rows):
        print(_line(row, widths, right_aligned))
        count += 1
    return count


def _line(cells: Sequence[str], widths: Sequence[int], right_aligned: Sequence[bool]) -> str:
    padded = (_pad(cell, width, right) for cell, width, right in zip(cells, widths, right_aligned, strict=True))
    return "  ".join(padded).rstrip()


def _pad(cell: str, width: int, right: bool) -> str:
    space = " " * max(0, width - cell_len(cell))
    return space + cell if right else cell + space
