"""Universal and leveled compaction of one table, compared on its own commits, and what a look-up of one key costs there."""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from paimon_cli.errors import UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.table_state import BucketFiles, bucket_files
from paimon_cli.lsm.compaction_simulation import (
    RunModel,
    SimulatedCommit,
    SimulatedWorkload,
    SimulationResult,
    merged_run,
    simulate,
)
from paimon_cli.lsm.leveled_compaction import FANOUT, simulate_leveled
from paimon_cli.lsm.sorted_runs import sorted_runs
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.storage.clock_and_names import local_hour
from paimon_cli.table.compaction_scenarios import history_workload, run_model
from paimon_cli.table.lsm_report import LsmRow, lsm_rows
from paimon_cli.table.partition_text import partition_text

UNIVERSAL, LEVELED = "universal", "leveled"
HISTORY, RUNS = "history", "runs"


@dataclass(frozen=True)
class StrategyRow:
    """What one strategy makes of the commits; `rewritten_bytes`: by its compactions, `most_runs`: a reader ever had to merge."""

    strategy: str
    write_amplification: float
    read_amplification: float
    most_runs: int
    space_amplification: float
    compactions: int
    rewritten_bytes: int


@dataclass(frozen=True)
class LookupCost:
    """One key in the biggest bucket: `files_read` at most, one a run whose range holds the key; `comparisons` of a binary search
    in the first and last keys of each run's files, against `keys` without any order."""

    partition: str
    bucket: int
    runs: int
    files: int
    keys: int
    files_read: int
    comparisons: int


@dataclass(frozen=True)
class LsmExplanation:
    """`replayed`: the commits of the history, or, where none are left, the runs of today as if each were a commit.

    `level_1_bytes`, `levels`: the leveled tree's first limit, and how many levels the biggest bucket needs. `next_compaction`:
    what universal compaction does in the biggest bucket now, `next_rewrites` the bytes that it reads for that.
    """

    snapshot_id: int
    replayed: str
    commits: int
    buckets: int
    average_flush_bytes: int
    biggest_bucket_bytes: int
    trigger: int
    fanout: int
    level_1_bytes: int
    levels: int
    strategies: list[StrategyRow]
    next_compaction: str
    next_rewrites: int
    next_rewrites_leveled: int
    lookup: LookupCost


def explain_lsm(context: TableContext, snapshot: Snapshot | None) -> LsmExplanation:
    """UsageError for tables without a primary key, or without files."""
    rows = lsm_rows(context, snapshot)
    if snapshot is None or not rows:
        raise UsageError("the table has no files", "there is nothing to explain yet", "write to it first")
    states = {(partition_text(context, s.partition), s.bucket): s for s in bucket_files(context, snapshot).values()}
    biggest = max(rows, key=lambda row: sum(run.size for run in row.runs))
    workload, replayed = _workload(context, states)
    flushes = [run.size for commit in workload.commits for runs in commit.flushed.values() for run in runs]
    average = sum(flushes) // max(1, len(flushes))
    trigger = context.options.compaction_trigger
    level_1, size = max(1, trigger * average), sum(run.size for run in biggest.runs)
    return LsmExplanation(
        snapshot_id=snapshot.id,
        replayed=replayed,
        commits=len(workload.commits),
        buckets=len(rows),
        average_flush_bytes=average,
        biggest_bucket_bytes=size,
        trigger=trigger,
        fanout=FANOUT,
        level_1_bytes=level_1,
        levels=1 + max(0, math.ceil(math.log(max(1, size / level_1), FANOUT))),
        strategies=[
            _row(UNIVERSAL, simulate(workload, context.options, local_hour)),
            _row(LEVELED, simulate_leveled(workload, trigger, level_1)),
        ],
        next_compaction=biggest.would_compact if biggest.output_level is not None else f"none: {biggest.would_compact}",
        next_rewrites=sum(run.size for run in biggest.runs if run.picked),
        next_rewrites_leveled=_leveled_rewrite(biggest, trigger, level_1),
        lookup=_lookup(biggest),
    )


def _workload(context: TableContext, states: Mapping[tuple[str, int], BucketFiles]) -> tuple[SimulatedWorkload[RunModel], str]:
    history = history_workload(context)
    if any(commit.flushed for commit in history.commits):
        return history, HISTORY
    commits: list[SimulatedCommit[RunModel]] = []
    for place, state in states.items():
        for run in reversed(sorted_runs(state.files, context.key_of)):
            flushed: dict[Hashable, list[RunModel]] = {place: [run_model(context, run.files)]}
            commits.append(SimulatedCommit[RunModel](0, flushed))
    total = max(state.total_buckets for state in states.values())
    return SimulatedWorkload(commits, functools.partial(merged_run, buckets=total)), RUNS


def _leveled_rewrite(bucket: LsmRow, trigger: int, level_1: int) -> int:
    """Level 0 with the share of level 1, once level 0 is full; the newest runs stand for level 0."""
    level_0 = [run for run in bucket.runs if run.level == 0]
    if len(level_0) < trigger:
        return 0
    rest = sum(run.size for run in bucket.runs if run.level)
    return sum(run.size for run in level_0) + min(rest, level_1)


def _row(strategy: str, result: SimulationResult) -> StrategyRow:
    return StrategyRow(
        strategy,
        result.write_amplification,
        result.read_amplification,
        result.most_runs,
        result.space_amplification,
        result.compactions,
        result.compacted_bytes,
    )


def _lookup(bucket: LsmRow) -> LookupCost:
    return LookupCost(
        partition=bucket.partition,
        bucket=bucket.bucket,
        runs=len(bucket.runs),
        files=sum(run.files for run in bucket.runs),
        keys=sum(run.rows for run in bucket.runs),
        files_read=max(run.overlap for run in bucket.runs),
        comparisons=sum(math.ceil(math.log2(run.files + 1)) for run in bucket.runs),
    )
