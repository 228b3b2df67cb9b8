"""The canonical JSON form, from and to values and Arrow columns."""

from __future__ import annotations

import json
from contextlib import nullcontext
from decimal import Decimal

import pyarrow as pa
import pytest

from paimon_cli.datatypes.arrow_types import arrow_field, arrow_type, values_from_arrow, values_to_arrow
from paimon_cli.datatypes.canonical_form import (
    canonical_column,
    canonical_json,
    canonical_rows,
    canonical_texts,
    from_canonical,
    json_texts,
)
from paimon_cli.datatypes.data_type import MAX_LENGTH, ArrayType, DataField, JsonText
from paimon_cli.datatypes.field_types import parse_type
from tests.vectors import load

CELLS: dict[str, list[object]] = {
    "BOOLEAN": [True, False, None],
    "TINYINT": [-128, 127],
    "BIGINT": [-(2**63), 2**63 - 1, None],
    "FLOAT": [0.10000000149011612, "NaN", "-Infinity", None],
    "DOUBLE": [0.1, 1e300, "Infinity"],
    "STRING": ["", "表 \u0000", None],
    "BYTES": ["", "00ff", None],
    "DECIMAL(5, 2)": ["-1.50", "0.00", "999.99"],
    "DECIMAL(38, 10)": ["0.0000000000", "-0.0000000001", "1234567890123456789012345678.0123456789", None],
    "DATE": ["0001-01-01", "1969-12-31", "9999-12-31", None],
    "TIME(3)": ["00:00:00", "10:11:12.5", "23:59:59.999", None],
    "TIMESTAMP(0)": ["1970-01-01T00:00:00", "9999-12-31T23:59:59", None],
    "TIMESTAMP(3)": ["1969-12-31T23:59:59.999", "2024-02-29T10:20:00", "2024-01-01T10:00:10"],
    "TIMESTAMP(6)": ["0001-01-01T00:00:00.000001", "2024-01-01T00:00:00.1"],
    "TIMESTAMP(9)": ["1969-12-31T23:59:59.123456789", "2024-01-01T00:00:00.00000001"],
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": ["1969-12-31T23:59:59.999999Z", "2024-01-01T00:00:00Z", None],
}
NESTED: list[tuple[dict[str, object], list[object]]] = [
    ({"type": "ARRAY", "element": "TIMESTAMP(6)"}, [["2024-01-01T00:00:00", None], [], None]),
    ({"type": "MAP", "key": "STRING NOT NULL", "value": "DECIMAL(4, 1)"}, [[["a", "1.0"], ["b", None]], [], None]),
    ({"type": "MULTISET", "element": "BYTES"}, [[["00", 2], ["ff", 1]]]),
    (
        {"type": "ROW", "fields": [{"name": "d", "type": "DATE"}, {"name": "l", "type": {"type": "ARRAY", "element": "INT"}}]},
        [{"d": "2024-01-01", "l": [1, 2]}, {"d": None, "l": None}, None],
    ),
]
ALL: list[tuple[str | dict[str, object], list[object]]] = [*CELLS.items(), *NESTED]


@pytest.mark.parametrize(("given", "cells"), ALL, ids=str)
def test_values_and_columns_render_alike(given: str | dict[str, object], cells: list[object]) -> None:
    t = parse_type(given)
    values = [from_canonical(cell, t) for cell in cells]
    assert [canonical_json(value, t) for value in values] == cells
    array = values_to_arrow(values, t)
    assert array.type == arrow_type(t)
    assert canonical_column(array, t) == cells
    assert canonical_column(pa.chunked_array([array, array.slice(1)]), t) == cells + cells[1:]


@pytest.mark.parametrize(("given", "cells"), [case for case in ALL if "NaN" not in case[1]], ids=str)
def test_values_through_arrow(given: str | dict[str, object], cells: list[object]) -> None:
    t = parse_type(given)
    values = [from_canonical(cell, t) for cell in cells]
    array = values_to_arrow(values, t)
    assert values_from_arrow(array, t) == values
    assert values_from_arrow(array.slice(1), t) == values[1:]


