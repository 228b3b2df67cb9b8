"""The database of the commit lock: JDBC and SQLAlchemy URLs -> an engine."""

from __future__ import annotations

from typing import Any

from sqlalchemy import URL, Engine, create_engine, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import NullPool

from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.storage.lock_settings import LockSettings
from paimon_cli.storage.redaction import without_user_info

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
