"""Checks that read data files: rows are sorted, in the right bucket, and agree with the metadata (FORMAT.md, section 5.4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.bucket.data_file_reader import read_data_file
from paimon_cli.bucket.deletion_vectors import load_vectors
from paimon_cli.bucket.key_locations import repeated_keys
from paimon_cli.bucket.merged_rows import unmarked_rows, without_retractions
from paimon_cli.bucket.recorded_ranges import stored_key
from paimon_cli.bucket.schema_evolution import ReadColumns
from paimon_cli.datatypes.arrow_types import values_to_arrow
from paimon_cli.datatypes.binary_row import deserialize_row
from paimon_cli.datatypes.bucket_functions import bucket_key_limit, row_buckets
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.key_order import comparable, group_starts, key_at, order_words, stable_order
from paimon_cli.datatypes.variant_columns import holds_variants, variants_in
from paimon_cli.datatypes.variant_text import check_variants
from paimon_cli.errors import DamagedFile, NotFound
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.pruning_checks import SkippedRows
from paimon_cli.invariants.scopes import OF_BUCKET
from paimon_cli.invariants.version import Version
from paimon_cli.invariants.violation import FULL, WARNING, CheckGroup, Invariant, Violation, declare
from paimon_cli.metadata.data_file import BucketId, DataFileMeta, IndexFileMeta, ManifestEntry, SimpleStats
from paimon_cli.metadata.data_file_schema import KEY_PREFIX, SEQUENCE_NUMBER, VALUE_KIND
from paimon_cli.options.option_text import shortened
from paimon_cli.pieces import PIECES

declare(
    Invariant("PV030", CheckGroup.RUNS, FULL, "rows of a data file ascend strictly by key", of_key_order=True),
    Invariant(
        "PV032", CheckGroup.STATS, FULL, "the key range and sequence range of a data file cover its rows", of_key_order=True
    ),
    Invariant("PV034", CheckGroup.STATS, FULL, "a data file holds as many retractions as its metadata says"),
    Invariant("PV035", CheckGroup.BUCKETS, FULL, "every key is in the bucket of its hash"),
    Invariant("PV036", CheckGroup.BUCKETS, FULL, "the partition columns of every row match its directory"),
    Invariant("PV037", CheckGroup.STATS, FULL, "the statistics of a data file cover its values", of_bounds=True),
    Invariant("PV038", CheckGroup.STATS, FULL, "null counts of a data file match its rows", of_bounds=True),
    Invariant("PV044", CheckGroup.STATS, FULL, "a file whose metadata counts no retractions has none", severity=WARNING),
    Invariant(
        "PV045",
        CheckGroup.STATS,
        FULL,
        "the greatest key of a file of level 0 is the key of its last row, where the merge engine drops none",
        severity=WARNING,
        of_key_order=True,
    ),
    Invariant("PV046", CheckGroup.VECTORS, FULL, "with deletion vectors no file above level 0 holds retractions"),
    Invariant("PV047", CheckGroup.STATS, FULL, "columns that are NOT NULL hold no null"),
    Invariant(
        "PV049",
        CheckGroup.RUNS,
        FULL,
        "the _KEY_ columns of a data file, by which older readers merge, are its key's own columns",
    ),
    Invariant(
        "PV060",
        CheckGroup.UNIQUE,
        FULL,
        "a key that leaves partition columns out lives in one bucket of one partition",
        of_key_order=True,
    ),
)


def file_holds_its_rows(version: Version, entry: ManifestEntry) -> Iterator[Violation]:
    """All checks of the rows of a live file, batch by batch: PV030, PV031, PV032, PV034 to PV038, PV044 to PV047, PV049,
    PV062 to PV064.
    """
    path = version.file_path(entry)
    try:
        context = version.context.at_schema(entry.file.schema_id)
        rows = _RowsOfFile(context, version, entry, path)
        yield from rows.violations()
    except (DamagedFile, NotFound) as error:
        yield Violation("PV031", path, str(error))


class _RowsOfFile:
    """Collects facts about the rows of a file, batch by batch, and reports violations at the end."""

    def __init__(self, context: TableContext, version: Version, entry: ManifestEntry, path: str) -> None:
        self._context = context
        self._version = version
        self._entry = entry
        self._path = path
        schema = context.schema
        self._keys = list(schema.trimmed_primary_keys)
        self._bounds_are_keys = context.mode.bounds_are_keys
        stored = ReadColumns(context, entry.file, schema.field_names).stored
        self._columns = [name for name in schema.field_names if name in stored] if entry.file.write_cols else schema.field_names
        self._ranges = ColumnRanges(schema.fields_of(self._columns))
        self._skipped = SkippedRows(context, entry)
        self._variants = {field.name: field.type for field in schema.fields_of(self._columns) if holds_variants(field.type)}
        self._first: pa.RecordBatch | None = None
        self._last: pa.RecordBatch | None = None
        self._sequences = (np.iinfo(np.int64).max, np.iinfo(np.int64).min)
        self._retractions = 0
        self._unordered = False
        self._wrong_bucket = 0
        self._wrong_partition = 0
        self._unequal_keys = 0

    def violations(self) -> Iterator[Violation]:
        entry = self._entry
        keys = [KEY_PREFIX + name for name in self._keys]
        columns = [*([SEQUENCE_NUMBER, VALUE_KIND] if self._keys else []), *keys, *self._columns]
        for batch in read_data_file(self._context, entry.bucket_id, entry.file, columns, PIECES.batch_rows):
            if batch.num_rows:
                self._check(batch)
        if self._keys:
            yield from self._key_violations()
        if self._wrong_bucket:
            yield self._of("PV035", f"{self._wrong_bucket} of its rows belong to another bucket, according to their keys")
        if self._wrong_partition:
            yield self._of("PV036", f"{self._wrong_partition} of its rows belong to another partition")
        for code, message in self._ranges.differences(entry.file, self._keys):
            yield self._of(code, message)
        yield from self._skipped.violations(self._path)

    def _of(self, code: str, message: str) -> Violation:
        return Violation(code, self._path, message)

    def _check(self, batch: pa.RecordBatch) -> None:
        if self._keys:
            has_order = self._bounds_are_keys and not self._entry.is_postponed
            ordered = not has_order or _ascends(batch, self._last, self._keys)
            self._unordered = self._unordered or not ordered
            sequences = batch.column(SEQUENCE_NUMBER).to_numpy()
            self._sequences = (min(self._sequences[0], int(sequences.min())), max(self._sequences[1], int(sequences.max())))
            self._unequal_keys += int(np.count_nonzero(_differ(batch, self._keys)))
            self._retractions += int(np.count_nonzero(batch.column(VALUE_KIND).to_numpy() & 1))
        self._first, self._last = self._first or batch.slice(0, 1), batch.slice(batch.num_rows - 1)
        self._wrong_bucket += int(np.count_nonzero(rows_of_other_buckets(self._context, self._entry, batch)))
        self._wrong_partition += self._in_other_partitions(batch)
        self._ranges.add(batch)
        self._skipped.add(batch)
        for name, t in self._variants.items():
            for variants in variants_in(batch.column(name), t):
                check_variants(variants)

    def _in_other_partitions(self, batch: pa.RecordBatch) -> int:
        schema, context = self._context.schema, self._context
        if not schema.partition_keys:
            return 0
        in_other = np.zeros(batch.num_rows, dtype=bool)
        values = context.partition_values(self._entry.partition)
        for name, t, value in zip(schema.partition_keys, context.partition_types, values, strict=True):
            if name not in self._columns:
                continue
            column, stored = comparable(batch.column(name)), comparable(values_to_arrow([value], t))[0].as_py()
            if stored is None:
                in_other |= column.is_valid().to_numpy(zero_copy_only=False)
            else:
                in_other |= ~np.array([item == stored for item in column.unique().to_pylist()])[_codes(column)]
        return int(np.count_nonzero(in_other))

    def _key_violations(self) -> Iterator[Violation]:
        file, schema = self._entry.file, self._context.schema
        if self._unordered:
            yield self._of("PV030", "its rows are not in strictly ascending order of their keys")
        if self._unequal_keys:
            yield self._of("PV049", f"{self._unequal_keys} of its rows have a different key in their _KEY_ columns")
        if file.delete_row_count is not None and file.delete_row_count != self._retractions:
            code = "PV034" if file.delete_row_count else "PV044"
            yield self._of(code, f"holds {self._retractions} retractions, but its metadata says {file.delete_row_count}")
        if self._context.options.deletion_vectors_enabled and file.level > 0 and self._retractions:
            yield self._of("PV046", f"holds {self._retractions} retractions at level {file.level}")
        if not self._context.mode.tracks_keyed_rows and (
            self._sequences[0] < file.min_sequence_number or self._sequences[1] > file.max_sequence_number
        ):
            recorded = f"{file.min_sequence_number} to {file.max_sequence_number}"
            found = f"{self._sequences[0]} to {self._sequences[1]}"
            yield self._of("PV032", f"its sequence numbers are {found}, but its metadata says {recorded}")
        if self._first is None or self._last is None or not self._bounds_are_keys:
            return
        first, last = (key_at([comparable(row.column(name)) for name in self._keys], 0) for row in (self._first, self._last))
        types = schema.types_of(self._keys)
        lowest, highest = stored_key(file.min_key, types), stored_key(file.max_key, types)
        # the range may be wider than the rows, because Java includes retractions that a merge has dropped
        postponed = self._entry.is_postponed
        if not (self._unordered or postponed) and (first < lowest or last > highest):
            yield self._of(
                "PV032", f"its keys are {shortened(str(first))} to {shortened(str(last))}, which its metadata does not cover"
            )
        elif last < highest and file.level == 0 and self._context.options.merge_engine.newest_wins and not postponed:
            yield self._of("PV045", f"its last key is {shortened(str(last))}, but its metadata says {shortened(str(highest))}")


def rows_of_other_buckets(context: TableContext, entry: ManifestEntry, batch: pa.RecordBatch) -> np.ndarray:
    """Whether each row is in the wrong bucket; false where something else than the hash of its own columns decides its bucket.

    `batch`: with the columns of the bucket key.
    """
    schema, options, total = context.schema, context.options, entry.total_buckets
    names = schema.bucket_key_names
    types, function = schema.types_of(names), options.bucket_function
    if total < 1 or options.bucket < 1 or not names or bucket_key_limit(function, types) is not None:
        return np.zeros(batch.num_rows, bool)
    buckets = row_buckets([batch.column(name) for name in names], types, total, function)
    return np.asarray(buckets != entry.bucket)


def _differ(batch: pa.RecordBatch, keys: list[str]) -> np.ndarray:
    """Whether the `_KEY_` columns of each row differ from the table's own columns."""
    differ = np.zeros(batch.num_rows, dtype=bool)
    for name in keys:
        stored, own = comparable(batch.column(KEY_PREFIX + name)), comparable(batch.column(name))
        unequal = pc.coalesce(pc.not_equal(stored, own), pc.xor(stored.is_null(), own.is_null()))
        differ |= unequal.to_numpy(zero_copy_only=False)
    return differ


