"""Functions that collect values: what counts as the same, as newer, and as acceptable."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.errors import UsageError
from paimon_cli.lsm.aggregators.aggregator import ADD, RETRACT, Aggregator, column_history, from_python, python_values
from paimon_cli.lsm.aggregators.catalog import aggregator_of
from paimon_cli.lsm.aggregators.collected_values import NestedTable, rank
from paimon_cli.options.table_options import TableOptions

NAN = math.nan


def made(function: str, column: str, **options: str) -> Aggregator:
    texts = {f"fields.f.{name.replace('_', '-')}": text for name, text in options.items()}
    return aggregator_of(function, DataField(0, "f", parse_sql_type(column)), TableOptions(texts))


def test_nested_rows_are_newer_by_values_that_compare_as_in_java() -> None:
    """Each value is greater than the one before it: null, then numbers from -0.0 up to NaN; rows field by field, and so on."""
    orders: dict[pa.DataType, list[Any]] = {
        pa.float64(): [None, -math.inf, -1.0, -0.0, 0.0, 5e-324, math.inf, NAN],
        pa.float32(): [None, -0.0, 0.0, 1.5, NAN],
        pa.bool_(): [None, False, True],
        pa.string(): [None, "", "a", "ab", "\uffff", "\U00010000"],
        pa.binary(): [None, b"", b"\x7f", b"\x80"],
        pa.list_(pa.float64()): [None, [], [None], [-0.0], [0.0], [0.0, None], [NAN], [NAN, None]],
        pa.struct({"a": pa.int32(), "b": pa.float64()}): [
            None,
            {"a": None, "b": NAN},
            {"a": 1, "b": None},
            {"a": 1, "b": NAN},
            {"a": 2, "b": 0.0},
        ],
        pa.map_(pa.int32(), pa.float64()): [None, [], [(1, NAN)], [(2, None)], [(2, 1.0)], [(2, NAN)], [(1, 0.0), (2, 0.0)]],
    }
    for kind, ascending in orders.items():
        table = NestedTable("c", pa.struct([("k", pa.int32()), ("s", kind), ("v", pa.string())]), ("k",), ("s",))
        for at, value in enumerate(ascending):
            for other_at, other in enumerate(ascending):
                held, row = [{"k": 1, "s": value, "v": "old"}], {"k": 1, "s": other, "v": "new"}
                assert table.updated().add(held, [row])[0]["v"] == ("new" if other_at >= at else "old"), (kind, value, other)
        assert rank(float("nan"), pa.float64()) == rank(-float("nan"), pa.float64())


def test_rows_are_removed_by_their_key_whatever_is_to_become_of_nulls_in_it() -> None:
    """Rows from before the option are removed like all others, and a removal is not refused, as in Java."""
    row_type = pa.struct([("k", pa.int32()), ("v", pa.int32())])
    held = [{"k": None, "v": 1}, {"k": 1, "v": 2}, None, {"k": 2, "v": 3}]
    for null_key in ("merge", "ignore", "error"):
        take_back = NestedTable("c", row_type, ("k",), null_key=null_key).updated().take_back
        assert take_back is not None
        assert take_back(held, [{"k": None, "v": 9}, None, {"k": 2, "v": 9}]) == [{"k": 1, "v": 2}]
        assert take_back(held, [{"k": 1, "v": 9}]) == [{"k": None, "v": 1}, {"k": 2, "v": 3}]


@pytest.mark.parametrize(
    ("function", "column", "options", "message"),
    [
        ("merge_map_with_keytime", "MAP<INT, ROW<v INT, t TIMESTAMP(3)>>", {}, "a ROW whose field t is a text"),
        ("merge_map_with_keytime", "MAP<INT, ROW<t INT, s STRING>>", {"ts_field": "t"}, "a ROW whose field t is a text"),
        ("merge_map_with_keytime", "MAP<INT, VARIANT>", {}, "ROW with two fields or more"),
        ("nested_update", "ARRAY<VARIANT>", {}, "ARRAY of ROW"),
        ("nested_update", "ARRAY<ROW<k INT>>", {"nested_key": "k", "nested_sequence_field": "s"}, "rows with the field s"),
        ("nested_update", "ARRAY<ROW<k INT, s VARIANT>>", {"nested_key": "k", "nested_sequence_field": "s"}, "of s lack"),
        ("nested_update", "ARRAY<ROW<k INT, s ROW<a VARIANT>>>", {"nested_key": "k", "nested_sequence_field": "s"}, "of s lack"),
    ],
)
def test_types_that_would_fail_at_the_first_merge_are_refused(
    function: str, column: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError) as failure:
        made(function, column, **options)
    assert message in str(failure.value)


TIMES = {
    "DATE": [-1_000_000, 0, 5_000_000],
    "TIME(3)": [0, 86_399_999],
    "TIMESTAMP(3)": [-62_135_596_800_001, 253_402_300_800_000],
    "TIMESTAMP_LTZ(6)": [-62_135_596_800_000_001, 0],
    "TIMESTAMP(9)": [1, -1, 1_577_836_800_123_456_789],
}


@pytest.mark.parametrize("item", TIMES)
def test_dates_and_times_are_collected_of_any_year_and_to_the_last_digit(item: str) -> None:
    """Python's own end in the year 9999 and with the microsecond."""
    first, *more = TIMES[item]
    for column, wrap in (
        (f"ARRAY<{item}>", lambda values: values),
        (f"ARRAY<ROW<a {item} NOT NULL, b INT>>", lambda values: [None, *({"a": value, "b": 1} for value in values)]),
        (f"ARRAY<MAP<{item}, {item}>>", lambda values: [[(value, value)] for value in values]),
        (f"ARRAY<ARRAY<{item}>>", lambda values: [values, None]),
    ):
        kind = arrow_type(parse_sql_type(column))
        cells = from_python([None, wrap([first]), wrap([first, *more]), wrap([first])], kind)
        history = column_history(np.arange(4), np.array([0]), np.array([ADD, ADD, ADD, RETRACT]))
        found = made("collect", column).merge(cells, history)
        assert found.type == kind
        added = [*wrap([first]), *wrap([first, *more])]
        for taken in wrap([first]):
            added.remove(taken)
        assert python_values(found) == [added]
