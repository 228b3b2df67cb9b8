"""What aggregate functions need to be created for a column: its options, and checks of its type.

To add a function: its place in `FUNCTIONS` of one of these modules, with a case in `tests/lsm/test_function_contract.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import UsageError
from paimon_cli.lsm.aggregators.aggregator import Aggregator
from paimon_cli.options import option_text as read
from paimon_cli.options.option_text import read_option
from paimon_cli.options.table_options import TableOptions

T = TypeVar("T")
Builder = Callable[[DataField, TableOptions], Aggregator]
"""Creates the aggregator of a column. Raises `UsageError` for a type or an option that the function does not accept."""


def ignores_retractions(field: DataField, options: TableOptions) -> bool:
    """Whether retractions leave the column unchanged: option `fields.<column>.ignore-retract`."""
    return setting(field, options, "ignore-retract", read.boolean, False)


def names_in(field: DataField, options: TableOptions, name: str) -> tuple[str, ...]:
    return read.names(options.column_option(field.name, name) or "")


def setting(field: DataField, options: TableOptions, name: str, reader: Callable[[str], T], default: T) -> T:
    text = options.column_option(field.name, name)
    return default if text is None else read_option(f"fields.{field.name}.{name}", text, reader)


def flag(field: DataField, options: TableOptions, name: str) -> bool:
    return setting(field, options, name, read.boolean, False)


def expect(function: str, field: DataField, fits: bool, wanted: str) -> None:
    if not fits:
        raise UsageError(
            f"aggregate function {function} cannot be used for column {field.name} {type_to_sql(field.type)}",
            f"it takes {wanted}",
        )
