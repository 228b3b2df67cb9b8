"""The functions sum and product, with retractions (Java FieldSumAgg, FieldProductAgg)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from paimon_cli.datatypes.arrow_types import low_words
from paimon_cli.datatypes.data_type import FLOATING_ROOTS, INTEGER_ROOTS, DataField
from paimon_cli.errors import BadInput
from paimon_cli.lsm.aggregators.aggregator import RETRACT, SET, Aggregator, ColumnHistory, overflow, validity
from paimon_cli.lsm.aggregators.builder import Builder, expect
from paimon_cli.lsm.aggregators.chosen_values import steps
from paimon_cli.options.table_options import TableOptions

NUMERIC_ROOTS = INTEGER_ROOTS | FLOATING_ROOTS | {"DECIMAL"}

COMPACT_DIGITS = 18
"""Java stores decimals of up to this many digits as 64-bit integers, and adds them without checking for overflow."""
LONG_KEY = 64
"""Keys with more operations than this are summed one by one, because they would need too many parallel steps."""


@dataclass(frozen=True)
class Sum:
    """The function sum.

    Integer overflow is an error; for DECIMAL of more than 18 digits it gives null. FLOAT and DOUBLE are added in order.
    """

    column: str
    retracts: bool = True

    def merge(self, column: pa.Array, history: ColumnHistory) -> pa.Array:
        valued = history.only(validity(column)[history.rows])
        absent = valued.sizes == 0
        t = column.type
        if pa.types.is_floating(t):
            return pa.array(_float_sums(column, valued), t, mask=absent)
        if pa.types.is_decimal(t):
            return _decimal_sums(column, valued)
        values = column.fill_null(0).to_numpy(zero_copy_only=False)[valued.rows].astype(np.int64)
        limits = np.iinfo(t.to_pandas_dtype())
        totals = _totals(values, valued)
        for key in _may_overflow(values, valued, int(limits.max)).tolist():
            for partial in itertools.accumulate(_signed(values, valued, key)):
                if not limits.min <= partial <= limits.max:
                    raise overflow(self.column, "sum", t)
        return pa.array(totals.astype(limits.dtype), t, mask=absent)


def _totals(values: np.ndarray, history: ColumnHistory) -> np.ndarray:
    """The sums modulo 2**64, as in Java's long arithmetic."""
    signed = np.where(history.codes == RETRACT, -values, values) if history.has_retractions else values
    totals = np.zeros(history.keys, dtype=np.int64)
    filled = history.sizes > 0
    if filled.any():
        totals[filled] = np.add.reduceat(signed, history.starts[:-1][filled])
    return totals


def _may_overflow(values: np.ndarray, history: ColumnHistory, limit: int) -> np.ndarray:
    """The keys with values so large that a partial sum might overflow."""
    if len(values) == 0 or max(abs(int(values.min())), abs(int(values.max()))) * history.longest <= limit:
        return np.empty(0, dtype=np.int64)
    filled = np.flatnonzero(history.sizes)
    sizes = np.add.reduceat(np.abs(values.astype(np.float64)), history.starts[:-1][filled])
    return filled[sizes * (1 + 1e-9) > limit]


def _signed(values: np.ndarray, history: ColumnHistory, key: int) -> list[int]:
    """The values of a key as exact integers, negated for retractions."""
    low, high = history.starts[key], history.starts[key + 1]
    numbers: list[int] = values[low:high].tolist()
    return [-n if code == RETRACT else n for n, code in zip(numbers, history.codes[low:high].tolist(), strict=True)]


