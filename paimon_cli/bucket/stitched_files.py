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
from typing import BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from paimon_cli.bucket.column_statistics import ColumnStatistics, footer_statistics, leaf_numbers
from paimon_cli.bucket.file_encoders import ParquetEncoder
from paimon_cli.bucket.parquet_chunks import INDEX_GAP, footer_bytes, read_ranges
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.metadata.compact_thrift import EncodedStruct, Number
from paimon_cli.metadata.data_file_schema import FileLayout
from paimon_cli.metadata.parquet_footer import MAGIC, TAIL, FooterFrame, PagePlaces, closed, ending
from paimon_cli.options.table_options import TableOptions

MOST_GROUPS = 32_767
"""Row groups of a file: some writers number them in 16 bits."""
WHOLE_BYTES = 4 << 20
"""A file up to this size is read by one request."""
PIECE_BYTES = 4 << 20
"""Bytes of larger ones that are copied at a time."""
CODECS = {"none": {0}, "snappy": {1}, "gzip": {2}, "brotli": {4}, "lz4": {5, 7}, "zstd": {6}}
"""Numbers of codecs in a footer, by the names that Arrow gives them."""
_DATA = 9
_OTHER_PAGES = (10, 11)
"""Fields of a chunk's metadata: where its data pages begin, and its index page and its dictionary page, if it has any."""
_ELSEWHERE = frozenset({1, 8, 9})
"""Fields of a chunk that lies in another file, or is encrypted."""
_BLOOM, _COLUMN_INDEX, _OFFSET_INDEX = 14, 6, 4
"""Fields for the place of what lies outside of a chunk's pages, each followed by one for its length. The first belongs to its
metadata."""


class _Outside(NamedTuple):
    """What belongs to a chunk and lies near the footer: what it is, and the numbers in the footer that say where and how long."""

    kind: int
    offset: Number
    size: Number

    @property
    def extent(self) -> tuple[int, int]:
        return self.offset.value, self.size.value


class _Chunk(NamedTuple):
    """`places`: the numbers that say where its pages begin."""

    begin: int
    end: int
    codec: int
    places: tuple[Number, ...]
    outside: tuple[_Outside, ...]

    @staticmethod
    def of(listed: EncodedStruct, end_of_data: int) -> _Chunk:
        if not _ELSEWHERE.isdisjoint(listed.others):
            raise ValueError("a column is encrypted, or in another file")
        (metadata,) = listed.parts[3]
        numbers, own = metadata.numbers, listed.numbers
        pages = [numbers[_DATA], *(numbers[field] for field in _OTHER_PAGES if field in numbers and numbers[field].value)]
        begins = [page.value for page in pages]
        begin = min(begins)
        end = begin + numbers[7].value
        if not len(MAGIC) <= begin <= max(begins) <= end <= end_of_data:
            raise ValueError("a column lies outside of it")
        outside = [
            _Outside(kind, owner[kind], owner[kind + 1])
            for owner, kind in ((numbers, _BLOOM), (own, _COLUMN_INDEX), (own, _OFFSET_INDEX))
            if kind in owner and owner[kind].value
        ]
        if 2 in own and own[2].value:
            pages.append(own[2])
        return _Chunk(begin, end, numbers[4].value, tuple(pages), tuple(outside))


class StoredGroup(NamedTuple):
    """A row group that can be copied."""

    encoded: EncodedStruct
    chunks: tuple[_Chunk, ...]

    @property
    def rows(self) -> int:
        return self.encoded.numbers[3].value

    @property
    def size(self) -> int:
        return sum(chunk.end - chunk.begin for chunk in self.chunks)


@dataclass
class _CopiedGroup:
    """A row group in its new place: its entry in the footer with the numbers that change, some of which are known in the end."""

    encoded: EncodedStruct
    values: dict[Number, int]
    outside: list[tuple[_Outside, bytes]]

    def footer_entry(self) -> bytes:
        return self.encoded.replaced(self.values)