def test_rows_of_a_batch() -> None:
    fields = [DataField(0, "k", parse_type("INT NOT NULL")), DataField(1, "d", parse_type("DATE"))]
    batch = pa.RecordBatch.from_arrays(
        [values_to_arrow([1, 2], fields[0].type), values_to_arrow([0, None], fields[1].type)],
        schema=pa.schema(map(arrow_field, fields)),
    )
    rows = [{"k": 1, "d": "1970-01-01"}, {"k": 2, "d": None}]
    assert list(canonical_rows(batch, fields)) == rows
    assert list(canonical_rows(pa.Table.from_batches([batch, batch]), fields)) == rows + rows
    assert list(canonical_rows(batch, fields[1:])) == [{"d": "1970-01-01"}, {"d": None}]
    assert list(canonical_rows(batch, [])) == [{}, {}]


def test_entries_are_sorted_by_the_json_of_the_key() -> None:
    t = parse_type({"type": "MAP", "key": "INT NOT NULL", "value": "INT"})
    assert canonical_json([(9, 1), (10, 2), (-1, 3)], t) == [[-1, 3], [10, 2], [9, 1]]


def test_years_beyond_four_digits_and_times_beyond_the_day() -> None:
    day, stamp, time = parse_type("DATE"), parse_type("TIMESTAMP(3)"), parse_type("TIME(3)")
    assert canonical_column(values_to_arrow([2932897, -719529], day), day) == ["+10000-01-01", "-0001-12-31"]
    assert canonical_column(pa.array([253402300800000], pa.timestamp("ms")), stamp) == ["+10000-01-01T00:00:00"]
    cells = [{"raw_millis": 86400000}, "00:00:00"]
    assert canonical_column(values_to_arrow([86400000, 0], time), time) == cells
    assert [from_canonical(cell, time) for cell in cells] == [86400000, 0]


def test_values_of_the_vectors_come_back() -> None:
    count = 0
    for line in load("binary_row"):
        for cell, json_type in zip(line["in"]["row"], line["in"]["types"], strict=True):
            t = parse_type(json_type)
            back = canonical_json(from_canonical(cell, t), t)
            if not any(root in json.dumps(json_type) for root in ("MAP", "MULTISET", "ROW")):
                assert back == cell
                count += 1
            elif cell is not None:
                assert len(back) == len(cell)
    assert count > 1000


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("BOOLEAN", 1),
        ("TINYINT", 128),
        ("INT", True),
        ("INT", 1.0),
        ("BIGINT", "1"),
        ("DOUBLE", "1"),
        ("DECIMAL(5, 2)", 1.5),
        ("DECIMAL(5, 2)", "1000.00"),
        ("DECIMAL(5, 2)", "0.001"),
        ("DECIMAL(5, 2)", "1E+999999"),
        ("DECIMAL(5, 2)", "1E-999999"),
        ("DECIMAL(5, 2)", "NaN"),
        ("DECIMAL(5, 2)", "x"),
        ("DECIMAL(5, 2)", "1_00"),
        ("DECIMAL(5, 2)", " 1"),
        ("DECIMAL(5, 2)", "\u0661"),
        ("DECIMAL(5, 2)", [0, [1, 2], -1]),
        ("STRING", 1),
        ("BYTES", "0"),
        ("BYTES", 5),
        ("BYTES", "00 ff"),
        ("DATE", "2023-02-29"),
        ("DATE", 5),
        ("TIME(3)", "24:00:00"),
        ("TIME(3)", {"raw_millis": "1_0"}),
        ("TIME(3)", {"raw_millis": Decimal("1E+999999999")}),
        ("TIME(3)", {"millis": 1}),
        ("TIMESTAMP(3)", "2024-01-01T00:00:60"),
        ("TIMESTAMP(3)", "yesterday"),
    ],
)
def test_cells_that_do_not_fit_name_the_type(text: str, cell: object) -> None:
    with pytest.raises(ValueError, match=text.split("(")[0]):
        from_canonical(cell, parse_type(text))


@pytest.mark.parametrize(
    ("given", "cell"), [(NESTED[0][0], "x"), (NESTED[1][0], [["a"]]), (NESTED[3][0], {"x": 1}), (NESTED[3][0], 3)]
)
def test_nested_cells_that_do_not_fit(given: str | dict[str, object], cell: object) -> None:
    with pytest.raises(ValueError):
        from_canonical(cell, parse_type(given))


