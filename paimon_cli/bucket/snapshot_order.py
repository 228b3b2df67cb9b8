"""Rows in the order of the snapshots that committed them (option `sequence.snapshot-ordering`, FORMAT.md, section 7.3).

A commit writes the id of its snapshot into the metadata of the files that it adds, as both of their sequence numbers; the
numbers that the rows bear count for nothing. A compaction stores the id with each row. So rows of a later commit win. Where one
commit has flushed a bucket several times, the later flush wins; Paimon leaves that open. In a merge a row therefore bears the
id and, in its lowest bits, the place of its file among those of level 0.
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

PLACE_BITS = 20
_WRITER_AND_NUMBER = re.compile(r"(.*)-(\d+)\.[^-]*")


@dataclass(frozen=True)
class SnapshotOrder:
    """The order of one bucket. `places`: those of its files of level 0, from 1 on; None where the rows' own numbers count."""

    places: Mapping[str, int] | None = None

    @staticmethod
    def of(context: TableContext, bucket: BucketFiles) -> SnapshotOrder:
        if not context.options.sequence_snapshot_ordering:
            return UNORDERED
        flushed = _in_order_of_flushes(file for file in bucket.files if file.level == 0)
        return SnapshotOrder({name: place for place, name in enumerate(flushed, 1)})

    def in_merge(self, rows: pa.RecordBatch, file: DataFileMeta) -> pa.RecordBatch:
        """Rows of the file with the numbers by which a merge orders them."""
        if self.places is None:
            return rows
        place = self.places.get(file.file_name, 0)
        return _renumbered(rows, lambda numbers: (numbers << PLACE_BITS) + place)

    def stored(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of a merge with the numbers that files store."""
        return rows if self.places is None else _renumbered(rows, lambda numbers: numbers >> PLACE_BITS)

    def number(self, in_merge: int) -> int:
        """What files store for the number of a row in a merge."""
        return in_merge if self.places is None else in_merge >> PLACE_BITS


UNORDERED = SnapshotOrder()


def _renumbered(rows: pa.RecordBatch, change: Callable[[np.ndarray], np.ndarray]) -> pa.RecordBatch:
    at = rows.schema.get_field_index(SEQUENCE_NUMBER)
    if at < 0:
        return rows
    return rows.set_column(at, rows.schema.field(at), pa.array(change(rows.column(at).to_numpy()), pa.int64()))


def _in_order_of_flushes(files: Iterable[DataFileMeta]) -> list[str]:
    """Names, the oldest first. A writer counts its files; of several writers the one that began earlier comes first."""
    found = [(*_writer_and_number(file.file_name), file) for file in files]
    began: dict[str, int] = {}
    for writer, _, file in found:
        began[writer] = min(began.get(writer, file.creation_time_millis or 0), file.creation_time_millis or 0)
    return [name for *_, name in sorted((began[writer], writer, number, file.file_name) for writer, number, file in found)]


def _writer_and_number(name: str) -> tuple[str, int]:
    parts = _WRITER_AND_NUMBER.fullmatch(name)
    return (parts[1], int(parts[2])) if parts else (name, 0)
