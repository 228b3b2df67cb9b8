"""Data files while they are written: where they end, their metadata, and what is left of abandoned ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_cli.bucket.data_file_reader import read_data_file, stored_row_count
from paimon_cli.bucket.data_file_writer import DataFileWriter
from paimon_cli.bucket.stamped_files import DataFileNames
from paimon_cli.datatypes.binary_row import deserialize_row, serialize_row
from paimon_cli.errors import StorageUnavailable, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import EMPTY_ROW, BucketId, DataFileMeta
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, VALUE_KIND, merge_schema
from paimon_cli.storage.injected import local_wall_clock
from paimon_cli.storage.local_storage import LocalStorage
from tests.commit.commit_tables import SteppingClock
from tests.tables import make_table

COLUMNS = {"k": "STRING NOT NULL", "v": "STRING", "n": "INT"}
FORMATS = ("parquet", "orc", "avro")
INDEXED = {"file-index.bloom-filter.columns": "v", "file-index.in-manifest-threshold": "1 b"}


def table(folder: Path, **options: str) -> TableContext:
    named = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    context = make_table(folder / "t", COLUMNS, ["k"], options=named)
    return replace(context, clock=SteppingClock())


def batch(context: TableContext, keys: Sequence[str], first: int = 0, kinds: Sequence[int] = (), size: int = 1) -> pa.RecordBatch:
    columns = [range(first, first + len(keys)), kinds or [0] * len(keys), keys, [key * size for key in keys], [1] * len(keys)]
    schema = merge_schema(context.schema)
    return pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def writer_of(context: TableContext, level: int = 0, source: int = 0) -> DataFileWriter:
    return DataFileWriter(context, BucketId(EMPTY_ROW, 0), level=level, source=source, names=DataFileNames(context))


def on_disk(context: TableContext) -> set[str]:
    return {path.name for path in Path(context.layout.root).glob("bucket-0/*")}


def keys_of(context: TableContext, file: DataFileMeta) -> list[str]:
    batches = list(read_data_file(context, BucketId(EMPTY_ROW, 0), file, ["k"], 100_000))
    return [key for one in batches for key in one.column("k").to_pylist()]


def words(count: int, first: int = 0) -> list[str]:
    return [f"{number:05d}" for number in range(first, first + count)]


@pytest.mark.parametrize("file_format", FORMATS)
def test_the_metadata_of_a_written_file(tmp_path: Path, file_format: str) -> None:
    context = table(tmp_path, file__format=file_format)
    long = "z" * 200
    writer = writer_of(context, level=3, source=1)
    writer.write(batch(context, ["b", "c", "d"], first=7, kinds=[0, 1, 2]))
    writer.write(batch(context, ["e", long], first=3, kinds=[3, 0]))
    (file,) = writer.close()
    types = context.schema.types_of(["k"])
    assert on_disk(context) == {file.file_name} and file.file_name.endswith(f"-0.{file_format}")
    assert (file.min_key, file.max_key) == tuple(serialize_row([key], types) for key in ("b", long))
    assert (file.row_count, file.delete_row_count, file.min_sequence_number, file.max_sequence_number) == (5, 2, 3, 9)
    assert (file.level, file.file_source, file.schema_id, file.extra_files) == (3, 1, 0, ())
    assert file.creation_time_millis == local_wall_clock(context.clock.now_millis())
    assert file.file_size == Path(context.data_file_path(EMPTY_ROW, 0, file)).stat().st_size
    low, high = (deserialize_row(row, types) for row in (file.key_stats.min_values, file.key_stats.max_values))
    assert (tuple(low), tuple(high), file.key_stats.null_counts) == (("b",), ("z" * 127 + "{",), (0,))
    assert stored_row_count(context, BucketId(EMPTY_ROW, 0), file) == 5
    rows = pa.Table.from_batches(read_data_file(context, BucketId(EMPTY_ROW, 0), file, [VALUE_KIND, SEQUENCE_NUMBER, "k"], 100))
    assert rows[VALUE_KIND].to_pylist() == [0, 1, 2, 3, 0] and rows[SEQUENCE_NUMBER].to_pylist() == [7, 8, 9, 3, 4]
    assert rows["k"].to_pylist() == ["b", "c", "d", "e", long]


def test_nothing_written_makes_no_file(tmp_path: Path) -> None:
    context = table(tmp_path)
    writer = writer_of(context)
    writer.write(batch(context, []))
    assert writer.close() == () and on_disk(context) == set()


@pytest.mark.parametrize("file_format", FORMATS)
def test_files_end_when_they_have_reached_their_size(tmp_path: Path, file_format: str) -> None:
    """A batch far larger than a file is cut; each file has the key range and numbers of its own rows, in order."""
    context = table(tmp_path, file__format=file_format, target_file_size="20 kb", file__compression="none")
    writer = writer_of(context)
    writer.write(batch(context, words(3000), size=10))
    files = writer.close()
    assert len(files) > 5 and on_disk(context) == {file.file_name for file in files}
    assert all(20 << 10 <= file.file_size < 60 << 10 for file in files[:-1])
    assert [key for file in files for key in keys_of(context, file)] == words(3000)
    first = 0
    for number, file in enumerate(files):
        assert file.file_name.rpartition("-")[2] == f"{number}.{file_format}"
        assert (file.min_sequence_number, file.max_sequence_number) == (first, first + file.row_count - 1)
        first += file.row_count


def test_small_batches_fill_one_file_after_the_other(tmp_path: Path) -> None:
    context = table(tmp_path, target_file_row_num="10", target_file_size="1 gb")
    writer = writer_of(context)
    for first in range(0, 35, 7):
        writer.write(batch(context, words(7, first), first=first))
    assert [file.row_count for file in writer.close()] == [10, 10, 10, 5]
    exact = writer_of(context)
    exact.write(batch(context, words(20)))
    assert [file.row_count for file in exact.close()] == [10, 10], "no empty file at the end"


@pytest.mark.parametrize("is_finished", [False, True])
def test_what_is_given_up_leaves_no_file(tmp_path: Path, is_finished: bool) -> None:
    context = table(tmp_path, target_file_row_num="10", **{key.replace("-", "_"): text for key, text in INDEXED.items()})
    writer = writer_of(context)
    writer.write(batch(context, words(25)))
    assert len(on_disk(context)) == 5, "two files with their indexes, and a third in the making"
    if is_finished:
        assert [file.extra_files for file in writer.close()] == [(f"{name}.index",) for name in sorted(names(context))]
    writer.abort()
    assert on_disk(context) == set()
    writer.abort()


def names(context: TableContext) -> set[str]:
    return {name for name in on_disk(context) if not name.endswith(".index")}


@pytest.mark.parametrize(("block", "groups"), [("1 gb", 1), ("6200 b", 3), ("6201 b", 2)])
def test_small_batches_share_a_row_group_until_it_is_full(tmp_path: Path, block: str, groups: int) -> None:
    context = table(tmp_path, file__block_size=block)
    writer = writer_of(context)
    for first in range(0, 600, 100):
        one = batch(context, words(100, first))
        assert one.nbytes == 3100
        writer.write(one)
    (file,) = writer.close()
    found = pq.ParquetFile(context.data_file_path(EMPTY_ROW, 0, file)).metadata
    assert found.num_row_groups == groups and {found.row_group(i).num_rows for i in range(groups)} == {600 // groups}


class Refusing(LocalStorage):
    """Refuses to make or to delete some files, or to write more than some bytes to each."""

    def __init__(self, made: int = 99, kept: str = "-", max_bytes: int = 1 << 40) -> None:
        super().__init__()
        self.made, self.kept, self.max_bytes = made, kept, max_bytes

    def open_output(self, path: str) -> BinaryIO:
        if self.made == 0:
            raise StorageUnavailable("no more files", "on purpose")
        self.made -= 1
        stream = super().open_output(path)
        write, most = stream.write, self.max_bytes

        def limited(data: bytes) -> int:
            if stream.tell() + len(data) > most:
                raise StorageUnavailable("the store is full", "on purpose")
            return write(data)

        stream.write = limited  # type: ignore[method-assign, assignment]
        return stream

    def delete(self, path: str) -> None:
        if path.endswith(self.kept):
            raise StorageUnavailable("no deletes", "on purpose")
        super().delete(path)


def test_a_file_that_cannot_be_deleted_does_not_stop_the_others(tmp_path: Path) -> None:
    context = replace(table(tmp_path, target_file_row_num="10"), storage=Refusing(kept="-0.parquet"))
    writer = writer_of(context)
    writer.write(batch(context, words(30)))
    (stays,) = [name for name in on_disk(context) if name.endswith("-0.parquet")]
    writer.abort()
    assert on_disk(context) == {stays}


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("storage", [Refusing(made=1), Refusing(max_bytes=3000)], ids=["no second file", "full"])
def test_a_store_that_fails_says_so_and_keeps_nothing(tmp_path: Path, file_format: str, storage: Refusing) -> None:
    context = table(tmp_path, file__format=file_format, target_file_row_num="1000", file__compression="none")
    context = replace(context, storage=Refusing(storage.made, max_bytes=storage.max_bytes))
    writer = writer_of(context)
    with pytest.raises(StorageUnavailable, match=r"no more files|the store is full"):
        for first in range(0, 5000, 500):
            writer.write(batch(context, words(500, first)))
        writer.close()
    writer.abort()
    assert on_disk(context) == set()


def test_an_encoder_that_does_not_begin_leaves_its_file_to_the_abort(tmp_path: Path) -> None:
    context = table(tmp_path, file__compression="lzo")
    writer = writer_of(context)
    with pytest.raises(UsageError, match="lzo is not available"):
        writer.write(batch(context, ["a"]))
    writer.abort()
    assert on_disk(context) == set()


@pytest.mark.parametrize("mode", ["none", "counts", "truncate(1)", "full"])
def test_statistics_of_values_follow_the_mode_and_those_of_keys_do_not(tmp_path: Path, mode: str) -> None:
    context = table(tmp_path, metadata__stats_mode=mode)
    writer = writer_of(context)
    writer.write(batch(context, ["ab", "cd"]))
    (file,) = writer.close()
    types = [field.type.with_nullable(True) for field in context.schema.fields]
    low, high = (deserialize_row(row, types) for row in (file.value_stats.min_values, file.value_stats.max_values))
    bounds = {"none": (None, None), "counts": (None, None), "truncate(1)": ("a", "d"), "full": ("ab", "cd")}[mode]
    numbers = (None, None) if mode in ("none", "counts") else (1, 1)
    assert list(zip(low, high, strict=True)) == [bounds, bounds, numbers]
    assert file.value_stats.null_counts == ((None,) * 3 if mode == "none" else (0,) * 3)
    keys = [deserialize_row(row, types[:1]) for row in (file.key_stats.min_values, file.key_stats.max_values)]
    assert [tuple(key) for key in keys] == [("ab",), ("cd",)]
