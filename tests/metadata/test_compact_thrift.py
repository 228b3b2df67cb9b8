"""Structs of Thrift's compact protocol: round trips with numbers and strings of all widths."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_cli.metadata.compact_thrift import BINARY, FALSE, I32, I64, LIST, STRUCT, TRUE, Struct, decode, encode, encoded_struct

NUMBERS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.binary(max_size=140)
SAME_WIDTH = st.integers(0, 130).flatmap(lambda width: st.lists(st.binary(min_size=width, max_size=width), max_size=40))


def lists(structs: st.SearchStrategy[Struct]) -> st.SearchStrategy[tuple[int, list[object]]]:
    return st.one_of(
        st.tuples(st.just(I64), st.lists(NUMBERS, max_size=20)),
        st.tuples(st.just(BINARY), st.one_of(st.lists(TEXTS, max_size=20), SAME_WIDTH)),
        st.tuples(st.just(TRUE), st.lists(st.sampled_from((TRUE, FALSE)), max_size=20)),
        st.tuples(st.just(STRUCT), st.lists(structs, max_size=20)),
    )


def structs_of(inner: st.SearchStrategy[Struct]) -> st.SearchStrategy[Struct]:
    values = st.one_of(
        st.tuples(st.sampled_from((I32, I64)), NUMBERS),
        st.tuples(st.just(BINARY), TEXTS),
        st.sampled_from(((TRUE, True), (FALSE, False))),
        st.tuples(st.just(STRUCT), inner),
        st.tuples(st.just(LIST), lists(inner)),
    )
    return st.dictionaries(st.integers(1, 200), values, max_size=6).map(Struct)


STRUCTS = st.recursive(st.just(Struct()), structs_of, max_leaves=6)


@given(STRUCTS, st.binary(max_size=5))
def test_what_is_written_is_read(fields: Struct, rest: bytes) -> None:
    assert decode(encode(fields) + rest) == fields


@pytest.mark.parametrize("bits", range(64))
def test_numbers_around_every_power_of_two(bits: int) -> None:
    """Each byte of a varint is once the least and once the greatest that it may be."""
    for value in {2**bits - 1, -(2**bits), 2**bits - 2, -(2**bits) + 1, 2 ** max(bits - 1, 0)}:
        fields = Struct({1: (I64, value), 2: (LIST, (I64, [value, 300, value]))})
        assert decode(encode(fields)) == fields


@given(STRUCTS, st.data())
def test_what_is_cut_off_is_refused(fields: Struct, data: st.DataObject) -> None:
    content = encode(fields)
    with pytest.raises((ValueError, LookupError)):
        decode(content[: data.draw(st.integers(0, len(content) - 1))])


@pytest.mark.parametrize("read", [decode, lambda data: encoded_struct(data, 0, {1: None})], ids=["decoded", "encoded"])
def test_a_number_has_at_most_ten_bytes(read: Callable[[bytes], object]) -> None:
    read(b"\x16" + b"\xff" * 9 + b"\x01\x00")
    for more in (1, 4_000_000):
        with pytest.raises(ValueError, match="ten bytes"):
            read(b"\x16" + b"\xff" * (9 + more) + b"\x01\x00")
