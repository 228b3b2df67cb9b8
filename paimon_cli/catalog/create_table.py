"""`create`: checks the definition of a new table and publishes its schema 0."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from paimon_cli.catalog.definition_check import check_definition, engine_limit
from paimon_cli.catalog.option_values import codecs_unknown_to_java, idle_levels, odd_options, refuse_secrets
from paimon_cli.catalog.table_definition import TableDefinition, to_schema, with_key_options, with_postponed_writes
from paimon_cli.catalog.table_location import TableLocation
from paimon_cli.catalog.table_site import check_not_dropping
from paimon_cli.catalog.warehouse_trash import check_new_site
from paimon_cli.datatypes.data_type import BINARY_ROOTS, FLOATING_ROOTS, MAX_NESTING, NEWER_ROOTS, DataType, TimestampType
from paimon_cli.errors import AlreadyExists, NotSupported, UsageError
from paimon_cli.history.schema_history import SchemaHistory
from paimon_cli.metadata.table_layout import MAIN_BRANCH, TableLayout
from paimon_cli.metadata.table_mode import TableMode
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.option_catalog import Operation
from paimon_cli.options.table_options import TableOptions
from paimon_cli.storage.injected import Clock, SystemClock
from paimon_cli.storage.redaction import without_login

PLAIN_PRECISION = 6
"""The largest precision of a TIMESTAMP that every file format can store."""


@dataclass(frozen=True)
class CreatedTable:
    """The result of `create`. `created` is False if the table already existed, with `--if-not-exists`."""

    schema: TableSchema
    created: bool
    warnings: tuple[str, ...] = ()


def create_table(location: TableLocation, definition: TableDefinition, clock: Clock | None = None) -> CreatedTable:
    """Create a table: write `schema/schema-0` and register it in its catalog.

    Raises `UsageError` if the definition is invalid or the table exists, `NotSupported` for a table that `write` would refuse.
    """
    definition, schema = _checked(location, definition, clock or SystemClock())
    metastore, name = location.metastore, location.identifier
    warnings: list[str] = []

    def publish() -> bool:
        storage, root = location.open_storage()
        history = SchemaHistory(storage, TableLayout(root))
        if history.ids():
            return False
        refuse_unwritable(f"cannot create {location.name}", schema)
        warnings.extend(check_new_site(location, storage, root))
        return history.commit(schema)

    if metastore is None or name is None:
        is_created = publish()
    else:
        if not metastore.takes_files:
            refuse_unwritable(f"cannot create {location.name}", schema)
        is_created = metastore.create_table(name, schema, publish)
    if is_created:
        return CreatedTable(schema, True, (*warnings, *odd_options(definition.options), *_of_files(definition.options)))
    storage, root = location.open_storage()
    check_not_dropping(storage, root)
    if not definition.if_not_exists:
        raise _exists(location)
    return CreatedTable(SchemaHistory(storage, TableLayout(root)).latest(), False)


def check_new_table(location: TableLocation, definition: TableDefinition) -> None:
    """Raise what `create_table` would, as far as the definition and the place tell; nothing is created."""
    _, schema = _checked(location, definition, SystemClock())
    storage, root = location.open_storage()
    if SchemaHistory(storage, TableLayout(root)).ids():
        check_not_dropping(storage, root)
        raise _exists(location)
    refuse_unwritable(f"cannot create {location.name}", schema)
    check_new_site(location, storage, root)


def _exists(location: TableLocation) -> AlreadyExists:
    return AlreadyExists(f"table {location.name} already exists", hint="add --if-not-exists to keep it, or choose another name")


def _checked(location: TableLocation, definition: TableDefinition, clock: Clock) -> tuple[TableDefinition, TableSchema]:
    """The definition with the options of keys and buckets in their place, and its schema."""
    definition = with_key_options(definition)
    refuse_secrets(definition.options)
    if "path" in definition.options:
        what, why = "the option path of a new table", "the name of a table says where it is"
        raise NotSupported(what, why, "leave it out, or create the table by its path")
    check_definition(definition)
    definition = with_postponed_writes(definition)
    if location.read_optimized:
        raise UsageError(f"{location.name} is a view", "a table name cannot end in $ro", "leave out $ro")
    if location.branch != MAIN_BRANCH:
        raise UsageError(
            f"{location.name} is a branch",
            "a branch is created from an existing table",
            f"paimon-cli branches create {shlex.quote(without_login(location.url))} {location.branch}",
        )
    return definition, to_schema(definition, clock.now_millis())


def refuse_unwritable(what: str, schema: TableSchema, old: TableSchema | None = None) -> None:
    """Raise `NotSupported` if paimon-cli could not write a table with this schema, for a reason that does not hold for `old`."""
    known = () if old is None else _writing_limits(old)
    limits = [limit for limit in _writing_limits(schema) if limit not in known]
    if not limits:
        return
    hint = TableMode.of(schema, schema.typed_options).hint(Operation.WRITE)
    raise NotSupported(what, "; ".join(limits), hint or "change the definition, or use another Paimon engine")


def _writing_limits(schema: TableSchema) -> list[str]:
    """Why paimon-cli could not write a table with this schema, as texts; other engines may."""
    mode = TableMode.of(schema, schema.typed_options)
    engine = engine_limit(schema) if mode.has_keys else None
    return [*dict.fromkeys([*mode.limits(Operation.WRITE), *([engine] if engine else []), *_limits_of_files(schema)])]


def _limits_of_files(schema: TableSchema) -> list[str]:
    """Why paimon-cli could not write the data files of the table, as texts."""
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
    """The types of partition columns for which engines disagree on directory names."""
    return [t for t in schema.types_of(schema.partition_keys) if t.root in FLOATING_ROOTS | BINARY_ROOTS]


def _is_special(data_type: DataType) -> bool:
    return data_type.depth > MAX_NESTING or any(
        part.root in NEWER_ROOTS or (isinstance(part, TimestampType) and part.precision > PLAIN_PRECISION)
        for part in data_type.parts()
    )


def _of_files(options: Mapping[str, str]) -> list[str]:
    """Warnings about the formats and codecs of the table's files."""
    unknown = codecs_unknown_to_java(TableOptions(options))
    return [*idle_levels(options), *(f"option '{key}': {why}" for key, (why, _) in unknown.items())]
