"""Merges on several kinds of tables, against a merge in plain Python; conflicts; what is refused, and what a failure leaves."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from paimon_cli import Runtime, Table
from paimon_cli.api.merging import Merge
from paimon_cli.bucket.spilled_runs import SpillDirectory
from paimon_cli.errors import BadInput, Conflict, NotSupported, StorageUnavailable, UsageError
from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.ingest.row_sources import ArrowRows
from paimon_cli.invariants.check import check_table
from paimon_cli.jobs import merge_inserts, merge_job
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.merge_source import KnownValues, StagedPiece, StagedSource
from paimon_cli.jobs.row_change import ChangedBucket
from paimon_cli.jobs.write_request import WriteRequest, plan_write
from paimon_cli.metadata.data_file import CommitMessage, FileChanges
from paimon_cli.options.choices import CompactionMode
from paimon_cli.pieces import PIECES
from tests.commit.commit_tables import data_file
from tests.rivals import RivalStorage, files_of
from tests.tables import data_files, named_files, write

Row = dict[str, Any]
COLUMNS = ["dt STRING NOT NULL", "id INT NOT NULL", "name STRING", "points INT"]
SCHEMA = pa.schema([("dt", pa.string()), ("id", pa.int32()), ("name", pa.string()), ("points", pa.int32())])
SOURCE = pa.schema([*SCHEMA, ("op", pa.string())])
DAYS = ("a", "b")


def kind(
    key: list[str] | None = None, partition: list[str] | None = None, bucket: str = "-1", options: Mapping[str, str] | None = None
) -> dict[str, Any]:
    return {"primary_key": key, "partition_by": partition, "options": {"bucket": bucket, **(options or {})}}


KINDS = {
    "fixed": kind(["id"], bucket="2"),
    "two keys": kind(["dt", "id"], bucket="2"),
    "partitioned": kind(["dt", "id"], ["dt"], bucket="1"),
    "dynamic": kind(["id"], options={"dynamic-bucket.target-row-num": "3"}),
    "any partition": kind(["id"], ["dt"]),
    "counted": kind(["id"], bucket="-2", options={"postpone.batch-write-fixed-bucket": "true"}),
    "vectors": kind(["id"], bucket="2", options={"deletion-vectors.enabled": "true"}),
    "changelog": kind(["id"], bucket="1", options={"changelog-producer": "lookup"}),
    "input": kind(["id"], bucket="1", options={"changelog-producer": "input"}),
    "write-only": kind(["id"], bucket="2", options={"write-only": "true"}),
    "append": kind(),
    "append by day": kind(None, ["dt"]),
    "append in buckets": kind(bucket="2", options={"bucket-key": "id"}),
    "append with vectors": kind(options={"deletion-vectors.enabled": "true"}),
}


def create(folder: Path, of: Mapping[str, Any]) -> Table:
    return Table.create(folder / "t", columns=COLUMNS, **of)


def stored(table: Table) -> list[Row]:
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: (row["id"], row["dt"], str(row)))


def source_rows(chance: random.Random, ids: list[int]) -> list[Row]:
    names = ("x", "it's", None, "source.name")
    return [
        {"dt": DAYS[i % 2], "id": i, "name": chance.choice(names), "points": chance.randrange(50, 99), "op": chance.choice("uud")}
        for i in ids
    ]


def merged(rows: list[Row], source: list[Row]) -> list[Row]:
    """What `clauses_of` does, in plain Python."""
    by_id = {row["id"]: row for row in source}
    result = []
    for row in rows:
        new = by_id.get(row["id"])
        if new is None:
            if row["points"] is not None and row["points"] > 95:
                row = {**row, "name": "old", "points": row["points"] + 1}
            result.append(row)
        elif new["op"] == "d":
            continue
        elif new["name"] == "x":
            result.append({**row, "name": new["name"], "points": row["points"] + new["points"]})
        else:
            result.append({name: new[name] for name in SCHEMA.names})
    met = {row["id"] for row in rows}
    result += [{name: row[name] for name in SCHEMA.names} for row in source if row["id"] not in met and row["op"] != "d"]
    return sorted(result, key=lambda row: (row["id"], row["dt"], str(row)))


def clauses_of(merge: Merge) -> Merge:
    return (
        merge.when_matched_delete(condition="source.op = :d")
        .when_matched_update({"name": "source.name", "points": "points + source.points"}, condition="source.name = 'x'")
        .when_matched_update_all()
        .when_not_matched_insert_all(condition="op <> :d")
        .when_not_matched_by_source_update({"points": "points + 1"}, values={"name": "old"}, condition="target.points > 95")
    )


@pytest.mark.in_part(10)
@pytest.mark.parametrize("source_bytes", [PIECES.source_bytes, 100], ids=["in memory", "on disk"])
@pytest.mark.parametrize("name", KINDS)
def test_random_merges_give_the_rows_of_a_merge_in_plain_python(
    tmp_path: Path, name: str, source_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PIECES, "source_bytes", source_bytes)
    chance = random.Random(name)
    table, rows = create(tmp_path, KINDS[name]), list[Row]()
    for number in range(6):
        ids = chance.sample(range(12), chance.randrange(0, 8)) if number else [1, 2, 3, 4, 5]
        source = source_rows(chance, ids)
        before = {row["id"] for row in rows}
        done = clauses_of(table.merge(pa.Table.from_pylist(source, schema=SOURCE), on=["id"], params={"d": "d"})).execute()
        rows = merged(rows, source)
        assert stored(table) == rows
        gone = before - {row["id"] for row in rows}
        new = {row["id"] for row in rows} - before
        assert (done.inserted, done.deleted, done.source_rows) == (len(new), len(gone), len(source))
        if number == 3:
            table.compact(strategy="full")
            assert stored(table) == rows
    assert not [violation for violation in check_table(table.context) if violation.severity == "error"]


@pytest.mark.parametrize("name", ["fixed", "partitioned", "append", "append with vectors"])
def test_a_merge_on_other_columns_may_change_several_rows_by_one(tmp_path: Path, name: str) -> None:
    table = create(tmp_path, KINDS[name])
    table.write(pa.Table.from_pylist([{"dt": "a", "id": i, "name": "xyz"[i % 3], "points": i} for i in range(9)], schema=SCHEMA))
    news = pa.table({"name": ["x", "y", "new"], "points": pa.array([100, 200, 300], pa.int32())})
    merge = table.merge(news, on="name").when_matched_update({"points": "points + source.points"})
    done = merge.when_not_matched_insert({"id": "9", "points": "points"}, values={"dt": "a", "name": "z"}).execute()
    assert (done.updated, done.inserted) == (6, 1)
    assert [row["points"] for row in stored(table)] == [100, 201, 2, 103, 204, 5, 106, 207, 8, 300]


@pytest.mark.parametrize("name", ["fixed", "append"])
def test_null_meets_nothing(tmp_path: Path, name: str) -> None:
    table = create(tmp_path, KINDS[name])
    table.write(pa.Table.from_pylist([{"dt": "a", "id": 1, "name": None, "points": 1}], schema=SCHEMA))
    news = pa.Table.from_pylist([{"dt": "a", "id": 2, "name": None, "points": 2}], schema=SCHEMA)
    done = table.merge(news, on="name").when_matched_delete().when_not_matched_insert_all().execute()
    assert (done.deleted, done.inserted, len(stored(table))) == (0, 1, 2)


@pytest.fixture(params=["fixed", "append"])
def table(tmp_path: Path, request: pytest.FixtureRequest) -> Table:
    table = create(tmp_path, KINDS[request.param])
    table.write(pa.Table.from_pylist([{"dt": "a", "id": i, "name": f"n{i}", "points": i} for i in range(4)], schema=SCHEMA))
    return table


def one(i: int, **values: Any) -> pa.Table:
    return pa.Table.from_pylist([{"dt": "a", "id": i, "name": f"new{i}", "points": 10, **values}], schema=SCHEMA)


def test_several_rows_for_one_row_are_an_error_and_leave_no_file(table: Table) -> None:
    before, rows = files_of(table.context), stored(table)
    with pytest.raises(BadInput, match="several rows of the source have id = 2"):
        table.merge(pa.concat_tables([one(1), one(2), one(2)]), on="id").when_matched_update_all().execute()
    assert (files_of(table.context), stored(table)) == (before, rows)
    assert table.merge(pa.concat_tables([one(2), one(2)]), on="id").when_not_matched_insert_all().execute().rows == 0


REFUSED: list[tuple[Callable[[Table], Merge], type[Exception], str]] = [
    (lambda t: t.merge(one(1), on="id"), UsageError, "no clause"),
    (lambda t: t.merge(one(1)).when_matched_delete(), UsageError, "no columns to merge on"),
    (lambda t: t.merge(one(1), on="nam").when_matched_delete(), UsageError, "no column 'nam' in the table"),
    (lambda t: t.merge(pa.table({"name": ["x"]}), on="id").when_matched_delete(), UsageError, "no column 'id' in the source"),
    (lambda t: t.merge(one(1), on="id").when_matched_update(), UsageError, "nothing to update"),
    (lambda t: t.merge(one(1), on="id").when_matched_update({"points": "source.nam"}), UsageError, "no field 'nam'"),
    (lambda t: t.merge(one(1), on="id").when_matched_update(values={"points": "x"}), BadInput, "'x' is no value of column"),
    (lambda t: t.merge(one(1), on="id").when_matched_delete(condition="points = :p"), UsageError, "no value for the parameter"),
    (lambda t: t.merge(one(1), on="id", params={"p": 1}).when_matched_delete(), UsageError, "parameter 'p' is not used"),
    (lambda t: t.merge("rows.parquet", on="id").when_matched_delete(), UsageError, "takes no paths"),
    (
        lambda t: t.merge(one(1, points=None), on="id").when_matched_update({"points": "1 / (source.points - points)"}),
        BadInput,
        "",
    ),
    (lambda t: t.merge(one(9), on="id").when_not_matched_insert({"id": "id"}), BadInput, "dt"),
    (
        lambda t: t.merge(pa.table({"id": ["x"]}), on="id").when_matched_delete(),
        BadInput,
        "column 'id' of the source does not fit",
    ),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_is_refused_leaves_no_file(table: Table, number: int) -> None:
    merge, error, what = REFUSED[number]
    before = files_of(table.context)
    if not what:
        assert merge(table).execute().updated == 1  # null is no division by zero
        return
    with pytest.raises(error, match=what):
        merge(table).execute()
    assert files_of(table.context) == before


def test_a_key_is_not_inserted_twice(tmp_path: Path) -> None:
    table = create(tmp_path, KINDS["fixed"])
    table.write(one(1))
    with pytest.raises(BadInput, match="a row to insert has the key of a row of the table: id = 1"):
        table.merge(one(1, name="other"), on="name").when_not_matched_insert_all().execute()
    with pytest.raises(BadInput, match="two rows to insert have id = 5"):
        table.merge(pa.concat_tables([one(5), one(5)]), on="id").when_not_matched_insert_all().execute()
    assert [row["name"] for row in stored(table)] == ["new1"]


def test_a_computed_key_does_not_replace_a_row(tmp_path: Path) -> None:
    """The row of the source has met none, but the key that the insert makes of it may."""
    table = create(tmp_path, KINDS["fixed"])
    table.write(one(2))
    with pytest.raises(BadInput, match="a row to insert has the key of a row of the table: id = 2"):
        table.merge(one(1), on="id").when_not_matched_insert({"dt": "dt", "id": "source.id + 1", "name": "'other'"}).execute()
    assert [row["name"] for row in stored(table)] == ["new2"]
    table.merge(one(2), on="id").when_not_matched_insert({"dt": "dt", "id": "source.id + 1"}).execute()
    table.merge(one(1), on="id").when_not_matched_insert({"dt": "dt", "id": "source.id + 2"}, condition="FALSE").execute()
    table.merge(one(3), on="id").when_not_matched_insert({"dt": "dt", "id": "source.id + 2"}).execute()
    assert [row["id"] for row in stored(table)] == [2, 5]


def test_a_row_does_not_move_to_another_partition(tmp_path: Path) -> None:
    table = create(tmp_path, KINDS["append by day"])
    table.write(one(1))
    with pytest.raises(BadInput, match=r"column 'dt' of .* cannot become 'b'"):
        table.merge(one(1, dt="b"), on="id").when_matched_update_all().execute()
    with pytest.raises(UsageError, match="dt"):
        table.merge(one(1, dt="b"), on="id").when_matched_update({"dt": "source.dt"}).execute()


def test_a_row_moves_where_a_key_may_be_in_any_partition(tmp_path: Path) -> None:
    table = create(tmp_path, KINDS["any partition"])
    table.write(pa.concat_tables([one(i) for i in range(4)]))
    source = pa.concat_tables([one(0, dt="b", points=77), one(1), one(9, dt="c")])
    done = table.merge(source, on="id").when_matched_update_all().when_not_matched_insert_all().execute()
    assert (done.updated, done.inserted) == (2, 1)
    assert [(row["id"], row["dt"]) for row in stored(table)] == [(0, "b"), (1, "a"), (2, "a"), (3, "a"), (9, "c")]
    moved = table.merge(one(2), on="id").when_matched_update(values={"dt": "d"}).execute()
    assert (moved.updated, [row["dt"] for row in stored(table)][2]) == (1, "d")
    assert table.verify(level="full").errors == 0
    with table.transaction() as t:
        t.merge(one(2, dt="a"), on="id").when_matched_update_all().execute()
        t.update(values={"dt": "z"}, where="id = 3")
        t.write(one(1, dt="y"))
    assert [row["dt"] for row in stored(table)] == ["b", "y", "a", "z", "c"]
    assert table.verify(level="full").errors == 0


def test_a_row_moves_from_and_to_the_partition_of_null(tmp_path: Path) -> None:
    """A row with the value of another partition than its own would be found by no condition on it."""
    columns = ["dt STRING", *COLUMNS[1:]]
    table = Table.create(tmp_path / "t", columns=columns, primary_key="id", partition_by="dt", bucket=-1)
    days: tuple[tuple[str | None, str | None], ...] = ((None, "a"), ("a", None), (None, None), ("a", "b"), ("b", "b"))
    table.write([{"dt": day, "id": number} for number, (day, _) in enumerate(days)])
    table.merge([{"dt": day, "id": number} for number, (_, day) in enumerate(days)], on="id").when_matched_update_all().execute()
    for day in ("a", "b", None):
        found = table.scan(where="dt IS NULL" if day is None else f"dt = '{day}'").to_arrow().to_pylist()
        assert sorted(row["id"] for row in found) == [number for number, (_, after) in enumerate(days) if after == day]


def test_a_row_that_would_lose_to_its_older_version_is_refused(tmp_path: Path) -> None:
    table = create(tmp_path, kind(["id"], bucket="1", options={"sequence.field": "points"}))
    table.write(one(1))
    with pytest.raises(BadInput, match="the row with id = 1 would not change"):
        table.merge(one(1, points=9), on="id").when_matched_update_all().execute()
    assert table.merge(one(1, points=11), on="id").when_matched_update_all().execute().updated == 1


def test_a_merge_into_a_table_with_a_column_source_is_refused(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", columns=["id INT NOT NULL", "source STRING"], primary_key="id", bucket=1)
    with pytest.raises(NotSupported, match="source"):
        table.merge(pa.table({"id": pa.array([1], pa.int32())}), on="id").when_matched_delete().execute()


def rivalled(table: Table, *acts: Callable[[], object]) -> Table:
    """The table on a storage in which these rivals commit before our first publications."""
    return Table(replace(table.context.reopened(), storage=RivalStorage(*acts)), table.runtime)


def test_a_merge_starts_again_when_another_commit_changes_its_rows(table: Table) -> None:
    other = Table.open(table.url)
    mine = rivalled(table, lambda: other.update({"points": "points + 5"}, where="id = 1"))
    done = mine.merge(one(1), on="id").when_matched_update({"points": "points + source.points"}).execute()
    assert (done.attempts, done.conflicts) == (2, 1)
    assert stored(table)[1]["points"] == 1 + 5 + 10


def test_a_row_that_another_commit_inserts_is_not_inserted_again(table: Table) -> None:
    other = Table.open(table.url)
    mine = rivalled(table, lambda: other.write(one(7, points=1)))
    merge = mine.merge(one(7), on="id").when_matched_update({"points": "points + source.points"})
    done = merge.when_not_matched_insert_all().execute()
    assert (done.attempts, done.inserted, done.updated) == (2, 0, 1)
    assert [row["points"] for row in stored(table) if row["id"] == 7] == [11]


def test_a_conflict_after_the_last_attempt_leaves_no_file(table: Table) -> None:
    other, seen = Table.open(table.url), list[set[str]]()

    def act() -> None:
        other.update({"points": "points + 5"}, where="id = 1")
        seen.append(
            {path for path in files_of(table.context) if "bucket-" in path and "data-" in path} & named_files(table.context)
        )

    merge = rivalled(table, act).merge(pa.concat_tables([one(1), one(8)]), on="id", max_attempts=1).when_matched_update_all()
    with pytest.raises(Conflict):
        merge.when_not_matched_insert_all().execute()
    assert data_files(table.context) == named_files(table.context) == seen[0]


def test_a_failed_publication_leaves_no_file(table: Table) -> None:
    before = files_of(table.context)

    def fail() -> None:
        raise StorageUnavailable("the disk is gone")

    merge = rivalled(table, fail).merge(pa.concat_tables([one(1), one(8)]), on="id")
    with pytest.raises(StorageUnavailable, match="the disk is gone"):
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert files_of(table.context) == before


def test_a_repeated_merge_counts_once(table: Table) -> None:
    for expected in (False, True):
        merge = table.merge(one(1), on="id", commit_user="u", commit_id=7).when_matched_update({"points": "points + 1"})
        assert merge.execute().already_committed == expected
    assert stored(table)[1]["points"] == 2


def test_files_that_cannot_hold_a_row_of_the_source_are_not_read(tmp_path: Path) -> None:
    table = create(tmp_path, KINDS["append by day"])
    for day in DAYS:
        table.write(one(1, dt=day))
    done = table.merge(one(1, dt="b"), on=["dt", "id"]).when_matched_delete().execute()
    assert (done.deleted, done.removed_files, [row["dt"] for row in stored(table)]) == (1, 1, ["a"])


def test_a_row_of_another_bucket_that_another_commit_inserts_is_met(tmp_path: Path) -> None:
    """The merge is on a column that says nothing about the bucket."""
    table = create(tmp_path, KINDS["fixed"])
    table.write(pa.concat_tables([one(i) for i in range(8)]))
    mine = rivalled(table, lambda: Table.open(table.url).write(one(50, name="same")))
    merge = mine.merge(one(60, name="same"), on="name").when_matched_update(values={"points": -1})
    done = merge.when_not_matched_insert_all().execute()
    assert (done.attempts, done.inserted, done.updated) == (2, 0, 1)
    assert [(row["id"], row["points"]) for row in stored(table) if row["name"] == "same"] == [(50, -1)]


def test_a_row_of_another_partition_that_another_commit_inserts_is_met(tmp_path: Path) -> None:
    """The merge is on a column that says nothing about the partition."""
    table = create(tmp_path, KINDS["append by day"])
    table.write(one(1))
    mine = rivalled(table, lambda: Table.open(table.url).write(one(50, dt="b")))
    merge = mine.merge(one(50, dt="a"), on="id").when_matched_update(values={"points": -1})
    done = merge.when_not_matched_insert_all().execute()
    assert (done.attempts, done.inserted, done.updated) == (2, 0, 1)
    assert [(row["dt"], row["points"]) for row in stored(table) if row["id"] == 50] == [("b", -1)]


def test_a_row_that_shares_a_part_of_its_key_with_one_that_another_commit_inserts_is_met(tmp_path: Path) -> None:
    """The merge is on a part of the key, so that the key does not say where such a row would be."""
    table = create(tmp_path, kind(["dt", "id"], bucket="64"))
    table.write(one(1))
    mine = rivalled(table, lambda: Table.open(table.url).write(one(50, dt="b")))
    merge = mine.merge(one(50, dt="a"), on="id").when_matched_update(values={"points": -1})
    done = merge.when_not_matched_insert_all().execute()
    assert (done.attempts, done.inserted, done.updated) == (2, 0, 1)
    assert [(row["dt"], row["points"]) for row in stored(table) if row["id"] == 50] == [("b", -1)]


@pytest.mark.parametrize("day", DAYS)
def test_rows_of_each_partition_that_another_commit_inserts_are_met(tmp_path: Path, day: str) -> None:
    """The merge is on the columns of the partition, so that only commits to those of its new rows matter."""
    table = create(tmp_path, KINDS["append by day"])
    table.write(one(1))
    new = pa.concat_tables([one(50, dt=day) for day in DAYS])
    mine = rivalled(table, lambda: Table.open(table.url).write(one(50, dt=day)))
    merge = mine.merge(new, on=["dt", "id"]).when_matched_update(values={"points": -1})
    done = merge.when_not_matched_insert_all().execute()
    assert (done.attempts, done.inserted, done.updated) == (2, 1, 1)
    assert [row["dt"] for row in stored(table) if row["id"] == 50 and row["points"] == -1] == [day]
    elsewhere = rivalled(table, lambda: Table.open(table.url).write(one(60, dt="c")))
    assert elsewhere.merge(one(60, dt=day), on=["dt", "id"]).when_not_matched_insert_all().execute().attempts == 1


def test_new_rows_are_numbered_above_all_of_their_bucket_and_above_the_changed_ones(tmp_path: Path) -> None:
    """Whatever file of the change holds the greatest number, and also if the change has only removed or marked rows."""
    context = create(tmp_path, KINDS["fixed"]).context
    write(context, [{"dt": "a", "id": i, "name": "x", "points": 0} for i in range(40)])
    plan = plan_write(context, WriteRequest(source=ArrowRows(pa.table({})), compact=CompactionMode.NONE), "u", splits=())
    live = bucket_files(context, context.snapshots.latest())
    greatest = {bucket_id: max(file.max_sequence_number for file in bucket.files) for bucket_id, bucket in live.items()}
    first, second = sorted(greatest)
    files = [replace(data_file(str(number)), max_sequence_number=number) for number in (500, 900, 700)]
    changed = [
        CommitMessage(*first, 2, append=FileChanges(added=tuple(files))),
        CommitMessage(*second, 2, append=FileChanges(removed=live[second].files)),
    ]
    rows = ArrowRows(pa.concat_tables([one(i) for i in range(100, 120)]))
    messages, count = merge_job._inserted(plan, rows, changed, LocalEngine(), NoProgress())
    least = {message.bucket_id: min(file.min_sequence_number for file in message.append.added) for message in messages}
    assert count == 20 and least[first] > 900 and 900 > least[second] > greatest[second] >= 30


def test_all_rows_that_move_are_written_again() -> None:
    """Those of every bucket, in however many batches it has them."""
    batches = [pa.record_batch({"id": pa.array([number])}) for number in range(4)]
    changed = [
        ChangedBucket(0, None),
        ChangedBucket(3, None, moved=tuple(batches[:3])),
        ChangedBucket(1, None, moved=(batches[3],)),
    ]
    assert merge_job._moved(changed).column("id").to_pylist() == [0, 1, 2, 3]
    assert merge_job._moved(changed[:1]).num_rows == 0


ON_DISK = {"source_bytes": 1000, "batch_rows": 50, "hash_scan_rows": 70, "indexed_rows": 60}


def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in ON_DISK.items():
        monkeypatch.setattr(PIECES, name, size)


@pytest.mark.parametrize("name", ["fixed", "append", "any partition"])
def test_a_source_on_disk_is_checked_as_one_in_memory(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    small_pieces(monkeypatch)
    table = create(tmp_path, KINDS[name])
    rows: list[Row] = [{"dt": "a", "id": number, "name": "x", "points": number} for number in range(300)]
    table.write(rows[:100])

    def merge(source: list[Row], on: str = "id") -> Merge:
        return table.merge(pa.Table.from_pylist(source, schema=SCHEMA), on=on)

    before = stored(table)
    with pytest.raises(BadInput, match=r"several rows of the source have id = 7\b"):
        merge([*rows, rows[7]]).when_matched_update_all().execute()
    if name != "append":
        with pytest.raises(BadInput, match=r"two rows to insert have id = 250\b"):
            merge([*rows, rows[250]]).when_not_matched_insert_all().execute()
        other = [{**row, "points": row["points"] + 1000} for row in rows]
        with pytest.raises(BadInput, match="a row to insert has the key of a row of the table"):
            merge(other, on="points").when_not_matched_insert_all().execute()
    bad = [*rows, {**rows[0], "id": None}]
    if name != "append":
        with pytest.raises(BadInput, match=r"key column|NOT NULL|null"):
            merge(bad).when_not_matched_insert_all().execute()
    assert stored(table) == before
    texts = pa.Table.from_pylist([{**row, "points": str(row["points"])} for row in rows] + [{**rows[0], "points": "x"}])
    with pytest.raises(BadInput, match="column 'points' of the source does not fit"):
        table.merge(texts, on="id").when_matched_update_all().execute()
    done = merge([*rows[50:], *rows[200:210]] if name == "append" else rows[50:])
    summary = done.when_matched_update({"points": "points + source.points"}).when_not_matched_insert_all().execute()
    inserted = 210 if name == "append" else 200
    assert (summary.updated, summary.inserted, summary.source_rows) == (50, inserted, 260 if name == "append" else 250)
    doubled = {number: 2 * number if 50 <= number < 100 else number for number in range(300)}
    assert {row["id"]: row["points"] for row in stored(table)} == doubled and len(stored(table)) == 100 + inserted


def test_a_large_source_is_read_as_a_stream_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_pieces(monkeypatch)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    (tmp_path / "tmp").mkdir()
    table = create(tmp_path, KINDS["fixed"])
    held = list[int]()

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, 1000, 100):
            rows = [{"dt": "a", "id": number, "name": "x", "points": 1} for number in range(start, start + 100)]
            held.append(len(list((tmp_path / "tmp").glob("*spill*/run-*"))))
            yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)

    reader = pa.RecordBatchReader.from_batches(SCHEMA, batches())
    done = table.merge(reader, on="id").when_not_matched_insert_all().execute()
    assert done.inserted == table.count() == 1000
    assert held == [0] + [1] * 9, "the second batch is written as soon as it comes"
    assert not list((tmp_path / "tmp").glob("*spill*"))
    other = create(tmp_path / "copy", KINDS["append"])
    for source in (table, table.scan(where="id < 500"), ds.dataset(table.to_arrow())):
        other.merge(source, on="id").when_matched_delete().when_not_matched_insert_all().execute()
    assert [row["id"] for row in stored(other)] == list(range(500))


def test_a_bad_value_of_a_large_source_is_named_by_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by its place in the batch that held it."""
    small_pieces(monkeypatch)
    table = create(tmp_path, KINDS["fixed"])
    source = pa.table({"id": list(range(300)), "points": [1] * 260 + [1 << 40] * 40})
    with pytest.raises(BadInput, match="row 261 of the source"):
        table.merge(source.to_reader(max_chunksize=100), on="id").when_matched_update_all().execute()


