"""S3 and what speaks its language. A snapshot is published by a conditional PUT, which one of several writers wins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast

from botocore.exceptions import ClientError, HTTPClientError, SSLError
from botocore.parsers import ResponseParserError

from paimon_cli.errors import Refused, StorageUnavailable, UsageError
from paimon_cli.storage.clock_and_random import Clock, SystemClock
from paimon_cli.storage.s3_client import ObjectUpload, S3Errors, S3Settings, code_of, get_object, open_object, status_of
from paimon_cli.storage.storage import FileStatus, PutOutcome

_CONFLICT_TRIES = 8
_CONFLICT_WAIT_SECONDS = 0.05
_DELETE_AT_ONCE = 1000
_NO_CLEAR_ANSWER = (HTTPClientError, SSLError, ResponseParserError)
"""Failures after a request was sent. All other errors of boto3 come before that."""


@dataclass(frozen=True)
class S3Storage:
    """`Storage` over `s3://bucket/key` (or `s3a://`) URLs. Equal settings make equal storages; picklable.

    Whether the store behind the endpoint honours a conditional PUT is not known here: see `guarded_storage`.
    """

    settings: S3Settings = field(default_factory=S3Settings)
    clock: Clock = field(default_factory=SystemClock, compare=False, repr=False)

    def read_bytes(self, path: str) -> bytes:
        bucket, key = _split(path)
        with self._errors_of(path):
            return get_object(self.settings.client(), bucket, key)

    def open_input(self, path: str) -> BinaryIO:
        return open_object(self.settings, path, *_split(path))

    def open_output(self, path: str) -> BinaryIO:
        return cast(BinaryIO, ObjectUpload(self.settings, path, *_split(path)))

    def write_new(self, path: str, data: bytes) -> None:
        self.overwrite(path, data)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """`UNKNOWN` when no answer came or the store failed; `Refused` if the store does not know conditional PUTs.

        The client does not repeat this request: it would find its own object and take it for another writer's.
        """
        bucket, key = _split(path)
        client = self.settings.client(attempts=1)
        for attempt in range(_CONFLICT_TRIES):
            if attempt:
                self.clock.sleep(_CONFLICT_WAIT_SECONDS * 2**attempt)
            with self._errors_of(path):
                outcome = _conditional_put(client, Bucket=bucket, Key=key, Body=data, IfNoneMatch="*")
            if outcome is not None:
                return outcome
        return PutOutcome.UNKNOWN

    def overwrite(self, path: str, data: bytes) -> None:
        bucket, key = _split(path)
        with self._errors_of(path):
            self.settings.client().put_object(Bucket=bucket, Key=key, Body=data)

    def exists(self, path: str) -> bool:
        try:
            self._head(path)
        except FileNotFoundError:
            return False
        return True

    def file_size(self, path: str) -> int:
        return int(self._head(path)["ContentLength"])

    def list_directory(self, path: str) -> list[FileStatus]:
        return [entry for page in self._pages(path, Delimiter="/") for entry in _entries(path, page)]

    def first_entries(self, path: str, limit: int) -> list[FileStatus]:
        """See `storage.first_entries`: one request."""
        bucket, prefix = _prefix(path)
        with self._errors_of(path):
            page = self.settings.client().list_objects_v2(Bucket=bucket, Prefix=prefix, Delimiter="/", MaxKeys=limit)
        return list(_entries(path, page))

    def delete(self, path: str) -> None:
        bucket, key = _split(path)
        with self._errors_of(path):
            self.settings.client().delete_object(Bucket=bucket, Key=key)

    def delete_directory(self, path: str) -> None:
        bucket, _ = _split(path)
        for page in self._pages(path):
            keys = [{"Key": entry["Key"]} for entry in page.get("Contents", ())]
            for start in range(0, len(keys), _DELETE_AT_ONCE):
                request = {"Objects": keys[start : start + _DELETE_AT_ONCE], "Quiet": True}
                with self._errors_of(path):
                    answer = self.settings.client().delete_objects(Bucket=bucket, Delete=request)
                for failure in answer.get("Errors", ()):
                    raise StorageUnavailable(f"S3 did not delete {failure['Key']}", failure.get("Code", ""), path=path)

    def _head(self, path: str) -> dict[str, Any]:
        bucket, key = _split(path)
        with self._errors_of(path):
            return cast(dict[str, Any], self.settings.client().head_object(Bucket=bucket, Key=key))

    def _pages(self, path: str, **request: Any) -> Iterator[dict[str, Any]]:
        bucket, prefix = _prefix(path)
        with self._errors_of(path):
            yield from self.settings.client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix, **request)

    def _errors_of(self, path: str) -> S3Errors:
        return S3Errors(path, self.settings)


def _conditional_put(client: Any, **request: Any) -> PutOutcome | None:
    """None: another client is writing the same key at this moment, try again."""
    try:
        client.put_object(**request)
    except ClientError as error:
        status, code = status_of(error), code_of(error)
        if status == 412 or code == "PreconditionFailed":
            return PutOutcome.EXISTS
        if status == 409 or code == "ConditionalRequestConflict":
            return None
        if status == 501 or code == "NotImplemented":
            raise Refused("no conditional PUT on this S3", f"it answers {code}") from None
        if status >= 500 or code == "RequestTimeout":
            return PutOutcome.UNKNOWN
        raise
    except _NO_CLEAR_ANSWER:
        return PutOutcome.UNKNOWN
    return PutOutcome.CREATED


def _entries(path: str, page: Mapping[str, Any]) -> Iterator[FileStatus]:
    """Direct entries in one page of a listing with a delimiter."""
    directory = path.rstrip("/")
    for entry in page.get("CommonPrefixes", ()):
        name = entry["Prefix"].rstrip("/").rpartition("/")[2]
        yield FileStatus(f"{directory}/{name}", name, 0, True, 0)
    for entry in page.get("Contents", ()):
        name = entry["Key"].rpartition("/")[2]
        if name:  # else it is the marker of the directory itself
            modified = int(entry["LastModified"].timestamp() * 1000)
            yield FileStatus(f"{directory}/{name}", name, int(entry["Size"]), False, modified)


def _prefix(path: str) -> tuple[str, str]:
    """Bucket, and what the keys below a directory begin with."""
    bucket, key = _split(path)
    return bucket, f"{key.rstrip('/')}/" if key.rstrip("/") else ""


def _split(path: str) -> tuple[str, str]:
    """Bucket and key of a URL; keys are taken as they are written, without %-escapes."""
    scheme, _, rest = path.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme not in ("s3", "s3a") or not bucket:
        raise UsageError(f"'{path}' is not the URL of an S3 object", "the form is s3://bucket/key")
    return bucket, key
