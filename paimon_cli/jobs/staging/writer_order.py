"""The order of rows that several writers have written to the same bucket, if one commit publishes them.

Each writer numbers its rows from the snapshot that it has read, so the sequence numbers of writers that did not see each other
overlap: which row of a key wins would depend on how many rows the writers had. Either such writes are refused, or they get the
order in which they are given: the later files are written again, with higher numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from paimon_cli.bucket.data_file_reader import read_data_file
from paimon_cli.bucket.data_file_writer import DataFileWriter
from paimon_cli.bucket.stamped_files import DataFileNames
from paimon_cli.errors import BucketsConflict, DataConflict, FilesConflict, NotSupported, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.engine import Engine, Progress, phase
from paimon_cli.metadata.data_file import SOURCE_APPEND, BucketId, CommitMessage, DataFileMeta, FileChanges
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, merge_schema
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.options.choices import ConflictCheck, WriterOrder
from paimon_cli.pieces import PIECES

MAX_NUMBER = 1 << 62
"""No writer has counted so far; a higher number is not raised any more."""

WriterMessages = tuple[str, tuple[CommitMessage, ...]]
"""The name of a writer's stage file, and its messages."""


def in_writer_order(
    context: TableContext, writers: Sequence[WriterMessages], order: str, stamp: str, engine: Engine, progress: Progress
) -> list[tuple[CommitMessage, ...]]:
    """The messages of the writers, so that rows of one bucket have the order of the writers.

    New data files have `stamp` in their names. Raises `UsageError` if writers share a bucket and the order is to be refused.
    """
    shared = shared_buckets(context, writers)
    if not shared:
        return [messages for _, messages in writers]
    if order == WriterOrder.REFUSE:
        bucket_id, (first, second, *_) = next(iter(shared.items()))
        more = f" (and {len(shared) - 1:,} more buckets)" if len(shared) > 1 else ""
        raise UsageError(
            f"{first} and {second} hold rows of the same bucket, {context.bucket_path(*bucket_id)}{more}",
            "their writers did not see each other, so nothing says which of two rows of a key is the newer one",
            "let one writer at a time write a bucket; or commit them with --order given, so that later files win",
        )
    if context.mode.has_keys and context.options.sequence_snapshot_ordering:
        raise NotSupported(
            "--order given in a table with sequence.snapshot-ordering",
            "all rows of a snapshot have its id as their number there",
            "commit the files one by one: the later snapshot wins",
        )
    numbering = _Numbering(context, shared.keys())
    ordered = [numbering.numbered(messages) for _, messages in writers]
    return _rewritten(context, ordered, numbering.shifts, stamp, engine, progress)


def shared_buckets(context: TableContext, writers: Sequence[WriterMessages]) -> dict[BucketId, list[str]]:
    """The buckets in which several writers have rows that need an order, with the names of these writers."""
    if not context.mode.bucket_mode.has_buckets:
        return {}
    found: dict[BucketId, list[str]] = {}
    for name, messages in writers:
        for bucket_id in dict.fromkeys(message.bucket_id for message in messages if message.append.added):
            found.setdefault(bucket_id, []).append(name)
    return {bucket_id: names for bucket_id, names in found.items() if len(names) > 1}


def check_disjoint(context: TableContext, writers: Sequence[WriterMessages], data_conflict_check: str) -> None:
    """Raise an error for writes that cannot be one commit in any order, because one has not seen what the other depends on.

    `DataConflict`: the writes are under the data conflict check, and wrote to the same place. `BucketsConflict`: both gave keys
    of a partition their dynamic buckets. `FilesConflict`: they have different bucket counts. `NotSupported`: keys may move
    between partitions.
    """
    if len(writers) < 2:
        return
    if context.mode.bucket_mode.moves_keys:
        raise NotSupported(
            "several writers in one commit, in a table whose keys may move between partitions",
            "two writers may have put the same key into two partitions",
            "commit the files one by one",
        )
    _check_counts(context, writers)
    if context.mode.bucket_mode.indexes_keys:
        why = "each of them gave new keys their buckets without seeing those that the other gave"
        _refuse_shared_place(context, writers, BucketsConflict, why, of_partition=True)
    if data_conflict_check != ConflictCheck.OFF:
        why = f"both are under the data conflict check ({data_conflict_check}), and neither has read the rows of the other"
        _refuse_shared_place(context, writers, DataConflict, why, of_partition=data_conflict_check == ConflictCheck.PARTITION)


