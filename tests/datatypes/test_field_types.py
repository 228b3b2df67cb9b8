"""Types in and out of their texts against Java's parser (`type_strings` vectors)."""

from __future__ import annotations

import pytest

from paimon_cli.datatypes.data_type import INT, STRING, ArrayType, DataField, DecimalType, MultisetType, TimestampType
from paimon_cli.datatypes.field_types import parse_sql_type, parse_type, type_to_json, type_to_sql
from paimon_cli.errors import UsageError
from tests.tables import row_fields
from tests.vectors import load

JAVA_ROOTS = {
    "INT": "INTEGER",
    "TIME": "TIME_WITHOUT_TIME_ZONE",
    "TIMESTAMP": "TIMESTAMP_WITHOUT_TIME_ZONE",
    "TIMESTAMP_LTZ": "TIMESTAMP_WITH_LOCAL_TIME_ZONE",
}


def is_newer_than_0_9(given: object) -> bool:
    """Types that 0.9 does not know, and a ROW whose fields all lack ids: errors in 0.9, read today."""
    if isinstance(given, dict) and given.get("type") == "ROW":
        return bool(given["fields"]) and all("id" not in field for field in given["fields"])
    return given in ("VARIANT", "BLOB") or (isinstance(given, dict) and given.get("type") == "VECTOR")


def test_types_of_java() -> None:
    newer = commented = 0
    for line in load("type_strings"):
        given, out = line["in"]["parse"], line["out"]
        if is_newer_than_0_9(given):
            assert "error" in out
            parse_type(given)
            newer += 1
        elif "error" in out:
            with pytest.raises(UsageError):
                parse_type(given)
        else:
            t = parse_type(given)
            assert type_to_json(t) == out["json"], line
            assert (t.nullable, JAVA_ROOTS.get(t.root, t.root)) == (out["nullable"], out["root"]), line
            # since 0.9 the word COMMENT stands before a description
            has_description = '"description"' in str(given).replace("'", '"')
            commented += has_description
            assert (type_to_sql(t).replace(" COMMENT '", " '") if has_description else type_to_sql(t)) == out["sql"], line
    assert (newer, commented) == (4, 1)


def test_json_round_trip() -> None:
    for line in load("type_strings"):
        if "error" not in line["out"]:
            t = parse_type(line["in"]["parse"])
            assert parse_type(type_to_json(t)) == t


def test_sql_round_trip_of_nested_types() -> None:
    text = "MAP<STRING NOT NULL, ROW<`a` ARRAY<DECIMAL(10, 2)> NOT NULL, `b c` MULTISET<INT> COMMENT 'it''s'>> NOT NULL"
    assert type_to_sql(parse_sql_type(text)) == text


def test_fields_of_sql_rows_are_numbered_depth_first() -> None:
    t = parse_sql_type("ROW<a INT, b ROW<c STRING>, d: DATE>")
    fields = row_fields(t)
    assert [field.id for field in fields] == [0, 1, 3]
    assert row_fields(fields[1].type) == (DataField(2, "c", STRING),)


def test_fields_without_ids_are_numbered_depth_first() -> None:
    inner = {"type": "ROW", "fields": [{"name": "c", "type": "INT"}]}
    t = parse_type(
        {"type": "ROW", "fields": [{"name": "a", "type": "INT"}, {"name": "b", "type": inner}, {"name": "d", "type": "INT"}]}
    )
    assert [field.id for field in row_fields(t)] == [0, 1, 3]


@pytest.mark.parametrize(
    ("text", "position", "found"),
    [
        ("INT NOT", 7, "the end of the text"),
        ("DECIMAL(10 2)", 11, "'2'"),
        ("FOO", 0, "'FOO'"),
        ("INT'", 3, '"\'"'),
        ("ARRAY<INT>", 0, "'ARRAY'"),
        ("VARCHAR(²)", 8, "'²'"),
        ("CHAR(0)", 5, "from 1"),
    ],
)
def test_errors_name_the_position(text: str, position: int, found: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_type(text)
    assert error.value.details["position"] == position
    assert found.strip('"') in error.value.why


def test_some_ids_only_are_refused() -> None:
    with pytest.raises(UsageError, match="all of its fields"):
        parse_type({"type": "ROW", "fields": [{"id": 1, "name": "a", "type": "INT"}, {"name": "b", "type": "INT"}]})


@pytest.mark.parametrize("text", ["VARIANT", "BLOB NOT NULL", "GEOMETRY(OGC:CRS84)", "GEOGRAPHY(OGC:CRS84, spherical)"])
def test_newer_types_keep_their_text(text: str) -> None:
    assert type_to_json(parse_type(text)) == text


def test_nullability_of_a_copy() -> None:
    assert INT.with_nullable(False) == parse_type("INT NOT NULL")


def test_what_is_in_quotes_is_taken_as_it_is() -> None:
    given = parse_sql_type("ROW<`a\tb`\x1fINT COMMENT 'one\n two'>")
    assert [(field.name, field.description) for field in row_fields(given)] == [("a\tb", "one\n two")]


def test_a_number_of_any_length_is_refused() -> None:
    with pytest.raises(UsageError, match="a number from 1 to 2147483647 is needed"):
        parse_sql_type(f"VARCHAR({'9' * 5000})")
    assert parse_sql_type(f"VARCHAR({'0' * 5000}7)") == parse_sql_type("VARCHAR(7)")


def test_the_suffix_forms_of_java_have_their_own_nullability() -> None:
    element = parse_type("INT NOT NULL")
    assert parse_type("INT NOT NULL ARRAY") == ArrayType(element)
    assert parse_type("INT NOT NULL ARRAY NOT NULL") == ArrayType(element).with_nullable(False)
    assert parse_type("INT NOT NULL MULTISET NOT NULL") == MultisetType(element).with_nullable(False)


def test_arguments_that_are_left_out() -> None:
    assert [parse_type(text) for text in ("DECIMAL", "DEC(7)", "NUMERIC(7, 2)")] == [
        DecimalType(10, 0),
        DecimalType(7, 0),
        DecimalType(7, 2),
    ]
    for text, full in (
        ("TIME", "TIME(0)"),
        ("TIMESTAMP", "TIMESTAMP(6)"),
        ("TIMESTAMP_LTZ", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP_LTZ(3)"),
        ("VARCHAR", "VARCHAR(1)"),
        ("BINARY", "BINARY(1)"),
    ):
        assert parse_type(text) == parse_type(full)
    assert parse_type("TIMESTAMP(3) WITH LOCAL TIME ZONE") == TimestampType("TIMESTAMP_LTZ", 3)


@pytest.mark.parametrize(
    "text", ["DECIMAL(39)", "DECIMAL(5, 6)", "DECIMAL(0)", "TIMESTAMP(10)", "TIME(10)", "VARCHAR(2147483648)", "VARCHAR(0)"]
)
def test_numbers_beyond_the_limits_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="a number from"):
        parse_type(text)


def test_names_with_quotes_in_them() -> None:
    given = parse_sql_type("ROW<`a``b` INT, ```c``` INT>")
    assert [field.name for field in row_fields(given)] == ["a`b", "`c`"]
    assert parse_sql_type(type_to_sql(given)) == given
