"""What only some stores can do: listing in pages, real directories, links, writing in the background.

Each capability is a protocol, with a function that uses it where the store has it and otherwise falls back to `Storage` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, BinaryIO, Protocol, runtime_checkable

from paimon_cli.errors import NotSupported
from paimon_cli.storage.storage import FileStatus, PutOutcome, Storage, Verified, put_and_verify


@runtime_checkable
class OverlapsWrites(Protocol):
    """A store that stores new files in the background: it uploads them, or syncs them to disk."""

    def overlapping_writes(self) -> AbstractContextManager[None]:
        """Store files written inside the block in the background; leaving the block waits for them."""
        ...

    def settle(self) -> None:
        """Wait until all new files are stored. Raises the error of one that could not be stored."""
        ...


@runtime_checkable
class Prefetches(Protocol):
    """A store that prefetches files before they are opened."""

    def will_open(self, files: Iterable[tuple[str, int]]) -> None:
        """Prefetch files, given as (path, size in bytes)."""
        ...


@runtime_checkable
class ListsInPages(Protocol):
    """A store that lists directories in pages, so that the first entries cost a single request."""

    def first_entries(self, path: str, limit: int) -> list[FileStatus]:
        """At most `limit` of the direct entries."""
        ...


@runtime_checkable
class HasDirectories(Protocol):
    """A store whose directories continue to exist when they are empty."""

    def remove_empty_directory(self, path: str) -> bool:
        """Remove a directory; returns False if it is not empty."""
        ...


@runtime_checkable
class DeletesMany(Protocol):
    """A store that deletes many files with one request."""

    def delete_many(self, paths: Sequence[str]) -> None:
        """Delete files; missing ones are not an error. A failure does not tell which files are left."""
        ...


@runtime_checkable
class HasLinks(Protocol):
    """A store on which a path may be a symbolic link."""

    def link_target(self, path: str) -> str | None:
        """Where the link leads; None if `path` is no link."""
        ...


@runtime_checkable
class LinksFiles(Protocol):
    """A store on which a file can have a second name, so that neither name depends on the other."""

    def link_file(self, path: str, target: str) -> None:
        """Give the file `path` the new name `target`, creating parent directories. The name is durable once its directory is
        synced. A symbolic link at `path` is not followed.
        """
        ...

    def can_link(self, directory: str, target: str) -> bool:
        """Whether files below `directory` can have names below `target`, which need not exist."""
        ...


@runtime_checkable
class SyncsDirectories(Protocol):
    """A store on which a deleted file may reappear after a power failure until its directory is synced."""

    def sync_directory(self, path: str) -> None:
        """Make earlier deletions in the directory durable; a missing directory is not an error."""
        ...


@runtime_checkable
class MovesDirectories(Protocol):
    """A store with real directories, which can be created empty and moved atomically."""

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents; an existing directory is not an error."""
        ...

    def move_directory(self, path: str, target: str) -> None:
        """Move a directory and everything below it to `target`, which must not exist."""
        ...


@runtime_checkable
class SwapsFiles(Protocol):
    """A store that replaces a small file only if it still has certain content, so that of several writers one succeeds."""

    def swap(self, path: str, expected: bytes, data: bytes) -> bool:
        """Replace `expected` by `data`; returns False, and changes nothing, if the file has other content or does not exist.

        Raises `StorageUnavailable` if the store gave no clear answer.
        """
        ...


def open_sized(storage: Storage, path: str, size: int) -> BinaryIO:
    """Open a file of known size (bytes) as a seekable stream, without a request for its size.

    Object stores implement this as a method of the same name that combines reads into few requests (`ranged_file`). A missing
    file may then raise `FileNotFoundError` on the first read only.
    """
    opened: Callable[[str, int], BinaryIO] | None = getattr(storage, "open_sized", None)
    return storage.open_input(path) if opened is None else opened(path, size)


def overlapping_writes(storage: Storage) -> AbstractContextManager[None]:
    """Store files written inside the block in the background, if the store supports it; leaving the block waits for them.

    For work of this process that ends in publishing a snapshot, which waits until all files are stored.
    """
    overlapping: OverlapsWrites | None = _outermost(storage, OverlapsWrites)
    return nullcontext() if overlapping is None else overlapping.overlapping_writes()


def will_open(storage: Storage, files: Callable[[], Iterable[tuple[str, int]]]) -> None:
    """Announce files, as (path, size in bytes), that will be opened soon: object stores prefetch the small ones in parallel.

    `files` is called only if the store makes use of it.
    """
    prefetching: Prefetches | None = _outermost(storage, Prefetches)
    if prefetching is not None:
        prefetching.will_open(files())


