"""Programs that stand in for Azure and Google Cloud Storage, each as a process of its own: azurite and fake-gcs-server.

Both keep blobs in memory and decide themselves whether a conditional put creates one. `python -m scripts.nightly.store_servers`
says how they are installed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from abc import abstractmethod
from email.utils import formatdate
from typing import Any
from urllib.parse import quote, urlencode

import obstore
from obstore.store import AzureStore, GCSStore

from tests.ports import free_port
from tests.storage.blob_servers import Answered, GoogleServer

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's well-known account, which guards nothing."""
_VERSION = "2021-12-02"
_START_SECONDS = 60


class NotInstalled(Exception):
    """The program is neither given nor on PATH."""


class StoreProgram:
    """Runs while its `with` block does. `program`: its path; without one it is looked for on PATH."""

    name: str
    install: str

    def __init__(self, program: str | None = None) -> None:
        found = shutil.which(program or self.name)
        if found is None:
            where = f"at {program}" if program else "on PATH"
            raise NotInstalled(f"{self.name} is not {where}: give its path, or install it ({self.install})")
        self.path = found

    def __enter__(self) -> StoreProgram:
        self.own_port = free_port()
        self._log = tempfile.TemporaryFile()
        self._process = subprocess.Popen(self.command(), stdout=self._log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                self._log.seek(0)
                raise RuntimeError(f"{self.name} does not start: {self._log.read()[-500:].decode(errors='replace')}")
            time.sleep(0.1)
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.own_port)) == 0

    def request(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Answered:
        """An answer of the program itself."""
        connection = http.client.HTTPConnection("127.0.0.1", self.own_port)
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        found = Answered(answer.status, answer.read(), dict(answer.getheaders()))
        connection.close()
        return found

    @property
    def port(self) -> int:
        """Where obstore is answered in its own dialect."""
        return self.own_port

    @abstractmethod
    def command(self) -> list[str]: ...

    @abstractmethod
    def options(self, endpoint: str | None = None) -> dict[str, str]:
        """Catalog options that lead here, or to what stands in front of it."""

    @abstractmethod
    def new_bucket(self, name: str | None = None) -> str:
        """The URL of a new bucket."""

    @abstractmethod
    def _client(self, bucket: str) -> Any: ...

    def put_blob(self, bucket: str, key: str, content: bytes) -> None:
        obstore.put(self._client(bucket), key, content)

    def blobs(self, bucket: str) -> dict[str, bytes]:
        """All that is there, by `bucket/key`."""
        client = self._client(bucket)
        names = [found["path"] for page in obstore.list(client) for found in page]
        return {f"{bucket}/{name}": bytes(obstore.get(client, name).bytes()) for name in names}


class Azurite(StoreProgram):
    name = "azurite-blob"
    install = "npm install -g azurite"

    def command(self) -> list[str]:
        memory = ["--inMemoryPersistence", "--silent", "--skipApiVersionCheck"]
        return [self.path, *memory, "--blobHost", "127.0.0.1", "--blobPort", str(self.own_port)]

    def options(self, endpoint: str | None = None) -> dict[str, str]:
        address = f"{endpoint or f'http://127.0.0.1:{self.port}'}/{ACCOUNT}"
        return {"azure.endpoint": address, "azure.account.name": ACCOUNT, "azure.account.key": KEY}

    def new_bucket(self, name: str | None = None) -> str:
        name = name or f"box-{uuid.uuid4()}"
        date = formatdate(usegmt=True)
        signed = f"PUT{chr(10) * 12}x-ms-date:{date}\nx-ms-version:{_VERSION}\n/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        signature = base64.b64encode(hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()).decode()
        headers = {"x-ms-date": date, "x-ms-version": _VERSION, "Authorization": f"SharedKey {ACCOUNT}:{signature}"}
        made = self.request("PUT", f"/{ACCOUNT}/{name}?restype=container", headers={**headers, "Content-Length": "0"})
        assert made.status == 201, made
        return f"az://{name}"

    def _client(self, bucket: str) -> Any:
        config: Any = {"endpoint": f"http://127.0.0.1:{self.port}/{ACCOUNT}", "account_name": ACCOUNT, "account_key": KEY}
        return AzureStore(bucket, config=config, client_options={"allow_http": True})


class FakeGcs(StoreProgram):
    """With a translator in front: the program takes uploads, and their condition, in the JSON dialect only."""

    name = "fake-gcs-server"
    install = "go install github.com/fsouza/fake-gcs-server@latest"

    def __enter__(self) -> FakeGcs:
        super().__enter__()
        self._translator = _Translator(self)
        self._translator.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._translator.__exit__(*error)
        super().__exit__(*error)

    @property
    def port(self) -> int:
        return self._translator.port

    def command(self) -> list[str]:
        where = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(self.own_port)]
        said = ["-public-host", f"127.0.0.1:{self.own_port}"]
        return [self.path, "-backend", "memory", "-log-level", "error", *where, *said]

    def options(self, endpoint: str | None = None) -> dict[str, str]:
        return {"gs.endpoint": endpoint or f"http://127.0.0.1:{self.port}", "gs.auth.access.token": "b3Blbi1zZXNhbWU"}

    def new_bucket(self, name: str | None = None) -> str:
        name = name or f"box-{uuid.uuid4()}"
        body = json.dumps({"name": name}).encode()
        made = self.request("POST", "/storage/v1/b", body, {"Content-Type": "application/json"})
        assert made.status == 200, made
        return f"gs://{name}"

    def _client(self, bucket: str) -> Any:
        config: Any = {"base_url": f"http://127.0.0.1:{self.port}", "bearer_token": "any"}
        return GCSStore(bucket, config=config, client_options={"allow_http": True})


class _Translator(GoogleServer):
    """Uploads become those of the JSON dialect, parts are joined here; all else goes to the program as it is."""

    def __init__(self, program: FakeGcs) -> None:
        super().__init__()
        self._behind = program

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answered:
        is_of_parts = method == "DELETE" and "uploadId=" in path
        if method in ("PUT", "POST") or is_of_parts:
            return super().answer(method, path, headers, body)
        asked = "GET" if method == "HEAD" else method  # so that the length is known here
        answered = self._behind.request(asked, path.replace("//", "/"), body, _passed(headers))
        return Answered(answered.status, answered.body, _passed(answered.headers))

    def put(self, path: str, body: bytes, is_create: bool) -> Answered | None:
        bucket, _, key = path.partition("/")
        query = {"uploadType": "media", "name": key, **({"ifGenerationMatch": "0"} if is_create else {})}
        address = f"/upload/storage/v1/b/{quote(bucket)}/o?{urlencode(query)}"
        done = self._behind.request("POST", address, body, {"Content-Type": "application/octet-stream"})
        if done.status == 412:
            return None
        assert done.status == 200, done
        return Answered(200, headers={"ETag": f'"{json.loads(done.body)["etag"]}"', "x-goog-generation": "7"})


def _passed(headers: dict[str, str]) -> dict[str, str]:
    dropped = ("host", "connection", "content-length", "date", "server", "transfer-encoding")
    return {name: value for name, value in headers.items() if name.lower() not in dropped}
