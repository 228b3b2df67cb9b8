"""Connections to MySQL and MariaDB through PyMySQL, on which each answer of the server is bounded, in time and in bytes.

PyMySQL keeps all rows of a result in memory, and its timeout is for each read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pymysql
from pymysql.connections import Connection
from pymysql.constants import CR

from paimon_cli.storage.bounded_exchange import MOST_BYTES, STATEMENT_SECONDS, Exchange, Unbounded, bounded_reader

_PACKET_BYTES = 100
"""What a packet counts in addition to its bytes: a row of five bytes is an object of a hundred in memory."""


def connect(*arguments: Any, **options: Any) -> Connection:
    """A connection as that of `pymysql.connect`; statements raise `OperationalError` beyond the bounds."""
    return _BoundedConnection(*arguments, **options)


class _BoundedConnection(Connection):  # type: ignore[misc]
    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._exchange = Exchange(STATEMENT_SECONDS, MOST_BYTES)
        self._reader: Any = None
        if isinstance(password := options.get("password"), str):
            options["password"] = password.encode()  # as the Java driver; PyMySQL knows Latin-1 alone
        super().__init__(*arguments, **options)

    @property
    def _rfile(self) -> Any:
        """The file that answers are read from. PyMySQL sets it for a new socket, and again when TLS begins on it."""
        return self._reader

    @_rfile.setter
    def _rfile(self, file: Any) -> None:
        self._reader = None if file is None else bounded_reader(self._sock, self._exchange)

    def connect(self, sock: Any = None) -> None:
        with self._one_answer():
            super().connect(sock)

    def query(self, *arguments: Any, **options: Any) -> Any:
        with self._one_answer():
            return super().query(*arguments, **options)

    def commit(self) -> None:
        with self._one_answer():
            super().commit()

    def rollback(self) -> None:
        with self._one_answer():
            super().rollback()

    def ping(self, *arguments: Any, **options: Any) -> None:
        with self._one_answer():
            super().ping(*arguments, **options)

    def _read_packet(self, *arguments: Any) -> Any:
        self._exchange.count(_PACKET_BYTES)
        return super()._read_packet(*arguments)

    @contextmanager
    def _one_answer(self) -> Iterator[None]:
        """One answer, with bounds of its own. What is beyond them, or is not MySQL's protocol, closes the connection."""
        self._exchange.begin()
        try:
            yield
        except pymysql.MySQLError:
            raise
        except Unbounded as error:
            self._force_close()
            raise pymysql.OperationalError(CR.CR_SERVER_LOST, str(error)) from None
        except Exception as error:
            self._force_close()
            raise pymysql.OperationalError(CR.CR_MALFORMED_PACKET, f"its answer is malformed ({type(error).__name__})") from None
