"""CREATE TABLE in the dialects that users bring."""

from __future__ import annotations

import pytest

from paimon_cli.catalog.ddl import create_table_text, parse_create_table
from paimon_cli.catalog.table_definition import to_schema, with_key_options
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import NotSupported, PaimonError, UsageError
from paimon_cli.metadata.table_schema import TableSchema
from tests.tables import row_fields

FLINK = """
-- orders of the shop
CREATE TABLE IF NOT EXISTS `shop`.`orders` (
  order_id BIGINT NOT NULL COMMENT 'the key',
  lines ARRAY<ROW<sku STRING NOT NULL, qty INT>> NOT NULL, /* nested */
  tags MAP<STRING, STRING>,
  at TIMESTAMP(3) WITH LOCAL TIME ZONE,
  dt STRING,
  CONSTRAINT pk PRIMARY KEY (order_id, dt) NOT ENFORCED
) COMMENT 'orders' PARTITIONED BY (dt) WITH ('bucket' = '4', 'sequence.field' = 'at');
"""
SPARK = """
create table orders (order_id bigint not null, lines array<struct<sku: string, qty: int>>, dt string not null)
using paimon partitioned by (dt) tblproperties ('primary-key' = 'order_id,dt', bucket = 4, write-only = true)
"""


def test_flink() -> None:
    definition = parse_create_table(FLINK, "orders.sql")
    assert definition.if_not_exists
    assert (definition.primary_keys, definition.partition_keys) == (("order_id", "dt"), ("dt",))
    assert definition.options == {"bucket": "4", "sequence.field": "at"}
    assert definition.comment == "orders"
    assert definition.fields[0].description == "the key"
    assert type_to_sql(definition.field("lines").type) == "ARRAY<ROW<`sku` STRING NOT NULL, `qty` INT>> NOT NULL"


def test_ids_count_nested_fields() -> None:
    schema = to_schema(parse_create_table(FLINK, "orders.sql"), 0)
    assert [field.id for field in schema.fields] == [0, 1, 4, 5, 6]
    (rows,) = schema.fields[1].type.children
    assert [field.id for field in row_fields(rows)] == [2, 3]
    assert schema.highest_field_id == 6


def test_spark() -> None:
    text = SPARK.replace("write-only", "'write-only'")
    definition = with_key_options(parse_create_table(text, "orders.sql"))
    assert definition.primary_keys == ("order_id", "dt")
    assert definition.options == {"bucket": "4", "write-only": "true"}
    assert type_to_sql(definition.field("lines").type) == "ARRAY<ROW<`sku` STRING, `qty` INT>>"


def test_a_key_after_its_column() -> None:
    definition = parse_create_table("CREATE TABLE t (id INT PRIMARY KEY NOT ENFORCED, v INT NULL)", "x")
    assert definition.primary_keys == ("id",)
    assert definition.declared_null == {"v"}


@pytest.mark.parametrize(
    ("sql", "error", "message"),
    [
        ("DROP TABLE t", UsageError, "expected 'CREATE'"),
        ("CREATE VIEW v", UsageError, "expected 'TABLE'"),
        ("CREATE TABLE t", UsageError, r"expected '\('"),
        ("CREATE TABLE t (id INT", UsageError, r"expected '\)'"),
        ("CREATE TABLE t (id INT) FROBNICATE", UsageError, "found 'FROBNICATE'"),
        ("CREATE TABLE t (id INT) WITH ('a' 'b')", UsageError, "expected '='"),
        ("CREATE TABLE t (id INT) USING iceberg", UsageError, "iceberg"),
        ("CREATE TABLE t (a INT PRIMARY KEY, b INT PRIMARY KEY)", UsageError, "two columns"),
        ("CREATE TABLE t (a INT PRIMARY KEY, PRIMARY KEY (a))", UsageError, "two primary keys"),
        ("CREATE TABLE t (id INT, PRIMARY KEY (id), PRIMARY KEY (id))", UsageError, "one PRIMARY KEY"),
        ("CREATE TABLE t (id INT) WITH ('a' = 'b', 'a' = 'c')", UsageError, "option 'a' is given twice"),
        ("CREATE TABLE t (id INT) WITH ('a.b' = 'b') OPTIONS (a.b = 'c')", UsageError, "option 'a.b' is given twice"),
        ("CREATE TABLE t (a INT, b INT) PARTITIONED BY (a) COMMENT 'c' PARTITIONED BY (b)", UsageError, "each clause once"),
        ("CREATE TABLE t (id INT) COMMENT 'a' comment 'b'", UsageError, "each clause once"),
        ("CREATE TABLE t (id INT) AS SELECT 1", NotSupported, "CREATE TABLE AS"),
        ("CREATE TABLE t (id INT, at TIMESTAMP, WATERMARK FOR at AS at)", NotSupported, "WATERMARK"),
        ("CREATE TABLE t (id INT, v INT GENERATED ALWAYS AS (id))", NotSupported, "computed"),
    ],
)
def test_unsupported_clauses(sql: str, error: type[PaimonError], message: str) -> None:
    with pytest.raises(error, match=message):
        parse_create_table(sql, "x.sql")


def test_a_table_is_written_as_the_statement_that_makes_it() -> None:
    text = (
        "CREATE TABLE `shop`.`it``s` (\n"
        "  `id` BIGINT NOT NULL COMMENT 'the ''key''',\n"
        "  `my col` DECIMAL(10, 2) DEFAULT '1.5',\n"
        "  `r` ROW<`a` INT, `b` ARRAY<STRING>>,\n"
        "  PRIMARY KEY (`id`) NOT ENFORCED\n"
        ") COMMENT 'a table'\n"
        "WITH (\n  'bucket' = '2'\n);"
    )
    definition = parse_create_table(text, "a statement")
    schema = TableSchema(
        0,
        tuple(definition.fields),
        len(definition.fields),
        definition.partition_keys,
        definition.primary_keys,
        {**definition.options, "s3.secret-key": "hunter2"},
        definition.comment,
        0,
    )
    written = create_table_text("shop.it`s", schema)
    assert "hunter2" not in written
    again = parse_create_table(written, "a statement")
    assert again == definition
