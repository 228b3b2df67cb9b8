"""Parquet files put together without decoding: row groups are copied as they are, with one new footer (FORMAT.md, section 12).

What moves with them: places of pages, page indexes and bloom filters. What does not change: pages, with their checksums, and
statistics. Checksums are not verified here, which would cost more than the copy: a damaged page stays damaged, and whatever reads
it next reports it. Only row groups whose files have the same frame (`FooterFrame`) fit into one file: the schema, the writer, by
whose name readers judge what they can trust, and the metadata of the file. Rows that must be decoded come between them as row
groups that are encoded in memory.
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
from paimon_cli.bucket.parquet_chunks import INDEX_GAP, footer_bytes, footer_size, read_ranges
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.metadata.compact_thrift import Number
from paimon_cli.metadata.data_file_schema import FileLayout
from paimon_cli.metadata.encoded_footer import BLOOM, COLUMN_INDEX, OFFSET_INDEX, FooterFrame, Outside, StoredChunk, StoredGroup
from paimon_cli.metadata.parquet_footer import MAGIC, TAIL, PagePlaces, closed, ending
from paimon_cli.options.table_options import TableOptions

MOST_GROUPS = 32_767
"""Row groups of a file: some writers number them in 16 bits."""
WHOLE_BYTES = 4 << 20
"""A file up to this size is read by one request."""
PIECE_BYTES = 4 << 20
"""Bytes of larger ones that are copied at a time."""
CODECS = {"none": {0}, "snappy": {1}, "gzip": {2}, "brotli": {4}, "lz4": {5, 7}, "zstd": {6}}
"""Numbers of codecs in a footer, by the names that Arrow gives them."""


@dataclass
class _CopiedGroup:
    """A row group in its new place: its entry in the footer with the numbers that change, some of which are known in the end."""

    group: StoredGroup
    values: list[tuple[Number, int]]
    outside: list[tuple[Outside, bytes]]

    def footer_entry(self) -> bytes:
        return self.group.entry_with(self.values)


class StoredGroups:
    """The row groups of an open Parquet file. `ValueError` or `LookupError` for one that cannot be copied as it is."""

    def __init__(self, source: BinaryIO, like: FooterFrame | None = None) -> None:
        """`like`: the frame that the file probably has."""
        size = source.seek(0, io.SEEK_END)
        self._source, self._whole = source, None
        if size <= WHOLE_BYTES:
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
            raise ValueError("a column lies outside of it")
        if sum([group.rows for group in self.groups]) != self.rows:
            raise ValueError("its row groups hold another number of rows than its footer says")
        self.codecs = {chunk.codec for chunk in chunks}
        """Numbers of the codecs of all chunks."""
        outside = [part for chunk in chunks for part in chunk.outside]
        contents = read_ranges(self._source, [part.extent for part in outside], INDEX_GAP)
        self._contents = dict(zip(outside, contents, strict=True))
        for part, content in self._contents.items():
            if part.kind == OFFSET_INDEX:
                PagePlaces.decode(content)

    def outside(self, chunk: StoredChunk, distance: int) -> list[tuple[Outside, bytes]]:
        """What belongs to the chunk and lies near the footer, for a chunk that lies `distance` bytes further on."""
        found = [(part, self._contents[part]) for part in chunk.outside]
        return [(part, PagePlaces.moved(data, distance) if part.kind == OFFSET_INDEX else data) for part, data in found]

    def pieces(self, begin: int, end: int) -> Iterator[bytes | memoryview]:
        """The bytes from `begin` to `end`."""
        if self._whole is not None:
            yield self._whole[begin:end]
            return
        for start in range(begin, end, PIECE_BYTES):
            yield from read_ranges(self._source, [(start, min(PIECE_BYTES, end - start))], 0)


class StitchedFile:
    """A Parquet file in the making, of copied row groups and of encoded ones: an encoder that takes both."""

    def __init__(self, sink: BinaryIO, frame: FooterFrame, layout: FileLayout, options: TableOptions, level: int) -> None:
        self._sink = sink
        self._frame = frame
        self._layout, self._options, self._level = layout, options, level
        self._groups: list[_CopiedGroup | bytes] = []
        self._rows = 0
        self._footer = b""
        self._without_bounds: set[str] = set()
        sink.write(MAGIC)
        self._size = len(MAGIC)

    @property
    def is_full(self) -> bool:
        """Whether it has no room for another row group, beside one of rows that wait for being encoded."""
        return len(self._groups) >= MOST_GROUPS - 1

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
        """Copy a row group of a file with the same frame. `without_bounds`: columns whose bounds in the footer are not those of
        all values, as some are NaN."""
        if file.frame != self._frame:
            raise ValueError("its schema or its writer is another one")
        new = _CopiedGroup(group, [], [])
        if group.offset is not None and group.offset.value:
            new.values.append((group.offset, self._size))
        if group.ordinal is not None:
            new.values.append((group.ordinal, len(self._groups)))
        for chunks in _side_by_side(group.chunks):
            begin, end = chunks[0].begin, chunks[-1].end
            distance = self._size - begin
            for piece in file.pieces(begin, end):
                self._sink.write(piece)
            self._size += end - begin
            for chunk in chunks:
                new.values += [(place, place.value + distance) for place in chunk.places]
                if chunk.outside:
                    new.outside += file.outside(chunk, distance)
        self._groups.append(new if new.outside else new.footer_entry())
        self._rows += group.rows
        self._without_bounds.update(without_bounds)

    def close(self) -> None:
        """Bloom filters first, then bounds of pages, then places of pages, as a reader takes all of one kind together."""
        if self._footer:
            return
        waiting = [group for group in self._groups if isinstance(group, _CopiedGroup)]
        for kind in (BLOOM, COLUMN_INDEX, OFFSET_INDEX):
            for group in waiting:
                for part, content in group.outside:
                    if part.kind == kind:
                        group.values += [(part.offset, self._size), (part.size, len(content))]
                        self._sink.write(content)
                        self._size += len(content)
        groups = [group.footer_entry() if isinstance(group, _CopiedGroup) else group for group in self._groups]
        self._footer = self._frame.around(self._rows, groups)
        self._sink.write(self._footer + ending(self._footer))

    def statistics(self, fields: Sequence[DataField]) -> list[ColumnStatistics]:
        footer = pq.read_metadata(pa.BufferReader(closed([], self._footer)))
        leaves = leaf_numbers(self._layout.physical)
        return [footer_statistics(footer, leaves.get(f.name), f.type, f.name in self._without_bounds) for f in fields]


def _side_by_side(chunks: Sequence[StoredChunk]) -> Iterator[list[StoredChunk]]:
    """Chunks between which nothing lies, together."""
    together: list[StoredChunk] = []
    for chunk in chunks:
        if together and together[-1].end != chunk.begin:
            yield together
            together = []
        together.append(chunk)
    if together:
        yield together


def own_frame(layout: FileLayout, options: TableOptions, level: int) -> FooterFrame:
    """The frame of the Parquet files that are encoded for a table."""
    buffer = io.BytesIO()
    ParquetEncoder.of_table(buffer, layout, options, level, layout.physical.empty_table()).close()
    return StoredGroups(buffer).frame
