"""Every call of every operation meets every fault that can happen to it: see `verdict` for what must hold afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from paimon_cli.storage.local_storage import LocalStorage
from tests.faults.bench import Bench
from tests.faults.fault_kinds import Fault, Kind, forms
from tests.faults.operations import OPERATIONS
from tests.faults.runs import FaultRuns, Pairs, memory_runs
from tests.nightly import at_night

EVERY_TIME = ("create", "tag")
IN_PART = (
    "write",
    "alter",
    "expire",
    "compact",
    "write-after-rival",
    "fast-forward",
    "overwrite",
    "update",
)
"""Of many calls of one name each meets a part of the faults, the next ones the others; at night it meets all."""
PARTS = 32
AT_NIGHT = [at_night(name) for name in sorted(OPERATIONS.keys() - set(EVERY_TIME))]


def try_all(runs: FaultRuns, faults: Iterable[Fault]) -> None:
    for fault in faults:
        runs.try_fault(fault)
    assert not runs.figures.failures, "\n".join(runs.figures.failures[:5])
    assert {"refused", "crashed"} <= set(runs.figures.outcomes)


@pytest.mark.parametrize("name", [*EVERY_TIME, *AT_NIGHT])
def test_every_call_hits_every_fault(name: str, tmp_path: Path) -> None:
    runs = memory_runs(OPERATIONS[name], tmp_path)
    try_all(runs, runs.single_faults())
    assert runs.figures.runs > 5 * runs.figures.calls
    assert "done" in runs.figures.outcomes or name == "write-checked-after-rival", "only that one is refused undisturbed"


@pytest.mark.in_part(2)
@pytest.mark.parametrize("name", IN_PART)
def test_calls_of_every_operation_hit_every_fault(name: str, tmp_path: Path) -> None:
    runs = memory_runs(OPERATIONS[name], tmp_path)
    try_all(runs, in_part(runs))
    assert runs.figures.runs > runs.figures.calls / 4
    assert "done" in runs.figures.outcomes


def in_part(runs: FaultRuns) -> Iterator[Fault]:
    """All that can happen to the calls of a name, spread over `PARTS` calls where it has as many."""
    calls = runs.calls()
    named = {name: [number for number, other in enumerate(calls) if other == name] for name in set(calls)}
    for fault in runs.single_faults():
        if fault.call >= len(calls):
            yield fault
            continue
        name = calls[fault.call]
        turn = named[name].index(fault.call) + forms(name).index((fault.kind, fault.detail))
        if turn % min(PARTS, len(named[name])) == 0:
            yield fault


def test_together_they_are_all_kinds(tmp_path: Path) -> None:
    kinds = {fault.kind for name in IN_PART for fault in in_part(memory_runs(OPERATIONS[name], tmp_path))}
    assert kinds == set(Kind)


@pytest.mark.parametrize("count", [5, at_night(60)])
@pytest.mark.parametrize("name", ["write-after-rival", "compact", "expire"])
def test_some_pairs_of_faults(name: str, count: int, tmp_path: Path) -> None:
    """A hundred thousand of them at night: scripts/nightly/pairs_of_faults.py."""
    runs = memory_runs(OPERATIONS[name], tmp_path)
    pairs = Pairs(runs, seed=1)
    for _ in range(count):
        pairs.try_one()
    assert not runs.figures.failures, "\n".join(runs.figures.failures[:5])


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_every_call_hits_every_fault_on_disk(name: str, tmp_path: Path) -> None:
    (tmp_path / "sources").mkdir()
    runs = FaultRuns(OPERATIONS[name], Bench(LocalStorage(), str(tmp_path / "disk"), tmp_path / "sources"))
    try_all(runs, runs.single_faults())
