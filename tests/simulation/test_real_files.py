"""The same without JSON files: real Parquet, `update` jobs, rows read by the shipped reader after every commit."""

from __future__ import annotations

import pytest

from paimon_cli.lab.simulation.exploration import explain, explore, sample
from tests.simulation.scenarios import scenario

NAMES = ["real-writers-compactor", "real-compactors-expiry", "real-updates", "real-inline-writers"]


@pytest.mark.parametrize("name", NAMES)
def test_schedules_with_one_interruption(name: str) -> None:
    result = explore(scenario(name), max_switches=1, max_schedules=80)
    assert not result.findings, explain(result.findings)


@pytest.mark.in_part(2)
@pytest.mark.parametrize("name", NAMES)
def test_random_schedules(name: str) -> None:
    result = sample(scenario(name), 20, seed=7)
    assert not result.findings, explain(result.findings)
    assert result.ended == result.schedules
