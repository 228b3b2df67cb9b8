"""`compare` and `bisect`: find differences between rows, and the snapshot in which they began."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paimon_cli.catalog.metastore.settings import table_argument
from paimon_cli.cli.command import Call, command, top_level
from paimon_cli.cli.output import Item, Listing
from paimon_cli.cli.parameters import Given, TableName
from paimon_cli.cli.results import cell_text, counted, printable, rfc3339
from paimon_cli.errors import FINDINGS_EXIT_CODE, UsageError
from paimon_cli.requests.comparison import CompareOptions
from paimon_cli.requests.fields import declared
from paimon_cli.requests.versions import BisectOptions

if TYPE_CHECKING:
    from paimon_cli.api.comparison import ComparedVersions
    from paimon_cli.jobs.bisection import Bisection
    from paimon_cli.jobs.comparison import Comparison, RowDifference

commands = top_level()
MARKS = {"only here": "-", "only there": "+", "different": "~"}


@command(commands, "compare", reads_files=True)
def compare(
    call: Call,
    *,
    options: Annotated[Given, CompareOptions],
    files: Annotated[
        bool, typer.Option("--files", help="Of two versions of a table: the data files that only one of them has.")
    ] = False,
    changelog: Annotated[
        bool, typer.Option("--changelog", help="Of two versions of a table: the row changes after A, up to B, with their kinds.")
    ] = False,
) -> None:
    """Show what changed between tables, versions of tables, or files: rows, by default. Exits with 4 on differences.

    Shows rows that only one side has, and rows with different values. Rows are paired by key; without a key, whole rows are
    counted. Columns are those of the same name; of versions of one table, those of the same field id. NaN equals NaN, null equals
    null, -0.0 differs from 0.0.

    paimon-cli compare ./wh/shop.db/orders@12 ./wh/shop.db/orders

    paimon-cli compare ./wh/shop.db/orders exported.csv --key id -s id,amount

    paimon-cli compare ./wh/shop.db/orders@12 ./wh/shop.db/orders@15 --changelog
    """
    if files or changelog:
        has_differences = _show_between(call, options, files, changelog)
        if has_differences:
            raise typer.Exit(FINDINGS_EXIT_CODE)
        return
    found = call.catalog().compare(**options, form=call.form)
    call.show(Item("Comparison", None, found), "\n".join(_comparison_lines(found)))
    if not found.is_equal:
        raise typer.Exit(FINDINGS_EXIT_CODE)


OF_FILES = ("here", "there", "snapshot_a", "snapshot_b", "tag_a", "tag_b", "branch_a", "branch_b", "limit")
OF_CHANGELOG = (*OF_FILES, "columns", "where", "params")
"""The options of `compare` that mean something with --files, and with --changelog."""


def _show_between(call: Call, options: Given, files: bool, changelog: bool) -> bool:
    """Show the files or the row changes between two versions; returns whether there are any."""
    if files and changelog:
        raise UsageError("--files cannot be combined with --changelog", "each shows something else", "leave one of them out")
    shown = "--files" if files else "--changelog"
    for field in declared(CompareOptions):
        if field.name in options and field.name not in (OF_FILES if files else OF_CHANGELOG):
            spelled = field.flags[-1]
            raise UsageError(f"{spelled} cannot be combined with {shown}", "it is about pairs of rows", f"leave out {spelled}")
    versions = call.catalog().versions(**options)
    name, limit = versions.table.name, options.get("limit")
    if files:
        return _show_files(call, name, versions, limit)
    from paimon_cli.cli.row_output import CountedRows, print_rows

    chosen = {name: options.get(name) for name in ("columns", "where", "params")}
    rows = CountedRows(versions.changelog(**chosen, limit=limit).rows)
    print_rows(rows, name, call)
    return rows.count > 0


def _show_files(call: Call, name: str, versions: ComparedVersions, limit: int | None) -> bool:
    from paimon_cli.read.difference import ADDED, FileChange

    changes = versions.file_changes()
    added = sum(change.change == ADDED for change in changes)
    between = f"from snapshot {versions.before.id} to {versions.after.id}"
    footer = f"{counted(added, 'file')} added, {counted(len(changes) - added, 'file')} removed {between}"
    call.show(Listing("FileChangeList", name, FileChange, changes[:limit], footer=footer))
    return bool(changes)


def _comparison_lines(found: Comparison) -> Iterator[str]:
    yield f"- {found.here}: {counted(found.rows_here, 'row')}"
    yield f"+ {found.there}: {counted(found.rows_there, 'row')}"
    yield f"paired by {', '.join(found.key)}" if found.key else "compared as whole rows"
    for mark, columns in (("-", found.columns_only_here), ("+", found.columns_only_there)):
        if columns:
            yield f"{mark} columns not compared, because the other side lacks them: {', '.join(columns)}"
    if both := sorted({*found.columns_only_here} & {*found.columns_only_there}):
        yield f"dropped and added again, so that it is another column: {', '.join(both)}"
    if found.renamed_columns:
        yield f"renamed: {', '.join(f'{old} -> {new}' for old, new in found.renamed_columns.items())}"
    changed = f", {found.different:,} different" if found.key else ""
    yield f"{found.equal:,} equal{changed}, {found.only_here:,} only here (-), {found.only_there:,} only there (+)"
    if found.differing_columns:
        descending = sorted(found.differing_columns.items(), key=lambda item: -item[1])
        yield "different in " + ", ".join(f"{name} ({count:,})" for name, count in descending)
    yield from map(_difference_line, found.differences)
    hidden = found.only_here + found.only_there + found.different - sum(row.count for row in found.differences)
    if hidden:
        yield f"{counted(hidden, 'more difference')}; --limit shows more"


def _difference_line(row: RowDifference) -> str:
    key = ", ".join(f"{name}={cell_text(value)}" for name, value in (row.key or {}).items())
    here, there = row.here or {}, row.there or {}
    if row.columns:
        values = ", ".join(f"{name} {_value(here[name])} -> {_value(there[name])}" for name in row.columns)
    else:
        values = ", ".join(f"{name}={_value(value)}" for name, value in (here or there).items())
    times = f" ({row.count:,} times)" if row.count > 1 else ""
    return f"{MARKS[row.kind]} {key + ': ' if key and values else key}{values}{times}"


def _value(value: Any) -> str:
    return "NULL" if value is None else printable(json.dumps(value, ensure_ascii=False))


@command(commands, "bisect")
def bisect(call: Call, table: TableName, *, options: Annotated[Given, BisectOptions]) -> None:
    """Find the first snapshot in which some row matches a condition, by binary search. Exits with 3 if none does in the last one.

    If rows started to match more than once, one of those snapshots is found.

    paimon-cli bisect ./wh/shop.db/orders -w "amount < 0"

    paimon-cli bisect ./wh/shop.db/orders -w "id = 7" --expect none
    """
    opened = call.open(table)
    found = opened.bisect(**options)
    call.show(Item("Bisection", opened.name, found), "\n".join(_bisection_lines(call, found, table)))


def _bisection_lines(call: Call, found: Bisection, table: str) -> Iterator[str]:
    for attempt in found.tried:
        yield f"snapshot {attempt.snapshot_id}: {counted(attempt.rows, 'row')}" + (", as expected" if attempt.holds else "")
    yield f"first in snapshot {found.snapshot_id}: {found.kind} of {rfc3339(found.time)} by {found.commit_user}"
    if found.before is None:
        yield "it already holds in the first snapshot that was searched, and may be older"
    else:
        here, there = _versions(call, table, found.before, found.snapshot_id)
        yield f"see: paimon-cli compare {here} {there}"


def _versions(call: Call, table: str, before: int, after: int) -> tuple[str, str]:
    """Two versions of a table as arguments of `compare`, with the flags of this call that concern the table."""
    name = table if call.branch is None else f"{table}$branch_{call.branch}"
    last = table_argument(f"{name}@{after}", call.warehouse, None, {**call.catalog_options, **call.options})
    return shlex.quote(f"{name}@{before}"), last
