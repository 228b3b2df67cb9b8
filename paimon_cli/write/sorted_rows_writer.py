"""What a Spark writer task does: rows that arrive grouped by bucket and sorted by key go straight into level-0 files."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.bucket.data_file_writer import DataFileNames, DataFileWriter, check_writable
from paimon_cli.datatypes.key_order import Key, comparable, group_starts, key_at, order_words
from paimon_cli.errors import PaimonError
from paimon_cli.metadata.commit_message import CommitMessage
from paimon_cli.write.level_0_flush import flush_rows, numbered
from paimon_cli.write.write_plan import WritePlan

PARTITION, BUCKET = "_PARTITION", "_BUCKET"


def write_sorted_rows(plan: WritePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[CommitMessage]:
    """One commit message per bucket, yielded when the bucket's rows have ended.

    `batches`: `merge_schema` columns with `_PARTITION` (serialised) and `_BUCKET`, grouped by these two, inside a group
    sorted by primary key and `_SEQUENCE_NUMBER` (place in the order of arrival). Only the rows of the last key of a batch
    are held back. When the task fails, its files are removed.
    """
    check_writable(plan.context)
    opened: list[SortedBucketWriter] = []
    current: SortedBucketWriter | None = None
    try:
        for batch in batches:
            for partition, bucket, rows in _bucket_slices(batch):
                if current is None or current.key != (partition, bucket):
                    if current is not None:
                        yield current.close()
                    current = SortedBucketWriter(plan, partition, bucket)
                    opened.append(current)
                current.write(rows)
        if current is not None:
            yield current.close()
    except BaseException:
        for writer in opened:
            writer.abort()
        raise


def _bucket_slices(batch: pa.RecordBatch) -> Iterator[tuple[bytes, int, pa.RecordBatch]]:
    """Cut where partition or bucket changes."""
    partitions, buckets = batch.column(PARTITION), batch.column(BUCKET)
    rows = batch.drop_columns([PARTITION, BUCKET])
    if batch.num_rows == 0:
        return
    changed = (buckets.to_numpy()[1:] != buckets.to_numpy()[:-1]) | pc.not_equal(partitions[1:], partitions[:-1]).to_numpy(False)
    cuts = [0, *(np.flatnonzero(changed) + 1).tolist(), batch.num_rows]
    for start, end in itertools.pairwise(cuts):
        yield partitions[start].as_py(), buckets[start].as_py(), rows.slice(start, end - start)


class SortedBucketWriter:
    """Level-0 files of one bucket from rows in key order."""

    def __init__(self, plan: WritePlan, partition: bytes, bucket: int) -> None:
        self.key = (partition, bucket)
        self._plan = plan
        self._writer: DataFileWriter = plan.level_0_writer(partition, bucket, DataFileNames(plan.context, plan.file_stamp))
        self._key_columns = plan.context.schema.trimmed_primary_keys
        self._held: pa.RecordBatch | None = None
        self._last_key: Key | None = None

    def write(self, rows: pa.RecordBatch) -> None:
        if self._held is not None:
            rows = pa.concat_batches([self._held, rows])
        keys = [rows.column(name) for name in self._key_columns]
        last_group = int(group_starts(order_words(keys))[-1])
        self._held = rows.slice(last_group)
        if last_group:
            self._flush(rows.slice(0, last_group))

    def _flush(self, rows: pa.RecordBatch) -> None:
        """Write rows whose keys are complete."""
        keys = [comparable(rows.column(name)) for name in self._key_columns]
        if self._last_key is not None and key_at(keys, 0) <= self._last_key:
            raise PaimonError("rows of a bucket arrived out of key order", "the shuffle's sort differs from the order of keys")
        self._last_key = key_at(keys, rows.num_rows - 1)
        flush_rows(self._plan.context, [numbered(rows, self._plan.first_sequence(*self.key))], self._writer)

    def close(self) -> CommitMessage:
        if self._held is not None:
            self._flush(self._held)
            self._held = None
        return self._plan.message(*self.key, self._writer.close())

    def abort(self) -> None:
        self._writer.abort()