def _refuse_shared_place(
    context: TableContext,
    writers: Sequence[WriterMessages],
    error: type[DataConflict] | type[BucketsConflict],
    why: str,
    *,
    of_partition: bool,
) -> None:
    owners: dict[BucketId, str] = {}
    for name, messages in writers:
        for message in messages:
            bucket_id = BucketId(message.partition, 0) if of_partition else message.bucket_id
            other = owners.setdefault(bucket_id, name)
            if message.append and other != name:
                partition = context.partition_path_of(message.partition).rstrip("/") or "the table"
                place = partition if of_partition else context.bucket_path(*bucket_id)
                hint = "commit them one by one: the later one is then checked against the earlier one"
                raise error(f"{other} and {name} both write to {place}", why, hint)


def _check_counts(context: TableContext, writers: Sequence[WriterMessages]) -> None:
    counts: dict[bytes, tuple[int, str]] = {}
    for name, messages in writers:
        for message in messages:
            count, other = counts.setdefault(message.partition, (message.total_buckets, name))
            if count != message.total_buckets and message.bucket != POSTPONE_BUCKET:
                place = context.partition_path_of(message.partition).rstrip("/") or "the table"
                raise FilesConflict(
                    f"{other} and {name} have different bucket counts in {place}: {count} and {message.total_buckets}",
                    "the bucket count of a partition changed between the two writes",
                    "abort the older one and write its rows again",
                )


@dataclass(frozen=True)
class Shift:
    """Files of one bucket in which all rows are to get sequence numbers that are higher by `by`."""

    bucket_id: BucketId
    files: tuple[DataFileMeta, ...]
    by: int


class _Numbering:
    """Numbers the files of writers in the order in which they come."""

    def __init__(self, context: TableContext, buckets: Iterable[BucketId]) -> None:
        self._context = context
        self._next = dict.fromkeys(buckets, 0)
        self._youngest = dict.fromkeys(self._next, 0)
        self.shifts: dict[str, Shift] = {}
        """The files to write again, by the name of the first file of their message."""

    def numbered(self, messages: Sequence[CommitMessage]) -> tuple[CommitMessage, ...]:
        """The messages of the next writer. Those with `shifts` are only complete when their files are written again."""
        shifts: dict[BucketId, int] = {}
        for message in messages:
            if message.bucket_id in self._next and message.append.added:
                lowest = min(file.min_sequence_number for file in message.append.added)
                shifts[message.bucket_id] = max(self._next[message.bucket_id] - lowest, shifts.get(message.bucket_id, 0))
        ordered = tuple(self._shifted(message, shifts.get(message.bucket_id, 0)) for message in messages)
        for message in messages:
            if message.bucket_id in self._next and message.append.added:
                end = 1 + max(file.max_sequence_number for file in message.append.added) + shifts[message.bucket_id]
                self._next[message.bucket_id] = max(end, self._next[message.bucket_id])
        return ordered

    def _shifted(self, message: CommitMessage, by: int) -> CommitMessage:
        if message.bucket_id not in self._next or not message.append.added:
            return message
        if message.bucket == POSTPONE_BUCKET:
            return replace(
                message,
                append=replace(
                    message.append, added=tuple(self._younger(message.bucket_id, file) for file in message.append.added)
                ),
            )
        if not by:
            return message
        if max(file.max_sequence_number for file in message.append.added) + by > MAX_NUMBER:
            raise NotSupported(f"sequence numbers above {MAX_NUMBER:,}", "no higher ones can be given")
        if not self._context.mode.has_keys:  # the numbers are only in the metadata
            return replace(
                message, append=replace(message.append, added=tuple(_numbered(file, by) for file in message.append.added))
            )
        self.shifts[_first_file(message)] = Shift(message.bucket_id, message.append.added, by)
        return message

    def _younger(self, bucket_id: BucketId, file: DataFileMeta) -> DataFileMeta:
        """The file, with a creation time that keeps its place: waiting files of one user are replayed by age."""
        self._youngest[bucket_id] = max(file.creation_time_millis or 0, self._youngest[bucket_id] + 1)
        return replace(file, creation_time_millis=self._youngest[bucket_id])


