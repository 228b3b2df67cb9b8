"""Answers of catalogs have bounds: a server that sends without an end, or a byte at a time, costs a bounded time and memory."""

from __future__ import annotations

import json
import socket
import struct
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from threading import Event
from typing import Any

import pytest

from paimon_cli.catalog.metastore import hive_client, rest_client
from paimon_cli.catalog.metastore.hive_client import HiveAddress
from paimon_cli.catalog.metastore.settings import find_metastore
from paimon_cli.errors import DamagedFile, Refused, StorageUnavailable
from paimon_cli.maintain import mark_done
from paimon_cli.storage import bounded_mysql, bounded_postgres
from paimon_cli.storage.peers import checked_addresses
from paimon_cli.storage.web_address import WebAddress
from paimon_cli.storage.web_client import Bounds, NoAnswer, NotSent, WebClient
from tests.catalog.metastore.hostile_servers import Answers, answering, drop_by_drop, without_end
from tests.cli.calling import Run

MEGABYTE = 2**20
OK = b"HTTP/1.1 200 OK\r\n"
Sent = dict[str, Callable[[Event], tuple[bytes, Iterable[bytes]]]]
"""Kind of answer -> how it begins, and what follows."""
REST: Sent = {
    "body without an end": lambda stop: (OK + b"\r\n", without_end(b"x" * 65536, stop)),
    "chunks without an end": lambda stop: (OK + b"Transfer-Encoding: chunked\r\n\r\n", without_end(b"4\r\nxxxx\r\n" * 999, stop)),
    "a chunk size without an end": lambda stop: (OK + b"Transfer-Encoding: chunked\r\n\r\n", without_end(b"1" * 65536, stop)),
    "a length of a terabyte": lambda stop: (OK + b"Content-Length: 1000000000000\r\n\r\n", without_end(b"x" * 65536, stop)),
    "a header without an end": lambda stop: (OK + b"X: ", without_end(b"x" * 65536, stop)),
    "informational answers without an end": lambda stop: (b"", without_end(b"HTTP/1.1 100 Continue\r\n\r\n" * 999, stop)),
    "a body byte by byte": lambda stop: (OK + b"\r\n", drop_by_drop(stop)),
    "a header byte by byte": lambda stop: (OK + b"X: ", drop_by_drop(stop)),
    "a status byte by byte": lambda stop: (b"", drop_by_drop(stop, b"H")),
    "nothing": lambda stop: (b"", drop_by_drop(stop, b"")),
}


def bounded(call: Callable[[], object], seconds: float = 30.0) -> Exception:
    """The error of a call that must end in time, and without much memory."""
    tracemalloc.start()
    begin = time.monotonic()
    try:
        with pytest.raises((StorageUnavailable, DamagedFile)) as failure:
            call()
        assert time.monotonic() - begin < seconds
        assert tracemalloc.get_traced_memory()[1] < 40 * MEGABYTE
    finally:
        tracemalloc.stop()
    return failure.value


@pytest.mark.in_part(2)
@pytest.mark.parametrize("kind", REST)
def test_answers_of_a_rest_catalog(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest_client, "_REQUEST_SECONDS", 1)
    monkeypatch.setattr(rest_client, "_MOST_BYTES", MEGABYTE)

    def answers(connection: socket.socket, stop: Event) -> Iterator[bytes]:
        connection.recv(65536)
        head, rest = REST[kind](stop)
        yield head
        yield from rest

    with answering(answers) as port:
        options = {"metastore": "rest", "uri": f"http://127.0.0.1:{port}", "token": "hunter2"}
        assert "hunter2" not in str(bounded(lambda: find_metastore("w", options).databases()))


def rest_answers(*bodies: object) -> Answers:
    """A server with keep-alive that answers the first requests with these, and all others with the last one."""

    def answers(connection: socket.socket, stop: Event) -> Iterator[bytes]:
        number = 0
        while not stop.is_set() and connection.recv(65536):
            body = bodies[min(number, len(bodies) - 1)]
            text = json.dumps(body(number) if callable(body) else body).encode()
            yield OK + f"Content-Length: {len(text)}\r\n\r\n".encode() + text
            number += 1

    return answers


