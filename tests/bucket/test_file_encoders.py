"""Formats and codecs by option and level, their statistics, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from paimon_cli.bucket.data_file_writer import DataFileWriter, changelog_writer, check_writable
from paimon_cli.bucket.parquet_chunks import read_footer
from paimon_cli.bucket.parquet_pages import PagedColumns
from paimon_cli.bucket.stamped_files import DataFileNames
from paimon_cli.datatypes.binary_row import deserialize_row
from paimon_cli.errors import DamagedFile, NotSupported, PaimonError, UsageError
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import EMPTY_ROW, BucketId, DataFileMeta
from paimon_cli.metadata.data_file_schema import FileLayout, merge_rows
from paimon_cli.pieces import PIECES
from tests.tables import compact, make_table, rows, write

COLUMNS = {
    "id": "INT NOT NULL",
    "s": "STRING",
    "f": "DOUBLE",
    "n": "DOUBLE",
    "t": "TIMESTAMP(6)",
    "b": "BYTES",
    "a": "ARRAY<INT>",
}
ROWS: list[dict[str, Any]] = [
    {"id": 1, "s": "a" * 20, "f": 0.0, "n": 1.0, "t": "9999-12-31T23:59:59.000001", "b": "00", "a": [1]},
    {"id": 2, "s": None, "f": -0.0, "n": "NaN", "t": None, "b": None, "a": None},
    {"id": 3, "s": "b", "f": 0.0, "n": None, "t": "1969-12-31T23:59:59.999", "b": "ff", "a": []},
]


def statistics(context: TableContext, file: DataFileMeta) -> dict[str, tuple[Any, Any, int | None]]:
    types = [field.type.with_nullable(True) for field in context.schema.fields]
    low, high = (deserialize_row(row, types) for row in (file.value_stats.min_values, file.value_stats.max_values))
    assert file.value_stats.null_counts is not None
    return dict(zip(context.schema.field_names, zip(low, high, file.value_stats.null_counts, strict=True), strict=True))


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("mode", ["truncate(16)", "full", "counts", "none"])
def test_statistics_are_those_of_every_format(file_format: str, mode: str, tmp_path: Path) -> None:
    options = {"file.format": file_format, "metadata.stats-mode": mode, "fields.id.stats-mode": "full"}
    context = make_table(tmp_path / "t", COLUMNS, ["id"], options=options)
    far = ROWS if file_format != "orc" else [{**row, "t": row["t"] and row["t"].replace("9999-", "2200-")} for row in ROWS]
    write(context, far)
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    found = statistics(context, bucket.files[0])
    assert found["id"] == (1, 3, 0)
    if mode == "none":
        assert {bounds for name, bounds in found.items() if name != "id"} == {(None, None, None)}
        return
    assert (found["n"], found["b"]) == ((None, None, 1), (None, None, 1))
    assert found["a"][:2] == (None, None) and found["a"][2] == (None if file_format == "parquet" else 1)
    if mode == "counts":
        assert found["s"] == found["t"] == (None, None, 1)
        return
    assert found["s"] == ("a" * (20 if mode == "full" else 16), "b", 1)
    assert [math.copysign(1, bound) for bound in found["f"][:2]] == [-1, 1]
    assert (found["t"][0].millis, found["t"][0].nano_of_milli, found["t"][2]) == (-1, 0, 1)


def test_format_and_codec_of_each_level(tmp_path: Path) -> None:
    options = {
        "file.format": "orc",
        "file.format.per.level": "0:avro,5:parquet",
        "file.compression": "zstd",
        "file.compression.per.level": "0:snappy,5:none",
        "num-levels": "6",
    }
    context = make_table(tmp_path / "t", COLUMNS, ["id"], options=options)
    write(context, ROWS[:2])
    (first,) = (tmp_path / "t").glob("bucket-0/*.avro")
    with first.open("rb") as stream:
        header = fastavro.reader(stream).metadata
    assert header["avro.codec"] == "snappy"
    write(context, ROWS[2:])
    compact(context, strategy="full")
    (last,) = (tmp_path / "t").glob("bucket-0/*.parquet")
    assert pq.ParquetFile(last).metadata.row_group(0).column(0).compression == "UNCOMPRESSED"
    assert rows(context) == sorted(ROWS, key=lambda row: row["id"])


def test_orc_codec(tmp_path: Path) -> None:
    options = {"file.format": "orc", "file.compression": "lz4"}
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL"}, ["id"], options=options)
    write(context, [{"id": 1}])
    (file,) = (tmp_path / "t").glob("bucket-0/*.orc")
    assert orc.ORCFile(file).compression == "LZ4"


@pytest.mark.parametrize("early", [False, True])
def test_orc_files_store_repeated_strings_in_a_dictionary(early: bool, tmp_path: Path) -> None:
    """A dictionary of up to half as many texts as rows, by whichever library the rows are written."""
    sizes = {}
    for repeats in (1, 2, 3):
        columns = {"id": "INT NOT NULL", "s": "STRING", "t": "TIMESTAMP(6)"}
        options = {"file.format": "orc", "file.compression": "none"}
        context = make_table(tmp_path / str(repeats), columns, ["id"], options=options)
        time = "1965-01-01T00:00:00.000001" if early else "2026-11-22T00:00:00"
        write(context, [{"id": n, "s": f"{n // repeats:050d}", "t": time} for n in range(3000)])
        (file,) = (tmp_path / str(repeats)).glob("bucket-0/*.orc")
        sizes[repeats] = file.stat().st_size
    assert sizes[1] > 3000 * 50 and sizes[2] < 1.2 * 1500 * 50 and sizes[3] < 1.3 * 1000 * 50


def test_dictionaries_can_be_switched_off(tmp_path: Path) -> None:
    for text, encoded in (("true", True), ("false", False)):
        path = tmp_path / text
        columns = {"id": "INT NOT NULL", "s": "STRING"}
        context = make_table(path, columns, ["id"], options={"parquet.enable.dictionary": text})
        write(context, [{"id": i, "s": "x"} for i in range(9)])
        (file,) = path.glob("bucket-0/*.parquet")
        column = pq.ParquetFile(file).metadata.row_group(0).column(4)
        assert (column.path_in_schema, column.has_dictionary_page) == ("s", encoded)


@pytest.mark.parametrize(("version", "timestamp", "delta"), [("v1", 3, False), ("v2", 3, True), ("PARQUET_2_0", 9, True)])
def test_the_second_version_of_the_parquet_writer_uses_delta_encoding(
    version: str, timestamp: int, delta: bool, tmp_path: Path
) -> None:
    types = {
        "d": "DATE",
        "n": "DECIMAL(9,2)",
        "w": "DECIMAL(30,2)",
        "t": f"TIMESTAMP({timestamp})",
        "y": "TINYINT",
        "f": "DOUBLE",
    }
    options = {"parquet.writer.version": version}
    context = make_table(tmp_path / "t", {"id": "BIGINT NOT NULL", **types, "s": "STRING"}, ["id"], options=options)
    values = {"d": "2026-11-21", "n": 1.25, "w": 7, "t": "2026-11-21T10:00:00", "y": -3, "f": 0.5, "s": "x"}
    written = [{"id": 5 - i} | {name: (value if i % 2 else None) for name, value in values.items()} for i in range(5)]
    write(context, written)
    (file,) = (tmp_path / "t").glob("bucket-0/*.parquet")
    group = pq.ParquetFile(file).metadata.row_group(0)
    encodings = {group.column(i).path_in_schema: group.column(i).encodings for i in range(group.num_columns)}
    differences = {name for name, used in encodings.items() if "DELTA_BINARY_PACKED" in used}
    whole = {"_KEY_id", "_SEQUENCE_NUMBER", "_VALUE_KIND", "id", "d", "n", "y"} | ({"t"} if timestamp < 7 else set())
    assert differences == (whole if delta else set())
    plain = make_table(tmp_path / "plain", {"id": "BIGINT NOT NULL", **types, "s": "STRING"}, ["id"])
    write(plain, written)
    assert rows(context) == rows(plain)


@pytest.mark.parametrize(
    ("options", "rows_per_page"),
    [
        ({}, 20_000),
        ({"deletion-vectors.enabled": "true"}, 4096),
        ({"changelog-producer": "lookup"}, 4096),
        ({"merge-engine": "first-row"}, 4096),
        ({"force-lookup": "true", "parquet.page.row.count.limit": "500"}, 500),
        ({"parquet.page.row.count.limit": "30000"}, 25_000),
    ],
)
def test_pages_are_small_if_keys_are_looked_up(options: dict[str, str], rows_per_page: int, tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL", "v": "INT"}, ["id"], options=options)
    batch = merge_rows(context.schema, {name: pa.array(range(25_000), pa.int32()) for name in ("id", "v")}, 0, 0)
    writer = DataFileWriter(context, BucketId(EMPTY_ROW, 0), level=1, source=1, names=DataFileNames(context))
    writer.write(batch)
    (file,) = writer.close()
    with open(context.data_file_path(EMPTY_ROW, 0, file), "rb") as source:
        pages = PagedColumns.of(source, read_footer(source), FileLayout.of(context.schema).physical.names)
    assert pages is not None
    assert (pages.blocks.ends - pages.blocks.begins).max() == rows_per_page and pages.blocks.ends[-1] == 25_000


@pytest.mark.parametrize(("options", "rows_per_page"), [({}, 20_000), ({"parquet.page.row.count.limit": "500"}, 500)])
def test_pages_of_changelog_files_are_as_large_as_usual(options: dict[str, str], rows_per_page: int, tmp_path: Path) -> None:
    options = {"changelog-producer": "lookup", **options}
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL", "v": "INT"}, ["id"], options=options)
    batch = merge_rows(context.schema, {name: pa.array(range(25_000), pa.int32()) for name in ("id", "v")}, 0, 0)
    writer = changelog_writer(context, BucketId(EMPTY_ROW, 0), 0, "")
    writer.write(batch)
    (file,) = writer.close()
    with open(context.data_file_path(EMPTY_ROW, 0, file), "rb") as source:
        pages = PagedColumns.of(source, read_footer(source), FileLayout.of(context.schema).physical.names)
    assert pages is not None
    assert (pages.blocks.ends - pages.blocks.begins).max() == rows_per_page and pages.blocks.ends[-1] == 25_000


AVRO, ORC = {"file.format": "avro"}, {"file.format": "orc"}
TWO_KINDS_OF_TIMES = {"v": "TIMESTAMP(9)", "w": "TIMESTAMP(6)"}
REFUSED: list[tuple[dict[str, str], dict[str, str], type[PaimonError], str]] = [
    ({"file.format": "csv"}, {}, NotSupported, "parquet, orc, avro"),
    ({"file.format.per.level": "3:row"}, {}, NotSupported, "file.format=row"),
    ({"parquet.writer.version": "v3"}, {}, UsageError, "v1, v2"),
    ({"file.compression": "lzo"}, {}, UsageError, "lzo is not available for parquet"),
    ({"file.format": "avro", "file.compression.per.level": "2:lz4"}, {}, UsageError, "lz4 is not available for avro"),
    ({"file.format": "avro"}, {"v": "TIMESTAMP(9)"}, NotSupported, "Avro has no such type"),
    (AVRO, {"v": "TIME(6)"}, NotSupported, r"TIME\(6\) in an Avro file"),
    (AVRO, {"v": "ARRAY<TIME(4)>"}, NotSupported, r"TIME\(4\) in an Avro file"),
    (AVRO, {"v": "TIMESTAMP_LTZ(7)"}, NotSupported, "Avro has no such type"),
    ({"file.format": "avro"}, {"a b": "INT"}, NotSupported, "column 'a b' in an Avro file"),
    ({}, {"v": "TIMESTAMP(9)", "w": "ARRAY<TIMESTAMP(6)>"}, NotSupported, "INT96"),
    ({"file.format": "csv", "file.format.per.level": "3:row,1:blob"}, {}, NotSupported, "file.format=blob"),  # by name
    ({"file.format.per.level": "0:orc,1:CSV"}, {}, NotSupported, "file.format=csv"),
    # levels without an entry of their own, also those above all that have one
    (
        AVRO | {"file.compression": "lz4", "file.compression.per.level": "0:zstd,1:zstd"},
        {},
        UsageError,
        "lz4 is not available for avro",
    ),
    (AVRO | {"file.compression.per.level": "0:zstd,1:lz4,2:zstd"}, {}, UsageError, "lz4 is not available for avro"),
    (AVRO | {"file.format.per.level": "0:parquet,1:orc"}, {"v": "TIMESTAMP(9)"}, NotSupported, "Avro has no such type"),
    ({"file.format.per.level": "1:avro"}, {"v": "TIMESTAMP(9)"}, NotSupported, "Avro has no such type"),
    ({"file.format.per.level": "0:orc,1:orc"}, TWO_KINDS_OF_TIMES, NotSupported, "INT96"),
    (ORC | {"file.format.per.level": "1:parquet"}, TWO_KINDS_OF_TIMES, NotSupported, "INT96"),
    ({}, {"v": "TIMESTAMP(7)", "w": "TIMESTAMP_LTZ(6)"}, NotSupported, r"column 'v' of type TIMESTAMP\(7\) beside 'w'"),
    ({}, {"v": "INT", "w": "ROW<a INT, b MAP<TIMESTAMP(3), TIMESTAMP(9)>>"}, NotSupported, "column 'w' .* beside 'w'"),
    ({"file-index.bloom-filter.columns": "nope"}, {}, UsageError, "nope"),
    ({"changelog-producer": "input", "changelog-file.format": "csv"}, {}, NotSupported, "file.format=csv"),
    ({"changelog-producer": "lookup", "changelog-file.format": "avro"}, {"v": "TIME(6)"}, NotSupported, r"TIME\(6\) in an Avro"),
    (
        {"changelog-producer": "full-compaction", "changelog-file.compression": "lzo"},
        {},
        UsageError,
        "lzo is not available for parquet",
    ),
    ({}, {"v": "BLOB"}, NotSupported, "column 'v'.* newest versions of Paimon can read BLOB"),
    (ORC, {"v": "VARIANT"}, NotSupported, "column 'v' to orc files.* only in Parquet"),
    ({"changelog-producer": "lookup", "changelog-file.format": "avro"}, {"v": "GEOMETRY"}, NotSupported, "'v' to avro files"),
    ({}, {"v": "ARRAY<ROW<>>"}, NotSupported, "column 'v'.* Parquet has no ROW without fields"),
    ({}, {"v": "ARRAY<BLOB>"}, NotSupported, "column 'v'.* newest versions of Paimon can read BLOB"),
    ({}, {"v": "ROW<a INT, b MAP<INT, BLOB>>"}, NotSupported, "column 'v'.* newest versions of Paimon can read BLOB"),
]
ALLOWED: list[tuple[dict[str, str], dict[str, str]]] = [
    ({}, {}),
    ({}, {"v": "ROW<a INT, b MAP<INT, VARIANT>>", "w": "ARRAY<VARIANT>", "x": "GEOMETRY"}),
    ({}, {"v": "TIMESTAMP(7)", "w": "ROW<a TIMESTAMP(9), b INT>"}),
    ({}, {"v": "TIMESTAMP(6)", "w": "MAP<TIMESTAMP(0), ARRAY<TIMESTAMP_LTZ(3)>>"}),
    (ORC | {"parquet.writer.version": "v3"}, TWO_KINDS_OF_TIMES),  # no file will be Parquet
    ({"file.format": "PARQUET", "file.compression": "brotli"}, {"a b": "INT"}),
    ({"changelog-file.format": "csv"}, {}),  # there are no changelog files
    (AVRO | {"file.compression": "zstd"}, {"v": "TIMESTAMP(6)"}),
    ({**ORC, "file.compression": "gzip", "file.format.per.level": "0:avro", "file.compression.per.level": "0:snappy"}, {}),
]


@pytest.mark.parametrize(("options", "columns"), ALLOWED)
def test_allowed_before_any_work(options: dict[str, str], columns: dict[str, str], tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL", **columns}, ["id"], options=options)
    check_writable(context.schema, context.options)


@pytest.mark.parametrize(("options", "columns", "error", "said"), REFUSED)
def test_refused_before_any_work(
    options: dict[str, str], columns: dict[str, str], error: type[PaimonError], said: str, tmp_path: Path
) -> None:
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL", **columns}, ["id"], options=options)
    with pytest.raises(error, match=said):
        check_writable(context.schema, context.options)


def test_a_far_timestamp_is_not_written_to_orc(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["id"], options={"file.format": "orc"})
    with pytest.raises(NotSupported, match="column t holds a timestamp before 1677 or after 2262"):
        write(context, ROWS)
    assert not list((tmp_path / "t").glob("bucket-0/*"))


@pytest.mark.parametrize("cut", [3, 40, 200, -1])
def test_a_damaged_avro_file_is_named(cut: int, tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["id"], options={"file.format": "avro"})
    write(context, ROWS)
    (path,) = (tmp_path / "t").glob("bucket-0/*.avro")
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DamagedFile, match=path.name):
        rows(replace(context))


def test_parquet_files_can_be_read_by_every_reader(tmp_path: Path) -> None:
    columns = {"id": "INT NOT NULL", "d": "DECIMAL(9, 2)", "w": "DECIMAL(20, 2)", "t": "TIMESTAMP(3)", "l": "TIMESTAMP_LTZ(6)"}
    context = make_table(tmp_path / "t", columns, ["id"])
    write(context, [{"id": 1, "d": 1.25, "w": 2, "t": "2026-11-21T10:00:00", "l": "2026-11-21T10:00:00Z"}])
    (file,) = (tmp_path / "t").glob("bucket-0/*.parquet")
    found = pq.ParquetFile(file)
    leaves = {leaf.path: leaf for leaf in map(found.schema.column, range(len(found.schema.names)))}
    assert found.metadata.format_version == "2.6" and "ARROW:schema" not in str(found.metadata.metadata)
    assert (leaves["d"].physical_type, leaves["w"].physical_type) == ("INT32", "FIXED_LEN_BYTE_ARRAY")
    for name, adjusted in (("t", "false"), ("l", "true")):
        assert f"isAdjustedToUTC={adjusted}" in str(leaves[name].logical_type)


def test_a_flipped_bit_in_a_page_without_compression_is_found_by_its_checksum(tmp_path: Path) -> None:
    options = {"file.compression": "none"}
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL", "s": "STRING"}, ["id"], options=options)
    write(context, [{"id": 1, "s": "x" * 300}])
    (file,) = (tmp_path / "t").glob("bucket-0/*.parquet")
    content = file.read_bytes()
    length_and_value = (300).to_bytes(4, "little") + b"x" * 300  # statistics hold the value, too, but not its length like this
    assert content.count(length_and_value) == 1
    file.write_bytes(content.replace(length_and_value, length_and_value[:-1] + b"y"))
    with pytest.raises(DamagedFile, match=file.name):
        rows(TableContext.open(context.url))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["a", "b", "a", "b", "c"], False),  # 3 of 5
        (["a", "b", "a", "b"], False),  # half of them is not less than half
        (["a", "b", "a", "b", "a"], True),
        ([None] * 5, True),
        (
            [str(n) for n in range(PIECES.dictionary_sample_rows)] + ["x"] * 3 * PIECES.dictionary_sample_rows,
            False,
        ),  # the first rows tell
        (["x"] * PIECES.dictionary_sample_rows + [str(n) for n in range(3 * PIECES.dictionary_sample_rows)], True),
        ([str(n % 5000) for n in range(PIECES.dictionary_sample_rows)], True),  # thousands of texts repeat, too
    ],
)
@pytest.mark.parametrize("column", ["STRING", "BYTES"])
@pytest.mark.in_part(3)
def test_texts_that_repeat_get_a_dictionary(values: list[str | None], expected: bool, column: str, tmp_path: Path) -> None:
    columns = {"id": "INT NOT NULL", "s": column, "n": "INT"}
    context = make_table(tmp_path / "t", columns, ["id"])
    texts = [value if value is None or column == "STRING" else value.encode().hex() for value in values]
    write(context, [{"id": n, "s": text, "n": 1} for n, text in enumerate(texts)])
    (file,) = (tmp_path / "t").glob("bucket-0/*.parquet")
    group = pq.ParquetFile(file).metadata.row_group(0)
    found = {group.column(i).path_in_schema: group.column(i).has_dictionary_page for i in range(group.num_columns)}
    assert found == dict.fromkeys(["_KEY_id", "_SEQUENCE_NUMBER", "_VALUE_KIND", "id", "n"], False) | {"s": expected}


@pytest.mark.parametrize(("text", "encoded"), [("1", True), ("0", False), ("TRUE", True), ("False", False)])
def test_dictionaries_are_switched_as_parquet_mr_reads_it(text: str, encoded: bool, tmp_path: Path) -> None:
    options = {"parquet.enable.dictionary": text}
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL", "s": "STRING"}, ["id"], options=options)
    write(context, [{"id": n, "s": "x"} for n in range(9)])
    (file,) = (tmp_path / "t").glob("bucket-0/*.parquet")
    assert pq.ParquetFile(file).metadata.row_group(0).column(4).has_dictionary_page == encoded


def test_a_better_zstd_level_makes_smaller_files(tmp_path: Path) -> None:
    text = [{"id": n, "s": " ".join(str(n * factor % 997) for factor in range(1, 40))} for n in range(3000)]
    for file_format in ("parquet", "avro"):
        sizes = []
        for level in ("1", "19"):
            options = {"file.format": file_format, "file.compression.zstd-level": level}
            folder = tmp_path / f"{file_format}-{level}"
            write(make_table(folder, {"id": "INT NOT NULL", "s": "STRING"}, ["id"], options=options), text)
            sizes.append(sum(file.stat().st_size for file in folder.glob("bucket-0/*")))
        assert sizes[1] < 0.95 * sizes[0], (file_format, sizes)


def test_file_block_size_bounds_row_groups_and_stripes(tmp_path: Path) -> None:
    many = [{"id": n, "v": f"{n:032d}"} for n in range(20_000)]
    for file_format, groups in (("parquet", lambda path: pq.ParquetFile(path).num_row_groups), ("orc", _stripes)):
        counts = []
        for size in ("1 gb", "64 kb"):
            options = {"file.format": file_format, "file.block-size": size, "file.compression": "none"}
            folder = tmp_path / f"{file_format}-{size.split()[0]}"
            context = make_table(folder, {"id": "INT NOT NULL", "v": "STRING"}, ["id"], options=options)
            write(context, many)
            (file,) = folder.glob("bucket-0/*")
            counts.append(groups(file))
            assert len(rows(context)) == len(many)
        assert counts[0] == 1 and counts[1] > 4, (file_format, counts)


def _stripes(path: Path) -> int:
    return orc.ORCFile(path).nstripes
