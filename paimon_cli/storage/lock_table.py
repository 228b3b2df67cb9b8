"""The lock table `paimon_distributed_locks` in SQLite, PostgreSQL and MySQL (FORMAT.md, section 14.2).

JDBC and SQLAlchemy URLs lead to the database.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    TIMESTAMP,
    URL,
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Engine,
    MetaData,
    String,
    Table,
    create_engine,
    delete,
    func,
    insert,
    inspect,
    literal_column,
    make_url,
    null,
    select,
    text,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoSuchModuleError
from sqlalchemy.pool import NullPool

from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.storage.catalog_options import LockSettings, without_user_info

_WAIT_SECONDS = 30
_DRIVERS = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql", "mariadb": "mariadb+pymysql"}
_ARGUMENTS: dict[str, dict[str, Any]] = {
    "sqlite": {"timeout": _WAIT_SECONDS},
    "postgresql": {"connect_timeout": _WAIT_SECONDS},
    "mysql": {"connect_timeout": _WAIT_SECONDS},
    "mariadb": {"connect_timeout": _WAIT_SECONDS},
}
"""Known databases, and how long their drivers wait for a connection or a busy file."""
_JDBC_PARAMETERS = {"sslmode"}
"""Parameters of JDBC URLs, besides user and password, that mean the same to the Python driver."""


def open_database(settings: LockSettings) -> Engine:
    """Nothing is connected yet. UsageError when the URL or its driver is no good; each statement is its own transaction."""
    try:
        url = _url(settings)
        dialect = url.get_backend_name()
        if dialect not in _ARGUMENTS:
            raise NotSupported(f"a commit lock in {dialect}", f"the supported databases are {', '.join(sorted(_ARGUMENTS))}")
        return create_engine(
            url, poolclass=NullPool, isolation_level="AUTOCOMMIT", hide_parameters=True, connect_args=_ARGUMENTS[dialect]
        )
    except (ArgumentError, NoSuchModuleError, ImportError, ValueError) as error:
        why = str(error).splitlines()[0] if isinstance(error, ImportError) else "it is not the URL of a known database"
        hint = "write uri=jdbc:postgresql://host:5432/database, and install the driver of that database"
        raise UsageError(f"cannot open the lock's database {without_user_info(settings.uri)}", why, hint) from None


def _url(settings: LockSettings) -> URL:
    if not settings.uri.startswith("jdbc:"):
        url = make_url(settings.uri)
        return url.set(drivername=_DRIVERS.get(url.drivername, url.drivername))
    plain = settings.uri.removeprefix("jdbc:")
    if plain.startswith("sqlite:"):
        return URL.create("sqlite", database=plain.removeprefix("sqlite:").removeprefix("file:").partition("?")[0])
    url = make_url(plain)
    query = {key: value if isinstance(value, str) else value[-1] for key, value in url.query.items()}
    user, password = query.pop("user", url.username), query.pop("password", url.password)
    unknown = sorted(query.keys() - _JDBC_PARAMETERS)
    if unknown:
        why = "only the Java driver supports it"
        raise UsageError(f"parameter {unknown[0]} of the JDBC URL", why, "give an SQLAlchemy URL as uri")
    user, password = settings.user or user, settings.password or password
    return URL.create(_DRIVERS.get(url.drivername, url.drivername), user, password, url.host, url.port, url.database, query)


NAME = "paimon_distributed_locks"
OWNER = "lock_owner"

_AGE = {
    "sqlite": "(CAST(strftime('%s', 'now') AS INTEGER) - CAST(strftime('%s', acquired_at) AS INTEGER))",
    "postgresql": "EXTRACT(EPOCH FROM (LOCALTIMESTAMP - acquired_at))",
    "mysql": "TIMESTAMPDIFF(SECOND, acquired_at, NOW())",
    "mariadb": "TIMESTAMPDIFF(SECOND, acquired_at, NOW())",
}
"""Seconds since the lock was taken, by the database's own clock."""


