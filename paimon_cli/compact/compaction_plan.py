"""Plans the compaction of a bucket: which files to merge, into which level, and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.append_compaction import MIN_FILES_FOR_FULL, AppendPicker, Pack
from paimon_cli.lsm.compaction_picker import (
    UNKNOWN,
    CompactionPicker,
    PickState,
    Rewrite,
    Step,
    compaction_steps,
    full_pick,
    may_drop_deletes,
    steps_one_by_one,
)
from paimon_cli.lsm.merge_engine import merge_engine
from paimon_cli.lsm.sorted_runs import SortedRun, highest_level, key_sections, sorted_runs
from paimon_cli.lsm.universal_compaction import FULL, CompactionPick, run_sizes
from paimon_cli.metadata.data_file import BucketId, DataFileMeta, IndexFileMeta, file_facts
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.metadata.table_mode import BucketMode
from paimon_cli.options.option_catalog import COMPACT
from paimon_cli.options.option_text import counted, human_size
from paimon_cli.storage.injected import local_hour, moment_of_wall_clock

MINOR_STRATEGY, FULL_STRATEGY = "minor", "full"
SMALL_FILES = "small files"
MARKED_ROWS = "deleted rows"
SORTED = "sort"
"""Reasons for compacting files of an append table."""


@dataclass(frozen=True)
class CompactionTask:
    """The compaction of one bucket as plain data, for this process or a Spark executor.

    `files`: the files to compact, oldest first. `others`: the remaining files of the bucket, if old rows are looked up or marked
    in them; `index_files`: the index files of the bucket. `memory`: bytes that the merge may use, None for the default. `state`:
    what to remember of the bucket after the compaction.

    `rewrite_all`: files are rewritten even if they need not be merged; `rewrite_marked`: only those with a deletion vector are.
    `one_by_one`: files are rewritten without being combined. `packs`: in append tables, groups of files that become one file;
    each file counts as a run there.

    For reports: `reason` and its `arithmetic`, the number of runs before and after, `bucket_size` and `oldest_size`: bytes of the
    bucket and of its oldest run.
    """

    partition: bytes
    bucket: int
    total_buckets: int
    files: tuple[DataFileMeta, ...]
    output_level: int
    max_level: int
    drop_deletes: bool
    reason: str
    arithmetic: str
    runs_before: int
    runs_after: int
    read_snapshot_id: int
    file_stamp: str = ""
    rewrite_all: bool = False
    others: tuple[DataFileMeta, ...] = ()
    index_files: tuple[IndexFileMeta, ...] = ()
    rewrite_marked: bool = False
    one_by_one: bool = False
    state: PickState = UNKNOWN
    memory: int | None = None
    bucket_size: int = 0
    oldest_size: int = 0
    packs: tuple[Pack, ...] = ()

    @property
    def bucket_id(self) -> BucketId:
        return BucketId(self.partition, self.bucket)

    @property
    def picked(self) -> BucketFiles:
        """The bucket with the files that the task reads."""
        return BucketFiles(self.partition, self.bucket, self.total_buckets, self.files, self.index_files)

    @property
    def marked(self) -> frozenset[str]:
        """Names of the data files that have a deletion vector."""
        return marked_files(self.index_files)

    @property
    def parts(self) -> list[CompactionTask]:
        """Tasks that can run in parallel: one for each pack of an append table."""
        return [
            replace(self, files=pack, packs=(pack,), others=(), index_files=_marking(self.index_files, pack))
            for pack in self.packs
        ] or [self]

    def with_memory(self, memory: int | None) -> CompactionTask:
        return self if memory is None else replace(self, memory=memory)

    @property
    def size(self) -> int:
        """The size of `files` in bytes."""
        return sum(file.file_size for file in self.files)


@dataclass(frozen=True)
class SkippedBucket:
    """A bucket that needs no compaction, and why. `runs`, `files`, `size` (bytes): of the whole bucket."""

    partition: bytes
    bucket: int
    runs: int
    reason: str
    state: PickState = UNKNOWN
    files: int = 0
    size: int = 0

    @property
    def bucket_id(self) -> BucketId:
        return BucketId(self.partition, self.bucket)

    @property
    def runs_before(self) -> int:
        return self.runs


@dataclass(frozen=True)
class PostponedRows:
    """The rows that wait in `bucket-postpone` of one partition, to be written into its buckets."""

    partition: bytes
    files: tuple[DataFileMeta, ...]
    state: PickState = UNKNOWN
    bucket: int = POSTPONE_BUCKET
    reason: str = "postponed rows get their buckets"

    @property
    def bucket_id(self) -> BucketId:
        return BucketId(self.partition, self.bucket)

    @property
    def runs_before(self) -> int:
        return len(self.files)

    @property
    def size(self) -> int:
        """Bytes to read."""
        return sum(file.file_size for file in self.files)


Decision = CompactionTask | PostponedRows | SkippedBucket


def check_compactable(context: TableContext) -> None:
    """Raise `NotSupported` for tables that this version cannot compact."""
    context.check(COMPACT)
    merge_engine(context.schema, context.options)


def why_not_compactable(context: TableContext) -> str | None:
    """Why this version cannot compact the table, so that writers leave compaction to other engines; None if it can."""
    try:
        check_compactable(context)
    except NotSupported as refusal:
        limits = context.mode.limits(COMPACT)
        return limits[0] if limits else str(refusal)
    return None


def plan_bucket(
    context: TableContext,
    bucket: BucketFiles,
    strategy: str,
    snapshot_id: int,
    file_stamp: str = "",
    state: PickState = UNKNOWN,
    forces_level_0: bool = True,
) -> Decision:
    """Plan the compaction of a bucket.

    `strategy`: `full` compacts all runs into the top level, `minor` applies the triggers of the table. `state`: from an earlier
    plan of this process, if there is one. `forces_level_0`: compact level 0 although no trigger fires, if the table asks for it.
    """
    with context.trace.timed("pick", bucket=context.bucket_path(bucket.partition, bucket.bucket), strategy=strategy) as facts:
        decision = _decide(context, bucket, strategy, snapshot_id, file_stamp, state, forces_level_0)
        facts |= {"runs": decision.runs_before, "picked": isinstance(decision, CompactionTask), "reason": decision.reason}
        if isinstance(decision, CompactionTask):
            facts |= {"arithmetic": decision.arithmetic, "level": decision.output_level, **file_facts("", decision.files)}
    return decision


def _decide(
    context: TableContext,
    bucket: BucketFiles,
    strategy: str,
    snapshot_id: int,
    file_stamp: str,
    state: PickState,
    forces_level_0: bool,
) -> Decision:
    if strategy not in (MINOR_STRATEGY, FULL_STRATEGY):
        raise UsageError(f"unknown compaction strategy {strategy}", f"choose {MINOR_STRATEGY} or {FULL_STRATEGY}")
    if bucket.bucket == POSTPONE_BUCKET:
        return PostponedRows(bucket.partition, bucket.files, state)
    if not context.mode.has_keys:
        return _decide_append(context, bucket, strategy == FULL_STRATEGY, snapshot_id, file_stamp)
    return _decide_levels(context, bucket, strategy == FULL_STRATEGY, snapshot_id, file_stamp, state, forces_level_0)


@dataclass(frozen=True)
class _Choice:
    """The pick among the runs of a bucket, or why there is none, and the state afterwards.

    `marked`: only these files of the picked run are compacted, one by one; empty for all.
    """

    pick: CompactionPick | None
    state: PickState
    why_not: str = ""
    marked: frozenset[str] = frozenset()


def _decide_levels(
    context: TableContext,
    bucket: BucketFiles,
    full: bool,
    snapshot_id: int,
    file_stamp: str,
    state: PickState,
    forces_level_0: bool,
) -> Decision:
    runs = sorted_runs(bucket.files, context.key_of)
    max_level = max(context.options.num_levels - 1, highest_level(bucket.files))
    state = _current_state(runs, max_level, state)
    if full:
        choice = _choose_all(context, bucket, runs, max_level, state)
    else:
        choice = _choose_by_triggers(context, runs, max_level, state, forces_level_0)
    size, pick = sum(run.size for run in runs), choice.pick
    if pick is None:
        why, count = choice.why_not, len(bucket.files)
        return SkippedBucket(bucket.partition, bucket.bucket, len(runs), why, choice.state, count, size)
    chosen = choice.marked or {file.file_name for run in runs[: pick.run_count] for file in run.files}
    looks_up = context.mode.looks_up_old_rows
    return CompactionTask(
        partition=bucket.partition,
        bucket=bucket.bucket,
        total_buckets=bucket.total_buckets,
        files=tuple(file for file in bucket.files if file.file_name in chosen),
        output_level=pick.output_level,
        max_level=max_level,
        drop_deletes=may_drop_deletes(
            pick.output_level, highest_level(bucket.files), marks_old_rows=context.mode.deletion_vectors
        ),
        reason=pick.reason,
        arithmetic=pick.arithmetic,
        runs_before=len(runs),
        runs_after=len(runs) - pick.run_count + 1,
        read_snapshot_id=snapshot_id,
        file_stamp=file_stamp,
        rewrite_all=_rewrites_all(context),
        others=tuple(file for file in bucket.files if file.file_name not in chosen) if looks_up else (),
        index_files=bucket.index_files if looks_up else (),
        rewrite_marked=full,
        one_by_one=bool(choice.marked),
        state=choice.state,
        bucket_size=size,
        oldest_size=runs[-1].size,
    )


def _rewrites_all(context: TableContext) -> bool:
    """Whether files are rewritten that could only change their level. Rows may have expired in any of them."""
    return context.options.force_rewrite_all_files or context.options.record_level_expire_time is not None


def _choose_all(context: TableContext, bucket: BucketFiles, runs: list[SortedRun], max_level: int, state: PickState) -> _Choice:
    """All runs; if there is only the top level, its files with deletion vectors."""
    after = PickState(context.clock.now_millis())
    pick = full_pick(runs, max_level, rewrite_all=_rewrites_all(context))
    if pick is not None:
        return _Choice(pick, after)
    marked = marked_files(bucket.index_files) if context.mode.deletion_vectors and runs else frozenset()
    if found := marked.intersection(file.file_name for run in runs[:1] for file in run.files):
        arithmetic = f"{counted(len(found), 'file')} of the top level with deletion vectors"
        return _Choice(CompactionPick(max_level, 1, FULL, arithmetic), after, marked=found)
    return _Choice(None, state, "one run, already at the top level" if runs else "no files")


def _choose_by_triggers(
    context: TableContext, runs: list[SortedRun], max_level: int, state: PickState, forces_level_0: bool
) -> _Choice:
    """The runs that the triggers of the table pick."""
    now, sizes = context.clock.now_millis(), run_sizes(runs)
    picker = CompactionPicker.of(context.options, max_level, local_hour(now))
    picker = picker if forces_level_0 else replace(picker, forced_every=None)
    pick, after = picker.pick(sizes, now, state)
    return _Choice(pick, after, picker.why_not(sizes, after) if pick is None else "")


def _decide_append(context: TableContext, bucket: BucketFiles, full: bool, snapshot_id: int, file_stamp: str) -> Decision:
    options, target = context.options, context.mode.target_file_size
    small_size = int(target * options.small_file_ratio)
    min_files = options.compaction_min_file_num
    marked = _files_to_clean(bucket, 0.0 if full else options.compaction_delete_ratio_threshold)
    picker = AppendPicker(target, small_size, min_files, options.split_open_file_cost, options.compaction_file_num_limit, marked)
    if context.mode.bucket_mode is BucketMode.UNAWARE:
        packs = picker.by_size(bucket.files, full=full)
        reason = f"fewer than {2 if full else min_files} files below {human_size(small_size)}"
    elif full:
        packs, reason = picker.whole_bucket(bucket.files), f"fewer than {MIN_FILES_FOR_FULL} small files, or more big ones"
    else:
        packs, reason = picker.neighbours(bucket.files), f"no {min_files} neighbours are small"
    files, size = tuple(file for pack in packs for file in pack), sum(file.file_size for file in bucket.files)
    picked = {file.file_name for file in files}
    if not packs:
        return SkippedBucket(bucket.partition, bucket.bucket, len(bucket.files), reason, files=len(bucket.files), size=size)
    return CompactionTask(
        partition=bucket.partition,
        bucket=bucket.bucket,
        total_buckets=bucket.total_buckets,
        files=files,
        output_level=0,
        max_level=0,
        drop_deletes=False,
        reason=FULL if full else SMALL_FILES if len(files) > len(marked) else MARKED_ROWS,
        arithmetic=f"{counted(len(files), 'file')} in {counted(len(packs), 'pack')}",
        runs_before=len(bucket.files),
        runs_after=len(bucket.files) - len(files) + len(packs),
        read_snapshot_id=snapshot_id,
        file_stamp=file_stamp,
        bucket_size=size,
        packs=tuple(packs),
        others=tuple(file for file in bucket.files if file.file_name not in picked) if bucket.index_files else (),
        index_files=bucket.index_files,
    )


def sort_bucket(bucket: BucketFiles, by: str, snapshot_id: int, file_stamp: str = "") -> CompactionTask:
    """The task that sorts all files of a partition of an append table. `by`: the order, for messages."""
    size = sum(file.file_size for file in bucket.files)
    return CompactionTask(
        partition=bucket.partition,
        bucket=bucket.bucket,
        total_buckets=bucket.total_buckets,
        files=bucket.files,
        output_level=0,
        max_level=0,
        drop_deletes=False,
        reason=SORTED,
        arithmetic=f"{counted(len(bucket.files), 'file')} by {by}",
        runs_before=len(bucket.files),
        runs_after=1,
        read_snapshot_id=snapshot_id,
        file_stamp=file_stamp,
        bucket_size=size,
        packs=(bucket.files,),
        index_files=bucket.index_files,
    )


def _files_to_clean(bucket: BucketFiles, ratio: float) -> frozenset[str]:
    """Names of the files in which deletion vectors mark more than this ratio of the rows."""
    rows = {file.file_name: file.row_count for file in bucket.files}
    vectors = (vector for index in bucket.index_files for vector in index.deletion_vector_ranges or ())
    return frozenset(
        vector.data_file_name
        for vector in vectors
        if vector.data_file_name in rows and (vector.cardinality or 1) > ratio * rows[vector.data_file_name]
    )


def task_steps(context: TableContext, task: CompactionTask) -> list[Step]:
    """The steps of the task, for carrying it out and for estimates: files to rewrite, and files that only change their level."""
    if task.packs:
        return [Rewrite(((SortedRun(0, pack),),)) for pack in task.packs]
    small_file_size = int(context.mode.target_file_size * context.options.small_file_ratio)
    if task.one_by_one:
        return steps_one_by_one(task.files)
    sections, marked = key_sections(task.files, context.key_of), task.marked if task.rewrite_marked else ()
    return compaction_steps(
        sections, task.output_level, task.max_level, small_file_size, rewrite_all=task.rewrite_all, marked=marked
    )


def _current_state(runs: list[SortedRun], max_level: int, state: PickState) -> PickState:
    """The state as far as files show it: the last full compaction may be newer than this process remembers."""
    top = (file.creation_time_millis for run in runs if run.level == max_level for file in run.files)
    times = [moment_of_wall_clock(millis) for millis in top if millis is not None]
    last_full = max([*times, *([] if state.last_full is None else [state.last_full])], default=None)
    # A process that does not remember earlier attempts counts the files of level 0 instead.
    return PickState(last_full, max(state.waits, sum(run.level == 0 for run in runs) - 1))


def _marking(index_files: Iterable[IndexFileMeta], files: Iterable[DataFileMeta]) -> tuple[IndexFileMeta, ...]:
    """The index files with a deletion vector of one of the files."""
    names = {file.file_name for file in files}
    return tuple(index for index in index_files if not names.isdisjoint(marked_files([index])))


def marked_files(index_files: Iterable[IndexFileMeta]) -> frozenset[str]:
    """Names of the data files whose deletion vectors these index files hold."""
    return frozenset(vector.data_file_name for index in index_files for vector in index.deletion_vector_ranges or ())
