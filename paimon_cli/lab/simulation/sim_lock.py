"""Stores without put-if-absent: the shipped guard on the simulated storage, and the shipped lock on a simulated database.

Only the statements on the row of the lock are simulated. A waiting actor continues as soon as the row is free, so that schedules
do not differ in the number of attempts. The row of a dead holder expires at once, that of a live one never: a lock cannot prevent
what a holder does that was paused for longer than its lock is valid (`storage.commit_lock`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from paimon_cli.lab.simulation.sim_storage import Crash
from paimon_cli.storage.catalog_options import LockSettings
from paimon_cli.storage.commit_lock import CommitLock
from paimon_cli.storage.guarded_storage import GuardedStorage

SETTINGS = LockSettings("simulated")


class Holder(Protocol):
    """An actor that may hold the lock."""

    life: int
    dead: bool

    def wait(self, operation: str, path: str, ready: Callable[[], bool] | None = None) -> str: ...

    def died_at(self, fault: str) -> bool: ...

    def saw(self, operation: str, path: str, result: Any) -> None: ...


class LockRow:
    """The row of one table in `paimon_distributed_locks`: its holder, the life of that actor, and the name of the lock."""

    def __init__(self) -> None:
        self._holder: tuple[Holder, int, str] | None = None

    @property
    def is_free(self) -> bool:
        return self._holder is None or self._holder[0].dead or self._holder[0].life != self._holder[1]

    def take(self, actor: Holder, owner: str) -> None:
        self._holder = (actor, actor.life, owner)

    def is_held_by(self, owner: str) -> bool:
        return self._holder is not None and self._holder[2] == owner

    def release(self) -> None:
        self._holder = None


class UnprovenStorage(GuardedStorage):
    """A store whose `put_if_absent` is not reliable."""

    @property
    def _has_primitive(self) -> bool:
        return False


class SimulatedLock(CommitLock):
    """The shipped lock, with a database of one row in memory."""

    def __init__(self, actor: Holder, row: LockRow, root: str, clock: Any, random: Any) -> None:
        super().__init__(SETTINGS, root, clock, random)
        self._table = _Statements(actor, row)

    def _connect(self) -> Any:
        return self._table, self._table


class _Statements:
    """Stands for `LockTable` and its connection; each statement that others can notice waits for the scheduler."""

    def __init__(self, actor: Holder, row: LockRow) -> None:
        self._actor = actor
        self._row = row

    def close(self) -> None:
        """There is no connection to close."""

    def remove_expired(self, connection: Any, lock_id: str) -> None:
        """A dead holder has lost its row already."""

    def insert(self, connection: Any, lock_id: str, owner: str, expiry_seconds: int) -> bool:
        self._step("lock", lock_id, lambda: self._row.is_free)
        self._row.take(self._actor, owner)
        return True

    def age_seconds(self, connection: Any, lock_id: str, owner: str) -> float | None:
        return 0.0 if self._row.is_held_by(owner) else None

    def delete(self, connection: Any, lock_id: str, owner: str) -> bool:
        self._step("unlock", lock_id)
        held = self._row.is_held_by(owner)
        self._row.release()
        return held

    def _step(self, operation: str, lock_id: str, ready: Callable[[], bool] | None = None) -> None:
        if self._actor.dead or self._actor.died_at(self._actor.wait(operation, lock_id, ready)):
            raise Crash
        self._actor.saw(operation, lock_id, True)
