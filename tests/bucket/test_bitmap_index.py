"""The bitmap index: Java's own bytes, both versions, and bytes that are damaged."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

from paimon_cli.bucket.bit_slices import bitmap_bytes
from paimon_cli.bucket.bitmap_index import BitmapForm, BitmapIndex, BitmapKind, _Decoder
from paimon_cli.datatypes.arrow_types import values_to_arrow
from paimon_cli.datatypes.canonical_form import from_canonical
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.options.table_options import TableOptions
from tests.vectors import load

CASES = [case for case in load("file_index") if "bitmap_type" in case["in"] and "bytes" in case["out"]]


def column(values: list[Any], sql: str) -> pa.Array:
    t = parse_type(sql)
    return values_to_arrow([None if value is None else from_canonical(value, t) for value in values], t)


@pytest.mark.parametrize("case", CASES, ids=[f"{n}-{case['in']['bitmap_type']}" for n, case in enumerate(CASES)])
def test_java_s_own_bytes(case: dict[str, Any]) -> None:
    """Paimon's BitmapFileIndex wrote them, in the order of a hash table, and answered the probes."""
    given, sql = case["in"], case["in"]["bitmap_type"]
    theirs = BitmapIndex.from_bytes(bytes.fromhex(case["out"]["bytes"]), parse_type(sql), len(given["rows"]))
    mine = BitmapIndex(parse_type(sql), BitmapForm(1))
    mine.add(column(given["rows"], sql))
    assert theirs.to_bytes() == mine.to_bytes(), "the same values at the same positions"
    assert len(mine.to_bytes()) == len(bytes.fromhex(case["out"]["bytes"]))
    found = mine.may_hold(column(given["probes"], sql))
    answers = zip(given["probes"], case["out"]["equal"], strict=True)
    assert found.tolist() == [bool(rows) for probe, rows in answers if probe is not None]


def index_of(values: list[Any], sql: str, form: BitmapForm) -> BitmapIndex:
    index = BitmapIndex(parse_type(sql), form)
    index.add(column(values, sql))
    return index


def test_the_second_version_byte_by_byte() -> None:
    """Two blocks of one value each, a null, and values in one row and in two (Java BitmapFileIndexMetaV2)."""
    content = index_of([7, 8, None, 7], "INT", BitmapForm(2, 17)).to_bytes()
    sevens = bytes.fromhex("3a300000010000000000010010000000" + "00000300")
    head = bytes.fromhex("02" + "00000004" + "00000002" + "01" + "fffffffd")
    nulls = len(bytes.fromhex("3a3000000100000000000000100000000200"))
    blocks = bytes.fromhex("00000002" + "00000007" + "00000000" + "00000008" + "00000010" + "00000020")
    first = bytes.fromhex("00000001" + "00000007" + "00000000") + len(sevens).to_bytes(4, "big")
    second = bytes.fromhex("00000001" + "00000008" + "fffffffe" + "ffffffff")
    assert content == head + nulls.to_bytes(4, "big") + blocks + first + second + sevens


ASCENDING: dict[str, list[Any]] = {
    "STRING": ["", "a", "aa", "b", "ba", "z", "ö", "😀"],
    "BOOLEAN": [False, True],
    **{sql: [-100, -1, 0, 7, 100] for sql in ("TINYINT", "INT", "BIGINT")},
    "DATE": ["1960-01-01", "1970-01-01", "2024-01-01"],
    "TIMESTAMP(6)": ["1960-01-01T00:00", "1970-01-01T00:00", "2024-01-01T00:00"],
    "DOUBLE": ["-Infinity", -2.5, -1.0, -0.0, 0.0, 1.0, 2.5, "Infinity", "NaN"],
}


@pytest.mark.parametrize("sql", ASCENDING)
def test_values_are_in_the_order_in_which_java_searches_for_them(sql: str) -> None:
    """In blocks of one value and of several (Java compares a value with the first one of each block)."""
    values = ASCENDING[sql]
    alone = [next(iter(_Decoder(index_of([value], sql, BitmapForm()).to_bytes(), parse_type(sql)).offsets)) for value in values]
    for block_bytes in (1, 40, 1 << 14):
        content = index_of([*values[1::2], *values[::-2], *values], sql, BitmapForm(2, block_bytes)).to_bytes()
        assert list(_Decoder(content, parse_type(sql)).offsets) == alone


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("sql", ["INT", "BIGINT", "SMALLINT", "TINYINT"])
def test_numbers_are_sorted_by_value(version: int, sql: str) -> None:
    values = [3, -5, 0, 100, -100, 3]
    index = index_of(values, sql, BitmapForm(version, 20))
    again = BitmapIndex.from_bytes(index.to_bytes(), parse_type(sql), len(values))
    assert again.may_hold(column([-100, -5, 0, 3, 100, 1], sql)).tolist() == [True] * 5 + [False]
    parts = index_of(values[:2], sql, BitmapForm(version, 20))
    parts.merge(index_of(values[2:], sql, BitmapForm(version, 20)))
    assert parts.to_bytes() == index.to_bytes()


@pytest.mark.parametrize("version", [1, 2])
def test_damage_is_refused(version: int) -> None:
    content = index_of(["a", "b", None, "a", None], "STRING", BitmapForm(version)).to_bytes()
    t = parse_type("STRING")
    for cut in range(len(content)):
        with pytest.raises(ValueError):
            BitmapIndex.from_bytes(content[:cut], t, 5).to_bytes()
    with pytest.raises(ValueError, match="version 3"):
        BitmapIndex.from_bytes(b"\x03" + content[1:], t, 5)
    with pytest.raises(ValueError, match="after the last row"):
        BitmapIndex.from_bytes(content[:1] + (1).to_bytes(4, "big") + content[5:], t, 1).to_bytes()
    with pytest.raises(ValueError, match="its file has 4"):
        BitmapIndex.from_bytes(content, t, 4)
    with pytest.raises(ValueError):
        BitmapIndex.from_bytes(content[:5] + b"\x7f\xff\xff\xff" + content[9:], t, 5)


