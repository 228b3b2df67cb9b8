"""Runs one schedule: actors take their steps in its order, and the oracle checks them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from paimon_cli.lab.simulation.actor import Actor, Job
from paimon_cli.lab.simulation.oracle import Oracle
from paimon_cli.lab.simulation.scenario import Scenario
from paimon_cli.lab.simulation.schedule import CRASH, GO, MEANING, PUT_FAULTS, RESTART, Step, schedule_text
from paimon_cli.lab.simulation.sim_lock import LockRow
from paimon_cli.lab.simulation.sim_storage import SimDisk

MOST_STEPS = 2_000
"""A schedule that is longer than this runs in circles."""


class Run:
    """The state of one schedule: steps are taken until `choices` is empty. `most_switches` limits the choices."""

    def __init__(self, scenario: Scenario, most_switches: int | None = None) -> None:
        self.scenario = scenario
        self._most_switches = most_switches
        self.disk = SimDisk(scenario.files)
        self.oracle = Oracle(scenario, self.disk)
        self.steps: list[Step] = []
        self.faults = 0
        self.restarts = 0
        self.switches = 0
        """How often an actor had to wait in the middle of its work because another one was let go on."""
        self.last: int | None = None
        jobs: Sequence[Job] = scenario.jobs
        lock = LockRow()
        self.actors = [Actor(self.disk, lock, self.oracle, number, job) for number, job in enumerate(jobs)]
        for actor in self.actors:
            actor.resume()

    @property
    def key(self) -> int:
        """A key that is equal for states with the same continuations."""
        states = tuple(actor.state if actor.is_on_its_way or actor.dead else "done" for actor in self.actors)
        bounded = (self.switches, self.last) if self._most_switches is not None else None
        return hash((self.oracle.digest, self.faults, self.restarts, states, bounded))

    def choices(self) -> Iterator[Step]:
        """All possible next steps, those of the last actor first, without crashes between two steps."""
        going = [actor.number for actor in self.actors if actor.waits]
        if self.last in going:
            yield Step(self.last)
            going.remove(self.last)
            if self.switches == self._most_switches:
                going.clear()
        for number in going:
            yield Step(number)
        if self.faults < self.scenario.most_faults:
            for actor in self.actors:
                if actor.waits:
                    yield from self._faults_of(actor)
        if self.restarts < self.scenario.most_restarts:
            for actor in self.actors:
                if actor.dead:
                    yield Step(actor.number, RESTART)

    def _faults_of(self, actor: Actor) -> Iterator[Step]:
        for fault in self.scenario.faults:
            if fault == CRASH or (actor.pending is not None and actor.pending[0] == "put_if_absent" and fault in PUT_FAULTS):
                yield Step(actor.number, fault)

    def can_take(self, step: Step) -> bool:
        actor = self.actors[step.actor] if step.actor < len(self.actors) else None
        if actor is None or step.fault == RESTART:
            return actor is not None and actor.dead
        is_put = actor.pending is not None and actor.pending[0] == "put_if_absent"
        return actor.waits and (is_put or step.fault not in PUT_FAULTS)

    def take(self, step: Step) -> int:
        """Run a step; returns the number of calls that the actor made afterwards without any other actor noticing."""
        actor = self.actors[step.actor]
        self.steps.append(step)
        if len(self.steps) > MOST_STEPS:
            raise RuntimeError(f"endless schedule {self}")
        if step.fault == GO:
            self.switches += self.last not in (None, step.actor) and self.actors[self.last or 0].waits
            self.last = step.actor
        if step.fault == RESTART:
            self.restarts += 1
            actor.begin()
            actor.resume()
            return actor.passed
        self.faults += step.is_fault
        actor.resume(step.fault, step.place)
        return actor.passed

    @property
    def is_over(self) -> bool:
        return not any(actor.waits for actor in self.actors)

    @property
    def violations(self) -> list[str]:
        return self.oracle.violations

    def finish(self) -> list[str]:
        """The thorough check at the end of a schedule."""
        if not self.violations:
            self.oracle.look_at_the_end()
        return self.violations

    def discard(self) -> None:
        for actor in self.actors:
            actor.discard()

    def __str__(self) -> str:
        return schedule_text(self.steps)


class ToldStep(NamedTuple):
    """A step as text: the call, its fault, and how many calls the actor made afterwards that no other actor can notice."""

    step: str
    actor: int
    call: str
    befalls: str
    own_calls: int


def narrate(run: Run, steps: Sequence[Step]) -> Iterator[ToldStep]:
    """Take the steps, without impossible ones, and go on to the end; each is reported as it was taken."""
    root = run.scenario.layout.root + "/"

    def told(step: Step) -> ToldStep:
        pending = run.actors[step.actor].pending
        call = "" if pending is None else f"{pending[0]} {pending[1].removeprefix(root)}"
        befalls = f"{MEANING[step.fault]} {step.place} calls later" if step.place else MEANING[step.fault]
        return ToldStep(str(step), step.actor, call, befalls, run.take(step))

    for step in steps:
        if run.violations:
            return
        if run.can_take(step):
            yield told(step)
    while not run.violations and not run.is_over:
        yield told(next(step for step in run.choices() if step.fault == GO))
    run.finish()


def replay(scenario: Scenario, steps: Sequence[Step]) -> Run:
    """Take the given steps, without impossible ones (of a schedule of other code), then any possible steps, to the end."""
    run = Run(scenario)
    for _ in narrate(run, steps):
        pass
    run.discard()
    return run


def after(scenario: Scenario, setup: Sequence[Job]) -> Scenario:
    """The same scenario on a table on which these jobs were run before, one after the other."""
    run = Run(replace(scenario, jobs=tuple(setup), faults=(), most_faults=0, first_name=900))
    for actor in run.actors:
        while actor.waits:
            run.take(next(step for step in run.choices() if step.actor == actor.number))
    assert not run.violations, run.violations
    return replace(scenario, beginning=dict(run.disk.files), memory=run.oracle.memory)
