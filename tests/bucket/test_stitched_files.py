"""Row groups copied from file to file: readers find every value, page, page index and bloom filter where the new footer says."""

from __future__ import annotations

import io
import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_cli.bucket.decoding import DECODE_ERRORS
from paimon_cli.bucket.parquet_chunks import footer_bytes, read_footer
from paimon_cli.bucket.parquet_pages import PagedColumns, decoded_together
from paimon_cli.bucket.stitched_files import StitchedFile, StoredGroups, own_frame
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.compact_thrift import Struct, decode, encode
from paimon_cli.metadata.data_file_schema import FileLayout
from paimon_cli.metadata.encoded_footer import FooterFrame
from paimon_cli.metadata.parquet_footer import PARQUET_MAGIC
from paimon_cli.pieces import PIECES
from tests.tables import make_table

COLUMNS = {
    "k": "INT",
    "t": "STRING",
    "f": "DOUBLE",
    "a": "ARRAY<INT>",
    "r": "ROW<x INT, y ARRAY<STRING>>",
    "m": "MAP<INT, STRING>",
}
INDEXED = {"write_page_index": True, "max_rows_per_page": 7, "bloom_filter_options": {"t": {"ndv": 100}}}


def table(context: TableContext) -> FileLayout:
    return FileLayout.of(context.schema)


@pytest.fixture
def context(tmp_path: Path) -> TableContext:
    return make_table(tmp_path / "t", COLUMNS, [], bucket=-1)


def rows(layout: FileLayout, first: int, count: int = 50) -> pa.Table:
    numbers = range(first, first + count)
    columns: dict[str, list[Any]] = {
        "k": [None if n % 5 == 0 else n for n in numbers],
        "t": [f"text {n % 3}" for n in numbers],
        "f": [n / 7 for n in numbers],
        "a": [None if n % 4 == 0 else list(range(n % 3)) for n in numbers],
        "r": [{"x": n, "y": [str(n), None]} for n in numbers],
        "m": [[(n, "v")] for n in numbers],
    }
    return pa.table(columns, schema=layout.physical)


def plain(given: pa.Table, **options: Any) -> io.BytesIO:
    sink = io.BytesIO()
    pq.write_table(given, sink, **{"store_schema": False, "write_page_checksum": True, "version": "2.6", **options})
    sink.seek(0)
    return sink


def stitched(context: TableContext, sources: list[io.BytesIO], frame: FooterFrame | None = None) -> io.BytesIO:
    sink = io.BytesIO()
    file = StitchedFile(sink, frame or StoredGroups(sources[0]).frame, table(context), context.options, 0)
    for source in sources:
        stored = StoredGroups(source)
        for group in stored.groups:
            file.copy(stored, group, ())
    file.close()
    sink.seek(0)
    return sink


def read(source: io.BytesIO) -> pa.Table:
    source.seek(0)
    return pq.ParquetFile(source, page_checksum_verification=True).read()


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "brotli", "lz4", "zstd"])
@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("page_version", ["1.0", "2.0"])
def test_every_codec_page_and_nesting_is_read_as_before(
    codec: str, indexed: bool, page_version: str, context: TableContext
) -> None:
    parts = [rows(table(context), first) for first in (0, 1000, 2000)]
    options = {"compression": codec, "data_page_version": page_version, "row_group_size": 20, **(INDEXED if indexed else {})}
    made = stitched(context, [plain(part, **options) for part in parts])
    assert read(made).equals(pa.concat_tables(parts))
    assert pq.ParquetFile(made).num_row_groups == 9


def test_pages_are_found_by_the_moved_index(context: TableContext) -> None:
    parts = [rows(table(context), first) for first in (0, 1000)]
    made = stitched(context, [plain(part, compression="zstd", **INDEXED) for part in parts])
    columns = PagedColumns.of(made, read_footer(made), ["k", "t"])
    assert columns is not None and len(columns.blocks) == 16
    whole = pa.concat_tables(parts)
    for block in range(16):
        begin, end = int(columns.blocks.begins[block]), int(columns.blocks.ends[block])
        assert decoded_together([columns.read(made, np.array([block]))]).equals(
            whole.select(["k", "t"]).slice(begin, end - begin)
        )
    bounds = columns.bounds(made, 1)
    assert bounds is not None
    blocks = [decoded_together([columns.read(made, np.array([block]))]).column("t").to_pylist() for block in range(16)]
    assert [found.to_pylist() for found in bounds] == [[min(block) for block in blocks], [max(block) for block in blocks]]