def test_a_bad_row_to_insert_of_a_large_source_is_named_by_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_pieces(monkeypatch)
    table = create(tmp_path, KINDS["fixed"])
    rows = [{"dt": "a" if number != 260 else None, "id": number, "name": "x", "points": 1} for number in range(300)]
    with pytest.raises(BadInput, match=r"row 261\b"):
        table.merge(pa.Table.from_pylist(rows, schema=SCHEMA), on="id").when_not_matched_insert_all().execute()


def test_values_that_one_part_has_left_out_are_left_out_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that may hold them would be skipped."""
    monkeypatch.setattr(PIECES, "max_bucket_keys", 3)
    many, few = KnownValues.of(pa.array([1, 3, 5, 9])), KnownValues.of(pa.array([4]))
    assert (many.is_complete, few.is_complete) == (False, True)
    for parts in ([many, few], [few, many]):
        assert KnownValues.joined(parts) == KnownValues(pa.array([1, 9]), False)


def test_of_a_staged_source_a_bucket_gets_the_pieces_that_it_may_meet(table: Table) -> None:
    """All of its partition if it has another bucket count than the table: the pieces were divided by the option."""
    pieces = tuple(StagedPiece("index/x", number, rows, b"p", number % 2) for number, rows in enumerate((2, 3, 4)))
    source = StagedSource(table.context, (*pieces, StagedPiece("index/x", 3, 1, b"q", 0)), (), (), {}, total_buckets=2)
    own, other = (source.for_bucket(BucketFiles(b"p", 0, total, ())) for total in (2, 4))
    assert isinstance(own, StagedSource) and isinstance(other, StagedSource)
    assert (own.chosen, other.chosen) == ((0, 2), (0, 1, 2))
    assert own.numbers(np.arange(6)).tolist() == [0, 1, 5, 6, 7, 8]


def test_a_cluster_gets_the_rows_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tasks cannot open files of this machine."""
    small_pieces(monkeypatch)
    monkeypatch.setattr(LocalEngine, "shares_disk", False)
    monkeypatch.setattr(SpillDirectory, "next_path", None)
    table = Table.open(create(tmp_path, KINDS["write-only"]).url, runtime=Runtime(engine="local"))
    rows = [{"dt": "a", "id": number, "name": "x", "points": 1} for number in range(200)]
    table.merge(rows, on="id").when_not_matched_insert_all().execute()
    assert table.count() == 200


