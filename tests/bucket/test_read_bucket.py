"""The rows of a bucket as each kind of table shows them: merged, without the marked ones, or in the order they were appended."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyroaring import BitMap

from paimon_cli.bucket import merged_rows
from paimon_cli.bucket.data_file_reader import FilePart, read_part
from paimon_cli.bucket.merged_rows import RecordExpiry, merge_section, read_bucket
from paimon_cli.datatypes.binary_row import serialize_row
from paimon_cli.errors import DamagedFile
from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.sorted_runs import key_sections
from paimon_cli.metadata.data_file import DeletionVectorRange, IndexFileMeta
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, VALUE_KIND
from paimon_cli.pieces import PIECES
from tests.goldens import GOLDENS, Golden, golden_table
from tests.tables import compact, make_table, write

APPENDED = [golden for golden in GOLDENS if not golden.schema["primaryKeys"]]


def two_levels(folder: Path) -> tuple[TableContext, BucketFiles]:
    """Keys 0 to 9 on the top level as 'old'; in level 0 5 to 11 as 'new', of which 6 and 20 are deleted."""
    context = make_table(folder / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"], options={"write-only": "true"})
    write(context, [{"k": k, "v": "old"} for k in range(10)])
    compact(context)
    write(context, [{"k": k, "v": "new", "_op": "-D" if k in (6, 20) else "+I"} for k in (*range(5, 12), 20)])
    return context, bucket_of(context)


def bucket_of(context: TableContext) -> BucketFiles:
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    return bucket


def with_options(context: TableContext, **options: str) -> TableContext:
    named = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    return context.with_options(named)


def with_marks(context: TableContext, bucket: BucketFiles, marks: dict[str, Sequence[int]]) -> BucketFiles:
    """The bucket with an index file that marks these rows of these files deleted."""
    content, ranges = b"\x01", []
    for name, rows in marks.items():
        body = struct.pack(">i", 1581511376) + BitMap(rows).serialize()
        ranges.append(DeletionVectorRange(name, len(content), len(body)))
        content += struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body))
    context.storage.write_new(context.layout.index("index-0"), content)
    index = IndexFileMeta("DELETION_VECTORS", "index-0", len(content), len(ranges), tuple(ranges))
    return replace(bucket, index_files=(index,))


def shown(context: TableContext, bucket: BucketFiles, columns: Sequence[str] = ("k", "v"), **more: Any) -> list[tuple[Any, ...]]:
    batches = list(read_bucket(context, bucket, columns, **more))
    assert all(batch.num_rows and batch.schema.names == list(columns) for batch in batches)
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def old(*keys: int) -> list[tuple[int, str]]:
    return [(k, "old") for k in keys]


def new(*keys: int) -> list[tuple[int, str]]:
    return [(k, "new") for k in keys]


def test_runs_are_merged_and_deleted_keys_are_shown_only_when_asked_for(tmp_path: Path) -> None:
    context, bucket = two_levels(tmp_path)
    assert shown(context, bucket) == old(0, 1, 2, 3, 4) + new(5, 7, 8, 9, 10, 11)
    kinds = dict(shown(context, bucket, ("k", VALUE_KIND), keep_kinds=True))
    assert kinds == dict.fromkeys(range(12), 0) | {6: 3, 20: 3}
    assert dict(shown(context, bucket, (SEQUENCE_NUMBER, "k")))[10] == 5, "numbers go on where the bucket had ended"


@pytest.mark.parametrize("merge_engine", ["deduplicate", "partial-update", "aggregation", "first-row"])
def test_sequence_numbers_are_read_where_the_order_of_the_files_does_not_decide(
    tmp_path: Path, merge_engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"write-only": "true", "merge-engine": merge_engine}
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"], options=options)
    for value in ("old", "new"):
        write(context, [{"k": k, "v": value} for k in range(3)])
    decoded: list[Sequence[str]] = []

    def read(context: TableContext, bucket_id: Any, file: Any, columns: Sequence[str], *more: Any) -> Any:
        decoded.append(columns)
        return read_part(context, bucket_id, file, columns, *more)

    monkeypatch.setattr(merged_rows, "read_part", read)
    bucket = bucket_of(context)
    winner = old if merge_engine == "first-row" else new
    assert shown(context, bucket) == winner(0, 1, 2)
    assert decoded and not any(SEQUENCE_NUMBER in names for names in decoded)
    older, newer = sorted(bucket.files, key=lambda file: file.min_sequence_number)
    for meeting in (older.max_sequence_number, older.min_sequence_number):
        decoded.clear()
        met = replace(bucket, files=(older, replace(newer, min_sequence_number=meeting)))
        assert shown(context, met) == winner(0, 1, 2)
        assert decoded and all(SEQUENCE_NUMBER in names for names in decoded)
    assert shown(context, bucket, ("k", SEQUENCE_NUMBER))[0] == (0, 0 if merge_engine == "first-row" else 3)


def test_system_columns_are_at_their_requested_positions(tmp_path: Path) -> None:
    context, bucket = two_levels(tmp_path)
    (_, top) = sorted(bucket.files, key=lambda file: file.level)
    for files in (bucket.files, (top,)):
        one = replace(bucket, files=files)
        assert shown(context, one, ("v", VALUE_KIND, "k"))[0] == ("old", 0, 0)
        assert shown(context, one, (VALUE_KIND,))[:2] == [(0,), (0,)]
        assert shown(context, one, ("v",))[:2] == [("old",), ("old",)]


@pytest.mark.parametrize("batch_rows", [1, 3, 65536])
def test_marked_rows_and_level_0_are_not_shown_where_vectors_replace_the_merge(
    tmp_path: Path, batch_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PIECES, "batch_rows", batch_rows)
    context, bucket = two_levels(tmp_path)
    context = with_options(context, deletion_vectors__enabled="true")
    assert shown(context, bucket) == old(*range(10))
    top = next(file for file in bucket.files if file.level)
    marked = with_marks(context, bucket, {"data-other-0.parquet": [0], top.file_name: [0, 3, 4, 9]})
    assert shown(context, marked) == old(1, 2, 5, 6, 7, 8)
    assert shown(context, marked, (VALUE_KIND, "k")) == [(0, k) for k in (1, 2, 5, 6, 7, 8)]


def test_marked_rows_are_left_out_before_the_merge_with_level_0(tmp_path: Path) -> None:
    context, bucket = two_levels(tmp_path)
    context = with_options(context, deletion_vectors__enabled="true", deletion_vectors__merge_on_read="true")
    top, level_0 = (next(file for file in bucket.files if bool(file.level) == above) for above in (True, False))
    marked = with_marks(context, bucket, {top.file_name: [1, 5, 6], level_0.file_name: [2]})
    assert shown(context, marked) == [*old(0, 2, 3, 4), (5, "new"), *[(7, "old")], *new(8, 9, 10, 11)]
    plain = with_options(context, deletion_vectors__enabled="false")
    assert shown(plain, marked) == shown(plain, bucket), "vectors count only where the table says so"


def test_a_filter_sees_merged_rows_and_nothing_empty_comes_out(tmp_path: Path) -> None:
    context, bucket = two_levels(tmp_path)

    def is_old(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.filter(pc.equal(batch.column("v"), "old"))

    for enabled, expected in (("false", old(0, 1, 2, 3, 4)), ("true", old(*range(10)))):
        asked = with_options(context, deletion_vectors__enabled=enabled)
        assert shown(asked, bucket, row_filter=is_old) == expected
        assert shown(asked, bucket, row_filter=lambda batch: batch.slice(0, 0)) == []


@pytest.mark.parametrize("golden", APPENDED, ids=str)
def test_appended_rows_come_in_the_order_of_their_numbers_and_times(golden: Golden, tmp_path: Path) -> None:
    context = TableContext.open(str(golden_table(golden.writer, golden.name, tmp_path)))
    names = context.schema.field_names
    for bucket in bucket_files(context, context.snapshots.latest()).values():
        alone = {file.file_name: shown(context, replace(bucket, files=(file,)), names) for file in bucket.files}
        for number, moments in (((5, 3), (1, 2)), ((4, 4), (2, 1)), ((0, 0), (1, None))):
            files = list(bucket.files[:2])
            files = [
                replace(file, min_sequence_number=number[i], creation_time_millis=moments[i]) for i, file in enumerate(files)
            ]
            expected = [row for file in reversed(files) for row in alone[file.file_name]]
            assert shown(context, replace(bucket, files=tuple(files)), names) == expected
        kinds = shown(context, bucket, (VALUE_KIND, names[0]))
        assert len(kinds) == sum(map(len, alone.values())) and {kind for kind, _ in kinds} <= {0}, "all were inserted"
        first, *_ = bucket.files
        marked = with_marks(context, replace(bucket, files=(first,)), {first.file_name: [0]})
        assert shown(context, marked, names) == alone[first.file_name][1:]
        break


def test_between_equal_numbers_the_newer_file_wins(tmp_path: Path) -> None:
    """They come from writers that did not know of each other; the order of the bucket's files is that of their commits."""
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"], options={"write-only": "true"})
    write(context, [{"k": 1, "v": "a"}])
    (a,) = bucket_of(context).files
    other = TableContext.open(str(make_table(tmp_path / "other", {"k": "INT NOT NULL", "v": "STRING"}, ["k"]).layout.root))
    write(other, [{"k": 1, "v": "b"}])
    (b,) = bucket_of(other).files
    bucket = bucket_of(context)
    source, target = (Path(one.data_file_path(*bucket.bucket_id, b)) for one in (other, context))
    target.write_bytes(source.read_bytes())
    assert a.max_sequence_number == b.max_sequence_number
    for files, expected in (((a, b), "b"), ((b, a), "a")):
        assert shown(context, replace(bucket, files=files)) == [(1, expected)]


