"""The part of each actor in one run: its position in its script, the effects of its calls on the disk, and its faults."""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from typing import Any

from paimon_cli.lab.simulation.actor import Actor
from paimon_cli.lab.simulation.oracle import Oracle
from paimon_cli.lab.simulation.schedule import (
    BUSY,
    CONFLICT,
    CRASH,
    FAILURE,
    GO,
    LOST_ANSWER,
    LOST_CHANGE,
    LOST_REQUEST,
    OUTAGE,
    REFUSAL,
    STORE_PUT_FAULTS,
    ScheduledStep,
)
from paimon_cli.lab.simulation.script import ScriptNode, StorageCall, scripts_of
from paimon_cli.lab.simulation.sim_lock import LOCK, LOOK_AT_LOCK, STATEMENTS, SimulatedLockRow
from paimon_cli.lab.simulation.sim_storage import CHANGE_CALLS, LISTING_CALLS, MISSING, NO_ANSWER, TWO_OF_A_NAME, SimDisk
from paimon_cli.metadata.table_layout import SNAPSHOT_PREFIX
from paimon_cli.storage.storage import PutOutcome

WITHOUT_EFFECT = (REFUSAL, LOST_REQUEST, BUSY, CONFLICT, FAILURE)
"""Faults of calls that change nothing."""
UNANSWERED = (LOST_ANSWER, LOST_REQUEST, BUSY, OUTAGE)
"""Faults that do not show whether the put had an effect."""
OUTAGE_CALLS = 9
"""The length of an outage in calls: all retries of a publication fail, but its clean-up reaches the storage again."""


