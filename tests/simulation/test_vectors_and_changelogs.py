"""Tables with deletion vectors, with each changelog producer, and without a key: no schedule loses a vector
or a row.

Every order of two actors, with a fault at every call, is tried at night: `python -m scripts.nightly.simulate --only vectors`.
"""

from __future__ import annotations

import pytest

from paimon_cli.lab.simulation.exploration import explain, explore, sample
from tests.simulation import append_scenarios, vector_scenarios
from tests.simulation.scenarios import scenario

TWO_ACTORS = (*vector_scenarios.TWO_ACTORS, *append_scenarios.TWO_ACTORS)
MANY_ACTORS = (*vector_scenarios.MANY_ACTORS, *append_scenarios.MANY_ACTORS)


@pytest.mark.parametrize("name", TWO_ACTORS)
def test_schedules_with_one_interruption(name: str) -> None:
    result = explore(scenario(name), most_switches=1, most_schedules=25)
    assert not result.findings, explain(result.findings)
    assert result.complete or result.schedules == 25


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", TWO_ACTORS)
def test_every_order_with_a_fault_at_every_call(name: str) -> None:
    result = explore(scenario(name), private_crashes=True)
    assert not result.findings, explain(result.findings)
    assert result.complete


@pytest.mark.parametrize("name", MANY_ACTORS)
def test_random_schedules(name: str) -> None:
    result = sample(scenario(name), 20, seed=1)
    assert not result.findings, explain(result.findings)
    assert result.schedules > 15
