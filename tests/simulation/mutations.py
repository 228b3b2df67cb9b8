"""Planted bugs: each breaks one rule of the shipped code, and a search must find it, else its silence would prove nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from paimon_cli.commit import (
    abort,
    committer,
    data_conflict,
    files_conflict,
    manifest_merging,
    own_commits,
    prepared_snapshot,
    snapshot_publish,
)
from paimon_cli.commit.prepared_snapshot import PreparedSnapshot, prepare_snapshot
from paimon_cli.compact import compaction_plan
from paimon_cli.errors import PaimonError
from paimon_cli.history import manifest_reader, snapshot_history
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs import compact_job, write_job
from paimon_cli.maintain import expire_snapshots, retention, snapshot_files
from paimon_cli.metadata.commit_message import CommitMessage
from paimon_cli.metadata.data_file import ADD, DELETE, ManifestEntry
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.storage.storage import PutOutcome
from tests.simulation.sim_storage import SimStorage

Patch = AbstractContextManager[Any]


@dataclass(frozen=True)
class Mutation:
    """`plant` puts the bug in; a search through `scenario` has to find it, with so many interruptions of actors at most."""

    name: str
    scenario: str
    plant: Callable[[], Patch]
    most_switches: int = 1


MUTATIONS: list[Mutation] = []


def _mutation(scenario: str) -> Callable[[Callable[[], Patch]], Callable[[], Patch]]:
    def register(plant: Callable[[], Patch]) -> Callable[[], Patch]:
        MUTATIONS.append(Mutation(plant.__name__, scenario, plant))
        return plant

    return register


# checks before a commit


@_mutation("compactor-compactor")
def files_conflict_unchecked() -> Patch:
    return patch.object(committer, "check_files", lambda context, latest, changes: None)


@_mutation("compactor-compactor")
def files_checked_at_the_first_attempt_only() -> Patch:
    """As if what was true of the snapshot that lost the race were true of the one that won it."""
    checked: set[int] = set()
    real = committer.check_files

    def once(context: TableContext, latest: Snapshot | None, changes: Any) -> None:
        if id(changes) not in checked:
            checked.add(id(changes))
            kept.append(changes)
            real(context, latest, changes)

    kept: list[Any] = []
    return patch.object(committer, "check_files", once)


@_mutation("upgrades")
def level_overlap_unchecked() -> Patch:
    return patch.object(files_conflict, "_check_levels", lambda *arguments: None)


@_mutation("checked-writers")
def data_conflict_checked_at_the_first_attempt_only() -> Patch:
    real = data_conflict.DataConflictCheck.check
    looked: list[Any] = []

    def once(self: Any, latest: Snapshot | None) -> None:
        if not any(check is self for check in looked):
            looked.append(self)
            real(self, latest)

    return patch.object(data_conflict.DataConflictCheck, "check", once)


@_mutation("checked-writers")
def data_conflict_overlooks_the_first_foreign_snapshot() -> Patch:
    real = data_conflict.DataConflictCheck._check_snapshot

    def later(self: Any, snapshot: Snapshot) -> None:
        if snapshot.id > self._read + 1:
            real(self, snapshot)

    return patch.object(data_conflict.DataConflictCheck, "_check_snapshot", later)


# publication


@_mutation("writer-writer")
def put_instead_of_put_if_absent() -> Patch:
    def put(self: SimStorage, path: str, data: bytes) -> PutOutcome:
        self.overwrite(path, data)
        return PutOutcome.CREATED

    return patch.object(SimStorage, "put_if_absent", put)


@_mutation("writer-writer")
def exists_then_rename() -> Patch:
    """What stores without a conditional put are given by careless writers."""

    def put(self: SimStorage, path: str, data: bytes) -> PutOutcome:
        if self.exists(path):
            return PutOutcome.EXISTS
        self.overwrite(path, data)
        return PutOutcome.CREATED

    return patch.object(SimStorage, "put_if_absent", put)


@_mutation("writer-writer")
def no_identity_check_after_exists() -> Patch:
    """The answer of a put gets lost, the second put meets the first one's file and takes it for somebody else's."""

    def publish(context: TableContext, snapshot: Snapshot) -> bool:
        path, content = context.layout.snapshot(snapshot.id), snapshot.to_json().encode()
        while True:
            outcome = context.storage.put_if_absent(path, content)
            if outcome is not PutOutcome.UNKNOWN:
                return outcome is PutOutcome.CREATED

    return patch.object(committer, "publish", publish)


@_mutation("writer-writer")
def exists_taken_for_success() -> Patch:
    def publish(context: TableContext, snapshot: Snapshot) -> bool:
        context.storage.put_if_absent(context.layout.snapshot(snapshot.id), snapshot.to_json().encode())
        return context.storage.exists(context.layout.snapshot(snapshot.id))

    return patch.object(committer, "publish", publish)


@_mutation("writer-writer")
def unknown_taken_for_success() -> Patch:
    def publish(context: TableContext, snapshot: Snapshot) -> bool:
        outcome = context.storage.put_if_absent(context.layout.snapshot(snapshot.id), snapshot.to_json().encode())
        return outcome is not PutOutcome.EXISTS

    return patch.object(committer, "publish", publish)


@_mutation("writer-writer")
def clean_up_of_metadata_after_unknown() -> Patch:
    real = committer.publish

    def publish(context: TableContext, snapshot: Snapshot) -> bool:
        try:
            return real(context, snapshot)
        except PaimonError:
            for meta in context.manifests.manifest_list(snapshot.delta_manifest_list):
                context.storage.delete(context.layout.manifest(meta.file_name))
            raise

    return patch.object(committer, "publish", publish)


@contextmanager
def _removed_whatever_happens(context: TableContext, messages: Sequence[CommitMessage]) -> Iterator[None]:
    try:
        yield
    except PaimonError:
        for _, path in abort.created_files(context, messages):
            context.storage.delete(path)
        raise


@_mutation("writer-writer")
def data_files_deleted_after_unknown() -> Patch:
    return patch.object(write_job, "removed_on_refusal", _removed_whatever_happens)


@_mutation("writer-writer")
def retry_after_unknown_as_if_lost() -> Patch:
    real = committer.publish

    def publish(context: TableContext, snapshot: Snapshot) -> bool:
        try:
            return real(context, snapshot)
        except PaimonError:
            return False

    return patch.object(committer, "publish", publish)


@_mutation("writer-writer")
def hint_before_publication() -> Patch:
    real = committer.publish

    def publish(context: TableContext, snapshot: Snapshot) -> bool:
        snapshot_publish.announce(context, snapshot)
        return real(context, snapshot)

    return patch.object(committer, "publish", publish)


@_mutation("slow-writer")
def expired_number_taken_for_free() -> Patch:
    """A slow writer's snapshot brings a number back to life that others have used and expired."""
    return patch.object(snapshot_publish, "_is_in_history", lambda context, snapshot: True)


