"""Shrinks a failing schedule to the fewest faults, switches and steps, and tells it in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from paimon_cli.lab.simulation.run import Run
from paimon_cli.lab.simulation.scenario import Scenario
from paimon_cli.lab.simulation.schedule import MEANING, Step
from paimon_cli.lab.simulation.script import Call
from paimon_cli.lab.simulation.sim_lock import LOCK, LOOK_AT_LOCK, UNLOCK
from paimon_cli.lab.simulation.sim_storage import LISTINGS, READS

MAX_REPLAYS = 2_000
_LOOKS = READS | LISTINGS | {"exists", "head", "list_page", "list_page_below"}


@dataclass(frozen=True)
class _Tried:
    """The steps that were asked for, and those that the whole run took."""

    asked: tuple[Step, ...]
    taken: tuple[Step, ...]

    @property
    def cost(self) -> tuple[int, int, int]:
        """Faults, switches between actors, and steps to be written down."""
        switches = sum(one.actor != other.actor for one, other in pairwise(self.taken))
        return sum(step.is_fault for step in self.taken), switches, len(self.asked)


def minimized(scenario: Scenario, steps: Sequence[Step], should_continue: Callable[[], bool]) -> list[Step]:
    """The shortest schedule found from which no single step, and no end, can be removed without losing all violations.

    A replay takes the steps of a schedule that are possible, and then lets each actor run to its end, so fewer steps mean fewer
    decisions. At most `MAX_REPLAYS` schedules are tried.
    """
    best, replays = _failing(scenario, steps), 0
    if best is None:
        return list(steps)
    improves = True
    while improves:
        improves = False
        asked = best.asked
        shorter = [asked[:length] for length in range(len(asked))]
        shorter += [asked[:index] + asked[index + 1 :] for index in range(len(asked))]
        for candidate in shorter:
            if replays >= MAX_REPLAYS or not should_continue():
                return list(best.asked)
            replays += 1
            tried = _failing(scenario, candidate)
            if tried is not None and tried.cost < best.cost:
                best, improves = tried, True
                break
    return list(best.asked)


def _failing(scenario: Scenario, steps: Sequence[Step]) -> _Tried | None:
    """The run of these steps if it ends with violations, otherwise None."""
    run = Run(scenario)
    for step in steps:
        if not run.violations and run.can_take(step):
            run.take(step)
    while not run.violations and not run.is_over:
        run.take(run.calls()[0])
    failed = bool(run.finish())
    run.discard()
    return _Tried(tuple(steps), tuple(run.steps)) if failed else None


def told(scenario: Scenario, steps: Sequence[Step], names: Sequence[str]) -> list[str]:
    """A schedule in words, a line per step; looks of one actor that follow each other are one line."""
    run, lines = Run(scenario), list[str]()
    rest, looking = list(steps), ""
    while not run.violations and not run.is_over:
        step = rest.pop(0) if rest else run.calls()[0]
        if not run.can_take(step):
            continue
        call, name = run.roles[step.actor].pending, names[step.actor]
        what = f"{MEANING[step.fault]}: " if step.fault else ""
        run.take(step)
        if not step.fault and call is not None and call.operation in _LOOKS:
            if looking != name:
                lines.append(
                    f"{name} looks at the newest snapshot" if "/snapshot/" in call.path else f"{name} reads {_file(call)}"
                )
            looking = name
            continue
        looking = ""
        lines.append(f"{name} {what}{_words(run, call)}")
    run.finish()
    run.discard()
    return lines


def _file(call: Call) -> str:
    return call.path.rpartition("/")[2]


def _words(run: Run, call: Call | None) -> str:
    if call is None:
        return "starts again"
    if call.operation in (LOCK, UNLOCK, LOOK_AT_LOCK):
        return {LOCK: "takes the lock", UNLOCK: "gives the lock back", LOOK_AT_LOCK: "looks whether it still has the lock"}[
            call.operation
        ]
    file = _file(call)
    if call.operation == "put_if_absent":
        is_there = run.disk.files.get(call.path) == call.arguments[0]
        return f"puts {file}: {'it is published' if is_there else 'the number is taken'}"
    if call.operation == "overwrite":
        return "writes the hint LATEST" if file == "LATEST" else f"writes {file}, whatever is there"
    return f"deletes {file}" if call.operation == "delete" else f"calls {call.operation} {file}"
