"""`update` and `delete` as jobs: which rows change and how, and that no change of another job is ever undone."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_cli.errors import BadInput, DataConflict, NotSupported, Refused, StorageUnavailable, UsageError
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.faults import Tally
from paimon_cli.invariants.check import check_table
from paimon_cli.jobs import bucket_change, update_job
from paimon_cli.jobs.bucket_change import UpdateTask, plan_update, update_bucket
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.row_change import ChangedBucket, MetRows, RowEdit
from paimon_cli.jobs.stored_rows import NumberedSplit
from paimon_cli.jobs.update_job import ChangedRows, UpdateRequest, UpdateSummary, compacted_after, run_update
from paimon_cli.lsm.sorted_runs import count_runs
from paimon_cli.metadata.data_file import BucketId, DataFileMeta
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, RowKind, merge_rows
from paimon_cli.metadata.snapshot import RowOperation
from paimon_cli.read.scan_plan import plan_scan
from paimon_cli.read.split_reader import read_split
from paimon_cli.sql.clauses import parse_set_clause
from paimon_cli.sql.predicate import parse_predicate
from tests.commit.commit_tables import SteppingClock
from tests.rivals import beside, files_of
from tests.tables import compact, data_files, live_files, make_table, rows, write

COLUMNS = {"dt": "STRING NOT NULL", "id": "INT NOT NULL", "name": "STRING", "points": "INT NOT NULL", "price": "DECIMAL(6, 2)"}
WORKERS, INCREMENTS = 3, 5


def row(number: int, day: str = "a", **values: Any) -> dict[str, Any]:
    return {"dt": day, "id": number, "name": f"n{number}", "points": number, "price": "1.50", **values}


@pytest.fixture
def table(tmp_path: Path) -> TableContext:
    """Two days of four rows in two buckets each, written twice so that versions must be merged."""
    context = make_table(tmp_path / "t", COLUMNS, ["dt", "id"], ["dt"], bucket=2)
    every = [row(number, day) for day in ("a", "b") for number in range(1, 5)]
    write(context, [{**one, "points": 77} for one in every])
    write(context, every)
    return context


def run(context: TableContext, where: str, *assignments: str, **more: Any) -> UpdateSummary:
    return run_update(context, UpdateRequest(where, assignments, **more), LocalEngine(), NoProgress())


def shown(context: TableContext, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in rows(context, columns)]


def test_matching_rows_change_and_no_others(table: TableContext) -> None:
    summary = run(table, "id >= 3 AND dt = 'a'", "points = points * 10 + id", "name = upper(name) || '!', price = price / 4")
    assert (summary.rows, summary.attempts, summary.conflicts) == (2, 1, 0)
    (snapshot,) = summary.snapshots
    assert (snapshot.commit_kind, snapshot.delta_record_count) == ("APPEND", 2)
    changed = [("a", 3, "N3!", 33, "0.38"), ("a", 4, "N4!", 44, "0.38")]
    untouched = [(day, n, f"n{n}", n, "1.50") for day in ("a", "b") for n in range(1, 5) if (day, n) not in (("a", 3), ("a", 4))]
    assert sorted(shown(table, *COLUMNS)) == sorted(changed + untouched)


def test_all_expressions_see_the_row_as_it_was(table: TableContext) -> None:
    run(table, "id = 2 AND dt = 'a'", "points = id + 5", "price = points", "name = coalesce(NULL, name, 'x')")
    assert ("a", 2, "n2", 7, "2.00") in shown(table, *COLUMNS)


def test_old_versions_of_a_row_do_not_match(table: TableContext) -> None:
    assert run(table, "points = 77", "points = 0").rows == 0
    assert table.snapshots.latest_id() == 2


def test_nothing_matches_nothing_is_committed(table: TableContext) -> None:
    before = files_of(table)
    for summary in (run(table, "id = 99"), run(table, "id = 99", "points = 0")):
        assert (summary.rows, summary.snapshots, summary.attempts) == (0, (), 1)
    assert files_of(table) == before


def test_deleted_rows_stay_deleted_after_a_compaction(table: TableContext) -> None:
    summary = run(table, "id = 1 OR (dt = 'b' AND id > 2)")
    assert summary.rows == 4
    left = [("a", 2), ("a", 3), ("a", 4), ("b", 2)]
    assert shown(table, "dt", "id") == left
    compact(table)
    assert shown(table, "dt", "id") == left
    assert run(table, "true").rows == 4
    assert rows(table) == []


def test_a_table_without_snapshots(tmp_path: Path) -> None:
    assert run(make_table(tmp_path / "t", COLUMNS, ["dt", "id"], ["dt"]), "true", "points = 1").rows == 0


def test_a_change_follows_every_earlier_one(table: TableContext) -> None:
    """Sequence numbers rise, also over files that the condition prunes."""
    for number in range(3):
        run(table, "id = 1", "points = points + 1")
        write(table, [row(1, "b", points=100 * number)])
    assert [r["points"] for r in rows(table, ["dt", "id", "points"]) if r["id"] == 1] == [4, 200]
    for bucket in bucket_files(table, table.snapshots.latest()).values():
        spans = [(file.min_sequence_number, file.max_sequence_number) for file in bucket.files]
        assert all(low > reach for (_, reach), (low, _) in pairwise(spans)), "one after the other"


def test_one_task_for_each_bucket_that_can_match(table: TableContext) -> None:
    snapshot = table.snapshots.latest()
    assert snapshot is not None
    for where, tasks in (("id = 3 AND dt = 'a'", 1), ("points > 0", 4)):
        change = RowEdit(parse_predicate(where, table.schema), None)
        assert len(plan_update(table, snapshot, change, "stamp")) == tasks


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("points = points * 1000000000", "000000000: it is outside the range of INT"),
        ("points = points / (id - 4)", "id = 4: divide by zero"),
        ("points = points + 9223372036854775807", "overflow"),
        ("points = NULL", "the column is NOT NULL"),
        ("price = 12345.6", "does not fit DECIMAL"),
    ],
)
def test_a_row_that_cannot_change_fails_the_update_and_leaves_nothing(table: TableContext, assignment: str, message: str) -> None:
    before = files_of(table)
    with pytest.raises(BadInput) as failure:
        run(table, "id >= 3", assignment)
    assert message in str(failure.value)
    assert failure.value.exit_code == 2
    assert files_of(table) == before


@pytest.mark.parametrize("assignment", ["id = 2", "dt = 'c'", "nope = 1", "points = 'x'", "points = 1 WHERE id = 2"])
def test_what_cannot_be_set_is_refused_before_anything_is_read(table: TableContext, assignment: str) -> None:
    with pytest.raises(UsageError):
        run(table, "id >= 3", assignment)


def test_a_sequence_field_may_rise_and_not_fall(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", {"id": "INT NOT NULL", "at": "INT", "v": "INT"}, ["id"], options={"sequence.field": "at"})
    write(table, [{"id": n, "at": 10 * n, "v": 0} for n in (1, 2, 3)])
    run(table, "true", "v = v + 1")
    run(table, "id = 2", "v = v + 1, at = at + 5")
    assert shown(table, "id", "at", "v") == [(1, 10, 1), (2, 25, 2), (3, 30, 1)]
    before = files_of(table)
    with pytest.raises(BadInput, match="id = 3 would not change"):
        run(table, "true", "at = 26")
    with pytest.raises(BadInput, match="id = 1 would not change"):
        run(table, "true", "at = NULL")
    assert files_of(table) == before
    run(table, "id = 1")
    assert shown(table, "id") == [(2,), (3,)]


def test_tables_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotSupported, match=r"row-tracking\.enabled"):
        run(make_table(tmp_path / "t", {"v": "INT"}, [], bucket=1, options={"row-tracking.enabled": "true"}), "true")


def test_an_overtaken_update_reads_again(table: TableContext) -> None:
    def add_one() -> UpdateSummary:
        return run(table, "id = 1", "points = points + 1", compact="none")

    summary = run(beside(table, add_one, add_one), "id = 1", "points = points + 1", compact="none")
    assert (summary.rows, summary.attempts, summary.conflicts) == (2, 3, 2)
    assert [r["points"] for r in rows(table) if r["id"] == 1] == [4, 4]
    assert data_files(table) == live_files(table), "files of lost attempts are gone"


def test_rows_that_begin_to_match_meanwhile_are_changed_too(table: TableContext) -> None:
    one_bucket = make_table(Path(table.url).parent / "one", COLUMNS, ["dt", "id"], ["dt"])
    write(one_bucket, [row(4), row(5)])
    summary = run(beside(one_bucket, lambda: write(one_bucket, [row(4, points=0), row(9)])), "points >= 4")
    assert (summary.rows, summary.conflicts) == (2, 1)
    assert shown(one_bucket, "id", "points") == [(4, 0)]


def test_writes_to_other_buckets_are_not_a_conflict_by_default(table: TableContext) -> None:
    def elsewhere() -> None:
        write(table, [row(50, "c")])

    assert run(beside(table, elsewhere), "id = 1", "points = 0").conflicts == 0
    by_partition = {"commit.data-conflict-check": "partition"}
    assert run(beside(table, elsewhere, options=by_partition), "id = 1", "points = 0").conflicts == 0
    same_day = run(beside(table, lambda: write(table, [row(n) for n in range(50, 60)])), "id = 1 AND dt = 'a'", "points = 0")
    assert same_day.conflicts == 1


@pytest.mark.parametrize("check", ["off", "bucket", "range", "key"])
def test_an_update_is_under_the_check_even_where_the_table_switches_it_off(table: TableContext, check: str) -> None:
    def add_one() -> None:
        run(table, "id = 1 AND dt = 'a'", "points = points + 1")

    options = {"commit.data-conflict-check": check}
    assert run(beside(table, add_one, options=options), "id = 1 AND dt = 'a'", "points = points + 1").conflicts == 1
    assert [r["points"] for r in rows(table) if (r["dt"], r["id"]) == ("a", 1)] == [3]


def test_by_key_neighbours_in_a_bucket_are_not_a_conflict(tmp_path: Path) -> None:
    table = make_table(tmp_path / "one", COLUMNS, ["dt", "id"], ["dt"])
    write(table, [row(number) for number in range(10)])

    def neighbour() -> None:
        run(table, "id = 2", "points = 50")

    def conflicts(check: str) -> int:
        options = {"commit.data-conflict-check": check}
        return run(beside(table, neighbour, options=options), "id = 1 OR id = 5", "points = 0").conflicts

    assert [conflicts(check) for check in ("bucket", "range", "key")] == [1, 1, 0]
    assert [r["points"] for r in rows(table) if r["id"] in (1, 2, 5)] == [0, 50, 0]


def test_attempts_end_and_leave_nothing(table: TableContext) -> None:
    rivals = [lambda: run(table, "id = 1", "points = points + 1", compact="none")] * 3
    context = replace(beside(table, *rivals), clock=SteppingClock())
    with pytest.raises(DataConflict, match=r"\(3 attempts\)") as failure:
        run(context, "id = 1", "points = points + 1", max_attempts=3, compact="none")
    assert failure.value.details["attempts"] == 3 and "--max-attempts" in failure.value.hint
    assert len(context.clock.sleeps) == 3 + 2, "in each commit, and between the attempts"  # type: ignore[attr-defined]
    assert [r["points"] for r in rows(table) if r["id"] == 1] == [4, 4]
    assert data_files(table) == live_files(table)


def test_a_lost_race_for_the_snapshot_alone_is_the_commits_to_repeat(table: TableContext) -> None:
    far = {"commit.max-retries": "1", "commit.min-retry-wait": "1 ms"}
    elsewhere = [lambda n=n: write(table, [row(n, "far")]) for n in range(2)]
    with pytest.raises(StorageUnavailable):
        run(beside(table, *elsewhere, options=far), "id = 1 AND dt = 'a'", "points = 0")
    assert data_files(table) == live_files(table)


def test_a_commit_says_what_it_did_to_the_rows(table: TableContext) -> None:
    (updated,) = run(table, "id = 1", "points = 0", compact="none").snapshots
    (deleted,) = run(table, "id = 2", compact="none").snapshots
    assert (updated.operation, deleted.operation) == (RowOperation.UPDATE, RowOperation.DELETE)


def test_rows_that_fluss_has_moved_are_not_changed(table: TableContext) -> None:
    before = files_of(table)
    with pytest.raises(Refused, match="cannot change rows of"):
        run(TableContext.open(table.url, {"fluss.table.datalake.enabled": "true"}), "id = 1", "points = 0")
    assert files_of(table) == before


@pytest.mark.parametrize("engine", ["partial-update", "aggregation", "first-row"])
def test_a_key_stays_in_its_partition_where_its_versions_count(tmp_path: Path, engine: str) -> None:
    context = make_table(tmp_path / "t", {"p": "STRING", "k": "INT NOT NULL"}, ["k"], ["p"], -1, {"merge-engine": engine})
    write(context, [{"p": "a", "k": 1}])
    before = files_of(context)
    with pytest.raises(UsageError, match="column 'p' cannot be set in a table with merge-engine"):
        run(context, "k = 1", "p = 'b'")
    assert files_of(context) == before


def test_moved_rows_are_numbered_over_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers that begin again in each batch would give rows of one key an order that nobody chose."""

    def in_pieces(*arguments: Any) -> Iterator[pa.RecordBatch]:
        for batch in read_split(*arguments):
            yield from (batch.slice(0, 2), batch.slice(2))

    monkeypatch.setattr(update_job, "read_split", in_pieces)
    context = make_table(tmp_path / "t", {"p": "STRING", "k": "INT NOT NULL"}, ["k"], ["p"], -1)
    write(context, [{"p": "a", "k": number} for number in range(6)])
    where = parse_predicate("k < 5", context.schema)
    change = RowEdit(where, parse_set_clause(("p = 'b'",), context.schema))
    (split,) = plan_scan(context, context.snapshots.get(1), where).splits
    tally = Tally()
    batches = [*ChangedRows(context, change).read(NumberedSplit(split, 10), tally)]
    found = [(one["k"], one["p"], one[SEQUENCE_NUMBER]) for batch in batches for one in batch.to_pylist()]
    assert len(batches) == 2 and found == [(number, "b", 10 + number) for number in range(5)] and tally.rows == 5


