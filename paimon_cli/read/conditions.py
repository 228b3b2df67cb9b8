"""The predicate tree: each node gives an Arrow expression for rows and a cautious answer for bounds.

NOT has been pushed to the leaves, so a leaf's null counts as false and SQL's three-valued logic needs no third value.
FLOAT and DOUBLE compare as IEEE 754 says (NaN equals nothing, -0.0 equals 0.0), as Arrow does; Spark differs for NaN.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.read.column_bounds import BoundsOf, ColumnBounds

FUNCTIONS = {"": lambda e: e, "lower": pc.utf8_lower, "upper": pc.utf8_upper, "length": pc.utf8_length}


class Condition(Protocol):
    """A node of the tree."""

    def expression(self) -> pc.Expression:
        """True for the rows that match; false or null for the others."""
        ...

    def may_match(self, bounds_of: BoundsOf) -> bool:
        """False only if no row within the bounds can match."""
        ...

    def columns(self) -> Iterator[str]: ...


@dataclass(frozen=True)
class Term:
    """A column, or lower, upper or length of it."""

    column: str
    function: str = ""

    def expression(self) -> pc.Expression:
        return FUNCTIONS[self.function](pc.field(self.column))

    def bounds(self, bounds_of: BoundsOf) -> ColumnBounds | None:
        """A function's values have no bounds here, but it is null exactly where its column is."""
        found = bounds_of(self.column)
        return found if not self.function or found is None else ColumnBounds(found.rows, found.nulls)


@dataclass(frozen=True)
class Always:
    """TRUE or FALSE (NULL too: it selects no row)."""

    value: bool

    def expression(self) -> pc.Expression:
        return pc.scalar(self.value)

    def may_match(self, bounds_of: BoundsOf) -> bool:
        return self.value

    def columns(self) -> Iterator[str]:
        yield from ()


@dataclass(frozen=True)
class Compare:
    """`term op value`, op one of = != < <= > >=; `value` internal, `scalar` the same for Arrow.

    `negated`: NOT of it, kept for floating columns only, where NaN makes NOT (x < 1) differ from x >= 1.
    """

    term: Term
    op: str
    value: Any
    scalar: pa.Scalar
    negated: bool = False

    def expression(self) -> pc.Expression:
        e, s = self.term.expression(), pc.scalar(self.scalar)
        compared = {"=": e == s, "!=": e != s, "<": e < s, "<=": e <= s, ">": e > s, ">=": e >= s}[self.op]
        return ~compared if self.negated else compared

    def may_match(self, bounds_of: BoundsOf) -> bool:
        bounds = self.term.bounds(bounds_of)
        if bounds is None or (not bounds.only_nulls and self.negated):
            return True
        if bounds.only_nulls:
            return False
        low, high = bounds.low, bounds.high
        if self.op == "!=":
            return not (bounds.single and low == self.value)
        below = low is not None and self.value < low
        above = high is not None and self.value > high
        if self.op == "=":
            return not (below or above) and bounds.may_hold(self.value)
        if self.op in ("<", "<="):
            return not (below or (self.op == "<" and low is not None and self.value == low))
        return not (above or (self.op == ">" and high is not None and self.value == high))

    def columns(self) -> Iterator[str]:
        yield self.term.column


@dataclass(frozen=True)
class OneOf:
    """`term [NOT] IN (values)`; the values are not null and not empty."""

    term: Term
    values: tuple[Any, ...]
    scalars: pa.Array
    negated: bool = False

    def expression(self) -> pc.Expression:
        term = self.term.expression()
        found = term.isin(self.scalars)
        return term.is_valid() & ~found if self.negated else found

    def may_match(self, bounds_of: BoundsOf) -> bool:
        bounds = self.term.bounds(bounds_of)
        if bounds is None:
            return True
        if bounds.only_nulls:
            return False
        if self.negated:
            return not (bounds.single and bounds.low in self.values)
        low, high = bounds.low, bounds.high
        inside = [value for value in self.values if (low is None or value >= low) and (high is None or value <= high)]
        return bool(inside) and bounds.may_hold(*inside)

    def columns(self) -> Iterator[str]:
        yield self.term.column


@dataclass(frozen=True)
class IsNull:
    """`column IS [NOT] NULL`."""

    term: Term
    negated: bool = False

    def expression(self) -> pc.Expression:
        term = self.term.expression()
        return term.is_valid() if self.negated else term.is_null()

    def may_match(self, bounds_of: BoundsOf) -> bool:
        bounds = self.term.bounds(bounds_of)
        if bounds is None:
            return True
        return not bounds.only_nulls if self.negated else not bounds.no_nulls

    def columns(self) -> Iterator[str]:
        yield self.term.column


@dataclass(frozen=True)
class Like:
    """`term [NOT] LIKE pattern`; `regex` says the same, `prefix` is what every match begins with."""

    term: Term
    regex: str
    prefix: str
    negated: bool = False

    def expression(self) -> pc.Expression:
        found = pc.match_substring_regex(self.term.expression(), rf"(?s)\A(?:{self.regex})\z")
        return ~found if self.negated else found

    def may_match(self, bounds_of: BoundsOf) -> bool:
        bounds = self.term.bounds(bounds_of)
        if bounds is None:
            return True
        if bounds.only_nulls:
            return False
        if bounds.single:
            return (re.fullmatch(self.regex, bounds.low, re.DOTALL) is not None) != self.negated
        if self.negated:
            return True
        too_high = bounds.low is not None and bounds.low[: len(self.prefix)] > self.prefix
        too_low = bounds.high is not None and bounds.high[: len(self.prefix)] < self.prefix
        return not (too_high or too_low)

    def columns(self) -> Iterator[str]:
        yield self.term.column


@dataclass(frozen=True)
class And:
    parts: tuple[Condition, ...]

    def expression(self) -> pc.Expression:
        combined = self.parts[0].expression()
        for part in self.parts[1:]:
            combined = combined & part.expression()
        return combined

    def may_match(self, bounds_of: BoundsOf) -> bool:
        return all(part.may_match(bounds_of) for part in self.parts)

    def columns(self) -> Iterator[str]:
        for part in self.parts:
            yield from part.columns()


@dataclass(frozen=True)
class Or:
    parts: tuple[Condition, ...]

    def expression(self) -> pc.Expression:
        combined = self.parts[0].expression()
        for part in self.parts[1:]:
            combined = combined | part.expression()
        return combined

    def may_match(self, bounds_of: BoundsOf) -> bool:
        return any(part.may_match(bounds_of) for part in self.parts)

    def columns(self) -> Iterator[str]:
        for part in self.parts:
            yield from part.columns()
