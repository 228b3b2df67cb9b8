"""Files as they lie in a bucket: how many rows they say they have, how large their batches are, when their rows expire."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import orc

from paimon_cli.bucket import data_file_reader
from paimon_cli.bucket.column_statistics import ColumnTally
from paimon_cli.bucket.data_file_reader import FilePart, file_format, read_data_file, read_part, stored_row_count
from paimon_cli.bucket.data_file_writer import DataFileWriter, group_bytes
from paimon_cli.bucket.file_encoders import CODECS, codec_of
from paimon_cli.bucket.merged_rows import RecordExpiry, batch_rows, max_merged_runs, without_retractions
from paimon_cli.bucket.spilled_runs import SpillDirectory, merge_in_passes
from paimon_cli.bucket.stamped_files import DataFileNames, delete_stamped_files
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.errors import DamagedFile, NotSupported, UsageError
from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.engines.deduplicate import Deduplicate
from paimon_cli.lsm.sorted_runs import SortedRun
from paimon_cli.metadata.data_file import EMPTY_ROW, BucketId
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, VALUE_KIND, merge_rows
from paimon_cli.metadata.index_files import DeletionVector
from paimon_cli.options.table_options import TableOptions
from paimon_cli.pieces import PIECES
from tests.commit.commit_tables import SteppingClock
from tests.lsm.test_key_intervals import file
from tests.tables import make_table, rows, write


def table_of(folder: Path, count: int = 5, **options: str) -> tuple[TableContext, BucketFiles]:
    """A table with one file of `count` rows, and that file's bucket."""
    texts = {key.replace("_", "."): value for key, value in options.items()}
    context = make_table(folder / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"], options=texts)
    write(context, [{"k": number, "v": f"v{number}"} for number in range(count)])
    snapshot = context.snapshots.latest()
    assert snapshot is not None
    (bucket,) = bucket_files(context, snapshot).values()
    return context, bucket


@pytest.mark.parametrize("form", ["parquet", "orc", "avro"])
def test_files_know_how_many_rows_they_hold(tmp_path: Path, form: str) -> None:
    context, bucket = table_of(tmp_path, file_format=form)
    (stored,) = bucket.files
    assert stored_row_count(context, bucket.bucket_id, stored) == stored.row_count == 5
    wrong = replace(stored, row_count=6)
    with pytest.raises(DamagedFile, match="it holds 5 rows, but its manifest says 6"):
        list(read_data_file(context, bucket.bucket_id, wrong, ["k"], 100))
    path = Path(context.data_file_path(*bucket.bucket_id, stored))
    path.write_bytes(b"no such format at all, though long enough for a footer")
    with pytest.raises(DamagedFile, match="cannot open data file"):
        stored_row_count(context, bucket.bucket_id, stored)
    with pytest.raises(DamagedFile, match="cannot read data file"):
        list(read_data_file(context, bucket.bucket_id, stored, ["k"], 100))
    path.unlink()
    with pytest.raises(DamagedFile, match="the storage has no such file"):
        stored_row_count(context, bucket.bucket_id, stored)
    with pytest.raises(DamagedFile, match="is missing"):
        list(read_data_file(context, bucket.bucket_id, stored, ["k"], 100))
    path.with_suffix(".lance").write_bytes(b"x")
    other = replace(stored, file_name=f"{path.stem}.lance")
    with pytest.raises(NotSupported, match="its format lance"):
        stored_row_count(context, bucket.bucket_id, other)
    with pytest.raises(NotSupported, match="its format lance"):
        list(read_data_file(context, bucket.bucket_id, other, ["k"], 100))


@pytest.mark.parametrize("form", ["parquet", "orc", "avro"])
def test_a_column_that_no_file_has_is_null_in_all_rows(tmp_path: Path, form: str) -> None:
    """Without a column to decode, readers of ORC and Avro return no rows."""
    context = make_table(tmp_path / "t", {"k": "INT", "v": "STRING"}, (), (), -1, {"file.format": form})
    write(context, [{"k": number, "v": "v"} for number in range(5)])
    added = DataField(2, "w", parse_sql_type("INT"))
    context.schemas.commit(replace(context.schema, id=1, fields=(*context.schema.fields, added), highest_field_id=2))
    context = TableContext.open(context.url)
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    found = [batch["w"].to_pylist() for batch in read_data_file(context, bucket.bucket_id, bucket.files[0], ["w"], 3)]
    assert found == [[None] * 3, [None] * 2]


@pytest.mark.parametrize("form", CODECS)
def test_rows_are_counted_and_read_whatever_the_codec(tmp_path: Path, form: str) -> None:
    for codec in CODECS[form]:
        context, bucket = table_of(tmp_path / codec, file_format=form, file_compression=codec)
        (stored,) = bucket.files
        assert stored_row_count(context, bucket.bucket_id, stored) == 5, codec
        assert sum(batch.num_rows for batch in read_data_file(context, bucket.bucket_id, stored, ["v"], 100)) == 5, codec


@pytest.mark.parametrize("form", ["parquet", "orc", "avro"])
@pytest.mark.parametrize(("batch", "sizes"), [(1, [1] * 5), (2, [2, 2, 1]), (5, [5]), (9, [5])])
def test_batches_are_not_longer_than_requested(tmp_path: Path, form: str, batch: int, sizes: list[int]) -> None:
    context, bucket = table_of(tmp_path, file_format=form)
    found = list(read_data_file(context, bucket.bucket_id, bucket.files[0], ["v", VALUE_KIND, "_KEY_k"], batch))
    assert [one.num_rows for one in found] == sizes and found[0].schema.names == ["v", VALUE_KIND, "_KEY_k"]
    whole = pa.Table.from_batches(found).to_pydict()
    assert whole == {"v": [f"v{number}" for number in range(5)], VALUE_KIND: [0] * 5, "_KEY_k": list(range(5))}


@pytest.mark.parametrize(
    ("name", "form"),
    [("data-1.parquet", "parquet"), ("data-1.avro.gz", "avro"), ("data.1.orc.zst", "orc"), ("data.gz", "gz"), ("a.b.lz4", "b")],
)
def test_the_format_is_in_the_name(name: str, form: str) -> None:
    assert file_format(name) == form


def test_timestamps_that_wrap_round_are_refused(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "w": "TIMESTAMP(9)"}, ["k"])
    write(context, [{"k": 1, "w": "2024-01-01 00:00:00.000000001"}])
    snapshot = context.snapshots.latest()
    assert snapshot is not None
    (bucket,) = bucket_files(context, snapshot).values()
    path = context.data_file_path(*bucket.bucket_id, bucket.files[0])
    stored = pq.read_table(path, coerce_int96_timestamp_unit="us")
    far = pa.array([datetime.datetime(3000, 1, 1)], pa.timestamp("us"))
    far_rows = stored.set_column(stored.schema.get_field_index("w"), "w", far)
    pq.write_table(far_rows, path, use_deprecated_int96_timestamps=True)
    with pytest.raises(NotSupported, match="column w holds a timestamp before 1677 or after 2262"):
        list(read_data_file(context, bucket.bucket_id, bucket.files[0], ["w"], 10))
    assert [one.num_rows for one in read_data_file(context, bucket.bucket_id, bucket.files[0], ["k"], 10)] == [1]


