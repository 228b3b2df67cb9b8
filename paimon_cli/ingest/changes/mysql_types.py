"""The types of MySQL that Canal's events name, as Java's CDC maps them to columns. All values are texts."""

from __future__ import annotations

import re
from functools import lru_cache

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
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    StringType,
    TimestampType,
    TimeType,
)
from paimon_cli.ingest.changes.event_values import ValueForm

_FORM = re.compile(r"\s*([a-z_]+(?: precision)?)\s*(?:\(([^)]*)\))?\s*(.*)", re.IGNORECASE | re.DOTALL)
_MEMBER = re.compile(r"'((?:[^']|'')*)'")
_NUMBERS: dict[str, tuple[DataType, DataType]] = {
    "TINYINT": (TINYINT, SMALLINT),
    "SMALLINT": (SMALLINT, INT),
    "MEDIUMINT": (INT, INT),
    "INT": (INT, BIGINT),
    "INTEGER": (INT, BIGINT),
    "BIGINT": (BIGINT, DecimalType(20, 0)),
    "YEAR": (INT, INT),
    "FLOAT": (FLOAT, FLOAT),
    "REAL": (DOUBLE, DOUBLE),
    "DOUBLE": (DOUBLE, DOUBLE),
    "DOUBLE PRECISION": (DOUBLE, DOUBLE),
    "SERIAL": (DecimalType(20, 0), DecimalType(20, 0)),
    "BOOL": (BOOLEAN, BOOLEAN),
    "BOOLEAN": (BOOLEAN, BOOLEAN),
}
"""Each type, and its unsigned form."""
_DECIMALS = frozenset(("DECIMAL", "NUMERIC", "FIXED", "DEC"))
_BLOBS = frozenset(("TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"))
_GEOMETRIES = frozenset(
    (
        *("GEOMETRY", "POINT", "LINESTRING", "POLYGON"),
        *("MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON", "GEOMETRYCOLLECTION", "GEOMCOLLECTION"),
    )
)
_DEFAULT_DECIMAL = (38, 18)
_FRACTION = 6
_BYTES_OF_BITS = 8


@lru_cache(maxsize=4096)
def form_of_mysql(text: str) -> ValueForm:
    """The form of a column of a type such as `decimal(10,2)` or `int unsigned`; unknown types are STRING."""
    match = _FORM.fullmatch(text)
    if match is None:
        return ValueForm(STRING)
    name, rest = match[1].upper(), match[3].lower()
    if name in ("ENUM", "SET"):
        members = tuple(member.replace("''", "'") for member in _MEMBER.findall(text))
        return ValueForm(STRING if name == "ENUM" else ArrayType(STRING), name.lower(), members=members)
    sizes = [int(part) for part in re.findall(r"[0-9]{1,9}", match[2] or "")]
    size = sizes[0] if sizes else None
    if name == "BIT":
        return (
            ValueForm(BOOLEAN, "boolean")
            if size in (None, 1)
            else ValueForm(BinaryType("BINARY", min((int(size or 1) + 7) // 8, _BYTES_OF_BITS)), "bit number")
        )
    if name == "TINYINT" and size == 1:
        return ValueForm(BOOLEAN, "boolean")
    if name in _NUMBERS:
        kind = _NUMBERS[name]["unsigned" in rest or "zerofill" in rest]
        return ValueForm(kind, "boolean" if kind == BOOLEAN else "plain")
    if name in _DECIMALS:
        precision, scale = (sizes[0], sizes[1] if len(sizes) > 1 else 0) if sizes else _DEFAULT_DECIMAL
        fits = 0 < precision <= MAX_DECIMAL_PRECISION and scale <= precision
        return ValueForm(DecimalType(precision, scale)) if fits else ValueForm(STRING)
    return _other(name, size)


def _other(name: str, size: int | None) -> ValueForm:
    if name == "DATE":
        return ValueForm(DATE)
    if name == "TIME":
        return ValueForm(TimeType(3))
    if name in ("DATETIME", "TIMESTAMP"):
        return ValueForm(TimestampType("TIMESTAMP", min(size or 0, _FRACTION)), "local time")
    if name in ("CHAR", "VARCHAR"):
        length = size or 1
        return ValueForm(StringType(name, min(length, MAX_LENGTH)))
    if name in ("BINARY", "VARBINARY"):
        return ValueForm(BinaryType("VARBINARY", size or 1), "latin1")
    if name in _BLOBS:
        return ValueForm(BYTES, "latin1")
    return ValueForm(STRING, "mysql geometry") if name in _GEOMETRIES else ValueForm(STRING)
