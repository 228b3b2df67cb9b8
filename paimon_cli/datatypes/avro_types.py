"""Paimon types as Avro schemas, and the Arrow form in which Avro records hold their values (Java AvroSchemaConverter)."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from paimon_cli.datatypes.data_type import BINARY_ROOTS, STRING_ROOTS, TIMESTAMP_ROOTS, DataType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import NotSupported

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PLAIN = {
    "BOOLEAN": "boolean",
    "TINYINT": "int",
    "SMALLINT": "int",
    "INT": "int",
    "BIGINT": "long",
    "FLOAT": "float",
    "DOUBLE": "double",
}
_STAMPS = {"TIMESTAMP": "timestamp", "TIMESTAMP_LTZ": "local-timestamp"}
"""Inverted with respect to Avro's own idea, as Paimon has it."""
MILLIS, MICROS = 3, 6


def avro_type(t: DataType, name: str) -> Any:
    """The schema of a value; `name` is for the records inside of it. NotSupported for what Avro cannot hold."""
    schema = _avro_value(t, name)
    return ["null", schema] if t.nullable else schema


def avro_field_name(name: str) -> str:
    """The name itself; NotSupported where Avro has no such names."""
    if not _NAME.fullmatch(name):
        raise NotSupported(
            f"column '{name}' in an Avro file", "Avro names are made of letters, digits and _", "use another file.format"
        )
    return name


def _avro_value(t: DataType, name: str) -> Any:
    if t.root in _PLAIN:
        return _PLAIN[t.root]
    if t.root in STRING_ROOTS:
        return "string"
    if t.root in BINARY_ROOTS:
        return "bytes"
    if t.root == "DECIMAL":
        return {"type": "bytes", "logicalType": "decimal", "precision": t.precision, "scale": t.scale}
    if t.root == "DATE":
        return {"type": "int", "logicalType": "date"}
    if t.root == "TIME" and (t.precision or 0) <= MILLIS:
        return {"type": "int", "logicalType": "time-millis"}
    if t.root in TIMESTAMP_ROOTS and (t.precision or 0) <= MICROS:
        unit = "millis" if (t.precision or 0) <= MILLIS else "micros"
        return {"type": "long", "logicalType": f"{_STAMPS[t.root]}-{unit}"}
    return _avro_nested(t, name)


def _avro_nested(t: DataType, name: str) -> Any:
    if t.root == "ARRAY":
        return {"type": "array", "items": avro_type(t.element_type(), name)}
    if t.root == "ROW":
        fields = [avro_record_field(f.name, f.type, name) for f in t.row_fields()]
        return {"type": "record", "name": name, "fields": fields}
    if t.root in ("MAP", "MULTISET"):
        key, value = t.entry_types()
        if key.root in STRING_ROOTS:
            return {"type": "map", "values": avro_type(value, name)}
        inner = avro_type(value, f"{name}_value")
        entry = [{"name": "key", "type": avro_type(key, f"{name}_key")}, {"name": "value", "type": inner}]
        if value.nullable:
            entry[1]["default"] = None
        return {"type": "array", "items": {"type": "record", "name": name, "fields": entry}, "logicalType": "map"}
    raise NotSupported(f"columns of type {type_to_sql(t)} in an Avro file", "Avro has no such type", "use another file.format")


def avro_record_field(name: str, t: DataType, record: str) -> dict[str, Any]:
    """A field of a record; null is the default where it is allowed."""
    field: dict[str, Any] = {"name": avro_field_name(name), "type": avro_type(t, f"{record}_{name}")}
    return {**field, "default": None} if t.nullable else field


def stored_type(t: pa.DataType) -> pa.DataType:
    """The Arrow type with times as the integers that Avro keeps; every field nullable, since only values matter."""
    if pa.types.is_timestamp(t):
        return pa.int64()
    if pa.types.is_date(t) or pa.types.is_time(t):
        return pa.int32()
    if pa.types.is_list(t):
        return pa.list_(stored_type(t.value_type))
    if pa.types.is_map(t):
        return pa.map_(stored_type(t.key_type), stored_type(t.item_type))
    if pa.types.is_struct(t):
        return pa.struct([pa.field(field.name, stored_type(field.type)) for field in t])
    return t


def holds_maps(t: DataType) -> bool:
    """Whether a MAP or MULTISET is the type or lies inside of it."""
    if t.root in ("MAP", "MULTISET"):
        return True
    inner = [t.element, *(field.type for field in t.fields or ())]
    return any(holds_maps(part) for part in inner if part is not None)
