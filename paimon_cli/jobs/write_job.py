"""`write`: many tasks write files at the same time, and one commit publishes them.

1. plan: cut the source into splits; sequence numbers and buckets continue those of the latest snapshot (`plan_write`).
2. prepare the engine, which may be chosen by the size of the input.
3. run: tasks check, route and sort the rows and write level-0 files (`write_input`). A failure leaves no files.
4. commit: a snapshot with the rows, and one with the compactions of the writers, if there are any.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from paimon_cli.commit.commit_messages import removed_on_refusal
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.commit.outcome import CommitResult
from paimon_cli.errors import (
    BadInput,
    BucketsConflict,
    CountConflict,
    SnapshotExpired,
)
from paimon_cli.history.partition_spec import PartitionValues, pairs_of
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.faults import Fault, RejectFile, RejectingTally, Tally
from paimon_cli.ingest.row_sources import RowSource
from paimon_cli.ingest.rows import IncomingRows
from paimon_cli.ingest.source_files import SourceSplit
from paimon_cli.jobs.due_compaction import DueCompaction, compact_due, finished_earlier, waiting_after
from paimon_cli.jobs.engine import Engine, Progress, TasksFailed, Work, phase
from paimon_cli.jobs.moved_rows import MOST_MOVES, moved
from paimon_cli.jobs.postponed_rows import write_counted
from paimon_cli.jobs.table_change import (
    NewFiles,
    Summary,
    again_on_conflict,
    check_writable_table,
    compacted_by_writers,
    expiry_noticed,
    identity_of,
    in_one_half,
    ran_on,
    write_files,
    written_files,
)
from paimon_cli.jobs.table_rows import TableRows
from paimon_cli.jobs.write_request import WriteRequest, overwritten, plan_write, replaces_named_partitions, splits_of
from paimon_cli.metadata.data_file import BucketId, CommitMessage
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.options.choices import CompactionMode
from paimon_cli.storage.capabilities import overlapping_writes
from paimon_cli.write.table_writer import Written
from paimon_cli.write.write_plan import Tallies, WritePlan

if TYPE_CHECKING:
    from paimon_cli.jobs.compact_summary import CompactSummary

MAX_ASSIGNMENTS = 10
"""How often rows are written again because other jobs have assigned keys of the same partitions to dynamic buckets, or have let
the snapshot expire that the write was planned at.
"""
ASSIGNED_MEANWHILE = "run it again, or keep other jobs away from these partitions for a while"
"""The hint of the error after the last of them."""
OUTDATED = (BucketsConflict, SnapshotExpired)
"""The conflicts after which they are written again."""


@dataclass(frozen=True)
class _Done:
    """The files that were written, the tally of the input, and the commit. Its `failure`: why its compactions were refused.

    `messages`: what was committed.
    """

    written: Written
    found: Tally
    result: CommitResult
    messages: Sequence[CommitMessage]


@dataclass(frozen=True, repr=False)
class WriteSummary(Summary):
    """The result of a write. `rows`, `size` (bytes): of the new files, after merging equal keys; `rows_read`: of the input.

    `skipped_rows`: rows with the `bad_cells`; `missing_columns`: columns that are null in rows that lack them.
    `other_bucket_rows`: rows of the input that were left out, because other writers own their buckets. `unordered_deletes`:
    deletions with a null in the first sequence field, which remove no row that has a value there. `compacted`: number of buckets
    that were compacted; `compaction_lost`: why compactions were dropped or refused, although the rows are committed;
    `compaction_repeated`: why buckets were compacted once more after the commit, so that readers see the rows.
    `waiting_records`: stored records in the written buckets that reads do not show yet, because they wait for a compaction; of
    a repeated write, those of the whole table; None if that cannot be told. `attempts`: to publish the commit; `rewrites`: how
    often all rows were written again before, because other jobs had assigned keys of the same partitions to buckets, or the
    snapshot had expired. `stalls`, `stall_seconds`: how often and how long buckets waited for a compaction before they could
    take more runs; `compaction_wait_seconds`: how long they waited for compactions at the end. `compaction`: the job after the
    commit, if one was requested. `source_table`, `source_snapshot`: the table that was read, and at which snapshot;
    `source_waiting_records`: stored records of that table that were not written, because they wait for a compaction. The other
    fields show the use of write buffers, as in `BufferUse`.
    """

    rows: int = 0
    delete_rows: int = 0
    files: int = 0
    size: int = 0
    buckets: int = 0
    snapshots: tuple[Snapshot, ...] = ()
    attempts: int = 0
    rewrites: int = 0
    already_committed: bool = False
    engine: str = ""
    engine_reason: str = ""
    seconds: float = 0.0
    touched: tuple[BucketId, ...] = field(default=(), repr=False)
    compacted: int = 0
    compaction_lost: str | None = None
    compaction_repeated: str | None = None
    waiting_records: int | None = 0
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
    other_bucket_rows: int = 0
    unordered_deletes: int = 0
    source_table: str | None = None
    source_snapshot: int | None = None
    source_waiting_records: int = 0
    compaction: CompactSummary | None = field(default=None, repr=False)

    @staticmethod
    def of(run: dict[str, Any], done: _Done, source: RowSource) -> WriteSummary:
        written, found, messages = done.written, done.found, done.messages
        files = [file for message in messages for file in message.append.added]
        return WriteSummary(
            rows=sum(file.row_count for file in files),
            delete_rows=sum(file.delete_row_count or 0 for file in files),
            **written_files(messages),
            buckets=len({message.bucket_id for message in messages}),
            snapshots=tuple(done.result.snapshots),
            attempts=done.result.attempts,
            **run,
            touched=tuple(dict.fromkeys(message.bucket_id for message in messages)),
            **compacted_by_writers(messages, done.result, (bucket.compaction_lost for bucket in written.buckets)),
            stalls=sum(bucket.stalls for bucket in written.buckets),
            stall_seconds=sum(bucket.stall_millis for bucket in written.buckets) / 1000,
            compaction_wait_seconds=sum(bucket.wait_millis for bucket in written.buckets) / 1000,
            **asdict(written.buffer),
            rows_read=found.rows,
            skipped_rows=found.bad_rows,
            bad_cells=found.bad_cells,
            missing_columns=tuple(sorted(found.missing_columns)),
            other_bucket_rows=found.other_bucket_rows,
            unordered_deletes=found.unordered_deletes,
            **origin_of(source),
        )


def origin_of(source: RowSource) -> dict[str, Any]:
    """The fields of the summary that name the table from which the rows come; none for other sources."""
    if not isinstance(source, TableRows):
        return {}
    waiting = source.scan.plan.counts.waiting_records
    return {"source_table": source.name, "source_snapshot": source.snapshot_id, "source_waiting_records": waiting}


def run_write(context: TableContext, request: WriteRequest, engine: Engine, progress: Progress) -> WriteSummary:
    """Write the sources as one commit. After a failure before the commit, the table is unchanged and no files remain."""
    started = context.clock.now_millis()
    check_writable_table(context)
    identity = identity_of(context, request.commit_user, request.commit_id, request.assume_new)
    identity = replace(identity, properties=request.properties)
    committer = Committer(context)
    if committer.is_committed(identity):
        return WriteSummary(**finished_earlier(context, request.compaction, engine, progress))
    attempts = _Attempts(context, committer, request, identity, splits_of(context, request), engine, progress)
    with overlapping_writes(context.storage):
        done, times = again_on_conflict(context, attempts.run, ASSIGNED_MEANWHILE, MAX_ASSIGNMENTS, OUTDATED)
    if done.result.already_committed:
        return WriteSummary(**finished_earlier(context, request.compaction, engine, progress), attempts=done.result.attempts)
    summary = replace(WriteSummary.of(ran_on(engine, context, started), done, request.source), rewrites=times - 1)
    due = DueCompaction()
    if request.compaction != CompactionMode.NONE and _rows_need_compaction(context, request, summary):
        due = compact_due(context, summary.touched, engine, progress)
        summary = replace(summary, compaction_lost=due.lost, compaction_repeated=summary.compaction_lost)
    return replace(
        summary,
        snapshots=summary.snapshots + due.snapshots,
        compacted=summary.compacted + due.buckets,
        waiting_records=waiting_after(context, summary.touched, summary.snapshots, due.snapshots),
    )


def _rows_need_compaction(context: TableContext, request: WriteRequest, summary: WriteSummary) -> bool:
    """Whether readers see the rows only after another compaction of their buckets.

    If another job compacted the same files, the compactions of the writers were refused. In an overwrite of a table whose keys
    may be in any partition they compact nothing, because they do not know which partitions they replace.
    """
    if not context.mode.awaits_compaction or not context.options.lookup_wait:
        return False
    moves_rows = context.mode.bucket_mode.moves_keys
    return summary.compaction_lost is not None or (request.overwrite and moves_rows)


@dataclass
class _Attempts:
    """The attempts of one write, each with a new plan and new files. Later ones use the snapshot that the first one has read."""

    context: TableContext
    committer: Committer
    request: WriteRequest
    identity: CommitIdentity
    splits: tuple[SourceSplit, ...]
    engine: Engine
    progress: Progress
    read_snapshot: int | None = None
    rows: int | None = None

    def run(self) -> _Done:
        request = self.request if self.rows is None else replace(self.request, read_snapshot=self.read_snapshot)
        with expiry_noticed(self.context, None):
            plan = plan_write(self.context, request, self.identity.user, self.splits)
        self.engine.prepare(work_of(request.source, self.splits), self.progress)
        with expiry_noticed(plan.context, plan.planned_at):
            written, found = write_input(plan, request, self.engine, self.progress, self.rows)
        self.read_snapshot, self.rows = plan.read_snapshot_id or 0, found.rows
        return _Done(written, found, *commit_rows(self.committer, plan, written.messages, request, self.identity))


def work_of(source: RowSource, splits: Sequence[SourceSplit]) -> Work:
    """The size of the input of a write."""
    size = sum(split.size for split in splits)
    return Work(size, len({split.path for split in splits}), is_in_memory=not source.paths)


def write_input(
    plan: WritePlan, request: WriteRequest, engine: Engine, progress: Progress, rows_before: int | None = None
) -> tuple[Written, Tally]:
    """Write all rows into files. Returns them and the tally of the input. A failure leaves no files.

    Raises `BadInput`, which names the bad cells; also for an overwrite without rows, and for an input that had another number of
    rows in an earlier attempt (`rows_before`).
    """
    tallies: Tallies = {}
    with NewFiles(plan.context, plan.file_stamp).deleted_on_failure():
        try:
            written = (write_files if plan.buckets.known is None else write_counted)(plan, engine, progress, tallies)
        except BadInput as error:
            list_open_cell(request.reject_file, error)
            complete = with_all_faults(error, plan, engine, progress)
            raise complete from (error.__cause__ if complete is error else error)
        found = Tally.of(tallies[number] for number in sorted(tallies))
        if rows_before not in (None, found.rows):
            why = f"it had {rows_before:,} rows, and then {found.rows:,}"
            raise BadInput("the input changed while it was being read", why, "run again when nothing writes to it")
        if request.overwrite and not request.allow_empty and not written.buckets:
            raise empty_overwrite(plan.context, request.static_partition, tallies)
        if (rejects := request.reject_file) is not None:
            write_rejects(rejects, plan, tallies)
    return written, found


def commit_rows(
    committer: Committer, plan: WritePlan, messages: list[CommitMessage], request: WriteRequest, identity: CommitIdentity
) -> tuple[CommitResult, list[CommitMessage]]:
    """Publish the rows as a snapshot, then the compactions of the writers as another one. See `NewFiles.commit_halves`.

    Returns what was committed, too: if the bucket count of a partition has changed since the plan, the rows are moved to the
    buckets that it has now (`moved_rows`).

    It is one snapshot where readers skip level 0: between two, they would see neither the old rows of an overwrite nor its new
    ones. Streams need the second one if the compactions have made a changelog.
    """
    mode, has_changelog = plan.context.mode, any(message.compact.changelog for message in messages)

    def publish() -> CommitResult:
        is_dynamic, read = plan.context.options.dynamic_partition_overwrite, plan.read_snapshot_id
        covered = overwritten(plan.context, messages, request.static_partition, is_dynamic)
        changes = in_one_half(plan.context, messages) if mode.hides_level_0 and not has_changelog else messages
        return committer.overwrite(changes, identity, replaced_partitions=covered.matches, read_snapshot_id=read)

    new_files = NewFiles(plan.context, plan.file_stamp)
    if request.overwrite:
        return new_files.commit_halves(messages, publish), messages
    for _ in range(MOST_MOVES):
        attempt = CommitResult.of(functools.partial(committer.commit, messages, identity))
        if attempt.snapshots or not isinstance(attempt.failure, CountConflict):
            break
        with removed_on_refusal(plan.context, messages):
            elsewhere = moved(plan.context, messages)
        if elsewhere is None:
            break
        kept = [message for message in messages if any(message is other for other in elsewhere)]
        new_files.settle([message for message in messages if message not in kept], attempt)
        messages = elsewhere
    return new_files.commit_halves(messages, attempt.or_raise), messages


def with_all_faults(error: BadInput, plan: WritePlan, engine: Engine, progress: Progress) -> BadInput:
    """`error`, which names the first bad row, extended to all bad rows: the input is searched for them only after an error."""
    if "row" not in error.details or not isinstance(plan.incoming, IncomingRows):
        return error
    with phase(progress, "Looking for all bad rows", len(plan.splits)) as done:
        try:
            tallies = engine.run_tasks(plan.incoming.find_faults, plan.splits, done)
        except TasksFailed:
            return error
    total = Tally.of(tallies)
    return total.error() if total.bad_cells else error


def list_open_cell(file: RejectFile | None, error: BadInput) -> None:
    """List a quoted cell that is never closed in the file of bad cells. It is never skipped: it takes the rows after it."""
    if file is not None and "line" in error.details:
        with file:
            file.add([Fault(*record.values()) for record in error.details["faults"]])


def write_rejects(file: RejectFile, plan: WritePlan, tallies: Tallies) -> None:
    """Write all bad cells to the file, in the order of the input. Splits with bad cells are read again, to hold few in memory."""
    assert isinstance(plan.incoming, IncomingRows)
    with file:
        for number, split in enumerate(plan.splits):
            if tallies[number].bad_cells:
                seen = plan.incoming.find_faults(split, RejectingTally(file=file))
                if (seen.rows, seen.bad_cells) != (tallies[number].rows, tallies[number].bad_cells):
                    raise BadInput(
                        f"{split.name} changed while it was being read",
                        f"it had {tallies[number].bad_cells:,} bad cells, and then {seen.bad_cells:,}",
                        "run again when nothing writes to it",
                        source=split.name,
                    )


def empty_overwrite(context: TableContext, partition: PartitionValues | None, tallies: Tallies) -> BadInput:
    """An overwrite that has nothing to write: mostly a failed command in front of the pipe. `partition`: what it would replace,
    if that was named."""
    skipped = sum(tally.bad_rows for tally in tallies.values())
    named = ",".join(pairs_of(context, partition or {}))
    bad = "the only row of the input is bad" if skipped == 1 else f"all {skipped:,} rows of the input are bad"
    found = bad if skipped else "the input is empty"
    if replaces_named_partitions(context) and not named:
        what = f"{found}, so that --overwrite has no partition to replace"
    else:
        what = f"{found}, and --overwrite would delete all rows{f' of partition {named}' if named else ''}"
    return BadInput(
        what,
        "nothing was changed",
        "add --allow-empty if that is intended",
    )
