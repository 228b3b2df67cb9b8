"""The `Storage` protocol: the operations that the engine needs of a file system or object store.

Also helpers that build on it for directories: listing parent directories, removing empty ones, making deletions durable.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import BinaryIO, Protocol, runtime_checkable

from paimon_cli.errors import StorageUnavailable


class PutOutcome(enum.Enum):
    """Answer of `put_if_absent`. UNKNOWN: the storage gave no clear answer, the object may or may not be ours."""

    CREATED = "created"
    EXISTS = "exists"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class FileStatus:
    """One directory entry: absolute `path`, its last part `name`, size in bytes, modification time in epoch millis."""

    path: str
    name: str
    size: int
    is_directory: bool
    modified_millis: int


class Storage(Protocol):
    """Blocking access to one filesystem by absolute path or URL. Missing files raise `FileNotFoundError`.

    Other failures of the store surface as `StorageUnavailable`.
    """

    @property
    def is_remote(self) -> bool:
        """Whether each call waits for an answer over a network, so that several at once take the time of one."""
        ...

    def read_bytes(self, path: str) -> bytes:
        """Whole content of a small file (metadata)."""
        ...

    def open_input(self, path: str) -> BinaryIO:
        """Seekable reader of a data file; pyarrow can read from it."""
        ...

    def open_output(self, path: str) -> BinaryIO:
        """Writer of a new, uniquely named file; makes parent directories; durable once `close` returned."""
        ...

    def write_new(self, path: str, data: bytes) -> None:
        """Write a uniquely named file in one go; durable on return."""
        ...

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """Create `path` with its whole content, only if it does not exist. Never raises for a lost race.

        `StorageUnavailable` and `Refused` mean that nothing was created; where that is not certain, the outcome is `UNKNOWN`.
        """
        ...

    def overwrite(self, path: str, data: bytes) -> None:
        """Replace a hint file atomically for readers; last writer wins."""
        ...

    def exists(self, path: str) -> bool: ...

    def file_size(self, path: str) -> int: ...

    def list_directory(self, path: str) -> list[FileStatus]:
        """Direct entries, in no particular order; empty when the directory is missing."""
        ...

    def delete(self, path: str) -> None:
        """Delete one file; a missing file is no error."""
        ...

    def delete_directory(self, path: str) -> None:
        """Delete a directory and all below it; a missing one is no error."""
        ...


@runtime_checkable
class OverlapsRequests(Protocol):
    """A store that uploads new files in the background, and fetches others before they are opened."""

    def will_open(self, files: Iterable[tuple[str, int]]) -> None: ...

    def behind(self) -> AbstractContextManager[None]:
        """Around work of this process: new files written within it may be uploaded in the background."""
        ...

    def settle(self) -> None:
        """Wait until all new files are stored, as before a publication; raises the error of one that failed."""
        ...


@runtime_checkable
class ListsInPages(Protocol):
    """A store that answers a listing page by page, so that the first entries cost one request."""

    def first_entries(self, path: str, limit: int) -> list[FileStatus]:
        """Some of the direct entries, not more than `limit`."""
        ...


@runtime_checkable
class HasDirectories(Protocol):
    """A store whose directories stay when they are empty."""

    def remove_empty_directory(self, path: str) -> bool:
        """Returns whether it was removed: False if it is not empty."""
        ...


@runtime_checkable
class SyncsDirectories(Protocol):
    """A store that may lose the deletion of a name in a power cut until its directory is synced."""

    def sync_directory(self, path: str) -> None:
        """Names deleted before stay deleted; a missing directory is no error."""
        ...


@runtime_checkable
class MovesDirectories(Protocol):
    """A store with directories of their own, which can be made empty and moved in one step."""

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it; one that exists is no error."""
        ...

    def move_directory(self, path: str, target: str) -> None:
        """Move a directory with everything below it to a path that does not exist."""
        ...


def open_sized(storage: Storage, path: str, size: int) -> BinaryIO:
    """A seekable reader of a file whose size the caller knows, which saves asking for it.

    A store where each read is a request has a method of this name, whose reader makes few of them (`ranged_file`). A missing file
    may then show at the first read only.
    """
    opened: Callable[[str, int], BinaryIO] | None = getattr(storage, "open_sized", None)
    return storage.open_input(path) if opened is None else opened(path, size)


def written_behind(storage: Storage) -> AbstractContextManager[None]:
    """Around work of this process that ends in a publication: new files may be uploaded in the background, if the store can."""
    place = _overlapping(storage)
    return nullcontext() if place is None else place.behind()


def will_open(storage: Storage, files: Callable[[], Iterable[tuple[str, int]]]) -> None:
    """Files (path, size) that will be opened soon, by size known: on a remote store small ones are fetched in parallel."""
    place = _overlapping(storage)
    if place is not None:
        place.will_open(files())


def _overlapping(storage: Storage) -> OverlapsRequests | None:
    place = storage
    while isinstance(place, WrappedStorage) and not isinstance(place, OverlapsRequests):
        place = place.inner
    return place if isinstance(place, OverlapsRequests) else None


