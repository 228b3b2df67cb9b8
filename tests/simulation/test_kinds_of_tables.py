"""Deletion vectors, changelog producers, tables without a key, postponed and dynamic buckets: no schedule loses a row or a
vector, doubles a row, or gives a key two buckets.

Every order of two actors, with a fault at every call, is tried; that of scenarios with many states at night only, as by
`python -m scripts.nightly.simulate --only "two actors"`.
"""

from __future__ import annotations

import pytest

from paimon_cli.lab.simulation.exploration import explain, explore, sample
from tests.simulation import append_scenarios, kind_scenarios, rewrite_scenarios, source_scenarios, vector_scenarios
from tests.simulation.scenarios import scenario

MORE = (append_scenarios, kind_scenarios, rewrite_scenarios, source_scenarios)
MANY_ACTORS = [name for kind in (vector_scenarios, *MORE) for name in kind.MANY_ACTORS]
QUICK = [name for name in vector_scenarios.TWO_ACTORS if name != "vectors-inline-writers"]
SLOW = ["vectors-inline-writers", *(name for kind in MORE for name in kind.TWO_ACTORS)]
FEW = 20


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.nightly) for name in SLOW)])
def test_every_order_with_a_fault_at_every_call(name: str) -> None:
    result = explore(scenario(name), private_faults=True)
    assert not result.findings, explain(result.findings)
    assert result.complete and result.states > 400


@pytest.mark.parametrize("name", SLOW)
def test_schedules_with_one_interruption(name: str) -> None:
    result = explore(scenario(name), max_switches=1, max_schedules=FEW)
    assert not result.findings, explain(result.findings)
    assert result.complete or result.schedules == FEW


@pytest.mark.parametrize("name", MANY_ACTORS)
def test_random_schedules(name: str) -> None:
    result = sample(scenario(name), FEW, seed=1)
    assert not result.findings, explain(result.findings)
    assert result.schedules > 15
