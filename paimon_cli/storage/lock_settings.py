"""The settings of a commit lock, from Paimon's catalog options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.options.size_and_duration import parse_duration, plain_number

DEFAULT_ACQUIRE_TIMEOUT = "8 min"
DEFAULT_MAX_SLEEP = "8 s"
DEFAULT_KEY_LENGTH = "255"


@dataclass(frozen=True)
class LockSettings:
    """`uri`: JDBC or SQLAlchemy URL. Times in millis; as in Java a lock expires `acquire_timeout` after it was taken."""

    uri: str = field(repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    catalog_key: str = "jdbc"
    acquire_timeout: int = 480_000
    max_sleep: int = 8_000
    key_length: int = 255


def lock_settings(options: Mapping[str, Any]) -> LockSettings | None:
    """The lock that catalog options ask for: by `lock.enabled=true` or `metastore=jdbc`, with the database in `uri`.

    None without one, or with `lock.enabled=false`. UsageError on values that make no sense, NotSupported for other locks.
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


def lock_id(settings: LockSettings, table_url: str) -> str:
    """`<catalogKey>.<database>.<table>` of a table in WAREHOUSE/database.db/table, as Java's JdbcCatalogLock has it."""
    parent, _, table = table_url.rstrip("/").rpartition("/")
    database = parent.rpartition("/")[2].removesuffix(".db")
    found = f"{settings.catalog_key}.{database}.{table}"
    if len(found) > settings.key_length:
        raise UsageError(f"the lock name {found} is too long", f"the lock table holds {settings.key_length} characters")
    return found
