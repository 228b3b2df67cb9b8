"""Footers and page indexes: what is read from them and what is changed in them, whichever writer encoded them."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_cli.metadata.compact_thrift import BINARY, FALSE, I32, LIST, STRUCT, TRUE, Struct, decode, encode, number, struct_list
from paimon_cli.metadata.parquet_footer import (
    TAIL,
    Footer,
    PageBounds,
    PageLocations,
    PageStatistics,
    values_of_page,
    with_int96_as_bytes,
    without_bounds,
)

LONG = st.integers(0, 2**62)
PAGES = st.lists(st.tuples(LONG, st.integers(0, 2**31 - 1), LONG), max_size=20)
Pages = list[tuple[int, int, int]]


def encoded(pages: Pages, extra: dict[int, tuple[int, int]] | None = None) -> bytes:
    """An `OffsetIndex`; `extra` fields in each location make it one that no known writer encodes."""
    structs = [Struct({1: number(at), 2: number(size, I32), 3: number(row), **(extra or {})}) for at, size, row in pages]
    return encode(Struct({1: struct_list(structs)}))


def decoded(data: bytes) -> Pages:
    found = PageLocations.decode(data)
    return list(zip(found.offsets.tolist(), found.sizes.tolist(), found.first_rows.tolist(), strict=True))


@given(PAGES)
def test_the_locations_of_all_pages_are_read_at_once_or_one_by_one(pages: Pages) -> None:
    assert decoded(encoded(pages)) == decoded(encoded(pages, {9: number(7)})) == pages


@given(PAGES, st.integers(-(2**40), 2**40))
def test_all_pages_of_a_chunk_move_together(pages: Pages, distance: int) -> None:
    moved = [(at + distance, size, row) for at, size, row in pages]
    assert decoded(PageLocations.moved(encoded(pages), distance)) == moved


@given(PAGES.filter(bool), st.data())
def test_locations_that_are_cut_off_are_refused(pages: Pages, data: st.DataObject) -> None:
    content = encoded(pages)
    with pytest.raises((ValueError, LookupError)):
        PageLocations.decode(content[: data.draw(st.integers(0, len(content) - 3))])


def test_chunks_lose_all_their_bounds_and_no_others() -> None:
    """Those for old readers, too, whether they are exact, and the place of the bounds of pages."""

    def statistics() -> Struct:
        texts = {field: (BINARY, b"x") for field in (1, 2, 5, 6)}
        return Struct({**texts, 3: number(4), 4: number(5), 7: (TRUE, True), 8: (TRUE, True)})

    def chunk() -> Struct:
        places = {4: number(1), 5: number(2, I32), 6: number(3), 7: number(4, I32)}
        return Struct({3: (STRUCT, Struct({12: (STRUCT, statistics())})), **places})

    groups = [Struct({1: struct_list([chunk(), chunk()])}) for _ in range(2)]
    left = decode(without_bounds(encode(Struct({4: struct_list(groups)})), {(1, 0), (0, 1)}))
    found = [[set(leaf), set(leaf.required(3).value(12, Struct()))] for group in left.elements(4) for leaf in group.elements(1)]
    whole, bare = [{3, 4, 5, 6, 7}, {1, 2, 3, 4, 5, 6, 7, 8}], [{3, 4, 5}, {3, 4}]
    assert found == [whole, bare, bare, whole]


def test_leaves_of_nested_columns_are_numbered_as_arrow_numbers_them() -> None:
    point = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.struct([("p", pa.int32()), ("q", pa.list_(pa.int64()))])))])
    columns = {"a": pa.int32(), "r": point, "m": pa.map_(pa.string(), point), "l": pa.list_(pa.int32()), "z": pa.int64()}
    file = io.BytesIO()
    pq.write_table(pa.table({name: pa.array([None, None], kind) for name, kind in columns.items()}), file, row_group_size=1)
    content, metadata = file.getvalue(), pq.read_metadata(file)
    size = int.from_bytes(content[-TAIL:-4], "little")
    footer = Footer(content[-TAIL - size : -TAIL])
    assert [*footer.columns] == [*columns] and footer.row_count == 2 and len(footer.groups) == 2
    leaves = [metadata.schema.column(i) for i in range(metadata.num_columns)]
    found = [(top.first_leaf + n, name, leaf) for name, top in footer.columns.items() for n, leaf in enumerate(top.leaves)]
    assert [place for place, _, _ in found] == [*range(len(leaves))]
    for place, name, leaf in found:
        arrows = leaves[place]
        path = [text.decode() for text in footer.chunk(1, place).required(3).elements(3)]
        assert ".".join(path) == arrows.path and path[0] == name
        assert leaf.element.required(4).decode() == path[-1]
        assert leaf.is_repeated == (arrows.max_repetition_level > 0)
    assert [len(top.elements) for top in footer.columns.values()] == [1, 9, 12, 3, 1]


def index(lows: list[bytes], highs: list[bytes], is_null: list[bool], nulls: list[int] | None = None) -> bytes:
    """A `ColumnIndex`."""
    counts = {} if nulls is None else {5: (LIST, (I32, nulls))}
    marks = [TRUE if mark else FALSE for mark in is_null]
    texts = {2: (LIST, (BINARY, lows)), 3: (LIST, (BINARY, highs))}
    return encode(Struct({1: (LIST, (TRUE, marks)), **texts, 4: number(1, I32), **counts}))


def test_pages_of_nulls_have_no_bounds_and_others_their_own() -> None:
    lows, highs = [b"a", b"", b"c"], [b"b", b"", b"d"]
    assert PageStatistics.decode(index(lows, highs, [False] * 3)) == PageStatistics([*lows], [*highs], None)
    found = PageStatistics.decode(index(lows, highs, [False, True, False], [0, 9, 1]))
    assert found == PageStatistics([b"a", None, b"c"], [b"b", None, b"d"], [0, 9, 1])


@pytest.mark.parametrize(
    ("nulls", "is_required", "lows"),
    [
        ([0, 9, 1], False, [b"a", None, None]),
        ([0, 9, 0], False, [b"a", None, b"c"]),
        ([0, 0, 0], True, [b"a", None, b"c"]),
        (None, True, [b"a", None, b"c"]),
        (None, False, [None, None, None]),
    ],
)
def test_null_is_the_least_value_of_a_page_that_may_hold_one(
    nulls: list[int] | None, is_required: bool, lows: list[bytes | None]
) -> None:
    data = index([b"a", b"", b"c"], [b"b", b"", b"d"], [False, True, False], nulls)
    assert PageBounds.decode(data, is_required) == PageBounds(lows, [b"b", None, b"d"])


@pytest.mark.parametrize("null_page", [False, True])
@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("pages", [1, 3])
def test_a_column_index_of_another_number_of_pages_in_one_list_is_refused(place: int, pages: int, null_page: bool) -> None:
    lows, highs, marks, nulls = (pages if here == place else 2 for here in range(4))
    data = index([b"a"] * lows, [b"b"] * highs, [null_page] * marks, [0] * nulls)
    with pytest.raises(ValueError, match="of some pages"):
        PageStatistics.decode(data)


def test_locations_that_lack_a_number_or_have_one_too_long_are_refused() -> None:
    for field in (1, 2, 3):
        location = Struct({n: number(7) for n in (1, 2, 3) if n != field})
        with pytest.raises(LookupError):
            PageLocations.decode(encode(Struct({1: struct_list([Struct({n: number(7) for n in (1, 2, 3)}), location])})))
    usual = encoded([(5, 6, 7), (8, 9, 10)])
    for digits in range(2, 13):
        long = usual.replace(bytes([16]), bytes([16 | 0x80, *[0x80] * (digits - 2), 0]))
        if digits <= 10:
            assert decoded(long) == [(5, 6, 7), (8, 9, 10)]
        else:
            with pytest.raises(ValueError, match="ten bytes"):
                PageLocations.decode(long)


def test_values_are_counted_in_the_headers_of_data_pages_only() -> None:
    def page(kind: int, field: int, count: int, *, wide: bool = False, crc: bool = False) -> bytes:
        head = {1: number(kind) if wide else number(kind, I32), 2: number(900, I32), 3: number(70, I32)}
        checksum = {4: number(-5, I32)} if crc else {}
        inner = Struct({1: number(count, I32), 2: number(0, I32), 3: number(3, I32), 4: number(3, I32)})
        return encode(Struct({**head, **checksum, field: (STRUCT, inner)})) + b"content"

    forms: list[dict[str, Any]] = [{}, {"wide": True}, {"crc": True}, {"wide": True, "crc": True}]
    for form in forms:
        for count in (0, 1, 63, 64, 70_000):
            assert values_of_page(page(0, 5, count, **form)) == values_of_page(page(3, 8, count, **form)) == count
        for kind, field in ((1, 6), (2, 7)):  # pages of an index or a dictionary
            with pytest.raises(ValueError, match="no data page"):
                values_of_page(page(kind, field, 5, **form))


def test_times_of_96_bits_become_bytes_in_all_row_groups() -> None:
    """Their statistics would be those of another type; other columns keep theirs."""
    int96, int64, fixed = number(3, I32), number(2, I32), number(7, I32)

    def chunk(kind: tuple[int, int]) -> Struct:
        return Struct({3: (STRUCT, Struct({1: kind, 5: number(9), 12: (STRUCT, Struct({3: number(4)}))}))})

    elements = [
        Struct({4: (BINARY, b"root"), 5: number(2, I32)}),
        Struct({1: int96, 4: (BINARY, b"t")}),
        Struct({1: int64, 4: (BINARY, b"n")}),
    ]
    groups = [Struct({1: struct_list([chunk(int96), chunk(int64)]), 3: number(8)}) for _ in range(3)]
    stored = {1: number(1, I32), 2: struct_list(elements), 3: number(24), 4: struct_list(groups)}
    arrows = {5: struct_list([Struct({1: (BINARY, b"ARROW:schema")})]), 6: (BINARY, b"writer")}
    found = decode(with_int96_as_bytes(encode(Struct({**stored, **arrows}))))
    assert found.elements(2) == [elements[0], Struct({1: fixed, 2: number(12, I32), 4: (BINARY, b"t")}), elements[2]]
    as_bytes = Struct({3: (STRUCT, Struct({1: fixed, 5: number(9)}))})
    assert [group.elements(1) for group in found.elements(4)] == [[as_bytes, chunk(int64)]] * 3
    assert set(found) == {1, 2, 3, 4, 6}, "Arrow's own schema would say that the column holds times"
