"""The local file system. A snapshot is published by a hard link, which fails if the name exists.

`ConfinedStorage` restricts access to one table: symbolic links inside the table must not lead outside.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import BinaryIO

from paimon_cli.errors import ASK_FOR_ACCESS, NO_ACCESS, DamagedFile, NoAccess, Refused, StorageUnavailable, UsageError
from paimon_cli.pieces import PIECES
from paimon_cli.storage.background_writes import BackgroundWrites
from paimon_cli.storage.injected import RandomSource, SystemRandom
from paimon_cli.storage.read_bounds import check_size
from paimon_cli.storage.storage import FileStatus, PutOutcome, temporary_name
from paimon_cli.storage.time_bounds import check_time

_MAX_REMOVALS = 20
"""How often the directory of a new file is created, if others remove it while it is empty."""
_SHOWN = 40
"""Characters shown of a name that is too long."""
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


class LocalStorage:
    """`Storage` over absolute paths. Writes survive a power failure: file and directory are synced before a call returns, or in a
    `capabilities.overlapping_writes` block before the next publication.
    """

    is_remote = False

    def __init__(self, random: RandomSource | None = None) -> None:
        self._random = random or SystemRandom()
        self._syncs = BackgroundWrites("sync", PIECES.max_unsynced_files, _sync_if_present)

    def overlapping_writes(self) -> AbstractContextManager[None]:
        """See `capabilities.OverlapsWrites`. All operations see new files at once, whether or not they are on disk."""
        return self._syncs.block()

    def settle(self) -> None:
        """See `capabilities.OverlapsWrites`."""
        self._syncs.settle()

    def read_bytes(self, path: str) -> bytes:
        """Read regular files only, because opening a pipe might wait for its writer forever."""
        self._check(path, follows=True)
        with errors_of(path), open(path, "rb", opener=open_regular) as source:
            check_size(path, os.fstat(source.fileno()).st_size)
            return source.read()

    def open_input(self, path: str) -> BinaryIO:
        """Open a file or a pipe, because input files may be pipes."""
        with errors_of(path):
            try:
                return open(path, "rb")
            except IsADirectoryError:
                raise DamagedFile(f"{path} is not a file", "it is a directory", path=path) from None

    def open_output(self, path: str) -> BinaryIO:
        self._check(path)
        return _new_file(path, self._syncs)

    def write_new(self, path: str, data: bytes) -> None:
        with self.open_output(path) as sink:
            sink.write(data)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        self._check(path)
        self.settle()
        with self._temporary(path, data) as temporary:
            outcome = _link(temporary, path)
        try:
            _sync_directory(os.path.dirname(path))
        except OSError:
            return PutOutcome.UNKNOWN if outcome is PutOutcome.CREATED else outcome
        return outcome

    def overwrite(self, path: str, data: bytes) -> None:
        self._check(path)
        self.settle()
        with self._temporary(path, data) as temporary, errors_of(path):
            os.replace(temporary, path)
            _sync_directory(os.path.dirname(path))

    def swap(self, path: str, expected: bytes, data: bytes) -> bool:
        """See `capabilities.SwapsFiles`. A lock beside the file excludes others; the kernel releases it if its holder dies."""
        import fcntl

        directory, name = os.path.split(path)
        with errors_of(path):
            lock = os.open(f"{directory}/.{name}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            with errors_of(path):
                fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                if self.read_bytes(path) != expected:
                    return False
            except FileNotFoundError:
                return False
            self.overwrite(path, data)
            return True
        finally:
            os.close(lock)

    def exists(self, path: str) -> bool:
        with errors_of(path):
            try:
                os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                return False
            return True

    def file_size(self, path: str) -> int:
        self._check(path, follows=True)
        with errors_of(path):
            return os.stat(path).st_size

    def list_directory(self, path: str) -> list[FileStatus]:
        self._check(path, follows=True)
        found = []
        try:
            with errors_of(path), os.scandir(path) as entries:
                for number, entry in enumerate(entries):
                    if number % PIECES.entries_between_checks == 0:
                        check_time()
                    with contextlib.suppress(FileNotFoundError):  # deleted since the directory was read
                        found.append(_status(entry))
        except FileNotFoundError:
            return []
        return found

    def delete(self, path: str) -> None:
        self._check(path)
        with contextlib.suppress(FileNotFoundError), errors_of(path):
            os.unlink(path)

    def delete_directory(self, path: str) -> None:
        self._check(path)
        with contextlib.suppress(FileNotFoundError), errors_of(path):
            for attempt in range(_MAX_REMOVALS):
                try:
                    return shutil.rmtree(path)
                except OSError as error:  # another job has added a file meanwhile
                    if error.errno != errno.ENOTEMPTY or attempt == _MAX_REMOVALS - 1:
                        raise

    def remove_empty_directory(self, path: str) -> bool:
        """See `capabilities.remove_empty_directory`."""
        try:
            os.rmdir(path)
        except OSError as error:
            return error.errno == errno.ENOENT
        return True

    def link_target(self, path: str) -> str | None:
        """See `capabilities.HasLinks`."""
        with errors_of(path):
            return os.readlink(path) if os.path.islink(path) else None

    def link_file(self, path: str, target: str) -> None:
        """See `capabilities.LinksFiles`."""
        self._check(target)
        self._check(path)
        with errors_of(target):
            _make_directory(os.path.dirname(target))
            os.link(path, target, follow_symlinks=False)

    def can_link(self, directory: str, target: str) -> bool:
        """See `capabilities.LinksFiles`: on one file system."""
        there = target
        while not os.path.isdir(there) and there != os.path.dirname(there):
            there = os.path.dirname(there)
        with errors_of(directory):
            return os.stat(directory).st_dev == os.stat(there).st_dev

    def make_directory(self, path: str) -> None:
        """See `capabilities.MovesDirectories`."""
        with errors_of(path):
            _make_directory(path)

    def move_directory(self, path: str, target: str) -> None:
        """See `capabilities.MovesDirectories`. A rename never replaces a directory that is not empty."""
        with errors_of(path):
            _make_directory(os.path.dirname(target))
            os.rename(path, target)
            _sync_directory(os.path.dirname(target))
            _sync_directory(os.path.dirname(path))

    def sync_directory(self, path: str) -> None:
        """See `capabilities.SyncsDirectories`."""
        _sync_if_present(path)

    def _check(self, path: str, follows: bool = False) -> None:
        """Hook: raise if `path` must not be accessed. `follows`: whether the operation follows a symbolic link at `path`."""

    @contextlib.contextmanager
    def _temporary(self, path: str, data: bytes) -> Iterator[str]:
        """A synced file with `data` next to `path`, deleted at the end of the block if it still exists."""
        directory, name = os.path.split(path)
        temporary = f"{directory}/{temporary_name(name, self._random.uuid())}"
        try:
            with _new_file(temporary, None) as sink:
                sink.write(data)
            yield temporary
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _new_file(path: str, syncs: BackgroundWrites | None) -> BinaryIO:
    """`syncs`: None for a temporary file, whose content is synced when it is closed, and whose name need not be."""
    with errors_of(path):
        for _ in range(_MAX_REMOVALS):
            with contextlib.suppress(FileNotFoundError):  # another job removed the directory while it was empty
                _make_directory(os.path.dirname(path), syncs)
                return _DurableFile(path, syncs)
        raise FileNotFoundError(errno.ENOENT, "its directory was removed again and again", path)


class _DurableFile(io.BufferedWriter):
    """A new file that is on disk, with its name, once `close` has returned, or is then left to the open block of `syncs`."""

    def __init__(self, path: str, syncs: BackgroundWrites | None) -> None:
        self._path = path
        self._syncs = syncs
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        super().__init__(io.FileIO(self._descriptor, "wb", closefd=False), PIECES.write_buffer_bytes)

    def write(self, data: object) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError as error:
            with errors_of(self._path):
                raise error

    def close(self) -> None:
        if self.closed:
            return
        try:
            with errors_of(self._path):
                self.flush()
        except BaseException:
            os.close(self._descriptor)
            raise
        finally:
            self.raw.close()
        if self._syncs is None or not self._syncs.begin(self._path, 1, _sync_file, self._path, self._descriptor):
            _sync_file(self._path, self._descriptor)
            if self._syncs is not None:
                with errors_of(self._path):
                    _sync_directory(os.path.dirname(self._path))


def _sync_file(path: str, descriptor: int) -> None:
    """Sync a file and close its descriptor."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        with errors_of(path):
            raise error
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def errors_of(path: str) -> Iterator[None]:
    """Translate errors: missing files remain `FileNotFoundError`, all other failures are `StorageUnavailable`.

    Where trying again cannot help, they are others: `NoAccess` for what the user may not read or write, `UsageError` for file
    names that are too long, `DamagedFile` for links that lead to themselves.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except NotADirectoryError as error:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise _too_long(path) from error
        if error.errno == errno.ELOOP:
            raise DamagedFile(f"{path} leads nowhere", "it is, or is below, a link to itself", path=path) from error
        if error.errno in NO_ACCESS:
            raise NoAccess(f"the file system refused {path}", error.strerror or str(error), ASK_FOR_ACCESS, path=path) from error
        raise StorageUnavailable(f"the file system refused {path}", error.strerror or str(error), path=path) from error


def _too_long(path: str) -> UsageError:
    longest = max(path.split("/"), key=len)
    what = f"a name of {len(longest):,} characters is too long for the file system: {longest[:_SHOWN]}..."
    return UsageError(what, "most file systems take 255 bytes, 42 of them for the temporary name of a new file", path=path)


def _link(temporary: str, path: str) -> PutOutcome:
    try:
        os.link(temporary, path)
    except FileExistsError:
        return PutOutcome.EXISTS
    except OSError as error:
        if error.errno in _NO_LINKS:
            raise Refused(
                f"no safe commit at {os.path.dirname(path)}",
                f"this file system makes no hard links ({error.strerror}), so concurrent commits could not be detected",
                "keep the table on a file system with hard links",
            ) from error
        return PutOutcome.UNKNOWN
    return PutOutcome.CREATED


def _make_directory(path: str, syncs: BackgroundWrites | None = None) -> None:
    """Create a directory and its parents, syncing the parent of each new directory."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    _make_directory(parent, syncs)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
        if syncs is None or not syncs.finishes(parent):
            _sync_directory(parent)


def _sync_if_present(path: str) -> None:
    with contextlib.suppress(FileNotFoundError), errors_of(path):
        _sync_directory(path)


def _sync_directory(path: str) -> None:
    descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _status(entry: os.DirEntry[str]) -> FileStatus:
    # Links are not followed, so that deleting or walking a directory never leaves the table.
    status = entry.stat(follow_symlinks=False)
    return FileStatus(
        entry.path, entry.name, status.st_size, entry.is_dir(follow_symlinks=False), status.st_mtime_ns // 1_000_000
    )


def open_regular(path: str, flags: int) -> int:
    """Open a regular file. Raises `DamagedFile` for directories, pipes, sockets and devices, without blocking on them."""
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise _not_a_file(path, "it is a socket, or a device without a driver") from None
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind != stat.S_IFREG:
        os.close(descriptor)
        raise _not_a_file(path, f"it is {_KINDS.get(kind, 'something else')}")
    return descriptor


def _not_a_file(path: str, why: str) -> DamagedFile:
    return DamagedFile(f"{path} is not a file", why, "move it away", path=path)


_KINDS = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a named pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
