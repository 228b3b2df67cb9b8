"""Searches the schedules of a scenario: exhaustively, pruning states that were visited before, or as a random sample.

Two prefixes that lead to the same disk, and in which every actor has received the same answers, have the same continuations, so
only the first one is followed. A complete search thus covers all orders of all calls without running each of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from paimon_cli.lab.simulation.run import Run
from paimon_cli.lab.simulation.scenario import Scenario
from paimon_cli.lab.simulation.schedule import GO, REQUEST_FAULTS, ScheduledStep

LONGEST_DELAY = 8
"""The number of calls of an actor among which a random fault of a request happens."""
OnEnd = Callable[[Run], None]
ShouldContinue = Callable[[], bool]
"""Called before each schedule; False ends the search."""


@dataclass(frozen=True)
class FailedSchedule:
    """A schedule with violations."""

    scenario: str
    schedule: str
    violations: tuple[str, ...]

    def __str__(self) -> str:
        lines = "\n  ".join(self.violations[:4])
        return f"{self.scenario}: {lines}\nreplay: python scripts/replay_schedule.py {self.scenario} --schedule {self.schedule}"


@dataclass
class Result:
    """The result of a search. `schedules`: the number of different schedules run; `ended`: how many of them ran to the end and
    not only to a known state.
    """

    scenario: str
    schedules: int = 0
    ended: int = 0
    states: int = 0
    steps: int = 0
    longest: int = 0
    complete: bool = False
    findings: list[FailedSchedule] = field(default_factory=list)

    def count(self, run: Run) -> None:
        self.schedules += 1
        self.steps += len(run.steps)
        self.longest = max(self.longest, len(run.steps))

    def report(self, run: Run) -> None:
        self.findings.append(FailedSchedule(self.scenario, str(run), tuple(run.violations)))


def explore(
    scenario: Scenario,
    *,
    max_schedules: int | None = None,
    max_switches: int | None = None,
    private_faults: bool = False,
    max_findings: int = 1,
    on_end: OnEnd = lambda run: None,
    should_continue: ShouldContinue = lambda: True,
) -> Result:
    """Search all states depth first, without recursion.

    `max_switches`: the most interruptions of unfinished actors in one schedule; most bugs need only one or two.
    `private_faults`: also crash between calls that no other actor can observe, and let these fail on object stores.
    `on_end` is called with every run that ends.
    """
    result = Result(scenario.name)
    visited: set[int] = set()
    open_branches: list[Branch] = [(Run(scenario, max_switches), None)]
    while open_branches:
        if result.schedules == max_schedules or len(result.findings) >= max_findings or not should_continue():
            break
        _follow(open_branches, visited, result, private_faults, on_end)
    else:
        result.complete = True
    result.states = len(visited)
    return result


Branch = tuple[Run, ScheduledStep | None]
"""A state, and a step not yet taken from it."""


def _follow(open_branches: list[Branch], visited: set[int], result: Result, private_faults: bool, on_end: OnEnd) -> None:
    """Take the last open step, then always the first choice, up to a known state; the other choices stay open."""
    state, step = open_branches.pop()
    run = state.fork()
    if step is not None:
        run.take(step)
    while not run.violations:
        key = run.key
        if key in visited:
            break
        visited.add(key)
        choices = run.choices()
        if run.is_over:
            result.ended += 1
            run.finish()
            on_end(run)
        if not choices or run.violations:
            break
        state, first = run.fork(), choices[0]
        open_branches += [(state, choice) for choice in reversed(choices[1:])]
        passed = run.take(first)
        if private_faults and first.fault == GO and run.faults < run.scenario.max_faults:
            kinds = run.scenario.private_faults
            open_branches += [
                (state, ScheduledStep(first.actor, kind, delay)) for kind in kinds for delay in range(1, passed + 1)
            ]
    result.count(run)
    if run.violations:
        result.report(run)
    run.discard()


def sample(
    scenario: Scenario,
    count: int,
    seed: int,
    *,
    max_findings: int = 1,
    fault_probability: float = 0.02,
    on_end: OnEnd = lambda run: None,
    should_continue: ShouldContinue = lambda: True,
) -> Result:
    """Run random schedules to their ends; equal ones are counted once."""
    result = Result(scenario.name)
    drawn: set[tuple[ScheduledStep, ...]] = set()
    generator, beginning = random.Random(seed), Run(scenario)
    for _ in range(count):
        if not should_continue():
            break
        run = beginning.fork()
        _take_at_random(run, generator, fault_probability)
        schedule = tuple(run.steps)
        if schedule not in drawn:
            drawn.add(schedule)
            on_end(run)
            result.count(run)
            result.ended += 1
            if run.violations:
                result.report(run)
        run.discard()
        if len(result.findings) >= max_findings:
            break
    return result


def _take_at_random(run: Run, generator: random.Random, fault_probability: float) -> None:
    """Take random steps to the end of the schedule."""
    while not run.violations:
        calls, mishaps = run.calls(), run.mishaps()
        if not calls and not (mishaps and generator.random() < 0.5):
            run.finish()
            break
        risky = mishaps and (not calls or generator.random() < fault_probability * len(mishaps))
        choices = mishaps if risky else calls
        step = choices[int(generator.random() * len(choices))]
        if step.fault in REQUEST_FAULTS:  # most requests are those that no other actor can observe
            step = step._replace(delay=int(generator.random() * LONGEST_DELAY))
        run.take(step)


def explain(findings: Sequence[FailedSchedule]) -> str:
    return "\n\n".join(map(str, findings))
