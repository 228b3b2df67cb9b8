"""Simulated buckets: figures worked out by hand, and the effects that options promise."""

from __future__ import annotations

import functools
from collections.abc import Hashable
from typing import Any

import numpy as np
import pytest

from paimon_cli.lsm.compaction_simulation import (
    KeySetRun,
    RunModel,
    SimulatedCommit,
    SimulatedWorkload,
    SimulationResult,
    WorkloadShape,
    merged_keys,
    merged_run,
    simulate,
    synthetic_workload,
)
from paimon_cli.lsm.simulated_bucket import Rolling, SimulatedRun, compacted
from paimon_cli.options.table_options import TableOptions

one_bucket = functools.partial(merged_run, buckets=1)


def simulated(shape: WorkloadShape, options: dict[str, str] | None = None, every: int = 1) -> SimulationResult:
    return simulate(synthetic_workload(shape), TableOptions(options or {}), lambda millis: 0, every)


def test_counted_by_hand() -> None:
    """Five equal runs of the same 10 keys: the fifth commit compacts all into one, and so does every fourth from then on."""
    shape = WorkloadShape(commits=13, rows=10, row_bytes=7, update_ratio=1.0, seed=3)
    same = synthetic_workload(shape).commits[0].flushed[0]
    commits = [SimulatedCommit[KeySetRun](n, {0: same}) for n in range(13)]
    result = simulate(SimulatedWorkload(commits, merged_keys), TableOptions({}), lambda millis: 0)
    assert (result.flushed_bytes, result.compacted_bytes) == (13 * 70, 3 * 70)
    assert (result.compactions, result.full_compactions, result.reasons) == (3, 3, {"size-amplification": 3})
    assert result.most_runs == 4 and result.stalls == 0
    assert result.read_amplification == round((3 * (1 + 2 + 3 + 4) + 1) / 13, 2), "the fifth run is gone when readers look"
    assert (result.write_amplification, result.space_amplification_at_end) == (round(16 / 13, 2), 1.0)


FILES = {"target-file-size": "100 b", "compaction.small-file-ratio": "0.5"}
"""Files of 100 bytes; those of 50 bytes and more need not be rewritten with their neighbours."""


def flushes(*ranges: tuple[int, int]) -> list[SimulatedCommit[KeySetRun]]:
    """Commits of 10 bytes for each key, from the first to the last."""
    return [SimulatedCommit(n, {0: [KeySetRun(np.arange(low, high + 1), 10)]}) for n, (low, high) in enumerate(ranges)]


def test_large_files_that_overlap_nothing_are_not_rewritten() -> None:
    """Ten keys a commit, each greater than the last: compactions change levels, and write nothing."""
    commits = flushes(*((10 * n, 10 * n + 9) for n in range(20)))
    upgraded = simulate(SimulatedWorkload(commits, merged_keys), TableOptions(FILES), lambda _: 0)
    assert upgraded.compactions and (upgraded.compacted_bytes, upgraded.write_amplification) == (0, 1.0)
    rewritten = simulate(
        SimulatedWorkload(commits, merged_keys),
        TableOptions({**FILES, "compaction.force-rewrite-all-files": "true"}),
        lambda _: 0,
    )
    small = simulate(SimulatedWorkload(commits, merged_keys), TableOptions({}), lambda _: 0)
    assert rewritten.compacted_bytes and small.compacted_bytes


def test_only_the_files_that_overlap_are_rewritten() -> None:
    """Forty keys in four files at the top; four commits touch the third file, and the fifth run compacts them all."""
    begin: dict[Hashable, Any] = {0: [(5, KeySetRun(np.arange(40), 10))]}
    options = TableOptions({**FILES, "compaction.max-size-amplification-percent": "0"})
    result = simulate(SimulatedWorkload(flushes(*[(22, 25)] * 4), merged_keys, begin), options, lambda _: 0)
    assert (result.full_compactions, result.compacted_bytes) == (1, 100)
    models: dict[Hashable, Any] = {0: [(5, RunModel(40, 400, (0,), (39,)))]}
    commits = [SimulatedCommit[RunModel](n, {0: [RunModel(4, 40, (22,), (25,))]}) for n in range(4)]
    assert simulate(SimulatedWorkload(commits, one_bucket, models), options, lambda _: 0).compacted_bytes == 100


