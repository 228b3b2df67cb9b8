"""Parquet footers whose row groups stay encoded, for copying row groups between files (FORMAT.md, section 12).

A row group that is copied into another file keeps its footer entry, except for the numbers that hold offsets, so only these are
decoded. Entries laid out as known writers do are matched by a regular expression, several times faster than reading them field by
field. Malformed bytes raise `ValueError` or `LookupError`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from paimon_cli.metadata.compact_thrift import (
    BINARY,
    FALSE,
    I32,
    I64,
    LIST,
    STRUCT,
    TRUE,
    EncodedStruct,
    Number,
    Wanted,
    encoded_struct,
    encoded_structs,
    list_head,
    put_list_head,
    put_number,
    read_number,
    skip,
)
from paimon_cli.metadata.parquet_footer import PARQUET_MAGIC, Footer

BLOOM, COLUMN_INDEX, OFFSET_INDEX = 14, 6, 4
"""Field numbers of the offsets of a chunk's Bloom filter and page indexes; the field after each holds the length. The first is in
the chunk's metadata, the others are in the chunk itself."""
_CODEC, _SIZE, _DATA, _INDEX, _DICTIONARY = 4, 7, 9, 10, 11
"""Field numbers in a chunk's metadata; the last three hold the offsets of its data, index and dictionary pages."""
_METADATA_NUMBERS: Wanted = dict.fromkeys((_CODEC, _SIZE, _DATA, _INDEX, _DICTIONARY, BLOOM, BLOOM + 1))
_OFFSET, _METADATA = 2, 3
_CHUNK_NUMBERS: Wanted = {**dict.fromkeys((_OFFSET, 4, 5, 6, 7)), _METADATA: _METADATA_NUMBERS}
_ELSEWHERE = frozenset({1, 8, 9})
"""Field numbers that only chunks in another file or encrypted chunks have."""
_CHUNKS, _ROW_COUNT, _BEGIN, _ORDINAL = 1, 3, 5, 7
_GROUP_NUMBERS: Wanted = {**dict.fromkeys((_ROW_COUNT, _BEGIN, _ORDINAL)), _CHUNKS: _CHUNK_NUMBERS}


class Outside(NamedTuple):
    """A Bloom filter or page index of a chunk: its kind, and the footer's numbers that hold its offset and size."""

    kind: int
    offset: Number
    size: Number

    @property
    def extent(self) -> tuple[int, int]:
        return self.offset.value, self.size.value


class StoredChunk(NamedTuple):
    """A column chunk: its byte range in the file, and in `offsets` the footer's numbers that hold offsets of its pages."""

    begin: int
    end: int
    codec: int
    offsets: tuple[Number, ...]
    outside: tuple[Outside, ...]


def _chunk(codec: int, size: int, pages: list[Number], outside: tuple[Outside, ...]) -> StoredChunk:
    begins = [page.value for page in pages]
    begin = min(begins)
    end = begin + size
    if not len(PARQUET_MAGIC) <= begin <= max(begins) <= end:
        raise ValueError("a column chunk lies outside the file")
    return StoredChunk(begin, end, codec, tuple(pages), outside)


class StoredGroup(NamedTuple):
    """A row group. `entry` is the byte range of its entry in the footer.

    `offset` and `ordinal` are the footer's numbers for its offset in the file and its index among the row groups.
    """

    footer: bytes
    entry: tuple[int, int]
    rows: int
    offset: Number | None
    ordinal: Number | None
    chunks: tuple[StoredChunk, ...]

    @property
    def size(self) -> int:
        return sum([chunk.end - chunk.begin for chunk in self.chunks])

    def entry_with(self, values: Iterable[tuple[Number, int]]) -> bytes:
        """The bytes of the entry with new values for some of its numbers."""
        out, footer = bytearray(), self.footer
        at, end = self.entry
        for number, value in sorted(values):
            out += footer[at : number.begin]
            put_number(out, value)
            at = number.end
        out += footer[at:end]
        return bytes(out)


_VERSION, _SCHEMA, _ROWS, _GROUPS = (1 << 4 | kind for kind in (I32, LIST, I64, LIST))
"""The head byte of each of the first four fields of a footer."""
_ENCRYPTION = (8, 9)


