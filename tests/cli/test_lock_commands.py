"""`locks`: the mechanism that publishes, the rows of Paimon's lock table, and the end of a dead holder's lock."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.storage.catalog_options import LockSettings
from paimon_cli.storage.commit_lock import CommitLock, break_lock, held_locks
from tests.cli.calling import Run
from tests.tables import make_table

HOUR = 3600


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    for name in ("orders", "items"):
        make_table(tmp_path / "wh" / "shop.db" / name, {"id": "BIGINT NOT NULL"}, ["id"])
    return tmp_path / "wh"


@pytest.fixture
def locked(tmp_path: Path, warehouse: Path) -> list[Any]:
    """Options of a catalog with a lock in SQLite."""
    uri = f"uri=jdbc:sqlite:{tmp_path}/locks.db"
    return ["--warehouse", warehouse, "--option", "lock.enabled=true", "--option", uri]


def lock_of(warehouse: Path, table: str, seconds: int) -> CommitLock:
    settings = LockSettings(f"jdbc:sqlite:{warehouse.parent}/locks.db", acquire_timeout=seconds * 1000)
    return CommitLock(settings, f"{warehouse}/shop.db/{table}")


def expire(warehouse: Path) -> None:
    """As if every row had been taken two hours earlier."""
    import sqlite3

    with sqlite3.connect(warehouse.parent / "locks.db") as database:
        database.execute("UPDATE paimon_distributed_locks SET acquired_at = datetime(acquired_at, '-7200 seconds')")


def test_without_a_lock_the_mechanism_is_shown(run: Run, warehouse: Path) -> None:
    (item,) = run("locks", "ls", warehouse / "shop.db/orders", "-o", "json").json["items"]
    assert (item["mechanism"], item["is_held"], item["lock_id"]) == ("put-if-absent", False, None)
    (whole,) = run("locks", "ls", "--warehouse", warehouse, "-o", "json").json["items"]
    assert whole == {**item, "table": str(warehouse)}
    assert run("locks", "ls", warehouse / "shop.db/orders").out.startswith("put-if-absent: the storage creates")


def test_a_table_that_is_not_understood_is_refused(run: Run, tmp_path: Path, warehouse: Path) -> None:
    path = Path(make_table(tmp_path / "odd", {"id": "BIGINT NOT NULL"}, ["id"]).layout.schema(0))
    schema = json.loads(path.read_text())
    schema["options"]["type"] = "format-table"
    path.write_text(json.dumps(schema))
    assert "format-table" in run("locks", "ls", tmp_path / "odd", code=8).err


def test_a_store_that_cannot_create_exclusively_is_unsafe(run: Run, warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paimon_cli.storage.guarded_storage.has_primitive", lambda *_: False)
    monkeypatch.setattr("paimon_cli.storage.storage_for_url._TRUSTED", set())
    (item,) = run("locks", "ls", warehouse / "shop.db/orders", "-o", "json").json["items"]
    assert item["mechanism"] == "unsafe"


def test_before_the_first_commit_nothing_is_created(run: Run, warehouse: Path, locked: list[Any]) -> None:
    answer = run("locks", "ls", "shop.orders", *locked)
    assert "no lock is held: the database has no table paimon_distributed_locks yet" in answer.out
    (item,) = run("locks", "ls", "shop.orders", *locked, "-o", "json").json["items"]
    assert (item["lock_id"], item["is_held"]) == ("jdbc.shop.orders", False)
    assert held_locks(LockSettings(f"jdbc:sqlite:{warehouse.parent}/locks.db")) is None


def test_rows_show_holder_and_age(run: Run, warehouse: Path, locked: list[Any]) -> None:
    begun = int(time.time())
    with lock_of(warehouse, "orders", HOUR).held() as lease, lock_of(warehouse, "items", 10 * HOUR).held():
        (item,) = run("locks", "ls", "shop.orders", *locked, "-o", "json").json["items"]
        assert (item["lock_id"], item["is_held"], item["holder"]) == ("jdbc.shop.orders", True, lease.owner)
        assert 0 <= item["age_seconds"] <= int(time.time()) - begun and item["is_expired"] is False
        assert item["expires_in_seconds"] == HOUR - item["age_seconds"]
        expire(warehouse)
        items = run("locks", "ls", *locked, "-o", "json").json["items"]
        assert {item["table"]: item["is_expired"] for item in items} == {"shop.orders": True, "shop.items": False}
        assert all(item["age_seconds"] >= 7200 for item in items)
    (nobody,) = run("locks", "ls", *locked, "-o", "json").json["items"]
    assert (nobody["mechanism"], nobody["is_held"]) == ("lock", False)


@pytest.mark.parametrize("key", ["other", "jdb"])
def test_locks_of_other_catalogs_are_left_out(run: Run, warehouse: Path, locked: list[Any], key: str) -> None:
    with lock_of(warehouse, "orders", HOUR).held():
        (item,) = run("locks", "ls", *locked, "--option", f"catalog-key={key}", "-o", "json").json["items"]
    assert item["is_held"] is False


def test_an_expired_lock_is_broken_a_valid_one_only_by_force(run: Run, warehouse: Path, locked: list[Any]) -> None:
    with lock_of(warehouse, "orders", HOUR).held() as lease:
        refused = run("locks", "break", "shop.orders", *locked, "-y", code=7)
        assert "is still valid" in refused.err and "--even-if-valid" in refused.err
        assert len(held_locks(lease.settings) or ()) == 1
        expire(warehouse)
        unconfirmed = run("locks", "break", "shop.orders", *locked, code=7).err
        assert "not confirmed" in unconfirmed and "--yes" in unconfirmed and "--dry-run" not in unconfirmed
        (item,) = [run("locks", "break", "shop.orders", *locked, "-y", "-o", "json").json["item"]]
        assert (item["holder"], item["is_expired"]) == (lease.owner, True)
        assert held_locks(lease.settings) == [] and lease.release() is False
    assert "is not held" in run("locks", "break", "shop.orders", *locked, "-y", code=3).err
    with lock_of(warehouse, "orders", HOUR).held() as lease:
        run("locks", "break", "shop.orders", *locked, "-y", "--even-if-valid")
        assert held_locks(lease.settings) == []


def test_a_lock_that_changed_hands_is_left_alone(warehouse: Path) -> None:
    with lock_of(warehouse, "orders", HOUR).held() as first:
        (seen,) = held_locks(first.settings) or []
    with lock_of(warehouse, "orders", HOUR).held() as second:
        assert break_lock(second.settings, seen) is False
        second.confirm()


def test_a_table_without_a_lock_has_none_to_break(run: Run, warehouse: Path) -> None:
    assert "has no commit lock" in run("locks", "break", warehouse / "shop.db/orders", "-y", code=2).err
    assert "there are no locks to list" in run("locks", "ls", code=2).err
