"""The aggregate functions by name (Java FieldAggregatorFactory)."""

from __future__ import annotations

from paimon_cli.datatypes.data_type import DataField
from paimon_cli.errors import UsageError
from paimon_cli.lsm.aggregators import arithmetic, chosen_values, collected_values, sketches
from paimon_cli.lsm.aggregators.aggregator import Aggregator
from paimon_cli.lsm.aggregators.builder import Builder
from paimon_cli.options.table_options import TableOptions

BUILDERS: dict[str, Builder] = {
    **arithmetic.FUNCTIONS,
    **chosen_values.FUNCTIONS,
    **collected_values.FUNCTIONS,
    **sketches.FUNCTIONS,
}
"""Name of a function in options -> function that creates its aggregator."""


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