def _float_sums(column: pa.Array, history: ColumnHistory) -> np.ndarray:
    """The sums, added one after the other in the column's precision, as in Java: the order affects the last digit."""
    values = column.fill_null(0).to_numpy(zero_copy_only=False)[history.rows]
    if history.has_retractions:
        values = np.where(history.codes == RETRACT, -values, values)
    totals = np.zeros(history.keys, dtype=values.dtype)
    long_keys = history.sizes > LONG_KEY
    with np.errstate(over="ignore", invalid="ignore"):
        for key in np.flatnonzero(long_keys).tolist():
            totals[key] = np.add.accumulate(values[history.starts[key] : history.starts[key + 1]])[-1]
        if long_keys.any():
            short = history.only(~long_keys[history.key_of_operation])
            values = values[~long_keys[history.key_of_operation]]
        else:
            short = history
        for step, (keys, operations) in enumerate(steps(short)):
            totals[keys] = values[operations] if step == 0 else totals[keys] + values[operations]
    return totals


def from_unscaled(values: np.ndarray, absent: np.ndarray, t: pa.DataType) -> pa.Array:
    """64-bit integers as unscaled values of a decimal column; null where `absent`."""
    words = np.empty(2 * len(values), dtype=np.int64)
    words[::2], words[1::2] = values, values >> 63
    mask = pa.array(~absent)
    return pa.Array.from_buffers(t, len(values), [mask.buffers()[1], pa.py_buffer(words)])


def _decimal_sums(column: pa.Array, history: ColumnHistory) -> pa.Array:
    t = column.type
    absent = history.sizes == 0
    if t.precision <= COMPACT_DIGITS:
        return from_unscaled(_totals(low_words(column)[history.rows], history), absent, t)
    taken = column.take(pa.array(history.rows))
    words = np.frombuffer(taken.buffers()[1], dtype=np.int64)[2 * taken.offset :]
    low, high = words[::2], words[1::2]
    if len(low) and (high == low >> 63).all() and not len(_may_overflow(low, history, np.iinfo(np.int64).max)):
        return from_unscaled(_totals(low, history), absent, t)
    return _wide_sums(taken, history, t)


def _wide_sums(taken: pa.Array, history: ColumnHistory, t: pa.DataType) -> pa.Array:
    """Sums of decimals with more than 18 digits, key by key. An overflow gives null, and the next value starts a new sum."""
    limit = 10**t.precision
    numbers = wide_integers(taken)
    totals: list[Any] = []
    for low, high in itertools.pairwise(history.starts.tolist()):
        total: int | None = None
        for number, code in zip(numbers[low:high], history.codes[low:high].tolist(), strict=True):
            total = (total or 0) + (-number if code == RETRACT else number)
            if abs(total) >= limit:
                total = None
        totals.append(total)
    return wide_decimals(totals, t)


def wide_integers(column: pa.Array) -> list[int]:
    """The unscaled values of a 128-bit decimal column; arbitrary for nulls."""
    words = np.frombuffer(column.buffers()[1], dtype=np.int64)[2 * column.offset : 2 * (column.offset + len(column))]
    low, high = words[::2].view(np.uint64).tolist(), words[1::2].tolist()
    return [(upper << 64) | lower for lower, upper in zip(low, high, strict=True)]


def wide_decimals(values: list[int | None], t: pa.DataType) -> pa.Array:
    data = b"".join((value or 0).to_bytes(16, "little", signed=True) for value in values)
    mask = pa.array([value is not None for value in values], pa.bool_())
    return pa.Array.from_buffers(t, len(values), [mask.buffers()[1], pa.py_buffer(data)])


