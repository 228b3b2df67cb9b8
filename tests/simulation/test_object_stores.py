"""The same histories on an object store: overlapped uploads, conditional puts with all their answers, listings in pages.

`python -m scripts.nightly.simulate --only "object stores"` searches all scenarios with more schedules.
"""

from __future__ import annotations

import pytest

from paimon_cli.lab.simulation import sim_objects
from paimon_cli.lab.simulation.exploration import explain, explore, sample
from paimon_cli.lab.simulation.run import Run
from paimon_cli.lab.simulation.script import StorageCall
from paimon_cli.storage.simulated_store import StoreRequest
from tests.nightly import at_night
from tests.simulation.scenarios import ON_STORES, scenario
from tests.simulation.store_scenarios import OF_STORES_ONLY

SEARCHED = (
    *OF_STORES_ONLY,
    "remote-writer-compactor",
    "remote-compactor-expiry",
    "remote-twins",
    "remote-vectors-expiry",
    "remote-writer-drop",
)
FEW = 4


@pytest.mark.in_part(4)
@pytest.mark.parametrize("count", [60, at_night(300)])
@pytest.mark.parametrize("name", SEARCHED)
def test_schedules_with_one_interruption_and_a_fault_at_every_request(name: str, count: int) -> None:
    result = explore(scenario(name), max_switches=1, max_schedules=count, private_faults=True)
    assert not result.findings, explain(result.findings)
    assert result.complete or result.schedules == count


@pytest.mark.in_part(72)
@pytest.mark.parametrize("name", ON_STORES)
def test_random_schedules(name: str) -> None:
    result = sample(scenario(name), FEW, seed=1, fault_probability=0.1)
    assert not result.findings, explain(result.findings)


def test_a_version_is_restored_by_copies_of_the_store_whose_answers_may_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def noted(request: StoreRequest, replaced: tuple[str, ...]) -> StorageCall:
        call = meant(request, replaced)
        asked.append(call.operation)
        return call

    meant = sim_objects._call
    monkeypatch.setattr(sim_objects, "_call", noted)
    result = explore(scenario("remote-fixed-updater-restorer"), max_switches=0, max_schedules=100, private_faults=True)
    assert not result.findings, explain(result.findings)
    assert asked.count("copy_object") > 5


def test_a_commit_that_compacts_its_own_rows_publishes_both_snapshots() -> None:
    run = Run(scenario("remote-inline-writer-expiry"))
    before = run.oracle.memory.newest
    while run.roles[0].waits:
        run.take(run.calls()[0])
    kinds = [run.oracle.memory.published[number].snapshot.commit_kind for number in range(before + 1, before + 5)]
    assert kinds == ["APPEND", "COMPACT", "APPEND", "COMPACT"] and not run.finish()