def test_blanks_at_the_end_of_orcs_chars_go_at_any_depth(tmp_path: Path) -> None:
    """As Java writes them; those of other texts stay."""
    columns = {
        "k": "INT NOT NULL",
        "a": "CHAR(5)",
        "s": "STRING",
        "b": "CHAR(3)",
        "l": "ARRAY<CHAR(4)>",
        "m": "MAP<CHAR(3), CHAR(4)>",
        "r": "ROW<x CHAR(3), y STRING, z ARRAY<CHAR(3)>>",
    }
    context = make_table(tmp_path / "t", columns, ["k"], options={"file.format": "orc"})

    def rows_of(padded: bool) -> list[dict[str, Any]]:
        a, b, c = ("x    ", "y  ", " z  ") if padded else ("x", "y", " z")
        full = {"k": 1, "a": a, "s": "s ", "b": b, "l": [c, None, ""], "m": {b: c}, "r": {"x": b, "y": " ", "z": [b]}}
        return [{"k": 0, "s": " "}, full, {"k": 2, "l": [], "m": {}}, {**full, "k": 3}]

    write(context, [dict.fromkeys(columns) | row for row in rows_of(True)])
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    expected = [dict.fromkeys(columns) | row for row in rows_of(False)]
    for most in (1, 3, 100):
        batches = list(read_data_file(context, bucket.bucket_id, bucket.files[0], list(columns), most))
        found = [row for batch in batches for row in batch.to_pylist(maps_as_pydicts="strict")]
        assert found == expected


