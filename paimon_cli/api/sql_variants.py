"""VARIANT columns in queries: DuckDB sees them as JSON, and calls our functions for the values of `variant_get`.

DuckDB finds the part by its path, and we make the value, as in conditions of `read`. But its JSON rounds fractions, and writes
objects in its own way. Where that can show, we find the part in the text ourselves.
"""

from __future__ import annotations

import functools
import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.api.sql_literals import literal_text
from paimon_cli.api.sql_rows import sql_type
from paimon_cli.datatypes.cast_numbers import per_distinct_value
from paimon_cli.datatypes.data_type import (
    STRING,
    ArrayType,
    DataField,
    DataType,
    JsonText,
    MapType,
    RowType,
    StringType,
    TimestampType,
)
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.datatypes.variant_building import variants_of_texts
from paimon_cli.datatypes.variant_casts import VariantParts, check_target, values_of_parts
from paimon_cli.datatypes.variant_columns import holds_variants, with_variants
from paimon_cli.datatypes.variant_json import has_changed_numbers, is_nested, is_written_alike
from paimon_cli.datatypes.variant_path import Steps, parse_variant_path, parts_at
from paimon_cli.datatypes.variant_text import variant_texts
from paimon_cli.errors import PaimonError, UsageError

_JSON = pa.json_(pa.string())
_GET, _TRY_GET = "variant_get", "try_variant_get"
_NAMES = (_GET, _TRY_GET)
_PARSE = "parse_json"
_VALUE = "__variant"
_FAILURE, _MOST_FAILURES = "__failure_", 1000
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


class _PartFailed(Exception):
    """Tells DuckDB that a function has failed, by the name of the error: DuckDB keeps nothing else of it."""


class VariantFunctions:
    """The functions of one connection for the parts of VARIANTs that its queries name: one for each path and type."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._names: dict[tuple[str, Steps, DataType], str] = {}
        self._failures: dict[str, PaimonError] = {}

    def named_in(self, query: str) -> str:
        """The query with our functions for `variant_get` and `try_variant_get`. Raises `UsageError` for calls of another form."""
        lowered = query.lower()
        if _PARSE in lowered:
            self._connection.execute(f"CREATE TEMP MACRO IF NOT EXISTS {_PARSE}(text) AS CAST(text AS JSON)").fetchall()
        if _GET not in lowered:
            return query
        tree = _tree(self._connection, query)
        if tree["error"]:  # the caller parses the query, too, and says what is wrong
            return query
        calls = list(_calls(tree["statements"]))
        for column in _unnamed_columns(tree["statements"]):
            column["alias"] = self._as_written(column)
        for call in calls:
            name, alias = call["function_name"].lower(), call.get("alias", "")
            value, steps, t = _asked(call)
            parsed = _tree(self._connection, f"SELECT {self._expression(name, steps, t)}")
            (found,) = parsed["statements"][0]["node"]["select_list"]
            for place in _places(found):
                place.clear()
                place.update(value)
            call.clear()
            call.update({**found, "alias": alias})
        if not calls:
            return query
        return _sql(self._connection, tree)

    def _as_written(self, column: dict[str, Any]) -> str:
        """A column of a query as SQL, which is its name without an alias."""
        tree = _tree(self._connection, "SELECT 1")
        tree["statements"][0]["node"]["select_list"] = [column]
        return _sql(self._connection, tree).removeprefix("SELECT ")

    def _expression(self, name: str, steps: Steps, t: DataType) -> str:
        value, last = _located(steps)
        return f"{self._function(name, steps, t)}(CAST(json_extract({value}, {last}) AS VARCHAR), CAST({_VALUE} AS VARCHAR))"

    def _function(self, name: str, steps: Steps, t: DataType) -> str:
        """The name of the function, which is created when it is first asked for."""
        check_target(t)
        key = (name, steps, t)
        if key not in self._names:
            target = sql_type(t)
            if target is None:
                raise UsageError(f"{name} cannot return {t.root}", "a query has no values of this type", "read it as a STRING")

            def called(parts: pa.ChunkedArray, documents: pa.ChunkedArray) -> pa.Array:
                return self._called(key, parts.combine_chunks(), documents.combine_chunks())

            self._names[key] = f"__part_{len(self._names)}"
            kinds = {"type": "arrow", "null_handling": "special"}
            self._connection.create_function(self._names[key], called, ["VARCHAR", "VARCHAR"], target, **kinds)
        return self._names[key]

    def _called(self, key: tuple[str, Steps, DataType], parts: pa.StringArray, documents: pa.StringArray) -> pa.Array:
        name, steps, t = key
        try:
            tries = name == _TRY_GET
            return _as_duckdb_has_it(values_of_parts(_parts_of_json(parts, documents, steps, tries), t, tries=tries), t)
        except PaimonError as error:
            raise _PartFailed(self._kept(error)) from None

    def _kept(self, error: PaimonError) -> str:
        """A name for the error, in a text in which DuckDB finds nothing to change. Only the last errors can end the query."""
        name = f"{_FAILURE}{uuid.uuid4().hex}"
        self._failures[name] = error
        for old in list(self._failures)[:-_MOST_FAILURES]:
            self._failures.pop(old, None)
        return name

    def failure_in(self, text: str) -> PaimonError | None:
        """The error of ours that an error of DuckDB is about; None for others: the query may have caught ours."""
        return next((error for name, error in list(self._failures.items()) if name in text), None)


def _as_duckdb_has_it(values: pa.Array, t: DataType) -> pa.Array:
    """Times in the unit of DuckDB's type: not every release converts them."""
    if not isinstance(t, TimestampType):
        return values
    unit = {"TIMESTAMP_S": "s", "TIMESTAMP_MS": "ms", "TIMESTAMP_NS": "ns", "TIMESTAMPTZ_NS": "ns"}.get(str(sql_type(t)), "us")
    if values.type.unit == "ns" and unit == "us":
        values = pc.floor_temporal(values, unit="microsecond")
    return values.cast(pa.timestamp(unit, values.type.tz))


