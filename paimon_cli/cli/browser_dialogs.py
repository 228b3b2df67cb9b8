"""What the terminal browser shows besides its lists: the keys, all values of a row, and the columns that fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.table import Table as Grid
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from paimon_cli.cli.results import printable

WIDEST, NARROWEST = 60, 12
"""The most characters of a column, and the fewest to which one is cut so that others fit."""
_PADDING = 2
"""Columns of the terminal between two values."""
KEYS = (
    ("up, down, PgUp, PgDn", "move"),
    ("enter", "open the row under the cursor"),
    ("escape, backspace", "go back, or end the filter"),
    ("/", "show only rows that contain a text"),
    ("v, space", "show all values of the row, uncut"),
    ("w", "show all columns, even if they are wider than the screen: left and right scroll"),
    ("d", "mark a snapshot; on another one: the files in which both differ"),
    ("r", "read the list again"),
    ("l", "stop or continue reading it while it changes"),
    ("q", "quit"),
)


class Dialog(ModalScreen[None]):
    """Names and values above the page, until a key closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,space,v,q,question_mark", "dismiss_it", "Close", show=False),
    ]
    CSS = """
    Dialog { align: center middle; }
    #dialog { width: 90%; max-width: 100; height: auto; max-height: 90%; border: round $primary; padding: 1 2;
      background: $surface; }
    """

    def __init__(self, title: str, pairs: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self.pairs = pairs
        self._title = title

    def compose(self) -> ComposeResult:
        grid = Grid.grid(padding=(0, _PADDING))
        grid.add_column(style="bold", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, value in self.pairs:
            grid.add_row(Text(printable(name)), Text(printable(value)))
        with VerticalScroll(id="dialog"):
            yield Static(Text(printable(self._title), style="bold"))
            yield Static(Text())
            yield Static(grid)

    def action_dismiss_it(self) -> None:
        self.dismiss(None)


def fitting(
    titles: Sequence[str], cells: Sequence[Sequence[str]], hides: Sequence[int], width: int | None
) -> list[tuple[int, int]]:
    """The columns to show, by number, with their widths. `width`: None for all columns; `hides`: which ones go first, 0 for last.

    Where that is not enough, the widest columns are cut, and then columns are left out from the right.
    """
    widths = {number: _width(title, [row[number] for row in cells]) for number, title in enumerate(titles)}
    if width is None:
        return list(widths.items())

    def excess() -> int:
        return sum(widths.values()) + _PADDING * len(widths) - width

    for number in sorted((n for n in widths if hides[n]), key=lambda n: hides[n]):
        if excess() > 0:
            del widths[number]
    while excess() > 0 and (widest := max(widths, key=lambda n: widths[n])) is not None and widths[widest] > NARROWEST:
        widths[widest] = max(NARROWEST, widths[widest] - excess())
    while excess() > 0 and len(widths) > 1:
        del widths[max(widths)]
    return list(widths.items())


def _width(title: str, cells: Sequence[str]) -> int:
    return min(WIDEST, max(map(cell_len, (printable(title), *map(printable, cells)))))


def cut(text: str, width: int) -> str:
    """The text in at most this many columns of a terminal; an ellipsis stands for what is left out."""
    text = printable(text)
    if cell_len(text) <= width:
        return text
    shown = text[: width - 1]
    while cell_len(shown) > width - 1:
        shown = shown[:-1]
    return f"{shown}…"
