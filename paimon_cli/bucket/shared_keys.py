"""Finds keys that two sets of files share, by merging their key columns in bounded memory."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from paimon_cli.bucket.data_file_reader import read_data_file
from paimon_cli.bucket.merged_rows import batch_rows, max_merged_runs
from paimon_cli.bucket.spilled_runs import merge_in_passes
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.sorted_rows import SortedRows, WholeRowEngine
from paimon_cli.lsm.sorted_runs import Section, SortedRun, key_sections
from paimon_cli.metadata.data_file import BucketId, DataFileMeta
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, VALUE_KIND
from paimon_cli.options.option_text import shortened
from paimon_cli.pieces import PIECES

_OURS = 0
"""The sequence number of our rows in a merge of keys; their rows have the number of their file, from 1 on."""


@dataclass(frozen=True)
class SharedKey:
    """A key that both sides hold, as text. `file_name`: a file of the other side that holds it."""

    key: str
    file_name: str


class CommonKeys(WholeRowEngine):
    """A `MergeEngine` that returns one of their rows for each key that both sides hold, and nothing for other keys."""

    def merge(self, rows: SortedRows) -> pa.RecordBatch:
        sides = rows.rows.column(SEQUENCE_NUMBER).to_numpy()[rows.order]
        common = (sides[rows.starts] == _OURS) & (sides[rows.ends - 1] != _OURS)
        return rows.taken(rows.last_of_each_key[np.flatnonzero(common)])


def first_shared_key(
    context: TableContext, bucket_ids: Mapping[str, BucketId], ours: Sequence[DataFileMeta], theirs: Sequence[DataFileMeta]
) -> SharedKey | None:
    """The smallest key that files of both sides hold; None if there is none.

    `bucket_ids`: the bucket of each file, by file name. Reads only files whose key ranges overlap those of the other side, in
    the memory of a merge. Raises `DamagedFile` for a file that cannot be read.
    """
    sides = {file.file_name: _OURS for file in ours} | {file.file_name: number for number, file in enumerate(theirs, 1)}
    for section in key_sections([*ours, *theirs], context.key_of):
        if len({sides[file.file_name] == _OURS for run in section for file in run.files}) == 2:
            for batch in _common_rows(context, bucket_ids, section, sides):
                if batch.num_rows:
                    return SharedKey(_key_text(batch), theirs[batch.column(SEQUENCE_NUMBER)[0].as_py() - 1].file_name)
    return None


def _common_rows(
    context: TableContext, bucket_ids: Mapping[str, BucketId], section: Section, sides: dict[str, int]
) -> Iterator[pa.RecordBatch]:
    keys = context.schema.trimmed_primary_keys
    rows = batch_rows(section, PIECES.merge_bytes)

    def keys_of(run: SortedRun) -> Iterator[pa.RecordBatch]:
        for file in run.files:
            for batch in read_data_file(context, bucket_ids[file.file_name], file, keys, rows):
                side = pa.array(np.full(batch.num_rows, sides[file.file_name], dtype=np.int64))
                kind = pa.array(np.zeros(batch.num_rows, dtype=np.int8))
                columns = [*batch.columns, side, kind]
                yield pa.RecordBatch.from_arrays(columns, names=[*keys, SEQUENCE_NUMBER, VALUE_KIND])

    runs = [functools.partial(keys_of, run) for run in section]
    return merge_in_passes(runs, keys, CommonKeys(), max_merged_runs(context, PIECES.merge_bytes), keys_repeat=True)


def _key_text(batch: pa.RecordBatch) -> str:
    names = [name for name in batch.schema.names if name not in (SEQUENCE_NUMBER, VALUE_KIND)]
    cells = ((name, batch.column(name)[0]) for name in names)
    return ", ".join(f"{name}={shortened(str(cell.as_py())) if cell.is_valid else 'NULL'}" for name, cell in cells)
