"""Stores without put-if-absent: the shipped guard on the simulated storage, and the shipped lock on a simulated database.

Only the statements on the lock's row are simulated. A waiting actor continues as soon as the row is free, so that schedules do
not differ only in the number of attempts. The row of a crashed holder expires at once, that of a live one never: no lock protects
against a holder that is paused for longer than its lock is valid (`storage.commit_lock`).
"""

from __future__ import annotations

from typing import Any

from paimon_cli.lab.simulation.script import StorageCall
from paimon_cli.lab.simulation.sim_storage import Ask
from paimon_cli.storage.catalog_options import LockSettings
from paimon_cli.storage.commit_lock import CommitLock
from paimon_cli.storage.guarded_storage import GuardedStorage

_SETTINGS = LockSettings("simulated")
LOCK, UNLOCK, LOOK_AT_LOCK = "lock", "unlock", "look at lock"
STATEMENTS = frozenset({LOCK, UNLOCK, LOOK_AT_LOCK})


class SimulatedLockRow:
    """The row of one table in `paimon_distributed_locks`: the actor that holds the lock, and the owner name that it wrote."""

    def __init__(self, holder: int | None = None, owner: str = "") -> None:
        self._holder = holder
        self._owner = owner

    def fork(self) -> SimulatedLockRow:
        return SimulatedLockRow(self._holder, self._owner)

    @property
    def is_free(self) -> bool:
        return self._holder is None

    def expire(self, actor: int) -> None:
        """Release the lock if this actor, which crashed, holds it."""
        if self._holder == actor:
            self._holder = None

    def execute(self, actor: int, call: StorageCall) -> bool:
        """Execute an actor's statement; returns whether the row belongs, or belonged, to it."""
        owner = call.arguments[0]
        if call.operation == LOCK:
            self._holder, self._owner = actor, owner
        is_own = self._holder == actor and self._owner == owner
        if call.operation == UNLOCK and is_own:
            self._holder = None
        return is_own


class UnprovenStorage(GuardedStorage):
    """A store whose `put_if_absent` is not reliable."""

    @property
    def _has_primitive(self) -> bool:
        return False


class SimulatedLock(CommitLock):
    """The shipped lock on a simulated database."""

    def __init__(self, ask: Ask, root: str, clock: Any, random: Any) -> None:
        super().__init__(_SETTINGS, root, clock, random)
        self._table = _Statements(ask)

    def _connect(self) -> Any:
        return self._table, self._table


class _Statements:
    """Replaces `LockTable` and its connection."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def close(self) -> None:
        """There is no connection to close."""

    def remove_expired(self, connection: Any, lock_id: str) -> None:
        """The row of a crashed holder has been removed already."""

    def insert(self, connection: Any, lock_id: str, owner: str, expiry_seconds: int) -> bool:
        return bool(self._ask(StorageCall(LOCK, lock_id, (owner,))))

    def age_seconds(self, connection: Any, lock_id: str, owner: str) -> float | None:
        return 0.0 if self._ask(StorageCall(LOOK_AT_LOCK, lock_id, (owner,))) else None

    def delete(self, connection: Any, lock_id: str, owner: str) -> bool:
        return bool(self._ask(StorageCall(UNLOCK, lock_id, (owner,))))