def test_a_bitmap_that_all_values_share_is_refused() -> None:
    """A large one would take its memory for each of many values."""
    entries = b"".join(number.to_bytes(4, "big") + bytes(4) for number in range(1000))
    body = b"\x01" + struct.pack(">iib", 9, 1000, 0) + entries + bitmap_bytes(BitMap(range(5)))
    index = BitmapIndex.from_bytes(body, parse_type("INT"), 9)
    with pytest.raises(ValueError, match="more values than rows"):
        index.to_bytes()


def test_each_block_begins_where_it_says() -> None:
    """Java opens only the block that may hold a value; a block is as large as the option says."""
    options = TableOptions({"file-index.bitmap.c.index-block-size": "64 b"})
    index = BitmapKind().empty(DataField(0, "c", parse_type("INT")), options)
    index.add(pa.array(range(30), pa.int32()))
    numbers = np.frombuffer(index.to_bytes()[10:], ">i4")
    count = int(numbers[0])
    firsts, begins = numbers[1 : 1 + 2 * count : 2].tolist(), numbers[2 : 2 + 2 * count : 2].tolist()
    content = numbers[2 + 2 * count :]
    assert numbers[1 + 2 * count] == 4 * len(content) and len(begins) == 6
    for first, begin, end in zip(firsts, begins, [*begins[1:], 4 * len(content)], strict=True):
        block = content[begin // 4 : end // 4]
        assert block[0] == 5 and block[1:].tolist() == [n for at in range(5) for n in (first + at, -1 - first - at, -1)]


@pytest.mark.parametrize("sql", ["FLOAT", "DOUBLE"])
def test_every_nan_is_that_of_java(sql: str) -> None:
    form, bits = ("f4", [0x7FC00001, 0xFFC00000]) if sql == "FLOAT" else ("f8", [0x7FF8000000000001, 0xFFF8000000000000])
    index = BitmapIndex(parse_type(sql), BitmapForm())
    index.add(pa.array(np.array(bits, form.replace("f", "u")).view(form)))
    assert index.to_bytes() == index_of(["NaN", "NaN"], sql, BitmapForm()).to_bytes()
    java = bytes.fromhex("7fc00000" if sql == "FLOAT" else "7ff8000000000000")
    assert [*_Decoder(index.to_bytes(), parse_type(sql)).offsets] == [java]


def test_nanoseconds_are_kept_as_microseconds() -> None:
    """Java rounds down, also before 1970."""
    index = index_of(["1969-12-31T23:59:59.999999001", "1970-01-01T00:00:00.000001999"], "TIMESTAMP(9)", BitmapForm())
    found = _Decoder(index.to_bytes(), parse_type("TIMESTAMP(9)")).offsets
    assert [int.from_bytes(key, "big", signed=True) for key in found] == [-1, 1]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (struct.pack(">biib4i", 1, 3, 2, 0, 7, -1, 7, -2), "values twice"),
        (struct.pack(">biib2i", 1, 3, 1, 0, 7, -4), "after the last row"),
        (struct.pack(">biib2i", 1, 3, 1, 0, 7, 0) + bitmap_bytes(BitMap([0, 3])), "after the last row"),
        (struct.pack(">biib8i", 2, 3, 1, 0, 1, 7, 0, 8, 1, 7, -1, -1), "end elsewhere"),
    ],
    ids=["twice", "one row", "rows", "blocks"],
)
def test_contradictions_are_refused(body: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        BitmapIndex.from_bytes(body, parse_type("INT"), 3).to_bytes()


def test_types_whose_equal_values_may_differ_are_not_consulted() -> None:
    """0.0 and -0.0, and texts with and without padding."""
    expected = dict.fromkeys(("STRING", "VARCHAR(3)", "BOOLEAN", "INT", "DATE", "TIME(3)", "TIMESTAMP(3)"), True)
    expected |= dict.fromkeys(("CHAR(3)", "FLOAT", "DOUBLE", "DECIMAL(5, 2)", "BYTES"), False)
    assert {sql: BitmapKind().is_consulted(parse_type(sql)) for sql in expected} == expected


def test_options_and_types() -> None:
    kind, field = BitmapKind(), DataField(0, "c", parse_type("INT"))
    first = kind.empty(field, TableOptions({"file-index.bitmap.c.version": "1"}))
    assert first.to_bytes()[:1] == b"\x01" and kind.empty(field, TableOptions({})).to_bytes()[:1] == b"\x02"
    with pytest.raises(UsageError, match="version"):
        kind.empty(field, TableOptions({"file-index.bitmap.c.version": "3"}))
    for sql in ("BYTES", "DECIMAL(10, 2)", "ARRAY<INT>"):
        with pytest.raises(NotSupported):
            kind.check(DataField(0, "c", parse_type(sql) if "<" not in sql else values_type()))
    assert not kind.is_consulted(parse_type("DOUBLE")) and kind.is_consulted(parse_type("TIMESTAMP(9)"))


def values_type() -> Any:
    from paimon_cli.datatypes.data_type import ArrayType

    return ArrayType(parse_type("INT"))
