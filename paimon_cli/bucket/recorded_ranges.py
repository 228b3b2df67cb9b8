"""Refuses rows outside of the key and sequence range that the manifest records for their file (FORMAT.md, section 11.1).

A merge divides a bucket into sections by the key ranges of its files, and orders runs by their sequence ranges. With a range that
is too narrow it would return two versions of a key, or the older one. Only columns that are read anyway are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import pyarrow as pa

from paimon_cli.bucket.data_file_reader import file_format
from paimon_cli.bucket.decoding import outside_of_range, sequences_outside_of_range
from paimon_cli.bucket.orc_file import holds_chars
from paimon_cli.datatypes.arrow_types import values_to_arrow
from paimon_cli.datatypes.binary_row import deserialize_row
from paimon_cli.datatypes.data_type import TIMESTAMP_ROOTS, DataField, DataType
from paimon_cli.datatypes.key_order import Key, comparable, key_at
from paimon_cli.errors import DamagedFile
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import BucketId, DataFileMeta
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET


def within_ranges(
    context: TableContext, bucket_id: BucketId, file: DataFileMeta, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The rows of a file in the order of their keys. Raises `DamagedFile` for a row outside of a recorded range."""
    path, sequences = context.data_file_path(*bucket_id, file), recorded_sequences(context, file)
    keys = _KeyRange(context, bucket_id, file)
    first: Key | None = None
    last: pa.RecordBatch | None = None
    for batch in batches:
        if batch.num_rows:
            if sequences is not None and SEQUENCE_NUMBER in batch.schema.names:
                _check_sequences(context, path, batch, sequences)
            if keys.are_in(batch):
                first = keys.key(batch, 0) if first is None else first
                if first < keys.recorded[0]:
                    raise outside_of_range(path, "keys", (first, keys.key(batch, batch.num_rows - 1)), keys.recorded)
                last = batch
        yield batch
    if first is not None and last is not None and keys.key(last, last.num_rows - 1) > keys.recorded[1]:
        raise outside_of_range(path, "keys", (first, keys.key(last, last.num_rows - 1)), keys.recorded)


def recorded_sequences(context: TableContext, file: DataFileMeta) -> tuple[int, int] | None:
    """The range of the file's sequence numbers; None if metadata has numbers of another kind than rows: those of snapshots."""
    if context.options.sequence_snapshot_ordering:
        return None
    return file.min_sequence_number, file.max_sequence_number


def stored_key(stored: bytes, types: Sequence[DataType]) -> Key:
    """A serialised key in the form that `key_at` returns for rows. Raises `DamagedFile` if it is malformed."""
    try:
        values = deserialize_row(stored, tuple(types))
    except ValueError as error:
        raise DamagedFile("a manifest holds a damaged key", str(error)) from error
    return key_at([comparable(values_to_arrow([value], t)) for value, t in zip(values, types, strict=True)], 0)


class _KeyRange:
    """The key range of a file, to compare with its first and last row. `is_known`: False for rows that are not sorted, and for
    values that readers of ORC change: without trailing blanks, or in another time zone.
    """

    def __init__(self, context: TableContext, bucket_id: BucketId, file: DataFileMeta) -> None:
        self._fields = context.schema.fields_of(context.schema.trimmed_primary_keys)
        self._file = file
        is_orc = file_format(file.file_name) == "orc"
        is_sorted = bucket_id.bucket != POSTPONE_BUCKET and not context.mode.clusters_rows
        self.is_known = is_sorted and not (is_orc and any(map(_is_changed, self._fields)))

    @cached_property
    def recorded(self) -> tuple[Key, Key]:
        types = [field.type for field in self._fields]
        return stored_key(self._file.min_key, types), stored_key(self._file.max_key, types)

    def are_in(self, batch: pa.RecordBatch) -> bool:
        return self.is_known and all(field.name in batch.schema.names for field in self._fields)

    def key(self, batch: pa.RecordBatch, row: int) -> Key:
        return key_at([comparable(batch.column(field.name).slice(row, 1)) for field in self._fields], 0)


def _is_changed(field: DataField) -> bool:
    return holds_chars(field.type) or field.type.root in TIMESTAMP_ROOTS


def _check_sequences(context: TableContext, path: str, batch: pa.RecordBatch, recorded: tuple[int, int]) -> None:
    numbers = batch.column(SEQUENCE_NUMBER).to_numpy()
    found = int(numbers.min()), int(numbers.max())
    if not recorded[0] <= found[0] <= found[1] <= recorded[1]:
        raise sequences_outside_of_range(context, path, found, recorded)
