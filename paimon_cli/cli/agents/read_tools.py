"""The tools that read: lists, descriptions, rows, checks, and what a job would do."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

import duckdb
from pydantic import Field

from paimon_cli.api.sql_query import QueryBounds, run_query
from paimon_cli.cli.agents.answers import DEFAULT_ROWS, Answer, AnsweredRows, RowsInBatches
from paimon_cli.cli.agents.desk import Visit, check_database_name, leads_outside
from paimon_cli.cli.agents.tools import (
    MAX_SQL,
    AtSnapshot,
    Columns,
    Limit,
    Params,
    ShortText,
    TableArgument,
    Toolbox,
    Where,
)
from paimon_cli.cli.output import records
from paimon_cli.errors import NotFound, Refused
from paimon_cli.jobs.round_plan import rows_dropped_after
from paimon_cli.requests.compaction import CompactOptions, StrategyName
from paimon_cli.requests.integrity import VerifyOptions
from paimon_cli.requests.maintenance import ExpireOptions, What
from paimon_cli.requests.reading import ScanCall
from paimon_cli.storage.redaction import redacted

if TYPE_CHECKING:
    from paimon_cli.api.table import Table
    from paimon_cli.jobs.round_plan import CompactionPlan

READING_TOOLS = Toolbox()
QUERY_MEMORY, QUERY_SCRATCH, QUERY_THREADS = "1GB", "2GB", 2


def listed(visit: Visit, name: str, rows: Sequence[Any], limit: int) -> Answer:
    """The first rows of a listing, of which one more than the limit may be given."""
    return Answer({name: visit.shown(records(rows[:limit]))}, is_truncated=len(rows) > limit)


def without_paths(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Rows about databases or tables, which agents know by their names."""
    return [{key: value for key, value in row.items() if key != "path"} for row in records(rows)]


@READING_TOOLS.tool()
def list_databases(visit: Visit, limit: Limit = DEFAULT_ROWS) -> Answer:
    """List the databases of the warehouse."""
    rows = visit.catalog.databases()
    return Answer({"databases": visit.shown(without_paths(rows[:limit]))}, is_truncated=len(rows) > limit)


@READING_TOOLS.tool()
def list_tables(visit: Visit, database: ShortText = None, after: ShortText = None, limit: Limit = DEFAULT_ROWS) -> Answer:
    """List the tables of the warehouse, or of one database, by name, with their snapshot and rows. `next_after`, if there is one,
    is the argument `after` for those that follow.
    """
    if database is not None:
        check_database_name(database)
    catalog = visit.catalog
    rows = catalog.tables(database=database, after=after, limit=limit + 1)
    more = {"next_after": rows[limit - 1].table} if len(rows) > limit else {}
    inside = [row for row in rows[:limit] if not leads_outside(row.path, catalog._metastore)]
    for row in inside:
        if row.problem is not None:
            visit.desk.places.add(row.path, row.table)
    return Answer({**redacted(more), "tables": visit.shown(without_paths(inside))}, is_truncated=bool(more))


@READING_TOOLS.tool()
def describe_table(visit: Visit, table: TableArgument) -> Answer:
    """Describe a table: columns with types, keys, options, latest snapshot, files and size."""
    (described,) = without_paths([visit.table(table).describe()])
    return Answer({"table": visit.shown({"table": table, **described})})


@READING_TOOLS.tool()
def list_snapshots(visit: Visit, table: TableArgument, limit: Limit = 20) -> Answer:
    """List the newest snapshots of a table: one for each commit, with its kind, time, user and row counts."""
    return listed(visit, "snapshots", visit.table(table).snapshots(limit=limit + 1), limit)


@READING_TOOLS.tool()
def list_tags(visit: Visit, table: TableArgument, limit: Limit = DEFAULT_ROWS) -> Answer:
    """List the tags of a table: named snapshots, which do not expire."""
    return listed(visit, "tags", list(islice(visit.table(table).tags, limit + 1)), limit)


@READING_TOOLS.tool()
def table_health(visit: Visit, table: TableArgument) -> Answer:
    """Examine a table: what should be done about it, and the commands with which its operator can do that."""
    (row,) = records([visit.table(table).health()])
    return Answer({"health": visit.shown(row)})


@READING_TOOLS.tool(describes=ScanCall)
def read_rows(
    visit: Visit,
    table: TableArgument,
    columns: Columns = None,
    where: Where = None,
    params: Params = None,
    limit: Limit = DEFAULT_ROWS,
    snapshot: AtSnapshot = None,
    tag: ShortText = None,
    as_of: ShortText = None,
) -> Answer:
    """Read rows of a table, at its latest snapshot or at another version."""
    opened = visit.table(table)
    scan = opened.scan(columns=columns, where=where, params=params, snapshot=snapshot, tag=tag, as_of=as_of, limit=limit + 1)
    found = scan.rows.plan.snapshot
    return rows_answer(scan.rows, limit, snapshot_id=None if found is None else found.id)


