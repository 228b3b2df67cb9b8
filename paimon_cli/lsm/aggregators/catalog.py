"""Creates aggregate functions by name, and checks their options and column types (Java FieldAggregatorFactory)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.data_type import (
    FLOATING_ROOTS,
    INTEGER_ROOTS,
    STRING,
    ArrayType,
    DataField,
    MapType,
    NestedType,
    RowType,
)
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import UsageError
from paimon_cli.lsm.aggregators.aggregator import Aggregator
from paimon_cli.lsm.aggregators.arithmetic import Product, Sum
from paimon_cli.lsm.aggregators.chosen_values import Extreme, FirstValue, LastNonNullValue, LastValue
from paimon_cli.lsm.aggregators.collected_values import (
    NO_LIMIT,
    NULL_KEYS,
    JoinedText,
    NestedTable,
    collected,
    distinct_text,
    merged_map,
    timed_map,
)
from paimon_cli.lsm.aggregators.sketches import bitmap32, bitmap64, hll_sketch, theta_sketch
from paimon_cli.options import option_text as read
from paimon_cli.options.option_text import read_option
from paimon_cli.options.table_options import TableOptions

T = TypeVar("T")
Builder = Callable[[DataField, TableOptions], Aggregator]
LAST_NON_NULL = "last_non_null_value"
NUMERIC_ROOTS = INTEGER_ROOTS | FLOATING_ROOTS | {"DECIMAL"}


def aggregate_functions() -> tuple[str, ...]:
    """The names of the functions, sorted."""
    return tuple(sorted(BUILDERS))


def aggregator_of(function: str, field: DataField, options: TableOptions) -> Aggregator:
    """The aggregator of a column.

    Raises `UsageError` for an unknown function, or a type or option that it does not accept, `NotSupported` if its package is not
    installed.
    """
    builder = BUILDERS.get(function)
    if builder is None:
        hint = f"the functions are {', '.join(aggregate_functions())}"
        raise UsageError(f"column {field.name} has the unknown aggregate function '{function}'", hint=hint)
    return builder(field, options)


def function_of(column: str, options: TableOptions) -> str | None:
    """The name of the column's aggregate function; None if the options do not name one."""
    return options.column_option(column, "aggregate-function") or options.default_aggregate_function


def ignores_retractions(field: DataField, options: TableOptions) -> bool:
    """Whether retractions leave the column unchanged: option `fields.<column>.ignore-retract`."""
    return _setting(field, options, "ignore-retract", read.boolean, False)


def _names(field: DataField, options: TableOptions, name: str) -> tuple[str, ...]:
    return read.names(options.column_option(field.name, name) or "")


def _setting(field: DataField, options: TableOptions, name: str, reader: Callable[[str], T], default: T) -> T:
    text = options.column_option(field.name, name)
    return default if text is None else read_option(f"fields.{field.name}.{name}", text, reader)


def _flag(field: DataField, options: TableOptions, name: str) -> bool:
    return _setting(field, options, name, read.boolean, False)


def _expect(function: str, field: DataField, fits: bool, wanted: str) -> None:
    if not fits:
        raise UsageError(
            f"aggregate function {function} cannot be used for column {field.name} {type_to_sql(field.type)}",
            f"it takes {wanted}",
        )


def _sum(field: DataField, options: TableOptions) -> Aggregator:
    _expect("sum", field, field.type.root in NUMERIC_ROOTS, "numbers")
    return Sum(field.name)


def _product(field: DataField, options: TableOptions) -> Aggregator:
    _expect("product", field, field.type.root in NUMERIC_ROOTS, "numbers")
    return Product(field.name)


def _extreme(function: str, greatest: bool) -> Builder:
    def build(field: DataField, options: TableOptions) -> Aggregator:
        _expect(function, field, not isinstance(field.type, NestedType), "values that have an order")
        return Extreme(greatest)

    return build


def _boolean(function: str, greatest: bool) -> Builder:
    def build(field: DataField, options: TableOptions) -> Aggregator:
        _expect(function, field, field.type.root == "BOOLEAN", "BOOLEAN")
        return Extreme(greatest)

    return build


