"""`compact --watch`: the service, with a live display on a terminal and log lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table as Grid
from rich.text import Text

from paimon_cli.cli.compact_view import summary_line
from paimon_cli.cli.output import OutputFormat, check_fields, envelope
from paimon_cli.cli.results import counted, human_size, note, printable, rfc3339, warn
from paimon_cli.errors import UsageError
from paimon_cli.options.option_text import json_text
from paimon_cli.storage.redaction import redact, redacted

if TYPE_CHECKING:
    from paimon_cli.api.catalog import Catalog
    from paimon_cli.cli.command import Call
    from paimon_cli.jobs.engine import Progress
    from paimon_cli.jobs.service.service_turn import Findings
    from paimon_cli.jobs.service.table_round import ServiceRound, ServiceWatcher, TableRound
    from paimon_cli.jobs.service.upkeep import UpkeepDone
    from paimon_cli.jobs.table_change import Shield


_TEXT, _JSON = "text", "json"
"""Choices of `--log-format`."""
INFO, WARNING, ERROR = "info", "warning", "error"
"""Levels of JSON log lines."""
PROBLEMS = (WARNING, ERROR)
"""Severities of findings about which something should be done."""


class RoundLines:
    """Prints rounds on stdout as one line of JSON each; with text output, prints nothing."""

    def __init__(self, output: OutputFormat, fields: Sequence[str] = ()) -> None:
        """Raises `UsageError` for an unknown field."""
        check_fields(fields, ROUND_FIELDS)
        if fields and output is OutputFormat.TABLE:
            raise UsageError("--fields with --watch needs a JSON output", "rounds are logged as text", "add --output ndjson")
        self._output = output
        self._fields = fields or ROUND_FIELDS

    def show(self, done: ServiceRound) -> None:
        if self._output is OutputFormat.TABLE:
            return
        whole = round_item(done)
        item = {name: whole[name] for name in self._fields}
        line = item if self._output is not OutputFormat.JSON else envelope("CompactionRound", None, item=item)
        print(json_text(line), flush=True)


class ServiceLog:
    """Logs one line of text for each table that was compacted or failed, and one for a round without work or with work left."""

    def __init__(self, lines: RoundLines) -> None:
        self._lines = lines
        self._found: dict[str, int] = {}

    def __enter__(self) -> ServiceLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass

    def table_begins(self, number: int, table: str) -> Progress:
        from paimon_cli.jobs.engine import NoProgress

        return NoProgress()

    def table_done(self, done: TableRound) -> None:
        if text := table_text(done):
            self.say(text)
        if text := self.news(done):
            self.say(text)

    def news(self, done: TableRound) -> str | None:
        """The log text for a table with another number of findings than before; at first it has none."""
        before = self._found.get(done.table, 0)
        now = before if done.findings is None else problems(done.findings)
        self._found[done.table] = now
        codes = sorted(code for severity, code in done.findings or {} if severity in PROBLEMS)
        which = f" ({', '.join(codes)}); `paimon-cli health` shows them" if now else ""
        return f"{done.table}: {counted(now, 'finding')}{which}" if now != before else None

    def round_done(self, done: ServiceRound, pause_seconds: float | None) -> None:
        self._lines.show(done)
        if text := round_text(done):
            self.say(text, done)

    def say(self, text: str, done: ServiceRound | None = None) -> None:
        millis = _now() if done is None else done.started_millis + int(done.seconds * 1000)
        print(f"{rfc3339(millis)} {printable(redact(text))}", file=sys.stderr, flush=True)

    def warn(self, text: str) -> None:
        warn(text)


class JsonLog(ServiceLog):
    """Logs one line of JSON for each table with something to report, and for each round."""

    def table_done(self, done: TableRound) -> None:
        if table_text(done):
            level = ERROR if done.state == "failed" else WARNING if done.error is not None else INFO
            self.event(level, "table", table_text(done) or "", **_table_item(done))
        if text := self.news(done):
            self.event(WARNING if problems(done.findings or {}) else INFO, "findings", text, table=done.table)

    def round_done(self, done: ServiceRound, pause_seconds: float | None) -> None:
        self._lines.show(done)
        figures = {name: value for name, value in round_item(done).items() if name not in ("tables", "time")}
        text = f"round {done.number} of {counted(len(done.tables), 'table')}"
        tables = {"tables": len(done.tables), "tables_left": left_tables(done)}
        self.event(INFO, "round", text, **figures, **tables, next_in_seconds=pause_seconds)

    def say(self, text: str, done: ServiceRound | None = None) -> None:
        self.event(INFO, "service", text)

    def warn(self, text: str) -> None:
        self.event(WARNING, "warning", text)

    def event(self, level: str, event: str, message: str, **facts: object) -> None:
        line = {"time": rfc3339(_now()), "level": level, "event": event, "message": message, **facts}
        print(json_text(redacted(line)), file=sys.stderr, flush=True)


class SilentLog(ServiceLog):
    """Logs only warnings; the command itself prints the results."""

    def table_done(self, done: TableRound) -> None:
        pass

    def round_done(self, done: ServiceRound, pause_seconds: float | None) -> None:
        pass


def _now() -> int:
    from paimon_cli.storage.injected import SystemClock

    return SystemClock().now_millis()


def table_text(done: TableRound) -> str | None:
    """The log text for a table; None if there is nothing to report."""
    if done.error is not None:
        return f"{done.table}: {done.state}: {done.error.message}"
    kept = "; ".join(upkeep_texts(done.upkeep))
    if not done.summary.has_changed:
        return f"{done.table}: {kept}" if kept else None
    line = summary_line(done.table, done.summary)
    return f"{line}; {kept}" if kept else line


def left_tables(done: ServiceRound) -> dict[str, int]:
    """How many tables were left, by their state. A table of which a line tells in this round is not counted."""
    from paimon_cli.jobs.service.table_round import RoundState

    settled = (RoundState.COMPACTED, RoundState.CLEANED, RoundState.NOTHING, RoundState.GONE)
    left = (table for table in done.tables if table.state not in settled and not _has_line(table))
    return dict(Counter(table.state for table in left).most_common())


def round_text(done: ServiceRound) -> str | None:
    """The log text for a round in which tables were left, or without work; None if the lines of its tables tell all."""
    left = left_tables(done)
    idle = len(done.tables) - sum(left.values())
    has_lines = any(_has_line(table) for table in done.tables)
    parts = [] if has_lines or (left and not idle) else [f"nothing to compact in {counted(idle, 'table')}"]
    if left:
        parts.append(f"{counted(sum(left.values()), 'table')} left ({', '.join(f'{n} {state}' for state, n in left.items())})")
    return f"round {done.number}: {'; '.join(parts)}" if parts else None


def _has_line(table: TableRound) -> bool:
    return table.is_new and table_text(table) is not None


def problems(findings: Findings) -> int:
    """How many findings there are about which something should be done."""
    return sum(count for (severity, _), count in findings.items() if severity in PROBLEMS)


def upkeep_texts(upkeep: UpkeepDone, expired: str = "expired", deleted: str = "deleted") -> list[str]:
    """What has expired and was deleted, in words; nothing for what has not."""
    expiry = [counted(count, noun) for noun, count in upkeep.expired.items()]
    with_files = f" with {counted(upkeep.files_expired, 'file')}" if upkeep.files_expired else ""
    texts = [f"{', '.join(expiry)} {expired}{with_files}"] if expiry else []
    if upkeep.orphans:
        texts.append(f"{counted(upkeep.orphans, 'orphan')} of {human_size(upkeep.orphan_bytes)} {deleted}")
    return texts


ROUND_FIELDS = ("round", "time", "seconds", "buckets", "conflicts", "waiting", "tables")


def round_item(done: ServiceRound) -> dict[str, Any]:
    return {
        "round": done.number,
        "time": rfc3339(done.started_millis),
        "seconds": done.seconds,
        "buckets": sum(table.summary.buckets for table in done.tables),
        "conflicts": sum(table.summary.conflicts for table in done.tables),
        "waiting": done.waiting,
        "tables": [_table_item(table) for table in done.tables],
    }


def _table_item(done: TableRound) -> dict[str, Any]:
    summary = done.summary
    return {
        "table": done.table,
        "state": done.state,
        "snapshot": summary.plan.snapshot_id,
        "buckets": summary.buckets,
        "files_before": summary.files_before,
        "files_after": summary.files_after,
        "bytes_before": summary.bytes_before,
        "bytes_after": summary.bytes_after,
        "bytes_read": summary.bytes_read,
        "bytes_written": summary.bytes_written,
        "snapshots": [snapshot.id for snapshot in summary.snapshots],
        "conflicts": summary.conflicts,
        "most_runs": done.figures.most_runs,
        "snapshots_expired": done.upkeep.snapshots_expired,
        "orphans_deleted": done.upkeep.orphans,
        "findings": None if done.findings is None else problems(done.findings),
        "seconds": summary.seconds,
        "error": None if done.error is None else {"code": done.error.code, "message": redact(done.error.message)},
    }


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


@dataclass(frozen=True)
class Outlook:
    """The log, the metrics and the hook of a service, besides the rounds on stdout."""

    log_format: str = _TEXT
    metrics_listen: str | None = None
    metrics_file: str | None = None
    hook: str | None = None

    @property
    def has_metrics(self) -> bool:
        return self.metrics_listen is not None or self.metrics_file is not None

    def log(self, lines: RoundLines) -> ServiceLog:
        if self.log_format == _JSON:
            return JsonLog(lines)
        return LiveDisplay(lines) if sys.stderr.isatty() else ServiceLog(lines)


def run_service(
    call: Call,
    outlook: Outlook,
    catalog: Catalog,
    watch: Callable[..., None],
    *,
    is_maintenance: bool = False,
    says: Sequence[str] = (),
) -> None:
    """Call `Catalog.watch`, and show its rounds until it ends or is stopped.

    `is_maintenance`: count findings even without metrics, and tell the hooks of the user's policy. `says`: what the log says
    first.
    """
    from paimon_cli.jobs.process import StopSignals, Terminated

    log = outlook.log(RoundLines(call.output, call.fields))
    catalog.runtime = replace(catalog.runtime, warn=log.warn)
    for text in says:
        log.say(text)
    try:
        with (
            StopSignals() as signals,
            log,
            _hooked(call, outlook, log, is_maintenance) as passed,
            _measured(outlook, log, passed) as watcher,
        ):
            watch(watcher=watcher, shield=signals.shield, examines=is_maintenance or outlook.has_metrics)
    except Terminated:
        if isinstance(log, JsonLog):
            log.say("stopped")
        else:
            note("stopped")


def run_once(
    outlook: Outlook,
    catalog: Catalog,
    compact: Callable[..., list[TableRound]],
    show: Callable[[Callable[..., list[TableRound]]], None],
) -> None:
    """Call `Catalog.compact` as a single round with log and metrics; `show` makes the call and prints the results."""
    from paimon_cli.jobs.service.table_round import ServiceRound

    began = _now()
    done: list[TableRound] = []

    with single_run(outlook, catalog) as (shield, watcher):

        def observed(on_compacted: Callable[[TableRound], None]) -> list[TableRound]:
            def observe(table: TableRound) -> None:
                done.append(table)
                watcher.table_done(table)
                on_compacted(table)

            try:
                return compact(shield=shield, on_compacted=observe)
            finally:
                watcher.round_done(ServiceRound(1, began, (_now() - began) / 1000, tuple(done)), None)

        show(observed)


@contextlib.contextmanager
def single_run(outlook: Outlook, catalog: Catalog) -> Iterator[tuple[Shield, ServiceWatcher]]:
    """While entered, signals wait for the shield, and the watcher logs and measures one run of the catalog."""
    from paimon_cli.jobs.process import StopSignals

    log = JsonLog(RoundLines(OutputFormat.TABLE)) if outlook.log_format == _JSON else SilentLog(RoundLines(OutputFormat.TABLE))
    catalog.runtime = replace(catalog.runtime, warn=log.warn)
    with StopSignals() as signals, _measured(outlook, log, log) as watcher:
        yield signals.shield, watcher


@contextlib.contextmanager
def _hooked(call: Call, outlook: Outlook, log: ServiceLog, has_policy: bool) -> Iterator[ServiceWatcher]:
    """A watcher that passes everything to the log, and commits to the hook of the call or of the user's own file, if any.

    `has_policy`: and to the hooks of the policy in that file.
    """
    from paimon_cli.catalog.metastore.configuration_files import PROFILE
    from paimon_cli.catalog.metastore.settings import read_settings
    from paimon_cli.catalog.warehouse_policy import own_hooks, own_rules
    from paimon_cli.jobs.service.commit_hook import HOOK_SETTING, CommitHook, HookedWatcher, HookTarget
    from paimon_cli.storage.injected import SystemClock

    targets = own_hooks(own_rules(call.catalog_options.get(PROFILE))) if has_policy else {}
    of_all = outlook.hook or read_settings(call.warehouse, call.catalog_options).values.get(HOOK_SETTING)
    if of_all is not None:
        targets = {**targets, of_all: lambda table: True}
    parsed = [(HookTarget.parse(target), about) for target, about in targets.items()]
    watcher: ServiceWatcher = log
    with contextlib.ExitStack() as stack:
        for target, about in parsed:
            hook = CommitHook(target, log.warn)
            stack.callback(hook.close)
            watcher = HookedWatcher(watcher, hook, SystemClock(), about)
        yield watcher


@contextlib.contextmanager
def _measured(outlook: Outlook, log: ServiceLog, passed: ServiceWatcher) -> Iterator[ServiceWatcher]:
    """A watcher that passes rounds on and, if configured, collects metrics for the HTTP endpoint and the file."""
    if not outlook.has_metrics:
        yield passed
        return
    from paimon_cli.jobs.service.commit_hook import CommitHook, HookedWatcher
    from paimon_cli.jobs.service.service_metrics import MetricsFile, ServiceMetrics, listening
    from paimon_cli.storage.counted_storage import counting_requests
    from paimon_cli.storage.injected import SystemClock

    with counting_requests() as requests:
        hooks, inner = list[CommitHook](), passed
        while isinstance(inner, HookedWatcher):
            hooks, inner = [*hooks, inner.hook], inner.inner
        metrics = ServiceMetrics(passed, SystemClock(), requests, hooks)
        watcher = metrics if outlook.metrics_file is None else MetricsFile(metrics, outlook.metrics_file, log.warn)
        if outlook.metrics_listen is None:
            yield watcher
            return
        with listening(metrics, outlook.metrics_listen) as url:
            log.say(f"metrics at {url}")
            yield watcher
