"""Tables without a primary key: rows lie in files in the order of arrival, and none is ever replaced."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.orc as po
import pyarrow.parquet as pq
import pytest

from paimon_cli.bucket.merged_rows import read_bucket
from paimon_cli.errors import BadInput, UsageError
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.spark.write import portions_of, write_portion, write_where_read
from paimon_cli.jobs.write_request import WriteRequest, plan_write
from paimon_cli.metadata.data_file import EMPTY_ROW, DataFileMeta
from paimon_cli.pieces import PIECES
from tests.tables import data_files, live_files, make_table, rows, write

COLUMNS = {"k": "INT", "v": "STRING"}


def live(context: TableContext) -> list[DataFileMeta]:
    return [f for bucket in bucket_files(context, context.snapshots.latest()).values() for f in bucket.files]


def in_order(context: TableContext) -> list[Any]:
    """`k` of all rows as a read gives them."""
    buckets = bucket_files(context, context.snapshots.latest()).values()
    return [k for bucket in buckets for batch in read_bucket(context, bucket, ["k"]) for k in batch.column(0).to_pylist()]


def many(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"k": k, "v": f"value {k}", **more} for k in range(count)]


def test_a_file_holds_the_columns_of_the_table_and_equal_rows_stay(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, [], bucket=-1)
    given: list[dict[str, Any]] = [{"k": 2, "v": "a"}, {"k": 1, "v": None}, {"k": 2, "v": "a"}]
    write(context, given)
    (file,) = live(context)
    assert pq.read_table(tmp_path / "t" / "bucket-0" / file.file_name).to_pylist() == given
    assert (file.row_count, file.level, file.file_source, file.delete_row_count) == (3, 0, 0, 0)
    assert (file.min_key, file.max_key, file.key_stats.min_values) == (EMPTY_ROW, EMPTY_ROW, EMPTY_ROW)
    assert (file.min_sequence_number, file.max_sequence_number) == (0, 2)
    assert file.value_stats.null_counts == (0, 1) and file.value_stats_cols is None
    snapshot = context.snapshots.get(1)
    (entry,) = context.manifests.live_entries(snapshot)
    assert (entry.bucket, entry.total_buckets) == (0, -1)
    assert (snapshot.commit_kind, snapshot.delta_record_count) == ("APPEND", 3)


def test_writers_of_a_table_without_buckets_all_count_from_0(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, [], bucket=-1)
    for _ in range(3):
        write(context, many(4))
    assert [(f.min_sequence_number, f.max_sequence_number) for f in live(context)] == [(0, 3)] * 3
    assert in_order(context) == [0, 1, 2, 3] * 3


@pytest.mark.parametrize("buffer", ["1 mb", "300 b"])  # rows that do not fit come in pieces
def test_rows_of_a_bucket_are_numbered_without_gaps_and_go_on_in_the_next_write(tmp_path: Path, buffer: str) -> None:
    options = {"bucket-key": "k", "write-buffer-size": buffer}
    context = make_table(tmp_path / "t", COLUMNS, [], bucket=3, options=options)
    for _ in range(2):
        write(context, many(100))
    for bucket in bucket_files(context, context.snapshots.latest()).values():
        first, second = sorted(bucket.files, key=lambda file: file.min_sequence_number)
        assert (first.min_sequence_number, first.max_sequence_number) == (0, first.row_count - 1)
        assert (second.min_sequence_number, second.max_sequence_number) == (first.row_count, 2 * first.row_count - 1)
        stored = [k for batch in read_bucket(context, bucket, ["k"]) for k in batch.column(0).to_pylist()]
        assert stored == sorted(stored[: first.row_count]) * 2 and first.row_count == second.row_count > 0


def test_partitions_take_their_rows_in_the_order_of_arrival(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {**COLUMNS, "dt": "STRING"}, [], ["dt"], bucket=-1)
    write(context, [{"k": k, "v": "x", "dt": "ab"[k % 2]} for k in range(9)])
    write(context, [{"k": 9, "v": "x", "dt": "b"}, {"k": 10, "v": "x", "dt": None}])
    assert {path.split("/")[0] for path in live_files(context)} == {"dt=a", "dt=b", "dt=__DEFAULT_PARTITION__"}
    found = {tuple(in_partition) for in_partition in _by_partition(context)}
    assert found == {(0, 2, 4, 6, 8), (1, 3, 5, 7, 9), (10,)}


def _by_partition(context: TableContext) -> list[list[Any]]:
    buckets = bucket_files(context, context.snapshots.latest()).values()
    return [[k for b in read_bucket(context, bucket, ["k"]) for k in b.column(0).to_pylist()] for bucket in buckets]


def test_overwrite_replaces_the_partitions_that_get_rows(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {**COLUMNS, "dt": "STRING"}, [], ["dt"], bucket=-1)
    write(context, [{"k": 1, "v": "x", "dt": day} for day in "abc"])
    write(context, [{"k": 2, "v": "x", "dt": "b"}], overwrite=True)
    assert [(row["k"], row["dt"]) for row in rows(context)] == [(1, "a"), (1, "c"), (2, "b")]
    write(context, [{"k": 3, "v": "x", "dt": "c"}], overwrite=True, partition={"dt": "c"})
    assert [(row["k"], row["dt"]) for row in rows(context)] == [(1, "a"), (2, "b"), (3, "c")]
    assert context.snapshots.get(3).commit_kind == "OVERWRITE"


@pytest.mark.parametrize("kind", ["-D", "-U", "+U"])
def test_only_inserts_are_accepted(tmp_path: Path, kind: str) -> None:
    context = make_table(tmp_path / "t", COLUMNS, [], bucket=-1)
    with pytest.raises(BadInput, match=f"an append table takes no \\{kind} rows") as refused:
        write(context, [{"k": 1, "v": "x", "_op": "+I"}, {"k": 1, "v": "x", "_op": kind}])
    assert refused.value.hint and context.snapshots.latest() is None and not data_files(context)
    write(context, [{"k": 1, "v": "x", "_op": "+I"}])
    assert rows(context) == [{"k": 1, "v": "x"}]


def test_deletes_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, [], bucket=-1)
    with pytest.raises(UsageError, match="takes no deletes"):
        write(context, [{"k": 1, "v": "x"}], op="delete")


def test_ignore_delete_drops_retractions(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, [], bucket=-1, options={"ignore-delete": "true"})
    write(context, [{"k": 1, "v": "x", "_op": "-D"}, {"k": 2, "v": "x", "_op": "+I"}, {"k": 3, "v": "x", "_op": "-U"}])
    assert rows(context, ["k"]) == [{"k": 2}]


def test_files_roll_and_keep_the_order(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, [], bucket=-1, options={"target-file-row-num": "1000"})
    write(context, many(3500))
    assert [(f.min_sequence_number, f.max_sequence_number) for f in live(context)] == [
        (0, 999),
        (1000, 1999),
        (2000, 2999),
        (3000, 3499),
    ]
    assert in_order(context) == list(range(3500))


def test_files_of_append_tables_are_twice_as_big(tmp_path: Path) -> None:
    assert make_table(tmp_path / "a", COLUMNS, [], bucket=-1).mode.target_file_size == 256 << 20
    assert make_table(tmp_path / "k", {"k": "INT NOT NULL"}, ["k"]).mode.target_file_size == 128 << 20


@pytest.mark.parametrize("most_open", ["0", "1", "10"])
@pytest.mark.parametrize("spillable", ["true", "false"])
def test_memory_is_bounded_and_no_row_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_open: str, spillable: str
) -> None:
    """Buckets beyond the files that may be open wait on disk, or are flushed into a file of their own."""
    monkeypatch.setattr(PIECES, "row_group_bytes", 16 << 10)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    options = {"write-buffer-size": "128 kb", "write-max-writers-to-spill": most_open, "write-buffer-spillable": spillable}
    context = make_table(tmp_path / "t", {**COLUMNS, "dt": "INT"}, [], ["dt"], bucket=-1, options=options)
    given = [row | {"dt": row["k"] % 4} for row in many(20_000)]
    summary = write(context, given)
    assert summary.buffer_peak <= 128 << 10
    assert (summary.spills > 0) == (spillable == "true" and most_open != "10")
    assert len(live(context)) == 4 or spillable == "false"
    assert sorted(_by_partition(context)) == [list(range(first, 20_000, 4)) for first in range(4)]
    assert not list((tmp_path / "temporary").iterdir()), "nothing spilled is left"


def test_rows_that_were_spilled_are_flushed_once_though_others_follow(tmp_path: Path) -> None:
    """Where the disk for spilled rows is used up, a bucket is flushed, goes on, and is spilled and flushed again."""
    options = {"write-buffer-size": "64 kb", "write-max-writers-to-spill": "0", "write-buffer-spill.max-disk-size": "1 b"}
    context = make_table(tmp_path / "t", COLUMNS, [], bucket=-1, options=options)
    summary = write(context, many(20_000))
    assert summary.spills > 1 and summary.flushes > 1
    assert in_order(context) == list(range(20_000))


def test_a_lone_bucket_is_written_while_its_rows_arrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "row_group_bytes", 16 << 10)
    context = make_table(tmp_path / "t", COLUMNS, [], bucket=-1, options={"write-buffer-size": "1 mb"})
    summary = write(context, many(20_000))
    assert (summary.files, summary.spills, summary.flushes) == (1, 0, 1)
    assert in_order(context) == list(range(20_000))


def test_a_failed_write_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "row_group_bytes", 4 << 10)
    context = make_table(tmp_path / "t", COLUMNS, [], bucket=-1)
    write(context, many(3))
    before = data_files(context)
    with pytest.raises(BadInput):
        write(context, [*many(5000), {"k": "no number", "v": "x"}])
    assert data_files(context) == before == live_files(context)


@pytest.mark.parametrize("file_format", ["orc", "avro"])
def test_other_formats_hold_the_same_columns(tmp_path: Path, file_format: str) -> None:
    context = make_table(tmp_path / "t", COLUMNS, [], bucket=-1, options={"file.format": file_format})
    write(context, many(10))
    assert in_order(context) == list(range(10))
    if file_format == "orc":
        assert po.read_table(tmp_path / "t" / next(iter(live_files(context)))).column_names == ["k", "v"]


def test_a_bloom_filter_is_made(tmp_path: Path) -> None:
    options = {"file-index.bloom-filter.columns": "k", "file-index.bloom-filter.k.items": "100"}
    context = make_table(tmp_path / "t", COLUMNS, [], bucket=-1, options=options)
    write(context, many(10))
    (file,) = live(context)
    assert file.embedded_file_index


@pytest.mark.parametrize(
    ("sizes", "parallelism", "asked", "expected"),
    [
        ([10] * 4, 2, None, [range(0, 2), range(2, 4)]),
        ([10] * 4, 8, None, [range(0, 1), range(1, 2), range(2, 3), range(3, 4)]),
        ([10] * 4, 8, 1, [range(0, 4)]),
        ([1, 1, 1, 97], 2, None, [range(0, 3), range(3, 4)]),
        ([97, 1, 1, 1], 2, None, [range(0, 1), range(1, 4)]),
        ([100 << 20] * 9, 2, None, [range(0, 3), range(3, 6), range(6, 9)]),
        ([0, 0], 2, None, [range(0, 1), range(1, 2)]),
        ([], 2, None, []),
    ],
)
def test_portions_of_a_write_are_neighbours_of_about_one_size(
    tmp_path: Path, sizes: list[int], parallelism: int, asked: int | None, expected: list[range]
) -> None:
    context = make_table(tmp_path / "t", COLUMNS, [], bucket=-1, options={"target-file-size": "300 mb"})
    splits = tuple(SimpleNamespace(size=size) for size in sizes)
    plan: Any = SimpleNamespace(splits=splits, context=context, parallelism=asked)
    assert portions_of(plan, parallelism) == expected


def test_tasks_write_the_splits_that_they_read(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, [], bucket=-1)
    for number in range(3):
        (tmp_path / f"{number}.csv").write_text("k,v\n" + "".join(f"{number * 10 + k},x\n" for k in range(10)))
    request = WriteRequest(FileRows((str(tmp_path / "*.csv"),), "csv"))
    plan = plan_write(context, request)
    assert not plan.shuffles and plan.route == "append-unaware"
    tallies: dict[int, Any] = {}
    written = write_where_read(LocalEngine(), plan, 2, tallies, NoProgress())
    assert [tally.rows for _, tally in sorted(tallies.items())] == [10, 10, 10]
    assert [file.row_count for message in written.messages for file in message.append.added] == [20, 10]


def test_a_task_that_fails_removes_its_files(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, [], bucket=-1)
    (tmp_path / "a.csv").write_text("k,v\n1,x\nno,x\n")
    plan = plan_write(context, WriteRequest(FileRows((str(tmp_path / "a.csv"),), "csv")))
    with pytest.raises(BadInput):
        write_portion(plan, range(1))
    assert not data_files(context)
