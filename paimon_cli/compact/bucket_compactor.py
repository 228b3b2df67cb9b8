"""Compacts one bucket: merges files that overlap, upgrades the others, and returns a commit message (FORMAT.md, section 12)."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paimon_cli.bucket.data_file_reader import FilePart, KeepsGroup, read_data_file
from paimon_cli.bucket.data_file_writer import DataFileWriter, changelog_writer, check_writable
from paimon_cli.bucket.key_range import RangeReader, stored_keys
from paimon_cli.bucket.merged_rows import RecordExpiry, merge_columns, merge_section, prefetch, without_retractions
from paimon_cli.bucket.snapshot_order import SnapshotOrder
from paimon_cli.bucket.stamped_files import stamped_prefix
from paimon_cli.compact.append_rewriter import AppendRewriter
from paimon_cli.compact.compaction_plan import MINOR_STRATEGY, plan_bucket
from paimon_cli.compact.compaction_task import CompactionTask, task_steps
from paimon_cli.compact.group_copier import GroupCopier
from paimon_cli.compact.lookup_merge import LookupMerge
from paimon_cli.compact.rewriter import Rewriter
from paimon_cli.compact.untouched_groups import UntouchedGroup, UntouchedGroups, can_copy, groups_without
from paimon_cli.errors import DamagedFile, FilesConflict
from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.changelog import ChangedKeys, FullCompactionChanges, inserts
from paimon_cli.lsm.compaction_picker import Rewrite, Upgrade
from paimon_cli.lsm.key_search import SortedKeys
from paimon_cli.lsm.merge_engine import merge_engine
from paimon_cli.lsm.sorted_runs import Section, SortedRun
from paimon_cli.metadata.data_file import (
    CommitMessage,
    DataFileMeta,
    FileFilter,
    file_facts,
    upper_file_names,
    vector_file_names,
)
from paimon_cli.metadata.data_file_schema import VALUE_KIND
from paimon_cli.metadata.encoded_footer import FooterFrame
from paimon_cli.pieces import PIECES


@dataclass(frozen=True)
class WriterCompaction:
    """Compacts buckets for a writer, whose files may not be committed yet. Picklable; see `write_plan.CompactBucket`.

    `strategy`: as for `plan_bucket`. Level 0 is always compacted in tables that look up old rows, unless `lookup-wait=false`.
    """

    read_snapshot_id: int
    file_stamp: str
    strategy: str = MINOR_STRATEGY

    def __call__(self, context: TableContext, bucket: BucketFiles, is_given_up: Callable[[], bool]) -> CommitMessage | None:
        waits = context.options.lookup_wait
        decision = plan_bucket(context, bucket, self.strategy, self.read_snapshot_id, self.file_stamp, forces_level_0=waits)
        if not isinstance(decision, CompactionTask):
            return None
        try:
            return run_compaction(context, decision, is_given_up)
        except DamagedFile as error:
            if self._has_expired(context, decision, error):
                why = f"its files were replaced and expired while they were read ({error})"
                raise FilesConflict(f"bucket {decision.bucket} was compacted by another job", why) from error
            raise

    def _has_expired(self, context: TableContext, task: CompactionTask, error: DamagedFile) -> bool:
        """Whether the file that cannot be read was committed, and then replaced and deleted by another job."""
        paths = {context.data_file_path(task.partition, task.bucket, file): file.file_name for file in task.files}
        path = error.path or ""
        name = paths.get(path)
        if name is None or name.startswith(stamped_prefix(context, self.file_stamp)) or context.storage.exists(path):
            return False
        live = bucket_files(context, context.snapshots.latest(), FileFilter(buckets={task.bucket})).get(task.bucket_id)
        return live is None or name not in {file.file_name for file in live.files}


class MergeRewriter(Rewriter):
    """Merges sorted runs into data files, without deletion vectors or a changelog.

    In the highest level, row groups that no newer run touches are copied, if that saves enough.
    """

    def __init__(self, context: TableContext, task: CompactionTask, is_given_up: Callable[[], bool]) -> None:
        super().__init__(context, task, is_given_up)
        self._columns = merge_columns(context, context.schema.field_names)
        self._expiry = RecordExpiry.of(context)
        self._order = SnapshotOrder.of(context, task.picked)
        self._range = None if task.within is None else RangeReader(context, task.within, self.counts)
        self._untouched: dict[int, list[UntouchedGroup]] = {}

    def upgrade(self, file: DataFileMeta) -> None:
        """Upgrade a file without rewriting it, unless its deletes must be dropped."""
        if self._must_lose_deletes(file):
            self.rewrite(Rewrite(((SortedRun(file.level, (file,)),),)))
            return
        self._move(file)

    def _must_lose_deletes(self, file: DataFileMeta) -> bool:
        """Whether a file to be moved to the top level holds retractions. Metadata may not count them (pypaimon's does not)."""
        if self._may_keep_deletes(file):
            return False
        kinds = read_data_file(self._context, self._task.bucket_id, file, [VALUE_KIND], PIECES.kind_batch_rows)
        return any(bool(np.any(batch.column(VALUE_KIND).to_numpy() & 1)) for batch in kinds)

    def _may_keep_deletes(self, file: DataFileMeta) -> bool:
        return self._task.output_level != self._task.max_level or file.level == self._task.max_level

    def _untouched_groups(self) -> UntouchedGroups:
        return UntouchedGroups(self._context, self._task, self._range, self._expiry)

    def _frame(self, step: Rewrite) -> FooterFrame | None:
        self._untouched = {}
        if not can_copy(self._context, self._task):
            return None
        chooser = self._untouched_groups()
        self._untouched = chooser.of(step.sections)
        return chooser.frame if self._untouched else None

    def _fill(self, writer: DataFileWriter, step: Rewrite) -> dict[str, Any]:
        for number, section in enumerate(step.sections):
            self._merge_around(writer, list(section), self._untouched.get(number, []))
        return {"copied_groups": sum(map(len, self._untouched.values()))} if self._untouched else {}

    def _merge_around(self, writer: DataFileWriter, section: Section, groups: list[UntouchedGroup]) -> None:
        """Merge the section, and copy each of the groups between the rows with smaller and with greater keys."""
        keys, done = self._context.schema.trimmed_primary_keys, 0
        lows = SortedKeys.joined([SortedKeys.of(group.bounds.slice(0, 1), keys) for group in groups]) if groups else None
        with GroupCopier(self._context, self._task, writer, self._range) as copier:
            for batch in self._merged(section, groups_without(groups)):
                self._check_given_up()
                start = 0
                if lows is not None and done < len(groups):
                    for at in SortedKeys.of(batch, keys).below(lows.slice(done, len(groups))).tolist():
                        if at == batch.num_rows:
                            break
                        writer.write(self._kept(batch.slice(start, at - start)))
                        copier.copy(groups[done])
                        start, done = at, done + 1
                writer.write(self._kept(batch.slice(start)))
            for group in groups[done:]:
                self._check_given_up()
                copier.copy(group)

    def _kept(self, merged: pa.RecordBatch) -> pa.RecordBatch:
        """Merged rows as they are stored."""
        return self._order.stored(without_retractions(merged) if self._task.drop_deletes else merged)

    def _merged(self, section: Section, wanted: Mapping[str, KeepsGroup]) -> Iterator[pa.RecordBatch]:
        """The merged rows of the task's range of keys. `wanted`: which row groups of some files to merge, by file name."""
        task, parts = self._task, self._parts(section, wanted)
        return merge_section(
            self._context, task.picked, section, self._columns, task.memory, self._expiry, parts=parts, compacts=True
        )

    def _parts(self, section: Section, wanted: Mapping[str, KeepsGroup]) -> dict[str, FilePart]:
        if self._range is None:
            return {name: FilePart(keeps=keeps) for name, keeps in wanted.items()}
        files = [file for run in section for file in run.files]
        return {file.file_name: self._range.part_of(file, wanted.get(file.file_name, _every_group)) for file in files}

    def _changelog_writer(self) -> DataFileWriter:
        task = self._task
        writer = changelog_writer(self._context, task.bucket_id, task.output_level, task.file_stamp)
        self._writers.append(writer)
        return writer

    def _write_changes(self, writer: DataFileWriter, rows: pa.RecordBatch) -> None:
        """Write the changelog rows of a merge."""
        writer.write(self._order.stored(rows))

    def _with_changelog(self, message: CommitMessage, writer: DataFileWriter | None) -> CommitMessage:
        if writer is None:
            return message
        with self._context.trace.timed("changelog", bucket=self._bucket_path, level=self._task.output_level) as facts:
            files = writer.close()
            facts |= file_facts("", files)
        return replace(message, compact=replace(message.compact, changelog=files))


def _every_group(file: pq.ParquetFile, group: int) -> bool:
    return True


class CutRewriter(MergeRewriter):
    """Merges runs into files that end at the cuts of the task. Retractions and sequence numbers stay."""

    def _fill(self, writer: DataFileWriter, step: Rewrite) -> dict[str, Any]:
        keys, cuts, done = self._context.schema.trimmed_primary_keys, stored_keys(self._context, self._task.cuts), 0
        for section in step.sections:
            for batch in self._merged(list(section), {}):
                self._check_given_up()
                start = 0
                for at in SortedKeys.of(batch, keys).below(cuts.slice(done, len(cuts))).tolist():
                    if at == batch.num_rows:
                        break
                    writer.write(batch.slice(start, at - start))
                    writer.end_file()
                    start, done = at, done + 1
                writer.write(batch.slice(start))
        return {"cuts": done}


class LookupRewriter(MergeRewriter):
    """Merges sorted runs, and looks up the rows that new ones replace above the output level.

    For tables with deletion vectors, merge engine first-row, or `changelog-producer=lookup`.
    """

    def __init__(self, context: TableContext, task: CompactionTask, is_given_up: Callable[[], bool]) -> None:
        super().__init__(context, task, is_given_up)
        self._changelog = self._changelog_writer() if context.mode.changelog_producer.looks_up_old_rows else None
        on_changes = None if self._changelog is None else functools.partial(self._write_changes, self._changelog)
        self._lookup = LookupMerge(context, task, self._columns, self._expiry, on_changes)

    def upgrade(self, file: DataFileMeta) -> None:
        if self._lookup.must_rewrite(file):
            self.rewrite(Rewrite(((SortedRun(file.level, (file,)),),)))
        else:
            super().upgrade(file)

    def _may_keep_deletes(self, file: DataFileMeta) -> bool:
        return super()._may_keep_deletes(file) and not (self._task.drop_deletes and file.level == 0)

    def _move(self, file: DataFileMeta) -> None:
        self._lookup.moves(file)
        super()._move(file)

    def _untouched_groups(self) -> UntouchedGroups:
        return replace(super()._untouched_groups(), vectors=self._lookup.vectors.before)

    def _merged(self, section: Section, wanted: Mapping[str, KeepsGroup]) -> Iterator[pa.RecordBatch]:
        return self._lookup.merged(section, self._parts(section, wanted))

    def message(self) -> CommitMessage:
        """The commit message, with new index files if any deletion vector changed."""
        message, task = self._with_changelog(super().message(), self._changelog), self._task
        if any(file.level == 0 for file in task.files):
            message = replace(message, read_upper_files=upper_file_names((*task.files, *task.others)))
        if not self._context.mode.deletion_vectors:
            return message
        vectors = self._lookup.vectors
        kept = {file.file_name for file in message.compact.added}
        for file in message.compact.removed:
            if file.file_name not in kept:
                vectors.drop(file.file_name)
        removed, added = vectors.write(frozenset(file.file_name for file in (*task.files, *task.others)))
        read = vector_file_names(task.index_files)
        return replace(
            message, compact=replace(message.compact, removed_indexes=removed, added_indexes=added), read_index_files=read
        )


class FullChangelogRewriter(MergeRewriter):
    """Merges into the top level, and writes the changes there to a changelog (`changelog-producer=full-compaction`)."""

    def __init__(self, context: TableContext, task: CompactionTask, is_given_up: Callable[[], bool]) -> None:
        super().__init__(context, task, is_given_up)
        self._changelog = self._changelog_writer()

    def _move(self, file: DataFileMeta) -> None:
        """Upgrade a file; all of its keys are new at the top level."""
        for rows in read_data_file(self._context, self._task.bucket_id, file, self._columns, PIECES.batch_rows):
            self._changelog.write(inserts(rows))
        super()._move(file)

    def _merged(self, section: Section, wanted: Mapping[str, KeepsGroup]) -> Iterator[pa.RecordBatch]:
        context, task, schema = self._context, self._task, self._context.schema
        changes = ChangedKeys.of(schema, context.options)
        on_changes = functools.partial(self._write_changes, self._changelog)
        engine = FullCompactionChanges(
            merge_engine(schema, context.options), on_changes, schema.trimmed_primary_keys, task.max_level, changes
        )
        return merge_section(
            context, task.picked, section, self._columns, task.memory, self._expiry, level_engine=engine, compacts=True
        )

    def message(self) -> CommitMessage:
        return self._with_changelog(super().message(), self._changelog)


def rewriter_of(context: TableContext, task: CompactionTask, is_given_up: Callable[[], bool]) -> Rewriter:
    """The rewriter for the table: by its keys, lookups of old rows, and changelog producer."""
    if not context.mode.has_keys:
        return AppendRewriter(context, task, is_given_up)
    if context.mode.looks_up_old_rows:
        return LookupRewriter(context, task, is_given_up)
    if context.mode.changelog_producer.compares_top_levels and task.output_level == task.max_level:
        return FullChangelogRewriter(context, task, is_given_up)
    if task.cuts:
        return CutRewriter(context, task, is_given_up)
    return MergeRewriter(context, task, is_given_up)


def run_compaction(
    context: TableContext,
    task: CompactionTask,
    is_given_up: Callable[[], bool] = lambda: False,
    counts: Counter[str] | None = None,
) -> CommitMessage:
    """Carry out the task: upgrade or rewrite its files step by step, and return the commit message.

    `counts`: takes up the rows of each file, by name, that were in the range of the task, if it has one. Memory is bounded by the
    number of runs, not by the size of the bucket. If the task fails or is cancelled (`CancelledError`),
    its new files are removed, and the table is unchanged.
    """
    check_writable(context.schema, context.options)
    with rewriter_of(context, task, is_given_up) as rewriter:
        for step in task_steps(context, task):
            if isinstance(step, Upgrade):
                rewriter.upgrade(step.file)
            else:
                prefetch(context, task.bucket_id, (file for section in step.sections for run in section for file in run.files))
                rewriter.rewrite(step)
        if counts is not None:
            counts.update(rewriter.counts)
        return rewriter.message()
