"""Prints rows on stdout, batch by batch, as a text table, JSON, JSON lines or CSV, with values in canonical form."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.cli.output import OutputFormat, check_fields, envelope
from paimon_cli.cli.results import View, counted, printable, say
from paimon_cli.cli.terminal import paged, write_bytes
from paimon_cli.datatypes.canonical_form import canonical_texts
from paimon_cli.datatypes.data_type import FLOATING_ROOTS, INTEGER_ROOTS, JsonText, NestedType, StringType
from paimon_cli.datatypes.value_texts import text_bytes
from paimon_cli.options.option_text import json_text
from paimon_cli.read.row_text import CsvRows, JsonRows, bounded

if TYPE_CHECKING:
    from paimon_cli.cli.command import Call
    from paimon_cli.cli.text_view import Header, Layout
    from paimon_cli.datatypes.data_type import DataField

_NULL = "NULL"
LIKE_NULL = '^"*NULL"*$'
"""Strings that are shown in an additional pair of quotes, so that they are not mistaken for null."""
ELLIPSIS = "…"
SAMPLE_BYTES = 16 << 20
UNLIKE_LATIN = r"[^ -~\x{a1}-\x{2ff}]"
"""Characters that may be wider or narrower than one column."""


class Rows(Protocol):
    """Rows in batches whose columns are `fields`."""

    @property
    def fields(self) -> Sequence[DataField]: ...
    def rows(self) -> Iterator[pa.RecordBatch]: ...


class CountedRows:
    """Rows that are counted while they are printed."""

    def __init__(self, inner: Rows) -> None:
        self._inner = inner
        self.count = 0

    @property
    def fields(self) -> Sequence[DataField]:
        return self._inner.fields

    def rows(self) -> Iterator[pa.RecordBatch]:
        for batch in self._inner.rows():
            self.count += batch.num_rows
            yield batch


def print_rows(found: Rows, table: str | None, call: Call, *, at_once: bool = False) -> None:
    """Print all rows batch by batch, with the chosen fields; text output ends with the number of rows.

    `at_once`: print the first rows of a text table immediately, without collecting a sample for the column widths.
    """
    output, view, fields = call.output, call.view, found.fields
    batches = (piece for batch in _shown_at_once(found.rows()) for piece in bounded(batch))
    if call.fields:
        names = [field.name for field in fields]
        check_fields(call.fields, names)
        indices = [names.index(name) for name in call.fields]
        fields, batches = [fields[index] for index in indices], (batch.select(indices) for batch in batches)
    if output is OutputFormat.TABLE:
        sampled = batches if at_once else _with_a_sample(batches)
        first = None if at_once else next(sampled, None)
        with paged(0 if first is None else first.num_rows * (len(fields) + 1 if view.vertical else 1)):
            count = _print_text(fields, sampled if first is None else chain((first,), sampled), view)
            say(counted(count, "row"))
    elif output is OutputFormat.JSON:
        _print_json(table, JsonRows(fields), batches)
    else:
        rows = JsonRows(fields) if output is OutputFormat.NDJSON else CsvRows(fields)
        write_bytes(rows.head())
        for batch in batches:
            write_bytes(rows.rows(batch))


def _shown_at_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        sys.stdout.flush()


def _with_a_sample(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows, with a first batch that is large enough for choosing the column widths, if there are enough rows."""
    from paimon_cli.cli.text_view import WIDTH_SAMPLE_ROWS

    first: list[pa.RecordBatch] = []
    for batch in batches:
        first.append(batch)
        if sum(part.num_rows for part in first) >= WIDTH_SAMPLE_ROWS or sum(part.nbytes for part in first) >= SAMPLE_BYTES:
            break
    if first:
        yield pa.concat_batches(first)
    yield from batches


def _print_json(table: str | None, rows: JsonRows, batches: Iterator[pa.RecordBatch]) -> None:
    """Print the JSON envelope piece by piece, so that the rows need not fit in memory."""
    head = json_text(envelope("RowList", table), indent=2).removesuffix("\n}")
    write_bytes(f'{head},\n  "items": ['.encode())
    separator = "\n    "
    for batch in batches:
        texts = text_bytes(rows.objects(batch, ",\n    "))
        write_bytes(separator.encode())
        write_bytes(texts.slice(0, texts.size - len(",\n    ")))
        separator = ",\n    "
    write_bytes(b"]\n}\n" if separator == "\n    " else b"\n  ]\n}\n")


