"""Connections to PostgreSQL on which each wait for the server is bounded, in time and, where the system counts them, in bytes.

libpq keeps the whole result of a statement in memory, and neither it nor a timeout of the server itself limits how long, or how
large, an answer of a faulty server gets.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
import time
from collections.abc import Generator
from typing import Any

import psycopg

from paimon_cli.storage.bounded_exchange import MOST_BYTES, STATEMENT_SECONDS

_BYTES_RECEIVED = 128
"""The offset of `tcpi_bytes_received` in Linux' `struct tcp_info`."""
_CHECK_SECONDS = 0.1


class _BeyondBounds(psycopg.OperationalError):
    """A statement took too long, or its result is too large."""


class _BoundedConnection(psycopg.Connection[Any]):
    def wait(self, gen: Generator[Any, Any, Any], interval: float = _CHECK_SECONDS, *arguments: Any, **options: Any) -> Any:
        try:
            return super().wait(_bounded(gen, self.fileno()), min(interval, _CHECK_SECONDS), *arguments, **options)
        except _BeyondBounds:
            self.close()  # the statement is still running, and nothing else can be sent, not even a rollback
            raise


def connect(*arguments: Any, **options: Any) -> psycopg.Connection[Any]:
    """A connection as that of `psycopg.connect`; statements raise `OperationalError` beyond the bounds."""
    return _BoundedConnection.connect(*arguments, **options)


def _bounded(work: Generator[Any, Any, Any], descriptor: int) -> Generator[Any, Any, Any]:
    """The steps of a wait, each of which follows what has arrived, or a pause of `_CHECK_SECONDS`."""
    end, received_before = time.monotonic() + STATEMENT_SECONDS, _received(descriptor)
    try:
        state = next(work)
        while True:
            ready = yield state
            if time.monotonic() > end:
                raise _BeyondBounds(f"there was no complete answer after {STATEMENT_SECONDS} s")
            if _received(descriptor) - received_before > MOST_BYTES:
                raise _BeyondBounds(f"the answer has more than {MOST_BYTES // 2**20} MB")
            state = work.send(ready)
    except StopIteration as done:
        return done.value


def _received(descriptor: int) -> int:
    """The bytes that a TCP connection has received; 0 where the system does not count them."""
    if not sys.platform.startswith("linux"):
        return 0
    with contextlib.suppress(OSError, struct.error), socket.socket(fileno=os.dup(descriptor)) as sock:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        return int(struct.unpack_from("=Q", info, _BYTES_RECEIVED)[0])
    return 0
