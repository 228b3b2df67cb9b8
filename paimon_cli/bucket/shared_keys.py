"""Whether two sets of data files of one bucket hold a key in common: their key columns are merged, nothing else is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from paimon_cli.bucket.data_file_reader import read_data_file
from paimon_cli.bucket.merged_rows import MERGE_BYTES, batch_rows, most_runs
from paimon_cli.bucket.spilled_runs import merge_in_passes
from paimon_cli.errors import BadInput
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.sorted_rows import SortedRows
from paimon_cli.lsm.sorted_runs import Section, SortedRun, key_sections
from paimon_cli.metadata.data_file import BucketId, DataFileMeta
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, VALUE_KIND

OURS = 0
"""Stands where a merge expects the sequence number of a row of ours; a row of theirs has the number of its file, from 1 on."""


@dataclass(frozen=True)
class SharedKey:
    """A key as text, and the file of theirs that holds it."""

    key: str
    file_name: str


@dataclass(frozen=True)
class CommonKeys:
    """A `MergeEngine` that gives a row of theirs for each key that both sides hold, and nothing for any other key."""

    sequence_fields: tuple[str, ...] = ()
    descending: bool = False

    def columns_for(self, columns: Sequence[str]) -> Sequence[str]:
        return ()

    def refusal(self, kind: int) -> BadInput | None:
        return None

    def merge(self, rows: SortedRows) -> pa.RecordBatch:
        sides = rows.rows.column(SEQUENCE_NUMBER).to_numpy()[rows.order]
        common = (sides[rows.starts] == OURS) & (sides[rows.ends - 1] != OURS)
        return rows.rows.take(pa.array(rows.last_of_each_key[np.flatnonzero(common)]))


def first_shared_key(
    context: TableContext, bucket_id: BucketId, ours: Sequence[DataFileMeta], theirs: Sequence[DataFileMeta]
) -> SharedKey | None:
    """The smallest key that a file of either side holds, in the memory of a merge; None if there is none.

    Only where key ranges of both sides meet are files read. `DamagedFile` names a file that cannot be.
    """
    sides = {file.file_name: OURS for file in ours} | {file.file_name: number for number, file in enumerate(theirs, 1)}
    for section in key_sections([*ours, *theirs], context.key_of):
        if len({sides[file.file_name] == OURS for run in section for file in run.files}) == 2:
            for batch in _common_rows(context, bucket_id, section, sides):
                if batch.num_rows:
                    return SharedKey(_key_text(batch), theirs[batch.column(SEQUENCE_NUMBER)[0].as_py() - 1].file_name)
    return None


def _common_rows(context: TableContext, bucket_id: BucketId, section: Section, sides: dict[str, int]) -> Iterator[pa.RecordBatch]:
    keys = context.schema.trimmed_primary_keys
    rows = batch_rows(section, MERGE_BYTES)

    def keys_of(run: SortedRun) -> Iterator[pa.RecordBatch]:
        for file in run.files:
            for batch in read_data_file(context, bucket_id, file, keys, rows):
                side = pa.array(np.full(batch.num_rows, sides[file.file_name], dtype=np.int64))
                kind = pa.array(np.zeros(batch.num_rows, dtype=np.int8))
                columns = [*batch.columns, side, kind]
                yield pa.RecordBatch.from_arrays(columns, names=[*keys, SEQUENCE_NUMBER, VALUE_KIND])

    runs = [partial(keys_of, run) for run in section]
    return merge_in_passes(runs, keys, CommonKeys(), most_runs(context, MERGE_BYTES), keys_repeat=True)


def _key_text(batch: pa.RecordBatch) -> str:
    names = [name for name in batch.schema.names if name not in (SEQUENCE_NUMBER, VALUE_KIND)]
    return ", ".join(f"{name}={batch.column(name)[0].as_py()}" for name in names)
