"""Footers, ranges of bytes, page indexes and small files made of pages: what is read, and what is refused as damaged."""

from __future__ import annotations

import io
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_cli.bucket.parquet_chunks import (
    ChunkPart,
    ColumnChunk,
    SmallFile,
    chunks_of,
    footer_bytes,
    footer_size,
    read_footer,
    read_ranges,
    whole_bounds,
)
from paimon_cli.metadata.compact_thrift import BINARY, STRUCT, Struct, number
from paimon_cli.metadata.parquet_footer import PageBounds, PageLocations


def parquet(columns: dict[str, Sequence[Any]], **options: Any) -> io.BytesIO:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, **{"write_page_index": True, "compression": "none", **options})
    return sink


class Counting(io.BytesIO):
    """A file that counts how often it is read."""

    reads = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self.reads += 1
        return super().read(size)


def test_a_footer_is_read_once_or_twice_whatever_is_guessed() -> None:
    content = parquet({"a": [1, 2, 3]}).getvalue()
    whole = footer_bytes(io.BytesIO(content))
    assert len(whole) == pq.read_metadata(io.BytesIO(content)).serialized_size
    for guess in (12, len(whole) - 1, len(whole), len(whole) + 7, len(whole) + 8, len(whole) + 9, 10**6):
        source = Counting(content)
        assert footer_bytes(source, guess) == whole
        assert source.reads == (1 if guess >= len(whole) + 8 else 2), guess


@pytest.mark.parametrize("content", [b"", b"PAR1", b"\x00\x00\x00\x00PAR1", b"x" * 50 + b"\x00\x00\x00\x00PAR2"])
def test_what_does_not_end_like_a_parquet_file(content: bytes) -> None:
    with pytest.raises(ValueError, match="does not end like a Parquet file"):
        footer_size(content, len(content))
    with pytest.raises(ValueError, match="does not end like a Parquet file"):
        footer_bytes(io.BytesIO(content))


@pytest.mark.parametrize("length", [21, 28, 2**32 - 1])
def test_a_footer_that_begins_before_its_file(length: int) -> None:
    content = b"PAR1" + b"x" * 16 + length.to_bytes(4, "little") + b"PAR1"
    with pytest.raises(ValueError, match=f"a footer of {length} bytes does not fit"):
        footer_bytes(io.BytesIO(content))
    assert footer_size(content[:-8] + (20).to_bytes(4, "little") + b"PAR1", len(content)) == 20


def test_ranges_come_in_their_order_and_near_ones_are_read_at_once() -> None:
    content = bytes(range(200))

    def read(*extents: tuple[int, int], gap: int = 0) -> int:
        source = Counting(content)
        found = read_ranges(source, extents, gap)
        assert found == [content[offset : offset + size] for offset, size in extents]
        return source.reads

    assert read() == 0 and read((5, 0)) == 0
    assert read((10, 5), (0, 5)) == 2
    assert read((10, 5), (0, 5), gap=4) == 2 and read((10, 5), (0, 5), gap=5) == 1
    assert read((0, 5), (5, 5)) == 1, "what follows at once is read with it"
    assert read((0, 100), (10, 5), (50, 60)) == 1, "a range within another does not end it"
    assert read((120, 3), (0, 100), (10, 5), (102, 2), gap=2) == 2
    with pytest.raises(ValueError, match="cut off"):
        read_ranges(io.BytesIO(content), [(190, 11)], 0)
    with pytest.raises(ValueError, match="cut off"):
        read_ranges(io.BytesIO(content), [(0, 5), (201, 1)], 0)


ROWS = 3000
PAGED: dict[str, Sequence[Any]] = {
    "narrow": list(range(ROWS)),
    "wide": [f"{n:040d}" for n in range(ROWS)],
    "also": list(range(ROWS, 2 * ROWS)),
}
OPTIONS: dict[str, Any] = {"use_dictionary": False, "data_page_size": 4000, "write_batch_size": 100, "column_encoding": None}


