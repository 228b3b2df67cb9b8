"""The file indexes of data files: built while a file is written, consulted before it is read (FORMAT.md, section 7.4).

A file has one container, which holds the index of each kind and column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from paimon_cli.bucket.bitmap_index import BitmapKind
from paimon_cli.bucket.bloom_index import BloomKind
from paimon_cli.bucket.bsi_index import BsiKind
from paimon_cli.bucket.file_index import FileIndex, IndexKind
from paimon_cli.bucket.range_bitmap_index import RangeBitmapKind
from paimon_cli.datatypes.arrow_types import values_to_arrow
from paimon_cli.datatypes.data_type import DataField, DataType
from paimon_cli.errors import DamagedFile, NotSupported
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import DataFileMeta
from paimon_cli.metadata.index_files import decode_file_index, encode_file_index
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.table_options import TableOptions

INDEX_KINDS: tuple[IndexKind, ...] = (BloomKind(), BitmapKind(), BsiKind(), RangeBitmapKind())
"""All kinds that this version writes and reads. Others, in files of other writers, are ignored."""
SUFFIX = ".index"


@dataclass(frozen=True)
class IndexedColumn:
    """A column that has an index of a kind."""

    kind: IndexKind
    field: DataField


def indexed_columns(schema: TableSchema, options: TableOptions) -> tuple[IndexedColumn, ...]:
    """The columns of the options `file-index.KIND.columns`.

    `UsageError` for unknown columns, `NotSupported` for types that a kind cannot index.
    """
    found: list[IndexedColumn] = []
    for kind in INDEX_KINDS:
        names = [name.strip() for name in options.raw.get(kind.columns_option, "").split(",") if name.strip()]
        for field in schema.fields_of(dict.fromkeys(names)):
            try:
                kind.check(field)
            except NotSupported as limit:
                limit.why = f"{limit.why}; {kind.columns_option} names column '{field.name}'"
                raise
            found.append(IndexedColumn(kind, field))
    return tuple(found)


def is_consulted(t: DataType) -> bool:
    """Whether readers consult an index of any kind for a column of this type."""
    return any(kind.is_consulted(t) for kind in INDEX_KINDS)


class IndexBuilder:
    """The file index of a data file that is being written."""

    def __init__(self, columns: Sequence[IndexedColumn], options: TableOptions) -> None:
        self.indexes: Mapping[IndexedColumn, FileIndex] = {column: column.kind.empty(column.field, options) for column in columns}

    def add(self, batch: pa.RecordBatch) -> None:
        for column, index in self.indexes.items():
            index.add(batch.column(column.field.name))

    def merge(self, others: Mapping[IndexedColumn, FileIndex]) -> None:
        """Add all values of another file, given by its indexes (`FileIndexes.fitting`)."""
        for column, index in self.indexes.items():
            index.merge(others[column])

    def container(self) -> bytes:
        bodies: dict[str, dict[str, bytes | None]] = {}
        for column, index in self.indexes.items():
            if (body := index.to_bytes()) is not None:
                bodies.setdefault(column.field.name, {})[column.kind.name] = body
        return encode_file_index(bodies)


def without_index(file: DataFileMeta) -> DataFileMeta:
    """The file as a manifest lists it without its file index; the data file itself is the same."""
    extra = tuple(name for name in file.extra_files if not name.endswith(SUFFIX))
    return replace(file, embedded_file_index=None, extra_files=extra)


class FileIndexes:
    """The indexes of one data file, by the column names of its own schema. They are read on first use."""

    def __init__(self, context: TableContext, partition: bytes, bucket: int, file: DataFileMeta) -> None:
        self._context, self._partition, self._bucket, self._file = context, partition, bucket, file
        self._bodies: dict[str, dict[str, bytes | None]] | None = None

    @staticmethod
    def has_any(file: DataFileMeta) -> bool:
        return file.embedded_file_index is not None or any(name.endswith(SUFFIX) for name in file.extra_files)

    def may_hold(self, field: DataField, values: Sequence[Any]) -> bool:
        """False only if none of the values is in the column. `field`, `values`: as in the file's own schema."""
        column = values_to_arrow(values, field.type)
        answers = [index.may_hold(column) for index in self._consulted(field)]
        return not answers or bool(np.logical_and.reduce(answers).any())

    def bounds(self, field: DataField) -> tuple[Any, Any] | None:
        """The least and the greatest value of the column, as internal values; None if no index tells."""
        return next((known for index in self._consulted(field) if (known := index.bounds()) is not None), None)

    def known(self, fields: Sequence[DataField]) -> list[tuple[DataField, FileIndex]]:
        """The indexes that reads consult for these columns. `fields`: as in the file's own schema."""
        return [(field, index) for field in fields for index in self._consulted(field)] if self.has_any(self._file) else []

    def fitting(self, columns: Sequence[IndexedColumn], options: TableOptions) -> dict[IndexedColumn, FileIndex] | None:
        """The indexes of these columns; None unless the file has all of them, with the settings that the options ask for."""
        indexes: dict[IndexedColumn, FileIndex] = {}
        for column in columns:
            index = self._index(column) if self.has_any(self._file) else None
            if index is None or not column.kind.empty(column.field, options).fits(index):
                return None
            indexes[column] = index
        return indexes

    def _consulted(self, field: DataField) -> list[FileIndex]:
        columns = (IndexedColumn(kind, field) for kind in INDEX_KINDS if kind.is_consulted(field.type))
        return [index for column in columns if (index := self._index(column)) is not None]

    def _index(self, column: IndexedColumn) -> FileIndex | None:
        body = self._container().get(column.field.name, {}).get(column.kind.name)
        try:
            return None if body is None else column.kind.decoded(column.field, body, self._file.row_count)
        except ValueError as error:
            raise self._damaged(str(error)) from error

    def _container(self) -> Mapping[str, Mapping[str, bytes | None]]:
        if self._bodies is None:
            try:
                self._bodies = decode_file_index(self._bytes())
            except ValueError as error:
                raise self._damaged(str(error)) from error
        return self._bodies

    def _bytes(self) -> bytes:
        if self._file.embedded_file_index is not None:
            return self._file.embedded_file_index
        try:
            return self._context.storage.read_bytes(self._path())
        except FileNotFoundError as error:
            raise self._damaged("it is missing") from error

    def _path(self) -> str:
        paths = self._context.file_paths(self._partition, self._bucket, self._file)
        return next(path for path in islice(paths, 1, None) if path.endswith(SUFFIX))

    def _damaged(self, why: str) -> DamagedFile:
        path = self._path() if self._file.embedded_file_index is None else self._file.file_name
        hint = "read with --option file-index.read.enabled=false"
        return DamagedFile(f"the file index of {path} is damaged", why, hint, path=path)