def _codes(column: pa.Array) -> np.ndarray:
    """The index of each row's value among the unique values of the column."""
    return np.asarray(column.dictionary_encode(null_encoding="encode").indices.to_numpy(zero_copy_only=False))


def _ascends(batch: pa.RecordBatch, last: pa.RecordBatch | None, keys: list[str]) -> bool:
    columns = [batch.column(name) for name in keys]
    if last is not None:
        before = [comparable(last.column(name)) for name in keys]
        if not key_at(before, 0) < key_at([comparable(column) for column in columns], 0):
            return False
    words = order_words(columns)
    in_order = np.array_equal(stable_order(words), np.arange(batch.num_rows))
    return in_order and len(group_starts(words)) == batch.num_rows


@OF_BUCKET.check(Invariant("PV033", CheckGroup.UNIQUE, FULL, "with deletion vectors a key has one unmarked row above level 0"))
def one_unmarked_row_per_key(version: Version, bucket_id: BucketId) -> Iterator[Violation]:
    """PV033. Readers of a table with deletion vectors do not merge, so each key may have only one visible row above level 0."""
    context = version.context
    if not context.options.deletion_vectors_enabled or not context.schema.primary_keys:
        return
    keys = context.schema.trimmed_primary_keys
    shown = [batch.select(list(keys)) for batch in _shown_rows(version, bucket_id)]
    if not shown:
        return
    rows = pa.concat_batches(shown)
    words = order_words([rows.column(name) for name in keys])
    order = stable_order(words)
    repeated = rows.num_rows - len(group_starts([word[order] for word in words]))
    if repeated:
        yield Violation("PV033", version.bucket_directory(bucket_id), f"{repeated} rows have the key of another visible row")


