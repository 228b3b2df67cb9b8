"""Three and four actors: all schedules with a bounded number of interruptions, and random ones with any number.

At night, together at least 20,000 different schedules, and each time a tenth; `scripts/nightly/simulate.py` carries out all with
more interruptions, and a million at random.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from paimon_cli.lab.simulation.exploration import explain, explore, sample
from tests.nightly import at_night
from tests.simulation.scenarios import scenario

BOUNDED = {
    "three-writers": (2, 3_900),
    "writers-compactor": (3, 6_000),
    "writer-compactors": (2, 850),
    "checked-writers-compactor": (1, 700),
    "writer-compactor-expiry": (1, 390),
    "checked-counter": (1, 130),
}
"""How often actors are interrupted at most, and at least how many schedules that gives: a search that shrinks is noticed."""
FEW = 400


@pytest.mark.in_part(6)
@pytest.mark.parametrize("limit", [FEW, at_night(None)])
@pytest.mark.parametrize("name", BOUNDED)
def test_all_schedules_with_few_interruptions(name: str, limit: int | None) -> None:
    max_switches, least = BOUNDED[name]
    result = explore(replace(scenario(name), max_faults=0), max_switches=max_switches, max_schedules=limit)
    assert not result.findings, explain(result.findings)
    assert result.schedules >= least if limit is None else result.complete or result.schedules == limit
    assert result.complete or limit is not None


@pytest.mark.parametrize(
    ("name", "count"),
    [("writers-compactor", FEW), ("three-writers", FEW), at_night("writers-compactor", 2_000), at_night("three-writers", 5_000)],
)
def test_schedules_with_a_fault(name: str, count: int) -> None:
    result = explore(scenario(name), max_switches=1, max_schedules=count)
    assert not result.findings, explain(result.findings)
    assert result.schedules == count


MANY_ACTORS = {
    "writers-compactor-expiry": 500,
    "writer-compactor-expiry": 1_000,
    "checked-writers-compactor": 500,
    "checked-counter": 300,
}


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    ("name", "count"),
    [
        *((name, 60) for name in MANY_ACTORS),
        *(at_night(name, count) for name, count in MANY_ACTORS.items()),
    ],
)
def test_random_schedules(name: str, count: int) -> None:
    result = sample(scenario(name), count, seed=1)
    assert not result.findings, explain(result.findings)
    assert result.schedules > 0.95 * count
