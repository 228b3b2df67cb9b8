"""Thrift calls whose answers are bounded: in time and bytes, and in the objects that a few bytes of them would create."""

from __future__ import annotations

from typing import Any

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TSocket import TSocket

from paimon_cli.pieces import PIECES
from paimon_cli.storage.bounded_exchange import Exchange, Unbounded


class BoundedTransport(TSocket):  # type: ignore[misc]
    """A socket on which each call, from the end of its request on, is an exchange."""

    def __init__(self, host: str, port: int, exchange: Exchange) -> None:
        super().__init__(host, port)
        self._exchange = exchange

    def flush(self) -> None:
        self._exchange.begin()

    def read(self, size: int) -> bytes:
        self.handle.settimeout(self._exchange.seconds_left())
        received: bytes = super().read(min(size, PIECES.socket_bytes))  # the size is what the server claims
        self._exchange.count(len(received))
        return received


class BoundedProtocol(TBinaryProtocol):  # type: ignore[misc]
    """The binary protocol, with limits for each string, each container, and the structs of one message."""

    def __init__(self, transport: Any, most_bytes: int, most_items: int, most_structs: int) -> None:
        super().__init__(transport, string_length_limit=most_bytes, container_length_limit=most_items)
        self._most_structs = most_structs
        self._structs = 0

    def readMessageBegin(self) -> Any:
        self._structs = 0
        return super().readMessageBegin()

    def readStructBegin(self) -> None:
        self._structs += 1
        if self._structs > self._most_structs:
            raise Unbounded(f"it has more than {self._most_structs:,} objects")
        super().readStructBegin()
