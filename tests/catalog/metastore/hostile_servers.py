"""Servers that answer any request with what a faulty or hostile one might send: bytes without an end, or one at a time."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from threading import Event, Thread

Answers = Callable[[socket.socket, Event], Iterable[bytes]]
"""What is sent on a connection; it reads the request itself, and ends when the event is set."""


@contextlib.contextmanager
def answering(answers: Answers) -> Iterator[int]:
    """Yields the port of a server that sends these answers, on each connection."""
    stop = Event()

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(5)
            for piece in answers(connection, stop):
                connection.sendall(piece)

    def accept() -> None:
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                Thread(target=serve, args=(server.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        thread = Thread(target=accept)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            stop.set()
            thread.join()


def without_end(piece: bytes, stop: Event) -> Iterator[bytes]:
    while not stop.is_set():
        yield piece


def drop_by_drop(stop: Event, drop: bytes = b" ") -> Iterator[bytes]:
    while not stop.is_set():
        yield drop
        time.sleep(0.05)
