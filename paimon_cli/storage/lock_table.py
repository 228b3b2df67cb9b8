"""The lock table `paimon_distributed_locks` in SQLite, PostgreSQL and MySQL (FORMAT.md, section 14.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    TIMESTAMP,
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Engine,
    MetaData,
    Table,
    delete,
    func,
    insert,
    inspect,
    literal_column,
    null,
    select,
    text,
)
from sqlalchemy.exc import DBAPIError, IntegrityError

from paimon_cli.errors import DamagedFile
from paimon_cli.storage.sql_database import Text

NAME = "paimon_distributed_locks"
OWNER = "lock_owner"

_AGE = {
    "sqlite": "(CAST(strftime('%s', 'now') AS INTEGER) - CAST(strftime('%s', acquired_at) AS INTEGER))",
    "postgresql": "EXTRACT(EPOCH FROM (LOCALTIMESTAMP - acquired_at))",
    "mysql": "TIMESTAMPDIFF(SECOND, acquired_at, NOW())",
    "mariadb": "TIMESTAMPDIFF(SECOND, acquired_at, NOW())",
}
"""SQL for the seconds since a lock was acquired, by the database's clock."""


@dataclass(frozen=True)
class HeldLock:
    """A row of the lock table. `owner` is None for older Java, which records none; ages are by the database's clock."""

    lock_id: str
    owner: str | None
    age_seconds: float
    life_seconds: float

    @property
    def is_expired(self) -> bool:
        """Whether the next writer may take it over."""
        return self.age_seconds > self.life_seconds


class LockTable:
    """Statements on the lock table, each in a transaction of its own. Database failures raise `SQLAlchemyError`."""

    def __init__(self, engine: Engine, key_length: int) -> None:
        self._engine = engine
        self._age: ColumnElement[Any] = literal_column(_AGE[engine.dialect.name])
        self._table = Table(
            NAME,
            MetaData(),
            Column("lock_id", Text(key_length), primary_key=True),
            Column("acquired_at", TIMESTAMP, server_default=func.current_timestamp(), nullable=False),
            Column("expire_time_seconds", BigInteger, server_default=text("0"), nullable=False),
            Column(OWNER, Text(36)),
        )
        self._is_ready = False

    def connect(self) -> Connection:
        """Connect, creating the table or adding its newest column if necessary."""
        connection = self._engine.connect()
        if not self._is_ready:
            try:
                self._make(connection)
            except BaseException:
                connection.close()
                raise
            self._is_ready = True
        return connection

    def insert(self, connection: Connection, lock_id: str, owner: str, expiry_seconds: int) -> bool:
        """Insert the row; False if the lock is held."""
        row = {"lock_id": lock_id, "expire_time_seconds": expiry_seconds, OWNER: owner}
        try:
            connection.execute(insert(self._table).values(row))
        except IntegrityError:
            return False
        return True

    def remove_expired(self, connection: Connection, lock_id: str) -> None:
        table = self._table.c
        connection.execute(delete(self._table).where(table.lock_id == lock_id, self._age > table.expire_time_seconds))

    def seconds_left(self, connection: Connection, lock_id: str) -> float:
        """Seconds until the lock expires, for any holder; 0 if it is free."""
        table = self._table.c
        left = connection.execute(select(table.expire_time_seconds - self._age).where(table.lock_id == lock_id)).scalar()
        return 0.0 if left is None else float(left)

    def age_seconds(self, connection: Connection, lock_id: str, owner: str) -> float | None:
        """Age of the owner's row in seconds; None if there is no such row."""
        table = self._table.c
        query = select(self._age).where(table.lock_id == lock_id, table.lock_owner == owner)
        age = connection.execute(query).scalar()
        return None if age is None else float(age)

    def delete(self, connection: Connection, lock_id: str, owner: str) -> bool:
        """Delete the owner's row; returns whether it existed."""
        table = self._table.c
        done = connection.execute(delete(self._table).where(table.lock_id == lock_id, table.lock_owner == owner))
        return bool(done.rowcount)

    def held(self, lock_id: str | None = None) -> list[HeldLock] | None:
        """The rows, or only that of one lock, oldest first; None if the table does not exist. Read-only."""
        with self._engine.connect() as connection:
            if not inspect(connection).has_table(NAME):
                return None
            table = self._table.c
            owner: ColumnElement[Any] = table.lock_owner if self._has_owner(connection) else null()
            query = select(table.lock_id, owner, self._age, table.expire_time_seconds).order_by(self._age.desc(), table.lock_id)
            if lock_id is not None:
                query = query.where(table.lock_id == lock_id)
            rows = connection.execute(query).all()
        try:
            return [HeldLock(name, owner, float(age), float(life)) for name, owner, age, life in rows]
        except (TypeError, ValueError):
            hint = "remove the row, once no writer holds its lock"
            raise DamagedFile(f"a row of {NAME} is damaged", "its times are no numbers", hint) from None

    def break_held(self, lock: HeldLock) -> bool:
        """Delete the row of exactly this holder; returns whether it still existed."""
        table = self._table.c
        conditions = [table.lock_id == lock.lock_id, table.expire_time_seconds == lock.life_seconds]
        with self.connect() as connection:
            conditions.append(table.lock_owner.is_(None) if lock.owner is None else table.lock_owner == lock.owner)
            return bool(connection.execute(delete(self._table).where(*conditions)).rowcount)

    def _make(self, connection: Connection) -> None:
        if not inspect(connection).has_table(NAME):
            self._unless_done(connection, lambda: self._table.create(connection))
        if not self._has_owner(connection):
            statement = text(f"ALTER TABLE {NAME} ADD COLUMN {OWNER} VARCHAR(36)")
            self._unless_done(connection, lambda: connection.execute(statement))

    def _unless_done(self, connection: Connection, change: Callable[[], object]) -> None:
        """Run `change`, ignoring its failure if another client has made the same change at the same time."""
        try:
            change()
        except DBAPIError:
            if not (inspect(connection).has_table(NAME) and self._has_owner(connection)):
                raise

    def _has_owner(self, connection: Connection) -> bool:
        return any(column["name"] == OWNER for column in inspect(connection).get_columns(NAME))
