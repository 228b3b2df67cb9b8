"""`compact`: merge the sorted runs of buckets, once or again and again beside write-only writers."""

from __future__ import annotations

import enum
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.command import Call, command
from paimon_cli.cli.parameters import AllowUnsafeCommit, Buckets, Partitions, split_partitions
from paimon_cli.cli.results import Column, Item, Listing, OutputFormat
from paimon_cli.cli.value_kinds import COUNT, ID, SIZE, SNAPSHOT_IDS, TEXT, counted, human_size
from paimon_cli.errors import PaimonError, PartialSuccess, UsageError

if TYPE_CHECKING:
    from paimon_cli.jobs.compact_job import CompactionPlan, CompactRequest, CompactSummary
    from paimon_cli.jobs.engine import Engine
    from paimon_cli.table.table import Table
    from paimon_cli.table.table_location import TableLocation

PLAN_COLUMNS = (
    Column("partition", "Partition"),
    Column("bucket", "Bucket", ID),
    Column("reason", "Reason"),
    Column("arithmetic", "Figures"),
    Column("runs_before", "Runs", COUNT),
    Column("runs_after", "Runs then", COUNT),
    Column("files", "Files", COUNT),
    Column("size", "Read", SIZE),
    Column("output_level", "To level", ID),
)
SUMMARY_COLUMNS = (
    Column("table", "Table"),
    Column("buckets", "Buckets", COUNT),
    Column("files_before", "Files", COUNT),
    Column("files_after", "Files then", COUNT),
    Column("bytes_before", "Read", SIZE),
    Column("bytes_after", "Written", SIZE),
    Column("snapshots", "Snapshots", SNAPSHOT_IDS),
    Column("conflicts", "Conflicts", COUNT),
    Column("engine", "Engine"),
    Column("seconds", "Seconds", TEXT),
)


class Strategy(str, enum.Enum):
    """Choices of `--strategy`."""

    FULL = "full"
    MINOR = "minor"


class OnConflict(str, enum.Enum):
    """Choices of `--on-conflict`."""

    RETRY = "retry"
    SKIP = "skip"
    FAIL = "fail"


@dataclass(frozen=True)
class TableSummary:
    """One round over one table."""

    table: str
    buckets: int
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    snapshots: tuple[object, ...]
    conflicts: int
    engine: str
    seconds: float


def register(app: typer.Typer, panel: str) -> None:
    command(app, "compact", runs_jobs=True, rich_help_panel=panel)(compact)


def compact(
    call: Call,
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="[TABLE...]", help="Paths, URLs or db.table.", show_default=False)
    ] = None,
    database: Annotated[str | None, typer.Option("--database", metavar="DB", help="All tables of this database instead.")] = None,
    dedicated: Annotated[
        bool, typer.Option("--dedicated", help="Beside writers that do not compact themselves: warn when they may.")
    ] = False,
    strategy: Annotated[
        Strategy | None,
        typer.Option(
            "--strategy",
            help="full: everything to the top level (default); minor: what the triggers pick (default with --watch).",
        ),
    ] = None,
    partition: Partitions = None,
    bucket: Buckets = None,
    on_conflict: Annotated[
        OnConflict, typer.Option("--on-conflict", help="When another job changed the same files.")
    ] = OnConflict.RETRY,
    dry_run: Annotated[bool, typer.Option("-n", "--dry-run", help="Only show what would be compacted.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Go on, round by round, until interrupted.")] = False,
    interval: Annotated[str, typer.Option("--interval", metavar="TIME", help="With --watch: pause between rounds.")] = "10 s",
    max_rounds: Annotated[
        int | None, typer.Option("--max-rounds", metavar="N", min=1, help="With --watch: end after N rounds.")
    ] = None,
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> None:
    """Compact tables: merge sorted runs, drop what newer rows replace.

    paimon-cli compact ./wh/shop.db/orders --dedicated --watch --interval 30s
    """
    from paimon_cli.jobs.compact_job import CompactRequest

    if watch and dry_run:
        raise UsageError("--watch does not go with --dry-run")
    chosen = strategy or (Strategy.MINOR if watch else Strategy.FULL)
    request = CompactRequest(chosen.value, tuple(split_partitions(partition)), tuple(bucket or ()), on_conflict.value)
    targets = _targets(call, tables or [], database)
    locations = [replace(location, allow_unsafe_commit=allow_unsafe_commit) for location in targets]
    if dry_run:
        _show_plans(call, locations, request)
    elif watch:
        _watch(call, locations, request, dedicated, interval, max_rounds)
    else:
        _compact_once(call, locations, request, dedicated, single=database is None)


def compact_behind_write(table: Table, buckets: Collection[int], engine: Engine) -> None:
    """The minor compaction of `write --compact after`; its line goes to stderr, the data on stdout is the write's."""
    from paimon_cli.cli.progress_bar import progress_on_stderr
    from paimon_cli.jobs.compact_job import CompactRequest, run_compact

    request = CompactRequest(Strategy.MINOR.value, buckets=tuple(sorted(buckets)))
    print(_line(table.name, run_compact(table.context, request, engine, progress_on_stderr())), file=sys.stderr)


