"""Options of merge engines that contradict each other or the columns (Java SchemaValidation, MergeFunctionFactory)."""

from __future__ import annotations

from paimon_cli.datatypes.data_type import TIMESTAMP_ROOTS
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.lsm.merge_engine import merge_engine
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.table_options import TableOptions
from paimon_cli.table.table_definition import TableDefinition, to_schema


def check_engine(definition: TableDefinition) -> None:
    """UsageError for what no engine could merge by. What only this version lacks is said by `engine_limit`."""
    _check_record_expiry(definition)
    _check_row_kind(definition)
    _check_group_order(definition)
    _check_cross_partition(definition)
    if definition.primary_keys:
        engine_limit(to_schema(definition, 0))


def engine_limit(schema: TableSchema) -> str | None:
    """What this version cannot merge in such a table; None when it can."""
    try:
        merge_engine(schema, TableOptions(schema.options))
    except NotSupported as limit:
        return f"this version does not support {limit.what}: {limit.why}"
    return None


def _check_record_expiry(definition: TableDefinition) -> None:
    options = TableOptions(definition.options)
    name = options.record_level_time_field
    if options.record_level_expire_time is not None and name is None:
        raise UsageError("record-level.expire-time needs record-level.time-field", "it says how old a row is")
    if name is not None and name in definition.field_names:
        column_type = definition.field(name).type
        if column_type.root not in TIMESTAMP_ROOTS | {"INT", "BIGINT"}:
            raise UsageError(
                f"record-level.time-field '{name}' is {type_to_sql(column_type)}",
                "it takes INT, BIGINT (epoch seconds) or TIMESTAMP",
            )


def _check_row_kind(definition: TableDefinition) -> None:
    name = TableOptions(definition.options).rowkind_field
    if name in definition.field_names and (column_type := definition.field(name).type).root not in ("CHAR", "VARCHAR"):
        raise UsageError(f"rowkind.field '{name}' is {type_to_sql(column_type)}", "it takes a text column, with +I, -U, +U or -D")


def _check_group_order(definition: TableDefinition) -> None:
    """Which of two groups such a column follows depends in Java on the order of a hash map."""
    groups = TableOptions(definition.options).sequence_groups
    for key, (fields, _) in sorted(groups.items()):
        other = next((k for k, (_, columns) in groups.items() if k != key and not set(fields).isdisjoint(columns)), None)
        if other is not None:
            raise UsageError(f"{other} names a column that orders another group", f"it is of {key}")


def _check_cross_partition(definition: TableDefinition) -> None:
    if definition.options.get("sequence.field") and not set(definition.partition_keys) <= set(definition.primary_keys):
        raise UsageError(
            "sequence.field cannot be combined with a primary key that leaves partition columns out",
            "a row that moves to another partition has no defined order there",
        )
