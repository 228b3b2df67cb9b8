"""Three and four actors: all schedules with a bounded number of interruptions, and random ones with any number.

Together at least 20,000 different schedules; `scripts/nightly/simulate.py` carries out a million.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from paimon_cli.lab.simulation.exploration import explain, explore, sample
from tests.simulation.scenarios import scenario

BOUNDED = {
    "three-writers": (2, 4_900),
    "writers-compactor": (2, 2_600),
    "writer-compactors": (2, 2_200),
    "checked-writers-compactor": (1, 950),
    "writer-compactor-expiry": (1, 300),
    "checked-counter": (1, 170),
}
"""How often actors are interrupted at most, and at least how many schedules that gives: a search that shrinks is noticed."""


@pytest.mark.parametrize("name", BOUNDED)
def test_all_schedules_with_few_interruptions(name: str) -> None:
    most_switches, least = BOUNDED[name]
    result = explore(replace(scenario(name), most_faults=0), most_switches=most_switches)
    assert not result.findings, explain(result.findings)
    assert result.complete and result.schedules >= least


@pytest.mark.parametrize(("name", "count"), [("writers-compactor", 4_500), ("three-writers", 3_500)])
def test_schedules_with_a_fault(name: str, count: int) -> None:
    result = explore(scenario(name), most_switches=1, most_schedules=count)
    assert not result.findings, explain(result.findings)
    assert result.schedules == count


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("writers-compactor-expiry", 300),
        ("writer-compactor-expiry", 300),
        ("checked-writers-compactor", 300),
        ("checked-counter", 300),
    ],
)
def test_random_schedules(name: str, count: int) -> None:
    result = sample(scenario(name), count, seed=1)
    assert not result.findings, explain(result.findings)
    assert result.schedules > 0.95 * count
