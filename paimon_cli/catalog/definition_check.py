"""The rules for a valid table definition, one function each, checked before anything is written (Java SchemaValidation)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from paimon_cli.catalog.option_values import check_option_values
from paimon_cli.catalog.table_definition import TableDefinition, split_names, to_schema
from paimon_cli.commit.automatic_tags import checked_rules
from paimon_cli.datatypes.data_type import UNORDERED_ROOTS, DataType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import NotSupported, PaimonError, UsageError
from paimon_cli.lsm.merge_engine import merge_engine
from paimon_cli.metadata.bucket_modes import DYNAMIC_BUCKET
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.metadata.table_mode import check_time_field
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.changelog_producers import NO_CHANGELOG
from paimon_cli.options.column_options import named_columns
from paimon_cli.options.merge_engines import DEFAULT_ENGINE
from paimon_cli.options.option_text import did_you_mean
from paimon_cli.options.table_options import HASHED, NULLABLE_KEYS, TableOptions


def check_engine(definition: TableDefinition) -> None:
    """Raise `UsageError` for merge options that no engine accepts; `engine_limit` reports what only paimon-cli lacks."""
    _check_record_expiry(definition)
    _check_row_kind(definition)
    _check_group_order(definition)
    _check_cross_partition(definition)
    if definition.primary_keys:
        engine_limit(to_schema(definition, 0))


def engine_limit(schema: TableSchema) -> str | None:
    """Why paimon-cli cannot merge rows of such a table; None if it can."""
    try:
        merge_engine(schema, schema.typed_options)
    except NotSupported as limit:
        return f"this version does not support {limit.what}: {limit.why}"
    return None


def _check_record_expiry(definition: TableDefinition) -> None:
    options = TableOptions(definition.options)
    name = options.record_level_time_field
    if options.record_level_expire_time is not None and name is None:
        raise UsageError("record-level.expire-time needs record-level.time-field", "without it rows have no age")
    if name is not None and name in definition.field_names:
        check_time_field(name, definition.field(name).type)


def _check_row_kind(definition: TableDefinition) -> None:
    name = TableOptions(definition.options).rowkind_field
    if name in definition.field_names and (column_type := definition.field(name).type).root not in ("CHAR", "VARCHAR"):
        raise UsageError(f"rowkind.field '{name}' is {type_to_sql(column_type)}", "it must be text: +I, -U, +U or -D")


def _check_group_order(definition: TableDefinition) -> None:
    """Refuse a column in two sequence groups: in Java, the order of a hash map decides which group applies."""
    groups = TableOptions(definition.options).sequence_groups
    for key, (fields, _) in sorted(groups.items()):
        other = next((k for k, (_, columns) in groups.items() if k != key and not set(fields).isdisjoint(columns)), None)
        if other is not None:
            raise UsageError(f"{other} names a column that orders another sequence group", f"it already belongs to {key}")


def _check_cross_partition(definition: TableDefinition) -> None:
    if definition.options.get("sequence.field") and not set(definition.partition_keys) <= set(definition.primary_keys):
        raise UsageError(
            "sequence.field cannot be combined with a primary key that lacks partition columns",
            "a row that moves to another partition has no defined order there",
        )


RESERVED_NAMES = ("_SEQUENCE_NUMBER", "_VALUE_KIND", "_LEVEL", "rowkind", "_ROW_ID")
RESERVED_PREFIX = "_KEY_"
INDEX_OPTION_ARITY = 4
"""Parts of a key such as `file-index.bloom-filter.COLUMN.fpp`."""


def check_definition(definition: TableDefinition) -> None:
    """Check all rules. Raises `UsageError` for the first one that the definition breaks."""
    for check in _CHECKS:
        check(definition)


def _check_columns(definition: TableDefinition) -> None:
    if not definition.fields:
        raise UsageError("a table needs at least one column", hint="declare columns with -C 'id BIGINT NOT NULL'")
    _refuse_duplicates("column", definition.field_names)
    for name in definition.field_names:
        if name in RESERVED_NAMES or name.startswith(RESERVED_PREFIX):
            raise UsageError(
                f"column name '{name}' is reserved", "Paimon's own columns in data files have such names", "rename the column"
            )
        if not name.strip():
            raise UsageError("a column has no name")


def _check_defaults(definition: TableDefinition) -> None:
    for field in definition.fields:
        check_default(field.name, field.type, field.default_value)


def _check_keys(definition: TableDefinition) -> None:
    for what, keys in (("primary key", definition.primary_keys), ("partition", definition.partition_keys)):
        _refuse_duplicates(f"{what} column", keys)
        _expect_columns(what, keys, definition)
        for name in keys:
            column_type = definition.field(name).type
            if column_type.root in UNORDERED_ROOTS:
                raise UsageError(
                    f"{what} column '{name}' is {type_to_sql(column_type)}", "only plain types can be compared as keys"
                )


def _check_primary_key(definition: TableDefinition) -> None:
    keys, partitions = definition.primary_keys, definition.partition_keys
    may_be_null = TableOptions(definition.options).primary_key_nullable
    if may_be_null and not keys:
        raise UsageError(
            f"{NULLABLE_KEYS}=true needs a primary key", "there is no key column to allow nulls in", "add --primary-key"
        )
    for name in () if may_be_null else keys:
        if name in definition.declared_null:
            raise UsageError(
                f"primary key column '{name}' is declared NULL",
                f"key columns are NOT NULL unless the table has {NULLABLE_KEYS}=true",
                f"add --option {NULLABLE_KEYS}=true, or declare '{name}' without NULL",
            )
    if keys and set(keys) <= set(partitions):
        raise UsageError(
            f"primary key ({', '.join(keys)}) has only partition columns",
            "all rows of a partition would have the same key",
            "add a column to the key, or partition by fewer columns",
        )
    missing = [name for name in partitions if name not in keys]
    if keys and missing and definition.bucket != DYNAMIC_BUCKET:
        raise UsageError(
            f"primary key ({', '.join(keys)}) lacks partition column {missing[0]}",
            "with a fixed bucket count, the key must determine the partition",
            f"use --primary-key {','.join((*keys, *missing))}, or --option bucket=-1",
        )


def _check_bucket(definition: TableDefinition) -> None:
    bucket, bucket_keys = definition.bucket, definition.bucket_keys
    _refuse_duplicates("bucket-key column", bucket_keys)
    _expect_columns("bucket-key", bucket_keys, definition)
    for name in bucket_keys:
        if definition.field(name).type.root in UNORDERED_ROOTS:
            raise UsageError(f"bucket-key column '{name}' is nested", "only plain types are hashed")
        if definition.primary_keys and name not in definition.primary_keys:
            raise UsageError(
                f"bucket-key column '{name}' is not in the primary key", "rows of one key could go to several buckets"
            )
        if name in definition.partition_keys:
            raise UsageError(f"bucket-key column '{name}' is a partition column", "it is the same for all rows of a partition")
    if bucket_keys and bucket == DYNAMIC_BUCKET:
        raise UsageError(
            "bucket-key without a bucket count", "with bucket -1 the bucket does not depend on a hash", "add --bucket N"
        )
    if bucket > 0 and not definition.primary_keys and not bucket_keys:
        raise UsageError(
            "a fixed bucket count without a key",
            "nothing determines the bucket of a row",
            "add --primary-key COLUMNS or, for an append table, --option bucket-key=COLUMNS",
        )
    if bucket == POSTPONE_BUCKET and not definition.primary_keys:
        raise UsageError("bucket -2 needs a primary key", "append tables cannot postpone buckets", "use --bucket -1")
    function = TableOptions(definition.options).bucket_function
    if function != HASHED and bucket != DYNAMIC_BUCKET:
        _check_bucket_function(function, definition)


def _check_bucket_function(function: str, definition: TableDefinition) -> None:
    from paimon_cli.datatypes.bucket_functions import bucket_key_limit  # loads Arrow, which most of `create` does not need

    trimmed_keys = tuple(name for name in definition.primary_keys if name not in definition.partition_keys)
    keys = definition.bucket_keys or trimmed_keys
    why_not = bucket_key_limit(function, [definition.field(name).type for name in keys])
    if why_not is not None:
        raise UsageError(f"bucket-function.type={function} does not accept the key ({', '.join(keys)})", why_not)


def _check_merging(definition: TableDefinition) -> None:
    options = definition.options
    parsed = TableOptions(options)
    engine, producer = parsed.merge_engine, parsed.changelog_producer
    if not definition.primary_keys:
        for key, neutral in (("merge-engine", DEFAULT_ENGINE.name), ("changelog-producer", NO_CHANGELOG.name)):
            if options.get(key, neutral).lower() != neutral:
                raise UsageError(
                    f"{key}={options[key]} needs a primary key", "rows of an append table are never merged", "add --primary-key"
                )
    if engine.oldest_wins and (producer.records_input or producer.compares_top_levels):
        raise UsageError(
            f"changelog-producer={producer.name} cannot be combined with merge-engine={engine.name}", hint="use none or lookup"
        )
    if engine.oldest_wins and options.get("deletion-vectors.enabled", "false").lower() == "true":
        raise UsageError(f"deletion vectors cannot be combined with merge-engine={engine.name}", "it never replaces a row")
    if producer.looks_up_old_rows and "full-compaction.delta-commits" in options:
        raise UsageError(
            f"full-compaction.delta-commits cannot be combined with changelog-producer={producer.name}",
            "the changelog comes from lookups, not from full compactions",
            "use changelog-producer=full-compaction, or remove the option",
        )
    if producer.compares_top_levels and options.get("deletion-vectors.enabled", "false").lower() == "true":
        raise UsageError(
            f"deletion vectors cannot be combined with changelog-producer={producer.name}",
            "compactions below the top level already change what readers see",
            "use changelog-producer=lookup, input or none",
        )


def _check_sequence_field(definition: TableDefinition) -> None:
    names = split_names(definition.options.get("sequence.field", ""))
    if not names:
        return
    _refuse_duplicates("sequence.field column", names)
    _expect_columns("sequence.field", names, definition)
    if not definition.primary_keys:
        raise UsageError("sequence.field needs a primary key", "it decides which row of a key wins", "add --primary-key")
    engine = TableOptions(definition.options).merge_engine
    if engine.oldest_wins:
        raise UsageError(f"sequence.field cannot be combined with merge-engine={engine.name}", "the first row wins by arrival")
    for name in names:
        if f"fields.{name}.aggregate-function" in definition.options:
            raise UsageError(f"sequence.field '{name}' has an aggregate function", "a column that orders rows is not aggregated")


def _check_snapshot_ordering(definition: TableDefinition) -> None:
    options = TableOptions(definition.options)
    if not options.sequence_snapshot_ordering:
        return
    ordering = "sequence.snapshot-ordering=true"
    if not definition.primary_keys:
        raise UsageError(f"{ordering} needs a primary key", "it decides which row of a key wins", "add --primary-key")
    if options.sequence_fields:
        raise UsageError(f"{ordering} cannot be combined with sequence.field", "only one of them can decide which row wins")
    if not options.write_only:
        raise UsageError(
            f"{ordering} needs write-only=true",
            "a writer cannot compact files before their snapshot is known",
            "set write-only=true, and run `paimon-cli compact` as a separate job",
        )


def _check_columns_in_options(definition: TableDefinition) -> None:
    for key, value in definition.options.items():
        _expect_columns(f"option '{key}'", named_columns(key, value), definition)
    _check_indexed_columns(definition.options)


def _check_indexed_columns(options: Mapping[str, str]) -> None:
    """Refuse what Java does not open: a setting of an index on a column without the index (Java FileIndexOptions)."""
    for key, value in options.items():
        parts = key.split(".")
        if parts[0] != "file-index":
            continue
        if parts[-1] == "columns" and not all(name.strip() for name in value.split(",")):
            raise UsageError(f"option '{key}' names no column", f"its value is '{value}'", "name columns, separated by commas")
        columns = f"{'.'.join(parts[:2])}.columns"
        if len(parts) == INDEX_OPTION_ARITY and parts[2] not in named_columns(columns, options.get(columns, "")):
            raise UsageError(
                f"option '{key}' is about column '{parts[2]}', which has no such index",
                "Java does not open a table with such an option",
                f"add the column to {columns}, or leave the option out",
            )


def _check_option_values(definition: TableDefinition) -> None:
    check_option_values(definition.options)


def _expect_columns(what: str, names: Iterable[str], definition: TableDefinition) -> None:
    for name in names:
        if name not in definition.field_names:
            known = definition.field_names
            hint = did_you_mean(name, known).strip()
            raise UsageError(f"{what} names an unknown column '{name}'", f"the columns are {', '.join(known)}", hint)


def _refuse_duplicates(what: str, names: Iterable[str]) -> None:
    duplicates = [name for name, count in Counter(names).items() if count > 1]
    if duplicates:
        raise UsageError(f"{what} '{duplicates[0]}' is given twice")


def _check_retention(definition: TableDefinition) -> None:
    """Refuse retention limits that contradict each other: Java would not open the table."""
    options = TableOptions(definition.options)
    for what, least, most in (
        ("snapshot", options.snapshot_num_retained_min, options.snapshot_num_retained_max),
        ("changelog", options.changelog_num_retained_min, options.changelog_num_retained_max),
    ):
        if least > most:
            is_default = f"{what}.num-retained.min" not in definition.options
            raise UsageError(
                f"{what}.num-retained.min={least}{' (the default)' * is_default} is above {what}.num-retained.max={most}",
                "Java would not open the table",
                f"set {what}.num-retained.min={most} in the same command",
            )


def _check_automatic_tags(definition: TableDefinition) -> None:
    checked_rules(TableOptions(definition.options))


_CHECKS: tuple[Callable[[TableDefinition], None], ...] = (
    _check_columns,
    _check_defaults,
    _check_option_values,
    _check_keys,
    _check_primary_key,
    _check_bucket,
    _check_merging,
    _check_sequence_field,
    _check_snapshot_ordering,
    _check_retention,
    _check_automatic_tags,
    _check_columns_in_options,
    check_engine,
)


def check_default(name: str, t: DataType, default: str | None) -> None:
    """Raise `UsageError` if the default is not a value of the type."""
    if default is None:
        return
    from paimon_cli.datatypes.column_cast import default_column  # loads Arrow, which most of `create` does not need

    try:
        default_column(default, t)
    except PaimonError as error:
        raise UsageError(f"column '{name}' cannot have the default '{default}'", f"it is not a valid {type_to_sql(t)}") from error
