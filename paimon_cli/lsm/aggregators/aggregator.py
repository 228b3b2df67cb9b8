"""The interface of aggregate functions, and the operations that they apply to each key (Java FieldAggregator).

A function selects rows of all keys at once or, if its values are collections, loops over the operations of each key.
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from paimon_cli.datatypes.arrow_types import retyped
from paimon_cli.errors import BadInput

SKIP, ADD, REVERSED, RETRACT, SET = -1, 0, 1, 2, 3
"""Codes of operations: skip the row, add it, add it as one that arrived late, retract it, or replace everything before it."""


@dataclass(frozen=True)
class ColumnHistory:
    """The operations of all keys, key by key, oldest first.

    For each operation, `rows` has its row number, and `codes` its code: ADD, REVERSED or RETRACT; SET only as the first one of a
    key. `starts`: the index of each key's first operation, and finally the number of operations. `whole`: the history including
    operations before a SET, if there are any.
    """

    rows: np.ndarray
    starts: np.ndarray
    codes: np.ndarray
    whole: ColumnHistory | None = None

    @property
    def keys(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def sizes(self) -> np.ndarray:
        """The number of operations of each key."""
        return np.diff(self.starts)

    @cached_property
    def longest(self) -> int:
        return int(self.sizes.max(initial=0))

    @cached_property
    def has_retractions(self) -> bool:
        return bool((self.codes == RETRACT).any())

    @cached_property
    def has_reversed(self) -> bool:
        return bool((self.codes == REVERSED).any())

    @cached_property
    def key_of_operation(self) -> np.ndarray:
        return np.repeat(np.arange(self.keys), self.sizes)

    @cached_property
    def only_set(self) -> np.ndarray:
        """Whether the only operation of each key is a SET, so that its value is the stored one."""
        lone = self.sizes == 1
        lone[lone] = self.codes[self.starts[:-1][lone]] == SET
        return lone

    def only(self, wanted: np.ndarray) -> ColumnHistory:
        """The history with only the `wanted` operations (bool)."""
        if wanted.all():
            return self
        counted = np.concatenate(([0], np.cumsum(wanted)))
        return ColumnHistory(self.rows[wanted], counted[self.starts], self.codes[wanted], self.whole)


def column_history(order: np.ndarray, starts: np.ndarray, codes: np.ndarray) -> ColumnHistory:
    """The history of rows in `order`, with one code for each. `starts`: index of each key's first row."""
    history = ColumnHistory(order, np.append(starts, len(order)), codes)
    is_set = codes == SET
    is_set[starts] = False
    if not is_set.any():
        return history.only(codes != SKIP)
    positions = np.arange(len(order))
    last_set = np.maximum.accumulate(np.where(is_set, positions, -1))[history.starts[1:] - 1]
    hidden = positions < np.maximum(starts, last_set)[history.key_of_operation]
    return replace(history, whole=history.only(codes != SKIP)).only(~hidden & (codes != SKIP))


class Aggregator(Protocol):
    """An aggregate function of a column. `retracts`: whether it can take values back.

    Compactions merge some rows of a key and store the result as an added row, which is merged again. So the function must be
    associative: for added values a, b, c, merging a with the result of b and c gives the same as merging the result of a and b
    with c. Max and sum are, the mean or the spread (max - min) are not: of these, no compaction leaves enough to go on with.

    With retractions that holds if older rows are merged first. A retraction that is merged with newer rows only has no effect on
    the older ones, as in Java, except for sums and last values, whose results say what to take back.
    `tests/lsm/test_function_contract.py` tests each function.
    """

    @property
    def retracts(self) -> bool: ...

    def merge(self, column: pa.Array, history: ColumnHistory) -> pa.Array:
        """The value of each key. Raises `BadInput` if a result does not fit the column."""
        ...


def picked(column: pa.Array, rows: np.ndarray) -> pa.Array:
    """The values at `rows`; -1 is null."""
    absent = rows < 0
    return column.take(pa.array(rows, mask=absent) if absent.any() else pa.array(rows))


def python_values(column: pa.Array) -> list[Any]:
    """The cells as Python values, dates and times as integers: Python's own end in the year 9999, and with the microsecond."""
    found: list[Any] = retyped(column, _with_integers(column.type), _cast).to_pylist()
    return found


def from_python(values: list[Any], t: pa.DataType) -> pa.Array:
    """The inverse of `python_values`."""
    return retyped(pa.array(values, _with_integers(t)), t, _cast)


def _cast(column: pa.Array, t: pa.DataType) -> pa.Array:
    return column.cast(t)


