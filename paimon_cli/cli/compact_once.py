"""`compact` without `--watch`: one round over every table, with one line of output each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paimon_cli.cli.command import Call
from paimon_cli.cli.results import (
    COUNT,
    SIZE,
    SNAPSHOT_IDS,
    TEXT,
    Column,
    Item,
    Listing,
    OutputFormat,
    counted,
    human_size,
    ran,
    say,
    warn,
)
from paimon_cli.errors import PaimonError, PartialSuccess

if TYPE_CHECKING:
    from paimon_cli.api.table import Table
    from paimon_cli.catalog.table_location import TableLocation
    from paimon_cli.jobs.compact_job import CompactRequest, CompactSummary

SUMMARY_COLUMNS = (
    Column("table", "Table"),
    Column("buckets", "Buckets", COUNT),
    Column("files_before", "Files", COUNT),
    Column("files_after", "Files after", COUNT),
    Column("bytes_before", "Read", SIZE),
    Column("bytes_after", "Written", SIZE),
    Column("snapshots", "Snapshots", SNAPSHOT_IDS),
    Column("conflicts", "Conflicts", COUNT),
    Column("engine", "Engine"),
    Column("engine_reason", "Why"),
    Column("seconds", "Seconds", TEXT),
)


@dataclass(frozen=True)
class TableSummary:
    """What one round did to one table."""

    table: str
    buckets: int
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    snapshots: tuple[object, ...]
    conflicts: int
    engine: str
    engine_reason: str
    seconds: float


def compact_once(
    call: Call,
    locations: Sequence[TableLocation],
    request: CompactRequest,
    dedicated: bool,
    parallelism: int | None,
    *,
    single: bool,
) -> None:
    """Compact every table once; a table that fails does not stop the remaining ones."""
    from paimon_cli.jobs.process import StopSignals

    done: list[TableSummary] = []
    failures: list[PaimonError] = []
    with StopSignals() as signals, call.runtime.engine_running(parallelism) as engine:
        for location in locations:
            try:
                table = opened(call, location, dedicated)
                summary = table.run_compaction(request, engine, signals.shield)
            except PaimonError as error:
                failures.append(error)
                continue
            done.append(_summary(table.name, summary))
            if call.output is OutputFormat.TABLE:
                say(summary_line(table.name, summary))
    if call.output is not OutputFormat.TABLE and done:
        _show_summaries(call, done, single=single and len(locations) == 1)
    _raise_failures(failures, len(locations))


def opened(call: Call, location: TableLocation, dedicated: bool) -> Table:
    """The table, opened for commits; with `dedicated`, a warning if its writers may compact as well."""
    table = call.open_at(location)
    table.check_commit()
    if dedicated and not table.context.options.write_only:
        warn(f"{table.name} is not write-only, so its writers may compact as well: set write-only=true")
    return table


def summary_line(table: str, summary: CompactSummary) -> str:
    if not summary.buckets:
        return f"{table}: nothing to compact"
    ids = ", ".join(str(snapshot.id) for snapshot in summary.snapshots)
    files = f"{counted(summary.files_before, 'file')} -> {summary.files_after}"
    sizes = f"{human_size(summary.bytes_before)} -> {human_size(summary.bytes_after)}"
    conflicts = f", {counted(summary.conflicts, 'conflict')}" if summary.conflicts else ""
    return f"{table}: snapshot {ids}, {counted(summary.buckets, 'bucket')}, {files}, {sizes}{conflicts}, {ran(summary)}"


def _raise_failures(failures: Sequence[PaimonError], tables: int) -> None:
    if not failures:
        return
    if tables == 1:
        raise failures[0]
    what = f"{len(failures)} of {counted(tables, 'table')} could not be compacted"
    why = "; ".join(str(failure) for failure in failures)
    kind = PartialSuccess if len(failures) < tables else type(failures[0])
    raise kind(what, why, failures[0].hint)


def _summary(table: str, summary: CompactSummary) -> TableSummary:
    return TableSummary(
        table=table,
        buckets=summary.buckets,
        files_before=summary.files_before,
        files_after=summary.files_after,
        bytes_before=summary.bytes_before,
        bytes_after=summary.bytes_after,
        snapshots=summary.snapshots,
        conflicts=summary.conflicts,
        engine=summary.engine,
        engine_reason=summary.engine_reason,
        seconds=summary.seconds,
    )


def _show_summaries(call: Call, rows: Sequence[TableSummary], *, single: bool) -> None:
    if single:
        call.show(Item("CompactSummary", rows[0].table, SUMMARY_COLUMNS, rows[0]))
    else:
        call.show(Listing("CompactSummaryList", None, SUMMARY_COLUMNS, rows))
