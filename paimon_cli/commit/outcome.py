"""How a commit ends: one value, from which follows what becomes of its new files, and which error leaves the command.

| outcome | the snapshots | the new files | the command |
|---|---|---|---|
| PUBLISHED | all of them | stay | goes on |
| DUPLICATE | made by another run | those that no snapshot names are deleted | goes on: the commit is made |
| REFUSED | none, or the first of two | those that no snapshot names are deleted | raises `failure` |
| UNKNOWN | perhaps | stay, all of them | raises `failure`, exit code 11 |

An error that is none of ours, such as an interrupt while a snapshot was being published, is no outcome: it leaves the files, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto

from paimon_cli.errors import CommitUnknown, Conflict, PaimonError, StorageUnavailable, Unpublished
from paimon_cli.metadata.snapshot import Snapshot


class CommitOutcome(Enum):
    """What became of a commit."""

    PUBLISHED = auto()
    """All its snapshots are part of the history; or there was nothing to commit."""
    DUPLICATE = auto()
    """An earlier run, or another process with the same identity, has made this commit."""
    REFUSED = auto()
    """It was certainly not published, but for the first of two snapshots."""
    UNKNOWN = auto()
    """The storage did not say whether it was published."""

    @property
    def leaves_unnamed_files(self) -> bool:
        """Whether new files that no snapshot names will never be named by one, so that they must be deleted."""
        return self in (CommitOutcome.DUPLICATE, CommitOutcome.REFUSED)


@dataclass(frozen=True)
class CommitResult:
    """The end of a commit: its outcome, the snapshots that it created, oldest first, and how many attempts it took: 1 if no race
    was lost. `failure`: why it was refused, or its outcome is unknown.
    """

    snapshots: tuple[Snapshot, ...] = ()
    attempts: int = 0
    outcome: CommitOutcome = CommitOutcome.PUBLISHED
    failure: PaimonError | Unpublished | None = None

    @staticmethod
    def of(commit: Callable[[], CommitResult]) -> CommitResult:
        """The end of a call of `commit`, also if it raises one of our errors."""
        try:
            return commit()
        except (PaimonError, Unpublished) as failure:
            return CommitResult.failed(failure)

    @staticmethod
    def failed(failure: PaimonError | Unpublished) -> CommitResult:
        """The end of a commit that has raised `failure`, or of the work before it."""
        return CommitResult(failure.committed, len(failure.committed)).ended_by(failure)

    def ended_by(self, failure: PaimonError | Unpublished) -> CommitResult:
        """The end of a commit that failed after these snapshots."""
        outcome = CommitOutcome.UNKNOWN if isinstance(failure, CommitUnknown) else CommitOutcome.REFUSED
        return replace(self, outcome=outcome, failure=failure)

    def followed_by(self, other: CommitResult) -> CommitResult:
        """The result of a commit of two snapshots."""
        attempts = other.attempts + max(self.attempts - 1, 0)
        return replace(other, snapshots=self.snapshots + other.snapshots, attempts=attempts)

    def or_raise(self) -> CommitResult:
        """This result, if the commit is made. Otherwise raises its failure, which names the snapshots that were published."""
        if self.failure is not None:
            self.failure.committed = self.snapshots
            self.failure.details["published_snapshots"] = [snapshot.id for snapshot in self.snapshots]
            raise self.failure
        return self

    @property
    def already_committed(self) -> bool:
        """Whether another run has made this commit."""
        return self.outcome is CommitOutcome.DUPLICATE

    @property
    def lost(self) -> str | None:
        """Why nothing, or not all, was committed, as text; None if all was."""
        return None if self.failure is None else str(self.failure)

    @property
    def lost_compactions(self) -> bool:
        """Whether the rows are committed, and only the compactions of their writers were refused."""
        return bool(self.snapshots) and isinstance(self.failure, (Conflict, StorageUnavailable))
