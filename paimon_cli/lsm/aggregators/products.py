"""product, with retraction by division (Java FieldProductAgg)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa

from paimon_cli.errors import BadInput
from paimon_cli.lsm.aggregators.aggregator import overflow, validity
from paimon_cli.lsm.aggregators.chosen_values import steps
from paimon_cli.lsm.aggregators.sums import wide_decimals, wide_integers
from paimon_cli.lsm.column_history import RETRACT, SET, ColumnHistory


@dataclass(frozen=True)
class Product:
    """Integers raise on overflow, decimals become null; a retraction divides, and without a value it changes nothing."""

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
        """One operation of every key in `keys`."""
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
                raise overflow(self.column, "product")

    def _quotients(self, dividend: np.ndarray, divisor: np.ndarray) -> np.ndarray:
        """Integers are cut toward zero, as Java divides."""
        if dividend.dtype != object:
            return dividend / divisor
        if (divisor == 0).any():
            raise self._not_divisible("a 0 was multiplied in, and cannot be divided out")
        sign = np.where((dividend < 0) != (divisor < 0), -1, 1)
        return sign * (abs(dividend) // abs(divisor))

    def _decimals(self, numbers: list[int], history: ColumnHistory, t: pa.DataType) -> list[int | None]:
        """Key by key: products of decimals need more digits than the machine has."""
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
            raise self._not_divisible("a 0 was multiplied in, and cannot be divided out")
        quotient = Fraction(dividend, divisor)
        rest = quotient.denominator
        for prime in (2, 5):
            while rest % prime == 0:
                rest //= prime
        if rest != 1:
            raise self._not_divisible("the quotient has no finite decimal form")
        return _half_up(quotient * scale)

    def _not_divisible(self, why: str) -> BadInput:
        return BadInput(
            f"product of column {self.column} cannot take a row back",
            why,
            f"set fields.{self.column}.ignore-retract=true to leave such rows out",
            column=self.column,
        )


def _half_up(number: Fraction) -> int:
    """Rounded to an integer, halves away from zero."""
    size = (2 * abs(number.numerator) + number.denominator) // (2 * number.denominator)
    return -size if number < 0 else size
