"""Row groups of footers are read by a regular expression or, if encoded unusually, field by field: with the same result."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_cli.bucket.parquet_chunks import footer_bytes
from paimon_cli.metadata import encoded_footer
from paimon_cli.metadata.compact_thrift import BINARY, I64, STRUCT, Struct, decode, encode
from paimon_cli.metadata.encoded_footer import BLOOM, COLUMN_INDEX, OFFSET_INDEX, FooterFrame, StoredGroup
from tests.goldens import golden_table
from tests.nightly import at_night

Split = tuple[FooterFrame, int, list[StoredGroup]]
ROWS = pa.table(
    {
        "i": pa.array([1, None, -(1 << 31)], pa.int32()),
        "l": pa.array([1, 1 << 62, 0]),
        "f": pa.array([1.5, float("nan"), -0.0]),
        "none": pa.array([None, None, None], pa.string()),
        "s": ["", "x" * 127, "y" * 20],
        "d": pa.array([0, 1, 2]).cast(pa.decimal128(38, 2)),
        "b": [True, False, None],
        "z": [b"\0\x15\x16", b"\x80\xff", b""],
        "row": [{"x": 1, "y": [1, 2]}, {"x": 2, "y": []}, None],
    }
)
WAYS: list[dict[str, Any]] = [
    {},
    {"compression": "none", "use_dictionary": False, "version": "1.0"},
    {"compression": "zstd", "write_page_index": True, "max_rows_per_page": 1, "data_page_version": "2.0"},
    {"compression": "snappy", "write_page_index": True, "bloom_filter_options": {"s": {"ndv": 10}}},
    {"compression": "gzip", "write_statistics": False},
    {"compression": "brotli", "row_group_size": 1, "use_byte_stream_split": ["f"], "use_dictionary": ["s"]},
]


def footer(rows: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink, **options)
    return footer_bytes(sink)


def field_by_field(data: bytes, monkeypatch: pytest.MonkeyPatch) -> Split:
    with monkeypatch.context() as patch:
        patch.setattr(encoded_footer, "_usual_group", lambda footer, begin: None)
        return FooterFrame.split(data)


def outcome(split: Callable[[], Split]) -> Split | type[Exception]:
    try:
        return split()
    except (ValueError, LookupError):
        return ValueError


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_every_spelling_is_read_as_field_by_field(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    data = footer(ROWS, **options)
    frame, rows, groups = FooterFrame.split(data)
    assert (frame, rows, groups) == field_by_field(data, monkeypatch)
    assert frame.around(rows, [group.entry_with([]) for group in groups]) == data
    assert FooterFrame.split(data, frame) == FooterFrame.split(data, FooterFrame(b"other", b"")) == (frame, rows, groups)


def test_flat_columns_use_the_fast_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of Java's writer and of Rust's."""
    monkeypatch.setattr(encoded_footer, "encoded_struct", None)
    monkeypatch.setattr(encoded_footer, "encoded_structs", None)
    for options in WAYS:
        if options.get("write_statistics", True):
            FooterFrame.split(footer(ROWS.drop(["row", "none"]), **options))
    for writer, name in (
        ("java-0.9", "append_unaware"),
        ("java-1.4", "append"),
        ("pypaimon-2.1", "append"),
        ("rust-0.4", "append"),
    ):
        files = sorted(golden_table(writer, name, tmp_path / writer).rglob("data-*.parquet"))
        assert files
        for file in files:
            FooterFrame.split(footer_bytes(io.BytesIO(file.read_bytes())))


@pytest.mark.parametrize("changes", [1500, at_night(6000)])
def test_changed_bytes_are_read_or_refused_alike(monkeypatch: pytest.MonkeyPatch, changes: int) -> None:
    random, whole = Random(5), [footer(ROWS, **options) for options in WAYS]
    seen = {"read": 0, "refused": 0}
    for number in range(changes):
        data = bytearray(whole[number % len(whole)])
        begin = len(FooterFrame.split(bytes(data))[0].before)
        for _ in range(random.choice([1, 1, 2])):
            place = random.randrange(begin, len(data))
            data[place : place + random.choice([0, 1, 1, 1, 2])] = random.choice([b"", bytes([random.randrange(256)])])
        given = bytes(data)
        found = outcome(lambda given=given: FooterFrame.split(given))  # type: ignore[misc]
        assert found == outcome(lambda given=given: field_by_field(given, monkeypatch)), given.hex()  # type: ignore[misc]
        seen["refused" if found is ValueError else "read"] += 1
    assert min(seen.values()) > changes // 12, seen


def test_numbers_may_become_longer_and_shorter() -> None:
    data = footer(ROWS, compression="none")
    _, _, (group,) = FooterFrame.split(data)
    offsets = [place for chunk in group.chunks for place in chunk.offsets]
    entry = group.entry_with([(place, 0 if number % 2 else 1 << 50) for number, place in enumerate(offsets)])
    fields = decode(entry)
    changed: list[Struct] = [chunk.required(3) for chunk in fields.elements(1)]
    values = [chunk.value(field) for chunk in changed for field in (9, 11) if field in chunk]
    assert set(values) == {0, 1 << 50} and len(values) == len(offsets) and encode(fields) == entry


def changed(data: bytes, change: Callable[[Struct, Struct], object]) -> bytes:
    """The footer in which the first column chunk, and its metadata, are changed."""
    fields = decode(data)
    chunk = fields.elements(4)[0].elements(1)[0]
    change(chunk, chunk.required(3))
    return encode(fields)


def both_ways(data: bytes, monkeypatch: pytest.MonkeyPatch) -> StoredGroup:
    """The first row group, which must be the same field by field."""
    found = FooterFrame.split(data)
    assert found == field_by_field(data, monkeypatch)
    return found[2][0]


