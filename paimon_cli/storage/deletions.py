"""Deleting files: many with few requests, and what became of those that the storage refused to delete."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from paimon_cli.errors import FilesLeft, RequestRefused, StorageUnavailable
from paimon_cli.options.option_text import counted
from paimon_cli.pieces import PIECES
from paimon_cli.storage.capabilities import DeletesMany, WrappedStorage
from paimon_cli.storage.storage import Storage
from paimon_cli.storage.threads import in_parallel


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