def rows_answer(found: RowsInBatches, limit: int, **more: Any) -> Answer:
    """The first rows of a result. Numbers beyond 2^53, decimals, times and bytes are texts."""
    shown = AnsweredRows.of(found, limit)
    note = "" if shown.rows or not shown.is_truncated else "the first row alone is too large: choose columns"
    data = {**more, "columns": [field.name for field in found.fields], "row_count": len(shown.rows), "rows": shown.rows}
    return Answer(data, note, shown.is_truncated, shown.warnings)


@READING_TOOLS.tool(describes=ScanCall)
def count_rows(
    visit: Visit,
    table: TableArgument,
    where: Where = None,
    params: Params = None,
    snapshot: AtSnapshot = None,
    tag: ShortText = None,
    as_of: ShortText = None,
) -> Answer:
    """Count rows of a table, at its latest snapshot or at another version."""
    scan = visit.table(table).scan(where=where, params=params, snapshot=snapshot, tag=tag, as_of=as_of)
    found = scan.rows.plan.snapshot
    return Answer({"snapshot_id": None if found is None else found.id, "count": scan.count()})


@READING_TOOLS.tool(describes=ScanCall)
def explain_read(
    visit: Visit,
    table: TableArgument,
    columns: Columns = None,
    where: Where = None,
    params: Params = None,
    snapshot: AtSnapshot = None,
) -> Answer:
    """Show which files a read would open and which it would skip, and why, without reading rows."""
    plan = visit.table(table).scan(columns=columns, where=where, params=params, snapshot=snapshot).explain()
    return Answer({"plan": visit.shown(records([plan])[0])})


Query = Annotated[str, Field(description="One SELECT in DuckDB's SQL over tables named database.table.", max_length=MAX_SQL)]


@READING_TOOLS.tool()
def run_sql(visit: Visit, query: Query, limit: Limit = DEFAULT_ROWS) -> Answer:
    """Run one SELECT over tables: joins, aggregates, windows. It cannot change anything, nor read files or addresses."""
    bounds = QueryBounds(QUERY_MEMORY, QUERY_SCRATCH, QUERY_THREADS, visit.interrupts.append)
    try:
        result = run_query(query, visit.table, visit.catalog.runtime.trace, bounds=bounds)
    except Refused as refusal:
        refusal.set_hint("name tables as database.table: files and addresses cannot be read here")
        raise
    except NotFound as missing:
        if isinstance(missing.__cause__, duckdb.Error) and not missing.is_about_a_name:
            missing.set_hint("name tables as database.table; list_tables has them")
        raise
    with closing(result):
        return rows_answer(result, limit)


@READING_TOOLS.tool(describes=VerifyOptions)
def verify_table(visit: Visit, table: TableArgument, level: Literal["meta", "files", "full"] = "meta") -> Answer:
    """Check that a table is intact: its metadata, its files, or every row. Nothing is repaired."""
    report = visit.table(table).verify(level=level)
    data = {
        "level": report.level,
        "snapshot_id": report.snapshot_id,
        "errors": report.errors,
        "warnings": report.warnings,
        "checks": [{"check": one.check, "result": one.result, "findings": one.findings} for one in report.checks],
        "findings": visit.shown(records(report.violations)),
    }
    return Answer(data)


@READING_TOOLS.tool(describes=ExpireOptions)
def plan_expiry(visit: Visit, table: TableArgument, what: What = "snapshots", limit: Limit = DEFAULT_ROWS) -> Answer:
    """Show what is past its retention by the options of a table, and the files that would be deleted with it. A dry run."""
    planned = visit.table(table).plan_expire(what)
    files = planned.files()
    data = {
        "what": planned.plan.what,
        "names": list(planned.plan.names),
        "file_count": len(files),
        "bytes": sum(file.size or 0 for file in files),
        "files": visit.shown(records(files[:limit])),
    }
    return Answer(data, "a dry run: nothing was changed, and no tool here can expire anything", len(files) > limit)


@READING_TOOLS.tool()
def plan_maintenance(visit: Visit, table: TableArgument) -> Answer:
    """Show what the operator's `maintain` would do to a table: compact, expire, delete orphans. A dry run."""
    visit.table(table)
    rows = visit.catalog.plan_maintenance(tables=[table])
    return Answer({"maintenance": visit.shown(records(rows))}, "a dry run: nothing was changed")


@READING_TOOLS.tool(describes=CompactOptions)
def plan_compaction(visit: Visit, table: TableArgument, strategy: StrategyName = "full") -> Answer:
    """Show what a compaction of a table would merge, bucket by bucket. A dry run."""
    opened = visit.table(table)
    return compaction_answer(visit, opened, opened.plan_compaction(strategy), "a dry run: nothing was changed")


def compaction_answer(visit: Visit, table: Table, plan: CompactionPlan, note: str = "") -> Answer:
    from paimon_cli.inspect.compaction_report import decision_rows

    decisions = visit.shown(records(decision_rows(table.context, plan.decisions)))
    data = {
        "snapshot_id": plan.snapshot_id,
        "buckets": plan.picked,
        "files": plan.work.files,
        "bytes": plan.work.size,
        "rows_dropped_after": rows_dropped_after(table.context, plan),
        "decisions": decisions,
    }
    return Answer(data, note if plan.has_work else "there is nothing to compact")
