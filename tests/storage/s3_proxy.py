"""A proxy on loopback in front of an object store, which loses requests and answers, or changes them, as a test says.

It also counts: all requests, and the trips, which is how many of them had to wait for the answer to another one.
"""

from __future__ import annotations

import enum
import http.client
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler

from tests.storage.blob_servers import QuietServer

HOP_BY_HOP = {"connection", "transfer-encoding", "expect", "keep-alive"}


class Fate(enum.Enum):
    """What becomes of a request."""

    PASS = "pass"
    LOSE_REQUEST = "the connection breaks before it arrives"
    LOSE_ANSWER = "it takes effect, then the connection breaks"
    CUT_ANSWER = "half of the answer's body arrives"
    UNCONDITIONAL = "it arrives without its condition"


@dataclass(frozen=True)
class Request:
    """`is_put_if_absent`: a PUT with `If-None-Match: *`, or Google's condition of that meaning. `path`: `/bucket/key?query`."""

    method: str
    path: str
    is_put_if_absent: bool


@dataclass(frozen=True)
class Answer:
    """An error in the place of what the server would say."""

    status: int
    code: str


Rule = Callable[[Request], Fate | Answer]


@dataclass(frozen=True)
class Served:
    """A request, the times (seconds) when it came and when its answer was ready, and the length of the answer's body."""

    request: Request
    begun: float
    ended: float
    size: int


class S3Proxy:
    """Runs while its `with` block does; `rule` may be changed at any time. `requests`: all that came in, `served`: with times.

    `delay`: seconds that each request takes at least, as over a network. `locked`: parts of the names of objects that nobody may
    delete, whatever else one request deletes; each of these is refused for itself.
    """

    def __init__(self, upstream_port: int, rule: Rule = lambda request: Fate.PASS, delay: float = 0) -> None:
        self.rule = rule
        self.delay = delay
        self.locked: tuple[str, ...] = ()
        self.requests: list[Request] = []
        self.served: list[Served] = []
        self.upstream_port = upstream_port

    def __enter__(self) -> S3Proxy:
        class Handler(_Handler):
            proxy = self

        self.server = QuietServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    @property
    def trips(self) -> int:
        """The most requests of which each came after the answer to the one before."""
        count, free_at = 0, 0.0
        for served in sorted(self.served, key=lambda served: served.ended):
            if served.begun >= free_at:
                count, free_at = count + 1, served.ended
        return count

    def forget(self) -> None:
        """Start counting from zero."""
        self.requests.clear()
        self.served.clear()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # else head and body are two packets, and the second waits for the first to be acknowledged
    disable_nagle_algorithm = True
    proxy: S3Proxy

    def handle_expect_100(self) -> bool:
        super().handle_expect_100()
        self.wfile.flush()
        return True

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        condition, generation = self.headers.get("If-None-Match"), self.headers.get("x-goog-if-generation-match")
        self._begun = time.monotonic()
        self._asked = Request(self.command, self.path, self.command == "PUT" and (condition == "*" or generation == "0"))
        self.proxy.requests.append(self._asked)
        fate = self.proxy.rule(self._asked)
        time.sleep(self.proxy.delay)
        if isinstance(fate, Answer):
            self._answer(fate.status, {}, f"<Error><Code>{fate.code}</Code><Message>on purpose</Message></Error>".encode())
            return
        if fate is Fate.LOSE_REQUEST:
            self.close_connection = True
            return
        refusals = b""
        if self.command == "POST" and self.path.endswith("?delete"):
            body, refusals = self._without_locked(body)
        if self.command == "DELETE" and self._is_locked(self.path):
            self._answer(403, {}, b"<Error><Code>AccessDenied</Code><Message>locked</Message></Error>")
            return
        dropped = HOP_BY_HOP | ({"if-none-match", "x-goog-if-generation-match"} if fate is Fate.UNCONDITIONAL else set())
        upstream = http.client.HTTPConnection("127.0.0.1", self.proxy.upstream_port)
        if refusals:
            dropped |= {"content-length", "content-md5"}
        upstream.request(self.command, self.path, body, {k: v for k, v in self.headers.items() if k.lower() not in dropped})
        answer = upstream.getresponse()
        content = answer.read().replace(b"</DeleteResult>", refusals + b"</DeleteResult>") if refusals else answer.read()
        upstream.close()
        if fate is Fate.LOSE_ANSWER:
            self.close_connection = True
            return
        headers = {k: v for k, v in answer.getheaders() if k.lower() not in HOP_BY_HOP | {"content-length", "date", "server"}}
        length = int(answer.headers.get("Content-Length") or 0) if self.command == "HEAD" else len(content)
        if fate is Fate.CUT_ANSWER:
            self.close_connection = True
            content = content[: len(content) // 2]
        self._answer(answer.status, headers, content, length)

    def _is_locked(self, name: str) -> bool:
        return any(part in name for part in self.proxy.locked)

    def _without_locked(self, body: bytes) -> tuple[bytes, bytes]:
        """A request for many objects without the locked ones, and what S3 answers for each of these."""
        refusals = b""

        def left_out(found: re.Match[bytes]) -> bytes:
            nonlocal refusals
            if not self._is_locked(found[1].decode()):
                return found[0]
            refusals += b"<Error><Key>%s</Key><Code>AccessDenied</Code><Message>locked</Message></Error>" % found[1]
            return b""

        return re.sub(b"<Object><Key>(.*?)</Key></Object>", left_out, body), refusals

    def _answer(self, status: int, headers: dict[str, str], content: bytes, length: int | None = None) -> None:
        self.proxy.served.append(Served(self._asked, self._begun, time.monotonic(), len(content)))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: tests print only what went wrong."""
