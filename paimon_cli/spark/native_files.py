"""Which files of a scan Spark's own Parquet reader can read: those whose rows are all current, with columns found by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from paimon_cli.bucket.data_file_reader import file_format
from paimon_cli.bucket.deletion_vectors import BucketVectors, load_vectors
from paimon_cli.casts.column_cast import same_type
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.row_scan import RowScan
from paimon_cli.metadata.data_file import DataFileMeta
from paimon_cli.metadata.index_files import DeletionVector
from paimon_cli.read.scan_plan import Split
from paimon_cli.spark.spark_types import spark_condition
from paimon_cli.storage.whole_file import ScratchStorage

PLAIN_SCHEMES = ("hdfs://", "webhdfs://")
"""URLs that Spark reads with its own configuration, besides paths on this machine."""
GLOB_CHARACTERS = frozenset("{}[]*?\\")
"""Spark would interpret a path with one of them as a pattern."""
MAX_WORD_BYTES = 512 << 20
"""The most bytes of bitmaps that are broadcast to the executors; files whose vectors exceed it are read by Python workers."""
MAX_TWINS = 8
"""The most files with vectors and the same size: each takes a scan of its own. Further ones are read by Python workers."""


@dataclass(frozen=True)
class NativeFile:
    """A data file for Spark's Parquet reader.

    `old_names`: for each column to read, its name in the file, None if the file does not have it. `has_retractions`: whether it
    may contain rows that are deletes, which must be filtered out. `size`: in bytes.
    """

    path: str
    size: int
    old_names: tuple[str | None, ...]
    has_retractions: bool
    rows: int
    vector: DeletionVector | None = field(default=None, repr=False)


def divided(scan: RowScan, native: bool | None) -> tuple[list[NativeFile], list[Split]]:
    """The files that Spark reads by itself, and the splits that it cannot read."""
    if native is False or not _can_be_native(scan):
        return [], list(scan.plan.splits)
    files, splits = [], []
    reader = _NativeSplits(scan, native is True)
    for split in scan.plan.splits:
        found = reader.files_of(split)
        if found is None:
            splits.append(split)
        else:
            files += found
    return files, splits


def _can_be_native(scan: RowScan) -> bool:
    """Whether Spark can compute the columns and the condition of the scan, and access its files."""
    if isinstance(scan.context.storage, ScratchStorage):
        return False
    plain = not scan.request.keep_kinds and not any(value.path for value in scan.selection.values)
    return plain and (scan.predicate is None or spark_condition(scan.predicate.condition) is not None)


class _NativeSplits:
    """Decides for each split of a scan whether Spark can read it."""

    def __init__(self, scan: RowScan, object_stores: bool) -> None:
        self._context = scan.context
        self._fields = tuple(scan.context.schema.field(name) for name in read_columns(scan))
        self._object_stores = object_stores
        self._names: dict[int, tuple[str | None, ...] | None] = {}
        self._word_bytes = 0
        self._marked_sizes: Counter[int] = Counter()

    def files_of(self, split: Split) -> list[NativeFile] | None:
        """The files of the split; None if one of them needs this package."""
        if split.needs_merge or split.before is not None or split.is_changelog:
            return None
        vectors = load_vectors(self._context, split.bucket)
        files = [self._file(split, file, vectors) for file in split.files]
        found = [file for file in files if file is not None]
        marked = [file for file in found if file.vector is not None]
        words = sum(file.rows // 8 for file in marked)
        sizes = self._marked_sizes + Counter(file.size for file in marked)
        if len(found) < len(files) or self._word_bytes + words > MAX_WORD_BYTES or max(sizes.values(), default=0) > MAX_TWINS:
            return None
        self._word_bytes += words
        self._marked_sizes = sizes
        return found

    def _file(self, split: Split, file: DataFileMeta, vectors: BucketVectors) -> NativeFile | None:
        names = self._old_names(file.schema_id)
        if names is None or file.external_path is not None or file_format(file.file_name) != "parquet":
            return None
        path = self._spark_path(self._context.data_file_path(split.bucket.partition, split.bucket.bucket, file))
        if path is None:
            return None
        retractions = _may_hold_retractions(self._context, file)
        return NativeFile(path, file.file_size, names, retractions, file.row_count, vectors.of(file.file_name))

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
            old = {column.id: column for column in self._context.schemas.get(schema_id).fields}
            self._names[schema_id] = _matched(self._fields, old)
        return self._names[schema_id]


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
