"""`stage commit --watch`: a committer process for writers that are started by others, such as tasks of a scheduler.

Writers put stage files into a directory. Each file is a checkpoint, and so is each subdirectory with a file `_SUCCESS`, whose
stage files become one snapshot. Checkpoints are committed in the order of their names, and then move to `done`, or to `failed` if
they can never be committed.

The directory is not trusted to say what was committed, so the process can be killed between any two steps: the commits are
recognised by the identities of their writers. A checkpoint whose files are already half moved is finished by the same steps.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from paimon_cli.catalog.table_site import is_file
from paimon_cli.errors import (
    CommitUnknown,
    DamagedFile,
    NotFound,
    PaimonError,
    PartialSuccess,
    Refused,
    StorageUnavailable,
    UsageError,
)
from paimon_cli.jobs.process import Terminated
from paimon_cli.jobs.staging.stage_commit import StagedWrite, StageSummary
from paimon_cli.jobs.table_change import Shield
from paimon_cli.metadata.staged_commit import COMMITTED
from paimon_cli.options.option_text import counted
from paimon_cli.storage.capabilities import remove_empty_directory
from paimon_cli.storage.injected import Clock
from paimon_cli.storage.storage import Storage
from paimon_cli.storage.storage_for_url import storage_for_url

_DONE, _FAILED = "done", "failed"
_MOVES = {_DONE: "committed", _FAILED: "failed"}
COMPLETE = "_SUCCESS"
"""The file that says that all stage files of a subdirectory are there."""
_FAILING = "_FAILING"
"""The file that says that a subdirectory is on its way to `failed`. One that only has the name of an earlier one is not."""
_TEMPORARY = ".tmp"
_TRY_AGAIN = (StorageUnavailable, CommitUnknown)
"""Errors that say nothing about the checkpoint: it stays, and so do those after it, so that they keep their order."""

CommitFiles = Callable[[], StageSummary]
Prepare = Callable[[Sequence[StagedWrite]], CommitFiles]
"""Opens the table of staged writes. Returns the function that commits them together. Raises `Refused` if nothing can be committed
to the table safely.
"""


@dataclass(frozen=True)
class Checkpoint:
    """Stage files that become one snapshot. `files`: their names below the directory."""

    name: str
    files: tuple[str, ...]
    is_directory: bool = False


@dataclass(frozen=True)
class CheckpointDone:
    """What became of a checkpoint. `table`: empty if the files do not say. `error`: None unless it failed or is tried again."""

    name: str
    state: str
    table: str = ""
    files: int = 0
    rows: int = 0
    summary: StageSummary = field(default_factory=StageSummary)
    error: PaimonError | None = None


@dataclass(frozen=True)
class LandingArea:
    """The directory, as typed by the user, in which stage files land."""

    name: str

    def _storage(self) -> tuple[Storage, str]:
        return storage_for_url(self.name)

    def check(self, targets: Sequence[str]) -> None:
        """Raise `UsageError` if a file takes the place of the directory, or of those to which checkpoints move; `NotFound` if it
        does not exist.
        """
        storage, root = self._storage()
        if not storage.is_remote and not storage.exists(root):
            raise NotFound(f"there is no directory {self.name}", "stage files are expected to land there", "create it first")
        if storage.is_remote:
            return
        if is_file(storage, root):
            raise UsageError(f"{self.name} is a file", "stage files are expected to land in a directory", "name their directory")
        for status in storage.list_directory(root):
            if status.name in targets and not status.is_directory:
                why = f"{_MOVES[status.name]} checkpoints move to a directory of this name"
                raise UsageError(f"{self.file(status.name)} is no directory", why, "rename it, or name another directory")

    def file(self, name: str) -> str:
        """The path or URL of a stage file."""
        return f"{self.name.rstrip('/')}/{name}"

    def checkpoints(self) -> list[Checkpoint]:
        """The checkpoints that have landed, in the order of their names."""
        storage, root = self._storage()
        found = []
        for entry in sorted(storage.list_directory(root), key=lambda entry: entry.name):
            if not _counts(entry.name) or entry.name in (_DONE, _FAILED):
                continue
            if not entry.is_directory:
                found.append(Checkpoint(entry.name, (entry.name,)))
                continue
            names = sorted(inner.name for inner in storage.list_directory(f"{root}/{entry.name}") if not inner.is_directory)
            if _FAILING in names:
                with contextlib.suppress(DamagedFile, FileNotFoundError):  # what is no file stays where it is
                    self._move_failed(entry.name, names)  # what a kill has left
            elif COMPLETE in names:
                found.append(Checkpoint(entry.name, tuple(f"{entry.name}/{name}" for name in names if _counts(name)), True))
        return found

    def has_moved(self, checkpoint: Checkpoint) -> bool:
        """Whether files of this checkpoint are in `done`."""
        storage, root = self._storage()
        return any(_counts(entry.name) for entry in storage.list_directory(f"{root}/{_DONE}/{checkpoint.name}"))

    def move(self, checkpoint: Checkpoint, target: str) -> None:
        """Move a checkpoint to `done` or `failed`.

        The mark of a subdirectory moves to `done` last. One that moves to `failed` has a mark of its own until all files have
        moved: a part of a failed checkpoint is no checkpoint.
        """
        if not checkpoint.is_directory:
            self._move_files(checkpoint.files, target)
        elif target == _DONE:
            self._move_files((*checkpoint.files, f"{checkpoint.name}/{COMPLETE}"), target)
        else:
            storage, root = self._storage()
            storage.overwrite(f"{root}/{checkpoint.name}/{_FAILING}", b"")
            self._move_failed(checkpoint.name, (COMPLETE, *(name.rpartition("/")[2] for name in checkpoint.files)))

    def _move_failed(self, directory: str, names: Sequence[str]) -> None:
        storage, root = self._storage()
        self._move_files([f"{directory}/{name}" for name in names if name != _FAILING], _FAILED)
        storage.delete(f"{root}/{directory}/{_FAILING}")
        remove_empty_directory(storage, f"{root}/{directory}")

    def _move_files(self, names: Sequence[str], target: str) -> None:
        storage, root = self._storage()
        for name in names:
            content = storage.read_bytes(f"{root}/{name}")
            if (place := _free_place(storage, f"{root}/{target}/{name}", content)) is not None:
                storage.overwrite(place, content)
            storage.delete(f"{root}/{name}")
        for directory in {name.rpartition("/")[0] for name in names if "/" in name}:
            remove_empty_directory(storage, f"{root}/{directory}")


def _counts(name: str) -> bool:
    return not (name.startswith((".", "_")) or name.endswith(_TEMPORARY))


def _free_place(storage: Storage, path: str, content: bytes) -> str | None:
    """Where to put the content, without replacing a file that moved there before; None if it is there already."""
    place, number = path, 0
    while storage.exists(place):
        if storage.read_bytes(place) == content:
            return None
        number += 1
        place = f"{path}.{number}"
    return place


@dataclass
class StageWatch:
    """Commits the checkpoints that land in a directory, round by round.

    `keeps`: committed files stay in the directory. `on_done` receives each checkpoint that was tried. `shield`: holds signals
    back while a checkpoint is committed and moved.
    """

    area: LandingArea
    prepare: Prepare
    clock: Clock
    on_done: Callable[[CheckpointDone], None]
    keeps: bool = False
    shield: Shield = contextlib.nullcontext
    tried: int = 0
    failed: int = 0
    _seen: set[str] = field(default_factory=set)

    def run(self, interval_seconds: float, max_rounds: int | None) -> None:
        """Run rounds until `max_rounds` (None: until interrupted).

        Then raises the error for which the last round was given up, or `PartialSuccess` if checkpoints have failed.
        """
        self.area.check((_FAILED,) if self.keeps else (_DONE, _FAILED))
        given_up, is_first = None, True
        try:
            for number in itertools.count(1):
                given_up = self._round(is_first=is_first)
                is_first = is_first and given_up is not None  # what an earlier process has kept is not all seen yet
                if number == max_rounds:
                    break
                self.clock.sleep(interval_seconds)
        except Terminated:
            self.check_failures()
            raise
        if given_up is not None:
            raise given_up
        self.check_failures()

    def check_failures(self) -> None:
        """Raise `PartialSuccess` if checkpoints have failed."""
        if self.failed:
            raise PartialSuccess(
                f"{self.failed:,} of {counted(self.tried, 'checkpoint')} could not be committed",
                f"they are in {self.area.file(_FAILED)}",
                "correct what the log says, then commit them with `stage commit`, or abort them with `stage abort`",
            )

    def _round(self, *, is_first: bool) -> PaimonError | None:
        """Commit what has landed. Returns the error that ended the round early."""
        try:
            landed = [checkpoint for checkpoint in self.area.checkpoints() if checkpoint.name not in self._seen]
        except StorageUnavailable as error:
            self.on_done(CheckpointDone("", "try again", error=error))
            return error
        for checkpoint in self._kept_before(landed) if self.keeps and is_first else landed:
            try:
                with self.shield():
                    done = self._commit(checkpoint)
            except UnsafeTable as unsafe:
                raise unsafe.refusal from unsafe
            if done is not None:
                self.on_done(done)
                if isinstance(done.error, _TRY_AGAIN):
                    return done.error
        return None

    def _kept_before(self, landed: Sequence[Checkpoint]) -> Iterator[Checkpoint]:
        """The checkpoints without those that an earlier process has committed and kept.

        Only the newest of these, whose compaction a kill may have prevented, is committed once more.
        """
        newest: tuple[int, Checkpoint] | None = None
        for checkpoint in landed:
            ids = self._committed_in(checkpoint)
            if ids is None:
                yield checkpoint
                continue
            self._seen.add(checkpoint.name)
            if newest is None or ids >= newest[0]:
                newest = (ids, checkpoint)
        if newest is not None:
            yield newest[1]

    def _committed_in(self, checkpoint: Checkpoint) -> int | None:
        """The newest snapshot that its files name; None if they do not all say that they were committed."""
        try:
            staged = [StagedWrite.read(self.area.file(name)).staged for name in checkpoint.files]
        except PaimonError:
            return None  # the commit meets the same error, and says what it is
        if not staged or any(one.state != COMMITTED for one in staged):
            return None
        return max((number for one in staged for number in one.snapshot_ids), default=0)

    def _commit(self, checkpoint: Checkpoint) -> CheckpointDone | None:
        """Commit a checkpoint and move its files; None if it is no longer there."""
        try:
            done = self._attempt(checkpoint)
            if done is None:
                return None
            if done.error is not None:
                self._move(checkpoint, _FAILED)
            elif self.keeps:
                self._seen.add(checkpoint.name)
            else:
                self._move(checkpoint, _DONE)
        except _TRY_AGAIN as error:
            return CheckpointDone(checkpoint.name, "try again", files=len(checkpoint.files), error=error)
        self.tried += 1
        self.failed += done.error is not None
        return done

    def _move(self, checkpoint: Checkpoint, target: str) -> None:
        """Move a checkpoint. What is no file, such as a named pipe or a link without a target, stays where it is, and is not
        tried again.
        """
        try:
            self.area.move(checkpoint, target)
        except (DamagedFile, FileNotFoundError):
            self._seen.add(checkpoint.name)

    def _attempt(self, checkpoint: Checkpoint) -> CheckpointDone | None:
        """Commit a checkpoint, if that can be done."""
        table, rows = "", 0
        try:
            writes = [StagedWrite.read(self.area.file(name)) for name in checkpoint.files]
            # All of them have moved if a kill came before the mark of the directory.
            summary = StageSummary(already_committed=not writes and self.area.has_moved(checkpoint))
            if writes:
                table, rows = writes[0].staged.table, sum(f.row_count for w in writes for m in w.messages for f in m.append.added)
                summary = self._prepared(writes)()
        except _TRY_AGAIN:
            raise
        except PaimonError as error:
            if isinstance(error, NotFound) and checkpoint not in self.area.checkpoints():
                return None
            return CheckpointDone(checkpoint.name, "failed", table, len(checkpoint.files), rows, error=error)
        without = "no rows" if writes else "no files"
        state = "committed" if summary.snapshots else "already committed" if summary.already_committed else without
        return CheckpointDone(checkpoint.name, state, table, len(checkpoint.files), rows, summary)

    def _prepared(self, writes: Sequence[StagedWrite]) -> CommitFiles:
        try:
            return self.prepare(writes)
        except Refused as refusal:  # nothing can be committed to the table, whatever the checkpoint holds
            raise UnsafeTable(refusal) from refusal


class UnsafeTable(Exception):
    """Carries the refusal of a table through the handling of checkpoints that fail."""

    def __init__(self, refusal: Refused) -> None:
        super().__init__(refusal)
        self.refusal = refusal
