"""Postponed and dynamic buckets: no schedule loses a row, doubles it, or gives a key two buckets.

Every order of two actors, with a fault at every call, is tried at night: `python -m scripts.nightly.simulate --only kinds`.
"""

from __future__ import annotations

import pytest

from paimon_cli.lab.simulation.exploration import explain, explore, sample
from tests.simulation.kind_scenarios import MANY_ACTORS, TWO_ACTORS
from tests.simulation.scenarios import scenario

FEW = 12


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
    result = sample(scenario(name), 10, seed=1)
    assert not result.findings, explain(result.findings)
    assert result.schedules > 7
