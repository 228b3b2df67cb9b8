"""Finds the files of an input: files, globs, directories, URLs, or '-'. Files of a table are refused.

The files of a table also hold rows that were deleted or replaced. Which rows are alive, only a reader of the table knows.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import BinaryIO

from paimon_cli.errors import NotFound, StorageUnavailable, UsageError
from paimon_cli.history.table_directory import DELTA_LAKE, HUDI, ICEBERG, PAIMON, TableDirectory, recognised_table
from paimon_cli.ingest.text_blocks import compression_of, uncompressed_name
from paimon_cli.ingest.text_form import TEXT_FORMATS
from paimon_cli.options.option_text import did_you_mean, nearest
from paimon_cli.storage.capabilities import first_entries
from paimon_cli.storage.directories import LEADS_NOWHERE, MAX_SIMILAR, ancestors, why_missing
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import FileStatus, Storage
from paimon_cli.storage.storage_for_url import storage_for_url
from paimon_cli.storage.threads import in_parallel
from paimon_cli.storage.whole_file import ScratchDirectory

STDIN = "-"
_FORMATS = {"parquet": "parquet", "orc": "orc", "arrow": "arrow", "csv": "csv", "tsv": "csv"}
_FORMATS |= dict.fromkeys(("json", "jsonl", "ndjson"), "json")
FORMAT_OF_EXTENSION = {f".{name}": format for name, format in _FORMATS.items()}
FORMAT_OF_EXTENSION |= {".arrows": "arrow", ".feather": "arrow", ".tab": "csv"}


TABLE_MARK = "{table}"
CLONE = f"copy it as a table: paimon-cli tables clone {TABLE_MARK} NEW_TABLE"


@dataclass(frozen=True)
class SourceFile:
    """One input file. `storage`, `path`: where it is stored; `label`: its name in messages; `size`: in bytes. `modified_millis`:
    when it was changed, as its directory says; 0 if that was not listed.
    """

    storage: Storage
    path: str
    label: str
    format: str
    size: int
    modified_millis: int = 0

    def dated(self) -> SourceFile:
        """The file, with the time of its last change."""
        if self.modified_millis:
            return self
        directory, _, name = self.path.rpartition("/")
        found = (entry.modified_millis for entry in self.storage.list_directory(directory or "/") if entry.name == name)
        return replace(self, modified_millis=next(found, 0))


def source_files(
    sources: Sequence[str],
    format: str | None,
    storage_options: Mapping[str, str] | None,
    *,
    allow_empty: bool = False,
    instead: str = CLONE,
) -> list[SourceFile]:
    """The files of all sources in the given order; within a glob or directory, by name.

    `allow_empty`: a glob without matches or an empty directory has no files, instead of being an error. `instead`: a hint
    for a source that is, contains or lies within a Paimon table, where `TABLE_MARK` stands for that table. Raises `NotFound`, and
    `UsageError`, also for files of a table.
    """
    file_format = _checked_format(format)
    files: list[SourceFile] = []
    for source in sources:
        if not source:
            raise UsageError("the path of an input file is empty", "it would mean the current directory", "name it: .")
        try:
            if source == STDIN:
                files.append(_spooled_stdin(file_format))
            else:
                storage, path = storage_for_url(source, storage_options)
                files += _Search(storage, source, path, file_format, instead).files()
        except NoFiles:
            if not allow_empty:
                raise
    return files


class NoFiles(NotFound):
    """A glob without matches, or a directory without input files."""


def _checked_format(format: str | None) -> str | None:
    if format is not None and format.lower() not in _FORMATS:
        raise UsageError(f"unknown input format '{format}'", hint=f"choose one of {', '.join(_FORMATS)}")
    return _FORMATS[format.lower()] if format is not None else None


def _format_by_name(name: str) -> str | None:
    """The format of a file by its extension. Only text may have a compression suffix."""
    base = uncompressed_name(name)
    format = FORMAT_OF_EXTENSION.get(os.path.splitext(base)[1].lower())
    return format if base == name or format in TEXT_FORMATS else None


MEND_LINK = "correct the link, or name another file"
SPARK_FORMATS = {DELTA_LAKE: "delta", HUDI: "hudi", ICEBERG: "iceberg"}


class _Search:
    """The search for the files of one source, which remembers the directories of tables that it comes across."""

    def __init__(self, storage: Storage, source: str, path: str, format: str | None, instead: str) -> None:
        self._storage, self._source, self._path, self._format, self._instead = storage, source, path, format, instead
        self._tables: dict[str, TableDirectory | None] = {}

    def files(self) -> list[SourceFile]:
        named = _named(self._storage, self._path)
        is_glob = any(c in self._source for c in "*?[") and not (named.is_directory or self._storage.exists(self._path))
        entries = self._matches(self._path) if is_glob else [named]
        if not entries:
            raise NoFiles(f"no input at {self._source}", "no file matches")
        files, met = list[SourceFile](), set[str]()
        for entry in sorted(entries, key=lambda e: e.path):
            self._check_above(entry.path)
            inside = self._files_inside(entry) if entry.is_directory else [entry]
            for file in inside:
                if file.path in met:  # `**` matches a directory and what is in it
                    continue
                met.add(file.path)
                if _is_pipe(self._storage, file.path):
                    files.append(self._from_pipe(file, is_named=file is named))
                    continue
                try:
                    files.append(_source_file(self._storage, file, self._format))
                except FileNotFoundError:
                    missing = self._source if entry is named and not entry.is_directory else file.path
                    is_link = why_missing(self._storage, file.path) == LEADS_NOWHERE
                    why = LEADS_NOWHERE if is_link else "there is no such file or directory"
                    raise NotFound(f"no input at {missing}", why, MEND_LINK if is_link else self._similar(file.path)) from None
                self._check_above(file.path)
        return files

    def _from_pipe(self, file: FileStatus, is_named: bool) -> SourceFile:
        """The content of a pipe that the user named, such as <(...) of a shell; one in a directory may have no writer, ever."""
        if not is_named:
            raise UsageError(f"{file.path} is a pipe, not a file", "who writes to it is unknown", f"name it: {file.path}")
        format = self._format or _format_by_name(file.name)
        if format is None:
            raise UsageError(f"cannot determine the format of {file.path}", "a pipe has no extension", "name it with --format")
        with open(file.path, "rb") as source:
            return _spooled(source, file.path, format)

    def _similar(self, path: str) -> str:
        """The question whether a file beside `path` was meant; empty if none has a similar name."""
        directory, _, name = path.rpartition("/")
        with contextlib.suppress(StorageUnavailable):
            names = [entry.name for entry in first_entries(self._storage, directory, MAX_SIMILAR)]
            # Two names with the same extension are not similar for that.
            stem = nearest(_stem(name), map(_stem, names))
            return did_you_mean(name, [known for known in names if _stem(known) == stem]).strip()
        return ""

    def _check_above(self, path: str) -> None:
        """Raise `UsageError` if the path, or the target of a link, lies within a table."""
        above = list(ancestors(path))
        unknown = [directory for directory in above if directory not in self._tables]
        threads = len(unknown) if self._storage.is_remote else 1
        self._tables.update(zip(unknown, in_parallel(self._table_at, unknown, threads), strict=True))
        for table in filter(None, map(self._tables.get, above)):
            raise self._refusal(table, f"{path} lies within {table.directory}, {table}")

    def _table_at(self, directory: str) -> TableDirectory | None:
        try:
            return recognised_table(self._storage, directory)
        except StorageUnavailable:  # a directory above the input that may not be listed
            return None

    def _listed(self, directory: str) -> list[FileStatus]:
        entries = self._storage.list_directory(directory or "/")
        self._tables[directory] = recognised_table(self._storage, directory, entries)
        return entries

    def _refusal(self, table: TableDirectory, what: str) -> UsageError:
        hint = self._instead.replace(TABLE_MARK, shlex.quote(table.directory))
        if table.format != PAIMON:
            load = f'spark.read.format("{SPARK_FORMATS[table.format]}").load("{table.directory}")'
            hint = f"read it as a table, such as with Spark: paimon_cli.spark.write({load}, TABLE)"
        return UsageError(what, "its files also hold rows that were deleted or replaced", hint)

    def _files_inside(self, directory: FileStatus) -> list[FileStatus]:
        """Files in the directory tree whose extension is of the format, or of any known format if it is None.

        Raises `NoFiles`; `UsageError` if a directory in the tree is a table.
        """
        formats = (self._format,) if self._format else tuple(_FORMATS)
        entries = list(self._walk(directory.path))
        for table in filter(None, self._tables.values()):
            if table.directory == directory.path:
                raise self._refusal(table, f"{table.directory} is {table}")
            if table.directory.startswith(f"{directory.path}/"):
                raise self._refusal(table, f"{self._source} contains {table.directory}, {table}")
        inside = [f for f in entries if not f.is_directory and _format_by_name(f.name) in formats]
        if not inside:
            what = f"no {self._format or 'input'} files in {directory.path}"
            raise NoFiles(what, "names that start with '.' or '_' are ignored")
        return sorted(inside, key=lambda f: f.path)

    def _walk(self, directory: str) -> Iterator[FileStatus]:
        """All entries of the tree, except markers and temporary files of jobs, whose names begin with '.' or '_'."""
        for entry in self._listed(directory):
            if not entry.name.startswith((".", "_")):
                yield entry
                if entry.is_directory:
                    yield from self._walk(entry.path)

    def _matches(self, pattern: str) -> list[FileStatus]:
        """Entries that match a path with `*`, `?`, `[..]` or `**`; as in a shell, a leading '.' must be given literally."""
        parts = pattern.split("/")
        first_wild = next(i for i, part in enumerate(parts) if any(c in part for c in "*?["))
        directories = ["/".join(parts[:first_wild])]
        entries: list[FileStatus] = []
        for part in parts[first_wild:]:
            entries = [entry for directory in directories for entry in self._one_level(directory, part)]
            matched = [entry.path for entry in entries if entry.is_directory]
            directories = [*directories, *matched] if part == "**" else matched
        return entries

    def _one_level(self, directory: str, part: str) -> list[FileStatus]:
        if part == "**":
            return list(self._walk(directory))
        entries = self._listed(directory)
        return [e for e in entries if fnmatchcase(e.name, part) and (part.startswith(".") or not e.name.startswith("."))]


def _named(storage: Storage, path: str) -> FileStatus:
    """The file or directory at a path; links are followed. What has no entries counts as a file, even if it does not exist."""
    return FileStatus(path, path.rpartition("/")[2], 0, bool(storage.list_directory(path)), 0)


def _source_file(storage: Storage, entry: FileStatus, given_format: str | None) -> SourceFile:
    size = storage.file_size(entry.path)  # a listing gives the size of a link itself, not of the file that it points to
    format = given_format or _format_by_name(entry.name)
    if format is None:
        known = f"{' '.join(FORMAT_OF_EXTENSION)}, and compressed text such as .csv.gz, .json.zst, .tsv.bz2, .xz, .lz4"
        parent = entry.path.rpartition("/")[0]
        if any(sibling.is_directory and sibling.name == entry.name for sibling in storage.list_directory(parent or "/")):
            raise NoFiles(f"no input files in {entry.path}", "the directory is empty")
        raise UsageError(f"cannot determine the format of {entry.path}", f"known extensions: {known}", "name it with --format")
    compression = compression_of(entry.name)
    if compression is not None and format not in TEXT_FORMATS:
        raise UsageError(f"{entry.path} is a {compression} file", f"{format} is compressed internally", "unpack it first")
    return SourceFile(storage, entry.path, entry.path, format, size, entry.modified_millis)


_copies: list[ScratchDirectory] = []
"""Keeps the copies of standard input and of pipes until the process ends."""


def _is_pipe(storage: Storage, path: str) -> bool:
    if not isinstance(storage, LocalStorage):
        return False
    with contextlib.suppress(OSError):
        return stat.S_ISFIFO(os.stat(path).st_mode)
    return False


def _spooled_stdin(format: str | None) -> SourceFile:
    if format is None:
        raise UsageError(
            "standard input needs --format", "it has no file name to derive the format from", "add --format csv, or another"
        )
    return _spooled(sys.stdin.buffer, "<stdin>", format)


def _spooled(source: BinaryIO, label: str, format: str) -> SourceFile:
    """Copy what can be read once to a temporary file, because it is read twice; the file is removed when the process ends."""
    directory = ScratchDirectory("stdin")
    _copies.append(directory)
    copy = directory.path / f"input.{format}"
    with open(copy, "wb") as sink:
        shutil.copyfileobj(source, sink)
    return SourceFile(LocalStorage(), str(copy), label, format, copy.stat().st_size)


def _stem(name: str) -> str:
    """The name of a file without its extensions."""
    return name[:1] + name[1:].partition(".")[0]