class Owed(NamedTuple):
    compact: Literal["none", "inline", "after"] | None
    inline: str | None
    is_routed: bool
    lost: str | None
    repeats: bool


@pytest.mark.parametrize(
    "case",
    [
        Owed(None, "minor", False, None, False),
        Owed(None, "minor", False, "overtaken", True),
        Owed(None, "minor", True, None, True),
        Owed(None, None, False, None, True),
        Owed("after", None, False, None, True),
        Owed("none", None, True, "overtaken", False),
    ],
)
def test_a_compaction_that_readers_wait_for_is_made_after_the_change(tmp_path: Path, case: Owed) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"], options={"deletion-vectors.enabled": "true"})
    (snapshot,) = write(context, [{"k": 1}], compact="none").snapshots
    before = UpdateSummary(
        snapshots=(snapshot,),
        touched=tuple(bucket_files(context, snapshot)),
        is_routed=case.is_routed,
        compacted=3,
        compaction_lost=case.lost,
    )
    request = UpdateRequest("k = 1", compact=case.compact)
    after = compacted_after(context, request, before, case.inline, LocalEngine(), NoProgress())
    assert context.snapshots.ids() == [1, 2][: 1 + case.repeats]
    if case.repeats:
        assert (after.compacted, after.compaction_lost, after.compaction_repeated) == (4, None, case.lost)
        assert (after.snapshots, after.waiting_records) == ((snapshot, context.snapshots.get(2)), 0)
    else:
        assert after == replace(before, waiting_records=1)


