"""Simulates what a table's own history, or a synthetic workload, costs with other compaction options or strategies."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from paimon_cli.catalog.option_values import refuse_unknown
from paimon_cli.errors import UsageError
from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.history.partition_spec import partition_text
from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.lsm_report import LsmRow, lsm_rows
from paimon_cli.inspect.replayed_commits import file_overhead, history_workload, run_model
from paimon_cli.lsm.compaction_simulation import (
    OnCommit,
    RunModel,
    SimulatedCommit,
    SimulatedWorkload,
    SimulationResult,
    WorkloadShape,
    merged_run,
    simulate,
)
from paimon_cli.lsm.leveled_compaction import FANOUT, simulate_leveled
from paimon_cli.lsm.simulated_bucket import Figures
from paimon_cli.lsm.sorted_runs import sorted_runs
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.options.table_options import TableOptions
from paimon_cli.storage.injected import local_hour

AS_IS = "as is"
COMPARED: Sequence[tuple[str, str]] = (
    ("num-sorted-run.compaction-trigger", "3"),
    ("num-sorted-run.compaction-trigger", "10"),
    ("compaction.size-ratio", "50"),
    ("compaction.max-size-amplification-percent", "50"),
    ("compaction.max-size-amplification-percent", "800"),
)
"""Variants of a comparison, each tried separately."""


@dataclass(frozen=True)
class ScenarioRow:
    """A set of options and the figures of its `SimulationResult`."""

    scenario: str
    options: Mapping[str, str]
    commits: int
    compactions: int
    full_compactions: int
    flushed_bytes: int
    compacted_bytes: int
    write_amplification: float
    read_amplification: float
    most_runs: int
    space_amplification: float
    space_amplification_at_end: float
    stalls: int
    reasons: Mapping[str, int]


def scenarios(
    workload: SimulatedWorkload[Any],
    options: TableOptions,
    changed: Mapping[str, str],
    compare: bool,
    rounds_every: int,
    on_scenario: Callable[[int, int], OnCommit] | None = None,
) -> list[ScenarioRow]:
    """Simulate the options as they are, with `changed`, and (if `compare`) with each of `COMPARED` on top, without duplicates.

    `rounds_every`: a compaction round after this many commits. `on_scenario`: called with the number of the scenario and
    the total; returns the callback for its commits.
    """
    refuse_unknown(changed)
    variants: list[dict[str, str]] = [{}, dict(changed)]
    if compare:
        variants += [{**changed, key: value} for key, value in COMPARED]
    distinct = [variant for number, variant in enumerate(variants) if variant not in variants[:number]]
    rows = []
    for number, variant in enumerate(distinct, start=1):
        on_commit = None if on_scenario is None else on_scenario(number, len(distinct))
        rows.append(scenario_row(workload, options, variant, rounds_every, on_commit))
    return rows


def scenario_row(
    workload: SimulatedWorkload[Figures],
    options: TableOptions,
    changed: Mapping[str, str],
    rounds_every: int = 1,
    on_commit: OnCommit | None = None,
    counted_from: int = 0,
) -> ScenarioRow:
    """Simulate the options with `changed`; see `simulate`."""
    result = simulate(workload, options.with_overrides(changed), local_hour, rounds_every, on_commit, counted_from)
    name = ", ".join(f"{key}={value}" for key, value in changed.items()) or AS_IS
    figures = {field.name: getattr(result, field.name) for field in fields(SimulationResult)}
    return ScenarioRow(scenario=name, options=dict(changed), **figures)


def workload_shape(document: Mapping[str, Any]) -> WorkloadShape:
    """The workload that a JSON object describes. Raises `UsageError` for unknown names and values out of range."""
    known = {field.name: type(field.default) for field in fields(WorkloadShape)}
    for name, value in document.items():
        if name not in known:
            raise UsageError(f"a workload has no '{name}'", f"it has {', '.join(known)}")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or (known[name] is int and not isinstance(value, int)):
            raise UsageError(f"{name} of a workload cannot be {value!r}", f"it must be a {known[name].__name__}")
    shape = WorkloadShape(**document)
    if min(shape.commits, shape.rows, shape.row_bytes, shape.buckets) < 1 or shape.skew < 0 or not 0 <= shape.update_ratio <= 1:
        why = "commits, rows, row_bytes and buckets must be at least 1, skew at least 0, update_ratio from 0 to 1"
        raise UsageError("the workload is invalid", why)
    if shape.commits * shape.rows > 10**8:
        raise UsageError("the workload is too large to simulate", "commits * rows must be at most 100 million")
    return shape


UNIVERSAL, LEVELED = "universal", "leveled"
_HISTORY, _RUNS = "history", "runs"


@dataclass(frozen=True)
class StrategyRow:
    """The result of one strategy. `rewritten_bytes`: by compactions; `most_runs`: the most runs that a read would merge."""

    strategy: str
    write_amplification: float
    read_amplification: float
    most_runs: int
    space_amplification: float
    compactions: int
    rewritten_bytes: int


@dataclass(frozen=True)
class LookupCost:
    """The cost of finding one key in the largest bucket. `files_read`: at most one file per run whose range includes the key.

    `comparisons`: of a binary search in the key ranges of each run's files, as opposed to `keys` comparisons without an order.
    """

    partition: str
    bucket: int
    runs: int
    files: int
    keys: int
    files_read: int
    comparisons: int


@dataclass(frozen=True)
class LsmExplanation:
    """A comparison of universal and leveled compaction.

    `replayed`: `history`, or `runs` if the history has no commits left and each current run is replayed as a commit.
    `level_1_bytes`, `levels`: the size limit of level 1 in the leveled tree, and the levels that the largest bucket needs.
    `next_compaction`: what universal compaction would do in the largest bucket now; `next_rewrites`: the bytes it would read.
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
    """Compare the strategies. Raises `UsageError` for tables without a primary key, files or sorted runs."""
    rows = lsm_rows(context, snapshot)
    if snapshot is None or not rows:
        raise UsageError("the table has no files", "there is nothing to explain yet", "write to it first")
    rows = [row for row in rows if row.runs]
    if not rows:
        why = "its rows are not in buckets yet"
        raise UsageError("the table has no sorted runs", why, f"paimon-cli compact {context.layout.argument}")
    states = {(partition_text(context, s.partition), s.bucket): s for s in bucket_files(context, snapshot).values()}
    largest = max(rows, key=lambda row: sum(run.size for run in row.runs))
    workload, replayed = _workload(context, states)
    flushes = [run.size for commit in workload.commits for runs in commit.flushed.values() for run in runs]
    average = sum(flushes) // max(1, len(flushes))
    trigger = context.options.compaction_trigger
    level_1, size = max(1, trigger * average), sum(run.size for run in largest.runs)
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
            _strategy_row(UNIVERSAL, simulate(workload, context.options, local_hour)),
            _strategy_row(LEVELED, simulate_leveled(workload, trigger, level_1)),
        ],
        next_compaction=largest.would_compact if largest.output_level is not None else f"none: {largest.would_compact}",
        next_rewrites=sum(run.size for run in largest.runs if run.picked),
        next_rewrites_leveled=_leveled_rewrite(largest, trigger, level_1),
        lookup=_lookup(largest),
    )


