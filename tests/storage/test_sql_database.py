"""Databases of catalogs and locks: their URLs, logins, bounds, and errors without secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import ArgumentError, OperationalError
from sqlalchemy.pool import NullPool

from paimon_cli.errors import DamagedFile, StorageUnavailable, UsageError
from paimon_cli.storage import bounded_mysql, bounded_postgres
from paimon_cli.storage.catalog_options import DatabaseAddress
from paimon_cli.storage.sql_database import MAX_TEXT, checked_text, database_errors, open_database


def test_texts_have_a_bound() -> None:
    assert checked_text("x" * MAX_TEXT) == "x" * MAX_TEXT and checked_text("") == ""
    for value, found in (("x" * (MAX_TEXT + 1), "10,001 characters"), (b"x", "bytes"), (7, "int")):
        with pytest.raises(DamagedFile, match=found):
            checked_text(value)


TIMES = {
    "sqlite": {"timeout": 30},
    "postgresql": {"connect_timeout": 30},
    "mysql": {"connect_timeout": 30, "read_timeout": 60, "write_timeout": 60},
    "mariadb": {"connect_timeout": 30, "read_timeout": 60, "write_timeout": 60},
}


@pytest.mark.parametrize(
    ("database", "bounded"), [("postgresql", bounded_postgres), ("mysql", bounded_mysql), ("mariadb", bounded_mysql)]
)
@pytest.mark.parametrize("scheme", ["jdbc:", ""])
def test_answers_have_a_bound_in_bytes_and_time(
    database: str, bounded: Any, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = dict[str, Any]()

    def connect(*arguments: Any, **options: Any) -> None:
        given.update(options)
        raise DamagedFile("no connection", "", "")

    monkeypatch.setattr(bounded, "connect", connect)
    engine = open_database(DatabaseAddress(f"{scheme}{database}://h:7/db", "u", "p"))
    with pytest.raises(DamagedFile):
        engine.connect()
    assert (given["host"], given["port"], given["user"], given["password"]) == ("h", 7, "u", "p")
    assert given.items() >= TIMES[database].items()
    assert isinstance(engine.pool, NullPool) and engine.hide_parameters


def test_a_locked_file_is_not_waited_for_without_an_end(tmp_path: Path) -> None:
    engine, given = open_database(DatabaseAddress(f"jdbc:sqlite:{tmp_path}/x.db")), dict[str, Any]()
    event.listen(engine, "do_connect", lambda dialect, record, arguments, options: given.update(options))
    engine.connect().close()
    assert given.items() >= TIMES["sqlite"].items() and isinstance(engine.pool, NullPool)


@pytest.mark.parametrize(("in_transactions", "kept"), [(False, 1), (True, 0)])
def test_each_statement_is_a_transaction_unless_several_are_one(tmp_path: Path, in_transactions: bool, kept: int) -> None:
    engine = open_database(DatabaseAddress(f"jdbc:sqlite:{tmp_path}/x.db"), in_transactions=in_transactions)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE t (x INT)"))
    with engine.connect() as connection:
        connection.execute(text("INSERT INTO t VALUES (1)"))
        connection.rollback()
        assert connection.scalar(text("SELECT count(*) FROM t")) == kept


PG, MY = "postgresql+psycopg", "mysql+pymysql"


@pytest.mark.parametrize(
    ("uri", "found"),
    [
        ("jdbc:postgresql://h/db", f"{PG}://h/db"),
        ("jdbc:postgresql://h/db?user=u&password=p&user=v&password=q&sslmode=require", f"{PG}://v:q@h/db?sslmode=require"),
        ("postgresql://u:p@h/db?user=v&password=q&user=w&password=r&sslmode=require", f"{PG}://w:r@h/db?sslmode=require"),
        ("postgresql://u:p@h/db?user=", f"{PG}://u:p@h/db"),
        ("mysql://u@h:7/db?charset=utf8", f"{MY}://u@h:7/db?charset=utf8"),
        ("jdbc:mysql://u:p%40%2F%25@h/db", f"{MY}://u:p%40%2F%25@h/db"),
        ("mysql://a%40b:p@q@h/db", f"{MY}://a%40b:p%40q@h/db"),
        ("mysql://u:p/q@r@h/db", f"{MY}://u:p%2Fq%40r@h/db"),
        ("mysql://u:@h/db", f"{MY}://u:@h/db"),
        ("mysql://h/a@b", f"{MY}://h/a%40b"),
        ("mysql://u:p@h/a@b", f"{MY}://u:p%40h%2Fa@b"),
        ("mysql://h/db?ssl_ca=/x@y", f"{MY}://h/db?ssl_ca=%2Fx%40y"),
        ("mysql://h:7/db?ssl_ca=/x@y", f"{MY}://h:7/db?ssl_ca=%2Fx%40y"),
        ("mysql://u:p@h/db?ssl_ca=/x@y", f"{MY}://u:p@h/db?ssl_ca=%2Fx%40y"),
        ("jdbc:mysql://h/db?user=u@x&password=p@w", f"{MY}://u%40x:p%40w@h/db"),
        ("jdbc:mariadb://u:p?q@h/db", "mariadb+pymysql://u:p%3Fq@h/db"),
    ],
)
def test_where_a_login_ends(uri: str, found: str) -> None:
    assert open_database(DatabaseAddress(uri)).url.render_as_string(hide_password=False) == found
    for user, password in (("me", None), (None, "mine"), ("me", "mine")):
        url, plain = open_database(DatabaseAddress(uri, user, password)).url, open_database(DatabaseAddress(uri)).url
        assert (url.username, url.password) == (user or plain.username, password or plain.password), "the options come first"


@pytest.mark.parametrize(
    "uri",
    [
        "jdbc:mysql://(host=h,password=hunter2)/db",
        "jdbc:mysql://h,password=hunter2/db",
        "jdbc:mysql://u:hunter2@h:port/db",
        "jdbc:postgresql://u:hunter2@h:1,i:2/db",
        "jdbc:postgresql://u:hunter?hunter2=x@h/db?hunter2=1",
        "jdbc:postgresql://h/db?password=a&hunter2=1",
        "mysql+nosuch://u:hunter2@h/db",
    ],
)
def test_no_error_about_a_url_shows_its_secrets(uri: str) -> None:
    with pytest.raises(UsageError) as failure:
        open_database(DatabaseAddress(uri))
    assert "hunter2" not in f"{failure.value.message} {failure.value.hint}"
    assert failure.value.__cause__ is None and (failure.value.__suppress_context__ or not failure.value.__context__)


def test_no_error_of_a_database_shows_secrets_or_statements() -> None:
    address = DatabaseAddress("mysql://u:hunter2@h/db", "u", "swordfish")
    told = Exception("login with hunter2 or swordfish failed\nat line 2")
    for error, why in (
        (OperationalError("SELECT 1", {"x": "value"}, told), "login with *** or *** failed"),
        (OperationalError("SELECT 1", {}, Exception("")), "OperationalError"),
        (ArgumentError("hunter2 is wrong"), "*** is wrong"),
    ):
        with pytest.raises(StorageUnavailable) as failure, database_errors(address, "the catalog"):
            raise error
        assert (failure.value.what, failure.value.why) == ("the database of the catalog does not answer", why)
        assert failure.value.__suppress_context__


@pytest.mark.parametrize(
    "uri",
    [
        "jdbc:sqlite:",
        "jdbc:sqlite::memory:",
        "jdbc:sqlite:file::memory:?cache=shared",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///file:locks?mode=memory&uri=true",
        "sqlite:///file:/locks?vfs=memdb&uri=true",
    ],
)
def test_a_database_in_memory_is_refused(uri: str) -> None:
    """Each connection would find its own: all writers would hold the lock at once."""
    with pytest.raises(UsageError, match="the commit lock is in memory"):
        open_database(DatabaseAddress(uri))


@pytest.mark.parametrize("uri", ["jdbc:mysql://h/db?sslmode=require", "jdbc:mariadb://h/db?sslmode=require"])
def test_parameters_that_only_another_driver_knows(uri: str) -> None:
    with pytest.raises(UsageError, match=r"parameter sslmode .* besides user and password, none is supported"):
        open_database(DatabaseAddress(uri))


@pytest.mark.parametrize("parameter", ["nonsense=1", "charset=nonsense", "ssl_ca=/nowhere"])
def test_parameters_that_the_driver_does_not_take(parameter: str) -> None:
    address = DatabaseAddress(f"mysql://u:hunter2@127.0.0.1:1/db?{parameter}")
    with pytest.raises(UsageError, match="cannot connect to the database of the commit lock mysql://127") as failure:
        open_database(address).connect()
    assert "hunter2" not in f"{failure.value} {failure.value.hint}"