# the past


def _hinted_latest(self: Any) -> int | None:
    return self._hint(self.layout.latest_hint) or max(self.ids(), default=None)


@_mutation("writer-writer")
def hint_trusted_blindly() -> Patch:
    return patch.object(snapshot_history.SnapshotHistory, "latest_id", _hinted_latest)


@_mutation("two-batches")
def sequence_numbers_from_zero() -> Patch:
    real = write_job.plan_write
    return patch.object(write_job, "plan_write", lambda *given: replace(real(*given), first_sequences={}))


@_mutation("writer-writer-restart")
def repeated_commit_not_recognised() -> Patch:
    return _both(
        patch.object(own_commits.OwnCommits, "made_before", lambda self: False),
        patch.object(own_commits.OwnCommits, "made_meanwhile", lambda self, latest, kind: False),
    )


@_mutation("writer-writer-restart")
def repeated_commit_looked_for_in_the_newest_snapshot_only() -> Patch:
    def newest(self: Any) -> bool:
        latest = self._context.snapshots.latest()
        self._seen = latest.id if latest else 0
        same = latest is not None and latest.commit_user == self._identity.user
        return same and latest.commit_identifier >= self._identity.identifier

    return patch.object(own_commits.OwnCommits, "made_before", newest)


@_mutation("twins")
def twins_commit_not_seen_between_attempts() -> Patch:
    return patch.object(own_commits.OwnCommits, "made_meanwhile", lambda self, latest, kind: False)


# manifests


@_mutation("writer-writer")
def base_of_the_old_latest_on_retry() -> Patch:
    """The base list of the first attempt goes on being used, whatever was published meanwhile."""
    first: dict[int, PreparedSnapshot] = {}

    def prepare(context: TableContext, latest: Snapshot | None, delta: Any, *others: Any) -> PreparedSnapshot:
        prepared = prepare_snapshot(context, latest, delta, *others)
        kept.append(delta)
        old = first.setdefault(id(delta), prepared).snapshot
        base = {"base_manifest_list": old.base_manifest_list, "base_manifest_list_size": old.base_manifest_list_size}
        return PreparedSnapshot(replace(prepared.snapshot, **base), ())

    kept: list[Any] = []
    return patch.object(committer, "prepare_snapshot", prepare)


