"""Values of Python as columns: the types that they take, and what no column holds."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from paimon_cli.datatypes.data_type import DataType
from paimon_cli.datatypes.type_text import parse_type_text
from paimon_cli.datatypes.variant_building import variant_of
from paimon_cli.errors import BadInput
from paimon_cli.ingest.python_values import python_array, table_of_columns, table_of_rows, values_of_columns
from tests.ingest.input_files import schema_of


def sql(text: str) -> DataType:
    return parse_type_text(text, sql=True)


def test_all_rows_name_the_columns() -> None:
    schema = schema_of({"a": "INT", "b": "STRING", "c": "INT"})
    found = table_of_rows([{"a": 1}, {"b": "x"}, {"a": 3, "c": 4}], schema)
    assert found.to_pylist() == [{"a": 1, "b": None, "c": None}, {"a": None, "b": "x", "c": None}, {"a": 3, "b": None, "c": 4}]
    assert table_of_rows([{}, {}], schema).num_rows == 2


def test_nested_values_are_converted_at_every_level() -> None:
    """Decimals are those that were written, and a dict is a MAP, wherever they are."""
    third = Decimal("0.10")
    assert python_array([[0.1, 1, None]], sql("ARRAY<DECIMAL(5, 2)>")).to_pylist() == [[third, Decimal("1.00"), None]]
    assert python_array([[{"a": 0.1}], []], sql("ARRAY<MAP<STRING, DECIMAL(5, 2)>>")).to_pylist() == [[[("a", third)]], []]
    row = sql("ROW<d DECIMAL(5, 2), m MAP<STRING, INT>, r ROW<d DECIMAL(5, 2)>>")
    assert python_array([{"d": 0.1, "m": {"a": 1}, "r": {"d": 0.1}}, None], row).to_pylist() == [
        {"d": third, "m": [("a", 1)], "r": {"d": third}},
        None,
    ]
    assert python_array([np.array([[1, 2], [3, 4]])], sql("ARRAY<ARRAY<INT>>")).to_pylist() == [[[1, 2], [3, 4]]]


def test_decimals_are_what_was_written() -> None:
    values = [0.1, 7, Decimal("2.50"), None]
    assert python_array(values, sql("DECIMAL(10, 2)")).to_pylist() == [Decimal("0.10"), 7, Decimal("2.50"), None]
    for wrong in (float("nan"), float("-inf"), Decimal("Infinity"), Decimal("NaN")):
        with pytest.raises(ValueError, match="a DECIMAL cannot be"):
            python_array([1, wrong], sql("DECIMAL(10, 2)"))


@pytest.mark.parametrize("number", [3.5e38, -3.5e38, 1e300])
def test_a_number_that_is_infinite_as_a_float_stays_what_it_is(number: float) -> None:
    """The column is refused later, with the number in its message."""
    assert python_array([0.5, number], sql("FLOAT")).type == pa.float64()
    schema = schema_of({"f": "FLOAT"})
    with pytest.raises(BadInput):
        values_of_columns({"f": number}, schema)


def test_floats_may_be_infinite_and_none() -> None:
    values = [0.1, float("inf"), float("-inf"), None]
    found = python_array(values, sql("FLOAT"))
    assert found.type == pa.float32() and found.to_pylist() == [np.float32(0.1), float("inf"), float("-inf"), None]
    assert np.isnan(python_array([float("nan"), 0.1], sql("FLOAT"))[0].as_py())


def test_documents_are_json_and_stored_variants_are_not() -> None:
    t = sql("VARIANT")
    assert python_array([{"a": [1]}, {}, [], None, "7", 0, False], t).to_pylist() == [
        '{"a": [1]}',
        "{}",
        "[]",
        None,
        "7",
        "0",
        "false",
    ]
    value, metadata = variant_of({"a": 1})
    stored = {"value": value, "metadata": metadata}
    assert python_array([None, stored], t).to_pylist() == [None, stored]


@pytest.mark.parametrize("wrong", [float("nan"), {"a": float("inf")}, [float("-inf")]])
def test_documents_hold_numbers_of_json_only(wrong: Any) -> None:
    with pytest.raises(BadInput, match="column 'v' cannot be converted"):
        table_of_columns({"v": [1, wrong]}, schema_of({"v": "VARIANT"}))
