"""Results for people: aligned columns that fit the terminal. In pipes and files nothing is cut, and empty columns are left out.

On a narrow terminal, columns are first hidden in the order of `Column.hide` and listed below the table; then long texts are
shortened; if the table still does not fit, it is shown as records, one line per value. `--wide` shows all columns, `--vertical`
shows records.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple

from rich.cells import cell_len, set_cell_size

from paimon_cli.cli.columns import RECORDS, TO_DO, columns_of
from paimon_cli.cli.output import Item, Listing
from paimon_cli.cli.results import NO_VALUE, Verbosity, View, bold, printable, say, verbosity
from paimon_cli.cli.terminal import paged

WIDTH_SAMPLE_ROWS = 1000
"""The first rows, which determine the column widths; wider cells in later rows shift their line."""
GAP = "  "
NARROWEST_TEXT = 19
"""The width down to which texts may be shortened; times still fit."""
ALL = View()


class Header(NamedTuple):
    """The head of a column. `hide`: columns with lower numbers are hidden first, 0 never; `may_shorten`: texts may be cut."""

    title: str
    right_aligned: bool = False
    hide: int = 0
    may_shorten: bool = True


@dataclass(frozen=True)
class Layout:
    """The columns that a table shows and their widths; `footer` lists those that were hidden or shortened."""

    shown: tuple[int, ...]
    widths: tuple[int, ...]
    footer: str = ""


def show(result: Listing | Item, view: View = ALL) -> None:
    if isinstance(result, Listing):
        with paged(_lines_of(result, view)):
            _show_listing(result, view)
    else:
        _show_item(result, view)


def _lines_of(listing: Listing, view: View) -> int:
    """The minimum number of lines of a listing."""
    per_row = len(listing.columns) + 1 if view.vertical else 1
    return len(listing.rows) * per_row + sum(text.count("\n") + 1 for text in (listing.heading, listing.footer) if text)


def _show_listing(listing: Listing, view: View) -> None:
    shown = [column for column in listing.columns if column.title is not None]
    is_quiet = verbosity() is Verbosity.QUIET
    if listing.heading and not is_quiet:
        say(wrapped(listing.heading))
    if listing.rows:
        headers = [Header(str(c.title), c.kind.right_aligned, c.hide, c.kind.may_shorten) for c in shown]
        rows = ([column.kind.text(getattr(row, column.name)) for column in shown] for row in listing.rows)
        print_table(headers, rows, view)
    if listing.footer and not (is_quiet and listing.rows):
        say(wrapped(listing.footer))


def _show_item(item: Item, view: View) -> None:
    titled = [column for column in item.columns if column.title is not None]
    lines = [column for column in titled if column.kind not in (RECORDS, TO_DO)]
    width = max((cell_len(str(column.title)) for column in lines), default=0)
    for column in lines:
        text, indent = column.kind.text(getattr(item.row, column.name)), width + len(GAP)
        line = f"{column.title:<{indent}}{text}".rstrip()
        has_long_word = indent + max(map(cell_len, text.split()), default=0) > shutil.get_terminal_size().columns
        print(line if has_long_word else wrapped(line, indent))
    lists = [column for column in titled if column.kind in (RECORDS, TO_DO)]
    for number, column in enumerate(lists):
        _show_records(str(column.title), getattr(item.row, column.name), view, is_first=not lines and number == 0)


def _show_records(title: str, rows: Sequence[Any], view: View, *, is_first: bool) -> None:
    print(f"{'' if is_first else chr(10)}{title}" if rows else f"{title}: none")
    if rows:
        shown = [column for column in columns_of(type(rows[0])) if column.title is not None]
        headers = [Header(str(column.title).lower(), column.kind.right_aligned) for column in shown]
        print_table(headers, ([column.kind.text(getattr(row, column.name)) for column in shown] for row in rows), view)


def say_findings(findings: Iterable[Any], margin: str = "") -> None:
    """Print each finding, with its command on a separate line that is never wrapped."""
    for finding in findings:
        severity = finding.severity.upper()
        head = f"{margin}{severity:<7}  "
        say(wrapped(f"{head}{finding.code}  {printable(finding.finding)}", indent=len(head)), severity)
        if finding.command:
            say(f"{' ' * len(head)}run: {printable(finding.command)}")


def wrapped(text: str, indent: int = 2) -> str:
    """Wrap lines that are longer than the terminal, with an indent for continuation lines."""
    if not is_terminal():
        return text
    width = shutil.get_terminal_size().columns
    fill = partial(textwrap.fill, width=width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(line if cell_len(line) <= width else fill(line) for line in text.split("\n"))


def is_terminal() -> bool:
    return sys.stdout.isatty()


def print_table(headers: Sequence[Header | tuple[str, bool]], rows: Iterable[Sequence[str]], view: View = ALL) -> int:
    """Print rows as they arrive, with column widths by the first rows; returns the number of rows."""
    heads = [Header(*header) for header in headers]
    rows = iter(rows)
    sample = list(islice(rows, WIDTH_SAMPLE_ROWS))
    columns = list(zip(*sample, strict=True)) if sample else [() for _ in heads]
    widths = [max(map(cell_len, (head.title, *cells))) for head, cells in zip(heads, columns, strict=True)]
    empty = {number for number, cells in enumerate(columns) if all(cell in ("", NO_VALUE) for cell in cells)}
    layout = laid_out(heads, widths, view, empty)
    if layout is None:
        return _print_records([head.title for head in heads], chain(sample, rows))
    rights = [heads[number].right_aligned for number in layout.shown]
    print_head(heads, layout)
    count = 0
    for row in chain(sample, rows):
        print(_line([row[number] for number in layout.shown], layout.widths, rights, cut=is_terminal() and not view.wide))
        count += 1
    if layout.footer:
        print(wrapped(layout.footer))
    return count


def print_head(heads: Sequence[Header], layout: Layout) -> None:
    titles = [heads[number].title for number in layout.shown]
    head = _line(titles, layout.widths, [heads[number].right_aligned for number in layout.shown], cut=False)
    print(bold(head))


def laid_out(heads: Sequence[Header], widths: Sequence[int], view: View, empty: Iterable[int] = ()) -> Layout | None:
    """The layout of a table, or None if it must be shown as records. `empty`: columns without values, which are hidden first."""
    everything = tuple(range(len(heads)))
    if view.vertical:
        return None
    if view.wide or not is_terminal():
        needless = set() if view.wide else {number for number in empty if heads[number].hide}  # they only make lines long
        shown = tuple(number for number in everything if number not in needless)
        return Layout(shown, tuple(widths[number] for number in shown))
    available = shutil.get_terminal_size().columns
    kept = list(everything)
    for number in _hiding_order(heads, frozenset(empty)):
        if _width(widths[n] for n in kept) <= available:
            break
        kept.remove(number)
    fitted = _shortened(heads, {n: widths[n] for n in kept}, available)
    if fitted is None:
        return None
    hidden = [heads[n].title.lower() for n in everything if n not in fitted]
    cut = [heads[n].title.lower() for n, width in fitted.items() if width < widths[n]]
    notes = [f"{what}: {', '.join(names)}" for what, names in (("hidden", hidden), ("shortened", cut)) if names]
    return Layout(tuple(fitted), tuple(fitted.values()), f"{'; '.join(notes)} (--wide shows all)" if notes else "")


def _hiding_order(heads: Sequence[Header], empty: frozenset[int]) -> list[int]:
    hideable = [number for number, head in enumerate(heads) if head.hide]
    return sorted(hideable, key=lambda number: (number not in empty, heads[number].hide))


def _width(widths: Iterable[int]) -> int:
    found = list(widths)
    return sum(found) + len(GAP) * (len(found) - 1)


def _shortened(heads: Sequence[Header], widths: dict[int, int], available: int) -> dict[int, int] | None:
    """The widths after shortening text columns, widest first, until a line fits; None if that is not enough."""
    fitted = dict(widths)
    texts = [n for n in fitted if heads[n].may_shorten and not heads[n].right_aligned]
    least = {n: min(fitted[n], max(NARROWEST_TEXT, cell_len(heads[n].title))) for n in texts}
    if _width({**fitted, **least}.values()) > available:
        return None
    while (excess := _width(fitted.values()) - available) > 0:
        widest = max((n for n in texts if fitted[n] > least[n]), key=fitted.__getitem__)
        next_width = max((fitted[n] for n in texts if fitted[n] < fitted[widest]), default=0)
        fitted[widest] -= max(1, min(excess, fitted[widest] - max(least[widest], next_width)))
    return fitted


def _print_records(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> int:
    """Print one line per value and one block per row."""
    count = 0
    for count, row in enumerate(rows, start=1):
        print("\n".join(record_lines(titles, row, count)))
    return count


def record_lines(titles: Sequence[str], row: Sequence[str], number: int) -> Iterator[str]:
    width = max(map(cell_len, titles), default=0)
    yield bold(f"-- {number:,} --")
    for title, cell in zip(titles, row, strict=True):
        yield f"{title}{' ' * (width - cell_len(title))}  {cell}".rstrip()


def _line(cells: Sequence[str], widths: Sequence[int], rights: Sequence[bool], *, cut: bool) -> str:
    return GAP.join(sized(*cell, cut) for cell in zip(cells, widths, rights, strict=True)).rstrip()


def sized(cell: str, width: int, right: bool, cut: bool) -> str:
    space = " " * (width - cell_len(cell))
    if cut and not right and cell_len(cell) > width:
        return set_cell_size(cell, width - 1) + "…"
    return space + cell if right else cell + space
