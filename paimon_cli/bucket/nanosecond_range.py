"""Timestamps that file formats or Arrow cannot hold exactly (FORMAT.md, section 7.2).

Outside the range of 64-bit nanoseconds (1677 to 2262), Arrow silently wraps around timestamps of INT96 columns and cannot read
those of ORC files. Before 1970, its ORC writer and Java's readers disagree about nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from paimon_cli.errors import NotSupported

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


def checked_int96(
    batches: Iterator[pa.RecordBatch], again: BinaryIO, columns: list[str], batch_rows: int, groups: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """The batches unchanged. Raises `NotSupported` for the first value outside the range of 64-bit nanoseconds.

    `again`: the same file, from which the columns are read a second time in microseconds, to detect such values.
    """
    reader = pq.ParquetFile(again, coerce_int96_timestamp_unit="us")
    coarse = reader.iter_batches(batch_rows, groups, columns=columns, use_threads=False)
    for batch, rough in zip(batches, coarse, strict=True):
        for name in columns:
            if not _same_times(batch.column(name), rough.column(name)):
                raise NotSupported(
                    f"column {name} holds a timestamp before 1677 or after 2262",
                    "this version keeps TIMESTAMP(7..9) as 64-bit nanoseconds",
                    "leave the column out of what is read",
                    column=name,
                )
        yield batch


def with_far_int96(batch: pa.RecordBatch, rough: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """A batch read from Parquet, with the INT96 `columns` in microseconds if they hold times that nanoseconds do not.

    `rough`: the same columns read in microseconds. Raises `NotSupported` for such times in a nested column, or beside times with
    nanoseconds.
    """
    for name in columns:
        nanos, micros = batch.column(name), rough.column(name)
        if _same_times(nanos, micros):
            continue
        if not pa.types.is_timestamp(nanos.type):
            why = "it is nested, and this version reads such times as 64-bit nanoseconds"
            raise NotSupported(f"column {name} holds a timestamp before 1677 or after 2262", why, "leave it out", column=name)
        exact = nanos.cast(pa.int64()).fill_null(0).to_numpy()
        fine, coarse = exact // 1000, micros.cast(pa.int64()).fill_null(0).to_numpy()
        near = _holds(fine, coarse)
        if (exact[near] % 1000).any():
            why = "and others with nanoseconds; this version keeps either"
            raise NotSupported(f"column {name} holds timestamps before 1677 or after 2262", why, "round them", column=name)
        times = pa.array(np.where(near, fine, coarse), mask=nanos.is_null().to_numpy(zero_copy_only=False)).cast(micros.type)
        batch = batch.set_column(batch.schema.get_field_index(name), name, times)
    return batch


def _same_times(nanos: pa.Array, micros: pa.Array) -> bool:
    pairs = zip(timestamp_leaves(nanos), timestamp_leaves(micros), strict=True)
    return all(_same_leaf(fine, rough) for fine, rough in pairs)


def _same_leaf(nanos: pa.Array, micros: pa.Array) -> bool:
    """Whether both arrays hold the same times."""
    fine = nanos.cast(pa.int64()).fill_null(0).to_numpy() // 1000
    return bool(_holds(fine, micros.cast(pa.int64()).fill_null(0).to_numpy()).all())


def _holds(fine: NDArray[np.int64], coarse: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which times are the same when they are read as nanoseconds (`fine`, divided by 1000) and as microseconds.

    Java writes times before 1970 with negative nanoseconds of the day, which Arrow reads in microseconds as 2^64 ns too late. So
    the years 2262 to 2554 cannot be distinguished from such times, and are accepted.
    """
    difference = np.abs(coarse - fine)
    return (difference <= 1) | ((fine < 0) & (np.abs(coarse - fine - 2**64 // 1000) <= 1))


def timestamp_leaves(column: pa.Array) -> Iterator[pa.Array]:
    """The timestamps of a column, at any depth."""
    if pa.types.is_timestamp(column.type):
        yield column
    elif pa.types.is_struct(column.type):
        for field in column.flatten():
            yield from timestamp_leaves(field)
    elif pa.types.is_map(column.type):
        yield from timestamp_leaves(column.keys)
        yield from timestamp_leaves(column.items)
    elif pa.types.is_list(column.type):
        yield from timestamp_leaves(column.flatten())