def test_a_column_of_the_source_that_nothing_uses_is_refused(table: Table) -> None:
    """A misspelt column would be left out without a word."""
    news = [{"dt": "a", "id": 1, "name": "x", "pionts": 9, "gone": False}]
    before = stored(table)
    for merge in (
        table.merge(news, on="id").when_matched_update_all(condition="NOT source.gone"),
        table.merge(news, on="id").when_not_matched_insert_all(condition="NOT gone"),
    ):
        with pytest.raises(UsageError, match="the table has no column 'pionts'") as refused:
            merge.execute()
        assert "did you mean 'points'?" in refused.value.hint
    assert stored(table) == before
    named = table.merge(news, on="id").when_matched_update({"points": "source.pionts"}, condition="NOT source.gone")
    assert named.when_not_matched_insert_all().execute().source_rows == 1
    table.merge(news, on="id").when_matched_update({"name": "source.name"}).execute()


def test_a_source_that_is_read_once_is_not_taken_for_an_empty_one(table: Table) -> None:
    """The second time, all rows would be deleted that meet no row of the source."""
    rows = stored(table)
    for source in (pa.Table.from_pylist(rows, schema=SCHEMA).to_reader(), iter(rows)):
        merge = table.merge(source, on="id").when_not_matched_by_source_delete()
        assert merge.execute().deleted == 0
        for again in (merge, merge.when_not_matched_insert_all()):
            with pytest.raises(UsageError, match="was read already"):
                again.execute()
    twice = table.merge(rows, on="id").when_not_matched_by_source_delete()
    assert twice.execute().deleted == twice.execute().deleted == 0 and stored(table) == rows


