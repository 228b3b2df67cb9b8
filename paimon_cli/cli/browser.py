"""The terminal browser: lists of tables, snapshots, buckets, sorted runs, files, row groups and rows, each opening the next.

A `Level` defines a list and what its rows open; `Page` shows any level. Lists are read in a thread, so that the browser stays
responsive.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, Static

from paimon_cli.cli.browser_dialogs import KEYS, Dialog, cut, fitting
from paimon_cli.cli.columns import Column, columns_of
from paimon_cli.cli.results import cell_text, counted, human_size, printable
from paimon_cli.errors import PaimonError
from paimon_cli.inspect.bucket_report import BucketRow
from paimon_cli.inspect.file_report import FileRow, RowGroupRow
from paimon_cli.inspect.lsm_report import RunRow
from paimon_cli.inspect.version_report import SnapshotRow
from paimon_cli.read.difference import FileChange
from paimon_cli.storage.redaction import redact, without_login

if TYPE_CHECKING:
    from paimon_cli.api.catalog import Catalog
    from paimon_cli.api.table import Table

MAX_ROWS = 1000
"""The most rows of a list."""


@dataclass(frozen=True)
class Listed:
    """The content of a level: column titles, cells as text, alignment of the columns, and the objects that rows stand for.

    `hides`: the order in which columns make room on a narrow screen; 0 for last.
    """

    titles: Sequence[str]
    cells: Sequence[Sequence[str]]
    rights: Sequence[bool]
    rows: Sequence[Any]
    hides: Sequence[int]


@dataclass(frozen=True)
class Level:
    """A list, and the levels that its rows open. `follows`: whether it shows the latest state and is refreshed."""

    title: str
    load: Callable[[], Listed]
    open: Callable[[Any], Level] | None = None
    diff: Callable[[Any, Any], Level] | None = None
    follows: bool = False


def listed(shape: type, rows: Sequence[Any], names: Sequence[str] = ()) -> Listed:
    """Rows of a dataclass, with the titles and texts that commands print."""
    columns: list[Column] = [c for c in columns_of(shape) if c.title is not None and (not names or c.name in names)]
    cells = [[column.kind.text(getattr(row, column.name)) for column in columns] for row in rows[:MAX_ROWS]]
    titles, rights = [str(c.title) for c in columns], [c.kind.right_aligned for c in columns]
    return Listed(titles, cells, rights, rows[:MAX_ROWS], [c.hide for c in columns])


def tables_level(catalog: Catalog, place: str | None) -> Level:
    from paimon_cli.catalog.table_listing import TableRow

    def load() -> Listed:
        names = ("table", "primary_keys", "bucket", "records", "snapshot_id", "time", "problem")
        return listed(TableRow, catalog.tables(place), names)

    def enter(row: Any) -> Level:
        is_directory = place is not None and ("/" in place or os.path.isdir(place))
        return snapshots_level(catalog.table(row.path if is_directory else row.table))

    return Level(f"tables of {place or without_login(catalog.url or 'the catalog')}", load, enter, follows=True)


def snapshots_level(table: Table) -> Level:
    def load() -> Listed:
        table.refresh()
        return listed(SnapshotRow, table.snapshots(limit=MAX_ROWS))

    def diff(one: Any, other: Any) -> Level:
        before, after = sorted((one.id, other.id))
        changes: Callable[[], Listed] = lambda: listed(FileChange, table.file_changes(before, after))  # noqa: E731
        return Level(f"{table.name}: files from snapshot {before} to {after}", changes)

    return Level(f"{table.name}: snapshots", load, lambda row: buckets_level(table, row.id), diff, follows=True)


def buckets_level(table: Table, snapshot: int) -> Level:
    def load() -> Listed:
        return listed(BucketRow, table.buckets(snapshot=snapshot))

    def enter(row: BucketRow) -> Level:
        return (files_level if row.sorted_runs is None else tree_level)(table, snapshot, row)

    return Level(f"{table.name} @ snapshot {snapshot}: buckets", load, enter)


def tree_level(table: Table, snapshot: int, bucket: BucketRow) -> Level:
    def load() -> Listed:
        found = [tree for tree in table.lsm(snapshot=snapshot, bucket=[bucket.bucket]) if tree.partition == bucket.partition]
        return listed(RunRow, [run for tree in found for run in tree.runs])

    return Level(
        _bucket_title(table, snapshot, bucket, "sorted runs"), load, lambda run: files_level(table, snapshot, bucket, run)
    )


def files_level(table: Table, snapshot: int, bucket: BucketRow, run: RunRow | None = None) -> Level:
    def load() -> Listed:
        files = [file for file in table.files(snapshot=snapshot, bucket=[bucket.bucket]) if file.partition == bucket.partition]
        return listed(FileRow, [file for file in files if run is None or _is_of(file, run)])

    def enter(file: FileRow) -> Level:
        return row_groups_level(table, snapshot, file.file)

    return Level(_bucket_title(table, snapshot, bucket, "files" if run is None else f"files of run {run.run}"), load, enter)


def _is_of(file: FileRow, run: RunRow) -> bool:
    """Whether the file belongs to the run: above level 0 a run is all files of the level, at level 0 a single file."""
    if run.level != file.level:
        return False
    return run.level > 0 or (file.rows, file.size, file.min_key, file.max_key) == (run.rows, run.size, run.min_key, run.max_key)


def row_groups_level(table: Table, snapshot: int, file: str) -> Level:
    def load() -> Listed:
        return listed(RowGroupRow, table.row_groups(file, snapshot=snapshot))

    return Level(f"{file}: row groups", load, lambda row: rows_level(table, snapshot, file, row.row_group))


def rows_level(table: Table, snapshot: int, file: str, number: int) -> Level:
    def load() -> Listed:
        rows = table.row_group(file, number, snapshot=snapshot, limit=MAX_ROWS)
        values = [[cell_text(_shown(value)) for value in row.values()] for row in rows.to_pylist()]
        return Listed(rows.column_names, values, [False] * rows.num_columns, values, [0] * rows.num_columns)

    return Level(f"{file}: stored rows of row group {number}", load)


def _shown(value: Any) -> Any:
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)


def _bucket_title(table: Table, snapshot: int, bucket: BucketRow, what: str) -> str:
    partition = f"{bucket.partition} / " if bucket.partition else ""
    return f"{table.name} @ snapshot {snapshot}, {partition}bucket {bucket.bucket}, {human_size(bucket.size)}: {what}"


SCROLL_BAR = 2
"""Columns of the terminal that a vertical scroll bar takes."""


class Lines(DataTable[Text]):
    """The list of a level."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select_cursor", "Open")]

    def __init__(self, can_open: bool) -> None:
        super().__init__(cursor_type="row", zebra_stripes=True)
        self._can_open = can_open

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self._can_open if action == "select_cursor" else True


