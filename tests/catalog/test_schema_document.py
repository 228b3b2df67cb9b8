"""Schema JSON as an input of `create`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.catalog.definition_check import check_definition
from paimon_cli.catalog.option_values import odd_options
from paimon_cli.catalog.table_definition import parse_schema_document, to_schema
from paimon_cli.errors import UsageError
from paimon_cli.metadata.table_schema import TableSchema
from tests.goldens import GOLDENS, Golden, golden_table

NESTED = {
    "type": "ARRAY",
    "element": {"type": "ROW NOT NULL", "fields": [{"name": "x", "type": "INT"}, {"name": "y", "type": "DATE"}]},
}


def schema_of(document: Any) -> TableSchema:
    return to_schema(parse_schema_document(json.dumps(document), "schema.json"), 7)


def test_ids_may_be_left_out() -> None:
    document = {
        "fields": [
            {"name": "id", "type": "BIGINT"},
            {"name": "a", "type": NESTED},
            {"name": "b", "type": "INT", "description": "d"},
        ],
        "primaryKeys": ["id"],
        "options": {"bucket": 3},
    }
    schema = schema_of(document)
    assert [field.id for field in schema.fields] == [0, 1, 4]
    assert schema.highest_field_id == 4
    assert not schema.fields[0].type.nullable
    assert schema.options == {"bucket": "3", "file.format": "parquet"}
    assert schema.fields[2].description == "d"
    assert (schema.id, schema.time_millis, schema.comment) == (0, 7, None)


def test_ids_that_are_given_do_not_count() -> None:
    schema = schema_of(
        {"fields": [{"id": 3, "name": "id", "type": "INT"}, {"id": 9, "name": "v", "type": "INT"}], "comment": "c"}
    )
    assert [field.id for field in schema.fields] == [0, 1]
    assert (schema.highest_field_id, schema.comment) == (1, "c")


@pytest.mark.parametrize("table", [t for t in GOLDENS if t.writer == "java-0.9"], ids=str)
def test_schemas_become_what_java_makes_of_them(table: Golden, tmp_path: Path) -> None:
    schema = schema_of(table.schema)
    written = TableSchema.from_json((golden_table(table.writer, table.name, tmp_path) / "schema" / "schema-0").read_text())
    assert schema.fields == written.fields
    assert (schema.highest_field_id, schema.primary_keys) == (written.highest_field_id, written.primary_keys)
    assert schema.options.items() >= written.options.items()
    assert [sentence for sentence in odd_options(schema.options) if "unknown" in sentence] == []
    check_definition(parse_schema_document(json.dumps(table.schema), "schema.json"))


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"fields": []},
        {"fields": "id INT"},
        {"fields": [{"name": "id"}]},
        {"fields": [{"name": "id", "type": "FOO"}]},
        {"fields": [{"name": "id", "type": "INT"}], "primaryKeys": "id"},
        {"fields": [{"name": "id", "type": "INT"}], "primaryKeys": [1]},
        {"fields": [{"name": "id", "type": "INT"}], "options": []},
    ],
    ids=json.dumps,
)
def test_wrong_documents(document: Any) -> None:
    with pytest.raises(UsageError):
        schema_of(document)


def test_text_that_is_not_json() -> None:
    with pytest.raises(UsageError, match=r"schema\.json is not JSON"):
        parse_schema_document("{fields", "schema.json")


@pytest.mark.parametrize("depth", [101, 600, 100_000])
def test_deep_types_are_refused(depth: int) -> None:
    deep = '{"type":"ARRAY","element":' * depth + '"INT"' + "}" * depth
    with pytest.raises(UsageError, match=r"nested (too|more than)"):
        parse_schema_document('{"fields":[{"name":"a","type":' + deep + "}]}", "schema.json")
