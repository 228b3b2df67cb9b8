"""`locks`: how concurrent commits to a table exclude each other, and who holds its commit lock if it has one."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paimon_cli.catalog.metastore.metastore import Metastore
from paimon_cli.catalog.table_location import TableLocation
from paimon_cli.errors import NotFound, Refused, UsageError
from paimon_cli.storage.capabilities import PublishesSnapshots
from paimon_cli.storage.catalog_options import LockSettings, lock_id, lock_settings
from paimon_cli.storage.commit_lock import break_lock, held_locks
from paimon_cli.storage.guarded_storage import GuardedStorage, PublishMethod
from paimon_cli.storage.redaction import without_login
from paimon_cli.storage.storage import Storage
from paimon_cli.storage.storage_for_url import storage_for_url

if TYPE_CHECKING:
    from paimon_cli.storage.lock_table import HeldLock

PUT_IF_ABSENT, LOCK, SERVER, UNSAFE = "put-if-absent", "lock", "server", "unsafe"
MECHANISM_MEANING = {
    PUT_IF_ABSENT: "the storage creates a snapshot file only if it does not exist; no lock is needed",
    LOCK: "a writer publishes its snapshot while it holds a lock: a row of paimon_distributed_locks, "
    "or a lock of the Hive metastore",
    SERVER: "the server of the REST catalog publishes snapshots; no lock is needed",
    UNSAFE: "the storage cannot create a file exclusively, and the catalog has no lock: commits are refused (exit 7)",
}
"""What each mechanism means."""


@dataclass(frozen=True)
class LockRow:
    """A table, a warehouse (None if it has no name), or a row of the lock table.

    `holder` and the following fields are None if the lock is free; `holder` is also None if it was not recorded (older
    Java). Times are by the clock of the database.
    """

    table: str | None
    mechanism: str
    lock_id: str | None = None
    is_held: bool = False
    holder: str | None = None
    age_seconds: float | None = None
    expires_in_seconds: float | None = None
    is_expired: bool | None = None


@dataclass(frozen=True)
class LockReport:
    """The mechanism and the locks. `has_lock_table`: whether the database has a lock table; None without a database."""

    mechanism: str
    rows: list[LockRow]
    has_lock_table: bool | None = None


def table_lock(location: TableLocation, storage: Storage, root: str) -> LockReport:
    """The mechanism of one table, with the holder if its lock is held."""
    settings = lock_settings(location.storage_options)
    if settings is None:
        mechanism = _mechanism(storage)
        return LockReport(mechanism, [LockRow(location.name, mechanism)])
    name = lock_id(settings, root)
    held = held_locks(settings, name)
    rows = [_row(location.name, lock) for lock in held or ()]
    return LockReport(LOCK, rows or [LockRow(location.name, LOCK, name)], held is not None)


def warehouse_locks(metastore: Metastore) -> LockReport:
    """The locks of this catalog that are held in its database, or one row for the warehouse if there are none.

    Raises `UsageError` if neither a lock database nor a warehouse is configured.
    """
    settings = lock_settings(metastore.options)
    if settings is None:
        if metastore.warehouse is None:
            why = "no table, warehouse or lock database was named"
            raise UsageError("there are no locks to list", why, "name a TABLE, or pass --warehouse URI")
        storage, _ = storage_for_url(metastore.warehouse, metastore.options)
        mechanism = _mechanism(storage)
        return LockReport(mechanism, [LockRow(metastore.warehouse, mechanism)])
    held, prefix = held_locks(settings), f"{settings.catalog_key}."
    of_catalog = [lock for lock in held or () if lock.lock_id.startswith(prefix)]
    rows = [_row(lock.lock_id.removeprefix(prefix), lock) for lock in of_catalog]
    return LockReport(LOCK, rows or [LockRow(metastore.warehouse, LOCK)], held is not None)


def breakable_lock(location: TableLocation, root: str, *, even_if_valid: bool = False) -> tuple[LockSettings, HeldLock]:
    """The held lock of a table, to be removed by `break_held_lock`.

    Raises `Refused` while the lock is valid, unless `even_if_valid`; `UsageError` if the table has no lock; `NotFound` if
    it is free.
    """
    settings = lock_settings(location.storage_options)
    if settings is None:
        hint = f"paimon-cli locks ls {shlex.quote(without_login(location.url))}"
        raise UsageError(f"{location.name} has no commit lock", "neither lock.enabled nor metastore=jdbc is set", hint)
    held = held_locks(settings, lock_id(settings, root))
    if not held:
        raise NotFound(f"the lock of {location.name} is not held", f"{lock_id(settings, root)} has no row in the database")
    (lock,) = held
    if not lock.is_expired and not even_if_valid:
        raise Refused(
            f"the lock {lock.lock_id} is still valid",
            "its holder may be publishing a snapshot now, which a second writer could overwrite",
            f"it expires in {lock.life_seconds - lock.age_seconds:.0f} s; pass --even-if-valid if the holder is certainly dead",
        )
    return settings, lock


def break_held_lock(location: TableLocation, settings: LockSettings, lock: HeldLock) -> LockRow:
    """Remove the row of the lock if its holder is still the same; returns the removed row. Raises `NotFound` otherwise."""
    if not break_lock(settings, lock):
        raise NotFound(f"the lock of {location.name} is no longer held", "it was released or taken over just now")
    return _row(location.name, lock)


def _mechanism(storage: Storage) -> str:
    """The mechanism of a table without a lock; probes the storage if its capabilities are unknown."""
    if isinstance(storage, PublishesSnapshots):
        return SERVER
    if not isinstance(storage, GuardedStorage):
        return PUT_IF_ABSENT
    mechanisms = {PublishMethod.PRIMITIVE: PUT_IF_ABSENT, PublishMethod.LOCK: LOCK}
    try:
        return mechanisms.get(storage.publish_method(), UNSAFE)
    except Refused:
        return UNSAFE


def _row(table: str, lock: HeldLock) -> LockRow:
    left = lock.life_seconds - lock.age_seconds
    return LockRow(table, LOCK, lock.lock_id, True, lock.owner, lock.age_seconds, left, lock.is_expired)
