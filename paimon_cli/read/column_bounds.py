"""What is known of the values of a column without reading them: bounds and nulls, for pruning (FORMAT.md, section 5.4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ColumnBounds:
    """Of `rows` values `nulls` are null (None: unknown); the others lie in [`low`, `high`] (None: unknown).

    Values are internal values of `datatypes.values`. `exact`: low and high occur and are no shortened texts.
    """

    rows: int
    nulls: int | None
    low: Any = None
    high: Any = None
    exact: bool = False
    holds: Callable[[tuple[Any, ...]], bool] | None = None
    """An index of the column: False only if none of the values is in it."""

    @property
    def only_nulls(self) -> bool:
        return self.nulls is not None and self.nulls >= self.rows

    @property
    def no_nulls(self) -> bool:
        return self.nulls == 0

    @property
    def single(self) -> bool:
        """Every value that is not null is `low`."""
        return self.exact and self.low is not None and self.low == self.high

    def may_hold(self, *values: Any) -> bool:
        """False only if the index rules out all of the values."""
        return self.holds is None or self.holds(values)

    @staticmethod
    def of_value(value: Any) -> ColumnBounds:
        """Bounds of a column that holds one value only: a partition column within a partition."""
        return ColumnBounds(1, int(value is None), value, value, exact=True)


BoundsOf = Callable[[str], ColumnBounds | None]
"""Bounds of a column by name; None: nothing is known."""