def keys_live_in_one_bucket(version: Version) -> Iterator[Violation]:
    """PV060. If a key were in two buckets, readers would return it twice, and writers could not tell which one it belongs to."""
    context = version.context
    if not context.mode.bucket_mode.moves_keys or not context.mode.bounds_are_keys:
        return
    indexes: dict[BucketId, list[IndexFileMeta]] = {}
    for entry in version.index_entries:
        indexes.setdefault(entry.bucket_id, []).append(entry.index_file)
    buckets = [
        BucketFiles(*bucket_id, 0, tuple(entry.file for entry in entries), tuple(indexes.get(bucket_id, ())))
        for bucket_id, entries in sorted(version.buckets.items())
    ]
    try:
        found = repeated_keys(context, buckets)
    except (DamagedFile, NotFound) as error:
        yield Violation("PV031", error.path or version.path, str(error))
        return
    if found is not None:
        paths = " and ".join(context.bucket_path(*bucket_id) for bucket_id in found.bucket_ids)
        what = f"{found.count} keys are in several buckets, such as {found.key} in {paths}"
        yield Violation("PV060", version.path, what)


def _shown_rows(version: Version, bucket_id: BucketId) -> Iterator[pa.RecordBatch]:
    """The key columns and row kinds of a bucket above level 0, without retractions and rows that vectors delete."""
    entries = [entry for entry in version.at(bucket_id) if entry.file.level > 0]
    indexes = tuple(e.index_file for e in version.index_entries if e.bucket_id == bucket_id)
    bucket = BucketFiles(*bucket_id, 0, tuple(entry.file for entry in entries), indexes)
    vectors = load_vectors(version.context, bucket)
    columns = [*version.context.schema.trimmed_primary_keys, VALUE_KIND]
    for file in bucket.files:
        yield from map(without_retractions, unmarked_rows(version.context, bucket_id, file, columns, vectors))


