"""What topology 2 suffers is found with the data conflict check off, and is nowhere with it on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paimon_cli.lab.simulation.exploration import explain, explore
from paimon_cli.lab.simulation.scenario import Scenario
from tests.simulation.scenarios import CHECKED, scenario


@pytest.mark.parametrize(
    ("name", "sign"),
    [
        ("merge-disorder", "PV023"),
        ("merge-disorder-seen-by-readers", "rows at snapshot"),
        ("lost-update", "lost update: 2 increments"),
    ],
)
def test_found_with_the_check_off(name: str, sign: str) -> None:
    result = explore(scenario(name), max_schedules=2_000)
    assert result.findings and sign in result.findings[0].violations[0]


@pytest.mark.parametrize("name", ["merge-disorder", "merge-disorder-seen-by-readers", "lost-update"])
@pytest.mark.parametrize("check", ["bucket", "partition"])
def test_nowhere_with_the_check_on(name: str, check: str) -> None:
    unchecked = scenario(name)
    options = {**unchecked.table_options, **CHECKED, "commit.data-conflict-check": check}
    checked = Scenario(name, unchecked.jobs, options, beginning=unchecked.beginning, memory=unchecked.memory)
    result = explore(checked)
    assert not result.findings, explain(result.findings)
    assert result.complete


def test_writers_of_own_buckets_need_no_check() -> None:
    result = explore(replace(scenario("writer-writer"), max_faults=0))
    assert not result.findings and result.complete
