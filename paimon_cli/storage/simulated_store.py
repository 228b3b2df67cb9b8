"""An object store whose requests are answered by a function: a simulation runs the shipped `ObjectStorage` without a network.

`SimulatedClient` replaces a client of obstore. A request that fails raises obstore's error for its status, so that the outcomes
of puts are classified as on a real store.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from obstore.exceptions import AlreadyExistsError, GenericError

from paimon_cli.storage.catalog_options import Service
from paimon_cli.storage.object_stores import StoreSettings


class RequestKind:
    """CREATE is a put that succeeds only if the object does not exist; LIST_BELOW includes objects of subdirectories."""

    GET = "get"
    HEAD = "head"
    PUT = "put"
    CREATE = "create"
    LIST = "list"
    LIST_BELOW = "list below"
    DELETE = "delete"
    COPY = "copy"


class Status:
    """Statuses of failed requests. BROKEN: the connection broke after the request was sent."""

    BROKEN = 0
    CONFLICT = 409
    EXISTS = 412
    DENIED = 403
    BUSY = 503


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


class StoreRequest(NamedTuple):
    """A request for the object or directory at a URL.

    `data`: of a put. `after`: a page of a listing begins after this name. `source`: what is copied to the URL.
    """

    kind: str
    url: str
    data: bytes = b""
    after: str = ""
    source: str = ""


class Entry(NamedTuple):
    """An object or a directory in a page, by its name below the listed directory."""

    name: str
    size: int
    is_directory: bool
    modified_millis: int


class ListedPage(NamedTuple):
    """One page of a listing, in the order of names."""

    entries: Sequence[Entry]
    is_last: bool


class RequestFailed(Exception):
    """A request that failed with an HTTP status, or `Status.BROKEN`."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status

    def error(self, url: str) -> Exception:
        """The error that obstore raises."""
        if self.status in (Status.CONFLICT, Status.EXISTS):
            return AlreadyExistsError(f"Object at location {url} already exists: status {self.status}")
        if self.status == Status.BROKEN:
            return GenericError(f"Generic S3 error: error sending request for {url}: the connection broke")
        return GenericError(f"Generic S3 error: Server returned non-2xx status code: {self.status}: {url}")


Serve = Callable[[StoreRequest], Any]
"""Answers a request: GET with the content, HEAD with the size, listings with a `ListedPage`. Raises `FileNotFoundError` for a
missing object, and `RequestFailed`.
"""


@dataclass(frozen=True)
class SimulatedSettings(StoreSettings):
    """The settings of a simulated S3."""

    service: Service = Service.S3
    serve: Serve = field(kw_only=True)

    @property
    def secrets(self) -> dict[str, str]:
        return {}

    def client(self, bucket: str, *, once: bool = False, together: bool = False) -> Any:
        return SimulatedClient(f"s3://{bucket}", self.serve)


class SimulatedClient:
    """A client for one bucket, with the methods of obstore's clients that `ObjectStorage` calls.

    A failed request stands for all tries of a client that retries.
    """

    def __init__(self, bucket: str, serve: Serve) -> None:
        self._bucket = bucket
        self._serve = serve

    def get(self, key: str) -> _Content:
        return _Content(self._asked(RequestKind.GET, key))

    def get_range(self, key: str, *, start: int, end: int) -> bytes:
        content: bytes = self._asked(RequestKind.GET, key)
        return content[start:end]

    def head(self, key: str) -> dict[str, int]:
        return {"size": self._asked(RequestKind.HEAD, key)}

    def put(self, key: str, data: bytes, *, mode: str = "overwrite", use_multipart: bool = False) -> None:
        self._asked(RequestKind.CREATE if mode == "create" else RequestKind.PUT, key, bytes(data))

    def copy(self, source: str, key: str, *, overwrite: bool) -> None:
        self._asked(RequestKind.COPY, key, source=f"{self._bucket}/{source}")

    def delete(self, keys: str | Sequence[str]) -> None:
        for key in [keys] if isinstance(keys, str) else keys:
            self._asked(RequestKind.DELETE, key)

    def list_with_delimiter(self, prefix: str | None) -> dict[str, list[Any]]:
        entries = [entry for page in self._pages(RequestKind.LIST, prefix or "") for entry in page]
        below = f"{prefix}/" if prefix else ""
        return {
            "common_prefixes": [below + entry.name for entry in entries if entry.is_directory],
            "objects": [_listed(below, entry) for entry in entries if not entry.is_directory],
        }

    def list(self, prefix: str | None, *, chunk_size: int) -> Iterator[list[dict[str, Any]]]:
        below = f"{prefix}/" if prefix else ""
        for page in self._pages(RequestKind.LIST_BELOW, prefix or ""):
            yield [_listed(below, entry) for entry in page]

    def _pages(self, kind: str, prefix: str) -> Iterator[Sequence[Entry]]:
        after, is_last = "", False
        while not is_last:
            entries, is_last = self._asked(kind, prefix, after=after)
            yield entries
            after = entries[-1].name if entries else after

    def _asked(self, kind: str, key: str, data: bytes = b"", after: str = "", source: str = "") -> Any:
        url = f"{self._bucket}/{key}"
        try:
            return self._serve(StoreRequest(kind, url, data, after, source))
        except RequestFailed as failed:
            raise failed.error(url) from None


class _Content:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self.meta = {"size": len(content)}

    def bytes(self) -> bytes:
        return self._content


def _listed(below: str, entry: Entry) -> dict[str, Any]:
    modified = _EPOCH + datetime.timedelta(milliseconds=entry.modified_millis)
    return {"path": below + entry.name, "size": entry.size, "last_modified": modified}
