"""What an aggregate function is (Java FieldAggregator).

A function picks rows for all keys at once, or, where its values are collections, loops over the operations of each key.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from paimon_cli.errors import BadInput
from paimon_cli.lsm.sorted_rows import RETRACT, REVERSED, SET, ColumnHistory


class Aggregator(Protocol):
    """One aggregate function of one column; `retracts`: whether a retraction can be taken back."""

    @property
    def retracts(self) -> bool: ...

    def merge(self, column: pa.Array, history: ColumnHistory) -> pa.Array:
        """One value per key. BadInput when a value does not fit the column."""
        ...


def picked(column: pa.Array, rows: np.ndarray) -> pa.Array:
    """The values at `rows`; -1 is null."""
    absent = rows < 0
    return column.take(pa.array(rows, mask=absent) if absent.any() else pa.array(rows))


def validity(column: pa.Array) -> np.ndarray:
    """Which values are not null."""
    if column.null_count == 0:
        return np.ones(len(column), dtype=bool)
    return column.is_valid().to_numpy(zero_copy_only=False)


def last_position(history: ColumnHistory, wanted: np.ndarray) -> np.ndarray:
    """Of each key the last wanted operation; -1 if there is none."""
    positions = np.arange(len(wanted))
    latest = np.maximum.accumulate(np.where(wanted, positions, -1))
    filled = history.sizes > 0
    found = np.full(history.keys, -1)
    found[filled] = latest[history.starts[1:][filled] - 1]
    return np.where(found >= history.starts[:-1], found, -1)


def first_position(history: ColumnHistory, wanted: np.ndarray) -> np.ndarray:
    """Of each key the first wanted operation; -1 if there is none."""
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


def overflow(column: str, function: str) -> BadInput:
    """The result does not fit the column's type."""
    return BadInput(
        f"{function} of column {column} overflows its type",
        "the result of a key is outside of the type's range",
        "widen the column, or correct the rows",
        column=column,
    )


Step = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class StepByStep:
    """`add(held, value)`, `older` (default: the two in other order) and `take_back` on Python values, None for null."""

    add: Step
    older: Step | None = None
    take_back: Step | None = None

    @property
    def retracts(self) -> bool:
        return self.take_back is not None

    def merge(self, column: pa.Array, history: ColumnHistory) -> pa.Array:
        untouched = history.untouched
        chosen = np.full(history.keys, -1)
        chosen[untouched] = history.rows[history.starts[:-1][untouched]]
        worked = history.only(~untouched[history.key_of_operation])
        values = column.take(pa.array(worked.rows)).to_pylist()
        codes = worked.codes.tolist()
        results: list[Any] = []
        for key, (low, high) in enumerate(itertools.pairwise(worked.starts.tolist())):
            if not untouched[key]:
                chosen[key] = len(column) + len(results)
                results.append(self._result(values[low:high], codes[low:high]))
        if not results:
            return picked(column, chosen)
        return picked(pa.concat_arrays([column, pa.array(results, column.type)]), chosen)

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