NUMBERS = pa.table({"i": pa.array([1, 2, 2, 1], pa.int64())})


def test_what_a_writer_has_put_at_0_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some writers set the offset of a dictionary, a filter or an index that they have not written to 0."""
    data = footer(NUMBERS, write_page_index=True, bloom_filter_options={"i": {"ndv": 10}})
    (chunk,) = both_ways(data, monkeypatch).chunks
    assert [part.kind for part in chunk.outside] == [BLOOM, OFFSET_INDEX, COLUMN_INDEX] and len(chunk.offsets) == 2
    for field, others in ((OFFSET_INDEX, [BLOOM, COLUMN_INDEX]), (COLUMN_INDEX, [BLOOM, OFFSET_INDEX])):
        without = changed(data, lambda chunk, metadata, field=field: chunk.update({field: (I64, 0)}))  # type: ignore[misc]
        assert [part.kind for part in both_ways(without, monkeypatch).chunks[0].outside] == others
    without = changed(data, lambda chunk, metadata: metadata.update({BLOOM: (I64, 0)}))
    assert [part.kind for part in both_ways(without, monkeypatch).chunks[0].outside] == [OFFSET_INDEX, COLUMN_INDEX]
    plain = footer(NUMBERS, use_dictionary=False)
    (expected,) = both_ways(plain, monkeypatch).chunks
    with_0 = changed(plain, lambda chunk, metadata: metadata.update({11: (I64, 0)}))
    (found,) = both_ways(with_0, monkeypatch).chunks
    assert (found.begin, found.end) == (expected.begin, expected.end)
    assert [offset.value for offset in found.offsets] == [offset.value for offset in expected.offsets] == [4]


def test_the_offset_of_a_chunk_moves_if_its_writer_has_set_it(monkeypatch: pytest.MonkeyPatch) -> None:
    data = footer(NUMBERS, use_dictionary=False)
    for offset, moving in ((0, [4]), (4, [4, 4])):
        set_to = changed(data, lambda chunk, metadata, offset=offset: chunk.update({2: (I64, offset)}))  # type: ignore[misc]
        (chunk,) = both_ways(set_to, monkeypatch).chunks
        assert [number.value for number in chunk.offsets] == moving


@pytest.mark.parametrize(
    ("data_page", "dictionary", "is_inside"),
    [(4, None, True), (3, None, False), (0, None, False), (30, 4, True), (4, 30, True), (4, 200, False), (200, 4, False)],
)
def test_pages_lie_within_their_chunk_and_behind_the_magic_number(
    data_page: int, dictionary: int | None, is_inside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def moved(chunk: Struct, metadata: Struct) -> None:
        metadata.update({7: (I64, 100), 9: (I64, data_page)})
        metadata.pop(11, None)
        if dictionary is not None:
            metadata[11] = (I64, dictionary)

    data = changed(footer(NUMBERS), moved)
    if is_inside:
        (chunk,) = both_ways(data, monkeypatch).chunks
        assert (chunk.begin, chunk.end) == (4, 104)
        return
    for split in (FooterFrame.split, lambda data: field_by_field(data, monkeypatch)):
        with pytest.raises(ValueError, match="a column chunk lies outside the file"):
            split(data)


@pytest.mark.parametrize(("field", "value"), [(1, (BINARY, b"else.parquet")), (8, (STRUCT, Struct())), (9, (BINARY, b"x"))])
def test_a_chunk_in_another_file_or_encrypted_is_refused(field: int, value: tuple[int, Any]) -> None:
    with pytest.raises(ValueError, match="a column is encrypted, or in another file"):
        FooterFrame.split(changed(footer(NUMBERS), lambda chunk, metadata: chunk.update({field: value})))


def test_an_encrypted_footer_tells_no_columns() -> None:
    data = footer(NUMBERS)
    assert FooterFrame.split(data)[0].columns == ["i"]
    for field, value in ((8, (STRUCT, Struct({1: (STRUCT, Struct())}))), (9, (BINARY, b"key"))):
        frame = FooterFrame.split(encode(Struct({**decode(data), field: value})))[0]
        assert frame.columns is None


def test_a_frame_is_that_of_its_own_file_also_behind_the_row_groups() -> None:
    """Another writer, or other metadata, with the same schema."""
    data = footer(NUMBERS)
    like = FooterFrame.split(data)[0]
    fields = decode(data)
    other = encode(Struct({**fields, 6: (BINARY, b"another writer")}))
    frame = FooterFrame.split(other, like)[0]
    assert frame.before == like.before and frame != like and other.endswith(frame.after) and b"another writer" in frame.after
    assert FooterFrame.split(data, like)[0] is like


def test_new_numbers_of_an_entry_may_come_in_any_order() -> None:
    _, _, (group,) = FooterFrame.split(footer(ROWS, compression="none"))
    values = [
        (place, 1 << 40 | number) for number, place in enumerate(place for chunk in group.chunks for place in chunk.offsets)
    ]
    assert group.entry_with(values[::-1]) == group.entry_with(values) != group.entry_with([])


def test_a_footer_that_ends_with_its_row_groups_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that were copied in its frame could not be read."""
    data = footer(NUMBERS)
    frame = FooterFrame.split(data)[0]
    cut = data[: len(data) - len(frame.after)]
    for split in (FooterFrame.split, lambda cut: FooterFrame.split(cut, frame), lambda cut: field_by_field(cut, monkeypatch)):
        with pytest.raises(ValueError, match="cut off"):
            split(cut)
        assert split(data)[0] == frame
