"""Pools of processes that try many tables in parallel, and that end with the program that started them, even if it is killed."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


def pool(jobs: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=end_with_parent)


def each(jobs: int, work: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
    """The result of `work` for each task, in order. A task that raises or kills its process is printed, and ends all."""
    with pool(jobs) as processes:
        waiting = [(task, processes.submit(work, task)) for task in tasks]
        try:
            for task, future in waiting:
                failure = future.exception()
                if isinstance(failure, BrokenProcessPool):
                    at_work = [other for other, broken in waiting if isinstance(broken.exception(), BrokenProcessPool)][:jobs]
                    print(f"{work.__name__} killed its process on one of {at_work}", file=sys.stderr, flush=True)
                elif failure is not None:
                    print(f"{work.__name__} failed on {task!r}", file=sys.stderr, flush=True)
                yield future.result()
        finally:
            processes.shutdown(wait=False, cancel_futures=True)


def end_with_parent() -> None:
    """End this process when its parent ends.

    Otherwise an idle one would wait forever for its queue, which it keeps open itself.
    """
    threading.Thread(target=_watch, daemon=True).start()


def _watch() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "this is a process of a pool"
    parent.join()
    os._exit(1)
