"""Page locations are the same whichever writer encoded them, and move as a whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_cli.metadata.compact_thrift import I32, Struct, encode, number, struct_list
from paimon_cli.metadata.parquet_footer import PageLocations

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
