"""Bugs planted in tables without a primary key: their updates, their compaction, and the checks of both at the commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from paimon_cli.bucket.data_file_reader import read_data_file
from paimon_cli.bucket.deletion_vectors import ChangedVectors
from paimon_cli.commit import files_conflict
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.outcome import CommitResult
from paimon_cli.compact import append_rewriter
from paimon_cli.history.live_files import bucket_files
from paimon_cli.jobs import append_change
from paimon_cli.metadata.data_file import CommitMessage, EntryKind
from paimon_cli.pieces import PIECES
from tests.simulation.mutation import Patch, both, nothing, planted_in


@planted_in("append-vectors-deleters")
def two_vectors_of_one_file() -> Patch:
    return patch.object(files_conflict, "_check_vectors", nothing)


@planted_in("append-vectors-first-deleter-compactor")
def rows_marked_while_they_were_copied() -> Patch:
    return patch.object(files_conflict, "_check_vectors", nothing)


@planted_in("append-deleters")
def files_that_another_delete_has_replaced() -> Patch:
    """The commit ignores that the files to remove are gone."""

    def lenient(context: Any, latest: Any, changes: Any) -> Any:
        return [], [entry for entry in changes.entries if entry.kind == EntryKind.ADD]

    return patch.object(files_conflict, "check_data_files", lenient)


@planted_in("append-compactors")
def marked_rows_copied_by_a_compaction() -> Patch:
    def all_rows(context: Any, bucket_id: Any, file: Any, columns: Sequence[str], vectors: Any) -> Any:
        return read_data_file(context, bucket_id, file, columns, PIECES.batch_rows)

    return patch.object(append_rewriter, "unmarked_rows", all_rows)


@planted_in("append-compactors")
def vectors_of_compacted_files_kept() -> Patch:
    return both(patch.object(ChangedVectors, "drop", nothing), patch.object(files_conflict, "_check_vectors", nothing))


@planted_in("append-vectors-deleters-again")
def older_marks_forgotten() -> Patch:
    real = ChangedVectors.mark

    def mark(self: Any, file_name: str, positions: Any) -> None:
        known, self.before = self.before, replace(self.before, by_file={})
        real(self, file_name, positions)
        self.before = known

    return patch.object(ChangedVectors, "mark", mark)


@planted_in("append-deleter-compactor")
def a_copy_with_all_rows() -> Patch:
    real = append_change._Changing._rewrite

    def rewrite(self: Any, file: Any, matched: Any, **how: Any) -> None:
        real(self, file, replace(matched, positions=type(matched.positions)()), **how)

    return patch.object(append_change._Changing, "_rewrite", rewrite)


@planted_in("append-writer-sorter")
def a_sort_that_overwrites_what_others_have_appended() -> Patch:
    """As Paimon's Spark procedure commits it (apache/paimon #7595)."""

    def commit(self: Committer, messages: Sequence[CommitMessage], identity: Any, *others: Any, **named: Any) -> CommitResult:
        if not any(message.compact.added for message in messages):
            return real(self, messages, identity, *others, **named)
        sorted_files = [
            replace(m, append=replace(m.append, added=m.compact.added), compact=replace(m.compact, removed=(), added=()))
            for m in messages
        ]
        bare = [replace(m, compact=replace(m.compact, added_indexes=(), removed_indexes=())) for m in sorted_files]
        return self.overwrite(bare, identity, replaced_partitions=lambda partition: True)

    real = Committer.commit
    return patch.object(Committer, "commit", commit)


@planted_in("append-deleter-writer")
def a_delete_removes_what_came_meanwhile() -> Patch:
    """It removes the files of the latest snapshot instead of those that it has read."""
    real = append_change._changed_bucket

    def changed(context: Any, bucket: Any, parts: Any, *others: Any) -> Any:
        result = real(context, bucket, parts, *others)
        assert result.message is not None
        everything = bucket_files(context, context.snapshots.latest())[bucket.bucket_id].files
        return replace(result, message=replace(result.message, append=replace(result.message.append, removed=everything)))

    return patch.object(append_change, "_changed_bucket", changed)
