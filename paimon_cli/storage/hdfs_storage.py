"""HDFS. A snapshot is published by a rename that the name node does in one step and never over an existing file.

pyarrow has no such rename, so Hadoop's own C library is called for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from paimon_cli.errors import StorageUnavailable
from paimon_cli.storage.clock_and_random import RandomSource
from paimon_cli.storage.fsspec_storage import FsspecStorage
from paimon_cli.storage.storage import PutOutcome

_DIRECTORIES = (("ARROW_LIBHDFS_DIR", ""), ("HADOOP_HOME", "lib/native"))
"""Where pyarrow looks, too: variable, directory below it."""


class LibhdfsRename:
    """`rename(source, target)` on the name node of a URL. `user` and `kerb_ticket` as fsspec has them."""

    def __init__(self, url: str, options: Mapping[str, Any], library: Any = None) -> None:
        self._library = library or _load()
        builder = self._library.hdfsNewBuilder()
        texts: list[bytes] = []  # the builder keeps pointers, so these must live until it has connected

        def text(value: object) -> bytes:
            texts.append(str(value).encode())
            return texts[-1]

        user_info, _, place = urlsplit(url).netloc.rpartition("@")
        host, _, port = place.partition(":")
        self._library.hdfsBuilderSetNameNode(builder, text(host or "default"))
        self._library.hdfsBuilderSetNameNodePort(builder, int(port or 0))
        if user := options.get("user") or user_info.partition(":")[0]:
            self._library.hdfsBuilderSetUserName(builder, text(user))
        if ticket := options.get("kerb_ticket"):
            self._library.hdfsBuilderSetKerbTicketCachePath(builder, text(ticket))
        self._connection = self._library.hdfsBuilderConnect(builder)
        if not self._connection:
            raise StorageUnavailable(f"no connection to the name node {place}", os.strerror(ctypes.get_errno()))

    def __call__(self, source: str, target: str) -> bool:
        if self._library.hdfsRename(self._connection, source.encode(), target.encode()) == 0:
            return True
        code = ctypes.get_errno()
        if code in (errno.EIO, errno.EEXIST):  # Java's `rename` returned false or raised
            return False
        raise OSError(code, os.strerror(code), target)


def _load() -> Any:
    directories = [os.path.join(os.environ[name], below) for name, below in _DIRECTORIES if os.environ.get(name)]
    paths = [path for path in (os.path.join(directory, "libhdfs.so") for directory in directories) if os.path.isfile(path)]
    try:
        library = ctypes.CDLL(paths[0] if paths else "libhdfs.so", use_errno=True)
    except OSError as error:
        raise StorageUnavailable(
            "cannot find Hadoop's libhdfs", str(error), "set HADOOP_HOME and CLASSPATH (hadoop classpath --glob)"
        ) from error
    handle, text = ctypes.c_void_p, ctypes.c_char_p
    library.hdfsNewBuilder.restype = handle
    library.hdfsBuilderSetNameNode.argtypes = [handle, text]
    library.hdfsBuilderSetNameNodePort.argtypes = [handle, ctypes.c_uint16]
    library.hdfsBuilderSetUserName.argtypes = [handle, text]
    library.hdfsBuilderSetKerbTicketCachePath.argtypes = [handle, text]
    library.hdfsBuilderConnect.argtypes, library.hdfsBuilderConnect.restype = [handle], handle
    library.hdfsRename.argtypes = [handle, text, text]
    return library


Rename = Callable[[str, str], bool]
"""Rename from, to: False if the target exists. `OSError`: the outcome is unknown."""


class HdfsStorage(FsspecStorage):
    """`Storage` over `hdfs://` (pyarrow and libhdfs) and `webhdfs://` (REST) URLs.

    pyarrow's own `move` is of no use for commits: where the target is a file, it deletes that and renames once more.
    """

    def __init__(
        self, url: str, options: Mapping[str, Any] | None = None, random: RandomSource | None = None, rename: Rename | None = None
    ) -> None:
        super().__init__(url, options, random)
        self._given_rename = rename

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        temporary = self._temporary(path)
        self.write_new(temporary, data)
        try:
            if self._rename(temporary, path):
                return PutOutcome.CREATED
            outcome = PutOutcome.EXISTS
        except OSError:
            outcome = PutOutcome.UNKNOWN
        with contextlib.suppress(StorageUnavailable):
            self.delete(temporary)
        return outcome

    def _rename(self, source: str, target: str) -> bool:
        if self._given_rename is None:
            self._given_rename = self._rename_of_protocol()
        return self._given_rename(self._inner(source), self._inner(target))

    def _rename_of_protocol(self) -> Rename:
        if self._protocol == "webhdfs":
            return self._rename_by_rest

        return LibhdfsRename(self._url, self._options)

    def _rename_by_rest(self, source: str, target: str) -> bool:
        """WebHDFS answers `{"boolean": false}` when the target exists."""
        try:
            return bool(self._fs._call("RENAME", method="put", path=source, destination=target).json()["boolean"])
        except (RuntimeError, ValueError) as error:  # how fsspec reports the answer of the name node
            raise OSError(str(error)) from error
