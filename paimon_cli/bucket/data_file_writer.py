"""Writes rows into data files of one bucket and level, a new one when one is full, and their metadata (FORMAT.md, 5.4 and 7)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from paimon_cli.bucket.column_statistics import KEY_STATS_MODE, simple_stats, truncated
from paimon_cli.bucket.file_encoders import FileEncoder, check_encodable, open_encoder
from paimon_cli.bucket.file_index import FileIndex
from paimon_cli.bucket.file_indexes import SUFFIX, IndexBuilder, IndexedColumn, indexed_columns
from paimon_cli.bucket.stamped_files import DataFileNames
from paimon_cli.bucket.stitched_files import StitchedFile, StoredGroups
from paimon_cli.errors import Refused, StorageUnavailable
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import EMPTY_ROW, SOURCE_APPEND, BucketId, DataFileMeta
from paimon_cli.metadata.data_file_schema import TRACKING_COLUMNS, FileLayout
from paimon_cli.metadata.encoded_footer import FooterFrame, StoredGroup
from paimon_cli.metadata.table_layout import check_partition_types
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.table_options import TableOptions
from paimon_cli.pieces import PIECES
from paimon_cli.storage.deletions import delete_all
from paimon_cli.storage.injected import local_wall_clock


def check_writable(schema: TableSchema, options: TableOptions) -> None:
    """Raise `NotSupported` for columns that data files cannot hold, `UsageError` for a codec that a file format does not have."""
    check_partition_types(schema.types_of(schema.partition_keys))
    indexed_columns(schema, options)
    check_encodable(schema.fields, options)


def group_bytes(options: TableOptions) -> int:
    """Arrow bytes of a row group: `row_group_bytes`, or `file.block-size` if that is less."""
    return min(PIECES.row_group_bytes, options.file_block_size or PIECES.row_group_bytes)


class DataFileWriter:
    """Writes batches in `merge_schema` into files of about `target-file-size` and of at most `target-file-row-num` rows.

    Rows come sorted by primary key, one per key, or in the order of arrival if there is no key. `frame`: the files are Parquet,
    and row groups of other files with that frame can be copied into them. `tracks_rows`: batches are `tracked_rows`.

    `close` returns the metadata of all files, which are durable then; `abort` removes them.
    """

    def __init__(
        self,
        context: TableContext,
        bucket_id: BucketId,
        *,
        level: int,
        source: int,
        names: DataFileNames,
        frame: FooterFrame | None = None,
        tracks_rows: bool = False,
    ) -> None:
        self._context = context
        layout = context.file_layout  # its schema is made once, for all files
        self._layout = replace(layout, tracks_rows=True) if tracks_rows else layout
        self.frame = frame
        self._bucket_id = bucket_id
        self._level = level
        self._source = source
        self._names = names
        self._files: list[DataFileMeta] = []
        self._open: _OpenDataFile | None = None
        self._target = context.mode.target_file_size
        self._row_target = context.options.target_file_row_num
        self._step = min(group_bytes(context.options), self._target)
        self._paths: list[str] = []
        self._indexed = indexed_columns(context.schema, context.options)

    def write(self, batch: pa.RecordBatch) -> None:
        size = batch.nbytes  # Arrow looks at each column, which takes time
        rows = max(1, batch.num_rows * self._step // max(1, size))
        start = 0
        while start < batch.num_rows:
            piece = batch.slice(start, min(rows, self._room()))
            self._write(piece, size * piece.num_rows // batch.num_rows)
            start += piece.num_rows

    def _room(self) -> int:
        """How many more rows the open file, or else the next one, may take."""
        return self._row_target - (0 if self._open is None else self._open.rows)

    def _write(self, batch: pa.RecordBatch, size: int) -> None:
        if self._open is not None and not self._open.takes(batch):
            self._roll()
        if self._open is None:
            self._open = self._new_file(batch)
        self._open.write(batch, size)
        self._roll_if_full()

    def end_file(self) -> None:
        """The next row begins a new file."""
        self._roll()

    def copy(self, file: CopiedFile, first_sequence: int) -> None:
        """Copy all row groups of an append table's file without decoding them.

        Their rows are numbered from `first_sequence` on.
        """
        for group in file.stored.groups:
            self.copy_group(file, group, (first_sequence, first_sequence + group.rows - 1))
            first_sequence += group.rows

    def copy_group(
        self, file: CopiedFile, group: StoredGroup, sequences: tuple[int, int], bounds: pa.RecordBatch | None = None
    ) -> None:
        """Copy one row group, of inserts only. `sequences`: its least and greatest; `bounds`: its first and last key, if any."""
        if self._open is not None and (group.rows > self._room() or not self._open.takes_group):
            self._roll()
        if self._open is None:
            self._open = self._new_file(None)
        self._open.copy(file, group, sequences, bounds)
        self._roll_if_full()

    def _new_file(self, sample: pa.RecordBatch | None) -> _OpenDataFile:
        """`sample`: its first rows, None for a file that starts with a copied row group."""
        options, layout, level, frame = self._context.options, self._layout, self._level, self.frame
        name = self._names.next(options.format_at(level))
        path, recorded = self._context.new_data_file(*self._bucket_id, name)
        self._paths.append(path)
        if self._indexed:
            self._paths.append(path + SUFFIX)

        def encoder(sink: BinaryIO) -> FileEncoder:
            if frame is not None:
                return StitchedFile(sink, frame, layout, options, level)
            assert sample is not None, "only a file that copies row groups begins without rows"
            return open_encoder(sink, layout, options, level, sample)

        return _OpenDataFile(self._context, layout, self._indexed, (name, path, recorded), encoder)

    def _roll_if_full(self) -> None:
        if self._open is not None and (self._open.bytes_written >= self._target or self._room() == 0):
            self._roll()

    def _roll(self) -> None:
        if self._open is not None:
            self._files.append(self._open.close(self._level, self._source))
            self._open = None

    def close(self) -> tuple[DataFileMeta, ...]:
        self._roll()
        return tuple(self._files)

    def abort(self) -> None:
        """Delete every file of this writer, finished or not. Failures to delete are ignored."""
        if self._open is not None:
            self._open.discard()
            self._open = None
        with contextlib.suppress(StorageUnavailable):  # it leaves an orphan, and must not hide the error that led here
            delete_all(self._context.storage, self._paths)


def changelog_writer(context: TableContext, bucket_id: BucketId, level: int, stamp: str) -> DataFileWriter:
    """A writer of changelog files (FORMAT.md, section 9): rows of all four kinds, several of them per key.

    Their file source is APPEND, even if a compaction writes them.
    """
    own = context.redefined(options=context.options.of_changelog_files)
    return DataFileWriter(own, bucket_id, level=level, source=SOURCE_APPEND, names=DataFileNames(own, stamp))


@dataclass(frozen=True)
class CopiedFile:
    """A Parquet file of an append table whose row groups are copied into new files.

    `without_bounds`: columns without statistics of minimum and maximum, because some values may be NaN. `indexes`: its file
    indexes, for the columns that have one in the table's files.
    """

    stored: StoredGroups
    without_bounds: Collection[str]
    indexes: Mapping[IndexedColumn, FileIndex]


class _OpenDataFile:
    """A data file that is being written. `named`: its name, path, and external path, if it is outside of the table."""

    def __init__(
        self,
        context: TableContext,
        layout: FileLayout,
        indexed: Sequence[IndexedColumn],
        named: tuple[str, str, str | None],
        open_encoder: Callable[[BinaryIO], FileEncoder],
    ) -> None:
        self._context = context
        self._layout = layout
        self._name, self._path, self._external_path = named
        self._sink: BinaryIO = context.storage.open_output(self._path)
        try:
            self._encoder = open_encoder(self._sink)
        except BaseException:
            with contextlib.suppress(OSError, StorageUnavailable):
                self._sink.close()
            raise
        self._index = IndexBuilder(indexed, context.options) if indexed else None
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        most = min(group_bytes(context.options), context.mode.target_file_size)
        self._group_bytes = most if self._encoder.has_row_groups else min(most, PIECES.encoded_bytes)
        self._rows = 0
        self._deletes = 0
        self._sequences = (np.iinfo(np.int64).max, np.iinfo(np.int64).min)
        self._ends: list[pa.RecordBatch] = []
        """The first row and the last row, once there are any."""

    @property
    def rows(self) -> int:
        return self._rows

    @property
    def bytes_written(self) -> int:
        return self._sink.tell()

    def takes(self, batch: pa.RecordBatch) -> bool:
        return self._encoder.takes(batch)

    def write(self, batch: pa.RecordBatch, size: int) -> None:
        """`size`: about the bytes of the batch."""
        self._observe(batch)
        self._pending.append(batch)
        self._pending_bytes += size
        if self._pending_bytes >= self._group_bytes:
            self._flush_row_group()

    @property
    def takes_group(self) -> bool:
        """Whether it has room for one more row group."""
        return not isinstance(self._encoder, StitchedFile) or not self._encoder.is_full

    def copy(self, file: CopiedFile, group: StoredGroup, sequences: tuple[int, int], bounds: pa.RecordBatch | None) -> None:
        """Append a row group of another file without decoding it."""
        assert isinstance(self._encoder, StitchedFile)
        self._flush_row_group()
        self._encoder.copy(file.stored, group, file.without_bounds)
        self._count(group.rows, *sequences)
        if bounds is not None:
            self._reach(bounds)
        if self._index is not None:
            self._index.merge(file.indexes)

    def _observe(self, batch: pa.RecordBatch) -> None:
        least, greatest, retractions = self._layout.totals_of(batch)
        self._count(batch.num_rows, least, greatest)
        self._deletes += retractions
        if self._layout.keys:
            self._reach(batch)
        if self._index is not None:
            self._index.add(batch)

    def _reach(self, rows: pa.RecordBatch) -> None:
        if not self._ends:
            self._ends.append(rows.slice(0, 1))
        self._ends[1:] = [rows.slice(rows.num_rows - 1, 1)]

    def _count(self, rows: int, least: int, greatest: int) -> None:
        self._rows += rows
        self._sequences = (min(self._sequences[0], least), max(self._sequences[1], greatest))

    def _flush_row_group(self) -> None:
        if not self._pending:
            return
        rows = self._layout.stored(pa.Table.from_batches(self._pending))
        self._pending, self._pending_bytes = [], 0
        for column in rows.schema:
            if not column.nullable and rows[column.name].null_count:
                what, why = f"column {column.name} of a row is null, and it is NOT NULL", "the merge engine gives it no value"
                hint = f"let the column be null, or set fields.{column.name}.ignore-retract=true if rows are taken back"
                raise Refused(what, why, hint)
        self._encoder.write(rows)

    def close(self, level: int, source: int) -> DataFileMeta:
        self._flush_row_group()
        self._encoder.close()
        size = self._sink.tell()
        self._sink.close()
        return self._with_index(self._meta(size, level, source))

    def _with_index(self, file: DataFileMeta) -> DataFileMeta:
        """The metadata with the file index, which goes into the manifest if it is small, else into a file next to the data
        file.
        """
        if self._index is None:
            return file
        container = self._index.container()
        if len(container) <= self._context.options.file_index_in_manifest_threshold:
            return replace(file, embedded_file_index=container)
        self._context.storage.write_new(self._path + SUFFIX, container)
        return replace(file, extra_files=(*file.extra_files, self._name + SUFFIX))

    def discard(self) -> None:
        """Close the file without finishing it. The storage may be what failed, so its errors are ignored."""
        self._pending = []
        for handle in (self._encoder, self._sink):
            with contextlib.suppress(OSError, StorageUnavailable):
                handle.close()

    def _meta(self, size: int, level: int, source: int) -> DataFileMeta:
        schema, keys, options = self._layout.schema, self._layout.keys, self._context.options
        modes = [*[KEY_STATS_MODE] * len(keys), *(options.stats_mode(f.name, level) for f in schema.fields)]
        full = self._encoder.statistics([*self._layout.fields[: len(keys)], *schema.fields])
        min_key, max_key = [self._layout.keys_of(end)[0] for end in self._ends] if keys else (EMPTY_ROW, EMPTY_ROW)
        columns = [truncated(statistics, mode) for statistics, mode in zip(full, modes, strict=True)]
        low, high = self._layout.recorded(self._sequences)
        names = tuple(schema.field_names) if self._layout.tracks_rows else None
        return DataFileMeta(
            file_name=self._name,
            file_size=size,
            row_count=self._rows,
            min_key=min_key,
            max_key=max_key,
            key_stats=simple_stats(columns[: len(keys)], [f.type for f in keys]),
            value_stats=simple_stats(columns[len(keys) :], [f.type for f in schema.fields]),
            min_sequence_number=low,
            max_sequence_number=high,
            schema_id=schema.id,
            level=level,
            creation_time_millis=local_wall_clock(self._context.clock.now_millis()),
            delete_row_count=self._deletes,
            file_source=source,
            value_stats_cols=names,
            external_path=self._external_path,
            write_cols=None if names is None else (*names, *TRACKING_COLUMNS),
        )
