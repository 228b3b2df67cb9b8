"""Reads rows whose columns are in several files: data evolution (FORMAT.md, section 7.6; Java DataEvolutionSplitRead).

The files of a range of row ids hold the same rows in the same order, each some columns. The newest file with a column counts, and
of the oldest file the deletion vector, for all of them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence

import pyarrow as pa

from paimon_cli.bucket.data_file_reader import WHOLE, read_part
from paimon_cli.bucket.deletion_vectors import BucketVectors, live_rows, load_vectors, packed
from paimon_cli.bucket.schema_evolution import SYSTEM_COLUMNS, ReadColumns
from paimon_cli.errors import DamagedFile
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import BucketId, DataFileMeta
from paimon_cli.metadata.index_files import DeletionVector
from paimon_cli.pieces import PIECES


def row_ranges(files: Iterable[DataFileMeta]) -> list[tuple[DataFileMeta, ...]]:
    """The files by range of row ids, in the order of these, within a range the newest first.

    A file without a first row id is a range of its own. Raises `DamagedFile` if ranges overlap without being equal.
    """
    by_begin: dict[int, list[DataFileMeta]] = {}
    alone: list[tuple[DataFileMeta, ...]] = []
    for file in files:
        if file.first_row_id is None:
            alone.append((file,))
        else:
            by_begin.setdefault(file.first_row_id, []).append(file)
    end, found = 0, list[tuple[DataFileMeta, ...]]()
    for begin in sorted(by_begin):
        members = sorted(by_begin[begin], key=lambda file: -file.max_sequence_number)
        lengths = {file.row_count for file in members}
        if len(lengths) > 1 or begin < end:
            why = "its range of row ids overlaps that of another file without being equal to it"
            raise DamagedFile(f"the columns of {members[0].file_name} cannot be combined with others", why)
        end = begin + members[0].row_count
        found.append(tuple(members))
    return [*alone, *found]


def combined_rows(context: TableContext, bucket: BucketFiles, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of the bucket with `columns`, range by range, without those that deletion vectors mark."""
    vectors = load_vectors(context, bucket)
    for members in row_ranges(bucket.files):
        yield from _live(_rows_of(context, bucket.bucket_id, members, columns), vector_of(members, vectors))


def vector_of(members: Sequence[DataFileMeta], vectors: BucketVectors) -> DeletionVector | None:
    """The vector of a range: that of its oldest file. Raises `DamagedFile` if a newer one has one, which no reader looks at."""
    check_vectors(members, vectors.by_file)
    return vectors.of(_oldest(members).file_name)


def check_vectors(members: Sequence[DataFileMeta], names: Container[str]) -> None:
    """Raise `DamagedFile` if a file of a range has a vector (is one of `names`) without being the oldest."""
    oldest = _oldest(members)
    for file in members:
        if file is not oldest and file.file_name in names:
            why = f"rows are marked in the oldest file with their ids, which is {oldest.file_name}"
            raise DamagedFile(f"{file.file_name} has a deletion vector, which no reader looks at", why)


def _oldest(members: Sequence[DataFileMeta]) -> DataFileMeta:
    return min(members, key=lambda file: (file.max_sequence_number, file.file_name))


def _live(batches: Iterator[pa.RecordBatch], vector: DeletionVector | None) -> Iterator[pa.RecordBatch]:
    if vector is None:
        yield from batches
        return
    first = 0
    for batch in batches:
        yield live_rows(batch, packed(vector.live_rows(batch.num_rows, first)))
        first += batch.num_rows


def _rows_of(
    context: TableContext, bucket_id: BucketId, members: Sequence[DataFileMeta], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    held = [ReadColumns(context, file, columns).stored for file in members]
    chosen: dict[int, list[str]] = {}
    for name in columns:
        number = 0 if name in SYSTEM_COLUMNS else next((number for number, names in enumerate(held) if name in names), 0)
        chosen.setdefault(number, []).append(name)
    sides = [_batches(context, bucket_id, members[number], names) for number, names in chosen.items()]
    for pieces in _side_by_side(sides):
        found = {name: piece.column(name) for piece in pieces for name in piece.schema.names}
        yield pa.RecordBatch.from_arrays([found[name] for name in columns], names=list(columns))


def _batches(context: TableContext, bucket_id: BucketId, file: DataFileMeta, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    return (batch for _, batch in read_part(context, bucket_id, file, columns, PIECES.batch_rows, WHOLE) if batch.num_rows)


def _side_by_side(sides: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[list[pa.RecordBatch]]:
    """Batches with the same rows from all sides. Each side has as many rows as the others, in batches of its own."""
    held: list[pa.RecordBatch | None] = [next(side, None) for side in sides]
    while True:
        ready = [batch for batch in held if batch is not None]
        if len(ready) < len(held):
            return
        rows = min(batch.num_rows for batch in ready)
        yield [batch.slice(0, rows) for batch in ready]
        held = [
            batch.slice(rows) if batch.num_rows > rows else next(side, None) for batch, side in zip(ready, sides, strict=True)
        ]
