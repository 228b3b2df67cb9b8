"""Combines Parquet files without decoding them: row groups are copied, and get one new footer (FORMAT.md, section 12).

Pages, with their checksums, and statistics stay as they are; page indexes, bloom filters and the offsets of pages are adjusted.
Checksums are not verified, which would cost more than the copy: a damaged page stays damaged, and the next reader reports it.
Row groups fit into one file only if their files have the same frame (`FooterFrame`): schema, file metadata, and the writer, whose
name tells readers what they can trust. Rows that had to be decoded are added as row groups encoded in memory.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from paimon_cli.bucket.column_statistics import ColumnStatistics, footer_statistics, leaf_numbers
from paimon_cli.bucket.file_encoders import ParquetEncoder
from paimon_cli.bucket.parquet_chunks import footer_bytes, footer_size, read_ranges
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.metadata.compact_thrift import Number
from paimon_cli.metadata.data_file_schema import FileLayout
from paimon_cli.metadata.encoded_footer import BLOOM, COLUMN_INDEX, OFFSET_INDEX, FooterFrame, Outside, StoredChunk, StoredGroup
from paimon_cli.metadata.parquet_footer import PARQUET_MAGIC, TAIL, PageLocations, closed, ending, without_bounds
from paimon_cli.options.table_options import TableOptions
from paimon_cli.pieces import PIECES

MAX_GROUPS = 32_767
"""Row groups of a file, because some writers number them in 16 bits."""
CODEC_NUMBERS = {"none": {0}, "snappy": {1}, "gzip": {2}, "brotli": {4}, "lz4": {5, 7}, "zstd": {6}}
"""Arrow's name of a codec -> its numbers in footers."""


@dataclass
class _CopiedGroup:
    """A copied row group. `values`: new values of numbers in its footer entry; some are known only when the file is closed.
    `outside`: its page indexes and bloom filters, which are written at the end.
    """

    group: StoredGroup
    values: list[tuple[Number, int]]
    outside: list[tuple[Outside, bytes]]

    def footer_entry(self) -> bytes:
        return self.group.entry_with(self.values)


class StoredGroups:
    """The row groups of an open Parquet file. Raises `ValueError` or `LookupError` for a file that cannot be copied."""

    def __init__(self, source: BinaryIO, like: FooterFrame | None = None) -> None:
        """`like`: a frame that the file probably has, which saves decoding its own."""
        size = source.seek(0, io.SEEK_END)
        self._source, self._whole = source, None
        if size <= PIECES.stitched_whole_bytes:
            source.seek(0)
            whole = source.read()
            self._source, self._whole = io.BytesIO(whole), memoryview(whole)
            end = size - footer_size(whole, size) - TAIL
            footer = whole[end:-TAIL]
        else:
            footer = footer_bytes(source)
            end = size - len(footer) - TAIL
        self.frame, self.rows, self.groups = FooterFrame.split(footer, like)
        chunks = [chunk for group in self.groups for chunk in group.chunks]
        if chunks and max([chunk.end for chunk in chunks]) > end:
            raise ValueError("a column chunk lies outside the file")
        if sum([group.rows for group in self.groups]) != self.rows:
            raise ValueError("its row groups hold another number of rows than its footer says")
        self.codecs = {chunk.codec for chunk in chunks}
        """The numbers of all codecs used in the file."""
        outside = [part for chunk in chunks for part in chunk.outside]
        contents = read_ranges(self._source, [part.extent for part in outside], PIECES.index_gap_bytes)
        self._contents = dict(zip(outside, contents, strict=True))
        for part, content in self._contents.items():
            if part.kind == OFFSET_INDEX:
                PageLocations.decode(content)

    def outside(self, chunk: StoredChunk, distance: int) -> list[tuple[Outside, bytes]]:
        """The page indexes and bloom filter of a chunk, adjusted to the chunk being moved by `distance` bytes."""
        contents = [(part, self._contents[part]) for part in chunk.outside]
        return [(part, PageLocations.moved(data, distance) if part.kind == OFFSET_INDEX else data) for part, data in contents]

    def pieces(self, begin: int, end: int) -> Iterator[bytes | memoryview]:
        """The bytes of the file from `begin` to `end`, in pieces."""
        if self._whole is not None:
            yield self._whole[begin:end]
            return
        for start in range(begin, end, PIECES.stitched_piece_bytes):
            yield from read_ranges(self._source, [(start, min(PIECES.stitched_piece_bytes, end - start))], 0)


