"""Compacts one bucket: merges files that overlap, upgrades others, and returns a commit message (FORMAT.md, section 12)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass

import numpy as np

from paimon_cli.bucket.data_file_reader import read_data_file
from paimon_cli.bucket.data_file_writer import DataFileNames, DataFileWriter, check_writable
from paimon_cli.bucket.merged_rows import RecordExpiry, merge_columns, merge_section, without_retractions
from paimon_cli.bucket.stamped_files import stamped_prefix
from paimon_cli.compact.compaction_plan import MINOR_STRATEGY, CompactionTask, plan_bucket, task_steps
from paimon_cli.errors import DamagedFile, FilesConflict
from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.compaction_picker import Rewrite, Upgrade
from paimon_cli.lsm.sorted_runs import SortedRun
from paimon_cli.metadata.data_file import SOURCE_COMPACT, CommitMessage, DataFileMeta, FileFilter, file_facts
from paimon_cli.metadata.data_file_schema import VALUE_KIND

KIND_BATCH_ROWS = 1 << 20


@dataclass(frozen=True)
class WriterCompaction:
    """Runs the compaction that the triggers ask for on behalf of a writer, over files that may not be committed yet.
    Picklable.
    """

    read_snapshot_id: int
    file_stamp: str

    def __call__(self, context: TableContext, bucket: BucketFiles, is_given_up: Callable[[], bool]) -> CommitMessage | None:
        decision = plan_bucket(context, bucket, MINOR_STRATEGY, self.read_snapshot_id, self.file_stamp)
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
        """Whether the unreadable file was committed, and has been replaced and deleted by another job since."""
        paths = {context.data_file_path(task.partition, task.bucket, file): file.file_name for file in task.files}
        path = str(error.details.get("path"))
        name = paths.get(path)
        if name is None or name.startswith(stamped_prefix(context, self.file_stamp)) or context.storage.exists(path):
            return False
        live = bucket_files(context, context.snapshots.latest(), FileFilter(buckets={task.bucket})).get(task.bucket_id)
        return live is None or name not in {file.file_name for file in live.files}


def run_compaction(context: TableContext, task: CompactionTask, is_given_up: Callable[[], bool] = lambda: False) -> CommitMessage:
    """Carry out the task. Memory is bounded by the number of runs, not by the size of the bucket.

    If it fails or is cancelled (`CancelledError`), its new files are removed and the table is unchanged.
    """
    check_writable(context.schema, context.options)
    names = DataFileNames(context, task.file_stamp)
    written: list[DataFileWriter] = []
    before: list[DataFileMeta] = []
    after: list[DataFileMeta] = []
    try:
        for step in task_steps(context, task):
            if isinstance(step, Upgrade) and not _must_lose_deletes(context, task, step.file):
                place = context.bucket_path(task.partition, task.bucket)
                context.trace.step(
                    "upgrade", bucket=place, file=step.file.file_name, from_level=step.file.level, level=task.output_level
                )
                before.append(step.file)
                after.append(step.file.upgraded(task.output_level))
            else:
                rewrite = step if isinstance(step, Rewrite) else _alone(step.file)
                writer = DataFileWriter(
                    context, task.partition, task.bucket, level=task.output_level, source=SOURCE_COMPACT, names=names
                )
                written.append(writer)
                before.extend(rewrite.files)
                after.extend(_rewrite(context, task, rewrite, writer, is_given_up))
    except BaseException:
        for writer in written:
            writer.abort()
        raise
    return CommitMessage(
        partition=task.partition,
        bucket=task.bucket,
        total_buckets=task.total_buckets,
        compact_before=tuple(before),
        compact_after=tuple(after),
        read_snapshot_id=task.read_snapshot_id,
    )


def _alone(file: DataFileMeta) -> Rewrite:
    return Rewrite(((SortedRun(file.level, (file,)),),))


def _rewrite(
    context: TableContext, task: CompactionTask, rewrite: Rewrite, writer: DataFileWriter, is_given_up: Callable[[], bool]
) -> tuple[DataFileMeta, ...]:
    columns = merge_columns(context, context.schema.field_names)
    expiry = RecordExpiry.of(context)
    place = context.bucket_path(task.partition, task.bucket)
    with context.trace.timed("rewrite", bucket=place, level=task.output_level, **file_facts("input_", rewrite.files)) as facts:
        for section in rewrite.sections:
            merged = merge_section(
                context, task.partition, task.bucket, list(section), columns, task.memory, expiry, oldest_first=task.files
            )
            for batch in merged:
                if is_given_up():
                    raise CancelledError
                writer.write(without_retractions(batch) if task.drop_deletes else batch)
        files = writer.close()
        facts |= file_facts("output_", files)
    return files


def _must_lose_deletes(context: TableContext, task: CompactionTask, file: DataFileMeta) -> bool:
    """Whether a file to be moved to the top level holds retractions that its metadata does not count (pypaimon always writes
    0).
    """
    if task.output_level != task.max_level or file.level == task.max_level:
        return False
    kinds = read_data_file(context, task.partition, task.bucket, file, [VALUE_KIND], KIND_BATCH_ROWS)
    return any(bool(np.any(batch.column(VALUE_KIND).to_numpy() & 1)) for batch in kinds)
