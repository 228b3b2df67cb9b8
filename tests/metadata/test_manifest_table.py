"""Manifests that are decoded as columns equal those that are decoded entry by entry."""

from __future__ import annotations

import io
import random
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from paimon_cli.errors import DamagedFile, PaimonError
from paimon_cli.metadata.avro_columns import NULL_NUMBER, PADDING, NotColumnar, decode_columns
from paimon_cli.metadata.avro_writer import SYNC_SIZE, ContainerWriter, encode_container, encode_value, zstd_module
from paimon_cli.metadata.byte_ranges import ByteRanges
from paimon_cli.metadata.data_file import DataFileMeta, ManifestEntry, SimpleStats
from paimon_cli.metadata.manifest_table import ManifestTable, decode_manifests
from paimon_cli.metadata.manifests import ENTRY, _entry_record, decode_manifest
from paimon_cli.pieces import PIECES
from tests.goldens import GOLDENS, Golden, golden_table

LONGS = st.one_of(st.integers(-(2**54), 2**54 - 1), st.integers(-70, 70))
INTS = st.one_of(st.integers(-(2**31), 2**31 - 1), st.integers(0, 9))
COUNTS = st.one_of(st.integers(0, 2**54 - 1), st.integers(0, 70))
ROWS = 2**54
BYTES = st.binary(max_size=40)
NAMES = st.text(alphabet="abcé-.0", min_size=3, max_size=90).filter(lambda name: name not in (".", ".."))
NULLS = st.one_of(st.none(), st.lists(st.one_of(st.none(), COUNTS), max_size=4).map(tuple))
STATS = st.builds(SimpleStats, BYTES, BYTES, NULLS)
NAME_LISTS = st.one_of(st.none(), st.lists(NAMES, max_size=3).map(tuple))
REST = (
    st.lists(NAMES, max_size=2).map(tuple), st.one_of(st.none(), LONGS), st.one_of(st.none(), COUNTS),
    st.one_of(st.none(), BYTES), st.one_of(st.none(), st.integers(0, 1)),
    NAME_LISTS, st.one_of(st.none(), NAMES), st.one_of(st.none(), COUNTS), NAME_LISTS,
)  # fmt: skip
FILES = st.builds(
    DataFileMeta, NAMES, COUNTS, st.just(ROWS), BYTES, BYTES, STATS, STATS, st.integers(-1, 0), COUNTS, COUNTS,
    st.integers(0, 999), *REST,
)  # fmt: skip
BUCKETS = st.one_of(
    st.just((-2, -2)),
    st.integers(0, 2**31 - 1).map(lambda bucket: (bucket, -1)),
    st.tuples(st.integers(0, 2**31 - 2), st.integers(0, 9)).map(lambda two: (two[0], min(two[0] + 1 + two[1], 2**31 - 1))),
)
ENTRIES = st.builds(
    lambda kind, row, b, file: ManifestEntry(kind, row, b[0], b[1], file), st.integers(0, 1), BYTES, BUCKETS, FILES
)
LIES = st.builds(
    ManifestEntry, st.integers(-1, 2), st.just(bytes(12)), st.integers(-4, 3), st.integers(-4, 3),
    st.builds(
        DataFileMeta, st.just("data-1"), *[st.integers(-1, 4)] * 2, *[st.just(b"")] * 2, *[st.just(SimpleStats())] * 2,
        *[st.integers(-3, 3)] * 2, st.integers(-1, 2), st.one_of(st.integers(-1, 2), st.integers(998, 1001)),
    ),
)  # fmt: skip
"""Small numbers around those that are possible, so that an entry is often wrong in one of them only."""


@pytest.fixture(autouse=True)
def _side_by_side_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "min_column_blocks", 0)


def manifest(entries: list[ManifestEntry], per_block: int) -> bytes:
    sink = io.BytesIO()
    writer = ContainerWriter(sink, ENTRY, block_records=per_block)
    writer.append([_entry_record(entry) for entry in entries])
    writer.finish()
    return sink.getvalue()


@settings(max_examples=400)
@given(LIES)
def test_both_decoders_refuse_the_same_numbers(entry: ManifestEntry) -> None:
    content, refused = manifest([replace(entry, kind=0)] * 2 + [entry], 1), [False, False]
    for place in range(2):
        try:
            if place:
                decode_manifests([("m", content)])
            else:
                decode_manifest(content, "m")
        except DamagedFile as error:
            assert "impossible" in error.why or "contradicts" in error.why
            refused[place] = True
    file, possible = entry.file, [(-2, -2), *((b, t) for b in range(4) for t in range(-1, 4) if t < 0 or b < t)]
    ordered = file.min_sequence_number <= file.max_sequence_number or file.row_count == 0
    assert (
        refused
        == [
            entry.kind not in (0, 1)
            or (entry.bucket, entry.total_buckets) not in possible
            or min(file.file_size, file.row_count, file.schema_id) < 0
            or not 0 <= file.level < 1000
            or file.min_sequence_number < -1
            or not ordered
        ]
        * 2
    )


