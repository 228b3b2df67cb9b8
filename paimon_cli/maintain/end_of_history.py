"""Ends the history of a table or branch before its files are deleted, so that no commit is acknowledged in what is being deleted.

The end is a snapshot of kind DROP, which takes the next number by put-if-absent, as a commit does. From then on every committer
loses the race for that number, reads the newest snapshot, and learns of the drop. This costs a commit no request. A committer
that was suspended before the drop may find a number free that the drop has deleted. It notices that the predecessor of its
snapshot is gone, and then looks for the schema (`commit.snapshot_publish`). So the order of deletion matters: snapshots oldest
first, because no number may become free while its predecessor exists, then all else, the schemas, and the end last.

A drop that was interrupted leaves the end in place, and can be repeated. Removing only the end reopens the history; no drop may
have deleted anything under it.
"""

from __future__ import annotations

from paimon_cli.commit.snapshot_publish import put_snapshot, replace_snapshot
from paimon_cli.errors import BeingDropped, CommitUnknown, Conflict, DamagedFile, Refused, StorageUnavailable
from paimon_cli.history.snapshot_history import SnapshotHistory
from paimon_cli.metadata.snapshot import Snapshot, end_text
from paimon_cli.metadata.table_layout import SNAPSHOT_PREFIX, TableLayout, parse_numbered
from paimon_cli.storage.capabilities import keep_deleted
from paimon_cli.storage.injected import Clock, RandomSource, SystemClock, SystemRandom
from paimon_cli.storage.storage import Storage, Verified, what_became

_TRIES = 100


class EndOfHistory:
    """The end of the history of one table or branch: `begin` puts it in place."""

    def __init__(
        self, storage: Storage, layout: TableLayout, clock: Clock | None = None, random: RandomSource | None = None
    ) -> None:
        self._storage = storage
        self._layout = layout
        self._clock = clock or SystemClock()
        self._random = random or SystemRandom()
        self._number: int | None = None

    @property
    def path(self) -> str | None:
        """The snapshot file that is the end; None before `begin`."""
        return None if self._number is None else self._layout.snapshot(self._number)

    def begin(self, after: int | None = None) -> None:
        """Put the end in place, or find that of an earlier attempt. From then on nothing can be committed.

        `after`: the id of the snapshot that must be the newest one (0: none); otherwise raises `Conflict`. Raises `CommitUnknown`
        if the storage does not say whether the end is in place; nothing may be deleted then.
        """
        history = SnapshotHistory(self._storage, self._layout)
        for _ in range(_TRIES):
            newest = history.latest_id() or 0
            if after is not None and newest != after:
                raise Conflict(f"snapshot {newest} was committed to {self._layout.root} meanwhile", hint="try again")
            is_end = self._is_end(newest) if newest else False
            if is_end:
                self._number = newest
                return
            if is_end is not None and self._put(newest + 1):
                self._number = newest + 1
                return
        raise StorageUnavailable(
            f"{self._layout.root} was not dropped",
            f"other jobs committed first in all {_TRIES} attempts",
            "stop the writers, then try again",
        )

    def is_in_place(self) -> bool:
        """Whether the end still exists. If not, another drop has finished, and the files may belong to a new table."""
        return self._number is not None and self._is_end(self._number) is True

    def remove_snapshots(self) -> None:
        """Delete all snapshots but the end, oldest first."""
        entries = self._storage.list_directory(self._layout.snapshot_directory)
        numbers = sorted(number for entry in entries if (number := parse_numbered(SNAPSHOT_PREFIX, entry.name)) is not None)
        for number in numbers:
            if number != self._number:
                self._storage.delete(self._layout.snapshot(number))
        keep_deleted(self._storage, self._layout.snapshot_directory)

    def retract(self) -> None:
        """Reopen the history, of which nothing may have been deleted."""
        if self._number is not None:
            self._storage.delete(self._layout.snapshot(self._number))

    def _put(self, number: int) -> bool:
        """Create the end; False if a commit has taken the number."""
        path = self._layout.snapshot(number)
        content = end_text(number, f"drop-{self._random.uuid()}", self._clock.now_millis()).encode()
        try:
            outcome = put_snapshot(self._storage, self._layout, number, content)
        except Refused:  # no commit is safe on this store, and neither is a drop beside one that was allowed by the user
            if self._storage.exists(path):
                return False
            replace_snapshot(self._storage, self._layout, number, content)
            return True
        published = what_became(self._storage, path, content, outcome)
        if published is Verified.UNCLEAR:
            raise CommitUnknown(
                f"{self._layout.root} may or may not have been closed for the drop",
                f"the storage gave no clear answer, and {path} cannot be read as a whole",
                "nothing was deleted; run the drop again",
            )
        return published is Verified.OURS  # if nothing is there, and the put arrives later, it is found as an end

    def _is_end(self, number: int) -> bool | None:
        """Whether this snapshot is an end; None if it does not exist any more."""
        path = self._layout.snapshot(number)
        try:
            Snapshot.from_json(self._storage.read_bytes(path), path)
        except BeingDropped:
            return True
        except FileNotFoundError:
            return None
        except DamagedFile:
            return False
        return False