@pytest.fixture(scope="module")
def paged() -> io.BytesIO:
    """Pages of `narrow` and `also` begin at the same rows, those of `wide` at others. Two row groups."""
    return parquet(PAGED, **OPTIONS, row_group_size=ROWS // 2)


def chunks(source: io.BytesIO, *names: str, groups: Sequence[int] = (0,)) -> dict[int, list[ColumnChunk]]:
    footer = read_footer(source)
    return chunks_of(source, footer, [footer.columns[name] for name in names], groups)


def test_columns_are_paged_together_if_their_pages_begin_at_the_same_rows(paged: io.BytesIO) -> None:
    same, other = chunks(paged, "narrow", "also", groups=[0, 1]), chunks(paged, "narrow", "wide")
    for group in (0, 1):
        assert all(chunk.is_paged and len(chunk.locations.offsets) > 2 for chunk in same[group])
        assert np.array_equal(same[group][0].locations.first_rows, same[group][1].locations.first_rows)
    assert not any(chunk.is_paged for chunk in other[0])
    assert all(len(chunk.locations.offsets) == 1 and chunk.locations.first_rows.tolist() == [0] for chunk in other[0])
    assert [chunk.is_paged for chunk in chunks(paged, "wide")[0]] == [True]


def test_small_files_hold_the_pages_of_several_groups(paged: io.BytesIO) -> None:
    footer = read_footer(paged)
    file, expected = SmallFile(), list[int]()
    for group, wanted in ((0, [0, 2]), (1, [1])):
        (chunk,) = chunks(paged, "narrow", groups=[group])[group]
        first_rows = np.append(chunk.locations.first_rows, ROWS // 2)
        part = ChunkPart(chunk, np.array(wanted), np.diff(first_rows)[wanted])
        file.add_group([[(part, read_ranges(paged, part.extents(), 0))]])
        for page in wanted:
            expected += range(group * ROWS // 2 + first_rows[page], group * ROWS // 2 + first_rows[page + 1])
    table = file.read(footer, footer.columns["narrow"].elements, 1)
    assert table.column("narrow").to_pylist() == expected


def test_pages_with_other_numbers_of_rows_than_the_index_says_are_refused(paged: io.BytesIO) -> None:
    (chunk,) = chunks(paged, "narrow")[0]
    sizes = np.diff(np.append(chunk.locations.first_rows, ROWS // 2))
    part = ChunkPart(chunk, np.array([0, 1]), sizes[:2])
    pages = read_ranges(paged, part.extents(), 0)[1:]
    assert part.value_count(pages) == sizes[:2].sum()
    swapped = ChunkPart(chunk, part.pages, sizes[:2] + np.array([1, -1]))
    with pytest.raises(ValueError, match="another number of rows"):
        swapped.value_count(pages)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("offsets", lambda found: found - 10_000),
        ("sizes", lambda found: np.append(found[:-1], found[-1] + 1)),
        ("sizes", lambda found: np.append(found[:-1], 0)),
        ("first_rows", lambda found: found + 1),
        ("first_rows", lambda found: np.append(found[:-1], ROWS)),
        ("first_rows", lambda found: np.append(found[:-1], found[-2])),
    ],
)
def test_page_indexes_that_cannot_be_are_damage(
    paged: io.BytesIO, monkeypatch: pytest.MonkeyPatch, field: str, value: Any
) -> None:
    decode = PageLocations.decode

    def damaged(content: bytes) -> Any:
        found = decode(content)
        parts = {name: getattr(found, name) for name in ("offsets", "sizes", "first_rows")}
        return PageLocations(**{**parts, field: value(parts[field])})

    monkeypatch.setattr(PageLocations, "decode", staticmethod(damaged))
    with pytest.raises(ValueError, match="pages that cannot exist"):
        chunks(paged, "narrow")


def test_chunks_in_other_files_or_encrypted_ones_are_refused(paged: io.BytesIO) -> None:
    for is_elsewhere in (True, False):
        footer = read_footer(paged)
        entry = footer.chunk(0, 0)
        if is_elsewhere:
            entry[1] = (BINARY, b"other.parquet")
        else:
            del entry[3]
        changed = SimpleNamespace(chunk=lambda group, leaf, entry=entry: entry, groups=footer.groups)
        with pytest.raises(ValueError, match="encrypted, or in another file"):
            chunks_of(paged, cast("Any", changed), [footer.columns["narrow"]], [0])


@pytest.mark.parametrize(
    ("low", "high", "nulls", "is_required", "expected"),
    [
        (b"a", b"z", 0, False, PageBounds([b"a"], [b"z"])),
        (b"a", b"z", 3, False, PageBounds([None], [b"z"])),
        (b"a", b"z", None, False, PageBounds([None], [b"z"])),
        (b"a", b"z", None, True, PageBounds([b"a"], [b"z"])),
        (None, None, 10, False, PageBounds([None], [None])),
        (b"a", b"z", 10, False, PageBounds([None], [None])),
        (None, b"z", 0, False, None),
        (b"a", None, 0, True, None),
        (None, None, 9, False, None),
    ],
)
def test_bounds_of_a_whole_chunk(
    low: bytes | None, high: bytes | None, nulls: int | None, is_required: bool, expected: PageBounds | None
) -> None:
    """Nulls come first; a chunk of 10 values."""
    known: dict[int, Any] = {6: None if low is None else (BINARY, low), 5: None if high is None else (BINARY, high)}
    known[3] = None if nulls is None else number(nulls)
    statistics = Struct({field: value for field, value in known.items() if value is not None})
    chunk = SimpleNamespace(metadata=Struct({5: number(10), 12: (STRUCT, statistics)}))
    assert whole_bounds(cast("Any", chunk), is_required) == expected