def test_rows_that_are_too_old_do_not_take_part_in_the_merge(tmp_path: Path) -> None:
    """Once an update has expired, the row that it replaced is visible again if its own time is newer."""
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "w": "INT"}, ["k"], options={"write-only": "true"})
    write(context, [{"k": 1, "w": 100}, {"k": 2, "w": 5}])
    write(context, [{"k": 1, "w": 7}, {"k": 2, "w": 6}])
    bucket = bucket_of(context)
    (section,) = key_sections(bucket.files, context.key_of)
    columns = [SEQUENCE_NUMBER, VALUE_KIND, "k", "w"]
    expiry = RecordExpiry("w", 10, 60)
    merged = list(merge_section(context, bucket, section, columns, expiry=expiry))
    assert pa.Table.from_batches(merged).select(["k", "w"]).to_pylist() == [{"k": 1, "w": 100}]
    unchanged = list(merge_section(context, bucket, section, columns))
    assert pa.Table.from_batches(unchanged)["w"].to_pylist() == [7, 6]


@pytest.mark.parametrize("memory", [1, 30 << 20, None])
def test_a_merge_of_many_runs_gives_the_same_in_little_memory(tmp_path: Path, memory: int | None) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"], options={"write-only": "true"})
    for number in range(12):
        write(context, [{"k": k, "v": str(number)} for k in (number, 50)])
    assert shown(context, bucket_of(context), memory=memory) == [*((n, str(n)) for n in range(12)), (50, "11")]