@pytest.mark.parametrize("token", [lambda n: "same", lambda n: f"page {n}"])
def test_a_listing_that_does_not_end(token: Callable[[int], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest_client, "MOST_PAGES", 200)
    pages = rest_answers({}, lambda n: {"databases": [], "nextPageToken": token(n)})
    with answering(pages) as port:
        metastore = find_metastore("w", {"metastore": "rest", "uri": f"http://127.0.0.1:{port}"})
        assert "does not end" in str(bounded(metastore.databases))


def test_deep_nesting_is_no_crash() -> None:
    def answers(connection: socket.socket, stop: Event) -> Iterator[bytes]:
        connection.recv(65536)
        yield OK + b"Content-Length: 500000\r\n\r\n" + b"[" * 500000

    with answering(answers) as port:
        bounded(find_metastore("w", {"metastore": "rest", "uri": f"http://127.0.0.1:{port}"}).databases)


WRONG_PARTS: list[tuple[str, Any]] = [
    ("/v1/config", {"defaults": [1]}),
    ("/v1/config", [1]),
    ("/v1/config", 7),
    ("/v1/databases", {"databases": ["a", 5]}),
    ("/v1/databases", {"databases": {"a": 1}}),
    ("/v1/databases", {"databases": ["a"], "nextPageToken": 5}),
    ("/v1/databases/a", {"location": 5}),
    ("/v1/databases/a/table-details", {"tableDetails": ["t"]}),
    ("/v1/databases/a/table-details", {"tableDetails": [{"name": 5, "path": "/x"}]}),
    ("/v1/databases/a/table-details", {"tableDetails": [{"name": "t", "path": ["/x"]}]}),
    ("/v1/databases/a/table-details", {"tableDetails": [{"name": "t", "path": "/x", "id": {}}]}),
    ("/v1/databases/a/table-details", {"tableDetails": [{"name": "t", "path": "/x", "schema": "s"}]}),
    ("/v1/databases/a/table-details", {"tableDetails": [{"name": "t", "path": "/x", "schema": {"options": 1}}]}),
]


@pytest.mark.parametrize(("place", "answer"), WRONG_PARTS)
def test_an_answer_of_another_type_is_no_crash(place: str, answer: Any) -> None:
    sound = {"/v1/databases": {"databases": ["a"]}}

    def answers(connection: socket.socket, stop: Event) -> Iterator[bytes]:
        path = connection.recv(65536).split()[1].decode().partition("?")[0]
        content = json.dumps(answer if path == place else sound.get(path, {})).encode()
        yield OK + b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(content), content)

    with answering(answers) as port:
        metastore = find_metastore("", {"metastore": "rest", "uri": f"http://127.0.0.1:{port}"})
        call = metastore.databases if "table-details" not in place else lambda: metastore.tables("a")
        assert "has a wrong" in str(bounded(call))


def test_a_redirect_gets_no_token() -> None:
    seen: list[bytes] = []

    def target(connection: socket.socket, stop: Event) -> Iterator[bytes]:
        seen.append(connection.recv(65536))
        yield OK + b"Content-Length: 2\r\n\r\n{}"

    with answering(target) as other:

        def answers(connection: socket.socket, stop: Event) -> Iterator[bytes]:
            connection.recv(65536)
            yield f"HTTP/1.1 307 Go\r\nLocation: http://127.0.0.1:{other}/\r\nContent-Length: 0\r\n\r\n".encode()

        with answering(answers) as port:
            options = {"metastore": "rest", "uri": f"http://127.0.0.1:{port}", "token": "hunter2"}
            assert "it redirects" in str(bounded(find_metastore("w", options).databases))
    assert seen == []


def test_an_address_without_a_scheme_is_https() -> None:
    seen: list[bytes] = []

    def answers(connection: socket.socket, stop: Event) -> Iterator[bytes]:
        seen.append(connection.recv(65536))
        yield b"HTTP/1.1 400 No\r\n\r\n"

    with answering(answers) as port:
        bounded(find_metastore("w", {"metastore": "rest", "uri": f"127.0.0.1:{port}", "token": "hunter2"}).databases)
    assert seen and all(first[:1] == b"\x16" and b"hunter2" not in first for first in seen), "a TLS greeting"


@pytest.mark.parametrize("given", ["token=hunter2", "header.X-Api-Key=hunter2", "header.Cookie=hunter2"])
@pytest.mark.parametrize("host", ["catalog.invalid", "10.255.255.1", "localhost.catalog.invalid", "[fd00::1]"])
def test_credentials_are_not_sent_in_clear(run: Run, host: str, given: str) -> None:
    flags = ["--option", "metastore=rest", "--option", f"uri=http://{host}:8080", "--option", given]
    refused = run("db", "ls", *flags, code=7).err
    assert "credentials are not sent" in refused and "allow-plain-http=true" in refused and "hunter2" not in refused


def test_credentials_in_clear_where_an_option_says_so() -> None:
    plain = {"metastore": "rest", "uri": "http://catalog.invalid:8080"}
    for options in ({"token": "hunter2", "allow-plain-http": "true"}, {}):
        with pytest.raises(StorageUnavailable, match="does not answer"):
            find_metastore("w", {**plain, **options}).databases()
    with pytest.raises(Refused):
        find_metastore("w", {**plain, "token": "hunter2", "allow-plain-http": "false"}).databases()


