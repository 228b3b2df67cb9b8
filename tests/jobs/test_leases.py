"""Leases: one holder at a time, renewed, released, and taken over from a dead holder by the waiter's clock."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.errors import StorageUnavailable, TookTooLong
from paimon_cli.jobs.service import leases as leases_module
from paimon_cli.jobs.service.leases import Leases
from paimon_cli.storage.injected import SystemClock
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import PutOutcome
from tests.rivals import Meddler, raising


class HandClock:
    """A clock that the test moves."""

    def __init__(self, millis: int = 0) -> None:
        self.millis = millis

    def now_millis(self) -> int:
        return self.millis

    def sleep(self, seconds: float) -> None:
        self.millis += int(seconds * 1000)


STORE = LocalStorage()


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return str(tmp_path / "lease")


def leases(holder: str, clock: HandClock, lives: int = 60_000) -> Leases:
    return Leases("compaction", holder, lives, clock)


def files(directory: str) -> list[str]:
    return sorted(entry.name for entry in STORE.list_directory(directory))


def test_one_holder_at_a_time_and_nothing_is_left_over(directory: str) -> None:
    one, other = leases("one", HandClock()), leases("other", HandClock(10**9))
    assert one.acquire(STORE, directory) and directory in one.held
    assert not other.acquire(STORE, directory)
    content = json.loads(Path(directory, "compaction-1").read_text())
    assert (content["holder"], content["lives_ms"]) == ("one", 60_000)
    one.release(directory)
    assert not Path(directory).exists()
    assert other.acquire(STORE, directory) and directory not in one.held


def test_a_dead_holder_is_replaced_after_its_own_time_by_the_clock_of_the_other(directory: str) -> None:
    dead, clock = leases("dead", HandClock(), lives=5000), HandClock(77)
    heir = leases("heir", clock)
    assert dead.acquire(STORE, directory)
    clock.millis += 10**6  # it has not seen the lease yet
    assert not heir.acquire(STORE, directory)
    clock.millis += 4999
    assert not heir.acquire(STORE, directory)
    clock.millis += 1
    assert heir.acquire(STORE, directory)
    assert files(directory) == ["compaction-2"]
    dead.clock.sleep(5)
    dead.renew()
    assert directory not in dead.held and directory in heir.held and files(directory) == ["compaction-2"]


def test_a_holder_that_slept_does_not_have_a_lease_that_was_taken_over(directory: str) -> None:
    clock = HandClock()
    slept, heir = leases("slept", clock), leases("heir", clock)
    assert slept.acquire(STORE, directory) and not heir.acquire(STORE, directory)
    clock.sleep(60)
    assert heir.acquire(STORE, directory) and not slept.acquire(STORE, directory)
    assert heir.held == frozenset({directory}) and not slept.held


def test_a_file_that_could_not_be_deleted_neither_stops_a_takeover_nor_counts(directory: str) -> None:
    clock = HandClock()
    holder, other = leases("holder", clock), leases("other", clock)
    STORE.write_new(f"{directory}/compaction-1", b"?")
    assert not holder.acquire(STORE, directory)
    clock.sleep(60)
    assert holder.acquire(Meddler("delete", "compaction-1", raising(StorageUnavailable("down", ""))), directory)
    for _ in range(3):
        assert not other.acquire(STORE, directory), "the newest counts"
        clock.sleep(30)
        holder.renew()
    assert files(directory) == ["compaction-1", "compaction-5"] and not other.held
    renewed = holder._held[directory]
    holder.release(directory)
    assert not holder._renew(directory, renewed) and files(directory) == ["compaction-1"], "what was released is not renewed"


def test_a_renewed_lease_is_not_taken_over(directory: str) -> None:
    clock = HandClock()
    holder, other = leases("holder", clock), leases("other", clock)
    assert holder.acquire(STORE, directory)
    for _ in range(20):
        assert not other.acquire(STORE, directory)
        clock.sleep(30)
        holder.renew()
    assert directory in holder.held and files(directory) == ["compaction-21"]
    holder.renew()  # not due yet
    assert files(directory) == ["compaction-21"]


def test_a_lease_that_was_released_is_not_taken_for_the_next_one_of_its_number(directory: str) -> None:
    """Numbers begin again: who looks seldom sees `compaction-1` each time, of other turns."""
    clock = HandClock()
    busy, other = leases("busy", clock), leases("other", clock)
    for turn in range(3):
        assert busy.acquire(STORE, directory) and files(directory) == ["compaction-1"]
        os.utime(Path(directory, "compaction-1"), (turn, turn))
        assert not other.acquire(STORE, directory), "the holder is alive"
        busy.release(directory)
        clock.sleep(60)
    dead = leases("dead", clock)
    assert dead.acquire(STORE, directory)
    os.utime(Path(directory, "compaction-1"), (9, 9))
    for is_over in (False, True):
        assert other.acquire(STORE, directory) is is_over
        clock.sleep(60)
    other.release(directory)
    assert busy.acquire(STORE, directory)
    os.utime(Path(directory, "compaction-1"), (9, 9))
    assert not other.acquire(STORE, directory), "nor for the one that it took over"


def test_of_two_heirs_one_wins(directory: str) -> None:
    clock = HandClock()
    assert leases("dead", clock).acquire(STORE, directory)
    first, second = leases("first", clock), leases("second", clock)
    assert not first.acquire(STORE, directory) and not second.acquire(STORE, directory)
    clock.sleep(60)
    meddler = Meddler("put_if_absent", "compaction-2", lambda: second.acquire(STORE, directory))
    assert not first.acquire(meddler, directory)
    assert directory in second.held and directory not in first.held


def test_a_lost_response_is_looked_up(directory: str) -> None:
    class Lossy(LocalStorage):
        def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
            super().put_if_absent(path, data)
            return PutOutcome.UNKNOWN

    clock = HandClock()
    assert leases("one", clock).acquire(Lossy(), directory)
    assert not leases("other", clock).acquire(STORE, directory)


ODD = [b"?", b"{}", b"[]", b"7", b'{"lives_ms": null}', b'{"lives_ms": "long"}', b"\xff", b'{"lives_ms": 1e999}', b"[" * 9_999]


@pytest.mark.parametrize("content", ODD, ids=range(len(ODD)))
def test_a_lease_that_cannot_be_understood_lives_as_long_as_ours(directory: str, content: bytes) -> None:
    clock = HandClock()
    STORE.write_new(f"{directory}/compaction-7", content)
    STORE.write_new(f"{directory}/other-9", b"?")
    heir = leases("heir", clock)
    assert not heir.acquire(STORE, directory)
    clock.sleep(60)
    assert heir.acquire(STORE, directory) and files(directory) == ["compaction-8", "other-9"]


def test_a_lease_is_neither_read_beyond_its_bound_nor_waited_for_longer_than_a_day(directory: str) -> None:
    clock = HandClock()
    asks = Leases("backup", "asks", 60_000, clock)
    STORE.write_new(f"{directory}/backup-1", b'{"lives_ms": 5' + bytes(64 << 10))
    assert not asks.acquire(STORE, directory)
    clock.sleep(60)
    assert asks.acquire(STORE, directory), "what is too large to be a lease lives as long as ours"
    asks.release(directory)
    STORE.write_new(f"{directory}/backup-1", b'{"lives_ms": 999999999999999999}')
    assert not asks.acquire(STORE, directory)
    clock.sleep(86_399)
    assert not asks.acquire(STORE, directory)
    clock.sleep(1)
    assert asks.acquire(STORE, directory)


def test_a_lease_that_no_file_shows_is_not_ours(directory: str) -> None:
    class Silent(LocalStorage):
        def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
            return PutOutcome.UNKNOWN

    holder = leases("holder", HandClock())
    assert not holder.acquire(Silent(), directory) and not holder.held


def test_a_storage_that_fails_ends_no_renewal_and_is_reported_when_a_lease_is_asked_for(directory: str) -> None:
    clock = HandClock()
    broken = Meddler("put_if_absent", "compaction-2", raising(StorageUnavailable("down", "")))
    holder = leases("holder", clock)
    assert holder.acquire(broken, directory)
    clock.sleep(30)
    holder.renew()
    assert directory in holder.held
    clock.sleep(1)
    holder.renew()
    assert files(directory) == ["compaction-2"]
    listing = Meddler("list_directory", "lease", raising(StorageUnavailable("down", "")))
    with pytest.raises(StorageUnavailable):
        leases("other", clock).acquire(listing, directory)


def test_leases_are_renewed_in_a_thread_and_released_at_the_end(directory: str) -> None:
    holder = Leases("compaction", "holder", 60, SystemClock())
    with holder.renewed():
        assert holder.acquire(STORE, directory)
        deadline = SystemClock().now_millis() + 60_000
        while files(directory) in (["compaction-1"], []) and SystemClock().now_millis() < deadline:
            threading.Event().wait(0.01)
        assert files(directory) not in (["compaction-1"], [])
    assert not Path(directory).exists()


class Hanging(LocalStorage):
    """Calls of one kind hang, once `begins` is set, until `ends` is."""

    begins, ends = threading.Event(), threading.Event()
    call = ""

    def _wait(self, call: str) -> None:
        if call == self.call and self.begins.is_set():
            assert self.ends.wait(60)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        self._wait("put_if_absent")
        return super().put_if_absent(path, data)

    def list_directory(self, path: str) -> Any:
        self._wait("list_directory")
        return super().list_directory(path)

    def delete(self, path: str) -> None:
        self._wait("delete")
        super().delete(path)


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    made = Hanging()
    made.begins, made.ends = threading.Event(), threading.Event()
    yield made
    made.ends.set()


def soon(is_so: Any) -> bool:
    deadline = time.monotonic() + 30
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.01)
    return bool(is_so())


def looking() -> int:
    """How many threads look at a table, or have just done so."""
    return sum(thread.name.startswith("paimon-cli-looks") for thread in threading.enumerate())


@pytest.mark.parametrize("call", ["put_if_absent", "list_directory"])
def test_a_lease_that_is_granted_too_late_is_given_back(directory: str, hanging: Hanging, call: str) -> None:
    holder = Leases("compaction", "holder", 60_000, HandClock(), seconds=0.2)
    hanging.call = call
    hanging.begins.set()
    with pytest.raises(TookTooLong, match=Path(directory).parent.name):
        holder.acquire(hanging, directory)
    assert not holder.held
    hanging.ends.set()
    assert soon(lambda: not looking())
    assert not Path(directory).exists() and not holder.held
    assert Leases("compaction", "other", 60_000, HandClock()).acquire(STORE, directory)


def test_a_storage_that_hangs_makes_no_other_lease_expire(tmp_path: Path, hanging: Hanging) -> None:
    clock, (slow, sound) = HandClock(), (str(tmp_path / name / "lease") for name in ("slow", "sound"))
    holder = Leases("compaction", "holder", 60_000, clock, seconds=1.5)
    hanging.call = "put_if_absent"
    assert holder.acquire(hanging, slow) and holder.acquire(STORE, sound)
    hanging.begins.set()
    for number in range(2, 6):
        clock.sleep(30)
        holder.renew()
        assert files(sound) == [f"compaction-{number}"]
    assert files(slow) == ["compaction-1"]
    assert soon(lambda: looking() <= 1)  # idle threads end by themselves, a moment later
    begin = time.monotonic()
    holder.release(slow)
    holder.release(sound)
    assert time.monotonic() - begin < 20 and not holder.held


def test_a_lease_that_is_granted_as_its_time_is_up_is_not_held(directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_late(seconds: float, call: Any, name: str) -> bool:
        assert call()
        raise TookTooLong("slow", "")

    monkeypatch.setattr(leases_module, "within", too_late)
    holder = leases("holder", HandClock())
    with pytest.raises(TookTooLong):
        holder.acquire(STORE, directory)
    assert not holder.held, "nobody renews it"


def test_a_release_waits_for_a_renewal_so_that_no_file_is_left(directory: str, hanging: Hanging) -> None:
    clock = HandClock()
    holder = leases("holder", clock)
    assert holder.acquire(hanging, directory)
    clock.sleep(30)
    held, hanging.call = holder._held[directory], "put_if_absent"
    hanging.begins.set()
    renewal = threading.Thread(target=holder.renew)
    renewal.start()
    assert soon(held.lock.locked)
    release = threading.Thread(target=holder.release, args=(directory,))
    release.start()
    release.join(0.1)
    assert files(directory) == ["compaction-1"]
    hanging.ends.set()
    renewal.join()
    release.join()
    assert not Path(directory).exists() and not holder.held


def test_several_leases_are_renewed_at_once_and_all_are_released(tmp_path: Path) -> None:
    meeting = threading.Barrier(4)

    class Slow(LocalStorage):
        def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
            if path.endswith("-2"):
                meeting.wait(5)
            return super().put_if_absent(path, data)

    clock, directories = HandClock(), [str(tmp_path / str(number) / "lease") for number in range(4)]
    holder = Leases("compaction", "holder", 600_000, clock, seconds=30)
    with holder.renewed():
        assert all(holder.acquire(Slow(), directory) for directory in directories)
        clock.sleep(200)
        holder.renew()
        assert [files(directory) for directory in directories] == [["compaction-2"]] * 4
    assert not any(Path(directory).exists() for directory in directories) and not holder.held


def test_leases_are_looked_at_often_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease is due after a third of its time, and renewed at the next look: another try must fit in before it expires."""
    waits: list[float] = []

    class Watched(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0)
            return super().wait(timeout)

    monkeypatch.setattr(threading, "Event", Watched)
    with leases("holder", HandClock(), lives=60_000).renewed():
        assert soon(lambda: any(waits))
    assert 20 + 2 * max(waits) <= 60 / 3 * 2
