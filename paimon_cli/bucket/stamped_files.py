"""Names of the files that a job creates. They share a stamp, by which the files of a failed job are found and deleted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from paimon_cli.bucket.file_indexes import SUFFIX
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.table_layout import POSTPONE_DIRECTORY
from paimon_cli.storage.capabilities import remove_empty_directory
from paimon_cli.storage.deletions import delete_all

INDEX_PREFIX = "index-"
UUID_PARTS = (8, 12, 16, 20)
"""The number of hexadecimal digits of a UUID before each dash."""
WRITER_MARK = "-w-"
"""Separates the writer from the UUID in the names of postponed files."""


def new_stamp(context: TableContext) -> str:
    """A new stamp: 16 hexadecimal digits that the names of all files of one job share."""
    return context.random.uuid().replace("-", "")[:16]


def stamped_uuid(context: TableContext, stamp: str) -> str:
    """A new UUID that begins with the stamp, which may be ''."""
    digits = context.random.uuid().replace("-", "")
    return _dashed(stamp + digits[len(stamp) :])


def _dashed(digits: str) -> str:
    """The digits of a UUID, or of its beginning, with dashes."""
    starts = (0, *UUID_PARTS)
    return "-".join(digits[start:end] for start, end in zip(starts, (*UUID_PARTS, None), strict=True) if digits[start:end])


def uuid_prefix(stamp: str) -> str:
    """How a UUID with a stamp begins."""
    return _dashed(stamp) + ("-" if len(stamp) in UUID_PARTS else "")


class DataFileNames:
    """The names of a writer's data files: prefix, one UUID, which begins with the `stamp`, and a counter from 0."""

    def __init__(self, context: TableContext, stamp: str = "") -> None:
        self._uuid = stamped_uuid(context, stamp)
        self._prefix = context.options.data_file_prefix
        self._count = 0

    def next(self, file_format: str) -> str:
        name = f"{self._prefix}{self._uuid}-{self._count}.{file_format}"
        self._count += 1
        return name


def delete_stamped_files(context: TableContext, stamp: str, keep: Collection[str] = ()) -> int:
    """Delete all data, changelog and index files of a job, except the names in `keep`. Returns how many were deleted.

    All tasks of the job must have ended: a running task could write more.
    """
    directories = _directories(context)
    files = _stamped_files_in(directories, context, stamp, keep)
    delete_all(context.storage, files)
    remove_temporary_directories(context, directories)
    return len(files)


def stamped_files(context: TableContext, stamp: str, keep: Collection[str] = ()) -> list[str]:
    """Paths of the existing data, changelog and index files of a job, except the names in `keep`."""
    return _stamped_files_in(_directories(context), context, stamp, keep)


def stamped_index_files(context: TableContext, stamp: str) -> list[str]:
    """Paths of the existing files of a job in the directory of index files."""
    return _stamped_files_in([context.layout.index_directory], context, stamp, ())


def remove_temporary_directories(context: TableContext, directories: Iterable[str]) -> None:
    """Remove those of the directories that are only for temporary files and empty.

    In a table without postponed buckets only paimon-cli creates `bucket-postpone`. A process that is about to put a file into it
    creates it again. Elsewhere Java's writers use it too, and one of them would fail in that moment.
    """
    if not context.mode.bucket_mode.postpones:
        for directory in directories:
            if directory.endswith(f"/{POSTPONE_DIRECTORY}"):
                remove_empty_directory(context.storage, directory)


def _directories(context: TableContext) -> list[str]:
    """The directories of all buckets, and that of index files."""
    mode = context.mode  # the vectors of an append table may be switched off
    has_indexes = mode.deletion_vectors or mode.bucket_mode.indexes_keys or not mode.has_keys
    return [*_bucket_directories(context), *([context.layout.index_directory] if has_indexes else [])]


def _stamped_files_in(directories: Iterable[str], context: TableContext, stamp: str, keep: Collection[str]) -> list[str]:
    return [
        file.path
        for directory in directories
        for file in context.storage.list_directory(directory)
        if _is_stamped(context, file.name, stamp) and file.name.removesuffix(SUFFIX) not in keep
    ]


def _is_stamped(context: TableContext, name: str, stamp: str) -> bool:
    """Whether the job created the file. In names of postponed files, the writer comes before the stamp."""
    options, uuid = context.options, uuid_prefix(stamp)
    if any(name.startswith(prefix + uuid) for prefix in (options.data_file_prefix, options.changelog_file_prefix, INDEX_PREFIX)):
        return True
    return name.startswith(options.data_file_prefix) and WRITER_MARK + uuid in name


def stamped_prefix(context: TableContext, stamp: str) -> str:
    """The prefix of the names of all data files of a job (changelog files have another one)."""
    return context.options.data_file_prefix + uuid_prefix(stamp)


def _bucket_directories(context: TableContext) -> Iterator[str]:
    """The paths of all `bucket-*` directories in partition directories of the table's depth, also at places outside of it, and
    there of the directories of files below them.
    """
    yield from _bucket_directories_below(context.layout.root, context)
    places = context.external_places
    for root in context.external_roots:
        level: Iterable[str] = _bucket_directories_below(root, context)
        for _ in range(0 if places is None else places.depth):
            level = [d.path for parent in level for d in context.storage.list_directory(parent) if d.is_directory]
        yield from level


def _bucket_directories_below(root: str, context: TableContext) -> Iterator[str]:
    level: Iterable[str] = [root]
    for key in context.schema.partition_keys:
        level = [d.path for parent in level for d in context.storage.list_directory(parent) if d.name.startswith(f"{key}=")]
    for parent in level:
        yield from (d.path for d in context.storage.list_directory(parent) if d.is_directory and d.name.startswith("bucket-"))
