"""Regroups a partition: moves its rows into a multiple of its buckets, or into a part of them, without routing each again.

A bucket function is a remainder by the number of buckets, so that a row of bucket b of N belongs to b, b + N, b + 2N, ... of a
multiple of N, and a row of bucket b of a multiple of N to b modulo N. Hence each task reads its buckets once and alone writes the
new ones, and no row meets the row of another task.

Every run stays what it is: rows keep their sequence numbers and kinds, files their level, source and age. So merges, changelogs,
and compactions that are still due come to the same results as before, and streams have nothing to see. Only rows that deletion
vectors mark are left out, because their positions change. Where a compaction is due that reports nothing, its runs are merged on
the way.

Example: bucket 0 of 1 is split in two; a row is key:value@sequence, keys with an even hash go to bucket 0.

| run | bucket 0 of 1 | bucket 0 of 2 | bucket 1 of 2 |
|---|---|---|---|
| level 0 | 2:c@6 3:x@7 | 2:c@6 | 3:x@7 |
| level 0 | 4:b@5 | 4:b@5 | no file |
| level 5 | 1:a@0 2:a@1 4:a@2 | 2:a@1 4:a@2 | 1:a@0 |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from paimon_cli.bucket.data_file_writer import DataFileWriter, check_writable, group_bytes
from paimon_cli.bucket.deletion_vectors import NO_VECTORS, BucketVectors, live_rows, load_vectors, packed
from paimon_cli.bucket.merged_rows import RecordExpiry, merge_columns, merge_section, prefetch, without_retractions
from paimon_cli.bucket.snapshot_order import SnapshotOrder
from paimon_cli.bucket.stamped_files import DataFileNames
from paimon_cli.compact.compaction_plan import MINOR_STRATEGY, plan_bucket
from paimon_cli.compact.compaction_task import CompactionTask
from paimon_cli.datatypes.bucket_functions import row_buckets
from paimon_cli.errors import DamagedFile, PaimonError
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.sort_merge import merge_sorted_runs
from paimon_cli.lsm.sorted_rows import KeepAllVersions
from paimon_cli.lsm.sorted_runs import SortedRun, key_sections, sorted_runs
from paimon_cli.metadata.data_file import (
    DELETION_VECTORS,
    SOURCE_COMPACT,
    BucketId,
    CommitMessage,
    DataFileMeta,
    FileChanges,
    vector_file_names,
)
from paimon_cli.options.table_options import TableOptions
from paimon_cli.pieces import PIECES


@dataclass(frozen=True)
class RegroupTask:
    """Buckets of one partition that become others, as plain data: one that is split, or those that become one.

    `buckets`: with all of their files; `new_total`: the new bucket count of the partition. `merges`: whether runs are merged
    whose compaction is due.
    """

    buckets: tuple[BucketFiles, ...]
    new_total: int
    read_snapshot_id: int
    file_stamp: str
    merges: bool = True

    @property
    def partition(self) -> bytes:
        return self.buckets[0].partition

    @property
    def targets(self) -> range:
        """The new buckets."""
        total = self.buckets[0].total_buckets
        first = min(bucket.bucket for bucket in self.buckets) % min(total, self.new_total)
        return range(first, self.new_total, min(total, self.new_total))

    @property
    def files(self) -> list[DataFileMeta]:
        return [file for bucket in self.buckets for file in bucket.files]

    @property
    def size(self) -> int:
        """Bytes to read."""
        return sum(file.file_size for file in self.files)


def regroup_tasks(
    buckets: Sequence[BucketFiles], new_total: int, read_snapshot_id: int, file_stamp: str, merges: bool = True
) -> list[RegroupTask]:
    """The tasks that give a partition another bucket count. `buckets`: all of its buckets with files.

    Raises `ValueError` unless one count divides the other.
    """
    total = buckets[0].total_buckets
    if max(total, new_total) % min(total, new_total):
        raise ValueError(f"{total} buckets cannot be split or merged into {new_total}")
    groups: dict[int, list[BucketFiles]] = {}
    for bucket in sorted(buckets, key=lambda bucket: bucket.bucket):
        groups.setdefault(bucket.bucket % min(total, new_total), []).append(bucket)
    return [RegroupTask(tuple(group), new_total, read_snapshot_id, file_stamp, merges) for _, group in sorted(groups.items())]


def regroup_buckets(
    context: TableContext, task: RegroupTask, is_given_up: Callable[[], bool] = lambda: False
) -> tuple[CommitMessage, ...]:
    """Write the rows of the task's buckets into the new ones. The messages remove all files and vectors of the old buckets.

    If the task fails or is cancelled (`CancelledError`), its new files are removed. Raises `PaimonError` if a row got lost.
    """
    check_writable(context.schema, context.options)
    with context.trace.timed("regroup", buckets=[bucket.bucket for bucket in task.buckets], total=task.new_total) as facts:
        with _Regrouping.of(context, task, is_given_up) as work:
            work.run()
            messages = work.messages()
        facts |= {"merged": work.has_merged, "files": sum(len(message.compact.added) for message in messages)}
    return messages


@dataclass
class _Regrouping:
    """The work on one task. `files`: the new files of each new bucket, each with the age of those that it replaces.

    Between equal sequence numbers, of writers that did not know of each other, the order of files decides, so it is kept.
    """

    context: TableContext
    task: RegroupTask
    is_given_up: Callable[[], bool]
    names: DataFileNames
    columns: list[str]
    files: dict[int, list[tuple[int, DataFileMeta]]] = field(default_factory=dict)
    writers: list[DataFileWriter] = field(default_factory=list)
    has_merged: bool = False

    @classmethod
    def of(cls, context: TableContext, task: RegroupTask, is_given_up: Callable[[], bool]) -> _Regrouping:
        shared = context.redefined(options=_sharing_memory(context.options, len(task.targets)))
        names, columns = DataFileNames(context, task.file_stamp), merge_columns(context, context.schema.field_names)
        return cls(shared, task, is_given_up, names, columns)

    def __enter__(self) -> _Regrouping:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if error_type is not None:
            for writer in self.writers:
                writer.abort()

    def run(self) -> None:
        """Write all runs, those of level 0 in the order of their flushes, which their new names then show."""
        levels: dict[int, list[tuple[BucketFiles, SortedRun]]] = {}
        for bucket in self.task.buckets:
            prefetch(self.context, bucket.bucket_id, bucket.files)
            left = self._merge_what_is_due(bucket)
            ages = {file.file_name: age for age, file in enumerate(bucket.files)}
            flushes = SnapshotOrder.of(self.context, bucket).ranks or ages
            for file in sorted((file for file in left if file.level == 0), key=lambda file: flushes[file.file_name]):
                self._move([(bucket, SortedRun(0, (file,)))], ages[file.file_name])
            for run in sorted_runs((file for file in left if file.level), self.context.key_of):
                levels.setdefault(run.level, []).append((bucket, run))
        for level, runs in sorted(levels.items()):
            ((bucket, run), *others) = runs
            ages = {file.file_name: age for age, file in enumerate(bucket.files)}
            self._move(runs, -level if others else max(ages[file.file_name] for file in run.files))

    def _merge_what_is_due(self, bucket: BucketFiles) -> Sequence[DataFileMeta]:
        """Merge what a minor compaction would merge now, unless it would report changes; returns the files that are left."""
        due = self._due(bucket)
        if due is None:
            return bucket.files
        picked, expiry = due.picked, RecordExpiry.of(self.context)
        order = SnapshotOrder.of(self.context, picked)

        def merged() -> Iterator[pa.RecordBatch]:
            for section in key_sections(picked.files, self.context.key_of):
                for batch in merge_section(self.context, picked, section, self.columns, due.memory, expiry, compacts=True):
                    yield order.stored(without_retractions(batch) if due.drop_deletes else batch)

        self._write(merged(), due.output_level, SOURCE_COMPACT, None, len(bucket.files))
        self.has_merged = True
        gone = {file.file_name for file in picked.files}
        return [file for file in bucket.files if file.file_name not in gone]

    def _due(self, bucket: BucketFiles) -> CompactionTask | None:
        mode = self.context.mode
        reports = mode.looks_up_old_rows or mode.changelog_producer.reports_compactions
        if not self.task.merges or reports or len(self.task.buckets) > 1:
            return None
        decision = plan_bucket(self.context, bucket, MINOR_STRATEGY, self.task.read_snapshot_id)
        return decision if isinstance(decision, CompactionTask) else None

    def _move(self, runs: Sequence[tuple[BucketFiles, SortedRun]], age: int) -> None:
        """Write runs of one level, of which no two hold the same key, as one run of that level."""
        files = [file for _, run in runs for file in run.files]
        made = max((file.creation_time_millis for file in files if file.creation_time_millis is not None), default=None)
        sources = {file.file_source for file in files}
        source = sources.pop() if len(sources) == 1 else SOURCE_COMPACT
        streams = [self._stored(bucket, run) for bucket, run in runs]
        rows = merge_sorted_runs(streams, self.context.schema.trimmed_primary_keys, KeepAllVersions())
        written = self._write((batch.select(self.columns) for batch in rows), runs[0][1].level, source, made, age)
        expected = sum(self._live_rows(bucket, run) for bucket, run in runs)
        if written != expected:
            raise PaimonError(f"{expected} rows became {written} when their buckets changed", "nothing was committed")

    def _stored(self, bucket: BucketFiles, run: SortedRun) -> Iterator[pa.RecordBatch]:
        """The rows of a run that no vector marks, with the sequence numbers that files store."""
        order, vectors = SnapshotOrder.of(self.context, bucket), self._vectors(bucket)
        for batch in merge_section(self.context, bucket, [run], self.columns, vectors=vectors):
            yield order.stored(batch)

    def _vectors(self, bucket: BucketFiles) -> BucketVectors:
        return load_vectors(self.context, bucket) if self.context.mode.deletion_vectors else NO_VECTORS

    def _live_rows(self, bucket: BucketFiles, run: SortedRun) -> int:
        vectors = self._vectors(bucket)
        marked = (vectors.of(file.file_name) for file in run.files)
        return run.row_count - sum(len(vector.positions) for vector in marked if vector is not None)

    def _write(self, rows: Iterable[pa.RecordBatch], level: int, source: int | None, made: int | None, age: int) -> int:
        """Write rows in key order into files of the new buckets, as old as `made` (None: new). Returns how many there were."""
        schema, options = self.context.schema, self.context.options
        keys, targets = schema.bucket_key_names, self.task.targets
        types, count = schema.types_of(keys), 0
        writers: dict[int, DataFileWriter] = {}
        for batch in rows:
            if self.is_given_up():
                raise CancelledError
            count += batch.num_rows
            buckets = row_buckets([batch.column(name) for name in keys], types, self.task.new_total, options.bucket_function)
            routed = 0
            for target in targets:
                piece = live_rows(batch, packed(buckets == target)) if len(targets) > 1 else batch
                if not piece.num_rows:
                    continue
                routed += piece.num_rows
                if target not in writers:
                    writers[target] = self._open(target, level, source)
                writers[target].write(piece)
            if routed != batch.num_rows or (len(targets) == 1 and bool(np.any(buckets != targets[0]))):
                raise self._misplaced()
        for target, writer in writers.items():
            for file in writer.close():
                aged = file if made is None else replace(file, creation_time_millis=made)
                self.files.setdefault(target, []).append((age, aged))
        return count

    def _open(self, target: int, level: int, source: int | None) -> DataFileWriter:
        bucket_id = BucketId(self.task.partition, target)
        own = SOURCE_COMPACT if source is None else source
        writer = DataFileWriter(self.context, bucket_id, level=level, source=own, names=self.names)
        self.writers.append(writer)
        return writer

    def _misplaced(self) -> DamagedFile:
        bucket = self.task.buckets[0]
        path = self.context.bucket_path(*bucket.bucket_id)
        why = f"of {bucket.total_buckets} buckets, they belong to another one"
        return DamagedFile(f"{path} holds rows of other buckets", why, self.context.layout.if_damaged, path=path)

    def messages(self) -> tuple[CommitMessage, ...]:
        """The messages that remove the old buckets, then those that add to the new ones."""
        task = self.task
        removals = [
            CommitMessage(
                *bucket.bucket_id,
                bucket.total_buckets,
                compact=FileChanges(
                    removed=bucket.files,
                    removed_indexes=tuple(index for index in bucket.index_files if index.index_type == DELETION_VECTORS),
                ),
                read_snapshot_id=task.read_snapshot_id,
                read_index_files=vector_file_names(bucket.index_files) if self.context.mode.deletion_vectors else None,
            )
            for bucket in task.buckets
        ]
        additions = [
            CommitMessage(
                task.partition,
                target,
                task.new_total,
                compact=FileChanges(added=tuple(file for _, file in sorted(files, key=lambda item: item[0]))),
                read_snapshot_id=task.read_snapshot_id,
            )
            for target, files in sorted(self.files.items())
        ]
        return (*removals, *additions)


def _sharing_memory(options: TableOptions, writers: int) -> TableOptions:
    """The options with row groups so small that as many writers hold no more memory than two of a compaction."""
    share = max(PIECES.least_group_bytes, 2 * group_bytes(options) // writers)
    return options if share >= group_bytes(options) else options.with_overrides({"file.block-size": f"{share} b"})
