"""Casts of typed columns, as `read` calls them through `test_rows`: here what depends on how a column lies in memory."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from paimon_cli.datatypes.data_type import DOUBLE, STRING
from paimon_cli.ingest.faults import BadCells
from paimon_cli.ingest.typed_columns import cast_atomic

MIXED = pa.array([b"\xff", b"a", b"\xc3\xa4", None, b"\xe2\x82", b"z"]).view(pa.string())


@pytest.mark.parametrize(
    ("start", "length", "refused"),
    [(0, 6, [0, 4]), (1, 3, []), (1, 1, []), (2, 3, [2]), (0, 0, []), (3, 1, []), (5, 1, [])],
)
def test_only_the_bytes_of_a_slice_have_to_be_utf_8(start: int, length: int, refused: list[int]) -> None:
    texts = MIXED.slice(start, length)
    if refused:
        with pytest.raises(BadCells) as caught:
            cast_atomic(texts, STRING)
        assert [cell.row for cell in caught.value.cells] == refused
    else:
        assert cast_atomic(texts, STRING) is texts


@pytest.mark.parametrize("texts", [[], [None, None], [""], ["", None]])
def test_texts_without_bytes_are_valid(texts: list[str | None]) -> None:
    assert cast_atomic(pa.array(texts, pa.string()), STRING).to_pylist() == texts


@pytest.mark.parametrize(
    ("text", "type_of_decimals"),
    [
        ("0.1", pa.decimal128(38, 18)),  # how Spark stores Python's decimals
        ("-0.000000000000000123", pa.decimal128(38, 18)),
        ("123456789.012345", pa.decimal128(20, 10)),
        ("-999999999999999", pa.decimal128(15, 0)),
        ("123456789012345E+20", pa.decimal256(60, 3)),
        ("0", pa.decimal128(38, 38)),
    ],
)
def test_a_decimal_that_becomes_a_double_keeps_its_digits(text: str, type_of_decimals: pa.DataType) -> None:
    decimals = pa.array([None, Decimal(text)], type_of_decimals)
    assert cast_atomic(decimals, DOUBLE).to_pylist() == [None, float(text)]
