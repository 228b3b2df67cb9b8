"""Schemas of Avro records: how ours are written down, and whether the schema of a file fits them.

Files of other writers may order fields differently, wrap them in unions, or add fields of their own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

AvroSchema = Any
"""A parsed JSON schema: dict, list (union) or the name of a primitive type."""

_NAMESPACE = "org.apache.paimon.avro.generated"
_DEEPEST = 100


def record(name: str, fields: Sequence[tuple[str, AvroSchema]]) -> AvroSchema:
    """A record schema; a field that is a union with null first gets the default null, as Java writes it."""
    listed = [
        {"name": field, "type": t, "default": None} if isinstance(t, list) else {"name": field, "type": t} for field, t in fields
    ]
    if name == "record":
        return {"type": "record", "name": name, "namespace": _NAMESPACE, "fields": listed}
    return {"type": "record", "name": name, "fields": listed}


def nullable(t: AvroSchema) -> AvroSchema:
    return ["null", t]


def array(items: AvroSchema) -> AvroSchema:
    return {"type": "array", "items": items}


def plain_times(schema: AvroSchema) -> AvroSchema:
    """The schema with times as the integers that the file holds: fastavro would build a datetime for each. Decimals stay."""
    if isinstance(schema, dict):
        decimal = schema.get("logicalType") == "decimal"
        return {key: plain_times(value) for key, value in schema.items() if key != "logicalType" or decimal}
    if isinstance(schema, list):
        return [plain_times(value) for value in schema]
    return schema


class _ByIdentity:
    """A schema as a key of a cache, by its identity: dicts cannot be hashed, and the schemas of this package are never freed."""

    __slots__ = ("schema",)

    def __init__(self, schema: AvroSchema) -> None:
        self.schema = schema

    def __hash__(self) -> int:
        return id(self.schema)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and other.schema is self.schema


@lru_cache(maxsize=64)
def _parsed_items(schema: _ByIdentity) -> AvroSchema:
    from fastavro import parse_schema

    return parse_schema(array(plain_times(schema.schema)))


def parsed_items(schema: AvroSchema) -> AvroSchema:
    """An array of the records of `schema`, without logical times, as fastavro wants it: parsed once for all blocks."""
    return _parsed_items(_ByIdentity(schema))


def checked_schema(text: bytes, expected: AvroSchema) -> AvroSchema:
    """The schema of a file, without logical times. Raises `ValueError` if its records are not those of `expected`.

    The files of one writer have one schema, so results are kept: equal texts give the same object.
    """
    return _checked_schema(text, _ByIdentity(expected))


@lru_cache(maxsize=64)
def _checked_schema(text: bytes, expected: _ByIdentity) -> AvroSchema:
    schema = plain_times(json.loads(text))
    refuse_endless(schema)
    _check_fields(_without_null(schema), expected.schema, "record")
    return schema


def _check_fields(theirs: AvroSchema, ours: AvroSchema, path: str) -> None:
    """Raise `ValueError` if a field that both know has another type, or one that we cannot do without is missing."""
    theirs, ours = _without_null(theirs), _without_null(ours)
    # A file may declare a record once and repeat its name; then its fields were checked where they stood first.
    if _type_name(ours) == "record" and isinstance(theirs, str) and theirs.startswith("record"):
        return
    if _type_name(theirs) != _type_name(ours) and not (path.endswith("_FILE_SOURCE") and _type_name(theirs) == "string"):
        raise ValueError(f"{path} should be {_type_name(ours)}, not {_type_name(theirs)}")
    if _type_name(ours) == "array":
        _check_fields(theirs["items"], ours["items"], f"{path} items")
    if _type_name(ours) == "record":
        known = {field["name"]: field["type"] for field in theirs["fields"]}
        for field in ours["fields"]:
            if field["name"] in known:
                _check_fields(known[field["name"]], field["type"], f"{path}.{field['name']}")
            elif "default" not in field and field["name"] != "_EXTRA_FILES":
                raise ValueError(f"{path} has no {field['name']}")


def _without_null(schema: AvroSchema) -> AvroSchema:
    """The one type of a union with null."""
    if isinstance(schema, list):
        options = [t for t in schema if t != "null"]
        return _without_null(options[0]) if len(options) == 1 else schema
    return schema


def _type_name(schema: AvroSchema) -> str:
    name = schema["type"] if isinstance(schema, dict) else schema
    return "long" if name == "int" else str(name)


def refuse_endless(schema: AvroSchema) -> None:
    """Raise `ValueError` for an array or map whose items take no bytes: its count, eight bytes long, could be any number."""
    _least_bytes(schema, {}, 0)


def _least_bytes(schema: AvroSchema, named: dict[str, int], depth: int) -> int:
    """The least number of bytes that a value takes."""
    if depth > _DEEPEST:
        raise ValueError("its schema is nested too deeply")
    if isinstance(schema, list):
        for part in schema:
            _least_bytes(part, named, depth + 1)
        return 1
    if isinstance(schema, str):
        # A name that is still being declared can only be met inside of a union or array, which take a byte anyway.
        return 0 if schema == "null" else named.get(schema, 1)
    kind = schema["type"]
    if kind in ("record", "error"):
        named[schema["name"]] = sum(_least_bytes(field["type"], named, depth + 1) for field in schema["fields"])
        return named[schema["name"]]
    if kind == "fixed":
        named[schema["name"]] = int(schema["size"])
        return named[schema["name"]]
    if kind == "array":
        if _least_bytes(schema["items"], named, depth + 1) < 1:
            raise ValueError("its schema has an array of items that take no bytes")
        return 1
    if kind == "map":
        _least_bytes(schema["values"], named, depth + 1)
        return 1
    return _least_bytes(kind, named, depth + 1) if isinstance(kind, (dict, list)) or kind == "null" else 1
