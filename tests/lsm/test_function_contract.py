"""Results of aggregate functions are merged again: each function gives the same, whatever was merged before."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.lsm.aggregators.aggregator import ADD, RETRACT, Aggregator, ColumnHistory, StepByStep, column_history
from paimon_cli.lsm.aggregators.catalog import aggregate_functions, aggregator_of
from paimon_cli.lsm.aggregators.sketches import Bitmap64, sketch_library
from paimon_cli.options.table_options import TableOptions

Dice = random.Random
ROWS = "ARRAY<ROW<k INT, v INT>>"
NESTED = {"fields.c.nested-key": "k"}


def bitmap64(dice: Dice) -> bytes:
    keys = dice.sample([bytes([0, 0, 0, 0, 0, key]) for key in range(4)], 2)
    slots = [np.array(sorted(dice.sample(range(9), 3)), "<u2") for _ in keys]
    return Bitmap64({key: slot for slot, key in enumerate(keys)}, [*slots], len(keys) - 1).serialize()


def theta(dice: Dice) -> bytes:
    sketch = sketch_library("theta_sketch").update_theta_sketch()
    for _ in range(3):
        sketch.update(dice.randint(0, 9))
    return bytes(sketch.compact().serialize())


def hll(dice: Dice) -> bytes:
    sketch = sketch_library("hll_sketch").hll_sketch(8)
    for _ in range(3):
        sketch.update(dice.randint(0, 9))
    return bytes(sketch.serialize_compact())


def nested(dice: Dice) -> list[dict[str, int | None]]:
    return [{"k": dice.randint(0, 2), "v": dice.choice([None, 1, 2])} for _ in range(dice.randint(1, 2))]


def timed(dice: Dice) -> list[tuple[str, dict[str, Any]]]:
    return [(key, {"v": dice.randint(0, 9), "t": str(dice.randint(0, 9))}) for key in dice.sample("abc", 2)]


VALUES: dict[str, Callable[[Dice], Any]] = {
    "INT": lambda dice: dice.randint(-3, 3),
    "DOUBLE": lambda dice: float(dice.randint(-3, 3)),
    "STRING": lambda dice: dice.choice("abc"),
    "BOOLEAN": lambda dice: dice.random() < 0.5,
    "ARRAY<INT>": lambda dice: [dice.randint(0, 3) for _ in range(dice.randint(0, 2))],
    "MAP<STRING, INT>": lambda dice: [(key, dice.randint(0, 9)) for key in dice.sample("abc", 2)],
    "MAP<STRING, ROW<v INT, t STRING>>": timed,
    ROWS: nested,
}
NUMBERS, ANY = ("INT", "DOUBLE"), ("INT", "DOUBLE", "STRING", "BOOLEAN", "ARRAY<INT>")
TYPES: dict[str, tuple[str, ...]] = {
    "sum": NUMBERS,
    "product": NUMBERS,
    "max": ("INT", "DOUBLE", "STRING", "BOOLEAN"),
    "min": ("INT", "DOUBLE", "STRING", "BOOLEAN"),
    "bool_or": ("BOOLEAN",),
    "bool_and": ("BOOLEAN",),
    "last_value": ANY,
    "last_non_null_value": ANY,
    "first_value": ANY,
    "first_non_null_value": ANY,
    "first_not_null_value": ANY,
    "listagg": ("STRING",),
    "collect": ("ARRAY<INT>",),
    "merge_map": ("MAP<STRING, INT>",),
    "merge_map_with_keytime": ("MAP<STRING, ROW<v INT, t STRING>>",),
    "nested_update": (ROWS,),
    "nested_partial_update": (ROWS,),
}
BYTES: dict[str, Callable[[Dice], bytes]] = {
    "rbm32": lambda dice: BitMap(dice.sample(range(9), 3)).serialize(),
    "rbm64": bitmap64,
    "theta_sketch": theta,
    "hll_sketch": hll,
}
OPTIONS = {
    "listagg": ({}, {"fields.c.distinct": "true"}),
    "collect": ({}, {"fields.c.distinct": "true"}),
    "nested_update": ({}, NESTED),
    "nested_partial_update": (NESTED,),
}
CASES = [
    (function, sql, options, VALUES.get(sql) or BYTES[function])
    for function in aggregate_functions()
    for sql in TYPES.get(function, ("BYTES",) * (function in BYTES))
    for options in OPTIONS.get(function, ({},))
]


def meaning(function: str, value: Any) -> Any:
    """What a result says: bytes of bitmaps and sketches may differ, although the sets are equal."""
    if value is None or function not in BYTES:
        return sorted(value, key=repr) if isinstance(value, list) and function != "collect" else value
    if function == "rbm32":
        return BitMap.deserialize(value)
    if function == "rbm64":
        bitmap = Bitmap64.deserialize(value)
        return {key: np.asarray(bitmap.slots[slot]).tolist() for key, slot in bitmap.slot_of.items()}
    if function == "theta_sketch":
        return sorted(sketch_library(function).compact_theta_sketch.deserialize(value))
    return round(sketch_library(function).hll_sketch.deserialize(value).get_estimate(), 6)


def merged(aggregator: Aggregator, values: list[Any], t: pa.DataType, codes: Sequence[int] | None = None) -> Any:
    """`codes`: of each value, by default ADD."""
    order = np.arange(len(values))
    history: ColumnHistory = column_history(order, np.zeros(1, np.int64), np.array(codes or [ADD] * len(values), np.int8))
    return aggregator.merge(pa.array(values, t), history).to_pylist()[0]


def is_associative(
    aggregator: Aggregator, values: list[Any], t: pa.DataType, says: Callable[[Any], Any] = lambda value: value
) -> bool:
    at_once = says(merged(aggregator, values, t))
    return all(
        says(merged(aggregator, [merged(aggregator, values[:cut], t), *values[cut:]], t)) == at_once
        and says(merged(aggregator, [*values[:cut], merged(aggregator, values[cut:], t)], t)) == at_once
        for cut in range(1, len(values))
    )


@pytest.mark.in_part(3)
@pytest.mark.parametrize(("function", "sql", "options", "value"), CASES, ids=[f"{c[0]}-{c[1]}-{len(c[2])}" for c in CASES])
def test_results_can_be_merged_again(function: str, sql: str, options: dict[str, str], value: Callable[[Dice], Any]) -> None:
    t = parse_sql_type(sql)
    aggregator = aggregator_of(function, DataField(0, "c", t), TableOptions(options))
    for seed in range(30):
        dice = random.Random(seed)
        values = [None if dice.random() < 0.2 else value(dice) for _ in range(dice.randint(2, 6))]
        assert is_associative(aggregator, values, arrow_type(t), lambda result: meaning(function, result)), values


RETRACTING = {"sum", "product", "last_value", "last_non_null_value", "collect", "merge_map", "nested_update"}
EXACT = {"sum", "last_value"}
"""Functions whose result says what a retraction takes back, even without the older rows."""


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    ("function", "sql", "options", "value"),
    [case for case in CASES if case[0] in RETRACTING],
    ids=[f"{c[0]}-{c[1]}-{len(c[2])}" for c in CASES if c[0] in RETRACTING],
)
def test_older_rows_are_merged_before_what_retracts_them(
    function: str, sql: str, options: dict[str, str], value: Callable[[Dice], Any]
) -> None:
    """In the other order, the retraction of a value that is not there yet is lost, as in Java."""
    t = arrow_type(parse_sql_type(sql))
    aggregator = aggregator_of(function, DataField(0, "c", parse_sql_type(sql)), TableOptions(options))
    losses = 0
    for seed in range(100):
        dice = random.Random(seed)
        values = [value(dice) or 1 if function == "product" else value(dice) for _ in range(dice.randint(2, 5))]
        codes = [ADD, *(dice.choice((ADD, RETRACT)) for _ in values[1:])]
        if function == "product":  # integers are divided without a remainder
            values = [values[0] if code == RETRACT else value for code, value in zip(codes, values, strict=True)]
        at_once = meaning(function, merged(aggregator, values, t, codes))
        for cut in range(1, len(values)):
            older, newer = (merged(aggregator, values[part], t, codes[part]) for part in (slice(cut), slice(cut, None)))
            assert meaning(function, merged(aggregator, [older, *values[cut:]], t, [ADD, *codes[cut:]])) == at_once
            losses += meaning(function, merged(aggregator, [*values[:cut], newer], t, [*codes[:cut], ADD])) != at_once
    assert (losses == 0) == (function in EXACT)


def test_the_functions_that_retract() -> None:
    found = {
        f
        for f, sql, options, _ in CASES
        if aggregator_of(f, DataField(0, "c", parse_sql_type(sql)), TableOptions(options)).retracts
    }
    assert found == RETRACTING


def test_aggregators_are_equal_if_they_do_the_same() -> None:
    """What a call with other options would merge is compared with what the table merges (`check_options_of_call`)."""
    for position, (function, sql, options, _) in enumerate(CASES):
        column = DataField(0, "c", parse_sql_type(sql))
        built = aggregator_of(function, column, TableOptions(options))
        assert built == aggregator_of(function, column, TableOptions(options)), function
        others = [other for number, other in enumerate(CASES) if other[:2] == (function, sql) and number != position]
        assert all(built != aggregator_of(function, column, TableOptions(other[2])) for other in others), function


class Spread:
    """The greatest value minus the smallest one: the differences of parts do not say what the whole one is."""

    retracts = False

    def merge(self, column: pa.Array, history: ColumnHistory) -> pa.Array:
        values = column.to_numpy()[history.rows]
        starts = history.starts[:-1]
        return pa.array(np.maximum.reduceat(values, starts) - np.minimum.reduceat(values, starts))


def test_a_function_that_forgets_too_much_is_found() -> None:
    mean = StepByStep(("mean",), lambda held, value: value if held is None else (held + value) / 2)
    assert not is_associative(Spread(), [1, 5, 2], pa.int64()) and not is_associative(mean, [1.0, 5.0, 2.0], pa.float64())


def test_each_function_has_values_to_try() -> None:
    assert {*TYPES, *BYTES} == set(aggregate_functions())
