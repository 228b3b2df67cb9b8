"""Replay one schedule of the simulation, as a failing test prints it, and tell what each step did."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from paimon_cli.lab.simulation.run import Run
from paimon_cli.lab.simulation.schedule import GO, Step, parse_schedule
from tests.simulation.mutations import MUTATIONS
from tests.simulation.scenarios import names, scenario


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario", choices=names(), metavar="SCENARIO", help=", ".join(names()))
    parser.add_argument("--schedule", default="", help="such as 0,1,1,0c,2 (what the letters mean: paimon_cli/lab/simulation/schedule.py)")
    parser.add_argument("--mutation", choices=sorted(m.name for m in MUTATIONS), help="with this bug planted")
    parser.add_argument("--image", action="store_true", help="end with a digest of all bytes on the disk")
    arguments = parser.parse_args()
    planted = next((m for m in MUTATIONS if m.name == arguments.mutation), None)
    if planted is None:
        return replay(arguments.scenario, parse_schedule(arguments.schedule), arguments.image)
    with planted.plant():
        return replay(arguments.scenario, parse_schedule(arguments.schedule), arguments.image)


def replay(name: str, steps: list[Step], image: bool) -> int:
    """Print each step; 1 if the schedule violates something."""
    run = Run(scenario(name))
    root = run.scenario.layout.root + "/"
    for step in steps:
        tell(run, step, root)
    while not run.violations and not run.is_over:
        tell(run, next(step for step in run.choices() if step.fault == GO), root)
    for violation in run.finish():
        print(f"VIOLATION {violation}")
    if image:
        print(run.disk.image())
    run.discard()
    return 1 if run.violations else 0


def tell(run: Run, step: Step, root: str) -> None:
    pending = run.actors[step.actor].pending
    passed = run.take(step)
    what = f"{pending[0]} {pending[1].removeprefix(root)}" if pending else "begins"
    print(f"{step!s:>5}  {what}" + (f"   (and {passed} calls on its own files)" if passed else ""))


if __name__ == "__main__":
    sys.exit(main())
