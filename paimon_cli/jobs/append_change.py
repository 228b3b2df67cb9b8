"""`update` and `delete` in append tables, by deletion vectors or by copy on write.

With `deletion-vectors.enabled`, matching rows are marked as deleted, and an update appends them again with their new values.
Otherwise every file with a matching row is rewritten. A file that loses all its rows is removed either way; it is not even read
if its partition or its statistics show that every row matches.

Files appended by other jobs in the meantime are left alone. The commit is refused if a file or a vector that was read is no
longer current.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.bucket.data_file_reader import WHOLE, FilePart, read_part
from paimon_cli.bucket.data_file_writer import DataFileWriter
from paimon_cli.bucket.deletion_vectors import BucketVectors, ChangedVectors, live_rows, load_vectors, packed
from paimon_cli.bucket.stamped_files import DataFileNames
from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.engine import Engine, Progress, Work, phase, run_traced
from paimon_cli.jobs.row_change import ChangedBucket, Edit, EditedRows, MetRows
from paimon_cli.lsm.append_compaction import in_reading_order
from paimon_cli.metadata.data_file import (
    SOURCE_APPEND,
    BucketId,
    CommitMessage,
    DataFileMeta,
    FileChanges,
    FileFilter,
    file_facts,
)
from paimon_cli.metadata.data_file_schema import (
    SEQUENCE_NUMBER,
    TRACKING_COLUMNS,
    UNNUMBERED,
    RowKind,
    merge_rows,
    tracked_rows,
)
from paimon_cli.metadata.index_files import DeletionVector
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.pieces import PIECES
from paimon_cli.read.pruning import TableBounds
from paimon_cli.read.scan_plan import plan_scan


@dataclass(frozen=True)
class ChangeTask:
    """Files of a bucket that may hold matching rows. `first_sequence`: the sequence number of the first row to append."""

    bucket: BucketFiles
    first_sequence: int
    file_stamp: str


@dataclass(frozen=True)
class ChangedFiles:
    """The change to files of one bucket: matching `rows`, files added and `removed`, and rows newly `marked` as deleted.

    `marked`: positions (int64 array) by file name. `deleted`, `sources`: as in `ChangedBucket`.
    """

    bucket_id: BucketId
    rows: int = 0
    new_files: tuple[DataFileMeta, ...] = ()
    removed: tuple[DataFileMeta, ...] = ()
    marked: Mapping[str, Any] | None = None
    deleted: int = 0
    sources: Any = None


def change_files(
    context: TableContext, snapshot: Snapshot, change: Edit, stamp: str, engine: Engine, progress: Progress
) -> list[ChangedBucket]:
    """Change the matching rows of the snapshot; returns what to commit in each bucket."""
    scanned = [split.bucket for split in plan_scan(context, snapshot, change.where).splits]
    partitions = {bucket.partition for bucket in scanned}
    numbers = {bucket.bucket for bucket in scanned}
    whole = bucket_files(context, snapshot, FileFilter(partitions.__contains__, numbers)) if scanned else {}
    buckets = {bucket_id: whole[bucket_id] for bucket_id in dict.fromkeys(bucket.bucket_id for bucket in scanned)}
    dropped, to_read = _split_off_dropped_files(context, change, scanned)
    tasks = list(_tasks(context, buckets, to_read, stamp))
    engine.prepare(Work.of(file for task in tasks for file in task.bucket.files), progress)
    with phase(progress, "Changing rows", len(tasks)) as done:
        results = run_traced(engine, context, functools.partial(change_rows_of, change=change), tasks, done)
    by_bucket: dict[BucketId, list[ChangedFiles]] = {}
    for result in [*dropped, *results]:
        if result.rows or result.sources is not None:
            by_bucket.setdefault(result.bucket_id, []).append(result)
    return [_changed_bucket(context, buckets[bucket_id], parts, stamp, snapshot.id) for bucket_id, parts in by_bucket.items()]


def _split_off_dropped_files(
    context: TableContext, change: Edit, buckets: Sequence[BucketFiles]
) -> tuple[list[ChangedFiles], list[BucketFiles]]:
    """Files that a delete drops unread, because their bounds show that every row matches, and the files that must be read."""
    if not change.drops_all:
        return [], list(buckets)
    bounds, dropped, to_read = TableBounds(context), list[ChangedFiles](), list[BucketFiles]()
    for bucket in buckets:
        matching, uncertain = list[DataFileMeta](), list[DataFileMeta]()
        for file in bucket.files:
            (matching if change.where.must_match(bounds.of_file(*bucket.bucket_id, file)) else uncertain).append(file)
        if matching:
            vectors = load_vectors(context, bucket)
            rows = sum(file.row_count - _marked_rows(vectors, file) for file in matching)
            dropped.append(ChangedFiles(bucket.bucket_id, rows, removed=tuple(matching), deleted=rows))
        if uncertain:
            to_read.append(replace(bucket, files=tuple(uncertain)))
    return dropped, to_read


def _marked_rows(vectors: BucketVectors, file: DataFileMeta) -> int:
    vector = vectors.of(file.file_name)
    return 0 if vector is None else len(vector.positions)


def _tasks(
    context: TableContext, buckets: Mapping[BucketId, BucketFiles], to_read: Sequence[BucketFiles], stamp: str
) -> Iterator[ChangeTask]:
    """One task per entry of `to_read`.

    In bucketed tables each task gets its own range of sequence numbers, above all those in use; elsewhere all tasks start at 0.
    """
    unaware = not context.mode.bucket_mode.has_buckets
    next_numbers = {
        bucket_id: 0 if unaware else max(file.max_sequence_number for file in bucket.files) + 1
        for bucket_id, bucket in buckets.items()
    }
    for bucket in to_read:
        yield ChangeTask(bucket, next_numbers[bucket.bucket_id], stamp)
        if not unaware:
            next_numbers[bucket.bucket_id] += sum(file.row_count for file in bucket.files)


def _changed_bucket(
    context: TableContext, bucket: BucketFiles, parts: Sequence[ChangedFiles], stamp: str, read_snapshot_id: int
) -> ChangedBucket:
    """One commit message for all tasks of a bucket, with the bucket's updated deletion vectors."""
    rows, met = sum(part.rows for part in parts), [part.sources for part in parts if part.sources is not None]
    sources = np.unique(np.concatenate(met)) if met else None
    if not rows:
        return ChangedBucket(0, None, sources=sources)
    vectors = ChangedVectors(context, bucket, stamp)
    removed = tuple(file for part in parts for file in part.removed)
    for part in parts:
        for name, positions in (part.marked or {}).items():
            vectors.mark(name, positions)
    for file in removed:
        vectors.drop(file.file_name)
    old_index_files, new_index_files = vectors.write(frozenset(file.file_name for file in bucket.files))
    message = CommitMessage(
        *bucket.bucket_id,
        bucket.total_buckets,
        append=FileChanges(
            added=tuple(file for part in parts for file in part.new_files),
            removed=removed,
            added_indexes=new_index_files,
            removed_indexes=old_index_files,
        ),
        read_snapshot_id=read_snapshot_id,
    )
    return ChangedBucket(rows, message, deleted=sum(part.deleted for part in parts), sources=sources)


