"""The rounds of a service as a table on the terminal, which is redrawn while they go on."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table as Grid
from rich.text import Text

from paimon_cli.cli.results import counted, human_size, printable
from paimon_cli.cli.service_log import RoundLines, ServiceLog, table_text
from paimon_cli.storage.redaction import redact

if TYPE_CHECKING:
    from paimon_cli.jobs.engine import Progress
    from paimon_cli.jobs.service.table_round import ServiceRound, TableRound

_TITLES = ("Table", "State", "Runs", "Buckets", "Files", "Read", "Written", "Conflicts", "Snapshot")


@dataclass
class TableLine:
    """The totals of one table over all rounds. `runs`: the most sorted runs in a bucket by the last plan."""

    state: str = "waiting"
    runs: int = 0
    buckets: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    conflicts: int = 0
    snapshot: int | None = None

    def add(self, done: TableRound) -> None:
        summary = done.summary
        self.state = done.state
        self.runs = done.figures.most_runs
        self.buckets += summary.buckets
        self.files_before += summary.files_before
        self.files_after += summary.files_after
        self.bytes_read += summary.bytes_read
        self.bytes_written += summary.bytes_written
        self.conflicts += summary.conflicts
        if summary.snapshots:
            self.snapshot = summary.snapshots[-1].id


class LiveDisplay(ServiceLog):
    """A live table on the terminal, redrawn a few times per second."""

    def __init__(self, lines: RoundLines, console: Console | None = None) -> None:
        super().__init__(lines)
        self._lines_of: dict[str, TableLine] = {}
        self._footer = "starting"
        self._console = console or Console(stderr=True)
        self._live = Live(console=self._console, refresh_per_second=4, get_renderable=self.picture)

    def __enter__(self) -> LiveDisplay:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()

    def picture(self) -> Group:
        grid = Grid(*_TITLES, box=None, pad_edge=False, header_style="bold")
        for column in grid.columns[2:]:
            column.justify = "right"
        for name, line in list(self._lines_of.items()):
            files, snapshot = (
                f"{line.files_before:,} -> {line.files_after:,}",
                "-" if line.snapshot is None else str(line.snapshot),
            )
            sizes = (human_size(line.bytes_read), human_size(line.bytes_written))
            cells = (name, line.state, str(line.runs), f"{line.buckets:,}", files, *sizes, str(line.conflicts), snapshot)
            grid.add_row(*(Text(printable(cell)) for cell in cells))
        return Group(grid, Text(self._footer, style="dim"))

    def table_begins(self, number: int, table: str) -> Progress:
        self._live.start()
        line = self._lines_of.setdefault(table, TableLine())
        line.state, self._footer = "planning", f"round {number}"
        return LineProgress(line)

    def table_done(self, done: TableRound) -> None:
        self._lines_of.setdefault(done.table, TableLine()).add(done)
        if done.error is not None and (text := table_text(done)):
            self._console.print(Text(printable(redact(text))))

    def round_done(self, done: ServiceRound, pause_seconds: float | None) -> None:
        self._lines.show(done)
        then = "" if pause_seconds is None else f" · next in {pause_seconds:g} s"
        tables = counted(len(done.tables), "table")
        self._footer = f"round {done.number} of {tables} in {done.seconds:.1f} s{then} · Ctrl-C to stop"


class LineProgress:
    """Shows the progress of a compaction in the line of its table."""

    def __init__(self, line: TableLine) -> None:
        self._line = line
        self._done, self._total = 0, 0

    def start(self, description: str, total: int | None) -> None:
        self._done, self._total = 0, total or 0
        self.advance(0)

    def advance(self, n: int = 1) -> None:
        self._done += n
        self._line.state = f"compacting {self._done} of {counted(self._total, 'bucket')}"

    def finish(self) -> None:
        self._line.state = "committing"
