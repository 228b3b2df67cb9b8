"""The hashes of Bloom filters, value by value beside plain Python, and the settings of their columns."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from paimon_cli.bucket.bloom_index import BloomIndex, BloomKind, byte_hashes, index_hashes
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.errors import UsageError
from paimon_cli.metadata.index_files import BloomFilter
from paimon_cli.options.table_options import TableOptions

P = (11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579, 2870177450012600261)
MASK = (1 << 64) - 1


def rotated(number: int, bits: int) -> int:
    return (number << bits | number >> (64 - bits)) & MASK


def mixed_in(state: int, lane: int) -> int:
    return rotated((state + lane * P[1]) & MASK, 31) * P[0] & MASK


def xx_hash(data: bytes) -> int:
    """xxHash64 with seed 0, as its specification says."""
    words = [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data) // 8 * 8, 8)]
    full = len(data) // 32 * 4
    state = P[4]
    if full:
        lanes = [(P[0] + P[1]) & MASK, P[1], 0, -P[0] & MASK]
        for at in range(full):
            lanes[at % 4] = mixed_in(lanes[at % 4], words[at])
        state = sum(rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & MASK
        for lane in lanes:
            state = ((state ^ mixed_in(0, lane)) * P[0] + P[3]) & MASK
    state = (state + len(data)) & MASK
    for word in words[full:]:
        state = (rotated(state ^ mixed_in(0, word), 27) * P[0] + P[3]) & MASK
    rest = data[len(words) * 8 :]
    if len(rest) >= 4:
        state = (rotated(state ^ (int.from_bytes(rest[:4], "little") * P[0] & MASK), 23) * P[1] + P[2]) & MASK
        rest = rest[4:]
    for byte in rest:
        state = rotated(state ^ (byte * P[4] & MASK), 11) * P[0] & MASK
    for bits, prime in ((33, P[1]), (29, P[2])):
        state = (state ^ state >> bits) * prime & MASK
    return state ^ state >> 32


def test_bytes_of_every_length() -> None:
    """Also within a slice, beside nulls, and where all are empty."""
    assert (xx_hash(b""), xx_hash(b"a")) == (0xEF46DB3751D8E999, 0xD24EC4F1A98C6E5B)
    chance = random.Random(5)
    values = [chance.randbytes(size) for size in [*range(131), 4096]]
    chance.shuffle(values)
    column = pa.array([b"before", None, *values], pa.binary())
    assert byte_hashes(column.slice(2)).tolist() == [xx_hash(value) for value in values]
    assert index_hashes(column, parse_type("BYTES")).tolist() == [xx_hash(value) for value in [b"before", *values]]
    for empty in ([], [b""], [b"", b""]):
        assert byte_hashes(pa.array(empty, pa.binary())).tolist() == [xx_hash(b"")] * len(empty)


def wang(number: int) -> int:
    """Thomas Wang's mix with signed numbers of 64 bits."""

    def cut(value: int) -> int:
        return (value + (1 << 63) & MASK) - (1 << 63)

    number = cut(~number + (number << 21))
    number ^= number >> 24
    number = cut(number * 265)
    number ^= number >> 14
    number = cut(number * 21)
    number ^= number >> 28
    return cut(number + (number << 31)) & MASK


NUMBERS = [0, 1, -1, 127, -128]


@pytest.mark.parametrize(
    ("sql", "column", "numbers"),
    [
        ("TINYINT", pa.array(NUMBERS, pa.int8()), NUMBERS),
        ("BIGINT", pa.array([2**63 - 1, -(2**63), *NUMBERS]), [2**63 - 1, -(2**63), *NUMBERS]),
        ("DATE", pa.array(NUMBERS, pa.date32()), NUMBERS),
        ("TIME(3)", pa.array([0, 86_399_999], pa.time32("ms")), [0, 86_399_999]),
        ("TIMESTAMP(3)", pa.array(NUMBERS, pa.timestamp("ms")), NUMBERS),
        ("TIMESTAMP(6)", pa.array(NUMBERS, pa.timestamp("us")), NUMBERS),
        ("TIMESTAMP(9)", pa.array([-1, 999, 1000, -1001], pa.timestamp("ns")), [-1, 0, 1, -2]),
        (
            "FLOAT",
            pa.array(np.array([0x3F800000, 0xBF800000, 0x7FC00001, 0xFFC00000], "u4").view("f4")),
            [0x3F800000, -0x40800000],
        ),
        ("DOUBLE", pa.array(np.array([1 << 62, 1 << 63, (0x7FF << 52) + 1, MASK], "u8").view("f8")), [1 << 62, -(1 << 63)]),
    ],
)
def test_numbers(sql: str, column: pa.Array, numbers: list[int]) -> None:
    """Every NaN is that of Java."""
    nan = {"FLOAT": [0x7FC00000] * 2, "DOUBLE": [0x7FF8 << 48] * 2}.get(sql, [])
    assert index_hashes(column, parse_type(sql)).tolist() == [wang(number) for number in [*numbers, *nan]]


@pytest.mark.parametrize("rate", ["0", "1", "-0.1", "1.5", "nan", "none"])
def test_rates_that_no_filter_has(rate: str) -> None:
    options = TableOptions({"file-index.bloom-filter.c.fpp": rate})
    with pytest.raises(UsageError, match="fpp"):
        BloomKind().empty(DataField(0, "c", parse_type("INT")), options)


def test_a_filter_is_as_large_as_its_options_say() -> None:
    options = {"file-index.bloom-filter.c.items": "1000", "file-index.bloom-filter.c.fpp": "0.01"}
    found = BloomKind().empty(DataField(0, "c", parse_type("INT")), TableOptions(options)).to_bytes()
    assert found == BloomFilter.sized(1000, 0.01).to_bytes()


def test_filters_of_types_whose_equal_values_may_differ_are_not_consulted() -> None:
    expected = {"STRING": True, "INT": True, "TIMESTAMP(6)": True, "CHAR(3)": False, "FLOAT": False, "DOUBLE": False}
    assert {sql: BloomKind().is_consulted(parse_type(sql)) for sql in expected} == expected


def test_only_filters_of_one_form_are_merged() -> None:
    """A filter of another size or with other functions would lose values, and reads would leave their rows out."""

    def index(bits: int, hash_functions: int) -> BloomIndex:
        return BloomIndex(parse_type("INT"), BloomFilter(hash_functions, np.zeros(bits // 8, np.uint8)))

    assert index(64, 3).fits(index(64, 3))
    assert not index(64, 3).fits(index(128, 3))
    assert not index(64, 3).fits(index(64, 4))
    first, second = index(64, 3), index(64, 3)
    first.add(pa.array([1, 2], pa.int32()))
    second.add(pa.array([3], pa.int32()))
    first.merge(second)
    assert first.may_hold(pa.array([1, 2, 3], pa.int32())).all()
