"""z-order and Hilbert keys: the bytes of Java 1.4 (ZIndexer, HilbertIndexer) for these rows, and their effect."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.datatypes.space_curves import fits_curve, hilbert, z_order

TYPES = {
    "i": ("INT", pa.int32()),
    "l": ("BIGINT", pa.int64()),
    "s": ("STRING", pa.string()),
    "d": ("DOUBLE", pa.float64()),
    "n": ("DECIMAL(20, 2)", pa.decimal128(20, 2)),
    "b": ("BOOLEAN", pa.bool_()),
    "t": ("TINYINT", pa.int8()),
    "dt": ("DATE", pa.int32()),
    "ts": ("TIMESTAMP(6)", pa.int64()),
    "y": ("BYTES", pa.binary()),
    "f": ("FLOAT", pa.float32()),
    "sm": ("SMALLINT", pa.int16()),
}
VALUES: dict[str, list[Any]] = {
    "i": [1, -1, 123456, -(2**31), None, 7, 300],
    "l": [2, -2, 1 << 40, 2**63 - 1, None, -(2**63), 5],
    "s": ["ab", "", "hello world", "ü", None, "abcdefgh", "b"],
    "d": [1.5, -1.5, 1e300, 0.0, None, -0.0, 2.5],
    "n": ["1.50", "-1.50", "12345678901234567.89", "0.00", None, "-12345678901234567.89", "3.00"],
    "b": [True, False, True, False, None, True, True],
    "t": [1, -1, 100, -128, None, 127, 2],
    "dt": [19000, -5, 0, 1, None, 100000, 2],
    "ts": [1700000000123456, -1700000000123456, 0, 1, None, 999, 2000000],
    "y": [b"\1\2\3", b"", b"\xff\0\1\2\3\4\5\6\7\x08\x09", b"\x80", None, b"\x09" * 8, b"\7"],
    "f": [0.25, -0.25, float("nan"), -0.0, None, 3e38, 1.0],
    "sm": [7, -7, 300, 0, None, -32768, 1],
}
LINES = [line.split(" ") for line in Path(__file__).with_name("space_curves.txt").read_text().splitlines()]
SETS = list(dict.fromkeys(line[0] for line in LINES))


def column(name: str) -> pa.Array:
    values = [None if v is None else Decimal(v) for v in VALUES[name]] if name == "n" else VALUES[name]
    stored = pa.array(values, TYPES[name][1])
    return {"dt": lambda: stored.view(pa.date32()), "ts": lambda: stored.view(pa.timestamp("us"))}.get(name, lambda: stored)()


@pytest.mark.parametrize("curve", [z_order, hilbert])
def test_times_of_each_precision_have_the_keys_of_their_milliseconds(curve: Callable[..., pa.Array]) -> None:
    millis = [0, 1, -1, 1_700_000_000_123, -1_700_000_000_123]
    keys = []
    for digits, unit in ((3, "ms"), (6, "us"), (9, "ns")):
        times = pa.array([one * 10 ** (digits - 3) for one in millis], pa.timestamp(unit))
        keys.append(curve([times], [parse_sql_type(f"TIMESTAMP({digits})")]))
    assert keys[0].equals(keys[1]) and keys[0].equals(keys[2])


@pytest.mark.parametrize("names", SETS)
@pytest.mark.parametrize("sliced", [False, True])
def test_keys_are_those_of_java(names: str, sliced: bool) -> None:
    expected = [line[1:] for line in LINES if line[0] == names]
    columns = [column(name) for name in names.split(",")]
    if sliced:
        columns, expected = [pa.concat_arrays([one, one]).slice(3, 7) for one in columns], expected[3:] + expected[:3]
    types = [parse_sql_type(TYPES[name][0]) for name in names.split(",")]
    assert [key.hex() for key in z_order(columns, types).to_pylist()] == [line[0] for line in expected]
    assert [key.hex() for key in z_order(columns, types, 5).to_pylist()] == [line[1] for line in expected]
    assert [key.hex().rjust(126, "0") for key in hilbert(columns, types).to_pylist()] == [line[2] for line in expected]


@pytest.mark.parametrize("curve", [z_order, hilbert])
def test_stretches_of_a_curve_are_narrow_in_each_column(curve: Any) -> None:
    x, y = np.random.default_rng(1).integers(0, 1 << 20, (2, 20_000))
    keys = curve([pa.array(x), pa.array(y)], [parse_sql_type("BIGINT")] * 2)
    order = np.array(sorted(range(len(x)), key=keys.to_pylist().__getitem__))
    for axis in (x, y):
        pieces = np.split(axis[order], 100)
        assert sum(int(piece.min()) <= 500_000 <= int(piece.max()) for piece in pieces) <= 20


@pytest.mark.parametrize(("text", "expected"), [("INT", True), ("CHAR(3)", True), ("TIME", True), ("ARRAY<INT>", False)])
def test_nested_values_cannot_be_on_a_curve(text: str, expected: bool) -> None:
    assert fits_curve(parse_sql_type(text)) is expected
