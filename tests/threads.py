"""Checks that work ends all of its threads, whatever threads other tests have in this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from paimon_cli.storage.threads import IDLE


def busy_threads() -> set[threading.Thread]:
    """The threads of this process that do not just wait for another call."""
    return {thread for thread in threading.enumerate() if thread.name != IDLE}


@contextmanager
def no_thread_left() -> Iterator[None]:
    """Threads that begin inside have ended, or wait for another call, when the block is left or a moment later; those that were
    there before may go or stay.
    """
    before = set(threading.enumerate())
    yield
    end = time.monotonic() + 20
    while busy := busy_threads() - before:
        assert time.monotonic() < end, busy
        time.sleep(0.001)
