"""Types as values: equality, pickling, and access to inner types."""

from __future__ import annotations

import pickle

import pytest

from paimon_cli.datatypes.data_type import (
    BIGINT,
    INT,
    STRING,
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    MapType,
    MultisetType,
    StringType,
    TimestampType,
    TimeType,
    is_java_blank,
    is_java_whitespace,
)
from paimon_cli.datatypes.field_types import parse_sql_type, parse_type, type_to_json, type_to_sql

TEXTS = (
    "BOOLEAN NOT NULL",
    "BIGINT",
    "CHAR(3)",
    "STRING",
    "BYTES NOT NULL",
    "BINARY(7)",
    "DECIMAL(20, 3)",
    "TIME(3)",
    "TIMESTAMP(6)",
    "TIMESTAMP(9) WITH LOCAL TIME ZONE NOT NULL",
    "GEOMETRY(4326)",
    "VARIANT",
    "ARRAY<INT NOT NULL>",
    "MULTISET<STRING>",
    "MAP<STRING NOT NULL, DECIMAL(4, 1)> NOT NULL",
    "ROW<`a` INT, `b` ARRAY<DATE>>",
)


@pytest.mark.parametrize("text", TEXTS)
def test_a_type_is_equal_to_itself_in_every_form(text: str) -> None:
    t = parse_sql_type(text)
    assert type_to_sql(t) == text
    for again in (parse_sql_type(text), parse_type(type_to_json(t)), pickle.loads(pickle.dumps(t))):
        assert again == t and hash(again) == hash(t)
    other = t.with_nullable(not t.nullable)
    assert other != t and type(other) is type(t) and other.with_nullable(t.nullable) == t


def test_types_differ_by_class_root_and_parameters() -> None:
    types: list[DataType] = [parse_sql_type(text) for text in TEXTS]
    types += [INT, StringType("VARCHAR", 3), BinaryType("VARBINARY", 3), BinaryType("BINARY", 3), DecimalType(20, 2)]
    types += [TimestampType("TIMESTAMP_LTZ", 6), TimeType(6), ArrayType(INT), MultisetType(INT), MapType(INT, INT)]
    assert len(set(types)) == len(types)


def test_parts_are_the_type_and_all_inside_it() -> None:
    t = parse_sql_type("ROW<a MAP<STRING, ARRAY<BIGINT>>, b MULTISET<INT>>")
    assert [part.root for part in t.parts()] == ["ROW", "MAP", "VARCHAR", "ARRAY", "BIGINT", "MULTISET", "INT", "INT"]
    assert list(BIGINT.parts()) == [BIGINT] and STRING.children == ()


def test_a_multiset_counts_its_elements() -> None:
    t = MultisetType(STRING)
    assert (t.key, t.value) == (STRING, INT.with_nullable(False))


def test_where_white_space_of_java_and_python_differs() -> None:
    assert all(map(is_java_whitespace, " \t\n\x0b\x0c\r\x1c\x1d\x1e\x1f\u2003\u2028\u2029\u3000\u1680"))
    assert not any(map(is_java_whitespace, "\x85\xa0\u2007\u202f\u200b\x00a"))
    assert is_java_blank("") and is_java_blank(" \u3000") and not is_java_blank("\xa0")
