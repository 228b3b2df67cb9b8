"""Bitmaps of 64-bit numbers: unions of bytes are unions of sets, whatever the tree's shape. Java's bytes are in the vectors."""

from __future__ import annotations

import hashlib
import struct

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from paimon_cli.lsm.aggregators.sketches import ARRAY, BITMAP, NODE4, NODE16, NODE48, NODE256, RUN, Bitmap64

FEW = st.sets(st.integers(0, 300), max_size=40)
NUMBERS = st.builds(
    lambda highs, lows: {(high << 16) + low for high in highs for low in lows}, FEW, st.sets(st.integers(0, 65535))
)
FAR = st.sets(st.integers(0, 2**64 - 1), max_size=60)


def bitmap(numbers: set[int]) -> Bitmap64:
    made = Bitmap64()
    for high in sorted({number >> 16 for number in numbers}):
        lows = sorted(number & 0xFFFF for number in numbers if number >> 16 == high)
        made.add(Bitmap64({high.to_bytes(6, "big"): 0}, [np.array(lows, np.uint16)], 0))
    return made


def numbers_of(made: Bitmap64) -> set[int]:
    found = set()
    for key, slot in made.slot_of.items():
        values = made.slots[slot]
        assert values is not None
        found |= {(int.from_bytes(key, "big") << 16) + int(low) for low in values}
    return found


@settings(max_examples=60)
@given(NUMBERS | FAR, NUMBERS | FAR)
def test_unions_are_unions_of_sets(one: set[int], other: set[int]) -> None:
    joined = Bitmap64.deserialize(bitmap(one).serialize())
    joined.add(Bitmap64.deserialize(bitmap(other).serialize()))
    data = joined.serialize()
    assert numbers_of(Bitmap64.deserialize(data)) == one | other
    assert Bitmap64.deserialize(data).serialize() == data


@pytest.mark.parametrize(("children", "kind"), [(4, NODE4), (5, NODE16), (16, NODE16), (17, NODE48), (48, NODE48), (49, NODE256)])
def test_nodes_are_as_wide_as_needed(children: int, kind: int) -> None:
    numbers = {(5 << 32) + (5 * child << 16) for child in range(children)}
    data = bitmap(numbers).serialize()
    assert data[9:13] == bytes([kind, children, 0, 5]) and data[13:18] == bytes([0, 0, 0, 5, 0])
    assert numbers_of(Bitmap64.deserialize(data)) == numbers


@pytest.mark.parametrize(
    ("children", "step", "digest"),
    [
        (4, 5, "d8754e61d7c715c8"),
        (5, 5, "916901c0fc948b79"),
        (16, 5, "08c3b63676c0c1fd"),
        (17, 5, "0321b11fbc0edc71"),
        (20, 5, "94a72b86d6757653"),
        (48, 5, "7d3c6e10f63b9624"),
        (49, 5, "589116288721e693"),
        (100, 2, "0585f06be4e12d30"),
        (256, 1, "c4ab7a5903d8223b"),
    ],
)
def test_nodes_have_the_bytes_of_java(children: int, step: int, digest: str) -> None:
    """Digests of what the Roaring64Bitmap of RoaringBitmap 1.6.10 writes for the same numbers, added in this order."""
    data = bitmap({(5 << 32) + (step * child << 16) + child for child in range(children)}).serialize()
    assert hashlib.sha256(data).hexdigest().startswith(digest), data[:60].hex()


@pytest.mark.parametrize(
    ("numbers", "kind"), [(set(range(10, 6000)), RUN), ({*range(500), *range(700, 900)}, RUN), (set(range(0, 65536, 3)), BITMAP)]
)
def test_full_containers(numbers: set[int], kind: int) -> None:
    data = bitmap(numbers).serialize()
    assert data[9 + 18 + 4 + 1 + 4 + 1] == kind
    assert numbers_of(Bitmap64.deserialize(data)) == numbers


@pytest.mark.parametrize("cut", range(0, 62, 7))
def test_damaged_bytes_are_reported(cut: int) -> None:
    data = bitmap({1, 1 << 40}).serialize()
    with pytest.raises(ValueError, match=r"ends after|container|kind"):
        Bitmap64.deserialize(data[:cut])


def test_keys_without_a_container_are_reported() -> None:
    key = bytes(6)
    for broken in (Bitmap64({key: 1}, [np.array([1], np.uint16)], 0), Bitmap64({key: 0}, [np.array([1], np.uint16)], 1)):
        with pytest.raises(ValueError, match="a key has no container"):
            Bitmap64.deserialize(broken.serialize())


def container_of(kind: int, count: int, body: bytes) -> list[int]:
    """The values of a bitmap's only container with these bytes."""
    whole = bitmap({7}).serialize()
    array = struct.pack("<Bi", ARRAY, 1) + struct.pack("<H", 7)
    assert whole.count(array) == 1
    (values,) = Bitmap64.deserialize(whole.replace(array, struct.pack("<Bi", kind, count) + body)).slots
    assert values is not None and values.dtype == np.uint16
    return values.tolist()


def test_containers_hold_what_their_bytes_say() -> None:
    assert container_of(ARRAY, 3, struct.pack("<3H", 1, 5, 65535)) == [1, 5, 65535]
    assert container_of(RUN, 4, struct.pack("<5H", 2, 10, 2, 65535, 0)) == [10, 11, 12, 65535]
    assert container_of(RUN, 65536, struct.pack("<3H", 1, 0, 65535)) == list(range(65536))
    assert container_of(RUN, 0, struct.pack("<H", 0)) == [], "no runs, no values"
    assert container_of(BITMAP, 3, b"\x81" + bytes(8190) + b"\x80") == [0, 7, 65535]
    assert container_of(ARRAY, 0, b"") == []


@pytest.mark.parametrize("count", [-1, -3, -(2**31), 2**31 - 1])
def test_a_container_of_an_impossible_length_is_reported(count: int) -> None:
    with pytest.raises(ValueError, match="it ends after"):
        container_of(ARRAY, count, b"")


@pytest.mark.parametrize("runs", [[(0, 65535), (0, 65535)], [(65000, 1000)], [(5, 3), (8, 1)], [(9, 1), (2, 1)]])
def test_runs_that_overlap_or_reach_too_far_are_refused(runs: list[tuple[int, int]]) -> None:
    """A few bytes could stand for any number of values."""
    plain = bitmap(set(range(100)))
    content, run = plain.serialize(), struct.pack("<BiHHH", RUN, 100, 1, 0, 99)
    assert content.count(run) == 1
    wrong = struct.pack("<BiH", RUN, 100, len(runs)) + b"".join(struct.pack("<HH", *one) for one in runs)
    with pytest.raises(ValueError, match="do not ascend"):
        Bitmap64.deserialize(content.replace(run, wrong))
