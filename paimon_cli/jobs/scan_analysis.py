"""`read --explain` and `--analyze`: what a scan reads and skips, by reason, and what running it costs, by stage."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, BinaryIO, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from paimon_cli.bucket.combined_columns import row_ranges
from paimon_cli.bucket.data_file_reader import file_format, read_data_file
from paimon_cli.bucket.decoding import decoding
from paimon_cli.bucket.deletion_vectors import load_vectors
from paimon_cli.bucket.merged_rows import merge_columns
from paimon_cli.jobs.row_scan import ReadRequest, RowScan, plan_rows
from paimon_cli.jobs.table_change import Summary
from paimon_cli.metadata.data_file import DELETION_VECTORS
from paimon_cli.pieces import PIECES
from paimon_cli.read.pruning import TableBounds
from paimon_cli.sql.predicate import Predicate
from paimon_cli.storage.capabilities import WrappedStorage, open_sized
from paimon_cli.storage.ranged_file import Fetch, RangedFile
from paimon_cli.storage.storage import FileStatus, Storage

if TYPE_CHECKING:
    from paimon_cli.history.table_context import TableContext
    from paimon_cli.read.scan_plan import Split

T = TypeVar("T")
_LONG_ENOUGH = 2.0
"""Seconds of decoding after which its speed is known."""


@dataclass(frozen=True, repr=False)
class ScanPlan(Summary):
    """What a scan reads and what it skips, by reason. `levels`: all, or the top level for `$ro`; `size`: bytes.

    Splits are raw (files are read as they are), have deletion vectors (which mark `vector_rows` rows), are merged (files hold
    several versions of keys; `most_runs_merged`: the sorted runs of the worst bucket), or combined (columns of rows are in
    several files, and `rows` counts each row once). `row_groups`: those of Parquet files that a condition may skip, in tables
    that never merge (append tables, and tables with deletion vectors); None otherwise.
    """

    snapshot_id: int | None
    levels: str
    order_by: str | None
    splits: int
    splits_raw: int
    splits_with_vectors: int
    splits_to_merge: int
    splits_to_combine: int
    vector_rows: int
    rows: int
    size: int
    manifests: int
    manifests_skipped: int
    partitions: int
    partitions_skipped: int
    buckets: int
    buckets_skipped: int
    files: int
    files_to_read: int
    files_skipped_by_partition: int
    files_skipped_by_bucket: int
    files_skipped_by_level: int
    rows_skipped_by_level: int
    files_skipped_by_key: int
    files_skipped_by_value: int
    files_skipped_by_index: int
    files_skipped_as_unchanged: int
    waiting_records: int
    row_groups: int | None
    row_groups_skipped: int | None
    most_runs_merged: int


@dataclass(frozen=True)
class ScanStage:
    """One stage of a scan: its seconds, the rows it produced, and its storage requests and bytes."""

    stage: str
    seconds: float
    rows: int | None
    requests: int | None
    bytes: int | None


@dataclass(frozen=True, repr=False)
class ScanAnalysis(ScanPlan):
    """A plan and the cost of running it in one thread. The rows are read and discarded.

    `merge_seconds`: what remains of decoding and merging if decoding alone is taken off, whose speed is measured on the same
    files. `seconds_if_compacted`: planning and filtering as measured, fetching and decoding in proportion to the rows that a
    full compaction would leave. Both are None if nothing is merged, and if a limit or an order hides the parts.
    """

    rows_returned: int
    seconds: float
    requests: int
    bytes: int
    stages: tuple[ScanStage, ...]
    merge_seconds: float | None = None
    seconds_if_compacted: float | None = None


def explain_scan(scan: RowScan) -> ScanPlan:
    """Describe the plan of a scan. With a condition, file footers are read to count the row groups that it skips."""
    plan, combines = scan.plan, scan.context.mode.combines_columns
    raw = with_vectors = vector_rows = files = most_runs = 0
    groups: list[int] = [0, 0]
    skips_groups = scan.predicate is not None and not (scan.context.schema.primary_keys and scan.context.mode.reads_merge)
    for split in plan.splits:
        deleted = _deleted_rows(scan, split)
        files += len(split.files)
        most_runs = max(most_runs, 0 if combines else _merged_runs(split))
        vector_rows += deleted
        raw += not deleted and not split.needs_merge
        with_vectors += deleted > 0
        if scan.predicate is not None and skips_groups and split.before is None and not split.is_changelog:
            groups = [sum(pair) for pair in zip(groups, _row_groups(scan, scan.predicate, split), strict=True)]
    return ScanPlan(
        snapshot_id=None if plan.snapshot is None else plan.snapshot.id,
        levels=plan.levels,
        order_by=scan.request.order_by,
        splits=len(plan.splits),
        splits_raw=raw,
        splits_with_vectors=with_vectors,
        splits_to_merge=0 if combines else plan.splits_to_merge,
        splits_to_combine=plan.splits_to_merge if combines else 0,
        vector_rows=vector_rows,
        rows=sum(map(_rows_once, plan.splits)) if combines else plan.row_count,
        size=plan.size,
        files_to_read=files,
        row_groups=groups[0] if skips_groups else None,
        row_groups_skipped=groups[1] if skips_groups else None,
        most_runs_merged=most_runs,
        **vars(plan.counts),
    )


def _merged_runs(split: Split) -> int:
    """The sorted runs that a read of the split merges: each file of level 0, and each other level; 0 if it merges nothing."""
    if not split.needs_merge:
        return 0
    levels = [file.level for file in split.bucket.files]
    return levels.count(0) + len({level for level in levels if level > 0})


def _rows_once(split: Split) -> int:
    """The rows of a split whose files may hold columns of the same rows."""
    return sum(members[0].row_count for members in row_ranges(split.bucket.files))


def _deleted_rows(scan: RowScan, split: Split) -> int:
    """How many rows of the split are marked by deletion vectors."""
    names = {file.file_name for file in split.bucket.files}
    counts: list[int | None] = []
    for index in split.bucket.index_files:
        if index.index_type == DELETION_VECTORS:
            counts += [r.cardinality for r in index.deletion_vector_ranges or () if r.data_file_name in names]
    if None not in counts:
        return sum(count for count in counts if count is not None)
    vectors = load_vectors(scan.context, split.bucket)  # Java 0.9 wrote no cardinalities
    return sum(len(vector.positions) for name, vector in vectors.by_file.items() if name in names)


def _row_groups(scan: RowScan, predicate: Predicate, split: Split) -> tuple[int, int]:
    """The number of row groups in the split's Parquet files, and how many of them the condition rules out."""
    bounds, count, skipped = TableBounds(scan.context), 0, 0
    for file in split.bucket.files:
        if file_format(file.file_name) != "parquet":
            continue
        path = scan.context.data_file_path(*split.bucket.bucket_id, file)
        keeps = bounds.matching_rows(predicate, *split.bucket.bucket_id, file)
        columns = scan.context.schemas.get(file.schema_id).fields
        with decoding(path, columns, scan.context), open_sized(scan.context.storage, path, file.file_size) as source:
            content = pq.ParquetFile(source)
            kept = [keeps(content, group) for group in range(content.num_row_groups)]
        count += len(kept)
        skipped += kept.count(False)
    return count, skipped


