"""Runs one schedule: actors take steps in the given order, and the oracle checks each of them."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from paimon_cli.lab.simulation.actor import Job
from paimon_cli.lab.simulation.oracle import Oracle
from paimon_cli.lab.simulation.role import Role
from paimon_cli.lab.simulation.scenario import Scenario
from paimon_cli.lab.simulation.schedule import FAULT_MEANING, GO, PUT_FAULTS, RESTART, ScheduledStep, schedule_text
from paimon_cli.lab.simulation.sim_lock import SimulatedLockRow
from paimon_cli.lab.simulation.sim_storage import SimDisk

MAX_STEPS = 2_000
"""A longer schedule is considered an endless loop."""
_MAX_ACTORS = 64


class Run:
    """The state of one schedule: steps are taken until `choices` is empty. `max_switches` limits the choices."""

    def __init__(self, scenario: Scenario, max_switches: int | None = None) -> None:
        self.scenario = scenario
        self._max_switches = max_switches
        self.disk = SimDisk(scenario.files)
        self.oracle = Oracle(scenario, self.disk)
        self.steps: list[ScheduledStep] = []
        self.faults = 0
        self.restarts = 0
        self.switches = 0
        """How often an unfinished actor was interrupted by another one; counted only if limited."""
        self.last: int | None = None
        self._lock = SimulatedLockRow()
        self.roles = [Role(self.disk, self._lock, self.oracle, number) for number in range(len(scenario.jobs))]

    def fork(self) -> Run:
        """An independent run in the same state."""
        fork = copy.copy(self)
        fork.disk, fork._lock, fork.steps = self.disk.fork(), self._lock.fork(), self.steps.copy()
        fork.oracle = self.oracle.fork(fork.disk)
        fork.roles = [role.fork(fork.disk, fork._lock, fork.oracle) for role in self.roles]
        return fork

    @property
    def key(self) -> int:
        """Equal for states with the same continuations."""
        bounded = (self.switches, self.last) if self._max_switches is not None else None
        return hash((self.oracle.digest, self.faults, self.restarts, tuple([role.state for role in self.roles]), bounded))

    def _waiting(self) -> list[Role]:
        """The actors that can continue."""
        on_their_way = [role for role in self.roles if role.pending is not None]
        return on_their_way if self._lock.is_free else [role for role in on_their_way if role.waits]

    def choices(self) -> list[ScheduledStep]:
        """All possible next steps, that of the last actor first; crashes between two steps are not included."""
        return [*self.calls(), *self.mishaps()]

    def calls(self) -> list[ScheduledStep]:
        """Calls that can be made without a fault."""
        going = [_CALLS[role.number] for role in self._waiting()]
        if self.last is None or (next_of_last := _CALLS[self.last]) not in going:
            return going
        if self.switches == self._max_switches:
            return [next_of_last]
        going.remove(next_of_last)
        return [next_of_last, *going]

    def mishaps(self) -> list[ScheduledStep]:
        """Faults of pending calls, and restarts of crashed actors."""
        found: list[ScheduledStep] = []
        if self.faults < self.scenario.max_faults:
            for role in self._waiting():
                found += role.mishaps
        if self.restarts < self.scenario.max_restarts:
            found += [ScheduledStep(role.number, RESTART) for role in self.roles if role.dead]
        return found

    def can_take(self, step: ScheduledStep) -> bool:
        role = self.roles[step.actor] if step.actor < len(self.roles) else None
        if role is None or step.fault == RESTART:
            return role is not None and role.dead
        is_put = role.pending is not None and role.pending.operation == "put_if_absent"
        return role.waits and (is_put or step.fault not in PUT_FAULTS)

    def take(self, step: ScheduledStep) -> int:
        """Run a step; returns the number of calls after it that no other actor could observe."""
        role = self.roles[step.actor]
        self.steps.append(step)
        if len(self.steps) > MAX_STEPS:
            raise RuntimeError(f"endless schedule {self}")
        if step.fault == GO:
            if self._max_switches is not None and self.last not in (None, step.actor):
                self.switches += self.roles[self.last or 0].waits
            self.last = step.actor
        if step.fault == RESTART:
            self.restarts += 1
            role.begin()
        else:
            self.faults += step.is_fault
            role.resume(step.fault, step.delay)
        return role.passed

    @property
    def is_over(self) -> bool:
        return not self._waiting()

    @property
    def violations(self) -> list[str]:
        return self.oracle.violations

    def finish(self) -> list[str]:
        """Run the checks of the final table."""
        if not self.violations:
            self.oracle.check_final_table()
        return self.violations

    def discard(self) -> None:
        for role in self.roles:
            role.discard()

    def __str__(self) -> str:
        return schedule_text(self.steps)


_CALLS = [ScheduledStep(number) for number in range(_MAX_ACTORS)]


class NarratedStep(NamedTuple):
    """A step as text: the call, its fault, and the number of calls after it that no other actor could observe."""

    step: str
    actor: int
    call: str
    fault: str
    own_calls: int


def narrate(run: Run, steps: Sequence[ScheduledStep]) -> Iterator[NarratedStep]:
    """Take the possible ones of these steps, then any steps to the end; yields each step as it is taken."""
    root = run.scenario.layout.root + "/"

    def narrated(step: ScheduledStep) -> NarratedStep:
        pending = run.roles[step.actor].pending
        call = "" if pending is None else f"{pending.operation} {pending.path.removeprefix(root)}"
        fault = f"{FAULT_MEANING[step.fault]} {step.delay} calls later" if step.delay else FAULT_MEANING[step.fault]
        return NarratedStep(str(step), step.actor, call, fault, run.take(step))

    for step in steps:
        if run.violations:
            return
        if run.can_take(step):
            yield narrated(step)
    while not run.violations and not run.is_over:
        yield narrated(run.calls()[0])
    run.finish()


def replay(scenario: Scenario, steps: Sequence[ScheduledStep]) -> Run:
    """Replay a schedule: take those steps that are still possible with this code, then any steps to the end."""
    run = Run(scenario)
    for _ in narrate(run, steps):
        pass
    run.discard()
    return run


def after(scenario: Scenario, setup: Sequence[Job]) -> Scenario:
    """The scenario on a table on which these set-up jobs have been run, one after another."""
    run = Run(replace(scenario, jobs=tuple(setup), faults=(), max_faults=0, first_name=900))
    for role in run.roles:
        while role.waits:
            run.take(ScheduledStep(role.number))
    assert not run.violations, run.violations
    return replace(scenario, beginning=dict(run.disk.files), memory=run.oracle.memory)
