"""Many small storage calls at once, in bounded portions: stores with slow answers need it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

from paimon_cli.history.table_context import TableContext

T = TypeVar("T")
R = TypeVar("R")

PORTION = 1024
"""Number of calls that are started before their results are taken."""

DeleteFiles = Callable[[Iterable[str]], int]
"""Deletes files by path and returns how many it was given; a missing file is not an error."""


def side_by_side(context: TableContext, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Results in order. With `read_threads` 1 all calls are made one after the other."""
    if context.read_threads < 2:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(context.read_threads) as pool:
        left = iter(items)
        while portion := list(islice(left, PORTION)):
            yield from pool.map(function, portion)


def delete_files(context: TableContext, on_done: Callable[[int], None] | None = None) -> DeleteFiles:
    """Deletes in this process, side by side; `on_done` hears of every file."""

    def delete(paths: Iterable[str]) -> int:
        count = 0
        for _ in side_by_side(context, context.storage.delete, paths):
            count += 1
            if on_done is not None:
                on_done(1)
        return count

    return delete
