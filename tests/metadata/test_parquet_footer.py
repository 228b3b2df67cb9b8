"""Page locations are the same whichever writer encoded them, and move as a whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_cli.metadata.compact_thrift import BINARY, I32, STRUCT, TRUE, Struct, decode, encode, number, struct_list
from paimon_cli.metadata.parquet_footer import PageLocations, without_bounds

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
