"""The lock in the database: one holder, an end for dead ones, no write by late ones."""

from __future__ import annotations

import os
import pickle
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from paimon_cli.errors import StorageUnavailable, UsageError
from paimon_cli.storage.commit_lock import CommitLock, break_lock, held_locks
from paimon_cli.storage.lock_database import open_database
from paimon_cli.storage.lock_settings import LockSettings, lock_settings
from scripts.nightly.race_put_if_absent import PROCESSES
from tests.commit.commit_tables import SteppingClock

pytestmark = pytest.mark.xdist_group("lock")

TABLE = "s3://bucket/wh/shop.db/orders"


def settings(database: dict[str, str], timeout: str = "20 s") -> LockSettings:
    found = lock_settings({**database, "lock-acquire-timeout": timeout})
    assert found is not None
    return found


def sql(database: dict[str, str], statement: str, **values: Any) -> list[tuple[Any, ...]]:
    with open_database(settings(database)).connect() as connection:
        done = connection.execute(text(statement), values)
        return [tuple(row) for row in done] if done.returns_rows else []


def rows(database: dict[str, str]) -> list[tuple[Any, ...]]:
    return sql(database, "SELECT lock_id, expire_time_seconds, lock_owner IS NOT NULL FROM paimon_distributed_locks")


def make_java_table(database: dict[str, str], owner: str = "") -> None:
    sql(
        database,
        "CREATE TABLE paimon_distributed_locks (lock_id VARCHAR(255) NOT NULL, acquired_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP "
        f"NOT NULL, expire_time_seconds BIGINT DEFAULT 0 NOT NULL{owner}, PRIMARY KEY (lock_id))",
    )


def test_the_row_is_the_one_that_java_looks_for(database: dict[str, str]) -> None:
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
        (mine,) = held_locks(settings(database), "jdbc.shop.orders") or ()
        assert (mine.lock_id, mine.owner, mine.life_seconds, mine.is_expired) == ("jdbc.shop.orders", lease.owner, 20.0, False)
        assert break_lock(settings(database), mine) and not break_lock(settings(database), mine)
        assert [lock.lock_id for lock in held_locks(settings(database)) or ()] == ["jdbc.shop.orders_2"]
        assert not lease.release()
    assert held_locks(settings(database)) == []


def test_a_lock_that_is_not_had(database: dict[str, str]) -> None:
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
    with CommitLock(settings(database, "1 s"), TABLE).held() as dead:
        begun = time.monotonic()
        with CommitLock(settings(database), TABLE).held() as heir:
            assert 0.8 < time.monotonic() - begun < 3
            with pytest.raises(StorageUnavailable, match="was lost before the commit"):
                dead.confirm()
            assert dead.release() is False
            heir.confirm()
            assert heir.release() is True


def test_a_holder_does_not_begin_a_put_in_the_second_half_of_its_time(database: dict[str, str]) -> None:
    clock = SteppingClock()
    with CommitLock(settings(database), TABLE, clock).held() as lease:
        clock.sleep(9.9)
        lease.confirm()
        clock.sleep(0.2)
        with pytest.raises(StorageUnavailable, match=r"it was held for 10\.1 s"):
            lease.confirm()


def test_a_clock_that_was_set_back_is_not_trusted(database: dict[str, str]) -> None:
    clock = SteppingClock()
    with CommitLock(settings(database), TABLE, clock).held() as lease:
        clock.now -= 1000
        with pytest.raises(StorageUnavailable):
            lease.confirm()


def test_the_age_of_the_row_counts_even_if_our_clock_stands_still(database: dict[str, str]) -> None:
    with CommitLock(settings(database, "2 s"), TABLE, SteppingClock()).held() as lease:
        lease.confirm()
        time.sleep(2.1)
        with pytest.raises(StorageUnavailable):
            lease.confirm()


def test_a_holder_written_in_java(database: dict[str, str]) -> None:
    make_java_table(database)
    insert = "INSERT INTO paimon_distributed_locks (lock_id, expire_time_seconds) VALUES ('jdbc.shop.orders', :seconds)"
    sql(database, insert, seconds=1)
    begun = time.monotonic()
    with CommitLock(settings(database), TABLE).held() as lease:
        assert 0.8 < time.monotonic() - begun < 3
        lease.confirm()
        # Java before it had owners releases by name, whoever holds the lock.
        sql(database, "DELETE FROM paimon_distributed_locks WHERE lock_id = 'jdbc.shop.orders'")
        with pytest.raises(StorageUnavailable):
            lease.confirm()
        sql(database, insert, seconds=100)
        assert lease.release() is False
    assert len(rows(database)) == 1, "a lock of somebody else is not given back"


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
    monkeypatch.setitem(__import__("sys").modules, "paimon_cli.storage.lock_database", None)
    with pytest.raises(UsageError) as failure:
        CommitLock(LockSettings("jdbc:sqlite:x"), TABLE).check()
    assert failure.value.hint == "pip install 'paimon-cli[jdbc]'"


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
    with CommitLock(settings(database, "2 s"), TABLE).held() as lease:
        lease.confirm()
    assert time.monotonic() - begun < 2 + 2, "the expiry, and what databases round it up to"
