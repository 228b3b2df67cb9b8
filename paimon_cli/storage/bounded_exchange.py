"""Bounds one request and its answer on a socket, in time and in bytes.

The timeout of a socket is for each read, so a peer that sends a byte a second never meets it; and an answer without an end
grows until memory is spent. An `Exchange` is checked before and after each read, whatever protocol is read above it.
"""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Callable
from typing import Any

from paimon_cli.options.option_text import human_size
from paimon_cli.pieces import PIECES

STATEMENT_SECONDS, MOST_BYTES = 60, 64 * 2**20
"""Of a database: the total time of a statement, and the most bytes of its result."""


class Unbounded(Exception):
    """The peer took too long, or sent too much. Not an `OSError`, which libraries would translate or try again after."""


class Exchange:
    """One request and its answer: the time and the bytes that the peer has left. It can begin anew, for the next request."""

    def __init__(self, seconds: float, most_bytes: int, now: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._most_bytes, self._now = seconds, most_bytes, now
        self.begin()

    def begin(self) -> None:
        self._end, self._bytes = self._now() + self._seconds, 0

    def seconds_left(self) -> float:
        """Raises `Unbounded` if the time is up."""
        left = self._end - self._now()
        if left <= 0:
            raise self.too_slow()
        return left

    def count(self, received: int) -> None:
        """Raise `Unbounded` if, with these bytes, more have been received than allowed."""
        self._bytes += received
        if self._bytes > self._most_bytes:
            raise Unbounded(f"it sent more than {human_size(self._most_bytes)}")

    def too_slow(self) -> Unbounded:
        return Unbounded(f"it was not complete after {self._seconds:g} s")


class BoundedSocket:
    """A connected socket whose reads and writes belong to an exchange; for `http.client` and libraries that build on it."""

    def __init__(self, inner: Any, exchange: Exchange) -> None:
        self._inner, self._exchange = inner, exchange

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def makefile(self, mode: str = "rb", *arguments: Any) -> io.BufferedReader:
        return bounded_reader(self._inner, self._exchange)

    def sendall(self, data: Any) -> None:
        with memoryview(data) as bytes_left:
            while bytes_left:
                self._inner.settimeout(self._exchange.seconds_left())
                bytes_left = bytes_left[self._inner.send(bytes_left[: PIECES.socket_bytes]) :]


def bounded_reader(sock: Any, exchange: Exchange) -> io.BufferedReader:
    """A file of the bytes that a socket receives. It stays open when the socket is closed, as that of `socket.makefile` does."""
    return io.BufferedReader(_BoundedReads(sock, exchange), PIECES.socket_bytes)


class _BoundedReads(io.RawIOBase):
    def __init__(self, sock: socket.socket, exchange: Exchange) -> None:
        self._sock, self._exchange = sock, exchange
        self._raw = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._exchange.seconds_left())
        try:
            received: int | None = self._raw.readinto(buffer)
        except TimeoutError:
            raise self._exchange.too_slow() from None
        self._exchange.count(received or 0)
        return received

    def close(self) -> None:
        self._raw.close()
        super().close()
