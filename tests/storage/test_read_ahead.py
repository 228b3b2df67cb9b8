"""Batches made ahead: order, bounds, failures and an early end."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from paimon_cli.jobs.process import MAX_CORES, usable_cores
from paimon_cli.storage.threads import Ahead, ReadAhead, map_ahead, together
from tests.threads import no_thread_left

ROWS = 1000
BYTES = ROWS * 8


def batches(count: int, made: list[int]) -> Iterator[pa.RecordBatch]:
    for number in range(count):
        made.append(number)
        yield pa.record_batch({"n": pa.array([number] * ROWS, pa.int64())})


def test_gives_everything_in_order_made_by_another_thread() -> None:
    threads = set()

    def items() -> Iterator[pa.RecordBatch]:
        for batch in batches(50, []):
            threads.add(threading.get_ident())
            yield batch

    with ReadAhead(items(), 3 * BYTES) as ahead:
        assert [batch["n"][0].as_py() for batch in ahead] == list(range(50))
    assert threads and threading.get_ident() not in threads


@pytest.mark.parametrize("room", [0, 1, 4])
def test_produces_no_more_than_the_limit(room: int) -> None:
    made: list[int] = []
    with ReadAhead(batches(100, made), room * BYTES) as ahead:
        taken = iter(ahead)
        next(taken)
        next(taken)
        for _ in range(200):
            if len(made) > 2 + max(1, room):
                break
            threading.Event().wait(0.0005)
        assert len(made) <= 2 + max(1, room) + 1  # the one in hand
    assert len(made) <= 2 + max(1, room) + 2


@pytest.mark.parametrize("room", [0, 1, 2, 5])
def test_makes_as_many_as_it_has_room_for(room: int) -> None:
    made: list[int] = []
    wanted = max(1, room) + 1  # the one in hand

    def items() -> Iterator[pa.RecordBatch]:
        for batch in batches(20, made):
            if len(made) == wanted:
                full.set()
            yield batch

    full = threading.Event()
    with ReadAhead(items(), room * BYTES) as ahead:
        assert full.wait(120) and len(made) == wanted
        assert [batch["n"][0].as_py() for batch in ahead] == list(range(20))


def test_a_failure_comes_after_earlier_results() -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from batches(2, [])
        raise ValueError("damaged")

    seen = 0
    with ReadAhead(failing(), 100 * BYTES) as ahead, pytest.raises(ValueError, match="damaged"):
        for _ in ahead:
            seen += 1
    assert seen == 2


def test_leaving_early_ends_the_thread() -> None:
    made: list[int] = []
    with no_thread_left(), ReadAhead(batches(10_000, made), BYTES) as ahead:
        next(iter(ahead))
    assert len(made) < 10


def test_cores_are_at_least_one() -> None:
    assert 1 <= usable_cores() <= MAX_CORES


class TestAhead:
    def test_what_was_begun_is_given_out_once(self) -> None:
        ahead: Ahead[int] = Ahead()
        ahead.begin(lambda: 1)
        assert (ahead.take(lambda: 2), ahead.take(lambda: 3)) == (1, 3)

    def test_an_outdated_result_is_requested_again(self) -> None:
        ahead: Ahead[int] = Ahead(fresh_seconds=-1)
        ahead.begin(lambda: 1)
        assert ahead.take(lambda: 2) == 2

    def test_a_copy_has_nothing(self) -> None:
        ahead: Ahead[int] = Ahead()
        ahead.begin(lambda: 1)
        assert pickle.loads(pickle.dumps(ahead)).take(lambda: 2) == 2


def test_calls_together() -> None:
    done: list[int] = []

    def fail() -> int:
        raise ValueError("no")

    def note() -> int:
        done.append(1)
        return 1

    assert together([lambda: 1, lambda: 2]) == [1, 2]
    with pytest.raises(ValueError, match="no"):
        together([fail, note])
    assert done == [1], "all of them end first"


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_calls_that_run_ahead_keep_the_order(threads: int) -> None:
    taken: list[int] = []
    seen = set[int]()

    def items() -> Iterator[int]:
        for number in range(30):
            taken.append(number)
            yield number

    def squared(number: int) -> int:
        seen.add(threading.get_ident())
        threading.Event().wait((number % 3) / 500)
        return number * number

    results = map_ahead(squared, items(), threads)
    assert next(results) == 0
    assert len(taken) == (1 if threads == 1 else threads + 1)
    assert list(results) == [number * number for number in range(1, 30)]
    assert len(seen) <= threads and (threading.get_ident() in seen) == (threads == 1)


def test_calls_that_run_ahead_are_concurrent() -> None:
    both = threading.Barrier(2, timeout=120)
    assert len(list(map_ahead(lambda _: both.wait(), range(2), 2))) == 2


@pytest.mark.parametrize("threads", [1, 2])
def test_a_call_that_fails_is_raised_at_its_place(threads: int) -> None:
    def inverse(number: int) -> float:
        return 1 / number

    with no_thread_left():
        results = map_ahead(inverse, [2, 1, 0, 4], threads)
        assert [next(results), next(results)] == [0.5, 1.0]
        with pytest.raises(ZeroDivisionError):
            next(results)


def test_an_iteration_that_is_closed_ends_its_threads() -> None:
    with no_thread_left():
        results = map_ahead(str, range(100), 2)
        assert next(results) == "0"
        results.close()
