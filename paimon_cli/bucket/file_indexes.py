"""Bloom filters of data files: built while a file is written, looked up before it is read (FORMAT.md, section 7.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from paimon_cli.datatypes.field_types import DataField
from paimon_cli.datatypes.index_hash import index_hashes
from paimon_cli.datatypes.values import values_to_arrow
from paimon_cli.errors import DamagedFile, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.bloom_filter import BloomFilter
from paimon_cli.metadata.data_file import DataFileMeta
from paimon_cli.metadata.file_index import decode_file_index, encode_file_index
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.option_text import read_option, share, whole_number
from paimon_cli.options.table_options import TableOptions

BLOOM = "bloom-filter"
SUFFIX = ".index"
COLUMNS_OPTION = "file-index.bloom-filter.columns"
DEFAULT_ITEMS, DEFAULT_FALSE_POSITIVES = 1_000_000, 0.1


def indexed_columns(schema: TableSchema, options: TableOptions) -> tuple[DataField, ...]:
    """Columns of `file-index.bloom-filter.columns`. UsageError for unknown ones, NotSupported for types without a hash."""
    names = [name.strip() for name in options.raw.get(COLUMNS_OPTION, "").split(",") if name.strip()]
    fields = schema.fields_of(dict.fromkeys(names))
    for field in fields:
        index_hashes(values_to_arrow([], field.type), field.type)
    return fields


class IndexBuilder:
    """The indexes of one file in the making."""

    def __init__(self, context: TableContext) -> None:
        fields = indexed_columns(context.schema, context.options)
        self._filters = {field: _empty_filter(context.options, field.name) for field in fields}

    def add(self, batch: pa.RecordBatch) -> None:
        for field, bloom in self._filters.items():
            bloom.add(index_hashes(batch.column(field.name), field.type))

    def container(self) -> bytes | None:
        """None when no column is indexed."""
        if not self._filters:
            return None
        return encode_file_index({field.name: {BLOOM: bloom.to_bytes()} for field, bloom in self._filters.items()})


def _empty_filter(options: TableOptions, column: str) -> BloomFilter:
    prefix = f"file-index.{BLOOM}.{column}."
    items, rate = options.raw.get(f"{prefix}items"), options.raw.get(f"{prefix}fpp")
    count = DEFAULT_ITEMS if items is None else read_option(f"{prefix}items", items, whole_number(1))
    wrong = DEFAULT_FALSE_POSITIVES if rate is None else read_option(f"{prefix}fpp", rate, share)
    if not 0 < wrong < 1:
        raise UsageError(f"option '{prefix}fpp' cannot be '{rate}'", "allowed: a number between 0 and 1")
    return BloomFilter.sized(count, wrong)


class FileFilters:
    """The bloom filters of one data file, by its own column names; read when first asked."""

    def __init__(self, context: TableContext, partition: bytes, bucket: int, file: DataFileMeta) -> None:
        self._context, self._partition, self._bucket, self._file = context, partition, bucket, file
        self._bodies: dict[str, dict[str, bytes | None]] | None = None

    @staticmethod
    def has_any(file: DataFileMeta) -> bool:
        return file.embedded_file_index is not None or any(name.endswith(SUFFIX) for name in file.extra_files)

    def may_hold(self, column: DataField, values: Sequence[Any]) -> bool:
        """False only if none of the values, of the file's own type, is in the column."""
        body = self._container().get(column.name, {}).get(BLOOM)
        if body is None:
            return True
        try:
            bloom = BloomFilter.from_bytes(body)
        except ValueError as error:
            raise self._damaged(str(error)) from error
        return bool(bloom.may_hold(index_hashes(values_to_arrow(values, column.type), column.type)).any())

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
        name = next(name for name in self._file.extra_files if name.endswith(SUFFIX))
        return self._context.data_file_path_of(self._partition, self._bucket, name)

    def _damaged(self, why: str) -> DamagedFile:
        path = self._path() if self._file.embedded_file_index is None else self._file.file_name
        hint = "read with --option file-index.read.enabled=false"
        return DamagedFile(f"the file index of {path} is damaged", why, hint, path=path)
