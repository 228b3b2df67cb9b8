"""The time of a look at one table of several: what hangs or is slow is given up, and the others are answered."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from queue import SimpleQueue

import pytest

from paimon_cli.catalog.metastore.settings import find_metastore
from paimon_cli.errors import NotFound, PaimonError, StorageUnavailable, TookTooLong, UsageError
from paimon_cli.lab.simulation.actor import IN_TURN
from paimon_cli.storage.catalog_options import table_seconds
from paimon_cli.storage.memory_storage import MemoryStorage
from paimon_cli.storage.threads import DaemonThreads, cached_property, concurrency, in_parallel, running_by, thread_pool
from paimon_cli.storage.time_bounds import check_time, look_at_each, within
from tests.threads import no_thread_left


@dataclass
class Hang:
    """Looks that hang until the end of the test."""

    over: threading.Event = field(default_factory=threading.Event)

    def __call__(self, name: str) -> str:
        if name.startswith("slow"):
            self.over.wait(60)
        if name == "gone":
            raise NotFound("no table", "it is gone")
        return name.upper()


@contextmanager
def hanging() -> Iterator[Hang]:
    hang = Hang()
    try:
        yield hang
    finally:
        hang.over.set()


def looked(look: Callable[[str], str], names: list[str], seconds: float, at_once: int) -> list[str]:
    found = look_at_each(look, names, seconds, at_once, str)
    return [type(each).__name__ if isinstance(each, PaimonError) else each for each in found]


@pytest.mark.parametrize("at_once", [1, 2, 8])
def test_what_hangs_costs_its_own_time(at_once: int) -> None:
    begin = time.monotonic()
    with hanging() as hang:
        found = looked(hang, ["a", "slow 1", "slow 2", "b", "gone", "slow 3", "c"], 1.0, at_once)
    assert found == ["A", "TookTooLong", "TookTooLong", "B", "NotFound", "TookTooLong", "C"]
    assert time.monotonic() - begin < 30


def test_no_thread_is_left_where_nothing_hangs() -> None:
    with no_thread_left():
        assert looked(Hang(), [str(number) for number in range(100)], 60, 4) == [str(number) for number in range(100)]


def test_the_error_names_the_table_and_the_option() -> None:
    with hanging() as hang, pytest.raises(TookTooLong, match=r"shop\.slow did not answer in 0\.2 s") as failure:
        within(0.2, lambda: hang("slow"), "shop.slow")
    assert failure.value.exit_code == StorageUnavailable.exit_code
    assert "table-timeout" in failure.value.hint and failure.value.details == {"table": "shop.slow"}


def test_errors_of_a_look_pass() -> None:
    with pytest.raises(NotFound):
        within(60, lambda: Hang()("gone"), "gone")
    with pytest.raises(ZeroDivisionError):
        within(60, lambda: 1 // 0, "t")
    assert within(float("inf"), threading.get_ident, "t") == threading.get_ident()


def test_a_look_that_was_given_up_ends_before_its_next_file() -> None:
    """Whatever errors it puts up with, and also where it reads in parallel."""
    storage, read = MemoryStorage("time bounds"), list[str]()
    for number in range(1000):
        storage.write_new(f"memory://t/snapshot-{number}", b"{}")
    given_up, ended = threading.Event(), threading.Event()

    def look(name: str) -> str:
        def read_one(number: int) -> None:
            if number == 2:
                given_up.wait(60)
            read.append(storage.read_bytes(f"memory://t/snapshot-{number}").decode())

        try:
            for threads in (1, 2):
                try:
                    list(in_parallel(read_one, range(1000), threads))
                except PaimonError:
                    continue
            return name
        finally:
            ended.set()

    assert looked(look, ["t"], 0.2, 1) == ["TookTooLong"]
    given_up.set()
    assert ended.wait(10) and len(read) == 2


def test_a_late_answer_is_none() -> None:
    """By the clock of the requests, as the reader of a report was told."""
    now = 0.0

    def look(name: str) -> str:
        nonlocal now
        now += 10
        return name

    with running_by(replace(concurrency(), seconds=lambda: now)):
        assert looked(look, ["a"], 9, 1) == ["TookTooLong"]
        assert looked(look, ["a"], 11, 1) == ["a"]


def test_a_look_within_another_ends_with_it() -> None:
    now = 0.0

    def look(name: str) -> str:
        nonlocal now
        now += 10
        check_time()
        return name

    with running_by(replace(concurrency(), seconds=lambda: now, ends=15)):
        assert looked(look, ["a", "b"], 100, 1) == ["a", "TookTooLong"]
        assert looked(look, ["c"], 100, 1) == ["TookTooLong"]


def test_what_comes_after_a_look_that_hangs_has_its_whole_time() -> None:
    """It begins when a thread is there for it, also if the time of one look has passed before."""
    begun = threading.Event()

    def look(name: str) -> str:
        if name == "first":
            begun.wait(60)
        return name

    found = look_at_each(look, ["first", "second"], 0.3, 1, str)
    assert isinstance(next(found), TookTooLong) and list(found) == ["second"]
    begun.set()


def test_where_requests_have_no_threads_no_time_passes() -> None:
    here = threading.get_ident()
    with running_by(IN_TURN):
        assert list(look_at_each(lambda _: threading.get_ident(), ["a", "b"], 0.1, 8, str)) == [here, here]


def test_a_pool_runs_calls_as_the_thread_that_submits_them() -> None:
    ends = concurrency().seconds() + 1000
    with DaemonThreads(2) as pool, running_by(replace(concurrency(), ends=ends)), thread_pool(1) as inner:
        assert pool.submit(concurrency).result().ends == ends
        assert inner.submit(lambda: inner.submit(check_time)).result().result() is None
    with pytest.raises(RuntimeError):
        pool.submit(print)


def test_a_pool_has_as_many_threads_as_calls_need() -> None:
    with no_thread_left(), DaemonThreads(8) as pool:
        for _ in range(20):
            pool.submit(int).result()
            wait([pool.submit(time.sleep, 0.001)])
        assert len(pool._threads) <= 2
        barrier = threading.Barrier(8)
        assert len(list(pool.map(lambda _: barrier.wait(10), range(8)))) == 8


def test_a_pool_that_is_given_up_while_a_thread_takes_its_last_call() -> None:
    class Calls(SimpleQueue[object]):
        def empty(self) -> bool:
            """False; and before the caller goes on, a thread has taken the call."""
            return not [super(Calls, self).get() for _ in range(self.qsize())]

    pool = DaemonThreads(1)
    pool._calls = Calls()  # type: ignore[assignment]
    with hanging() as hang:
        pool.submit(hang, "slow")
        pool.submit(hang, "a")
        giving_up = threading.Thread(target=pool.shutdown, args=(False,), kwargs={"cancel_futures": True}, daemon=True)
        giving_up.start()
        giving_up.join(20)
        assert not giving_up.is_alive()


def test_a_property_that_hangs_in_one_object_is_computed_in_others() -> None:
    class Table:
        def __init__(self, name: str, look: Hang) -> None:
            self.name, self.look = name, look

        @cached_property
        def files(self) -> str:
            return self.look(self.name)

    with hanging() as hang:
        tables = {name: Table(name, hang) for name in ("slow", "a")}
        assert looked(lambda name: tables[name].files, ["slow", "a"], 0.5, 2) == ["TookTooLong", "A"]


def test_the_process_does_not_wait_for_what_hangs() -> None:
    code = (
        "import time; from paimon_cli.storage.time_bounds import look_at_each\n"
        "from paimon_cli.storage.threads import in_parallel\n"
        "def look(name): return list(in_parallel(time.sleep, [600, 600], 2))\n"
        "print([type(e).__name__ for e in look_at_each(look, ['a', 'b'], 0.3, 1, str)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "['TookTooLong', 'TookTooLong']"


def test_the_option_of_the_catalog() -> None:
    assert find_metastore(options={}).table_seconds == 60
    assert find_metastore(options={"table-timeout": "5 s"}).table_seconds == 5
    for wrong in ("0 s", "soon"):
        with pytest.raises(UsageError):
            table_seconds({"table-timeout": wrong})
    assert within(table_seconds({"table-timeout": "100000 d"}), int, "t") == 0
