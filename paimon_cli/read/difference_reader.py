"""The rows that lead from the older files of a split to its newer ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from paimon_cli.bucket.merged_rows import read_bucket
from paimon_cli.datatypes.row_kind import DELETE, INSERT
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.table_state import BucketFiles
from paimon_cli.lsm.interleave import Interleave
from paimon_cli.lsm.key_intervals import key_sections
from paimon_cli.lsm.row_difference import AFTER, BEFORE, Difference, unmatched
from paimon_cli.lsm.sort_merge import merge_sorted_runs
from paimon_cli.metadata.data_file import DataFileMeta
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, VALUE_KIND

Rows = Iterator[pa.RecordBatch]


def read_difference(context: TableContext, old: BucketFiles, new: BucketFiles, *, both_sides: bool = False) -> Rows:
    """Batches with all columns of the table and `_VALUE_KIND`, in key order: -D with the values that were, else the row that is.

    `both_sides`: changed keys come as -U and +U. Rows without a key are compared as a whole, in memory: those of the files
    that only one side has, or of all files where deletion vectors changed.
    """
    if not context.schema.primary_keys:
        yield from _appended(context, old, new)
        return
    keys = context.schema.trimmed_primary_keys
    sides = [_versions(context, old, BEFORE), _versions(context, new, AFTER)]
    for batch in merge_sorted_runs(sides, keys, Difference(both_sides), keys_repeat=True):
        yield batch.select([VALUE_KIND, *context.schema.field_names])


def _versions(context: TableContext, bucket: BucketFiles, version: int) -> Rows:
    """The current rows in key order; with deletion vectors files are read one by one, and have to be put in order."""
    if not context.options.deletion_vectors_enabled:
        yield from _numbered(context, bucket, version)
        return
    for section in key_sections(bucket.files, context.key_of):
        runs = [_numbered(context, replace(bucket, files=run.files), version) for run in section]
        yield from merge_sorted_runs(runs, context.schema.trimmed_primary_keys, Interleave())


def _numbered(context: TableContext, bucket: BucketFiles, version: int) -> Rows:
    for batch in read_bucket(context, bucket, [VALUE_KIND, *context.schema.field_names]):
        numbers = pa.repeat(pa.scalar(version, pa.int64()), batch.num_rows)
        yield batch.add_column(0, pa.field(SEQUENCE_NUMBER, pa.int64()), numbers)


def _appended(context: TableContext, old: BucketFiles, new: BucketFiles) -> Rows:
    shared: set[str] = set()
    if old.index_files == new.index_files:
        shared = {file.file_name for file in old.files} & {file.file_name for file in new.files}
    gone, come = (_rows(context, side, shared) for side in (old, new))
    if gone is not None and come is not None:
        gone, come = unmatched(gone, come)
    for kind, rows in ((DELETE, gone), (INSERT, come)):
        for batch in [] if rows is None else rows.to_batches():
            yield batch.add_column(0, pa.field(VALUE_KIND, pa.int8()), pa.repeat(pa.scalar(kind, pa.int8()), batch.num_rows))


def _rows(context: TableContext, bucket: BucketFiles, shared: set[str]) -> pa.Table | None:
    files: tuple[DataFileMeta, ...] = tuple(file for file in bucket.files if file.file_name not in shared)
    batches = list(read_bucket(context, replace(bucket, files=files), context.schema.field_names))
    return pa.Table.from_batches(batches) if batches else None
