"""How S3 is reached: settings from Paimon's catalog options, clients of boto3, what their errors mean, and objects as files.

Reads are ranged requests; uploads go in parts and appear whole or not at all.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, BinaryIO, cast

from paimon_cli.errors import PaimonError, StorageUnavailable, UsageError
from paimon_cli.storage.catalog_options import redact, without_user_info

try:
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError, IncompleteReadError, ReadTimeoutError, ResponseStreamingError
    from botocore.parsers import ResponseParserError
except ImportError as error:
    raise UsageError("S3 needs the package boto3", str(error), "pip install 'paimon-cli[s3]'") from None

_PREFIXES = {"s3", "s3a", "fs.s3", "fs.s3a"}
_SETTINGS = {
    "endpoint": "endpoint",
    "access-key": "access_key",
    "access.key": "access_key",
    "accessKeyId": "access_key",
    "secret-key": "secret_key",
    "secret.key": "secret_key",
    "accessKeySecret": "secret_key",
    "session-token": "session_token",
    "session.token": "session_token",
    "securityToken": "session_token",
    "region": "region",
    "endpoint.region": "region",
    "path.style.access": "path_style",
    "path-style-access": "path_style",
}
"""Names of Paimon, of pypaimon and of Hadoop -> ours."""

_ATTEMPTS = 5
_CONNECT_SECONDS, _READ_SECONDS = 10, 60
_CONNECTIONS = 32
_MISSING = {"404", "NoSuchKey", "NotFound"}
_making_clients = threading.Lock()


@dataclass(frozen=True)
class S3Settings:
    """None: from the environment (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, profiles, instance roles)."""

    endpoint: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    region: str | None = None
    path_style: bool | None = None

    @staticmethod
    def from_options(options: Mapping[str, Any]) -> S3Settings:
        """Other keys below `s3.` are left alone: a catalog file may hold options for other engines."""
        found: dict[str, Any] = {}
        for key, value in options.items():
            prefix = next((p for p in _PREFIXES if key.startswith(f"{p}.") and key[len(p) + 1 :] in _SETTINGS), None)
            if prefix is not None:
                found[_SETTINGS[key[len(prefix) + 1 :]]] = value
        if "path_style" in found:
            found["path_style"] = str(found["path_style"]).lower() == "true"
        if found.get("endpoint") and "://" not in found["endpoint"]:
            found["endpoint"] = f"https://{found['endpoint']}"
        return S3Settings(**found)

    @property
    def secrets(self) -> dict[str, str]:
        """What must never be printed."""
        known = {"access_key": self.access_key, "secret_key": self.secret_key, "session_token": self.session_token}
        return {name: value for name, value in known.items() if value}

    def client(self, attempts: int = _ATTEMPTS) -> Any:
        """A client of this process that sends a request at most `attempts` times; safe for threads."""
        with _making_clients:
            return _client(self, attempts, os.getpid())


@functools.lru_cache(maxsize=16)
def _client(settings: S3Settings, attempts: int, process: int) -> Any:
    """A client's connections must not cross a fork, hence one for each process."""
    style = {None: "auto", True: "path", False: "virtual"}[settings.path_style]
    config = Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        max_pool_connections=_CONNECTIONS,
        retries={"mode": "standard", "total_max_attempts": attempts},
        s3={"addressing_style": style},
    )
    return boto3.session.Session().client(
        "s3",
        endpoint_url=settings.endpoint,
        aws_access_key_id=settings.access_key,
        aws_secret_access_key=settings.secret_key,
        aws_session_token=settings.session_token,
        region_name=settings.region,
        config=config,
    )


def status_of(error: ClientError) -> int:
    """HTTP status of an answer that is an error."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def code_of(error: ClientError) -> str:
    """S3's name of the error, such as `NoSuchKey`."""
    return str(error.response.get("Error", {}).get("Code", ""))


class S3Errors(contextlib.AbstractContextManager[None]):
    """A missing object is a `FileNotFoundError`; whatever else boto3 raises becomes `StorageUnavailable`, without secrets."""

    def __init__(self, path: str, settings: S3Settings) -> None:
        self._path = without_user_info(path)
        self._settings = settings

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, PaimonError):
            return
        if isinstance(error, ClientError) and code_of(error) in _MISSING:
            raise FileNotFoundError(self._path) from None
        if isinstance(error, (ClientError, BotoCoreError, ResponseParserError)):
            why = redact(str(error), self._settings.secrets)
            raise StorageUnavailable(f"S3 refused {self._path}", why, _hint(error), path=self._path) from None


