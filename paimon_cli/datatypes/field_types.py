"""Reads and writes types and fields in the JSON of schema files, and prints types as SQL (FORMAT.md, section 2.2)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import count
from typing import Any

from paimon_cli.datatypes.data_type import (
    MAX_LENGTH,
    ArrayType,
    BinaryType,
    DataField,
    DataType,
    DecimalType,
    MapType,
    MultisetType,
    RowType,
    SpatialType,
    StringType,
    TimestampType,
    TimeType,
    VectorType,
    check_field_names,
)
from paimon_cli.datatypes.type_text import MAX_DEPTH, parse_type_text, quoted_name
from paimon_cli.errors import UsageError


@lru_cache(maxsize=1024)
def _parse_text(text: str) -> DataType:
    return parse_type_text(text)


def parse_type(json_or_text: str | dict[str, Any]) -> DataType:
    """Parse a type of a schema file: text for atomic types, an object for nested ones.

    If no field of a ROW has an id, they are numbered from 0. Raises `UsageError` that names the position or key.
    """
    return _parse(json_or_text, count())


def parse_sql_type(text: str) -> DataType:
    """Parse a type in SQL, including nested types such as `ARRAY<INT>`, `MAP<STRING, INT>` and `ROW<a INT>`.

    Raises `UsageError` that names the position.
    """
    return parse_type_text(text, sql=True)


def field_from_json(json: dict[str, Any], new_ids: Iterator[int] | None = None, depth: int = 0) -> DataField:
    """Parse a field of a schema or ROW. Missing ids are taken from `new_ids` in depth-first order; without it they are an error.

    `depth`: the number of types around it. Raises `UsageError` for malformed fields.
    """
    if not isinstance(json, dict) or not isinstance(json.get("name"), str) or "type" not in json:
        raise UsageError("cannot read a field", f"a field needs 'name' and 'type', found {_brief(json)}")
    name, field_id = json["name"], json.get("id")
    if field_id is None:
        if new_ids is None:
            raise UsageError(f"field '{name}' has no id", "every field in a schema file needs one", field=name)
        field_id = next(new_ids)
    if not isinstance(field_id, int) or isinstance(field_id, bool):
        raise UsageError(f"field '{name}' has a bad id", f"ids are whole numbers, found {field_id!r}", field=name)
    return DataField(
        field_id,
        name,
        _parse(json["type"], new_ids, depth),
        _optional_text(json, "description"),
        _optional_text(json, "defaultValue"),
    )


def field_to_json(field: DataField) -> dict[str, Any]:
    """The field as the JSON of schema files, with keys in Java's order."""
    json: dict[str, Any] = {"id": field.id, "name": field.name, "type": type_to_json(field.type)}
    if field.description is not None:
        json["description"] = field.description
    if field.default_value is not None:
        json["defaultValue"] = field.default_value
    return json


def type_to_json(t: DataType) -> str | dict[str, Any]:
    """The type as the JSON of schema files."""
    suffix = "" if t.nullable else " NOT NULL"
    match t:
        case ArrayType(element) | MultisetType(element):
            return {"type": t.root + suffix, "element": type_to_json(element)}
        case VectorType(element, length):
            return {"type": t.root + suffix, "element": type_to_json(element), "length": length}
        case MapType(key, value):
            return {"type": t.root + suffix, "key": type_to_json(key), "value": type_to_json(value)}
        case RowType(root="ROW", fields=fields):
            return {"type": t.root + suffix, "fields": [field_to_json(field) for field in fields]}
    return _type_text(t) + suffix


def type_to_sql(t: DataType) -> str:
    """The type as SQL, such as `ARRAY<INT> NOT NULL`."""
    return _type_text(t) if t.nullable else _type_text(t) + " NOT NULL"


