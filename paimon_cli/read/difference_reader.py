"""The rows that lead from the older files of a split to its newer ones."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from paimon_cli.bucket.merged_rows import MERGE_BYTES, RUN_BATCH_BYTES, read_bucket
from paimon_cli.bucket.spilled_runs import merge_in_passes
from paimon_cli.datatypes.row_kind import DELETE, INSERT
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.deduplicate import KeepAllVersions
from paimon_cli.lsm.row_difference import AFTER, BEFORE, Difference, unmatched
from paimon_cli.lsm.sort_merge import merge_sorted_runs
from paimon_cli.lsm.sorted_runs import key_sections
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, VALUE_KIND

Rows = Iterator[pa.RecordBatch]
Buckets = Sequence[BucketFiles]

MOST_BUCKETS = MERGE_BYTES // RUN_BATCH_BYTES
"""Buckets to read at a time: as many as memory has room for batches of."""


def read_difference(context: TableContext, old: Buckets, new: Buckets, *, both_sides: bool = False) -> Rows:
    """The changes from the rows of `old` to those of `new`: one bucket each, or all of a partition whose rows have moved.

    Batches with all columns of the table and `_VALUE_KIND`, in key order: -D with the old values, else the new row.

    `both_sides`: changed keys come as -U and +U. Rows without a key are compared as a whole, in memory: those of the files
    that only one side has, or of all files where deletion vectors changed.
    """
    if not context.schema.primary_keys:
        yield from _appended(context, old, new)
        return
    keys = context.schema.trimmed_primary_keys
    sides = [(bucket, version) for version, side in ((BEFORE, old), (AFTER, new)) for bucket in side]
    memory = MERGE_BYTES // min(MOST_BUCKETS, max(2, len(sides))) * 2
    runs = [functools.partial(_versions, context, bucket, version, memory) for bucket, version in sides]
    for batch in merge_in_passes(runs, keys, Difference(both_sides), MOST_BUCKETS, keys_repeat=True):
        yield batch.select([VALUE_KIND, *context.schema.field_names])


def _versions(context: TableContext, bucket: BucketFiles, version: int, memory: int) -> Rows:
    """The current rows in key order; with deletion vectors files are read one by one, and have to be put in order."""
    if context.mode.reads_merge:
        yield from _numbered(context, bucket, version, memory)
        return
    for section in key_sections(bucket.files, context.key_of):
        runs = [_numbered(context, replace(bucket, files=run.files), version, memory) for run in section]
        yield from merge_sorted_runs(runs, context.schema.trimmed_primary_keys, KeepAllVersions())


def _numbered(context: TableContext, bucket: BucketFiles, version: int, memory: int) -> Rows:
    for batch in read_bucket(context, bucket, [VALUE_KIND, *context.schema.field_names], memory=memory):
        numbers = pa.repeat(pa.scalar(version, pa.int64()), batch.num_rows)
        yield batch.add_column(0, pa.field(SEQUENCE_NUMBER, pa.int64()), numbers)


def _appended(context: TableContext, old: Buckets, new: Buckets) -> Rows:
    shared: set[str] = set()
    if [bucket.index_files for bucket in old] == [bucket.index_files for bucket in new]:
        shared = _names(old) & _names(new)
    gone, come = (_rows(context, side, shared) for side in (old, new))
    if gone is not None and come is not None:
        gone, come = unmatched(gone, come)
    for kind, rows in ((DELETE, gone), (INSERT, come)):
        for batch in [] if rows is None else rows.to_batches():
            yield batch.add_column(0, pa.field(VALUE_KIND, pa.int8()), pa.repeat(pa.scalar(kind, pa.int8()), batch.num_rows))


def _names(side: Buckets) -> set[str]:
    return {file.file_name for bucket in side for file in bucket.files}


def _rows(context: TableContext, side: Buckets, shared: set[str]) -> pa.Table | None:
    batches: list[pa.RecordBatch] = []
    for bucket in side:
        files = tuple(file for file in bucket.files if file.file_name not in shared)
        batches += read_bucket(context, replace(bucket, files=files), context.schema.field_names)
    return pa.Table.from_batches(batches) if batches else None
