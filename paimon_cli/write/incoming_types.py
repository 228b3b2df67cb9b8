"""Which column types can be written, and the placeholder of each (format section 7.2)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from paimon_cli.datatypes.data_type import BINARY_ROOTS, FLOATING_ROOTS, NEWER_ROOTS, STRING_ROOTS, TIMESTAMP_ROOTS
from paimon_cli.datatypes.field_types import DataType
from paimon_cli.datatypes.values import Timestamp
from paimon_cli.errors import NotSupported


def check_writable(column: str, t: DataType) -> None:
    """Raise NotSupported when the column's type, or a type inside it, cannot be written so that every reader reads it."""
    if t.root in NEWER_ROOTS:
        raise NotSupported(f"cannot write column '{column}'", f"{t.root} is only read by the newest versions of Paimon")
    inner = [t.element, t.key, t.value, *(field.type for field in t.fields or ())]
    for part in inner:
        if part is not None:
            check_writable(column, part)


def zero_value(t: DataType) -> Any:
    """Some value of the type, as an internal value."""
    if t.root == "BOOLEAN":
        return False
    if t.root == "DECIMAL":
        return Decimal(0)
    if t.root in STRING_ROOTS:
        return ""
    if t.root in BINARY_ROOTS:
        return b""
    if t.root in TIMESTAMP_ROOTS:
        return Timestamp(0, 0)
    if t.root in ("ARRAY", "MAP", "MULTISET"):
        return []
    if t.root == "ROW":
        return tuple(None if f.type.nullable else zero_value(f.type) for f in t.fields or ())
    return 0.0 if t.root in FLOATING_ROOTS else 0