@_mutation("two-batches")
def delta_of_the_latest_lost_in_the_base() -> Patch:
    real = prepared_snapshot.merge_manifests

    def merge(context: TableContext, manifests: Sequence[Any], writer: Any) -> Any:
        return real(context, manifests[:-1] if len(manifests) > 1 else manifests, writer)

    return patch.object(prepared_snapshot, "merge_manifests", merge)


@_mutation("merged-manifests")
def merging_drops_deletes_of_older_manifests() -> Patch:
    real = manifest_merging.fold

    def only_added(entries: Any) -> list[ManifestEntry]:
        return [entry for entry in real(entries) if entry.kind == ADD]

    return patch.object(manifest_merging, "fold", only_added)


@_mutation("merged-at-once")
def merging_forgets_deletes() -> Patch:
    """ADD and DELETE of a file meet in one manifest, and the ADD survives."""

    def keep_added(entries: Any) -> list[ManifestEntry]:
        return [entry for entry in entries if entry.kind == ADD]

    return patch.object(manifest_merging, "fold", keep_added)


@_mutation("compactor-compactor")
def deletes_folded_in_their_own_manifest_only() -> Patch:
    def live(batches: Any, keep_entry: Any = None) -> list[ManifestEntry]:
        alive: list[ManifestEntry] = []
        for entries in batches:
            gone = {entry.identity for entry in entries if entry.kind == DELETE}
            alive += [entry for entry in entries if entry.kind == ADD and entry.identity not in gone]
        return [entry for entry in alive if keep_entry is None or keep_entry(entry)]

    return patch.object(manifest_reader, "live", live)


@_mutation("writer-writer")
def delta_manifests_discarded_before_the_retry() -> Patch:
    """A lost race deletes all that the attempt wrote, but the next attempt names its delta again."""
    real = committer.prepare_snapshot

    def prepare(context: TableContext, latest: Snapshot | None, delta: Any, *others: Any) -> PreparedSnapshot:
        prepared = real(context, latest, delta, *others)
        return PreparedSnapshot(prepared.snapshot, (*prepared.files, *delta.files))

    return patch.object(committer, "prepare_snapshot", prepare)


@_mutation("writer-compactor")
def total_counted_on_the_snapshot_that_was_read() -> Patch:
    totals: dict[int, int] = {}

    def prepare(context: TableContext, latest: Snapshot | None, delta: Any, *others: Any) -> PreparedSnapshot:
        prepared = prepare_snapshot(context, latest, delta, *others)
        kept.append(delta)
        total = totals.setdefault(id(delta), prepared.snapshot.total_record_count)
        return PreparedSnapshot(replace(prepared.snapshot, total_record_count=total), prepared.files)

    kept: list[Any] = []
    return patch.object(committer, "prepare_snapshot", prepare)


@_mutation("writer-writer")
def times_of_each_writers_own_clock() -> Patch:
    def prepare(context: TableContext, *others: Any) -> PreparedSnapshot:
        prepared = prepare_snapshot(context, *others)
        now = context.clock.now_millis()
        return PreparedSnapshot(replace(prepared.snapshot, time_millis=now), prepared.files)

    return patch.object(committer, "prepare_snapshot", prepare)


# aborts and compaction


@_mutation("upgrades")
def abort_deletes_upgraded_files() -> Patch:
    def all_after(self: CommitMessage) -> Any:
        return self.new_files + self.compact_after

    return patch.object(CommitMessage, "created_files", all_after)


@_mutation("compactor-compactor")
def abort_deletes_what_was_to_be_replaced() -> Patch:
    def both(self: CommitMessage) -> Any:
        return self.new_files + self.compact_before + self.compact_after

    names = patch.object(abort, "files_named_since", lambda context, messages: set())
    return _both(patch.object(CommitMessage, "created_files", both), names)


@_mutation("tombstones")
def tombstones_dropped_at_any_level() -> Patch:
    return patch.object(compaction_plan, "may_drop_deletes", lambda output_level, highest_level: True)


@_mutation("compactor-compactor")
def compaction_commits_what_it_planned_before_the_conflict() -> Patch:
    """After a conflict the old plan is tried again, with new files for dead ones, and nobody checks."""
    plans: dict[int, tuple[TableContext, Any]] = {}  # the context is kept, so that no other gets its id
    real = compact_job.plan_compaction

    def stale(context: TableContext, *others: Any) -> Any:
        if id(context) not in plans:
            plans[id(context)] = (context, real(context, *others))
        return plans[id(context)][1]

    return _both(patch.object(compact_job, "plan_compaction", stale), files_conflict_unchecked())