def test_bloom_filters_are_copied_and_indexes_are_together_near_the_footer(context: TableContext) -> None:
    sources = [plain(rows(table(context), first), compression="zstd", **INDEXED) for first in (0, 1000)]
    made = stitched(context, sources)
    places = []
    for source, group in zip(sources, read_footer(made).groups, strict=True):
        (theirs,) = read_footer(source).groups
        for old, new in zip(chunks_of(theirs), chunks_of(group), strict=True):
            if 14 in old.required(3):
                assert content(source, old.required(3), 14) == content(made, new.required(3), 14)
                places.append(new.required(3).required(14))
            assert content(source, old, 6) == content(made, new, 6)
            places += [new.required(4), new.required(6)]
    data_end = max(chunk.required(3).required(9) for group in read_footer(made).groups for chunk in chunks_of(group))
    assert len(set(places)) == len(places) and min(places) > data_end


def chunks_of(group: Struct) -> list[Struct]:
    """The column chunks of a row group of a `Footer`."""
    return [decode(chunk) for chunk in group.elements(1)]


def content(source: io.BytesIO, owner: Struct, field: int) -> bytes:
    offset, size = owner.required(field), owner.required(field + 1)
    return source.getvalue()[offset : offset + size]


def test_fields_that_are_not_known_stay(context: TableContext) -> None:
    source = plain(rows(table(context), 0), compression="zstd")
    fields = decode(footer_bytes(source))
    (group,) = fields.elements(4)
    for chunk in group.elements(1):
        chunk[300] = (8, b"of a later version")
        chunk.required(3)[40] = (12, Struct({1: (6, 1 << 60), 2: (3, 7), 3: (7, bytes(8)), 4: (1, False), 5: (9, (1, [1, 2]))}))
    group[7] = (4, 0)
    changed = with_footer(source, encode(fields))
    made = stitched(context, [changed, changed])
    for number, copied in enumerate(read_footer(made).groups):
        assert copied.required(7) == number
        for chunk in chunks_of(copied):
            assert chunk.required(300) == b"of a later version" and chunk.required(3).required(40).required(1) == 1 << 60
    assert read(made).num_rows == 100


def with_footer(source: io.BytesIO, footer: bytes) -> io.BytesIO:
    body = source.getvalue()[: -8 - len(footer_bytes(source))]
    return io.BytesIO(body + footer + len(footer).to_bytes(4, "little") + PARQUET_MAGIC)


@pytest.mark.parametrize(
    ("field", "value"),
    [(1, (8, b"elsewhere.parquet")), (8, (12, Struct())), (9, (8, b"encrypted"))],
    ids=["another file", "encrypted", "encrypted metadata"],
)
def test_chunks_that_are_not_in_the_file_are_refused(field: int, value: Any, context: TableContext) -> None:
    source = plain(rows(table(context), 0))
    fields = decode(footer_bytes(source))
    fields.elements(4)[0].elements(1)[1][field] = value
    with pytest.raises(ValueError, match="encrypted, or in another file"):
        StoredGroups(with_footer(source, encode(fields)))


@pytest.mark.parametrize(("field", "value"), [(9, 0), (9, 1 << 40), (7, 1 << 40), (7, -1), (11, -5)])
def test_chunks_outside_of_the_file_are_refused(field: int, value: int, context: TableContext) -> None:
    source = plain(rows(table(context), 0))
    fields = decode(footer_bytes(source))
    fields.elements(4)[0].elements(1)[1].required(3)[field] = (6, value)
    with pytest.raises(ValueError, match="a column chunk lies outside the file"):
        StoredGroups(with_footer(source, encode(fields)))


