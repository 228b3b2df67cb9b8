"""The search leaves out schedules because they are equal to others: nothing that can happen may be left out with them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paimon_cli.lab.simulation.exploration import explore, sample
from tests.simulation.scenarios import scenario


@pytest.mark.in_part(2)
@pytest.mark.parametrize("name", ["writer-writer", "writer-compactor", "compactor-compactor", "writer-expiry", "expiry-expiry"])
def test_unreduced_schedules_end_in_explored_states(name: str) -> None:
    """Random schedules in which every single call is interleaved: each leaves a disk that the complete search has seen."""
    peaceful = replace(scenario(name), max_faults=0)
    explored: set[str] = set()
    assert explore(peaceful, on_end=lambda run: explored.add(run.disk.image())).complete
    met: set[str] = set()
    result = sample(replace(peaceful, every_call_waits=True), 200, seed=3, on_end=lambda run: met.add(run.disk.image()))
    assert not result.findings and result.schedules > 150
    assert met <= explored
    assert len(met) > len(explored) / 3 or len(explored) > 50, "the sample is worth something"
