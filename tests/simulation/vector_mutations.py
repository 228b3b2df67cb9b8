"""Bugs planted in deletion vectors, lookups and changelogs: their compaction, commit, abort and expiry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from paimon_cli.bucket import merged_rows
from paimon_cli.bucket.deletion_vectors import ChangedVectors
from paimon_cli.bucket.key_lookup import FoundRows, find_keys
from paimon_cli.commit import commit_messages, committer, files_conflict, prepared_snapshot
from paimon_cli.commit.commit_messages import SnapshotChanges, apply_index_changes
from paimon_cli.commit.prepared_snapshot import PreparedSnapshot, prepare_snapshot
from paimon_cli.commit.snapshot_publish import publish
from paimon_cli.compact import bucket_compactor, lookup_merge
from paimon_cli.compact.lookup_merge import LookupMerge
from paimon_cli.errors import PaimonError
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm import changelog
from paimon_cli.lsm.changelog import ChangedKeys
from paimon_cli.maintain import expire_snapshots, named_files, used_names
from paimon_cli.metadata.data_file import CommitMessage, IndexManifestEntry
from paimon_cli.metadata.data_file_schema import VALUE_KIND, RowKind
from paimon_cli.metadata.snapshot import Snapshot
from tests.simulation.mutation import Patch, both, nothing, planted_in

Prepare = Callable[..., PreparedSnapshot]


def _lenient(context: TableContext, previous: Any, changes: SnapshotChanges) -> list[IndexManifestEntry]:
    """The new files of a bucket replace all that it had, as Java does with tables that have a primary key."""
    touched = {entry.bucket_id for entry in (*changes.deleted_indexes, *changes.new_indexes)}
    return [*(entry for entry in previous if entry.bucket_id not in touched), *changes.new_indexes]


def unchecked_vectors() -> Patch:
    """Commits as those of an engine that looks at the data files only."""
    no_check: Patch = patch.multiple(files_conflict, _check_vectors=nothing, _check_upper_files=nothing)
    return both(no_check, patch.object(prepared_snapshot, "apply_index_changes", _lenient))


# the commit


@planted_in("vectors-levels")
def base_of_vectors_unchecked() -> Patch:
    return unchecked_vectors()


@planted_in("vectors-rewrite")
def base_of_vectors_unchecked_beside_a_rewrite() -> Patch:
    return unchecked_vectors()


@planted_in("vectors-disjoint-picks")
def upper_files_unchecked() -> Patch:
    return patch.object(files_conflict, "_check_upper_files", nothing)


@planted_in("lookup-disjoint-picks")
def upper_files_of_lookups_unchecked() -> Patch:
    return patch.object(files_conflict, "_check_upper_files", nothing)


@planted_in("vectors-levels-of-buckets")
def index_manifest_of_a_stale_base_after_a_retry() -> Patch:
    """The index manifest of the first attempt goes on being used."""
    first: dict[int, str | None] = {}
    kept: list[Any] = []

    def prepare(context: TableContext, latest: Snapshot | None, delta: Any, *others: Any) -> PreparedSnapshot:
        prepared = prepare_snapshot(context, latest, delta, *others)
        kept.append(delta)
        stale = first.setdefault(id(delta), prepared.snapshot.index_manifest)
        return PreparedSnapshot(replace(prepared.snapshot, index_manifest=stale), ())

    return patch.object(committer, "prepare_snapshot", prepare)


@planted_in("vectors-levels-of-buckets")
def a_compaction_drops_the_index_files_of_other_buckets() -> Patch:
    def own(context: TableContext, previous: Any, changes: SnapshotChanges) -> list[IndexManifestEntry]:
        touched = {entry.bucket_id for entry in changes.entries}
        return [entry for entry in apply_index_changes(context, previous, changes) if entry.bucket_id in touched]

    return patch.object(prepared_snapshot, "apply_index_changes", own)


@planted_in("vectors-writer-compactor")
def a_write_drops_the_index_manifest() -> Patch:
    def forgetful(context: TableContext, latest: Any, changes: SnapshotChanges, writer: Any) -> str | None:
        return _index_manifest(context, latest, changes, writer) if changes.new_indexes else None

    _index_manifest = prepared_snapshot._index_manifest
    return patch.object(prepared_snapshot, "_index_manifest", forgetful)


@planted_in("vectors-overwriter-compactor")
def an_overwrite_keeps_the_vectors_of_replaced_files() -> Patch:
    real = commit_messages.overwrite_changes
    keeping: Patch = patch.object(
        committer, "overwrite_changes", lambda *given, **named: replace(real(*given, **named), deleted_indexes=())
    )
    return both(keeping, patch.object(files_conflict, "_check_vectors", nothing))


# compactions


@planted_in("vectors-compactors")
def vector_of_a_consumed_file_kept() -> Patch:
    return both(patch.object(ChangedVectors, "drop", nothing), patch.object(files_conflict, "_check_vectors", nothing))


@planted_in("vectors-upgrade")
def other_vectors_lost_in_a_rewrite_of_the_index_file() -> Patch:
    real = ChangedVectors._written

    def marked_only(self: Any, vectors: Any, target_size: int | None) -> Any:
        return real(self, {name: vector for name, vector in vectors.items() if name in self._marked} or vectors, target_size)

    return patch.object(ChangedVectors, "_written", marked_only)


@planted_in("vectors-levels")
def earlier_marks_of_a_file_lost() -> Patch:
    """The vector holds what this compaction marks, and forgets what was marked before."""
    real = ChangedVectors.mark

    def anew(self: Any, file_name: str, positions: np.ndarray) -> None:
        before = self.before
        self.before = type(before)({})
        real(self, file_name, positions)
        self.before = before

    return patch.object(ChangedVectors, "mark", anew)


@planted_in("vectors-levels")
def positions_count_from_another_row_group() -> Patch:
    def shifted(context: TableContext, bucket_id: Any, files: Any, keys: Any, vectors: Any) -> FoundRows:
        found = find_keys(context, bucket_id, files, keys, vectors)
        return FoundRows(found.file, np.maximum(found.position - 1, 0))

    return patch.object(lookup_merge, "find_keys", shifted)


@planted_in("vectors-levels")
def old_row_not_marked_where_the_sequence_decides() -> Patch:
    return patch.object(LookupMerge, "_mark", nothing)


@planted_in("vectors-upgrade")
def an_upgraded_file_marks_nothing() -> Patch:
    return patch.object(LookupMerge, "moves", nothing)


@planted_in("vectors-levels")
def deletes_stay_above_level_0() -> Patch:
    return patch.object(bucket_compactor, "without_retractions", lambda batch: batch)


@planted_in("vectors-rewrite")
def a_rewrite_brings_marked_rows_back() -> Patch:
    """The file is read whole, and its vector is dropped with it."""
    real = merged_rows.merge_section
    return patch.object(lookup_merge, "merge_section", lambda *given, **named: real(*given[:6], **named))


# aborts


@planted_in("vectors-levels")
def abort_deletes_the_index_file_that_was_to_be_replaced() -> Patch:
    def replaced_too(self: CommitMessage) -> Any:
        return self.append.added_indexes + self.compact.added_indexes + self.compact.removed_indexes

    names: Patch = patch.object(commit_messages, "files_named_since", lambda *given: set())
    return both(patch.object(CommitMessage, "created_index_files", replaced_too), names)


# expiry and orphans


def _forget_indexes(paths: Sequence[str]) -> list[str]:
    return [path for path in paths if "/index" not in path]


@planted_in("vectors-tag-expiry")
def expiry_deletes_index_files_of_tags() -> Patch:
    real = named_files.metadata_paths
    return patch.object(expire_snapshots, "metadata_paths", lambda context, version: _forget_indexes(real(context, version)))


@planted_in("vectors-expiry")
def expiry_deletes_index_files_of_the_oldest_kept_snapshot() -> Patch:
    real = expire_snapshots._plan_of

    def one_more(context: TableContext, expiring: range, kept: Snapshot, *more: Any) -> Any:
        planned = real(context, expiring, kept, *more)
        return replace(planned, metadata=[*planned.metadata, *named_files.index_files(context, kept)])

    return patch.object(expire_snapshots, "_plan_of", one_more)


@planted_in("input-changelog-expiry")
def expiry_deletes_the_changelog_of_the_oldest_kept_snapshot() -> Patch:
    real = expire_snapshots._plan_of

    def one_more(context: TableContext, expiring: range, kept: Snapshot, *more: Any) -> Any:
        planned = real(context, expiring, kept, *more)
        return replace(planned, changelogs=[*planned.changelogs, *named_files.changelog_entries(context, kept)])

    return patch.object(expire_snapshots, "_plan_of", one_more)


@planted_in("vectors-orphans")
def orphan_cleaning_forgets_index_files() -> Patch:
    real = used_names.UsedNames._take_in_files

    def without_indexes(self: Any, snapshot: Snapshot, is_changelog: bool) -> None:
        real(self, snapshot, is_changelog)
        self.names = {name for name in self.names if not name.startswith("index-")}

    return patch.object(used_names.UsedNames, "_take_in_files", without_indexes)


# changelogs


def _changelog_of_retries(change: Callable[[TableContext, Any, Any, PreparedSnapshot], PreparedSnapshot]) -> Patch:
    def prepare(context: TableContext, latest: Any, delta: Any, facts: Any, writer: Any, *more: Any) -> PreparedSnapshot:
        prepared = prepare_snapshot(context, latest, delta, facts, writer, *more)
        return change(context, delta, writer, prepared) if facts.attempt > 1 else prepared

    return patch.object(committer, "prepare_snapshot", prepare)


@planted_in("input-changelog-writers")
def changelog_listed_twice_after_a_retry() -> Patch:
    def twice(context: TableContext, delta: Any, writer: Any, prepared: PreparedSnapshot) -> PreparedSnapshot:
        manifests = context.manifests.manifest_list(delta.changelog[0])
        name, size = writer.manifest_list([*manifests, *manifests], "changelog")
        twofold = replace(prepared.snapshot, changelog_manifest_list=name, changelog_manifest_list_size=size)
        return replace(prepared, snapshot=twofold)

    return _changelog_of_retries(twice)


@planted_in("input-changelog-writers")
def changelog_missing_after_a_retry() -> Patch:
    def without(context: TableContext, delta: Any, writer: Any, prepared: PreparedSnapshot) -> PreparedSnapshot:
        bare = replace(prepared.snapshot, changelog_manifest_list=None, changelog_manifest_list_size=None)
        return replace(prepared, snapshot=replace(bare, changelog_record_count=None))

    return _changelog_of_retries(without)


@planted_in("lookup-writer-compactor")
def changelog_of_the_snapshot_before_is_carried_on() -> Patch:
    """A commit without changes of its own names the changelog of the one before."""

    def prepare(context: TableContext, latest: Any, *others: Any) -> PreparedSnapshot:
        prepared = prepare_snapshot(context, latest, *others)
        if prepared.snapshot.changelog_manifest_list is not None or latest is None:
            return prepared
        return replace(prepared, snapshot=replace(prepared.snapshot, changelog_manifest_list=latest.changelog_manifest_list))

    return patch.object(committer, "prepare_snapshot", prepare)


def _changed_rows(change: Callable[[pa.RecordBatch], pa.RecordBatch]) -> Patch:
    real = ChangedKeys.rows
    return patch.object(ChangedKeys, "rows", lambda self, *given: change(real(self, *given)))


def _kinds(rows: pa.RecordBatch) -> np.ndarray:
    return np.asarray(rows.column(VALUE_KIND).to_numpy())


@planted_in("lookup-levels")
def update_after_without_update_before() -> Patch:
    return _changed_rows(lambda rows: rows.filter(pa.array(_kinds(rows) != RowKind.UPDATE_BEFORE)))


@planted_in("full-changelog-compactors")
def update_before_without_update_after() -> Patch:
    return _changed_rows(lambda rows: rows.filter(pa.array(_kinds(rows) != RowKind.UPDATE_AFTER)))


@planted_in("lookup-levels")
def value_before_from_the_wrong_level() -> Patch:
    def highest_first(context: TableContext, bucket_id: Any, files: Any, keys: Any, vectors: Any) -> FoundRows:
        return find_keys(context, bucket_id, [replace(file, level=9 - file.level) for file in files], keys, vectors)

    return patch.object(lookup_merge, "find_keys", highest_first)


@planted_in("full-changelog-compactors")
def full_compaction_takes_every_row_for_new() -> Patch:
    real = changelog.FullCompactionChanges.__init__

    def another_level(self: Any, engine: Any, take: Any, keys: Any, max_level: int, changes: Any) -> None:
        real(self, engine, take, keys, max_level + 1, changes)

    return patch.object(changelog.FullCompactionChanges, "__init__", another_level)


@planted_in("input-changelog-writers")
def changelog_deleted_after_unknown() -> Patch:
    """The clean-up of a commit whose outcome is unknown takes the changelog files alone."""

    def planted(context: TableContext, snapshot: Snapshot, base: Snapshot | None) -> bool:
        try:
            return publish(context, snapshot, base)
        except PaimonError:
            for entry in named_files.changelog_entries(context, snapshot):
                context.storage.delete(context.data_file_path(entry.partition, entry.bucket, entry.file))
            raise

    return patch.object(committer, "publish", planted)
