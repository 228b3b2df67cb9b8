"""`export iceberg`: checks that Iceberg readers would see the right rows, and exports metadata over the table's data files.

Only files that can be read without a merge are exported; anything else is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow.parquet as pq

from paimon_cli.bucket.data_file_reader import file_format
from paimon_cli.bucket.decoding import decoding
from paimon_cli.datatypes.column_cast import keeps_values, same_type
from paimon_cli.datatypes.data_type import BinaryType, DataType, DecimalType, NestedType, RowType, TimestampType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import NotFound, NotSupported, Refused, importing, undone_on_failure
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.foreign_reads import retractions
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import MAIN_BRANCH
from paimon_cli.options.column_options import STORAGE_LAYOUT
from paimon_cli.read.scan_plan import Split, plan_scan
from paimon_cli.storage.capabilities import open_sized
from paimon_cli.storage.storage import Storage

STORAGE = "metadata.iceberg.storage"
_MICROS = 4
"""The least precision of timestamps that are stored as microseconds."""


@dataclass(frozen=True)
class IcebergExport:
    """What was exported: the metadata file, and the data files and position delete files that it names; `size` in bytes.

    `waiting_records`: stored records that are not exported, because readers of the table do not see them before a compaction.
    """

    metadata: str
    snapshot_id: int
    format_version: int
    files: int
    rows: int
    delete_files: int
    deleted_rows: int
    size: int
    waiting_records: int = 0


def export_iceberg(context: TableContext, snapshot: Snapshot | None, storage: Storage, directory: str) -> IcebergExport:
    """Write `metadata/vN.metadata.json` for snapshot N below a directory.

    Raises `Refused` if Iceberg readers would see wrong rows, `NotSupported` for types and formats without a counterpart in
    Iceberg, `NotFound` if there is no snapshot.
    """
    with importing("the export for Iceberg needs the package pyiceberg", "iceberg"):
        from paimon_cli.jobs.iceberg_metadata import IcebergWriter

    if snapshot is None:
        hint = f"paimon-cli write {context.layout.argument} FILE"
        raise NotFound(f"{context.url} has no snapshot", "nothing was ever committed to it", hint)
    if directory == context.layout.root:
        _check_own_directory(context)
    writer = IcebergWriter(context, snapshot, storage, directory)
    plan = plan_scan(context, snapshot)
    splits = plan.splits
    _check_splits(context, splits)
    if any(STORAGE_LAYOUT in key for number in context.schemas.ids() for key in context.schemas.named(number).options):
        raise NotSupported(f"cannot export {context.url}", "its files may store MAPs as structs (map.storage-layout)")
    _check_names(context, splits)
    _check_types(context, splits)
    with undone_on_failure(writer.remove):
        for split in splits:
            writer.add(split.bucket)
        metadata = writer.finish()
    deleted = sum(file.record_count for file in writer.deletes)
    return IcebergExport(
        metadata=metadata,
        snapshot_id=snapshot.id,
        format_version=2,
        files=len(writer.data),
        rows=sum(file.record_count for file in writer.data) - deleted,
        delete_files=len(writer.deletes),
        deleted_rows=deleted,
        size=sum(file.file_size_in_bytes for file in writer.data),
        waiting_records=plan.counts.waiting_records,
    )


def _check_own_directory(context: TableContext) -> None:
    """Refuse to write into the table's own directory if other Iceberg metadata may be stored there."""
    storage, why = context.options.raw.get(STORAGE, "disabled"), ""
    if storage != "disabled":
        why = f"with {STORAGE}={storage} its writers maintain their own Iceberg metadata there"
    elif context.layout.branch != MAIN_BRANCH:
        why = "it is for the metadata of main, and snapshots of branches have the same numbers"
    if why:
        raise Refused(f"no metadata is written into {context.url}", why, "name another directory with --output-path")


def _check_splits(context: TableContext, splits: Sequence[Split]) -> None:
    """Refuse splits whose plain files would show other rows than Paimon does."""
    what, hint = f"{context.url} cannot be exported", f"paimon-cli compact {context.layout.argument} --strategy full"
    if context.mode.merges_postponed:
        raise Refused(what, "rows that wait for their buckets are merged when they are read", hint)
    for split in splits:
        path = context.bucket_path(*split.bucket.bucket_id)
        if split.needs_merge and context.mode.combines_columns:
            why = f"columns of rows in {path} are in several files (data-evolution.enabled), which Iceberg does not combine"
            raise NotSupported(what, why, f"paimon-cli read {context.layout.argument} --output ROWS.parquet")
        if split.needs_merge:
            raise Refused(what, f"files of {path} hold several versions of a key", hint)
        for file in split.bucket.files:
            if (form := file_format(file.file_name)) != "parquet":
                raise NotSupported(f"data file {file.file_name} is {form}", "only Parquet files are exported to Iceberg")
            if context.schema.primary_keys and retractions(context, split.bucket, file):
                raise Refused(what, f"a file of {path} holds rows that delete their keys", hint)


def _check_types(context: TableContext, splits: Sequence[Split]) -> None:
    """Refuse a file from before the type of a column changed, unless Iceberg reads the values that Paimon does."""
    newest = {column.id: column for column in context.schema.fields}
    files = {file.schema_id: file for split in splits for file in split.bucket.files}
    for file in files.values():
        for old in context.schemas.named(file.schema_id).fields:
            column = newest.get(old.id)
            if column is not None and not (same_type(old.type, column.type) or _is_read_as(old.type, column.type)):
                what = f"column '{column.name}' of data file {file.file_name} is {type_to_sql(old.type)}"
                raise NotSupported(what, f"Iceberg does not read it as {type_to_sql(column.type)}")


def _is_read_as(old: DataType, new: DataType) -> bool:
    """Whether Iceberg reads stored values of the old type as those that the cast gives: it widens numbers, and casts nothing."""
    match old, new:
        case RowType(), RowType():
            inner = {part.id: part.type for part in new.fields}
            return all(_is_read_as(part.type, inner.get(part.id, part.type)) for part in old.fields)
        case NestedType(), NestedType():
            return old.root == new.root and all(map(_is_read_as, old.children, new.children))
        case DecimalType(), DecimalType():
            return old.scale == new.scale and old.precision <= new.precision
        case TimestampType(), TimestampType():
            return old.root == new.root and _MICROS <= old.precision <= new.precision
        case BinaryType(), BinaryType():
            return old.root == new.root and old.length <= new.length
    return keeps_values(old, new) or (old.root, new.root) == ("FLOAT", "DOUBLE")


def _check_names(context: TableContext, splits: Sequence[Split]) -> None:
    """Refuse a column name that two columns have used, if a file without field ids would show the values of the wrong one."""
    owners: dict[str, set[int]] = {}
    for number in context.schemas.ids():
        for column in context.schemas.named(number).fields:
            owners.setdefault(column.name, set()).add(column.id)
    if all(len(ids) == 1 for ids in owners.values()):
        return
    for split in splits:
        for file in split.bucket.files:
            path = context.data_file_path(*split.bucket.bucket_id, file)
            columns = context.schemas.get(file.schema_id).fields
            with decoding(path, columns, context), open_sized(context.storage, path, file.file_size) as source:
                stored = pq.ParquetFile(source).schema_arrow
            if any(b"PARQUET:field_id" not in (column.metadata or {}) for column in stored):
                why = "a name was used for two columns, and only field ids could tell them apart"
                raise NotSupported(f"data file {file.file_name} has no field ids", why)