def assert_same(found: list[ManifestTable], expected: list[ManifestEntry]) -> None:
    plain = ManifestTable.of(expected)
    entries = [columns.entry(row) for columns in found for row in range(len(columns))]
    assert entries == expected == [entry for columns in found for entry in columns.entries()]
    for name in ("kinds", "buckets", "total_buckets", "levels", "sizes", "row_counts", "min_sequences", "max_sequences"):
        assert np.concatenate([getattr(c, name) for c in found] or [[]]).tolist() == getattr(plain, name).tolist(), name
    times = [None if t == NULL_NUMBER else t for c in found for t in c.creation_times.tolist()]
    assert times == [entry.file.creation_time_millis for entry in expected]
    assert [flag for c in found for flag in c.plain.tolist()] == plain.plain.tolist()
    for name in ("partitions", "names", "min_keys", "max_keys"):
        ranges = [getattr(c, name) for c in found]
        assert [r[row] for r in ranges for row in range(len(r))] == [
            r[row] for r in [getattr(plain, name)] for row in range(len(r))
        ]


@settings(max_examples=60)
@given(st.lists(st.tuples(st.lists(ENTRIES, max_size=6), st.integers(1, 3)), max_size=3))
def test_columns_are_those_of_the_entries(manifests: list[tuple[list[ManifestEntry], int]]) -> None:
    files = [(f"manifest-{number}", manifest(entries, size)) for number, (entries, size) in enumerate(manifests)]
    expected = list(chain.from_iterable(entries for entries, _ in manifests))
    assert_same(list(decode_manifests(files)), expected)
    for columns in decode_manifests(files):
        backwards = columns.take(np.arange(len(columns))[::-1])
        assert [backwards.entry(row) for row in range(len(columns))] == [columns.entry(row) for row in range(len(columns))][::-1]


def test_each_entry_says_itself_whether_it_is_plain() -> None:
    file = DataFileMeta("data-1", 1, 1, b"", b"", SimpleStats(), SimpleStats(), 0, 0, 0, 0)
    rare: tuple[dict[str, Any], ...] = (
        {},
        {"extra_files": ("x",)},
        {},
        {"embedded_file_index": b"i"},
        {},
        {"external_path": "s3://b/data-1"},
        {},
    )
    entries = [ManifestEntry(0, bytes(12), 0, 1, replace(file, **change)) for change in rare]
    (found,) = decode_manifests([("m", manifest(entries, 2))])
    assert found.plain.tolist() == [True, False, True, False, True, False, True]


@pytest.mark.in_part(5)
@pytest.mark.parametrize("golden", GOLDENS, ids=str)
def test_manifests_of_other_writers(golden: Golden, tmp_path: Path) -> None:
    table = golden_table(golden.writer, golden.name, tmp_path)
    paths = sorted(
        path for path in (table / "manifest").iterdir() if path.name.startswith("manifest-") and "list" not in path.name
    )
    files = [(str(path), path.read_bytes()) for path in paths]
    try:
        expected = [entry for path, data in files for entry in decode_manifest(data, path)]
    except PaimonError as refused:
        with pytest.raises(type(refused)):
            list(decode_manifests(files))
        return
    assert_same(list(decode_manifests(files)), expected)


def test_long_numbers_fall_back() -> None:
    entry = _entry(sequence=2**62)
    [columns] = decode_manifests([("m", manifest([entry], 1))])
    assert columns.entry(0) == entry and columns.max_sequences.tolist() == [2**62]


@pytest.mark.parametrize("size", [300, 3000, 30_000])
def test_few_records_are_much_longer_than_the_others(size: int) -> None:
    entries = [_entry(sequence=number) for number in range(60)]
    for place in (7, 31, 32, 59):
        entries[place] = replace(entries[place], file=replace(entries[place].file, embedded_file_index=bytes([place]) * size))
    assert_same(list(decode_manifests([("m", manifest(entries, 4))])), entries)


