"""Resolves inputs (files, globs, directories, URLs, '-') to single files of a known format, and opens their text."""

from __future__ import annotations

import codecs
import io
import lzma
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import BinaryIO, cast

import pyarrow as pa

from paimon_cli.errors import BadInput, NotFound, UsageError
from paimon_cli.ingest.text_form import TEXT
from paimon_cli.storage.storage import FileStatus, Storage
from paimon_cli.storage.storage_for_url import storage_for_url
from paimon_cli.storage.whole_file import ScratchDirectory

STDIN = "-"
FORMAT_OF_EXTENSION = {
    ".parquet": "parquet",
    ".orc": "orc",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".csv": "csv",
    ".tsv": "csv",
    ".tab": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
FORMATS = {
    "parquet": "parquet",
    "orc": "orc",
    "arrow": "arrow",
    "csv": "csv",
    "tsv": "csv",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
}
COMPRESSION_OF_EXTENSION = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".xz": "xz", ".lz4": "lz4"}
READ_BYTES = 1 << 20


@dataclass(frozen=True)
class SourceFile:
    """One input file: its location, its name in messages, its format, and its size in bytes."""

    path: str
    label: str
    format: str
    size: int

    @property
    def compressed(self) -> bool:
        return compression_of(self.path) is not None


def compression_of(path: str) -> str | None:
    return COMPRESSION_OF_EXTENSION.get(os.path.splitext(path)[1].lower())


def uncompressed_name(path: str) -> str:
    """The name without a compression suffix: `a.csv.gz` -> `a.csv`."""
    return path if compression_of(path) is None else os.path.splitext(path)[0]


def text_stream(stream: BinaryIO, path: str, label: str, encoding: str | None = None) -> BinaryIO:
    """The file's text as bytes: decompressed by its extension and, with an `encoding`, recoded from that to UTF-8.

    Reads raise `OSError` or `EOFError` for a damaged archive, `BadInput` for bytes that are not text of the encoding.
    """
    compression = compression_of(path)
    if compression == "xz":
        stream = cast(BinaryIO, lzma.LZMAFile(stream))  # noqa: SIM115
    elif compression is not None:
        stream = cast(BinaryIO, pa.CompressedInputStream(stream, compression))
    if encoding is not None:
        stream = cast(BinaryIO, _Recoded(stream, label, encoding))
    return stream if compression is None and encoding is None else io.BufferedReader(cast(io.RawIOBase, stream), READ_BYTES)


class _Recoded(io.RawIOBase):
    """A stream that recodes text of another encoding to UTF-8."""

    def __init__(self, stream: BinaryIO, label: str, encoding: str) -> None:
        self._stream, self._label, self._encoding = stream, label, encoding
        self._decoder = codecs.getincrementaldecoder(encoding)("strict")
        self._held = b""
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast(bytearray, buffer))
        while not self._held and not self._ended:
            read = self._stream.read(READ_BYTES)
            self._ended = not read
            try:
                self._held = self._decoder.decode(read, final=self._ended).encode("utf-8", "surrogatepass")
            except UnicodeError as problem:
                raise BadInput(
                    f"{self._label} is not {self._encoding} text",
                    str(problem),
                    "name the encoding of the file with --encoding",
                    source=self._label,
                ) from problem
        size = min(len(view), len(self._held))
        view[:size], self._held = self._held[:size], self._held[size:]
        return size


def source_files(
    sources: Sequence[str], format: str | None, storage_options: Mapping[str, str] | None, *, may_be_none: bool = False
) -> list[SourceFile]:
    """The files in the given order, those of a glob or directory by name. Raises `NotFound`, `UsageError`.

    `may_be_none`: an empty glob or directory is not an error, and gives no files.
    """
    chosen = _chosen_format(format)
    files: list[SourceFile] = []
    for source in sources:
        try:
            files += [_spooled_stdin(chosen)] if source == STDIN else _files_of(source, chosen, storage_options)
        except NoFiles:
            if not may_be_none:
                raise
    return files


class NoFiles(NotFound):
    """A glob without matches, or a directory without input files."""


def _chosen_format(format: str | None) -> str | None:
    if format is not None and format.lower() not in FORMATS:
        raise UsageError(f"unknown input format '{format}'", hint=f"choose one of {', '.join(FORMATS)}")
    return FORMATS[format.lower()] if format is not None else None