_NESTED = frozenset({"ARRAY", "MAP", "MULTISET", "ROW", "VARIANT", "VECTOR", "BLOB"})
FLOATS = frozenset({"FLOAT", "DOUBLE"})


class ColumnRanges:
    """The smallest and greatest value and the null count of each column. Values are in the form of `comparable`."""

    def __init__(self, fields: Sequence[DataField]) -> None:
        self._fields = fields
        self._nulls = dict.fromkeys((field.name for field in fields), 0)
        self._ends: dict[str, tuple[Any, Any]] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        for field in self._fields:
            column = batch.column(field.name)
            self._nulls[field.name] += column.null_count
            if field.type.root in _NESTED:
                continue
            present = column.drop_null()
            if field.type.root in FLOATS:
                present = present.filter(pc.invert(pc.is_nan(present)))
            if len(present):
                ends = pc.min_max(comparable(present)).as_py()
                low, high = self._ends.get(field.name, (ends["min"], ends["max"]))
                self._ends[field.name] = (min(low, ends["min"]), max(high, ends["max"]))

    def differences(self, file: DataFileMeta, keys: Sequence[str]) -> Iterator[tuple[str, str]]:
        """The violations PV037, PV038 and PV047 of a file, each with a message. `keys`: the columns of its key statistics."""
        for field in self._fields:
            if not field.type.nullable and self._nulls[field.name]:
                yield "PV047", f"column {field.name} is NOT NULL, but holds {self._nulls[field.name]} nulls"
        by_name = {field.name: field for field in self._fields}
        yield from self._misses(file.key_stats, [by_name[name] for name in keys], "key statistics")
        listed = file.value_stats_cols if file.value_stats_cols is not None else file.write_cols or by_name
        yield from self._misses(file.value_stats, [by_name[name] for name in listed if name in by_name], "statistics")

    def _misses(self, stats: SimpleStats, fields: Sequence[DataField], what: str) -> Iterator[tuple[str, str]]:
        types = [field.type.with_nullable(True) for field in fields]
        try:
            lowest, highest = deserialize_row(stats.min_values, types), deserialize_row(stats.max_values, types)
        except ValueError:
            return  # readers ignore statistics with another number of columns, too
        counts = stats.null_counts if stats.null_counts is not None else (None,) * len(fields)
        for field, low, high, nulls in zip(fields, lowest, highest, counts, strict=False):
            if nulls is not None and nulls != self._nulls[field.name] and field.type.root not in _NESTED:
                yield "PV038", f"column {field.name} holds {self._nulls[field.name]} nulls, but its {what} say {nulls}"
            if not self._covers(field, low, high):
                ends = f"{shortened(repr(low))} to {shortened(repr(high))}"
                yield "PV037", f"column {field.name} holds values outside of {ends}, the range in its {what}"

    def _covers(self, field: DataField, low: Any, high: Any) -> bool:
        """Whether the bounds cover the values. NaN is not a bound: some writers start with NaN and never replace it. A bound of
        zero covers both zeros: some writers order them, as Java does, others do not.
        """
        ends = self._ends.get(field.name)
        if ends is None:
            return True
        if field.type.root == "CHAR":  # ORC's own statistics include the padding, the rows that it returns do not
            ends, low, high = (ends[0].rstrip(" "), ends[1].rstrip(" ")), low and low.rstrip(" "), high and high.rstrip(" ")
        if field.type.root in FLOATS:
            low, high = -0.0 if low == 0 else low, 0.0 if high == 0 else high
        above = low is not None and low == low and ends[0] < _as_rows(field, low)
        below = high is not None and high == high and ends[1] > _as_rows(field, high)
        return not (above or below)


def _as_rows(field: DataField, value: Any) -> Any:
    return comparable(values_to_arrow([value], field.type.with_nullable(True)))[0].as_py()
