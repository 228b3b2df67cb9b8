"""The type of a column that follows its source holds the values of before and the new ones."""

from __future__ import annotations

import pytest

from paimon_cli.catalog.column_changes import AlterColumn
from paimon_cli.catalog.schema_drift import changes_to_follow, wider_type
from paimon_cli.datatypes.column_cast import keeps_values
from paimon_cli.datatypes.field_types import parse_sql_type
from tests.ingest.input_files import schema_of

DECIMALS = [f"DECIMAL({precision}, {scale})" for precision in (1, 3, 5) for scale in range(precision + 1)]
ASCENDING = (
    ("TINYINT", "SMALLINT", "INT", "BIGINT"),
    ("FLOAT", "DOUBLE"),
    ("VARCHAR(1)", "VARCHAR(7)", "STRING"),
    ("VARBINARY(1)", "VARBINARY(7)", "BYTES"),
    ("TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(9)"),
    ("TIME(0)", "TIME(3)"),
)


@pytest.mark.parametrize("types", ASCENDING, ids=lambda types: str(types[0]))
def test_a_column_gets_the_wider_of_two_types(types: tuple[str, ...]) -> None:
    parsed = [parse_sql_type(text) for text in types]
    for number, before in enumerate(parsed):
        for other, after in enumerate(parsed):
            assert wider_type(before, after) == (after if other > number else None)


def test_columns_of_the_key_and_of_partitions_keep_their_types() -> None:
    types = {"id": "INT NOT NULL", "dt": "INT NOT NULL", "v": "INT"}
    schema = schema_of(types, primary_key=["id", "dt"], partition_by=["dt"])
    found = {name: parse_sql_type("BIGINT") for name in types}
    assert changes_to_follow(schema, found, frozenset(types)) == [AlterColumn(("v",), type=parse_sql_type("BIGINT"))]
    assert changes_to_follow(schema, found, frozenset()) == [], "types that the source has not stated"


@pytest.mark.parametrize("text", DECIMALS)
def test_a_decimal_keeps_all_digits_on_either_side_of_the_point(text: str) -> None:
    before = parse_sql_type(text)
    for after in map(parse_sql_type, DECIMALS):
        wider = wider_type(before, after)
        assert (wider is None) == keeps_values(after, before)
        assert wider is None or (keeps_values(before, wider) and keeps_values(after, wider))
