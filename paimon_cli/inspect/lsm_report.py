"""`lsm show`: the LSM tree of each bucket with its sorted runs, their cost, and the next compaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from paimon_cli.compact.compaction_plan import why_not_compactable
from paimon_cli.compact.compaction_task import CompactionTask, Decision
from paimon_cli.datatypes.key_order import Key
from paimon_cli.errors import DamagedFile, UsageError
from paimon_cli.history.live_files import BucketFiles, BucketNumbers, bucket_files, bucket_numbers, expect_buckets
from paimon_cli.history.partition_spec import PartitionSpec, partition_text
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.waiting_records import waiting_rows
from paimon_cli.inspect.compaction_report import percent_above
from paimon_cli.inspect.file_report import key_values
from paimon_cli.inspect.next_compaction import next_compactions
from paimon_cli.lsm.sorted_runs import KeyOf, SortedRun, highest_level, sorted_runs
from paimon_cli.metadata.data_file import ALL_FILES, BucketId, EntryKind, FileFilter
from paimon_cli.metadata.snapshot import COMPACT, Snapshot
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET, natural_order
from paimon_cli.storage.injected import moment_of_wall_clock

ZONES_MILLIS = 86_400_000
"""Creation times are local times in an unknown time zone, so they may be off by this much."""


@dataclass(frozen=True)
class RunRow:
    """One sorted run; run 1 is the newest. Sizes are bytes.

    `overlap`: number of runs with an overlapping key range, including itself; `span`: start and end of the run within the
    bucket's key range, from 0 to 1; `picked`: whether the next compaction would pick it.
    """

    run: int
    level: int
    files: int
    size: int
    rows: int
    delete_rows: int | None
    min_key: list[Any]
    max_key: list[Any]
    overlap: int
    span: tuple[float, float]
    picked: bool


@dataclass(frozen=True)
class LsmRow:
    """The LSM tree of one bucket.

    `space_amplification_percent`: bytes above the oldest run relative to that run; `space_limit_percent`: its limit. A
    limit is None if its option cannot be read.
    `last_full`: time (epoch millis) of the last compaction of all runs; `last_full_snapshot`: its snapshot. If that has
    expired, it is None and the time is that of the newest file in the highest level. `deletion_vector_rows`: rows marked as
    deleted; `waiting_records`: those that reads skip until a compaction. `would_compact`: what universal compaction would do
    now, or why it would do nothing. `not_supported`: why this version cannot compact the table; None if it can.
    """

    partition: str
    bucket: int
    snapshot_id: int
    levels: int
    compaction_trigger: int | None
    stop_trigger: int | None
    read_amplification: int
    space_amplification_percent: int
    space_limit_percent: int | None
    deletion_vector_rows: int
    waiting_records: int
    last_full: int | None
    last_full_snapshot: int | None
    would_compact: str
    output_level: int | None
    not_supported: str | None
    runs: tuple[RunRow, ...]


def lsm_rows(
    context: TableContext,
    snapshot: Snapshot | None,
    partition: PartitionSpec | None = None,
    buckets: BucketNumbers | None = None,
) -> list[LsmRow]:
    """The LSM trees by partition and bucket. Raises `UsageError` for tables without a primary key, and for unknown buckets."""
    if not context.schema.primary_keys:
        raise UsageError(
            "the table has no primary key",
            "files of an append table do not form an LSM tree",
            f"paimon-cli files ls {context.layout.argument}",
        )
    if snapshot is None:
        return []
    numbers = bucket_numbers(buckets)
    is_whole = partition is None and numbers is None
    wanted = ALL_FILES if is_whole else FileFilter(None if partition is None else partition.matches, numbers)
    states = list(bucket_files(context, snapshot, wanted).values())
    if buckets and numbers and not numbers <= {state.bucket for state in states}:
        expect_buckets(context, buckets, bucket_files(context, snapshot).values())
    full = last_full_compactions(context, snapshot, states)
    refusal = why_not_compactable(context)
    plans, why_not = _plans(context, states, snapshot, refusal)
    rows = (
        _lsm_row(context, state, snapshot.id, full.get(state.bucket_id), plans.get(state.bucket_id, why_not), refusal)
        for state in states
    )
    return sorted(rows, key=lambda row: (natural_order(row.partition), row.bucket))


def _plans(
    context: TableContext, states: Sequence[BucketFiles], snapshot: Snapshot, refusal: str | None
) -> tuple[Mapping[BucketId, Decision], str]:
    """What a minor compaction would do to each bucket, or why there is no plan."""
    if refusal is not None:
        return {}, f"this version does not compact the table: {refusal}"
    try:
        return next_compactions(context, states, snapshot.id), ""
    except UsageError as error:  # an option that cannot be read, which is a finding
        return {}, f"{error.message}; run: {error.hint}"


@dataclass(frozen=True)
class LastFull:
    """The last compaction of all runs of a bucket; `snapshot_id` is None if it is known only from the files."""

    millis: int
    snapshot_id: int | None


def last_full_compactions(context: TableContext, snapshot: Snapshot, states: Sequence[BucketFiles]) -> dict[BucketId, LastFull]:
    """The last full compaction of each bucket that has a run above level 0.

    A compaction writes to the level of the oldest run only if it includes that run, so the last COMPACT snapshot that added
    a file to that level was a full compaction. The search ends at snapshots older than the newest file of that run.
    """
    top = {state.bucket_id: highest_level(state.files) for state in states}
    from_files = {
        state.bucket_id: LastFull(_newest_of_level(state, highest_level(state.files)), None)
        for state in states
        if highest_level(state.files)
    }
    found: dict[BucketId, LastFull] = {}
    with suppress(DamagedFile):  # then the files tell, because what lies before the damage may not be the last
        for past in context.snapshots.newest_first():
            missing = from_files.keys() - found.keys()
            if all(from_files[bucket_id].millis > past.time_millis + ZONES_MILLIS for bucket_id in missing):
                break
            if past.commit_kind != COMPACT or past.id > snapshot.id:
                continue
            for entry in context.manifests.delta_entries(past):
                bucket_id = entry.bucket_id
                if entry.kind == EntryKind.ADD and bucket_id in missing and entry.file.level == top[bucket_id]:
                    found[bucket_id] = LastFull(past.time_millis, past.id)
    return from_files | found


def _newest_of_level(state: BucketFiles, level: int) -> int:
    return max(moment_of_wall_clock(file.creation_time_millis or 0) for file in state.files if file.level == level)


def _lsm_row(
    context: TableContext,
    state: BucketFiles,
    snapshot_id: int,
    full: LastFull | None,
    plan: Decision | str,
    refusal: str | None,
) -> LsmRow:
    key_of = context.key_of
    runs = sorted_runs(() if state.bucket == POSTPONE_BUCKET else state.files, key_of)
    picked = plan.runs_before - plan.runs_after + 1 if isinstance(plan, CompactionTask) else 0
    oldest, highest = (runs[-1].size, runs[-1].level) if runs else (0, 0)
    return LsmRow(
        partition=partition_text(context, state.partition),
        bucket=state.bucket,
        snapshot_id=snapshot_id,
        levels=max(_limit(context, "num_levels") or 0, highest + 1),
        compaction_trigger=_limit(context, "compaction_trigger"),
        stop_trigger=_limit(context, "stop_trigger"),
        read_amplification=len(runs),
        space_amplification_percent=percent_above(sum(run.size for run in runs), oldest),
        space_limit_percent=_limit(context, "max_size_amplification_percent"),
        deletion_vector_rows=sum(r.cardinality or 0 for index in state.index_files for r in index.deletion_vector_ranges or ()),
        waiting_records=waiting_rows(context.mode, state.bucket, state.files),
        last_full=None if full is None else full.millis,
        last_full_snapshot=None if full is None else full.snapshot_id,
        would_compact=_next_compaction(plan),
        output_level=plan.output_level if isinstance(plan, CompactionTask) else None,
        not_supported=refusal,
        runs=run_rows(context, runs, key_of, picked),
    )


def _limit(context: TableContext, name: str) -> int | None:
    """The value of an option; None if it cannot be read."""
    try:
        return int(getattr(context.options, name))
    except UsageError:
        return None


def _next_compaction(plan: Decision | str) -> str:
    if isinstance(plan, str):
        return plan
    return f"{plan.reason} ({plan.arithmetic})" if isinstance(plan, CompactionTask) else plan.reason


def run_rows(context: TableContext, runs: Sequence[SortedRun], key_of: KeyOf, picked: int) -> tuple[RunRow, ...]:
    """Describe the sorted runs of a bucket, newest first. `picked`: how many of the newest the next compaction takes."""
    if not runs:
        return ()
    decode = key_values(context)
    ranges = [(key_of(run.files[0].min_key), key_of(run.files[-1].max_key)) for run in runs]
    positions = _positions(ranges)
    return tuple(
        RunRow(
            run=number,
            level=run.level,
            files=len(run.files),
            size=run.size,
            rows=run.row_count,
            delete_rows=_delete_rows_of_run(run),
            min_key=decode(run.files[0].min_key, run.files[0].file_name),
            max_key=decode(run.files[-1].max_key, run.files[-1].file_name),
            overlap=sum(low <= ranges[number - 1][1] and high >= ranges[number - 1][0] for low, high in ranges),
            span=(positions[ranges[number - 1][0]], positions[ranges[number - 1][1]]),
            picked=number <= picked,
        )
        for number, run in enumerate(runs, start=1)
    )


def _positions(ranges: Sequence[tuple[Key, Key]]) -> dict[Key, float]:
    """The position of each end of a run, from 0 to 1: by value if the first key column is a number that varies, else by rank."""
    ends = sorted({end for pair in ranges for end in pair})
    first, last = ends[0][0], ends[-1][0]
    if all(isinstance(end[0], (int, Decimal)) for end in ends) and first != last:
        return {end: float(end[0] - first) / float(last - first) for end in ends}
    return {end: rank / max(1, len(ends) - 1) for rank, end in enumerate(ends)}


def _delete_rows_of_run(run: SortedRun) -> int | None:
    counts = [file.delete_row_count for file in run.files]
    return None if None in counts else sum(count or 0 for count in counts)
