"""SQLAlchemy engines for JDBC and SQLAlchemy URLs of SQLite, PostgreSQL and MySQL (FORMAT.md, section 14.2)."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from urllib.parse import unquote

from sqlalchemy import (
    URL,
    Column,
    ColumnElement,
    Dialect,
    Engine,
    String,
    TypeDecorator,
    create_engine,
    event,
    make_url,
    type_coerce,
)
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from paimon_cli.errors import DamagedFile, NotSupported, PaimonError, StorageUnavailable, UsageError
from paimon_cli.storage.catalog_options import DatabaseAddress
from paimon_cli.storage.redaction import redact, shown_address

COMMIT_LOCK = "the commit lock"
MAX_TEXT = 10_000
"""Characters of a text in a catalog's database; its columns have up to 1,000."""


class Text(TypeDecorator[str]):
    """Texts of a column. SQLite returns whatever a row holds: another type, or a longer text, raises `DamagedFile`."""

    impl = String
    cache_ok = True

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else checked_text(value)


def checked_text(value: Any) -> str:
    """A value of a row that must be a text. Raises `DamagedFile`."""
    if isinstance(value, str) and len(value) <= MAX_TEXT:
        return value
    is_text = isinstance(value, str)
    why = f"it has a text of {len(value):,} characters" if is_text else f"it has {type(value).__name__} where a text belongs"
    raise DamagedFile("a row in the database of the catalog is damaged", why, "correct or remove the row")


def as_stored(column: Column[Any]) -> ColumnElement[Any]:
    """A column whose values are not checked in the query, so that one bad row does not hide the others; see `checked_text`."""
    return type_coerce(column, String())


_WAIT_SECONDS = 30
_READ_SECONDS = 60
_DRIVERS = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql", "mariadb": "mariadb+pymysql"}
_ARGUMENTS: dict[str, dict[str, Any]] = {
    "sqlite": {"timeout": _WAIT_SECONDS},
    "postgresql": {"connect_timeout": _WAIT_SECONDS},
    "mysql": {"connect_timeout": _WAIT_SECONDS, "read_timeout": _READ_SECONDS, "write_timeout": _READ_SECONDS},
    "mariadb": {"connect_timeout": _WAIT_SECONDS, "read_timeout": _READ_SECONDS, "write_timeout": _READ_SECONDS},
}
"""Driver arguments of the supported databases: timeouts in seconds for connecting, for a read, or for a locked file."""
_JDBC_PARAMETERS = {"postgresql": ("sslmode",)}
"""Parameters of JDBC URLs, besides user and password, with the same name and meaning in the Python driver."""


def open_database(address: DatabaseAddress, what: str = COMMIT_LOCK, *, in_transactions: bool = False) -> Engine:
    """An engine for a database, not connected yet; `what` names its purpose in messages.

    Each statement runs in a transaction of its own, unless `in_transactions`. Raises `UsageError` for an invalid URL or a
    missing driver, and `NotSupported` for other databases.
    """
    try:
        url = _url(address)
        if not _PLAIN_HOST.fullmatch(url.host or ""):
            raise ValueError("a form of address that only the Java driver understands, and that may hold a login")
        dialect = url.get_backend_name()
        if dialect not in _ARGUMENTS:
            raise NotSupported(
                f"no support for {what} in {dialect}", f"the supported databases are {', '.join(sorted(_ARGUMENTS))}"
            )
        if dialect == "sqlite" and _is_in_memory(url):
            why = "each connection would find an empty one: a lock would stop no writer, and a catalog would forget its tables"
            raise UsageError(f"the database of {what} is in memory", why, "name a file: uri=jdbc:sqlite:/path/catalog.db")
        isolation = {} if in_transactions else {"isolation_level": "AUTOCOMMIT"}
        engine = create_engine(url, poolclass=NullPool, hide_parameters=True, connect_args=_ARGUMENTS[dialect], **isolation)
        if (connect := _bounded_connect(engine.driver)) is not None:
            event.listen(
                engine, "do_connect", partial(_connected, connect, f"{what} {shown_address(address.uri)}", bool(url.query))
            )
        return engine
    except (ArgumentError, NoSuchModuleError, ImportError, ValueError) as error:
        why = (
            next(iter(str(error).splitlines()), "") if isinstance(error, ImportError) else "it is not the URL of a known database"
        )
        hint = "write uri=jdbc:postgresql://host:5432/database, and install the driver of that database"
        raise UsageError(f"cannot open the database of {what} {shown_address(address.uri)}", why, hint) from None


