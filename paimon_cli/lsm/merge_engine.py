"""Creates the merge engine of a table from its options, and refuses contradictory options (FORMAT.md, section 11.3)."""

from __future__ import annotations

from paimon_cli.datatypes.data_type import UNORDERED_ROOTS
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.lsm.aggregation import Aggregation, PartialUpdate, SequenceGroup
from paimon_cli.lsm.aggregators.aggregator import Aggregator
from paimon_cli.lsm.aggregators.catalog import aggregator_of, ignores_retractions
from paimon_cli.lsm.aggregators.chosen_values import LastValue
from paimon_cli.lsm.sorted_rows import Deduplicate, FirstRow, MergeEngine
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.table_options import TableOptions

LAST_NON_NULL = "last_non_null_value"


def merge_engine(schema: TableSchema, options: TableOptions) -> MergeEngine:
    """The merge engine of a table. Raises `UsageError` for options that contradict each other or the columns, `NotSupported` for
    engines that this version does not have.
    """
    _check_order(schema, options)
    name = options.merge_engine
    if name == "aggregation":
        return _aggregation(schema, options)
    if name == "partial-update":
        return _partial_update(schema, options)
    if name == "first-row":
        return FirstRow(ignore_delete=options.ignore_delete)
    return Deduplicate(options.sequence_fields, _descending(options), options.ignore_delete)


def _check_order(schema: TableSchema, options: TableOptions) -> None:
    """Raise `NotSupported` for sequence fields of nested types, which only Java can compare."""
    groups = options.sequence_groups.items() if options.merge_engine == "partial-update" else ()
    for key, names in (("sequence.field", options.sequence_fields), *((key, fields) for key, (fields, _) in groups)):
        for field in map(schema.field, names):
            if field.type.root in UNORDERED_ROOTS:
                what = f"{key} with {field.name} {type_to_sql(field.type)}"
                raise NotSupported(what, "values of nested types cannot be compared")


def _descending(options: TableOptions) -> bool:
    return options.sequence_sort_order == "descending"


def _aggregation(schema: TableSchema, options: TableOptions) -> Aggregation:
    functions: dict[str, Aggregator] = {name: LastValue() for name in options.sequence_fields}
    for field in schema.fields:
        if field.name not in functions and field.name not in _fixed_columns(schema):
            functions[field.name] = aggregator_of(_function(field.name, options) or LAST_NON_NULL, field, options)
    ignore_retract = frozenset(
        field.name for field in schema.fields if field.name in functions and ignores_retractions(field, options)
    )
    if ignore_retract and options.aggregation_remove_record_on_delete:
        raise UsageError(
            f"fields.{min(ignore_retract)}.ignore-retract and aggregation.remove-record-on-delete contradict each other",
            "a -D row either is ignored or removes the row",
        )
    return Aggregation(
        functions,
        ignore_retract - set(options.sequence_fields),
        _fixed_columns(schema),
        options.aggregation_remove_record_on_delete,
        options.sequence_fields,
        _descending(options),
    )


def _fixed_columns(schema: TableSchema) -> frozenset[str]:
    """Columns with the same value in all rows of a key. Partition columns are among them: a retraction must not clear them."""
    return frozenset((*schema.primary_keys, *schema.partition_keys))


def _function(column: str, options: TableOptions) -> str | None:
    return options.column_option(column, "aggregate-function") or options.default_aggregate_function


def _partial_update(schema: TableSchema, options: TableOptions) -> PartialUpdate:
    groups = _sequence_groups(schema, options)
    _check_removal(groups, options)
    ordering = {name for group in groups for name in group.fields}
    protected = {name for group in groups for name in group.columns}
    functions: dict[str, Aggregator] = {}
    for field in schema.fields:
        function = _function(field.name, options)
        if function is None or field.name in ordering or field.name in _fixed_columns(schema):
            continue
        if function != LAST_NON_NULL and field.name not in protected:
            raise UsageError(
                f"column {field.name} has the aggregate function {function}, but no sequence group",
                "partial-update aggregates columns of sequence groups only",
                f"add it to a group: fields.<sequence field>.sequence-group={field.name}",
            )
        functions[field.name] = aggregator_of(function, field, options)
    return PartialUpdate(
        groups,
        functions,
        frozenset(name for name in functions if ignores_retractions(schema.field(name), options)),
        _fixed_columns(schema),
        schema.field_names,
        options.ignore_delete,
        options.partial_update_remove_record_on_delete,
        options.sequence_fields,
        _descending(options),
    )


def _sequence_groups(schema: TableSchema, options: TableOptions) -> tuple[SequenceGroup, ...]:
    """The groups of `fields.<s1,s2>.sequence-group=<c1,c2>`. A column may be in one group only, and not in the primary key."""
    groups: list[SequenceGroup] = []
    seen: set[str] = set()
    removing = options.partial_update_remove_record_on_sequence_group
    for key, (fields, columns) in sorted(options.sequence_groups.items()):
        for name in (*fields, *columns):
            schema.field(name)
            if name in schema.primary_keys:
                raise UsageError(f"{key} names the primary-key column '{name}'", "a key column never changes")
        repeated = seen.intersection(columns)
        if repeated:
            raise UsageError(f"column {min(repeated)} is in two sequence groups", f"the second is {key}")
        seen.update(columns)
        groups.append(SequenceGroup(fields, tuple(c for c in columns if c not in fields), not set(removing).isdisjoint(fields)))
    return tuple(groups)


def _check_removal(groups: tuple[SequenceGroup, ...], options: TableOptions) -> None:
    on_delete, removing = options.partial_update_remove_record_on_delete, options.partial_update_remove_record_on_sequence_group
    on_group = "partial-update.remove-record-on-sequence-group"
    for option, is_set in (("partial-update.remove-record-on-delete", on_delete), (on_group, bool(removing))):
        if is_set and options.ignore_delete:
            raise UsageError(f"ignore-delete and {option} contradict each other", "a -D row either is ignored or removes the row")
    if on_delete and groups:
        raise UsageError(
            "sequence groups and partial-update.remove-record-on-delete contradict each other",
            "each group decides what a -D row does to its columns",
            f"use {on_group}",
        )
    unknown = set(removing) - {name for group in groups for name in group.fields}
    if unknown:
        raise UsageError(f"{on_group} names '{min(unknown)}'", "it is not a sequence field of a sequence group")
