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
from paimon_cli.lsm.aggregators.aggregator import (
    ADD,
    RETRACT,
    REVERSED,
    Aggregator,
    StepByStep,
    column_history,
    from_python,
    python_values,
)
from paimon_cli.lsm.aggregators.catalog import aggregator_of
from paimon_cli.lsm.aggregators.collected_values import NestedTable, identity, rank
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
        ("nested_update", "ARRAY<ROW<k INT, s VARIANT>>", {"nested_key": "k", "nested_sequence_field": "s"}, "does not have"),
        (
            "nested_update",
            "ARRAY<ROW<k INT, s ROW<a VARIANT>>>",
            {"nested_key": "k", "nested_sequence_field": "s"},
            "does not have",
        ),
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


def test_values_are_the_same_if_java_takes_them_for_equal() -> None:
    """NaN equals NaN, -0.0 differs from 0.0, and the order of a map's entries does not count; what they map to does."""
    doubles, entries = pa.float64(), pa.map_(pa.int32(), pa.float64())
    row = pa.struct({"a": doubles, "m": entries})
    different: dict[pa.DataType, list[list[Any]]] = {
        doubles: [[None], [0.0], [-0.0], [NAN, -NAN, float("nan")], [1.0]],
        pa.list_(doubles): [[None], [[]], [[None]], [[0.0]], [[-0.0]], [[NAN], [-NAN]], [[NAN, NAN]]],
        entries: [[None], [[]], [[(1, None)]], [[(1, 0.0)]], [[(1, -0.0)]], [[(1, 0.0), (2, NAN)], [(2, NAN), (1, 0.0)]]],
        row: [
            [None],
            [{"a": 0.0, "m": None}],
            [{"a": -0.0, "m": None}],
            [{"a": 0.0, "m": [(1, NAN)]}, {"m": [(1, -NAN)], "a": 0.0}],
        ],
    }
    for kind, groups in different.items():
        marks = [{identity(value, kind) for value in same} for same in groups]
        assert [len(mark) for mark in marks] == [1] * len(groups) and len(set().union(*marks)) == len(groups), kind


def folded(function: Aggregator, *values: Any, held: Any = None) -> Any:
    """What remains after adding the values, one after the other; a value in a tuple is taken back."""
    assert isinstance(function, StepByStep)
    for value in values:
        if isinstance(value, tuple):
            assert function.take_back is not None
            held = function.take_back(held, *value)
        else:
            held = function.add(held, value)
    return held


def test_distinct_texts_are_joined_once_and_blank_ones_never() -> None:
    join = made("listagg", "STRING", distinct="true", list_agg_delimiter=";")
    assert folded(join, None, " ", "a;a", "b; ;b;;a;c", None, "c;d;d") == "a;a;b;c;d", "the first text stays as it is"
    assert folded(made("listagg", "STRING", distinct="true", list_agg_delimiter=""), "a b", "b  c c") == "a bc"
    plain = made("listagg", "STRING", list_agg_delimiter=" | ")
    history = column_history(np.arange(4), np.array([0]), np.array([ADD, ADD, REVERSED, REVERSED]))
    assert plain.merge(pa.array(["a", "b", "c", "d"]), history).to_pylist() == ["d | c | a | b"]
    lone = column_history(np.arange(3), np.array([0]), np.array([REVERSED, ADD, ADD]))
    assert plain.merge(pa.array([" ", None, "\t"]), lone).to_pylist() == [" "]


def test_items_are_collected_and_taken_back_one_by_one() -> None:
    rows, texts = "ARRAY<ROW<a INT>>", "ARRAY<BYTES>"
    assert folded(made("collect", "ARRAY<INT>"), [1, 2, 1, 1, None], None, ([1, 1, 5, None],), []) == [2, 1]
    assert folded(made("collect", "ARRAY<INT>"), (None,)) is None and folded(made("collect", "ARRAY<INT>"), [1], (None,)) == [1]
    assert folded(made("collect", "ARRAY<INT>", distinct="true"), [1, 1, 2], [2, 3, 3]) == [1, 2, 3]
    assert folded(made("collect", "ARRAY<INT>", distinct="true"), [2, 3, 3], held=[1, 1, 2]) == [1, 2, 3]
    for column, (x, y) in ((rows, ({"a": 1}, {"a": 2})), (texts, (b"x", b"y"))):
        distinct = made("collect", column, distinct="true")
        assert folded(distinct, [y, x, None, y], [None, x], held=[x, x]) == [x, x, y, None]
        assert folded(distinct, None, None) is None and folded(distinct, [x, x]) == [x]
    for options, expected in ({"ignore_retract": "true"}, [3, 1, 2]), ({}, [1, 2, 3]):
        history = column_history(np.arange(2), np.array([0]), np.array([ADD, REVERSED]))
        found = made("collect", "ARRAY<INT>", **options).merge(pa.array([[1, 2], [3]], pa.list_(pa.int32())), history)
        assert found.to_pylist() == [expected]


