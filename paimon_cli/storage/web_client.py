"""HTTP requests to one server, whose answers are bounded in time and bytes. Redirects are answers; proxies are not used.

Needs urllib3.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError

from paimon_cli.pieces import PIECES
from paimon_cli.storage.bounded_exchange import BoundedSocket, Exchange, Unbounded
from paimon_cli.storage.peers import ForbiddenAddress
from paimon_cli.storage.web_address import WebAddress

_CONNECT_SECONDS = 30
Addresses = Callable[[str, int], Iterable[tuple[int, Any]]]
"""The families and addresses of a host and port, in the order in which they are tried."""


class NotSent(Exception):
    """The server was not reached; nothing was sent."""


class NoAnswer(Exception):
    """The request was sent, or part of it, and there is no complete answer."""


class WebAnswer(NamedTuple):
    """Any answer, whatever its status."""

    status: int
    body: bytes


@dataclass(frozen=True)
class Bounds:
    """The total time of an exchange, from the first byte sent to the last one received, and the bytes of an answer."""

    seconds: float
    most_bytes: int
    addresses: Addresses | None = None
    """Looks up the addresses of the server, instead of the operating system."""


class WebClient:
    """Sends requests to one server, and keeps the connection for the next one. Nothing is sent twice."""

    def __init__(self, server: WebAddress, bounds: Bounds) -> None:
        pool = urllib3.HTTPSConnectionPool if server.scheme == "https" else urllib3.HTTPConnectionPool
        timeout = urllib3.Timeout(connect=min(_CONNECT_SECONDS, bounds.seconds), read=bounds.seconds)
        self._pool = pool(server.host, server.port, timeout=timeout, retries=False, bounds=bounds)
        self._pool.ConnectionCls = _HttpsConnection if server.scheme == "https" else _HttpConnection

    def send(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> WebAnswer:
        """Raises `NotSent` or `NoAnswer`."""
        is_sent = False
        try:
            answer = self._pool.urlopen(
                method, path, body, dict(headers), retries=False, redirect=False, preload_content=False, decode_content=False
            )
            is_sent = True
            try:
                content = b"".join(answer.stream(PIECES.socket_bytes, decode_content=False))
            except BaseException:
                answer.close()
                raise
            answer.release_conn()
            return WebAnswer(answer.status, content)
        except (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError, ForbiddenAddress) as error:
            raise (NoAnswer if is_sent else NotSent)(_first_line(error)) from None
        except (HTTPError, Unbounded) as error:
            raise NoAnswer(_first_line(error)) from None


class _HttpConnection(HTTPConnection):
    """A connection to a checked address, each request of which is a bounded exchange."""

    def __init__(self, *arguments: Any, bounds: Bounds, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._bounds = bounds
        self._exchange = Exchange(bounds.seconds, bounds.most_bytes)

    def _new_conn(self) -> socket.socket:
        if self._bounds.addresses is None:
            return super()._new_conn()
        return _connected(self, self._bounds.addresses)

    def connect(self) -> None:
        super().connect()
        self._exchange.begin()
        self.sock = BoundedSocket(self.sock, self._exchange)

    def request(self, *arguments: Any, **options: Any) -> None:
        self._exchange.begin()
        super().request(*arguments, **options)


class _HttpsConnection(_HttpConnection, HTTPSConnection):
    """The same, over TLS: the certificate must be that of the host, whatever its address."""


def _connected(connection: HTTPConnection, addresses: Addresses) -> socket.socket:
    host = connection.host
    try:
        found = list(addresses(host, connection.port or 0))
    except socket.gaierror as error:
        raise urllib3.exceptions.NameResolutionError(host, connection, error) from error
    failure: OSError = OSError("it has no address")
    for family, where in found:
        sock = socket.socket(socket.AddressFamily(family), socket.SOCK_STREAM)
        try:
            sock.settimeout(_CONNECT_SECONDS)
            sock.connect(where)
        except OSError as error:
            sock.close()
            failure = error
            continue
        return sock
    raise urllib3.exceptions.NewConnectionError(connection, f"{host}: {failure}") from failure


def _first_line(error: Exception) -> str:
    return str(error).split("\n")[0]