def _with_integers(t: pa.DataType) -> pa.DataType:
    """The type with integers for dates and times, at any depth."""
    if pa.types.is_date32(t) or pa.types.is_time32(t):
        return pa.int32()
    if pa.types.is_timestamp(t):
        return pa.int64()
    if pa.types.is_struct(t):
        return pa.struct([field.with_type(_with_integers(field.type)) for field in t])
    if pa.types.is_map(t):
        key, item = (field.with_type(_with_integers(field.type)) for field in (t.key_field, t.item_field))
        return pa.map_(key, item)
    if pa.types.is_list(t):
        return pa.list_(t.value_field.with_type(_with_integers(t.value_type)))
    return t


def validity(column: pa.Array) -> np.ndarray:
    """Whether each value is not null."""
    if column.null_count == 0:
        return np.ones(len(column), dtype=bool)
    return column.is_valid().to_numpy(zero_copy_only=False)


def last_position(history: ColumnHistory, wanted: np.ndarray) -> np.ndarray:
    """The last wanted operation of each key; -1 if there is none."""
    positions = np.arange(len(wanted))
    latest = np.maximum.accumulate(np.where(wanted, positions, -1))
    filled = history.sizes > 0
    found = np.full(history.keys, -1)
    found[filled] = latest[history.starts[1:][filled] - 1]
    return np.where(found >= history.starts[:-1], found, -1)


def first_position(history: ColumnHistory, wanted: np.ndarray) -> np.ndarray:
    """The first wanted operation of each key; -1 if there is none."""
    found = np.full(history.keys, -1)
    hits = np.flatnonzero(wanted)
    keys = history.key_of_operation[hits]
    found[keys[::-1]] = hits[::-1]
    return found


def rows_at(history: ColumnHistory, positions: np.ndarray) -> np.ndarray:
    """Row numbers of operations; -1 stays -1."""
    if len(history.rows) == 0:
        return positions
    return np.where(positions >= 0, history.rows[positions], -1)


def overflow(column: str, function: str, t: pa.DataType) -> BadInput:
    """The error for a result that does not fit the column's type."""
    wider = "'DECIMAL(38, 0)'" if pa.types.is_int64(t) else "BIGINT"
    return BadInput(
        f"{function} of column {column} overflows its type",
        "the result of a key is outside of the type's range",
        f"give the column and its old rows a wider type: `paimon-cli alter` with alter-column {shlex.quote(column)} {wider}",
        column=column,
    )


def no_retraction(column: str) -> BadInput:
    """The error for a row of kind -D or -U if the function of a column has no inverse."""
    return BadInput(
        f"column {column} cannot retract a row of kind -D or -U",
        "its aggregate function has no inverse",
        f"set fields.{column}.ignore-retract=true, or leave such rows out of the input",
        column=column,
    )


Step = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class StepByStep:
    """An aggregator that works on `python_values` (None for null), one operation after the other.

    `add(held, value)` returns the new value; `older(held, value)` does so for a row that arrived late (default: `add` with
    swapped arguments), and `take_back(held, value)` for a retraction. `settings`: all that decides what these do; two with the
    same settings are equal.
    """

    settings: tuple[Any, ...]
    add: Step = field(compare=False)
    older: Step | None = field(default=None, compare=False)
    take_back: Step | None = field(default=None, compare=False)

    @property
    def retracts(self) -> bool:
        return self.take_back is not None

    def merge(self, column: pa.Array, history: ColumnHistory) -> pa.Array:
        only_set = history.only_set
        chosen = np.full(history.keys, -1)
        chosen[only_set] = history.rows[history.starts[:-1][only_set]]
        worked = history.only(~only_set[history.key_of_operation])
        values = python_values(column.take(pa.array(worked.rows)))
        codes = worked.codes.tolist()
        results: list[Any] = []
        for key, (low, high) in enumerate(itertools.pairwise(worked.starts.tolist())):
            if not only_set[key]:
                chosen[key] = len(column) + len(results)
                results.append(self._result(values[low:high], codes[low:high]))
        if not results:
            return picked(column, chosen)
        return picked(pa.concat_arrays([column, from_python(results, column.type)]), chosen)

    def _result(self, values: list[Any], codes: list[int]) -> Any:
        held = None
        for value, code in zip(values, codes, strict=True):
            if code == SET:
                held = value
            elif code == REVERSED:
                held = self.add(value, held) if self.older is None else self.older(held, value)
            elif code == RETRACT and self.take_back is not None:
                held = self.take_back(held, value)
            else:
                held = self.add(held, value)
        return held
