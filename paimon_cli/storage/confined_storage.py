"""The local file system below one table: a symbolic link that leads out of the table is not followed."""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO

from paimon_cli.errors import DamagedFile
from paimon_cli.storage.clock_and_names import Names
from paimon_cli.storage.local_storage import LocalStorage, errors_of
from paimon_cli.storage.storage import FileStatus, PutOutcome


class ConfinedStorage(LocalStorage):
    """`LocalStorage` that refuses (`DamagedFile`) paths below `root` which lie elsewhere in truth. Other paths are as ever.

    The root itself may be reached through links: where the user keeps the table is not the table's matter.
    """

    def __init__(self, root: str, names: Names | None = None) -> None:
        super().__init__(names)
        self._root = root
        self._real_root = os.path.realpath(root)
        self._checked: set[str] = set()

    def __reduce__(self) -> tuple[type[ConfinedStorage], tuple[str]]:
        return ConfinedStorage, (self._root,)

    def open_input(self, path: str) -> BinaryIO:
        """Files only: to open a pipe would wait for its writer, for ever."""
        self._check(path, follows=True)
        with errors_of(path):
            return open(path, "rb", opener=_open_regular)

    def open_output(self, path: str) -> BinaryIO:
        self._check(path)
        return super().open_output(path)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        self._check(path)
        return super().put_if_absent(path, data)

    def overwrite(self, path: str, data: bytes) -> None:
        self._check(path)
        super().overwrite(path, data)

    def file_size(self, path: str) -> int:
        self._check(path, follows=True)
        return super().file_size(path)

    def list_directory(self, path: str) -> list[FileStatus]:
        self._check(path, follows=True)
        return super().list_directory(path)

    def delete(self, path: str) -> None:
        self._check(path)
        super().delete(path)

    def delete_directory(self, path: str) -> None:
        self._check(path)
        super().delete_directory(path)

    def _check(self, path: str, follows: bool = False) -> None:
        """Look at the directory, once each; with `follows` at the last name too, when the operation would follow a link there."""
        if not path.startswith(f"{self._root}/"):
            return
        directory = os.path.dirname(path)
        if directory not in self._checked:
            self._refuse_outside(directory, path)
            self._checked.add(directory)
        if follows and os.path.islink(path):
            self._refuse_outside(path, path)

    def _refuse_outside(self, place: str, path: str) -> None:
        real = os.path.realpath(place)
        if real != self._real_root and not real.startswith(f"{self._real_root}/"):
            raise DamagedFile(
                f"{path} lies outside of the table",
                f"a symbolic link leads to {real}",
                "put the file itself there, or delete the link",
                path=path,
            )


def _open_regular(path: str, flags: int) -> int:
    """`DamagedFile` for directories, pipes, sockets and devices, without waiting for data from them."""
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise _no_file(path, "it is a socket, or a device without a driver") from None
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind != stat.S_IFREG:
        os.close(descriptor)
        raise _no_file(path, f"it is {_KINDS.get(kind, 'something else')}")
    return descriptor


def _no_file(path: str, why: str) -> DamagedFile:
    return DamagedFile(f"{path} is not a file", why, "move it away", path=path)


_KINDS = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a named pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
