"""Aggregate functions over many keys at once: each key has the value that a plain fold over its own operations gives.

The vectors say what each function does with one key's operations; here keys stand beside each other, some untouched, some
without any operation, in columns that are slices of longer ones.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings

from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.errors import BadInput, UsageError
from paimon_cli.lsm.aggregators.aggregator import ADD, RETRACT, REVERSED, SET, SKIP, Aggregator, column_history
from paimon_cli.lsm.aggregators.arithmetic import Product, Sum, wide_decimals, wide_integers
from paimon_cli.lsm.aggregators.catalog import aggregator_of
from paimon_cli.lsm.aggregators.chosen_values import Extreme, FirstValue, LastNonNullValue, LastValue
from paimon_cli.lsm.aggregators.collected_values import JoinedText, NestedTable, collected, distinct_text, merged_map, timed_map
from paimon_cli.options.table_options import TableOptions

Operation = tuple[int, Any]
Fold = Callable[[list[Operation]], Any]


def merged(function: Aggregator, column_type: pa.DataType, keys: list[list[Operation]]) -> list[Any]:
    """Merge a column that is a slice of a longer one, with operations that are not in the order of the rows."""
    values = [value for operations in keys for _, value in operations]
    codes = np.array([code for operations in keys for code, _ in operations], np.int8)
    turned = pa.array([values[0] if values else None, *reversed(values)], column_type)[1:]
    order = np.arange(len(values))[::-1].copy()
    starts = np.cumsum([0, *(len(operations) for operations in keys)])[:-1]
    found = function.merge(turned, column_history(order, starts.astype(np.int64), codes)).to_pylist()
    assert isinstance(found, list) and len(found) == len(keys)
    return found


def histories(values: st.SearchStrategy[Any], codes: list[int]) -> st.SearchStrategy[list[list[Operation]]]:
    operations = st.lists(st.tuples(st.sampled_from([*codes, SET, SKIP]), values), min_size=1, max_size=9)
    return st.lists(operations, min_size=1, max_size=6)


def fold(step: Callable[[int, Any, Any], Any]) -> Fold:
    def folded(operations: list[Operation]) -> Any:
        held = None
        for code, value in operations:
            if code == SET:
                held = value
            elif code != SKIP:
                held = step(code, held, value)
        return held

    return folded


def _summed(code: int, held: Any, value: Any) -> Any:
    if value is None:
        return held
    value = -value if code == RETRACT else value
    return value if held is None else held + value


def _multiplied(code: int, held: Any, value: Any) -> Any:
    if value is None or (held is None and code == RETRACT):
        return held
    if held is None:
        return value
    return int(held / value) if code == RETRACT else held * value


def _greater(code: int, held: Any, value: Any) -> Any:
    return max((one for one in (held, value) if one is not None), default=None)


def _smaller(code: int, held: Any, value: Any) -> Any:
    return min((one for one in (held, value) if one is not None), default=None)


def _last(code: int, held: Any, value: Any) -> Any:
    return held if code == REVERSED else None if code == RETRACT else value


def _last_non_null(code: int, held: Any, value: Any) -> Any:
    if value is None:
        return held
    return None if code == RETRACT else held if code == REVERSED and held is not None else value


def _joined(code: int, held: Any, value: Any) -> Any:
    if value is None:
        return held
    return value if held is None else f"{value};{held}" if code == REVERSED else f"{held};{value}"


def _joined_once(code: int, held: Any, value: Any) -> Any:
    for piece in value.split(";") if value is not None else ():
        held = piece if held is None else held if piece in held.split(";") else f"{held};{piece}"
    return held


def _put_together(code: int, held: Any, value: Any) -> Any:
    if code != RETRACT:
        return held if value is None else [*(held or []), *value]
    if held is None:
        return None
    for item in value or []:
        if item in held:
            at = held.index(item)
            held = held[:at] + held[at + 1 :]
    return held


def _set_of(code: int, held: Any, value: Any) -> Any:
    return held if value is None else list(dict.fromkeys([*(held or []), *value]))


def _merged_map(code: int, held: Any, value: Any) -> Any:
    if held is None or value is None:
        return held if code == RETRACT or value is None else value
    if code == RETRACT:
        gone = {key for key, _ in value}
        return [(key, item) for key, item in held if key not in gone]
    return list({**dict(held), **dict(value)}.items())


def _appended(code: int, held: Any, value: Any) -> Any:
    if value is None or (code == RETRACT and held is None):
        return held
    if code == RETRACT:
        return [row for row in held if row not in value]
    return held if held is not None and len(held) >= 4 else [*(held or []), *value][: max(4, len(held or []))]


NUMBERS = st.none() | st.integers(-50, 50)
FEW = st.none() | st.lists(st.integers(0, 3), max_size=3)
ENTRIES = st.none() | st.dictionaries(st.integers(0, 4), st.none() | st.integers(0, 9), max_size=3).map(lambda m: list(m.items()))
TEXTS = st.none() | st.sampled_from(["a", "b", "cd", "a;b", "b;b"])
INNER = pa.struct([("k", pa.int32()), ("v", pa.int32())])
INNER_ROWS = st.none() | st.lists(st.builds(lambda k, v: {"k": k, "v": v}, st.integers(0, 2), st.integers(0, 2)), max_size=3)

CASES: dict[str, tuple[Aggregator, pa.DataType, st.SearchStrategy[Any], list[int], Any]] = {
    "sum of INT": (Sum("c"), pa.int32(), NUMBERS, [ADD, RETRACT], _summed),
    "sum of DOUBLE": (Sum("c"), pa.float64(), st.none() | st.integers(-9, 9).map(float), [ADD, RETRACT], _summed),
    "sum of DECIMAL(9, 2)": (
        Sum("c"),
        pa.decimal128(9, 2),
        st.none() | st.integers(-999, 999).map(lambda n: Decimal(n).scaleb(-2)),
        [ADD, RETRACT],
        _summed,
    ),
    "sum of DECIMAL(38, 0)": (
        Sum("c"),
        pa.decimal128(38, 0),
        st.none() | st.integers(-(2**70), 2**70).map(Decimal) | st.integers(-9, 9).map(Decimal),
        [ADD, RETRACT],
        _summed,
    ),
    "product": (
        Product("c"),
        pa.int64(),
        st.none() | st.sampled_from([-7, -3, -2, -1, 1, 2, 5]),
        [ADD, RETRACT],
        _multiplied,
    ),
    "max": (Extreme(True), pa.int16(), NUMBERS, [ADD], _greater),
    "min": (Extreme(False), pa.int16(), NUMBERS, [ADD], _smaller),
    "min of texts": (Extreme(False), pa.string(), TEXTS, [ADD], _smaller),
    "last_value": (LastValue(), pa.int32(), NUMBERS, [ADD, RETRACT, REVERSED], _last),
    "last_non_null_value": (LastNonNullValue(), pa.int32(), NUMBERS, [ADD, RETRACT, REVERSED], _last_non_null),
    "last_non_null_value of many nulls": (
        LastNonNullValue(),
        pa.int32(),
        st.sampled_from([None] * 9 + [7]),
        [ADD, ADD, ADD, RETRACT],
        _last_non_null,
    ),
    "listagg": (JoinedText(";"), pa.string(), TEXTS, [ADD, REVERSED], _joined),
    "listagg distinct": (distinct_text(";"), pa.string(), st.none() | st.sampled_from("abc"), [ADD], _joined_once),
    "collect": (collected(pa.int32(), False, False), pa.list_(pa.int32()), FEW, [ADD, RETRACT], _put_together),
    "collect distinct": (collected(pa.int32(), True, False), pa.list_(pa.int32()), FEW, [ADD], _set_of),
    "merge_map": (merged_map(pa.int32()), pa.map_(pa.int32(), pa.int32()), ENTRIES, [ADD, RETRACT], _merged_map),
    "nested_update without a key": (
        NestedTable("c", INNER, count_limit=4).updated(),
        pa.list_(INNER),
        INNER_ROWS,
        [ADD, RETRACT],
        _appended,
    ),
}


@pytest.mark.in_part(2)
@pytest.mark.parametrize("name", CASES)
def test_many_keys_at_once(name: str) -> None:
    function, column_type, values, codes, step = CASES[name]

    @settings(max_examples=20)
    @given(histories(values, codes))
    def check(keys: list[list[Operation]]) -> None:
        assert merged(function, column_type, keys) == [fold(step)(operations) for operations in keys]

    if name == "collect distinct":  # a set again after each addition, but for what a SET brought
        keys: list[list[Operation]] = [[(ADD, [1, 1]), (ADD, None), (ADD, [2, 1])], [(SET, [3, 3])], [(SET, [3, 3]), (ADD, [3])]]
        assert merged(function, column_type, keys) == [[1, 2], [3, 3], [3]]
    else:
        check()


@pytest.mark.parametrize("skip_nulls", [False, True])
@settings(max_examples=40)
@given(keys=histories(st.none() | st.integers(0, 9), [ADD, REVERSED]))
@example(keys=[[(ADD, None), (REVERSED, 0), (SET, None), (ADD, 5)]])
@example(keys=[[(SET, 7), (REVERSED, None), (SET, 8), (ADD, 5)]])
def test_first_values(skip_nulls: bool, keys: list[list[Operation]]) -> None:
    def first(operations: list[Operation]) -> Any:
        held, begun = None, False
        for code, value in operations:
            if code == SET:
                held = value
            elif code == REVERSED:  # the older value is the first, and what is held comes after it
                if begun or (skip_nulls and held is None):
                    held = value
                else:
                    begun = True
            elif code == ADD and not begun and not (skip_nulls and value is None):
                held, begun = value, True
        return held

    assert merged(FirstValue(skip_nulls), pa.int32(), keys) == [first(operations) for operations in keys]


@pytest.mark.parametrize(
    ("column_type", "limits"),
    [(pa.int8(), (-128, 127)), (pa.int16(), (-(2**15), 2**15 - 1)), (pa.int64(), (-(2**63), 2**63 - 1))],
)
def test_whole_numbers_up_to_their_limits(column_type: pa.DataType, limits: tuple[int, int]) -> None:
    low, high = limits
    for function in (Sum("c"), Product("c")):
        assert merged(function, column_type, [[(ADD, high)], [(ADD, low)], [(ADD, None)]]) == [high, low, None]
    assert merged(Sum("c"), column_type, [[(ADD, high - 1), (ADD, 1)], [(ADD, low), (ADD, high)]]) == [high, -1]
    assert merged(Sum("c"), column_type, [[(ADD, -1), (RETRACT, high)]]) == [low]
    assert merged(Product("c"), column_type, [[(ADD, high), (ADD, -1)], [(ADD, low // 2), (ADD, 2)]]) == [-high, low]
    too_much: list[tuple[Sum | Product, list[Operation]]] = [
        (Sum("c"), [(ADD, high), (ADD, 1)]),
        (Sum("c"), [(ADD, low), (ADD, -1)]),
        (Sum("c"), [(ADD, high), (ADD, 1), (ADD, -5)]),
        (Product("c"), [(ADD, low), (ADD, -1)]),
        (Product("c"), [(ADD, high), (ADD, 2)]),
        (Product("c"), [(ADD, low), (ADD, 2)]),
    ]
    for wrapping, operations in too_much:
        name = "sum" if isinstance(wrapping, Sum) else "product"
        with pytest.raises(BadInput, match=f"^{name} of column c overflows its type"):
            merged(wrapping, column_type, [[(ADD, 1)], operations])


def test_decimals_that_grow_too_long_become_null_and_start_again() -> None:
    wide = pa.decimal128(20, 0)
    most = Decimal(10**20 - 1)
    keys: list[list[Operation]] = [
        [(ADD, most), (ADD, Decimal(1))],
        [(ADD, most), (ADD, Decimal(1)), (ADD, Decimal(5))],
        [(ADD, most), (ADD, Decimal(0))],
        [(ADD, -most), (ADD, Decimal(-1))],
        [(ADD, Decimal(2**63)), (ADD, Decimal(2**63))],
        [(ADD, Decimal(2**62)), (ADD, Decimal(2**62))],
        [(RETRACT, Decimal(3))],
        [(ADD, None)],
    ]
    expected = [None, Decimal(5), most, None, Decimal(2**64), Decimal(2**63), Decimal(-3), None]
    assert merged(Sum("c"), wide, keys) == expected
    scaled = pa.decimal128(4, 2)
    products = [
        [(ADD, Decimal("1.50")), (ADD, Decimal("1.11"))],  # 1.665, and half is up
        [(ADD, Decimal("-1.50")), (ADD, Decimal("1.11"))],
        [(ADD, Decimal("10.00")), (ADD, Decimal("10.00"))],
        [(ADD, Decimal("9.99")), (ADD, Decimal("10.00"))],
        [(ADD, Decimal("1.00")), (RETRACT, Decimal("8.00"))],  # 0.125
        [(RETRACT, Decimal("8.00"))],
        [(ADD, Decimal("10.00")), (ADD, Decimal("10.00")), (ADD, Decimal("3.00"))],
        [(SET, Decimal("2.00")), (ADD, Decimal("3.00"))],
    ]
    found = merged(Product("c"), scaled, products)
    texts = ["1.67", "-1.67", None, "99.90", "0.13", None, "3.00", "6.00"]
    assert found == [None if text is None else Decimal(text) for text in texts]
    for kind, divisor, why in (
        (scaled, Decimal("0.00"), "the row has a 0"),
        (scaled, Decimal("3.00"), "the quotient has no finite decimal form"),
        (pa.int32(), 0, "the row has a 0"),
    ):
        with pytest.raises(BadInput, match="product of column c cannot retract a row") as failure:
            merged(Product("c"), kind, [[(ADD, type(divisor)(1)), (RETRACT, divisor)]])
        assert why in failure.value.why and failure.value.details["column"] == "c"


def test_a_long_key_is_added_in_order_beside_short_ones() -> None:
    """A hundred times 0.1 is not 10, and large numbers absorb small ones: only the order of the rows gives these digits."""
    tenths: list[Operation] = [(ADD, 0.1)] * 100
    swallowed: list[Operation] = [(ADD, 1e16), *[(ADD, 1.0)] * 70, (RETRACT, 1e16)]
    keys: list[list[Operation]] = [
        [(ADD, 1.5)],
        tenths,
        [(ADD, None)],
        swallowed,
        [(ADD, 2.0), (ADD, 0.25)],
        [(ADD, 0.5)] * 64,
        [(ADD, 0.5)] * 65,
    ]
    total = 0.0
    for _, value in tenths:
        total += value
    assert merged(Sum("c"), pa.float64(), keys) == [1.5, total, None, 0.0, 2.25, 32.0, 32.5]
    infinite = [[(ADD, 3e38), (ADD, 3e38)], [(ADD, 1.0)]]
    assert merged(Sum("c"), pa.float32(), infinite) == [math.inf, 1.0]


@pytest.mark.parametrize(
    ("function", "operations", "expected"),
    [
        (Product("c"), [(ADD, 1e200), (ADD, 1e200)], "inf"),
        (Product("c"), [(ADD, 5.0), (RETRACT, 0.0)], "inf"),
        (Product("c"), [(ADD, 0.0), (RETRACT, 0.0)], "nan"),
        (Product("c"), [(ADD, 1e-200), (ADD, 1e-200)], "0.0"),
        (Sum("c"), [(ADD, 1e308), (ADD, 1e308)], "inf"),
        (Sum("c"), [(ADD, math.inf), (RETRACT, math.inf)], "nan"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_doubles_leave_their_range_as_in_java_without_a_word(
    function: Aggregator, operations: list[Operation], expected: str
) -> None:
    for beside in ([], [[(ADD, 1.0)]] * 70):
        assert str(merged(function, pa.float64(), [operations, *beside])[0]) == expected


@pytest.mark.parametrize(
    ("values", "greatest", "smallest"),
    [
        ([0.0, -0.0], "0.0", "-0.0"),
        ([-0.0, 0.0], "0.0", "-0.0"),
        ([1.0, math.nan, math.inf], "nan", "1.0"),
        ([-math.inf, None, -1.0], "-1.0", "-inf"),
    ],
)
def test_extremes_of_doubles(values: list[float | None], greatest: str, smallest: str) -> None:
    keys: list[list[Operation]] = [[(ADD, value) for value in values], [(ADD, None)], [(SET, 7.0)]]
    assert [str(value) for value in merged(Extreme(True), pa.float64(), keys)] == [greatest, "None", "7.0"]
    assert [str(value) for value in merged(Extreme(False), pa.float64(), keys)] == [smallest, "None", "7.0"]
    day = datetime.date(1969, 12, 31)
    assert merged(Extreme(True), pa.date32(), [[(ADD, day), (ADD, datetime.date(1950, 1, 1))]]) == [day]


def test_joined_texts_leave_blanks_out() -> None:
    keys: list[list[Operation]] = [
        [(ADD, "a"), (ADD, " \t"), (ADD, "b"), (ADD, "")],
        [(SET, " "), (ADD, "")],
        [(ADD, " ")],
        [(ADD, "\u00a0"), (ADD, "x")],
        [(REVERSED, "1"), (REVERSED, "2"), (ADD, "3")],
    ]
    assert merged(JoinedText(), pa.string(), keys) == ["a,b", " ", None, "\u00a0,x", "2,1,3"]
    once: list[list[Operation]] = [
        [(ADD, "a b"), (ADD, "b  c a"), (ADD, "\u3000")],
        [(ADD, " "), (ADD, None)],
        [(SET, " "), (ADD, "x")],
        [(SET, "x"), (ADD, " ")],
    ]
    assert merged(distinct_text(""), pa.string(), once) == ["a bc", None, "x", "x"]
    assert merged(distinct_text("|"), pa.string(), [[(ADD, "a|a"), (ADD, "b| |b|a")]]) == ["a|a|b"]


ROW = pa.struct([("t", pa.string()), ("v", pa.int32())])


def test_timed_maps() -> None:
    def row(time: str | None, value: int) -> dict[str, Any]:
        return {"t": time, "v": value}

    held = [(1, row("b", 1)), (2, row(None, 2)), (3, row("b", 3)), (4, None)]
    news = [(1, row("b", 9)), (2, row("a", 9)), (3, row("c", 9)), (4, row("a", 9)), (5, row(None, 9)), (6, row("a", 9))]
    column_type = pa.map_(pa.int32(), ROW)
    function = timed_map(pa.int32(), "t")
    assert not function.retracts
    (found, gone, kept, far) = merged(
        function,
        column_type,
        [
            [(SET, held), (ADD, news)],
            [(SET, held), (ADD, [(1, None), (9, None)])],
            [(SET, held), (ADD, None)],
            [(SET, [(1, row("\uffff", 1))]), (ADD, [(1, row("\U00010000", 2))])],
        ],
    )
    assert dict(found) == {1: row("b", 1), 2: row("a", 9), 3: row("c", 9), 4: row("a", 9), 6: row("a", 9)}
    assert dict(gone) == {2: row(None, 2), 3: row("b", 3), 4: None} and dict(kept) == dict(held)
    assert dict(far) == {1: row("\uffff", 1)}, "Java compares UTF-16 units, in which the far plane comes first"


def nested(*rows: tuple[Any, ...] | None) -> list[Any]:
    return [None if row is None else dict(zip("ksv", row, strict=True)) for row in rows]


TRIPLE = pa.struct([("k", pa.int32()), ("s", pa.int32()), ("v", pa.int32())])


@pytest.mark.parametrize(
    ("options", "operations", "expected"),
    [
        ({}, [(ADD, [(1, 5, 1), (2, 5, 2)]), (ADD, [(1, 4, 9), (2, 5, 9), (3, None, 9)])], [(1, 5, 1), (2, 5, 9), (3, None, 9)]),
        ({}, [(ADD, [(1, None, 1)]), (ADD, [(1, -9, 2)]), (ADD, [(1, None, 3)])], [(1, -9, 2)]),
        ({}, [(ADD, [(1, 5, 1), (2, 5, 2)]), (RETRACT, [(1, 0, 0), (7, 0, 0)])], [(2, 5, 2)]),
        ({"count_limit": 2}, [(SET, [(1, 1, 1), (2, 1, 1), (3, 1, 1)]), (ADD, [(4, 1, 1), (3, 2, 2)])], "kept"),
        ({"count_limit": 2}, [(ADD, [(1, 1, 1)]), (ADD, [(2, 1, 1), (3, 1, 1)])], [(1, 1, 1), (2, 1, 1)]),
        ({"null_key": "ignore"}, [(ADD, [(None, 1, 1), (1, 1, 1)]), (RETRACT, [(None, 1, 1)])], [(1, 1, 1)]),
        ({"null_key": "merge"}, [(ADD, [(None, 1, 1)]), (ADD, [(None, 2, 2)])], [(None, 2, 2)]),
    ],
)
def test_nested_tables_with_a_key(options: dict[str, Any], operations: list[Any], expected: Any) -> None:
    table = NestedTable("c", TRIPLE, ("k",), ("s",), **options)
    keys = [[(code, nested(*rows)) for code, rows in operations]]
    wanted = nested((1, 1, 1), (2, 1, 1), (3, 2, 2)) if expected == "kept" else nested(*expected)
    assert merged(table.updated(), pa.list_(TRIPLE), keys) == [wanted]


def test_nested_tables_otherwise() -> None:
    rows = nested((1, 1, None), (2, None, 2))
    news = nested((1, None, 7), (2, 3, None), (3, 3, 3))
    partial = NestedTable("c", TRIPLE, ("k",)).partially_updated()
    assert not partial.retracts
    assert merged(partial, pa.list_(TRIPLE), [[(ADD, rows), (ADD, None), (ADD, news)]]) == [
        nested((1, 1, 7), (2, 3, 2), (3, 3, 3))
    ]
    strict = NestedTable("c", TRIPLE, ("k", "s"), null_key="error")
    for function in (strict.updated(), strict.partially_updated()):
        with pytest.raises(BadInput, match="has a null in its nested-key"):
            merged(function, pa.list_(TRIPLE), [[(ADD, nested((1, 1, 1))), (ADD, nested((1, None, 1)))]])
    plain = NestedTable("c", TRIPLE, count_limit=3).updated()
    some, more = nested((1, 1, 1), None, (2, 2, 2)), nested((3, 3, 3), (4, 4, 4))
    assert merged(plain, pa.list_(TRIPLE), [[(ADD, some), (ADD, more)], [(ADD, some), (RETRACT, nested((1, 1, 1), None))]]) == [
        nested((1, 1, 1), (2, 2, 2), (3, 3, 3)),
        nested((2, 2, 2)),
    ]


@pytest.mark.parametrize(
    ("function", "column", "options", "message"),
    [
        ("sum", "STRING", {}, "it takes numbers"),
        ("product", "DATE", {}, "it takes numbers"),
        ("max", "ARRAY<INT>", {}, "values that have an order"),
        ("min", "MAP<INT, INT>", {}, "values that have an order"),
        ("bool_or", "INT", {}, "it takes BOOLEAN"),
        ("bool_and", "STRING", {}, "it takes BOOLEAN"),
        ("listagg", "VARCHAR(9)", {}, "it takes STRING"),
        ("listagg", "INT", {}, "it takes STRING"),
        ("collect", "INT", {}, "it takes ARRAY"),
        ("merge_map", "ARRAY<INT>", {}, "it takes MAP"),
        ("merge_map_with_keytime", "MAP<INT, ROW<a INT>>", {}, "ROW with two fields or more"),
        ("merge_map_with_keytime", "MAP<INT, INT>", {}, "ROW with two fields or more"),
        ("merge_map_with_keytime", "ARRAY<ROW<a INT, b INT>>", {}, "ROW with two fields or more"),
        ("merge_map_with_keytime", "MAP<INT, ROW<a INT, b INT>>", {"ts-field": "c"}, "a ROW with the field c"),
        ("nested_update", "ARRAY<INT>", {}, "ARRAY of ROW"),
        ("nested_update", "MAP<INT, INT>", {}, "ARRAY of ROW"),
        ("nested_update", "ARRAY<ROW<a INT>>", {"nested-key": "b"}, "rows with the field b"),
        ("nested_update", "ARRAY<ROW<a INT>>", {"nested-sequence-field": "a"}, "needs fields.f.nested-key"),
        ("nested_update", "ARRAY<ROW<a INT>>", {"nested-key-null-strategy": "ignore"}, "needs fields.f.nested-key"),
        ("nested_update", "ARRAY<ROW<a INT>>", {"nested-key": "a", "nested-key-null-strategy": "x"}, "nested-key-null-strategy"),
        ("nested_update", "ARRAY<ROW<a INT>>", {"count-limit": "-1"}, "count-limit"),
        ("nested_partial_update", "ARRAY<ROW<a INT>>", {}, "needs fields.f.nested-key"),
        ("rbm32", "STRING", {}, "VARBINARY or BYTES"),
        ("rbm64", "BINARY(4)", {}, "VARBINARY or BYTES"),
        ("theta_sketch", "INT", {}, "VARBINARY or BYTES"),
        ("hll_sketch", "STRING", {}, "VARBINARY or BYTES"),
        ("nested_partial_update", "ARRAY<INT>", {}, "ARRAY of ROW"),
        ("median", "INT", {}, "unknown aggregate function"),
    ],
)
def test_functions_report_what_they_accept(function: str, column: str, options: dict[str, str], message: str) -> None:
    texts = TableOptions({f"fields.f.{name}": text for name, text in options.items()})
    with pytest.raises(UsageError) as failure:
        aggregator_of(function, DataField(0, "f", parse_sql_type(column)), texts)
    assert message in str(failure.value)
    refusal = str(failure.value)
    assert f"aggregate function {function} cannot be used for column f" in refusal or "cannot be used" not in refusal


@pytest.mark.parametrize(
    ("function", "column", "options", "expected"),
    [
        ("sum", "DECIMAL(9, 2)", {}, Sum("f")),
        ("product", "FLOAT", {}, Product("f")),
        ("max", "TIMESTAMP(3)", {}, Extreme(True)),
        ("min", "STRING", {}, Extreme(False)),
        ("bool_or", "BOOLEAN", {}, Extreme(True)),
        ("bool_and", "BOOLEAN", {}, Extreme(False)),
        ("first_value", "INT", {}, FirstValue()),
        ("first_non_null_value", "INT", {}, FirstValue(True)),
        ("first_not_null_value", "INT", {}, FirstValue(True)),
        ("last_value", "INT", {}, LastValue()),
        ("last_non_null_value", "INT", {}, LastNonNullValue()),
        ("listagg", "STRING", {}, JoinedText(",")),
        ("listagg", "STRING", {"list-agg-delimiter": "; "}, JoinedText("; ")),
    ],
)
def test_functions_by_name(function: str, column: str, options: dict[str, str], expected: Aggregator) -> None:
    texts = TableOptions({f"fields.f.{name}": text for name, text in options.items()})
    assert aggregator_of(function, DataField(0, "f", parse_sql_type(column)), texts) == expected


@pytest.mark.parametrize(
    ("function", "column", "options", "operations", "expected"),
    [
        ("listagg", "STRING", {"distinct": "true"}, [(ADD, "a"), (ADD, "b"), (ADD, "a")], "a,b"),
        ("listagg", "STRING", {"distinct": "true", "list-agg-delimiter": "-"}, [(ADD, "a"), (ADD, "b-a")], "a-b"),
        ("listagg", "STRING", {"distinct": "false"}, [(ADD, "a"), (ADD, "a")], "a,a"),
        ("collect", "ARRAY<INT>", {"distinct": "true"}, [(ADD, [1, 2]), (ADD, [2])], [1, 2]),
        ("collect", "ARRAY<INT>", {}, [(ADD, [1, 2]), (REVERSED, [2])], [1, 2, 2]),
        ("collect", "ARRAY<INT>", {"ignore-retract": "true"}, [(ADD, [1, 2]), (REVERSED, [2])], [2, 1, 2]),
    ],
)
def test_options_of_functions(
    function: str, column: str, options: dict[str, str], operations: list[Operation], expected: Any
) -> None:
    texts = TableOptions({f"fields.f.{name}": text for name, text in options.items()})
    kind = parse_sql_type(column)
    made = aggregator_of(function, DataField(0, "f", kind), texts)
    assert merged(made, arrow_type(kind), [operations]) == [expected]


def test_rows_with_a_null_in_their_key_are_treated_as_the_option_says() -> None:
    kind = parse_sql_type("ARRAY<ROW<k INT, v INT>>")
    operations = [[(ADD, [{"k": None, "v": 1}, {"k": 1, "v": 1}]), (ADD, [{"k": None, "v": 2}])]]

    def found(strategy: dict[str, str]) -> Any:
        texts = TableOptions({"fields.f.nested-key": "k", **{f"fields.f.{name}": text for name, text in strategy.items()}})
        made = aggregator_of("nested_update", DataField(0, "f", kind), texts)
        return merged(made, arrow_type(kind), operations)[0]

    as_one = [{"k": None, "v": 2}, {"k": 1, "v": 1}]
    assert found({}) == as_one == found({"nested-key-null-strategy": "merge"})
    assert found({"nested-key-null-strategy": "ignore"}) == [{"k": 1, "v": 1}]
    with pytest.raises(BadInput, match="a row in column f has a null in its nested-key"):
        found({"nested-key-null-strategy": "error"})


def test_keys_without_values_shift_nothing() -> None:
    """Keys of nulls only, or of rows that are left out, stand before, between and behind those with values."""
    nothing: list[list[Operation]] = [[(ADD, None)], [(SKIP, 5)], [(ADD, None), (ADD, None)]]
    cases: list[tuple[Aggregator, list[Operation], Any]] = [
        (Sum("c"), [(ADD, 100), (ADD, 27)], 127),
        (Product("c"), [(ADD, 4), (ADD, 5)], 20),
        (Extreme(True), [(ADD, 3), (ADD, None), (ADD, 9)], 9),
        (Extreme(False), [(ADD, 3), (ADD, None), (ADD, 1)], 1),
        (LastNonNullValue(), [(ADD, 3), (ADD, None)], 3),
        (FirstValue(skip_nulls=True), [(ADD, None), (ADD, 3)], 3),
    ]
    for function, operations, expected in cases:
        found = merged(function, pa.int8(), [*nothing, operations, *nothing, operations, *nothing])
        assert found == [*[None] * 3, expected, *[None] * 3, expected, *[None] * 3], function
    too_much: list[Operation] = [(ADD, 100), (ADD, 100), (ADD, -100)]
    for keys in ([*nothing, too_much, *nothing], [*nothing, [(ADD, 1)], *nothing, [(ADD, 1)], too_much]):
        with pytest.raises(BadInput, match="sum of column c overflows its type"):
            merged(Sum("c"), pa.int8(), keys)


@pytest.mark.parametrize(("low", "high"), [(-128, 127), (-(2**63), 2**63 - 1)])
def test_a_sum_overflows_although_it_would_come_back(low: int, high: int) -> None:
    """As Java adds one row after the other, in whatever key and of whatever sign."""
    column_type = pa.int8() if high == 127 else pa.int64()
    for operations in (
        [(ADD, high), (ADD, 1), (RETRACT, 1)],
        [(ADD, low), (RETRACT, 1), (ADD, 1)],
        [(RETRACT, low), (ADD, low)],
        [(ADD, low), (ADD, low), (ADD, high), (ADD, high)],
    ):
        for keys in ([operations], [[(ADD, 1)], [(ADD, high)], operations], [operations, [(ADD, 1)]]):
            with pytest.raises(BadInput, match="sum of column c overflows its type"):
                merged(Sum("c"), column_type, keys)
    back: list[Operation] = [(ADD, high), (ADD, low), (ADD, high), (ADD, low)]
    assert merged(Sum("c"), column_type, [back, [(ADD, None)], back]) == [-2, None, -2]


def test_wide_and_narrow_decimals_side_by_side() -> None:
    """Most fit into 64 bits, one does not."""
    wide, large = pa.decimal128(38, 2), Decimal("123456789012345678901234567890.12")
    keys: list[list[Operation]] = [
        [(ADD, Decimal("1.25")), (ADD, Decimal("-3.50"))],
        [(ADD, None)],
        [(ADD, large), (ADD, Decimal("-0.12")), (RETRACT, Decimal("90.00"))],
        [(RETRACT, large)],
        [(ADD, Decimal("-0.01"))],
    ]
    expected = [Decimal("-2.25"), None, Decimal("123456789012345678901234567800.00"), large.copy_negate(), Decimal("-0.01")]
    assert merged(Sum("c"), wide, keys) == expected
    narrow = [keys[0], keys[1], keys[4]]
    assert merged(Sum("c"), wide, narrow) == merged(Sum("c"), pa.decimal128(18, 2), narrow) == [expected[n] for n in (0, 1, 4)]
    most = Decimal("9" * 36 + ".99")
    least = most.copy_negate()
    ends = [[(ADD, most)], [(ADD, least)], [(ADD, most), (ADD, Decimal("0.01"))], [(ADD, least), (RETRACT, Decimal("0.01"))]]
    assert merged(Sum("c"), wide, ends) == [most, least, None, None]


def test_a_long_key_takes_back_what_it_was_given() -> None:
    given: list[Operation] = [(ADD, 0.5)] * 50 + [(RETRACT, 0.25)] * 50
    assert merged(Sum("c"), pa.float64(), [[(RETRACT, 1.5)], given, [(ADD, 2.0), (RETRACT, 0.5)]]) == [-1.5, 12.5, 1.5]


def test_late_rows_and_retractions_of_last_values() -> None:
    """A row that arrives late fills a gap and replaces nothing; a retraction of null takes nothing back."""
    cases: list[tuple[list[list[Operation]], list[Any]]] = [
        ([[(ADD, 1), (REVERSED, 2)], [(ADD, None), (REVERSED, 2)], [(REVERSED, 2), (ADD, None)]], [1, 2, 2]),
        ([[(ADD, 1), (RETRACT, None), (REVERSED, None)], [(ADD, 1), (RETRACT, 1), (REVERSED, None)]], [1, None]),
        ([[(ADD, 1), (RETRACT, None)], [(ADD, 1), (RETRACT, 1)], [(SET, None), (REVERSED, 4)]], [1, None, 4]),
        (
            [[(SET, 7), (RETRACT, None), (REVERSED, 1)], [(ADD, 5), (SET, None)], [(ADD, 5), (REVERSED, 6), (SET, None)]],
            [7, None, None],
        ),
        ([[(ADD, 1), (ADD, 3), (REVERSED, 2)], [(ADD, 8)]], [3, 8]),
    ]
    for keys, expected in cases:
        assert merged(LastNonNullValue(), pa.int32(), keys) == expected
    late: list[list[Operation]] = [
        [(ADD, 1), (REVERSED, 2)],
        [(ADD, None), (REVERSED, 2)],
        [(REVERSED, 2)],
        [(ADD, 1), (RETRACT, 2)],
        [(SET, 4), (REVERSED, 5)],
    ]
    assert merged(LastValue(), pa.int32(), late) == [1, None, None, None, 4]


def test_a_stored_value_stands_where_no_first_one_came() -> None:
    for skip_nulls, expected in ((False, [7, None, 5, 7]), (True, [7, 5, 5, 7])):
        keys: list[list[Operation]] = [[(SET, 7)], [(SET, 7), (ADD, None), (ADD, 5)], [(SET, 7), (ADD, 5)], [(SET, 7), (SKIP, 5)]]
        assert merged(FirstValue(skip_nulls), pa.int32(), keys) == expected


def test_whole_numbers_of_wide_decimals_and_back() -> None:
    wide = pa.decimal128(38, 2)
    numbers = [10**38 - 1, -(10**38 - 1), 0, -1, 2**64, -(2**64), 2**63, -(2**63)]
    column = wide_decimals(list(numbers), wide)
    assert wide_integers(column) == numbers and wide_integers(column[3:6]) == numbers[3:6] and wide_integers(column[8:]) == []
    assert wide_decimals([None, 5], wide).to_pylist() == [None, Decimal("0.05")]
