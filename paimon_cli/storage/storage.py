"""The `Storage` protocol: the operations that the engine requires of a file system or object store.

The protocols after it are optional capabilities of some stores (listing in pages, real directories, writing in the background).
The functions use a capability where the store has it, and otherwise fall back to `Storage` alone.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, BinaryIO, Protocol, runtime_checkable

from paimon_cli.errors import FilesLeft, NotSupported, RequestRefused, StorageUnavailable
from paimon_cli.options.option_text import counted
from paimon_cli.pieces import PIECES
from paimon_cli.storage.threads import in_parallel


class PutOutcome(enum.Enum):
    """Result of `put_if_absent`. UNKNOWN: the storage gave no clear answer, so the object may or may not have been created."""

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
    """Blocking access to one file system by absolute path or URL.

    Missing files raise `FileNotFoundError`, all other failures of the store `StorageUnavailable`.
    """

    @property
    def is_remote(self) -> bool:
        """Whether each call is a network round trip, so that concurrent calls take about as long as a single one."""
        ...

    def read_bytes(self, path: str) -> bytes:
        """Read a small file, such as metadata, as a whole. Raises `DamagedFile` for one that is too large (`read_bounds`)."""
        ...

    def open_input(self, path: str) -> BinaryIO:
        """Open a data file as a seekable stream that pyarrow can read."""
        ...

    def open_output(self, path: str) -> BinaryIO:
        """Open a new, uniquely named file for writing, creating parent directories. Durable once `close` has returned, or in
        an `overlapping_writes` block before the next publication.
        """
        ...

    def write_new(self, path: str, data: bytes) -> None:
        """Write a new, uniquely named file. Durable on return, or in an `overlapping_writes` block before the next
        publication.
        """
        ...

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """Create `path` with `data` atomically, unless it exists; a lost race returns `EXISTS`.

        `StorageUnavailable` and `Refused` mean that nothing was created; if that is uncertain, the outcome is `UNKNOWN`.
        """
        ...

    def overwrite(self, path: str, data: bytes) -> None:
        """Create or replace a small file, such as a hint, atomically for readers; the last writer wins."""
        ...

    def exists(self, path: str) -> bool: ...

    def file_size(self, path: str) -> int: ...

    def list_directory(self, path: str) -> list[FileStatus]:
        """The direct entries, in no particular order; empty if the directory does not exist."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file; a missing file is not an error."""
        ...

    def delete_directory(self, path: str) -> None:
        """Delete a directory and everything below it; a missing directory is not an error."""
        ...


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


def is_directory(storage: Storage, path: str) -> bool:
    """Whether the path is a directory, or begins the names of other objects."""
    parent, _, name = path.rstrip("/").rpartition("/")
    return any(entry.is_directory and entry.name == name for entry in storage.list_directory(parent or "/"))


class Verified(enum.Enum):
    """What a file holds after an attempt to create it with certain data."""

    OURS = enum.auto()
    """Our data: it was created now, or by an attempt whose answer was lost."""
    THEIRS = enum.auto()
    """Other data: another process has created it."""
    ABSENT = enum.auto()
    """Nothing yet. The storage gave no clear answer, so that the file may still appear."""
    UNCLEAR = enum.auto()
    """It cannot be read, or it is the beginning of our data, which may still be growing."""


def put_and_verify(storage: Storage, path: str, data: bytes) -> Verified:
    """`put_if_absent`, whose answer is not trusted unless it is "created": the file itself shows what happened."""
    return what_became(storage, path, data, storage.put_if_absent(path, data))


def what_became(storage: Storage, path: str, data: bytes, outcome: PutOutcome) -> Verified:
    """What a file holds after a put of `data` that has ended with `outcome`."""
    if outcome is PutOutcome.CREATED:
        return Verified.OURS
    try:
        found = storage.read_bytes(path)
    except FileNotFoundError:
        return Verified.ABSENT
    except StorageUnavailable:
        return Verified.UNCLEAR
    if found == data:
        return Verified.OURS
    return Verified.UNCLEAR if data.startswith(found) else Verified.THEIRS


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


def deleted_together(storage: Storage, paths: Sequence[str]) -> bool:
    """Delete files with few requests, if the store can, in no particular order; returns whether none of them is left.

    If not, the caller deletes them one by one, so that the error names a file that is left.
    """
    wrappers: list[WrappedStorage] = []
    while isinstance(storage, WrappedStorage) and not isinstance(storage, DeletesMany):
        if type(storage).delete is not WrappedStorage.delete:
            return False
        wrappers.append(storage)
        storage = storage.inner
    if not isinstance(storage, DeletesMany) or len(paths) < 2:
        return False
    for wrapper in wrappers:
        for path in paths:
            wrapper.before("delete", path)
    try:
        storage.delete_many(paths)
    except (StorageUnavailable, FileNotFoundError):
        return False
    return True


@dataclass
class Deletions:
    """What became of files that were to be deleted: how many are gone, and how many the storage refused, with the first error.

    One that is refused does not keep the others from being deleted.
    """

    deleted: int = 0
    refused: int = 0
    first: StorageUnavailable | None = None

    def add(self, other: Deletions) -> None:
        self.deleted += other.deleted
        self.refused += other.refused
        self.first = self.first or other.first

    def add_refusal(self, error: StorageUnavailable) -> None:
        self.add(Deletions(0, 1, error))

    def run(self, delete: Callable[[], int]) -> None:
        """Call what deletes files and returns their number. `FilesLeft` is noted, so that further files can be deleted."""
        try:
            self.deleted += delete()
        except FilesLeft as left:
            self.add(Deletions(left.deleted, left.refused, left))

    def check(self, hint: str = "") -> int:
        """The number of deleted files. Raises `FilesLeft` if any was refused; `hint` says how to delete them later."""
        first = self.first
        if first is None:
            return self.deleted
        why = first.why if isinstance(first, FilesLeft) else f"{first.what} ({first.why})"
        what = f"{counted(self.deleted, 'file')} deleted, {self.refused:,} refused"
        hint = hint or ("" if self.deleted and isinstance(first, RequestRefused) else first.hint)
        raise FilesLeft(what, why, hint, deleted=self.deleted, refused=self.refused, path=first.path) from first


def delete_each(
    storage: Storage, paths: Sequence[str], threads: int = 1, on_done: Callable[[int], None] | None = None
) -> Deletions:
    """Delete files one by one, in any order. Those that the storage refuses are counted; any other failure is raised at once.

    `on_done` is called with 1 for each deleted file.
    """
    done = Deletions()
    for refusal in in_parallel(partial(_refusal, storage), paths, threads):
        if refusal is not None:
            done.add_refusal(refusal)
            continue
        done.deleted += 1
        if on_done is not None:
            on_done(1)
    return done


def _refusal(storage: Storage, path: str) -> RequestRefused | None:
    """Delete a file; returns the error if the storage refuses that."""
    try:
        storage.delete(path)
    except RequestRefused as refusal:
        return refusal
    return None


def delete_all(storage: Storage, paths: Iterable[str], *, in_order: bool = False) -> None:
    """Delete all files, with few requests unless `in_order`; continues after failures, and raises `FilesLeft` at the end."""
    done, remaining = Deletions(), iter(paths)
    for portion in iter(lambda: list(islice(remaining, PIECES.deleted_files)), []):
        if not in_order and deleted_together(storage, portion):
            done.deleted += len(portion)
            continue
        for path in portion:
            try:
                storage.delete(path)
                done.deleted += 1
            except StorageUnavailable as error:
                done.add_refusal(error)
    done.check()


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