def analyze_scan(table: TableContext, request: ReadRequest) -> ScanAnalysis:
    """Plan and read in one thread, and measure each stage, after a first read of one row. Raises what `plan_rows` raises."""
    meter = MeteredStorage(table.storage)
    began = time.perf_counter()
    scan = plan_rows(replace(table, storage=meter), request)
    planned = time.perf_counter()
    planning = meter.taken()
    given = scan.predicate
    timed = None if given is None else TimedPredicate(given.sql, given.schema, given.condition, given.warnings)
    measured = replace(scan, predicate=timed, context=replace(scan.context, read_threads=1))
    one_row = replace(request, limit=1, order_by=None)
    sum(batch.num_rows for batch in plan_rows(table, one_row).rows())  # loads what the first read of a process loads
    begun = time.perf_counter()
    returned = sum(batch.num_rows for batch in measured.rows())
    ended = time.perf_counter()
    reading = meter.taken()
    filtering = 0.0 if timed is None else timed.meter.seconds
    decoding_seconds = max(0.0, ended - begun - reading.seconds - filtering)
    what = "decode, merge and sort" if scan.order is not None else "decode and merge"
    stages = [
        ScanStage("plan", _rounded(planned - began), None, planning.requests, planning.bytes),
        ScanStage("fetch", _rounded(reading.seconds), None, reading.requests, reading.bytes),
        ScanStage(what, _rounded(decoding_seconds), returned if timed is None else timed.meter.rows, None, None),
    ]
    if timed is not None:
        stages.append(ScanStage("filter", _rounded(filtering), timed.meter.matches, None, None))
    explained = explain_scan(plan_rows(table, request))
    merging, after = None, None
    if explained.splits_to_merge and request.limit is None and scan.order is None and request.increment is None:
        decoded = _seconds_to_decode(measured, explained.rows)
        kept = (returned if timed is None else timed.meter.rows) / max(explained.rows, 1)
        merging = _rounded(max(0.0, decoding_seconds - decoded))
        after = _rounded(planned - began + filtering + (reading.seconds + decoded) * min(kept, 1.0))
    return ScanAnalysis(
        **{one.name: getattr(explained, one.name) for one in fields(ScanPlan)},
        rows_returned=returned,
        seconds=_rounded(planned - began + ended - begun),
        requests=planning.requests + reading.requests,
        bytes=planning.bytes + reading.bytes,
        stages=tuple(stages),
        merge_seconds=merging,
        seconds_if_compacted=after,
    )