def test_far_times_of_an_orc_file_are_refused_not_taken_for_damage(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "w": "TIMESTAMP(3)"}, ["k"], options={"file.format": "orc"})
    write(context, [{"k": 1, "w": "2024-01-01 00:00:00.001"}])
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    path = context.data_file_path(*bucket.bucket_id, bucket.files[0])
    stored = orc.read_table(path)
    far = pa.array([datetime.datetime(3000, 1, 1)], pa.timestamp("ms"))
    orc.write_table(stored.set_column(stored.schema.get_field_index("w"), "w", far), path)
    with pytest.raises(NotSupported, match=r"holds a timestamp before 1677 or after 2262") as refused:
        list(read_data_file(context, bucket.bucket_id, bucket.files[0], ["w"], 10))
    assert refused.value.details["path"] == path
    assert [one.num_rows for one in read_data_file(context, bucket.bucket_id, bucket.files[0], ["k"], 10)] == [1]


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "lz4", "none"])
def test_parquet_files_are_compressed_as_asked(tmp_path: Path, codec: str) -> None:
    context, bucket = table_of(tmp_path, count=100, file_compression=codec)
    footer = pq.read_metadata(context.data_file_path(*bucket.bucket_id, bucket.files[0]))
    found = {footer.row_group(0).column(number).compression for number in range(footer.num_columns)}
    assert found == {"UNCOMPRESSED" if codec == "none" else codec.upper()}


def run(rows_and_sizes: list[tuple[int, int]]) -> SortedRun:
    return SortedRun(0, tuple(replace(file("f", 0, 0, size=size), row_count=count) for count, size in rows_and_sizes))


@pytest.mark.parametrize(
    ("runs", "memory", "expected"),
    [
        ([], 100_000, 65536),
        ([[(1000, 0)]], 2_000, 2_000),  # no bytes are taken for one a row
        ([[(1000, 1000)]], 40_000, 10_000),  # four bytes in memory for each in the file
        ([[(500, 500), (500, 500)], [(1000, 1000)]], 40_000, 5_000),
        ([[(1000, 1000)]], 400, 512),
        ([[(1000, 1000)]], 1 << 40, 65536),
        ([[(10, 10 * 128)]], 1 << 40, 2048),  # no more than 1 MB a run
        ([[(0, 4096)]], 1 << 30, 512),
    ],
)
def test_batches_of_runs_fit_the_memory(runs: list[list[tuple[int, int]]], memory: int, expected: int) -> None:
    assert batch_rows([run(one) for one in runs], memory) == expected


@pytest.mark.parametrize(("runs", "expected"), [(1, 2048), (2, 1024), (4, 512), (64, 512)])
def test_the_runs_of_a_compaction_share_one_budget_down_to_a_quarter_megabyte_each(runs: int, expected: int) -> None:
    assert batch_rows([run([(10, 10 * 128)])] * runs, 1 << 40, compacts=True) == expected
    assert batch_rows([run([(10, 10 * 128)])] * runs, 1 << 40) == 2048


def test_batches_of_wide_rows_hold_some_values_of_each_column() -> None:
    """A batch of few rows costs as much for each column as one of many."""
    wide = [run([(10, 10 * 1024)])]
    assert batch_rows(wide, 1 << 40, columns=10) == 512
    assert batch_rows(wide, 1 << 40, columns=512) == 4096
    assert batch_rows(wide, 4096 * 1000, columns=512) == 1000, "the memory of the merge is the limit all the same"


@pytest.mark.parametrize(
    ("memory", "options", "expected"),
    [
        (1, {}, 8),
        (27 << 20, {}, 9),
        (26 << 20, {}, 8),
        (PIECES.merge_bytes, {}, 64),
        (PIECES.merge_bytes, {"sort-spill-threshold": "10"}, 10),
        (1, {"sort-spill-threshold": "10"}, 8),
    ],
)
def test_how_many_runs_are_read_at_a_time(tmp_path: Path, memory: int, options: dict[str, str], expected: int) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"], options=options)
    assert max_merged_runs(context, memory) == expected


