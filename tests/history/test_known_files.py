"""Files that never change are read once for all callers, and again only after an eviction or a failed read."""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from paimon_cli.errors import StorageUnavailable
from paimon_cli.history.kept_files import KnownFiles


def test_threads_that_ask_at_once_read_once() -> None:
    known, reads, begin = KnownFiles(), [], threading.Barrier(4)

    def read() -> bytes:
        reads.append(1)
        return b"content"

    def ask(_: int) -> bytes:
        begin.wait()
        return known.content("a", read)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))) == [b"content"] * 4
    assert len(reads) == 1
    assert pickle.loads(pickle.dumps(known)).content("a", lambda: b"anew") == b"anew"


def test_the_oldest_make_room() -> None:
    known = KnownFiles(max_bytes=10)
    for name in "abc":
        known.content(name, lambda: b"1234")
    assert known.content("c", lambda: b"other") == b"1234"
    assert known.content("a", lambda: b"anew") == b"anew"
    assert known.content("big", lambda: b"x" * 100) == b"x" * 100


def test_a_failure_is_not_kept() -> None:
    def fails() -> bytes:
        raise StorageUnavailable("away")

    known = KnownFiles()
    with pytest.raises(StorageUnavailable):
        known.content("a", fails)
    assert known.content("a", lambda: b"there") == b"there"


def test_what_is_kept_is_as_much_as_there_is_room_for_and_the_oldest_go_first() -> None:
    known, reads = KnownFiles(max_bytes=8), list[str]()

    def ask(name: str, size: int = 4) -> None:
        def read() -> bytes:
            reads.append(name)
            return b"x" * size

        known.content(name, read)

    for name in ("a", "b", "a", "b"):
        ask(name)
    assert reads == ["a", "b"], "both fit exactly"
    ask("c", 1)
    for name in ("b", "c"):
        ask(name)
    assert reads == ["a", "b", "c"]
    ask("a")
    assert reads == ["a", "b", "c", "a"], "the oldest had gone"
    ask("b")
    assert reads == ["a", "b", "c", "a", "b"]


def test_a_file_that_is_still_being_read_is_not_evicted() -> None:
    known, reading, may_end = KnownFiles(max_bytes=4), threading.Event(), threading.Event()

    def slow() -> bytes:
        reading.set()
        assert may_end.wait(120)
        return b"slow"

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(known.content, "slow", slow)
        assert reading.wait(120)
        assert known.content("b", lambda: b"1234") == b"1234" and known.content("c", lambda: b"5678") == b"5678"
        may_end.set()
        assert first.result(120) == b"slow"
