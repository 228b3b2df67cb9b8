"""Rows become level-0 files: numbered, sorted, merged, cleaned up after a failure."""

from __future__ import annotations

import itertools
import tempfile
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_cli.bucket.data_file_writer import DataFileWriter
from paimon_cli.errors import BadInput, NotSupported, StorageUnavailable, UsageError
from paimon_cli.history.live_files import bucket_files
from paimon_cli.metadata.data_file import DataFileMeta
from paimon_cli.pieces import PIECES
from paimon_cli.write.routers import DynamicRouter, FixedRouter, Routed, UnawareRouter
from tests.tables import data_files, live_files, make_table, rows, write

COLUMNS = {"k": "INT NOT NULL", "v": "STRING"}


def live(context) -> list[DataFileMeta]:  # type: ignore[no-untyped-def]
    return [f for bucket in bucket_files(context, context.snapshots.latest()).values() for f in bucket.files]


def test_the_last_row_of_a_key_wins_inside_one_write(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"])
    write(context, [{"k": 2, "v": "a"}, {"k": 1, "v": "b"}, {"k": 2, "v": "c"}])
    (file,) = live(context)
    assert (file.row_count, file.level, file.file_source, file.delete_row_count) == (2, 0, 0, 0)
    assert (file.min_sequence_number, file.max_sequence_number) == (1, 2)
    stored = pq.read_table(tmp_path / "t" / "bucket-0" / file.file_name).to_pylist()
    assert stored == [
        {"_KEY_k": 1, "_SEQUENCE_NUMBER": 1, "_VALUE_KIND": 0, "k": 1, "v": "b"},
        {"_KEY_k": 2, "_SEQUENCE_NUMBER": 2, "_VALUE_KIND": 0, "k": 2, "v": "c"},
    ]


def test_sequence_numbers_go_on_from_the_committed_maximum(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"])
    highest = -1
    for _ in range(4):
        write(context, [{"k": k, "v": "x"} for k in range(5)])
        newest = max(live(context), key=lambda f: f.max_sequence_number)
        assert newest.min_sequence_number == highest + 1
        highest = newest.max_sequence_number


def given_rows() -> list[dict[str, object]]:
    return [{"k": k % 5000, "v": f"value {k}"} for k in range(60_000)]


def test_a_small_buffer_spills_and_still_gives_one_sorted_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=3, options={"write-buffer-size": "64 kb"})
    write(context, given_rows())
    assert len(live(context)) == 3
    assert sorted(rows(context), key=lambda row: row["k"]) == given_rows()[55_000:]
    assert not list((tmp_path / "temporary").iterdir()), "nothing spilled is left"


@pytest.mark.parametrize("most", [2, 3, 128])
def test_many_spilled_runs_are_merged_in_passes(tmp_path: Path, most: int) -> None:
    options = {"write-buffer-size": "32 kb", "local-sort.max-num-file-handles": str(most)}
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options=options)
    write(context, given_rows())
    assert len(live(context)) == 1
    assert sorted(rows(context), key=lambda row: row["k"]) == given_rows()[55_000:]


@pytest.mark.parametrize("limit", [{"write-buffer-spillable": "false"}, {"write-buffer-spill.max-disk-size": "100 kb"}])
def test_what_may_not_spill_is_flushed(tmp_path: Path, limit: dict[str, str]) -> None:
    options = {"write-buffer-size": "64 kb", "write-only": "true", **limit}
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=3, options=options)
    write(context, given_rows())
    assert len(live(context)) > 6
    assert sorted(rows(context), key=lambda row: row["k"]) == given_rows()[55_000:]


def test_a_failed_write_leaves_nothing_spilled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={"write-buffer-size": "1 kb"})
    with pytest.raises(BadInput):
        write(context, [*({"k": k, "v": "x" * 50} for k in range(500)), {"k": None, "v": "bad"}])
    assert not list((tmp_path / "temporary").iterdir())
    assert not data_files(context)


def test_files_roll_at_the_target_size(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={"target-file-size": "10 kb"})
    write(context, [{"k": k, "v": f"{k * 104729 % 1000003:x}"} for k in range(20000)])
    files = sorted(live(context), key=lambda f: f.min_key)
    assert len(files) > 2
    assert all(f.file_size < 40_000 for f in files)
    assert len(rows(context)) == 20000


def test_files_roll_at_the_target_number_of_rows(tmp_path: Path) -> None:
    """Sizes around the batch and the limit: full files but the last one, each a disjoint stretch of the keys."""
    for count, sizes in ((6999, [3000, 3000, 999]), (6000, [3000, 3000]), (1, [1])):
        context = make_table(tmp_path / str(count), COLUMNS, ["k"], options={"target-file-row-num": "3000"})
        write(context, [{"k": k, "v": "x"} for k in reversed(range(count))])
        files = sorted(live(context), key=lambda f: context.key_of(f.min_key))
        assert [f.row_count for f in files] == sizes
        assert all(context.key_of(a.max_key) < context.key_of(b.min_key) for a, b in itertools.pairwise(files))
        assert sorted(row["k"] for row in rows(context)) == list(range(count))


def test_a_bad_row_leaves_neither_snapshot_nor_file(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=2, options={"write-buffer-size": "1 kb"})
    write(context, [{"k": 1, "v": "kept"}])
    before = data_files(context)
    with pytest.raises(BadInput):
        write(context, [*({"k": k, "v": "x" * 50} for k in range(500)), {"k": None, "v": "bad"}])
    assert data_files(context) == before
    assert context.snapshots.latest_id() == 1
    assert rows(context) == [{"k": 1, "v": "kept"}]