def test_only_additions_are_shown() -> None:
    batch = pa.record_batch({VALUE_KIND: pa.array([0, 1, 2, 3], pa.int8()), "k": pa.array([1, 2, 3, 4])})
    assert without_retractions(batch)["k"].to_pylist() == [1, 3]
    kept = batch.slice(0, 1)
    assert without_retractions(kept) is kept


@settings(max_examples=30)
@given(st.integers(1, 14), st.integers(2, 5))
def test_no_more_runs_are_open_than_allowed(count: int, most: int) -> None:
    """Each run holds one row of its own key and one of a key that all have."""
    opened: set[int] = set()
    widest = [0]

    def of(number: int) -> Any:
        def read() -> Iterator[pa.RecordBatch]:
            opened.add(number)
            widest[0] = max(widest[0], len(opened))
            for key in (0, number + 1):
                yield pa.record_batch(
                    {
                        SEQUENCE_NUMBER: pa.array([number], pa.int64()),
                        VALUE_KIND: pa.array([0], pa.int8()),
                        "k": pa.array([key], pa.int32()),
                    }
                )
            opened.discard(number)

        return read

    merged = pa.Table.from_batches(list(merge_in_passes([of(n) for n in range(count)], ["k"], Deduplicate(), most)))
    assert merged["k"].to_pylist() == list(range(count + 1))
    assert merged[SEQUENCE_NUMBER].to_pylist() == [count - 1, *range(count)]
    assert widest[0] <= most and not opened


def test_spilled_runs_come_back_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    batch = pa.record_batch({"k": list(range(1000))})
    with SpillDirectory() as spill:
        assert list(tmp_path.iterdir()) == [] and spill.size == 0
        first, second = (spill.write([batch, batch], batch.schema) for _ in range(2))
        (folder,) = tmp_path.iterdir()
        assert folder.name.startswith("paimon-cli-spill-")
        assert {p.name for p in folder.glob("[!.]*")} == {"run-1.arrows", "run-2.arrows"}
        assert spill.size == first.size + second.size == 2 * first.path.stat().st_size
        assert list(first.read()) == [batch, batch]
        spill.remove(first)
        assert spill.size == second.size and not first.path.exists() and second.path.exists()
    assert list(tmp_path.iterdir()) == []
    spill.close()


NOW = 1_700_000_000


@pytest.mark.parametrize(
    ("column", "kept"),
    [
        (pa.array([NOW - 61, NOW - 60, NOW, None], pa.int32()), [False, True, True, True]),
        (pa.array([NOW - 61, NOW - 60, 999_999_999_999], pa.int64()), [False, True, True]),
        (pa.array([(NOW - 60) * 1000 - 1, (NOW - 60) * 1000, 1_000_000_000_000], pa.int64()), [False, True, False]),
        (pa.array([(NOW - 61) * 1000 + 999, (NOW - 60) * 1000, None], pa.timestamp("ms")), [False, True, True]),
        (pa.array([(NOW - 61) * 10**6, (NOW - 60) * 10**6], pa.timestamp("us")), [False, True]),
        (pa.array([(NOW - 61) * 10**9, (NOW - 60) * 10**9], pa.timestamp("ns")), [False, True]),
    ],
)
def test_rows_expire_by_the_second(column: pa.Array, kept: list[bool]) -> None:
    batch = pa.record_batch({"n": list(range(len(kept))), "w": column})
    assert RecordExpiry("w", 60, NOW).kept(batch)["n"].to_pylist() == [number for number, stays in enumerate(kept) if stays]


def test_expiry_by_options(tmp_path: Path) -> None:
    def context(name: str, **options: str) -> TableContext:
        texts = {f"record-level.{key.replace('_', '-')}": text for key, text in options.items()}
        made = make_table(tmp_path / name, {"k": "INT NOT NULL", "w": "INT"}, ["k"], options=texts)
        return replace(made, clock=SteppingClock(NOW * 1000 + 999))

    assert RecordExpiry.of(context("a")) is None
    assert RecordExpiry.of(context("b", expire_time="90 s", time_field="w")) == RecordExpiry("w", 90, NOW)
    with pytest.raises(UsageError, match="needs record-level"):
        RecordExpiry.of(context("c", expire_time="90 s"))