def test_a_repeated_update_is_made_once(table: TableContext) -> None:
    def add_one(context: TableContext, number: int) -> UpdateSummary:
        return run(context, "id = 1 AND dt = 'a'", "points = points + 1", commit_user="job", commit_id=number)

    assert [add_one(table, 1).already_committed for _ in range(3)] == [False, True, True]
    assert add_one(beside(table, lambda: add_one(table, 2)), 2).already_committed
    assert [r["points"] for r in rows(table) if (r["dt"], r["id"]) == ("a", 1)] == [3]
    assert data_files(table) == live_files(table)


def increment(folder: str, worker: int) -> int:
    context = TableContext.open(folder)
    return sum(run(context, "id = 1 AND dt = 'a'", "points = points + 1", compact="none").attempts for _ in range(INCREMENTS))


def test_concurrent_increments_of_processes_are_all_counted(table: TableContext) -> None:
    with ProcessPoolExecutor(WORKERS, multiprocessing.get_context("spawn")) as pool:
        attempts = sum(pool.map(partial(increment, table.url), range(WORKERS)))
    assert ("a", 1, 1 + WORKERS * INCREMENTS) in shown(table, "dt", "id", "points")
    assert attempts >= WORKERS * INCREMENTS
    assert table.snapshots.latest_id() == 2 + WORKERS * INCREMENTS
    assert data_files(table) == live_files(table)


