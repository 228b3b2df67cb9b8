"""The deletion vectors of one bucket: read on demand, and written again when rows are marked (FORMAT.md, section 8).

A position is the number of a row in its data file, from 0. All rows count, in all row groups, also those that are marked already.
A reader that skips row groups or pages must add the rows that it has skipped:

>>> vector = DeletionVector.marking([1, 4], bitmap64=False)  # of a file with two row groups of three rows
>>> vector.live_rows(3).tolist(), vector.live_rows(3, first=3).tolist()
([True, False, True], [True, False, True])
>>> list(vector.with_deleted([5]).positions)
[1, 4, 5]
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from paimon_cli.bucket.stamped_files import INDEX_PREFIX, stamped_uuid
from paimon_cli.errors import DamagedFile, NotSupported
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import DELETION_VECTORS, BucketId, IndexFileMeta
from paimon_cli.metadata.index_files import DeletionVector, decode_deletion_vector, encode_deletion_vectors


@dataclass(frozen=True)
class BucketVectors:
    """Data file name -> its deletion vector; a file without an entry has no deleted rows."""

    by_file: Mapping[str, DeletionVector]

    def of(self, file_name: str) -> DeletionVector | None:
        return self.by_file.get(file_name)


NO_VECTORS = BucketVectors({})


def packed(mask: np.ndarray) -> pa.BooleanArray:
    """The mask (bool) as an Arrow array."""
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, pa.py_buffer(np.packbits(mask, bitorder="little"))])


def live_rows(batch: pa.RecordBatch, live: pa.BooleanArray) -> pa.RecordBatch:
    """The rows where `live` is true."""
    count = live.true_count
    if count == batch.num_rows:
        return batch
    if not batch.num_columns:
        return batch.slice(0, count)
    columns = [_without_validity(column).filter(live) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _without_validity(column: pa.Array) -> pa.Array:
    """A column without nulls without its validity bitmap. Parquet readers add one, and filters take two or three times as long
    with it.
    """
    if column.null_count or pa.types.is_nested(column.type) or pa.types.is_null(column.type):
        return column
    validity, *buffers = column.buffers()
    if validity is None:
        return column
    if pa.types.is_dictionary(column.type):
        indices = pa.Array.from_buffers(column.type.index_type, len(column), [None, *buffers], 0, column.offset)
        return pa.DictionaryArray.from_arrays(indices, column.dictionary, safe=False)
    return pa.Array.from_buffers(column.type, len(column), [None, *buffers], 0, column.offset)


def vector_files(bucket: BucketFiles) -> tuple[IndexFileMeta, ...]:
    """The index files of the bucket that hold deletion vectors."""
    return tuple(index for index in bucket.index_files if index.index_type == DELETION_VECTORS)


def load_vectors(context: TableContext, bucket: BucketFiles) -> BucketVectors:
    """The vectors that the bucket's index files list. Each is decoded on first access; an index file is read once per context."""
    stored: dict[str, _StoredVector] = {}
    for index in vector_files(bucket):
        if index.external_path is not None:
            why = "external paths are not supported"
            raise NotSupported(f"index file {index.file_name} of {context.url} lies outside of the table", why)
        for entry in index.deletion_vector_ranges or ():
            stored[entry.data_file_name] = _StoredVector(index, entry.offset, entry.length)
    return BucketVectors(_StoredVectors(context, bucket.bucket_id, stored)) if stored else NO_VECTORS


@dataclass(frozen=True)
class _StoredVector:
    index: IndexFileMeta
    offset: int
    length: int


@dataclass(frozen=True, eq=False)
class _StoredVectors(Mapping[str, DeletionVector]):
    context: TableContext
    bucket_id: BucketId
    stored: dict[str, _StoredVector]
    decoded: dict[str, DeletionVector] = field(default_factory=dict)

    def __getitem__(self, name: str) -> DeletionVector:
        if name not in self.decoded:
            vector = self.stored[name]
            path = self.context.layout.index(vector.index.file_name)
            content = self.context.cache.index_files.content(path, functools.partial(self._read, vector.index, path))
            self.decoded[name] = decode_deletion_vector(content, vector.offset, vector.length, path)
        return self.decoded[name]

    def __contains__(self, name: object) -> bool:
        return name in self.stored

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored)

    def __len__(self) -> int:
        return len(self.stored)

    def _read(self, index: IndexFileMeta, path: str) -> bytes:
        bucket_path, count = self.context.bucket_path(*self.bucket_id), len(index.deletion_vector_ranges or ())
        with self.context.trace.timed("deletion_vectors", bucket=bucket_path, file=index.file_name, vectors=count) as facts:
            try:
                content = self.context.storage.read_bytes(path)
            except FileNotFoundError as error:
                raise DamagedFile(f"index file {path} is missing", "the snapshot's index manifest names it", path=path) from error
            facts["bytes"] = len(content)
        return content