def test_files_of_a_failed_job(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"p": "INT", "k": "INT NOT NULL"}, ["p", "k"], ["p"])
    stamp = "0123456789abcdef"
    names = DataFileNames(context, stamp)
    mine = [names.next("parquet") for _ in range(3)]
    assert all(name.startswith("data-01234567-89ab-cdef-") and len(name) == len(mine[0]) for name in mine)
    assert [name.rpartition("-")[2] for name in mine] == ["0.parquet", "1.parquet", "2.parquet"]
    assert DataFileNames(context).next("orc").endswith("-0.orc")
    other = DataFileNames(context, "1123456789abcdef").next("parquet")
    places = ["p=1/bucket-0", "p=2/bucket-7", "p=2/other", "q=1/bucket-0", "bucket-0"]
    for place in places:
        for name in (*mine, f"{mine[0]}.index", other):
            context.storage.write_new(f"{tmp_path}/t/{place}/{name}", b"x")
    assert delete_stamped_files(context, stamp, keep={mine[0]}) == 4
    left = {place: sorted(entry.name for entry in context.storage.list_directory(f"{tmp_path}/t/{place}")) for place in places}
    assert left["p=1/bucket-0"] == left["p=2/bucket-7"] == sorted([mine[0], f"{mine[0]}.index", other])
    assert all(len(left[place]) == 5 for place in places[2:])