def _type_text(t: DataType) -> str:
    match t:
        case StringType(root="VARCHAR", length=length) if length == MAX_LENGTH:
            return "STRING"
        case BinaryType(root="VARBINARY", length=length) if length == MAX_LENGTH:
            return "BYTES"
        case SpatialType(arguments=arguments):
            return t.root if arguments is None else f"{t.root}({arguments})"
        case StringType(root, argument) | BinaryType(root, argument):
            return f"{root}({argument})"
        case DecimalType(precision, scale):
            return f"DECIMAL({precision}, {scale})"
        case TimestampType("TIMESTAMP_LTZ", precision):
            return f"TIMESTAMP({precision}) WITH LOCAL TIME ZONE"
        case TimestampType(precision=precision) | TimeType(precision=precision):
            return f"{t.root}({precision})"
        case ArrayType(element) | MultisetType(element):
            return f"{t.root}<{type_to_sql(element)}>"
        case VectorType(element, length):
            return f"VECTOR<{type_to_sql(element)}, {length}>"
        case MapType(key, value):
            return f"MAP<{type_to_sql(key)}, {type_to_sql(value)}>"
        case RowType(root="ROW", fields=fields):
            return f"ROW<{', '.join(map(_field_sql, fields))}>"
    return t.root


def _field_sql(field: DataField) -> str:
    text = f"{quoted_name(field.name)} {type_to_sql(field.type)}"
    if field.description:
        quoted = field.description.replace("'", "''")
        text += f" COMMENT '{quoted}'"
    return text if field.default_value is None else f"{text} DEFAULT {field.default_value}"


def _parse(json: object, new_ids: Iterator[int] | None, depth: int = 0) -> DataType:
    if isinstance(json, str):
        return _parse_text(json)
    if depth == MAX_DEPTH:
        raise UsageError("cannot read a type", f"it is nested more than {MAX_DEPTH} levels deep")
    inside = depth + 1
    if not isinstance(json, dict) or not isinstance(json.get("type"), str):
        raise UsageError("cannot read a type", f"a type is a text or an object with 'type', found {_brief(json)}")
    keyword: str = json["type"]
    nullable = "NOT NULL" not in keyword
    if keyword.startswith(("ARRAY", "MULTISET")):
        nested = ArrayType if keyword.startswith("ARRAY") else MultisetType
        return nested(_parse(json.get("element"), new_ids, inside), nullable=nullable)
    if keyword.startswith("MAP"):
        return MapType(_parse(json.get("key"), new_ids, inside), _parse(json.get("value"), new_ids, inside), nullable=nullable)
    if keyword.startswith("VECTOR"):
        length = json.get("length")
        if not isinstance(length, int) or length < 1:
            raise UsageError("cannot read a VECTOR type", f"'length' must be a number from 1, found {length!r}")
        return VectorType(_parse(json.get("element"), new_ids, inside), length, nullable=nullable)
    if keyword.startswith("ROW"):
        return RowType(_row_fields(json.get("fields"), new_ids, inside), nullable=nullable)
    raise UsageError(
        f"unknown nested type '{keyword}'",
        "an object must be an ARRAY, MAP, MULTISET, ROW or VECTOR, in upper case",
        "write atomic types as text",
        keyword=keyword,
    )


def _row_fields(json: object, new_ids: Iterator[int] | None, depth: int) -> tuple[DataField, ...]:
    if not isinstance(json, list):
        raise UsageError("cannot read a ROW type", f"'fields' must be a list, found {_brief(json)}")
    with_id = sum(isinstance(field, dict) and field.get("id") is not None for field in json)
    if new_ids is not None and with_id not in (0, len(json)):
        raise UsageError("cannot read a ROW type", "either all of its fields have an id or none")
    fields = tuple(field_from_json(field, new_ids, depth) for field in json)
    check_field_names([field.name for field in fields])
    return fields


def _optional_text(json: dict[str, Any], key: str) -> str | None:
    value = json.get(key)
    if value is not None and not isinstance(value, str):
        raise UsageError(f"field '{json['name']}' has a bad '{key}'", f"it must be text, found {_brief(value)}")
    return value


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