@pytest.mark.parametrize(
    ("cell", "value"), [(3, "3.00"), ("-0", "0.00"), ("1E+2", "100.00"), ("0E-99", "0.00"), ("2.500", "2.50")]
)
def test_decimals_take_the_scale_of_the_column(cell: object, value: str) -> None:
    assert str(from_canonical(cell, parse_type("DECIMAL(5, 2)"))) == str(Decimal(value))


@pytest.mark.parametrize(
    ("text", "cell", "taken"),
    [
        ("DECIMAL(5, 2)", "1" * 200_000 + "x", False),
        ("DECIMAL(5, 2)", "0" * 200_000 + "1.", True),
        ("DECIMAL(5, 2)", ".", False),
        ("DECIMAL(5, 2)", ".5e1", True),
        ("BYTES", "0f" * 4_000_000, True),
        ("BYTES", "0f" * 4_000_000 + "0", False),
        ("BYTES", "0f" * 4_000_000 + " 0f", False),
    ],
    ids=lambda one: one[:9] if isinstance(one, str) else str(one),
)
def test_long_cells_are_judged_at_once(text: str, cell: str, taken: bool) -> None:
    """A pattern that goes back over the digits takes hours for such a number, and one with a group gigabytes for such bytes."""
    with nullcontext() if taken else pytest.raises(ValueError, match="expected"):
        from_canonical(cell, parse_type(text))


def test_keys_that_are_no_ascii_are_sorted_by_their_json() -> None:
    """Python's escapes of such keys would come before other letters."""
    t = parse_type({"type": "MAP", "key": "STRING NOT NULL", "value": "INT"})
    assert canonical_json([("ä", 1), ("z", 2), ("a", 3)], t) == [["a", 3], ["z", 2], ["ä", 1]]


def test_small_decimals_have_no_exponent() -> None:
    t = parse_type("DECIMAL(38, 20)")
    cells = ["0.00000000000000000001", "-0.00000000000000000010", None, "0.00000000000000000000"]
    values = pa.array([None if cell is None else Decimal(cell) for cell in cells], arrow_type(t))
    assert canonical_column(values, t) == cells and canonical_texts(values, t).to_pylist() == cells


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
def test_numbers_that_are_not_finite_are_texts_beside_nulls(kind: str) -> None:
    t = parse_type(kind)
    values = pa.array([float("nan"), None, float("inf"), float("-inf"), 0.5], arrow_type(t))
    cells = ["NaN", None, "Infinity", "-Infinity", 0.5]
    assert canonical_column(values, t) == cells
    texts, is_quoted = json_texts(values, t)
    assert texts.to_pylist() == ['"NaN"', "null", '"Infinity"', '"-Infinity"', "0.5"] and not is_quoted
    assert [from_canonical(cell, t) for cell in cells[2:]] == [float("inf"), float("-inf"), 0.5]


@pytest.mark.parametrize("cell", ["1", "inf", "nan", "-infinity", "", True])
def test_only_three_texts_are_floats(cell: object) -> None:
    with pytest.raises(ValueError, match="DOUBLE"):
        from_canonical(cell, parse_type("DOUBLE"))


def test_a_row_has_no_field_that_its_type_lacks() -> None:
    t = parse_type(NESTED[3][0])
    assert from_canonical({"l": [1]}, t) == (None, [1])
    for cell in ({"x": 1}, {"d": None, "x": None}, {"d": None, "l": None, "x": 1}):
        with pytest.raises(ValueError, match="unknown fields"):
            from_canonical(cell, t)


def test_json_within_nested_values_is_no_text_in_quotes() -> None:
    t = ArrayType(JsonText("VARCHAR", MAX_LENGTH))
    values = pa.array([['{"a":1}', None, "[2]"], None], arrow_type(t))
    assert json_texts(values, t)[0].to_pylist() == ['[{"a":1},null,[2]]', "null"]
    assert canonical_texts(values, t).to_pylist() == ['[{"a":1},null,[2]]', None]
