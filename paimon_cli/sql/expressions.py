"""SQL expressions, as used in conditions, assignments and sort keys, and the column bounds that conditions are checked against.

Numbers are computed in the widest type of their kind (int64, decimal256, float64) by kernels that fail on overflow; only an
assignment casts the result to its column's type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import reduce
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.arrow_types import arrow_type, values_to_arrow
from paimon_cli.datatypes.data_type import (
    FLOATING_ROOTS,
    INTEGER_ROOTS,
    BinaryType,
    DataType,
    DecimalType,
    NestedType,
    StringType,
)
from paimon_cli.datatypes.field_types import type_to_sql


class ValueKind:
    """Kinds of values that expressions compute with. Other types are named as in SQL."""

    WHOLE = "integer"
    DECIMAL = "decimal"
    FLOATING = "floating-point number"
    TEXT = "string"
    BINARY = "binary"


NUMERIC = (ValueKind.WHOLE, ValueKind.DECIMAL, ValueKind.FLOATING)
"""Each of these kinds converts implicitly to those after it."""

WIDE_WHOLE = pa.decimal256(19, 0)
MAX_PRECISION = 76
QUOTIENT_DIGITS = 12
"""Decimal dividends are extended to at least this scale; their quotients have a larger one."""


class Expression(Protocol):
    """A value computed from a row. `kind` is one of `ValueKind`, or the SQL name of any other type."""

    @property
    def kind(self) -> str: ...

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        """One value per row. Raises `pa.ArrowInvalid` if the value of any row cannot be computed."""
        ...

    def columns(self) -> Iterator[str]: ...


def kind_of(t: DataType) -> str:
    """The kind of a type, regardless of its width."""
    if t.root in INTEGER_ROOTS:
        return ValueKind.WHOLE
    if isinstance(t, DecimalType):
        return ValueKind.DECIMAL
    if t.root in FLOATING_ROOTS:
        return ValueKind.FLOATING
    if isinstance(t, StringType):
        return ValueKind.TEXT
    if isinstance(t, BinaryType):
        return ValueKind.BINARY
    return type_to_sql(t.with_nullable(True)) if isinstance(t, NestedType) else t.root


def can_become(kind: str, wanted: str) -> bool:
    """Whether values of one kind convert implicitly to another."""
    return kind == wanted or (kind in NUMERIC and wanted in NUMERIC and NUMERIC.index(kind) < NUMERIC.index(wanted))


def as_kind(values: pa.Array, kind: str) -> pa.Array:
    """Numbers cast to the type that this kind is computed in; other values unchanged.

    The integers that `round` returns for a decimal stay decimals, because they may be wider than int64.
    """
    t = values.type
    if kind == ValueKind.WHOLE:
        return values if pa.types.is_decimal(t) else values.cast(pa.int64())
    if kind == ValueKind.DECIMAL:
        return values.cast(pa.decimal256(t.precision, t.scale) if pa.types.is_decimal(t) else WIDE_WHOLE)
    if kind != ValueKind.FLOATING:
        return values
    # Arrow casts decimals by multiplying with an inexact power of ten, but finds the number nearest to a text
    numbers = values.cast(pa.string()) if pa.types.is_decimal(t) else values
    return numbers.cast(pa.float64(), safe=False)


@dataclass(frozen=True)
class ColumnValue:
    """A column, or the field at `path` in a nested column; `type` is the type of the column or field."""

    name: str
    type: DataType
    path: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return kind_of(self.type)

    def stored(self, batch: pa.RecordBatch) -> pa.Array:
        """The values as stored; a field is null where an enclosing ROW is null."""
        values = batch.column(self.name)
        for name in self.path:
            values = pc.struct_field(values, name)
        return values

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        return as_kind(self.stored(batch), self.kind)

    def columns(self) -> Iterator[str]:
        yield self.name


def columns_within(node: object) -> Iterator[ColumnValue]:
    """The columns and fields that an expression or condition reads, at any depth."""
    if isinstance(node, ColumnValue):
        yield node
    elif isinstance(node, (list, tuple)):
        for part in node:
            yield from columns_within(part)
    elif is_dataclass(node):
        for part in fields(node):
            yield from columns_within(getattr(node, part.name))


@dataclass(frozen=True)
class Constant:
    """The same internal value `value` of `type` for every row."""

    value: Any
    type: DataType

    @property
    def kind(self) -> str:
        return kind_of(self.type)

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        if self.value is None:
            return as_kind(pa.nulls(batch.num_rows, arrow_type(self.type)), self.kind)
        rows = pa.array(np.zeros(batch.num_rows, np.int64))
        return as_kind(values_to_arrow([self.value], self.type).take(rows), self.kind)

    def columns(self) -> Iterator[str]:
        yield from ()


@dataclass(frozen=True)
class Given:
    """The same value for every row: `value`, an array of one, which has the type of the column that gets it."""

    value: pa.Array

    @property
    def kind(self) -> str:
        return str(self.value.type)

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        return self.value.take(pa.array(np.zeros(batch.num_rows, np.int64)))

    def columns(self) -> Iterator[str]:
        yield from ()


@dataclass(frozen=True)
class Arithmetic:
    """`left op right`, where op is + - * / or %. Dividing two integers gives an integer, rounded toward zero."""

    op: str
    left: Expression
    right: Expression

    @property
    def kind(self) -> str:
        return max(self.left.kind, self.right.kind, key=NUMERIC.index)

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        left, right = (as_kind(side.evaluate(batch), self.kind) for side in (self.left, self.right))
        if self.kind == ValueKind.WHOLE:
            left, right = _whole_operands(left, right, exact=self.op in "+-*")
        elif self.op == "/" and self.kind == ValueKind.DECIMAL:
            left = _with_digits(left, QUOTIENT_DIGITS)
        result = _OPERATORS[self.op](left, right)
        if self.kind == ValueKind.FLOATING and bool(np.any(_infinite(result) & ~_infinite(left) & ~_infinite(right))):
            raise pa.ArrowInvalid("overflow")
        return result

    def columns(self) -> Iterator[str]:
        yield from self.left.columns()
        yield from self.right.columns()


@dataclass(frozen=True)
class Function:
    """A function call; `kind` is the kind of its result, which is null where an argument is null."""

    name: str
    arguments: tuple[Expression, ...]
    kind: str

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        return _FUNCTIONS[self.name]([argument.evaluate(batch) for argument in self.arguments])

    def columns(self) -> Iterator[str]:
        for argument in self.arguments:
            yield from argument.columns()


@dataclass(frozen=True)
class Coalesce:
    """The first argument that is not null. The arguments are all of one kind, or all numbers."""

    arguments: tuple[Expression, ...]

    @property
    def kind(self) -> str:
        return reduce(lambda known, other: other if can_become(known, other) else known, (a.kind for a in self.arguments))

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        return pc.coalesce(*with_common_type([argument.evaluate(batch) for argument in self.arguments], self.kind))

    def columns(self) -> Iterator[str]:
        for argument in self.arguments:
            yield from argument.columns()


@dataclass(frozen=True)
class SortKey:
    """One element of ORDER BY. Nulls sort last unless `nulls_first`; NaN sorts above every number."""

    value: Expression
    descending: bool = False
    nulls_first: bool = False


def _with_digits(values: pa.Array, digits: int) -> pa.Array:
    more = max(0, digits - values.type.scale)
    return values.cast(_decimal(values.type.precision + more, values.type.scale + more))


def with_common_type(values: list[pa.Array], kind: str) -> list[pa.Array]:
    """The arrays cast to one type of this kind; decimals get a precision and scale wide enough for all of them."""
    shaped = [as_kind(value, kind) for value in values]
    if not any(pa.types.is_decimal(value.type) for value in shaped):
        return shaped
    shaped = [as_kind(value, ValueKind.DECIMAL) for value in shaped]
    types = [value.type for value in shaped]
    scale = max(t.scale for t in types)
    common = _decimal(max(t.precision - t.scale for t in types) + scale, scale)
    return [value.cast(common) for value in shaped]


def _decimal(precision: int, scale: int) -> pa.DataType:
    if precision > MAX_PRECISION:
        raise pa.ArrowInvalid(f"a decimal of {precision} digits; {MAX_PRECISION} are possible")
    return pa.decimal256(precision, scale)


def _whole_operands(left: pa.Array, right: pa.Array, *, exact: bool) -> list[pa.Array]:
    """Both operands as int64; as decimals if one is a decimal and the operator is `exact`: its results stay whole."""
    if exact and pa.types.is_decimal(left.type) | pa.types.is_decimal(right.type):
        return [as_kind(side, ValueKind.DECIMAL) for side in (left, right)]
    return [side.cast(pa.int64()) for side in (left, right)]


def _remainder(left: pa.Array, right: pa.Array) -> pa.Array:
    """The remainder, with the sign of the dividend, as in SQL."""
    return pc.subtract_checked(left, pc.multiply_checked(pc.divide_checked(left, right), right))


def _infinite(values: pa.Array) -> np.ndarray:
    return np.isinf(values.to_numpy(zero_copy_only=False))


def _rounded(rounding: Callable[[pa.Array], pa.Array]) -> Callable[[list[pa.Array]], pa.Array]:
    """A function to integers. Integers stay as they are: Arrow would round them as doubles, and refuse those above 2^53."""

    def of(arguments: list[pa.Array]) -> pa.Array:
        values = arguments[0]
        return values if pa.types.is_integer(values.type) else _as_integers(rounding(_with_spare_digit(values)))

    return of


def _with_spare_digit(values: pa.Array) -> pa.Array:
    """Decimals with one more digit of precision, which rounding up may need."""
    t = values.type
    return values.cast(pa.decimal256(min(t.precision + 1, MAX_PRECISION), t.scale)) if pa.types.is_decimal(t) else values


def _as_integers(values: pa.Array) -> pa.Array:
    t = values.type
    return values.cast(pa.decimal256(max(t.precision - t.scale, 1), 0) if pa.types.is_decimal(t) else pa.int64())


_OPERATORS: dict[str, Callable[[pa.Array, pa.Array], pa.Array]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
    "/": pc.divide_checked,
    "%": _remainder,
}
_FUNCTIONS: dict[str, Callable[[list[pa.Array]], pa.Array]] = {
    "concat": lambda arguments: pc.binary_join_element_wise(*arguments, ""),
    "upper": lambda arguments: pc.utf8_upper(arguments[0]),
    "lower": lambda arguments: pc.utf8_lower(arguments[0]),
    "length": lambda arguments: pc.utf8_length(arguments[0]).cast(pa.int64()),
    "abs": lambda arguments: pc.abs_checked(arguments[0]),
    "round": _rounded(lambda values: pc.round(values, round_mode="half_towards_infinity")),
    "floor": _rounded(pc.floor),
    "ceil": _rounded(pc.ceil),
}
"""Function name -> implementation, which takes the evaluated arguments."""


@dataclass(frozen=True)
class ColumnBounds:
    """What is known of the `rows` values of a column: `nulls` of them are null, the others are in [`low`, `high`]; None: unknown.

    Bounds are internal values (`datatypes.arrow_types`). `exact`: both occur in the column, so neither is a truncated string.
    """

    rows: int
    nulls: int | None
    low: Any = None
    high: Any = None
    exact: bool = False
    holds: Callable[[tuple[Any, ...]], bool] | None = None
    """A lookup in the file index of the column; False only if the column holds none of these values."""

    @property
    def only_nulls(self) -> bool:
        return self.nulls is not None and self.nulls >= self.rows

    @property
    def no_nulls(self) -> bool:
        return self.nulls == 0

    @property
    def single(self) -> bool:
        """Whether every value that is not null equals `low`."""
        return self.exact and self.low is not None and self.low == self.high

    def may_hold(self, *values: Any) -> bool:
        """False only if the index rules out all of the values."""
        return self.holds is None or self.holds(values)

    @staticmethod
    def of_value(value: Any) -> ColumnBounds:
        """Bounds of a column with a single value, such as a partition column within a partition."""
        return ColumnBounds(1, int(value is None), value, value, exact=True)


BoundsOf = Callable[[str], ColumnBounds | None]
"""Column name -> its bounds, or None if nothing is known."""


def bounds_of_term(term: Expression, bounds_of: BoundsOf) -> ColumnBounds | None:
    """The bounds of an expression. Of fields and functions only this is known: they are null where their column is."""
    if isinstance(term, Function) and isinstance(term.arguments[0], ColumnValue) and len(term.arguments) == 1:
        found = bounds_of_term(term.arguments[0], bounds_of)
        return None if found is None else ColumnBounds(found.rows, found.nulls)
    if not isinstance(term, ColumnValue):
        return None
    found = bounds_of(term.name)
    if not term.path or found is None:
        return found
    return ColumnBounds(found.rows, found.rows) if found.only_nulls else None