def _print_text(fields: Sequence[DataField], batches: Iterator[pa.RecordBatch], view: View) -> int:
    """Print an aligned table, whose widths depend on the first batch; returns the number of rows."""
    from paimon_cli.cli.text_view import Header, laid_out, print_head, record_lines, wrapped

    numeric = INTEGER_ROOTS | FLOATING_ROOTS | {"DECIMAL"}
    heads = [Header(printable(field.name), field.type.root in numeric) for field in fields]
    layout: Layout | None = None
    count = 0
    for number, batch in enumerate(batches):
        columns = [_cells(column, field) for column, field in zip(batch.columns, fields, strict=True)]
        if number == 0:
            layout = laid_out(heads, [_width(head.title, cells) for head, cells in zip(heads, columns, strict=True)], view)
            if layout is not None:
                print_head(heads, layout)
        if layout is not None:
            write_bytes(_lines(heads, layout, columns))
            count += batch.num_rows
            continue
        for row in zip(*(cells.to_pylist() for cells in columns), strict=True):
            count += 1
            write_bytes(("\n".join(record_lines([head.title for head in heads], row, count)) + "\n").encode())
    if count == 0 and not view.vertical:
        nothing = laid_out(heads, [len(head.title) for head in heads], View(wide=True))
        print_head(heads, nothing) if nothing else None
    if layout is not None and layout.footer:
        say(wrapped(layout.footer))
    return count


def _cells(column: pa.Array, field: DataField) -> pa.Array:
    """The cells as text that is safe on a terminal; null and the string NULL look different."""
    texts = canonical_texts(column, field.type)
    if isinstance(field.type, StringType) and not isinstance(field.type, JsonText):
        alike = pc.match_substring_regex(texts, LIKE_NULL)
        if alike.true_count:
            texts = pc.if_else(alike, pc.binary_join_element_wise('"', texts, '"', ""), texts)
    if isinstance(field.type, (StringType, NestedType)):
        is_unsafe = pc.match_substring_regex(texts, "[^ -~]").fill_null(False)
        if is_unsafe.true_count:
            escaped = pa.array(list(map(printable, texts.filter(is_unsafe).to_pylist())), pa.string())
            texts = pc.replace_with_mask(texts, is_unsafe, escaped)
    return texts.fill_null(_NULL)


def _width(title: str, cells: pa.Array) -> int:
    from rich.cells import cell_len

    if _is_simple(cells):
        return max(cell_len(title), pc.max(pc.utf8_length(cells)).as_py() or 0)
    return max(cell_len(title), *map(cell_len, cells.to_pylist()))


def _is_simple(cells: pa.Array) -> bool:
    """Whether each character takes one column."""
    return pc.match_substring_regex(cells, UNLIKE_LATIN).true_count == 0


def _lines(heads: Sequence[Header], layout: Layout, columns: Sequence[pa.Array]) -> pa.Buffer:
    from paimon_cli.cli.text_view import GAP

    shown = zip(layout.shown, layout.widths, strict=True)
    cells = [_aligned(columns[number], width, heads[number].right_aligned) for number, width in shown]
    lines = pc.utf8_rtrim(pc.binary_join_element_wise(*cells, GAP), " ")
    return text_bytes(pc.binary_join_element_wise(lines, "\n", ""))


def _aligned(cells: pa.Array, width: int, right: bool) -> pa.Array:
    from paimon_cli.cli.text_view import is_terminal, sized

    cut = is_terminal() and not right
    if not _is_simple(cells):
        return pa.array([sized(cell, width, right, cut) for cell in cells.to_pylist()], pa.string())
    if right:
        return pc.utf8_lpad(cells, width)
    if cut:
        short = pc.binary_join_element_wise(pc.utf8_slice_codeunits(cells, 0, width - 1), ELLIPSIS, "")
        cells = pc.if_else(pc.greater(pc.utf8_length(cells), width), short, cells)
    return pc.utf8_rpad(cells, width)