@pytest.mark.in_part(2)
@pytest.mark.parametrize("option", [None, "num-sorted-run.stop-trigger"])
def test_updates_compact_as_writes_do(option: str | None, tmp_path: Path) -> None:
    options = {} if option is None else {"num-sorted-run.compaction-trigger": "4", option: "5"}
    context = make_table(tmp_path / "t", COLUMNS, ["dt", "id"], ["dt"], options=options)
    write(context, [row(number) for number in range(200)])
    before = {one["id"]: one["points"] for one in rows(context)}
    most = compacted = 0
    for _ in range(12):
        summary = run(context, "id < 50", "points = points + 1")
        most, compacted = max(most, runs_of(context)), compacted + summary.compacted
    assert most < context.options.stop_trigger and compacted, "more runs than a write leaves"
    assert {one["id"]: one["points"] for one in rows(context)} == {id: n + 12 * (id < 50) for id, n in before.items()}
    assert not list(check_table(context, rows=True))


def runs_of(context: TableContext) -> int:
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    return count_runs(bucket.files)


@pytest.mark.parametrize("compaction", ["none", "after"])
def test_an_update_compacts_on_request(compaction: str, tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["dt", "id"], ["dt"], options={"num-sorted-run.compaction-trigger": "1"})
    write(context, [row(number) for number in range(20)])
    summary = run(context, "id < 5", "points = 0", compact=compaction)
    assert (summary.compacted, len(summary.snapshots), runs_of(context)) == ((0, 1, 2) if compaction == "none" else (1, 2, 1))


