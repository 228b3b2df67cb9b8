"""Routed rows -> sort buffers -> level-0 files: what a write in this process does, and a writer task on Spark."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from paimon_cli.bucket.data_file_writer import DataFileNames, DataFileWriter, check_writable
from paimon_cli.metadata.commit_message import CommitMessage
from paimon_cli.metadata.data_file import DataFileMeta
from paimon_cli.write.bucket_router import BucketRouter
from paimon_cli.write.level_0_flush import flush_rows, numbered
from paimon_cli.write.write_plan import WritePlan

BucketKey = tuple[bytes, int]


def write_rows(plan: WritePlan, on_rows: Callable[[int], None] = lambda rows: None) -> list[CommitMessage]:
    """Write all splits; `on_rows` hears of progress. When it fails, its files are removed."""
    check_writable(plan.context)
    writer = TableWriter(plan)
    try:
        for split in plan.splits:
            for batch in plan.incoming.read(split):
                writer.write(batch)
                on_rows(batch.num_rows)
        return writer.close()
    except BaseException:
        writer.abort()
        raise


class TableWriter:
    """Buffers of all buckets share `write-buffer-size`; when it is full, the bucket with most rows in memory is flushed."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan
        self._router = BucketRouter(plan.context.schema, plan.context.options)
        self._limit = plan.context.options.write_buffer_size
        self._buffers: dict[BucketKey, list[pa.RecordBatch]] = {}
        self._sizes: dict[BucketKey, int] = {}
        self._names: dict[BucketKey, DataFileNames] = {}
        self._files: dict[BucketKey, tuple[DataFileMeta, ...]] = {}
        self._writers: list[DataFileWriter] = []

    def write(self, batch: pa.RecordBatch) -> None:
        for partition, bucket, rows in self._router.split(batch):
            key = (partition, bucket)
            self._buffers.setdefault(key, []).append(numbered(rows, self._plan.first_sequence(partition, bucket)))
            self._sizes[key] = self._sizes.get(key, 0) + rows.nbytes
        while sum(self._sizes.values()) > self._limit:
            self._flush(max(self._sizes, key=lambda key: self._sizes[key]))

    def _flush(self, key: BucketKey) -> None:
        names = self._names.setdefault(key, DataFileNames(self._plan.context, self._plan.file_stamp))
        writer = self._plan.level_0_writer(*key, names)
        self._writers.append(writer)
        self._sizes.pop(key)
        flush_rows(self._plan.context, self._buffers.pop(key), writer)
        self._files[key] = self._files.get(key, ()) + writer.close()

    def close(self) -> list[CommitMessage]:
        for key in list(self._buffers):
            self._flush(key)
        return [self._plan.message(*key, files) for key, files in self._files.items()]

    def abort(self) -> None:
        for writer in self._writers:
            writer.abort()
