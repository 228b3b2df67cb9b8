"""Advice by replay: what is chosen on the first commits has to hold on the last, and large tables are bounded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from paimon_cli.inspect import replayed_settings
from paimon_cli.inspect.compaction_scenarios import ScenarioRow, scenario_row
from paimon_cli.inspect.replayed_settings import AMPLIFICATION, RATIO, TRIGGER, JudgedSettings, judged_settings
from paimon_cli.lsm.compaction_simulation import (
    KeySetRun,
    SimulatedCommit,
    SimulatedWorkload,
    WorkloadShape,
    merged_keys,
    synthetic_workload,
)
from paimon_cli.options.table_options import TableOptions
from paimon_cli.pieces import Pieces

EAGER = {TRIGGER: "2", AMPLIFICATION: "1"}
"""Options that rewrite everything at nearly each commit."""
UPDATES = WorkloadShape(commits=90, rows=200, update_ratio=0.9, seed=11)


def judged(workload: SimulatedWorkload[KeySetRun], options: dict[str, str], *fixed: str) -> JudgedSettings:
    return judged_settings(workload, TableOptions(options), fixed)


def _row(workload: SimulatedWorkload[Any]) -> ScenarioRow:
    return scenario_row(workload, TableOptions(EAGER), {})


def test_the_judgement_counts_only_commits_that_the_choice_has_not_seen() -> None:
    workload = synthetic_workload(UPDATES)
    found = judged(workload, EAGER)
    assert found.better is not None and found.tried >= 40
    assert found.as_is.commits == found.better.commits == 30
    whole = _row(workload)
    first = _row(replace(workload, commits=workload.commits[:60]))
    assert found.as_is.compacted_bytes == whole.compacted_bytes - first.compacted_bytes
    assert found.as_is.flushed_bytes == whole.flushed_bytes - first.flushed_bytes
    assert found.better.compacted_bytes < found.as_is.compacted_bytes


def test_a_setting_that_only_fits_the_past_is_not_suggested() -> None:
    """The last third writes nothing, so nothing could be saved there."""
    workload = synthetic_workload(UPDATES)
    chosen = judged(workload, EAGER).better
    assert chosen is not None
    quiet = [replace(commit, flushed={}) for commit in workload.commits[60:]]
    assert judged(replace(workload, commits=[*workload.commits[:60], *quiet]), EAGER).better is None


def test_options_that_the_call_has_set_are_not_varied() -> None:
    found = judged(synthetic_workload(UPDATES), EAGER, TRIGGER, RATIO)
    assert found.tried == 3
    assert found.better is None or set(found.better.options) == {AMPLIFICATION}


def test_of_a_large_table_the_buckets_with_most_writes_are_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replayed_settings, "PIECES", Pieces(replayed_rounds=60))
    commits = [
        SimulatedCommit(number, {bucket: [KeySetRun(np.arange(10 * (bucket + 1)), 10)] for bucket in range(5)})
        for number in range(30)
    ]
    found = judged(SimulatedWorkload(commits, merged_keys), {})
    assert (found.buckets, found.all_buckets) == (2, 5)
    assert found.as_is.flushed_bytes == 10 * (400 + 500)
