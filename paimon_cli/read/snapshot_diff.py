"""What lies between two snapshots: files that came and went, or rows (`snapshots diff`)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from paimon_cli.bucket.merged_rows import read_bucket
from paimon_cli.datatypes.canonical_form import canonical_rows
from paimon_cli.datatypes.key_order import group_starts, order_words, stable_order
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.table_state import BucketFiles, bucket_files
from paimon_cli.metadata.data_file import DataFileMeta
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER
from paimon_cli.metadata.snapshot import Snapshot

ADDED, REMOVED = "added", "removed"
INSERT, BEFORE, AFTER, DELETE = "+I", "-U", "+U", "-D"
Place = tuple[bytes, int]


@dataclass(frozen=True)
class FileChange:
    """A data file that lives in one of the snapshots only."""

    change: str
    partition: str
    bucket: int
    level: int
    file: str
    rows: int
    size: int


@dataclass(frozen=True)
class RowChange:
    """A row that readers of the two snapshots see differently, with the kind that leads from the first to the second."""

    kind: str
    values: dict[str, Any]


def file_changes(context: TableContext, before: Snapshot, after: Snapshot) -> list[FileChange]:
    """Removed files first, by bucket and level."""
    old, new = ({entry.identity: entry for entry in context.manifests.live_entries(snapshot)} for snapshot in (before, after))
    found = [(REMOVED, old[i]) for i in old.keys() - new.keys()] + [(ADDED, new[i]) for i in new.keys() - old.keys()]
    changes = [
        FileChange(
            change,
            context.partition_path_of(e.partition).rstrip("/"),
            e.bucket,
            e.file.level,
            e.file.file_name,
            e.file.row_count,
            e.file.file_size,
        )
        for change, e in found
    ]
    return sorted(changes, key=lambda c: (c.partition, c.bucket, c.change == ADDED, c.level, c.file))


def row_changes(context: TableContext, before: Snapshot, after: Snapshot) -> Iterator[RowChange]:
    """Bucket by bucket; only those whose files differ are read. Rows are shown in the newer snapshot's columns."""
    seen = context.at_schema(after.schema_id)
    old, new = bucket_files(seen, before), bucket_files(seen, after)
    for place in sorted(old.keys() | new.keys()):
        sides = (old.get(place), new.get(place))
        if _content(sides[0]) != _content(sides[1]):
            yield from _bucket_changes(seen, *sides)


def _content(bucket: BucketFiles | None) -> object:
    """What decides the rows of a bucket; a file that only moved to another level counts as another."""
    return None if bucket is None else ({(f.file_name, f.level) for f in bucket.files}, bucket.index_files)


def _bucket_changes(context: TableContext, before: BucketFiles | None, after: BucketFiles | None) -> Iterator[RowChange]:
    if context.schema.primary_keys:
        old, new = _without_common(context, _rows(context, before), _rows(context, after))
    else:
        old, new = _appended(context, before, after), _appended(context, after, before)
    fields = context.schema.fields
    gone, come = list(canonical_rows(old, fields)), list(canonical_rows(new, fields))
    if not context.schema.primary_keys:
        yield from _changed_counts(gone, come)
        return
    names = context.schema.primary_keys
    by_key = {_text([row[name] for name in names]): row for row in gone}
    for row in come:
        former = by_key.pop(_text([row[name] for name in names]), None)
        if former is None:
            yield RowChange(INSERT, row)
        elif _text(former) != _text(row):  # else a row was written once more as it was
            yield RowChange(BEFORE, former)
            yield RowChange(AFTER, row)
    for row in by_key.values():
        yield RowChange(DELETE, row)


def _changed_counts(gone: Sequence[dict[str, Any]], come: Sequence[dict[str, Any]]) -> Iterator[RowChange]:
    """Rows without a key: a compaction writes the same ones again, which is no change."""
    left, right = Counter(map(_text, gone)), Counter(map(_text, come))
    for text in (left - right).elements():
        yield RowChange(DELETE, json.loads(text))
    for text in (right - left).elements():
        yield RowChange(INSERT, json.loads(text))


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _rows(context: TableContext, bucket: BucketFiles | None) -> pa.Table:
    names = [SEQUENCE_NUMBER, *context.schema.field_names]
    batches = [] if bucket is None else list(read_bucket(context, bucket, names))
    return pa.Table.from_batches(batches) if batches else _empty(context, names)


def _empty(context: TableContext, names: Sequence[str]) -> pa.Table:
    from paimon_cli.metadata.data_file_schema import merge_schema

    whole = merge_schema(context.schema)
    return pa.schema([whole.field(name) for name in names]).empty_table()


def _without_common(context: TableContext, old: pa.Table, new: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Rows of one key with one sequence number are one and the same; what is left differs, or may."""
    names = [*context.schema.trimmed_primary_keys, SEQUENCE_NUMBER]
    if not old.num_rows or not new.num_rows:
        return old, new
    both = [pa.concat_arrays([*old.column(name).chunks, *new.column(name).chunks]) for name in names]
    words = order_words(both)
    order = stable_order(words)
    starts = group_starts([word[order] for word in words])
    sizes = np.diff(np.append(starts, len(order)))
    common = np.zeros(len(order), dtype=bool)
    common[order] = np.repeat(sizes > 1, sizes)
    return old.filter(pa.array(~common[: old.num_rows])), new.filter(pa.array(~common[old.num_rows :]))


def _appended(context: TableContext, bucket: BucketFiles | None, other: BucketFiles | None) -> pa.Table:
    """Rows of the files that the other side does not have; all of them if vectors differ."""
    names = list(context.schema.field_names)
    if bucket is None:
        return _empty(context, names)
    files: tuple[DataFileMeta, ...] = bucket.files
    if other is not None and bucket.index_files == other.index_files:
        shared = {file.file_name for file in other.files}
        files = tuple(file for file in files if file.file_name not in shared)
    chosen = BucketFiles(bucket.partition, bucket.bucket, bucket.total_buckets, files, bucket.index_files)
    batches = list(read_bucket(context, chosen, names)) if files else []
    return pa.Table.from_batches(batches) if batches else _empty(context, names)