def test_entries_of_maps_are_merged_and_taken_back_by_key_alone() -> None:
    merge = made("merge_map", "MAP<DOUBLE, INT>")
    assert folded(merge, [(1.0, 1), (NAN, 2)], None, [(NAN, None), (-0.0, 3), (0.0, 4)]) == [
        (1.0, 1),
        (NAN, None),
        (-0.0, 3),
        (0.0, 4),
    ]
    assert folded(merge, ([(NAN, 7), (0.0, None), (5.0, 5)],), held=[(1.0, 1), (NAN, None), (-0.0, 3), (0.0, 4)]) == [
        (1.0, 1),
        (-0.0, 3),
    ]
    assert folded(merge, ([(1.0, 1)],)) is None and folded(merge, [], ([],)) == []


def test_entries_of_timed_maps_change_places_if_they_are_later() -> None:
    column = "MAP<INT, ROW<a STRING, v INT, z STRING>>"
    by_z, by_a = made("merge_map_with_keytime", column), made("merge_map_with_keytime", column, ts_field="a")
    assert by_z != by_a and by_z == made("merge_map_with_keytime", column, ts_field="z")

    def row(a: str | None, z: str | None, v: int) -> dict[str, Any]:
        return {"a": a, "v": v, "z": z}

    assert folded(by_z, [(1, row("9", "5", 0))], [(1, row("0", "5", 1))]) == [(1, row("9", "5", 0))], "not if they are as late"
    assert folded(by_z, [(1, row("9", "5", 0))], [(1, row("0", "6", 1))]) == [(1, row("0", "6", 1))]
    assert folded(by_a, [(1, row("9", "5", 0))], [(1, row("0", "6", 1))]) == [(1, row("9", "5", 0))]
    assert folded(
        by_z, [(1, row("", None, 0)), (2, None)], [(1, row("", "", 1)), (2, row("", None, 1)), (3, row("", "\uffff", 1))]
    ) == [
        (1, row("", "", 1)),
        (2, None),
        (3, row("", "\uffff", 1)),
    ]
    assert folded(by_z, [(3, row("", "\uffff", 1))], [(3, row("", "\U00010000", 2)), (4, None)]) == [(3, row("", "\uffff", 1))]
    assert folded(by_z, [(3, row("", "\uffff", 1))], [(3, None)]) == []


def test_nested_rows_are_limited_in_number() -> None:
    def rows(*pairs: tuple[int | None, int]) -> list[dict[str, Any]]:
        return [{"k": k, "s": 0, "v": v} for k, v in pairs]

    column = "ARRAY<ROW<k INT, s INT, v INT>>"
    keyed = made("nested_update", column, nested_key="k", nested_sequence_field="s", count_limit="2")
    assert folded(keyed, rows((1, 1), (2, 1), (3, 1)), rows((2, 2), (4, 2))) == rows((1, 1), (2, 2))
    assert folded(keyed, rows((3, 2), (4, 2)), held=rows((1, 1), (2, 1), (3, 1))) == rows((1, 1), (2, 1), (3, 2))
    plain = made("nested_update", column, count_limit="3")
    assert folded(plain, rows((1, 1)), [None, *rows((1, 1), (2, 2), (3, 3))], rows((4, 4))) == rows((1, 1), (1, 1), (2, 2))
    assert folded(plain, rows((1, 1), (2, 2)), (rows((1, 1), (2, 9)),)) == rows((2, 2)), "removed are rows of which all is equal"
    assert folded(plain, None, rows((1, 1))) == rows((1, 1)) and folded(plain, (rows((1, 1)),)) is None


def test_fields_of_nested_rows_that_are_zero_or_empty_replace_others() -> None:
    column = "ARRAY<ROW<k INT, i INT, b BOOLEAN, t STRING, l ARRAY<INT>>>"
    fill = made("nested_partial_update", column, nested_key="k")
    full = {"k": 1, "i": 5, "b": True, "t": "x", "l": [1]}
    empty: dict[str, Any] = {"k": 1, "i": 0, "b": False, "t": "", "l": []}
    nothing = {"k": 1} | dict.fromkeys("ibtl")
    assert folded(fill, [full], [nothing, None]) == [full] and folded(fill, [full], [empty]) == [empty]
    assert folded(fill, [full, {**nothing, "t": "y"}]) == [{**full, "t": "y"}]
    composite = made("nested_partial_update", column, nested_key="k,i", nested_key_null_strategy="ignore")
    assert folded(composite, [full, nothing]) == [full], "one null is enough"
