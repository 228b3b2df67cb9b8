"""Bugs planted in the commits of postponed and of dynamic buckets, each where a check protects."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from paimon_cli.commit import committer, files_conflict
from paimon_cli.errors import FilesConflict
from paimon_cli.history.live_files import bucket_files
from paimon_cli.jobs import compact_job, compact_outcome, postponed_rows
from paimon_cli.jobs.table_change import NewFiles
from paimon_cli.metadata.data_file import CommitMessage, ManifestEntry
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.write.routers import DynamicRouter
from tests.simulation.mutation import Patch, both, nothing, planted_in


def _removals_unchecked() -> Patch:
    """A commit that removes files removes those that still exist, and ignores the others."""
    real = files_conflict.check_data_files

    def check(context: Any, latest: Any, changes: Any) -> tuple[list[ManifestEntry], list[ManifestEntry]]:
        try:
            base, left = real(context, latest, changes)
        except FilesConflict:
            return [], []
        return list(base), list(left)

    checks: Patch = patch.object(files_conflict, "check_data_files", check)
    return both(checks, patch.multiple(files_conflict, _check_vectors=nothing, _check_upper_files=nothing))


# postponed buckets


@planted_in("postponed-compactors")
def waiting_files_distributed_twice() -> Patch:
    """Two compactions both take the same postponed files away, and neither looks for rows that the other has distributed."""
    committing = lambda new_files, messages, outcome: compact_outcome.try_commit(new_files, messages, outcome)  # noqa: E731
    return both(_removals_unchecked(), patch.object(compact_job, "_commit_distributed", committing))


@planted_in("postponed-writer-compactor")
def waiting_files_that_came_meanwhile_go_too() -> Patch:
    """A compaction removes all files that are in `bucket-postpone` when it commits."""
    real = postponed_rows.distribute

    def emptying(new_files: NewFiles, *others: Any) -> list[CommitMessage]:
        messages, now = real(new_files, *others), bucket_files(new_files.context, new_files.context.snapshots.latest())
        waiting = {place: bucket.files for place, bucket in now.items() if place.bucket == POSTPONE_BUCKET}
        return [replace(m, compact=replace(m.compact, removed=waiting.get(m.bucket_id, m.compact.removed))) for m in messages]

    return patch.object(postponed_rows, "distribute", emptying)


@planted_in("counted-writers")
def counts_of_buckets_unchecked() -> Patch:
    """Two batches give one partition different numbers of buckets."""
    return patch.multiple(files_conflict, check_bucket_counts=nothing)


# dynamic buckets


@planted_in("dynamic-writers-of-a-new-key")
def hash_indexes_unchecked() -> Patch:
    """A key gets two buckets."""
    return patch.object(committer, "check_hash_indexes", nothing)


@planted_in("dynamic-writer-overwriter")
def hash_index_of_an_overwrite_unchecked() -> Patch:
    return patch.object(committer, "check_hash_indexes", nothing)


@planted_in("dynamic-writer-compactor")
def new_keys_are_not_in_the_index() -> Patch:
    """Later writers give them another bucket."""
    return patch.object(DynamicRouter, "finish", lambda router: {})


# keys across partitions


@planted_in("cross-partition-writers-of-a-key")
def homes_of_keys_unchecked() -> Patch:
    """Two writers take a key out of one partition, each into another."""
    return patch.object(committer.Committer, "_checks_of_locations", lambda self, identity, messages: [])


@planted_in("cross-partition-writer-overwriter")
def homes_of_keys_of_an_overwrite_unchecked() -> Patch:
    return patch.object(committer.Committer, "_checks_of_locations", lambda self, identity, messages: [])
