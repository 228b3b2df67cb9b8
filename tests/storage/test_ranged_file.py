"""Planned ranges: what is asked for, when, how much is held, and that the bytes are those of the file."""

from __future__ import annotations

import os
import random
import threading

import pytest

from paimon_cli.errors import StorageUnavailable
from paimon_cli.pieces import PIECES
from paimon_cli.storage.ranged_file import RangedFile, pieces_of

MB = 1 << 20


class Store:
    """A file, and the ranges that were asked for."""

    def __init__(self, size: int) -> None:
        self.content = os.urandom(size)
        self.asked: list[tuple[int, int]] = []
        self.fails = False
        self._lock = threading.Lock()

    def fetch(self, start: int, end: int) -> memoryview:
        with self._lock:
            self.asked.append((start, end))
        if self.fails:
            raise StorageUnavailable("gone")
        return memoryview(self.content)[start:end]

    def open(self) -> RangedFile:
        return RangedFile(self.fetch, len(self.content))


@pytest.mark.parametrize(
    ("ranges", "pieces"),
    [
        ([], []),
        ([(5, 5)], []),
        ([(0, 10), (10, 20)], [(0, 20)]),
        ([(30, 40), (0, 10)], [(0, 40)]),
        ([(0, 10), (111, 120)], [(0, 10), (111, 120)]),
        ([(0, 10), (5, 7)], [(0, 10)]),
        ([(0, 2001)], [(0, 667), (667, 1334), (1334, 2001)]),
    ],
)
def test_pieces(ranges: list[tuple[int, int]], pieces: list[tuple[int, int]]) -> None:
    assert pieces_of(ranges, hole=100, most=1000) == pieces


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_planned_the_bytes_are_right(seed: int) -> None:
    chance = random.Random(seed)
    store = Store(3 * MB + 17)
    size = len(store.content)
    with store.open() as file:
        if seed % 3 == 0:
            file.expect_all()
        elif seed % 3 == 1:
            bounds = sorted(chance.sample(range(size), 12))
            file.expect([[(a, b)] for a, b in zip(bounds[::2], bounds[1::2], strict=True)])
        for _ in range(200):
            start, length = chance.randrange(size + 100), chance.choice([1, 100, 70_000, 900_000])
            assert file.seek(start) == start
            assert file.read(length) == store.content[start : start + length]
        file.seek(-5, os.SEEK_END)
        assert file.read() == store.content[-5:] and file.tell() == size and file.read(1) == b""


def test_without_a_plan_small_reads_share_requests() -> None:
    store = Store(2 * MB)
    with store.open() as file:
        for start in range(0, PIECES.least_read_bytes, 1000):
            file.seek(start)
            file.read(min(1000, PIECES.least_read_bytes - start))
        assert store.asked == [(0, PIECES.least_read_bytes)]
        file.seek(-8, os.SEEK_END)
        file.read(8)
        file.seek(-1000, os.SEEK_END)
        assert file.read(900) == store.content[-1000:-100]
        assert store.asked[1:] == [(2 * MB - PIECES.tail_bytes, 2 * MB)], "what was read at the end brings the footer along"


def test_a_group_is_fetched_at_once_and_the_next_ones_as_far_as_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "request_ahead_bytes", 2 * MB)
    store = Store(8 * MB)
    groups = [[(number * MB, number * MB + MB // 2), (number * MB + MB // 2, (number + 1) * MB)] for number in range(8)]
    with store.open() as file:
        file.expect(groups, 2 * MB)
        held = []
        for start in range(0, 8 * MB, MB // 4):
            file.seek(start)
            assert file.read(MB // 4) == store.content[start : start + MB // 4]
            held.append(file._begun)
        assert max(held) <= 2 * MB and held[-1] == 0
    assert sorted(store.asked) == [(number * MB, (number + 1) * MB) for number in range(8)]


def test_without_room_ahead_one_group_is_held() -> None:
    store = Store(4 * MB)
    with store.open() as file:
        file.expect([[(number * MB, (number + 1) * MB)] for number in range(4)], 0)
        file.read(10)
        assert file._begun == MB
        file.read(MB - 10)
        assert file._begun == MB, "the next one is fetched when the first is read"


def test_a_group_that_is_too_big_is_fetched_as_the_reader_comes_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns side by side, each in its own part of the file: one or two pieces of each are held."""
    monkeypatch.setattr(PIECES, "request_ahead_bytes", 2 * MB)
    store = Store(16 * MB)
    columns = [(number * 4 * MB, (number + 1) * 4 * MB) for number in range(4)]
    with store.open() as file:
        file.expect([columns], 2 * MB)
        assert not store.asked
        held = []
        for step in range(0, 4 * MB, 64 << 10):
            for begin, _ in columns:
                file.seek(begin + step)
                assert file.read(64 << 10) == store.content[begin + step :][: 64 << 10]
                held.append(file._begun)
    assert max(held) <= 4 * MB and len(store.asked) == len(set(store.asked)) == 16


def test_groups_that_were_passed_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that leaves bytes out does not keep what it held for them."""
    monkeypatch.setattr(PIECES, "request_ahead_bytes", 2 * MB)
    store = Store(16 * MB)
    with store.open() as file:
        file.expect([[(number * MB, (number + 1) * MB)] for number in range(16)], 2 * MB)
        held = []
        for number in range(16):
            file.seek(number * MB)
            file.read(MB - 1)
            held.append(file._begun)
    assert max(held) <= 4 * MB


def test_failures_are_the_readers() -> None:
    store = Store(MB)
    store.fails = True
    with store.open() as file:
        file.expect_all()
        with pytest.raises(StorageUnavailable):
            file.read(5)
