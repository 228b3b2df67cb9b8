"""The commit lock of a JDBC catalog: a row of `paimon_distributed_locks` (FORMAT.md, section 14.2; Java JdbcCatalogLock).

The row names its owner, so that a holder can tell whether it still holds the lock. (The column `lock_owner` exists in newer Java
versions, which also add it to older tables.) It expires `lock-acquire-timeout` after it was acquired, by the database's clock.

An expiring lock cannot stop a holder that has lost it without noticing. A writer that is suspended between its last check of the
row and its put, or whose put outlasts the lock, may still write while the next holder has the lock. `Lease.confirm` keeps that
window small: it checks the row right before the put, and fails once half of the lock's lifetime has passed, so that the put has
the other half to arrive. On a store with a proven put-if-absent the put itself is exclusive, and this risk does not exist.

PostgreSQL keeps `acquired_at` in the session's time zone. All clients must use the same one (PGTZ; in Java that of the JVM),
otherwise locks appear older or younger than they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paimon_cli.errors import StorageUnavailable, importing
from paimon_cli.storage.catalog_options import LockSettings, lock_id
from paimon_cli.storage.injected import Clock, RandomSource, SystemClock, SystemRandom

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from paimon_cli.storage.lock_table import HeldLock, LockTable

_FIRST_SLEEP = 100
_ROUNDING = 1_000
"""Milliseconds. SQLite and MySQL report the age of a lock in whole seconds."""
_GRACE = 2 * _ROUNDING
"""How long (milliseconds) a row may outlive its expiry because of rounding; waiters must not give up before that."""


class CommitLock:
    """The commit lock of one table. Connects only when it is acquired; picklable."""

    def __init__(
        self, settings: LockSettings, table_url: str, clock: Clock | None = None, random: RandomSource | None = None
    ) -> None:
        self._settings = settings
        self._table_url = table_url
        self._id = lock_id(settings, table_url)
        self._clock = clock or SystemClock()
        self._random = random or SystemRandom()
        self._opened: LockTable | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return CommitLock, (self._settings, self._table_url, self._clock, self._random)

    def check(self) -> None:
        """Connect once, so that a wrong address or login fails before any work is done."""
        self._connect()[1].close()

    @contextlib.contextmanager
    def held(self) -> Iterator[Lease]:
        """Acquire the lock, waiting up to `lock-acquire-timeout`, and release it at the end of the block.

        Raises `StorageUnavailable` if the lock cannot be acquired or the database does not answer.
        """
        table, connection = self._connect()
        with contextlib.closing(connection):
            lease = self._acquire(table, connection)
            try:
                yield lease
            finally:
                lease.release()

    def _acquire(self, table: LockTable, connection: Connection) -> Lease:
        owner, begin, sleep = self._random.uuid(), self._clock.now_millis(), _FIRST_SLEEP
        while True:
            since = self._clock.now_millis()
            with _database_errors(self._settings):
                table.remove_expired(connection, self._id)
                if table.insert(connection, self._id, owner, self._lifetime_seconds):
                    return Lease(
                        self._settings, table, connection, self._clock, self._id, owner, since, self._lifetime_seconds * 500
                    )
                left = table.seconds_left(connection, self._id)
            waited = self._clock.now_millis() - begin
            if waited > self._settings.acquire_timeout + _GRACE:
                raise StorageUnavailable(
                    f"could not acquire the commit lock {self._id}",
                    f"other writers held it for the {waited / 1000:.0f} s of waiting",
                    "try again, or raise lock-acquire-timeout",
                    lock_id=self._id,
                )
            pause = sleep * (1 + self._random.jitter()) / 2000
            self._clock.sleep(min(pause, max(left, _FIRST_SLEEP / 1000)))
            sleep = min(2 * sleep, self._settings.max_sleep)

    @property
    def _lifetime_seconds(self) -> int:
        return max(1, -(-self._settings.acquire_timeout // 1000))

    def _connect(self) -> tuple[LockTable, Connection]:
        if self._opened is None:
            self._opened = _lock_table(self._settings)
        with _database_errors(self._settings):
            return self._opened, self._opened.connect()


@dataclass
class Lease:
    """A held lock. `since`: epoch millis just before its row was inserted; a put may begin until `usable_millis` after that."""

    settings: LockSettings
    table: LockTable
    connection: Connection
    clock: Clock
    lock_id: str
    owner: str
    since: int
    usable_millis: int
    released: bool | None = None

    def confirm(self) -> None:
        """Raise `StorageUnavailable` if the lock is lost or too old; to be called right before a put."""
        with _database_errors(self.settings):
            age = self.table.age_seconds(self.connection, self.lock_id, self.owner)
        held = self.clock.now_millis() - self.since
        if age is None or held < 0 or max(held, age * 1000 - _ROUNDING) >= self.usable_millis:
            raise StorageUnavailable(
                f"the commit lock {self.lock_id} was lost before the commit",
                "another writer took it over" if age is None else f"it was held for {held / 1000:g} s before the commit began",
                "try again, or raise lock-acquire-timeout",
                lock_id=self.lock_id,
            )

    def release(self) -> bool:
        """Release the lock; returns whether it was still held. If the database does not answer, the row expires by itself."""
        if self.released is None:
            self.released = False
            with contextlib.suppress(StorageUnavailable), _database_errors(self.settings):
                self.released = self.table.delete(self.connection, self.lock_id, self.owner)
        return self.released


def held_locks(settings: LockSettings, name: str | None = None) -> list[HeldLock] | None:
    """The current locks in the database, or only the one called `name`; None if the lock table does not exist. Read-only."""
    table = _lock_table(settings)
    with _database_errors(settings):
        return table.held(name)


def break_lock(settings: LockSettings, lock: HeldLock) -> bool:
    """Remove a lock from its holder; returns whether that holder still had it."""
    table = _lock_table(settings)
    with _database_errors(settings):
        return table.break_held(lock)


def _lock_table(settings: LockSettings) -> LockTable:
    with importing("the commit lock needs SQLAlchemy", "jdbc"):
        from paimon_cli.storage.lock_table import LockTable
        from paimon_cli.storage.sql_database import open_database

    return LockTable(open_database(settings), settings.key_length)


def _database_errors(settings: LockSettings) -> contextlib.AbstractContextManager[None]:
    from paimon_cli.storage.sql_database import database_errors

    return database_errors(settings)
