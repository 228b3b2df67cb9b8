"""Bugs planted in aborts, compactions and the expiry of snapshots."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from paimon_cli.commit import commit_messages
from paimon_cli.compact import compaction_plan
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs import compact_job, round_plan
from paimon_cli.lab.simulation.sim_storage import YOUNG
from paimon_cli.maintain import expire_snapshots, named_files, orphans, retention, used_names
from paimon_cli.maintain.named_files import metadata_paths
from paimon_cli.maintain.retention import expiring_range, tagged_snapshots
from paimon_cli.metadata.data_file import CommitMessage, EntryKind, ManifestEntry
from paimon_cli.metadata.snapshot import Snapshot
from tests.simulation.commit_mutations import files_conflict_unchecked
from tests.simulation.mutation import Patch, both, planted_in

# aborts and compaction


@planted_in("upgrades")
def abort_deletes_upgraded_files() -> Patch:
    def all_after(self: CommitMessage) -> Any:
        return self.append.added + self.compact.added

    return patch.object(CommitMessage, "created_files", all_after)


@planted_in("compactor-compactor")
def abort_deletes_what_was_to_be_replaced() -> Patch:
    def replaced_too(self: CommitMessage) -> Any:
        return self.append.added + self.compact.removed + self.compact.added

    names: Patch = patch.object(commit_messages, "files_named_since", lambda *given: set())
    return both(patch.object(CommitMessage, "created_files", replaced_too), names)


@planted_in("tombstones")
def tombstones_dropped_at_any_level() -> Patch:
    return patch.object(compaction_plan, "may_drop_deletes", lambda *levels, **options: True)


@planted_in("compactor-compactor")
def compaction_commits_what_it_planned_before_the_conflict() -> Patch:
    """After a conflict the old plan is tried again, with new files for dead ones, and without a check."""
    plans: dict[int, tuple[TableContext, Any]] = {}  # the context is kept, so that no other gets its id
    real = round_plan.plan_compaction

    def stale(context: TableContext, *others: Any) -> Any:
        if id(context) not in plans:
            plans[id(context)] = (context, real(context, *others))
        return plans[id(context)][1]

    return both(patch.object(compact_job, "plan_compaction", stale), files_conflict_unchecked())


# expiry


@planted_in("writer-expiry")
def expiry_deletes_files_before_snapshots() -> Patch:
    """A crash in between leaves snapshots whose files are gone."""
    real = expire_snapshots._plan_of

    def eager(context: TableContext, expiring: range, kept: Snapshot, *more: Any) -> Any:
        planned = real(context, expiring, kept)
        for entries in planned.dead.values():
            for entry in entries:
                for path in named_files.file_paths(context, entry):
                    context.storage.delete(path)
        return planned

    return patch.object(expire_snapshots, "_plan_of", eager)


@planted_in("compactor-expiry")
def expiry_takes_one_snapshot_too_many() -> Patch:
    real = expire_snapshots._plan_of

    def further(context: TableContext, expiring: range, kept: Snapshot, *more: Any) -> Any:
        return real(context, range(expiring.start, expiring.stop - 1), kept)

    def one_more(context: TableContext, given: Any) -> range:
        found = retention.expiring_range(context, given)
        return range(found.start, found.stop + 1) if found else found

    find = patch.object(expire_snapshots, "_plan_of", further)
    return both(find, patch.object(expire_snapshots, "expiring_range", one_more))


@planted_in("compactor-expiry")
def expiry_deletes_files_of_the_snapshot_before() -> Patch:
    """Off by one: all files of the oldest kept snapshot that a later one deletes, as if they were dead already."""
    real = expire_snapshots._plan_of

    def too_late(context: TableContext, expiring: range, kept: Snapshot, *more: Any) -> Any:
        planned = real(context, expiring, kept)
        live = context.manifests.live_entries(planned.snapshots[-1])
        return replace(planned, dead={kept.id: live})

    return patch.object(expire_snapshots, "_plan_of", too_late)


@planted_in("writer-expiry")
def expiry_deletes_shared_manifests() -> Patch:
    def of_kept(context: TableContext, snapshot: Snapshot) -> list[str]:
        return [] if snapshot.id == context.snapshots.latest_id() else metadata_paths(context, snapshot)

    return patch.object(expire_snapshots, "metadata_paths", of_kept)


@planted_in("tag-expiry")
def expiry_ignores_tags() -> Patch:
    return patch.object(expire_snapshots, "tagged_snapshots", lambda context: [])


@planted_in("tag-expiry")
def expiry_asks_for_tags_too_early() -> Patch:
    """Tags made after the question, and before the snapshot files go, are not seen."""
    asked: list[list[Snapshot]] = []

    def ask_first(context: TableContext, given: Any) -> range:
        asked.append(tagged_snapshots(context))
        return expiring_range(context, given)

    early = patch.object(expire_snapshots, "tagged_snapshots", lambda context: asked[-1])
    return both(patch.object(expire_snapshots, "expiring_range", ask_first), early)


@planted_in("upgrades-expiry")
def expiry_deletes_upgraded_files() -> Patch:
    def deleted(context: TableContext, snapshot: Snapshot) -> list[ManifestEntry]:
        return [entry for entry in context.manifests.delta_entries(snapshot) if entry.kind == EntryKind.DELETE]

    return patch.object(expire_snapshots, "files_made_dead", deleted)


@planted_in("writer-expiry")
def expiry_from_the_newest_down() -> Patch:
    real = expire_snapshots._plan_of

    def downwards(context: TableContext, expiring: range, kept: Snapshot, *more: Any) -> Any:
        planned = real(context, expiring, kept)
        return replace(planned, snapshots=planned.snapshots[::-1])

    return patch.object(expire_snapshots, "_plan_of", downwards)


@planted_in("writer-expiry")
def expiry_reads_a_stale_latest() -> Patch:
    """It spares only the files of the snapshot that was the newest at the start."""
    real = expire_snapshots._plan_of

    def stale(context: TableContext, expiring: range, kept: Snapshot, *more: Any) -> Any:
        planned = real(context, expiring, kept)
        oldest, newest = planned.snapshots[0], context.snapshots.latest()
        spared = {entry.identity for entry in context.manifests.live_entries(oldest)}
        live = context.manifests.live_entries(newest) if newest else []
        return replace(planned, dead={kept.id: [entry for entry in live if entry.identity not in spared]})

    return patch.object(expire_snapshots, "_plan_of", stale)


# orphans


@planted_in("writer-orphans")
def orphans_of_any_age_are_deleted() -> Patch:
    """It deletes files of a commit in progress."""
    real = orphans.list_candidates
    return patch.object(orphans, "list_candidates", lambda context, older_than, *more: real(context, YOUNG + 1, *more))


@planted_in("expiry-orphans")
def orphan_cleaning_forgets_tags() -> Patch:
    real = used_names._versions
    return patch.object(used_names, "_versions", lambda context: (v for v in real(context) if "/tag/" not in v.path))


@planted_in("compactor-orphans")
def orphan_cleaning_knows_the_latest_snapshot_alone() -> Patch:
    real = used_names._versions

    def latest(context: TableContext) -> Any:
        newest = context.layout.snapshot(context.snapshots.latest_id() or 0)
        return (version for version in real(context) if version.path == newest)

    return patch.object(used_names, "_versions", latest)


@planted_in("writer-orphans")
def orphan_cleaning_forgets_what_manifests_name() -> Patch:
    real = used_names.UsedNames._take_in_files

    def without_data(self: Any, snapshot: Snapshot, is_changelog: bool) -> None:
        real(self, snapshot, is_changelog)
        self.names = {name for name in self.names if not name.startswith("data-")}

    return patch.object(used_names.UsedNames, "_take_in_files", without_data)


@planted_in("writer-orphans")
def orphan_cleaning_forgets_manifests() -> Patch:
    real = used_names.UsedNames._take_in_files

    def without_manifests(self: Any, snapshot: Snapshot, is_changelog: bool) -> None:
        real(self, snapshot, is_changelog)
        self.names = {name for name in self.names if not name.startswith("manifest-") or name.startswith("manifest-list-")}

    return patch.object(used_names.UsedNames, "_take_in_files", without_manifests)
