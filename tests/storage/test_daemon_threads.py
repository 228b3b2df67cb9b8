"""Threads are started once and used again, but never while a call of theirs goes on."""

from __future__ import annotations

import threading
from contextvars import ContextVar

import pytest

from paimon_cli.pieces import PIECES
from paimon_cli.storage.threads import DaemonThreads, ReadAhead, begin_thread, in_parallel, map_ahead

_OF_CALL: ContextVar[str] = ContextVar("of_call", default="")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads that are started from now on."""
    found: list[threading.Thread] = []
    start = threading.Thread.start

    def noted(self: threading.Thread) -> None:
        found.append(self)
        start(self)

    monkeypatch.setattr(threading.Thread, "start", noted)
    return found


class Item:
    nbytes = 1


def work() -> None:
    with DaemonThreads(2) as pool:
        assert list(pool.map(str, range(4))) == ["0", "1", "2", "3"]
    with ReadAhead(iter([Item(), Item()]), 10) as items:
        assert len(list(items)) == 2
    assert list(map_ahead(str, range(3), 2)) == ["0", "1", "2"]
    assert list(in_parallel(str, range(3), 2)) == ["0", "1", "2"]


def test_threads_are_used_again(started: list[threading.Thread]) -> None:
    for _ in range(20):
        work()
    assert len(started) <= 16  # without, more than a hundred; how many at the same time depends on the machine


def test_one_call_needs_no_thread(started: list[threading.Thread]) -> None:
    assert list(in_parallel(lambda number: threading.current_thread().name, [1], 8)) == [threading.current_thread().name]
    assert list(in_parallel(str, [], 8)) == [] and not started


@pytest.mark.parametrize("submitted", [1, 2, 3, 7, 8])
@pytest.mark.parametrize("threads", [1, 3])
def test_no_call_is_left_out_however_many_are_submitted_at_a_time(
    submitted: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PIECES, "submitted_calls", submitted)
    assert list(in_parallel(str, iter(range(7)), threads)) == [*map(str, range(7))]


def test_a_thread_that_hangs_holds_up_nobody() -> None:
    never = threading.Event()

    def hang() -> None:
        never.wait()

    hanging = begin_thread(hang, "hangs")
    ends = [begin_thread(lambda: None, "works") for _ in range(40)]
    assert all(end.wait(20) for end in ends) and not hanging.is_set()
    never.set()
    assert hanging.wait(20)


def test_a_call_sees_nothing_of_the_one_before() -> None:
    def note() -> None:
        seen.append(_OF_CALL.get())
        _OF_CALL.set("used")

    seen: list[str] = []
    for _ in range(20):
        begin_thread(note, "notes").wait()
    assert seen == [""] * 20


def test_a_call_that_fails_ends_its_thread_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda failed: failures.append(str(failed.exc_value)))

    def fail() -> None:
        raise ValueError("it failed")

    assert begin_thread(fail, "fails").wait(20)
    assert all(begin_thread(lambda: None, "works").wait(20) for _ in range(40))
    for thread in threading.enumerate():
        if thread.name == "fails":
            thread.join(20)
    assert failures == ["it failed"]
