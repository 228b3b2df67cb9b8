"""Default values of columns, which schemas store as text that is cast to the column's type (Java DefaultValueUtils)."""

from __future__ import annotations

from paimon_cli.datatypes.data_type import DataType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import PaimonError, UsageError


def check_default(name: str, t: DataType, default: str | None) -> None:
    """`UsageError` for a text that is no value of the type."""
    if default is None:
        return
    from paimon_cli.casts.column_cast import default_column  # loads Arrow, which most of `create` does not need

    try:
        default_column(default, t)
    except PaimonError as error:
        raise UsageError(f"column '{name}' cannot have the default '{default}'", f"it is not a valid {type_to_sql(t)}") from error