def test_overwrite_dynamic_static_and_whole(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"p": "STRING NOT NULL", **COLUMNS}, ["p", "k"], ["p"])

    def keys() -> list[str]:
        return sorted(f"{row['p']}{row['k']}" for row in rows(context))

    write(context, [{"p": p, "k": k, "v": ""} for p in "abc" for k in (1, 2)])
    write(context, [{"p": "b", "k": 9, "v": ""}], overwrite=True)
    assert keys() == ["a1", "a2", "b9", "c1", "c2"]
    write(context, [{"p": "a", "k": 5, "v": ""}], overwrite=True, partition={"p": "a"})
    assert keys() == ["a5", "b9", "c1", "c2"]
    with pytest.raises(BadInput, match="p=c"):
        write(context, [{"p": "c", "k": 5, "v": ""}], overwrite=True, partition={"p": "a"})
    assert keys() == ["a5", "b9", "c1", "c2"]
    assert [s.commit_kind for s in context.snapshots.newest_first()] == ["OVERWRITE", "OVERWRITE", "APPEND"]
    plain = make_table(tmp_path / "u", COLUMNS, ["k"])
    write(plain, [{"k": 1, "v": ""}, {"k": 2, "v": ""}])
    write(plain, [{"k": 3, "v": ""}], overwrite=True)
    assert [row["k"] for row in rows(plain)] == [3]


def test_static_overwrite_with_nothing_empties_the_partition(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"p": "STRING NOT NULL", **COLUMNS}, ["p", "k"], ["p"])
    write(context, [{"p": p, "k": 1, "v": ""} for p in "ab"])
    for partition in (None, {"p": "a"}):
        with pytest.raises(BadInput, match=r"the input is empty, (and|so that) overwrite"):
            write(context, [], overwrite=True, partition=partition)
    write(context, [], overwrite=True, allow_empty=True)
    assert len(rows(context)) == 2
    write(context, [], overwrite=True, allow_empty=True, partition={"p": "a"})
    assert [row["p"] for row in rows(context)] == ["b"]


def test_a_commit_id_counts_once(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"])
    first = write(context, [{"k": 1, "v": "a"}], commit_user="etl", commit_id=7)
    again = write(context, [{"k": 1, "v": "b"}], commit_user="etl", commit_id=7)
    assert (first.already_committed, again.already_committed) == (False, True)
    assert rows(context) == [{"k": 1, "v": "a"}]
    assert data_files(context) == live_files(context)
    with pytest.raises(UsageError):
        write(context, [{"k": 1, "v": "b"}], commit_id=7)


def test_what_is_not_written_is_refused_before_anything_happens(tmp_path: Path) -> None:
    for number, options in enumerate(
        [
            {"row-tracking.enabled": "true"},
            {"file.format": "csv"},
        ]
    ):
        context = make_table(tmp_path / str(number), COLUMNS, ["k"], options=options)
        with pytest.raises(NotSupported):
            write(context, [{"k": 1, "v": "a"}])
        assert context.snapshots.latest() is None
        assert data_files(context) == set()


def test_threads_write_what_one_thread_writes(tmp_path: Path) -> None:
    columns = {"s": "STRING NOT NULL", "k": "INT NOT NULL", "v": "STRING"}
    given = [{"s": f"key {k % 7}", "k": k % 900, "v": f"value {k}"} for k in range(20_000)]
    options = {"write-buffer-size": "256 kb"}  # so that most buckets have spilled runs when they are finished
    found = []
    for name, threads in (("one", 1), ("three", 3)):
        context = make_table(tmp_path / name, columns, ["s", "k"], bucket=5, options=options)
        write(context, given, threads=threads)
        assert len(live(context)) == 5
        found.append((rows(context), [(file.row_count, file.min_key, file.max_sequence_number) for file in live(context)]))
    newest = {(row["s"], row["k"]): row for row in given}
    assert found[0] == found[1]
    assert len(found[0][0]) == len(newest) and all(row == newest[row["s"], row["k"]] for row in found[0][0])


@pytest.mark.parametrize("bucket, limit, is_ahead", [(5, 16 << 20, True), (5, 0, False), (-1, 16 << 20, False)])
def test_rows_are_routed_ahead_unless_they_take_much_memory_or_their_order_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket: int, limit: int, is_ahead: bool
) -> None:
    """Buckets are assigned to new keys in the order of arrival."""
    monkeypatch.setattr(PIECES, "sort_ahead_bytes", limit)
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=bucket, options={"write-only": "true"})
    seen = set[int]()
    router, route = (DynamicRouter if bucket < 0 else FixedRouter), UnawareRouter.route

    def watched(self: UnawareRouter, batch: pa.RecordBatch) -> Routed:
        seen.add(threading.get_ident())
        return route(self, batch)

    monkeypatch.setattr(router, "route", watched)
    given = [{"k": k, "v": "x"} for k in range(1000)]
    write(context, given, threads=2)
    assert seen and (threading.get_ident() not in seen) == is_ahead
    assert sorted(rows(context), key=lambda row: row["k"]) == given


def test_a_thread_that_fails_removes_the_files_of_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=4)
    close, turns = DataFileWriter.close, itertools.count()

    def failing(writer: DataFileWriter) -> tuple[DataFileMeta, ...]:
        if next(turns) == 2:
            raise StorageUnavailable("the disk is full")
        return close(writer)

    monkeypatch.setattr(DataFileWriter, "close", failing)
    with pytest.raises(StorageUnavailable):
        write(context, given_rows(), threads=3)
    assert not data_files(context)
    assert context.snapshots.latest() is None


def test_a_bad_row_is_reported_when_rows_are_read_ahead(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=4)
    with pytest.raises(BadInput, match="row 60001"):
        write(context, [*given_rows(), {"k": None, "v": "x"}], threads=2)
    assert not data_files(context)
