"""Where keys live in the files of a bucket above level 0, and the rows at given positions of a file.

No index of the table is kept. Files are sorted by key, so a lookup is a merge join of the keys asked for, which are sorted too,
with the key columns of the files that may hold one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from paimon_cli.bucket.data_file_reader import read_data_file
from paimon_cli.bucket.deletion_vectors import BucketVectors
from paimon_cli.datatypes.arrow_types import values_to_arrow
from paimon_cli.datatypes.data_type import FLOATING_ROOTS
from paimon_cli.datatypes.key_order import comparable
from paimon_cli.errors import DamagedFile
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.key_search import SortedKeys
from paimon_cli.metadata.data_file import BucketId, DataFileMeta
from paimon_cli.metadata.data_file_schema import read_schema

BATCH_ROWS = 65536
ABSENT = -1


@dataclass(frozen=True)
class FoundRows:
    """Where keys live: parallel arrays, one element for each key looked up.

    `file`: its index in the files given, `ABSENT` for a key that none of them holds. `position`: the row's ordinal in that file.
    """

    file: NDArray[np.int32]
    position: NDArray[np.int64]


def find_keys(
    context: TableContext, bucket_id: BucketId, files: Sequence[DataFileMeta], keys: pa.Table, vectors: BucketVectors
) -> FoundRows:
    """Where each of the keys lives. `keys`: the trimmed primary key, in key order, each key once.

    `files`: any of one bucket above level 0. Those of one level are disjoint, and a row of a lower level shadows those of higher
    ones; a row that a vector marks as deleted does not count. A row found may be a retraction, where files hold any.
    """
    wanted = SortedKeys.of(keys, context.schema.trimmed_primary_keys)
    found = FoundRows(np.full(len(wanted), ABSENT, np.int32), np.zeros(len(wanted), np.int64))
    if len(wanted) == 0 or not files:
        return found
    lows, highs = (_bounds(context, [getattr(file, bound) for file in files]) for bound in ("min_key", "max_key"))
    begins, ends = wanted.below(lows), wanted.up_to(highs)
    for number in sorted(range(len(files)), key=lambda number: files[number].level):
        asked = begins[number] + np.flatnonzero(found.file[begins[number] : ends[number]] == ABSENT)
        if len(asked) == 0:
            continue
        file = files[number]
        positions = _positions(context, bucket_id, file, wanted.take(asked))
        deleted = vectors.of(file.file_name)
        if deleted is not None:
            positions[deleted.marks(positions)] = ABSENT
        is_here = positions != ABSENT
        found.file[asked[is_here]] = number
        found.position[asked[is_here]] = positions[is_here]
    return found


def _bounds(context: TableContext, serialised: list[bytes]) -> SortedKeys:
    """Keys of manifest entries, in the entries' order, as columns that compare with those of rows."""
    cells = zip(*(context.key_of(key) for key in serialised), strict=True)
    columns = [
        # `key_of` gives floats as the integers that `comparable` makes of them
        pa.array(values, pa.int64()) if t.root in FLOATING_ROOTS else comparable(values_to_arrow(values, t))
        for values, t in zip(cells, context.key_types, strict=True)
    ]
    return SortedKeys(tuple(columns))


def _positions(context: TableContext, bucket_id: BucketId, file: DataFileMeta, keys: SortedKeys) -> NDArray[np.int64]:
    """The row of each key in the file, `ABSENT` where it has none: its key columns are read up to the last key."""
    names = context.schema.trimmed_primary_keys
    positions = np.full(len(keys), ABSENT, np.int64)
    first_row = done = 0
    for batch in read_data_file(context, bucket_id, file, names, BATCH_ROWS):
        rows = SortedKeys.of(batch, names)
        end = max(done, int(keys.up_to(rows.slice(len(rows) - 1, len(rows)))[0]))
        asked = keys.slice(done, end)
        places = rows.below(asked)
        positions[done:end] = np.where(rows.equal_at(places, asked), first_row + places, ABSENT)
        first_row, done = first_row + len(rows), end
        if done == len(keys):
            break
    return positions


def rows_at(
    context: TableContext, bucket_id: BucketId, file: DataFileMeta, positions: NDArray[np.int64], columns: Sequence[str]
) -> pa.Table:
    """The rows at these ascending positions of the file, with `columns` as in `read_data_file`."""
    if len(positions) and not 0 <= positions[0] <= positions[-1] < file.row_count:
        why = f"row {positions[-1]} was asked for, it holds {file.row_count}"
        raise DamagedFile(f"no such row in data file {file.file_name}", why, path=file.file_name)
    chosen = list(_chosen_rows(context, bucket_id, file, positions, columns)) if len(positions) else []
    schema = read_schema(context.schema, columns)
    return pa.Table.from_batches([pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in chosen], schema)


def _chosen_rows(
    context: TableContext, bucket_id: BucketId, file: DataFileMeta, positions: NDArray[np.int64], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    first_row = done = 0
    for batch in read_data_file(context, bucket_id, file, columns, BATCH_ROWS):
        end = int(np.searchsorted(positions, first_row + batch.num_rows))
        if end > done:
            yield batch.take(pa.array(positions[done:end] - first_row))
        first_row, done = first_row + batch.num_rows, end
        if done == len(positions):
            return
