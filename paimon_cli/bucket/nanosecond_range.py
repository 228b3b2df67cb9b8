"""Timestamps that file formats or Arrow cannot hold exactly (FORMAT.md, section 7.2).

Outside the range of 64-bit nanoseconds (1677 to 2262), Arrow silently wraps around timestamps of INT96 columns and cannot read
those of ORC files. Before 1970, its ORC writer and Java's readers disagree about nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from paimon_cli.bucket.parquet_chunks import footer_bytes
from paimon_cli.errors import NotSupported
from paimon_cli.metadata.parquet_footer import INT96_BYTES, closed, with_int96_as_bytes

NANOS_PER = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
LARGEST = 2**63 - 1


def refuse_far_times(rows: pa.Table, file_format: str) -> None:
    """Raise `NotSupported` for a timestamp that could not be read back from a file of that format."""
    for name in rows.schema.names:
        for chunk in rows.column(name).chunks:
            for leaf in timestamp_leaves(chunk):
                limit = LARGEST // NANOS_PER[leaf.type.unit]
                ends = pc.min_max(leaf.cast(pa.int64())).as_py()
                if ends["min"] is not None and (ends["min"] < -limit or ends["max"] > limit):
                    raise NotSupported(
                        f"column {name} holds a timestamp before 1677 or after 2262",
                        f"this version reads timestamps of {file_format} files as 64-bit nanoseconds",
                        "set file.format=parquet",
                        column=name,
                    )


def holds_early_digits(rows: pa.RecordBatch) -> bool:
    """Whether a timestamp before 1970 has digits below the millisecond, where Arrow's ORC writer and Java's reader disagree."""
    return any(_has_early_digits(leaf) for column in rows.columns for leaf in timestamp_leaves(column))


def _has_early_digits(leaf: pa.Array) -> bool:
    per_milli = NANOS_PER["ms"] // NANOS_PER[leaf.type.unit]
    if per_milli <= 1:
        return False
    values = ticks(leaf)
    return bool(((values < 0) & (values % per_milli != 0)).any())


def ticks(leaf: pa.Array) -> NDArray[np.int64]:
    """The timestamps without nulls, as integers in their unit."""
    return leaf.drop_null().cast(pa.int64()).to_numpy()


def int96_columns(schema: pq.ParquetSchema, columns: Sequence[str]) -> list[str]:
    """The columns that may hold an INT96 at some depth. Names with dots can be ambiguous, and are included when in doubt."""
    leaves = (schema.column(i) for i in range(len(schema.names)))
    paths = [leaf.path.split(".") for leaf in leaves if leaf.physical_type == "INT96"]
    holding = {".".join(path[:end]) for path in paths for end in range(1, len(path) + 1)}
    return [name for name in columns if name in holding]


def raw_int96(source: BinaryIO) -> pq.ParquetFile:
    """The Parquet file with its INT96 columns as the bytes that they are. Raises `pa.ArrowInvalid` for a damaged footer."""
    try:
        footer = with_int96_as_bytes(footer_bytes(source))
    except (ValueError, LookupError) as problem:
        raise pa.ArrowInvalid(f"its footer is damaged: {problem}") from problem
    return pq.ParquetFile(source, metadata=pq.read_metadata(pa.BufferReader(closed([], footer))))


def checked_int96(
    batches: Iterator[pa.RecordBatch], again: BinaryIO, columns: list[str], batch_rows: int, groups: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """The batches unchanged. Raises `NotSupported` for the first value outside the range of 64-bit nanoseconds.

    `again`: the same file, from which the columns are read a second time as bytes, to detect such values.
    """
    stored = raw_int96(again).iter_batches(batch_rows, groups, columns=columns, use_threads=False)
    for batch, raw in zip(batches, stored, strict=True):
        for name in columns:
            if any((~_Times.of(leaf).are_near).any() for leaf in _byte_leaves(raw.column(name))):
                raise NotSupported(
                    f"column {name} holds a timestamp before 1677 or after 2262",
                    "this version keeps TIMESTAMP(7..9) as 64-bit nanoseconds",
                    "leave the column out of what is read",
                    column=name,
                )
        yield batch


def with_far_int96(batch: pa.RecordBatch, raw: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """A batch read from Parquet, with the INT96 `columns` in microseconds if they hold times that nanoseconds do not.

    `raw`: the same columns as bytes. Raises `NotSupported` for such times in a nested column, or if a time has nanoseconds.
    """
    for name in columns:
        leaves = [_Times.of(leaf) for leaf in _byte_leaves(raw.column(name))]
        if all(times.are_near.all() for times in leaves):
            continue
        column = batch.column(name)
        what = f"column {name} holds a timestamp before 1677 or after 2262"
        if not pa.types.is_timestamp(column.type):
            why = "it is nested, and this version reads such times as 64-bit nanoseconds"
            raise NotSupported(what, why, "leave it out", column=name)
        (times,) = leaves
        if times.digits.any():
            why = "and times with nanoseconds; this version keeps either"
            raise NotSupported(f"column {name} holds timestamps before 1677 or after 2262", why, "round them", column=name)
        if (np.abs(times.days) > _MOST_DAYS).any():
            raise NotSupported(what, "64 bits do not even hold its microseconds", "leave it out", column=name)
        absent = raw.column(name).is_null().to_numpy(zero_copy_only=False)
        found = pa.array(times.micros, mask=absent).cast(pa.timestamp("us", column.type.tz))
        batch = batch.set_column(batch.schema.get_field_index(name), name, found)
    return batch


_EPOCH = 2_440_588
"""The Julian day 1970-01-01."""
_MICROS_PER_DAY = 86_400_000_000
_MOST_DAYS = 100_000_000
"""The microseconds of so many days fit into 64 bits."""
_INT96 = np.dtype([("nanos", "<i8"), ("day", "<i4")])


class _Times:
    """INT96 timestamps, zero where there is a null: `days` since 1970, `micros` since then, and the nanoseconds (`digits`) after
    the last whole microsecond.

    The nanoseconds of the day may be negative, as Java writes them for times before 1970.
    """

    def __init__(self, stored: NDArray[np.void]) -> None:
        self.days = stored["day"].astype(np.int64) - _EPOCH
        self.digits = stored["nanos"] % 1000
        days = np.clip(self.days, -_MOST_DAYS, _MOST_DAYS)
        self.micros = days * _MICROS_PER_DAY + stored["nanos"] // 1000

    @staticmethod
    def of(leaf: pa.Array) -> _Times:
        stored = np.zeros(len(leaf), _INT96)
        stored["day"] = _EPOCH
        present = leaf.drop_null()
        values = np.frombuffer(present.buffers()[1] or b"", _INT96)[present.offset : present.offset + len(present)]
        stored[leaf.is_valid().to_numpy(zero_copy_only=False)] = values
        return _Times(stored)

    @property
    def are_near(self) -> NDArray[np.bool_]:
        """Which of them 64-bit nanoseconds hold."""
        last, digits = divmod(LARGEST, 1000)
        return (np.abs(self.micros) < last) | ((self.micros == last) & (self.digits <= digits))


def timestamp_leaves(column: pa.Array) -> Iterator[pa.Array]:
    """The timestamps of a column, at any depth."""
    return _leaves(column, pa.types.is_timestamp)


def _byte_leaves(column: pa.Array) -> Iterator[pa.Array]:
    """The INT96 values of a column of `raw_int96`, at any depth."""
    return _leaves(column, pa.binary(INT96_BYTES).equals)


def _leaves(column: pa.Array, is_wanted: Callable[[pa.DataType], bool]) -> Iterator[pa.Array]:
    if is_wanted(column.type):
        yield column
    elif pa.types.is_struct(column.type):
        for field in column.flatten():
            yield from _leaves(field, is_wanted)
    elif pa.types.is_map(column.type):
        yield from _leaves(column.keys, is_wanted)
        yield from _leaves(column.items, is_wanted)
    elif pa.types.is_list(column.type):
        yield from _leaves(column.flatten(), is_wanted)
