"""Copies versions of a table, with the files that they need, into another directory, for `tables clone`, `backup` and `restore`.

Children come before parents: data files and indexes, manifests, their lists, and a version only when all that it names is there.
So the copy is a valid table at every moment, and one that was killed is continued by copying what is not there yet.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from paimon_cli.errors import DamagedFile, NotFound, PaimonError, Refused, StorageUnavailable, UsageError
from paimon_cli.history.manifest_reader import SnapshotGone
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.tags_and_branches import BranchList, ChangelogHistory
from paimon_cli.jobs.copy_plan import CopiedVersion, CopyPlan, CopyPortion
from paimon_cli.jobs.engine import Engine, Progress, Work, phase
from paimon_cli.jobs.engine_choice import LOCAL
from paimon_cli.metadata.table_layout import (
    CHANGELOG_PREFIX,
    SCHEMA_PREFIX,
    SNAPSHOT_PREFIX,
    TableLayout,
    parse_hint,
    parse_numbered,
)
from paimon_cli.pieces import PIECES
from paimon_cli.storage.capabilities import remove_empty_directory
from paimon_cli.storage.deletions import delete_all
from paimon_cli.storage.file_copy import Copied, FileCopy, FileToCopy, Throttle, tasks_at_most, tasks_of
from paimon_cli.storage.storage import PutOutcome, Storage, Verified, put_and_verify

_TRIES = 5
COPIES_PER_READ = 30
"""How many bytes are copied in the time in which a job decodes one: Spark is worth its start only for so many."""
_PORTIONS_KNOWN = 8
"""The names of how many full portions are kept in memory."""
_THROTTLED_TASKS = 8
"""The tasks on Spark among which a limit of the bandwidth is divided."""


class _Vanished(Exception):
    """Files are gone that a version named when the copy was planned."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(f"{len(paths)} files")
        self.paths = paths


@dataclass
class CopyTally:
    """What was copied so far: files and their bytes, and versions by kind."""

    files: int = 0
    size: int = 0
    snapshots: int = 0
    tags: int = 0
    changelogs: int = 0