@dataclass(frozen=True)
class Product:
    """The function product. Integer overflow is an error; for decimals it gives null.

    A retraction divides; it is ignored if there is no value yet.
    """

    column: str
    retracts: bool = True

    def merge(self, column: pa.Array, history: ColumnHistory) -> pa.Array:
        valued = history.only(validity(column)[history.rows])
        t = column.type
        if pa.types.is_decimal(t):
            return wide_decimals(self._decimals(wide_integers(column.take(pa.array(valued.rows))), valued, t), t)
        if pa.types.is_floating(t):
            values = column.fill_null(0).to_numpy(zero_copy_only=False)[valued.rows]
        else:
            values = column.fill_null(0).to_numpy(zero_copy_only=False)[valued.rows].astype(object)
        held = np.zeros(valued.keys, dtype=values.dtype)
        present = np.zeros(valued.keys, dtype=bool)
        with np.errstate(all="ignore"):
            for keys, operations in steps(valued):
                self._step(t, held, present, keys, values[operations], valued.codes[operations])
        return pa.array(held.astype(t.to_pandas_dtype()), t, mask=~present)

    def _step(
        self, t: pa.DataType, held: np.ndarray, present: np.ndarray, keys: np.ndarray, value: np.ndarray, codes: np.ndarray
    ) -> None:
        """Carry out one operation of each key in `keys`."""
        known, back = present[keys], codes == RETRACT
        begins, multiplies, divides = ~known & ~back, known & ~back, known & back
        held[keys[begins]] = value[begins]
        present[keys[begins]] = True
        held[keys[multiplies]] = held[keys[multiplies]] * value[multiplies]
        if divides.any():
            held[keys[divides]] = self._quotients(held[keys[divides]], value[divides])
        if not pa.types.is_floating(t):
            limits = np.iinfo(t.to_pandas_dtype())
            if ((held[keys] > limits.max) | (held[keys] < limits.min)).any():
                raise overflow(self.column, "product", t)

    def _quotients(self, dividend: np.ndarray, divisor: np.ndarray) -> np.ndarray:
        """Integer quotients rounded towards zero, as in Java."""
        if dividend.dtype != object:
            return dividend / divisor
        if (divisor == 0).any():
            raise self._not_divisible("the row has a 0, which cannot be divided out again")
        sign = np.where((dividend < 0) != (divisor < 0), -1, 1)
        return sign * (abs(dividend) // abs(divisor))

    def _decimals(self, numbers: list[int], history: ColumnHistory, t: pa.DataType) -> list[int | None]:
        """Products of decimals, key by key, because they need more than 64 bits."""
        scale, limit = 10**t.scale, 10**t.precision
        results: list[int | None] = []
        codes = history.codes.tolist()
        for key in range(history.keys):
            held: int | None = None
            for at in range(history.starts[key], history.starts[key + 1]):
                if codes[at] == RETRACT:
                    held = None if held is None else self._exact_quotient(held, numbers[at], scale)
                elif held is None or codes[at] == SET:
                    held = numbers[at]
                else:
                    held = _half_up(Fraction(held * numbers[at], scale))
                held = held if held is None or abs(held) < limit else None
            results.append(held)
        return results

    def _exact_quotient(self, dividend: int, divisor: int, scale: int) -> int:
        if divisor == 0:
            raise self._not_divisible("the row has a 0, which cannot be divided out again")
        quotient = Fraction(dividend, divisor)
        denominator = quotient.denominator
        for prime in (2, 5):
            while denominator % prime == 0:
                denominator //= prime
        if denominator != 1:
            raise self._not_divisible("the quotient has no finite decimal form")
        return _half_up(quotient * scale)

    def _not_divisible(self, why: str) -> BadInput:
        return BadInput(
            f"product of column {self.column} cannot retract a row",
            why,
            f"set fields.{self.column}.ignore-retract=true to leave such rows out",
            column=self.column,
        )


def _half_up(number: Fraction) -> int:
    """The number rounded to an integer, halves away from zero."""
    size = (2 * abs(number.numerator) + number.denominator) // (2 * number.denominator)
    return -size if number < 0 else size


def _sum(field: DataField, options: TableOptions) -> Aggregator:
    expect("sum", field, field.type.root in NUMERIC_ROOTS, "numbers")
    return Sum(field.name)


def _product(field: DataField, options: TableOptions) -> Aggregator:
    expect("product", field, field.type.root in NUMERIC_ROOTS, "numbers")
    return Product(field.name)


FUNCTIONS: dict[str, Builder] = {"sum": _sum, "product": _product}