def test_a_bloom_filter_of_unknown_length_is_refused(context: TableContext) -> None:
    source = plain(rows(table(context), 0), **INDEXED)
    fields = decode(footer_bytes(source))
    del fields.elements(4)[0].elements(1)[1].required(3)[15]
    with pytest.raises(LookupError):
        StoredGroups(with_footer(source, encode(fields)))


def test_other_schemas_and_writers_have_other_frames(context: TableContext) -> None:
    given = rows(table(context), 0)
    frames = [StoredGroups(source).frame for source in (plain(given), plain(given, store_schema=True), plain(given.drop(["k"])))]
    assert len(set(frames)) == 3 and frames[0] == own_frame(table(context), context.options, 0)
    assert frames[0].columns == list(COLUMNS)
    with pytest.raises(ValueError, match="another schema or writer"):
        stitched(context, [plain(given), plain(given, store_schema=True)])


def test_encrypted_files_have_no_columns() -> None:
    footer = footer_bytes(plain(pa.table({"a": [1]})))
    fields = decode(footer)
    fields[8] = (12, Struct())
    assert FooterFrame.split(encode(fields))[0].columns is None


def test_rows_are_encoded_between_copied_groups(context: TableContext) -> None:
    layout = table(context)
    parts = [rows(layout, first) for first in (0, 1000, 2000)]
    sink = io.BytesIO()
    file = StitchedFile(sink, own_frame(layout, context.options, 0), layout, context.options, 0)
    for number, part in enumerate(parts):
        if number == 1:
            file.write(part)
        else:
            stored = StoredGroups(plain(part, compression="zstd"))
            file.copy(stored, stored.groups[0], ["f"] if number else [])
    file.close()
    assert read(sink).equals(pa.concat_tables(parts))
    found = dict(zip(COLUMNS, file.statistics(context.schema.fields), strict=True))
    assert (found["k"].minimum, found["k"].maximum, found["k"].null_count) == (1, 2049, 30)
    assert (found["f"].minimum, found["f"].null_count) == (None, 0) and found["t"].maximum == "text 2"


def test_big_files_are_copied_piece_by_piece(context: TableContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "stitched_whole_bytes", 0)
    monkeypatch.setattr(PIECES, "stitched_piece_bytes", 11)
    parts = [rows(table(context), first) for first in (0, 1000)]
    assert read(stitched(context, [plain(part, **INDEXED) for part in parts])).equals(pa.concat_tables(parts))


def test_gaps_between_chunks_are_not_copied(context: TableContext) -> None:
    source = plain(rows(table(context), 0))
    body, footer = source.getvalue(), footer_bytes(source)
    fields = decode(footer)
    (group,) = fields.elements(4)
    begins = [min(chunk.required(3).value(11) or 1 << 60, chunk.required(3).required(9)) for chunk in group.elements(1)]
    out = bytearray(PARQUET_MAGIC)
    for chunk, begin in zip(group.elements(1), begins, strict=True):
        metadata = chunk.required(3)
        out += b"gap"
        distance = len(out) - begin
        out += body[begin : begin + metadata.required(7)]
        for field in (9, 11):
            if field in metadata:
                metadata[field] = (6, metadata.required(field) + distance)
    encoded = encode(fields)
    spread = io.BytesIO(bytes(out) + encoded + len(encoded).to_bytes(4, "little") + PARQUET_MAGIC)
    assert read(spread).equals(read(source))
    made = stitched(context, [spread, spread])
    assert read(made).equals(pa.concat_tables([read(source)] * 2)) and b"gap" not in made.getvalue()


def test_damaged_files_are_refused_or_copied_as_they_are(context: TableContext) -> None:
    random = Random(3)
    whole = plain(rows(table(context), 0), compression="zstd", **INDEXED).getvalue()
    outcomes = {"refused": 0, "copied": 0}
    for _ in range(1000):
        data = bytearray(whole[: random.randrange(len(whole))] if random.random() < 0.2 else whole)
        for _ in range(random.choice([1, 1, 3])):
            place = random.randrange(max(0, len(data) - 2500), len(data) + 1)
            data[place : place + 1] = bytes([random.randrange(256)])
        try:
            stitched(context, [io.BytesIO(bytes(data))])
            outcomes["copied"] += 1
        except DECODE_ERRORS:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 20, json.dumps(outcomes)