def _workload(context: TableContext, states: Mapping[tuple[str, int], BucketFiles]) -> tuple[SimulatedWorkload[RunModel], str]:
    history = history_workload(context)
    if any(commit.flushed for commit in history.commits):
        return history, _HISTORY
    commits: list[SimulatedCommit[RunModel]] = []
    for bucket_id, state in states.items():
        for run in reversed(sorted_runs(state.files, context.key_of)):
            flushed: dict[Hashable, list[RunModel]] = {bucket_id: [run_model(context, run.files)]}
            commits.append(SimulatedCommit[RunModel](0, flushed))
    total = max(state.total_buckets for state in states.values())
    overhead = file_overhead([(file.row_count, file.file_size) for state in states.values() for file in state.files])
    return SimulatedWorkload(commits, functools.partial(merged_run, buckets=total, overhead=overhead)), _RUNS


def _leveled_rewrite(bucket: LsmRow, trigger: int, level_1: int) -> int:
    """The bytes that leveled compaction would rewrite now: level 0, once it is full, and the level-1 files that overlap it."""
    level_0 = [run for run in bucket.runs if run.level == 0]
    if len(level_0) < trigger:
        return 0
    rest = sum(run.size for run in bucket.runs if run.level)
    return sum(run.size for run in level_0) + min(rest, level_1)


def _strategy_row(strategy: str, result: SimulationResult) -> StrategyRow:
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
