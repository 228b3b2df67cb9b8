"""Deletion vectors, changelog producers, tables without a key, postponed and dynamic buckets: no schedule loses a row or a
vector, doubles a row, or gives a key two buckets.

Every order of two actors, with a fault at every call, is tried at night: `python -m scripts.nightly.simulate --only vectors`
and `--only kinds`.
"""

from __future__ import annotations

import pytest

from paimon_cli.lab.simulation.exploration import explain, explore, sample
from tests.simulation import append_scenarios, kind_scenarios, vector_scenarios
from tests.simulation.scenarios import scenario

KINDS = (vector_scenarios, append_scenarios, kind_scenarios)
TWO_ACTORS = [name for kind in KINDS for name in kind.TWO_ACTORS]
MANY_ACTORS = [name for kind in KINDS for name in kind.MANY_ACTORS]
FEW = 20


@pytest.mark.parametrize("name", TWO_ACTORS)
def test_schedules_with_one_interruption(name: str) -> None:
    result = explore(scenario(name), most_switches=1, most_schedules=FEW)
    assert not result.findings, explain(result.findings)
    assert result.complete or result.schedules == FEW


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", TWO_ACTORS)
def test_every_order_with_a_fault_at_every_call(name: str) -> None:
    result = explore(scenario(name), private_crashes=True)
    assert not result.findings, explain(result.findings)
    assert result.complete


@pytest.mark.parametrize("name", MANY_ACTORS)
def test_random_schedules(name: str) -> None:
    result = sample(scenario(name), FEW, seed=1)
    assert not result.findings, explain(result.findings)
    assert result.schedules > 15
