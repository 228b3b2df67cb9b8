"""Processes that try many tables at a time, and end with the program that started them, even if it is killed."""

from __future__ import annotations

import multiprocessing
import os
import threading
from concurrent.futures import ProcessPoolExecutor


def pool(jobs: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=end_with_parent)


def end_with_parent() -> None:
    """An idle process of a pool waits for its queue, which it keeps open itself, so that it would never see its end."""
    threading.Thread(target=_watch, daemon=True).start()


def _watch() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "this is a process of a pool"
    parent.join()
    os._exit(1)
