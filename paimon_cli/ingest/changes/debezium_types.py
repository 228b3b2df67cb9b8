"""The types of the `schema` part of Debezium's events, as Java's CDC maps them to columns.

It differs from Java's where values would be lost: `float64` is DOUBLE and not FLOAT, bytes are the bytes and not their base64
text, a Decimal without a precision keeps its scale, and a time of day has milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from paimon_cli.datatypes.data_type import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    MAX_DECIMAL_PRECISION,
    MAX_LENGTH,
    SMALLINT,
    STRING,
    TINYINT,
    BinaryType,
    DataType,
    DecimalType,
    TimestampType,
    TimeType,
)
from paimon_cli.ingest.changes.event_values import ValueForm

_PLAIN: dict[str, DataType] = {
    "int8": TINYINT,
    "int16": SMALLINT,
    "int32": INT,
    "int64": BIGINT,
    "float": FLOAT,
    "float32": FLOAT,
    "float64": DOUBLE,
    "double": DOUBLE,
    "boolean": BOOLEAN,
    "string": STRING,
}
_NAMED = {
    "io.debezium.time.Date": ValueForm(DATE, "days"),
    "io.debezium.time.Timestamp": ValueForm(TimestampType("TIMESTAMP", 3), "millis"),
    "io.debezium.time.MicroTimestamp": ValueForm(TimestampType("TIMESTAMP", 6), "micros"),
    "io.debezium.time.ZonedTimestamp": ValueForm(TimestampType("TIMESTAMP", 6), "zoned"),
    "io.debezium.time.MicroTime": ValueForm(TimeType(3), "time micros"),
    "io.debezium.time.NanoTimestamp": ValueForm(BIGINT, "nanos"),
    "io.debezium.time.Time": ValueForm(INT, "time millis"),
    "io.debezium.time.NanoTime": ValueForm(BIGINT, "time nanos"),
    "org.apache.kafka.connect.data.Date": ValueForm(INT, "days"),
    "org.apache.kafka.connect.data.Time": ValueForm(INT, "time millis"),
    "org.apache.kafka.connect.data.Timestamp": ValueForm(BIGINT, "millis"),
}
_GEOMETRY = frozenset(f"io.debezium.data.geometry.{name}" for name in ("Geometry", "Geography", "Point"))
_WITHOUT_PRECISION = 20
"""The precision that Java gives a Decimal without one: that of BIGINT UNSIGNED."""


@dataclass(frozen=True)
class EventSchema:
    """The columns that an event declares, in order."""

    columns: Mapping[str, ValueForm]


@lru_cache(maxsize=4096)
def declared_columns(schema: bytes) -> EventSchema | None:
    """The columns of a `schema` part, given as its JSON; None if it is no schema of rows, or of images of rows."""
    try:
        parsed = json.loads(schema)
        images = {field.get("field"): field for field in parsed["fields"]}
        if "after" in images or "before" in images:
            parsed = images.get("after") or images["before"]
        return EventSchema({_name_of(one): form_of(one) for one in parsed["fields"]})
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


def _name_of(declared: Mapping[str, Any]) -> str:
    """Raises `TypeError`, or `UnicodeEncodeError` for half a surrogate, which no column can be named."""
    name = declared["field"]
    if not isinstance(name, str):
        raise TypeError("the name of a field is no text")
    name.encode()
    return name


def form_of(declared: Mapping[str, Any]) -> ValueForm:
    """The form of a field of Kafka Connect's schema."""
    kind, name, parameters = declared["type"], declared.get("name"), declared.get("parameters") or {}
    if name == "org.apache.kafka.connect.data.Decimal":
        return _decimal(int(parameters.get("scale", 0)), parameters.get("connect.decimal.precision"))
    if name == "io.debezium.data.Bits":
        size = (int(parameters["length"]) + 7) // 8
        return ValueForm(BinaryType("BINARY", size) if 0 < size <= MAX_LENGTH else BYTES, "bits")
    if name in _GEOMETRY:
        return ValueForm(STRING, "geometry")
    if name in _NAMED:
        return _NAMED[name]
    if kind == "bytes":
        return ValueForm(BYTES, "base64")
    return ValueForm(_PLAIN.get(kind, STRING))


def _decimal(scale: int, precision: object) -> ValueForm:
    digits = int(str(precision)) if precision is not None else (MAX_DECIMAL_PRECISION if scale else _WITHOUT_PRECISION)
    if not 0 < digits <= MAX_DECIMAL_PRECISION or not 0 <= scale <= digits:
        return ValueForm(STRING, "decimal text", scale)
    return ValueForm(DecimalType(digits, scale), "decimal", scale)
