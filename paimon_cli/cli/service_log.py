"""Output of the compaction service without a terminal: log lines on stderr, one JSON document per round on stdout."""

from __future__ import annotations

import json
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any

from paimon_cli.cli.compact_once import summary_line
from paimon_cli.cli.results import OutputFormat, envelope
from paimon_cli.cli.value_kinds import counted, printable, rfc3339

if TYPE_CHECKING:
    from paimon_cli.jobs.compaction_service import ServiceRound, TableRound
    from paimon_cli.jobs.progress import Progress


class RoundLines:
    """Rounds on stdout: nothing in text form, otherwise one line of JSON each."""

    def __init__(self, output: OutputFormat) -> None:
        self._output = output

    def show(self, done: ServiceRound) -> None:
        if self._output is OutputFormat.TABLE:
            return
        item = round_item(done)
        line = item if self._output is not OutputFormat.JSON else envelope("CompactionRound", None, item=item)
        print(json.dumps(line, ensure_ascii=False), flush=True)


class ServiceLog:
    """One line for each table that was compacted or failed, and one for a round with nothing to do."""

    def __init__(self, lines: RoundLines) -> None:
        self._lines = lines

    def __enter__(self) -> ServiceLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass

    def table_begins(self, number: int, table: str) -> Progress:
        from paimon_cli.jobs.progress import NoProgress

        return NoProgress()

    def table_done(self, done: TableRound) -> None:
        if text := table_text(done):
            self.say(text)

    def round_done(self, done: ServiceRound, pause_seconds: float | None) -> None:
        self._lines.show(done)
        if not any(table_text(table) for table in done.tables):
            self.say(f"round {done.number}: nothing to compact in {counted(len(done.tables), 'table')}", done)

    def say(self, text: str, done: ServiceRound | None = None) -> None:
        from paimon_cli.storage.clock_and_names import SystemClock

        millis = SystemClock().now_millis() if done is None else done.started_millis + int(done.seconds * 1000)
        print(f"{rfc3339(millis)} {printable(text)}", file=sys.stderr, flush=True)


def table_text(done: TableRound) -> str | None:
    """The log text for a table; None if there is nothing to report."""
    if done.error is not None:
        return f"{done.table}: {done.state}: {done.error}"
    return summary_line(done.table, done.summary) if done.summary.buckets else None


def round_item(done: ServiceRound) -> dict[str, Any]:
    return {
        "round": done.number,
        "time": rfc3339(done.started_millis),
        "seconds": done.seconds,
        "buckets": sum(table.summary.buckets for table in done.tables),
        "conflicts": sum(table.summary.conflicts for table in done.tables),
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
        "snapshots": [snapshot.id for snapshot in summary.snapshots],
        "conflicts": summary.conflicts,
        "most_runs": max((decision.runs_before for decision in summary.plan.decisions), default=0),
        "seconds": summary.seconds,
        "error": None if done.error is None else {"code": done.error.code, "message": str(done.error)},
    }
