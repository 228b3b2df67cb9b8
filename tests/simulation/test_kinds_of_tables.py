"""Deletion vectors, changelog producers, tables without a key, postponed and dynamic buckets: no schedule loses a row or a
vector, doubles a row, or gives a key two buckets.

Every order of two actors, with a fault at every call, is tried: of a few scenarios each time, of all at night, as by
`python -m scripts.nightly.simulate --only "two actors"`.
"""

from __future__ import annotations

import pytest

from paimon_cli.lab.simulation.exploration import explain, explore, sample
from tests.nightly import at_night, first
from tests.simulation import append_scenarios, kind_scenarios, rewrite_scenarios, source_scenarios, vector_scenarios
from tests.simulation.scenarios import scenario

MORE = (append_scenarios, kind_scenarios, rewrite_scenarios, source_scenarios)
MANY_ACTORS = [name for kind in (vector_scenarios, *MORE) for name in kind.MANY_ACTORS]
QUICK = [name for name in vector_scenarios.TWO_ACTORS if name != "vectors-inline-writers"][::6]
TWO_ACTORS = [name for kind in (vector_scenarios, *MORE) for name in kind.TWO_ACTORS]
SLOW = [name for name in TWO_ACTORS if name not in QUICK]
FEW, MORE_AT_NIGHT = 10, 40


@pytest.mark.in_part(9)
@pytest.mark.parametrize("name", first(len(QUICK), [*QUICK, *SLOW]))
def test_every_order_with_a_fault_at_every_call(name: str) -> None:
    result = explore(scenario(name), private_faults=True)
    assert not result.findings, explain(result.findings)
    assert result.complete and result.states > 400


@pytest.mark.in_part(12)
@pytest.mark.parametrize("count", [FEW, at_night(MORE_AT_NIGHT)])
@pytest.mark.parametrize("name", SLOW)
def test_schedules_with_one_interruption(name: str, count: int) -> None:
    result = explore(scenario(name), max_switches=1, max_schedules=count)
    assert not result.findings, explain(result.findings)
    assert result.complete or result.schedules == count


@pytest.mark.in_part(18)
@pytest.mark.parametrize("count", [FEW // 2, at_night(MORE_AT_NIGHT)])
@pytest.mark.parametrize("name", MANY_ACTORS)
def test_random_schedules(name: str, count: int) -> None:
    result = sample(scenario(name), count, seed=1)
    assert not result.findings, explain(result.findings)
    assert result.schedules > 0.7 * count