def test_files_with_deletes_are_rewritten_at_the_top_only() -> None:
    """Two runs that overlap nothing become one, first above the top level, then at it."""
    runs = [SimulatedRun(0, (RunModel(10, 100, (10 * n,), (10 * n + 9,), has_deletes=True),)) for n in range(2)]
    rolling = Rolling(100, 50)
    middle = compacted(runs, 4, 5, one_bucket, rolling)
    top = compacted([middle.run], 5, 5, one_bucket, rolling, now=9)
    assert (middle.read, middle.written, top.read, top.written) == (0, 0, 200, 200)
    assert (middle.run.level, top.run.level, len(top.run.files)) == (4, 5, 2)
    assert (middle.run.created, top.run.created) == (0, 9), "an upgrade keeps the time of its files"
    assert compacted([top.run], 5, 5, one_bucket, rolling).written == 0


def test_a_run_is_divided_where_its_keys_are_whole_numbers() -> None:
    parts = RunModel(10, 95, (0,), (99,)).parts(40)
    assert [(part.low, part.high) for part in parts] == [((0,), (32,)), ((33,), (65,)), ((66,), (99,))]
    assert (sum(part.rows for part in parts), sum(part.size for part in parts)) == (10, 95)
    assert parts[0].joined(parts[1:]) == RunModel(10, 95, (0,), (99,))
    assert len(RunModel(10, 95, ("a",), ("z",)).parts(40)) == 1


def test_a_run_that_claims_any_size_is_divided_into_few_files() -> None:
    parts = RunModel(1 << 62, 1 << 62, (0,), (1 << 62,)).parts(1 << 20)
    assert len(parts) == 10_000 and sum(part.rows for part in parts) == sum(part.size for part in parts) == 1 << 62


def test_without_compaction_writers_stall() -> None:
    result = simulated(WorkloadShape(commits=30, rows=50, update_ratio=0.9), every=1000)
    assert result.stalls > 0 and result.compactions == result.stalls
    assert result.most_runs == 8  # the stop trigger, at which a writer compacts before it adds another run
    assert simulated(WorkloadShape(commits=30, rows=50, update_ratio=0.9)).stalls == 0


def test_a_lower_trigger_reads_less_and_writes_more() -> None:
    shape = WorkloadShape(commits=120, rows=400, update_ratio=0.6, skew=1.0, buckets=2)
    few, many = (simulated(shape, {"num-sorted-run.compaction-trigger": text}) for text in ("2", "12"))
    assert few.read_amplification < many.read_amplification
    assert few.write_amplification > many.write_amplification
    assert few.flushed_bytes == many.flushed_bytes


def test_the_interval_follows_the_commits_clock() -> None:
    shape = WorkloadShape(commits=60, rows=10, commit_interval=60_000)
    hourly = simulated(shape, {"compaction.optimization-interval": "20 min", "num-sorted-run.compaction-trigger": "100"})
    assert hourly.reasons == {"optimization-interval": 3}


@pytest.mark.parametrize(
    ("ranges", "rows"),
    [
        ([(100, 0, 99), (100, 0, 99)], 100),  # every key there is
        ([(50, 0, 99), (50, 0, 99)], 75),  # half of the other half
        ([(10, 0, 10**9), (10, 0, 10**9)], 20),
        ([(10, 0, 9), (10, 10, 19)], 20),
    ],
)
def test_merged_rows_of_whole_number_keys(ranges: list[tuple[int, int, int]], rows: int) -> None:
    merged = merged_run([RunModel(count, count * 8, (low,), (high,)) for count, low, high in ranges], 1)
    assert (merged.rows, merged.size) == (rows, rows * 8)


def test_merged_rows_of_other_keys() -> None:
    runs = [RunModel(10, 80, ("a",), ("m",)), RunModel(4, 32, ("b",), ("c",)), RunModel(5, 40, ("x",), ("z",))]
    assert merged_run(runs, 1).rows == 10
    assert merged_run(runs[1:], 1).rows == 9
