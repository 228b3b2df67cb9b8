"""Old files in the directories of a table, the candidates of orphan cleaning (FORMAT.md, section 13.5)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from paimon_cli.history.branch_list import BranchList
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.side_by_side import side_by_side
from paimon_cli.metadata.table_layout import CHANGELOG_PREFIX, MAIN_BRANCH, SNAPSHOT_PREFIX, TableLayout, parse_numbered
from paimon_cli.storage.storage import FileStatus

DATA, MANIFEST, INDEX, STATISTICS, TEMPORARY = "data", "manifest", "index", "statistics", "temporary"
_HINTS = {"LATEST", "EARLIEST"}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that may be an orphan; `name` is its last part, `modified_millis` epoch millis."""

    path: str
    name: str
    kind: str
    size: int
    modified_millis: int


@dataclass(frozen=True)
class Candidates:
    """Old files, and old directories of partitions and buckets that are empty."""

    files: list[Candidate]
    empty_directories: list[str]


def list_candidates(context: TableContext, older_than: int) -> Candidates:
    """All that was last changed before `older_than` (epoch millis). Directories that are no part of a table are not entered."""
    layout, storage = context.layout, context.storage
    found: list[Candidate] = []
    for directory, kind in (
        (layout.manifest_directory, MANIFEST),
        (layout.index_directory, INDEX),
        (layout.statistics_directory, STATISTICS),
    ):
        found += _of_kind(storage.list_directory(directory), kind)
    for name in (MAIN_BRANCH, *BranchList(storage, layout).directories()):
        found += _temporary_files(context, layout.of_branch(name))
    empty: list[str] = []
    buckets = list(_bucket_directories(context, layout.root, len(context.schema.partition_keys), older_than, empty))
    for bucket, statuses in zip(buckets, side_by_side(context, storage.list_directory, (b.path for b in buckets)), strict=True):
        found += _of_kind(statuses, DATA)
        if not statuses and bucket.modified_millis < older_than:
            empty.append(bucket.path)
    return Candidates([file for file in found if file.modified_millis < older_than], empty)


def _of_kind(statuses: list[FileStatus], kind: str) -> Iterator[Candidate]:
    for status in statuses:
        if not status.is_directory:
            yield Candidate(status.path, status.name, kind, status.size, status.modified_millis)


def _temporary_files(context: TableContext, layout: TableLayout) -> Iterator[Candidate]:
    """What is neither a version nor a hint in the directories of versions; elsewhere only what is plainly temporary."""
    for directory, prefix in ((layout.snapshot_directory, SNAPSHOT_PREFIX), (layout.changelog_directory, CHANGELOG_PREFIX)):
        foreign = [s for s in context.storage.list_directory(directory) if not _is_version(s.name, prefix)]
        yield from _of_kind(foreign, TEMPORARY)
    for directory in (layout.schema_directory, layout.tag_directory, layout.consumer_directory):
        cut_off = [s for s in context.storage.list_directory(directory) if s.name.startswith(".") and s.name.endswith(".tmp")]
        yield from _of_kind(cut_off, TEMPORARY)


def _is_version(name: str, prefix: str) -> bool:
    return name in _HINTS or parse_numbered(prefix, name) is not None


def _bucket_directories(
    context: TableContext, directory: str, depth: int, older_than: int, empty: list[str]
) -> Iterator[FileStatus]:
    """Buckets below partition directories of exactly the depth that the table has."""
    for status in context.storage.list_directory(directory):
        if not status.is_directory:
            continue
        if depth == 0 and status.name.startswith("bucket-"):
            yield status
        elif depth > 0 and "=" in status.name:
            below = list(_bucket_directories(context, status.path, depth - 1, older_than, empty))
            yield from below
            if status.modified_millis < older_than:
                empty.append(status.path)