def test_a_change_stays_if_its_compaction_is_refused(tmp_path: Path) -> None:
    """Another job compacts the bucket between the two halves of the commit, or before it."""
    context = make_table(tmp_path / "t", COLUMNS, ["dt", "id"], ["dt"], options={"num-sorted-run.compaction-trigger": "1"})
    for points in (1, 2):
        write(context, [{**row(number), "points": points} for number in range(20)], compact="none")
    summary = run(beside(context, lambda: compact(context)), "id = 1", "points = 9")
    assert (summary.rows, summary.attempts) == (1, 1)
    assert [one["points"] for one in rows(context) if one["id"] in (1, 2)] == [9, 2]
    assert (summary.compaction_lost is None) == bool(summary.compacted)
    assert not list(check_table(context, rows=True))


def test_a_change_that_readers_would_not_see_names_values_as_they_are(tmp_path: Path) -> None:
    """A text is quoted, so that an empty one is visible, and a null is NULL."""
    options = {"merge-engine": "first-row"}
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL", "name": "STRING", "note": "STRING"}, ["id"], options=options)
    write(context, [{"id": 1, "name": "a"}])
    for assignment, told in (
        ("name = ''", "become '': .*show 'a'"),
        ("name = NULL", "become NULL: .*show 'a'"),
        ("note = 'x'", "show NULL"),
    ):
        with pytest.raises(BadInput, match=told):
            run(context, "id = 1", assignment)


