"""JSON files: simplified data files of a few JSON rows, so that thousands of schedules are cheap.

`JsonFileEngine` replaces Spark or the local engine: jobs, plans, conflicts and commits are the shipped code; only the rows inside
files are simplified.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from paimon_cli.compact.compaction_task import CompactionTask
from paimon_cli.datatypes.binary_row import serialize_row
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.bucket_task import CompactedPart
from paimon_cli.jobs.engine import Computing, Progress, Work
from paimon_cli.lsm.compaction_picker import Upgrade, compaction_steps
from paimon_cli.lsm.sorted_runs import key_sections
from paimon_cli.metadata.data_file import (
    EMPTY_ROW,
    SOURCE_APPEND,
    SOURCE_COMPACT,
    BucketId,
    CommitMessage,
    DataFileMeta,
    FileChanges,
    SimpleStats,
)
from paimon_cli.write.bucket_writer import WrittenBucket
from paimon_cli.write.table_writer import Written
from paimon_cli.write.write_plan import Tallies, WritePlan

_INT = parse_type("INT NOT NULL")
NO_STATS = SimpleStats(EMPTY_ROW, EMPTY_ROW, ())

BucketRows = Mapping[int, Sequence[tuple[int, int, str]]]
"""Bucket -> rows (key, kind, value) in the order of arrival."""
JsonRow = tuple[int, int, int, str]
"""Key, sequence number, kind, value."""


@functools.cache
def key_bytes(key: int) -> bytes:
    return serialize_row([key], [_INT])


@functools.cache
def json_rows(content: bytes) -> tuple[JsonRow, ...]:
    """Parse the rows of a file."""
    return tuple((k, s, d, v) for k, s, d, v in json.loads(content))


def write_json_file(
    context: TableContext, bucket: int, name: str, level: int, source: int, rows: Sequence[JsonRow]
) -> DataFileMeta:
    """Write a file of these rows, which must be sorted by key."""
    content = _content(tuple(rows))
    context.storage.write_new(context.data_file_path_of(EMPTY_ROW, bucket, name), content)
    sequences = [row[1] for row in rows]
    return DataFileMeta(
        file_name=name,
        file_size=len(content),
        row_count=len(rows),
        min_key=key_bytes(rows[0][0]),
        max_key=key_bytes(rows[-1][0]),
        key_stats=NO_STATS,
        value_stats=NO_STATS,
        min_sequence_number=min(sequences),
        max_sequence_number=max(sequences),
        schema_id=0,
        level=level,
        creation_time_millis=0,
        delete_row_count=sum(row[2] & 1 for row in rows),
        file_source=source,
    )


@functools.cache
def _content(rows: tuple[JsonRow, ...]) -> bytes:
    return json.dumps(rows, separators=(",", ":")).encode()


def merged(files: Iterable[tuple[DataFileMeta, tuple[JsonRow, ...]]]) -> list[JsonRow]:
    """The newest row of each key, including retractions, sorted by key.

    If sequence numbers are equal, the row of the newer run wins, as in the shipped merge.
    """
    newest: dict[int, JsonRow] = {}
    for _, rows in sorted(files, key=lambda item: item[0].max_sequence_number):
        for row in rows:
            known = newest.get(row[0])
            if known is None or row[1] >= known[1]:
                newest[row[0]] = row
    return [newest[key] for key in sorted(newest)]


def _compacted(context: TableContext, task: CompactionTask) -> CommitMessage:
    """Compact a bucket in the same steps as `run_compaction`."""
    before: list[DataFileMeta] = []
    after: list[DataFileMeta] = []
    stamp = _uuid(task.file_stamp)
    small = int(context.mode.target_file_size * context.options.small_file_ratio)
    for step in compaction_steps(key_sections(task.files, context.key_of), task.output_level, task.max_level, small):
        if isinstance(step, Upgrade):
            before.append(step.file)
            after.append(step.file.upgraded(task.output_level))
            continue
        files = [file for section in step.sections for run in section for file in run.files]
        rows = merged((file, _read(context, task.bucket, file)) for file in files)
        kept = [row for row in rows if not (task.drop_deletes and row[2] & 1)]
        before += files
        if kept:
            name = f"data-{stamp}-b{task.bucket}-{len(after)}.json"
            after.append(write_json_file(context, task.bucket, name, task.output_level, SOURCE_COMPACT, kept))
    return CommitMessage(
        compact=FileChanges(removed=tuple(before), added=tuple(after)),
        partition=task.partition,
        bucket=task.bucket,
        total_buckets=task.total_buckets,
        read_snapshot_id=task.read_snapshot_id,
    )


def _uuid(stamp: str) -> str:
    """A UUID that begins with the stamp, by which a drop recognises the files of the table."""
    return f"{stamp[:8]}-{stamp[8:12]}-{stamp[12:]}-8000-000000000000"


def _read(context: TableContext, bucket: int, file: DataFileMeta) -> tuple[JsonRow, ...]:
    return json_rows(context.storage.read_bytes(context.data_file_path_of(EMPTY_ROW, bucket, file.file_name)))


class JsonFileEngine:
    """An `Engine` whose tasks write simplified files."""

    name = "json"
    reason = ""
    retries_tasks = False
    shares_disk = True
    tasks_per_process = 1

    def __init__(self, rows: BucketRows | None = None) -> None:
        self._rows = rows or {}

    def prepare(self, work: Work, progress: Progress) -> None:
        """Needs no preparation."""

    def run_tasks(
        self,
        function: Callable[[Any], Any],
        tasks: Sequence[Any],
        on_done: Callable[[Any], None] | None = None,
        sizes: Sequence[int] | None = None,
    ) -> list[Any]:
        call = function.function if isinstance(function, Computing) else function
        context = call.args[0]  # type: ignore[attr-defined]
        results = []
        for task in tasks:
            results.append(CompactedPart(task.file_stamp, _compacted(context, task), {}))
            if on_done is not None:
                on_done(results[-1])
        return results

    def write_rows(self, plan: WritePlan, tallies: Tallies, progress: Progress) -> Written:
        stamp = _uuid(plan.file_stamp)
        written = []
        for bucket, arrived in self._rows.items():
            first = plan.first_sequence(BucketId(EMPTY_ROW, bucket))
            rows = {key: (key, first + index, kind, value) for index, (key, kind, value) in enumerate(arrived)}
            name = f"data-{stamp}-b{bucket}.json"
            file = write_json_file(plan.context, bucket, name, 0, SOURCE_APPEND, [rows[key] for key in sorted(rows)])
            message = CommitMessage(
                EMPTY_ROW, bucket, plan.buckets.option, append=FileChanges(added=(file,)), read_snapshot_id=plan.read_snapshot_id
            )
            written.append(WrittenBucket(message))
        return Written(tuple(written))

    def stop(self) -> None:
        """Holds no resources."""