class StoredGroups:
    """The row groups of an open Parquet file. `ValueError` or `LookupError` for one that cannot be copied as it is."""

    def __init__(self, source: BinaryIO) -> None:
        size = source.seek(0, io.SEEK_END)
        self._source, self._whole = source, None
        if size <= WHOLE_BYTES:
            source.seek(0)
            whole = source.read()
            self._source, self._whole = io.BytesIO(whole), memoryview(whole)
        footer = footer_bytes(self._source)
        end = size - len(footer) - TAIL
        self.frame, self.rows, listed = FooterFrame.split(footer)
        self.groups = [StoredGroup(one, tuple(_Chunk.of(chunk, end) for chunk in one.parts[1])) for one in listed]
        if sum(group.rows for group in self.groups) != self.rows:
            raise ValueError("its row groups hold another number of rows than its footer says")
        outside = [part for group in self.groups for chunk in group.chunks for part in chunk.outside]
        contents = read_ranges(self._source, [part.extent for part in outside], INDEX_GAP)
        self._contents = dict(zip(outside, contents, strict=True))
        for part, content in self._contents.items():
            if part.kind == _OFFSET_INDEX:
                PagePlaces.decode(content)

    @property
    def codecs(self) -> set[int]:
        """Numbers of the codecs of all chunks."""
        return {chunk.codec for group in self.groups for chunk in group.chunks}

    def outside(self, chunk: _Chunk, distance: int) -> list[tuple[_Outside, bytes]]:
        """What belongs to the chunk and lies near the footer, for a chunk that lies `distance` bytes further on."""
        found = [(part, self._contents[part]) for part in chunk.outside]
        return [(part, PagePlaces.moved(data, distance) if part.kind == _OFFSET_INDEX else data) for part, data in found]

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
        encoded, new = group.encoded, _CopiedGroup(group.encoded, {}, [])
        if encoded.value(5):
            new.values[encoded.numbers[5]] = self._sink.tell()
        if 7 in encoded.numbers:
            new.values[encoded.numbers[7]] = len(self._groups)
        for chunks in _side_by_side(group.chunks):
            distance = self._sink.tell() - chunks[0].begin
            for piece in file.pieces(chunks[0].begin, chunks[-1].end):
                self._sink.write(piece)
            for chunk in chunks:
                new.values.update((place, place.value + distance) for place in chunk.places)
                new.outside += file.outside(chunk, distance)
        self._groups.append(new if new.outside else new.footer_entry())
        self._rows += group.rows
        self._without_bounds.update(without_bounds)

    def close(self) -> None:
        """Bloom filters first, then bounds of pages, then places of pages, as a reader takes all of one kind together."""
        if self._footer:
            return
        waiting = [group for group in self._groups if isinstance(group, _CopiedGroup)]
        for kind in (_BLOOM, _COLUMN_INDEX, _OFFSET_INDEX):
            for group in waiting:
                for part, content in group.outside:
                    if part.kind == kind:
                        group.values |= {part.offset: self._sink.tell(), part.size: len(content)}
                        self._sink.write(content)
        groups = [group.footer_entry() if isinstance(group, _CopiedGroup) else group for group in self._groups]
        self._footer = self._frame.around(self._rows, groups)
        self._sink.write(self._footer + ending(self._footer))

    def statistics(self, fields: Sequence[DataField]) -> list[ColumnStatistics]:
        footer = pq.read_metadata(pa.BufferReader(closed([], self._footer)))
        leaves = leaf_numbers(self._layout.physical)
        return [footer_statistics(footer, leaves.get(f.name), f.type, f.name in self._without_bounds) for f in fields]


def _side_by_side(chunks: Sequence[_Chunk]) -> Iterator[list[_Chunk]]:
    """Chunks between which nothing lies, together."""
    together: list[_Chunk] = []
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
