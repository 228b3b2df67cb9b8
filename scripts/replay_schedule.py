"""Replay a schedule of the simulation that a failing test has printed, and show what each step does."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from paimon_cli.lab.simulation.run import Run, narrate
from paimon_cli.lab.simulation.schedule import ScheduledStep, parse_schedule
from tests.simulation.mutations import MUTATIONS
from tests.simulation.scenarios import names, scenario


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario", choices=names(), metavar="SCENARIO", help=", ".join(names()))
    parser.add_argument(
        "--schedule", default="", help="such as 0,1,1,0c,2 (what the letters mean: paimon_cli/lab/simulation/schedule.py)"
    )
    parser.add_argument("--mutation", choices=sorted(m.name for m in MUTATIONS), help="with this bug planted")
    parser.add_argument("--image", action="store_true", help="end with a digest of all bytes on the disk")
    arguments = parser.parse_args()
    planted = next((m for m in MUTATIONS if m.name == arguments.mutation), None)
    if planted is None:
        return replay(arguments.scenario, parse_schedule(arguments.schedule), arguments.image)
    with planted.plant():
        return replay(arguments.scenario, parse_schedule(arguments.schedule), arguments.image)


def replay(name: str, steps: list[ScheduledStep], image: bool) -> int:
    """Print each step. Returns 1 if the schedule violates an invariant."""
    run = Run(scenario(name))
    for narrated in narrate(run, steps):
        own = f"   (and {narrated.own_calls} calls on its own files)" if narrated.own_calls else ""
        print(f"{narrated.step:>5}  {narrated.call} {narrated.fault}{own}")
    for violation in run.violations:
        print(f"VIOLATION {violation}")
    if image:
        print(run.disk.image())
    run.discard()
    return 1 if run.violations else 0


if __name__ == "__main__":
    sys.exit(main())
