"""Reads the rows of an ORC data file, stripe by stripe."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import BinaryIO

import pyarrow as pa

from paimon_cli.bucket.orc_file import OrcFile, holds_chars, unpadded
from paimon_cli.datatypes.data_type import DataField


def orc_batches(
    source: BinaryIO,
    columns: Sequence[str],
    may_lack: Collection[str],
    fields: Sequence[DataField],
    batch_rows: int,
    merged: bool,
) -> Iterator[pa.RecordBatch]:
    """Batches of at most `batch_rows` with these columns, without those of `may_lack` that the file lacks. If it has
    none of them, batches have another column, which tells how many rows there are.

    `fields`: of the file, by the schema of the table. `merged`: other files are read at the same time. Then a stripe is held in
    compressed batches, and threads share decoders.
    """
    file = OrcFile(source, shares=merged)
    held = file.schema.names
    names = [name for name in columns if name in held or name not in may_lack] or held[:1]
    for number in range(file.nstripes):
        for batch in file.stripe_batches(number, names, batch_rows if merged else None):
            rows = pa.Table.from_batches([batch]).select(names)
            yield from _without_padding(rows, fields).to_batches(max_chunksize=batch_rows)


def _without_padding(rows: pa.Table, fields: Sequence[DataField]) -> pa.Table:
    """The rows without the blanks with which ORC pads CHAR(n), also inside nested values, as Java reads them."""
    for field in fields:
        position = rows.schema.get_field_index(field.name)
        if position >= 0 and holds_chars(field.type):
            chunks = [unpadded(chunk, field.type) for chunk in rows.column(position).chunks]
            rows = rows.set_column(position, field.name, pa.chunked_array(chunks, rows.schema.field(position).type))
    return rows
