"""Names of the files that one job creates: they share a stamp, by which they are found again when the job has failed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from paimon_cli.bucket.file_indexes import SUFFIX
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.table_mode import BucketMode
from paimon_cli.storage.storage import delete_all

INDEX_PREFIX = "index-"
UUID_PARTS = (8, 12, 16, 20)
"""How many hexadecimal digits of a UUID come before each dash."""
WRITER_MARK = "-w-"
"""What the names of postponed files have between their writer and their own UUID."""


def new_stamp(context: TableContext) -> str:
    """16 hexadecimal digits that the names of all files of one job have in common."""
    return context.random.uuid().replace("-", "")[:16]


def stamped_uuid(context: TableContext, stamp: str) -> str:
    """A new UUID that begins with the stamp, if there is one."""
    own = context.random.uuid().replace("-", "")
    return _dashed(stamp + own[len(stamp) :])


def _dashed(digits: str) -> str:
    """The digits as a UUID, or the beginning of one, is written."""
    starts = (0, *UUID_PARTS)
    return "-".join(digits[start:end] for start, end in zip(starts, (*UUID_PARTS, None), strict=True) if digits[start:end])


def _beginning(stamp: str) -> str:
    return _dashed(stamp) + ("-" if len(stamp) in UUID_PARTS else "")


class DataFileNames:
    """Names of one writer's data files: one UUID, a counter from 0.

    With a `stamp` (16 hex digits) the UUID begins with it, so that the files of a failed job can be found again.
    """

    def __init__(self, context: TableContext, stamp: str = "") -> None:
        self._uuid = stamped_uuid(context, stamp)
        self._prefix = context.options.data_file_prefix
        self._count = 0

    def next(self, file_format: str) -> str:
        name = f"{self._prefix}{self._uuid}-{self._count}.{file_format}"
        self._count += 1
        return name


def delete_stamped_files(context: TableContext, stamp: str, keep: Collection[str] = ()) -> int:
    """Delete every data, changelog and index file of the job except the names in `keep`; returns how many there were.

    Only for a job whose tasks have all ended: a task still running could write more.
    """
    files = stamped_files(context, stamp, keep)
    delete_all(context.storage, files)
    return len(files)


def stamped_files(context: TableContext, stamp: str, keep: Collection[str] = ()) -> list[str]:
    """Paths of the job's data, changelog and index files that are there, except the names in `keep`."""
    mode = context.mode  # the vectors of an append table may be switched off
    has_indexes = mode.deletion_vectors or mode.bucket_mode is BucketMode.DYNAMIC or not mode.has_keys
    directories = [*_bucket_directories(context), *([context.layout.index_directory] if has_indexes else [])]
    return [
        file.path
        for directory in directories
        for file in context.storage.list_directory(directory)
        if _is_stamped(context, file.name, stamp) and file.name.removesuffix(SUFFIX) not in keep
    ]


def _is_stamped(context: TableContext, name: str, stamp: str) -> bool:
    """Whether the job made the file; names of postponed files tell their writer before the stamp."""
    begin, prefixes = _beginning(stamp), (context.options.data_file_prefix, context.options.changelog_file_prefix, INDEX_PREFIX)
    if any(name.startswith(prefix + begin) for prefix in prefixes):
        return True
    return name.startswith(context.options.data_file_prefix) and WRITER_MARK + begin in name


def stamped_prefix(context: TableContext, stamp: str) -> str:
    """What the names of all data files of the job begin with; changelog files not among them."""
    return context.options.data_file_prefix + _beginning(stamp)


def _bucket_directories(context: TableContext) -> Iterator[str]:
    """`bucket-*` below partition directories of exactly the table's depth."""
    level: Iterable[str] = [context.layout.root]
    for key in context.schema.partition_keys:
        level = [d.path for parent in level for d in context.storage.list_directory(parent) if d.name.startswith(f"{key}=")]
    for parent in level:
        yield from (d.path for d in context.storage.list_directory(parent) if d.is_directory and d.name.startswith("bucket-"))
