"""One `column = expression` of an update: what it writes in place of a row's value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.data_type import DataField
from paimon_cli.read.expressions import DECIMAL, WHOLE, Expression, as_kind, kind_of


class BadRow(Exception):
    """An expression that does not compute for a row; `row` counts from 0 within the batch, `why` as in "overflow"."""

    def __init__(self, row: int, why: str) -> None:
        super().__init__(row, why)
        self.row = row
        self.why = why


@dataclass(frozen=True)
class Assignment:
    """One column and what it becomes; `sql` is the expression as typed."""

    column: DataField
    expression: Expression
    sql: str

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        """A value per row, of the column's kind but not yet of its width; decimals are rounded half up to its digits.

        Every expression sees the values from before the update. Raises `BadRow` for the first row that does not compute.
        """
        try:
            return self._evaluate(batch)
        except pa.ArrowInvalid as problem:
            raise BadRow(self._first_bad_row(batch), str(problem)) from problem

    def _evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        t = self.column.type
        values = as_kind(self.expression.evaluate(batch), kind_of(t))
        if kind_of(t) == WHOLE:
            return values.cast(pa.int64())
        if kind_of(t) == DECIMAL and values.type.scale > (t.scale or 0):
            values = pc.round(values, t.scale, round_mode="half_towards_infinity")
        return values

    def _first_bad_row(self, batch: pa.RecordBatch) -> int:
        """By halving."""
        low, high = 0, batch.num_rows
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._computes(batch.slice(low, middle - low)) else (low, middle)
        return low

    def _computes(self, batch: pa.RecordBatch) -> bool:
        try:
            self._evaluate(batch)
        except pa.ArrowInvalid:
            return False
        return True

    def columns(self) -> Iterator[str]:
        """Columns that the expression reads."""
        yield from self.expression.columns()