class Page(Screen[None]):
    """One level on screen: its title, its list, a status line, and the keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace,left", "back", "Back"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("v,space", "details", "Row", key_display="v"),
        Binding("w", "wide", "All columns"),
        Binding("d", "diff", "Mark, then diff", show=False),
        Binding("r", "reload", "Reload", show=False),
        Binding("l", "live", "Live on/off", show=False),
        Binding("question_mark", "keys", "Keys", key_display="?"),
        Binding("q", "app.quit", "Quit"),
    ]
    CSS = """
    #title { text-style: bold; padding: 0 1; } #status { padding: 0 1; color: $text-muted; } DataTable { height: 1fr; }
    #filter { display: none; } #filter.open { display: block; }
    """

    def __init__(self, level: Level, seconds: float) -> None:
        super().__init__()
        self.level = level
        self.content: Listed | None = None
        self.shown: Sequence[int] = ()
        self.marked: Any = None
        self.is_live = True
        self.is_wide = False
        self._is_reading = False
        self._seconds = seconds
        self._width = 0

    def compose(self) -> ComposeResult:
        yield Static(Text(printable(self.level.title)), id="title")
        yield Lines(can_open=self.level.open is not None)
        yield Input(placeholder="only rows that contain this text; enter keeps it, escape ends it", id="filter")
        yield Static("reading ...", id="status")
        yield Footer()

    def on_mount(self) -> None:
        self.action_reload()
        if self.level.follows:
            self.set_interval(self._seconds, self._follow)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide keys that do nothing on this level."""
        available = {"diff": self.level.diff, "live": self.level.follows}
        return bool(available.get(action, True))

    def _follow(self) -> None:
        if self.is_live and self.is_current:
            self.action_reload()

    def action_reload(self) -> None:
        """Read the list again, unless an earlier read is still running."""
        if not self._is_reading:
            self._is_reading = True
            self.run_worker(self._read, thread=True)

    def _read(self) -> None:
        try:
            content = self.level.load()
        except PaimonError as error:
            self.app.call_from_thread(self.say, redact(error.message))
        else:
            self.app.call_from_thread(self.show_content, content)
        finally:
            self._is_reading = False

    def show_content(self, content: Listed) -> None:
        """Fill the list with the columns that fit and the rows that the filter lets through, keeping the cursor if possible."""
        table = self.query_one(Lines)
        chosen, self.content = table.cursor_row, content
        wanted = self.query_one("#filter", Input).value.casefold()
        self.shown = [number for number, cells in enumerate(content.cells) if any(wanted in cell.casefold() for cell in cells)]
        self._width = self.size.width
        room = None if self.is_wide else self._width - SCROLL_BAR
        columns = fitting(content.titles, content.cells, content.hides, room)
        table.clear(columns=True)
        for number, width in columns:
            table.add_column(_cell(content.titles[number], content.rights[number], width), width=width)
        for row in self.shown:
            table.add_row(*(_cell(content.cells[row][number], content.rights[number], width) for number, width in columns))
        if self.shown:
            table.move_cursor(row=min(chosen, len(self.shown) - 1))
        self.say(self._summary(content, len(content.titles) - len(columns)))

    def _summary(self, content: Listed, hidden: int) -> str:
        parts = [counted(len(self.shown), "line")]
        if len(self.shown) < len(content.cells):
            parts = [f"{len(self.shown)} of {counted(len(content.cells), 'line')}"]
        if len(content.cells) == MAX_ROWS:
            parts.append(f"the first {MAX_ROWS}")
        if self.level.follows and self.is_live:
            parts.append("live")
        if hidden:
            parts.append(f"{counted(hidden, 'column')} hidden (v: this row, w: all)")
        return ", ".join(parts)

    def on_resize(self) -> None:
        if self.content is not None and self.size.width != self._width:
            self.show_content(self.content)

    def say(self, text: str) -> None:
        self.query_one("#status", Static).update(Text(printable(text)))

    @property
    def chosen(self) -> Any:
        """The row under the cursor; None in an empty list."""
        number = self._number
        return None if number is None or self.content is None else self.content.rows[number]

    @property
    def _number(self) -> int | None:
        """The number in the content of the row under the cursor."""
        row = self.query_one(Lines).cursor_row
        return self.shown[row] if row < len(self.shown) else None

    def on_data_table_row_selected(self) -> None:
        """Open the row under the cursor."""
        if self.level.open is None or self.chosen is None:
            return
        try:
            self.app.push_screen(Page(self.level.open(self.chosen), self._seconds))
        except PaimonError as error:
            self.say(redact(error.message))

    def action_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.add_class("open")
        field.focus()

    def on_input_changed(self) -> None:
        if self.content is not None:
            self.show_content(self.content)

    def on_input_submitted(self) -> None:
        field = self.query_one("#filter", Input)
        field.set_class(bool(field.value), "open")
        self.query_one(Lines).focus()

    def action_wide(self) -> None:
        self.is_wide = not self.is_wide
        if self.content is not None:
            self.show_content(self.content)

    def action_details(self) -> None:
        """Show all values of the row under the cursor, uncut."""
        if self.content is not None and self._number is not None:
            cells = self.content.cells[self._number]
            self.app.push_screen(Dialog(self.level.title, list(zip(self.content.titles, cells, strict=True))))

    def action_keys(self) -> None:
        self.app.push_screen(Dialog("Keys", KEYS))

    def action_back(self) -> None:
        field = self.query_one("#filter", Input)
        if field.has_class("open"):
            field.value = ""
            field.remove_class("open")
            self.query_one(Lines).focus()
            return
        if len(self.app.screen_stack) > 2:
            self.app.pop_screen()

    def action_diff(self) -> None:
        if self.level.diff is None or self.chosen is None:
            return
        if self.marked is None:
            self.marked = self.chosen
            self.say(f"marked snapshot {self.marked.id}; choose another one and press d")
            return
        one, self.marked = self.marked, None
        self.app.push_screen(Page(self.level.diff(one, self.chosen), self._seconds))

    def action_live(self) -> None:
        self.is_live = not self.is_live
        self.say("live" if self.is_live else "not live; press r to reload")


def _cell(text: str, right: bool, width: int) -> Text:
    return Text(cut(text, width), justify="right" if right else "left")


class Browser(App[None]):
    """The application: a stack of pages."""

    TITLE = "paimon-cli"
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, first: Level, seconds: float) -> None:
        super().__init__()
        self._first = first
        self._seconds = seconds

    def on_mount(self) -> None:
        self.push_screen(Page(self._first, self._seconds))

    @property
    def titles(self) -> Iterator[str]:
        """The titles of the open pages, first page first."""
        return (page.level.title for page in self.screen_stack if isinstance(page, Page))
