"""Reads the rows of splits: merges, filters and projects them. Several splits are read in parallel, but returned in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from typing import TypeVar

import pyarrow as pa

from paimon_cli.bucket.data_file_reader import FilePart, read_data_file
from paimon_cli.bucket.merged_rows import read_bucket, without_retractions
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import DataFileMeta
from paimon_cli.metadata.data_file_schema import VALUE_KIND
from paimon_cli.pieces import PIECES
from paimon_cli.read.difference import read_difference
from paimon_cli.read.pruning import TableBounds
from paimon_cli.read.scan_plan import Split
from paimon_cli.sql.predicate import Predicate
from paimon_cli.storage.threads import ReadAhead


def read_split(
    context: TableContext,
    split: Split,
    columns: Sequence[str],
    predicate: Predicate | None = None,
    keep_kinds: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The matching rows of a split, in key order, read lazily.

    `columns`: table columns, `_SEQUENCE_NUMBER`, `_VALUE_KIND`. `keep_kinds`: deleted keys are included, as -D or -U rows.
    """
    needed = list(dict.fromkeys([*columns, *(predicate.columns if predicate else ())]))
    row_filter = predicate.filtered if predicate else None
    if split.before is not None or split.is_changelog:
        changes = _changelog(context, split, needed) if split.before is None else _difference(context, split, split.before)
        for batch in changes:
            visible = batch if keep_kinds else without_retractions(batch)
            matching = visible if row_filter is None else row_filter(visible)
            if matching.num_rows:
                yield matching.select(list(columns))
        return
    bounds = TableBounds(context)

    def part_of(file: DataFileMeta) -> FilePart:
        rows = None if predicate is None else bounds.matching_rows(predicate, *split.bucket.bucket_id, file)
        return FilePart(split.part, split.parts, keeps=rows, keeps_blocks=rows)

    for batch in read_bucket(context, split.bucket, needed, row_filter=row_filter, keep_kinds=keep_kinds, part_of=part_of):
        yield batch.select(list(columns))


def _changelog(context: TableContext, split: Split, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for file in split.files:
        yield from read_data_file(
            context, split.bucket.bucket_id, file, list(dict.fromkeys([VALUE_KIND, *columns])), PIECES.batch_rows
        )


def _difference(context: TableContext, split: Split, before: tuple[BucketFiles, ...]) -> Iterator[pa.RecordBatch]:
    return read_difference(context, before, (split.bucket, *split.beside), both_sides=split.both_sides)


def count_split(context: TableContext, split: Split, predicate: Predicate | None = None) -> int:
    """The number of rows that `read_split` would return, reading as little as possible.

    Keys and row kinds are read if versions must be merged, otherwise only the kinds, because some writers do not count deletes;
    nothing is read for files of append tables.
    """
    is_plain = not context.schema.primary_keys and not context.mode.combines_columns
    if is_plain and predicate is None and not split.bucket.index_files and split.before is None:
        return split.row_count
    counted = list(predicate.columns) if predicate else []
    if not counted:
        counted = [VALUE_KIND if context.schema.primary_keys else context.schema.fields[0].name]
    return sum(batch.num_rows for batch in read_split(context, split, counted, predicate))


Part = TypeVar("Part")


def read_in_parallel(
    splits: Sequence[Part], read: Callable[[Part], Iterator[pa.RecordBatch]], threads: int
) -> Iterator[pa.RecordBatch]:
    """The batches that `read` yields for each split, in order. Up to `threads` splits are read ahead of the caller."""
    if threads < 2 or len(splits) < 2:
        for split in splits:
            yield from read(split)
        return
    remaining = iter(splits)  # large plans create each split when it is accessed
    with ExitStack() as running:
        streams: deque[ReadAhead[pa.RecordBatch]] = deque()
        for _ in range(len(splits)):
            for split in islice(remaining, threads - len(streams)):
                streams.append(running.enter_context(ReadAhead(read(split), PIECES.splits_ahead_bytes // threads)))
            yield from streams.popleft()


def in_parts(context: TableContext, splits: Sequence[Split], readers: int) -> Sequence[Split]:
    """The splits, divided by file and row group if nothing is merged and there are too few to keep the readers busy."""
    if (
        readers < 2
        or len(splits) >= PIECES.splits_per_reader * readers
        or context.mode.reads_merge
        or not context.schema.primary_keys
    ):
        return splits
    return [part for split in splits for part in _parts(split)]


def _parts(split: Split) -> Iterator[Split]:
    if split.before is not None or split.is_changelog:
        yield split
        return
    for file in split.bucket.files:
        of_file = replace(split, bucket=replace(split.bucket, files=(file,)))
        parts = (
            max(1, min(file.file_size // PIECES.file_part_bytes, PIECES.max_file_parts))
            if file.file_name.endswith(".parquet")
            else 1
        )
        for part in range(parts):
            yield replace(of_file, part=part, parts=parts)
