"""Checks the quotes of CSV text: a quoted cell must be closed, and only a delimiter or the end of the line may follow its end.

Arrow's parser takes the rest of a file for a cell that is never closed, and joins what follows a closing quote to the cell.

A quote opens a cell only at its beginning; elsewhere in an unquoted cell (`5" pipe`) it is an ordinary character. Within a quoted
cell two quotes stand for one. So a run of quotes changes the state only if its length is odd: at the beginning of a cell it opens
or closes the cell, elsewhere it closes it. Blocks are examined by numpy, without a loop over rows or quotes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

import numpy as np

from paimon_cli.ingest.faults import MAX_VALUE_LENGTH
from paimon_cli.ingest.text_blocks import BYTE_ORDER_MARK, escaped_bytes
from paimon_cli.pieces import PIECES

NEUTRAL = ord("x")


ONE, LAST = np.uint64(1), np.uint64(63)


@dataclass(frozen=True)
class CsvSyntax:
    """The special characters of a file; `escape` is '' if there is none."""

    quote: str
    delimiter: str
    escape: str = ""


class OpenCell(NamedTuple):
    """A cell that is never closed: the row where it begins (from 0, with the header), its line (from 1), and its text."""

    row: int
    line: int
    text: str


class MisquotedRow(NamedTuple):
    """A row in which something follows a closing quote: its number (from 0, with the header), the lines (from 1) of its beginning
    and of that quote, and its first text. A quote that was never meant to open a cell may take any number of lines."""

    number: int
    first_line: int
    last_line: int
    text: str


class _Quotes(NamedTuple):
    """The runs of quotes in a piece. `ends`: positions after each run; `inside`: the state then; `opens`: positions of runs that
    open a cell; `misplaced`: positions after runs that close one, where neither a delimiter nor the end of the line follows."""

    ends: np.ndarray
    inside: np.ndarray
    opens: np.ndarray
    misplaced: np.ndarray


def _words(mask: np.ndarray) -> np.ndarray:
    """The mask as bits, the first one lowest, in words of 64: every later step then costs a fraction of one on bytes."""
    packed = np.packbits(mask, bitorder="little")
    return np.concatenate([packed, np.zeros(-len(packed) % 8, np.uint8)]).view("<u8")


def _odd_ones(marks: np.ndarray, inside: bool) -> tuple[np.ndarray, bool]:
    """The marks that open a cell if each mark in turn opens and closes one, and whether a cell is open after the last."""
    states = marks.copy()
    for distance in (1, 2, 4, 8, 16, 32):
        states ^= states << np.uint64(distance)
    totals = np.bitwise_xor.accumulate(np.append(np.uint64(inside), states >> LAST))
    return marks & (states ^ (np.uint64(0) - totals[:-1])), bool(totals[-1])


class _Pieces:
    """Text in pieces, and the state between them: whether a quoted cell is open. A piece begins with the byte before it, and ends
    before a run of quotes that the next block may continue."""

    def __init__(self, syntax: CsvSyntax) -> None:
        self._quote, self._escape = syntax.quote.encode(), syntax.escape.encode()
        self.ends_cell = np.zeros(256, bool)
        self.ends_cell[[*syntax.delimiter.encode(), *b"\r\n"]] = True
        self._delimiter = ord(syntax.delimiter)
        self.inside = False
        self._kept = self._kept_original = b"\n"
        self.original = b""
        """The last piece with its escape characters."""
        self._is_first, self._next_is_escaped = True, False

    def of(self, block: bytes) -> bytes:
        """The text to be examined now; b'' for the end of the file."""
        if self._is_first:
            block, self._is_first = block.removeprefix(BYTE_ORDER_MARK), False
        end = b"" if block else b"\n"
        text = self._kept + (self._without_escapes(block) if self._escape else block) + end
        length = len(text.rstrip(self._quote))
        waiting = len(text) - length
        # Of a run that may go on, one quote or two are kept: only whether its length is odd matters.
        going_on = self._quote * (waiting and 2 - waiting % 2)
        self._kept = text[length - 1 : length] + going_on
        self.original = text = text[:length]
        if self._escape:
            original = self._kept_original + block + end
            self._kept_original, self.original = original[length - 1 : length] + going_on, original[:length]
        return text

    def has_quotes(self, block: bytes) -> bool:
        return self._quote in block or len(self._kept) > 1 or bool(self._escape) or self._is_first

    def skip(self, block: bytes) -> None:
        """Leave out a block without quotes."""
        self._kept = block[-1:] or self._kept

    def _without_escapes(self, block: bytes) -> bytes:
        """The block with ordinary characters for escape characters and the characters behind them."""
        mark = self._escape if self._next_is_escaped else b""
        text = np.frombuffer(mark + block + b"x", np.uint8).copy()  # the last byte shows whether it is escaped
        escaped = escaped_bytes(text, self._escape[0])
        self._next_is_escaped = bool(escaped[-1])
        text[escaped | (text == self._escape[0])] = NEUTRAL
        return text[len(mark) : -1].tobytes()

    def is_regular(self, piece: bytes) -> bool:
        """Whether each quote in turn opens and closes a cell where it may, or is one of two within a cell; updates the state.

        False also for quotes in unquoted cells: `runs` knows.
        """
        text = np.frombuffer(piece, np.uint8)
        quotes = text == self._quote[0]
        ends = text == self._delimiter
        for line_end in b"\r\n":
            if line_end in piece:
                np.logical_or(ends, text == line_end, out=ends)
        marks = _words(quotes)
        beside = _words(np.logical_or(ends, quotes, out=ends))
        opening, inside = _odd_ones(marks, self.inside)
        before, after = beside << ONE, beside >> ONE
        before[1:] |= beside[:-1] >> LAST
        after[:-1] |= beside[1:] << LAST
        if ((opening & ~before) | ((marks ^ opening) & ~after)).any():
            return False
        self.inside = inside
        return True

    def runs(self, text: np.ndarray) -> _Quotes:
        """The runs of quotes of a piece; updates the state."""
        quotes = np.flatnonzero(text == self._quote[0])
        firsts = np.flatnonzero(np.diff(quotes, prepend=-2) != 1)
        starts, lengths = quotes[firsts], np.diff(firsts, append=len(quotes))
        ends = starts + lengths
        odd, begins_cell = lengths % 2 == 1, self.ends_cell[text[starts - 1]]
        changes = np.cumsum(odd & begins_cell)
        last_end = np.maximum.accumulate(np.where(odd & ~begins_cell, np.arange(len(starts)), -1))
        # Changes of the state count from the last run that left it outside for certain, or from the beginning of the piece.
        inside = (changes - np.where(last_end < 0, -int(self.inside), changes[last_end])) % 2 == 1
        before = np.append(self.inside, inside[:-1])[: len(inside)]
        closes = np.where(before, odd, begins_cell & ~odd)
        misplaced = ends[closes & ~self.ends_cell[text[ends]]]
        if len(inside):
            self.inside = bool(inside[-1])
        return _Quotes(ends, inside, starts[~before & inside], misplaced)


class CheckedQuotes:
    """A stream of CSV text that is checked while Arrow reads it.

    `is_misquoted`: whether something follows a closing quote in the text read so far; `misquoted_rows` finds the rows. At the end
    `on_open_cell` is called if a cell is still open; it must raise an error.
    """

    closed = False

    def __init__(self, stream: BinaryIO, syntax: CsvSyntax, on_open_cell: Callable[[], None]) -> None:
        self._stream, self._pieces, self._on_open_cell = stream, _Pieces(syntax), on_open_cell
        self.is_misquoted = False

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        """The caller closes the stream."""

    def read(self, size: int = -1) -> bytes:
        if not size:
            return b""
        block = self._stream.read(size)
        if block and not self._pieces.has_quotes(block):
            self._pieces.skip(block)
            return block
        for start in range(0, max(1, len(block)), PIECES.quote_piece_bytes):
            self._check(block[start : start + PIECES.quote_piece_bytes])
        if not block and self._pieces.inside:
            self._on_open_cell()
        return block

    def drain(self) -> None:
        """Read to the end, for the check alone."""
        while self.read(PIECES.quote_piece_bytes):
            pass

    def _check(self, piece: bytes) -> None:
        text = self._pieces.of(piece)
        if not self._pieces.is_regular(text):
            self.is_misquoted |= len(self._pieces.runs(np.frombuffer(text, np.uint8)).misplaced) > 0


class MisquotedRows:
    """The rows in which something follows a closing quote, in order.

    Empty lines are not counted, as in Arrow. `open_cell`: the cell that is open at the end, once all rows were iterated.
    """

    def __init__(self, stream: BinaryIO, syntax: CsvSyntax) -> None:
        self._stream, self._pieces = stream, _Pieces(syntax)
        self._rows, self._lines, self._position, self._line_end = 0, 1, 0, 0
        self._row_line, self._row_text = 1, bytearray()
        """Where the row that is not complete yet begins, and its beginning."""
        self._opened: tuple[int, int, bytearray] | None = None

    def __iter__(self) -> Iterator[MisquotedRow]:
        last = -1
        while True:
            block = self._stream.read(PIECES.quote_piece_bytes)
            piece = self._pieces.of(block)
            for row in self._examined(piece):
                if row.number != last:
                    yield row
                last = row.number
            if not block:
                return

    @property
    def open_cell(self) -> OpenCell | None:
        if not self._pieces.inside or self._opened is None:
            return None
        row, line, text = self._opened
        return OpenCell(row, line, _decoded(bytes(text)).removesuffix("\n"))

    def _examined(self, piece: bytes) -> Iterator[MisquotedRow]:
        text, was_inside, original = np.frombuffer(piece, np.uint8), self._pieces.inside, self._pieces.original
        quotes = self._pieces.runs(text)
        if was_inside and self._opened is not None:
            self._opened[2].extend(original[1 : MAX_VALUE_LENGTH - len(self._opened[2])])
        breaks = np.flatnonzero((text[1:] == ord("\n")) | (text[1:] == ord("\r"))) + 1
        state = np.append(was_inside, quotes.inside)[np.searchsorted(quotes.ends, breaks, "right")]
        line_ends = breaks[~state]
        is_row = np.diff(line_ends + self._position, prepend=self._line_end) > 1
        row_ends = line_ends[is_row]
        for end in quotes.misplaced.tolist():
            index = int(np.searchsorted(line_ends, end))
            first = int(line_ends[index - 1]) + 1 if index else 1
            last = int(line_ends[index]) if index < len(line_ends) else len(piece)
            begun, line = (bytearray(), self._lines + _line_breaks(piece[1:first])) if index else (self._row_text, self._row_line)
            shown = bytes(begun + original[first : min(last, first + MAX_VALUE_LENGTH)])[:MAX_VALUE_LENGTH]
            number = self._rows + int(np.searchsorted(row_ends, end))
            yield MisquotedRow(number, line, self._lines + _line_breaks(piece[1:end]), _decoded(shown))
        if self._pieces.inside and len(quotes.opens):
            opened = int(quotes.opens[-1])
            row = self._rows + int(np.searchsorted(row_ends, opened))
            line = self._lines + _line_breaks(piece[1:opened])
            self._opened = (row, line, bytearray(original[opened : opened + MAX_VALUE_LENGTH]))
        if len(line_ends):
            self._row_line, self._row_text = self._lines + _line_breaks(piece[1 : int(line_ends[-1]) + 1]), bytearray()
        beginning = int(line_ends[-1]) + 1 if len(line_ends) else 1
        self._row_text += original[beginning : beginning + MAX_VALUE_LENGTH - len(self._row_text)]
        self._rows += len(row_ends)
        self._lines += _line_breaks(piece[1:])
        if len(line_ends):
            self._line_end = int(line_ends[-1]) + self._position
        self._position += len(piece) - 1


def _line_breaks(text: bytes) -> int:
    return text.count(b"\n") or text.count(b"\r")


def _decoded(text: bytes) -> str:
    return text.decode(errors="replace")
