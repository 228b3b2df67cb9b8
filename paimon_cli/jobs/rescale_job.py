"""`rescale`: rewrites partitions with another bucket count in one commit, then changes the table's `bucket` option.

Where one count divides the other, each bucket is split, or merged with others, by itself (`bucket_regroup`): a COMPACT commit, in
which rows keep their runs. Otherwise all rows take the write path, and an OVERWRITE replaces them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from paimon_cli.bucket.stamped_files import new_stamp
from paimon_cli.catalog.alter_table import alter_table
from paimon_cli.catalog.column_changes import SetOption
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.data_conflict import check_of_partitions
from paimon_cli.commit.deduplication import CommitIdentity, fresh_identity
from paimon_cli.commit.outcome import CommitResult
from paimon_cli.compact.bucket_compactor import WriterCompaction
from paimon_cli.compact.compaction_plan import FULL_STRATEGY, MINOR_STRATEGY
from paimon_cli.errors import Conflict, FilesConflict, NotSupported, PaimonError, Refused, SnapshotExpired, UsageError
from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.history.partition_spec import PartitionSpec, expect_partitions, partition_text
from paimon_cli.history.stale_buckets import mixed_partitions, stale_partitions
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.tiered_rows import expect_own_buckets
from paimon_cli.history.unfinished_rescale import rescale_record
from paimon_cli.jobs.bucket_regroup import can_regroup, regroup
from paimon_cli.jobs.engine import Engine, Progress, Work, phase
from paimon_cli.jobs.online_rescale import MOST_ROUNDS, OnlineRescale, check_online, others_were_faster
from paimon_cli.jobs.stored_rows import RowsOfTable, numbered_splits
from paimon_cli.jobs.table_change import (
    NewFiles,
    Summary,
    again_on_conflict,
    check_writable_table,
    expiry_noticed,
    in_one_half,
    ran_on,
    write_files,
    written_files,
)
from paimon_cli.metadata.data_file import CommitMessage, FileFilter
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET, natural_order
from paimon_cli.metadata.table_mode import RESCALE
from paimon_cli.options.choices import ConflictCheck
from paimon_cli.read.scan_plan import Split, plan_scan
from paimon_cli.read.split_reader import count_split
from paimon_cli.requests.maintenance import RescaleOptions
from paimon_cli.write.write_plan import CompactionWhileWriting, TargetBuckets, WritePlan

_STOP_WRITERS = "stop the writers of these partitions, or run the command again"


@dataclass(frozen=True)
class RescaledPartition:
    """A partition before the rescale and, as an estimate, after it. `key`: serialised partition; `partition`: as text.

    Sizes are bytes; `rows` are counted before merging; `buckets` is negative if the bucket count is not fixed.
    """

    key: bytes
    partition: str
    buckets: int
    new_buckets: int
    rows: int
    size: int
    files: int
    files_after: int
    bucket_size: int
    bucket_size_after: int


@dataclass(frozen=True)
class RescalePlan:
    """The partitions whose bucket count at `snapshot` is not `buckets`.

    `changes_option`: whether the table's `bucket` option is changed too; a rescale of chosen partitions leaves it alone, and
    `differs_from_option` says that their new count differs from it. `online`: writers of paimon-cli go on meanwhile. `record`:
    what its snapshot says of the option, before and after.
    """

    snapshot: Snapshot | None
    buckets: int
    partitions: tuple[RescaledPartition, ...]
    changes_option: bool
    differs_from_option: bool = False
    online: bool = False
    record: tuple[int, int] = (0, 0)

    @property
    def is_needed(self) -> bool:
        return bool(self.partitions) or self.changes_option

    @property
    def size(self) -> int:
        return sum(partition.size for partition in self.partitions)

    def identity(self, context: TableContext) -> CommitIdentity:
        """The identity of a commit, whose snapshot says what becomes of the option, in case the run is killed before that."""
        return replace(fresh_identity(context), properties=(rescale_record(*self.record),))


@dataclass(frozen=True, repr=False)
class RescaleSummary(Summary):
    """The result. `rows`: how many the new files hold, which are all visible unless buckets were split or merged by themselves;
    `files`, `size` (bytes): the new files.

    `stale_files`: files that other engines' writers have committed since with an older bucket count; `repair` moves their rows.
    """

    buckets: int
    partitions: int = 0
    rows: int = 0
    files: int = 0
    size: int = 0
    snapshots: tuple[Snapshot, ...] = ()
    option_changed: bool = False
    stale_files: int = 0
    engine: str = ""
    engine_reason: str = ""
    seconds: float = 0.0


def plan_rescale(context: TableContext, options: RescaleOptions) -> RescalePlan:
    """Plan a rescale.

    In a table with dynamic buckets only the whole table can be rescaled, because writers look keys up in an index. In a
    table with postponed buckets each partition has its own count: the option stays as it is, and waiting rows keep waiting.
    Raises `NotSupported` if the table has no buckets to rescale, or dynamic ones and only a part is to change, `UsageError` if
    the request does not fit its bucket mode, `NotFound` for a partition that does not exist.
    """
    context.check(RESCALE)
    expect_own_buckets(context, context.options.raw)
    buckets, partitions = options.buckets, options.partition or ()
    present, postpones = context.options.bucket, context.mode.bucket_mode.postpones
    whole = f"paimon-cli rescale {context.layout.argument} --buckets {buckets or 'N'} --yes"
    why = f"with bucket={present} its writers choose the bucket of each key"
    if present < 0 and not postpones and (partitions or options.online):
        part = f"{'--online' if options.online else '--partition'} of {context.address}"
        why = f"{why}, and would go on with that until the option changes, which holds for all partitions"
        raise NotSupported(f"rescale {part}", why, f"stop the writers, and rescale the whole table: {whole}")
    if present < 0 and buckets is None:
        raise UsageError(f"{context.address} has no fixed bucket count", why, f"say how many: {whole}")
    total = present if buckets is None else buckets
    check_writable_table(context.with_buckets(total))
    snapshot = context.snapshots.latest()
    chosen = PartitionSpec.parse_any(context, partitions)
    counts = _counts(context, snapshot)
    expect_partitions(context, partitions, counts)
    if mixed := [partition for partition in mixed_partitions(counts) if chosen.matches(partition)]:
        where = partition_text(context, mixed[0]) or context.address
        raise Refused(
            f"{where} holds files of several bucket counts",
            "a writer that ran during an earlier rescale has committed with the old count, so that a key may be in two buckets",
            "move its rows first, none of which is lost: "
            f"paimon-cli repair {context.layout.argument} --only stale-buckets --apply --yes",
        )
    found = _partitions_to_move(context, snapshot, total, chosen)
    if options.online:
        check_online(context, present, total, {partition: held[0].total_buckets for partition, held in found.items()})
    rescaled = sorted((_forecast(context, total, *item) for item in found.items()), key=lambda p: natural_order(p.partition))
    differs = total != present and not postpones
    changes, disagrees = differs and not partitions, differs and bool(partitions)
    record = (present, total if changes else present)
    return RescalePlan(snapshot, total, tuple(rescaled), changes, disagrees, options.online, record)


def _partitions_to_move(
    context: TableContext, snapshot: Snapshot | None, buckets: int, chosen: PartitionSpec
) -> dict[bytes, list[BucketFiles]]:
    found: dict[bytes, list[BucketFiles]] = {}
    for bucket in bucket_files(context, snapshot, FileFilter(chosen.matches)).values():
        if bucket.total_buckets != buckets and bucket.bucket != POSTPONE_BUCKET:
            found.setdefault(bucket.partition, []).append(bucket)
    return found


def _forecast(context: TableContext, buckets: int, partition: bytes, held: Sequence[BucketFiles]) -> RescaledPartition:
    files = [file for bucket in held for file in bucket.files]
    rows, size = sum(file.row_count for file in files), sum(file.file_size for file in files)
    bucket_size_after = -(-size // buckets)
    return RescaledPartition(
        key=partition,
        partition=partition_text(context, partition),
        buckets=held[0].total_buckets,
        new_buckets=buckets,
        rows=rows,
        size=size,
        files=len(files),
        files_after=min(rows, buckets) * max(1, -(-bucket_size_after // context.mode.target_file_size)),
        bucket_size=-(-size // len(held)),
        bucket_size_after=bucket_size_after,
    )


def run_rescale(context: TableContext, plan: RescalePlan, engine: Engine, progress: Progress) -> RescaleSummary:
    """Carry out the plan. Raises `Conflict` if another job wrote to these partitions; no new file remains then."""
    started = context.clock.now_millis()
    summary = RescaleSummary(plan.buckets)
    if plan.partitions:
        rewrite = rescale_beside_writers if plan.online else rewrite_partitions
        summary = rewrite(context, plan, engine, progress)
    with _naming(summary.snapshots):
        if plan.changes_option:
            _expect_nothing_left(context, plan.buckets)
            alter_table(context, [SetOption("bucket", str(plan.buckets), fits_files=True)], context.clock)
            if plan.online:  # partitions that writers have begun before they could know the new count
                summary = _with_more(summary, rescale_beside_writers(context, plan, engine, progress))
    with _naming(summary.snapshots):
        stale = _stale_files(context, summary.snapshots)
    return replace(summary, option_changed=plan.changes_option, stale_files=stale, **ran_on(engine, context, started))


def _with_more(first: RescaleSummary, more: RescaleSummary) -> RescaleSummary:
    names = ("partitions", "rows", "files", "size", "snapshots")
    return replace(first, **{name: getattr(first, name) + getattr(more, name) for name in names})


def rescale_beside_writers(context: TableContext, plan: RescalePlan, engine: Engine, progress: Progress) -> RescaleSummary:
    """Commit the rows of all partitions in their new buckets, and rows that are written meanwhile.

    An error of a later round names the snapshots of the earlier ones.
    """
    messages, snapshots = list[CommitMessage](), tuple[Snapshot, ...]()
    for _ in range(MOST_ROUNDS):
        with _naming(snapshots):
            try:
                more, made = OnlineRescale(context, plan.buckets, engine, progress, plan.identity).run()
            except Refused as failure:
                if _has_begun(context, plan):
                    finish = f"paimon-cli maintain {context.layout.argument} --yes"
                    failure.set_hint(f"the rescale has begun: stop such writers, then move their rows and finish it: {finish}")
                raise
        messages, snapshots = messages + more, snapshots + made
        with _naming(snapshots):
            latest = context.snapshots.latest()
            if not _partitions_to_move(context, latest, plan.buckets, PartitionSpec.everything()):
                break
    else:
        with _naming(snapshots):
            raise others_were_faster(f"{context.address} still has files of other bucket counts")
    partitions = len({message.partition for message in messages})
    return _regrouped_summary(plan.buckets, partitions, messages, snapshots)


@contextmanager
def _naming(snapshots: tuple[Snapshot, ...]) -> Iterator[None]:
    """Errors name these snapshots, which were committed before, and those that they name already."""
    try:
        yield
    except PaimonError as failure:
        CommitResult(snapshots).followed_by(CommitResult.failed(failure)).or_raise()


def _has_begun(context: TableContext, plan: RescalePlan) -> bool:
    """Whether the plan has committed anything."""
    counts = _counts(context, context.snapshots.latest())
    return any(plan.buckets in counts.get(partition.key, ()) for partition in plan.partitions)


def _regrouped_summary(
    buckets: int, partitions: int, messages: Sequence[CommitMessage], snapshots: tuple[Snapshot, ...]
) -> RescaleSummary:
    files = [file for message in messages for file in message.compact.added]
    rows, size = sum(file.row_count for file in files), sum(file.file_size for file in files)
    return RescaleSummary(buckets, partitions, rows, len(files), size, snapshots)


def rewrite_partitions(context: TableContext, plan: RescalePlan, engine: Engine, progress: Progress) -> RescaleSummary:
    """Commit the rows of the planned partitions in their new buckets. Raises the same errors as `run_rescale`."""
    snapshot = plan.snapshot
    if snapshot is None:
        raise ValueError("a table without snapshots has no partitions to rescale")
    if all(can_regroup(context, partition.buckets, plan.buckets) for partition in plan.partitions):
        return _regroup_partitions(context, plan, snapshot, engine, progress)
    chosen = {partition.key for partition in plan.partitions}
    compaction = _compaction(context, snapshot.id, stamp := new_stamp(context))
    context = context.with_level_0()
    with expiry_noticed(context, snapshot.id):
        splits = [split for split in plan_scan(context, snapshot).splits if split.bucket.partition in chosen]
        engine.prepare(Work.of(file for split in splits for file in split.files), progress)
        shown = _shown_rows(context, splits, engine, progress)
    scaled = context.with_buckets(plan.buckets)
    job = WritePlan(
        context=scaled,
        incoming=RowsOfTable(context),
        splits=numbered_splits(splits),
        buckets=TargetBuckets(plan.buckets),
        read_snapshot_id=snapshot.id,
        file_stamp=stamp,
        compaction=compaction,
        replaces_rows=True,
    )
    new_files = NewFiles(scaled, job.file_stamp)
    with expiry_noticed(context, snapshot.id), new_files.deleted_on_failure():
        written = write_files(job, engine, progress).messages
        rows = sum(file.row_count for message in written for file in message.append.added)
        if rows != shown:
            raise PaimonError(f"{shown} rows became {rows} when rewritten into {plan.buckets} buckets", "nothing was committed")
        # In one snapshot: with a second one for the compactions, readers that skip level 0 would see no rows in between.
        messages = in_one_half(scaled, written, reports_rows=False)
    snapshots = _commit(new_files, messages, PartitionSpec.exactly(context, chosen), snapshot, plan.identity(context))
    return RescaleSummary(plan.buckets, len(chosen), rows, **written_files(messages), snapshots=snapshots)


def _regroup_partitions(
    context: TableContext, plan: RescalePlan, snapshot: Snapshot, engine: Engine, progress: Progress
) -> RescaleSummary:
    """Split or merge each bucket by itself, and again if only compactions were committed in the meantime."""
    counts = {partition.key: plan.buckets for partition in plan.partitions}

    def attempt() -> RescaleSummary:
        latest, identity = context.snapshots.latest_to_plan(), plan.identity(context)
        with _hinted():
            check_of_partitions(context, identity, counts.__contains__, snapshot.id, keeps_postponed=True)(latest)
        if latest is None:
            raise ValueError("the check refuses a history that has begun again")
        new_files = NewFiles(context, new_stamp(context))
        with expiry_noticed(context, latest.id):
            found = regroup(new_files, latest, counts, engine, progress)
        messages = [message for of_partition in found.values() for message in of_partition]
        publish = functools.partial(Committer(context).commit, messages, identity)
        snapshots = new_files.commit(messages, publish).snapshots
        return _regrouped_summary(plan.buckets, len(counts), messages, snapshots)

    return again_on_conflict(context, attempt, _STOP_WRITERS, conflicts=(FilesConflict, SnapshotExpired))[0]


def _compaction(context: TableContext, read_snapshot_id: int, stamp: str) -> CompactionWhileWriting | None:
    """How the writers compact, if readers skip level 0, or a later compaction would report each row as a new one."""
    producer = context.mode.changelog_producer
    if not (context.mode.hides_level_0 or producer.reports_compactions):
        return None
    # A minor compaction leaves rows below the top level; if it need not wait for lookups, also at level 0.
    strategy = FULL_STRATEGY if producer.compares_top_levels or not context.options.lookup_wait else MINOR_STRATEGY
    return CompactionWhileWriting(WriterCompaction(read_snapshot_id, stamp, strategy))


def _expect_nothing_left(context: TableContext, buckets: int) -> None:
    """Raise `Conflict` if another job has added a partition since the plan: it must be rescaled before the option changes."""
    latest = context.snapshots.latest()
    mixed = mixed_partitions(_counts(context, latest))
    left = _partitions_to_move(context, latest, buckets, PartitionSpec.everything()).keys() - mixed.keys()
    if left:
        where = partition_text(context, min(left)) or "the table"
        raise Conflict(
            f"another job has written {where} with another bucket count in the meantime",
            "the table's option was not changed",
            f"stop the writers and run again: paimon-cli rescale {context.layout.argument} --buckets {buckets} --yes",
        )


def _counts(context: TableContext, snapshot: Snapshot | None) -> dict[bytes, set[int]]:
    """The bucket counts in the files of each partition."""
    return {} if snapshot is None else context.manifests.live_files(snapshot).bucket_counts()


def _stale_files(context: TableContext, made: Sequence[Snapshot]) -> int:
    """How many files with an older bucket count were committed after the rescale. Java's writers do not look at the count."""
    latest = context.snapshots.latest()
    if latest is None or not made or latest.id == made[-1].id or not mixed_partitions(_counts(context, latest)):
        return 0
    return sum(len(partition.stale) for partition in stale_partitions(context, latest))


def _shown_rows(context: TableContext, splits: Sequence[Split], engine: Engine, progress: Progress) -> int:
    """The number of visible rows, counted separately to verify the rewrite."""
    with phase(progress, "Counting rows", len(splits)) as done:
        return sum(engine.run_tasks(functools.partial(count_split, context), splits, done, [split.size for split in splits]))


def _commit(
    new_files: NewFiles, messages: Sequence[CommitMessage], replaced: PartitionSpec, snapshot: Snapshot, identity: CommitIdentity
) -> tuple[Snapshot, ...]:
    context = new_files.context
    committer = Committer(context, ConflictCheck.PARTITION)
    publish = functools.partial(
        committer.overwrite,
        messages,
        identity,
        replaced_partitions=replaced.matches,
        read_snapshot_id=snapshot.id,
        keeps_postponed=True,
    )
    with _hinted():
        return new_files.commit(messages, publish).snapshots


@contextmanager
def _hinted() -> Iterator[None]:
    """Say what to do after a conflict with a writer."""
    try:
        yield
    except Conflict as conflict:
        conflict.set_hint(_STOP_WRITERS)
        raise
