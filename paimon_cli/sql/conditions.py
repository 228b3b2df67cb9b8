"""The predicate tree. Each node can be evaluated on a batch of rows and, conservatively, on column bounds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.arrow_types import values_to_arrow
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.errors import UsageError
from paimon_cli.options.option_text import shortened
from paimon_cli.sql.expressions import BoundsOf, ColumnBounds, ColumnValue, Expression, bounds_of_term, with_common_type

_COMPARISONS: dict[str, Callable[..., pa.Array]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


class Condition(Protocol):
    """A node of the predicate tree."""

    def matches(self, batch: pa.RecordBatch) -> pa.Array:
        """True for the rows that match; false or null for the others."""
        ...

    def may_match(self, bounds_of: BoundsOf) -> bool:
        """False only if no row within the bounds can match."""
        ...

    def must_match(self, bounds_of: BoundsOf) -> bool:
        """True only if every row within the bounds matches."""
        ...

    def columns(self) -> Iterator[str]: ...

    @property
    def can_fail(self) -> bool:
        """Whether evaluation may fail for some rows, such as by a division by zero."""
        ...


def _values(term: Expression, batch: pa.RecordBatch) -> pa.Array:
    """The values to compare: those of a column as stored, since the other side is a scalar of the same type."""
    return term.stored(batch) if isinstance(term, ColumnValue) else term.evaluate(batch)


@dataclass(frozen=True)
class Always:
    """The constant TRUE or FALSE. NULL is represented as FALSE, because neither selects a row."""

    value: bool
    can_fail = False

    def matches(self, batch: pa.RecordBatch) -> pa.Array:
        return _constant(batch, self.value)

    def may_match(self, bounds_of: BoundsOf) -> bool:
        return self.value

    def must_match(self, bounds_of: BoundsOf) -> bool:
        return self.value

    def columns(self) -> Iterator[str]:
        yield from ()


@dataclass(frozen=True)
class _TermCondition:
    """A condition on the values of one expression. Except for IS NULL, nulls never satisfy it."""

    term: Expression
    can_fail = False

    def may_match(self, bounds_of: BoundsOf) -> bool:
        bounds = bounds_of_term(self.term, bounds_of)
        return bounds is None or (not bounds.only_nulls and self._may_hold(bounds))

    def _may_hold(self, bounds: ColumnBounds) -> bool:
        """False only if no value within the bounds satisfies the condition."""
        return True

    def must_match(self, bounds_of: BoundsOf) -> bool:
        if not isinstance(self.term, ColumnValue) or self.term.path:
            return False
        bounds = bounds_of(self.term.name)
        return bounds is not None and bounds.no_nulls and self._must_hold(bounds)

    def _must_hold(self, bounds: ColumnBounds) -> bool:
        """True only if every value within the bounds, which include no null, satisfies the condition."""
        return False

    def columns(self) -> Iterator[str]:
        yield from self.term.columns()


@dataclass(frozen=True)
class Compare(_TermCondition):
    """`term op value`, where op is = != < <= > or >=. `value` is an internal value, and `scalar` is the same value in Arrow.

    `negated` is used only for floating-point columns: with NaN, NOT (x < 1) differs from x >= 1.
    """

    op: str
    value: Any
    scalar: pa.Scalar
    negated: bool = False

    def matches(self, batch: pa.RecordBatch) -> pa.Array:
        compared = _COMPARISONS[self.op](_values(self.term, batch), self.scalar)
        return pc.invert(compared) if self.negated else compared

    def _may_hold(self, bounds: ColumnBounds) -> bool:
        if self.negated:
            return True
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

    def _must_hold(self, bounds: ColumnBounds) -> bool:
        low, high = bounds.low, bounds.high
        if low is None or high is None or isinstance(self.value, float):  # NaN is not covered by the bounds
            return False
        if self.op in ("=", "!="):
            return (low == high == self.value) if self.op == "=" else (self.value < low or self.value > high)
        if self.op in ("<", "<="):
            return bool(high < self.value or (self.op == "<=" and high == self.value))
        return bool(low > self.value or (self.op == ">=" and low == self.value))


@dataclass(frozen=True)
class OneOf(_TermCondition):
    """`term [NOT] IN (values)`. One or more values; none is null or floating-point, which Arrow would compare bitwise."""

    values: tuple[Any, ...]
    scalars: pa.Array
    negated: bool = False

    def matches(self, batch: pa.RecordBatch) -> pa.Array:
        values = _values(self.term, batch)
        found = pc.is_in(values, self.scalars)
        return pc.and_(values.is_valid(), pc.invert(found)) if self.negated else found

    def _may_hold(self, bounds: ColumnBounds) -> bool:
        if self.negated:
            return not (bounds.single and bounds.low in self.values)
        low, high = bounds.low, bounds.high
        inside = [value for value in self.values if (low is None or value >= low) and (high is None or value <= high)]
        return bool(inside) and bounds.may_hold(*inside)

    def _must_hold(self, bounds: ColumnBounds) -> bool:
        low, high = bounds.low, bounds.high
        if low is None or high is None:
            return False
        if self.negated:
            return not any(low <= value <= high for value in self.values)
        return low == high and low in self.values


@dataclass(frozen=True)
class IsNull(_TermCondition):
    """`term IS [NOT] NULL`."""

    negated: bool = False

    def matches(self, batch: pa.RecordBatch) -> pa.Array:
        values = _values(self.term, batch)
        return values.is_valid() if self.negated else values.is_null()

    def may_match(self, bounds_of: BoundsOf) -> bool:
        bounds = bounds_of_term(self.term, bounds_of)
        if bounds is None:
            return True
        return not bounds.only_nulls if self.negated else not bounds.no_nulls

    def must_match(self, bounds_of: BoundsOf) -> bool:
        if not isinstance(self.term, ColumnValue) or self.term.path:
            return False
        bounds = bounds_of(self.term.name)
        return bounds is not None and (bounds.no_nulls if self.negated else bounds.only_nulls)


@dataclass(frozen=True)
class IsNan(_TermCondition):
    """`[NOT] isnan(term)` for a floating-point expression; null for null. Bounds never prune it: they do not cover NaN."""

    negated: bool = False

    def matches(self, batch: pa.RecordBatch) -> pa.Array:
        found = pc.is_nan(_values(self.term, batch))
        return pc.invert(found) if self.negated else found


@dataclass(frozen=True)
class Like(_TermCondition):
    """`term [NOT] LIKE pattern`. `regex` is the equivalent regular expression; every match starts with `prefix`."""

    regex: str
    prefix: str
    negated: bool = False

    def matches(self, batch: pa.RecordBatch) -> pa.Array:
        found = pc.match_substring_regex(_values(self.term, batch), rf"(?s)\A(?:{self.regex})\z")
        return pc.invert(found) if self.negated else found

    def _may_hold(self, bounds: ColumnBounds) -> bool:
        if bounds.single:
            return (re.fullmatch(self.regex, bounds.low, re.DOTALL) is not None) != self.negated
        if self.negated:
            return True
        too_high = bounds.low is not None and bounds.low[: len(self.prefix)] > self.prefix
        too_low = bounds.high is not None and bounds.high[: len(self.prefix)] < self.prefix
        return not (too_high or too_low)


@dataclass(frozen=True)
class Related:
    """`left op right`, two expressions compared as `kind`. `text`: the comparison as written; `fields`: the columns it reads."""

    left: Expression
    op: str
    right: Expression
    kind: str
    text: str
    fields: tuple[DataField, ...]
    negated: bool = False
    can_fail = True

    def matches(self, batch: pa.RecordBatch) -> pa.Array:
        try:
            left, right = with_common_type([self.left.evaluate(batch), self.right.evaluate(batch)], self.kind)
            compared = _COMPARISONS[self.op](left, right)
        except pa.ArrowInvalid as problem:
            hint = "exclude such rows with AND, which evaluates it only where the other conditions hold: b <> 0 AND a / b > 1"
            raise UsageError(f"{shortened(self.text)} cannot be evaluated for every row", str(problem), hint) from problem
        return pc.invert(compared) if self.negated else compared

    def may_match(self, bounds_of: BoundsOf) -> bool:
        """False only if each column has a single value in all rows, as partition columns do, and these values do not match."""
        known = [bounds_of(field.name) for field in self.fields]
        values: list[Any] = []
        for bounds in known:
            if bounds is None or not (bounds.only_nulls or (bounds.single and bounds.no_nulls)):
                return True
            values.append(None if bounds.only_nulls else bounds.low)
        columns = [values_to_arrow([value], field.type) for value, field in zip(values, self.fields, strict=True)]
        row = pa.RecordBatch.from_arrays(columns, names=[field.name for field in self.fields])
        try:
            return self.matches(row)[0].as_py() is True if columns else True
        except UsageError:
            return True

    def must_match(self, bounds_of: BoundsOf) -> bool:
        return False

    def columns(self) -> Iterator[str]:
        yield from (field.name for field in self.fields)


@dataclass(frozen=True)
class Fails:
    """The rows for which a condition is FALSE or NULL: never NULL itself, unlike NOT."""

    condition: Condition

    def matches(self, batch: pa.RecordBatch) -> pa.Array:
        return pc.invert(self.condition.matches(batch).fill_null(False))

    def may_match(self, bounds_of: BoundsOf) -> bool:
        return not self.condition.must_match(bounds_of)

    def must_match(self, bounds_of: BoundsOf) -> bool:
        return not self.condition.may_match(bounds_of)

    def columns(self) -> Iterator[str]:
        return self.condition.columns()

    @property
    def can_fail(self) -> bool:
        return self.condition.can_fail


@dataclass(frozen=True)
class Joined:
    """Conditions joined by AND or OR."""

    parts: tuple[Condition, ...]

    def columns(self) -> Iterator[str]:
        for part in self.parts:
            yield from part.columns()

    @property
    def can_fail(self) -> bool:
        return any(part.can_fail for part in self.parts)


class And(Joined):
    """AND. Parts that can fail are evaluated only for rows that satisfy the other parts."""

    def matches(self, batch: pa.RecordBatch) -> pa.Array:
        return _joined(self.parts, batch, pc.and_kleene, neutral=True)

    def may_match(self, bounds_of: BoundsOf) -> bool:
        return all(part.may_match(bounds_of) for part in self.parts)

    def must_match(self, bounds_of: BoundsOf) -> bool:
        return all(part.must_match(bounds_of) for part in self.parts)


class Or(Joined):
    """OR. Parts that can fail are evaluated only for rows that do not satisfy the other parts."""

    def matches(self, batch: pa.RecordBatch) -> pa.Array:
        return _joined(self.parts, batch, pc.or_kleene, neutral=False)

    def may_match(self, bounds_of: BoundsOf) -> bool:
        return any(part.may_match(bounds_of) for part in self.parts)

    def must_match(self, bounds_of: BoundsOf) -> bool:
        return any(part.must_match(bounds_of) for part in self.parts)


def _joined(parts: Sequence[Condition], batch: pa.RecordBatch, join: Callable[..., pa.Array], neutral: bool) -> pa.Array:
    """Combine the parts by `join`; `neutral` is its neutral element: TRUE for AND, FALSE for OR."""
    found = _constant(batch, neutral)
    for part in sorted(parts, key=lambda part: part.can_fail):
        if not part.can_fail:
            found = join(found, part.matches(batch))
            continue
        open_rows = pc.equal(found, neutral).fill_null(True)
        if open_rows.false_count:
            names = list(dict.fromkeys(part.columns()))
            answers = part.matches(batch.select(names).filter(open_rows))
            found = join(found, pc.replace_with_mask(_constant(batch, neutral), open_rows, answers))
        else:
            found = join(found, part.matches(batch))
    return found


def _constant(batch: pa.RecordBatch, value: bool) -> pa.Array:
    return pa.array(np.full(batch.num_rows, value))
