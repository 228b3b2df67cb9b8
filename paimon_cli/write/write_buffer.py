"""Holds rows between their arrival and their level-0 file: in memory that all buckets of a task share, or on local disk."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from paimon_cli.bucket.data_file_writer import DataFileWriter, group_bytes
from paimon_cli.bucket.spilled_runs import OpenRun, SpillDirectory, SpilledRun, merge_in_passes
from paimon_cli.datatypes.key_order import order_words, stable_order
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.changelog import InputChanges
from paimon_cli.lsm.merge_engine import merge_engine
from paimon_cli.lsm.sort_merge import merge_in_memory, rows_of
from paimon_cli.lsm.sorted_rows import KeepAllVersions
from paimon_cli.pieces import PIECES


@dataclass(frozen=True)
class BufferUse:
    """How a task used its write buffer. Sizes are in bytes; `buffer_peak`: the most memory that rows took at a time.

    `spilled_size`: written to disk. `preemptions`: how often a bucket was spilled or flushed to make room for another one.
    """

    buffer_size: int = 0
    buffer_peak: int = 0
    flushes: int = 0
    spills: int = 0
    spilled_size: int = 0
    preemptions: int = 0

    def with_other_task(self, other: BufferUse) -> BufferUse:
        """The use of both tasks together, each with a buffer of its own: the larger peak, and sums of the counts."""
        return BufferUse(
            max(self.buffer_size, other.buffer_size),
            max(self.buffer_peak, other.buffer_peak),
            self.flushes + other.flushes,
            self.spills + other.spills,
            self.spilled_size + other.spilled_size,
            self.preemptions + other.preemptions,
        )


class RowBuffer(Protocol):
    """Holds the rows of one bucket until they are flushed. A `WriteBuffer` decides when they leave memory."""

    size: int
    """Bytes in memory."""

    @property
    def is_empty(self) -> bool: ...

    @property
    def has_open_file(self) -> bool:
        """Whether rows have already been written to a file, which the next flush will close."""
        ...

    def add(self, rows: pa.RecordBatch, size: int) -> None: ...

    def spill(self) -> None:
        """Move the rows in memory to local disk."""
        ...

    def flush(self, writer: DataFileWriter, changelog: DataFileWriter | None = None) -> None:
        """Write all rows, merged by key, and all of them unmerged to `changelog`. The buffer is empty afterwards."""
        ...


OpenFile = Callable[[], DataFileWriter]
"""Returns the writer of the bucket's next files, which the following flush closes."""


class BufferOwner(Protocol):
    """A bucket with rows in the write buffer."""

    @property
    def buffer(self) -> RowBuffer: ...

    def flush(self) -> None:
        """Write the rows to a level-0 file."""
        ...


