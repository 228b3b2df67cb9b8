"""Checks that read data files: their rows are sorted and are what the metadata says; deletion vectors leave one row per key."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from paimon_cli.bucket.data_file_reader import read_data_file
from paimon_cli.bucket.deletion_vectors import load_vectors
from paimon_cli.bucket.merged_rows import without_retractions
from paimon_cli.datatypes.binary_row import deserialize_row
from paimon_cli.datatypes.key_order import Key, comparable, group_starts, key_at, order_words, stable_order
from paimon_cli.datatypes.values import values_to_arrow
from paimon_cli.errors import DamagedFile
from paimon_cli.history.table_state import BucketFiles
from paimon_cli.invariants.version import Place, Version
from paimon_cli.invariants.violation import Violation
from paimon_cli.metadata.data_file import DataFileMeta, ManifestEntry
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, VALUE_KIND

BATCH_ROWS = 1 << 16


def files_hold_their_rows(version: Version, entry: ManifestEntry) -> Iterator[Violation]:
    """PV030, PV031, PV032 and PV034 for one live file of a table with a primary key; batch by batch, so memory stays small."""
    context, file, path = version.context, entry.file, version.file_path(entry)
    keys = context.schema.trimmed_primary_keys
    first: pa.RecordBatch | None = None
    last: pa.RecordBatch | None = None
    least, greatest, retractions = np.iinfo(np.int64).max, np.iinfo(np.int64).min, 0
    try:
        columns = [*keys, SEQUENCE_NUMBER, VALUE_KIND]
        for batch in read_data_file(context, entry.partition, entry.bucket, file, columns, BATCH_ROWS):
            if not batch.num_rows:
                continue
            if not _ascends(batch, last, keys):
                yield Violation("PV030", path, "its rows do not ascend strictly by key")
            first, last = first or batch.slice(0, 1), batch.slice(batch.num_rows - 1)
            sequences = batch.column(SEQUENCE_NUMBER).to_numpy()
            least, greatest = min(least, int(sequences.min())), max(greatest, int(sequences.max()))
            retractions += int(np.count_nonzero(batch.column(VALUE_KIND).to_numpy() & 1))
    except DamagedFile as error:
        yield Violation("PV031", path, str(error))
        return
    if file.delete_row_count is not None and file.delete_row_count != retractions:
        yield Violation("PV034", path, f"holds {retractions} retractions, its metadata says {file.delete_row_count}")
    if first is not None and last is not None:
        yield from _range_violations(version, path, file, (first, last), (least, greatest))


def _ascends(batch: pa.RecordBatch, last: pa.RecordBatch | None, keys: tuple[str, ...]) -> bool:
    columns = [batch.column(name) for name in keys]
    if last is not None:
        before = [comparable(last.column(name)) for name in keys]
        if not key_at(before, 0) < key_at([comparable(column) for column in columns], 0):
            return False
    words = order_words(columns)
    in_order = np.array_equal(stable_order(words), np.arange(batch.num_rows))
    return in_order and len(group_starts(words)) == batch.num_rows


def _range_violations(
    version: Version, path: str, file: DataFileMeta, ends: tuple[pa.RecordBatch, pa.RecordBatch], sequences: tuple[int, int]
) -> Iterator[Violation]:
    keys = version.context.schema.trimmed_primary_keys
    first, last = (key_at([comparable(row.column(name)) for name in keys], 0) for row in ends)
    # Ranges may be wider than the rows: Java counts retractions that a compaction has dropped.
    if first < _stored_key(version, file.min_key) or last > _stored_key(version, file.max_key):
        yield Violation("PV032", path, f"its keys are {first} to {last}, which its metadata does not cover")
    if sequences[0] < file.min_sequence_number or sequences[1] > file.max_sequence_number:
        said = f"{file.min_sequence_number} to {file.max_sequence_number}"
        yield Violation("PV032", path, f"its sequence numbers are {sequences[0]} to {sequences[1]}, its metadata says {said}")


def _stored_key(version: Version, stored: bytes) -> Key:
    """A key of the metadata in the form that `key_at` gives for rows."""
    types = version.context.key_types
    values = deserialize_row(stored, types)
    return key_at([comparable(values_to_arrow([value], t)) for value, t in zip(values, types, strict=True)], 0)


def one_unmarked_row_per_key(version: Version, place: Place) -> Iterator[Violation]:
    """PV033. Readers of a table with deletion vectors skip merging, so above level 0 each key may show once only."""
    context = version.context
    if not context.options.deletion_vectors_enabled or not context.schema.primary_keys:
        return
    keys = context.schema.trimmed_primary_keys
    shown = [batch.select(list(keys)) for batch in _shown_rows(version, place)]
    if not shown:
        return
    rows = pa.concat_batches(shown)
    words = order_words([rows.column(name) for name in keys])
    order = stable_order(words)
    twice = rows.num_rows - len(group_starts([word[order] for word in words]))
    if twice:
        yield Violation("PV033", version.bucket_directory(place), f"{twice} rows of keys that another row shows already")


def _shown_rows(version: Version, place: Place) -> Iterator[pa.RecordBatch]:
    """Key and kind columns of the rows above level 0 that no vector marks and that are no retractions."""
    entries = [entry for entry in version.buckets[place] if entry.file.level > 0]
    indexes = tuple(e.index_file for e in version.index_entries if (e.partition, e.bucket) == place)
    bucket = BucketFiles(*place, 0, tuple(entry.file for entry in entries), indexes)
    vectors = load_vectors(version.context, bucket)
    columns = [*version.context.schema.trimmed_primary_keys, VALUE_KIND]
    for file in bucket.files:
        vector, begin = vectors.of(file.file_name), 0
        for batch in read_data_file(version.context, *place, file, columns, BATCH_ROWS):
            end = begin + batch.num_rows
            unmarked = batch if vector is None else batch.filter(pa.array(vector.live_mask(begin, end)))
            begin = end
            yield without_retractions(unmarked)
