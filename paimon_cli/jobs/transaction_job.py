"""A transaction: several changes of one table as one commit.

Each step is an ordinary job on a view of the table whose snapshots are kept in memory (`storage/pending_versions`): it plans at
the snapshot of the step before, writes files, and commits to the view. So a step sees what the steps before it have done, on
every kind of table, with the code that has always done it. The commit compares the files of the last step with those of the
snapshot that the transaction has read, bucket by bucket, and publishes the difference as one snapshot, under the data conflict
check since that snapshot; to what an overwrite has replaced, no other commit may have written at all. Files that only steps in
between needed are deleted, and all of them if the transaction fails.

Steps compact nothing; what is due is compacted after the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from paimon_cli.bucket.hash_index import HashIndexes
from paimon_cli.commit.commit_messages import created_files
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.data_conflict import check_of_partitions
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.commit.outcome import CommitResult
from paimon_cli.errors import NotSupported, cleaning_up
from paimon_cli.history.file_cache import FileCache
from paimon_cli.history.live_files import BucketFiles, LazyBuckets, bucket_files, committed_state
from paimon_cli.history.partition_spec import PartitionSpec, PartitionValues
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.due_compaction import compact_due, waiting_after
from paimon_cli.jobs.engine import Engine, Progress
from paimon_cli.jobs.table_change import NewFiles, Summary, check_writable_table, expiry_noticed, ran_on, written_files
from paimon_cli.jobs.update_job import data_check_of
from paimon_cli.jobs.write_request import replaces_named_partitions, strategy_of
from paimon_cli.metadata.data_file import BucketId, CommitMessage, DataFileMeta, EntryKind, FileChanges, FileFilter, IndexFileMeta
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import SNAPSHOT_PREFIX, parse_numbered
from paimon_cli.storage.deletions import delete_all
from paimon_cli.storage.pending_versions import PendingVersions

File = TypeVar("File", DataFileMeta, IndexFileMeta)


@dataclass(frozen=True, repr=False)
class TransactionSummary(Summary):
    """The result of a transaction. `steps`: the changes that it made; `files`, `size` (bytes): new files; `removed_files`: files
    that are no longer live. The other fields are those of an update.
    """

    steps: int = 0
    files: int = 0
    removed_files: int = 0
    size: int = 0
    buckets: int = 0
    snapshots: tuple[Snapshot, ...] = ()
    already_committed: bool = False
    engine: str = ""
    engine_reason: str = ""
    seconds: float = 0.0
    touched: tuple[BucketId, ...] = field(default=(), repr=False)
    compacted: int = 0
    compaction_lost: str | None = None
    waiting_records: int | None = 0


@dataclass
class OpenTransaction:
    """A transaction that has begun. `base`: the snapshot that it has read; `view`: the table as its steps see it.

    `relies_on_absence`: whether a step inserted rows because the table had no others like them. `replaced_partitions`: those that
    overwrites have replaced as a whole, whatever others write there meanwhile.
    """

    context: TableContext
    base: Snapshot | None
    view: TableContext
    pending: PendingVersions
    started: int
    relies_on_absence: bool = False
    replaced_partitions: list[Callable[[bytes], bool]] = field(default_factory=list)

    @staticmethod
    def begin(context: TableContext) -> OpenTransaction:
        """Raises `NotSupported` for tables whose steps could not see each other, or would lose their order in one commit."""
        check_writable_table(context)
        _check_kind(context)
        base = context.snapshots.latest()
        if base is None:
            context.expect_existing()
        base_id = 0 if base is None else base.id
        layout = context.layout

        def is_pending(path: str) -> bool:
            directory, _, name = path.rpartition("/")
            if directory != layout.snapshot_directory:
                return False
            number = parse_numbered(SNAPSHOT_PREFIX, name)
            return path == layout.latest_hint or (number is not None and number > base_id)

        pending = PendingVersions(context.storage, is_pending)
        if base is not None:
            pending.overwrite(layout.latest_hint, str(base_id).encode())
        cache = FileCache(context.cache.kept)
        new_id = (0 if base is None else base.next_row_id or 0) if context.mode.tracks_rows else None
        view = replace(context.redefined(), storage=pending, cache=cache, only_on=None, first_new_row_id=new_id).with_level_0()
        cache.checked = dict.fromkeys(context.cache.checked, pending)
        return OpenTransaction(context, base, view, pending, context.clock.now_millis())

    @property
    def base_id(self) -> int:
        return 0 if self.base is None else self.base.id

    def steps(self) -> list[Snapshot]:
        """The snapshots of the steps, oldest first."""
        last = self.view.snapshots.latest_id() or self.base_id
        return [self.view.snapshots.get(number) for number in range(self.base_id + 1, last + 1)]

    def replaced(self, steps: Sequence[Snapshot], static: PartitionValues | None) -> None:
        """Note what an overwrite has replaced, by its snapshot. `static`: the partition that it named."""
        if static is not None:
            self.replaced_partitions.append(PartitionSpec.parse(self.context, static).matches)
        elif replaces_named_partitions(self.context):
            touched = {entry.partition for step in steps for entry in self.view.manifests.delta_entries(step)}
            self.replaced_partitions.append(touched.__contains__)
        else:
            self.replaced_partitions.append(lambda partition: True)

    def discard(self, kept: Iterable[str] = ()) -> None:
        """Delete all files that the steps have stored, except these paths. What cannot be deleted is an orphan."""
        with cleaning_up():
            left = set(kept)
            written = (*self._written_elsewhere(), *self.pending.created)
            delete_all(self.context.storage, [path for path in dict.fromkeys(written) if path not in left])

    def _written_elsewhere(self) -> list[str]:
        """The data files that the steps have committed to the view: tasks on Spark have stored them without our knowledge."""
        entries = [entry for step in self.steps() for entry in self.view.manifests.delta_entries(step)]
        added = [entry for entry in entries if entry.kind == EntryKind.ADD]
        messages = [CommitMessage(*entry.bucket_id, 0, append=FileChanges(added=(entry.file,))) for entry in added]
        return [path for _, path in created_files(self.context, messages)]

    def commit(self, identity: CommitIdentity, engine: Engine, progress: Progress) -> TransactionSummary:
        """Publish the difference between the first and the last state as one snapshot; nothing if there is none.

        Raises `Conflict` if another commit has changed what the transaction has read, in which case no file is left, and
        `CommitUnknown` if the outcome is unknown, in which case the new files stay.
        """
        context, steps = self.context, self.steps()
        try:
            with expiry_noticed(context, None if self.base is None else self.base.id):
                messages = list(self._messages(steps))
        except BaseException:
            self.discard()
            raise
        new = {path for _, path in created_files(context, messages)}
        self.discard(new)
        if not messages:
            return TransactionSummary(steps=len(steps), **ran_on(engine, context, self.started))
        result = NewFiles(context, "").commit(messages, lambda: self._publish(messages, identity))
        if result.already_committed:
            return TransactionSummary(already_committed=True, **ran_on(engine, context, self.started))
        touched = tuple(message.bucket_id for message in messages)
        due = compact_due(context, touched, engine, progress, strategy_of(context, None))
        return TransactionSummary(
            steps=len(steps),
            **written_files(messages),
            removed_files=sum(len(message.append.removed) for message in messages),
            buckets=len(messages),
            snapshots=result.snapshots + due.snapshots,
            touched=touched,
            compacted=due.buckets,
            compaction_lost=due.lost,
            waiting_records=waiting_after(context, touched, result.snapshots, due.snapshots),
            **ran_on(engine, context, self.started),
        )

    def _publish(self, messages: list[CommitMessage], identity: CommitIdentity) -> CommitResult:
        context = self.context
        absent = [lambda partition: True] if self.relies_on_absence else []
        checks = [
            check_of_partitions(context, identity, partitions, self.base_id)
            for partitions in (*absent, *self.replaced_partitions)
        ]
        return Committer(context, data_check_of(context)).commit(messages, identity, also=checks)

    def _messages(self, steps: list[Snapshot]) -> Iterable[CommitMessage]:
        """What the steps have changed together, in each bucket."""
        if not steps:
            return
        view, manifests = self.view, self.view.manifests
        entries = [entry for step in steps for entry in manifests.delta_entries(step)]
        ends = [() if step is None else manifests.index_entries(step) for step in (self.base, steps[-1])]
        names = [{entry.index_file.file_name for entry in end} for end in ends]
        indexes = [entry for end in ends for entry in end if entry.index_file.file_name in names[0] ^ names[1]]
        changelog = self._changelog(steps)
        buckets = dict.fromkeys(
            [entry.bucket_id for entry in entries]
            + list(changelog)
            + [BucketId(entry.partition, entry.bucket) for entry in indexes]
        )
        partitions = {partition for partition, _ in buckets}
        wanted = FileFilter(partitions.__contains__, {bucket for _, bucket in buckets})
        before, after = bucket_files(view, self.base, wanted), bucket_files(view, steps[-1], wanted)
        states = self._hash_states(partitions)
        for bucket_id in buckets:
            old, new = _files(before, bucket_id), _files(after, bucket_id)
            changes = FileChanges(
                added=tuple(file.to_be_numbered() for file in _missing(new.files, old.files)),
                removed=_missing(old.files, new.files),
                changelog=tuple(changelog.get(bucket_id, ())),
                added_indexes=_missing(new.index_files, old.index_files),
                removed_indexes=_missing(old.index_files, new.index_files),
            )
            if changes:
                moves = view.mode.bucket_mode.moves_keys
                yield CommitMessage(
                    *bucket_id,
                    new.total_buckets or old.total_buckets,
                    append=changes,
                    read_snapshot_id=self.base_id,
                    read_hash_index=states.get(bucket_id.partition),
                    keys_read_at=self.base_id if moves else None,
                )

    def _changelog(self, steps: list[Snapshot]) -> dict[BucketId, list[DataFileMeta]]:
        found: dict[BucketId, list[DataFileMeta]] = {}
        for step in steps:
            if step.changelog_manifest_list is None:
                continue
            metas = self.view.manifests.manifest_list(step.changelog_manifest_list)
            for entry in (entry for part in self.view.manifests.entries(metas) for entry in part):
                if entry.kind == EntryKind.ADD:
                    found.setdefault(entry.bucket_id, []).append(entry.file)
        return found

    def _hash_states(self, partitions: set[bytes]) -> dict[bytes, str]:
        """The states of the hash indexes that the first step has read, where buckets depend on them."""
        if not self.view.mode.bucket_mode.indexes_keys:
            return {}
        totals = committed_state(bucket_files(self.view, self.base)).total_buckets
        indexes = HashIndexes.at(self.view, self.base, totals)
        return {partition: indexes.state(partition) for partition in partitions}


def _check_kind(context: TableContext) -> None:
    mode, options = context.mode, context.options
    if options.sequence_snapshot_ordering:
        why = "with sequence.snapshot-ordering rows are ordered by snapshots, and those of its steps become one"
        raise NotSupported(f"a transaction on {context.address}", why, "make each change a commit of its own")
    if mode.bucket_mode.postpones and not mode.batches_have_buckets:
        why = "its rows wait for their buckets, so that a step would not see those of the steps before it"
        raise NotSupported(f"a transaction on {context.address}", why, "make each change a commit of its own")


def _files(buckets: LazyBuckets, bucket_id: BucketId) -> BucketFiles:
    found = buckets.get(bucket_id)
    return BucketFiles(*bucket_id, 0, (), buckets.index_files.get(bucket_id, ())) if found is None else found


def _missing(files: tuple[File, ...], others: tuple[File, ...]) -> tuple[File, ...]:
    """The files that are not among the others."""
    names = {file.file_name for file in others}
    return tuple(file for file in files if file.file_name not in names)
