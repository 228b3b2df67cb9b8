"""Files outside of tables: temporary directories, and output files that appear complete or not at all.

Temporary directories are removed when their process ends; those of a killed process are removed by the next one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from paimon_cli.errors import NotSupported, StorageUnavailable, UsageError
from paimon_cli.pieces import PIECES
from paimon_cli.storage.capabilities import WrappedStorage, open_sized
from paimon_cli.storage.catalog_options import OBJECT_STORES
from paimon_cli.storage.injected import RandomSource, SystemRandom
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import Storage, temporary_name
from paimon_cli.storage.storage_for_url import storage_for_url

_PREFIX = "paimon-cli-"
IN_USE = ".in-use"


class ScratchDirectory:
    """A new directory `paimon-cli-PURPOSE-*` in `parent`, by default the system's temporary directory (TMPDIR).

    It is removed with its content by `remove`, at the end of the `with` block, or when the process ends.
    """

    def __init__(self, purpose: str, parent: str | None = None) -> None:
        directory = Path(parent or tempfile.gettempdir())
        _remove_abandoned(directory)
        self.path = directory / f"{_PREFIX}{purpose}-{SystemRandom().uuid()}"
        hidden = self.path.with_name(f".{self.path.name}")
        lock = contextlib.ExitStack()
        self._removal = weakref.finalize(
            self, _remove, (hidden, self.path), lock, os.getpid()
        )  # first, as a signal may end it anywhere
        hidden.mkdir(0o700)
        _hold(hidden / IN_USE, lock)
        hidden.rename(self.path)  # other processes test the lock of directories with this name; it is held by now

    def remove(self) -> None:
        self._removal()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.remove()


class ScratchStorage(WrappedStorage):
    """A read-only view of a storage: new files go to a scratch directory, by file name, and are readable by their paths.

    Existing files are read from `inner`, which is never written to.
    """

    def __init__(self, inner: Storage, scratch: ScratchDirectory | Path) -> None:
        super().__init__(inner)
        self._scratch = scratch  # keeps the directory alive as long as this storage
        self._directory = scratch if isinstance(scratch, Path) else scratch.path
        self._files = LocalStorage()

    def __reduce__(self) -> tuple[type[ScratchStorage], tuple[Storage, Path]]:
        """Copies work in other processes of this machine, as long as the original keeps the directory."""
        return ScratchStorage, (self.inner, self._directory)

    def _own(self, path: str) -> str | None:
        own = self._directory / path.rpartition("/")[2]
        if not self._directory.exists():
            raise NotSupported(
                f"{own} is on another machine",
                "scratch files are local to one machine",
                "compact the table, or use --engine local",
            )
        return str(own) if own.exists() else None

    def open_output(self, path: str) -> BinaryIO:
        return self._files.open_output(str(self._directory / path.rpartition("/")[2]))

    def write_new(self, path: str, data: bytes) -> None:
        self._files.write_new(str(self._directory / path.rpartition("/")[2]), data)

    def read_bytes(self, path: str) -> bytes:
        own = self._own(path)
        return self.inner.read_bytes(path) if own is None else self._files.read_bytes(own)

    def open_input(self, path: str) -> BinaryIO:
        own = self._own(path)
        return self.inner.open_input(path) if own is None else self._files.open_input(own)

    def open_sized(self, path: str, size: int) -> BinaryIO:
        own = self._own(path)
        return open_sized(self.inner, path, size) if own is None else self._files.open_input(own)

    def exists(self, path: str) -> bool:
        return self._own(path) is not None or self.inner.exists(path)

    def file_size(self, path: str) -> int:
        own = self._own(path)
        return self.inner.file_size(path) if own is None else self._files.file_size(own)

    def delete(self, path: str) -> None:
        own = self._own(path)
        if own is not None:
            self._files.delete(own)


def _hold(path: Path, held: contextlib.ExitStack) -> None:
    """Create and lock a file until `held` is closed.

    On a file system without locks the file is removed again; other processes never remove a directory without it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        path.unlink()
    else:
        held.callback(os.close, descriptor)


def _remove(paths: Iterable[Path], lock: contextlib.ExitStack, owner: int) -> None:
    if os.getpid() != owner:  # in a forked child of the owner
        return
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)  # leftovers in a temporary directory do no harm
    lock.close()


def _remove_abandoned(directory: Path) -> None:
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):  # in use, another user's, without a lock, or removed by another process
                    _remove_if_free(Path(entry.path))


def _remove_if_free(directory: Path) -> None:
    if directory.stat().st_uid != os.getuid():
        return
    lock = os.open(directory / IN_USE, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(directory, ignore_errors=True)
    finally:
        os.close(lock)


FORCE = "--force replaces it"


@contextlib.contextmanager
def whole_file(
    url: str, options: Mapping[str, Any], random: RandomSource, *, replace: bool = False, make_parents: bool = False
) -> Iterator[BinaryIO]:
    """A file that appears, complete, when the block ends; if the block fails, no file is left.

    Raises `UsageError` if the path exists and is not a regular file, or is one and `replace` is False.
    """
    storage, path = storage_for_url(url, options)
    if isinstance(storage, LocalStorage):
        if make_parents:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        with _local_file(url, os.path.realpath(path), random, replace) as sink:
            yield sink
        return
    if not replace and storage.exists(path):
        raise _exists(url)
    with tempfile.TemporaryFile(prefix="paimon-cli-output-") as spool:
        yield spool  # spooled, because closing the writer of a store publishes even incomplete content
        spool.seek(0)
        _send(spool, storage, path, replace)


@contextlib.contextmanager
def _local_file(url: str, path: str, random: RandomSource, replace: bool) -> Iterator[BinaryIO]:
    """Write to a temporary file next to `path` first. `path` has links resolved, so that a link is kept, not replaced."""
    _check_target(url, path, replace)
    directory, name = os.path.split(path)
    temporary = f"{directory}/{temporary_name(name, random.uuid())}"
    try:
        sink = open(temporary, "xb")  # noqa: SIM115
    except OSError as error:
        raise UsageError(f"cannot write {url}", error.strerror or str(error)) from error
    try:
        with sink:
            yield sink
            sink.flush()
            os.fsync(sink.fileno())
        if replace:
            os.replace(temporary, path)
        else:
            os.link(temporary, path)
    except FileExistsError:
        raise _exists(url) from None
    except OSError as error:
        raise StorageUnavailable(f"cannot write {url}", error.strerror or str(error)) from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _check_target(url: str, path: str, replace: bool) -> None:
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    if not stat.S_ISREG(found.st_mode):
        what = "a directory" if stat.S_ISDIR(found.st_mode) else "not a regular file"
        raise UsageError(f"cannot write {url}", f"it is {what}", "name a file")
    if not replace:
        raise _exists(url)


def _send(spool: BinaryIO, storage: Storage, path: str, replace: bool) -> None:
    """Upload the file. Object stores replace the old object atomically; elsewhere the old file is deleted first."""
    replaces_atomically = replace and path.split("://")[0] in OBJECT_STORES
    if replace and not replaces_atomically:
        storage.delete(path)
    try:
        with storage.open_output(path) as sink:
            shutil.copyfileobj(spool, sink, PIECES.copied_bytes)
    except BaseException:
        if not replaces_atomically:
            storage.delete(path)
        raise


def _exists(url: str) -> UsageError:
    return UsageError(f"{url} exists", "nothing was written", FORCE)