def test_arrays_of_many_lengths_in_many_pieces() -> None:
    """Avro allows an array in pieces, each with its count; negative counts, which sizes follow, are left to the plain reader."""
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": {"type": "array", "items": "string"}}]}
    pieces = [[], [1], [2], [1, 2], [2, 1, 1], [3]]
    records = [b"".join(encode_value("long", n) + encode_value("string", "x" * 70) * n for n in ns) + b"\0" for ns in pieces]
    data = np.frombuffer(b"".join(records) + bytes(PADDING), np.uint8)
    sizes = np.array([len(record) for record in records])
    found = decode_columns(data, schema, np.ones(len(records), np.int64), sizes, ["a"])
    assert found["a.end"].tolist() == np.cumsum(sizes).tolist()
    with_size = encode_value("long", -1) + encode_value("long", 71) + encode_value("string", "x" * 70) + b"\0"
    for count, block in ((1, with_size), (2, records[0] + with_size), (1, records[1][:-1]), (1, records[1] + b"\0")):
        with pytest.raises(NotColumnar):
            data = np.frombuffer(block + bytes(PADDING), np.uint8)
            decode_columns(data, schema, np.array([count]), np.array([len(block)]), ["a"])


def test_damaged_blocks_are_refused_as_the_plain_reader_refuses_them() -> None:
    """Never a hang or another error; what is accepted is what the plain reader gives."""
    source, entries = random.Random(5), [_entry(sequence=number * 999) for number in range(12)]
    records = [encode_value(ENTRY.declared, _entry_record(entry)) for entry in entries]
    refused = 0
    for _ in range(200):
        block = bytearray(b"".join(records))
        for _ in range(source.randrange(1, 4)):
            block[source.randrange(len(block))] = source.choice([0, 1, 0x7F, 0x80, 0xFF, source.randrange(256)])
        content = _framed(bytes(block), len(entries))
        try:
            expected = decode_manifest(content, "m")
        except PaimonError as error:
            refused += 1
            with pytest.raises(type(error)):
                for columns in decode_manifests([("m", content)]):
                    [columns.entry(row) for row in range(len(columns))]
            continue
        assert_same(list(decode_manifests([("m", content)])), expected)
    assert 20 < refused < 190


def test_a_record_that_holds_itself() -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "next", "type": ["null", "r"]}]}
    with pytest.raises(NotColumnar):
        decode_columns(np.zeros(4 + PADDING, np.uint8), schema, np.array([1]), np.array([4]), ())


def test_bytes_that_are_not_a_manifest() -> None:
    with pytest.raises(DamagedFile, match="some/path"):
        list(decode_manifests([("some/path", b"Obj\x01nonsense")]))


@given(st.lists(BYTES, max_size=20))
@example([b"", b"\x01"])
def test_equal_bytes_have_equal_hashes(values: list[bytes]) -> None:
    hashes = ByteRanges.of(values).hashes().tolist()
    assert [int(ByteRanges.of([value]).hashes()[0]) for value in values] == hashes, "whatever lies beside them"
    assert all((a == b) == (x == y) for a, x in zip(values, hashes, strict=True) for b, y in zip(values, hashes, strict=True))


def _entry(sequence: int) -> ManifestEntry:
    stats = SimpleStats(bytes(20), bytes(20), (0, None, sequence))
    file = DataFileMeta(
        f"data-{sequence}.parquet", 5000, max(70, sequence), b"low", b"high", stats, stats, 0, sequence, 0, 3, (), 17 * 10**11
    )
    return ManifestEntry(0, bytes(12), 1, 2, file)


def _framed(block: bytes, count: int) -> bytes:
    """A container with this block."""
    header = encode_container(ENTRY, [])
    packed = zstd_module().compress(block, 1)
    return header + encode_value("long", count) + encode_value("long", len(packed)) + packed + header[-SYNC_SIZE:]


@pytest.mark.parametrize("rows", [4095, 4096, 4097, 8193])
def test_runs_end_where_pieces_do(rows: int) -> None:
    for run in (1, 3, 4096, rows):
        values = [b"%d" % (row // run % 7) * 5 for row in range(rows)]
        codes, distinct = ByteRanges.of(values).coded()
        assert [distinct[code] for code in codes.tolist()] == values


@given(st.lists(BYTES, max_size=20))
def test_coded_values_are_the_values(values: list[bytes]) -> None:
    codes, distinct = ByteRanges.of(values).coded()
    assert [distinct[code] for code in codes.tolist()] == values and len(set(distinct)) == len(distinct)


def test_blocks_without_a_partition_are_left_out() -> None:
    entries = [replace(_entry(sequence=number), partition=bytes([number // 4 + 65]) * 20) for number in range(40)]
    files = [("a", manifest(entries[:24], 3)), ("b", manifest(entries[24:], 3))]
    for wanted in ([entries[9].partition], [entries[0].partition, entries[39].partition], [b"none of them"], []):
        found = [c.entry(row) for c in decode_manifests(files, wanted) for row in range(len(c))]
        assert [e for e in found if e.partition in wanted] == [e for e in entries if e.partition in wanted]
        assert len(found) <= 12 * len(wanted)
