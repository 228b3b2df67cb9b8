"""Compaction of tables without a primary key: small files become fewer, and rows stay what and where they were."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.bucket.merged_rows import read_bucket
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import fresh_identity
from paimon_cli.compact.bucket_compactor import run_compaction
from paimon_cli.errors import FilesConflict
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.compaction_report import decision_rows
from paimon_cli.jobs.compact_job import run_compact
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.round_plan import plan_compaction
from paimon_cli.lsm.append_compaction import AppendPicker
from paimon_cli.metadata.data_file import EMPTY_ROW, DataFileMeta, SimpleStats
from tests.tables import compact, data_files, live_files, make_table, rows, write

COLUMNS = {"k": "INT", "v": "STRING"}
PICKER = AppendPicker(target_size=100, small_size=70, min_files=3, open_cost=4, max_files=1000)


def file(size: int, first: int = 0) -> DataFileMeta:
    stats = SimpleStats(EMPTY_ROW, EMPTY_ROW, ())
    return DataFileMeta(f"f{first}", size, 1, EMPTY_ROW, EMPTY_ROW, stats, stats, first, first, 0, 0)


def sizes(packs: list[tuple[DataFileMeta, ...]]) -> list[list[int]]:
    return [[one.file_size for one in pack] for pack in packs]


@pytest.mark.parametrize(
    ("given", "full", "expected"),
    [
        ([], True, []),
        ([10], True, []),
        ([10, 20], False, []),
        ([10, 20], True, [[10, 20]]),
        ([30, 10, 20], False, [[10, 20, 30]]),
        ([70, 80, 99, 500], True, []),
        ([69, 69, 69, 69], False, [[69, 69, 69]]),
        ([69, 69, 69, 69, 1, 2], True, [[1, 2, 69, 69, 69]]),
        ([69] * 5, True, [[69, 69, 69], [69, 69]]),
        ([69] * 5, False, [[69, 69, 69]]),
    ],
)
def test_small_files_are_packed_by_size(given: list[int], full: bool, expected: list[list[int]]) -> None:
    assert sizes(PICKER.by_size([file(size) for size in given], full=full)) == expected


@pytest.mark.parametrize(
    ("pick", "given", "expected"),
    [
        ("by_size", [500, 400, 80], [[80]]),
        ("by_size", [500, 10, 80], [[10, 80]]),
        ("neighbours", [1, 2, 80, 3], [[1, 2, 80]]),
        ("neighbours", [500, 500, 80, 500], [[80]]),
        ("whole_bucket", [500, 500, 80, 500], [[80]]),
        ("whole_bucket", [500, 1, 80, 2], [[1, 80, 2]]),
        ("whole_bucket", [80, 1, 2, 3], [[80, 1, 2, 3]]),
        ("whole_bucket", [500, 80], [[80]]),
    ],
)
@pytest.mark.parametrize("size", [80, 100, 300], ids=["beside small ones", "of the target size", "larger"])
def test_marked_files_are_compacted_whatever_their_size(
    pick: str, given: list[int], expected: list[list[int]], size: int
) -> None:
    """The marked file is the one of 80 bytes, or of another size instead."""
    ordered = [file(size if one == 80 else one, number) for number, one in enumerate(given)]
    picker = replace(PICKER, marked={f"f{given.index(80)}"})
    packs = picker.by_size(ordered, full=False) if pick == "by_size" else getattr(picker, pick)(ordered)
    assert sizes(packs) == [[size if one == 80 else one for one in pack] for pack in expected]


def test_a_file_is_never_compacted_alone_for_being_small() -> None:
    """It would be rewritten in each compaction: with any minimum of files, and however dear the opening of a file."""
    for picker in (replace(PICKER, min_files=1), replace(PICKER, open_cost=300), replace(PICKER, min_files=1, open_cost=300)):
        assert picker.by_size([file(10)], full=False) == picker.by_size([file(10)], full=True) == []
        assert picker.neighbours([file(10)]) == []
        assert sizes(picker.by_size([file(10), file(20)], full=True)) == [[10, 20]]
    assert sizes(replace(PICKER, min_files=1).by_size([file(10), file(20)], full=False)) == [[10, 20]]


def test_the_limit_of_files_counts_the_smallest() -> None:
    limited = AppendPicker(target_size=100, small_size=70, min_files=3, open_cost=0, max_files=4)
    assert sizes(limited.by_size([file(size) for size in (6, 5, 4, 3, 2, 1)], full=True)) == [[1, 2, 3, 4]]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([1, 2], []),
        ([1, 2, 3], [[1, 2, 3]]),
        ([1, 2, 3, 4, 5, 6, 7], [[1, 2, 3], [4, 5, 6]]),
        ([150, 60, 1, 2, 3], [[60, 1, 2]]),
        ([150, 150, 150], []),
        ([99, 99, 99], [[99, 99, 99]]),
        ([100, 99, 1, 2], [[100, 99, 1]]),
        ([100, 100, 1, 2], [[100, 1, 2]]),
        ([1, 250, 1, 250, 1], []),
    ],
)
def test_neighbours_of_a_bucket_are_packed_in_their_order(given: list[int], expected: list[list[int]]) -> None:
    files = [file(size, number) for number, size in enumerate(given)]
    assert sizes(PICKER.neighbours(files[::-1])) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([1, 2], []),
        ([1, 2, 3], [[1, 2, 3]]),
        ([100, 120, 1, 2, 3], [[1, 2, 3]]),
        ([1, 200, 2], [[1, 200, 2]]),
        ([1, 200, 200], []),
        ([100, 100], []),
    ],
)
def test_a_whole_bucket_is_put_together_if_most_of_it_is_small(given: list[int], expected: list[list[int]]) -> None:
    assert sizes(PICKER.whole_bucket([file(size, number) for number, size in enumerate(given)])) == expected


def written(folder: Path, times: int, **table: Any) -> TableContext:
    context = make_table(folder / "t", COLUMNS, [], **table)
    for number in range(times):
        write(context, [{"k": number * 10 + k, "v": f"value {k}"} for k in range(10)])
    return context


def files(context: TableContext) -> list[DataFileMeta]:
    return [f for bucket in bucket_files(context, context.snapshots.latest()).values() for f in bucket.files]


def in_order(context: TableContext, bucket: int = 0) -> list[Any]:
    found = bucket_files(context, context.snapshots.latest())
    (chosen,) = [files for bucket_id, files in found.items() if bucket_id.bucket == bucket]
    return [k for batch in read_bucket(context, chosen, ["k"]) for k in batch.column(0).to_pylist()]


def test_small_files_of_a_table_without_buckets_become_one(tmp_path: Path) -> None:
    context = written(tmp_path, 5, bucket=-1)
    before = rows(context)
    summary = compact(context, strategy="minor")
    assert (summary.buckets, summary.files_before, summary.files_after) == (1, 5, 1)
    (made,) = files(context)
    assert (made.row_count, made.level, made.file_source, made.delete_row_count) == (50, 0, 1, 0)
    assert (made.min_sequence_number, made.max_sequence_number, made.min_key) == (0, 49, EMPTY_ROW)
    snapshot = context.snapshots.get(6)
    assert (snapshot.commit_kind, snapshot.total_record_count, snapshot.delta_record_count) == ("COMPACT", 50, 0)
    assert rows(context) == before == rows(context, snapshot_id=5)
    assert compact(context).buckets == 0


def test_fewer_files_wait_for_more_without_a_full_compaction(tmp_path: Path) -> None:
    context = written(tmp_path, 4, bucket=-1)
    assert compact(context, strategy="minor").buckets == 0
    (decision,) = plan_compaction(context, CompactRequest("minor")).decisions
    assert decision.reason == "fewer than 5 files below 179 MB"
    assert compact(context, strategy="full").files_after == 1
    more = make_table(tmp_path / "two", COLUMNS, [], bucket=-1, options={"compaction.min.file-num": "2"})
    for _ in range(2):
        write(more, [{"k": 1, "v": "x"}])
    assert compact(more, strategy="minor").files_after == 1


def test_packs_of_one_bucket_are_tasks_of_their_own_and_one_commit(tmp_path: Path) -> None:
    made = written(tmp_path, 7, bucket=-1)
    size = f"{2 * max(file.file_size for file in files(made))} b"
    options = {"target-file-size": size, "source.split.open-file-cost": size, "compaction.small-file-ratio": "1"}
    context = TableContext.open(made.url, options)
    before = rows(context)
    plan = plan_compaction(context, CompactRequest("full"))
    (task,) = plan.tasks
    assert [len(part.files) for part in task.parts] == [2, 2, 2] and task.arithmetic == "6 files in 3 packs"
    (row,) = decision_rows(context, plan.decisions)
    assert (row.files, row.files_after, row.runs_before, row.runs_after, row.picked_runs) == (6, 3, 7, 4, 6)
    summary = run_compact(context, CompactRequest("full"), LocalEngine(2), NoProgress())
    assert (summary.buckets, summary.files_before, summary.files_after, len(summary.snapshots)) == (1, 6, 3, 1)
    assert rows(context) == before


def test_rows_of_a_bucket_keep_their_order(tmp_path: Path) -> None:
    context = written(tmp_path, 7, bucket=1, options={"bucket-key": "k"})
    assert compact(context, strategy="minor").files_before == 5
    assert in_order(context) == list(range(70))
    ranges = sorted((f.min_sequence_number, f.max_sequence_number) for f in files(context))
    assert ranges == [(0, 49), (50, 59), (60, 69)]
    assert compact(context, strategy="full").files_before == 3
    assert [(f.min_sequence_number, f.max_sequence_number) for f in files(context)] == [(0, 69)]
    write(context, [{"k": 70, "v": "x"}])
    assert in_order(context) == list(range(71))


def test_partitions_and_older_schemas_are_compacted_apart_and_together(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {**COLUMNS, "dt": "STRING"}, [], ["dt"], bucket=-1)
    for number in range(2):
        write(context, [{"k": number, "v": "x", "dt": day} for day in "ab"])
    before = rows(context)
    summary = compact(context, partition=({"dt": "b"},))
    assert summary.files_before == 2 and len(files(context)) == 3 and rows(context) == before


def test_appends_meanwhile_lose_nothing(tmp_path: Path) -> None:
    """The subject of apache/paimon issue 7595: the compaction replaces what it has read, and nothing else."""
    context = written(tmp_path, 3, bucket=-1)
    (task,) = plan_compaction(context, CompactRequest("full")).tasks
    message = run_compaction(context, task)
    write(context, [{"k": 100, "v": "meanwhile"}])
    Committer(context).commit([message], fresh_identity(context))
    assert [row["k"] for row in sorted(rows(context), key=lambda row: row["k"])] == [*range(30), 100]
    assert len(files(context)) == 2


def test_of_two_compactions_of_the_same_files_one_wins(tmp_path: Path) -> None:
    context = written(tmp_path, 3, bucket=-1)
    (task,) = plan_compaction(context, CompactRequest("full")).tasks
    message = run_compaction(context, task)
    before = rows(context)
    compact(context)
    with pytest.raises(FilesConflict, match="no longer in the table"):
        Committer(context).commit([message], fresh_identity(context))
    assert rows(context) == before


def test_an_overwrite_meanwhile_ends_the_compaction(tmp_path: Path) -> None:
    context = written(tmp_path, 3, bucket=-1)
    (task,) = plan_compaction(context, CompactRequest("full")).tasks
    message = run_compaction(context, task)
    write(context, [{"k": 1, "v": "only"}], overwrite=True)
    with pytest.raises(FilesConflict):
        Committer(context).commit([message], fresh_identity(context))
    assert rows(context) == [{"k": 1, "v": "only"}]


def test_a_pack_that_fails_leaves_the_table_and_no_file(tmp_path: Path) -> None:
    context = written(tmp_path, 3, bucket=-1)
    victim = tmp_path / "t" / sorted(live_files(context))[1]
    victim.write_bytes(b"damaged")
    before = data_files(context)
    with pytest.raises(Exception, match=victim.name):
        compact(context)
    assert data_files(context) == before and context.snapshots.latest_id() == 3
