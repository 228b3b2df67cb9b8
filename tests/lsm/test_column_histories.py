"""The operations of each key, against plain loops, and functions that go through them step by step."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from paimon_cli.lsm.aggregators.aggregator import (
    ADD,
    RETRACT,
    REVERSED,
    SET,
    SKIP,
    ColumnHistory,
    StepByStep,
    column_history,
    first_position,
    last_position,
    no_retraction,
    overflow,
    picked,
    rows_at,
    validity,
)

Operations = list[list[tuple[int, int]]]
"""Per key: row numbers and codes."""


def some(dice: random.Random, codes: list[int], least: int = 1) -> Operations:
    rows = iter(dice.sample(range(100), 100))
    return [[(next(rows), dice.choice(codes)) for _ in range(dice.randint(least, 5))] for _ in range(dice.randint(1, 6))]


def history_of(keys: Operations) -> ColumnHistory:
    flat = [operation for key in keys for operation in key]
    starts = np.cumsum([0, *map(len, keys)])[:-1]
    return column_history(np.array([row for row, _ in flat]), starts, np.array([code for _, code in flat], np.int8))


def listed(history: ColumnHistory) -> Operations:
    operations = [*zip(history.rows.tolist(), history.codes.tolist(), strict=True)]
    return [operations[low:high] for low, high in zip(history.starts[:-1].tolist(), history.starts[1:].tolist(), strict=True)]


def from_last_set(key: list[tuple[int, int]]) -> list[tuple[int, int]]:
    last = max((at for at, (_, code) in enumerate(key) if code == SET), default=0)
    return [operation for operation in key[last:] if operation[1] != SKIP]


@pytest.mark.parametrize("codes", [[ADD], [ADD, SKIP], [SET, ADD], [SET, SET, SKIP, ADD, RETRACT, REVERSED]])
def test_histories_begin_with_the_last_replacement(codes: list[int]) -> None:
    dice = random.Random(3)
    for _ in range(60):
        keys = some(dice, codes)
        found = history_of(keys)
        assert listed(found) == [from_last_set(key) for key in keys]
        assert found.only_set.tolist() == [[code for _, code in key] == [SET] for key in listed(found)]
        unskipped = [[operation for operation in key if operation[1] != SKIP] for key in keys]
        if any(code == SET for key in keys for _, code in key[1:]):
            assert found.whole is not None and listed(found.whole) == unskipped
        else:
            assert found.whole is None
        wanted = np.array([dice.random() < 0.5 for _ in found.rows], dtype=bool)
        chosen = iter(wanted.tolist())
        left = found.only(wanted)
        assert listed(left) == [[operation for operation in key if next(chosen)] for key in listed(found)]
        assert left.whole is found.whole


def test_the_first_and_last_wanted_operation_of_each_key() -> None:
    """A key without any has none, though those before and after it have; the very first operation counts, too."""
    dice = random.Random(5)
    for _ in range(200):
        found = history_of(some(dice, [ADD, SKIP, SKIP], dice.choice([1, 2])))
        wanted = np.array([dice.random() < 0.4 for _ in found.rows], dtype=bool)
        ranges = zip(found.starts[:-1].tolist(), found.starts[1:].tolist(), strict=True)
        hits = [[at for at in range(low, high) if wanted[at]] for low, high in ranges]
        first, last = first_position(found, wanted), last_position(found, wanted)
        assert first.tolist() == [key[0] if key else -1 for key in hits]
        assert last.tolist() == [key[-1] if key else -1 for key in hits]
        assert rows_at(found, first).tolist() == [int(found.rows[key[0]]) if key else -1 for key in hits]
    nothing = history_of([[(4, SKIP)], [(2, SKIP)]])
    assert rows_at(nothing, last_position(nothing, np.zeros(0, dtype=bool))).tolist() == [-1, -1]


def test_picked_and_valid_values() -> None:
    column = pa.array([7, None, 9, None])[1:]
    assert validity(column).tolist() == [False, True, False] and validity(column[1:2]).tolist() == [True]
    assert picked(column, np.array([-1, 1, 0, 1])).to_pylist() == [None, 9, None, 9]
    assert picked(column, np.array([1, 1])).to_pylist() == [9, 9]


def told(name: str) -> Any:
    return lambda held, value: f"{name}({held},{value})"


@pytest.mark.parametrize("has_older", [False, True])
@pytest.mark.parametrize("takes_back", [False, True])
def test_steps_are_taken_in_order_and_stored_values_are_kept_as_they_are(has_older: bool, takes_back: bool) -> None:
    add, older, back = told("add"), told("older") if has_older else None, told("back") if takes_back else None
    function = StepByStep(("told",), add, older, back)
    assert function.retracts == takes_back
    assert function == StepByStep(("told",), told("other")) != StepByStep(("else",), add, older, back)

    def expected(key: list[tuple[int, int]], values: list[str | None]) -> Any:
        held: Any = None
        for row, code in key:
            value = values[row]
            if code == SET:
                held = value
            elif code == REVERSED:
                held = older(held, value) if older else add(value, held)
            else:
                held = back(held, value) if code == RETRACT and back else add(held, value)
        return held

    dice = random.Random(9)
    values = [None if dice.random() < 0.1 else f"v{row}" for row in range(100)]
    for codes in ([SET], [ADD], [SET, ADD, SKIP], [SET, SET, ADD, REVERSED, *([RETRACT] if takes_back else [])]):
        for _ in range(30):
            found = history_of(some(dice, codes))
            merged = function.merge(pa.array(["before", *values])[1:], found)
            assert merged.to_pylist() == [expected(key, values) for key in listed(found)]


@pytest.mark.parametrize(("kind", "wider"), [(pa.int8(), "BIGINT"), (pa.int32(), "BIGINT"), (pa.int64(), "'DECIMAL(38, 0)'")])
def test_hints_of_refused_values_can_be_pasted_into_a_shell(kind: pa.DataType, wider: str) -> None:
    error = overflow("a b;$(c)", "sum", kind)
    assert error.hint.endswith(f"alter-column 'a b;$(c)' {wider}") and error.details["column"] == "a b;$(c)"
    assert "fields.v.ignore-retract=true" in no_retraction("v").hint
