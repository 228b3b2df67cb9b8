"""Schema files against Java's reader and writer (`schema_json` vectors)."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import pytest

from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_type, type_to_json
from paimon_cli.errors import DamagedFile, UsageError
from paimon_cli.metadata.table_schema import TableSchema
from tests.vectors import load

SCHEMA = TableSchema(
    id=0,
    fields=(
        DataField(0, "dt", parse_type("STRING NOT NULL")),
        DataField(1, "k", parse_type("BIGINT NOT NULL")),
        DataField(2, "v", parse_type("INT"), description="", default_value="7"),
    ),
    highest_field_id=2,
    partition_keys=("dt",),
    primary_keys=("dt", "k"),
    options={"bucket": "2"},
    comment=None,
    time_millis=1_700_000_000_000,
)


def damaged(**changes: object) -> str:
    content = json.loads(SCHEMA.to_json()) | changes
    return json.dumps({key: value for key, value in content.items() if value is not ...})


def test_schemas_of_java() -> None:
    same = 0
    for line in load("schema_json"):
        schema, out = TableSchema.from_json(line["in"]["text"]), line["out"]
        assert (schema.version, schema.id, schema.highest_field_id) == (out["version"], out["id"], out["highest_field_id"])
        fields = [{"id": f.id, "name": f.name, "type": type_to_json(f.type)} for f in schema.fields]
        assert fields == out["schema"]["fields"]
        assert list(schema.partition_keys) == out["schema"]["partitionKeys"]
        assert list(schema.primary_keys) == out["schema"]["primaryKeys"]
        assert schema.options == out["schema"]["options"]
        assert (schema.comment, schema.time_millis) == (out["comment"], out["time_millis"])
        assert list(schema.bucket_key_names) == out["bucket_keys"]
        assert list(schema.trimmed_primary_keys) == out["trimmed_primary_keys"]
        assert int(schema.options.get("bucket", -1)) == out["num_buckets"]
        if out["rewritten"] == "same":
            assert schema.to_json() == line["in"]["text"]
            same += 1
    assert same > 15


@pytest.mark.parametrize("around", ["{row}", "ARRAY", "MAP"])
@pytest.mark.parametrize(("ids", "is_sound"), [((3, 4), True), ((3, 3), False), ((-1, 4), False), ((3, 2**31), False)])
def test_fields_of_a_row_have_ids_of_their_own(around: str, ids: tuple[int, int], is_sound: bool) -> None:
    row = {"type": "ROW", "fields": [{"id": number, "name": f"f{n}", "type": "INT"} for n, number in enumerate(ids)]}
    types = {"{row}": row, "ARRAY": {"type": "ARRAY", "element": row}, "MAP": {"type": "MAP", "key": "INT", "value": row}}
    fields = [{"id": 0, "name": "dt", "type": "STRING"}, {"id": 1, "name": "k", "type": "INT"}]
    text = damaged(fields=[*fields, {"id": 2, "name": "v", "type": types[around]}])
    if is_sound:
        assert TableSchema.from_json(text).field_names == ("dt", "k", "v")
        return
    with pytest.raises(DamagedFile, match="fields within 'v' have the same id"):
        TableSchema.from_json(text)


def test_round_trip() -> None:
    assert TableSchema.from_json(SCHEMA.to_json()) == SCHEMA
    assert pickle.loads(pickle.dumps(SCHEMA)) == SCHEMA


def test_a_null_comment_is_read_but_not_written() -> None:
    assert TableSchema.from_json(damaged(comment=None)).comment is None
    assert "comment" not in SCHEMA.to_json()
    assert '"comment" : ""' in replace(SCHEMA, comment="").to_json()


def test_defaults_of_old_versions() -> None:
    assert TableSchema.from_json(damaged(version=..., options={})).options == {"bucket": "1", "file.format": "orc"}
    assert TableSchema.from_json(damaged(version=1, options={"bucket": "3"})).options == {"bucket": "3", "file.format": "orc"}
    assert TableSchema.from_json(damaged(version=2, options={})).options == {"file.format": "orc"}
    assert TableSchema.from_json(damaged(version=3, options={})).options == {}


def test_lenient_where_java_is() -> None:
    schema = TableSchema.from_json(damaged(timeMillis=..., somethingNew={"a": 1}, options={"bucket": 2, "write-only": True}))
    assert (schema.time_millis, schema.options) == (0, {"bucket": "2", "write-only": "true"})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"version": 3',
        damaged(id="0"),
        damaged(id=True),
        damaged(highestFieldId=...),
        damaged(fields=...),
        damaged(fields=[{"name": "dt", "type": "STRING"}]),
        damaged(fields=[{"id": 0, "name": "dt", "type": "STR"}]),
        damaged(fields=["dt"]),
        damaged(fields=[{"id": 0, "name": "r", "type": {"type": "ROW", "fields": [{"name": "x", "type": "INT"}]}}]),
        damaged(fields=[{"id": 0, "name": "a", "type": "INT"}, {"id": 1, "name": "a", "type": "INT"}]),
        damaged(partitionKeys=None),
        damaged(primaryKeys=["nope"]),
        damaged(
            fields=[{"id": 0, "name": "a", "type": "INT"}, {"id": 0, "name": "b", "type": "INT"}],
            partitionKeys=[],
            primaryKeys=[],
        ),
        damaged(fields=[{"id": 2**31, "name": "a", "type": "INT"}], partitionKeys=[], primaryKeys=[]),
        damaged(fields=[{"id": -1, "name": "a", "type": "INT"}], partitionKeys=[], primaryKeys=[]),
        damaged(primaryKeys=["dt", "k", "k"]),
        damaged(highestFieldId=-2),
        damaged(options=...),
        damaged(options={"a": None}),
        damaged(comment=5),
    ],
)
def test_damaged_files_are_named(text: str) -> None:
    with pytest.raises(DamagedFile, match="schema/schema-7") as error:
        TableSchema.from_json(text, "t/schema/schema-7")
    assert error.value.details["path"] == "t/schema/schema-7"


def test_keys() -> None:
    assert SCHEMA.trimmed_primary_keys == SCHEMA.bucket_key_names == ("k",)
    assert replace(SCHEMA, options={"bucket-key": " v, k"}).bucket_key_names == ("v", "k")
    assert replace(SCHEMA, options={"bucket-key": " "}).bucket_key_names == ("k",)
    assert replace(SCHEMA, primary_keys=("v", "dt", "k")).trimmed_primary_keys == ("v", "k"), "in the order of the key"


def test_columns_that_are_the_same_in_all_rows_of_a_key() -> None:
    assert replace(SCHEMA, primary_keys=("k",)).fixed_columns == {"dt", "k"}
    assert replace(SCHEMA, partition_keys=()).fixed_columns == {"dt", "k"}
    assert replace(SCHEMA, partition_keys=(), primary_keys=()).fixed_columns == set()


def test_columns_by_name() -> None:
    assert SCHEMA.field_names == ("dt", "k", "v")
    assert SCHEMA.fields_of(["v", "dt"]) == (SCHEMA.fields[2], SCHEMA.fields[0])
    assert SCHEMA.types_of(["v"]) == (parse_type("INT"),)
    with pytest.raises(UsageError, match="no column 'x'"):
        SCHEMA.field("x")


@pytest.mark.parametrize("value", ["1,", "[", "{"])
def test_a_schema_with_too_many_values_is_not_parsed(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever they are: each could take a hundred times its size in memory."""
    monkeypatch.setattr("paimon_cli.metadata.table_schema._MAX_MARKS", 100)
    with pytest.raises(DamagedFile, match="schema-7") as refused:
        TableSchema.from_json(value * 101, "schema-7")
    assert "more than a schema of" in refused.value.why
    assert TableSchema.from_json(SCHEMA.to_json()) == SCHEMA


def test_a_schema_may_have_no_columns_and_texts_that_java_writes() -> None:
    schema = replace(SCHEMA, fields=(), highest_field_id=-1, partition_keys=(), primary_keys=(), comment="")
    assert TableSchema.from_json(schema.to_json()) == schema
    options = TableSchema.from_json(damaged(options={"a": False, "b": 1.5, "c": "", "d": 10**12})).options
    assert options == {"a": "false", "b": "1.5", "c": "", "d": "1000000000000"}
