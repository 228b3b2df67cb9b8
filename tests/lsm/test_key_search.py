"""Binary searches for many keys at once find what a search for one key at a time finds, for keys of several columns and types."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from paimon_cli.lsm.key_search import KeyBounds, SortedKeys

INT, LONG, TEXT = st.integers(-3, 3), st.integers(-(2**40), 2**40), st.text("abé", max_size=3)
SHAPES: list[tuple[tuple[pa.DataType, st.SearchStrategy[Any]], ...]] = [
    ((pa.int32(), INT),),
    ((pa.int64(), st.none() | LONG),),
    ((pa.string(), TEXT),),
    ((pa.int32(), INT), (pa.int64(), LONG)),
    ((pa.int32(), INT), (pa.string(), st.none() | TEXT), (pa.int32(), st.none() | INT)),
]
Key = tuple[Any, ...]


def order(key: Key) -> tuple[tuple[bool, Any], ...]:
    """Null is the smallest value, and text is compared by its bytes."""
    return tuple((value is not None, value.encode() if isinstance(value, str) else value or 0) for value in key)


@st.composite
def sides(draw: st.DrawFn) -> tuple[list[Key], list[Key], list[pa.DataType]]:
    """Sorted keys, others to search for in any order, and the types of their columns."""
    shape = draw(st.sampled_from(SHAPES))
    keys = st.tuples(*(values for _, values in shape))
    stored = sorted(set(draw(st.lists(keys, min_size=1, max_size=40))), key=order)
    sought = draw(st.lists(keys | st.sampled_from(stored), max_size=20))
    return stored, sought, [kind for kind, _ in shape]


def columns(keys: list[Key], types: list[pa.DataType]) -> SortedKeys:
    return SortedKeys(tuple(pa.array([key[place] for key in keys], kind) for place, kind in enumerate(types)))


@given(sides())
def test_how_many_keys_are_less_or_equal(given_sides: tuple[list[Key], list[Key], list[pa.DataType]]) -> None:
    stored, sought, types = given_sides
    ordered, keys = [order(key) for key in stored], columns(sought, types)
    own = columns(stored, types)
    assert own.below(keys).tolist() == [bisect_left(ordered, order(key)) for key in sought]
    assert own.up_to(keys).tolist() == [bisect_right(ordered, order(key)) for key in sought]
    places = own.below(keys)
    assert own.equal_at(places, keys).tolist() == [key in stored for key in sought]
    assert own.ascends_at(np.arange(1, len(stored))).all()


@given(sides(), st.integers(1, 7))
def test_a_key_is_in_one_of_the_blocks_that_may_hold_it(
    given_sides: tuple[list[Key], list[Key], list[pa.DataType]], rows: int
) -> None:
    stored, _, types = given_sides
    blocks = [stored[start : start + rows] for start in range(0, len(stored), rows)]
    bounds = KeyBounds.of(columns([block[0] for block in blocks], types), columns([block[-1] for block in blocks], types))
    first, last = bounds.blocks(columns(stored, types))
    for place, (low, high) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
        assert low <= place // rows <= high
