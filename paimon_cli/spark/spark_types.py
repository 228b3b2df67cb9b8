"""Spark types of table columns, and conditions that Spark computes with the same result (Java SparkTypeUtils)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from functools import reduce
from typing import Any
from zoneinfo import ZoneInfo

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from paimon_cli.datatypes.data_type import (
    ArrayType,
    BinaryType,
    DataField,
    DataType,
    DecimalType,
    MapType,
    MultisetType,
    RowType,
    StringType,
    TimestampType,
    VariantType,
)
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.datatypes.type_text import quoted_name
from paimon_cli.errors import NotSupported
from paimon_cli.sql.conditions import Always, And, Compare, Condition, IsNull, OneOf, Or
from paimon_cli.sql.expressions import ColumnValue

_PLAIN: dict[str, T.DataType] = {
    "BOOLEAN": T.BooleanType(),
    "TINYINT": T.ByteType(),
    "SMALLINT": T.ShortType(),
    "INT": T.IntegerType(),
    "BIGINT": T.LongType(),
    "FLOAT": T.FloatType(),
    "DOUBLE": T.DoubleType(),
    "DATE": T.DateType(),
}
MICROSECONDS = 6
"""The precision of Spark's timestamps."""
COMPARED_ROOTS = frozenset({"BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "DATE", "DECIMAL", "VARCHAR", "CHAR"})
"""Types whose values Spark compares as this package does. It orders NaN differently, for example."""
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::(\d{2}))?")
JAVA_ZONES = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}
"""Abbreviations that Spark accepts for a session's time zone (Java `ZoneId.SHORT_IDS`), without those that Arrow knows, too."""
_COMPARISONS = {
    "=": Column.__eq__,
    "!=": Column.__ne__,
    "<": Column.__lt__,
    "<=": Column.__le__,
    ">": Column.__gt__,
    ">=": Column.__ge__,
}


def arrow_timezone(zone: str) -> str:
    """The time zone of a Spark session as Arrow spells it: an offset such as `+02:00`, or a name of the time zone database.

    Raises `NotSupported` for a zone that Arrow does not have, such as an offset with seconds.
    """
    if offset := _OFFSET.fullmatch(zone):
        sign, hours, minutes = offset.groups()
        return f"{sign}{int(hours):02}:{minutes or '00'}"
    if zone in JAVA_ZONES:
        return JAVA_ZONES[zone]
    try:
        return ZoneInfo("UTC" if zone in ("Z", "UT") else zone).key
    except (ValueError, OSError, KeyError) as problem:
        why = "Arrow knows offsets in hours and minutes, and the names of the time zone database"
        hint = "set spark.sql.session.timeZone to one of these"
        raise NotSupported(f"cannot convert times to the session's time zone {zone!r}", why, hint) from problem


def spark_schema(fields: Iterable[DataField]) -> T.StructType:
    """The columns as a Spark schema. Raises `NotSupported` for a column that Spark cannot represent without loss."""
    return T.StructType([T.StructField(field.name, _column_type(field), field.type.nullable) for field in fields])


def nullable_schema(fields: Iterable[DataField]) -> T.StructType:
    """As `spark_schema`, with every column nullable, so that Spark does not check the rows for nulls."""
    return T.StructType([T.StructField(column.name, column.dataType) for column in spark_schema(fields)])


def _column_type(field: DataField) -> T.DataType:
    try:
        return spark_type(field.type)
    except NotSupported as error:
        hint = "leave it out: name the other columns in columns"
        if isinstance(field.type, TimestampType):
            zone = " WITH LOCAL TIME ZONE" if field.type.root == "TIMESTAMP_LTZ" else ""
            hint += f", or drop the digits: table.alter.alter_column('{field.name}', 'TIMESTAMP({MICROSECONDS}){zone}')"
        raise NotSupported(f"cannot read column '{field.name}' into Spark", error.why, hint, column=field.name) from error


def spark_type(t: DataType) -> T.DataType:
    """The Spark type that represents all values of `t`. Raises `NotSupported` if there is none."""
    if t.root in _PLAIN:
        return _PLAIN[t.root]
    if isinstance(t, StringType):
        return T.StringType()
    if isinstance(t, BinaryType):
        return T.BinaryType()
    if isinstance(t, DecimalType):
        return T.DecimalType(t.precision, t.scale)
    if isinstance(t, TimestampType) and t.precision <= MICROSECONDS:
        return T.TimestampType() if t.root == "TIMESTAMP_LTZ" else T.TimestampNTZType()
    if isinstance(t, ArrayType):
        return T.ArrayType(spark_type(t.element), t.element.nullable)
    if isinstance(t, (MapType, MultisetType)):
        return T.MapType(spark_type(t.key), spark_type(t.value), t.value.nullable)
    if isinstance(t, VariantType):
        return T.VariantType()
    if isinstance(t, RowType):
        return spark_schema(t.fields)
    raise NotSupported(f"cannot read {type_to_sql(t)} into Spark", f"Spark has no type for the values of {type_to_sql(t)}")


def spark_condition(condition: Condition) -> Column | None:
    """The condition as a Spark column; None unless Spark is certain to compute the same result for every row."""
    if isinstance(condition, Always):
        return F.lit(condition.value)
    if isinstance(condition, (And, Or)):
        return _joined(condition)
    if not isinstance(condition, (Compare, OneOf, IsNull)):
        return None
    term = condition.term
    if not isinstance(term, ColumnValue) or term.path:
        return None
    column = F.col(quoted_name(term.name))
    if isinstance(condition, IsNull):
        found = column.isNull()
    elif term.type.root not in COMPARED_ROOTS:
        return None
    elif isinstance(condition, OneOf):
        found = column.isin(*map(_literal, condition.scalars.to_pylist()))
    elif condition.op in _COMPARISONS:
        found = _COMPARISONS[condition.op](column, _literal(condition.scalar.as_py()))
    else:
        return None
    return ~found if condition.negated else found


def _literal(value: Any) -> Column:
    """The value in Spark. Dates go there as text: on Linux, PySpark cannot pass those of years before 1000."""
    return F.lit(value.isoformat()).cast("date") if isinstance(value, date) else F.lit(value)


def _joined(condition: And | Or) -> Column | None:
    parts = [spark_condition(part) for part in condition.parts]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return reduce(Column.__and__ if isinstance(condition, And) else Column.__or__, known)