STRING = struct.pack(">i", 1000) + b"x" * 1000
HEAD = struct.pack(">I", 0x80010002) + struct.pack(">i", 17) + b"get_all_databases" + struct.pack(">i", 0)
LIST = b"\x0f" + struct.pack(">h", 0)
HIVE: Sent = {
    "names without an end": lambda stop: (HEAD + LIST + b"\x0b" + struct.pack(">i", 900_000), without_end(STRING * 50, stop)),
    "a list of a billion": lambda stop: (HEAD + LIST + b"\x0b" + struct.pack(">i", 10**9), without_end(STRING, stop)),
    "a name of a gigabyte": lambda stop: (HEAD + LIST + b"\x0b" + struct.pack(">ii", 1, 10**9), without_end(STRING, stop)),
    "structs of a byte": lambda stop: (HEAD + b"\x0f" + struct.pack(">hbi", 9, 12, 900_000), [b"\0" * 900_000]),
    "byte by byte": lambda stop: (HEAD, drop_by_drop(stop, LIST[:1])),
    "nothing": lambda stop: (b"", drop_by_drop(stop, b"")),
}


@pytest.mark.parametrize("kind", HIVE)
def test_answers_of_a_hive_metastore(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hive_client, "CALL_SECONDS", 1)
    monkeypatch.setattr(hive_client, "_MOST_BYTES", MEGABYTE)
    monkeypatch.setattr(hive_client, "MOST_STRUCTS", 1000)

    def answers(connection: socket.socket, stop: Event) -> Iterator[bytes]:
        connection.recv(65536)
        head, rest = HIVE[kind](stop)
        yield head
        yield from rest

    with answering(answers) as port:

        def call() -> None:
            with HiveAddress((("127.0.0.1", port),), 1000, 1000).connected() as client:
                client.get_all_databases()

        bounded(call)


def message(kind: bytes, content: bytes) -> bytes:
    return kind + struct.pack(">i", len(content) + 4) + content


GREETING = message(b"R", struct.pack(">i", 0)) + message(b"S", b"server_version\x0016.0\0") + message(b"Z", b"I")
COLUMN = message(b"T", struct.pack(">h", 1) + b"v\0" + struct.pack(">ihihih", 0, 0, 25, -1, -1, 0))
ROW = message(b"D", struct.pack(">hi", 1, 1000) + b"x" * 1000)
POSTGRES: Sent = {
    "rows without an end": lambda stop: (message(b"1", b"") + message(b"2", b"") + COLUMN, without_end(ROW * 50, stop)),
    "byte by byte": lambda stop: (message(b"1", b"") + message(b"2", b"") + COLUMN, (bytes([b]) for b in paced(ROW))),
    "nothing": lambda stop: (b"", drop_by_drop(stop, b"")),
}


def paced(row: bytes) -> Iterator[int]:
    for byte in row:
        time.sleep(0.05)
        yield byte


@pytest.mark.parametrize("kind", POSTGRES)
def test_answers_of_a_database(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_postgres, "STATEMENT_SECONDS", 1)
    monkeypatch.setattr(bounded_postgres, "MOST_BYTES", 4 * MEGABYTE)

    def answers(connection: socket.socket, stop: Event) -> Iterator[bytes]:
        if connection.recv(65536)[4:8] == struct.pack(">i", 80877103):  # asks for TLS
            yield b"N"
            connection.recv(65536)
        yield GREETING
        connection.recv(65536)
        head, rest = POSTGRES[kind](stop)
        yield head
        yield from rest

    with answering(answers) as port:
        options = {
            "metastore": "jdbc",
            "uri": f"jdbc:postgresql://127.0.0.1:{port}/d",
            "jdbc.user": "u",
            "jdbc.password": "hunter2",
        }
        failure = bounded(find_metastore("/wh", options).databases)
    expected = "MB" if kind == "rows without an end" else "no complete answer"
    assert expected in str(failure) and "hunter2" not in str(failure)


def packets(*contents: bytes, first: int = 1) -> bytes:
    """MySQL's packets: a length of three bytes, a number, the content."""
    return b"".join(
        struct.pack("<I", len(content))[:3] + bytes([number % 256]) + content for number, content in enumerate(contents, first)
    )


def numbered(content: bytes, first: int) -> Iterator[bytes]:
    """The packets of rows, with numbers that go on, in pieces."""
    number = first
    while True:
        yield packets(*[content] * 256, first=number)
        number += 256