def _is_in_memory(url: URL) -> bool:
    """Whether SQLite keeps the database in memory, or in a temporary file, for one connection."""
    name, parameters = (url.database or "").removeprefix("file:"), url.query
    return name in ("", ":memory:") or "memory" in parameters.get("mode", ()) or "memdb" in parameters.get("vfs", ())


def _connected(
    connect: Callable[..., Any],
    database: str,
    has_parameters: bool,
    dialect: Dialect,
    record: object,
    arguments: list[Any],
    options: dict[str, Any],
) -> Any:
    """A new connection. Raises `UsageError` for a URL of SQLAlchemy that the driver does not take, or its parameters."""
    try:
        return connect(*arguments, **options)
    except (TypeError, ValueError, LookupError, AttributeError, OSError) as error:
        if isinstance(error, (PaimonError, dialect.loaded_dbapi.Error)):
            raise
        what = f"cannot connect to the database of {database}"
        if not has_parameters:
            raise UsageError(what, "its driver does not take the address", "correct it") from None
        why = "its driver does not take the address, the parameters of the URL, or their values"
        raise UsageError(what, why, "correct or leave out what follows the ?") from None


def _bounded_connect(driver: str) -> Callable[..., Any] | None:
    """How to connect so that answers are bounded; None for drivers without, which only the URL of SQLAlchemy can name."""
    if driver == "psycopg":
        from paimon_cli.storage import bounded_postgres

        return bounded_postgres.connect
    if driver == "pymysql":
        from paimon_cli.storage import bounded_mysql

        return bounded_mysql.connect
    return None


def _url(address: DatabaseAddress) -> URL:
    if not address.uri.startswith("jdbc:"):
        url = _with_login(address.uri)
        url = url.set(drivername=_DRIVERS.get(url.drivername, url.drivername))
        if url.get_backend_name() == "sqlite":  # has no login, as with a JDBC URL
            return url
        given = {key: value if isinstance(value, str) else value[-1] for key, value in url.query.items()}
        user, password = (given.get(key) or own for key, own in (("user", url.username), ("password", url.password)))
        url = url.difference_update_query(["user", "password"])
        return url.set(username=address.user or user, password=address.password or password)
    plain = address.uri.removeprefix("jdbc:")
    if plain.startswith("sqlite:"):
        return URL.create("sqlite", database=plain.removeprefix("sqlite:").removeprefix("file:").partition("?")[0])
    url = _with_login(plain)
    query = {key: value if isinstance(value, str) else value[-1] for key, value in url.query.items()}
    user, password = query.pop("user", url.username), query.pop("password", url.password)
    known = _JDBC_PARAMETERS.get(url.drivername, ())
    unknown = next((key for key in query if key not in known), None)
    if unknown is not None:
        # After a password, what looks like the name of a parameter may be the end of the password; the first one is not.
        name = f"parameter {unknown}" if password is None else "parameter"
        why = f"only the Java driver supports it; besides user and password, {', '.join(known) or 'none'} is supported"
        raise UsageError(f"unsupported {name} in the JDBC URL", why, "give an SQLAlchemy URL as uri")
    user, password = address.user or user, address.password or password
    return URL.create(_DRIVERS.get(url.drivername, url.drivername), user, password, url.host, url.port, url.database, query)


_PLAIN_HOST = re.compile(r"[\w.:%-]*")
_HOST = re.compile(r"[^:@]*(:\d*)?")
_PARAMETER = re.compile(r"[?&;][\w.-]+=")


def _with_login(url: str) -> URL:
    """The URL, whose password may contain @ and /: the last @ ends the login, unless it belongs to a parameter or the path."""
    scheme, mark, rest = url.partition("://")
    address, question, parameters = rest.partition("?")
    if "@" in address or _HOST.fullmatch(address.partition("/")[0]):  # the @ of a parameter is none of a login
        rest = f"{address}{question}{parameters.replace('@', '%40')}"
        url = f"{scheme}{mark}{rest}"
    login, at, server = rest.rpartition("@")
    if not at or _PARAMETER.search(login) or ("/" in login and _HOST.fullmatch(login.partition("/")[0])):
        return make_url(url)
    user, colon, password = login.partition(":")
    return make_url(f"{scheme}{mark}{server}").set(username=unquote(user), password=unquote(password) if colon else None)


@contextlib.contextmanager
def database_errors(address: DatabaseAddress, what: str = COMMIT_LOCK) -> Iterator[None]:
    """Translate errors of the database into `StorageUnavailable`, without secrets."""
    try:
        yield
    except SQLAlchemyError as error:
        text = next(iter(str(getattr(error, "orig", None) or error).splitlines()), type(error).__name__)
        why = redact(text, {"uri": address.uri, "password": address.password})
        raise StorageUnavailable(f"the database of {what} does not answer", why, "check uri") from None