@pytest.mark.parametrize("source_bytes", [PIECES.source_bytes, 1], ids=["in memory", "on disk"])
def test_keys_that_must_be_new_are_not_compared(tmp_path: Path, source_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that differ in the columns of the merge, a part of the key, can have no key twice, unless a clause computes it."""
    monkeypatch.setattr(PIECES, "source_bytes", source_bytes)
    compared: list[int] = []
    check = merge_inserts._check_share

    def counting(*arguments: Any) -> None:
        compared.append(1)
        check(*arguments)

    monkeypatch.setattr(merge_inserts, "_check_share", counting)
    columns = ["dt STRING NOT NULL", "id INT NOT NULL", "o ROW<id INT>"]
    table = Table.create(tmp_path / "t", columns=columns, primary_key="dt,id", bucket=1)
    news: list[Row] = [{"dt": "a", "id": number, "o": {"id": number // 2}} for number in range(4)]
    table.merge(news, on="id").when_not_matched_insert_all().execute()
    table.merge(news, on=["dt", "id"]).when_not_matched_insert({"id": "source.id", "dt": "dt"}).execute()
    assert not compared and table.count() == 4
    more = [{**row, "id": row["id"] + 10} for row in news]
    with pytest.raises(BadInput, match="two rows to insert have dt = a, id = 0"):
        table.merge(more, on="id").when_not_matched_insert({"id": "o.id", "dt": "dt"}).execute()
    with pytest.raises(BadInput, match="two rows to insert have dt = a, id = 10"):
        table.merge([*more, *more], on="id").when_not_matched_insert_all().execute()
    with pytest.raises(UsageError, match="key column 'dt' is not set"):
        table.merge(more, on="id").when_not_matched_insert({"id": "source.id"}).execute()
    assert len(compared) >= 3 and table.count() == 4


@pytest.mark.parametrize("source_bytes", [PIECES.source_bytes, 1], ids=["in memory", "on disk"])
def test_a_null_key_is_a_key(tmp_path: Path, source_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Null meets no row, so it is inserted; a row with the null key would be replaced without a word."""
    monkeypatch.setattr(PIECES, "source_bytes", source_bytes)
    columns = ["k INT", "name STRING", "v INT"]
    options = {"primary-key.nullable": "true"}
    table = Table.create(tmp_path / "t", columns=columns, primary_key="k,name", bucket=2, options=options)
    rows: list[Row] = [{"k": None, "name": None, "v": 1}, {"k": 1, "name": None, "v": 1}, {"k": 1, "name": "a", "v": 1}]
    table.write(rows)

    def insert(*keys: tuple[int | None, str | None], on: str = "k,name") -> int:
        news = pa.table({name: pa.array([key[at] for key in keys]) for at, name in enumerate(("k", "name"))})
        news = news.cast(pa.schema([("k", pa.int32()), ("name", pa.string())])).append_column("v", pa.array([9] * len(keys)))
        return table.merge(news, on=on.split(",")).when_not_matched_insert_all().execute().inserted

    for key, text in (((None, None), "k = NULL, name = NULL"), ((1, None), "k = 1, name = NULL")):
        with pytest.raises(BadInput, match=f"a row to insert has the key of a row of the table: {text}"):
            insert(key, (7, "b"))
        with pytest.raises(BadInput, match=f"a row to insert has the key of a row of the table: {text}"):
            insert(key, on="v")
    with pytest.raises(BadInput, match="two rows to insert have k = NULL, name = b"):
        insert((None, "b"), (None, "b"))
    assert sorted(table.scan().to_arrow().to_pylist(), key=repr) == sorted(rows, key=repr)
    assert insert((None, "a"), (2, None), (2, "a")) == 3 and table.count() == 6
    assert insert((2, "a"), (3, "a")) == 1 and table.count("v = 9") == 4


def test_what_decides_where_a_row_is_stored_is_compared_as_keys_are(tmp_path: Path) -> None:
    """NaN is no change of itself. A nanosecond is one; it is refused in words, also where Python has no value for it."""
    schema = pa.schema([("id", pa.int64()), ("k", pa.float64()), ("t", pa.timestamp("ns")), ("v", pa.string())])
    columns = ["id BIGINT", "k DOUBLE", "t TIMESTAMP(9)", "v STRING"]
    table = Table.create(tmp_path / "t", columns=columns, bucket=2, options={"bucket-key": "k,t"})
    rows = [pa.array([1, 2]), pa.array([float("nan"), None]), pa.array([1, 1], pa.timestamp("ns")), pa.array(["a", "b"])]
    table.write(pa.table(rows, schema=schema))
    rows[3] = pa.array(["c", "d"])
    assert table.merge(pa.table(rows, schema=schema), on="id").when_matched_update_all().execute().updated == 2
    rows[2] = pa.array([1, 2], pa.timestamp("ns"))
    with pytest.raises(BadInput, match=r"column 't' of row . of data file .* cannot become .*000000002"):
        table.merge(pa.table(rows, schema=schema), on="id").when_matched_update_all().execute()
