"""Objects of S3 as files: ranged reads, and uploads in parts that appear whole or not at all."""

from __future__ import annotations

import contextlib
import io
import sys
from types import TracebackType
from typing import Any, BinaryIO, cast

from botocore.exceptions import IncompleteReadError, ReadTimeoutError, ResponseStreamingError

from paimon_cli.errors import StorageUnavailable
from paimon_cli.storage.s3_client import S3Errors, S3Settings

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
