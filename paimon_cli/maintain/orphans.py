"""Orphan files: old files in the directories of a table that no version of any branch uses (FORMAT.md, section 13.5).

Candidates are listed first and the names in use are read afterwards, so a file added by a commit in between counts as used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from paimon_cli.errors import Refused, cleaning_up
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.tags_and_branches import BranchList
from paimon_cli.maintain.file_deletion import DeleteFiles, check_deletions
from paimon_cli.maintain.used_names import UsedNames
from paimon_cli.metadata.table_layout import (
    CHANGELOG_PREFIX,
    MAIN_BRANCH,
    SNAPSHOT_PREFIX,
    TableLayout,
    parse_numbered,
)
from paimon_cli.pieces import PIECES
from paimon_cli.storage.capabilities import remove_empty_directory
from paimon_cli.storage.deletions import Deletions
from paimon_cli.storage.guarded_storage import MARKER, PROBE_PREFIX
from paimon_cli.storage.injected import BelatedClock
from paimon_cli.storage.storage import FileStatus
from paimon_cli.storage.threads import in_parallel

DATA, MANIFEST, INDEX, STATISTICS, TEMPORARY = "data", "manifest", "index", "statistics", "temporary"
_HINTS = {"LATEST", "EARLIEST"}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that may be an orphan; `name` is the last part of its path, `modified_millis` epoch millis."""

    path: str
    name: str
    kind: str
    size: int
    modified_millis: int


@dataclass(frozen=True)
class Candidates:
    """Old files, and old empty directories of partitions and buckets."""

    files: list[Candidate]
    empty_directories: list[str]


def list_candidates(context: TableContext, older_than: int, external_paths: bool = False) -> Candidates:
    """All files last changed before `older_than` (epoch millis). Directories that are no part of a table are not entered.

    `external_paths`: also at the places outside of the table where new data files go, which must be this table's alone.
    """
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
    for probe in storage.list_directory(layout.root):
        if probe.is_directory and probe.name.startswith(PROBE_PREFIX):  # left by a process that died in a probe
            left = storage.list_directory(probe.path)
            found += _of_kind([s for s in left if s.path != f"{layout.root}/{MARKER}"], TEMPORARY)
            if not left and probe.modified_millis < older_than:
                empty.append(probe.path)
    depth = len(context.schema.partition_keys)
    roots = dict.fromkeys((layout.root, context.data_root))  # the option may be younger than the first files
    buckets = [bucket for root in roots for bucket in _bucket_directories(context, root, depth, older_than, empty)]
    if external_paths:
        buckets += _external_directories(context, depth, older_than, empty)
    listed = in_parallel(storage.list_directory, (bucket.path for bucket in buckets), context.read_threads)
    for bucket, statuses in zip(buckets, listed, strict=True):
        found += _of_kind(statuses, DATA)
        if not statuses and bucket.modified_millis < older_than:
            empty.append(bucket.path)
    return Candidates([file for file in found if file.modified_millis < older_than], empty)


def _external_directories(context: TableContext, depth: int, older_than: int, empty: list[str]) -> list[FileStatus]:
    """The directories of files below the buckets at places outside of the table. Raises `Refused` if one is not allowed."""
    places, storage, found = context.external_places, context.storage, list[FileStatus]()
    for root in context.external_roots:
        level = list(_bucket_directories(context, root, depth, older_than, empty))
        for _ in range(0 if places is None else places.depth):
            empty += [bucket.path for bucket in level if bucket.modified_millis < older_than]
            level = [below for above in level for below in storage.list_directory(above.path) if below.is_directory]
        found += level
    return found


def _of_kind(statuses: list[FileStatus], kind: str) -> Iterator[Candidate]:
    for status in statuses:
        if not status.is_directory:
            yield Candidate(status.path, status.name, kind, status.size, status.modified_millis)


def _temporary_files(context: TableContext, layout: TableLayout) -> Iterator[Candidate]:
    """In the directories of versions, files that are neither versions nor hints; elsewhere only names of temporary files."""
    for directory, prefix in ((layout.snapshot_directory, SNAPSHOT_PREFIX), (layout.changelog_directory, CHANGELOG_PREFIX)):
        foreign = [s for s in context.storage.list_directory(directory) if not _is_version(s.name, prefix)]
        yield from _of_kind(foreign, TEMPORARY)
    yield from _of_kind(context.storage.list_directory(layout.removal_directory), TEMPORARY)  # of commands that were killed
    for directory in layout.record_directories:
        yield from _of_kind([s for s in context.storage.list_directory(directory) if s.is_temporary()], TEMPORARY)


