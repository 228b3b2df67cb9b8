"""Orders rows by the snapshots that committed them (option `sequence.snapshot-ordering`, FORMAT.md, section 7.3).

A commit writes the id of its snapshot into the metadata of the files that it adds, as minimum and maximum sequence number; the
sequence numbers inside these files are ignored. A compaction stores the id with each row. So rows of a later commit win. If one
commit has flushed a bucket several times, the later flush wins, which Paimon leaves undefined. In a merge, the sequence number
of a row is therefore the id followed, in its lowest bits, by the rank of its file among those of level 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import DataFileMeta
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER

RANK_BITS = 20
_WRITER_AND_NUMBER = re.compile(r"(.*)-(\d+)\.[^-]*")


@dataclass(frozen=True)
class SnapshotOrder:
    """The order of one bucket. `ranks`: level-0 file name -> its rank, from 1 on; None if the rows' own numbers count."""

    ranks: Mapping[str, int] | None = None

    @staticmethod
    def of(context: TableContext, bucket: BucketFiles) -> SnapshotOrder:
        if not context.options.sequence_snapshot_ordering:
            return UNORDERED
        flushed = _in_order_of_flushes(file for file in bucket.files if file.level == 0)
        return SnapshotOrder({name: rank for rank, name in enumerate(flushed, 1)})

    def in_merge(self, rows: pa.RecordBatch, file: DataFileMeta) -> pa.RecordBatch:
        """Rows of the file with the sequence numbers by which a merge orders them."""
        if self.ranks is None:
            return rows
        rank = self.ranks.get(file.file_name, 0)
        return _renumbered(rows, lambda numbers: (numbers << RANK_BITS) + rank)

    def stored(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Merged rows with the sequence numbers that files store."""
        return rows if self.ranks is None else _renumbered(rows, lambda numbers: numbers >> RANK_BITS)

    def number(self, in_merge: int) -> int:
        """The sequence number that files store for one of a merge."""
        return in_merge if self.ranks is None else in_merge >> RANK_BITS


UNORDERED = SnapshotOrder()


def _renumbered(rows: pa.RecordBatch, change: Callable[[np.ndarray], np.ndarray]) -> pa.RecordBatch:
    at = rows.schema.get_field_index(SEQUENCE_NUMBER)
    if at < 0:
        return rows
    return rows.set_column(at, rows.schema.field(at), pa.array(change(rows.column(at).to_numpy()), pa.int64()))


def _in_order_of_flushes(files: Iterable[DataFileMeta]) -> list[str]:
    """The names of the files, the oldest first: by the first file of their writer, then by the writer's own count."""
    numbered = [(*_writer_and_number(file.file_name), file) for file in files]
    started: dict[str, int] = {}
    for writer, _, file in numbered:
        started[writer] = min(started.get(writer, file.creation_time_millis or 0), file.creation_time_millis or 0)
    return [name for *_, name in sorted((started[writer], writer, number, file.file_name) for writer, number, file in numbered)]


def _writer_and_number(name: str) -> tuple[str, int]:
    parts = _WRITER_AND_NUMBER.fullmatch(name)
    return (parts[1], int(parts[2])) if parts else (name, 0)
