"""Runs many small storage calls in parallel, in bounded portions, for stores with slow answers."""

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
    """The results in order. With `read_threads` 1 the calls are made one after the other."""
    if context.read_threads < 2:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(context.read_threads) as pool:
        left = iter(items)
        while portion := list(islice(left, PORTION)):
            yield from pool.map(function, portion)


def delete_files(context: TableContext, on_done: Callable[[int], None] | None = None) -> DeleteFiles:
    """A function that deletes in this process, in parallel; `on_done` is called for every file."""

    def delete(paths: Iterable[str]) -> int:
        count = 0
        for _ in side_by_side(context, context.storage.delete, paths):
            count += 1
            if on_done is not None:
                on_done(1)
        return count

    return delete