class ChangedVectors:
    """The vectors of a bucket while a compaction, an update or a delete changes them.

    Nothing is written before `write`, which creates new index files: existing ones are never changed.
    """

    def __init__(self, context: TableContext, bucket: BucketFiles, file_stamp: str) -> None:
        self._context = context
        self._bucket = bucket
        self._stamp = file_stamp
        self.before = load_vectors(context, bucket)
        self._marked: dict[str, DeletionVector] = {}
        self._dropped: set[str] = set()

    def mark(self, file_name: str, positions: Any) -> None:
        """Mark rows of a data file as deleted. `positions`: an array or a bitmap; rows may be marked already."""
        if not len(positions):
            return
        vector = self._marked.get(file_name) or self.before.of(file_name)
        if vector is None:
            self._marked[file_name] = DeletionVector.marking(positions, bitmap64=self._context.options.deletion_vectors_bitmap64)
        else:
            self._marked[file_name] = vector.with_deleted(positions)

    def drop(self, file_name: str) -> None:
        """Drop the vector of a data file that is being removed."""
        if file_name in self.before.by_file or file_name in self._marked:
            self._dropped.add(file_name)

    def write(self, live: frozenset[str]) -> tuple[tuple[IndexFileMeta, ...], tuple[IndexFileMeta, ...]]:
        """Write new index files. Returns (removed, added) index files, both empty if nothing has changed.

        `live`: names of the bucket's data files before the change; vectors of other files, left by another engine, are dropped.
        """
        if not (self._marked or self._dropped) and live.issuperset(self.before.by_file):
            return (), ()
        if not self._context.mode.bucket_mode.has_buckets:
            return self._rewritten_in_part(live)
        names = dict.fromkeys([*self.before.by_file, *self._marked])
        vectors = {name: self._vector(name) for name in names if name not in self._dropped and name in live}
        return vector_files(self._bucket), tuple(self._written(vectors, None)) if vectors else ()

    def _rewritten_in_part(self, live: frozenset[str]) -> tuple[tuple[IndexFileMeta, ...], tuple[IndexFileMeta, ...]]:
        """`write` for a table without buckets: rewrites only index files with vectors that change, without these, and puts the
        new vectors into files of their own (Java AppendDeleteFileMaintainer).

        A bucket has one index file for all vectors instead, because some engines read only one.
        """
        removed: list[IndexFileMeta] = []
        added: list[IndexFileMeta] = []
        target = self._context.options.deletion_vector_index_file_target_size
        for index in vector_files(self._bucket):
            names = [entry.data_file_name for entry in index.deletion_vector_ranges or ()]
            unchanged = [name for name in names if name in live and name not in self._dropped and name not in self._marked]
            if len(unchanged) < len(names):
                removed.append(index)
                added += self._written({name: self._vector(name) for name in unchanged}, target) if unchanged else ()
        marked = {name: vector for name, vector in self._marked.items() if name in live and name not in self._dropped}
        added += self._written(marked, target) if marked else ()
        return tuple(removed), tuple(added)

    def _vector(self, name: str) -> DeletionVector:
        return self._marked.get(name) or self.before.by_file[name]

    def _written(self, vectors: Mapping[str, DeletionVector], target_size: int | None) -> Iterator[IndexFileMeta]:
        context, bucket = self._context, self._bucket
        uuid = stamped_uuid(context, self._stamp)
        for number, (content, ranges) in enumerate(encode_deletion_vectors(vectors, target_size)):
            name = f"{INDEX_PREFIX}{uuid}-{number}"
            marked = sum(entry.cardinality or 0 for entry in ranges)
            facts = {"bucket": context.bucket_path(*bucket.bucket_id), "file": name, "vectors": len(ranges), "marked": marked}
            with context.trace.timed("write_deletion_vectors", **facts, bytes=len(content)):
                context.storage.write_new(context.layout.index(name), content)
            yield IndexFileMeta(DELETION_VECTORS, name, len(content), len(ranges), ranges)