@dataclass(frozen=True)
class FooterFrame:
    """The encoded parts of a footer that all files of one writer and one schema share: all but the row count and row groups.

    `before` holds the version and the schema, `after` the key-value metadata, the writer and the column orders.
    """

    before: bytes
    after: bytes

    @staticmethod
    def split(footer: bytes, like: FooterFrame | None = None) -> tuple[FooterFrame, int, list[StoredGroup]]:
        """Split a footer into its frame, row count and row groups. Raises `ValueError` for an unusual order of fields.

        `like` is a frame that it probably has, which saves time and memory.
        """
        if like is not None and footer.startswith(like.before):
            end = len(like.before)
        else:
            at = skip(footer, _after(footer, 0, _VERSION), I32)
            end = skip(footer, _after(footer, at, _SCHEMA), LIST)
        rows, at = read_number(footer, _after(footer, end, _ROWS))
        groups, at = _stored_groups(footer, _after(footer, at, _GROUPS))
        if at >= len(footer):
            raise ValueError("it is cut off")
        found = FooterFrame(footer[:end], footer[at:])
        return like if found == like and like is not None else found, rows, groups

    def around(self, rows: int, groups: Sequence[bytes]) -> bytes:
        """The footer in this frame with this row count and these encoded row groups."""
        out = bytearray(self.before)
        out.append(_ROWS)
        put_number(out, rows)
        out.append(_GROUPS)
        put_list_head(out, STRUCT, len(groups))
        return b"".join([out, *groups, self.after])

    @property
    def columns(self) -> list[str] | None:
        """The names of the top-level columns; None if the file is encrypted."""
        footer = Footer(self.around(0, ()))
        return None if any(field in footer.fields for field in _ENCRYPTION) else list(footer.columns)


def _after(data: bytes, at: int, head: int) -> int:
    """The position after the field head at `at`. Raises `ValueError` unless it equals `head`."""
    if data[at] != head:
        raise ValueError("its footer does not begin with version, schema, rows and row groups")
    return at + 1


def _stored_groups(footer: bytes, begin: int) -> tuple[list[StoredGroup], int]:
    """The row groups in the list at `begin`, and where the list ends."""
    size, kind, at = list_head(footer, begin)
    groups: list[StoredGroup] = []
    while kind == STRUCT and len(groups) < size:
        group = _usual_group(footer, at)
        if group is None:
            listed, at = encoded_structs(footer, begin, _GROUP_NUMBERS)
            return [_listed_group(one) for one in listed], at
        groups.append(group)
        _, at = group.entry
    return groups, at


def _listed_group(listed: EncodedStruct) -> StoredGroup:
    """A row group that was read field by field."""
    numbers, chunks = listed.numbers, tuple(_listed_chunk(chunk) for chunk in listed.parts[_CHUNKS])
    entry = (listed.begin, listed.end)
    return StoredGroup(listed.data, entry, numbers[_ROW_COUNT].value, numbers.get(_BEGIN), numbers.get(_ORDINAL), chunks)


def _listed_chunk(listed: EncodedStruct) -> StoredChunk:
    if not _ELSEWHERE.isdisjoint(listed.others):
        raise ValueError("a column is encrypted, or in another file")
    (metadata,) = listed.parts[_METADATA]
    numbers, own = metadata.numbers, listed.numbers
    pages = [numbers[_DATA], *(numbers[field] for field in (_INDEX, _DICTIONARY) if field in numbers and numbers[field].value)]
    outside = tuple(
        Outside(kind, owner[kind], owner[kind + 1])
        for owner, kind in ((numbers, BLOOM), (own, OFFSET_INDEX), (own, COLUMN_INDEX))
        if kind in owner and owner[kind].value
    )
    chunk = _chunk(numbers[_CODEC].value, numbers[_SIZE].value, pages, outside)
    return _with_offset(chunk, own.get(_OFFSET))


def _with_offset(chunk: StoredChunk, offset: Number | None) -> StoredChunk:
    """The chunk with one more offset, the one in `file_offset`, if its writer sets that."""
    return chunk._replace(offsets=(*chunk.offsets, offset)) if offset is not None and offset.value else chunk


