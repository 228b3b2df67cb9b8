"""The commit protocol: how commit messages become a snapshot (FORMAT.md, section 10.2).

1. read the latest snapshot; stop if it, or an earlier one, already holds this commit (`deduplication`).
2. check that no other commit contradicts this one (`data_conflict`, `files_conflict`).
3. prepare: write manifests and manifest lists, and build the snapshot in memory (`prepared_snapshot`).
4. publish: create `snapshot-N`, only if it does not exist (`snapshot_publish`); after a lost race, start again at 1. A repeatable
   commit writes its record before, and completes it afterwards (`commit_records`).
5. announce: write the LATEST hint.

Steps 1 to 3 only write new files that no snapshot names, and step 4 is one atomic operation of the storage. So a commit happens
as a whole or not at all, wherever it is interrupted.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from paimon_cli.commit.automatic_tags import AutomaticTags, create_tags_after
from paimon_cli.commit.commit_messages import (
    ChangesOn,
    CommitKind,
    SnapshotChanges,
    append_changes,
    compact_changes,
    meets_distributed_rows,
    oldest_read,
    overwrite_changes,
)
from paimon_cli.commit.data_conflict import (
    CheckData,
    check_of_buckets,
    check_of_locations,
    check_of_messages,
    check_of_partitions,
    check_place,
)
from paimon_cli.commit.deduplication import CommitIdentity, Deduplication
from paimon_cli.commit.files_conflict import (
    check_files,
    check_hash_indexes,
    check_newest_bucket_counts,
    check_null_partitions,
    check_postponed,
    check_vectors_switch,
)
from paimon_cli.commit.outcome import CommitOutcome, CommitResult
from paimon_cli.commit.prepared_snapshot import (
    CommitFacts,
    DeltaManifests,
    MetadataWriter,
    manifests_worth_rewriting,
    prepare_snapshot,
)
from paimon_cli.commit.retry_policy import RetryPolicy
from paimon_cli.commit.snapshot_publish import is_same_table, publish, was_dropped, write_latest_hint
from paimon_cli.errors import BeingDropped, DamagedFile, PaimonError, Refused, StorageUnavailable, Unpublished, UsageError
from paimon_cli.history.manifest_reader import SnapshotGone
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import CommitMessage, EntryKind
from paimon_cli.metadata.snapshot import ANALYZE, RowOperation, Snapshot
from paimon_cli.options.choices import ConflictCheck
from paimon_cli.options.option_catalog import Operation


@dataclass(frozen=True)
class CommitStep:
    """One snapshot to create.

    `changes`: what it changes, or how that follows from the latest snapshot, for each attempt. `data_checks`: its data conflict
    checks. `is_numbered`: it adds new rows, which `sequence.snapshot-ordering` orders by snapshots. `rewrites_manifests`: it
    changes no data files, but merges all manifests that can be merged. `operation`: what it does to rows, if anything.
    `statistics`: the name of a statistics file that it publishes.
    """

    changes: SnapshotChanges | ChangesOn
    data_checks: Sequence[CheckData] = ()
    is_numbered: bool = False
    rewrites_manifests: bool = False
    operation: str | None = None
    statistics: str | None = None

    def changes_on(self, latest: Snapshot | None) -> SnapshotChanges:
        """The changes on top of the latest snapshot."""
        return self.changes(latest) if callable(self.changes) else self.changes


class Committer:
    """Turns commit messages into snapshots of one table.

    `data_check`: the granularity of the data conflict check; by default the table's option `commit.data-conflict-check`.
    `operation`: what snapshots say was done to the rows, unless it is a plain write or overwrite. `least_row_id`: new rows have
    ids from here on at least, because the files that are committed hold rows with ids below.
    """

    def __init__(
        self, context: TableContext, data_check: str | None = None, operation: str | None = None, least_row_id: int = 0
    ) -> None:
        context.check(Operation.COMMIT)
        self._least_row_id = least_row_id
        self._context = context
        self._operation = operation
        self._data_check = context.options.commit_data_conflict_check if data_check is None else data_check
        self._tags = AutomaticTags.of(context)
        self._check_place = functools.partial(check_place, context)

    def commit(
        self,
        messages: Sequence[CommitMessage],
        identity: CommitIdentity,
        kind: CommitKind = CommitKind.WRITE,
        *,
        watermark: int | None = None,
        work_begin_millis: int | None = None,
        also: Sequence[CheckData] = (),
    ) -> CommitResult:
        """Publish an APPEND snapshot for the append halves, then a COMPACT snapshot for the compact halves.

        Raises `FilesConflict` or `DataConflict` if other commits contradict this one (the caller then deletes its data files, see
        `commit_messages`), `StorageUnavailable` if all attempts lost the race, `CommitUnknown` if the outcome is unknown. If only
        the second snapshot was refused, `committed` of the error is the first one.
        `work_begin_millis`: when the job started, to be recorded in the snapshots. `also`: further checks for the append halves.
        """
        context, steps = self._context, list[CommitStep]()
        append, compact = append_changes(messages, kind), compact_changes(messages)
        appends, compacts = not append.is_empty, not compact.is_empty
        if appends or (not compacts and context.options.commit_force_create_snapshot):
            checks: list[CheckData] = list(also) if kind.is_of_old_rows else [self._check_place, *also]
            if appends and (meets_distributed_rows(context, messages) or self._checks_data):
                checks.append(check_of_messages(context, identity, messages, append.read_snapshot_id, self._data_check))
            if not kind.is_of_old_rows:
                checks += self._checks_of_locations(identity, messages)
            operation = None if kind.is_of_old_rows else self._operation or RowOperation.WRITE
            steps.append(CommitStep(append, checks, is_numbered=not kind.is_of_old_rows, operation=operation))
        if compacts:
            brings_rows = kind is CommitKind.DISTRIBUTE
            checks = [check_of_buckets(context, identity, messages, compact.read_snapshot_id)] if brings_rows else []
            steps.append(CommitStep(compact, checks))
        return self._commit(steps, identity, watermark, work_begin_millis)

    def overwrite(
        self,
        messages: Sequence[CommitMessage],
        identity: CommitIdentity,
        *,
        replaced_partitions: Callable[[bytes], bool],
        watermark: int | None = None,
        read_snapshot_id: int | None = None,
        keeps_postponed: bool = False,
    ) -> CommitResult:
        """Publish an OVERWRITE snapshot whose files replace all live files of the partitions that `replaced_partitions` selects.

        Every attempt reads the live files again, so that files added in the meantime are replaced, too, unless the data conflict
        check is on: it looks at all commits after `read_snapshot_id` (default: that of the messages). Compact halves follow as a
        COMPACT snapshot. Raises the same errors as `commit`. `keeps_postponed`: rows in `bucket-postpone` are not replaced.
        """
        read = oldest_read(messages) if read_snapshot_id is None else read_snapshot_id
        checks: list[CheckData] = [self._check_place, *self._checks_of_locations(identity, messages)]
        if self._checks_data:
            checks.insert(0, check_of_partitions(self._context, identity, replaced_partitions, read, keeps_postponed))
        changes = functools.partial(
            overwrite_changes, self._context, messages, replaced_partitions, keeps_postponed=keeps_postponed
        )
        operation = self._operation or RowOperation.OVERWRITE
        step, compact = CommitStep(changes, checks, is_numbered=True, operation=operation), compact_changes(messages)
        steps = [step] if compact.is_empty else [step, CommitStep(compact)]
        return self._commit(steps, identity, watermark)

    def compact_manifests(self, identity: CommitIdentity) -> CommitResult:
        """Publish a COMPACT snapshot of the same files, with as few manifests as possible; none if there is nothing to gain.

        It has no conflicts with other commits: it starts again on top of their snapshots.
        """
        begin = self._context.clock.now_millis()
        return self._commit([CommitStep(compact_changes([]), rewrites_manifests=True)], identity, None, begin)

    def commit_statistics(self, identity: CommitIdentity, name: str) -> CommitResult:
        """Publish a snapshot of the same files with this statistics file. Other commits do not matter: it follows on them."""
        return self._commit([CommitStep(SnapshotChanges(ANALYZE, ()), statistics=name)], identity, None)

    def fill_gap(self, build: Callable[[MetadataWriter], Snapshot]) -> CommitResult:
        """Publish a snapshot that is missing between two others, which `build` derives from them with the files that it writes.

        It changes no state of the table, so there is nothing to check but its number. LATEST stays as it is.
        Raises `StorageUnavailable` if another process has created it, `CommitUnknown` if the outcome is unknown.
        """
        writer = MetadataWriter(self._context)
        with discarded_on(writer, PaimonError, Unpublished), _unpublished():
            snapshot = build(writer)
            _check_readable(snapshot)
        with discarded_on(writer, Refused, StorageUnavailable, BeingDropped):
            if not publish(self._context, snapshot):
                what = f"snapshot {snapshot.id} was not written"
                raise StorageUnavailable(what, "another process created it meanwhile", "plan again")
        return CommitResult((snapshot,), 1)

    def is_committed(self, identity: CommitIdentity) -> bool:
        """Whether an earlier run made this commit (Java filterCommitted). Always false for identities that are never repeated."""
        return Deduplication(self._context, identity).already_committed()

    def _changes(self, step: CommitStep, latest: Snapshot | None) -> SnapshotChanges:
        """The changes, in which new files get the id of their snapshot if the table has `sequence.snapshot-ordering`, and new
        rows get their ids if it tracks rows. Those of a step of a transaction get them from the commit of all steps.
        """
        changes = step.changes_on(latest)
        if self._context.first_new_row_id is not None:
            return changes.unnumbered()
        snapshot_id, next_row_id = (1, None) if latest is None else (latest.id + 1, latest.next_row_id)
        if self._context.mode.tracks_rows:
            known = next_row_id or 0
            changes = changes.with_row_ids(snapshot_id, max(known, self._least_row_id))
            if changes.next_row_id is None and known < self._least_row_id:
                changes = replace(changes, next_row_id=self._least_row_id)
            return changes
        if not (step.is_numbered and self._context.options.sequence_snapshot_ordering):
            return changes
        return changes.numbered_by_snapshot(snapshot_id)

    def _commit(
        self,
        steps: Sequence[CommitStep],
        identity: CommitIdentity,
        watermark: int | None,
        work_begin_millis: int | None = None,
    ) -> CommitResult:
        result = self._ended(steps, identity, watermark, work_begin_millis)
        create_tags_after(self._tags, result.snapshots)
        return result.or_raise()

    def _ended(
        self, steps: Sequence[CommitStep], identity: CommitIdentity, watermark: int | None, work_begin_millis: int | None
    ) -> CommitResult:
        result = CommitResult()
        try:
            with _unpublished():
                deduplication = Deduplication(self._context, identity)
                if deduplication.already_committed():
                    return CommitResult(outcome=CommitOutcome.DUPLICATE)
            for step in steps:
                result = result.followed_by(self._publish(step, deduplication, watermark, work_begin_millis))
                if result.already_committed:
                    break
        except (PaimonError, Unpublished) as failure:
            return result.ended_by(failure)
        return result

    def _publish(
        self, step: CommitStep, deduplication: Deduplication, watermark: int | None, work_begin_millis: int | None
    ) -> CommitResult:
        """Create one snapshot by the steps of the protocol. After a lost race, the next attempt builds on the winner.

        Delta manifests are written once, unless the changes depend on the latest snapshot.
        """
        context, writer, attempts = self._context, MetadataWriter(self._context), RetryPolicy(self._context)
        intents = deduplication.intents
        delta: DeltaManifests | None = None
        for attempt in attempts:
            try:
                failures = PaimonError, Unpublished
                with discarded_on(writer, *failures), intents.withdrawn_on(*failures), _unpublished():
                    seen = context.snapshots.seen()
                    latest = seen if attempt == 1 and seen and context.storage.is_remote else context.snapshots.latest()
                    changes = self._changes(step, latest)
                    self._check_table(changes, latest, seen)
                    is_committed = deduplication.committed_since_begin(latest, changes.kind)
                    if is_committed or self._is_needless(step, changes, latest):
                        writer.discard(writer.written)
                        intents.withdraw()
                        ending = CommitOutcome.DUPLICATE if is_committed else CommitOutcome.PUBLISHED
                        return CommitResult(attempts=attempt, outcome=ending)
                    self._check(step, changes, latest, attempt)
                    intents.announce(latest)
                    if delta is None or delta.changes is not changes:
                        writer.discard(delta.files if delta else ())
                        delta = DeltaManifests.write(changes, writer)
                    times = attempt, attempts.begin_millis, work_begin_millis
                    facts = CommitFacts(deduplication.identity, watermark, *times, step.operation, step.statistics)
                    prepared = prepare_snapshot(context, latest, delta, facts, writer, step.rewrites_manifests)
                    _check_readable(prepared.snapshot)
                    if prepared.snapshot.schema_id != context.schema.id:
                        check_vectors_switch(context, changes, prepared.snapshot.schema_id)
            except SnapshotGone:
                writer, delta = MetadataWriter(context), None
                continue
            refusals = Refused, StorageUnavailable, BeingDropped
            with discarded_on(writer, *refusals), intents.withdrawn_on(*refusals):
                published = publish(context, prepared.snapshot, latest)
            if published:
                write_latest_hint(context, prepared.snapshot)
                intents.complete(prepared.snapshot)
                return CommitResult((prepared.snapshot,), attempt)
            writer.discard(prepared.files)
        writer.discard(writer.written)
        intents.withdraw()
        raise attempts.exhausted()

    def _check_table(self, changes: SnapshotChanges, latest: Snapshot | None, seen: Snapshot | None) -> None:
        """Raise `BeingDropped` if the history began again since the plan, because the table was dropped and created again.

        It may have as many snapshots as before, or more: that the last one that this process has `seen` is the latest one shows
        that nothing happened. (On object stores the first attempt relies on it, and its put fails or finds another predecessor.)
        """
        newest, read = 0 if latest is None else latest.id, changes.read_snapshot_id or 0
        may_have_begun_again = newest < read or (not read and newest) or (seen is not None and seen != latest)
        if may_have_begun_again and not is_same_table(self._context):
            raise was_dropped(self._context)

    def _check(self, step: CommitStep, changes: SnapshotChanges, latest: Snapshot | None, attempt: int) -> None:
        added = [entry for entry in changes.entries if entry.kind == EntryKind.ADD]
        with self._context.trace.timed(
            "check",
            attempt=attempt,
            kind=changes.kind,
            latest=None if latest is None else latest.id,
            added=len(added),
            deleted=len(changes.entries) - len(added),
            data_conflict_check=self._data_check if step.data_checks else ConflictCheck.OFF,
        ):
            if any(entry.is_postponed for entry in added):
                check_postponed(self._context)
            check_null_partitions(self._context, latest, changes.entries)
            for check in step.data_checks:
                check(latest)
            if changes.read_hash_indexes:
                check_hash_indexes(self._context, latest, changes)
            if changes.check_files:
                check_files(self._context, latest, changes)
            elif latest is not None and latest.id != changes.read_snapshot_id:
                # The writer has checked bucket counts at the snapshot that it read; only later commits can differ.
                check_newest_bucket_counts(self._context, latest, changes.entries)

    def _checks_of_locations(self, identity: CommitIdentity, messages: Sequence[CommitMessage]) -> list[CheckData]:
        moves_rows = self._context.mode.bucket_mode.moves_keys
        if not (moves_rows and any(message.append for message in messages)):
            return []
        return [check_of_locations(self._context, identity, messages)]

    @property
    def _checks_data(self) -> bool:
        return self._data_check != ConflictCheck.OFF

    def _is_needless(self, step: CommitStep, changes: SnapshotChanges, latest: Snapshot | None) -> bool:
        if step.statistics is not None:
            return False
        if step.rewrites_manifests:
            return not manifests_worth_rewriting(self._context, latest)
        return changes.is_empty and not self._context.options.commit_force_create_snapshot


@contextlib.contextmanager
def discarded_on(writer: MetadataWriter, *failures: type[BaseException]) -> Iterator[None]:
    """A context that deletes all metadata of this commit after these errors, which mean that no snapshot was published."""
    try:
        yield
    except failures:
        writer.discard(writer.written)
        raise


@contextlib.contextmanager
def _unpublished() -> Iterator[None]:
    """A context before publication, in which an interrupt becomes `Unpublished`, so that new files can be deleted."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        raise Unpublished from interrupt


def _check_readable(snapshot: Snapshot) -> None:
    """Raise `UsageError` for a snapshot that no reader would accept, whatever a caller or a stage file asks for."""
    try:
        Snapshot.from_json(snapshot.to_json())
    except DamagedFile as error:
        raise UsageError("nothing was committed", f"the snapshot could not be read afterwards: {error.why}") from error
