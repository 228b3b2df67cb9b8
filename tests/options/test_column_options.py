"""Which options name columns, and what becomes of them."""

from __future__ import annotations

import re

import pytest

from paimon_cli.options.column_options import (
    COLUMN_OPTIONS,
    holders,
    named_columns,
    nested_holders,
    renamed_in_options,
    without_column,
    without_sequence_fields,
)
from paimon_cli.options.option_catalog import OPTIONS

NAME_NO_COLUMN = {
    "add-column-before-partition",
    "alter-column-null-to-not-null.disabled",
    "alter-table-cascade",
    "csv.field-delimiter",
    "csv.include-header",
    "csv.quote-character",
    "data-evolution.enabled",
    "data-evolution.write-cols-optimization.enabled",
    "data-file.thin-mode",
    "disable-explicit-type-casting",
    "fields.default-aggregate-function",
    "global-index.column-update-action",
    "key-value.sequence_number.enabled",
    "metadata.stats-dense-store",
    "metadata.stats-keep-first-n-columns",
    "metastore.tag-to-partition",  # the name of a new column of the metastore
    "partition.timestamp-pattern",  # $dt: partition columns can be neither renamed nor dropped
    "pk-clustering-override",
    "primary-key.nullable",
    "query-auth.enabled",
    "record-level.time-field-type",
    "sequence.field.sort-order",
    "source.split.target-size-with-column-pruning",
    "table-read.sequence-number.enabled",
    "variant.shredding.maxSchemaWidth",
    "variant.shredding.minFieldCardinalityRatio",
    "write.hive-style-dynamic-partition.enabled",
    "write.merge-schema",
    "write.merge-schema.explicit-cast",
    "write.merge-schema.type-widening",
}


def test_every_option_of_the_catalog_that_names_columns_is_in_the_table() -> None:
    speaks = re.compile("column|field")
    spoken = {option.key for option in OPTIONS if speaks.search(option.key) or speaks.search(option.description)}
    missing = {key for key in spoken - NAME_NO_COLUMN if not named_columns(re.sub("<kind>|<setting>", "x", key), "c")}
    assert missing == {"orc.encrypt", "orc.mask"}  # their values hold other words, too
    assert spoken >= NAME_NO_COLUMN


def test_the_table_has_only_options_that_the_catalog_knows() -> None:
    known = {key for option in OPTIONS for key in (option.key, *option.older_keys)}
    general = {"file-index.<kind>.<column>.<setting>", "parquet.<setting>#<column><path>", "orc.bloom.filter.columns"}
    of_functions = {"fields.<column>.nested-sequence-field", "fields.<column>.ts-field"}
    assert {option.key for option in COLUMN_OPTIONS} - known == general | of_functions


@pytest.mark.parametrize(
    ("key", "value", "renamed_key", "renamed_value"),
    [
        ("sequence.field", "a, v", "sequence.field", "a,w"),
        ("rowkind.field", "v", "rowkind.field", "w"),
        ("record-level.time-field", "v", "record-level.time-field", "w"),
        ("clustering.columns", "v", "clustering.columns", "w"),
        ("file-index.bloom-filter.columns", "a,v", "file-index.bloom-filter.columns", "a,w"),
        ("file-index.bitmap.columns", "v[x],v[y]", "file-index.bitmap.columns", "w[x],w[y]"),
        ("file-index.bloom-filter.v.fpp", "0.1", "file-index.bloom-filter.w.fpp", "0.1"),
        ("fields.v.stats-mode", "full", "fields.w.stats-mode", "full"),
        ("fields.v.nested-key", "v", "fields.w.nested-key", "v"),
        ("fields.v.map.storage-layout", "default", "fields.w.map.storage-layout", "default"),
        ("fields.s,v.sequence-group", "v,a", "fields.s,w.sequence-group", "w,a"),
        ("partial-update.remove-record-on-sequence-group", "v", "partial-update.remove-record-on-sequence-group", "w"),
        ("file-index.bloom-filter.columns", "a,b[v],v[k[1]]", "file-index.bloom-filter.columns", "a,b[v],w[k[1]]"),
        ("parquet.enable.dictionary#v", "true", "parquet.enable.dictionary#w", "true"),
        ("parquet.enable.dictionary#v.x", "true", "parquet.enable.dictionary#w.x", "true"),
        ("file.format", "v", "file.format", "v"),
        ("fields.default-aggregate-function", "v", "fields.default-aggregate-function", "v"),
    ],
)
def test_a_renamed_column_is_renamed_in_keys_and_values(key: str, value: str, renamed_key: str, renamed_value: str) -> None:
    assert renamed_in_options({key: value}, {"v": "w"}) == {renamed_key: renamed_value}