def change_rows_of(context: TableContext, task: ChangeTask, change: Edit) -> ChangedFiles:
    """Run one task. If it fails, its new files are removed. Raises `BadInput` naming the row that cannot be changed."""
    changing = _Changing(context, task, change)
    path = context.bucket_path(*task.bucket.bucket_id)
    try:
        with context.trace.timed("change_rows", bucket=path, **file_facts("input_", task.bucket.files)) as facts:
            for file in in_reading_order(task.bucket.files):
                changing.change(file)
            result = changing.result()
            facts |= {"matched": result.rows, "removed": len(result.removed), **file_facts("output_", result.new_files)}
    except BaseException:
        changing.abort()
        raise
    return result


class _Changing:
    """Changes the files of one task, one after the other."""

    def __init__(self, context: TableContext, task: ChangeTask, change: Edit) -> None:
        self._context = context
        self._task = task
        self._change = change.for_bucket(task.bucket)
        self._vectors = load_vectors(context, task.bucket)
        self._bounds = TableBounds(context)
        self._names = DataFileNames(context, task.file_stamp)
        self._keeps_order = context.mode.bucket_mode.has_buckets
        self._writer: DataFileWriter | None = None
        self._tracks = False
        self._number = task.first_sequence
        self._closed: list[DataFileWriter] = []
        self._met = MetRows()
        self._new_files: list[DataFileMeta] = []
        self._removed: list[DataFileMeta] = []
        self._marked: dict[str, Any] = {}

    def change(self, file: DataFileMeta) -> None:
        matched = self._matching(file)
        if not len(matched.positions):
            return
        self._met.rows += len(matched.positions)
        deletes, marks = self._change.drops_all, self._context.mode.deletion_vectors
        self._met.deleted += len(matched.positions) if deletes else 0
        if len(matched.positions) + _marked_rows(self._vectors, file) == file.row_count:
            self._removed.append(file)
            if not deletes:
                self._rewrite(file, matched, keeps_others=False, in_place=not marks)
        elif marks:
            self._marked[file.file_name] = matched.positions
            if not deletes:
                self._rewrite(file, matched, keeps_others=False, in_place=False)
        else:
            self._removed.append(file)
            self._rewrite(file, matched, keeps_others=True, in_place=True)

    def _matching(self, file: DataFileMeta) -> DeletionVector:
        """The positions of the live rows that match."""
        where = self._change.where
        columns = tuple(self._change.read_columns(self._context.readable_schema)) or self._context.schema.field_names[:1]
        found = [np.empty(0, np.int64)]
        for positions, batch in self._live(file, columns, self._may_match(file)):
            matches = where.condition.matches(batch).fill_null(False).to_numpy(zero_copy_only=False)
            positions = positions[matches]
            if self._change.narrows:
                met = self._change.matches(batch.filter(pa.array(matches)))
                self._met.meet(met.sources)
                positions = positions[met.rows]
            found.append(positions)
        return DeletionVector.marking(np.concatenate(found), bitmap64=self._context.options.deletion_vectors_bitmap64)

    def _may_match(self, file: DataFileMeta) -> FilePart:
        rows = self._bounds.matching_rows(self._change.where, *self._task.bucket.bucket_id, file)
        return FilePart(keeps=rows, keeps_blocks=rows)

    def _live(self, file: DataFileMeta, columns: Sequence[str], part: FilePart) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
        """The rows that no vector marks, with their positions in the file (int64)."""
        vector = self._vectors.of(file.file_name)
        for start, batch in read_part(self._context, self._task.bucket.bucket_id, file, columns, PIECES.batch_rows, part):
            positions = np.arange(start, start + batch.num_rows)
            if vector is None:
                yield positions, batch
                continue
            live = vector.live_rows(batch.num_rows, start)
            yield positions[live], live_rows(batch, packed(live))

    def _rewrite(self, file: DataFileMeta, matched: DeletionVector, *, keeps_others: bool, in_place: bool) -> None:
        """Rewrite rows of the file: matching rows with their new values and, if `keeps_others`, the other rows unchanged.

        `in_place`: in tables whose buckets keep an order, the rows keep the sequence numbers of the file.
        """
        in_transaction = self._context.first_new_row_id is not None
        is_new = in_transaction and file.awaits_row_ids  # then its rows stay as new as they are
        tracks = self._context.mode.tracks_rows and not is_new
        if tracks != self._tracks or (in_place and self._keeps_order):
            self._close()
        self._tracks = tracks
        if in_place and self._keeps_order:
            self._number = file.min_sequence_number
        names = [*self._context.schema.field_names, *(TRACKING_COLUMNS if tracks else self._change.tracking_columns)]
        for positions, batch in self._live(file, names, WHOLE if keeps_others else self._may_match(file)):
            if not len(positions):
                continue
            matches = matched.marks(positions)
            columns, is_deleted = self._edited(file, positions, batch, matches)
            chosen = ~is_deleted if keeps_others else matches & ~is_deleted
            if not chosen.all():
                columns = {name: column.filter(pa.array(chosen)) for name, column in columns.items()}
            self._write(columns)
        if in_place and self._keeps_order:
            self._close()

    def _edited(self, file: DataFileMeta, positions: np.ndarray, batch: pa.RecordBatch, matches: np.ndarray) -> EditedRows:
        """The rows of the batch, changed where `matches` (bool) is set."""
        columns, rows = dict(zip(batch.schema.names, batch.columns, strict=True)), np.flatnonzero(matches)
        if self._tracks:
            columns[SEQUENCE_NUMBER] = pc.if_else(pa.array(matches), UNNUMBERED, columns[SEQUENCE_NUMBER])
        is_deleted = matches if self._change.drops_all else np.zeros(batch.num_rows, bool)
        if self._change.drops_all or not len(rows):
            return EditedRows(columns, is_deleted)

        def name_row(row: int) -> str:
            return f"row {positions[rows[row]]} of data file {file.file_name}"

        changed, deleted = self._change.edited(self._context.schema, batch.filter(pa.array(matches)), name_row)
        self._met.deleted += int(deleted.sum())
        is_deleted[rows] = deleted
        source = np.arange(batch.num_rows)
        source[rows] = batch.num_rows + np.arange(len(rows))
        for name in self._change.set_columns:
            columns[name] = pa.concat_arrays([columns[name], changed[name]]).take(pa.array(source))
        return EditedRows(columns, is_deleted)

    def _write(self, columns: Mapping[str, pa.Array]) -> None:
        schema, tracks = self._context.schema, self._tracks
        rows = tracked_rows(schema, columns) if tracks else merge_rows(schema, columns, RowKind.INSERT, self._number)
        if not rows.num_rows:
            return
        if self._writer is None:
            bucket_id = self._task.bucket.bucket_id
            self._writer = DataFileWriter(
                self._context, bucket_id, level=0, source=SOURCE_APPEND, names=self._names, tracks_rows=tracks
            )
        self._writer.write(rows)
        self._number += rows.num_rows

    def _close(self) -> None:
        """Close the open file; the next row starts a new one."""
        if self._writer is not None:
            self._closed.append(self._writer)
            self._new_files += self._writer.close()
            self._writer = None

    def result(self) -> ChangedFiles:
        self._close()
        new_files, removed = tuple(self._new_files), tuple(self._removed)
        met = self._met
        bucket_id = self._task.bucket.bucket_id
        return ChangedFiles(bucket_id, met.rows, new_files, removed, self._marked, met.deleted, met.sources)

    def abort(self) -> None:
        for writer in (*self._closed, *((self._writer,) if self._writer else ())):
            writer.abort()
