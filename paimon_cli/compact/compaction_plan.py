"""Plans the compaction of a bucket: which files to merge, into which level, and why."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from paimon_cli.compact.compaction_task import CompactionTask, Decision, PostponedRows, SkippedBucket, marked_files
from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.append_compaction import MIN_FILES_FOR_FULL, AppendPicker
from paimon_cli.lsm.compaction_picker import NEVER_PICKED, CompactionPicker, PickState, full_pick, may_drop_deletes
from paimon_cli.lsm.merge_engine import merge_engine
from paimon_cli.lsm.rent_or_buy import MergeChoice
from paimon_cli.lsm.sorted_runs import SortedRun, highest_level, sorted_runs
from paimon_cli.lsm.universal_compaction import FULL, CompactionPick, run_sizes
from paimon_cli.metadata.data_file import file_facts
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.options.option_catalog import Operation
from paimon_cli.options.option_text import counted, human_size
from paimon_cli.storage.injected import local_hour, moment_of_wall_clock

MINOR_STRATEGY: Final = "minor"
FULL_STRATEGY: Final = "full"
_SMALL_FILES = "small files"
MARKED_ROWS = "deleted rows"
SORTED = "sort"
BY_GOAL: Final = "goal"
"""Reasons for compacting files of an append table."""


def check_compactable(context: TableContext) -> None:
    """Raise `NotSupported` for tables that this version cannot compact."""
    context.check(Operation.COMPACT)
    merge_engine(context.schema, context.options)


def why_not_compactable(context: TableContext) -> str | None:
    """Why this version cannot compact the table, so that writers leave compaction to other engines; None if it can."""
    try:
        check_compactable(context)
    except NotSupported as refusal:
        limits = context.mode.limits(Operation.COMPACT)
        return limits[0] if limits else str(refusal)
    return None


def plan_bucket(
    context: TableContext,
    bucket: BucketFiles,
    strategy: str | MergeChoice,
    snapshot_id: int,
    file_stamp: str = "",
    state: PickState = NEVER_PICKED,
    forces_level_0: bool = True,
) -> Decision:
    """Plan the compaction of a bucket.

    `strategy`: `full` compacts all runs into the top level, `minor` applies the triggers of the table; a choice is carried out in
    their place, and level 0 is forced as before. `state`: from an earlier
    plan of this process, if there is one. `forces_level_0`: compact level 0 although no trigger fires, if the table asks for it.
    """
    name = strategy if isinstance(strategy, str) else BY_GOAL
    with context.trace.timed("pick", bucket=context.bucket_path(bucket.partition, bucket.bucket), strategy=name) as facts:
        decision = _decide(context, bucket, strategy, snapshot_id, file_stamp, state, forces_level_0)
        facts |= {"runs": decision.runs_before, "picked": isinstance(decision, CompactionTask), "reason": decision.reason}
        if isinstance(decision, CompactionTask):
            facts |= {"arithmetic": decision.arithmetic, "level": decision.output_level, **file_facts("", decision.files)}
    return decision


def _decide(
    context: TableContext,
    bucket: BucketFiles,
    strategy: str | MergeChoice,
    snapshot_id: int,
    file_stamp: str,
    state: PickState,
    forces_level_0: bool,
) -> Decision:
    if isinstance(strategy, str) and strategy not in (MINOR_STRATEGY, FULL_STRATEGY):
        raise UsageError(f"unknown compaction strategy {strategy}", f"choose {MINOR_STRATEGY} or {FULL_STRATEGY}")
    if bucket.bucket == POSTPONE_BUCKET:
        return PostponedRows(*bucket.bucket_id, bucket.files, state)
    if not context.mode.has_keys:
        return _decide_append(context, bucket, strategy == FULL_STRATEGY, snapshot_id, file_stamp)
    return _decide_levels(context, bucket, strategy, snapshot_id, file_stamp, state, forces_level_0)


@dataclass(frozen=True)
class _Choice:
    """The pick among the runs of a bucket, or why there is none, and the state afterwards.

    `marked`: only these files of the picked run are compacted, one by one; empty for all. `score`, `cost`: of `MergeChoice`.
    `level_0_size`, `level_0_alone`, `deeper_score`: of `CompactionTask`.
    """

    pick: CompactionPick | None
    state: PickState
    why_not: str = ""
    marked: frozenset[str] = frozenset()
    score: float | None = None
    cost: int | None = None
    level_0_size: int = 0
    level_0_alone: _Choice | None = None
    deeper_score: float = 0.0


def _decide_levels(
    context: TableContext,
    bucket: BucketFiles,
    strategy: str | MergeChoice,
    snapshot_id: int,
    file_stamp: str,
    state: PickState,
    forces_level_0: bool,
) -> Decision:
    runs = sorted_runs(bucket.files, context.key_of)
    max_level = max(context.options.num_levels - 1, highest_level(bucket.files))
    state = _current_state(runs, max_level, state)
    full = strategy == FULL_STRATEGY
    if full:
        choice = _choose_all(context, bucket, runs, max_level, state)
    elif isinstance(strategy, MergeChoice):
        choice = _choose_by_goal(context, runs, max_level, state, strategy)
    else:
        choice = _choose_by_triggers(context, runs, max_level, state, forces_level_0)
    size, pick = sum(run.size for run in runs), choice.pick
    if pick is None:
        why, count = choice.why_not, len(bucket.files)
        return SkippedBucket(bucket.partition, bucket.bucket, len(runs), why, choice.state, count, size, score=choice.score)
    task = _task(context, bucket, runs, pick, choice, snapshot_id, file_stamp)
    task = replace(task, rewrite_marked=full)
    alone = choice.level_0_alone
    if alone is None or alone.pick is None:
        return task
    return replace(task, level_0_alone=_task(context, bucket, runs, alone.pick, alone, snapshot_id, file_stamp))


def _task(
    context: TableContext,
    bucket: BucketFiles,
    runs: list[SortedRun],
    pick: CompactionPick,
    choice: _Choice,
    snapshot_id: int,
    file_stamp: str,
) -> CompactionTask:
    """The task that carries out the pick of a choice."""
    max_level = max(context.options.num_levels - 1, highest_level(bucket.files))
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
        one_by_one=bool(choice.marked),
        state=choice.state,
        bucket_size=sum(run.size for run in runs),
        oldest_size=runs[-1].size,
        score=choice.score,
        cost=choice.cost,
        level_0_size=choice.level_0_size,
        deeper_score=choice.deeper_score,
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


def _choose_by_goal(
    context: TableContext, runs: list[SortedRun], max_level: int, state: PickState, choice: MergeChoice
) -> _Choice:
    """The merge that a goal has chosen. Else level 0 where the table forces it, without the triggers: readers wait for it.

    Each merge takes all of level 0. So one that is chosen where level 0 is forced must be made, too, unless it goes deeper than
    the budget affords, now or when it is divided: then level 0 alone.
    """
    now = context.clock.now_millis()
    picker = CompactionPicker.of(context.options, max_level, local_hour(now))
    forced, after = picker.forcing_only(len(runs)).pick(run_sizes(runs), now, state)
    if forced is None:
        alone = _Choice(None, after, choice.why, score=choice.score)
    else:
        size = sum(run.size for run in runs[: forced.run_count])
        alone = _Choice(forced, after, choice.why, score=math.inf, level_0_size=size)
    if choice.pick is None or (forced is not None and not choice.is_affordable):
        return alone
    after = replace(state, waits=0) if choice.pick.run_count < len(runs) else PickState(now)
    found = _Choice(choice.pick, after, score=choice.score if forced is None else math.inf, cost=choice.cost)
    if forced is None or choice.cost is None:
        return found
    least = min(choice.cost, alone.level_0_size)
    deeper = alone if least < choice.cost and forced.run_count < choice.pick.run_count else None
    return replace(found, level_0_size=least, level_0_alone=deeper, deeper_score=choice.score)


def _decide_append(context: TableContext, bucket: BucketFiles, full: bool, snapshot_id: int, file_stamp: str) -> Decision:
    options, target = context.options, context.mode.target_file_size
    small_size = int(target * options.small_file_ratio)
    min_files = options.compaction_min_file_num
    marked = _files_to_clean(bucket, 0.0 if full else options.compaction_delete_ratio_threshold)
    picker = AppendPicker(target, small_size, min_files, options.split_open_file_cost, options.compaction_file_num_limit, marked)
    if not context.mode.bucket_mode.has_buckets:
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
        reason=FULL if full else _SMALL_FILES if len(files) > len(marked) else MARKED_ROWS,
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


def _current_state(runs: list[SortedRun], max_level: int, state: PickState) -> PickState:
    """The state as far as files show it: the last full compaction may be newer than this process remembers."""
    top = (file.creation_time_millis for run in runs if run.level == max_level for file in run.files)
    times = [moment_of_wall_clock(millis) for millis in top if millis is not None]
    last_full = max([*times, *([] if state.last_full is None else [state.last_full])], default=None)
    # A process that does not remember earlier attempts counts the files of level 0 instead.
    return PickState(last_full, max(state.waits, sum(run.level == 0 for run in runs) - 1))
