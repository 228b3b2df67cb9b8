"""Finds the files of a directory whose directories are partitions, as Hive and Spark write them.

A source is not trusted: no name in it leads elsewhere (`Footers` refuses links).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from urllib.parse import unquote

from paimon_cli.errors import BadInput, NotFound, NotSupported, UsageError
from paimon_cli.jobs.adoption.source import HIVE_NULL, AdoptedFile, Source
from paimon_cli.storage.storage import FileStatus, Storage
from paimon_cli.storage.threads import in_parallel

_MAX_LEVELS = 15
"""The most directories of partitions, one in another."""


_LOGS = {
    "_delta_log": ("a Delta table", "log"),
    ".hoodie": ("a Hudi table", "timeline"),
    "metadata": ("an Iceberg table", "metadata"),
}
"""A name in the directory of a table -> what the table is, and what says which of its files count."""


def expect_no_log(directory: str, names: Collection[str]) -> None:
    """Raise `NotSupported` if a name says that a log decides which of the files count."""
    for name, (what, log) in _LOGS.items():
        if name in names:
            hint = "let its own engine write the rows into a table of Paimon, or export them as Parquet files"
            if name == "metadata":
                hint = f"adopt the whole table, {directory}"
            raise NotSupported(f"{directory} is {what}", f"only its {log} says which of its files count", hint)


class PartitionWalk:
    """Walks through directories of partitions, level by level."""

    def __init__(self, storage: Storage, root: str, threads: int) -> None:
        self._storage = storage
        self._root = root
        self._threads = threads
        self._keys: list[str] = []

    def source(self, entries: Sequence[FileStatus]) -> Source:
        """The files below the root, whose `entries` are given. Raises `NotFound` if there are none, `UsageError` for directories
        that are no partitions, `BadInput` for names that are not plain text.
        """
        level: list[tuple[FileStatus, tuple[str | None, ...]]] = [(entry, ()) for entry in entries if _counts(entry.name)]
        while True:
            directories = [(entry, values) for entry, values in level if entry.is_directory]
            files = [(entry, values) for entry, values in level if not entry.is_directory]
            if not directories:
                break
            if files:
                self._refuse_mix(directories[0][0], files[0][0])
            if len(self._keys) >= _MAX_LEVELS:
                raise UsageError(
                    f"{directories[0][0].path} is below {_MAX_LEVELS} directories", "no table has that many partition columns"
                )
            inner = [(entry, (*values, self._value(entry))) for entry, values in directories]
            listed = list(in_parallel(self._storage.list_directory, (entry.path for entry, _ in inner), self._threads))
            for (directory, _), entries_of in zip(inner, listed, strict=True):
                expect_no_log(directory.path, {entry.name for entry in entries_of} - {"metadata"})
            level = [
                (entry, values)
                for (_, values), found in zip(inner, listed, strict=True)
                for entry in found
                if _counts(entry.name)
            ]
        if not files:
            raise NotFound(f"there are no files in {self._root}", "files whose names begin with . or _ do not count")
        found = [AdoptedFile(_plain(entry).path[len(self._root) + 1 :], entry.size, values) for entry, values in files]
        return Source("files", self._storage, self._root, tuple(self._keys), tuple(sorted(found, key=lambda file: file.path)))

    def _value(self, entry: FileStatus) -> str | None:
        """The partition value in the name of a directory; all of a level have the same column."""
        name, mark, text = _plain(entry).name.partition("=")
        if not mark or not name:
            why = "it is no partition such as dt=2026-01-01"
            raise UsageError(f"{entry.path} is a directory", why, "adopt the directory of one table")
        key = _decoded(entry, name)
        if "`" in key:
            raise UsageError(f"{entry.path} is a partition of {key}", "no column name with a backtick is adopted", "rename it")
        depth = entry.path[len(self._root) + 1 :].count("/")
        if depth == len(self._keys):
            if key in self._keys:
                raise UsageError(f"{entry.path} is a partition of {key}, and so is a directory above it")
            self._keys.append(key)
        if self._keys[depth] != key:
            raise UsageError(f"{entry.path} is a partition of {key}", f"beside it are partitions of {self._keys[depth]}")
        return None if text == HIVE_NULL else _decoded(entry, text)

    def _refuse_mix(self, directory: FileStatus, file: FileStatus) -> None:
        why = f"{file.path} is a file beside it"
        raise UsageError(f"{directory.path} is a directory", why, "adopt the directory of one table")


def _counts(name: str) -> bool:
    """Whether Hive and Spark read a file or directory of that name."""
    return not name.startswith((".", "_"))


def _decoded(entry: FileStatus, text: str) -> str:
    """A text without its %-escapes. Raises `BadInput` if they are not UTF-8: two values would become the same."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"the name of {entry.path} has %-escapes that are not UTF-8", "its value is unknown", "rename it"
        ) from error


def _plain(entry: FileStatus) -> FileStatus:
    """The entry. Raises `BadInput` if its name is not UTF-8, or has control characters."""
    if not entry.name.isprintable():
        raise BadInput(f"the name of {entry.path!r} is not plain text", "it could not be shown or typed", "rename it")
    return entry
