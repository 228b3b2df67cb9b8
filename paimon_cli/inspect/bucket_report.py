"""`partitions ls` and `buckets ls`: totals, skew, contents of indexes, and the command that would help."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from paimon_cli.bucket.combined_columns import row_ranges
from paimon_cli.bucket.deletion_vectors import load_vectors
from paimon_cli.errors import DamagedFile, UsageError
from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.history.partition_spec import partition_text
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.waiting_records import waiting_rows
from paimon_cli.inspect.findings.bucket_rules import SIZES
from paimon_cli.inspect.findings.examined_table import ExaminedTable
from paimon_cli.inspect.findings.finding import ADVICE, METADATA, SEVERITIES, Code, Finding, Topic
from paimon_cli.inspect.findings.runner import finding_about, findings_of
from paimon_cli.lsm.sorted_runs import count_runs, highest_level
from paimon_cli.maintain.mark_done import done_times
from paimon_cli.metadata.data_file import DELETION_VECTORS, HASH, BucketId, DataFileMeta
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET, natural_order

NO_ADVICE: Mapping[BucketId, Sequence[Finding]] = MappingProxyType({})

MAX_MARKS = 1000
"""The most partitions whose directories a listing searches for success files."""


@dataclass(frozen=True)
class BucketRow:
    """One bucket; sizes are bytes.

    `rows`: counted before merging; `delete_rows`: None if a file does not record them. `sorted_runs`: what a reader merges;
    None in append tables and for postponed rows. `skew`: bytes divided by the average of the partition's buckets, including
    empty ones. `updated`: creation time of the newest file, epoch millis of the writer's wall clock. `findings`: those about
    the bucket, the gravest first; `advice`, `reason`, `code`: the command of the first, why to run it, and its code.
    `waiting_records`: those of `rows` that reads do not show before a compaction. `visible_rows`: how many rows a read shows;
    None if only a merge can tell.
    """

    partition: str
    bucket: int
    total_buckets: int
    files: int
    rows: int
    delete_rows: int | None
    size: int
    sorted_runs: int | None
    skew: float
    max_level: int
    max_seq: int
    updated: int | None
    visible_rows: int | None = None
    waiting_records: int = 0
    advice: str | None = None
    reason: str | None = None
    code: str | None = None
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class IndexedBucketRow(BucketRow):
    """A bucket with the contents of its index files.

    `hash_count`: keys in the hash index of a dynamic bucket; None without one. `vectors`: data files with a deletion vector;
    `vector_rows`: the rows that they mark. `index_size`: bytes of all index files.
    """

    hash_count: int | None = None
    vectors: int = 0
    vector_rows: int = 0
    index_size: int = 0


@dataclass(frozen=True)
class PartitionRow:
    """Totals of one partition. `rows`, `visible_rows`: as in `BucketRow`.

    `updated`: creation time of the newest file, epoch millis of the writer's wall clock.
    `done`: when its success file was last written; None without one.
    """

    partition: str
    buckets: int
    files: int
    rows: int
    size: int
    updated: int | None
    done: int | None
    visible_rows: int | None = None


def bucket_rows(
    context: TableContext, states: Iterable[BucketFiles], advice: Mapping[BucketId, Sequence[Finding]] = NO_ADVICE
) -> list[BucketRow]:
    """The buckets by partition and number. `advice`: the findings about each bucket, as by `findings_by_bucket`."""
    return [row for row, _ in _rows_with_files(context, states, advice)]


def indexed_bucket_rows(
    context: TableContext, states: Iterable[BucketFiles], advice: Mapping[BucketId, Sequence[Finding]] = NO_ADVICE
) -> list[IndexedBucketRow]:
    """The buckets with their indexes. Index files are read only if the index manifest lacks the counts (Java 0.9)."""
    return [_with_indexes(context, row, state) for row, state in _rows_with_files(context, states, advice)]


def findings_by_bucket(table: ExaminedTable) -> dict[BucketId, list[Finding]]:
    """The findings about each bucket, the gravest first, and last a better bucket count of the whole table.

    An option that cannot be read keeps all buckets from being judged, and is the finding about each.
    """
    found = findings_of(table, ADVICE, (Topic.COMPACTION, Topic.SMALL_FILES, Topic.BUCKETS), (METADATA,))
    try:
        table.needs  # noqa: B018  (raises, once for all buckets)
    except UsageError as error:
        return {bucket.bucket_id: [finding_about(table, error)] for bucket in table.all_buckets}
    advice: dict[BucketId, list[Finding]] = defaultdict(list)
    for finding in sorted(found, key=lambda finding: -SEVERITIES.index(finding.severity)):
        for bucket in table.concerned_by(finding.code):
            advice[bucket.bucket_id].append(finding)
    size = next((finding for finding in found if finding.code in SIZES), None) if table.is_whole else None
    if size is not None:
        for bucket in table.buckets:
            advice[bucket.bucket_id].append(size)
    return advice


def _rows_with_files(
    context: TableContext, states: Iterable[BucketFiles], advice: Mapping[BucketId, Sequence[Finding]]
) -> Iterator[tuple[BucketRow, BucketFiles]]:
    for in_partition in _by_partition(context, states).values():
        for state, skew in zip(in_partition, skews(in_partition), strict=True):
            yield _bucket_row(context, state, skew, advice.get(state.bucket_id, ())), state


def partition_rows(context: TableContext, snapshot: Snapshot | None, reads_marks: bool = False) -> list[PartitionRow]:
    """The partitions with files, in natural order. `reads_marks`: look for success files even in many directories."""
    partitions = _by_partition(context, bucket_files(context, snapshot).values())
    has_marks = bool(context.schema.partition_keys) and (reads_marks or len(partitions) <= MAX_MARKS)
    done = done_times(context, list(partitions)) if has_marks else {}
    return [
        PartitionRow(
            partition=partition_text(context, partition),
            buckets=len({state.bucket for state in states}),
            files=sum(len(state.files) for state in states),
            rows=sum(file.row_count for state in states for file in state.files),
            size=sum(map(_size, states)),
            updated=_newest(file.creation_time_millis for state in states for file in state.files),
            done=done.get(partition),
            visible_rows=total_rows(visible_rows(context, state) for state in states),
        )
        for partition, states in partitions.items()
    ]


def _by_partition(context: TableContext, states: Iterable[BucketFiles]) -> Mapping[bytes, Sequence[BucketFiles]]:
    """Keyed by serialised partition: of those with the same values, which writers may serialise differently, the first one."""
    found: dict[bytes, list[BucketFiles]] = defaultdict(list)
    spellings: dict[tuple[Any, ...], bytes] = {}
    for state in states:
        found[spellings.setdefault(context.partition_values(state.partition), state.partition)].append(state)
    named = sorted((natural_order(partition_text(context, key)), key) for key in found)
    return {key: sorted(found[key], key=lambda state: state.bucket) for _, key in named}


def _bucket_row(context: TableContext, state: BucketFiles, skew: float, findings: Sequence[Finding]) -> BucketRow:
    first = findings[0] if findings else None
    files = state.files
    merges = context.mode.has_keys and state.bucket != POSTPONE_BUCKET
    return BucketRow(
        partition=partition_text(context, state.partition),
        bucket=state.bucket,
        total_buckets=state.total_buckets,
        files=len(files),
        rows=sum(file.row_count for file in files),
        delete_rows=_delete_rows(files),
        size=_size(state),
        sorted_runs=count_runs(files) if merges else None,
        skew=skew,
        max_level=highest_level(files),
        max_seq=max((file.max_sequence_number for file in files), default=0),
        updated=_newest(file.creation_time_millis for file in files),
        visible_rows=visible_rows(context, state),
        waiting_records=waiting_rows(context.mode, state.bucket, files),
        advice=None if first is None else first.command,
        reason=None if first is None else reason_of(first),
        code=None if first is None else first.code,
        findings=tuple(findings),
    )


def reason_of(finding: Finding) -> str:
    """What a finding says about a bucket."""
    return "compaction is due" if finding.code in (Code.STALLED, Code.DUE) else finding.message


def visible_rows(context: TableContext, state: BucketFiles) -> int | None:
    """How many rows of a bucket a read shows; None if only a merge can tell, or if rows expire."""
    mode = context.mode
    files = [file for file in state.files if not mode.hides(state.bucket, file.level)]
    if context.options.record_level_expire_time is not None or (state.bucket == POSTPONE_BUCKET and files):
        return None
    if mode.reads_merge and count_runs(files) > 1:
        return None
    names = {file.file_name for file in files}
    listed = [vector for index in state.index_files for vector in index.deletion_vector_ranges or ()]
    marked = [vector.cardinality for vector in listed if vector.data_file_name in names]
    deletes = _delete_rows(files) if mode.has_keys else 0
    if deletes is None or None in marked:
        return None
    try:  # a range of rows has a file for each time that columns of it were written
        stored = [members[0] for members in row_ranges(files)] if mode.combines_columns else files
    except DamagedFile:  # a read says why
        return None
    return sum(file.row_count for file in stored) - deletes - sum(count or 0 for count in marked)


def total_rows(rows: Iterable[int | None]) -> int | None:
    """The sum; None if a number is not known."""
    known = list(rows)
    return None if None in known else sum(row or 0 for row in known)


def _size(state: BucketFiles) -> int:
    return sum(file.file_size for file in state.files)


def _delete_rows(files: Iterable[DataFileMeta]) -> int | None:
    counts = [file.delete_row_count for file in files]
    return None if None in counts else sum(count or 0 for count in counts)


def _newest(times: Iterable[int | None]) -> int | None:
    return max((time for time in times if time is not None), default=None)


def skews(states: Sequence[BucketFiles]) -> list[float]:
    """The bytes of each bucket of a partition divided by their average; postponed rows do not count."""
    real = [state for state in states if state.bucket != POSTPONE_BUCKET]
    average = sum(map(_size, real)) / max(1, len(real), *(state.total_buckets for state in real))
    return [round(_size(state) / average, 2) if average and state.bucket != POSTPONE_BUCKET else 1.0 for state in states]


def _with_indexes(context: TableContext, row: BucketRow, state: BucketFiles) -> IndexedBucketRow:
    hashes = [file.row_count for file in state.index_files if file.index_type == HASH]
    files = [file for file in state.index_files if file.index_type == DELETION_VECTORS]
    counts = [listed.cardinality for file in files for listed in file.deletion_vector_ranges or ()]
    if None in counts:
        counts = [len(vector.positions) for vector in load_vectors(context, state).by_file.values()]
    return IndexedBucketRow(
        **vars(row),
        hash_count=sum(hashes) if hashes else None,
        vectors=len(counts),
        vector_rows=sum(count or 0 for count in counts),
        index_size=sum(file.file_size for file in state.index_files),
    )