@dataclass(frozen=True)
class HeldLock:
    """A row. `owner` is None for holders that leave no name (older Java); ages by the database's clock."""

    lock_id: str
    owner: str | None
    age_seconds: float
    life_seconds: float

    @property
    def is_expired(self) -> bool:
        """Whether the next writer may take it over."""
        return self.age_seconds > self.life_seconds


class LockTable:
    """Statements on the table, each its own transaction. Failures of the database are `SQLAlchemyError`."""

    def __init__(self, engine: Engine, key_length: int) -> None:
        self._engine = engine
        self._age: ColumnElement[Any] = literal_column(_AGE[engine.dialect.name])
        self._table = Table(
            NAME,
            MetaData(),
            Column("lock_id", String(key_length), primary_key=True),
            Column("acquired_at", TIMESTAMP, server_default=func.current_timestamp(), nullable=False),
            Column("expire_time_seconds", BigInteger, server_default=text("0"), nullable=False),
            Column(OWNER, String(36)),
        )
        self._is_ready = False

    def connect(self) -> Connection:
        """A connection; makes the table, or gives it its newest column, if need be."""
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
        """Seconds until the current lock expires, also if another process holds it; 0 if there is none."""
        table = self._table.c
        left = connection.execute(select(table.expire_time_seconds - self._age).where(table.lock_id == lock_id)).scalar()
        return 0.0 if left is None else float(left)

    def age_seconds(self, connection: Connection, lock_id: str, owner: str) -> float | None:
        """Age of the owner's row; None if it is not there."""
        table = self._table.c
        query = select(self._age).where(table.lock_id == lock_id, table.lock_owner == owner)
        age = connection.execute(query).scalar()
        return None if age is None else float(age)

    def delete(self, connection: Connection, lock_id: str, owner: str) -> bool:
        """Whether the owner's row was there."""
        table = self._table.c
        done = connection.execute(delete(self._table).where(table.lock_id == lock_id, table.lock_owner == owner))
        return bool(done.rowcount)

    def held(self, lock_id: str | None = None) -> list[HeldLock] | None:
        """The rows, or that of one lock, oldest first; None if the table does not exist yet. Changes nothing."""
        with self._engine.connect() as connection:
            if not inspect(connection).has_table(NAME):
                return None
            table = self._table.c
            owner: ColumnElement[Any] = table.lock_owner if self._has_owner(connection) else null()
            query = select(table.lock_id, owner, self._age, table.expire_time_seconds).order_by(self._age.desc(), table.lock_id)
            if lock_id is not None:
                query = query.where(table.lock_id == lock_id)
            return [HeldLock(name, owner, float(age), float(life)) for name, owner, age, life in connection.execute(query)]

    def break_held(self, lock: HeldLock) -> bool:
        """Remove the row of exactly this holder; whether it was still there."""
        table = self._table.c
        mine = [table.lock_id == lock.lock_id, table.expire_time_seconds == lock.life_seconds]
        with self.connect() as connection:
            mine.append(table.lock_owner.is_(None) if lock.owner is None else table.lock_owner == lock.owner)
            return bool(connection.execute(delete(self._table).where(*mine)).rowcount)

    def _make(self, connection: Connection) -> None:
        if not inspect(connection).has_table(NAME):
            self._unless_done(connection, lambda: self._table.create(connection))
        if not self._has_owner(connection):
            statement = text(f"ALTER TABLE {NAME} ADD COLUMN {OWNER} VARCHAR(36)")
            self._unless_done(connection, lambda: connection.execute(statement))

    def _unless_done(self, connection: Connection, change: Callable[[], object]) -> None:
        """Another client may make the same change at the same time."""
        try:
            change()
        except DBAPIError:
            if not (inspect(connection).has_table(NAME) and self._has_owner(connection)):
                raise

    def _has_owner(self, connection: Connection) -> bool:
        return any(column["name"] == OWNER for column in inspect(connection).get_columns(NAME))
