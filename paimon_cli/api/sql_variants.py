"""VARIANT columns in queries: DuckDB sees them as JSON, and `variant_get` becomes one of its functions of JSON."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from paimon_cli.api.sql_rows import sql_type
from paimon_cli.datatypes.data_type import INTEGER_ROOTS, ArrayType, DataField, DataType, JsonText, MapType, RowType, StringType
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.datatypes.variant_columns import holds_variants, with_variants
from paimon_cli.datatypes.variant_path import Steps, parse_variant_path
from paimon_cli.datatypes.variant_text import variant_texts
from paimon_cli.errors import UsageError

_JSON = pa.json_(pa.string())
_FUNCTIONS = {"variant_get": "CAST", "try_variant_get": "TRY_CAST"}
_VALUE = "__variant"
_FORM = "variant_get(column, '$.field', 'INT'), with a path and a type as literals"


def json_schema(schema: pa.Schema, fields: Sequence[DataField]) -> pa.Schema:
    """The schema with JSON for VARIANTs, at any depth. `fields`: the table's."""
    return with_json(pa.RecordBatch.from_pylist([], schema=schema), fields).schema


def with_json(batch: pa.RecordBatch, fields: Sequence[DataField]) -> pa.RecordBatch:
    """The batch with the columns of `json_schema`."""
    variants = {field.name: field.type for field in fields if holds_variants(field.type)}
    for number, name in enumerate(batch.schema.names):
        if name in variants:
            column = with_variants(batch.column(number), variants[name], _json)
            batch = batch.set_column(number, batch.schema.field(number).with_type(column.type), column)
    return batch


def _json(column: pa.StructArray) -> pa.Array:
    return pa.ExtensionArray.from_storage(_JSON, variant_texts(column))


def with_json_texts(fields: Sequence[DataField], types: Sequence[Any]) -> tuple[DataField, ...]:
    """The columns of a result with `JsonText` for what is JSON, at any depth. `types`: of DuckDB, which does not export that."""
    return tuple(replace(field, type=_with_json_text(field.type, t)) for field, t in zip(fields, types, strict=False))


def _with_json_text(t: DataType, of_duckdb: Any) -> DataType:
    if isinstance(t, StringType):
        return JsonText(t.root, t.length, nullable=t.nullable) if str(of_duckdb) == "JSON" else t
    if not t.children:
        return t
    inside = [part for _, part in of_duckdb.children][: len(t.children)]  # the size of a fixed ARRAY comes after its element
    parts = [_with_json_text(child, part) for child, part in zip(t.children, inside, strict=True)]
    if isinstance(t, MapType):
        return replace(t, key=parts[0], value=parts[1])
    if isinstance(t, ArrayType):
        return replace(t, element=parts[0])
    if isinstance(t, RowType):
        return replace(t, fields=tuple(replace(field, type=part) for field, part in zip(t.fields, parts, strict=True)))
    return t


def with_variant_functions(connection: Any, query: str) -> str:
    """The query with `variant_get` and `try_variant_get` in DuckDB's words. Raises `UsageError` for calls of another form."""
    if not any(name in query.lower() for name in _FUNCTIONS):
        return query
    tree = _tree(connection, query)
    calls = [] if tree["error"] else list(_calls(tree["statements"]))
    for call in calls:
        name, alias = call["function_name"].lower(), call.get("alias", "")
        value, *rest = _arguments(call)
        texts = [literal_text(argument) for argument in rest]
        if not 1 <= len(texts) <= 2 or None in texts:
            raise UsageError(f"cannot read {name}", "its path and its type are literals", _FORM)
        parsed = _tree(connection, f"SELECT {_expression(name, *map(str, texts))}")["statements"][0]["node"]["select_list"][0]
        for place in _places(parsed):
            place.clear()
            place.update(value)
        call.clear()
        call.update({**parsed, "alias": alias})
    if not calls:
        return query
    return str(connection.execute("SELECT json_deserialize_sql(?)", [json.dumps(tree)]).fetchall()[0][0])


def _tree(connection: Any, query: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(connection.execute("SELECT json_serialize_sql(?)", [query]).fetchall()[0][0])
    return found


def _expression(name: str, path: str, type_text: str = "") -> str:
    value, last = _located(parse_variant_path(path))
    if not type_text:
        return f"json_extract({value}, {last})"
    t, text = parse_sql_type(type_text), f"json_extract_string({value}, {last})"
    if isinstance(t, StringType):
        return text
    target = sql_type(t)
    if target is None:
        raise UsageError(f"{name} cannot return {type_text}", "a part of a VARIANT is a text, a number, a time, or true or false")
    if t.root in INTEGER_ROOTS:
        text = f"regexp_replace({text}, '[.][0-9]+$', '')"  # the fraction is cut, as everywhere else
    return f"{_FUNCTIONS[name]}({text} AS {target})"


def _located(steps: Steps) -> tuple[str, str]:
    """The JSON in which the last part of the path begins, as an expression of DuckDB, and that part, as a literal.

    Its paths can write neither an empty name nor one with a quote in it; its pointers can.
    """
    paths = ["$"]
    for step in steps:
        if isinstance(step, str) and (not step or '"' in step):
            paths.append("/" + step.replace("~", "~0").replace("/", "~1"))
            continue
        if paths[-1].startswith("/"):
            paths.append("$")
        paths[-1] += f"[{step}]" if isinstance(step, int) else f'."{step}"'
    *before, last = ("'" + path.replace("'", "''") + "'" for path in paths)
    return functools.reduce(lambda value, path: f"json_extract({value}, {path})", before, _VALUE), last


def _arguments(call: dict[str, Any]) -> list[dict[str, Any]]:
    """The arguments of a function in the tree of DuckDB 2, or of DuckDB 1."""
    return [part["expression"] for part in call["arguments"]] if "arguments" in call else call["children"]


def _calls(node: Any) -> Iterator[dict[str, Any]]:
    """The calls of our functions, inner ones first."""
    parts = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for part in list(parts):
        yield from _calls(part)
    if isinstance(node, dict) and node.get("class") == "FUNCTION" and str(node.get("function_name")).lower() in _FUNCTIONS:
        yield node


def _places(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict) and node.get("class") == "COLUMN_REF" and node.get("column_names") == [_VALUE]:
        yield node
        return
    parts = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for part in list(parts):
        yield from _places(part)


def literal_text(expression: dict[str, Any]) -> str | None:
    """The text of a literal, as DuckDB 2 writes it, or the value of a string or integer, as DuckDB 1 does; None for others."""
    if "literal" in expression:
        return str(expression["literal"]["text"])
    value = expression.get("value") or {}
    return str(value["value"]) if (value.get("type") or {}).get("id") in ("VARCHAR", "INTEGER", "BIGINT") else None
