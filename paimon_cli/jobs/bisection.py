"""`bisect`: finds the first snapshot in which a row matches a condition, or in which none does, by binary search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paimon_cli.errors import NotFound, UsageError
from paimon_cli.options.option_catalog import Operation
from paimon_cli.options.option_text import counted
from paimon_cli.read.scan_plan import plan_scan
from paimon_cli.read.split_reader import count_split
from paimon_cli.sql.predicate import Predicate, check_all_used, parse_predicate
from paimon_cli.storage.redaction import shown_name

if TYPE_CHECKING:
    from paimon_cli.history.table_context import TableContext
    from paimon_cli.metadata.snapshot import Snapshot
    from paimon_cli.requests.versions import BisectOptions


@dataclass(frozen=True)
class TriedSnapshot:
    """A snapshot that was examined: how many `rows` matched, and whether the expectation `holds`."""

    snapshot_id: int
    rows: int
    holds: bool


@dataclass(frozen=True)
class Bisection:
    """The first snapshot in which the expectation holds, its commit, and all snapshots `tried`, in order.

    `before`: the previous snapshot, in which it does not hold; None if it holds from the first snapshot on.
    """

    where: str
    expect: str
    snapshot_id: int
    rows: int
    before: int | None
    kind: str
    time: int
    commit_user: str
    commit_identifier: int
    first_snapshot: int
    last_snapshot: int
    tried: Sequence[TriedSnapshot]


def bisect_snapshots(
    table: TableContext, options: BisectOptions, advance: Callable[[int], object] = lambda count: None
) -> Bisection:
    """Search the snapshots `first` to `last` (default: all). The expectation must hold in the last of them.

    The condition uses the current columns; a column added later is null in older snapshots. If the expectation started to
    hold more than once, any one of those snapshots is returned. Raises `NotFound` if it does not hold in the last snapshot,
    or if there are no snapshots to search.
    """
    table.check(Operation.SCAN)
    where, expect, first, last = options.where, options.expect, options.first, options.last
    assert not isinstance(first, str) and not isinstance(last, str)  # who makes the request looks up names
    predicate = parse_predicate(where, table.schema, options.params)
    check_all_used(options.params, predicate.parameters)
    ids = [number for number in table.snapshots.ids() if (first or 0) <= number and (last is None or number <= last)]
    if not ids:
        raise _nothing_to_search(table, first, last)
    tried: list[TriedSnapshot] = []

    def holds(snapshot_id: int) -> bool:
        rows = _matching_rows(table, table.snapshots.get(snapshot_id), predicate)
        tried.append(TriedSnapshot(snapshot_id, rows, (rows > 0) == (expect == "some")))
        advance(1)
        return tried[-1].holds

    if not holds(ids[-1]):
        raise _never(table, where, expect, tried, ids)
    low, high = -1, len(ids) - 1  # it holds at `high`, and not at `low`
    if high > 0:
        low, high = (-1, 0) if holds(ids[0]) else (0, high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(ids[middle]) else (middle, high)
    found = table.snapshots.get(ids[high])
    return _result(found, where, expect, None if low < 0 else ids[low], ids, tried)


def _matching_rows(table: TableContext, snapshot: Snapshot, predicate: Predicate) -> int:
    context = table
    if context.mode.merges_postponed and not table.place.read_optimized:
        from paimon_cli.jobs.postponed_rows import plan_with_waiting_rows  # imports the write path

        context, plan = plan_with_waiting_rows(context, snapshot, predicate)
    else:
        plan = plan_scan(context, snapshot, predicate, read_optimized=table.place.read_optimized)
    return sum(count_split(context, split, predicate) for split in plan.splits)


def _result(
    found: Snapshot, where: str, expect: str, before: int | None, ids: Sequence[int], tried: Sequence[TriedSnapshot]
) -> Bisection:
    return Bisection(
        where=where,
        expect=expect,
        snapshot_id=found.id,
        rows=next(attempt.rows for attempt in tried if attempt.snapshot_id == found.id),
        before=before,
        kind=found.commit_kind,
        time=found.time_millis,
        commit_user=shown_name(found.commit_user),
        commit_identifier=found.commit_identifier,
        first_snapshot=ids[0],
        last_snapshot=ids[-1],
        tried=tried,
    )


def _nothing_to_search(table: TableContext, first: int | None, last: int | None) -> NotFound | UsageError:
    if first is not None and last is not None and first > last:
        return UsageError(f"--from {first} --to {last}", "the first snapshot must not come after the last one")
    hint = f"paimon-cli snapshots ls {table.layout.argument}"
    return NotFound(f"no snapshots of {table.name} to search", "there are none in this range", hint)


def _never(table: TableContext, where: str, expect: str, tried: Sequence[TriedSnapshot], ids: Sequence[int]) -> NotFound:
    last = tried[-1]
    why = f"{counted(last.rows, 'matching row')} in snapshot {last.snapshot_id}, the last of {counted(len(ids), 'snapshot')}"
    what = f"'{where}' matches no row" if expect == "some" else f"'{where}' still matches rows"
    hint = "if it holds in an earlier snapshot, end the search there with --to N"
    details = [{"snapshot_id": attempt.snapshot_id, "rows": attempt.rows} for attempt in tried]
    return NotFound(f"{what} of {table.name}", why, hint, tried=details)
