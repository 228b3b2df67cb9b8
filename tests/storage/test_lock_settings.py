"""The commit lock in the words of a Paimon catalog."""

from __future__ import annotations

import pytest

from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.storage.catalog_options import LockSettings, lock_id, lock_settings
from paimon_cli.storage.sql_database import open_database

URI = {"uri": "jdbc:postgresql://host/db"}


def test_no_lock_unless_requested() -> None:
    for options in ({}, URI, {"metastore": "filesystem", **URI}, {"metastore": "jdbc", "lock.enabled": "false", **URI}):
        assert lock_settings(options) is None


@pytest.mark.parametrize(
    "asked", [{"lock.enabled": "true"}, {"metastore": "jdbc"}, {"lock.enabled": "TRUE", "lock.type": "jdbc"}]
)
def test_defaults_are_those_of_java(asked: dict[str, str]) -> None:
    found = lock_settings({**asked, **URI})
    assert found == LockSettings(URI["uri"], catalog_key="jdbc", acquire_timeout=480_000, max_sleep=8_000, key_length=255)


def test_every_option() -> None:
    options = {
        "metastore": "jdbc",
        "uri": "jdbc:mysql://host/db",
        "jdbc.user": "me",
        "jdbc.password": "hunter2",
        "catalog-key": "prod",
        "lock-acquire-timeout": "3 s",
        "lock-check-max-sleep": "200 ms",
        "lock-key-max-length": "40",
    }
    found = lock_settings(options)
    assert found == LockSettings("jdbc:mysql://host/db", "me", "hunter2", "prod", 3_000, 200, 40)
    assert "hunter2" not in repr(found) and "host" not in repr(found)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"lock.enabled": "perhaps", **URI}, UsageError),
        ({"lock.enabled": "true"}, UsageError),
        ({"metastore": "jdbc"}, UsageError),
        ({"lock.enabled": "true", "lock.type": "hive", **URI}, NotSupported),
        ({"lock.enabled": "true", "lock-acquire-timeout": "soon", **URI}, UsageError),
        ({"lock.enabled": "true", "lock-key-max-length": "long", **URI}, UsageError),
    ],
)
def test_nonsense(options: dict[str, str], error: type[Exception]) -> None:
    with pytest.raises(error):
        lock_settings(options)


def test_the_name_of_a_lock_is_that_of_java() -> None:
    settings = LockSettings("x", catalog_key="prod", key_length=20)
    assert lock_id(settings, "s3://bucket/wh/shop.db/orders") == "prod.shop.orders"
    assert lock_id(settings, "/data/plain/t") == "prod.plain.t"
    with pytest.raises(UsageError, match="too long"):
        lock_id(settings, "s3://bucket/wh/shop.db/orders_of_last_year")


@pytest.mark.parametrize(
    ("uri", "url"),
    [
        ("jdbc:sqlite:/data/locks.db", "sqlite:////data/locks.db"),
        ("jdbc:sqlite:file:/data/locks.db?mode=rw", "sqlite:////data/locks.db"),
        ("sqlite:////data/locks.db", "sqlite:////data/locks.db"),
        (
            "jdbc:postgresql://h:5433/db?user=u&password=p%40w&sslmode=require",
            "postgresql+psycopg://u:p%40w@h:5433/db?sslmode=require",
        ),
        ("postgresql://u:p@h/db?application_name=x", "postgresql+psycopg://u:p@h/db?application_name=x"),
        ("postgresql+psycopg://u@h/db", "postgresql+psycopg://u@h/db"),
    ],
)
def test_urls(uri: str, url: str) -> None:
    assert open_database(LockSettings(uri)).url.render_as_string(hide_password=False) == url


def test_user_and_password_of_the_catalog_come_first() -> None:
    engine = open_database(LockSettings("jdbc:postgresql://h/db?user=u&password=p", user="me", password="mine"))
    assert (engine.url.username, engine.url.password) == ("me", "mine")


@pytest.mark.parametrize(
    ("uri", "error", "message"),
    [
        ("jdbc:postgresql://h/db?tcpKeepAlive=true", UsageError, "parameter tcpKeepAlive"),
        ("jdbc:nosuch://u:hunter2@h/db", NotSupported, "the commit lock in nosuch"),
        ("no url at all", UsageError, "cannot open"),
        ("mysql+nosuchdriver://u:hunter2@h/db", UsageError, "cannot open the database of the commit lock mysql"),
        ("mssql+pyodbc://u:hunter2@h/db", NotSupported, "the commit lock in mssql"),
    ],
)
def test_invalid_urls(uri: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as failure:
        open_database(LockSettings(uri))
    assert "hunter2" not in f"{failure.value} {failure.value.hint}"  # type: ignore[attr-defined]
