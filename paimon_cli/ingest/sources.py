"""What the user names as input (files, globs, directories, URLs, '-') as single files of a known format."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from paimon_cli.errors import NotFound, UsageError
from paimon_cli.storage.storage import FileStatus, Storage
from paimon_cli.storage.storage_for_url import storage_for_url

STDIN = "-"
FORMAT_OF_EXTENSION = {
    ".parquet": "parquet",
    ".orc": "orc",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
FORMATS = {"parquet": "parquet", "orc": "orc", "csv": "csv", "json": "json", "jsonl": "json", "ndjson": "json"}
TEXT_FORMATS = ("csv", "json")


@dataclass(frozen=True)
class SourceFile:
    """One input file: where it is, how messages call it, its format and size in bytes."""

    path: str
    label: str
    format: str
    size: int

    @property
    def gzipped(self) -> bool:
        return is_gzipped(self.path)


def is_gzipped(path: str) -> bool:
    return path.lower().endswith(".gz")


def source_files(sources: Sequence[str], format: str | None, storage_options: Mapping[str, str] | None) -> list[SourceFile]:
    """The files in the given order, those of a glob or directory by name. NotFound, UsageError."""
    chosen = _chosen_format(format)
    files: list[SourceFile] = []
    for source in sources:
        files += [_spooled_stdin(chosen)] if source == STDIN else _files_of(source, chosen, storage_options)
    return files


def _chosen_format(format: str | None) -> str | None:
    if format is not None and format.lower() not in FORMATS:
        raise UsageError(f"unknown input format '{format}'", hint=f"choose one of {', '.join(FORMATS)}")
    return FORMATS[format.lower()] if format is not None else None


def _format_of(name: str) -> str | None:
    plain = name[:-3] if is_gzipped(name) else name
    found = FORMAT_OF_EXTENSION.get(os.path.splitext(plain)[1].lower())
    return found if plain == name or found in TEXT_FORMATS else None


def _files_of(source: str, chosen: str | None, options: Mapping[str, str] | None) -> list[SourceFile]:
    storage, path = storage_for_url(source, options)
    status = _status(storage, path)
    is_glob = status is None and any(c in source for c in "*?[")
    found = _matches(storage, path) if is_glob else [status] if status is not None else []
    if not found:
        raise NotFound(f"no input at {source}", "no file matches" if is_glob else "there is no such file or directory")
    files: list[SourceFile] = []
    for entry in sorted(found, key=lambda e: e.path):
        inside = _files_inside(storage, entry, chosen) if entry.is_directory else [entry]
        files += [_source_file(storage, file, chosen) for file in inside]
    return files


def _source_file(storage: Storage, entry: FileStatus, chosen: str | None) -> SourceFile:
    format = chosen or _format_of(entry.name)
    if format is None:
        extensions = " ".join([*FORMAT_OF_EXTENSION, ".csv.gz", ".json.gz"])
        raise UsageError(f"cannot tell the format of {entry.path}", f"known extensions: {extensions}", "name it with --format")
    if is_gzipped(entry.name) and format not in TEXT_FORMATS:
        raise UsageError(f"{entry.path} is a gzip file", f"{format} files compress inside", "unpack it first")
    # A listing gives the size of a link itself, not of the file behind it.
    return SourceFile(entry.path, entry.path, format, storage.file_size(entry.path))


def _files_inside(storage: Storage, directory: FileStatus, chosen: str | None) -> list[FileStatus]:
    """Files below the directory that have the chosen format's extension (any known one without a choice)."""
    wanted = (chosen,) if chosen else tuple(FORMATS)
    inside = [f for f in _walk(storage, directory.path) if not f.is_directory and _format_of(f.name) in wanted]
    if not inside:
        raise NotFound(
            f"no {chosen or 'input'} files in {directory.path}", "hidden files and those with '_' in front do not count"
        )
    return sorted(inside, key=lambda f: f.path)


def _walk(storage: Storage, directory: str) -> Iterator[FileStatus]:
    """Everything below; jobs leave markers and temporary files behind that begin with '.' or '_'."""
    for entry in storage.list_directory(directory):
        if not entry.name.startswith((".", "_")):
            yield entry
            if entry.is_directory:
                yield from _walk(storage, entry.path)


def _status(storage: Storage, path: str) -> FileStatus | None:
    """The file or directory at a path; links count as what they lead to. An empty directory counts as a file."""
    name = path.rpartition("/")[2]
    if storage.list_directory(path):
        return FileStatus(path, name, 0, True, 0)
    return FileStatus(path, name, 0, False, 0) if storage.exists(path) else None


def _matches(storage: Storage, pattern: str) -> list[FileStatus]:
    """Entries that a path with `*`, `?`, `[..]` or `**` names; a leading '.' must be spelled out as in a shell."""
    parts = pattern.split("/")
    fixed = next(i for i, part in enumerate(parts) if any(c in part for c in "*?["))
    directories = ["/".join(parts[:fixed])]
    found: list[FileStatus] = []
    for part in parts[fixed:]:
        found = [entry for directory in directories for entry in _one_level(storage, directory, part)]
        below = [entry.path for entry in found if entry.is_directory]
        directories = [*directories, *below] if part == "**" else below
    return found


def _one_level(storage: Storage, directory: str, part: str) -> list[FileStatus]:
    if part == "**":
        return list(_walk(storage, directory))
    entries = storage.list_directory(directory or "/")
    return [e for e in entries if fnmatchcase(e.name, part) and (part.startswith(".") or not e.name.startswith("."))]


def _spooled_stdin(chosen: str | None) -> SourceFile:
    """Standard input as a temporary file, because it is read twice (planning, then a task); removed when the process ends."""
    if chosen not in TEXT_FORMATS:
        raise UsageError("standard input needs --format csv or --format json", "its format cannot be told from a name")
    with tempfile.NamedTemporaryFile(prefix="paimon-cli-stdin-", suffix=f".{chosen}", delete=False) as spool:
        atexit.register(_remove, spool.name)
        shutil.copyfileobj(sys.stdin.buffer, spool)
    return SourceFile(spool.name, "<stdin>", chosen, os.path.getsize(spool.name))


def _remove(path: str) -> None:
    if os.path.exists(path):
        os.remove(path)
