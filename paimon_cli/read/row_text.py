"""Formats batches of rows as CSV or JSON lines, in UTF-8."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from paimon_cli.datatypes.canonical_form import canonical_texts, json_texts
from paimon_cli.datatypes.data_type import INTEGER_ROOTS, DataField
from paimon_cli.datatypes.value_texts import text_bytes
from paimon_cli.options.option_text import json_text
from paimon_cli.pieces import PIECES

SPECIAL = '^$|[,"\r\n]'
"""CSV texts that need quotes, including the empty text, since an empty cell is null."""
_SPECIAL_BYTES = np.isin(np.arange(256), list(b',"\r\n'))


def bounded(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in pieces whose formatted text fits into one Arrow array."""
    rows = (
        batch.num_rows
        if batch.nbytes <= PIECES.text_batch_bytes
        else max(1, batch.num_rows * PIECES.text_batch_bytes // batch.nbytes)
    )
    for start in range(0, batch.num_rows, max(rows, 1)):
        yield batch.slice(start, rows)


class CsvRows:
    """CSV that `write --format csv` can read: null is an empty cell, the empty text a quoted one, nested values are JSON."""

    def __init__(self, fields: Sequence[DataField]) -> None:
        self._fields = fields
        self._needs_quotes = False

    def head(self) -> bytes:
        names = pa.array([field.name for field in self._fields], pa.string())
        return (",".join(_quoted_where_needed(names).to_pylist()) + "\n").encode()

    def rows(self, batch: pa.RecordBatch) -> pa.Buffer:
        """Format rows with Arrow's writer, unless a text needs quotes, because it can only quote all texts."""
        columns = [_for_arrow(column, field) for column, field in zip(batch.columns, self._fields, strict=True)]
        if not self._needs_quotes and not any(_has_empty(column) for column in columns):
            sink = pa.BufferOutputStream()
            try:
                unquoted = pa.csv.WriteOptions(include_header=False, batch_size=PIECES.batch_rows, quoting_style="none")
                pa.csv.write_csv(pa.RecordBatch.from_arrays(columns, names=self._names), sink, unquoted)
                return sink.getvalue()
            except pa.ArrowInvalid:
                self._needs_quotes = True  # other batches will probably need quotes, too
        cells = [_quoted_where_needed(column) if column.type == pa.string() else column.cast(pa.string()) for column in columns]
        return _joined([cell.fill_null("") for cell in cells], ",")

    @property
    def _names(self) -> list[str]:
        return [field.name for field in self._fields]


class JsonRows:
    """One JSON object per line, in canonical form (`canonical_rows`)."""

    def __init__(self, fields: Sequence[DataField]) -> None:
        self._fields = fields
        self._keys = [json_text(field.name) + ":" for field in fields]

    def head(self) -> bytes:
        return b""

    def objects(self, batch: pa.RecordBatch, end: str = "") -> pa.Array:
        """The texts of the rows, each followed by `end`."""
        pieces: list[pa.Array | str] = []
        open_text = "{"
        for key, field, column in zip(self._keys, self._fields, batch.columns, strict=True):
            texts, unquoted = json_texts(column, field.type)
            quote = '"' if unquoted else ""
            pieces += [open_text + key + quote, texts]
            open_text = quote + ","
        if not pieces:
            return pa.array(["{}" + end] * batch.num_rows, pa.string())
        return pc.binary_join_element_wise(*pieces, open_text[:-1] + "}" + end, "")

    def rows(self, batch: pa.RecordBatch) -> pa.Buffer:
        return text_bytes(self.objects(batch, "\n"))


def _joined(columns: list[pa.Array], separator: str) -> pa.Buffer:
    columns[-1] = pc.binary_join_element_wise(columns[-1], "\n", "")
    return text_bytes(pc.binary_join_element_wise(*columns, separator))


def _for_arrow(column: pa.Array, field: DataField) -> pa.Array:
    """The column as text; integers and booleans unchanged, because Arrow writes them in canonical form."""
    return column if field.type.root in INTEGER_ROOTS or field.type.root == "BOOLEAN" else canonical_texts(column, field.type)


def _has_empty(column: pa.Array) -> bool:
    return column.type == pa.string() and pc.min(pc.binary_length(column)).as_py() == 0


def _quoted_where_needed(texts: pa.Array) -> pa.Array:
    if not _has_empty(texts) and not _holds_special(texts):
        return texts
    is_special = pc.match_substring_regex(texts, SPECIAL).fill_null(False)
    special = texts if is_special.true_count == len(texts) else texts.filter(is_special)
    quoted = pc.binary_join_element_wise('"', pc.replace_substring(special, '"', '""'), '"', "")
    return quoted if special is texts else pc.replace_with_mask(texts, is_special, quoted)


def _holds_special(texts: pa.Array) -> bool:
    """Whether a text has a comma, a quote or a line end. Searches all bytes at once, which is much faster than text by text."""
    return bool(_SPECIAL_BYTES[np.frombuffer(text_bytes(texts), dtype=np.uint8)].any()) if len(texts) else False
