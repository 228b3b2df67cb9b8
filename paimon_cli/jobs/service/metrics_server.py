"""Serves the metrics of a service over HTTP, with bounds on what strangers may cost it."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from paimon_cli.errors import UsageError
from paimon_cli.jobs.service.service_metrics import ServiceMetrics
from paimon_cli.options.option_text import plain_number
from paimon_cli.storage.bounded_exchange import Exchange, Unbounded, bounded_reader

LOOPBACK = "127.0.0.1"
"""The host of an address without one: the metrics name tables, and anybody who reaches the port can read them."""
REQUEST_SECONDS, MOST_REQUEST_BYTES, MOST_CONNECTIONS = 10, 65536, 16
"""The total time of a request, its size, and the connections at a time; beyond these the oldest one is closed."""


def parse_address(text: str) -> tuple[str, int]:
    """The host and port of `:9464` (loopback), `0.0.0.0:9464` or `[::1]:9464`. Raises `UsageError` for anything else."""
    host, colon, port = text.rpartition(":")
    number = plain_number(port) if port.isdigit() else None  # no sign, no space, and not thousands of digits
    bare = host[1:-1] if host[:1] == "[" and host[-1:] == "]" else host
    if not colon or number is None or number > 65535 or "[" in bare or "]" in bare or (":" in host and bare == host):
        raise UsageError(f"cannot listen on '{text}'", "an address is written as HOST:PORT or :PORT", "--metrics-listen :9464")
    return bare or LOOPBACK, number


@contextlib.contextmanager
def listening(metrics: ServiceMetrics, address: str) -> Iterator[str]:
    """Serve `/metrics`, `/healthz` and `/readyz` in a thread; yields the URL. Raises `UsageError` if the address is in use."""
    host, port = parse_address(address)
    try:
        server = _Server(host, port, _handler(metrics))
    except (OSError, TypeError, ValueError) as error:  # the latter for a host that cannot be the name of one
        why = getattr(error, "strerror", None) or str(error)
        hint = "name a free port, and a host of this machine" if host != LOOPBACK else "choose another port"
        raise UsageError(f"cannot listen on '{address}'", why, hint) from error
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    shown = f"[{host}]" if ":" in host else host
    try:
        yield f"http://{shown}:{server.server_address[1]}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    """A thread for each of a few connections. A client that has held one for long gives way to a new one."""

    daemon_threads = True

    def __init__(self, host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._open: dict[int, socket.socket] = {}
        self._lock = threading.Lock()
        super().__init__((host, port), handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open[id(request)] = request
            oldest = next(iter(self._open)) if len(self._open) > MOST_CONNECTIONS else None
            evicted = None if oldest is None else self._open.pop(oldest)
            if evicted is not None:
                with contextlib.suppress(OSError):  # it has just ended by itself
                    evicted.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(id(request), None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Only errors of our own are printed, not those of clients that have gone."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def _handler(metrics: ServiceMetrics) -> type[BaseHTTPRequestHandler]:
    from prometheus_client import generate_latest
    from prometheus_client.exposition import choose_encoder

    registry = metrics.registry

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = REQUEST_SECONDS

        def setup(self) -> None:
            super().setup()
            self._exchange = Exchange(REQUEST_SECONDS, MOST_REQUEST_BYTES)
            self.rfile = bounded_reader(self.connection, self._exchange)

        def handle_one_request(self) -> None:
            self._exchange.begin()
            try:
                super().handle_one_request()
            except Unbounded:
                self.close_connection = True

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                accepted = self.headers.get("Accept", "")
                encode, content_type = choose_encoder(accepted) if accepted else (generate_latest, "text/plain; version=0.0.4")
                self._answer(200, content_type, encode(registry))
            elif path in ("/healthz", "/readyz"):
                status = metrics.status()
                is_ok = status["ready"] if path == "/readyz" else True
                self._answer(200 if is_ok else 503, "application/json", json.dumps(status).encode() + b"\n")
            else:
                self._answer(404, "text/plain", b"/metrics, /healthz, /readyz\n")

        do_HEAD = do_GET

        def _answer(self, code: int, content_type: str, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Requests are not logged."""

    return Handler
