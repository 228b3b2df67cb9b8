"""`write`: many tasks write files at the same time, and one commit publishes them.

1. plan: cut the source into splits; what the rows build on comes from the latest snapshot (`plan_write`).
2. prepare the engine, which may be chosen by the size of the input.
3. run: tasks check, route and sort the rows and write level-0 files (`write_input`); what fails leaves no files.
4. commit: a snapshot with the rows, and one with the compactions of the writers, if there are any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from paimon_cli.bucket.hash_index import HashIndexes
from paimon_cli.bucket.postponed_files import counts_in_advance, partition_counts
from paimon_cli.bucket.stamped_files import new_stamp
from paimon_cli.commit.committer import CommitResult, Committer
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.compact.bucket_compactor import WriterCompaction
from paimon_cli.compact.compaction_plan import FULL_STRATEGY, MINOR_STRATEGY, why_not_compactable
from paimon_cli.errors import BadInput, BucketsConflict, Conflict, NotSupported, PaimonError, StorageUnavailable
from paimon_cli.history.live_files import CommittedState, LazyBuckets, bucket_files, committed_state
from paimon_cli.history.partition_spec import PartitionSpec, partition_text
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.faults import FAIL, SKIP, RejectFile, RejectingTally, Tally
from paimon_cli.ingest.row_sources import RowSource
from paimon_cli.ingest.rows import IncomingRows, RowKindFilter
from paimon_cli.ingest.source_files import SourceSplit
from paimon_cli.jobs.compact_job import show_level_0
from paimon_cli.jobs.engine import Engine, Progress, TasksFailed, Work, phase
from paimon_cli.jobs.postponed_rows import write_counted
from paimon_cli.jobs.table_change import NewFiles, again_on_conflict, check_writable_table, identity_of, write_files
from paimon_cli.metadata import data_file_schema
from paimon_cli.metadata.data_file import BucketId, CommitMessage, FileFilter
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_mode import BucketMode
from paimon_cli.write.table_writer import Written
from paimon_cli.write.write_plan import Tallies, WritePlan

if TYPE_CHECKING:
    from paimon_cli.jobs.compact_job import CompactSummary

NO_COMPACTION, INLINE_COMPACTION, ASYNC_COMPACTION = "none", "inline", "async"
MOST_ASSIGNMENTS = 10
"""How often rows are written while other jobs give keys of the same partitions to dynamic buckets."""


@dataclass(frozen=True)
class WriteRequest:
    """What to write, and how. `op_column`: input column with +I, +U, -U, -D; `static_partition`: values as typed.

    `read_snapshot`: what the rows were made from (0: the empty table), where that is not the latest snapshot; the data
    conflict check begins there. `compaction`: whether and when writer tasks compact what the triggers ask for, unless the
    table is write-only: between their own steps, or beside them.
    """

    source: RowSource
    op: str = "upsert"
    op_column: str | None = None
    overwrite: bool = False
    static_partition: dict[str, str] | None = None
    commit_user: str | None = None
    commit_id: int | None = None
    assume_new: bool = False
    read_snapshot: int | None = None
    parallelism: int | None = None
    compaction: str = INLINE_COMPACTION
    missing_are_null: bool = True
    on_error: str = FAIL
    allow_empty: bool = False

    @property
    def reject_file(self) -> RejectFile | None:
        return RejectFile(self.on_error) if self.on_error not in (FAIL, SKIP) else None


@dataclass(frozen=True)
class WriteSummary:
    """What was done. `rows`, `size` (bytes): of the new files, after merging equal keys of this write; `rows_read` before that.

    `skipped_rows`: bad ones, with `bad_cells` in them; `missing_columns`: those that are null because the input lacks them.
    `compacted`: buckets that were compacted; `compaction_lost`: why compactions were dropped, or that half of the commit was
    refused, while the rows were committed. `stalls`: how often buckets had to wait for a compaction before they could take more
    runs, `stall_seconds` in all; `compaction_wait_seconds`: how long they waited for compactions in the end, before the commit.
    `compaction`: the job that followed the commit, if one was asked for.
    The rest tells how the write buffers of the tasks were used, as in `BufferUse`.
    """

    rows: int = 0
    delete_rows: int = 0
    files: int = 0
    size: int = 0
    buckets: int = 0
    snapshots: tuple[Snapshot, ...] = ()
    attempts: int = 0
    already_committed: bool = False
    engine: str = ""
    engine_reason: str = ""
    seconds: float = 0.0
    touched: tuple[BucketId, ...] = field(default=(), repr=False)
    compacted: int = 0
    compaction_lost: str | None = None
    stalls: int = 0
    stall_seconds: float = 0.0
    compaction_wait_seconds: float = 0.0
    buffer_size: int = 0
    buffer_peak: int = 0
    flushes: int = 0
    spills: int = 0
    spilled_size: int = 0
    preemptions: int = 0
    rows_read: int = 0
    skipped_rows: int = 0
    bad_cells: int = 0
    missing_columns: tuple[str, ...] = ()
    compaction: CompactSummary | None = field(default=None, repr=False)

    @staticmethod
    def of(
        engine: Engine, written: Written, found: Tally, result: CommitResult, refusal: PaimonError | None, seconds: float
    ) -> WriteSummary:
        """`refusal`: of the second half of the commit."""
        messages = written.messages
        files = [file for message in messages for file in message.new_files]
        return WriteSummary(
            rows=sum(file.row_count for file in files),
            delete_rows=sum(file.delete_row_count or 0 for file in files),
            files=len(files),
            size=sum(file.file_size for file in files),
            buckets=len({message.bucket_id for message in messages}),
            snapshots=tuple(result.snapshots),
            attempts=result.attempts,
            engine=engine.name,
            engine_reason=engine.reason,
            seconds=seconds,
            touched=tuple(dict.fromkeys(message.bucket_id for message in messages)),
            compacted=0 if refusal else sum(message.has_compact for message in messages),
            compaction_lost=str(refusal) if refusal else next(filter(None, (b.compaction_lost for b in written.buckets)), None),
            stalls=sum(bucket.stalls for bucket in written.buckets),
            stall_seconds=sum(bucket.stall_millis for bucket in written.buckets) / 1000,
            compaction_wait_seconds=sum(bucket.wait_millis for bucket in written.buckets) / 1000,
            **asdict(written.buffer),
            rows_read=found.rows,
            skipped_rows=found.bad_rows,
            bad_cells=found.bad_cells,
            missing_columns=tuple(sorted(found.lacking)),
        )


def run_write(context: TableContext, request: WriteRequest, engine: Engine, progress: Progress) -> WriteSummary:
    """Write the sources as one commit. When it fails before the commit, the table is as it was and no file remains."""
    started = context.clock.now_millis()
    check_writable_table(context)
    identity = identity_of(context, request.commit_user, request.commit_id, request.assume_new)
    committer = Committer(context)
    if committer.is_committed(identity):
        return _committed_before(context, request, engine, progress)
    splits = _splits_of(request)
    rows = None

    def attempt() -> tuple[WriteSummary, CommitResult]:
        nonlocal request, rows
        plan = plan_write(context, request, identity.user, splits)
        engine.prepare(work_of(request.source, splits), progress)
        written, found = write_input(plan, request, engine, progress, rows)
        request, rows = replace(request, read_snapshot=plan.read_snapshot_id or 0), found.rows  # for another attempt
        result, refusal = commit_rows(committer, plan, written.messages, request, identity)
        seconds = (context.clock.now_millis() - started) / 1000
        return WriteSummary.of(engine, written, found, result, refusal, seconds), result

    hint = "run it again, or keep other writers away from these partitions for a while"
    (summary, result), _ = again_on_conflict(context, attempt, hint, MOST_ASSIGNMENTS, (BucketsConflict,))
    if result.already_committed:
        return replace(_committed_before(context, request, engine, progress), attempts=result.attempts)
    if request.overwrite and context.mode.bucket_mode is BucketMode.CROSS_PARTITION and request.compaction != NO_COMPACTION:
        # Its writers compact nothing, because they do not know which partitions they replace.
        return replace(summary, compaction_lost=show_level_0(context, summary.touched, engine, progress))
    return summary


def _committed_before(context: TableContext, request: WriteRequest, engine: Engine, progress: Progress) -> WriteSummary:
    """What is left to do of a write that was committed before: if it crashed then, its rows may still be hidden at level 0."""
    lost = None if request.compaction == NO_COMPACTION else show_level_0(context, (), engine, progress)
    return WriteSummary(already_committed=True, engine=engine.name, compaction_lost=lost)


def _splits_of(request: WriteRequest) -> tuple[SourceSplit, ...]:
    """The input in pieces, which can be read several times."""
    if (rejects := request.reject_file) is not None:
        rejects.check(request.source.paths)
    return tuple(request.source.plan(may_be_none=request.overwrite or request.allow_empty))


def plan_write(
    context: TableContext, request: WriteRequest, commit_user: str = "", splits: tuple[SourceSplit, ...] | None = None
) -> WritePlan:
    """Row kinds, sequence numbers and hash indexes of the latest snapshot. `splits`: of the source, None: not known yet."""
    snapshot = context.snapshots.latest()
    moves_rows = context.mode.bucket_mode is BucketMode.CROSS_PARTITION
    state = bucket_files(context, None if request.overwrite and not moves_rows else snapshot)
    committed = committed_state(state)
    read_snapshot_id = _read_snapshot_id(context, snapshot, request.read_snapshot)
    file_stamp = new_stamp(context)
    known = partition_counts(context, state) if context.mode.batches_have_buckets else {}
    counts = counts_in_advance(context, known) if context.mode.batches_have_buckets else None
    wanted = request.compaction != NO_COMPACTION and not (_leaves_compaction(context) or (request.overwrite and moves_rows))
    compacts = wanted and why_not_compactable(context) is None
    strategy = FULL_STRATEGY if _is_full_commit(context, request) else MINOR_STRATEGY
    return WritePlan(
        context=context,
        incoming=IncomingRows(
            context.schema,
            data_file_schema.DELETE if request.op == "delete" else data_file_schema.INSERT,
            request.op_column,
            request.source,
            kind_filter=RowKindFilter.of(context.schema, context.options),
            skips_bad_rows=request.on_error != FAIL,
            missing_are_null=request.missing_are_null,
        ),
        splits=_splits_of(request) if splits is None else splits,
        total_buckets=context.options.bucket,
        first_sequences=_first_sequences(context, committed),
        read_snapshot_id=read_snapshot_id,
        file_stamp=file_stamp,
        parallelism=request.parallelism,
        compact_bucket=WriterCompaction(snapshot.id if snapshot else 0, file_stamp, strategy) if compacts else None,
        compacts_beside=request.compaction == ASYNC_COMPACTION,
        existing=state if compacts else {},
        lookup_buckets=_lookup_buckets(context, request, snapshot),
        keys_read_at=(snapshot.id if snapshot else 0) if moves_rows else None,
        other_bucket_counts=_other_bucket_counts(context, committed),
        replaces_rows=request.overwrite,
        hash_indexes=_hash_indexes(context, None if request.overwrite else snapshot, committed),
        commit_user=commit_user,
        bucket_counts=counts,
        counts_on=known if context.mode.batches_have_buckets and counts is None else None,
    )


def _leaves_compaction(context: TableContext) -> bool:
    """Whether writers of the table leave compaction to other jobs."""
    mode, options = context.mode, context.options
    return not mode.has_keys or mode.postpones_rows or options.write_only or options.sequence_snapshot_ordering


def _lookup_buckets(context: TableContext, request: WriteRequest, snapshot: Snapshot | None) -> LazyBuckets | None:
    """The buckets in which incoming keys may live, where their primary key does not say the partition.

    Those that an overwrite is known to replace are left out.
    """
    if context.mode.bucket_mode is not BucketMode.CROSS_PARTITION:
        return None
    if not request.overwrite:
        return bucket_files(context, snapshot)
    if request.static_partition is not None:
        replaced = PartitionSpec.parse(context, request.static_partition)
        return bucket_files(context, snapshot, FileFilter(lambda partition: not replaced.matches(partition)))
    if not _replaces_named_partitions(context):
        return bucket_files(context, None)
    if context.mode.merge_engine != "deduplicate":
        raise NotSupported(
            f"an overwrite of the partitions that get rows, in a table with merge-engine={context.mode.merge_engine}",
            "rows go to the partition where their key lives, so which partitions they replace is not known before",
            "name the partition: --partition, or overwrite the whole table: --option dynamic-partition-overwrite=false",
        )
    return bucket_files(context, snapshot)


def _other_bucket_counts(context: TableContext, committed: CommittedState) -> dict[bytes, int]:
    if context.mode.bucket_mode is BucketMode.POSTPONED:
        return {}
    totals = {partition: total for (partition, _), total in committed.total_buckets.items()}
    return {p: total for p, total in totals.items() if total != context.options.bucket}


def _hash_indexes(context: TableContext, snapshot: Snapshot | None, committed: CommittedState) -> HashIndexes | None:
    """What decides on the buckets of keys, if they are dynamic; an overwrite (`snapshot` None) begins anew."""
    if context.mode.bucket_mode is not BucketMode.DYNAMIC:
        return None
    return HashIndexes.at(context, snapshot, committed.total_buckets)


def _is_full_commit(context: TableContext, request: WriteRequest) -> bool:
    """Whether `full-compaction.delta-commits` asks for a full compaction: at commits whose identifier is a multiple of it, and at
    all that have none, as in Paimon's batch jobs.
    """
    every = context.options.full_compaction_delta_commits
    return every is not None and (request.commit_id is None or request.commit_id % every == 0)


def _first_sequences(context: TableContext, committed: CommittedState) -> dict[BucketId, int]:
    """Numbers above those of each bucket; none where all writers begin at 0, because the files of a bucket have no order."""
    if context.mode.bucket_mode is BucketMode.UNAWARE:
        return {}
    return {bucket_id: number + 1 for bucket_id, number in committed.max_sequences.items()}


def _read_snapshot_id(context: TableContext, latest: Snapshot | None, given: int | None) -> int | None:
    newest = None if latest is None else latest.id
    if given is not None and given > (newest or 0):
        raise context.snapshots.missing(given)
    return newest if given is None else given


def work_of(source: RowSource, splits: Sequence[SourceSplit]) -> Work:
    """The size of the input of a write."""
    size = sum(split.size for split in splits)
    return Work(size, len({split.path for split in splits}), is_in_memory=not source.paths)


def write_input(
    plan: WritePlan, request: WriteRequest, engine: Engine, progress: Progress, rows_before: int | None = None
) -> tuple[Written, Tally]:
    """Write the files of all rows; also what was found in the input. When it fails, no file stays.

    `BadInput` names all bad cells of the input. It is raised as well for an overwrite that has no rows, and for an input that had
    another number of rows before.
    """
    tallies: Tallies = {}
    with NewFiles(plan.context, plan.file_stamp).deleted_on_failure():
        try:
            written = (write_files if plan.counts_on is None else write_counted)(plan, engine, progress, tallies)
        except BadInput as error:
            raise with_all_faults(error, plan, engine, progress) from error
        found = Tally.of(tallies[number] for number in sorted(tallies))
        if rows_before not in (None, found.rows):
            why = f"it had {rows_before:,} rows, and then {found.rows:,}"
            raise BadInput("the input changed while it was being read", why, "run again when nothing writes to it")
        if request.overwrite and not request.allow_empty and not written.buckets:
            raise empty_overwrite(request.static_partition, _replaces_named_partitions(plan.context), tallies)
        if (rejects := request.reject_file) is not None:
            write_rejects(rejects, plan, tallies)
    return written, found


def commit_rows(
    committer: Committer, plan: WritePlan, messages: list[CommitMessage], request: WriteRequest, identity: CommitIdentity
) -> tuple[CommitResult, PaimonError | None]:
    """Publish the rows as a snapshot of their own, then the work of the writer's compactions.

    If another job has compacted the same files by then, only that work is lost: second, why.
    """

    def publish() -> CommitResult:
        if not request.overwrite:
            return committer.commit(messages, identity)
        covered, read = overwritten(plan.context, messages, request.static_partition), plan.read_snapshot_id
        return committer.overwrite(messages, identity, replaced_partitions=covered.matches, read_snapshot_id=read)

    try:
        return NewFiles(plan.context, plan.file_stamp).commit(messages, publish), None
    except (Conflict, StorageUnavailable) as refusal:
        published = refusal.details.get("published_snapshots")
        if not published:
            raise
        return CommitResult(tuple(plan.context.snapshots.get(number) for number in published), len(published)), refusal


def overwritten(
    context: TableContext, messages: Sequence[CommitMessage], static_partition: Mapping[str, str] | None
) -> PartitionSpec:
    """The partitions whose old rows go: the static ones, or (dynamic overwrite) those that got new rows, or all."""
    bringing = [message for message in messages if not _only_deletes(context, message)]
    if static_partition is None:
        dynamic = _replaces_named_partitions(context)
        return PartitionSpec.exactly({m.partition for m in bringing}) if dynamic else PartitionSpec.everything()
    spec = PartitionSpec.parse(context, static_partition)
    for message in bringing:
        if not spec.matches(message.partition):
            raise BadInput(
                f"rows of partition {partition_text(context, message.partition)} are outside the partition to overwrite",
                "nothing was committed",
                "leave those rows out, or overwrite without --partition",
            )
    return spec


def _only_deletes(context: TableContext, message: CommitMessage) -> bool:
    """Whether the rows only delete keys that now live in another partition."""
    moves_rows = context.mode.bucket_mode is BucketMode.CROSS_PARTITION
    return moves_rows and all(file.delete_row_count == file.row_count for file in message.new_files)


def _replaces_named_partitions(context: TableContext) -> bool:
    """Whether an overwrite without --partition replaces only the partitions that get rows."""
    return context.options.dynamic_partition_overwrite and bool(context.schema.partition_keys)


def with_all_faults(error: BadInput, plan: WritePlan, engine: Engine, progress: Progress) -> BadInput:
    """The error about the first bad row, with all others of the input: they are looked for only now that one is known."""
    if "row" not in error.details or not isinstance(plan.incoming, IncomingRows):
        return error
    with phase(progress, "Looking for all bad rows", len(plan.splits)) as done:
        try:
            tallies = engine.run_tasks(plan.incoming.judge, plan.splits, done)
        except TasksFailed:
            return error
    total = Tally.of(tallies)
    return total.error() if total.bad_cells else error


def write_rejects(file: RejectFile, plan: WritePlan, tallies: Tallies) -> None:
    """All bad cells in the order of the input. Their splits are read once more, so they are never all in memory."""
    assert isinstance(plan.incoming, IncomingRows)
    with file:
        for number, split in enumerate(plan.splits):
            if tallies[number].bad_cells:
                seen = plan.incoming.judge(split, RejectingTally(file=file))
                if (seen.rows, seen.bad_cells) != (tallies[number].rows, tallies[number].bad_cells):
                    raise BadInput(
                        f"{split.name} changed while it was being read",
                        f"it had {tallies[number].bad_cells:,} bad cells, and then {seen.bad_cells:,}",
                        "run again when nothing writes to it",
                        source=split.name,
                    )


def empty_overwrite(partition: Mapping[str, str] | None, dynamic: bool, tallies: Tallies) -> BadInput:
    """An overwrite that has nothing to write: mostly a failed command in front of the pipe. `dynamic`: of the partitions that get
    rows, unless `partition` names one."""
    skipped = sum(tally.bad_rows for tally in tallies.values())
    place = ",".join(f"{key}={value}" for key, value in (partition or {}).items())
    bad = "the only row of the input is bad" if skipped == 1 else f"all {skipped:,} rows of the input are bad"
    found = bad if skipped else "the input is empty"
    if dynamic and not place:
        what = f"{found}, so that --overwrite has no partition to replace"
    else:
        what = f"{found}, and --overwrite would delete all rows{f' of partition {place}' if place else ''}"
    return BadInput(
        what,
        "nothing was changed",
        "add --allow-empty if that is intended",
    )
