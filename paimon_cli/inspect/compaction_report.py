"""What a compaction or a staged commit would do to each bucket and at what cost, and why a compaction skips other buckets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from paimon_cli.compact.compaction_task import (
    CompactionTask,
    Decision,
    PostponedRows,
    RegroupedPartition,
    SkippedBucket,
    task_steps,
)
from paimon_cli.errors import DamagedFile
from paimon_cli.history.partition_spec import partition_text
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.compaction_picker import Rewrite, Step
from paimon_cli.lsm.compaction_simulation import RunModel, merged_run
from paimon_cli.lsm.sorted_runs import SortedRun
from paimon_cli.metadata.table_layout import natural_order
from paimon_cli.storage.redaction import shown_name

LOOK_BACK = 20


@dataclass(frozen=True)
class DecisionRow:
    """The decision about one bucket. If it is skipped, `output_level` is None and `reason` says why.

    `read_bytes`: size of the rewritten files; `write_bytes`: an estimate (`lsm.merge_estimate`); `upgraded`: files that
    only change their level; `write_amplification`: bytes written per picked byte of level 0, None without level-0 files.
    `ranges`: how many ranges of keys are compacted one by one or at the same time, in `commits` snapshots. Space amplification is
    in percent.
    """

    partition: str
    bucket: int
    reason: str
    arithmetic: str | None
    runs_before: int
    runs_after: int
    picked_runs: int
    picked: str
    files: int
    files_after: int
    upgraded: int
    size: int | None
    read_bytes: int
    write_bytes: int
    write_amplification: float | None
    space_amplification_before: int | None
    space_amplification_after: int | None
    output_level: int | None
    ranges: int = 1
    commits: int = 1


@dataclass(frozen=True)
class Guards:
    """What may interfere with a compaction: whether writers compact too, and the users who compacted recently."""

    write_only: bool
    compactors: tuple[str, ...]


def decision_rows(context: TableContext, decisions: Iterable[Decision]) -> list[DecisionRow]:
    """The decisions by partition and bucket."""
    rows = (_row(context, partition_text(context, decision.partition), decision) for decision in decisions)
    return sorted(rows, key=lambda row: (natural_order(row.partition), row.bucket))


def guards(context: TableContext) -> Guards:
    """Find the users who compacted files in the newest snapshots, as far as these can be read."""
    damaged: list[DamagedFile] = []  # `health` reports them, and a plan does not depend on them
    newest = context.snapshots.newest_first(LOOK_BACK, on_damage=damaged.append)
    users = {shown_name(snapshot.commit_user) for snapshot in newest if context.manifests.compacted_files(snapshot)}
    return Guards(context.options.write_only, tuple(sorted(users)))


def _row(context: TableContext, partition: str, decision: Decision) -> DecisionRow:
    if isinstance(decision, SkippedBucket):
        return _skipped(partition, decision)
    if isinstance(decision, PostponedRows):
        return _distributed(context, partition, decision)
    if isinstance(decision, RegroupedPartition):
        return _regrouped(partition, decision)
    steps = task_steps(context, decision)
    rewrites = [step for step in steps if isinstance(step, Rewrite)]
    read, written = sum(f.file_size for step in rewrites for f in step.files), _written(context, decision, steps)
    new = sum(file.file_size for file in decision.files if file.level == 0)
    runs = len(decision.files) if decision.packs else decision.runs_before - decision.runs_after + 1
    level_0 = sum(file.level == 0 for file in decision.files)
    target = context.mode.target_file_size
    size_after = decision.bucket_size - read + sum(written)
    new_files = sum(max(1, -(-size // target)) for size in written)
    return DecisionRow(
        partition=partition,
        bucket=decision.bucket,
        reason=decision.reason,
        arithmetic=decision.arithmetic,
        runs_before=decision.runs_before,
        runs_after=decision.runs_after,
        picked_runs=runs,
        picked=f"{runs} ({'all' if decision.runs_after == 1 else 'L0' if level_0 == runs else 'newest'})",
        files=len(decision.files),
        files_after=new_files + len(steps) - len(rewrites),
        upgraded=len(steps) - len(rewrites),
        size=decision.size,
        read_bytes=read,
        write_bytes=sum(written),
        write_amplification=round(sum(written) / new, 2) if new else None,
        space_amplification_before=percent_above(decision.bucket_size, decision.oldest_size),
        space_amplification_after=0 if decision.runs_after == 1 else percent_above(size_after, decision.oldest_size),
        output_level=decision.output_level,
        ranges=decision.ranges,
        commits=decision.commits,
    )


def percent_above(total: int, oldest: int) -> int:
    """Space amplification in percent: bytes above the oldest run, relative to the oldest run."""
    return 100 * (total - oldest) // oldest if oldest else 0


def _skipped(partition: str, decision: SkippedBucket) -> DecisionRow:
    return DecisionRow(
        partition=partition,
        bucket=decision.bucket,
        reason=f"none: {decision.reason}",
        arithmetic=None,
        runs_before=decision.runs,
        runs_after=decision.runs,
        picked_runs=0,
        picked="-",
        files=0,
        files_after=0,
        upgraded=0,
        size=None,
        read_bytes=0,
        write_bytes=0,
        write_amplification=None,
        space_amplification_before=None,
        space_amplification_after=None,
        output_level=None,
        ranges=0,
        commits=0,
    )


def _regrouped(partition: str, decision: RegroupedPartition) -> DecisionRow:
    """All buckets of a partition as a decision about the first one. Runs that are merged on the way are not estimated."""
    skipped = _skipped(partition, SkippedBucket(decision.partition, decision.bucket, decision.runs_before, ""))
    files, size = len(decision.files), decision.size
    return replace(skipped, reason=decision.reason, files=files, size=size, read_bytes=size, write_bytes=size)


def _distributed(context: TableContext, partition: str, decision: PostponedRows) -> DecisionRow:
    """Postponed rows as a decision. Compactions in the buckets that receive them are not estimated."""
    files = len(decision.files)
    return replace(
        _skipped(partition, SkippedBucket(decision.partition, decision.bucket, files, "")),
        reason=decision.reason,
        runs_after=0,
        picked_runs=files,
        picked=f"{files} (all)",
        files=files,
        files_after=max(1, -(-decision.size // context.mode.target_file_size)),
        size=decision.size,
        read_bytes=decision.size,
        write_bytes=decision.size,
        output_level=0,
        ranges=1,
        commits=1,
    )


def _written(context: TableContext, task: CompactionTask, steps: Iterable[Step]) -> list[int]:
    """Estimated bytes of each rewrite."""
    return [
        sum(_section_bytes(context, task, section) for section in step.sections) for step in steps if isinstance(step, Rewrite)
    ]


def _section_bytes(context: TableContext, task: CompactionTask, section: tuple[SortedRun, ...]) -> int:
    models = [
        RunModel(run.row_count, run.size, context.key_of(run.files[0].min_key), context.key_of(run.files[-1].max_key))
        for run in section
    ]
    return merged_run(models, task.total_buckets).size
