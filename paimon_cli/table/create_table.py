"""Create a table: check the definition, publish schema 0 if nobody did before."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_cli.datatypes.field_types import DataType, type_to_sql
from paimon_cli.errors import UsageError
from paimon_cli.history.schema_history import SchemaHistory
from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.storage.clock_and_names import Clock, SystemClock
from paimon_cli.storage.storage_for_url import storage_for_url
from paimon_cli.table.definition_check import check_definition
from paimon_cli.table.option_values import misspelled_keys
from paimon_cli.table.table_definition import TableDefinition, to_schema, with_key_options
from paimon_cli.table.table_location import TableLocation

WRITABLE_PRECISION = 6
"""Digits of a TIMESTAMP that Parquet's INT64 columns hold; the INT96 of more digits is not written by this version."""


@dataclass(frozen=True)
class CreatedTable:
    """`created` is False when the table was there already and that was allowed; `warnings`: what this version cannot do with it."""

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
    storage, root = storage_for_url(location.url, location.storage_options)
    history = SchemaHistory(storage, TableLayout(root))
    if not history.ids() and history.commit(schema):
        return CreatedTable(schema, True, (*misspelled_keys(definition.options), *writing_limits(schema)))
    if not definition.if_not_exists:
        raise UsageError(f"table {location.name} exists already", hint="use --if-not-exists to leave it as it is, or choose another name")
    return CreatedTable(history.latest(), False)


def writing_limits(schema: TableSchema) -> list[str]:
    """What keeps this version from writing to such a table, in words; the table itself is valid for other engines."""
    options = schema.options
    limits = []
    if not schema.primary_keys:
        limits.append("this version does not write append tables (no primary key)")
    if int(options.get("bucket", "-1")) < 1 and schema.primary_keys:
        limits.append(f"this version writes tables with a fixed number of buckets only, not bucket={options['bucket']}")
    for key, written in (("merge-engine", "deduplicate"), ("changelog-producer", "none"), ("deletion-vectors.enabled", "false")):
        if options.get(key, written).lower() != written:
            limits.append(f"this version does not write tables with {key}={options[key]}")
    if options["file.format"].lower() != "parquet":
        limits.append(f"this version writes parquet files only, not file.format={options['file.format']}")
    limits += [
        f"this version does not write column '{column.name}' of type {type_to_sql(column.type)}"
        for column in schema.fields
        if _is_beyond_micros(column.type)
    ]
    return limits


def _is_beyond_micros(data_type: DataType) -> bool:
    if data_type.root in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        return (data_type.precision or 0) > WRITABLE_PRECISION
    children = [data_type.element, data_type.key, data_type.value, *(f.type for f in data_type.fields or ())]
    return any(_is_beyond_micros(child) for child in children if child is not None)
