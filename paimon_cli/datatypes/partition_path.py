"""The directory names of partitions (FORMAT.md, section 1.2; Java PartitionPathUtils, InternalRowPartitionComputer).

Readers never list directories: they find a file only if they spell its directory exactly as its writer did.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from paimon_cli.datatypes.data_type import (
    FLOATING_ROOTS,
    INTEGER_ROOTS,
    STRING_ROOTS,
    TIMESTAMP_ROOTS,
    DataType,
    DecimalType,
    StringType,
    TimestampType,
    TimeType,
)
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.datatypes.internal_values import Timestamp, date_text, sql_time_text, timestamp_parts
from paimon_cli.datatypes.java_float_text import java_double_text, java_float_text
from paimon_cli.datatypes.type_text import is_java_blank
from paimon_cli.errors import NotSupported

DEFAULT_PARTITION_NAME = "__DEFAULT_PARTITION__"
_ESCAPES = {code: f"%{code:02X}" for code in (*range(0x20), 0x7F, *map(ord, "\"#%'*/:=?\\{}[]^"))}


def partition_path(
    names: Sequence[str],
    types: Sequence[DataType],
    values: Sequence[Any],
    default_name: str = DEFAULT_PARTITION_NAME,
    legacy: bool = True,
) -> str:
    """`a=1/b=x/` for internal values, '' without partition columns. `legacy` is the table option `partition.legacy-name`."""
    parts = zip(names, types, values, strict=True)
    return "".join(f"{escape(name)}={escape(partition_text(value, t, default_name, legacy))}/" for name, t, value in parts)


def partition_text(value: Any, t: DataType, default_name: str = DEFAULT_PARTITION_NAME, legacy: bool = True) -> str:
    """Text of one partition value before escaping; null and blank texts share `default_name`."""
    text = "" if value is None else _text(value, t, legacy)
    return default_name if is_java_blank(text) else text


_NUMBER = re.compile(r"((?<==)-[0-9]{1,18}|[0-9]{1,18})")


def natural_order(partition: str) -> tuple[tuple[int | str, ...], str]:
    """Key by which texts of partitions sort as people expect: month=2 before month=10."""
    parts = _NUMBER.split(partition)
    return tuple(int(part) if number % 2 else part for number, part in enumerate(parts)), partition


def escape(text: str) -> str:
    """`text` with the characters that paths must not hold as `%XX`."""
    return text.translate(_ESCAPES)


def check_partition_types(types: Sequence[DataType]) -> None:
    """Refuse, before anything is written, partition columns whose directories other readers would not find: `NotSupported`."""
    for t in types:
        if t.root in FLOATING_ROOTS:
            raise NotSupported(
                f"{type_to_sql(t)} partition columns are not supported",
                "their directory names depend on the Java version that writes",
                "use DECIMAL or STRING",
            )
        if t.root not in _PARTITION_ROOTS:
            raise NotSupported(
                f"{type_to_sql(t)} partition columns are not supported", "their values have no text for a directory", "use STRING"
            )


_PARTITION_ROOTS = INTEGER_ROOTS | STRING_ROOTS | TIMESTAMP_ROOTS | {"BOOLEAN", "DECIMAL", "DATE", "TIME"}


def _text(value: Any, t: DataType, legacy: bool) -> str:
    if isinstance(t, StringType):
        return str(value)
    if t.root == "BOOLEAN":
        return "true" if value else "false"
    if t.root in INTEGER_ROOTS:
        return str(value)
    if isinstance(t, DecimalType):
        return format(value, "f")
    if t.root == "FLOAT":
        return java_float_text(value)
    if t.root == "DOUBLE":
        return java_double_text(value)
    if t.root == "DATE":
        return str(value) if legacy else date_text(value)
    if isinstance(t, TimeType):
        return str(value) if legacy else sql_time_text(value, t.precision)
    if isinstance(t, TimestampType):
        return _iso_text(value) if legacy else _padded_text(value, t.precision)
    raise NotSupported(f"partitions of type {type_to_sql(t)} are not supported", "their values have no text for a directory")


def _iso_text(value: Timestamp) -> str:
    """Java's LocalDateTime text: no seconds when they and the fraction are zero, fractions of 3, 6 or 9 digits."""
    date, clock, nanos = timestamp_parts(value)
    if nanos == 0:
        return f"{date}T{clock.removesuffix(':00')}"
    digits = f"{nanos:09d}"
    return f"{date}T{clock}.{digits.removesuffix('000').removesuffix('000')}"


def _padded_text(value: Timestamp, precision: int) -> str:
    """Paimon's cast to text: exactly `precision` digits of fraction."""
    date, clock, nanos = timestamp_parts(value)
    return f"{date} {clock}" + (f".{nanos:09d}"[: precision + 1] if precision else "")
