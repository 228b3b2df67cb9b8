"""Catalog options for storage, credentials and the commit lock."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.options.option_text import parse_duration, plain_number


class Service(enum.Enum):
    """An object store service; the value is its name in messages."""

    S3 = "S3"
    GOOGLE = "Google Cloud Storage"
    AZURE = "Azure"


OBJECT_STORES = {
    **dict.fromkeys(("s3", "s3a"), Service.S3),
    "gs": Service.GOOGLE,
    **dict.fromkeys(("abfs", "abfss", "az"), Service.AZURE),
}
"""The service of each scheme."""
EXTRAS = {Service.S3: "s3", Service.GOOGLE: "gcs", Service.AZURE: "azure"}
"""The extra of this package that installs the client of each service."""
STORE_PREFIXES = {
    Service.S3: ("s3", "s3a", "fs.s3", "fs.s3a"),
    Service.GOOGLE: ("gs", "fs.gs"),
    Service.AZURE: ("azure", "fs.azure"),
}
"""How the options of each service begin."""
_STORE_PREFIXES = ("fs.", *(f"{prefix}." for prefixes in STORE_PREFIXES.values() for prefix in prefixes))
_LOCK_PREFIXES = ("jdbc.", "lock.", "lock-")
_LOCK_NAMES = {"metastore", "uri", "catalog-key"}
_CATALOG_PREFIXES = ("hive.metastore.", "metastore.client.", "header.", "token.", "dlf.")
USER_PREFIXES = ("http-report.", "hook.", "external-paths.")
"""Settings that only the user makes: in the call or the own configuration file, never in `./paimon.yaml` or in a table."""
EXTERNAL_PLACES = "external-paths.allowed"
"""Setting of the user: the places outside of tables where tables may keep data files."""
PLAIN_HTTP = "allow-plain-http"
"""Option of a REST catalog: send credentials over http to another machine."""
TABLE_TIMEOUT, DEFAULT_TABLE_TIMEOUT = "table-timeout", "1 min"
TRASH_TIME, DEFAULT_TRASH_TIME = "trash-retention", "1 d"
"""Option of a catalog: the time of one look at a table, where a command looks at several (`time_bounds`)."""
_CATALOG_NAMES = {
    *("warehouse", "profile", "sync-all-properties", "hive-conf-dir", "location-in-properties", "alter-table-cascade"),
    *("table.type", "token", "prefix", "data-token.enabled", PLAIN_HTTP, TABLE_TIMEOUT, TRASH_TIME),
}
"""Options that only the catalog reads; stores do not get them."""


def is_catalog_option(key: str) -> bool:
    """Whether an option configures the catalog (its store, lock or metastore), not the table."""
    return key.startswith(_STORE_PREFIXES) or _is_lock_or_metastore_option(key)


def store_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options that tasks need to read and write files, without those of the lock and metastore and their passwords."""
    return {key: value for key, value in options.items() if not _is_lock_or_metastore_option(key)}


def _is_lock_or_metastore_option(key: str) -> bool:
    return key in _LOCK_NAMES | _CATALOG_NAMES or key.startswith(_LOCK_PREFIXES + _CATALOG_PREFIXES + USER_PREFIXES)


