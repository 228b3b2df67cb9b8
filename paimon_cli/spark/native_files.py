"""Which files of a scan Spark's own Parquet reader can read, and which of their rows it must leave out.

It finds columns by name. The rows to leave out are those of deletion vectors and, where files overlap but a merge only chooses
among their rows, the superseded ones. These are found here, on the driver, by merging the keys; in return Spark reads no column
and no row group that the query does not need.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from paimon_cli.bucket.data_file_reader import check_row_count, file_format
from paimon_cli.bucket.deletion_vectors import load_vectors
from paimon_cli.bucket.superseded_rows import merge_chooses_rows, superseded_rows
from paimon_cli.datatypes.column_cast import same_type
from paimon_cli.datatypes.data_type import FLOATING_ROOTS, DataField, DataType, MapType, RowType
from paimon_cli.datatypes.variant_columns import holds_variants
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.row_scan import RowScan
from paimon_cli.metadata.data_file import DataFileMeta
from paimon_cli.metadata.index_files import DeletionVector
from paimon_cli.options.column_options import STORAGE_LAYOUT
from paimon_cli.pieces import PIECES
from paimon_cli.read.pruning import TableBounds
from paimon_cli.read.scan_plan import Split
from paimon_cli.spark.spark_types import spark_condition
from paimon_cli.sql.expressions import ColumnBounds
from paimon_cli.storage.whole_file import ScratchStorage

PLAIN_SCHEMES = ("hdfs://", "webhdfs://")
"""URLs that Spark reads with its own configuration, besides paths on this machine."""
GLOB_CHARACTERS = frozenset("{}[]*?\\")
"""Spark would interpret a path with one of them as a pattern."""
HIDDEN_TO_SPARK = ("_", ".")
"""Spark silently skips files whose names begin with one of these, even files that it is told to read."""
MAX_WORD_BYTES = 512 << 20
"""The most bytes of bitmaps that are broadcast to the executors; files whose vectors exceed it are read by Python workers."""
MAX_BELIEVED_ROWS = 1 << 24
"""A manifest that gives a file more rows is compared with the file before a bitmap of that size (2 MB) is allocated."""
MAX_TWINS = 8
"""The most files with bitmaps and the same size: each takes a scan of its own. Further ones are read by Python workers."""
MAX_MERGED_ROWS = 16_000_000
"""The most rows of overlapping files whose keys are merged on the driver, which takes about a second. In a larger table Python
workers merge, in parallel.
"""

FEW_FILES = 32
SMALL_FILE = 10_000
"""In rows. If rows of more than a few files must be left out, and these are so small on average, Python workers read them faster:
Spark and the driver need some milliseconds for each file.
"""


@dataclass(frozen=True)
class NativeFile:
    """A data file for Spark's Parquet reader.

    `old_names`: for each column to read, its name in the file, None if the file does not have it. `has_retractions`: whether it
    may contain rows that are deletes, which must be filtered out. `may_hold_nan`: whether a column that a condition can name may
    hold NaN. `size`: in bytes. `hidden`: the rows to leave out, as 64-bit words with one bit for each row; None: there are none.
    """

    path: str
    size: int
    old_names: tuple[str | None, ...]
    has_retractions: bool
    may_hold_nan: bool
    rows: int
    hidden: np.ndarray | None = field(default=None, repr=False, compare=False)


NOT_ALLOWED = "native=False"


@dataclass(frozen=True)
class Division:
    """The `files` that Spark reads by itself, and the `splits` that it cannot read. `reasons`: why, with the number of files."""

    files: Sequence[NativeFile]
    splits: Sequence[Split]
    reasons: Mapping[str, int]


def divided(scan: RowScan, native: bool | None) -> Division:
    """Decide who reads the files of a scan."""
    why_not = NOT_ALLOWED if native is False else _why_not_native(scan)
    if why_not is not None:
        return all_to_python(scan, why_not)
    files, splits, reasons = list[NativeFile](), list[Split](), Counter[str]()
    reader = _NativeSplits(scan, native is True)
    for split in scan.plan.splits:
        found = reader.files_of(split)
        if isinstance(found, str):
            splits.append(split)
            reasons[found] += len(split.files)
        else:
            files += found
    return Division(files, splits, reasons)


def all_to_python(scan: RowScan, why: str) -> Division:
    """Spark reads no file, for one reason."""
    count = sum(len(split.files) for split in scan.plan.splits)
    return Division([], scan.plan.splits, {why: count} if count else {})


def _why_not_native(scan: RowScan) -> str | None:
    """Why Spark cannot compute the columns and the condition of the scan, or access its files; None if it can."""
    if isinstance(scan.context.storage, ScratchStorage):
        return "rows that wait for their buckets are merged in"
    if scan.request.row_kind:
        return "row kinds are shown"
    if scan.context.mode.combines_columns:
        return "columns of a row are in several files"
    fields = [scan.context.schema.find(name) for name in read_columns(scan)]
    if any(field is None for field in fields):
        return "ids of rows are read"
    if any(holds_variants(field.type) for field in fields if field):
        return "files may store variants shredded"
    if any(isinstance(field.type, MapType) for field in fields if field) and _may_shred_maps(scan.context):
        return "files may store maps shredded"
    if any(value.path for value in scan.selection.values):
        return "fields of a row are chosen"
    if scan.predicate is not None and spark_condition(scan.predicate.condition) is None:
        return "Spark has no such condition"
    return None


def _may_shred_maps(context: TableContext) -> bool:
    """Whether the table has, or once had, an option by which files store a MAP as a struct."""
    schemas = context.schemas
    return any(STORAGE_LAYOUT in key for number in schemas.ids() for key in schemas.named(number).options)


class _NativeSplits:
    """Decides for each split of a scan whether Spark can read it."""

    def __init__(self, scan: RowScan, object_stores: bool) -> None:
        self._scan = scan
        self._context = scan.context
        self._fields = tuple(scan.context.schema.field(name) for name in read_columns(scan))
        self._floats = tuple(column.name for column in self._fields if column.type.root in FLOATING_ROOTS)
        self._has_nested_floats = any(_has_floats(column.type) for column in self._fields if isinstance(column.type, RowType))
        self._bounds = TableBounds(scan.context)
        self._object_stores = object_stores
        self._hides_rows = _is_worth_leaving_out_rows(scan)
        self._merges_keys = self._hides_rows and _is_worth_a_merge_of_keys(scan)
        self._names: dict[int, tuple[str | None, ...] | None] = {}
        self._word_bytes = 0
        self._hidden_sizes: Counter[int] = Counter()

    def files_of(self, split: Split) -> list[NativeFile] | str:
        """The files of the split, or why one of them needs this package."""
        if split.before is not None or split.is_changelog:
            return "changes are read"
        if split.needs_merge and not self._merges_keys_of(split):
            return "files overlap and must be merged"
        if split.bucket.index_files and not self._hides_rows:
            return "many small files have deletion vectors"
        found = list[NativeFile]()
        for file in split.files:
            native = self._file(split, file)
            if isinstance(native, str):
                return native
            found.append(native)
        if self._word_bytes + sum(file.rows for file in found) // 8 > MAX_WORD_BYTES:
            return "the bitmaps of rows to leave out are too large"
        hidden = self._hidden_rows(split)
        names = (file.file_name for file in split.files)
        files = [_hiding(file, hidden.get(name), split.needs_merge) for name, file in zip(names, found, strict=True)]
        with_words = [file for file in files if file.hidden is not None]
        sizes = self._hidden_sizes + Counter(file.size for file in with_words)
        if max(sizes.values(), default=0) > MAX_TWINS:
            return "many files with rows to leave out have the same size"
        self._word_bytes += sum(file.rows // 8 for file in with_words)
        self._hidden_sizes = sizes
        return files

    def _merges_keys_of(self, split: Split) -> bool:
        return self._merges_keys and merge_chooses_rows(self._context, split.bucket)

    def _hidden_rows(self, split: Split) -> Mapping[str, np.ndarray]:
        """For the names of files: the rows that must be left out, as in `NativeFile.hidden`."""
        if split.needs_merge:
            with self._scan.of_existing_snapshot():
                hidden = superseded_rows(self._context, split.bucket)
            return {name: _words(len(rows), partial(_part, rows)) for name, rows in hidden.items()}
        vectors, found = load_vectors(self._context, split.bucket), dict[str, np.ndarray]()
        for file in split.files:
            vector = vectors.of(file.file_name)
            if vector is not None:
                if file.row_count > MAX_BELIEVED_ROWS:
                    with self._scan.of_existing_snapshot():
                        check_row_count(self._context, split.bucket.bucket_id, file)
                found[file.file_name] = _words(file.row_count, partial(_marked, vector))
        return found

    def _file(self, split: Split, file: DataFileMeta) -> NativeFile | str:
        names = self._old_names(file.schema_id)
        if names is None:
            return "the type of a column has changed"
        if file.external_path is not None:
            return "files are outside of the table"
        if self._context.schema.partition_keys and not self._context.mode.has_keys and file.max_sequence_number == 0:
            return "files that may be adopted ones, which lack partition columns"
        if file_format(file.file_name) != "parquet":
            return f"{file_format(file.file_name)} files"
        if file.file_name.startswith(HIDDEN_TO_SPARK) or ":" in file.file_name:
            return "names that Spark takes for those of hidden files, or cannot parse"
        path = self._spark_path(self._context.data_file_path(split.bucket.partition, split.bucket.bucket, file))
        if path is None:
            return "paths of an object store need native=True, and none may have characters of a pattern"
        retractions, with_nan = _may_hold_retractions(self._context, file), self._may_hold_nan(split, file)
        return NativeFile(path, file.file_size, names, retractions, with_nan, file.row_count)

    def _may_hold_nan(self, split: Split, file: DataFileMeta) -> bool:
        """Whether a value may be NaN: a column with NaN has no bounds in the manifest, and those of nested fields are unknown."""
        if self._has_nested_floats or not self._floats:
            return self._has_nested_floats
        bounds_of = self._bounds.of_file(split.bucket.partition, split.bucket.bucket, file)
        return not all(_excludes_nan(bounds_of(name)) for name in self._floats)

    def _spark_path(self, path: str) -> str | None:
        if GLOB_CHARACTERS & set(path):
            return None
        if path.startswith("/"):
            return f"file://{path}"
        if path.startswith(PLAIN_SCHEMES):
            return path
        scheme, _, rest = path.partition("://")
        return f"{'s3a' if scheme == 's3' else scheme}://{rest}" if self._object_stores else None

    def _old_names(self, schema_id: int) -> tuple[str | None, ...] | None:
        """The names of the columns in this schema (None: missing there); None in all if a column had another type."""
        if schema_id not in self._names:
            old = {column.id: column for column in self._context.schemas.named(schema_id).fields}
            self._names[schema_id] = _matched(self._fields, old)
        return self._names[schema_id]


def _is_worth_leaving_out_rows(scan: RowScan) -> bool:
    """Whether the files with rows to leave out are few, or large enough."""
    files = rows = 0
    for split in scan.plan.splits:
        if split.needs_merge or split.bucket.index_files:
            files += len(split.files)
            rows += split.row_count
    return files <= FEW_FILES or rows >= files * SMALL_FILE


def _is_worth_a_merge_of_keys(scan: RowScan) -> bool:
    """Whether the query may need less than the scan reads, and the overlapping files have few enough rows."""
    if len(scan.selection.columns) < len(scan.context.schema.fields) or scan.predicate is not None:
        return False
    rows = 0
    for split in scan.plan.splits:
        rows += split.row_count if split.needs_merge else 0
        if rows > MAX_MERGED_ROWS:
            return False
    return True


def _hiding(file: NativeFile, hidden: np.ndarray | None, with_retractions: bool) -> NativeFile:
    """The file without the rows in `hidden`; None hides none. `with_retractions`: these are among them."""
    if hidden is None:
        return file
    retractions = file.has_retractions and not with_retractions
    return replace(file, has_retractions=retractions, hidden=hidden if hidden.any() else None)


def _words(rows: int, hides: Callable[[int, int], np.ndarray]) -> np.ndarray:
    """One bit for each row, in 64-bit words. `hides`: whether rows from the first number on, before the second, are left out.

    A vector of many rows is never in memory with more than one bit for each.
    """
    words = np.zeros(-(-rows // 64), np.int64)
    octets = words.view(np.uint8)
    for begin in range(0, rows, PIECES.hash_block_rows):
        hidden = hides(begin, min(rows, begin + PIECES.hash_block_rows))
        if hidden.any():
            bits = np.packbits(hidden, bitorder="little")
            octets[begin // 8 : begin // 8 + len(bits)] = bits
    return words


def _part(rows: np.ndarray, begin: int, end: int) -> np.ndarray:
    return rows[begin:end]


def _marked(vector: DeletionVector, begin: int, end: int) -> np.ndarray:
    return ~vector.live_rows(end - begin, begin)


def _has_floats(t: DataType) -> bool:
    """Whether a condition of Spark can be pushed to a floating-point field: one of a row, which may be in other rows."""
    return any(_has_floats(f.type) for f in t.fields) if isinstance(t, RowType) else t.root in FLOATING_ROOTS


def _excludes_nan(bounds: ColumnBounds | None) -> bool:
    return bounds is not None and (bounds.low is not None or bounds.only_nulls)


def _matched(fields: Sequence[DataField], old: Mapping[int, DataField]) -> tuple[str | None, ...] | None:
    names: list[str | None] = []
    for column in fields:
        then = old.get(column.id)
        if then is not None and not same_type(then.type, column.type):
            return None
        names.append(None if then is None else then.name)
    return tuple(names)


def _may_hold_retractions(context: TableContext, file: DataFileMeta) -> bool:
    """Whether a row of the file may be a delete.

    A compaction into the top level leaves none. At other levels the count in the manifest is unreliable, because some writers
    always write 0 (FORMAT.md, section 11.1).
    """
    return context.mode.has_keys and not (file.level == context.options.num_levels - 1 and file.delete_row_count == 0)


def read_columns(scan: RowScan) -> tuple[str, ...]:
    """The columns of the result, followed by those that only the condition needs."""
    return tuple(dict.fromkeys((*scan.selection.columns, *(scan.predicate.columns if scan.predicate else ()))))