def _is_version(name: str, prefix: str) -> bool:
    return name in _HINTS or parse_numbered(prefix, name) is not None


def _bucket_directories(
    context: TableContext, directory: str, depth: int, older_than: int, empty: list[str]
) -> Iterator[FileStatus]:
    """Bucket directories below partition directories of exactly the table's depth."""
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


DAY_MILLIS = 86_400_000
TOLERATED_MILLIS = 1000
"""Times of files are rounded, and a storage may take a moment to answer."""
SetAside = Callable[[str], None]
"""Keeps a copy of a file, by its path."""


@dataclass(frozen=True)
class Orphans:
    """Files that no version uses, by path, and empty directories; `used` are the names that were in use at that time."""

    files: list[Candidate]
    empty_directories: list[str]
    used: UsedNames
    older_than: int

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def not_ahead_of_the_storage(context: TableContext) -> TableContext:
    """The context with a clock that is not ahead of the storage's clock, which the time of a probe file shows.

    On a machine whose clock is ahead, files of a commit in progress would look old.
    """
    directory = f"{context.layout.root}/{PROBE_PREFIX}{context.random.uuid()}"
    try:
        context.storage.write_new(f"{directory}/time", b"")
        now = context.clock.now_millis()
        ahead = max((now - probe.modified_millis for probe in context.storage.list_directory(directory)), default=0)
    finally:
        with cleaning_up():
            context.storage.delete_directory(directory)
    return context if ahead <= TOLERATED_MILLIS else replace(context, clock=BelatedClock(context.clock, ahead))


def find_orphans(context: TableContext, older_than: int, force: bool = False, external_paths: bool = False) -> Orphans:
    """List orphans. `external_paths`: also at places outside of the table (`list_candidates`).

    Unless forced, raises `Refused` for an age of less than a day, or if no file is used at all. Raises `DamagedFile` if what some
    version uses cannot be read.
    """
    young = context.clock.now_millis() - DAY_MILLIS
    if older_than > young and not force:
        what = "they may belong to a commit in progress"
        hint = "--older-than 1d; or --force, which deletes the rows of jobs that are writing, too: only while none is"
        raise Refused("files younger than a day are not deleted as orphans", what, hint)
    candidates = list_candidates(context, older_than, external_paths)
    used = UsedNames(context, older_than)
    versions = used.refresh()
    if not versions and candidates.files and not force:
        what = f"{context.url} has no snapshot, tag or changelog, so every file would be an orphan"
        raise Refused("the table refers to no files", what, "if the table is meant to be empty, --force deletes all of them")
    if not force and context.snapshots.latest_id() is None:
        context.expect_existing()  # raises if the snapshot files are lost, without which live files look like orphans
    files = sorted((file for file in candidates.files if file.name not in used.names), key=lambda file: file.path)
    return Orphans(files, candidates.empty_directories, used, older_than)


def remove_orphans(
    context: TableContext, orphans: Orphans, delete: DeleteFiles, set_aside: SetAside | None = None
) -> list[Candidate]:
    """Delete portion by portion; returns what was deleted. Then remove empty directories, if the storage has directories.

    Raises `FilesLeft` at the end if the storage refused some files.
    """
    deleted: list[Candidate] = []
    done = Deletions()
    for portion in _portions(orphans.files):
        orphans.used.refresh()
        unused = [file for file in portion if file.name not in orphans.used.names]
        if set_aside is not None:
            for file in unused:
                set_aside(file.path)
        done.run(partial(delete, [file.path for file in unused]))
        deleted += unused
    emptied = {file.path.rpartition("/")[0] for file in deleted if file.kind == DATA or PROBE_PREFIX in file.path}
    for directory in sorted({*orphans.empty_directories, *emptied}, key=lambda path: (-path.count("/"), path)):
        remove_empty_directory(context.storage, directory)
    check_deletions(context, done)
    return deleted


def _portions(files: Sequence[Candidate]) -> Iterator[Sequence[Candidate]]:
    for first in range(0, len(files), PIECES.orphan_portion_files):
        yield files[first : first + PIECES.orphan_portion_files]
