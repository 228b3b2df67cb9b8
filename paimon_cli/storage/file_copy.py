"""Copies files from one store to another, or within one, and checks that the copy is whole.

Within a store that can do it, the bytes never pass through this process: an object store copies by itself, a local file is copied
by the kernel. The copy has the size that the source's metadata says, and on a store that tells checksums also the checksum.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Protocol, runtime_checkable

from paimon_cli.errors import DamagedFile, StorageUnavailable
from paimon_cli.pieces import PIECES
from paimon_cli.storage.capabilities import WrappedStorage, open_sized, overlapping_writes
from paimon_cli.storage.injected import Clock, SystemClock
from paimon_cli.storage.local_storage import errors_of
from paimon_cli.storage.storage import Storage
from paimon_cli.storage.threads import in_parallel

_AT_ONCE = 8
"""Files of one task that are copied at a time where each costs round trips."""


@runtime_checkable
class CopiesObjects(Protocol):
    """A store that copies its objects by itself."""

    def copy_object(self, path: str, target: str, size: int) -> bool:
        """Copy an object; returns False if the store cannot copy it there: to another bucket, or one that is too large."""
        ...


@runtime_checkable
class TellsChecksums(Protocol):
    """A store that tells the size and MD5 of an object."""

    def stored(self, path: str) -> tuple[int, str | None]:
        """The size of an object, and the MD5 of its content in hex; None if the store does not tell it."""
        ...


class Throttle:
    """Spreads copied bytes over time. Threads share it; a pickled copy starts anew."""

    def __init__(self, bytes_a_second: int, clock: Clock | None = None) -> None:
        self._bytes_a_second = bytes_a_second
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._free_at = 0.0

    def __reduce__(self) -> tuple[Any, ...]:
        return Throttle, (self._bytes_a_second, self._clock)

    def shared_by(self, processes: int) -> Throttle:
        """The throttle of one of several processes that copy at the same time."""
        return Throttle(max(1, self._bytes_a_second // processes), self._clock)

    def piece_of(self, size: int) -> int:
        """How much of `size` to copy at a time, so that no pause is long."""
        return max(1, min(size, self._bytes_a_second))

    def take(self, size: int) -> None:
        """Wait until `size` bytes may pass."""
        with self._lock:
            now = self._clock.now_millis() / 1000
            begins = max(now, self._free_at)
            self._free_at = begins + size / self._bytes_a_second
        if begins > now:
            self._clock.sleep(begins - now)


@dataclass(frozen=True)
class FileToCopy:
    """A file by its path below both roots. `size`: by the metadata that names it; None if that does not say. `renamed`: the path
    of the copy, if it is another one.
    """

    path: str
    size: int | None = None
    renamed: str | None = None


@dataclass(frozen=True)
class Copied:
    """What a task has copied. `missing`: paths of files that are not there any more, of which no copy was begun."""

    files: int = 0
    size: int = 0
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class FileCopy:
    """Copies files below one root to the same place below another. Picklable: it is what tasks of an engine run."""

    source: Storage
    source_root: str
    target: Storage
    target_root: str
    replaces: bool = False
    """Whether a file that exists at the target is the beginning of a copy that was killed; otherwise it is another job's."""
    throttle: Throttle | None = field(default=None, compare=False)

    def copy_all(self, files: Sequence[FileToCopy]) -> Copied:
        """Copy files, several at once where each costs round trips. They are durable on return."""
        at_once = _AT_ONCE if self.source.is_remote or self.target.is_remote else 1
        done, size, missing = 0, 0, list[str]()
        with overlapping_writes(self.target):
            for file, copied in zip(files, in_parallel(self._copied, files, at_once), strict=True):
                if copied is None:
                    missing.append(file.path)
                else:
                    done, size = done + 1, size + copied
        return Copied(done, size, tuple(missing))

    def _copied(self, file: FileToCopy) -> int | None:
        """The size of the copy; None if the source does not exist."""
        try:
            return self.copy(file)
        except FileNotFoundError:
            return None

    def copy(self, file: FileToCopy) -> int:
        """Copy one file; returns its size.

        Raises `FileNotFoundError` if the source does not exist, `DamagedFile` if it has another size than its metadata says.
        """
        source, target = f"{self.source_root}/{file.path}", f"{self.target_root}/{file.renamed or file.path}"
        is_told = file.size is not None and self.source.is_remote  # it costs a request to ask; the bytes are counted anyway
        size = file.size if file.size is not None and is_told else self.source.file_size(source)
        if size != (size if file.size is None else file.size):
            why = f"it has {size:,} bytes, and the metadata of the table says {file.size:,}"
            raise DamagedFile(f"{source} is damaged", why, path=source)
        if not self._was_copied_there(source, target, size):
            self._check(source, target, size, self._stream(source, target, size))
        return size

    def _was_copied_there(self, source: str, target: str, size: int) -> bool:
        """Whether the store has made the whole copy by itself. Some that imitate others take the request for something else."""
        if not self._copies_itself(source, target, size):
            return False
        try:
            self._check(source, target, size, _stored_digest(self.source, source))
        except StorageUnavailable:
            return False
        return True

    def _copies_itself(self, source: str, target: str, size: int) -> bool:
        here, there = _innermost(self.source), _innermost(self.target)
        if not isinstance(here, CopiesObjects) or here != there:
            return False
        if self.throttle is not None:
            self.throttle.take(size)
        return here.copy_object(source, target, size)

    def _stream(self, source: str, target: str, size: int) -> str | None:
        """Copy the bytes; returns their MD5 if the target can tell that of the copy. A file that grows meanwhile is cut off."""
        digest = hashlib.md5(usedforsecurity=False) if isinstance(_innermost(self.target), TellsChecksums) else None
        with open_sized(self.source, source, size) as reader:
            if self.replaces and not self.target.is_remote:
                self.target.delete(target)
            try:
                with self.target.open_output(target) as writer, errors_of(target):
                    copied = self._pass(reader, writer, size, digest)
                    if copied != size:
                        why = f"it has {size:,} bytes, and ends after {copied:,}"
                        raise DamagedFile(f"{source} is damaged", why, path=source)
            except FileNotFoundError:  # on an object store the first read may be the first to notice
                if not self.target.is_remote:
                    self.target.delete(target)
                raise
        return None if digest is None else digest.hexdigest()

    def _pass(self, reader: BinaryIO, writer: BinaryIO, size: int, digest: Any) -> int:
        """Pass bytes from one file to the other; returns how many there were."""
        piece = PIECES.request_bytes if self.source.is_remote else PIECES.copied_bytes
        piece = piece if self.throttle is None else self.throttle.piece_of(piece)
        in_kernel = digest is None and hasattr(os, "copy_file_range") and _has_descriptor(reader) and _has_descriptor(writer)
        copied = 0
        while copied < size:
            wanted = min(piece, size - copied)
            if self.throttle is not None:
                self.throttle.take(wanted)
            passed = _in_kernel(reader, writer, wanted) if in_kernel else None
            if passed is None:
                in_kernel = False
                block = reader.read(wanted)
                passed = len(block)
                writer.write(block)
                if digest is not None:
                    digest.update(block)
            if not passed:
                break
            copied += passed
        return copied

    def _check(self, source: str, target: str, size: int, digest: str | None) -> None:
        """Raise `StorageUnavailable` if the store does not hold the same. Local files were counted when they were written."""
        there = _innermost(self.target)
        if not self.target.is_remote:
            return
        found, checksum = there.stored(target) if isinstance(there, TellsChecksums) else (self.target.file_size(target), None)
        if found != size:
            why = f"the store has {found:,} bytes of {size:,}"
            raise StorageUnavailable(f"{target} is not a copy of {source}", why, "run the command again", path=target)
        if digest is None or checksum is None or digest == checksum or _digest_of(self.target, target) == digest:
            return  # what looks like an MD5 is something else where the store encrypts, so that the content decides
        why = "the checksum of what the store has is another one"
        raise StorageUnavailable(f"{target} is not a copy of {source}", why, "run the command again", path=target)