@dataclass
class TableCopy:
    """A copy of versions of `source` below `layout`.

    `is_new`: the directory is empty and belongs to this copy alone, so that a file in it is another job's; otherwise earlier
    copies may have left files. `is_resumed`: one of these was not finished. `written`: what `undo` deletes of a new copy.
    """

    source: TableContext
    storage: Storage
    layout: TableLayout
    engine: Engine
    progress: Progress
    throttle: Throttle | None = None
    is_new: bool = False
    is_resumed: bool = False
    before: Callable[[], None] = lambda: None
    """Called before the files of each portion are copied."""
    tally: CopyTally = field(default_factory=CopyTally)
    written: list[str] = field(default_factory=list)
    _names: dict[str, set[str]] = field(default_factory=dict)
    _has_files: bool = False

    def __post_init__(self) -> None:
        self._listed = _Present(self.storage, self.layout.root)

    def undo(self) -> None:
        """Delete what was written, the last first, so that an incomplete copy is never taken for a table, and its directories."""
        delete_all(self.storage, reversed(self.written), in_order=True)
        below = (path.removeprefix(f"{self.layout.root}/").split("/")[:-1] for path in self.written)
        parents = {"/".join((self.layout.root, *parts[:depth])) for parts in below for depth in range(len(parts) + 1)}
        for directory in sorted(parents, key=len, reverse=True):
            remove_empty_directory(self.storage, directory)

    # ---- versions -----------------------------------------------------------------------------------------------------------

    def copy_snapshots(
        self, history: TableContext, numbers: Iterable[int], wanted: Callable[[CopiedVersion], bool] | None = None
    ) -> None:
        """Copy those of these snapshots of a branch that the copy has not, in this order, after its schemas.

        Snapshots that expire meanwhile are left out. `wanted`: whether a snapshot is to be copied; default all.
        """
        asked = list(numbers)
        self._again_if_gone(history, lambda: self._copy_snapshots(history, asked, wanted))
        self.write_hints(history.branch)

    def _copy_snapshots(
        self, history: TableContext, numbers: Sequence[int], wanted: Callable[[CopiedVersion], bool] | None
    ) -> None:
        layout = self.layout.of_branch(history.branch)
        held = set(self.numbers(layout.snapshot_directory, SNAPSHOT_PREFIX))
        missing = [number for number in numbers if number not in held]
        if not missing:
            return
        plan = CopyPlan(history, history.snapshots.find(max(held)) if held else None)
        has_branches = not self.is_new and bool(BranchList(self.storage, self.layout).directories())
        for portion in plan.portions(missing, held, wanted, has_branches=has_branches):
            self.copy_files(portion)
            for version in portion.versions:
                self.put(layout.snapshot(version.snapshot.id), version.content)
                self.tally.snapshots += 1

    def copy_state(self, history: TableContext, version: CopiedVersion, target: str) -> None:
        """Copy one version with all its files, and write it to `target`."""
        portion = CopyPortion()
        CopyPlan(history).add_state(portion, version)
        try:
            self.copy_files(portion)
        except _Vanished as error:
            raise NotFound(
                f"{history.layout.root}/{error.paths[0]} was deleted while {history.address} was being copied",
                "another job has expired the snapshot, or the table is damaged",
                f"try again; if it happens again: paimon-cli verify {history.layout.argument}",
            ) from error
        self.put(target, version.content)

    def copy_tags(self, history: TableContext, wanted: Callable[[CopiedVersion], bool] | None = None) -> None:
        """Copy the tags that the copy has not, or has otherwise, after the snapshots."""
        self._again_if_gone(history, lambda: self._copy_tags(history, wanted))

    def _copy_tags(self, history: TableContext, wanted: Callable[[CopiedVersion], bool] | None) -> None:
        layout = self.layout.of_branch(history.branch)
        held = set(self.numbers(layout.snapshot_directory, SNAPSHOT_PREFIX))
        there = self.names(layout.tag_directory)
        for name in history.tags.names():
            path = layout.tag(name)
            version = CopiedVersion.read(history.storage, history.layout.tag(name))
            exists = path.rpartition("/")[2] in there
            if version is None or (exists and self.storage.read_bytes(path) == version.content):
                continue
            if wanted is not None and not wanted(version):
                continue
            if version.snapshot.id not in held or not self._is_same(layout, version):
                portion = CopyPortion()
                CopyPlan(history).add_tag(portion, version)
                self.copy_files(portion)
            self.put(path, version.content, replaces=exists)
            self.tally.tags += 1

    def _is_same(self, layout: TableLayout, version: CopiedVersion) -> bool:
        """Whether a tag is of the snapshot of this id that the copy holds."""
        found = CopiedVersion.read(self.storage, layout.snapshot(version.snapshot.id))
        return found is not None and found.snapshot == version.snapshot

    def copy_changelogs(self, history: TableContext, wanted: Callable[[CopiedVersion], bool] | None = None) -> None:
        """Copy the long-lived changelogs of snapshots that the copy has not."""
        self._again_if_gone(history, lambda: self._copy_changelogs(history, wanted))

    def _copy_changelogs(self, history: TableContext, wanted: Callable[[CopiedVersion], bool] | None) -> None:
        layout = self.layout.of_branch(history.branch)
        numbers = ChangelogHistory(history.storage, history.layout).ids()
        if not numbers:
            return
        held = {
            *self.numbers(layout.snapshot_directory, SNAPSHOT_PREFIX),
            *self.numbers(layout.changelog_directory, CHANGELOG_PREFIX),
        }
        plan = CopyPlan(history)
        for number in numbers:
            version = None if number in held else CopiedVersion.read(history.storage, history.layout.changelog(number))
            if version is None or (wanted is not None and not wanted(version)):
                continue
            portion = CopyPortion()
            plan.add_changelog(portion, version)
            self.copy_files(portion)
            self.put(layout.changelog(number), version.content)
            self.tally.changelogs += 1
        there = self.numbers(layout.changelog_directory, CHANGELOG_PREFIX)
        if there:
            self._hint(layout.earliest_changelog_hint, there[0])
            self._hint(layout.latest_changelog_hint, there[-1])

    def copy_schemas(self, history: TableContext, up_to: int | None = None, *, newest_first: bool = False) -> None:
        """Copy the schemas that the copy has not, oldest first. Raises `NotFound` if the table is being dropped.

        `newest_first`: a new table is seen with its first schema, and nobody may take an old one for the latest.
        """
        layout = self.layout.of_branch(history.branch)
        held = set(self.numbers(layout.schema_directory, SCHEMA_PREFIX))
        numbers = history.schemas.ids()
        for number in reversed(numbers) if newest_first else numbers:
            if number not in held and (up_to is None or number <= up_to):
                self.put(layout.schema(number), history.storage.read_bytes(history.layout.schema(number)))

    def write_hints(self, branch: str) -> None:
        """Write the hints of the copy, which has other snapshots than its source."""
        layout = self.layout.of_branch(branch)
        if numbers := self.numbers(layout.snapshot_directory, SNAPSHOT_PREFIX):
            self._hint(layout.earliest_hint, numbers[0])
            self._hint(layout.latest_hint, numbers[-1])

    def numbers(self, directory: str, prefix: str) -> list[int]:
        """The numbers of the versions, or schemas, that the copy has in a directory."""
        found = (parse_numbered(prefix, name) for name in self.names(directory))
        return sorted(number for number in found if number is not None)

    def newest(self, branch: str) -> int | None:
        """The newest snapshot of a branch that the copy has."""
        return max(self.numbers(self.layout.of_branch(branch).snapshot_directory, SNAPSHOT_PREFIX), default=None)

    def names(self, directory: str) -> set[str]:
        """The names of the files that the copy has in a directory."""
        if directory not in self._names:
            listed = [] if self.is_new and not self.is_resumed else self.storage.list_directory(directory)
            self._names[directory] = {status.name for status in listed if not status.is_directory}
        return self._names[directory]

    def forget(self) -> None:
        """Look again at what the copy has, because others than this object have changed it."""
        self._names.clear()
        self._listed.forget()

    def remove(self, path: str) -> None:
        """Delete the file of a version from the copy."""
        self.storage.delete(path)
        self._note(path).discard(path.rpartition("/")[2])

    def _note(self, path: str) -> set[str]:
        """The known names in the directory of a file."""
        return self._names.get(path.rpartition("/")[0], set())

    def _again_if_gone(self, history: TableContext, copy: Callable[[], None]) -> None:
        """Copy, and plan again if versions disappear meanwhile. Raises `DamagedFile` if only their files do."""
        gone: PaimonError | None = None
        for _ in range(_TRIES):
            try:
                copy()
                return
            except SnapshotGone as error:
                gone, self.is_resumed = error, True
            except _Vanished as error:
                self.is_resumed = True
                path = f"{history.layout.root}/{error.paths[0]}"
                gone = DamagedFile(f"{path} is missing", "a version of the table names it", history.layout.if_damaged, path=path)
        if isinstance(gone, DamagedFile):
            raise gone
        why, hint = "another job is deleting them", "try again when that job has ended"
        raise NotFound(f"versions of {history.address} disappear while they are copied", why, hint)

    # ---- files --------------------------------------------------------------------------------------------------------------

    def copy_files(self, portion: CopyPortion) -> None:
        """Copy the files of a portion as tasks of the engine: those that are named before those that name them."""
        self.before()
        for rank in sorted(portion.files):
            files = list(portion.files[rank].values())
            if self._may_meet_own or self._has_files:
                looked_for = [file for file in files if self.is_resumed or file.path in portion.may_exist]
                found = {file.path for file in looked_for if self._listed.has(file, self._size_of)}
                files = [file for file in files if file.path not in found]
            try:
                self._run(files)
            except BaseException:
                self._listed.forget()
                raise
            self._listed.add(files)

    @property
    def _may_meet_own(self) -> bool:
        """Whether this copy, or an earlier one, may have left files."""
        return not self.is_new or self.is_resumed

    def _size_of(self, file: FileToCopy) -> int | None:
        if file.size is not None:
            return file.size
        try:
            return self.source.storage.file_size(f"{self.source.layout.root}/{file.path}")
        except FileNotFoundError:
            return None

    def _run(self, files: list[FileToCopy]) -> None:
        if not files:
            return
        if self.is_new:
            self.written += [f"{self.layout.root}/{file.path}" for file in files]
        size = sum(file.size or 0 for file in files)
        self.engine.prepare(Work(size // COPIES_PER_READ, len(files) // COPIES_PER_READ), self.progress)
        throttle, tasks = self.throttle, list(tasks_of(files))
        if throttle is not None and self.engine.name != LOCAL:
            tasks = tasks_at_most(files, _THROTTLED_TASKS)
            throttle = throttle.shared_by(len(tasks))
        roots = (self.source.storage, self.source.layout.root, self.storage, self.layout.root)
        copy = FileCopy(*roots, replaces=self._may_meet_own or self.engine.retries_tasks, throttle=throttle)
        missing: list[str] = []

        def done(copied: Copied) -> None:
            self.tally.files += copied.files
            self.tally.size += copied.size
            missing.extend(copied.missing)
            self.progress.advance(copied.files)

        with phase(self.progress, "Copying files", len(files)):
            sizes = [sum(file.size or 0 for file in task) for task in tasks]
            self._has_files = True
            self.engine.run_tasks(functools.partial(FileCopy.copy_all, copy), tasks, done, sizes)
        if missing:
            raise _Vanished(missing)

    def put(self, path: str, content: bytes, *, replaces: bool = False) -> None:
        """Write the file of a version or schema. One that exists with another content is kept, unless this one `replaces` it."""
        self.tally.files += 1
        self.tally.size += len(content)
        if replaces:
            if self.is_new:
                self.written.append(path)
            self.storage.overwrite(path, content)
        elif self.is_new:
            self._put_new(path, content)
        elif (became := put_and_verify(self.storage, path, content)) is Verified.THEIRS:
            why = "what is there is another version than that of the table"
            raise Refused(f"{path} exists already", why, "copy into another directory", path=path)
        elif became is not Verified.OURS:
            raise _not_written(path)
        self._note(path).add(path.rpartition("/")[2])

    def _put_new(self, path: str, content: bytes) -> None:
        """Write a file of a new copy. One that exists is never taken for ours: another copy of the same table holds the same."""
        outcome = self.storage.put_if_absent(path, content)
        if outcome is PutOutcome.EXISTS:
            raise UsageError(f"{self.layout.root} is not empty", "another job is writing to it", "choose another name")
        self.written.append(path)
        if outcome is PutOutcome.UNKNOWN and not self.storage.exists(path):
            raise _not_written(path)

    def _hint(self, path: str, number: int) -> None:
        try:
            if parse_hint(self.storage.read_bytes(path)) == number:
                return
        except FileNotFoundError:
            pass
        if self.is_new:
            self.written.append(path)
        self.storage.overwrite(path, str(number).encode())


def _not_written(path: str) -> StorageUnavailable:
    return StorageUnavailable(f"{path} could not be written", "the storage gave no clear answer", "try again")


class _Present:
    """Which files the copy has, by listing each directory once. The directories that were listed first are forgotten when there
    are too many names.
    """

    def __init__(self, storage: Storage, root: str) -> None:
        self._storage, self._root = storage, root
        self._sizes: dict[str, dict[str, int | None]] = {}
        self._count = 0

    def forget(self) -> None:
        self._sizes.clear()
        self._count = 0

    def add(self, files: Iterable[FileToCopy]) -> None:
        """Note files that were copied."""
        for file in files:
            directory, _, name = file.path.rpartition("/")
            if (known := self._sizes.get(directory)) is not None and name not in known:
                known[name] = file.size
                self._count += 1

    def _list(self, directory: str) -> None:
        listed = self._storage.list_directory(f"{self._root}/{directory}")
        self._sizes[directory] = {status.name: status.size for status in listed if not status.is_directory}
        self._count += len(self._sizes[directory])
        while self._count > _PORTIONS_KNOWN * PIECES.copied_portion_files and len(self._sizes) > 1:
            self._count -= len(self._sizes.pop(next(iter(self._sizes))))

    def has(self, file: FileToCopy, size_of: Callable[[FileToCopy], int | None]) -> bool:
        """Whether the copy has the whole file. What was killed may have left its beginning."""
        directory, _, name = file.path.rpartition("/")
        if directory not in self._sizes:
            self._list(directory)
        known = self._sizes[directory]
        return name in known and (known[name] is None or known[name] == size_of(file))
