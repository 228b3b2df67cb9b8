"""Row tracking: each row of an append table keeps its id, and the number of the snapshot that last changed it, for life."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paimon_cli import Table, restore
from paimon_cli.commit.commit_messages import SnapshotChanges
from paimon_cli.errors import DamagedFile, NotSupported
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.check import check_table
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.repair_job import _next_row_id
from paimon_cli.jobs.round_plan import plan_compaction
from paimon_cli.jobs.row_scan import ReadRequest, plan_rows
from paimon_cli.jobs.update_job import UpdateRequest, run_update
from paimon_cli.metadata.data_file import SOURCE_COMPACT, EntryKind, ManifestEntry
from paimon_cli.metadata.snapshot import APPEND
from tests.rivals import beside
from tests.tables import compact, make_table, write

COLUMNS = {"id": "INT", "v": "STRING", "dt": "STRING"}
TRACKED = {"row-tracking.enabled": "true"}
IDS = ["_ROW_ID", "_SEQUENCE_NUMBER"]


def made(folder: Path, **options: str) -> TableContext:
    return make_table(folder / "t", COLUMNS, [], ["dt"], bucket=-1, options={**TRACKED, **options})


def add(context: TableContext, *ids: int, day: str = "a") -> None:
    write(context, [{"id": number, "v": "new", "dt": day} for number in ids])


def change(context: TableContext, where: str, *assignments: str, **more: Any) -> int:
    request = UpdateRequest(where=where, assignments=assignments, **more)
    return run_update(context, request, LocalEngine(), NoProgress()).rows


def tracked(context: TableContext, where: str | None = None) -> dict[int, tuple[int, int, int]]:
    """Row id -> id, sequence number and length of `v`."""
    request = ReadRequest(columns=["id", "v", *IDS], where=where)
    found: dict[int, tuple[int, int, int]] = {}
    for batch in plan_rows(context, request).rows():
        for row in batch.to_pylist():
            assert row["_ROW_ID"] not in found
            found[row["_ROW_ID"]] = (row["id"], row["_SEQUENCE_NUMBER"], len(row["v"]))
    return found


def next_row_id(context: TableContext) -> int | None:
    latest = context.snapshot()
    return latest.next_row_id if latest else None


def sound(context: TableContext) -> bool:
    return not list(check_table(context))


@pytest.mark.parametrize("form", ["parquet", "orc", "avro"])
@pytest.mark.in_part(2)
def test_new_rows_get_ids_and_keep_them_whatever_happens_to_their_files(tmp_path: Path, form: str) -> None:
    context = made(tmp_path, **{"file.format": form})
    add(context, 1, 2, 3)
    add(context, 4, 5)
    assert tracked(context) == {n - 1: (n, 1 if n < 4 else 2, 3) for n in range(1, 6)}
    assert (next_row_id(context), change(context, "id = 2", "v = 'other'")) == (5, 1)
    expected = {n - 1: (n, {2: 3}.get(n, 1 if n < 4 else 2), 5 if n == 2 else 3) for n in range(1, 6)}
    assert tracked(context) == expected
    compact(context, strategy="full")
    assert tracked(context) == expected and next_row_id(context) == 5
    assert change(context, "id = 4") == 1
    del expected[3]
    assert tracked(context) == expected
    add(context, 6)
    compact(context, strategy="full")
    assert tracked(context) == {**expected, 5: (6, 6, 3)} and next_row_id(context) == 6
    assert sound(context)


def test_rows_marked_as_deleted_count_for_the_ids_of_those_behind_them(tmp_path: Path) -> None:
    context = made(tmp_path, **{"deletion-vectors.enabled": "true"})
    add(context, 1, 2, 3, 4)
    change(context, "id = 1")
    change(context, "id = 3", "v = 'other'")
    expected = {1: (2, 1, 3), 2: (3, 3, 5), 3: (4, 1, 3)}
    assert tracked(context) == expected
    compact(context, strategy="full")
    assert tracked(context) == expected and sound(context)


def test_ids_choose_rows_in_conditions(tmp_path: Path) -> None:
    context = made(tmp_path)
    add(context, 1, 2, 3)
    assert tracked(context, "_ROW_ID >= 1 AND _SEQUENCE_NUMBER = 1") == {1: (2, 1, 3), 2: (3, 1, 3)}
    assert change(context, "_ROW_ID = 1") == 1
    assert sorted(tracked(context)) == [0, 2]


def test_the_files_of_a_partition_have_neighbouring_ids(tmp_path: Path) -> None:
    context = made(tmp_path)
    write(context, [{"id": n, "v": "new", "dt": "ab"[n % 2]} for n in range(10)])
    by_day: dict[int, set[int]] = {}
    for row_id, (number, _, _) in tracked(context).items():
        by_day.setdefault(number % 2, set()).add(row_id)
    assert sorted(map(sorted, by_day.values())) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


def test_a_lost_race_numbers_rows_again(tmp_path: Path) -> None:
    context = made(tmp_path)
    add(beside(context, lambda: add(TableContext.open(context.url), 7, 8)), 1)
    assert tracked(TableContext.open(context.url)) == {0: (7, 1, 3), 1: (8, 1, 3), 2: (1, 2, 3)}


def test_ids_are_not_given_twice_after_a_compaction_and_an_overwrite(tmp_path: Path) -> None:
    context = made(tmp_path)
    add(context, 1, 2)
    write(context, [{"id": 9, "v": "new", "dt": "a"}], overwrite=True, partition={"dt": "a"})
    assert tracked(context) == {2: (9, 2, 3)} and next_row_id(context) == 3


def test_columns_of_row_tracking_are_only_read_where_they_exist(tmp_path: Path) -> None:
    plain = make_table(tmp_path / "p", COLUMNS, [], bucket=-1)
    write(plain, [{"id": 1, "v": "new", "dt": "a"}])
    with pytest.raises(Exception, match="no column '_ROW_ID'"):
        plan_rows(plain, ReadRequest(columns=["_ROW_ID"]))
    assert (plain.snapshot() or pytest.fail()).next_row_id is None
    (path,) = (tmp_path / "p/snapshot").glob("snapshot-*")
    assert "nextRowId" not in json.loads(path.read_text())


def test_keys_buckets_and_sorting_are_refused(tmp_path: Path) -> None:
    for folder, keys, bucket in (("k", ["id"], 1), ("b", [], 2)):
        context = make_table(
            tmp_path / folder, {"id": "INT NOT NULL"}, keys, bucket=bucket, options={**TRACKED, "bucket-key": "id"}
        )
        with pytest.raises(NotSupported, match=r"row-tracking\.enabled"):
            write(context, [{"id": 1}])
    context = made(tmp_path)
    add(context, 1)
    with pytest.raises(NotSupported, match=r"row-tracking\.enabled"):
        plan_compaction(context, CompactRequest(order_by="id"))


def test_files_that_lost_the_ids_of_their_rows_are_damage_only_where_ids_are_read(tmp_path: Path) -> None:
    context = made(tmp_path)
    add(context, 1, 2)
    snapshot = context.snapshot()
    assert snapshot is not None
    (entry,) = context.manifests.live_entries(snapshot)
    lost = replace(entry, file=replace(entry.file, first_row_id=None))
    changes = SnapshotChanges(APPEND, (ManifestEntry(EntryKind.ADD, *lost.bucket_id, lost.total_buckets, lost.file),))
    assert changes.with_row_ids(9, 50).entries[0].file.first_row_id == 50
    from paimon_cli.bucket.data_file_reader import read_data_file

    def read(*columns: str) -> int:
        return sum(batch.num_rows for batch in read_data_file(context, lost.bucket_id, lost.file, columns, 100))

    assert read("id") == 2
    with pytest.raises(DamagedFile, match="without an id"):
        read("_ROW_ID")


def test_ids_of_restored_rows_are_not_given_again(tmp_path: Path) -> None:
    """A rollback also takes back the count of ids, from which the next row is numbered."""
    context = made(tmp_path)
    add(context, 1)
    add(context, 2)
    table = Table.open(context.url)
    table.backup(tmp_path / "backup")
    table.rollback(1)
    restore(tmp_path / "backup", context.url)
    add(context, 3)
    assert {row_id: number for row_id, (number, _, _) in tracked(context).items()} == {0: 1, 1: 2, 2: 3}


@pytest.mark.parametrize(
    ("known", "files", "following"),
    [
        (None, [], None),
        (5, [], 5),
        (5, [(7, 3), (2, 4)], 10),
        (12, [(7, 3)], 12),
        (None, [(2, 4), (0, 2)], 6),
        (5, [(None, 9)], 5),
    ],
)
def test_a_commit_that_is_made_again_uses_up_the_ids_of_its_rows(
    known: int | None, files: list[tuple[int | None, int]], following: int | None, tmp_path: Path
) -> None:
    context = make_table(tmp_path / "t", {"id": "INT"}, [], (), -1)
    write(context, [{"id": 1}])
    snapshot = context.snapshots.get(1)
    (entry,) = context.manifests.live_entries(snapshot)
    delta = [replace(entry, file=replace(entry.file, first_row_id=first, row_count=count)) for first, count in files]
    assert _next_row_id(replace(snapshot, next_row_id=known), delta) == following


def test_numbers_of_compacted_rows_that_are_known_stay(tmp_path: Path) -> None:
    """A file with some new rows has numbers from the least that is known up to that of the snapshot."""
    context = make_table(tmp_path / "t", {"id": "INT"}, [], (), -1)
    write(context, [{"id": 1}])
    (entry,) = context.manifests.live_entries(context.snapshots.get(1))
    for low, high, expected in ((3, 4, (3, 4)), (3, 0, (3, 9)), (0, 0, (9, 9))):
        file = replace(entry.file, min_sequence_number=low, max_sequence_number=high, file_source=SOURCE_COMPACT)
        found = file.tracked(9, 100)
        assert (found.min_sequence_number, found.max_sequence_number) == expected and found.first_row_id is None


def test_a_star_selects_all_other_columns(tmp_path: Path) -> None:
    context = made(tmp_path)
    add(context, 1)
    for columns in ("*,_ROW_ID", ["*", "_ROW_ID"], "*, _ROW_ID"):
        (batch,) = plan_rows(context, ReadRequest(columns=columns)).rows()
        assert batch.to_pylist() == [{"id": 1, "v": "new", "dt": "a", "_ROW_ID": 0}]
    nested = make_table(tmp_path / "n", {"id": "INT", "r": "ROW<a INT>"}, [], bucket=-1)
    write(nested, [{"id": 1, "r": {"a": 2}}])
    (batch,) = plan_rows(nested, ReadRequest(columns="r.a,*")).rows()
    assert batch.to_pylist() == [{"r.a": 2, "id": 1, "r": {"a": 2}}]
    starred = make_table(tmp_path / "s", {"id": "INT", "*": "INT"}, [], bucket=-1)
    write(starred, [{"id": 1, "*": 2}])
    (batch,) = plan_rows(starred, ReadRequest(columns=["*"])).rows()
    assert batch.to_pylist() == [{"*": 2}]