def _targets(call: Call, tables: Sequence[str], database: str | None) -> list[TableLocation]:
    if (database is None) == (not tables):
        raise UsageError(
            "name the tables to compact", "either TABLE... or --database DB", "paimon-cli compact ./wh/shop.db/orders"
        )
    if database is None:
        return [call.locate(table) for table in tables]
    from paimon_cli.table.table_location import tables_of_database

    return tables_of_database(database, call.warehouse, call.catalog_options)


def _compact_once(
    call: Call, locations: Sequence[TableLocation], request: CompactRequest, dedicated: bool, *, single: bool
) -> None:
    """Every table once; one that fails does not keep the others from their turn."""
    from paimon_cli.cli.progress_bar import progress_on_stderr
    from paimon_cli.jobs.compact_job import run_compact

    done: list[TableSummary] = []
    failures: list[PaimonError] = []
    with call.engine_running() as engine:
        for location in locations:
            try:
                table = _opened(call, location, dedicated)
                summary = run_compact(table.context, request, engine, progress_on_stderr())
            except PaimonError as error:
                failures.append(error)
                continue
            done.append(_summary(table.name, summary))
            if call.output is OutputFormat.TABLE:
                print(_line(table.name, summary))
    if call.output is not OutputFormat.TABLE and done:
        _show_summaries(call, done, single=single and len(locations) == 1)
    _raise_failures(failures, len(locations))


def _raise_failures(failures: Sequence[PaimonError], tables: int) -> None:
    if not failures:
        return
    if tables == 1:
        raise failures[0]
    what = f"{len(failures)} of {counted(tables, 'table')} could not be compacted"
    why = "; ".join(str(failure) for failure in failures)
    kind = PartialSuccess if len(failures) < tables else type(failures[0])
    raise kind(what, why, failures[0].hint)


def _watch(
    call: Call,
    locations: Sequence[TableLocation],
    request: CompactRequest,
    dedicated: bool,
    interval: str,
    max_rounds: int | None,
) -> None:
    from paimon_cli.cli.progress_bar import progress_on_stderr
    from paimon_cli.jobs.compact_job import watch_compaction
    from paimon_cli.options.size_and_duration import parse_duration

    if len(locations) > 1:
        raise UsageError("--watch looks after one table", f"{len(locations)} are named", "start one process for each table")
    seconds = parse_duration(interval) / 1000
    name = _opened(call, locations[0], dedicated).name

    def show_round(summary: CompactSummary) -> None:
        if call.output is OutputFormat.TABLE:
            print(_line(name, summary), flush=True)
        else:
            _show_summaries(call, [_summary(name, summary)], single=True)
            sys.stdout.flush()

    with call.engine_running() as engine:
        watch_compaction(
            lambda: call.open_at(locations[0]).context,
            request,
            engine,
            progress_on_stderr(),
            interval_seconds=seconds,
            max_rounds=max_rounds,
            on_round=show_round,
        )


def _opened(call: Call, location: TableLocation, dedicated: bool) -> Table:
    table = call.open_to_commit(location)
    if dedicated and not table.context.options.write_only:
        print(f"warning: {table.name} is not write-only, its writers may compact, too: set write-only=true", file=sys.stderr)
    return table


def _show_plans(call: Call, locations: Sequence[TableLocation], request: CompactRequest) -> None:
    from paimon_cli.jobs.compact_job import plan_compaction
    from paimon_cli.table.compaction_report import decision_rows

    for location in locations:
        table = call.open_at(location)
        plan = plan_compaction(table.context, request)
        rows = decision_rows(table.context, plan.decisions)
        call.show(Listing("CompactionPlan", table.name, PLAN_COLUMNS, rows, footer=_plan_footer(table.name, plan)))


def _plan_footer(table: str, plan: CompactionPlan) -> str:
    size = human_size(sum(task.size for task in plan.tasks))
    work = f"{counted(len(plan.tasks), 'bucket')} to compact, {size} to read"
    return f"{table} at snapshot {plan.snapshot_id}: {work}; nothing was changed (dry run)"


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
        seconds=summary.seconds,
    )


def _show_summaries(call: Call, rows: Sequence[TableSummary], *, single: bool) -> None:
    if single:
        call.show(Item("CompactSummary", rows[0].table, SUMMARY_COLUMNS, rows[0]))
    else:
        call.show(Listing("CompactSummaryList", None, SUMMARY_COLUMNS, rows))


def _line(table: str, summary: CompactSummary) -> str:
    if not summary.buckets:
        return f"{table}: nothing to compact"
    ids = ", ".join(str(snapshot.id) for snapshot in summary.snapshots)
    files = f"{counted(summary.files_before, 'file')} -> {summary.files_after}"
    sizes = f"{human_size(summary.bytes_before)} -> {human_size(summary.bytes_after)}"
    return (
        f"{table}: snapshot {ids}, {counted(summary.buckets, 'bucket')}, {files}, {sizes}, "
        f"{summary.seconds:.1f} s on {summary.engine}"
    )
