"""One process of the simulation: a greenlet that runs shipped code until its next call that others could notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from greenlet import getcurrent, greenlet

from paimon_cli.history.table_context import TableContext
from paimon_cli.lab.simulation.oracle import Oracle
from paimon_cli.lab.simulation.scenario import LOCK, PUT_IF_ABSENT
from paimon_cli.lab.simulation.schedule import CRASH, GO
from paimon_cli.lab.simulation.sim_disk import SimDisk
from paimon_cli.lab.simulation.sim_lock import LockRow, SimulatedLock, UnprovenStorage
from paimon_cli.lab.simulation.sim_storage import Crash, SimStorage
from paimon_cli.storage.storage import FileStatus, Storage

Job = Callable[["Actor"], None]
"""What an actor does from its start to its end, with `actor.context`; it tells `actor.oracle` how its commits ended."""

BEGIN_MILLIS = 1_700_000_000_000
SKEW_MILLIS = 5_000
"""Clocks of two actors differ by so much: no order of times follows from the order of events."""


class Actor:
    """`history` folds everything that the actor has seen: with the same history it will do the same."""

    def __init__(self, disk: SimDisk, lock: LockRow, oracle: Oracle, number: int, job: Job) -> None:
        self.disk = disk
        self.lock = lock
        self.oracle = oracle
        self.scenario = oracle.scenario
        self.number = number
        self.job = job
        self.life = 0
        self.outage = 0
        self.greenlet: greenlet | None = None
        self.dead = False
        self.begin()

    def begin(self) -> None:
        """A new life: a fresh process knows nothing of the one that crashed."""
        self.life += 1
        self.dead = self.finished = self.had_outage = self.was_unsure = self.lost_answer = False
        self.outage = 0
        self.history = self.life
        self.pending: tuple[str, str] | None = None
        self.ready: Callable[[], bool] | None = None
        self.passed = self.crash_after = 0
        scenario = self.scenario
        clock, names = ActorClock(self.number), ActorNames(scenario.first_name + self.number, self.life)
        storage = self._storage(clock, names)
        self.context = TableContext(
            scenario.layout.root, storage, scenario.schema, scenario.options, clock, names, read_threads=1
        )
        self.greenlet = greenlet(self._live)

    def _storage(self, clock: ActorClock, names: ActorNames) -> Storage:
        storage, root = SimStorage(self.disk, self.scenario, self), self.scenario.layout.root
        if self.scenario.store == PUT_IF_ABSENT:
            return storage
        lock = SimulatedLock(self, self.lock, root, clock, names) if self.scenario.store == LOCK else None
        return UnprovenStorage(storage, root, lock, allow_unsafe_commit=lock is None, names=names)

    def _live(self) -> None:
        try:
            self.job(self)
        except Crash:
            return
        except Exception as error:
            self.oracle.failed(self.number, error)
        self.finished = True

    # called from the scheduler

    def resume(self, fault: str = GO, place: int = 0) -> None:
        """Run to the next call that waits, or to the end."""
        assert self.greenlet is not None
        self.passed, self.crash_after = 0, place if fault == CRASH else 0
        self.pending = None
        if self.greenlet:
            self.greenlet.switch(GO if place else fault)
        else:
            self.greenlet.switch()  # the first time: its function takes nothing

    def discard(self) -> None:
        """End a greenlet that is still waiting, without any effect."""
        self.dead = True
        if self.greenlet is not None and self.greenlet:
            self.greenlet.throw(Crash)

    @property
    def waits(self) -> bool:
        """Whether it can be let go on."""
        return self.is_on_its_way and (self.ready is None or self.ready())

    @property
    def is_on_its_way(self) -> bool:
        return self.pending is not None and not self.dead

    @property
    def gave_up(self) -> bool:
        """Crashed, ended without knowing what it had done, or had to put twice because an answer was lost."""
        return self.dead or self.life > 1 or self.was_unsure or self.lost_answer

    @property
    def state(self) -> Any:
        return "dead" if self.dead else (self.history, self.outage)

    # called from the actor's own storage

    def wait(self, operation: str, path: str, ready: Callable[[], bool] | None = None) -> str:
        """Stop before a call; `ready` says when it can be made. What befalls it."""
        self.pending, self.ready = (operation, path), ready
        return getcurrent().parent.switch()

    def died_at(self, fault: str) -> bool:
        self.dead = self.dead or fault == CRASH
        return self.dead

    def pass_by(self) -> str:
        self.passed += 1
        return CRASH if self.passed == self.crash_after else GO

    def changed(self, path: str) -> None:
        self.oracle.changed(self, path)

    def saw(self, operation: str, path: str, result: Any) -> None:
        if isinstance(result, list):
            result = tuple(entry.name for entry in result if isinstance(entry, FileStatus))
        self.history = hash((self.history, operation, path, result))


class ActorClock:
    """Time that passes only when the actor sleeps."""

    def __init__(self, number: int) -> None:
        self._now = BEGIN_MILLIS + number * SKEW_MILLIS

    def now_millis(self) -> int:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += int(seconds * 1000)


class ActorNames:
    """UUIDs that tell actor, count and life in their first digits, so that a name in a message can be read.

    The count ends them, too: files of one job have their first half in common.
    """

    def __init__(self, number: int, life: int) -> None:
        self._number = number
        self._middle = f"-{life:04x}-4000-8000-00000000"
        self._count = 0

    def uuid(self) -> str:
        self._count += 1
        return f"{self._number:04x}{self._count:04x}{self._middle}{self._count:04x}"

    def jitter(self) -> float:
        return 0.5