class WriteBuffer:
    """The memory of one task, shared by all its buckets; a single bucket may use all of it (Java MemoryPoolFactory).

    If there is no room for new rows, the bucket with the most rows in memory is spilled to disk, so that a bucket gets a single
    sorted run, however many rows are written. It is flushed instead if `write-buffer-spillable` is false, or
    `write-buffer-spill.max-disk-size` is used up.
    """

    def __init__(self, context: TableContext, size: int, *, postpones: bool = False, sort_keys: tuple[str, ...] = ()) -> None:
        """`size`: in bytes. `postpones`: rows stay in the order of arrival, although they have a key. `sort_keys`: columns by
        which to sort an append table, whose rows are not merged.
        """
        self.context = context
        self.keys = sort_keys or context.schema.trimmed_primary_keys
        self.sorts = bool(self.keys) and not postpones
        self.engine = KeepAllVersions() if sort_keys else merge_engine(context.schema, context.options)
        self.spill = SpillDirectory()
        self._options = context.options
        self._size = size
        self._owners: list[BufferOwner] = []
        self._lock = threading.Lock()  # at the end, buckets are flushed in parallel
        self._held = self._peak = self._flushes = self._spills = self._spilled_size = self._preemptions = 0

    def row_buffer(self, bucket_path: str, open_file: OpenFile) -> RowBuffer:
        """A buffer for the rows of one bucket, which arrive in batches sorted as `order_of` says."""
        return SortBuffer(self, bucket_path) if self.sorts else ArrivalBuffer(self, bucket_path, open_file)

    def order_of(self, rows: pa.RecordBatch) -> np.ndarray | None:
        """The order in which buffers need the rows of a batch: by key (row numbers), or as they are (None).

        Batches are sorted while they are in the processor's cache, so that a flush only merges sorted batches.
        """
        if not self.sorts:
            return None
        return stable_order(order_words([rows.column(name) for name in self.keys]))

    def join(self, owner: BufferOwner) -> None:
        """Register an owner, whose rows may be spilled or flushed from now on."""
        self._owners.append(owner)

    def add(self, owner: BufferOwner, rows: pa.RecordBatch) -> None:
        """Put rows into the owner's buffer, after making room for them."""
        for piece, size in self._fitting(rows):
            self._make_room(size, owner)
            with self._lock:
                self._held += size
                self._peak = max(self._peak, self._held)
            owner.buffer.add(piece, size)

    def _fitting(self, rows: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, int]]:
        """The rows in pieces that fit into an empty buffer, and their bytes, which Arrow takes some time to count.

        A single row that is larger is a piece of its own.
        """
        if (size := rows.nbytes) <= self._size or rows.num_rows < 2:
            yield rows, size
            return
        half = rows.num_rows // 2
        yield from self._fitting(rows.slice(0, half))
        yield from self._fitting(rows.slice(half))

    def _make_room(self, size: int, for_owner: BufferOwner) -> None:
        while self._held and self._held + size > self._size:
            largest = max(self._owners, key=lambda owner: owner.buffer.size)
            self._preemptions += largest is not for_owner
            if self._may_spill():
                largest.buffer.spill()
            else:
                largest.flush()

    def _may_spill(self) -> bool:
        options = self._options
        return options.write_buffer_spillable and self.spill.size < options.write_buffer_spill_max_disk_size

    def may_keep_file_open(self) -> bool:
        """Whether one more bucket may keep its file open while rows still arrive, which costs memory and a file handle."""
        return sum(owner.buffer.has_open_file for owner in self._owners) < self._options.write_max_writers_to_spill

    def given_back(self, size: int, *, flushed: bool = False, spilled_size: int | None = None) -> None:
        """Release the memory (bytes) of rows that went into a level-0 file (`flushed`) or into a run on disk (`spilled_size`)."""
        with self._lock:
            self._held -= size
            self._flushes += flushed
            if spilled_size is not None:
                self._spills += 1
                self._spilled_size += spilled_size

    @property
    def use(self) -> BufferUse:
        return BufferUse(self._size, self._peak, self._flushes, self._spills, self._spilled_size, self._preemptions)

    def close(self) -> None:
        """Remove all spilled runs."""
        self.spill.close()