@dataclass(frozen=True)
class _UsualEntry:
    """Patterns of a column chunk as known writers encode it, and of the fields of a row group after its chunks.

    A struct is a sequence of fields; the first byte of each holds the difference to the previous field number, and the type. The
    byte before a string is its length, so there is an alternative for each length. Alternatives exclude one another by their
    first byte, so that a failing match tries nothing twice.
    """

    chunk: re.Pattern[bytes]
    end: re.Pattern[bytes]

    @staticmethod
    @cache
    def of_writers() -> _UsualEntry:
        """The compiled patterns, cached since compiling takes about ten milliseconds."""
        varint = rb"[\x80-\xff]*[\x00-\x7f]"
        i32, i64, number, stop = rb"\x15" + varint, rb"\x16" + varint, b"(" + varint + b")", rb"\x00"
        text = _any_of(re.escape(bytes([size])) + b".{%d}" % size for size in (8, 4, *range(4), *range(5, 8), *range(9, 128)))
        bounds = _any_of([_heads(I32, I64) + varint, _heads(BINARY) + text, _heads(TRUE, FALSE)])
        lengths = _any_of([_heads(I64) + varint, _heads(LIST) + _list_of(I64, varint, 6)])
        encodings, pages = _list_of(I32, rb"[\x00-\x7f]", 6), _list_of(STRUCT, 3 * i32 + stop, 6)
        location = rb"\x16" + number + rb"\x15" + number
        chunk = [
            *(rb"\x26", number, rb"\x1c", i32, rb"\x19", encodings, rb"\x19\x18", text, rb"\x15([\x00-\x7f])", 2 * i64),
            *(rb"\x16", number, rb"\x26", number, _any_of([rb"\x26" + number + rb"\x1c", rb"\x3c"]), bounds, b"*", stop),
            *(_maybe(rb"\x19" + pages + _maybe(location)), _maybe(_heads(STRUCT) + lengths + b"*" + stop), stop),
            *(2 * _maybe(location), stop),
        ]
        end = [i64, rb"\x16", number, rb"\x26", number, i64, _maybe(rb"\x14" + number), stop]
        return _UsualEntry(re.compile(b"".join(chunk), re.DOTALL), re.compile(b"".join(end), re.DOTALL))


def _any_of(alternatives: Iterable[bytes]) -> bytes:
    return b"(?:" + b"|".join(alternatives) + b")"


def _maybe(pattern: bytes) -> bytes:
    return b"(?:" + pattern + b")?"


def _list_of(kind: int, element: bytes, most: int) -> bytes:
    """The pattern of a list of at most `most` elements."""
    return _any_of(re.escape(bytes([size << 4 | kind])) + element * size for size in range(most + 1))


def _heads(*kinds: int) -> bytes:
    """The pattern of the head byte of a field of one of these types, at most four numbers after the previous field."""
    return b"[" + b"".join(re.escape(bytes([step << 4 | kind])) for kind in kinds for step in range(1, 5)) + b"]"


def _usual_group(footer: bytes, begin: int) -> StoredGroup | None:
    """The row group whose entry begins at `begin`; None if anything but its chunks is not encoded as known writers do."""
    if footer[begin] != _GROUPS:
        return None
    size, kind, at = list_head(footer, begin + 1)
    usual, chunks = _UsualEntry.of_writers(), []
    for _ in range(size if kind == STRUCT else 0):
        found = usual.chunk.match(footer, at)
        if found is None:
            listed = encoded_struct(footer, at, _CHUNK_NUMBERS)
            chunks.append(_listed_chunk(listed))
            at = listed.end
        else:
            chunks.append(_matched_chunk(footer, found.regs))
            at = found.end()
    end = usual.end.match(footer, at)
    if kind != STRUCT or end is None:
        return None
    _, (rows, _), offset, ordinal = end.regs
    number = _number(footer, *ordinal) if ordinal[0] >= 0 else None
    return StoredGroup(footer, (begin, end.end()), read_number(footer, rows)[0], _number(footer, *offset), number, tuple(chunks))


def _matched_chunk(footer: bytes, spans: Sequence[tuple[int, int]]) -> StoredChunk:
    _, offset, (codec, _), (size, _), data, dictionary, *more = spans
    pages = [_number(footer, *data)]
    if dictionary[0] >= 0 and (page := _number(footer, *dictionary)).value:
        pages.append(page)
    outside = () if more == _NOTHING_OUTSIDE else tuple(_matched_outside(footer, more))
    chunk = _chunk(read_number(footer, codec)[0], read_number(footer, size)[0], pages, outside)
    return _with_offset(chunk, _number(footer, *offset)) if footer[offset[0]] else chunk


_NOTHING_OUTSIDE = [(-1, -1)] * 6


def _matched_outside(footer: bytes, spans: Sequence[tuple[int, int]]) -> Iterator[Outside]:
    """Bloom filter and page indexes of a chunk; `spans` are the byte ranges of their offsets and sizes, (-1, -1) if missing."""
    for kind, begin, size in zip((BLOOM, OFFSET_INDEX, COLUMN_INDEX), spans[::2], spans[1::2], strict=True):
        if begin[0] >= 0 and (offset := _number(footer, *begin)).value:
            yield Outside(kind, offset, _number(footer, *size))


def _number(data: bytes, begin: int, end: int) -> Number:
    return Number(begin, end, read_number(data, begin)[0])
