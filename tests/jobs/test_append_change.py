"""`update` and `delete` in tables without a primary key, by copy on write and by deletion vectors, and their compaction."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.bucket.merged_rows import read_bucket
from paimon_cli.bucket.stamped_files import new_stamp
from paimon_cli.catalog.alter_table import altered_schema
from paimon_cli.catalog.column_changes import SetOption
from paimon_cli.catalog.open_table import open_table
from paimon_cli.catalog.table_location import locate_table
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import fresh_identity
from paimon_cli.compact.bucket_compactor import run_compaction
from paimon_cli.datatypes.binary_row import serialize_row
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.errors import BadInput, Conflict, DamagedFile, DataConflict, FilesConflict, NotSupported, UsageError
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.table_place import TablePlace
from paimon_cli.invariants.check import check_table
from paimon_cli.jobs.append_change import ChangeTask, change_rows_of
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.metadata_jobs import run_restore
from paimon_cli.jobs.rescale_job import plan_rescale, run_rescale
from paimon_cli.jobs.round_plan import plan_compaction
from paimon_cli.jobs.row_change import RowEdit
from paimon_cli.jobs.row_scan import ReadRequest, plan_rows
from paimon_cli.jobs.update_job import UpdateRequest, UpdateSummary, run_update
from paimon_cli.maintain.expire_partitions import drop_partitions
from paimon_cli.metadata.data_file import DataFileMeta, EntryKind, IndexFileMeta
from paimon_cli.pieces import PIECES
from paimon_cli.read.scan_plan import plan_scan
from paimon_cli.requests.maintenance import RescaleOptions
from paimon_cli.sql.clauses import parse_set_clause
from paimon_cli.sql.predicate import parse_predicate
from tests.nightly import first
from tests.pieces import injected
from tests.rivals import beside, files_of
from tests.tables import compact, data_files, live_files, make_table, named_files, rows, write

COLUMNS = {"id": "INT", "dt": "STRING", "v": "STRING", "n": "DECIMAL(6, 2)", "tags": "ARRAY<STRING>"}
KINDS = {
    "unaware": (-1, {}),
    "unaware with vectors": (-1, {"deletion-vectors.enabled": "true"}),
    "fixed": (2, {"bucket-key": "id"}),
    "fixed with vectors": (2, {"bucket-key": "id", "deletion-vectors.enabled": "true"}),
    "64-bit vectors": (-1, {"deletion-vectors.enabled": "true", "deletion-vectors.bitmap64": "true"}),
}
WITH_VECTORS = [kind for kind in KINDS if "vectors" in kind]


def row(number: int, day: str | None = "a", **values: Any) -> dict[str, Any]:
    return {"id": number, "dt": day, "v": f"v{number}", "n": "1.50", "tags": [f"t{number}"], **values}


def made(folder: Path, kind: str, times: int = 3, options: Mapping[str, str] | None = None) -> TableContext:
    """`times` files with ten rows in each bucket or partition of two days."""
    bucket, own = KINDS[kind]
    context = make_table(folder / "t", COLUMNS, [], ["dt"], bucket, {**own, **(options or {})})
    for time in range(times):
        write(context, [row(time * 10 + number, "ab"[number % 2]) for number in range(10)])
    return context


def run(context: TableContext, where: str, *assignments: str, threads: int = 1, **more: Any) -> UpdateSummary:
    return run_update(context, UpdateRequest(where, assignments, **more), LocalEngine(threads), NoProgress())


def ids(context: TableContext, snapshot_id: int | None = None) -> list[int]:
    return sorted(row["id"] for row in rows(context, snapshot_id=snapshot_id))


def vector_files(context: TableContext) -> list[IndexFileMeta]:
    return [index for bucket in bucket_files(context, context.snapshots.latest()).values() for index in bucket.index_files]


def sound(context: TableContext) -> None:
    assert [finding for finding in check_table(context) if finding] == []


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_deleted_and_older_snapshots_keep_them(tmp_path: Path, kind: str) -> None:
    context = made(tmp_path, kind)
    summary = run(context, "id % 4 = 1")
    assert summary.rows == 8 and [snapshot.commit_kind for snapshot in summary.snapshots] == ["OVERWRITE"]
    left = [number for number in range(30) if number % 4 != 1]
    assert (ids(context), ids(context, 3)) == (left, list(range(30)))
    assert run(context, "id % 4 = 1").snapshots == ()
    sound(context)


@pytest.mark.parametrize("kind", KINDS)
def test_updated_rows_have_new_values_and_all_others_their_own(tmp_path: Path, kind: str) -> None:
    context = made(tmp_path, kind)
    run(context, "id = 3")
    assert run(context, "id < 5", "v = v || '!'", "n = n * 2").rows == 4
    expected = {k: row(k, "ab"[k % 2], **({"v": f"v{k}!", "n": "3.00"} if k < 5 else {})) for k in range(30) if k != 3}
    assert {found["id"]: found for found in rows(context)} == expected
    sound(context)


def test_copies_replace_their_file_in_a_bucket(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"id": "INT", "v": "INT"}, [], bucket=1, options={"bucket-key": "id"})
    for time in range(3):
        write(context, [{"id": 10 * time + number, "v": 0} for number in range(10)])
    run(context, "id in (2, 13, 25)")
    run(context, "id = 14", "v = 1")
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    assert sorted((f.min_sequence_number, f.max_sequence_number) for f in bucket.files) == [(0, 8), (10, 18), (20, 28)]
    write(context, [{"id": 30, "v": 0}])
    assert max(f.max_sequence_number for f in bucket_files(context, context.snapshots.latest())[bucket.bucket_id].files) == 29


@pytest.mark.parametrize("pieces", [5, 1000])
def test_changed_rows_are_numbered_above_all_others(tmp_path: Path, pieces: int) -> None:
    """And those of each task above those of the one before."""
    options = {"bucket-key": "id", "deletion-vectors.enabled": "true"}
    context = make_table(tmp_path / "t", {"id": "INT", "v": "INT"}, [], bucket=1, options=options)
    for time in range(3):
        write(context, [{"id": 10 * time + number, "v": 0} for number in range(10)])
    old = {file.file_name: file for file in files(context)}
    with injected(pieces):
        assert run(context, "id % 10 < 4", "v = 1").rows == 12
    new = [file for file in files(context) if file.file_name not in old]
    ranges = sorted((file.min_sequence_number, file.max_sequence_number) for file in new)
    assert ranges[0][0] > max(file.max_sequence_number for file in old.values())
    assert all(low > high for (_, high), (low, _) in pairwise(ranges))


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_or_partition_without_rows_goes_unread(tmp_path: Path, kind: str) -> None:
    context = made(tmp_path, kind)
    for path in (tmp_path / "t" / "dt=a").rglob("data-*"):
        path.write_bytes(b"nobody reads this")
    summary = run(context, "dt = 'a'")
    assert (summary.rows, summary.files, summary.removed_files) == (15, 0, len(list((tmp_path / "t" / "dt=a").rglob("data-*"))))
    assert ids(context) == list(range(1, 30, 2)) and all("dt=b" in name for name in live_files(context))
    assert run(context, "true").files == 0 and ids(context) == []
    write(context, [row(1)])
    assert ids(context) == [1]


@pytest.mark.parametrize("kind", ["unaware", "unaware with vectors"])
def test_statistics_that_show_that_all_rows_match_save_the_reading(tmp_path: Path, kind: str) -> None:
    context = made(tmp_path, kind)
    first, second, _ = sorted((f for f in files(context, "dt=b")), key=lambda file: file.creation_time_millis or 0)
    (tmp_path / "t/dt=b/bucket-0" / first.file_name).write_bytes(b"nobody reads this")
    assert run(context, "id between 0 and 9 and dt = 'b'").removed_files == 1
    (tmp_path / "t/dt=b/bucket-0" / second.file_name).write_bytes(b"this is read")
    with pytest.raises(DamagedFile, match=second.file_name):
        run(context, "id between 12 and 19")


def files(context: TableContext, place: str = "") -> list[DataFileMeta]:
    """The live files of the buckets whose path has this prefix."""
    found = bucket_files(context, context.snapshots.latest()).values()
    return [f for b in found for f in b.files if context.bucket_path(*b.bucket_id).startswith(place)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.in_part(2)
def test_null_and_strange_partitions_and_values(tmp_path: Path, kind: str) -> None:
    context = made(tmp_path, kind, times=0)
    days = [None, "", " ", "a/b", "k=v", "ü"]
    write(context, [row(number, day) for number, day in enumerate(days)] + [row(10, None, v=None), row(11, "", v=None)])
    assert run(context, "dt is null").rows == 2
    assert run(context, "v is null").rows == 1
    assert run(context, "dt = ' ' or v = NULL").rows == 1
    assert run(context, "dt <> 'ü'", "v = NULL").rows == 3
    assert {(r["id"], r["dt"], r["v"]) for r in rows(context)} == {
        (1, "", None),
        (3, "a/b", None),
        (4, "k=v", None),
        (5, "ü", "v5"),
    }
    assert run(context, "not (v = 'v5')").rows == 0  # null is not true
    sound(context)


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("kind", ["unaware", "fixed with vectors"])
def test_all_formats(tmp_path: Path, kind: str, file_format: str) -> None:
    context = made(tmp_path, kind, options={"file.format": file_format})
    run(context, "id > 12 and id < 17")
    run(context, "id = 20", "tags = NULL")
    assert ids(context) == [*range(13), *range(17, 30)]
    assert {r["id"]: r["tags"] for r in rows(context) if r["id"] in (20, 21)} == {20: None, 21: ["t21"]}
    compact(context)
    assert ids(context) == [*range(13), *range(17, 30)]
    sound(context)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows_before", [0, 22])
def test_a_row_that_cannot_change_fails_the_update_and_leaves_nothing(tmp_path: Path, kind: str, rows_before: int) -> None:
    """Whether the files that it has written are closed or open, and however many they are."""
    context = made(tmp_path, kind)
    before = files_of(context)
    with injected(2), pytest.raises(BadInput, match=r"SET n = .* fails for row \d of data file data-.*parquet"):
        run(context, "id >= 0", f"n = 9999 + id - {rows_before - 1}")
    assert files_of(context) == before


@pytest.mark.in_part(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows_before", [0, 13])
def test_a_task_that_fails_takes_its_files_away_itself(tmp_path: Path, kind: str, rows_before: int) -> None:
    """It may run in a process whose job has long ended, and can clean up no more."""
    context = made(tmp_path, kind, options={"target-file-row-num": "3"})
    values = parse_set_clause([f"n = 9999 + id - {rows_before}"], context.schema)
    change = RowEdit(parse_predicate("id >= 0", context.schema), values)
    failed = 0
    for bucket in bucket_files(context, context.snapshots.latest()).values():
        present = files_of(context)
        with injected(2), contextlib.suppress(BadInput):
            change_rows_of(context, ChangeTask(bucket, 100, new_stamp(context)), change)
            continue
        failed += 1
        assert files_of(context) == present
    assert failed


@pytest.mark.parametrize("column", ["dt", "id"])
def test_columns_that_decide_the_bucket_of_a_row_cannot_be_set(tmp_path: Path, column: str) -> None:
    context = made(tmp_path, "fixed")
    with pytest.raises(UsageError, match=r"it belongs to the (partition|bucket) key"):
        run(context, "true", f"{column} = NULL")


def test_vectors_that_were_switched_off_are_kept_in_mind(tmp_path: Path) -> None:
    context = made(tmp_path, "unaware with vectors")
    run(context, "id in (0, 2, 4)")
    off = TableContext.open(context.url, {"deletion-vectors.enabled": "false"})
    run(off, "id = 6", "v = 'x'")
    assert ids(off) == [1, 3, *range(5, 30)] and vector_files(off) == []
    sound(off)


def test_index_files_without_buckets_are_rewritten_in_part_and_roll(tmp_path: Path) -> None:
    context = made(tmp_path, "unaware with vectors", options={"deletion-vector.index-file.target-size": "40 b"})
    run(context, "id in (0, 10, 20)")
    first = vector_files(context)
    assert sorted(len(index.deletion_vector_ranges or ()) for index in first) == [1, 2]
    run(context, "id = 2")
    second = vector_files(context)
    kept = {index.file_name for index in first} & {index.file_name for index in second}
    assert len(kept) == 1 and sum(len(index.deletion_vector_ranges or ()) for index in second) == 3
    assert ids(context) == [k for k in range(30) if k not in (0, 10, 20, 2)]
    sound(context)


@pytest.mark.parametrize("kind", KINDS)
def test_concurrent_appends_are_not_a_conflict(tmp_path: Path, kind: str) -> None:
    context = made(tmp_path, kind)
    busy = beside(context, lambda: write(context, [row(100), row(101)]))
    summary = run(busy, "id % 2 = 1")
    assert (summary.rows, summary.attempts) == (15, 1) and ids(context) == [*range(0, 30, 2), 100, 101]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.in_part(2)
def test_of_two_deletes_in_a_file_the_later_one_reads_again(tmp_path: Path, kind: str) -> None:
    context = made(tmp_path, kind)
    busy = beside(context, lambda: run(context, "id in (0, 1, 2)"))
    summary = run(busy, "id in (2, 3, 4)")
    assert (summary.rows, summary.attempts) == (2, 2) and ids(context) == list(range(5, 30))
    assert data_files(context) == named_files(context)
    sound(context)


@pytest.mark.in_part(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("meanwhile", ["compact", "delete", "update"])
def test_a_change_that_gives_up_leaves_the_table_as_the_other_left_it(tmp_path: Path, kind: str, meanwhile: str) -> None:
    context = made(tmp_path, kind)
    run(context, "id in (6, 16)")
    other = {
        "compact": lambda: compact(context),
        "delete": lambda: run(context, "id in (2, 12)"),
        "update": lambda: run(context, "id in (2, 12)", "v = 'x'"),
    }[meanwhile]
    with pytest.raises(Conflict) as conflict:
        run(beside(context, other), "id in (4, 14)", max_attempts=1)
    assert conflict.value.exit_code == 5 and {4, 14} <= set(ids(context))
    assert data_files(context) == named_files(context)
    sound(context)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.in_part(2)
def test_a_compaction_that_was_overtaken_by_a_delete_is_refused_and_planned_again(tmp_path: Path, kind: str) -> None:
    context = made(tmp_path, kind)
    run(context, "id in (6, 16)")
    tasks = plan_compaction(context, CompactRequest("full")).tasks
    messages = [run_compaction(context, part) for task in tasks for part in task.parts]
    run(context, "id in (0, 1, 10, 11)")
    with pytest.raises(FilesConflict):
        Committer(context).commit(messages, fresh_identity(context))
    compact(beside(context, lambda: run(context, "id in (20, 21)")))
    assert ids(context) == [k for k in range(30) if k not in (0, 1, 6, 10, 11, 16, 20, 21)]
    sound(context)


FIXED = [kind for kind in KINDS if kind.startswith("fixed")]
BY_PARTITION = {"commit.data-conflict-check": "partition"}


@pytest.mark.parametrize("kind", FIXED)
@pytest.mark.parametrize("change", ["delete", "update"])
@pytest.mark.in_part(2)
def test_a_rescale_that_was_overtaken_by_a_change_of_rows_is_refused(tmp_path: Path, kind: str, change: str) -> None:
    """The change only marks rows in files that the rescale has read and is about to replace with copies of all rows."""
    context = made(tmp_path, kind)
    table = open_table(locate_table(context.url))
    plan = plan_rescale(context, RescaleOptions(4))
    run(context, "id = 3", *(["v = 'x'"] if change == "update" else []))
    with pytest.raises(DataConflict, match=r"dt=b/bucket-\d was written after snapshot 3"):
        run_rescale(table, plan, LocalEngine(), NoProgress())
    left = {r["id"]: r["v"] for r in rows(context)}
    assert left.get(3) == (None if change == "delete" else "x") and len(left) == (29 if change == "delete" else 30)
    assert data_files(context) == named_files(context)
    run_rescale(table, plan_rescale(context, RescaleOptions(4)), LocalEngine(), NoProgress())
    assert {r["id"]: r["v"] for r in rows(TableContext.open(context.url))} == left
    sound(TableContext.open(context.url))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.in_part(2)
def test_writes_under_the_check_that_have_not_seen_a_delete_are_refused(tmp_path: Path, kind: str) -> None:
    context = made(tmp_path, kind)
    run(context, "id in (2, 3)")
    checked = TableContext.open(context.url, BY_PARTITION)
    for overwrite in (False, True):
        with pytest.raises(DataConflict, match="was written after snapshot 3"):
            write(checked, [row(2), row(3, "b")], read_snapshot=3, overwrite=overwrite)
    with pytest.raises(DataConflict):
        drop_partitions(context, [serialize_row(["a"], [parse_type("STRING")])], 3)
    assert ids(context) == [0, 1, *range(4, 30)]
    write(checked, [row(2)], read_snapshot=4)
    sound(context)


@pytest.mark.in_part(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", ["id = 3", "id < 30"])
def test_a_restore_beside_a_delete_brings_the_rows_of_its_target_back(tmp_path: Path, kind: str, where: str) -> None:
    """It starts again, or else rows that are in the target would be missing, or others could be there."""
    context = made(tmp_path, kind)
    run(context, "id in (13, 23)")
    expected = rows(context, snapshot_id=3)
    busy = beside(context, lambda: run(context, where))
    done = run_restore(busy, context.snapshots.get(3), LocalEngine(), NoProgress(), "none")
    assert rows(context) == expected and done.snapshot == 6
    assert data_files(context) == named_files(context)
    sound(context)


@pytest.mark.parametrize("kind", WITH_VECTORS)
def test_a_compaction_drops_marked_rows_and_their_vectors(tmp_path: Path, kind: str) -> None:
    context = made(tmp_path, kind)
    run(context, "id % 3 = 0")
    left = [number for number in range(30) if number % 3]
    compact(context)
    assert ids(context) == left and vector_files(context) == []
    assert sum(file.row_count for file in files(context)) == 20
    assert context.snapshots.latest().commit_kind == "COMPACT" and compact(context).buckets == 0  # type: ignore[union-attr]
    sound(context)


def test_a_compaction_of_some_files_keeps_the_vectors_of_the_others(tmp_path: Path) -> None:
    options = {"compaction.small-file-ratio": "0", "compaction.delete-ratio-threshold": "0.5"}
    context = made(tmp_path, "unaware with vectors", options=options)
    run(context, "id in (0, 2, 4, 6, 10)")
    assert compact(context, strategy="minor").files_before == 1  # four of five rows of the first file of a day are marked
    assert ids(context) == [1, 3, 5, 7, 8, 9, *range(11, 30)]
    (index,) = vector_files(context)
    assert len(index.deletion_vector_ranges or ()) == 1
    assert compact(context, strategy="full").files_before == 1 and vector_files(context) == []
    sound(context)


def test_a_big_marked_file_of_a_bucket_is_compacted_by_itself(tmp_path: Path) -> None:
    options = {"bucket-key": "id", "deletion-vectors.enabled": "true", "target-file-size": "200 b"}
    context = make_table(tmp_path / "t", {"id": "INT"}, [], bucket=1, options={**options, "target-file-row-num": "10"})
    for time in range(3):
        write(context, [{"id": 10 * time + number} for number in range(10)])
    run(context, "id in (15, 16)")
    assert compact(context).files_before == 1
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    read = [k for batch in read_bucket(context, bucket, ["id"]) for k in batch.column(0).to_pylist()]
    assert read == [k for k in range(30) if k not in (15, 16)] and vector_files(context) == []


@pytest.mark.in_part(4)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", first(1, range(3)))
def test_any_sequence_of_changes_gives_what_an_oracle_gives(tmp_path: Path, kind: str, seed: int) -> None:
    chance = random.Random(seed)
    small = {"target-file-row-num": "7", "deletion-vector.index-file.target-size": "60 b", "source.split.target-size": "1 b"}
    context = made(tmp_path, kind, times=1, options=small)
    held = {number: f"v{number}" for number in range(10)}
    for step in range(25):
        low = chance.randrange(60)
        high = low + chance.randrange(15)
        match chance.choice(["write", "delete", "update", "update", "compact", "minor"]):
            case "write":
                fresh = [number for number in range(low, high) if number not in held]
                write(context, [row(number, "ab"[number % 2]) for number in fresh] or [row(1000 + step, "a")])
                held |= {number: f"v{number}" for number in fresh or [1000 + step]}
            case "delete":
                gone = _within(held, low, high)
                assert run(context, f"id between {low} and {high}", threads=2).rows == len(gone)
                for number in gone:
                    del held[number]
            case "update":
                assert run(context, f"id between {low} and {high}", f"v = '{step}'").rows == len(_within(held, low, high))
                held |= dict.fromkeys(_within(held, low, high), str(step))
            case "compact":
                compact(context)
            case "minor":
                compact(context, strategy="minor")
        assert {row["id"]: row["v"] for row in rows(context)} == held and len(rows(context)) == len(held)
        if "fixed" in kind:
            assert_numbered_once(context)
    sound(context)


def assert_numbered_once(context: TableContext) -> None:
    """No two rows of a bucket have the same number, by which their files are put in order."""
    for bucket in bucket_files(context, context.snapshots.latest()).values():
        ranges = sorted((file.min_sequence_number, file.max_sequence_number) for file in bucket.files)
        assert all(end < begin for (_, end), (begin, _) in pairwise(ranges)), ranges


def _within(held: dict[int, str], low: int, high: int) -> list[int]:
    return [number for number in held if low <= number <= high]


@pytest.mark.in_part(2)
@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("kind", ["unaware", "unaware with vectors", "fixed with vectors"])
def test_a_file_of_many_batches_and_row_groups_loses_the_rows_that_match_and_no_others(
    tmp_path: Path, kind: str, file_format: str
) -> None:
    """The later changes meet rows, and whole batches, that are marked already, and row groups without a row that matches."""
    held = {number: f"v{number}" for number in range(40)}
    bucket, own = KINDS[kind]
    with injected(3):
        context = make_table(tmp_path / "t", COLUMNS, [], ["dt"], bucket, {**own, "file.format": file_format})
        write(context, [row(number) for number in held])
        deletes = {"id in (1, 17, 38)": {1, 17, 38}, "id = 16 or v = 'v39'": {16, 39}, "id between 20 and 29": {*range(20, 30)}}
        for where, gone in deletes.items():
            assert run(context, where).rows == len(gone)
            held = {number: text for number, text in held.items() if number not in gone}
            assert {row["id"]: row["v"] for row in rows(context)} == held
        assert run(context, "id between 15 and 31", "v = 'new'").rows == 5
        held |= dict.fromkeys((15, 18, 19, 30, 31), "new")
        for _ in range(2):
            assert {row["id"]: row["v"] for row in rows(context)} == held and len(rows(context)) == len(held)
            sound(context)
            compact(context)
    for found in bucket_files(context, context.snapshots.latest()).values():
        assert all(file.max_sequence_number - file.min_sequence_number == file.row_count - 1 for file in found.files)


@pytest.mark.parametrize("kind", WITH_VECTORS)
def test_a_compaction_that_copies_row_groups_decodes_files_with_marked_rows(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("min_group_bytes", "min_compacted_group_bytes", "min_chunk_bytes"):
        monkeypatch.setattr(PIECES, name, 0)
    context = made(tmp_path, kind)
    run(context, "id in (3, 14)")
    compact(context)
    assert ids(context) == [number for number in range(30) if number not in (3, 14)]
    sound(context)


def test_removed_files_are_deletes_of_the_delta(tmp_path: Path) -> None:
    context = made(tmp_path, "unaware", times=1)
    run(context, "id = 1")
    latest = context.snapshots.latest()
    assert latest is not None
    assert [entry.kind for entry in context.manifests.delta_entries(latest)] == [EntryKind.DELETE, 0]


def test_buckets_of_an_append_table_are_rescaled(tmp_path: Path) -> None:
    context = made(tmp_path, "fixed with vectors")
    run(context, "id in (4, 5, 14)")
    before = rows(context)
    table = TableContext(TablePlace(context.url, "t"), context.storage)
    summary = run_rescale(table, plan_rescale(context, RescaleOptions(5)), LocalEngine(), NoProgress())
    scaled = TableContext.open(context.url)
    assert (summary.rows, scaled.options.bucket, rows(scaled)) == (27, 5, before) and vector_files(scaled) == []
    write(scaled, [row(40)])
    run(scaled, "id in (7, 40)")
    assert ids(scaled) == [k for k in range(30) if k not in (4, 5, 7, 14)]
    sound(scaled)


def test_tables_without_buckets_have_nothing_to_rescale(tmp_path: Path) -> None:
    with pytest.raises(NotSupported, match="without buckets"):
        plan_rescale(made(tmp_path, "unaware", times=1), RescaleOptions(4))


@pytest.mark.parametrize(("old", "new"), [("unaware", "4"), ("fixed", "-1")])
def test_a_table_with_rows_does_not_get_or_lose_buckets(tmp_path: Path, old: str, new: str) -> None:
    context = made(tmp_path, old, times=1)
    with pytest.raises(UsageError, match="bucket cannot change") as refused:
        altered_schema(context.schema, [SetOption("bucket", new)], True, 0)
    assert f"create a new table with --bucket {new}" in refused.value.hint


@pytest.mark.parametrize("kind", ["unaware with vectors", "fixed with vectors", "unaware"])
def test_bloom_filters_rule_out_files_for_reads_and_deletes(tmp_path: Path, kind: str) -> None:
    indexes = {"file-index.bloom-filter.columns": "v", "file-index.bloom-filter.items": "50"}
    context = made(tmp_path, kind, options=indexes)
    where = parse_predicate("v = 'v7'", context.schema)
    plan = plan_scan(context, context.snapshots.latest(), where)
    assert sum(len(split.files) for split in plan.splits) == 1 and plan.counts.files_skipped_by_index > 0
    assert run(context, "v = 'v7'").rows == 1 and run(context, "v = 'v8'", "v = 'new'").rows == 1
    compact(context)
    plan = plan_scan(context, context.snapshots.latest(), parse_predicate("v = 'v8'", context.schema))
    assert not plan.splits
    assert [r["id"] for r in rows(context) if r["v"] == "new"] == [8] and 7 not in ids(context)


def test_a_limit_ends_the_reading_early(tmp_path: Path) -> None:
    context = made(tmp_path, "unaware")
    first, *others = [tmp_path / "t" / name for name in sorted(live_files(context)) if "dt=a" in name]
    scan = plan_rows(TableContext(TablePlace(context.url, "t"), context.storage), ReadRequest(columns="id", limit=3))
    ordered = [file.file_name for split in scan.plan.splits for file in split.files]
    for path in (first, *others):
        if path.name != ordered[0]:
            path.write_bytes(b"nobody reads this")
    assert sum(batch.num_rows for batch in scan.rows()) == 3


def test_tables_whose_columns_are_in_several_files_are_refused(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, [], bucket=-1, options={"bucket": "-1"})
    schema = tmp_path / "t/schema/schema-0"
    schema.write_text(schema.read_text().replace('"bucket"', '"data-evolution.enabled" : "true", "bucket"', 1))
    with pytest.raises(NotSupported, match=r"data-evolution\.enabled"):
        run(TableContext.open(context.url), "true")


def test_partitions_in_messages_end_without_a_slash(tmp_path: Path) -> None:
    context = made(tmp_path, "unaware", times=0)
    with pytest.raises(BadInput, match=r"rows of partition dt=b are outside"):
        write(context, [row(1, "b")], overwrite=True, partition={"dt": "a"})


@pytest.mark.parametrize("kind", KINDS)
def test_a_delete_looks_into_every_file_whose_bounds_leave_doubt(tmp_path: Path, kind: str) -> None:
    """Beside one that goes unread."""
    context = made(tmp_path, kind)
    assert run(context, "id < 10 or id in (15, 16, 25, 26)").rows == 14
    assert ids(context) == [number for number in range(10, 30) if number not in (15, 16, 25, 26)]


@pytest.mark.parametrize("kind", WITH_VECTORS)
@pytest.mark.parametrize("where", ["id < 10", "id < 10 and length(v) > 0"], ids=["unread", "read"])
def test_rows_that_are_gone_already_do_not_count_and_keep_no_file(tmp_path: Path, kind: str, where: str) -> None:
    context = made(tmp_path, kind)
    assert run(context, "id % 5 = 1 or id % 5 = 3").rows == 12
    before = live_files(context)
    summary = run(context, where)
    assert summary.rows == 6 and ids(context) == [number for number in range(10, 30) if number % 5 not in (1, 3)]
    marked = {entry.data_file_name for index in vector_files(context) for entry in index.deletion_vector_ranges or ()}
    assert len(before) - len(live_files(context)) >= 2, "those without rows are gone, and so are their vectors"
    assert marked <= {path.rpartition("/")[2] for path in live_files(context)}
    sound(context)


def test_tasks_of_one_bucket_number_their_rows_apart(tmp_path: Path) -> None:
    context = made(
        tmp_path, "fixed with vectors", options={"source.split.target-size": "1 b", "source.split.open-file-cost": "1 b"}
    )
    before = live_files(context)
    assert run(context, "id % 5 <> 1", "v = 'new'").rows == 24
    several = 0
    for bucket in bucket_files(context, context.snapshots.latest()).values():
        made_now = [file for file in bucket.files if not any(path.endswith(file.file_name) for path in before)]
        ranges = sorted((file.min_sequence_number, file.max_sequence_number) for file in made_now)
        assert all(last < first for (_, last), (first, _) in pairwise(ranges))
        several += len(ranges) > 1
    assert several, "a bucket had several tasks"
