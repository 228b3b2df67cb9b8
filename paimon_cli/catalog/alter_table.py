"""`alter`: applies changes to the latest schema, checks the result, and publishes it as the next schema (Java SchemaManager)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from paimon_cli.catalog.column_changes import (
    AddColumn,
    AlterColumn,
    ColumnChanges,
    DropColumn,
    RenameColumn,
    SchemaChange,
    SetComment,
    SetOption,
    UnsetOption,
    request_steps,
)
from paimon_cli.catalog.create_table import refuse_unwritable
from paimon_cli.catalog.definition_check import check_definition
from paimon_cli.catalog.open_table import entry_of
from paimon_cli.catalog.option_values import (
    FORMATS_AND_CODECS,
    changed_name_of_partitions,
    codecs_unknown_to_java,
    is_valid,
    odd_options,
    other_places,
    refuse_secrets,
    with_option,
    without_option,
)
from paimon_cli.catalog.table_definition import TableDefinition, with_key_nullability
from paimon_cli.errors import BeingDropped, NotSupported, StorageUnavailable, UsageError
from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.history.moved_partitions import PastNames, is_repair
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.tiered_rows import expect_own_buckets
from paimon_cli.metadata.data_file import FileFilter
from paimon_cli.metadata.table_layout import MAIN_BRANCH, POSTPONE_BUCKET
from paimon_cli.metadata.table_mode import TableMode
from paimon_cli.metadata.table_schema import CURRENT_VERSION, TableSchema
from paimon_cli.options.column_options import holders, named_columns, nested_holders, renamed_in_options, without_column
from paimon_cli.options.option_text import counted
from paimon_cli.options.table_options import NAMES_OF_PARTITIONS, VECTORS_ENABLED
from paimon_cli.storage.injected import Clock, SystemClock

_INDEX_COLUMNS = re.compile(r"file-index\.[^.]+\.columns")


@dataclass(frozen=True)
class AlteredTable:
    """The result of a schema change. `changed` is False if the table already had the requested schema and nothing was written."""

    schema: TableSchema
    changed: bool
    warnings: tuple[str, ...] = ()


def alter_table(table: TableContext, changes: Sequence[SchemaChange], clock: Clock | None = None) -> AlteredTable:
    """Publish the next schema; if another writer published one in the meantime, try again on top of it.

    Raises `UsageError` for a change that Paimon refuses, and `NotSupported` for one after which paimon-cli could not write the
    table; nothing is written then. Raises `StorageUnavailable` if other
    writers were first in all attempts.
    """
    refuse_secrets(_set_options(changes))
    for _ in range(_readable(table.schemas.latest()).typed_options.commit_max_retries + 1):
        old = table.schemas.latest()
        new = altered_schema(old, changes, table.snapshots.latest_id() is not None, (clock or SystemClock()).now_millis())
        if _same(old, new):
            return AlteredTable(old, False)
        _check_newest(table, old)
        before = _readable(old)
        if before.typed_options.bucket != new.typed_options.bucket:
            expect_own_buckets(table, {**new.options, **table.given})
        _check_names_of_partitions(table, before, new)
        _check_vectors_switch(table, before, new)
        _check_lookup_switch(table, before, new)
        _check_postponed(table, before, new)
        refuse_unwritable(f"the schema of {table.name} cannot change like that", new, before)
        published = _published(table, new, changes)
        if published is not None:
            warnings = _warnings(table, before, published, changes)
            if not _same(new, published):
                warnings.append(f"schema {published.id}, created by the server, differs from the requested one; check it")
            if (entry := entry_of(table)) is not None and table.branch == MAIN_BRANCH:
                metastore, identifier = entry
                warnings += metastore.alter_table(identifier, old, new)
            return AlteredTable(published, True, tuple(warnings))
    raise StorageUnavailable(
        f"the schema of {table.name} was not changed", "other schema changes were published first each time", "try again"
    )


def _readable(schema: TableSchema) -> TableSchema:
    """The schema without options whose values cannot be read, so that what a change does to a table can be judged."""
    return replace(schema, options=dict(schema.typed_options.readable.raw))


def _published(table: TableContext, new: TableSchema, changes: Sequence[SchemaChange]) -> TableSchema | None:
    """Publish the schema; returns the schema that the table has now, or None if another writer published this id first."""
    if (entry := entry_of(table)) is None or entry[0].takes_files:
        if not table.schemas.commit(new):
            return None
        _expect_history(table, new)
        return new
    branch = "" if table.branch == MAIN_BRANCH else f"$branch_{table.branch}"
    metastore, identifier = entry
    of_branch = identifier._replace(table=f"{identifier.table}{branch}")
    metastore.change_schema(of_branch, [step for change in changes for step in request_steps(change)])
    return table.schemas.latest()


def _check_newest(table: TableContext, old: TableSchema) -> None:
    """Raise `DamagedFile` if the latest snapshot has a newer schema, whose file is lost: another one must not take its id; and if
    all snapshots are lost: what cannot change once there are rows could change.
    """
    latest = table.snapshot()
    if latest is not None and latest.schema_id > old.id:
        table.schemas.named(latest.schema_id)


def _expect_history(table: TableContext, new: TableSchema) -> None:
    """Withdraw the new schema and raise `BeingDropped` if the table was dropped meanwhile, or it would be a new empty table."""
    if table.snapshots.is_ended() or not table.storage.exists(table.layout.schema(new.id - 1)):
        table.storage.delete(table.layout.schema(new.id))
        hint = f"if no drop is running any more, delete the rest of the table: paimon-cli drop {table.layout.argument}"
        raise BeingDropped(f"the schema of {table.name} was not changed", "the table is being dropped", hint)


def altered_schema(old: TableSchema, changes: Sequence[SchemaChange], has_snapshots: bool, now_millis: int) -> TableSchema:
    """The next schema, computed without side effects."""
    columns = ColumnChanges(old)
    options, comment = dict(old.options), old.comment
    for change in changes:
        if isinstance(change, SetOption):
            options = with_option(
                options, change.key, change.value, has_snapshots and not change.fits_files, bool(old.primary_keys)
            )
        elif isinstance(change, UnsetOption):
            options = without_option(options, change.key, has_snapshots)
        elif isinstance(change, SetComment):
            comment = change.comment
        else:
            _change_columns(columns, change)
            options = _options_after(options, change)
    new = TableSchema(
        id=old.id + 1,
        fields=with_key_nullability(columns.fields, columns.primary_keys, options),
        highest_field_id=columns.highest_field_id,
        partition_keys=old.partition_keys,
        primary_keys=columns.primary_keys,
        options=options,
        comment=comment,
        time_millis=now_millis,
        version=CURRENT_VERSION,
    )
    # An option that could not be read before is no fault of this change, which may be mending another one of that kind.
    judged = {key: value for key, value in options.items() if old.options.get(key) != value or is_valid(key, value)}
    check_definition(TableDefinition(new.fields, new.primary_keys, new.partition_keys, judged, new.comment))
    return new


def _change_columns(columns: ColumnChanges, change: AddColumn | DropColumn | RenameColumn | AlterColumn) -> None:
    if isinstance(change, AddColumn):
        columns.add(change)
    elif isinstance(change, DropColumn):
        columns.drop(change)
    elif isinstance(change, RenameColumn):
        columns.rename(change)
    else:
        columns.alter(change)


def _options_after(options: dict[str, str], change: AddColumn | DropColumn | RenameColumn | AlterColumn) -> dict[str, str]:
    """The options once a column is renamed or dropped. Raises `UsageError` if an option keeps it from that."""
    if isinstance(change, AlterColumn) and change.type is not None:
        _refuse_new_type(options, change.path)
    if not isinstance(change, (RenameColumn, DropColumn)):
        return options
    verb = "renamed" if isinstance(change, RenameColumn) else "dropped"
    found = holders(options, change.path[0], verb) if len(change.path) == 1 else nested_holders(options, change.path)
    if holder := next(found, None):
        raise UsageError(
            f"column '{'.'.join(change.path)}' cannot be {verb}",
            f"the option {holder} names it: {options[holder]}",
            f"set {holder} to other columns or unset it first, if the table can do without",
            option=holder,
        )
    if len(change.path) > 1:
        return options
    if isinstance(change, RenameColumn):
        return renamed_in_options(options, {change.path[0]: change.name})
    return without_column(options, change.path[0])


def _refuse_new_type(options: dict[str, str], path: tuple[str, ...]) -> None:
    """Raise `NotSupported` for a column with an index of another kind than ours: Java opens no table with an odd one."""
    for key, value in options.items():
        if _INDEX_COLUMNS.fullmatch(key) and path[0] in named_columns(key, value) and not _is_written(key):
            raise NotSupported(
                f"column '{'.'.join(path)}' cannot be given another type",
                f"the option {key} names it, and this version does not know which types such an index takes",
                f"take the column out of {key} first",
                option=key,
            )


def _is_written(columns_option: str) -> bool:
    """Whether the option is about a kind of file index that this version writes."""
    from paimon_cli.bucket.file_indexes import INDEX_KINDS  # loads Arrow, which most changes do not need

    return any(kind.columns_option == columns_option for kind in INDEX_KINDS)


def _same(old: TableSchema, new: TableSchema) -> bool:
    return replace(new, id=old.id, time_millis=old.time_millis, version=old.version) == old


def _check_names_of_partitions(table: TableContext, old: TableSchema, new: TableSchema) -> None:
    """Raise `UsageError` if the files of partitions would be searched for in other directories than those that they are in.

    Back to the right value is allowed, after another engine changed it: then all files are where the new one says.
    """
    if not old.partition_keys or all(old.options.get(key) == new.options.get(key) for key in NAMES_OF_PARTITIONS):
        return
    key = changed_name_of_partitions(old.options, new.options, PastNames.of(table).count)
    latest = None if key is None else table.snapshots.latest()
    if key is None or latest is None:
        return
    if not is_repair(table.defined_by(old), table.defined_by(replace(new, fields=old.fields)), latest):
        raise other_places(key)


def _check_vectors_switch(table: TableContext, old: TableSchema, new: TableSchema) -> None:
    """Raise `UsageError` if changing `deletion-vectors.enabled` would change the rows that readers see.

    When it is switched on, readers stop merging and skip level 0, so each bucket must have a single sorted run above level
    0 without retractions. When it is switched off, readers ignore vectors, so there must be none.
    """
    enabled = new.typed_options.deletion_vectors_enabled
    latest = table.snapshots.latest()
    was_read = enabled or VECTORS_ENABLED in old.options or VECTORS_ENABLED not in table.schemas.get(old.id).options
    if (old.typed_options.deletion_vectors_enabled == enabled and was_read) or latest is None or not new.primary_keys:
        return
    context = table.defined_by(old)
    for bucket in bucket_files(context, latest).values():
        why = _unmerged(bucket) if enabled else _marked(bucket)
        if why is not None:
            raise UsageError(
                f"{VECTORS_ENABLED} cannot be switched {'on' if enabled else 'off'} yet",
                f"{context.bucket_path(*bucket.bucket_id)} has {why}",
                f"run this first, while nothing writes: paimon-cli compact {table.layout.argument} --strategy full",
                option=VECTORS_ENABLED,
            )


def _check_lookup_switch(table: TableContext, old: TableSchema, new: TableSchema) -> None:
    """Raise `UsageError` if aggregated rows would be lost or counted twice.

    With lookup, a row above level 0 already includes the rows of lower runs; without, all rows of a key are merged. Both
    agree only while each bucket has a single level above level 0.
    """
    shadows = [TableMode.of(schema, schema.typed_options).lower_level_shadows for schema in (old, new)]
    latest = table.snapshots.latest()
    if shadows[0] == shadows[1] or latest is None:
        return
    context = table.defined_by(old)
    for bucket in bucket_files(context, latest).values():
        levels = {file.level for file in bucket.files} - {0}
        if len(levels) > 1:
            raise UsageError(
                "compactions cannot start or stop looking up older rows yet",
                f"{context.bucket_path(*bucket.bucket_id)} has {len(levels)} levels above level 0",
                f"run this first, while nothing writes: paimon-cli compact {table.layout.argument} --strategy full",
                option="changelog-producer",
            )


def _check_postponed(table: TableContext, old: TableSchema, new: TableSchema) -> None:
    """Raise `UsageError` if rows are still postponed: without postponed buckets, no compaction would find them."""
    before, after = (schema.typed_options.bucket for schema in (old, new))
    latest = table.snapshots.latest()
    if before != POSTPONE_BUCKET or after == POSTPONE_BUCKET or latest is None:
        return
    context = table.defined_by(old)
    for bucket in bucket_files(context, latest, FileFilter(buckets={POSTPONE_BUCKET})).values():
        files = counted(len(bucket.files), "file")
        raise UsageError(
            f"bucket cannot change from {before} to {after} yet",
            f"{context.bucket_path(*bucket.bucket_id)} has {files} with rows waiting for their buckets",
            f"run this first, while nothing writes: paimon-cli compact {table.layout.argument}",
            option="bucket",
        )


def _unmerged(bucket: BucketFiles) -> str | None:
    levels = {file.level for file in bucket.files}
    if 0 in levels:
        return "files at level 0, which readers would no longer show"
    if len(levels) > 1:
        return f"{len(levels)} sorted runs, which readers would no longer merge"
    if any(file.delete_row_count != 0 for file in bucket.files):
        return "deletes above level 0, which readers would no longer apply"
    return None


def _marked(bucket: BucketFiles) -> str | None:
    is_marked = any(index.deletion_vector_ranges for index in bucket.index_files)
    return "deletion vectors, which readers would no longer see" if is_marked else None


def _warnings(table: TableContext, old: TableSchema, new: TableSchema, changes: Sequence[SchemaChange]) -> list[str]:
    """Warnings about the options that were set, and about writes before and beside the change."""
    set_now = _set_options(changes)
    found = odd_options(set_now)
    if not set_now.keys().isdisjoint(FORMATS_AND_CODECS):
        found += [f"option '{key}': {why}" for key, (why, _) in codecs_unknown_to_java(new.typed_options).items()]
    try:
        _check_vectors_switch(table, old, new)
        _check_lookup_switch(table, old, new)
    except UsageError as problem:
        found.append(f"another job wrote to the table while the option was changed: {problem.why}; {problem.hint}")
    sets_buckets = any(isinstance(change, SetOption) and change.key == "bucket" and not change.fits_files for change in changes)
    if sets_buckets and min(old.typed_options.bucket, new.typed_options.bucket) > 0 and table.snapshots.latest_id() is not None:
        remedy = f"`paimon-cli rescale {table.layout.argument} --yes` moves their rows"
        found.append(f"writers refuse partitions that have another number of buckets, until {remedy}")
    return found


def _set_options(changes: Sequence[SchemaChange]) -> dict[str, str]:
    return {change.key: change.value for change in changes if isinstance(change, SetOption)}
