"""A large bucket that is compacted in ranges of keys: killed at any call, the commits before stay, and no row is lost."""

from __future__ import annotations

import pytest

from paimon_cli.lab.simulation.exploration import explain, explore
from paimon_cli.lab.simulation.run import Run
from tests.simulation.scenarios import scenario


def test_killed_at_every_call_and_run_again() -> None:
    """Whatever was committed stays, and the next run carries out the rest."""
    commits: set[int] = set()

    def ended(run: Run) -> None:
        commits.add(run.oracle.memory.newest - beginning)

    given = scenario("ranges-restart")
    assert given.memory is not None
    beginning = given.memory.newest
    result = explore(given, private_faults=True, on_end=ended)
    assert not result.findings, explain(result.findings)
    assert result.complete and result.ended > 20
    assert {0, 1, 2, 3} <= commits, "killed before the cut, after it, after a range; and all done"


@pytest.mark.parametrize("name", ["ranges-writer", "ranges-compactor"])
def test_beside_another_actor(name: str) -> None:
    """With one interruption and a fault anywhere."""
    result = explore(scenario(name), max_switches=1, max_schedules=300)
    assert not result.findings, explain(result.findings)
    assert result.complete or result.schedules == 300