def _outermost(storage: Storage, capability: Any) -> Any:
    """The outermost storage that has a capability (a protocol); None if there is none."""
    while isinstance(storage, WrappedStorage) and not isinstance(storage, capability):
        storage = storage.inner
    return storage if isinstance(storage, capability) else None


@runtime_checkable
class PublishesSnapshots(Protocol):
    """The storage of a catalog that publishes snapshots itself and checks which snapshot a new one is based on."""

    def publish_snapshot(self, path: str, data: bytes, base_uuid: str | None) -> PutOutcome:
        """Like `put_if_absent`; `base_uuid` identifies the snapshot that the new one is based on."""
        ...


@runtime_checkable
class ServesVersions(Protocol):
    """The storage of a catalog whose server manages tags, branches and rollbacks itself."""

    def create_tag(self, name: str, snapshot_id: int, retained_millis: int | None) -> None: ...

    def delete_tag(self, name: str) -> None: ...

    def create_branch(self, name: str, tag: str | None) -> None: ...

    def delete_branch(self, name: str) -> None: ...

    def fast_forward(self, branch: str) -> None: ...

    def roll_back(self, target: int | str, latest_id: int) -> None:
        """Roll back to a snapshot id or a tag name; refused if a snapshot newer than `latest_id` exists."""
        ...


def settle(storage: Storage) -> None:
    """Wait until all new files are stored, before a snapshot is published other than through the storage."""
    overlapping: OverlapsWrites | None = _outermost(storage, OverlapsWrites)
    if overlapping is not None:
        overlapping.settle()


def publish_snapshot(storage: Storage, path: str, data: bytes, base_uuid: str | None) -> PutOutcome:
    """Create a snapshot file unless it exists; see `Storage.put_if_absent` for errors."""
    if isinstance(storage, PublishesSnapshots):
        return storage.publish_snapshot(path, data, base_uuid)
    return storage.put_if_absent(path, data)


def first_entries(storage: Storage, path: str, limit: int) -> list[FileStatus]:
    """At most `limit` of the direct entries; cheap on stores that list in pages."""
    if isinstance(storage, ListsInPages):
        return storage.first_entries(path, limit)
    return storage.list_directory(path)[:limit]


def remove_empty_directory(storage: Storage, path: str) -> bool:
    """Remove a directory; returns False if it is not empty, or if the store has no real directories."""
    return isinstance(storage, HasDirectories) and storage.remove_empty_directory(path)


def swap(storage: Storage, path: str, expected: bytes | None, data: bytes) -> bool:
    """Compare and swap a small file; see `SwapsFiles`. `expected`: None if it must not exist.

    Raises `NotSupported` if the store cannot do that.
    """
    if expected is None:
        return put_and_verify(storage, path, data) is Verified.OURS
    swapping: SwapsFiles | None = _outermost(storage, SwapsFiles)
    if swapping is None:
        raise NotSupported(f"{path} cannot be replaced safely", "this store has no conditional replacement")
    return swapping.swap(path, expected, data)


def link_target(storage: Storage, path: str) -> str | None:
    """Where the symbolic link at `path` leads; None if it is no link."""
    links: HasLinks | None = _outermost(storage, HasLinks)
    return None if links is None else links.link_target(path)


def can_link(source: Storage, directory: str, storage: Storage, target: str) -> bool:
    """Whether files below `directory` of `source` can be linked to names below `target` of `storage`."""
    here, there = _outermost(source, LinksFiles), _outermost(storage, LinksFiles)
    return here is not None and there is not None and bool(there.can_link(directory, target))


def link_file(storage: Storage, path: str, target: str) -> None:
    """See `LinksFiles`. Raises `NotSupported` if the store cannot do that."""
    linking: LinksFiles | None = _outermost(storage, LinksFiles)
    if linking is None:
        raise NotSupported(f"{path} cannot be linked", "this store has no links")
    linking.link_file(path, target)


def directories_of(storage: Storage) -> MovesDirectories | None:
    """The innermost store if it has real directories, otherwise None."""
    while isinstance(storage, WrappedStorage):
        storage = storage.inner
    return storage if isinstance(storage, MovesDirectories) else None


def keep_deleted(storage: Storage, directory: str) -> None:
    """Make deletions in `directory` durable.

    Needed after the deletion of a snapshot or tag, before the files that only it refers to are deleted.
    """
    if isinstance(storage, SyncsDirectories):
        storage.sync_directory(directory)


class WrappedStorage:
    """A storage that forwards all calls to `inner`; subclasses override some of them."""

    def __init__(self, inner: Storage) -> None:
        self.inner = inner

    @property
    def is_remote(self) -> bool:
        return self.inner.is_remote

    def before(self, call: str, path: str) -> None:
        """Hook that runs before each forwarded call; `call` is the name of the method."""

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