def split_options(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Split options into those of the catalog and those of the table."""
    catalog = {key: value for key, value in options.items() if is_catalog_option(key)}
    return catalog, {key: value for key, value in options.items() if key not in catalog}


def file_system_options(scheme: str, options: Mapping[str, str]) -> dict[str, str]:
    """The options for the fsspec file system of a scheme: those prefixed `fs.<scheme>.`, and names without a prefix."""
    prefix = f"fs.{scheme}."
    plain = {key: value for key, value in options.items() if "." not in key and not is_catalog_option(key)}
    return plain | {key.removeprefix(prefix): value for key, value in options.items() if key.startswith(prefix)}


DEFAULT_ACQUIRE_TIMEOUT = "8 min"
DEFAULT_MAX_SLEEP = "8 s"
DEFAULT_KEY_LENGTH = "255"


@dataclass(frozen=True)
class DatabaseAddress:
    """A database and its login; `uri` is a JDBC or SQLAlchemy URL."""

    uri: str = field(repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    @staticmethod
    def of(options: Mapping[str, str]) -> DatabaseAddress:
        """The database of a JDBC catalog. Raises `UsageError` if none is named."""
        if not options.get("uri"):
            raise UsageError("the jdbc catalog has no database", "metastore=jdbc is set, uri is not", "add uri=jdbc:sqlite:FILE")
        return DatabaseAddress(options["uri"], options.get("jdbc.user"), options.get("jdbc.password"))


@dataclass(frozen=True)
class LockSettings(DatabaseAddress):
    """The lock of a JDBC catalog. Times are in milliseconds; as in Java, it expires `acquire_timeout` after it was acquired."""

    catalog_key: str = "jdbc"
    acquire_timeout: int = 480_000
    max_sleep: int = 8_000
    key_length: int = 255


def lock_settings(options: Mapping[str, Any]) -> LockSettings | None:
    """The lock configured by `lock.enabled=true` or `metastore=jdbc`, whose database is `uri`; None if there is none.

    Raises `UsageError` for invalid values and `NotSupported` for other types of lock.
    """
    enabled = str(options.get("lock.enabled", options.get("metastore") == "jdbc")).lower()
    if enabled not in ("true", "false"):
        raise UsageError(f"lock.enabled={enabled}", "allowed: true or false")
    if enabled == "false":
        return None
    if options.get("lock.type", "jdbc") != "jdbc":
        raise NotSupported(f"lock.type={options['lock.type']}", "only the lock of a JDBC catalog is supported", "lock.type=jdbc")
    if not options.get("uri"):
        why = "lock.enabled or metastore=jdbc is set, uri is not"
        raise UsageError("the commit lock has no database", why, "add uri=jdbc:postgresql://host/database")
    key_length = str(options.get("lock-key-max-length", DEFAULT_KEY_LENGTH))
    if (plain_number(key_length) or 0) < 1:
        raise UsageError(f"lock-key-max-length={key_length}", "a number of characters is expected")
    return LockSettings(
        uri=str(options["uri"]),
        user=options.get("jdbc.user"),
        password=options.get("jdbc.password"),
        catalog_key=str(options.get("catalog-key", "jdbc")),
        acquire_timeout=parse_duration(str(options.get("lock-acquire-timeout", DEFAULT_ACQUIRE_TIMEOUT))),
        max_sleep=parse_duration(str(options.get("lock-check-max-sleep", DEFAULT_MAX_SLEEP))),
        key_length=int(key_length),
    )


def table_seconds(options: Mapping[str, Any]) -> float:
    """The time of one look at a table, where a command looks at several. Raises `UsageError` for an invalid value."""
    given = str(options.get(TABLE_TIMEOUT, DEFAULT_TABLE_TIMEOUT))
    millis = parse_duration(given)
    if millis <= 0:
        raise UsageError(f"{TABLE_TIMEOUT}={given}", "no table can answer in no time", "give it some time, such as 1 min")
    return millis / 1000


def trash_millis(options: Mapping[str, Any]) -> int:
    """For how long dropped tables are kept; 0 to delete them at once."""
    return parse_duration(str(options.get(TRASH_TIME, DEFAULT_TRASH_TIME)))


def database_and_table(table_url: str) -> tuple[str, str]:
    """Database and table name of a table at WAREHOUSE/database.db/table."""
    parent, _, table = table_url.rstrip("/").rpartition("/")
    return parent.rpartition("/")[2].removesuffix(".db"), table


def lock_id(settings: LockSettings, table_url: str) -> str:
    """The lock of a table at WAREHOUSE/database.db/table: `<catalogKey>.<database>.<table>`, as in Java's JdbcCatalogLock.

    Raises `UsageError` if it is longer than the column of the lock table.
    """
    database, table = database_and_table(table_url)
    name = f"{settings.catalog_key}.{database}.{table}"
    if len(name) > settings.key_length:
        raise UsageError(f"the lock name {name} is too long", f"the lock table holds {settings.key_length} characters")
    return name
