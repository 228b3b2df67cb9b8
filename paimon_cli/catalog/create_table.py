"""Creates a table: checks the definition, then publishes schema 0 if there is none."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from paimon_cli.catalog.definition_check import check_definition, engine_limit
from paimon_cli.catalog.option_values import idle_levels, odd_options, refuse_secrets
from paimon_cli.catalog.table_definition import TableDefinition, to_schema, with_key_options, with_postponed_writes
from paimon_cli.catalog.table_location import TableLocation
from paimon_cli.catalog.table_site import check_site
from paimon_cli.datatypes.data_type import BINARY_ROOTS, FLOATING_ROOTS, NEWER_ROOTS, DataType, TimestampType
from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.history.snapshots_and_schemas import SchemaHistory
from paimon_cli.metadata.table_layout import MAIN_BRANCH, TableLayout
from paimon_cli.metadata.table_mode import TableMode
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.option_catalog import WRITE
from paimon_cli.storage.clock_and_random import Clock, SystemClock

PLAIN_PRECISION = 6
"""Digits of a TIMESTAMP that every file format holds."""


@dataclass(frozen=True)
class CreatedTable:
    """The result of a creation. `created` is False if the table existed and that was allowed; `warnings` are about its
    options.
    """

    schema: TableSchema
    created: bool
    warnings: tuple[str, ...] = ()


def create_table(location: TableLocation, definition: TableDefinition, clock: Clock | None = None) -> CreatedTable:
    """Write `schema/schema-0` of a new table.

    `UsageError` if the definition is invalid or the table exists, `NotSupported` for a table that `write` would not accept.
    """
    definition = with_key_options(definition)
    refuse_secrets(definition.options)
    check_definition(definition)
    definition = with_postponed_writes(definition)
    if location.read_optimized:
        raise UsageError(f"{location.name} is a view", "a table cannot be created under a name with $ro", "leave $ro out")
    if location.branch != MAIN_BRANCH:
        raise UsageError(
            f"{location.name} is a branch",
            "a branch is created from an existing table",
            f"paimon-cli branches create {shlex.quote(location.url)} {location.branch}",
        )
    schema = to_schema(definition, (clock or SystemClock()).now_millis())
    metastore, name = location.metastore, location.identifier
    warnings: list[str] = []

    def publish() -> bool:
        storage, root = location.open_storage()
        history = SchemaHistory(storage, TableLayout(root))
        if history.ids():
            return False
        _refuse_unwritable(location.name, schema)
        warnings.extend(check_site(storage, root))
        return history.commit(schema)

    if metastore is None or name is None:
        is_made = publish()
    else:
        if not metastore.takes_files:
            _refuse_unwritable(location.name, schema)
        is_made = metastore.create_table(name, schema, publish)
    if is_made:
        return CreatedTable(schema, True, (*warnings, *odd_options(definition.options), *idle_levels(definition.options)))
    if not definition.if_not_exists:
        raise UsageError(
            f"table {location.name} already exists", hint="use --if-not-exists to leave it as it is, or choose another name"
        )
    storage, root = location.open_storage()
    return CreatedTable(SchemaHistory(storage, TableLayout(root)).latest(), False)


def _refuse_unwritable(name: str, schema: TableSchema) -> None:
    """Refuse a table that could be created but not written."""
    limits = writing_limits(schema)
    if not limits:
        return
    hint = TableMode.of(schema, schema.typed_options).hint(WRITE)
    raise NotSupported(
        f"cannot create {name}", "; ".join(limits), hint or "leave that out, or create the table with another Paimon engine"
    )


def writing_limits(schema: TableSchema) -> list[str]:
    """What paimon-cli cannot do with such a table, as text; the table itself is valid for other engines."""
    mode = TableMode.of(schema, schema.typed_options)
    engine = engine_limit(schema) if mode.has_keys else None
    return [*mode.limits(WRITE), *([engine] if engine else []), *_limits_of_files(schema)]


def _limits_of_files(schema: TableSchema) -> list[str]:
    """What its data files could not hold, as text."""
    options = schema.typed_options
    formats = {options.file_format.lower(), *(text.lower() for text in options.file_format_per_level.values())}
    codecs = {options.file_compression, *options.file_compression_per_level.values()}
    special = [column.type for column in schema.fields if _is_special(column.type)] + _odd_partitions(schema)
    indexes = [key for key in schema.options if key.startswith("file-index.")]
    if formats == {"parquet"} and codecs == {"zstd"} and not special and not indexes:
        return []
    from paimon_cli.bucket.data_file_writer import check_writable  # loads Arrow, which most new tables do not need

    try:
        check_writable(schema, options)
    except (NotSupported, UsageError) as limit:
        return [f"this version does not write such a table: {limit}"]
    return []


def _odd_partitions(schema: TableSchema) -> list[DataType]:
    """Partition columns for which writers disagree on directory names."""
    return [t for t in schema.types_of(schema.partition_keys) if t.root in FLOATING_ROOTS | BINARY_ROOTS]


def _is_special(data_type: DataType) -> bool:
    return any(
        part.root in NEWER_ROOTS or (isinstance(part, TimestampType) and part.precision > PLAIN_PRECISION)
        for part in data_type.parts()
    )