def _listagg(field: DataField, options: TableOptions) -> Aggregator:
    _expect("listagg", field, field.type.with_nullable(True) == STRING, "STRING")
    delimiter = _setting(field, options, "list-agg-delimiter", read.text, ",")
    return distinct_text(delimiter) if _flag(field, options, "distinct") else JoinedText(delimiter)


def _collect(field: DataField, options: TableOptions) -> Aggregator:
    _expect("collect", field, isinstance(field.type, ArrayType), "ARRAY")
    element = arrow_type(field.type).value_type
    return collected(element, _flag(field, options, "distinct"), ignores_retractions(field, options))


def _merge_map(field: DataField, options: TableOptions) -> Aggregator:
    _expect("merge_map", field, isinstance(field.type, MapType), "MAP")
    return merged_map(arrow_type(field.type).key_type)


def _timed_map(field: DataField, options: TableOptions) -> Aggregator:
    t = field.type
    fits = isinstance(t, MapType) and isinstance(t.value, RowType) and len(t.value.fields) > 1
    _expect("merge_map_with_keytime", field, fits, "MAP of ROW with two fields or more")
    names = [inner.name for inner in arrow_type(t).item_type]
    wanted = options.column_option(field.name, "ts-field") or names[-1]
    _expect("merge_map_with_keytime", field, wanted in names, f"a ROW with the field {wanted}")
    return timed_map(arrow_type(t).key_type, wanted)


def _nested_table(function: str, field: DataField, options: TableOptions) -> NestedTable:
    is_table = isinstance(field.type, ArrayType) and isinstance(field.type.element, RowType)
    _expect(function, field, is_table, "ARRAY of ROW")
    row_type = arrow_type(field.type).value_type
    key = _names(field, options, "nested-key")
    sequence = _names(field, options, "nested-sequence-field")
    names = [inner.name for inner in row_type]
    for name in (*key, *sequence):
        _expect(function, field, name in names, f"rows with the field {name}")
    for option in ("nested-key-null-strategy", "nested-sequence-field"):
        if options.column_option(field.name, option) and not key:
            raise UsageError(f"fields.{field.name}.{option} needs fields.{field.name}.nested-key")
    null_key = _setting(field, options, "nested-key-null-strategy", read.one_of(*NULL_KEYS), "merge")
    limit = _setting(field, options, "count-limit", read.integer(0), NO_LIMIT)
    return NestedTable(field.name, row_type, key, sequence, null_key, limit)


def _nested_partial(field: DataField, options: TableOptions) -> Aggregator:
    table = _nested_table("nested_partial_update", field, options)
    if not table.key:
        raise UsageError(f"nested_partial_update of column {field.name} needs fields.{field.name}.nested-key")
    return table.partially_updated()


def _bytes(function: str, build: Callable[[str], Aggregator]) -> Builder:
    def checked(field: DataField, options: TableOptions) -> Aggregator:
        _expect(function, field, field.type.root == "VARBINARY", "VARBINARY or BYTES")
        return build(field.name)

    return checked


BUILDERS: dict[str, Builder] = {
    "sum": _sum,
    "product": _product,
    "max": _extreme("max", True),
    "min": _extreme("min", False),
    "bool_or": _boolean("bool_or", True),
    "bool_and": _boolean("bool_and", False),
    "last_value": lambda field, options: LastValue(),
    LAST_NON_NULL: lambda field, options: LastNonNullValue(),
    "first_value": lambda field, options: FirstValue(),
    "first_non_null_value": lambda field, options: FirstValue(skip_nulls=True),
    "first_not_null_value": lambda field, options: FirstValue(skip_nulls=True),
    "listagg": _listagg,
    "collect": _collect,
    "merge_map": _merge_map,
    "merge_map_with_keytime": _timed_map,
    "nested_update": lambda field, options: _nested_table("nested_update", field, options).updated(),
    "nested_partial_update": _nested_partial,
    "rbm32": _bytes("rbm32", bitmap32),
    "rbm64": _bytes("rbm64", bitmap64),
    "theta_sketch": _bytes("theta_sketch", theta_sketch),
    "hll_sketch": _bytes("hll_sketch", hll_sketch),
}
"""Name of a function in options -> function that creates its aggregator."""
