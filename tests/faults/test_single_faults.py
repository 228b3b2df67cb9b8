"""Every call of every operation meets every fault that can happen to it: see `verdict` for what must hold afterwards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paimon_cli.storage.local_storage import LocalStorage
from tests.faults.bench import Bench
from tests.faults.fault_kinds import Kind
from tests.faults.operations import OPERATIONS
from tests.faults.runs import FaultRuns, Pairs, memory_runs

EVERY_TIME = (
    "create", "write", "write-after-rival", "compact", "compact-after-compaction", "overwrite", "update", "alter", "expire",
    "tag", "fast-forward", "write-inline-after-compaction",
)  # fmt: skip
AT_NIGHT = [pytest.param(name, marks=pytest.mark.nightly) for name in sorted(OPERATIONS.keys() - set(EVERY_TIME))]


def try_all(runs: FaultRuns) -> None:
    for fault in runs.single_faults():
        runs.try_fault(fault)
    assert not runs.figures.failures, "\n".join(runs.figures.failures[:5])


@pytest.mark.parametrize("name", [*EVERY_TIME, *AT_NIGHT])
def test_every_call_meets_every_fault(name: str, tmp_path: Path) -> None:
    runs = memory_runs(OPERATIONS[name], tmp_path)
    try_all(runs)
    assert runs.figures.runs > 5 * runs.figures.calls
    assert {"refused", "crashed"} <= set(runs.figures.outcomes)
    assert "done" in runs.figures.outcomes or name == "write-checked-after-rival", "only that one is refused undisturbed"


def test_together_they_are_all_kinds(tmp_path: Path) -> None:
    kinds = {fault.kind for name in EVERY_TIME for fault in memory_runs(OPERATIONS[name], tmp_path).single_faults()}
    assert kinds == set(Kind)


@pytest.mark.parametrize("name", ["write-after-rival", "compact", "expire"])
def test_some_pairs_of_faults(name: str, tmp_path: Path) -> None:
    """A hundred thousand of them at night: scripts/nightly/pairs_of_faults.py."""
    runs = memory_runs(OPERATIONS[name], tmp_path)
    pairs = Pairs(runs, seed=1)
    for _ in range(60):
        pairs.try_one()
    assert not runs.figures.failures, "\n".join(runs.figures.failures[:5])


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_every_call_meets_every_fault_on_disk(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a power cut takes back is simulated, so that no test waits for the disk."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    (tmp_path / "sources").mkdir()
    try_all(FaultRuns(OPERATIONS[name], Bench(LocalStorage(), str(tmp_path / "disk"), tmp_path / "sources")))
