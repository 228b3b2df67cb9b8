"""Columns as users type them."""

from __future__ import annotations

import pytest

from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import UsageError
from paimon_cli.sql.column_definitions import parse_column


@pytest.mark.parametrize(
    ("text", "name", "sql_type"),
    [
        ("id BIGINT", "id", "BIGINT"),
        ("id bigint not null", "id", "BIGINT NOT NULL"),
        ("`my id` INT", "my id", "INT"),
        ("`a``b` INT", "a`b", "INT"),
        ('"quoted" INT', "quoted", "INT"),
        ("größe DOUBLE PRECISION", "größe", "DOUBLE"),
        ("comment STRING", "comment", "STRING"),
        ("d DECIMAL(10, 2) NOT NULL", "d", "DECIMAL(10, 2) NOT NULL"),
        ("t TIMESTAMP(3) WITH LOCAL TIME ZONE NOT NULL", "t", "TIMESTAMP(3) WITH LOCAL TIME ZONE NOT NULL"),
        ("t TIMESTAMP_LTZ(3)", "t", "TIMESTAMP(3) WITH LOCAL TIME ZONE"),
        ("a ARRAY<INT NOT NULL> NOT NULL", "a", "ARRAY<INT NOT NULL> NOT NULL"),
        ("m MAP<STRING, ROW<x INT, `y z` ARRAY<DATE>>>", "m", "MAP<STRING, ROW<`x` INT, `y z` ARRAY<DATE>>>"),
        ("s MULTISET<STRING>", "s", "MULTISET<STRING>"),
        ("b VARBINARY(10)", "b", "VARBINARY(10)"),
    ],
)
def test_names_and_types(text: str, name: str, sql_type: str) -> None:
    field = parse_column(text).field
    assert (field.name, type_to_sql(field.type)) == (name, sql_type)


def test_comment_key_and_null() -> None:
    column = parse_column("id INT PRIMARY KEY NOT ENFORCED COMMENT 'it''s'")
    assert (column.field.description, column.is_key, column.declared_null) == ("it's", True, False)
    assert parse_column("v INT NULL").declared_null
    assert not parse_column("v INT").declared_null


def test_comment_before_nullability() -> None:
    field = parse_column("id INT COMMENT 'x' NOT NULL").field
    assert (field.description, field.type.nullable) == ("x", False)


@pytest.mark.parametrize(
    "text", ["", "id", "id FOO", "id INT INT", "my-id INT", "id INT COMMENT x", "id INT,", "a ARRAY<INT", "1 INT", "id INT; x"]
)
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_column(text)


@pytest.mark.parametrize("text", ["id INT NOT NULL NULL", "id INT DEFAULT 1 DEFAULT 2", "id INT COMMENT 'a' NULL COMMENT 'b'"])
def test_nothing_is_declared_twice(text: str) -> None:
    with pytest.raises(UsageError, match="once"):
        parse_column(text)


def test_a_message_names_the_location() -> None:
    with pytest.raises(UsageError) as caught:
        parse_column("id INT COMMENT 5")
    assert "found '5' at line 1, column 16" in caught.value.why
