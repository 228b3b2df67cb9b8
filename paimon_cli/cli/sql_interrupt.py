"""Ctrl-C while DuckDB computes: Python handles a signal only when DuckDB returns, so a thread tells DuckDB to stop."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paimon_cli.api.sql_context import SqlContext


@contextlib.contextmanager
def stopping_queries(context: SqlContext) -> Iterator[None]:
    """In the block, SIGINT stops the query that runs; then Python raises `KeyboardInterrupt` as always."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    context.was_interrupted = False
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def watch() -> None:
        while numbers := os.read(reading, 64):
            if signal.SIGINT in numbers:
                context.interrupt()

    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    thread = threading.Thread(target=watch, name="sql-interrupt", daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writing)  # ends the thread
        thread.join()
        os.close(reading)