def test_one_letter_columns_are_not_sought_in_the_rest_of_a_key() -> None:
    assert renamed_in_options({"fields.s.stats-mode": "full"}, {"s": "t"}) == {"fields.t.stats-mode": "full"}


def test_what_concerns_a_dropped_column_only_goes_with_it() -> None:
    options = {
        "file-index.bloom-filter.columns": "v",
        "file-index.bloom-filter.v.fpp": "0.1",
        "file-index.bitmap.columns": "v[x], a",
        "fields.v.aggregate-function": "sum",
        "clustering.columns": "a,v",
        "bucket-key": "a",
    }
    assert without_column(options, "v") == {"file-index.bitmap.columns": "a", "clustering.columns": "a", "bucket-key": "a"}


def test_options_that_the_rows_depend_on_hold_a_column() -> None:
    options = {"sequence.field": "v", "fields.v.sequence-group": "a", "orc.mask": "nullify,v;sha256,b", "clustering.columns": "v"}
    assert list(holders(options, "v", "dropped")) == ["sequence.field", "fields.v.sequence-group", "orc.mask"]
    assert list(holders(options, "v", "renamed")) == ["orc.mask"]
    assert list(holders({"pk-btree.index.columns": "v"}, "v", "renamed")) == ["pk-btree.index.columns"]
    for words in ("nullify,v", "pii:a,v", "pii:a;key:v", "x y; v ,b"):
        assert list(holders({"orc.encrypt": words, "orc.mask": "nullify,vv"}, "v", "dropped")) == ["orc.encrypt"]
    for other in (("r", "z"), ("s", "x"), ("r", "x", "z")):
        assert list(nested_holders({"fields.r.nested-key": "x,y", "fields.r.stats-mode": "x"}, other)) == []
    assert list(nested_holders({"fields.r.nested-key": "x,y"}, ("r", "element", "y"))) == ["fields.r.nested-key"]


@pytest.mark.parametrize(
    ("unknown", "left"),
    [((), {"sequence.field": "a,b", "x": "1"}), (("b",), {"sequence.field": "a", "x": "1"}), (("a", "b"), {"x": "1"})],
)
def test_sequence_fields_that_no_row_has_are_left_out(unknown: tuple[str, ...], left: dict[str, str]) -> None:
    assert without_sequence_fields({"sequence.field": "a,b", "x": "1"}, unknown) == left
    assert without_sequence_fields({"sequence.field": "a, b", "x": "1"}, ("b",)) == {"sequence.field": "a", "x": "1"}
    assert without_sequence_fields({"x": "1"}, unknown) == {"x": "1"}


def test_of_the_sequence_fields_all_that_older_rows_have_order_them() -> None:
    options = {"bucket": "1", "sequence.field": "a, b,c"}
    for unknown, left in (((), "a, b,c"), (("b",), "a,c"), (("a",), "b,c"), (("c", "x"), "a, b")):
        found = without_sequence_fields(options, set(unknown))
        assert found["bucket"] == "1"
        assert [name.strip() for name in found["sequence.field"].split(",")] == [name.strip() for name in left.split(",")]
    assert without_sequence_fields(options, {"a", "b", "c"}) == {"bucket": "1"}