class Role:
    """An actor in one run. Only calls that others can observe wait for the scheduler, unless the scenario says otherwise."""

    def __init__(self, disk: SimDisk, lock: SimulatedLockRow, oracle: Oracle, number: int) -> None:
        self.disk = disk
        self.lock = lock
        self.oracle = oracle
        self.scenario = oracle.scenario
        self.number = number
        self.life = 0
        self.dead = False
        self.outage = 0
        self.passed = 0
        """The number of calls since its last step that no other actor could observe."""
        self.pending: StorageCall | None = None
        """The call that waits for the scheduler."""
        self.mishaps: Sequence[ScheduledStep] = ()
        """The faults that its pending call may suffer."""
        self._actor: Actor | None = None
        """None while the script already knows what the job does next."""
        layout = self.scenario.layout
        self._schemas = layout.schema_directory
        self._snapshots = layout.snapshot_directory + f"/{SNAPSHOT_PREFIX}"
        shared = layout.snapshot_directory, layout.tag_directory, f"{layout.root}/consumer", layout.commit_user_directory
        self._shared = tuple(f"{directory}/" for directory in shared)
        self.begin()

    def fork(self, disk: SimDisk, lock: SimulatedLockRow, oracle: Oracle) -> Role:
        """A copy of the role for a fork of the run."""
        fork = copy.copy(self)
        fork.disk, fork.lock, fork.oracle, fork._actor = disk, lock, oracle, None
        return fork

    def begin(self) -> None:
        """Start the job, after a crash in a new process without any memory of the old one."""
        self.life += 1
        self.dead = False
        self.outage = 0
        lines, key = scripts_of(self.scenario).first_lines, (self.number, self.life)
        first = lines.get(key)
        if first is None:
            self._actor = Actor(self.scenario, self.disk, self.number, self.life)
            first = lines[key] = self._actor.line
        self._go_to(first)
        self._advance()

    def resume(self, fault: str = GO, delay: int = 0) -> None:
        """Make the pending call, subject to the fault, and continue to the next one that must wait, or to the end.

        `delay`: the number of calls after which the fault happens.
        """
        assert self.pending is not None
        if fault == CRASH and not delay:
            self._die()
            return
        self._follow(self._answer(self.pending, GO if delay else fault))
        self._advance(fault, delay)

    def _advance(self, fault: str = GO, delay: int = 0) -> None:
        self.passed = 0
        while (call := self._line.call) is not None and not self._is_shared(self._line, call):
            self.passed += 1
            happening = fault if self.passed == delay else GO
            if happening == CRASH:
                self._die()
                return
            self._follow(self._answer(call, happening if happening == GO or happening in faults_of(call.operation) else GO))
        self.pending = call
        if call is not None:
            self.mishaps = _mishaps(self.number, self.scenario.faults, call.operation)

    def _die(self) -> None:
        self.dead = True
        self.pending = None
        self.lock.expire(self.number)
        self.oracle.crashed(self.number)
        self.discard()

    def discard(self) -> None:
        """End the process of the job without any effect."""
        if self._actor is not None:
            self._actor.discard()
            self._actor = None

    @property
    def waits(self) -> bool:
        """Whether it can continue."""
        call = self.pending
        return call is not None and (self.lock.is_free or call.operation != LOCK)

    @property
    def state(self) -> Any:
        """Everything but the disk that determines its further calls."""
        if self.dead:
            return "dead"
        return (self._line.history, self.outage) if self.pending is not None else "done"

    # the script

    def _follow(self, answer: Any) -> None:
        line = self._line.answers.get(answer)
        if line is None:
            if self._actor is None or self._actor.line is not self._line:
                self.discard()
                self._actor = Actor(self.scenario, self.disk, self.number, self.life, self._line)
            line = self._actor.proceed(answer)
        self._go_to(line)

    def _go_to(self, line: ScriptNode) -> None:
        self._line = line
        for method, arguments in line.reports:
            getattr(self.oracle, method)(*arguments)

    # calls and their effects

    def _is_shared(self, line: ScriptNode, call: StorageCall) -> bool:
        """Whether another actor can observe the call, or change its answer."""
        if line.is_shared is None:
            line.is_shared = self._is_always_shared(call)
        if line.is_shared is not None:
            return line.is_shared
        if call.path.startswith(self._snapshots):
            return call.path not in self.disk.files
        return self.disk.makers.get(call.path) != self.number

    def _is_always_shared(self, call: StorageCall) -> bool | None:
        """Whether the call is shared whatever its answer; None if that depends on the answer.

        Snapshots never change, and without expiry they stay, so an actor that finds one would find the same at any later time. No
        other actor knows the files that an actor has just written.
        """
        operation, path, _ = call
        scenario = self.scenario
        if scenario.every_call_waits or operation in STATEMENTS:
            return operation != LOOK_AT_LOCK
        if path.startswith(self._shared):
            is_sought = path.startswith(self._snapshots) and operation in ("read_bytes", "exists", "head")
            return None if is_sought and not scenario.files_vanish else True
        if path.startswith(self._schemas) or operation == "write_new":
            return False
        if operation in LISTING_CALLS:
            return True
        if operation == "copy_object":  # the copy is new, but its source may vanish
            return scenario.files_vanish
        return None if scenario.files_vanish or operation in CHANGE_CALLS else False

    def _answer(self, call: StorageCall, fault: str) -> Any:
        if call.operation in STATEMENTS:
            return self.lock.execute(self.number, call)
        if self.outage:
            self.outage -= 1
            self.oracle.could_not_write(call.path)
            return NO_ANSWER
        if fault != GO:
            return self._fault(call, fault)
        return self._change(call) if call.operation in CHANGE_CALLS else self.disk.look(call)

    def _fault(self, call: StorageCall, fault: str) -> str:
        """Make the call, unless the fault prevents that, and return the fault as its answer."""
        self.oracle.met_fault(self.number, call.operation)
        if call.operation in CHANGE_CALLS:
            self.oracle.could_not_write(call.path)
        if fault not in WITHOUT_EFFECT:
            self._change(call)
        if fault == OUTAGE:
            self.outage = OUTAGE_CALLS
            self.oracle.left_files(self.number)
        if fault in UNANSWERED:
            self.oracle.gave_up(self.number)
        return fault

    def _change(self, call: StorageCall) -> Any:
        operation, path, arguments = call
        is_there = path in self.disk.files
        if operation == "delete":
            if not self.disk.remove(path):
                return False
        elif is_there and operation == "put_if_absent":
            return PutOutcome.EXISTS
        elif operation == "copy_object" and arguments[0] not in self.disk.files:
            return MISSING
        elif is_there and operation in ("write_new", "copy_object") and not self._is_again(call):
            return TWO_OF_A_NAME
        else:
            self.disk.put(path, self.disk.files[arguments[0]] if operation == "copy_object" else arguments[0])
            self.disk.makers[path] = self.number
            if operation == "copy_object":
                self.disk.copied.add(path)
        self.oracle.changed(self.number, path)
        return PutOutcome.CREATED if operation == "put_if_absent" else True

    def _is_again(self, call: StorageCall) -> bool:
        """Whether the actor has made this very file: after a copy whose answer was lost, it writes the bytes itself."""
        files, (given,) = self.disk.files, call.arguments
        content = files[given] if call.operation == "copy_object" else given
        is_own = call.path in self.disk.copied and self.disk.makers.get(call.path) == self.number
        return is_own and bool(files[call.path] == content)


@functools.cache
def faults_of(operation: str) -> tuple[str, ...]:
    """The faults that a call may suffer."""
    if operation == "put_if_absent":
        return (CRASH, *STORE_PUT_FAULTS)
    if operation in STATEMENTS:
        return (CRASH,)
    return (CRASH, FAILURE, LOST_CHANGE) if operation in CHANGE_CALLS else (CRASH, FAILURE)


@functools.cache
def _mishaps(actor: int, faults: tuple[str, ...], operation: str) -> list[ScheduledStep]:
    return [ScheduledStep(actor, fault) for fault in faults if fault in faults_of(operation)]