def _numbered(file: DataFileMeta, by: int) -> DataFileMeta:
    return replace(file, min_sequence_number=file.min_sequence_number + by, max_sequence_number=file.max_sequence_number + by)


def _rewritten(
    context: TableContext,
    ordered: list[tuple[CommitMessage, ...]],
    shifts: dict[str, Shift],
    stamp: str,
    engine: Engine,
    progress: Progress,
) -> list[tuple[CommitMessage, ...]]:
    """The messages with files whose rows have their new numbers."""
    if not shifts:
        return ordered
    tasks, sizes = list(shifts.values()), [sum(file.file_size for file in shift.files) for shift in shifts.values()]
    with phase(progress, "Numbering rows", len(tasks)) as done:
        written = dict(zip(shifts, engine.run_tasks(partial(write_shifted, context, stamp), tasks, done, sizes), strict=True))
    return [
        tuple(replace(m, append=replace(m.append, added=written.get(_first_file(m), m.append.added))) for m in messages)
        for messages in ordered
    ]


def _first_file(message: CommitMessage) -> str:
    return message.append.added[0].file_name if message.append.added else ""


def write_shifted(context: TableContext, stamp: str, shift: Shift) -> tuple[DataFileMeta, ...]:
    """Write the rows of level-0 files into new files, with other numbers. Each file stays a run of its own.

    If it fails, its new files are removed.
    """
    columns, names = merge_schema(context.schema).names, DataFileNames(context, stamp)
    writers, files = list[DataFileWriter](), list[DataFileMeta]()
    try:
        for file in shift.files:
            writers.append(DataFileWriter(context, shift.bucket_id, level=0, source=SOURCE_APPEND, names=names))
            for rows in read_data_file(context, shift.bucket_id, file, columns, PIECES.batch_rows):
                writers[-1].write(_with_numbers(rows, shift.by))
            files += writers[-1].close()
    except BaseException:
        for writer in writers:
            writer.abort()
        raise
    return tuple(files)


def _with_numbers(rows: pa.RecordBatch, by: int) -> pa.RecordBatch:
    at = rows.schema.get_field_index(SEQUENCE_NUMBER)
    numbers = rows.column(at).to_numpy() + np.int64(by)
    return rows.set_column(at, rows.schema.field(at), pa.array(numbers, pa.int64()))


def replaced_messages(
    staged: Sequence[Sequence[CommitMessage]], ordered: Sequence[Sequence[CommitMessage]]
) -> list[CommitMessage]:
    """The new files that `in_order` has written, as messages without anything else."""
    return [
        CommitMessage(
            n.partition, n.bucket, n.total_buckets, append=FileChanges(added=n.append.added), read_snapshot_id=n.read_snapshot_id
        )
        for o, n in _pairs(staged, ordered)
        if _first_file(o) != _first_file(n)
    ]


def superseded_files(
    context: TableContext, staged: Sequence[Sequence[CommitMessage]], ordered: Sequence[Sequence[CommitMessage]]
) -> list[str]:
    """Paths of the files in whose place `in_order` has written others."""
    files = [(o, file) for o, n in _pairs(staged, ordered) if _first_file(o) != _first_file(n) for file in o.append.added]
    return [path for message, file in files for path in context.file_paths(*message.bucket_id, file)]


def _pairs(
    staged: Sequence[Sequence[CommitMessage]], ordered: Sequence[Sequence[CommitMessage]]
) -> Iterator[tuple[CommitMessage, CommitMessage]]:
    for old, new in zip(staged, ordered, strict=True):
        yield from zip(old, new, strict=True)