class SortBuffer:
    """The `RowBuffer` of a bucket whose rows are sorted: collects sorted batches, and flushes them as one sorted run.

    Batches are in `merge_schema` and come in the order of arrival (FORMAT.md, section 7.3; Java SortBufferWriteBuffer).
    """

    def __init__(self, memory: WriteBuffer, bucket_path: str) -> None:
        self._memory = memory
        self._bucket_path = bucket_path
        self._keys, self._engine = memory.keys, memory.engine
        self._batches: list[pa.RecordBatch] = []
        self._runs: list[SpilledRun] = []
        self.size = 0
        """Bytes in memory."""

    def add(self, rows: pa.RecordBatch, size: int) -> None:
        self._batches.append(rows)
        self.size += size

    @property
    def is_empty(self) -> bool:
        return not (self._batches or self._runs)

    @property
    def has_open_file(self) -> bool:
        return False

    def spill(self) -> None:
        """Move all rows in memory to disk, unmerged: only the flush has all rows of a key."""
        with self._memory.context.trace.timed("spill", bucket=self._bucket_path, bytes=self.size) as facts:
            batches, size = self._taken()
            pieces = merge_in_memory(batches, self._keys, KeepAllVersions(), rows_of(batches, PIECES.spilled_batch_bytes))
            run = self._memory.spill.write(pieces, batches[0].schema)
            self._runs.append(run)
            facts["spilled_bytes"] = run.size
        self._memory.given_back(size, spilled_size=run.size)

    def flush(self, writer: DataFileWriter, changelog: DataFileWriter | None = None) -> None:
        """Merge all rows by key and write them; `changelog` gets them unmerged. The buffer is empty afterwards."""
        engine = self._engine if changelog is None else InputChanges(self._engine, changelog.write)
        if not self._runs:
            batches, size = self._taken()
            for batch in merge_in_memory(batches, self._keys, engine, rows_of(batches, PIECES.merged_piece_bytes)):
                writer.write(batch)
            self._memory.given_back(size, flushed=True)
            return
        if self._batches:
            self.spill()
        # Memory of many small buffers is fragmented, and of no use for the large ones of a merge.
        pa.default_memory_pool().release_unused()
        runs, self._runs = self._runs, []
        opened: list[OpenRun] = [run.read for run in runs]
        max_runs = self._memory.context.options.local_sort_max_file_handles
        for batch in merge_in_passes(opened, self._keys, engine, max_runs, keys_repeat=True):
            writer.write(batch)
        for run in runs:
            self._memory.spill.remove(run)
        self._memory.given_back(0, flushed=True)

    def _taken(self) -> tuple[list[pa.RecordBatch], int]:
        taken = self._batches, self.size
        self._batches, self.size = [], 0
        return taken


class ArrivalBuffer:
    """The `RowBuffer` of a bucket whose rows stay in the order of arrival (append tables, `bucket-postpone`).

    A full row group is written to the bucket's file at once. If too many files would be open then, rows wait in memory or on disk
    for the flush instead (Java AppendOnlyWriter).
    """

    def __init__(self, memory: WriteBuffer, bucket_path: str, open_file: OpenFile) -> None:
        self._memory = memory
        self._bucket_path = bucket_path
        self._open_file = open_file
        self._full_size = group_bytes(memory.context.options)
        self._file: DataFileWriter | None = None
        self._batches: list[pa.RecordBatch] = []
        self._runs: list[SpilledRun] = []
        self.size = 0
        """Bytes in memory."""

    @property
    def is_empty(self) -> bool:
        return not (self._batches or self._runs or self._file)

    @property
    def has_open_file(self) -> bool:
        return self._file is not None

    def add(self, rows: pa.RecordBatch, size: int) -> None:
        self._batches.append(rows)
        self.size += size
        if self.size < self._full_size:
            return
        if self._file is None and self._memory.may_keep_file_open():
            self._file = self._open_file()
        if self._file is not None:
            self._empty_into(self._file)

    def spill(self) -> None:
        """Move the rows in memory to the open file, or to disk."""
        if self._file is not None:
            self._empty_into(self._file)
            return
        with self._memory.context.trace.timed("spill", bucket=self._bucket_path, bytes=self.size) as facts:
            run = self._memory.spill.write(self._batches, self._batches[0].schema)
            self._runs.append(run)
            facts["spilled_bytes"] = run.size
        self._forget_memory(spilled_size=run.size)

    def flush(self, writer: DataFileWriter, changelog: DataFileWriter | None = None) -> None:
        """Write the remaining rows. There are no changelog files."""
        self._empty_into(writer)
        self._file = None
        self._memory.given_back(0, flushed=True)

    def _empty_into(self, writer: DataFileWriter) -> None:
        runs, self._runs = self._runs, []
        for run in runs:
            for batch in run.read():
                writer.write(batch)
            self._memory.spill.remove(run)
        for batch in self._batches:
            writer.write(batch)
        self._forget_memory()

    def _forget_memory(self, spilled_size: int | None = None) -> None:
        size, self.size = self.size, 0
        self._batches = []
        self._memory.given_back(size, spilled_size=spilled_size)