def _asked(call: dict[str, Any]) -> tuple[dict[str, Any], Steps, DataType]:
    """The value, the path and the type of a call. One without a type as the value of another is a VARIANT."""
    name = call["function_name"].lower()
    value, *rest = _arguments(call) or ({},)
    texts = [text for text in map(literal_text, rest) if text is not None]
    if not 1 <= len(texts) <= 2 or len(texts) < len(rest):
        raise UsageError(f"cannot read {name}", "its path and its type are literals", _FORM)
    steps, t = parse_variant_path(texts[0]), parse_sql_type(texts[1]) if len(texts) == 2 else STRING
    if _is_call(value) and len(_arguments(value)) == 2:
        value, before, _ = _asked(value)
        steps = (*before, *steps)
    return value, steps, t


def _parts_of_json(parts: pa.StringArray, documents: pa.StringArray, steps: Steps, tries: bool) -> VariantParts:
    """Parts of JSON texts, which DuckDB has found. A text of which no VARIANT can be made has none if the query `tries`, else
    raises `UsageError`.
    """
    nested = is_nested(parts).fill_null(False)
    has_fraction = pc.match_substring_regex(parts, r"^-?[0-9]*[.eE]").fill_null(False)
    is_changed = pc.match_substring_regex(parts, "^-?(?:NaN|Inf)").fill_null(False)  # DuckDB takes them for JSON
    if has_fraction.true_count:
        has_changed = pc.or_(has_changed_numbers(documents), has_changed_numbers(parts)).fill_null(False)
        is_changed = pc.or_(is_changed, pc.and_(has_fraction, has_changed))
    if nested.true_count:
        alike = is_written_alike(parts.filter(nested), documents.filter(nested))
        is_changed = pc.replace_with_mask(is_changed, nested, pc.invert(alike))
    texts, is_text = _scalars(parts)
    if is_changed.true_count:
        variants, wrong = variants_of_texts(documents.filter(is_changed), shown=True)
        if wrong and not tries:
            raise UsageError("variant_get: a value is no VARIANT", next(iter(wrong.values())), "give it the JSON of a VARIANT")
        exact = parts_at(variants, steps)
        texts = pc.replace_with_mask(texts, is_changed, exact.texts)
        is_text[is_changed.to_numpy(zero_copy_only=False)] = exact.is_text
    return VariantParts(texts, is_text)


def _scalars(parts: pa.StringArray) -> tuple[pa.StringArray, np.ndarray]:
    """The contents of texts of JSON, other JSON as it is, and which are texts; null for a null of JSON."""
    texts = pc.if_else(pc.equal(parts, "null"), pa.scalar(None, pa.string()), parts)
    is_text = np.array(pc.starts_with(texts, '"').fill_null(False).to_numpy(zero_copy_only=False))
    if not is_text.any():
        return texts, is_text
    mask = pa.array(is_text)
    held = texts.filter(mask)
    has_escapes = pc.match_substring(held, "\\")
    plain = pc.utf8_slice_codeunits(held, 1, -1)
    if has_escapes.true_count:
        plain = pc.replace_with_mask(plain, has_escapes, per_distinct_value(held.filter(has_escapes), json.loads, pa.string()))
    return pc.replace_with_mask(texts, mask, plain), is_text


def _tree(connection: Any, query: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(connection.execute("SELECT json_serialize_sql(?)", [query]).fetchall()[0][0])
    return found


def _sql(connection: Any, tree: dict[str, Any]) -> str:
    return str(connection.execute("SELECT json_deserialize_sql(?)", [json.dumps(tree)]).fetchall()[0][0])


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


def _is_call(node: Any) -> bool:
    """Whether the node calls one of our functions."""
    is_function = isinstance(node, dict) and node.get("class") == "FUNCTION"
    return is_function and str(node.get("function_name")).lower() in _NAMES


def _calls(node: Any) -> Iterator[dict[str, Any]]:
    """The calls of our functions, inner ones first; not those whose VARIANT another one takes."""
    parts = _parts(node)
    if _is_call(node):
        value, *rest = _arguments(node) or ({},)
        while _is_call(value) and len(_arguments(value)) == 2:
            value = _arguments(value)[0]
        parts = [value, *rest]
    for part in list(parts):
        yield from _calls(part)
    if _is_call(node):
        yield node


def _unnamed_columns(node: Any) -> Iterator[dict[str, Any]]:
    """The columns of SELECTs, at any depth, that call our functions and have no alias; not those that stand for several."""
    for part in _parts(node):
        yield from _unnamed_columns(part)
    columns = node.get("select_list") if isinstance(node, dict) else None
    for column in columns or ():
        if not column.get("alias") and next(_calls(column), None) and not _stands_for_several(column):
            yield column


def _stands_for_several(node: Any) -> bool:
    is_star = isinstance(node, dict) and node.get("class") == "STAR"
    return is_star or any(map(_stands_for_several, _parts(node)))


def _parts(node: Any) -> list[Any]:
    return list(node.values()) if isinstance(node, dict) else node if isinstance(node, list) else []


def _places(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict) and node.get("class") == "COLUMN_REF" and node.get("column_names") == [_VALUE]:
        yield node
        return
    for part in _parts(node):
        yield from _places(part)
