"""Finds snapshots of a table: the newest, the oldest, by id, by time.

Hints are checked against the files (FORMAT.md, section 1.3; Java SnapshotManager).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from paimon_cli.errors import BeingDropped, DamagedFile, NotFound, SnapshotNotFound, StorageUnavailable
from paimon_cli.history.lost_history import hint_of_lost_snapshots
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import (
    CHANGELOG_PREFIX,
    MAIN_BRANCH,
    SNAPSHOT_PREFIX,
    TAG_PREFIX,
    TableLayout,
    parse_hint,
    parse_numbered,
)
from paimon_cli.pieces import PIECES
from paimon_cli.storage.directories import first_named
from paimon_cli.storage.storage import Storage
from paimon_cli.storage.threads import Ahead, cached_property, together

_TRIES = 3
_FRESH_SECONDS = 5.0
"""For how long a plan may use a snapshot that was fetched ahead."""
LONGEST_GAP = 1000
"""The longest run of missing numbers that a stale listing explains; a longer one comes from a stray file."""


@dataclass(frozen=True)
class SnapshotHistory:
    """Reads the directory `snapshot/`. Every call accesses the storage, except `seen` and what was fetched ahead."""

    storage: Storage
    layout: TableLayout
    _seen: list[Snapshot] = field(default_factory=list, compare=False, repr=False)
    _parsed: list[tuple[bytes, Snapshot]] = field(default_factory=list, compare=False, repr=False)
    """The content that `find` read last, and its snapshot: a commit reads the newest file several times, and parses it once."""

    @cached_property
    def _hint_ahead(self) -> Ahead[int | None]:
        return Ahead()

    @cached_property
    def _latest_ahead(self) -> Ahead[Snapshot | None]:
        return Ahead(_FRESH_SECONDS)

    def fetch_hint(self) -> None:
        """Start to read the LATEST hint for the next call, if the storage is remote. An outdated hint is harmless."""
        if self.storage.is_remote:
            self._hint_ahead.begin(lambda: self._hint(self.layout.latest_hint))

    def is_ended(self) -> bool:
        """Whether a drop, which was interrupted or is still running, has ended the history."""
        try:
            self._find_latest()
        except BeingDropped:
            return True
        except (DamagedFile, NotFound):
            return False
        return False

    def fetch_latest(self) -> None:
        """Start to read the newest snapshot for a plan that is about to follow, if the storage is remote."""
        if self.storage.is_remote:
            self._latest_ahead.begin(self._find_latest)

    def forget_fetched(self) -> None:
        """Forget what `fetch_latest` has read, so that no later plan misses a commit that this process makes in the meantime."""
        if self.storage.is_remote:
            self._latest_ahead.drop()

    def seen(self) -> Snapshot | None:
        """The newest snapshot that was read or published through this object, or None. On object stores a commit builds on it,
        and its put fails if the snapshot is outdated.
        """
        return self._seen[-1] if self._seen else None

    def latest_id(self) -> int | None:
        """The id of the newest snapshot; None if there is none. Correct even if the hint or a listing is stale."""
        hint = self._hint(self.layout.latest_hint)
        if hint is not None and self.exists(hint):
            for newest in range(hint, hint + PIECES.max_walked_snapshots):
                if not self.exists(newest + 1):
                    return newest
        ids = self.ids()
        newest = ids[-1] if ids else self._hint(self.layout.earliest_hint) or 1
        if not ids and not self.exists(newest):
            return None
        while self.exists(newest + 1):
            newest += 1
        return newest

    def expect_kept(self) -> None:
        """Raise `DamagedFile` if there is no snapshot, although there have been some: their files are lost."""
        if (left := self.left_without_snapshot()) is not None:
            raise DamagedFile(
                f"the snapshot files of {self.layout.version_root} are lost",
                f"{left} is there, but no snapshot/{SNAPSHOT_PREFIX}* file",
                "restore them from a backup before anything is written; what is left: "
                f"paimon-cli verify {self.layout.argument} --all-snapshots",
                path=self.layout.snapshot_directory,
            )

    def left_without_snapshot(self) -> str | None:
        """A file which proves that there have been snapshots, if there is none now; otherwise None: a tag or changelog, which was
        made of a snapshot, or a hint together with manifests of several commits.
        """
        layout = self.layout
        left = first_named(self.storage, {layout.tag_directory: TAG_PREFIX, layout.changelog_directory: CHANGELOG_PREFIX})
        if left is None and not self.ids():
            left = hint_of_lost_snapshots(self.storage, layout)
        return None if left is None or self.ids() else left.removeprefix(f"{layout.version_root}/")

    def earliest_id(self) -> int | None:
        """The id of the oldest existing snapshot of the history; None if there is none."""
        oldest = self._hint(self.layout.earliest_hint)
        if oldest is None or not self.exists(oldest):
            return min(self.ids(), default=None)
        while oldest > 1 and self.exists(oldest - 1):
            oldest -= 1
        return oldest

    def latest(self) -> Snapshot | None:
        """The newest snapshot; None if there is none. Tries again if a rollback or an expiry removes it in the meantime."""
        return self.remembered(self._find_latest())

    def latest_to_plan(self) -> Snapshot | None:
        """The newest snapshot, or one that `fetch_latest` read a moment ago, if none was read or published since. A plan may be
        outdated at any time anyway.
        """
        return self.remembered(self._latest_ahead.take(self._find_latest) if self.storage.is_remote else self._find_latest())

    def remembered(self, found: Snapshot | None) -> Snapshot | None:
        """Keep `found`, which was read or published a moment ago, for `seen`, and return it.

        A snapshot that was fetched ahead is forgotten, because it may be older.
        """
        self.forget_fetched()
        self._seen[:] = [] if found is None else [found]
        return found

    def _find_latest(self) -> Snapshot | None:
        hinted = self._after_fetched_hint() if self.storage.is_remote else self._at_hint()
        if hinted is not None:
            return hinted
        for _ in range(_TRIES):
            newest = self.latest_id()
            if newest is None:
                return None
            snapshot = self.find(newest)
            if snapshot is not None:
                return snapshot
        raise NotFound(
            f"the newest snapshot of {self.layout.root} disappears each time it is read",
            "another job is deleting snapshots",
            "run the command again when that job has ended",
        )

    def _at_hint(self) -> Snapshot | None:
        """The newest snapshot if the hint is correct, otherwise None."""
        hint = self._hint(self.layout.latest_hint)
        return None if hint is None or self.exists(hint + 1) else self.find(hint)

    def _after_fetched_hint(self) -> Snapshot | None:
        """The newest snapshot, searched from the hint on. The snapshot of the hint and the next one are read in parallel."""
        hint = self._hint_ahead.take(lambda: self._hint(self.layout.latest_hint))
        if hint is None:
            return None
        found, above = together([lambda: self.find(hint), lambda: self.find(hint + 1)])
        for _ in range(PIECES.max_walked_snapshots):
            if above is None:
                return found
            found, above = above, self.find(above.id + 1)
        return None

    def latest_hint(self) -> int | None:
        """The id in the LATEST hint, which may be wrong; None without a hint. Raises `StorageUnavailable`."""
        return self._read_hint(self.layout.latest_hint)

    def earliest_hint(self) -> int | None:
        """The id in the EARLIEST hint, which may be wrong; None without a hint. Raises `StorageUnavailable`."""
        return self._read_hint(self.layout.earliest_hint)

    def find(self, snapshot_id: int) -> Snapshot | None:
        """The snapshot with this id; None if it does not exist. Raises `DamagedFile` if its file holds something else."""
        return read_snapshot(self.storage, self.layout, snapshot_id, parsed=self._parsed)

    def get(self, snapshot_id: int) -> Snapshot:
        """The snapshot with this id. Raises `NotFound`, whose message shows whether it has probably expired."""
        snapshot = self.in_history(snapshot_id)
        if snapshot is None:
            raise self.missing(snapshot_id)
        return snapshot

    def in_history(self, snapshot_id: int) -> Snapshot | None:
        """The snapshot with this id if it is part of the history; None also for a resurrected one."""
        snapshot = self.find(snapshot_id)
        if snapshot is None or snapshot_id >= (self._hint(self.layout.earliest_hint) or 0):
            return snapshot
        return None if snapshot_id in self.resurrected_ids() else snapshot

    def missing(self, snapshot_id: int) -> NotFound:
        """The error for a snapshot that does not exist, or has expired."""
        what = f"no snapshot {snapshot_id} in {self.layout.root}"
        earliest, latest = self.earliest_id(), self.latest_id()
        if earliest is None or latest is None:
            return SnapshotNotFound(what, "the table has no snapshots yet", "write to it first", snapshot_id=snapshot_id)
        why = f"the table has {f'only snapshot {latest}' if earliest == latest else f'snapshots {earliest} to {latest}'}"
        if 1 <= snapshot_id < earliest:
            why = f"it has probably expired: {why}"
        return SnapshotNotFound(what, why, f"paimon-cli snapshots ls {self.layout.argument}", snapshot_id=snapshot_id)

    def ids(self) -> list[int]:
        """All ids of the history, ascending, without foreign files and resurrected snapshots."""
        return self._listed()[1]

    def resurrected_ids(self) -> list[int]:
        """The ids of resurrected snapshots, ascending. A slow writer published them after their numbers had expired.

        The writer deletes such a snapshot again, unless it dies first. A gap separates these ids from EARLIEST and later ones: no
        snapshot was built on them, and their data files may no longer exist.
        """
        return self._listed()[0]

    def _listed(self) -> tuple[list[int], list[int]]:
        entries = self.storage.list_directory(self.layout.snapshot_directory)
        ids = sorted(number for entry in entries if (number := parse_numbered(SNAPSHOT_PREFIX, entry.name)) is not None)
        if not ids or ids[-1] - ids[0] < len(ids):
            return [], ids
        earliest = self._hint(self.layout.earliest_hint)
        if earliest is None or (index := bisect_left(ids, earliest)) == len(ids) or ids[index] != earliest:
            return [], ids
        while index and ids[index - 1] == ids[index] - 1:
            index -= 1
        return ids[:index], ids[index:]

    def unbroken(self, newest: Snapshot | None) -> Iterator[Snapshot]:
        """The snapshots from `newest` back to EARLIEST or the first gap. Each was built on the next one in this order."""
        snapshot, earliest = newest, None
        while snapshot is not None:
            yield snapshot
            earliest = earliest or self._hint(self.layout.earliest_hint) or 1
            snapshot = self.find(snapshot.id - 1) if snapshot.id not in (1, earliest) else None

    def likely_ids(self, first: int, last: int) -> list[int]:
        """The numbers from `first` to `last` that may be snapshots: listed ones, and gaps that a stale listing can explain."""
        if last - first <= LONGEST_GAP:
            return list(range(first, last + 1))
        listed = sorted({first, *(number for number in self.ids() if first < number < last), last})
        hidden = [number for gap in gaps(listed) if len(gap) <= LONGEST_GAP for number in gap]
        return sorted([*listed, *hidden])

    def newest_first(
        self,
        limit: int | None = None,
        even_if_dropped: bool = False,
        on_damage: Callable[[DamagedFile], object] | None = None,
    ) -> Iterator[Snapshot]:
        """The snapshots, newest first, read one at a time. The iteration ends at expired ones, even if they expire during it.

        `even_if_dropped`: if a drop has ended the history, the snapshots that it has not deleted yet. `on_damage`: receives the
        errors of snapshots that cannot be read, which are left out; without it they are raised.
        """
        try:
            snapshot = self.latest() if limit != 0 else None
        except DamagedFile as damage:
            if on_damage is None:
                raise
            on_damage(damage)
            snapshot = self._next_below(self.latest_id() or 0, on_damage)
        except BeingDropped:
            if not even_if_dropped:
                raise
            snapshot = self._next_below(self.latest_id() or 0)
        yielded = 0
        while snapshot is not None:
            yield snapshot
            yielded += 1
            if yielded == limit:
                return
            older = snapshot.id - 1
            snapshot = (self._find(older, on_damage) or self._next_below(older, on_damage)) if older else None

    def at_time(self, millis: int) -> Snapshot | None:
        """The newest snapshot committed at or before this time (epoch millis); None if all are later."""
        ids = self.ids()
        low, high = 0, len(ids)
        while low < high:
            middle = (low + high) // 2
            # a snapshot that has expired since the listing was older than all that remain
            snapshot = self.find(ids[middle])
            if snapshot is None or snapshot.time_millis <= millis:
                low = middle + 1
            else:
                high = middle
        return self.find(ids[low - 1]) if low else None

    def _next_below(self, snapshot_id: int, on_damage: Callable[[DamagedFile], object] | None = None) -> Snapshot | None:
        """The next older snapshot, across gaps that an interrupted expiry has left."""
        for number in reversed([number for number in self.ids() if number < snapshot_id]):
            snapshot = self._find(number, on_damage)
            if snapshot is not None:
                return snapshot
        return None

    def _find(self, snapshot_id: int, on_damage: Callable[[DamagedFile], object] | None) -> Snapshot | None:
        try:
            return self.find(snapshot_id)
        except DamagedFile as damage:
            if on_damage is None:
                raise
            on_damage(damage)
            return None

    def exists(self, snapshot_id: int) -> bool:
        """Whether the file of this snapshot exists. Takes one request."""
        return self.storage.exists(self.layout.snapshot(snapshot_id))

    def _hint(self, path: str) -> int | None:
        """The id in a hint. None if it cannot be read, so that the directory is listed instead."""
        try:
            return self._read_hint(path)
        except StorageUnavailable:
            return None

    def _read_hint(self, path: str) -> int | None:
        try:
            return parse_hint(self.storage.read_bytes(path))
        except (FileNotFoundError, DamagedFile):
            return None


def read_snapshot(
    storage: Storage,
    layout: TableLayout,
    snapshot_id: int,
    content: str = "snapshot",
    parsed: list[tuple[bytes, Snapshot]] | None = None,
) -> Snapshot | None:
    """The snapshot in a `content` file, `snapshot` or `changelog`; None if the file does not exist. Raises `DamagedFile`.

    `parsed`: the content of a file that was read before, and its snapshot, which is taken if this file has the same; replaced.
    """
    path = layout.snapshot(snapshot_id) if content == "snapshot" else layout.changelog(snapshot_id)
    try:
        text = storage.read_bytes(path)
        same = [snapshot for known, snapshot in parsed or () if known == text]
        snapshot = same[0] if same else Snapshot.from_json(text, path)
    except FileNotFoundError:
        return None
    except DamagedFile as error:
        error.set_hint(layout.if_damaged)
        raise
    except BeingDropped as drop:
        if layout.branch == MAIN_BRANCH:
            drop.set_hint(f"if no drop is running any more, delete what is left of it: paimon-cli drop {layout.argument}")
        raise
    if snapshot.id != snapshot_id:
        raise DamagedFile(f"{content} file {path} is damaged", f"it holds the id {snapshot.id}", layout.if_damaged, path=path)
    if parsed is not None:
        parsed[:] = [(text, snapshot)]
    return snapshot


def gaps(ids: Sequence[int]) -> Iterator[range]:
    """The numbers that are missing between ids in ascending order."""
    return (range(lower + 1, upper) for lower, upper in pairwise(ids) if upper > lower + 1)
