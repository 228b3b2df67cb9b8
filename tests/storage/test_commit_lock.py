"""The lock in the database: one holder, an end for dead ones, no write by late ones."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError

from paimon_cli.errors import StorageUnavailable, UsageError
from paimon_cli.installation import install_command
from paimon_cli.storage.catalog_options import LockSettings, lock_settings
from paimon_cli.storage.commit_lock import CommitLock, break_lock, held_locks
from paimon_cli.storage.lock_table import LockTable
from paimon_cli.storage.sql_database import open_database
from scripts.nightly.race_put_if_absent import PROCESSES
from tests.commit.commit_tables import SteppingClock

pytestmark = pytest.mark.xdist_group("lock")

TABLE = "s3://bucket/wh/shop.db/orders"
LIFE = 3600
"""Seconds that a lock lives: no test takes as long on the slowest machine, so none expires unless a test makes it older."""
SOON = 300
"""Seconds within which a wait for a second or two ends on any machine; far less than a lock lives."""


def settings(database: dict[str, str], timeout: str = f"{LIFE} s") -> LockSettings:
    found = lock_settings({**database, "lock-acquire-timeout": timeout})
    assert found is not None
    return found


def sql(database: dict[str, str], statement: str, **values: Any) -> list[tuple[Any, ...]]:
    with open_database(settings(database)).connect() as connection:
        done = connection.execute(text(statement), values)
        return [tuple(row) for row in done] if done.returns_rows else []


def rows(database: dict[str, str]) -> list[tuple[Any, ...]]:
    return sql(database, "SELECT lock_id, expire_time_seconds, lock_owner IS NOT NULL FROM paimon_distributed_locks")


def make_older(database: dict[str, str], seconds: int) -> None:
    """Let the locks that are held look as if they had been taken this long ago."""
    is_sqlite = "sqlite" in database["uri"]
    then = f"datetime('now', '-{seconds} seconds')" if is_sqlite else f"LOCALTIMESTAMP - INTERVAL '{seconds} seconds'"
    sql(database, f"UPDATE paimon_distributed_locks SET acquired_at = {then}")


def make_java_table(database: dict[str, str], owner: str = "") -> None:
    sql(
        database,
        "CREATE TABLE paimon_distributed_locks (lock_id VARCHAR(255) NOT NULL, acquired_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP "
        f"NOT NULL, expire_time_seconds BIGINT DEFAULT 0 NOT NULL{owner}, PRIMARY KEY (lock_id))",
    )


def test_the_row_is_the_one_that_java_finds(database: dict[str, str]) -> None:
    lock = CommitLock(settings(database, "8 min"), TABLE)
    with lock.held() as lease:
        lease.confirm()
        ((name, seconds, owned),) = rows(database)
        assert (name, seconds, bool(owned)) == ("jdbc.shop.orders", 480, True)
    assert rows(database) == []


def test_a_second_holder_waits_for_the_first(database: dict[str, str]) -> None:
    events = []
    with ThreadPoolExecutor(1) as pool:
        with CommitLock(settings(database), TABLE).held():

            def take() -> None:
                with CommitLock(settings(database), TABLE).held() as lease:
                    events.append("second")
                    lease.confirm()

            waiting = pool.submit(take)
            time.sleep(0.3)
            events.append("first")
        waiting.result()
    assert events == ["first", "second"]


def test_locks_of_other_tables_are_others(database: dict[str, str]) -> None:
    with CommitLock(settings(database), TABLE).held(), CommitLock(settings(database), TABLE + "_2").held():
        assert len(rows(database)) == 2


def test_locks_are_listed_all_or_by_name(database: dict[str, str]) -> None:
    assert held_locks(settings(database)) is None
    with CommitLock(settings(database), TABLE).held() as lease, CommitLock(settings(database), TABLE + "_2").held():
        names = {lock.lock_id for lock in held_locks(settings(database)) or ()}
        assert names == {"jdbc.shop.orders", "jdbc.shop.orders_2"}
        (mine,) = held_locks(settings(database), "jdbc.shop.orders") or []
        assert (mine.lock_id, mine.owner, mine.life_seconds, mine.is_expired) == ("jdbc.shop.orders", lease.owner, LIFE, False)
        assert break_lock(settings(database), mine) and not break_lock(settings(database), mine)
        assert [lock.lock_id for lock in held_locks(settings(database)) or ()] == ["jdbc.shop.orders_2"]
        assert not lease.release()
    assert held_locks(settings(database)) == []


def test_a_lock_that_cannot_be_acquired(database: dict[str, str]) -> None:
    with CommitLock(settings(database), TABLE).held():
        late = CommitLock(settings(database, "3 s"), TABLE, SteppingClock())
        with (
            pytest.raises(StorageUnavailable, match=r"could not acquire the commit lock jdbc\.shop\.orders") as failure,
            late.held(),
        ):
            pass
        assert failure.value.exit_code == 6
        assert len(rows(database)) == 1, "the holder's row is none of ours"


def test_a_failure_inside_gives_the_lock_back(database: dict[str, str]) -> None:
    with pytest.raises(KeyError), CommitLock(settings(database), TABLE).held():
        raise KeyError("bug")
    assert rows(database) == []


def test_a_dead_holder_is_followed_after_its_expiry(database: dict[str, str]) -> None:
    with CommitLock(settings(database), TABLE).held() as dead:
        begun = time.monotonic()
        make_older(database, LIFE - 1)
        with CommitLock(settings(database), TABLE).held() as heir:
            assert 0.8 < time.monotonic() - begun < SOON
            with pytest.raises(StorageUnavailable, match="was lost before the commit"):
                dead.confirm()
            assert dead.release() is False
            heir.confirm()
            assert heir.release() is True


def test_a_holder_does_not_begin_a_put_in_the_second_half_of_its_time(database: dict[str, str]) -> None:
    clock = SteppingClock()
    with CommitLock(settings(database), TABLE, clock).held() as lease:
        clock.sleep(LIFE / 2 - 0.1)
        lease.confirm()
        clock.sleep(0.2)
        with pytest.raises(StorageUnavailable, match=rf"it was held for {LIFE // 2}\.1 s"):
            lease.confirm()


def test_a_clock_that_was_set_back_is_not_trusted(database: dict[str, str]) -> None:
    clock = SteppingClock()
    with CommitLock(settings(database), TABLE, clock).held() as lease:
        clock.now -= 1000
        with pytest.raises(StorageUnavailable):
            lease.confirm()


def test_the_age_of_the_row_counts_even_if_our_clock_stands_still(database: dict[str, str]) -> None:
    with CommitLock(settings(database), TABLE, SteppingClock()).held() as lease:
        lease.confirm()
        make_older(database, LIFE // 2 + 2)
        with pytest.raises(StorageUnavailable):
            lease.confirm()


def test_a_holder_written_in_java(database: dict[str, str]) -> None:
    make_java_table(database)
    insert = "INSERT INTO paimon_distributed_locks (lock_id, expire_time_seconds) VALUES ('jdbc.shop.orders', :seconds)"
    begun = time.monotonic()
    sql(database, insert, seconds=1)
    with CommitLock(settings(database), TABLE).held() as lease:
        assert 0.8 < time.monotonic() - begun < SOON
        lease.confirm()
        # Java before it had owners releases by name, without regard to the holder.
        sql(database, "DELETE FROM paimon_distributed_locks WHERE lock_id = 'jdbc.shop.orders'")
        with pytest.raises(StorageUnavailable):
            lease.confirm()
        sql(database, insert, seconds=LIFE)
        assert lease.release() is False
    assert len(rows(database)) == 1, "a lock of another holder is not released"


def test_a_table_of_newer_java_is_used_as_it_is(database: dict[str, str]) -> None:
    make_java_table(database, ", lock_owner VARCHAR(36)")
    with CommitLock(settings(database), TABLE).held() as lease:
        lease.confirm()


def test_many_make_the_table_at_once(database: dict[str, str]) -> None:
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda number: CommitLock(settings(database), f"{TABLE}_{number}").check(), range(6)))
    assert rows(database) == []


def test_a_lock_travels_without_its_connection(database: dict[str, str]) -> None:
    lock = CommitLock(settings(database), TABLE)
    lock.check()
    with pickle.loads(pickle.dumps(lock)).held() as lease:
        lease.confirm()


def test_a_database_that_is_not_there() -> None:
    uri = "jdbc:postgresql://127.0.0.1:1/db?user=me&password=hunter2"
    with pytest.raises(StorageUnavailable, match="does not answer") as failure:
        CommitLock(LockSettings(uri), TABLE).check()
    assert "hunter2" not in f"{failure.value} {failure.value.hint} {failure.value.details}"


def test_without_sqlalchemy_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    monkeypatch.delitem(sys.modules, "paimon_cli.storage.lock_table", raising=False)
    with pytest.raises(UsageError) as failure:
        CommitLock(LockSettings("jdbc:sqlite:x"), TABLE).check()
    assert failure.value.hint == install_command("jdbc")


def count_up(database: dict[str, str], file: str, times: int) -> None:
    """Read, wait, write: what loses counts unless one does it at a time."""
    lock, path = CommitLock(settings(database), TABLE), Path(file)
    for _ in range(times):
        with lock.held() as lease:
            number = int(path.read_text())
            time.sleep(0.002)
            lease.confirm()
            path.write_text(str(number + 1))
            assert lease.release()


def test_processes_take_turns(database: dict[str, str], tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    counters = [PROCESSES.Process(target=count_up, args=(database, str(counter), 8)) for _ in range(4)]
    for process in counters:
        process.start()
    for process in counters:
        process.join()
    assert [process.exitcode for process in counters] == [0] * 4
    assert counter.read_text() == "32" and rows(database) == []


def hold_for_ever(database: dict[str, str], held: Connection) -> None:
    with CommitLock(settings(database, "2 s"), TABLE).held():
        held.send(True)
        time.sleep(600)


def test_after_a_kill_the_next_one_waits_for_the_expiry_at_most(database: dict[str, str]) -> None:
    source, sink = PROCESSES.Pipe(duplex=False)
    holder = PROCESSES.Process(target=hold_for_ever, args=(database, sink))
    holder.start()
    assert source.recv()
    assert holder.pid is not None
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    begun = time.monotonic()
    with CommitLock(settings(database), TABLE).held() as lease:
        lease.confirm()
    assert time.monotonic() - begun < SOON, "by the expiry that the dead holder has asked for, not by one's own"


# ---- the table of locks, statement by statement -------------------------------------------------------------------------


@pytest.fixture
def lock_table(tmp_path: Path) -> LockTable:
    return LockTable(open_database(LockSettings(f"jdbc:sqlite:{tmp_path}/locks.db")), 255)


def aged(table: LockTable, **seconds: int) -> int:
    """Locks of one owner by name, taken this many seconds ago by one reading of the clock, with a life of an hour.

    Returns the reading, in seconds: SQLite and Python read the same clock."""
    now = int(time.time())
    with table.connect() as connection:
        for name, age in seconds.items():
            assert table.insert(connection, name, "me", LIFE)
            taken = (
                f"UPDATE paimon_distributed_locks SET acquired_at = datetime({now - age}, 'unixepoch') WHERE lock_id = '{name}'"
            )
            connection.execute(text(taken))
    return now


def names(table: LockTable) -> list[str]:
    return [lock.lock_id for lock in table.held() or ()]


def test_only_expired_locks_are_removed_and_only_the_requested_one(lock_table: LockTable) -> None:
    aged(lock_table, old=LIFE + 10, older=LIFE + 20, young=LIFE // 2)
    with lock_table.connect() as connection:
        lock_table.remove_expired(connection, "young")
        lock_table.remove_expired(connection, "old")
    assert names(lock_table) == ["older", "young"]


def test_locks_are_listed_from_the_oldest_on_with_their_ages(lock_table: LockTable) -> None:
    assert lock_table.held() is None, "the table does not exist"
    begun = aged(lock_table, b=20, a=20, c=40, d=3)
    held = lock_table.held() or []
    assert [(lock.lock_id, lock.owner, lock.life_seconds) for lock in held] == [(name, "me", LIFE) for name in "cabd"]
    since = {lock.age_seconds - age for lock, age in zip(held, (40, 20, 20, 3), strict=True)}
    assert len(since) == 1 and 0 <= since.pop() <= int(time.time()) - begun
    assert [lock.lock_id for lock in lock_table.held("b") or ()] == ["b"] and lock_table.held("x") == []


def test_what_is_left_of_a_lock_and_how_old_it_is(lock_table: LockTable) -> None:
    begun = aged(lock_table, a=4, b=LIFE + 40)
    with lock_table.connect() as connection:
        left, age = lock_table.seconds_left(connection, "a"), lock_table.age_seconds(connection, "a", "me")
        passed = int(time.time()) - begun
        assert age is not None and 0 <= LIFE - 4 - left <= passed and 0 <= age - 4 <= passed
        assert lock_table.seconds_left(connection, "b") < 0 and lock_table.seconds_left(connection, "x") == 0.0
        assert lock_table.age_seconds(connection, "a", "you") is None and lock_table.age_seconds(connection, "x", "me") is None


def test_a_lock_is_given_back_by_its_owner_only(lock_table: LockTable) -> None:
    aged(lock_table, a=1, b=1)
    with lock_table.connect() as connection:
        assert not lock_table.insert(connection, "a", "you", 10)
        assert not lock_table.delete(connection, "a", "you") and not lock_table.delete(connection, "x", "me")
        assert lock_table.delete(connection, "a", "me") and lock_table.insert(connection, "a", "you", 7)
    assert sorted((lock.lock_id, lock.owner, lock.life_seconds) for lock in lock_table.held() or ()) == [
        ("a", "you", 7.0),
        ("b", "me", LIFE),
    ]


@pytest.mark.parametrize("changed", [{"lock_id": "x"}, {"owner": "you"}, {"owner": None}, {"life_seconds": 11.0}])
def test_a_lock_is_broken_only_while_it_is_the_very_one_that_was_seen(lock_table: LockTable, changed: dict[str, Any]) -> None:
    aged(lock_table, a=1)
    (seen,) = lock_table.held() or []
    assert not lock_table.break_held(replace(seen, **changed)) and names(lock_table) == ["a"]
    assert lock_table.break_held(seen) and names(lock_table) == []


def test_a_lock_without_an_owner_is_broken_as_such(lock_table: LockTable) -> None:
    aged(lock_table, a=1, b=1)
    with lock_table.connect() as connection:
        connection.execute(text("UPDATE paimon_distributed_locks SET lock_owner = NULL WHERE lock_id = 'a'"))
    ownerless = next(lock for lock in lock_table.held() or () if lock.lock_id == "a")
    assert ownerless.owner is None and lock_table.break_held(ownerless) and names(lock_table) == ["b"]


@pytest.mark.parametrize("owner", [False, True], ids=["the column is missing", "it is as it should be"])
def test_a_table_that_may_not_be_changed_is_used_only_if_it_needs_no_change(tmp_path: Path, owner: bool) -> None:
    file = tmp_path / "locks.db"
    make_java_table({"lock.enabled": "true", "uri": f"jdbc:sqlite:{file}"}, ", lock_owner VARCHAR(36)" if owner else "")
    engine = create_engine(f"sqlite:///file:{file}?mode=ro&uri=true", isolation_level="AUTOCOMMIT")
    table = LockTable(engine, 255)
    if owner:
        table.connect().close()
        return
    for _ in range(2):
        with pytest.raises(DBAPIError, match="readonly"):
            table.connect()
    assert table.held() == [], "looking changes nothing, so it may"


def test_a_table_that_cannot_be_created_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "locks.db"
    open_database(LockSettings(f"jdbc:sqlite:{file}")).connect().close()
    file.touch()
    table = LockTable(create_engine(f"sqlite:///file:{file}?mode=ro&uri=true", isolation_level="AUTOCOMMIT"), 255)
    with pytest.raises(DBAPIError, match="readonly"):
        table.connect()


def test_a_change_that_another_job_makes_meanwhile_is_accepted(lock_table: LockTable, tmp_path: Path) -> None:
    """Both see no table, then both make it; both see no column, then both add it."""
    other = LockTable(open_database(LockSettings(f"jdbc:sqlite:{tmp_path}/locks.db")), 255)
    with lock_table._engine.connect() as connection:
        other.connect().close()
        lock_table._unless_done(connection, lambda: lock_table._table.create(connection))
        add = text("ALTER TABLE paimon_distributed_locks ADD COLUMN lock_owner VARCHAR(36)")
        lock_table._unless_done(connection, lambda: connection.execute(add))
    aged(lock_table, a=1)
    assert names(other) == ["a"]


# ---- waiting for a lock -------------------------------------------------------------------------------------------------


class FixedRandom:
    """The longest jitter there may be."""

    def uuid(self) -> str:
        return "0" * 36

    def jitter(self) -> float:
        return 1.0


def waiting(tmp_path: Path, timeout: str, most: str, life: str = "10 h") -> tuple[CommitLock, SteppingClock, LockSettings]:
    """A lock that another holder has for this long, and a waiter with a clock of its own."""
    options = {"lock.enabled": "true", "uri": f"jdbc:sqlite:{tmp_path}/locks.db", "lock-check-max-sleep": most}
    held, mine = (lock_settings({**options, "lock-acquire-timeout": text}) for text in (life, timeout))
    assert held is not None and mine is not None
    table = LockTable(open_database(held), 255)
    with table.connect() as connection:
        table.insert(connection, "jdbc.shop.orders", "them", held.acquire_timeout // 1000)
    clock = SteppingClock()
    return CommitLock(mine, TABLE, clock, FixedRandom()), clock, mine


def test_waiters_ask_less_and_less_often_until_their_time_is_over(tmp_path: Path) -> None:
    lock, clock, _ = waiting(tmp_path, "2 s", "500 ms")
    with pytest.raises(StorageUnavailable, match=r"held it for the 4 s of waiting") as failure, lock.held():
        pass
    assert failure.value.details == {"lock_id": "jdbc.shop.orders"}
    assert clock.sleeps[:5] == [0.1, 0.2, 0.4, 0.5, 0.5]
    assert 4.0 < sum(clock.sleeps) <= 4.0 + 0.5, "two seconds beyond its own, in which a dead holder's row may still stand"


def test_waiters_do_not_sleep_beyond_the_end_of_the_lock(tmp_path: Path) -> None:
    lock, clock, mine = waiting(tmp_path, "10000 s", "10000 s", life="3000 s")
    sleeps = clock.sleeps
    with pytest.raises(StorageUnavailable), lock.held():
        pass
    assert 1500 < max(sleeps) <= 3000 and min(sleeps) >= 0.1
    assert [lock.owner for lock in held_locks(mine) or ()] == ["them"]


@pytest.mark.parametrize(("timeout", "seconds"), [("1 ms", 1), ("1000 ms", 1), ("1001 ms", 2), ("8 min", 480)])
def test_a_lock_lives_as_long_as_others_wait_for_it_in_whole_seconds(tmp_path: Path, timeout: str, seconds: int) -> None:
    found = lock_settings({"lock.enabled": "true", "uri": f"jdbc:sqlite:{tmp_path}/locks.db", "lock-acquire-timeout": timeout})
    assert found is not None
    with CommitLock(found, TABLE, SteppingClock()).held() as lease:
        assert [lock.life_seconds for lock in held_locks(found) or ()] == [seconds]
        assert lease.usable_millis == seconds * 500


def test_half_of_the_life_to_the_millisecond_is_too_late(tmp_path: Path) -> None:
    clock = SteppingClock()
    found = LockSettings(f"jdbc:sqlite:{tmp_path}/locks.db", acquire_timeout=2_000_000)
    with CommitLock(found, TABLE, clock).held() as lease:
        lease.confirm()
        clock.now = lease.since + 999_999
        lease.confirm()
        clock.now = lease.since + 1_000_000
        with pytest.raises(StorageUnavailable, match="it was held for 1000 s before the commit began") as failure:
            lease.confirm()
        assert failure.value.details == {"lock_id": "jdbc.shop.orders"}
        clock.now = lease.since - 1
        with pytest.raises(StorageUnavailable):
            lease.confirm()
        clock.now = lease.since
        lease.confirm()
        assert lease.release() and lease.release(), "the answer is remembered"
        with pytest.raises(StorageUnavailable, match="another writer took it over"):
            lease.confirm()


def test_a_database_that_is_away_when_the_lock_is_given_back_hides_nothing(tmp_path: Path) -> None:
    found = LockSettings(f"jdbc:sqlite:{tmp_path}/locks.db")
    with CommitLock(found, TABLE).held() as lease:
        lease.connection.execute(text("DROP TABLE paimon_distributed_locks"))
        assert lease.release() is False
        with pytest.raises(StorageUnavailable, match="does not answer: no such table") as failure:
            lease.confirm()
    assert failure.value.hint == "check uri"