@runtime_checkable
class PublishesSnapshots(Protocol):
    """A storage of a catalog that publishes snapshots itself, and wants to know on which one a new one was built."""

    def publish_snapshot(self, path: str, data: bytes, base_uuid: str | None) -> PutOutcome:
        """As `put_if_absent`."""
        ...


@runtime_checkable
class ServesVersions(Protocol):
    """A storage of a catalog whose server changes tags, branches and histories itself."""

    def create_tag(self, name: str, snapshot_id: int, retained_millis: int | None) -> None: ...

    def delete_tag(self, name: str) -> None: ...

    def create_branch(self, name: str, tag: str | None) -> None: ...

    def delete_branch(self, name: str) -> None: ...

    def fast_forward(self, branch: str) -> None: ...

    def roll_back(self, target: int | str, latest_id: int) -> None:
        """To a snapshot or a tag; refused if there is a newer snapshot than `latest_id`."""
        ...


def settle(storage: Storage) -> None:
    """Wait until all new files are stored, before a publication that does not go through the storage."""
    place = _overlapping(storage)
    if place is not None:
        place.settle()


def publish_snapshot(storage: Storage, path: str, data: bytes, base_uuid: str | None) -> PutOutcome:
    """Create a snapshot file, only if it does not exist."""
    if isinstance(storage, PublishesSnapshots):
        return storage.publish_snapshot(path, data, base_uuid)
    return storage.put_if_absent(path, data)


def first_entries(storage: Storage, path: str, limit: int) -> list[FileStatus]:
    """Some of the direct entries: all of them if there are fewer than `limit`."""
    if isinstance(storage, ListsInPages):
        return storage.first_entries(path, limit)
    return storage.list_directory(path)[:limit]


def ancestors(path: str) -> Iterator[str]:
    """The directories above a path or URL, the nearest first; of a local path also those where links lead to."""
    scheme, mark, rest = path.rpartition("://")
    for place in [rest] if mark else dict.fromkeys((path, os.path.realpath(path))):
        above = place.rpartition("/")[0]
        while above:
            yield f"{scheme}{mark}{above}"
            above = above.rpartition("/")[0]


def remove_empty_directory(storage: Storage, path: str) -> bool:
    """Remove a directory; False if it is not empty, or if the store has no directories."""
    return isinstance(storage, HasDirectories) and storage.remove_empty_directory(path)


def directories_of(storage: Storage) -> MovesDirectories | None:
    """The store, if it has directories of its own."""
    while isinstance(storage, WrappedStorage):
        storage = storage.inner
    return storage if isinstance(storage, MovesDirectories) else None


def keep_deleted(storage: Storage, directory: str) -> None:
    """Make deletions in `directory` durable, before files are deleted that only the deleted snapshot or tag names."""
    if isinstance(storage, SyncsDirectories):
        storage.sync_directory(directory)


def delete_all(storage: Storage, paths: Iterable[str]) -> None:
    """Delete each file. A failure does not stop the others, and is raised at the end."""
    refused: StorageUnavailable | None = None
    for path in paths:
        try:
            storage.delete(path)
        except StorageUnavailable as error:
            refused = refused or error
    if refused is not None:
        raise refused


class WrappedStorage:
    """A storage that passes its calls on to `inner`; subclasses change some of them."""

    def __init__(self, inner: Storage) -> None:
        self.inner = inner

    @property
    def is_remote(self) -> bool:
        return self.inner.is_remote

    def before(self, call: str, path: str) -> None:
        """Called before each call that is passed on."""

    def read_bytes(self, path: str) -> bytes:
        self.before("read_bytes", path)
        return self.inner.read_bytes(path)

    def open_input(self, path: str) -> BinaryIO:
        self.before("open_input", path)
        return self.inner.open_input(path)

    def open_sized(self, path: str, size: int) -> BinaryIO:
        if not self.inner.is_remote:
            return self.open_input(path)
        self.before("open_input", path)
        return open_sized(self.inner, path, size)

    def open_output(self, path: str) -> BinaryIO:
        self.before("open_output", path)
        return self.inner.open_output(path)

    def write_new(self, path: str, data: bytes) -> None:
        self.before("write_new", path)
        self.inner.write_new(path, data)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        self.before("put_if_absent", path)
        return self.inner.put_if_absent(path, data)

    def overwrite(self, path: str, data: bytes) -> None:
        self.before("overwrite", path)
        self.inner.overwrite(path, data)

    def exists(self, path: str) -> bool:
        self.before("exists", path)
        return self.inner.exists(path)

    def file_size(self, path: str) -> int:
        self.before("file_size", path)
        return self.inner.file_size(path)

    def list_directory(self, path: str) -> list[FileStatus]:
        self.before("list_directory", path)
        return self.inner.list_directory(path)

    def first_entries(self, path: str, limit: int) -> list[FileStatus]:
        return first_entries(self.inner, path, limit)

    def delete(self, path: str) -> None:
        self.before("delete", path)
        self.inner.delete(path)

    def delete_directory(self, path: str) -> None:
        self.before("delete_directory", path)
        self.inner.delete_directory(path)

    def remove_empty_directory(self, path: str) -> bool:
        return remove_empty_directory(self.inner, path)

    def sync_directory(self, path: str) -> None:
        keep_deleted(self.inner, path)
