"""Each planted bug is found by a short search: what the checker calls right has been looked at."""

from __future__ import annotations

import re

import pytest

from paimon_cli.lab.simulation.exploration import explore
from paimon_cli.lab.simulation.run import replay
from paimon_cli.lab.simulation.schedule import parse_schedule
from tests.simulation.mutation import Mutation
from tests.simulation.mutations import MUTATIONS
from tests.simulation.scenarios import scenario

MAX_SCHEDULES = 3_000
WRONGLY_PLANTED = re.compile("TypeError.*argument|AttributeError")
"""A mutation that no longer fits the code breaks everything, which finds nothing."""


def test_there_are_enough() -> None:
    assert len(MUTATIONS) >= 55 and len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)


@pytest.mark.in_part(12)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_found(mutation: Mutation) -> None:
    planned = scenario(mutation.scenario)  # set up by the shipped code
    with mutation.plant():
        result = explore(
            planned,
            max_schedules=MAX_SCHEDULES,
            max_switches=mutation.max_switches,
            private_faults=planned.is_remote,
        )
        assert result.findings, f"not found in {result.schedules} schedules"
        assert not WRONGLY_PLANTED.search(str(result.findings[0])), result.findings[0]
        schedule = parse_schedule(result.findings[0].schedule)
    with mutation.plant():
        assert replay(scenario(mutation.scenario), schedule).violations, "the replay line shows it again"
    assert not replay(scenario(mutation.scenario), schedule).violations, "the shipped code passes the same schedule"
