"""Which buckets to compact and how: bucket files -> compaction tasks, or the reason why a bucket is left alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.table_state import BucketFiles
from paimon_cli.lsm.compaction_steps import may_drop_deletes
from paimon_cli.lsm.merge_engine import merge_engine
from paimon_cli.lsm.sorted_run import SortedRun, highest_level, sorted_runs
from paimon_cli.lsm.universal_compaction import FULL, CompactionPick, UniversalCompaction, run_sizes
from paimon_cli.metadata.data_file import DataFileMeta

MINOR_STRATEGY, FULL_STRATEGY = "minor", "full"


@dataclass(frozen=True)
class CompactionTask:
    """One bucket's compaction as plain data, for this process or a Spark executor."""

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

    @property
    def size(self) -> int:
        """Bytes to read at most."""
        return sum(file.file_size for file in self.files)


@dataclass(frozen=True)
class LeftAlone:
    """A bucket that needs no compaction, and why."""

    partition: bytes
    bucket: int
    runs: int
    reason: str


def check_compactable(context: TableContext) -> None:
    """Raise for tables whose compaction must do more than merge."""
    options = context.options
    if not context.schema.primary_keys:
        raise NotSupported("compaction of a table without a primary key", "this version compacts primary-key tables only")
    if options.deletion_vectors_enabled:
        raise NotSupported(
            "compaction with deletion-vectors.enabled", "this version reads deletion vectors, it does not write them"
        )
    if options.changelog_producer in ("lookup", "full-compaction"):
        raise NotSupported(
            f"compaction with changelog-producer={options.changelog_producer}", "it would have to write changelog files"
        )
    merge_engine(options)


def plan_bucket(
    context: TableContext, bucket: BucketFiles, strategy: str, snapshot_id: int, file_stamp: str = ""
) -> CompactionTask | LeftAlone:
    """Pick by the strategy: `full` takes every run to the top level, `minor` asks the universal compaction's triggers."""
    if strategy not in (MINOR_STRATEGY, FULL_STRATEGY):
        raise UsageError(f"unknown compaction strategy {strategy}", f"it is {MINOR_STRATEGY} or {FULL_STRATEGY}")
    runs = sorted_runs(bucket.files, context.key_of)
    max_level = max(context.options.num_levels - 1, highest_level(bucket.files))
    pick = _full_pick(runs, max_level) if strategy == FULL_STRATEGY else _minor_pick(context, runs, max_level)
    if pick is None:
        return LeftAlone(bucket.partition, bucket.bucket, len(runs), _why_not(runs, strategy, context.options.compaction_trigger))
    picked = tuple(file for run in runs[: pick.run_count] for file in run.files)
    if len(picked) == 1 and picked[0].level == pick.output_level:
        return LeftAlone(bucket.partition, bucket.bucket, len(runs), f"one file, at level {pick.output_level} already")
    return CompactionTask(
        partition=bucket.partition,
        bucket=bucket.bucket,
        total_buckets=bucket.total_buckets,
        files=picked,
        output_level=pick.output_level,
        max_level=max_level,
        drop_deletes=may_drop_deletes(pick.output_level, highest_level(bucket.files)),
        reason=pick.reason,
        arithmetic=pick.arithmetic,
        runs_before=len(runs),
        runs_after=len(runs) - pick.run_count + 1,
        read_snapshot_id=snapshot_id,
        file_stamp=file_stamp,
    )


def _full_pick(runs: list[SortedRun], max_level: int) -> CompactionPick | None:
    if not runs or (len(runs) == 1 and runs[0].level == max_level):
        return None
    return CompactionPick(max_level, len(runs), FULL, "every run was asked for")


def _minor_pick(context: TableContext, runs: list[SortedRun], max_level: int) -> CompactionPick | None:
    options = context.options
    strategy = UniversalCompaction(
        max_level=max_level,
        run_trigger=options.compaction_trigger,
        max_size_amplification_percent=options.max_size_amplification_percent,
        size_ratio=options.size_ratio,
        optimization_interval=options.optimization_interval,
        total_size_threshold=options.total_size_threshold,
        incremental_size_threshold=options.incremental_size_threshold,
    )
    top = [file.creation_time_millis or 0 for run in runs if run.level == max_level for file in run.files]
    return strategy.pick(run_sizes(runs), context.clock.now_millis(), max(top, default=None))


def _why_not(runs: list[SortedRun], strategy: str, trigger: int) -> str:
    if not runs:
        return "no files"
    if strategy == FULL_STRATEGY:
        return "one run, at the top level already"
    if len(runs) < trigger:
        return f"{len(runs)} runs < trigger {trigger}"
    return "no trigger fires"


def tasks_of(plans: Iterable[CompactionTask | LeftAlone]) -> list[CompactionTask]:
    """The biggest first, so that the longest task does not start last."""
    return sorted((plan for plan in plans if isinstance(plan, CompactionTask)), key=lambda task: -task.size)
