"""Checks that work ends all of its threads, whatever threads other tests have in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_thread_left() -> Iterator[None]:
    """Threads that begin inside have ended when the block is left; those that were there before may go or stay."""
    before = set(threading.enumerate())
    yield
    assert not [thread for thread in threading.enumerate() if thread not in before]