def tasks_of(files: Iterable[FileToCopy]) -> Iterator[tuple[FileToCopy, ...]]:
    """Cut files into tasks of a limited number of files and bytes."""
    task: list[FileToCopy] = []
    size = 0
    for file in files:
        if task and (len(task) >= PIECES.copied_task_files or size + (file.size or 0) > PIECES.copied_task_bytes):
            yield tuple(task)
            task, size = [], 0
        task.append(file)
        size += file.size or 0
    if task:
        yield tuple(task)


def tasks_at_most(files: Sequence[FileToCopy], count: int) -> list[tuple[FileToCopy, ...]]:
    """Cut files into a number of tasks, or fewer."""
    return [tuple(part) for start in range(min(count, len(files))) if (part := files[start::count])]


_NOT_IN_KERNEL = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""What file systems answer that do not copy in the kernel, or not to another one."""


def _in_kernel(reader: BinaryIO, writer: BinaryIO, wanted: int) -> int | None:
    """Copy the next bytes without taking them into this process; None if the file systems cannot."""
    try:
        return os.copy_file_range(reader.fileno(), writer.fileno(), wanted)
    except OSError as error:
        if error.errno in _NOT_IN_KERNEL:
            return None
        raise


def _has_descriptor(stream: BinaryIO) -> bool:
    try:
        return stream.fileno() >= 0
    except (OSError, AttributeError):
        return False


def _stored_digest(storage: Storage, path: str) -> str | None:
    inner = _innermost(storage)
    return inner.stored(path)[1] if isinstance(inner, TellsChecksums) else None


def _digest_of(storage: Storage, path: str) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with storage.open_input(path) as reader:
        while block := reader.read(PIECES.copied_bytes):
            digest.update(block)
    return digest.hexdigest()


def _innermost(storage: Storage) -> Storage:
    while isinstance(storage, WrappedStorage):
        storage = storage.inner
    return storage
