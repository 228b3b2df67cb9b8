"""Create a table: check the definition, publish schema 0 if nobody did before."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_cli.datatypes.data_type import NEWER_ROOTS, TIMESTAMP_ROOTS, DataType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.history.schema_history import SchemaHistory
from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.storage.clock_and_names import Clock, SystemClock
from paimon_cli.table.definition_check import check_definition
from paimon_cli.table.option_values import misspelled_keys
from paimon_cli.table.table_definition import TableDefinition, to_schema, with_key_options
from paimon_cli.table.table_location import TableLocation

WRITABLE_PRECISION = 6
"""Digits of a TIMESTAMP that Parquet's INT64 columns hold; the INT96 of more digits is not written by this version."""

LIMITED_OPTIONS = (
    ("merge-engine", "deduplicate", "this version neither writes nor compacts tables with merge-engine={}"),
    ("deletion-vectors.enabled", "false", "this version reads deletion vectors, it does not write them"),
    ("file.format", "parquet", "this version writes parquet files only, not file.format={}"),
    ("changelog-producer", "none", "this version makes no changelog files, as changelog-producer={} wants"),
)
"""Option, what this version does, and the sentence when the table asks for more."""


@dataclass(frozen=True)
class CreatedTable:
    """`created` is False when the table was there already and that was allowed; `warnings`: what this version cannot do."""

    schema: TableSchema
    created: bool
    warnings: tuple[str, ...] = ()


def create_table(location: TableLocation, definition: TableDefinition, clock: Clock | None = None) -> CreatedTable:
    """Write `schema/schema-0` of a new table. UsageError when the definition is nonsense or the table exists."""
    definition = with_key_options(definition)
    check_definition(definition)
    if location.read_optimized:
        raise UsageError(f"{location.name} is a view", "a table cannot be created under a name with $ro")
    schema = to_schema(definition, (clock or SystemClock()).now_millis())
    if location.storage_options.get("metastore") == "jdbc":
        raise NotSupported(
            "creating a table in a jdbc catalog",
            "it would have to be entered into the catalog's database, which this version does not do",
            "create it through another engine; or leave metastore out and set lock.enabled=true and uri for the lock alone",
        )
    storage, root = location.open_storage()
    history = SchemaHistory(storage, TableLayout(root))
    if not history.ids() and history.commit(schema):
        return CreatedTable(schema, True, (*misspelled_keys(definition.options), *writing_limits(schema)))
    if not definition.if_not_exists:
        raise UsageError(
            f"table {location.name} exists already", hint="use --if-not-exists to leave it as it is, or choose another name"
        )
    return CreatedTable(history.latest(), False)


def writing_limits(schema: TableSchema) -> list[str]:
    """What this version cannot do with such a table, in words; the table itself is valid for other engines."""
    options = schema.options
    limits = [sentence.format(options[key]) for key, does, sentence in LIMITED_OPTIONS if options.get(key, does).lower() != does]
    if not schema.primary_keys:
        limits.append("this version does not write tables without a primary key")
    elif int(options["bucket"]) < 1:
        limits.append(f"this version writes tables with a fixed number of buckets only, not bucket={options['bucket']}")
    limits += [
        f"this version does not write column '{column.name}' of type {type_to_sql(column.type)}"
        for column in schema.fields
        if _is_unwritable(column.type)
    ]
    return limits


def _is_unwritable(data_type: DataType) -> bool:
    if data_type.root in NEWER_ROOTS:
        return True
    if data_type.root in TIMESTAMP_ROOTS:
        return (data_type.precision or 0) > WRITABLE_PRECISION
    children = [data_type.element, data_type.key, data_type.value, *(f.type for f in data_type.fields or ())]
    return any(_is_unwritable(child) for child in children if child is not None)