@pytest.mark.parametrize("moved", ["p", "q"])
def test_rows_whose_partition_changes_in_any_column_do_not_stay(tmp_path: Path, moved: str) -> None:
    columns = {"p": "INT NOT NULL", "q": "INT NOT NULL", "k": "INT NOT NULL"}
    schema = make_table(tmp_path / "t", columns, ["p", "q", "k"], ["p", "q"]).schema
    cells = {name: pa.array([1, 2, 3], pa.int32()) for name in columns}
    new = {**cells, moved: pa.array([1, 7, 3], pa.int32())}
    before, after = (merge_rows(schema, each, RowKind.UPDATE_AFTER, 0) for each in (cells, new))
    met = MetRows()
    stays = met.staying(schema, before, after)
    assert [batch.column("k").to_pylist() for batch in stays] == [[1, 3], [1, 3]]
    assert [batch.column(moved).to_pylist() for batch in met.moved] == [[7]]


def _in_threes(*arguments: Any) -> Iterator[pa.RecordBatch]:
    for batch in read_split(*arguments):
        yield batch.slice(0, 0)
        yield from (batch.slice(start, 3) for start in range(0, batch.num_rows, 3))


def by_bucket(context: TableContext, change: RowEdit, **given: Any) -> list[tuple[UpdateTask, ChangedBucket]]:
    """The tasks of a change, and what became of each."""
    snapshot = context.snapshots.latest()
    assert snapshot is not None
    return [(task, update_bucket(context, task, change)) for task in plan_update(context, snapshot, change, "data-x", **given)]


def stored(context: TableContext, bucket: BucketId, file: DataFileMeta) -> list[dict[str, Any]]:
    return [dict(one) for one in pq.read_table(context.data_file_path(*bucket, file), partitioning=None).to_pylist()]


@pytest.mark.parametrize("changelog", ["none", "input"])
def test_a_bucket_of_several_splits_and_batches_is_changed_in_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changelog: str
) -> None:
    """Sequence numbers rise over batches and splits, above all files of the bucket, also those that are not read."""
    monkeypatch.setattr(bucket_change, "read_split", _in_threes)
    options = {"source.split.target-size": "1 b", "source.split.open-file-cost": "1 b", "changelog-producer": changelog}
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"], bucket=1, options=options)
    for first in (100, 0, 200):
        write(context, [{"k": first + n, "v": f"{n}"} for n in range(10)], compact="none")
    write(context, [{"k": 999, "v": "x"}], compact="none")
    where = parse_predicate("k < 900 AND v <> '4'", context.schema)
    change = RowEdit(where, parse_set_clause(("v = v || '!'",), context.schema))
    ((task, done),) = by_bucket(context, change)
    assert len(task.splits) > 1 and task.compact_bucket is None and task.read_snapshot_id == 4
    assert task.first_sequence == 1 + max(file.max_sequence_number for file in task.existing.files)
    assert (done.rows, done.deleted, done.moved, done.compaction_lost) == (27, 0, (), None) and done.message is not None
    (file,) = done.message.append.added
    found = stored(context, task.existing.bucket_id, file)
    keys = [(first + n, f"{n}!") for first in (0, 100, 200) for n in range(10) if n != 4]
    assert [(one["k"], one["v"]) for one in found] == keys
    assert [one["_SEQUENCE_NUMBER"] for one in found] == list(range(task.first_sequence, task.first_sequence + 27))
    assert (file.min_sequence_number, file.max_sequence_number) == (found[0]["_SEQUENCE_NUMBER"], found[-1]["_SEQUENCE_NUMBER"])
    changes = [one for made in done.message.append.changelog for one in stored(context, task.existing.bucket_id, made)]
    assert len(changes) == (0 if changelog == "none" else 54)
    assert sorted((one["k"], one["v"]) for one in changes if one["_VALUE_KIND"] == RowKind.UPDATE_AFTER) == keys[: len(changes)]


