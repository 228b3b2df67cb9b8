"""Partition directories against Java's (`partition_path` vectors)."""

from __future__ import annotations

import re

import pytest

from paimon_cli.datatypes.canonical_form import from_canonical
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.errors import NotSupported
from paimon_cli.metadata.table_layout import check_partition_types, natural_order, partition_path
from tests.vectors import load


@pytest.mark.parametrize(("name", "count"), [("partition_path", 804), ("partition_path_head", 226)])
def test_directories_of_java(name: str, count: int) -> None:
    lines = load(name)
    for line in lines:
        given = line["in"]
        types = [parse_type(t) for t in given["types"]]
        values = [from_canonical(value, t) for value, t in zip(given["row"], types, strict=True)]
        path = partition_path(given["names"], types, values, given["default_name"], given["legacy"])
        assert path == line["out"]["path"], line
    assert len(lines) == count


def test_no_partition_columns() -> None:
    assert partition_path((), (), ()) == ""


def test_binary_partitions_have_no_text() -> None:
    with pytest.raises(NotSupported, match="BYTES"):
        partition_path(["p"], [parse_type("BYTES")], [b"x"])


@pytest.mark.parametrize("text", ["FLOAT", "DOUBLE", "BINARY(2)", "BYTES NOT NULL"])
def test_types_that_new_tables_cannot_be_partitioned_by(text: str) -> None:
    with pytest.raises(NotSupported, match=re.escape(text)):
        check_partition_types([parse_type("INT"), parse_type(text)])


def test_types_that_new_tables_can_be_partitioned_by() -> None:
    check_partition_types(
        [parse_type(t) for t in ("BOOLEAN", "INT", "STRING", "CHAR(3)", "DATE", "TIME", "TIMESTAMP_LTZ", "DEC(3, 1)")]
    )


@pytest.mark.parametrize(
    ("text", "value", "name"),
    [("TIME(2)", 43_200_000, "12%3A00%3A00.0"), ("TIME(1)", 501, "00%3A00%3A00.5"), ("TIME(0)", 500, "00%3A00%3A00")],
)
def test_times_by_their_cast_to_text(text: str, value: int, name: str) -> None:
    assert partition_path(["t"], [parse_type(text)], [value], legacy=False) == f"t={name}/"


def test_partitions_sort_by_their_numbers() -> None:
    ordered = ["", "dt=2024-02-01", "dt=2024-10-01", "month=-5", "month=1", "month=2/h=9", "month=2/h=10", "month=10", "month=x"]
    assert sorted(reversed(ordered), key=natural_order) == ordered
    assert natural_order("k=01") != natural_order("k=1")