MYSQL_GREETING = packets(
    b"\x0a8.0.0\0"
    + struct.pack("<I", 1)
    + b"saltsalt\0"
    + struct.pack("<HBHHB", 0xF7FF, 45, 2, 0x8008, 21)
    + bytes(10)
    # the other half of the salt
    + b"saltsaltsalt\0mysql_native_password\0",
    first=0,
)
DONE = b"\0\0\0\2\0\0\0"
MYSQL_COLUMN = b"\3def\0\0\0\1v\0\x0c" + struct.pack("<HIBHB", 45, 1000, 0xFD, 0, 0) + b"\0\0"
MYSQL_HEAD = packets(b"\1", MYSQL_COLUMN, b"\xfe\0\0\2\0")
MYSQL: Sent = {
    "rows without an end": lambda stop: (MYSQL_HEAD, numbered(b"\xfc\xe8\3" + b"x" * 1000, 4)),
    "small rows without an end": lambda stop: (MYSQL_HEAD, numbered(b"\xfb", 4)),
    "columns without an end": lambda stop: (packets(b"\xfe" + b"\x7f" * 8), numbered(MYSQL_COLUMN, 2)),
    "a row without an end": lambda stop: (MYSQL_HEAD + b"\xff\xff\xff\4\xfe" + b"\xff" * 8, without_end(b"x" * 65536, stop)),
    "byte by byte": lambda stop: (MYSQL_HEAD, (bytes([b]) for b in paced(packets(b"\xfc\xe8\3" + b"x" * 1000, first=4)))),
    "nothing": lambda stop: (b"", drop_by_drop(stop, b"")),
    "a wrong length": lambda stop: (MYSQL_HEAD, [packets(b"\x05x", first=4)]),
    "no text": lambda stop: (MYSQL_HEAD, [packets(b"\1\xff", first=4)]),
    "an empty packet": lambda stop: (packets(b""), []),
    "a wish for a file": lambda stop: (packets(b"\xfb/etc/passwd"), []),
}


@pytest.mark.in_part(2)
@pytest.mark.parametrize("kind", MYSQL)
def test_answers_of_mysql(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_mysql, "STATEMENT_SECONDS", 1)
    monkeypatch.setattr(bounded_mysql, "MOST_BYTES", 4 * MEGABYTE)
    sent: list[bytes] = []

    def answers(connection: socket.socket, stop: Event) -> Iterator[bytes]:
        yield MYSQL_GREETING
        connection.recv(65536)
        yield packets(DONE, first=2)
        while connection.recv(65536)[5:8].upper() == b"SET":  # the character set, autocommit
            yield packets(DONE)
        head, rest = MYSQL[kind](stop)
        yield head
        yield from rest
        sent.append(connection.recv(65536))

    with answering(answers) as port:
        options = {"metastore": "jdbc", "uri": f"jdbc:mysql://127.0.0.1:{port}/d", "jdbc.user": "u", "jdbc.password": "hunter2"}
        failure = bounded(find_metastore("/wh", options).databases)
    expected = {"byte by byte": ("not complete",), "nothing": ("not complete",)}
    ends = expected.get(kind, ("more than", "not complete") if "without an end" in kind else ("malformed",))
    assert any(end in str(failure) for end in ends) and "hunter2" not in str(failure)
    assert not any(b"root:" in received for received in sent), "no file of this machine is sent"


@pytest.mark.in_part(2)
@pytest.mark.parametrize("kind", REST)
def test_answers_to_a_report(kind: str) -> None:
    def answers(connection: socket.socket, stop: Event) -> Iterator[bytes]:
        connection.recv(65536)
        head, rest = REST[kind](stop)
        yield head
        yield from rest

    with answering(answers) as port:
        address = WebAddress.parse(f"http://127.0.0.1:{port}/x")
        assert address is not None
        client = WebClient(address, Bounds(1, mark_done._MOST_BYTES, checked_addresses))
        begin = time.monotonic()
        with pytest.raises(NoAnswer):
            client.send("POST", address.path, b"{}", {})
        assert time.monotonic() - begin < 30


def test_a_report_goes_to_the_address_that_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is looked up again, after it was checked, may lead elsewhere then."""
    looked_up: list[str] = []

    def look_up(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        looked_up.append(host)
        return [(2, 1, 6, "", ("169.254.169.254" if len(looked_up) > 1 else "127.0.0.1", port))]

    def answers(connection: socket.socket, stop: Event) -> Iterator[bytes]:
        assert b"Host: localhost" in connection.recv(65536)
        yield OK + b"Content-Length: 2\r\nConnection: close\r\n\r\n{}"

    with answering(answers) as port:
        monkeypatch.setattr("socket.getaddrinfo", look_up)
        address = WebAddress.parse(f"http://localhost:{port}/x")
        assert address is not None
        client = WebClient(address, Bounds(5, 100, checked_addresses))
        assert client.send("POST", "/x", b"{}", {}) == (200, b"{}") and looked_up == ["localhost"]
        with pytest.raises(NotSent, match="one to which nothing is sent"):
            client.send("POST", "/x", b"{}", {})