@pytest.mark.parametrize(("text", "size"), [(None, 32 << 20), ("1 mb", 1 << 20), ("64 mb", 32 << 20)])
def test_row_groups(text: str | None, size: int) -> None:
    assert group_bytes(TableOptions({} if text is None else {"file.block-size": text})) == size
    assert PIECES.row_group_bytes == 32 << 20


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 9])
def test_files_are_rolled_by_rows(tmp_path: Path, limit: int) -> None:
    context, bucket = table_of(tmp_path, count=7, **{"target-file-row-num": str(limit)})
    counts = [stored.row_count for stored in bucket.files]
    assert sorted(counts, reverse=True) == [limit] * (7 // limit) + ([7 % limit] if 7 % limit else [])
    assert [row["k"] for row in rows(context)] == list(range(7))
    assert PIECES.batch_rows == 65536


@pytest.mark.parametrize(
    ("column", "values", "expected"),
    [
        ("INT", [[3, None], [1, 7], [None]], (1, 7, 2)),
        ("STRING", [["b"], ["a", "c"]], ("a", "c", 0)),
        ("INT", [[1, 9], [3, 5]], (1, 9, 0)),  # neither the first nor the last batch decides
        ("INT", [[3, 5], [1, 9], [2, 4]], (1, 9, 0)),
        ("DOUBLE", [[0.0], [-0.0]], (-0.0, 0.0, 0)),
        ("DOUBLE", [[1.0], [float("nan"), None], [2.0]], (None, None, 1)),
        ("BYTES", [[b"a"], [None]], (None, None, 1)),
        ("DATE", [[datetime.date(1970, 1, 3)], [datetime.date(1969, 12, 31)]], (-1, 2, 0)),
        ("INT", [[None], []], (None, None, 1)),
    ],
)
def test_tallies(column: str, values: list[list[Any]], expected: tuple[Any, Any, int]) -> None:
    t = parse_sql_type(column)
    kinds = {"INT": pa.int32(), "STRING": pa.string(), "DOUBLE": pa.float64(), "BYTES": pa.binary(), "DATE": pa.date32()}
    tally = ColumnTally(t)
    for batch in values:
        tally.add(pa.chunked_array([pa.array(batch, kinds[column])]))
    found = tally.statistics()
    assert str((found.minimum, found.maximum, found.null_count)) == str(expected)


def test_codecs_by_all_their_names() -> None:
    plain = {"none", "null", "uncompressed"}
    assert {codec_of("parquet", name) for name in plain} == {"none"}
    assert {codec_of("orc", name) for name in plain} == {"uncompressed"}
    assert {codec_of("orc", name) for name in ("zlib", "gzip", "deflate")} == {"zlib"}
    assert [codec_of("parquet", name) for name in ("gzip", "brotli")] == ["gzip", "brotli"]


@pytest.mark.parametrize(
    ("distinct", "text", "options", "expected"),
    [
        (10, "v{}", {}, True),
        (20_000, "v{}", {}, True),
        (20_000, "v{}", {"version": "1.0"}, True),
        (20_000, "v{}", {"data_page_version": "2.0"}, True),
        (60_000, "{0}v{0}", {}, False),  # a large dictionary
        (10_000, "https://example.org/a/long/path/that/all/of/them/share/" * 3 + "{}", {}, False),  # more than the writer allows
        (20_000, "v{}", {"dictionary_pagesize_limit": 5000}, False),
        (20_000, "v{}", {"use_dictionary": False}, False),
        (20_000, "v{}", {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"}, False),
    ],
)
def test_strings_are_decoded_as_positions_if_all_are_in_a_small_dictionary(
    distinct: int, text: str, options: dict[str, Any], expected: bool
) -> None:
    numbers = np.random.default_rng(1).integers(0, distinct, 100_000)
    texts = pa.array([text.format(number) for number in range(distinct)]).take(pa.array(numbers))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"t": texts}), sink, compression="zstd", **options)
    chunk = pq.read_metadata(pa.BufferReader(sink.getvalue())).row_group(0).column(0)
    assert data_file_reader._is_encoded(chunk) == expected


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("limit", [100, 1 << 20])
def test_texts_in_dictionaries_are_read_as_they_are(tmp_path: Path, nulls: bool, limit: int) -> None:
    """Several row groups with a dictionary each, and one in which it was given up half-way."""
    rows = 30_000
    context, bucket = table_of(tmp_path, rows)
    (stored,) = bucket.files
    path = Path(context.data_file_path(*bucket.bucket_id, stored))
    numbers = np.random.default_rng(2).integers(0, 200, rows)
    numbers[rows // 2 :] += 100
    texts = pa.array(numbers, mask=numbers == 7 if nulls else None).cast(pa.string())
    table = pq.read_table(path)
    table = table.set_column(table.schema.get_field_index("v"), pa.field("v", pa.string()), texts)
    pq.write_table(table, path, row_group_size=9000, dictionary_pagesize_limit=limit)
    deleted = np.flatnonzero(np.random.default_rng(3).random(rows) < 0.05)
    part = FilePart(deleted=DeletionVector.marking(deleted, bitmap64=False), is_alone=True)
    for most in (100, 8192, 65536):
        found = [batch for _, batch in read_part(context, bucket.bucket_id, stored, ["v", "k"], most, part)]
        assert {batch.schema.field("v").type for batch in found} == {pa.string()}
        live = np.delete(np.arange(rows), deleted)
        assert pa.concat_arrays([batch.column("v") for batch in found]).equals(texts.take(pa.array(live)))
        assert pa.concat_arrays([batch.column("k") for batch in found]).to_pylist() == live.tolist()


@pytest.mark.parametrize("columns", [["id", VALUE_KIND], [VALUE_KIND], [VALUE_KIND, SEQUENCE_NUMBER, "v"]])
def test_row_kinds_are_decoded_where_rows_of_a_group_differ(columns: list[str], tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL", "v": "STRING"}, ["id"], options={"file.block-size": "200 b"})
    kinds = [*[0] * 20, *[3] * 20, *[0, 3] * 10, *[2] * 20]
    ids = {"id": pa.array(range(80), pa.int32()), "v": pa.array([f"text {i}" for i in range(80)])}
    batch = merge_rows(context.schema, ids, 0, 0).set_column(1, VALUE_KIND, pa.array(kinds, pa.int8()))
    writer = DataFileWriter(context, BucketId(EMPTY_ROW, 0), level=1, source=1, names=DataFileNames(context))
    for start in range(0, 80, 20):
        writer.write(batch.slice(start, 20))
    (written,) = writer.close()
    found = pa.Table.from_batches(read_data_file(context, BucketId(EMPTY_ROW, 0), written, columns, 7))
    assert found.to_pylist() == pa.Table.from_batches([batch]).select(columns).to_pylist()
    assert pq.read_metadata(context.data_file_path(EMPTY_ROW, 0, written)).num_row_groups >= 4