def _format_of(name: str) -> str | None:
    plain = uncompressed_name(name)
    found = FORMAT_OF_EXTENSION.get(os.path.splitext(plain)[1].lower())
    return found if plain == name or found in TEXT else None


def _files_of(source: str, chosen: str | None, options: Mapping[str, str] | None) -> list[SourceFile]:
    storage, path = storage_for_url(source, options)
    status = _status(storage, path)
    is_glob = status is None and any(c in source for c in "*?[")
    found = _matches(storage, path) if is_glob else [status] if status is not None else []
    if not found and is_glob:
        raise NoFiles(f"no input at {source}", "no file matches")
    if not found:
        raise NotFound(f"no input at {source}", "there is no such file or directory")
    files: list[SourceFile] = []
    for entry in sorted(found, key=lambda e: e.path):
        inside = _files_inside(storage, entry, chosen) if entry.is_directory else [entry]
        files += [_source_file(storage, file, chosen) for file in inside]
    return files


def _source_file(storage: Storage, entry: FileStatus, chosen: str | None) -> SourceFile:
    format = chosen or _format_of(entry.name)
    if format is None:
        known = f"{' '.join(FORMAT_OF_EXTENSION)}, and compressed text such as .csv.gz, .json.zst, .tsv.bz2, .xz, .lz4"
        parent = entry.path.rpartition("/")[0]
        if any(found.is_directory and found.name == entry.name for found in storage.list_directory(parent or "/")):
            raise NoFiles(f"no input files in {entry.path}", "the directory is empty")
        raise UsageError(f"cannot determine the format of {entry.path}", f"known endings: {known}", "name it with --format")
    compression = compression_of(entry.name)
    if compression is not None and format not in TEXT:
        raise UsageError(f"{entry.path} is a {compression} file", f"{format} files compress inside", "unpack it first")
    # A listing gives the size of a link itself, not of the file that it points to.
    return SourceFile(entry.path, entry.path, format, storage.file_size(entry.path))


def _files_inside(storage: Storage, directory: FileStatus, chosen: str | None) -> list[FileStatus]:
    """Files in the directory tree with the extension of the chosen format (of any known format without a choice)."""
    wanted = (chosen,) if chosen else tuple(FORMATS)
    inside = [f for f in _walk(storage, directory.path) if not f.is_directory and _format_of(f.name) in wanted]
    if not inside:
        raise NoFiles(f"no {chosen or 'input'} files in {directory.path}", "hidden files and those starting with '_' are ignored")
    return sorted(inside, key=lambda f: f.path)


def _walk(storage: Storage, directory: str) -> Iterator[FileStatus]:
    """All entries of the tree, except markers and temporary files of jobs, whose names begin with '.' or '_'."""
    for entry in storage.list_directory(directory):
        if not entry.name.startswith((".", "_")):
            yield entry
            if entry.is_directory:
                yield from _walk(storage, entry.path)


def _status(storage: Storage, path: str) -> FileStatus | None:
    """The file or directory at a path; links are followed. An empty directory counts as a file."""
    name = path.rpartition("/")[2]
    if storage.list_directory(path):
        return FileStatus(path, name, 0, True, 0)
    return FileStatus(path, name, 0, False, 0) if storage.exists(path) else None


def _matches(storage: Storage, pattern: str) -> list[FileStatus]:
    """Entries that match a path with `*`, `?`, `[..]` or `**`; as in a shell, a leading '.' must be given literally."""
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


_spools: list[ScratchDirectory] = []
"""They live until the process ends."""


def _spooled_stdin(chosen: str | None) -> SourceFile:
    """Copy standard input to a temporary file, because it is read twice; the file is removed when the process ends."""
    if chosen is None:
        raise UsageError(
            "standard input needs --format", "it has no file name to derive the format from", "add --format csv, or another"
        )
    directory = ScratchDirectory("stdin")
    _spools.append(directory)
    spool = directory.path / f"input.{chosen}"
    with open(spool, "wb") as sink:
        shutil.copyfileobj(sys.stdin.buffer, sink)
    return SourceFile(str(spool), "<stdin>", chosen, spool.stat().st_size)