def test_records_that_no_reader_sees_yet_are_counted_in_each_split(tmp_path: Path) -> None:
    options = {"source.split.target-size": "1 b", "source.split.open-file-cost": "1 b", "deletion-vectors.enabled": "true"}
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"], bucket=1, options=options)
    for first in (0, 100, 200):
        write(context, [{"k": first + n, "v": "a"} for n in range(10)], compact="none")
    change = RowEdit(parse_predicate("k >= 5", context.schema), parse_set_clause(("v = 'b'",), context.schema))
    ((task, done),) = by_bucket(replace(context, shows_level_0=True), change)
    assert len(task.splits) > 1 and (done.rows, done.unseen_records) == (25, 30)


def test_what_a_task_of_an_update_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_change, "read_split", _in_threes)
    columns = {"p": "INT NOT NULL", "q": "INT NOT NULL", "k": "INT NOT NULL"}
    context = make_table(tmp_path / "t", columns, ["k"], ["p", "q"], bucket=-1)
    write(context, [{"p": 1, "q": 1, "k": k} for k in range(8)])
    delete = RowEdit(parse_predicate("k < 5", context.schema), None)
    ((_, deleted),) = by_bucket(context, delete)
    assert (deleted.rows, deleted.deleted) == (5, 5) and deleted.message is not None
    where = parse_predicate("k >= 3", context.schema)
    ((_, all_move),) = by_bucket(context, RowEdit(where, parse_set_clause(("q = 2",), context.schema)))
    assert (all_move.rows, all_move.message) == (5, None)
    assert [k for batch in all_move.moved for k in batch.column("k").to_pylist()] == [3, 4, 5, 6, 7]
    some = RowEdit(where, parse_set_clause(("q = k - 5",), context.schema))
    ((_, some_move),) = by_bucket(context, some)
    assert [k for batch in some_move.moved for k in batch.column("k").to_pylist()] == [3, 4, 5, 7]
    assert some_move.message is not None and [file.row_count for file in some_move.message.append.added] == [1]


@pytest.mark.parametrize("changelog", ["none", "input"])
def test_a_task_of_an_update_that_fails_leaves_no_file(tmp_path: Path, changelog: str) -> None:
    """In the last row, or after its files are written."""
    options = {"changelog-producer": changelog}
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "INT"}, ["k"], bucket=1, options=options)
    write(context, [{"k": k, "v": 1} for k in range(40)])
    before = files_of(context)
    where = parse_predicate("k >= 0", context.schema)
    with pytest.MonkeyPatch.context() as patched, pytest.raises(BadInput):
        patched.setattr(bucket_change, "read_split", _in_threes)
        by_bucket(context, RowEdit(where, parse_set_clause(("v = 1 / (k - 39)",), context.schema)))
    assert files_of(context) == before
    with pytest.MonkeyPatch.context() as patched, pytest.raises(StorageUnavailable):
        patched.setattr(bucket_change, "_with_new_files", _unavailable)
        by_bucket(context, RowEdit(where, parse_set_clause(("v = 2",), context.schema)))
    assert files_of(context) == before


def _unavailable(*_: object) -> None:
    raise StorageUnavailable("the store is gone")


def test_rows_that_wait_for_their_buckets_are_not_passed_over(tmp_path: Path) -> None:
    """They would replace the changed rows later. Those of other partitions do not matter."""
    columns = {"p": "STRING NOT NULL", "k": "INT NOT NULL", "v": "INT"}
    context = make_table(tmp_path / "t", columns, ["p", "k"], ["p"], -2, {"postpone.batch-write-fixed-bucket": "false"})
    write(context, [{"p": "b", "k": 1, "v": 1}, {"p": "a", "k": 1, "v": 1}])
    compact(context)
    write(context, [{"p": "b", "k": 2, "v": 1}])
    for where in ("v = 1", "p = 'b' AND k = 1", "p > 'a'"):
        with pytest.raises(Refused, match="rows of p=b are waiting for their buckets") as refused:
            run(context, where, "v = 2")
        assert refused.value.hint == f"paimon-cli compact {context.url}"
    assert run(context, "p = 'a'", "v = 2").rows == 1
    compact(context)
    assert run(context, "v = 1", "v = 3").rows == 2
