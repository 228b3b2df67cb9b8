"""Directories for temporary files of this process, and the removal of those that killed processes left.

A process that is killed cannot clean up. So each directory holds a file that its process keeps locked; the system releases the
lock however the process ends. Whoever makes a directory first removes those beside it whose lock is free.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from types import TracebackType

PREFIX = "paimon-cli-"
LOCK = ".in-use"


class ScratchDirectory:
    """A new directory `paimon-cli-PURPOSE-*` below `parent`, or else the system's directory for temporary files (TMPDIR).

    `remove`, the end of the `with` block or the end of the process takes it away with all that it holds.
    """

    def __init__(self, purpose: str, parent: str | None = None) -> None:
        beside = Path(parent or tempfile.gettempdir())
        _remove_abandoned(beside)
        hidden = Path(tempfile.mkdtemp(prefix=f".{PREFIX}{purpose}-", dir=beside))
        lock = _locked(hidden / LOCK)
        self.path = hidden.with_name(hidden.name[1:])
        hidden.rename(self.path)  # under this name others look at the lock, which is held by now
        self._removal = weakref.finalize(self, _remove, self.path, lock, os.getpid())

    def remove(self) -> None:
        self._removal()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.remove()


def _locked(path: Path) -> int | None:
    """The descriptor that holds the lock; None on a file system without locks: then there is no file, and nobody else removes."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        path.unlink()
        return None
    return descriptor


def _remove(path: Path, lock: int | None, owner: int) -> None:
    if os.getpid() != owner:  # a fork of the owner
        return
    shutil.rmtree(path, ignore_errors=True)  # temporary files: nobody misses them, or finds them
    if lock is not None:
        os.close(lock)


def _remove_abandoned(beside: Path) -> None:
    with contextlib.suppress(OSError), os.scandir(beside) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):  # in use, another user's, without a lock, or removed by another process
                    _remove_if_free(Path(entry.path))


def _remove_if_free(directory: Path) -> None:
    if directory.stat().st_uid != os.getuid():
        return
    lock = os.open(directory / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(directory, ignore_errors=True)
    finally:
        os.close(lock)