# expiry


@_mutation("writer-expiry")
def expiry_deletes_files_before_snapshots() -> Patch:
    """A crash in between leaves snapshots whose files are gone."""
    real = expire_snapshots._find_doomed

    def eager(context: TableContext, expiring: range, kept: Snapshot) -> Any:
        doomed = real(context, expiring, kept)
        for entries in doomed.dead.values():
            for entry in entries:
                for path in snapshot_files.file_paths(context, entry):
                    context.storage.delete(path)
        return doomed

    return patch.object(expire_snapshots, "_find_doomed", eager)


@_mutation("compactor-expiry")
def expiry_takes_one_snapshot_too_many() -> Patch:
    real = expire_snapshots._find_doomed

    def further(context: TableContext, expiring: range, kept: Snapshot) -> Any:
        return real(context, range(expiring.start, expiring.stop - 1), kept)

    def one_more(context: TableContext, given: Any) -> range:
        found = retention.expiring_range(context, given)
        return range(found.start, found.stop + 1) if found else found

    find = patch.object(expire_snapshots, "_find_doomed", further)
    return _both(find, patch.object(expire_snapshots, "expiring_range", one_more))


@_mutation("compactor-expiry")
def expiry_deletes_files_of_the_snapshot_before() -> Patch:
    """Off by one: all files of the oldest kept snapshot that a later one deletes, as if they were dead already."""
    real = expire_snapshots._find_doomed

    def too_late(context: TableContext, expiring: range, kept: Snapshot) -> Any:
        doomed = real(context, expiring, kept)
        live = context.manifests.live_entries(doomed.snapshots[-1])
        return replace(doomed, dead={kept.id: live})

    return patch.object(expire_snapshots, "_find_doomed", too_late)


@_mutation("writer-expiry")
def expiry_deletes_shared_manifests() -> Patch:
    real = expire_snapshots.metadata_paths

    def of_kept(context: TableContext, snapshot: Snapshot) -> list[str]:
        return [] if snapshot.id == context.snapshots.latest_id() else real(context, snapshot)

    return patch.object(expire_snapshots, "metadata_paths", of_kept)


@_mutation("tag-expiry")
def expiry_ignores_tags() -> Patch:
    return patch.object(expire_snapshots, "tagged_snapshots", lambda context: [])


@_mutation("tag-expiry")
def expiry_asks_for_tags_too_early() -> Patch:
    """Tags made after the question, and before the snapshot files go, are not seen."""
    asked: list[list[Snapshot]] = []
    real_range, real_tags = expire_snapshots.expiring_range, expire_snapshots.tagged_snapshots

    def ask_first(context: TableContext, given: Any) -> range:
        asked.append(real_tags(context))
        return real_range(context, given)

    early = patch.object(expire_snapshots, "tagged_snapshots", lambda context: asked[-1])
    return _both(patch.object(expire_snapshots, "expiring_range", ask_first), early)


@_mutation("upgrades-expiry")
def expiry_deletes_upgraded_files() -> Patch:
    def deleted(context: TableContext, snapshot: Snapshot) -> list[ManifestEntry]:
        return [entry for entry in context.manifests.delta_entries(snapshot) if entry.kind == DELETE]

    return patch.object(expire_snapshots, "files_made_dead", deleted)


@_mutation("writer-expiry")
def expiry_from_the_newest_down() -> Patch:
    real = expire_snapshots._find_doomed

    def downwards(context: TableContext, expiring: range, kept: Snapshot) -> Any:
        doomed = real(context, expiring, kept)
        return replace(doomed, snapshots=doomed.snapshots[::-1])

    return patch.object(expire_snapshots, "_find_doomed", downwards)


@_mutation("writer-expiry")
def expiry_reads_a_stale_latest() -> Patch:
    """It spares what the snapshot needs that was the newest at the beginning of all time, and deletes the rest."""
    real = expire_snapshots._find_doomed

    def stale(context: TableContext, expiring: range, kept: Snapshot) -> Any:
        doomed = real(context, expiring, kept)
        oldest, newest = doomed.snapshots[0], context.snapshots.latest()
        spared = {entry.identity for entry in context.manifests.live_entries(oldest)}
        live = context.manifests.live_entries(newest) if newest else []
        return replace(doomed, dead={kept.id: [entry for entry in live if entry.identity not in spared]})

    return patch.object(expire_snapshots, "_find_doomed", stale)


@contextmanager
def _both(first: Patch, second: Patch) -> Iterator[None]:
    with first, second:
        yield
