"""An S3 of its own process: moto's server. `python -m tests.storage.s3_server` prints its port and serves until it is killed."""

from __future__ import annotations

import http.client
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from paimon_cli.storage.catalog_options import Service
from paimon_cli.storage.injected import Clock, SystemClock
from paimon_cli.storage.object_storage import ObjectStorage
from paimon_cli.storage.object_stores import StoreSettings

CREDENTIALS = {"s3.access-key": "test-key-id", "s3.secret-key": "test-secret-of-s3", "s3.region": "us-east-1"}


class S3Server:
    """Runs while its `with` block does."""

    def __enter__(self) -> S3Server:
        command = [sys.executable, "-m", "tests.storage.s3_server"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def options(self, endpoint: str | None = None) -> dict[str, str]:
        """Catalog options that lead here, or to what stands in front of it."""
        return {"s3.endpoint": endpoint or self.endpoint, **CREDENTIALS}

    def new_bucket(self) -> str:
        """`s3://<a new bucket>`."""
        name = f"bucket-{uuid.uuid4()}"
        self.request("PUT", f"/{name}")
        return f"s3://{name}"

    def storage(self, endpoint: str | None = None, clock: Clock | None = None) -> ObjectStorage:
        """What reaches this server, or what stands in front of it."""
        return ObjectStorage(StoreSettings.from_options(Service.S3, self.options(endpoint)), clock or SystemClock())

    def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        """An answer to a request without a signature, which moto takes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request(method, path, body)
        answer = connection.getresponse().read()
        connection.close()
        return answer


def _serve() -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    application = DomainDispatcherApplication(create_backend_app)
    one_at_a_time = threading.Lock()

    def exclusive(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Conditional puts one after the other, as S3 has them: moto itself looks first and puts later, without a lock."""
        if not {"HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH"} & environ.keys():
            return application(environ, start_response)
        with one_at_a_time:
            return application(environ, start_response)

    server = make_server("127.0.0.1", 0, exclusive, threaded=True)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    _serve()
