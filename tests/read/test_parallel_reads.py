"""Splits read on several threads come in their order, whatever ends first."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator

import pyarrow as pa
import pytest

from paimon_cli.read.split_reader import read_in_parallel
from tests.threads import no_thread_left


def read(split: int) -> Iterator[pa.RecordBatch]:
    for part in range(3):
        threading.Event().wait(0.002 * (split % 3))
        yield pa.record_batch({"n": [split * 10 + part]})


@pytest.mark.parametrize("threads", [1, 2, 5, 50])
@pytest.mark.parametrize("splits", [0, 1, 2, 9])
def test_order_is_that_of_the_splits(threads: int, splits: int) -> None:
    rows = [batch["n"][0].as_py() for batch in read_in_parallel(range(splits), read, threads)]
    assert rows == [split * 10 + part for split in range(splits) for part in range(3)]


def test_a_failure_of_a_later_split_comes_in_its_turn() -> None:
    def failing(split: int) -> Iterator[pa.RecordBatch]:
        if split == 1:
            raise LookupError("gone")
        yield from read(split)

    rows: list[pa.RecordBatch] = []
    with pytest.raises(LookupError, match="gone"):
        rows.extend(read_in_parallel(range(3), failing, 3))
    stream = read_in_parallel(range(3), failing, 3)
    with no_thread_left():
        assert [next(stream)["n"][0].as_py() for _ in range(3)] == [0, 1, 2]
        with pytest.raises(LookupError, match="gone"):
            next(stream)


def test_a_caller_that_has_enough_leaves_no_thread() -> None:
    with no_thread_left():
        stream = read_in_parallel(range(9), read, 4)
        next(stream)
        assert isinstance(stream, Generator)
        stream.close()
