"""Functions that choose one value of a key: first, last, largest, smallest (Java FieldLastValueAgg, FieldMaxAgg ...).

If rows arrive late (REVERSED) or are retracted, the result depends on every operation. Then all keys advance in parallel, one
operation per step: the number of steps is the largest number of operations of any key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from paimon_cli.datatypes.data_type import DataField, NestedType
from paimon_cli.datatypes.key_order import order_words
from paimon_cli.lsm.aggregators.aggregator import (
    ADD,
    RETRACT,
    REVERSED,
    SET,
    Aggregator,
    ColumnHistory,
    first_position,
    last_position,
    picked,
    rows_at,
    validity,
)
from paimon_cli.lsm.aggregators.builder import Builder, expect
from paimon_cli.options.table_options import TableOptions

STEPS_BACK = 6


def steps(history: ColumnHistory) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The keys and operations of each step: the first operation of each key, then the second of keys that have one, and so on."""
    longest_first = np.argsort(-history.sizes, kind="stable")
    sizes = history.sizes[longest_first]
    for step in range(history.longest):
        keys = longest_first[: np.searchsorted(-sizes, -step, side="left")]
        yield keys, history.starts[keys] + step


def last_valid(history: ColumnHistory, valid: np.ndarray) -> np.ndarray:
    """The last operation of each key whose row is `valid` (bool per row); -1 if there is none.

    The last few operations of each key are tried first, because most keys have a valid row there.
    """
    found = np.where(history.sizes > 0, history.starts[1:] - 1, -1)
    searching = np.flatnonzero(history.sizes)
    for _ in range(STEPS_BACK):
        searching = searching[~valid[history.rows[found[searching]]]]
        found[searching] -= 1
        ended = found[searching] < history.starts[searching]
        found[searching[ended]] = -1
        searching = searching[~ended]
        if not len(searching):
            return found
    return last_position(history, valid[history.rows])


@dataclass(frozen=True)
class LastValue:
    """The newest value, which may be null; null after a retraction. Older rows are ignored (Java FieldLastValueAgg)."""

    retracts: bool = True

    def merge(self, column: pa.Array, history: ColumnHistory) -> pa.Array:
        if not history.has_reversed and not history.has_retractions and history.sizes.all():
            return column.take(pa.array(history.rows[history.starts[1:] - 1]))
        last = last_position(history, history.codes != REVERSED)
        taken_back = (last >= 0) & (history.codes[last] == RETRACT) if len(history.codes) else last >= 0
        return picked(column, rows_at(history, np.where(taken_back, -1, last)))


@dataclass(frozen=True)
class LastNonNullValue:
    """The newest value that is not null; null after a retraction with a value (Java FieldLastNonNullValueAgg)."""

    retracts: bool = True

    def merge(self, column: pa.Array, history: ColumnHistory) -> pa.Array:
        if column.null_count == 0 and not history.has_reversed:
            return LastValue().merge(column, history)
        valid = validity(column)
        if history.has_reversed:
            return self._stepped(column, history, valid[history.rows])
        last = last_valid(history, valid)
        if history.has_retractions:
            last = np.where((last >= 0) & (history.codes[last] == RETRACT), -1, last)
        return picked(column, rows_at(history, last))

    def _stepped(self, column: pa.Array, history: ColumnHistory, valid: np.ndarray) -> pa.Array:
        chosen = np.full(history.keys, -1)
        for keys, operations in steps(history):
            codes, value = history.codes[operations], np.where(valid[operations], history.rows[operations], -1)
            kept = chosen[keys]
            added = np.where(value >= 0, value, kept)
            older = np.where(kept >= 0, kept, value)
            retracted = np.where(value >= 0, -1, kept)
            chosen[keys] = np.select([codes == SET, codes == REVERSED, codes == RETRACT], [value, older, retracted], added)
        return picked(column, chosen)


@dataclass(frozen=True)
class FirstValue:
    """The first value, which may be null unless `skip_nulls`. An older row that arrives late replaces it.

    The value of a SET does not count as the first one (Java FieldFirstValueAgg, FieldFirstNonNullValueAgg).
    """

    skip_nulls: bool = False
    retracts: bool = False

    def merge(self, column: pa.Array, history: ColumnHistory) -> pa.Array:
        if history.whole is not None:
            return self._stepped(column, history.whole)
        if history.has_reversed:
            return self._stepped(column, history)
        valid = validity(column)[history.rows]
        wanted = (history.codes == ADD) & (valid if self.skip_nulls else True)
        first = first_position(history, wanted)
        start = first_position(history, history.codes == SET)
        return picked(column, rows_at(history, np.where(first < 0, start, first)))

    def _stepped(self, column: pa.Array, history: ColumnHistory) -> pa.Array:
        valid = validity(column)[history.rows]
        chosen = np.full(history.keys, -1)
        has_value, begun = np.zeros((2, history.keys), dtype=bool)
        for keys, operations in steps(history):
            codes, rows, present = history.codes[operations], history.rows[operations], valid[operations]
            kept, kept_present, started = chosen[keys], has_value[keys], begun[keys]
            reversed_, put = codes == REVERSED, codes == SET
            usable = np.where(reversed_, kept_present, present) if self.skip_nulls else np.ones(len(keys), dtype=bool)
            starts_now = ~started & usable & ~put
            takes_row = put | np.where(reversed_, ~starts_now, starts_now)
            chosen[keys] = np.where(takes_row, rows, kept)
            has_value[keys] = np.where(takes_row, present, kept_present)
            begun[keys] = started | starts_now
        return picked(column, chosen)


@dataclass(frozen=True)
class Extreme:
    """The greatest (`greatest`) or smallest value that is not null, compared like keys (FORMAT.md, section 7.3)."""

    greatest: bool
    retracts: bool = False

    def merge(self, column: pa.Array, history: ColumnHistory) -> pa.Array:
        valued = history.only(validity(column)[history.rows])
        chosen = np.full(history.keys, -1)
        filled = valued.sizes > 0
        if filled.any():
            starts = valued.starts[:-1][filled]
            words = order_words([column.take(pa.array(valued.rows))])[0]
            words = words if self.greatest else ~words
            best = np.maximum.reduceat(words, starts)
            is_best = words == np.repeat(best, valued.sizes[filled])
            positions = np.where(is_best, np.arange(len(words)), -1)
            chosen[filled] = valued.rows[np.maximum.reduceat(positions, starts)]
        return picked(column, chosen)


def _extreme(function: str, greatest: bool) -> Builder:
    def build(field: DataField, options: TableOptions) -> Aggregator:
        expect(function, field, not isinstance(field.type, NestedType), "values that have an order")
        return Extreme(greatest)

    return build


def _boolean(function: str, greatest: bool) -> Builder:
    def build(field: DataField, options: TableOptions) -> Aggregator:
        expect(function, field, field.type.root == "BOOLEAN", "BOOLEAN")
        return Extreme(greatest)

    return build


LAST_NON_NULL = "last_non_null_value"
FUNCTIONS: dict[str, Builder] = {
    "max": _extreme("max", True),
    "min": _extreme("min", False),
    "bool_or": _boolean("bool_or", True),
    "bool_and": _boolean("bool_and", False),
    "last_value": lambda field, options: LastValue(),
    LAST_NON_NULL: lambda field, options: LastNonNullValue(),
    "first_value": lambda field, options: FirstValue(),
    "first_non_null_value": lambda field, options: FirstValue(skip_nulls=True),
    "first_not_null_value": lambda field, options: FirstValue(skip_nulls=True),
}
