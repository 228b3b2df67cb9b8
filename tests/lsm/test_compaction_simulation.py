"""Simulated buckets: figures worked out by hand, and the effects that options promise."""

from __future__ import annotations

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
from paimon_cli.options.table_options import TableOptions


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
    assert result.most_runs == 5 and result.stalls == 0
    assert result.read_amplification == round((1 + 2 + 3 + 4 + 5 + 2 * (2 + 3 + 4 + 5)) / 13, 2)
    assert (result.write_amplification, result.space_amplification_at_end) == (round(16 / 13, 2), 1.0)


def test_without_compaction_writers_stall() -> None:
    result = simulated(WorkloadShape(commits=30, rows=50, update_ratio=0.9), every=1000)
    assert result.stalls > 0 and result.compactions == result.stalls
    assert result.most_runs == 9  # stop trigger 8: no writer waits before there are more
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
