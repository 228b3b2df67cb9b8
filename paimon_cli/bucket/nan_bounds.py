"""Columns of Parquet files that hold NaN: their bounds are left out (FORMAT.md, section 7.2).

Arrow's bounds ignore NaN. Spark and Java take NaN for the greatest number, so that under `x > 5` they would skip row groups and
pages with NaN in them.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.bucket.column_statistics import leaf_count
from paimon_cli.metadata.parquet_footer import TAIL, ending, without_bounds

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


@dataclass(frozen=True)
class FloatingLeaf:
    """A leaf of floating-point numbers that is a column, or a field in nested ROWs of a column.

    `number`: its number among the leaves of a file; `path`: the index of the column, then of the field in each ROW.
    """

    number: int
    path: tuple[int, ...]

    def holds_nan(self, rows: pa.Table) -> bool:
        column, *fields = self.path
        values = rows.column(column)
        for field in fields:
            values = pc.struct_field(values, field)
        total = pc.sum(values).as_py()  # NaN if a value is, or if there are both infinities; it takes half the time
        return total is not None and math.isnan(total) and bool(pc.any(pc.is_nan(values)).as_py())


def floating_leaves(schema: pa.Schema) -> list[FloatingLeaf]:
    """The floating-point leaves that readers may have bounds for; they have none for elements of arrays and maps."""
    return list(_leaves([field.type for field in schema], 0, ()))


def _leaves(types: Sequence[pa.DataType], first: int, path: tuple[int, ...]) -> Iterator[FloatingLeaf]:
    for index, t in enumerate(types):
        if pa.types.is_floating(t):
            yield FloatingLeaf(first, (*path, index))
        elif pa.types.is_struct(t):
            yield from _leaves([t.field(i).type for i in range(t.num_fields)], first, (*path, index))
        first += leaf_count(t)


class ParquetSink(io.RawIOBase):
    """Passes the bytes of a Parquet file on to `sink`, and can hold back its end to change the footer."""

    def __init__(self, sink: BinaryIO) -> None:
        super().__init__()
        self._sink = sink
        self._held: bytearray | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        if self._held is None:
            return self._sink.write(data)
        self._held += data
        return memoryview(data).nbytes

    def hold(self) -> None:
        """Keep everything that is written from now on, until `release`."""
        self._held = bytearray()

    def release(self, chunks: set[tuple[int, int]]) -> None:
        """Pass on the end of the file, without the bounds of these chunks: pairs of row group and leaf."""
        assert self._held is not None
        held, self._held = bytes(self._held), None
        begin = len(held) - TAIL - int.from_bytes(held[-TAIL : -TAIL + 4], "little")
        footer = without_bounds(held[begin:-TAIL], chunks)
        self._sink.write(held[:begin] + footer + ending(footer))
