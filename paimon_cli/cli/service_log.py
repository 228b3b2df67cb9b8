"""What a service says: rounds on stdout, and a log of text or JSON on stderr."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from paimon_cli.cli.compact_view import summary_text
from paimon_cli.cli.output import OutputFormat, check_fields, envelope
from paimon_cli.cli.results import counted, human_size, print_on_stderr, printable, rfc3339, warn
from paimon_cli.errors import UsageError
from paimon_cli.options.option_text import json_text
from paimon_cli.storage.redaction import redact, redacted

if TYPE_CHECKING:
    from paimon_cli.jobs.engine import Progress
    from paimon_cli.jobs.service.service_turn import Findings
    from paimon_cli.jobs.service.table_round import ServiceRound, TableRound
    from paimon_cli.jobs.service.upkeep_done import UpkeepDone

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
        millis = now_millis() if done is None else done.started_millis + int(done.seconds * 1000)
        print_on_stderr(f"{rfc3339(millis)} {printable(redact(text))}")

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
        line = {"time": rfc3339(now_millis()), "level": level, "event": event, "message": message, **facts}
        print_on_stderr(json_text(redacted(line)))


class SilentLog(ServiceLog):
    """Logs only warnings; the command itself prints the results."""

    def table_done(self, done: TableRound) -> None:
        pass

    def round_done(self, done: ServiceRound, pause_seconds: float | None) -> None:
        pass


def now_millis() -> int:
    """The time of log lines (epoch millis)."""
    from paimon_cli.storage.injected import SystemClock

    return SystemClock().now_millis()


def table_text(done: TableRound) -> str | None:
    """The log text for a table; None if there is nothing to report."""
    failed = [] if done.error is None else [f"{done.state}: {done.error.message}"]
    did = [summary_text(done.summary)] if done.summary.has_changed else []
    parts = [*failed, *did, *upkeep_texts(done.upkeep)]
    return f"{done.table}: {'; '.join(parts)}" if parts else None


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