def _hint(error: BaseException) -> str:
    if isinstance(error, ClientError) and status_of(error) not in (401, 403):
        return ""
    return "check s3.endpoint, s3.access-key, s3.secret-key and s3.region, or the environment (AWS_...)"


PART_BYTES = 8 << 20
"""Of an upload; S3 takes up to 10,000 parts, so a file may have 80 GB."""
READ_AHEAD_BYTES = 256 << 10
"""Least that one request fetches."""
_READ_TRIES = 3
_CUT_OFF = (IncompleteReadError, ReadTimeoutError, ResponseStreamingError)
"""A body that ends early: boto3 repeats requests, but not after their first byte has arrived."""


def get_object(client: Any, bucket: str, key: str, **request: Any) -> bytes:
    """Body of a GET, asked for again when the connection breaks in its middle."""
    for attempt in range(_READ_TRIES):
        try:
            return cast(bytes, client.get_object(Bucket=bucket, Key=key, **request)["Body"].read())
        except _CUT_OFF:
            if attempt == _READ_TRIES - 1:
                raise
    raise AssertionError("unreachable")


def open_object(settings: S3Settings, path: str, bucket: str, key: str) -> BinaryIO:
    """A seekable reader; `FileNotFoundError` at once if there is no object."""
    return cast(BinaryIO, io.BufferedReader(_ObjectReader(settings, path, bucket, key), READ_AHEAD_BYTES))


class _ObjectReader(io.RawIOBase):
    """One ranged GET for each read."""

    def __init__(self, settings: S3Settings, path: str, bucket: str, key: str) -> None:
        self._settings, self._path, self._bucket, self._key = settings, path, bucket, key
        self._position = 0
        with S3Errors(path, settings):
            self._size = int(settings.client().head_object(Bucket=bucket, Key=key)["ContentLength"])

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        end = min(self._position + len(buffer), self._size)
        if end <= self._position:
            return 0
        with S3Errors(self._path, self._settings):
            wanted = f"bytes={self._position}-{end - 1}"
            data = get_object(self._settings.client(), self._bucket, self._key, Range=wanted)
        if len(data) != end - self._position:
            raise StorageUnavailable(f"S3 gave {len(data)} bytes of {self._path}", f"{end - self._position} were asked for")
        buffer[: len(data)] = data
        self._position = end
        return len(data)


class ObjectUpload(io.RawIOBase):
    """A new object: one PUT if it is small, else parts of `PART_BYTES`, of which one is held in memory.

    It appears with `close`. A `with` block that fails, or a writer that is never closed, leaves nothing.
    """

    def __init__(self, settings: S3Settings, path: str, bucket: str, key: str) -> None:
        self._settings, self._path = settings, path
        self._target = {"Bucket": bucket, "Key": key}
        self._buffer = bytearray()
        self._parts: list[dict[str, Any]] = []
        self._upload: str | None = None
        self._written = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._written

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        for start in range(0, len(view), PART_BYTES):
            self._buffer += view[start : start + PART_BYTES]
            while len(self._buffer) >= PART_BYTES:
                self._send_part(PART_BYTES)
        self._written += len(view)
        return len(view)

    def close(self) -> None:
        if self.closed:
            return
        try:
            with S3Errors(self._path, self._settings):
                self._complete()
        except BaseException:
            self.abort()
            raise
        super().close()

    def abort(self) -> None:
        """Forget what was written; parts that S3 does not let go of now are removed by the bucket's own rules."""
        if self.closed:
            return
        super().close()
        self._buffer.clear()
        if self._upload is not None:
            with contextlib.suppress(StorageUnavailable, FileNotFoundError), S3Errors(self._path, self._settings):
                self._settings.client().abort_multipart_upload(**self._target, UploadId=self._upload)

    def _complete(self) -> None:
        client = self._settings.client()
        if self._upload is None:
            client.put_object(**self._target, Body=bytes(self._buffer))
            return
        if self._buffer:
            self._send_part(len(self._buffer))
        client.complete_multipart_upload(**self._target, UploadId=self._upload, MultipartUpload={"Parts": self._parts})

    def _send_part(self, size: int) -> None:
        client, number = self._settings.client(), len(self._parts) + 1
        with S3Errors(self._path, self._settings):
            if self._upload is None:
                self._upload = client.create_multipart_upload(**self._target)["UploadId"]
            part = {"UploadId": self._upload, "PartNumber": number}
            answer = client.upload_part(**self._target, **part, Body=bytes(self._buffer[:size]))
        self._parts.append({"ETag": answer["ETag"], "PartNumber": number})
        del self._buffer[:size]

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.close()
        else:
            self.abort()

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.abort()