class StitchedFile:
    """A `FileEncoder` of a Parquet file that also accepts row groups of other files."""

    has_row_groups = True

    def __init__(self, sink: BinaryIO, frame: FooterFrame, layout: FileLayout, options: TableOptions, level: int) -> None:
        self._sink = sink
        self._frame = frame
        self._layout, self._options, self._level = layout, options, level
        self._groups: list[_CopiedGroup | bytes] = []
        self._rows = 0
        self._footer = b""
        self._leaves = leaf_numbers(layout.physical)
        self._without_bounds: set[tuple[int, int]] = set()
        """Row group and leaf of the chunks that may hold NaN."""
        sink.write(PARQUET_MAGIC)
        self._size = len(PARQUET_MAGIC)

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another copied row group, with one kept for rows that are not encoded yet."""
        return len(self._groups) >= MAX_GROUPS - 1

    def takes(self, rows: pa.RecordBatch) -> bool:
        return not self.is_full

    def write(self, rows: pa.Table) -> None:
        """Encode the rows as a row group."""
        buffer = io.BytesIO()
        encoder = ParquetEncoder.of_table(buffer, self._layout, self._options, self._level, rows)
        encoder.write(rows)
        encoder.close()
        encoded = StoredGroups(buffer)
        for group in encoded.groups:
            self.copy(encoded, group, encoder.with_nan)

    def copy(self, file: StoredGroups, group: StoredGroup, without_bounds: Iterable[str]) -> None:
        """Copy a row group of a file with the same frame. `without_bounds`: columns that may hold NaN, for which bounds in its
        footer are not valid.

        Example: a row group in bytes 4 to 704 of its file is copied into one that has 1,004 bytes already, and one row group:

        | part | before | after |
        |---|---|---|
        | pages, with their checksums | 4 to 704 | 1,004 to 1,704, the same bytes |
        | offsets of pages, in the footer and in offset indexes | n | n + 1,000 |
        | number of the row group | 0 | 1 |
        | column index, offset index, Bloom filter | behind the pages | behind all row groups (`close`) |
        """
        if file.frame != self._frame:
            raise ValueError("it has another schema or writer")
        new = _CopiedGroup(group, [], [])
        if group.offset is not None and group.offset.value:
            new.values.append((group.offset, self._size))
        if group.ordinal is not None:
            new.values.append((group.ordinal, len(self._groups)))
        for chunks in _contiguous(group.chunks):
            begin, end = chunks[0].begin, chunks[-1].end
            distance = self._size - begin
            for piece in file.pieces(begin, end):
                self._sink.write(piece)
            self._size += end - begin
            for chunk in chunks:
                new.values += [(offset, offset.value + distance) for offset in chunk.offsets]
                if chunk.outside:
                    new.outside += file.outside(chunk, distance)
        self._without_bounds.update((len(self._groups), self._leaves[name]) for name in without_bounds)
        self._groups.append(new if new.outside else new.footer_entry())
        self._rows += group.rows

    def close(self) -> None:
        """Write bloom filters, column indexes, offset indexes and the footer. Readers fetch all parts of one kind at once."""
        if self._footer:
            return
        with_parts = [group for group in self._groups if isinstance(group, _CopiedGroup)]
        for kind in (BLOOM, COLUMN_INDEX, OFFSET_INDEX):
            for group in with_parts:
                for part, content in group.outside:
                    if part.kind == kind:
                        group.values += [(part.offset, self._size), (part.size, len(content))]
                        self._sink.write(content)
                        self._size += len(content)
        groups = [group.footer_entry() if isinstance(group, _CopiedGroup) else group for group in self._groups]
        self._footer = self._frame.around(self._rows, groups)
        if self._without_bounds:
            self._footer = without_bounds(self._footer, self._without_bounds)
        self._sink.write(self._footer + ending(self._footer))

    def statistics(self, fields: Sequence[DataField]) -> list[ColumnStatistics]:
        footer = pq.read_metadata(pa.BufferReader(closed([], self._footer)))
        with_nan = {leaf for _, leaf in self._without_bounds}
        leaves = [self._leaves.get(field.name) for field in fields]
        return [footer_statistics(footer, leaf, f.type, leaf in with_nan) for leaf, f in zip(leaves, fields, strict=True)]


def _contiguous(chunks: Sequence[StoredChunk]) -> Iterator[list[StoredChunk]]:
    """Lists of chunks without gaps between them."""
    neighbours: list[StoredChunk] = []
    for chunk in chunks:
        if neighbours and neighbours[-1].end != chunk.begin:
            yield neighbours
            neighbours = []
        neighbours.append(chunk)
    if neighbours:
        yield neighbours


def own_frame(layout: FileLayout, options: TableOptions, level: int) -> FooterFrame:
    """The frame of the Parquet files that this version writes for a table."""
    buffer = io.BytesIO()
    ParquetEncoder.of_table(buffer, layout, options, level, layout.physical.empty_table()).close()
    return StoredGroups(buffer).frame