def _seconds_to_decode(scan: RowScan, rows: int) -> float:
    """What decoding this many rows of the scan's files takes without merging them, by the first files that take long enough."""
    meter = MeteredStorage(scan.context.storage)
    context, columns = replace(scan.context, storage=meter), merge_columns(scan.context, scan.physical_columns)
    began, decoded, elapsed = time.perf_counter(), 0, 0.0
    for split in scan.plan.splits:
        for file in split.bucket.files:
            batches = read_data_file(context, split.bucket.bucket_id, file, columns, PIECES.batch_rows)
            decoded += sum(batch.num_rows for batch in batches)
            elapsed = time.perf_counter() - began
            if elapsed > _LONG_ENOUGH:
                return max(0.0, elapsed - meter.taken().seconds) * rows / max(decoded, 1)
    return max(0.0, elapsed - meter.taken().seconds) * rows / max(decoded, 1)


def _rounded(seconds: float) -> float:
    return round(seconds, 4)


@dataclass
class FilterMeter:
    """The cost of a filter: seconds, and rows before and after it."""

    seconds: float = 0.0
    rows: int = 0
    matches: int = 0


@dataclass(frozen=True)
class TimedPredicate(Predicate):
    """A predicate that measures its own cost."""

    meter: FilterMeter = field(default_factory=FilterMeter)

    def filtered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        began = time.perf_counter()
        kept = super().filtered(batch)
        self.meter.seconds += time.perf_counter() - began
        self.meter.rows += batch.num_rows
        self.meter.matches += kept.num_rows
        return kept


@dataclass
class StorageUse:
    """Requests to a storage, the bytes that they returned, and the seconds spent waiting for them."""

    requests: int = 0
    bytes: int = 0
    seconds: float = 0.0


class MeteredStorage(WrappedStorage):
    """Counts requests: each call, and each read of an open file that the store answers on its own."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self._use = StorageUse()
        self._lock = threading.Lock()

    def taken(self) -> StorageUse:
        """The use since the last call."""
        with self._lock:
            use, self._use = self._use, StorageUse()
        return use

    def note(self, seconds: float, size: int = 0, requests: int = 1) -> None:
        with self._lock:
            self._use.requests += requests
            self._use.bytes += size
            self._use.seconds += seconds

    def read_bytes(self, path: str) -> bytes:
        began = time.perf_counter()
        content = self.inner.read_bytes(path)
        self.note(time.perf_counter() - began, len(content))
        return content

    def open_input(self, path: str) -> BinaryIO:
        return self._opened(lambda: self.inner.open_input(path))

    def open_sized(self, path: str, size: int) -> BinaryIO:
        return self._opened(lambda: open_sized(self.inner, path, size))

    def _opened(self, open_file: Callable[[], BinaryIO]) -> BinaryIO:
        began = time.perf_counter()
        stream = open_file()
        self.note(time.perf_counter() - began, requests=0)
        if not isinstance(stream, RangedFile):
            return MeteredFile(stream, self)  # type: ignore[return-value]
        stream.fetch_by(self._metered)
        return stream

    def _metered(self, fetch: Fetch) -> Fetch:
        def metered(start: int, end: int) -> memoryview:
            began = time.perf_counter()
            content = fetch(start, end)
            self.note(time.perf_counter() - began, len(content))
            return content

        return metered

    def list_directory(self, path: str) -> list[FileStatus]:
        return self._timed(lambda: self.inner.list_directory(path))

    def exists(self, path: str) -> bool:
        return self._timed(lambda: self.inner.exists(path))

    def file_size(self, path: str) -> int:
        return self._timed(lambda: self.inner.file_size(path))

    def _timed(self, call: Callable[[], T]) -> T:
        began = time.perf_counter()
        found = call()
        self.note(time.perf_counter() - began)
        return found


class MeteredFile(io.RawIOBase):
    """An open file whose reads are counted and timed."""

    def __init__(self, stream: BinaryIO, meter: MeteredStorage) -> None:
        self._stream = stream
        self._meter = meter

    def read(self, size: int | None = -1) -> bytes:
        began = time.perf_counter()
        content = self._stream.read(-1 if size is None else size)
        self._meter.note(time.perf_counter() - began, len(content))
        return content

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        content = self.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def close(self) -> None:
        self._stream.close()
        super().close()