def test_a_missing_file_of_a_run_is_named(tmp_path: Path) -> None:
    context, bucket = two_levels(tmp_path)
    for file in bucket.files:
        path = Path(context.data_file_path(*bucket.bucket_id, file))
        content = path.read_bytes()
        path.unlink()
        with pytest.raises(DamagedFile, match=f"data file {path} is missing") as refused:
            shown(context, bucket)
        assert refused.value.details["path"] == str(path) and "expired during the read" in (refused.value.hint or "")
        path.write_bytes(content)


def test_no_row_is_left_out_where_it_may_hide_an_older_one(tmp_path: Path) -> None:
    """Parts are read of files whose keys no other file has."""
    context, bucket = two_levels(tmp_path)

    def nothing(file: Any) -> FilePart:
        return FilePart(keeps=lambda *_: False)

    assert shown(context, bucket, part_of=nothing) == shown(context, bucket)
    for file in bucket.files:
        assert shown(context, replace(bucket, files=(file,)), part_of=nothing) == []


def test_newer_rows_win_whatever_the_order_in_which_files_were_listed(tmp_path: Path) -> None:
    """A compaction lists its file after those that were written while it ran."""
    context, bucket = two_levels(tmp_path)
    for files in (bucket.files, bucket.files[::-1]):
        assert shown(context, replace(bucket, files=files)) == old(0, 1, 2, 3, 4) + new(5, 7, 8, 9, 10, 11)
        with_numbers = shown(context, replace(bucket, files=files), ("k", "v", SEQUENCE_NUMBER))
        assert [row[:2] for row in with_numbers] == old(0, 1, 2, 3, 4) + new(5, 7, 8, 9, 10, 11)


@pytest.mark.parametrize(
    ("levels", "expected"), [((5, 4, 0), 6), ((5, 4, 3), 4), ((5, 4), 2), ((5, 0), 3), ((4, 0, 0), 7), ((5, 0, 4), 6)]
)
def test_rows_of_lower_levels_include_those_of_higher_ones(tmp_path: Path, levels: tuple[int, ...], expected: int) -> None:
    """Where compactions look old rows up, a sum of one level already counts what is in the levels above it."""
    options = {
        "write-only": "true",
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "sum",
        "changelog-producer": "lookup",
    }
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "INT"}, ["k"], options=options)
    for value in (1, 2, 4)[: len(levels)]:
        write(context, [{"k": 1, "v": value}])
    bucket = bucket_of(context)
    files = tuple(replace(file, level=level) for file, level in zip(bucket.files, levels, strict=True))
    assert shown(context, replace(bucket, files=files)) == [(1, expected)]


@pytest.mark.parametrize("vectors", ["false", "true"])
@pytest.mark.parametrize(("end", "key"), [("min_key", 1), ("max_key", 8)])
def test_keys_outside_of_what_is_recorded_are_damage_however_a_file_is_read(
    tmp_path: Path, vectors: str, end: str, key: int
) -> None:
    context, bucket = two_levels(tmp_path)
    context = with_options(context, deletion_vectors__enabled=vectors)
    recorded: dict[str, Any] = {end: serialize_row([key], context.key_types)}
    wrong = [replace(file, **recorded) if file.level else file for file in bucket.files]
    for files in (wrong, [file for file in wrong if file.level]):
        with pytest.raises(DamagedFile, match="its keys are"):
            shown(context, replace(bucket, files=tuple(files)))
