"""Shrinks a failing schedule to the fewest faults, switches and steps, and tells it in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from paimon_cli.lab.simulation.run import Run
from paimon_cli.lab.simulation.scenario import Scenario
from paimon_cli.lab.simulation.schedule import FAULT_MEANING, ScheduledStep
from paimon_cli.lab.simulation.script import StorageCall
from paimon_cli.lab.simulation.sim_lock import LOCK, LOOK_AT_LOCK, UNLOCK
from paimon_cli.lab.simulation.sim_storage import LISTING_CALLS, READ_CALLS
from paimon_cli.lab.story import PUBLISHED, TAKEN, Story, StoryStep

MAX_REPLAYS = 2_000
_LOOKS = READ_CALLS | LISTING_CALLS | {"exists", "head", "list_page", "list_page_below"}


@dataclass(frozen=True)
class _Tried:
    """The steps that were asked for, and those that the whole run took."""

    asked: tuple[ScheduledStep, ...]
    taken: tuple[ScheduledStep, ...]

    @property
    def cost(self) -> tuple[int, int, int]:
        """Faults, switches between actors, and steps to be written down."""
        switches = sum(one.actor != other.actor for one, other in pairwise(self.taken))
        return sum(step.is_fault for step in self.taken), switches, len(self.asked)


def minimized(scenario: Scenario, steps: Sequence[ScheduledStep], should_continue: Callable[[], bool]) -> list[ScheduledStep]:
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


def _failing(scenario: Scenario, steps: Sequence[ScheduledStep]) -> _Tried | None:
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


def told(story: Story, scenario: Scenario, steps: Sequence[ScheduledStep], names: Sequence[str]) -> None:
    """Record the steps of a schedule in the story; looks of one actor that follow each other are one step."""
    run, rest, looking = Run(scenario), list(steps), ""
    while not run.violations and not run.is_over:
        step = rest.pop(0) if rest else run.calls()[0]
        if not run.can_take(step):
            continue
        call, name = run.roles[step.actor].pending, names[step.actor]
        was_there = call is not None and call.path in run.disk.files
        run.take(step)
        text = "" if call is None else f"{call.operation} {_file(call)}"
        if call is not None and not step.fault and call.operation in _LOOKS:
            if looking != name:
                what = "looks at the newest snapshot" if "/snapshot/" in call.path else f"reads {_file(call)}"
                story.record(name, what, call=text)
            else:
                story.called(name, text)
            looking = name
            continue
        looking = ""
        what, outcome, is_conflict = _words(run, call, was_there)
        fault = f"{FAULT_MEANING[step.fault]}: " if step.fault else ""
        story.record(name, f"{fault}{what}", outcome, call=text, is_conflict=is_conflict)
    run.finish()
    run.discard()


def sentence(step: StoryStep) -> str:
    """A step as one line of text."""
    return f"{step.who} {step.what}{f': {step.outcome}' if step.outcome else ''}"


def _file(call: StorageCall) -> str:
    return call.path.rpartition("/")[2]


def _words(run: Run, call: StorageCall | None, was_there: bool) -> tuple[str, str, bool]:
    """What a step does, its outcome, and whether it runs into the work of another actor."""
    if call is None:
        return "starts again", "", False
    if call.operation in _OF_LOCK:
        return _OF_LOCK[call.operation], "", False
    file = _file(call)
    if call.operation == "put_if_absent":
        is_there = run.disk.files.get(call.path) == call.arguments[0]
        return f"puts {file}", PUBLISHED if is_there else TAKEN, not is_there
    if call.operation == "overwrite":
        is_hint = file == "LATEST"
        return "writes the hint LATEST" if is_hint else f"writes {file}, whatever is there", "", was_there and not is_hint
    return f"deletes {file}" if call.operation == "delete" else f"calls {call.operation} {file}", "", False


_OF_LOCK = {LOCK: "takes the lock", UNLOCK: "gives the lock back", LOOK_AT_LOCK: "looks whether it still has the lock"}
