"""INT96 timestamps that 64-bit nanoseconds cannot hold are refused, not wrapped."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_cli.bucket.nanosecond_range import (
    NANOS_PER,
    _same_leaf,
    checked_int96,
    holds_early_digits,
    int96_columns,
    refuse_far_times,
)
from paimon_cli.errors import NotSupported


def file_of(table: pa.Table) -> io.BytesIO:
    sink = io.BytesIO()
    pq.write_table(table, sink, use_deprecated_int96_timestamps=True)
    return sink


def read(sink: io.BytesIO, columns: list[str]) -> list[pa.RecordBatch]:
    reader = pq.ParquetFile(sink)
    wide = int96_columns(reader.schema, columns)
    groups = range(reader.num_row_groups)
    return list(checked_int96(reader.iter_batches(2, columns=columns), io.BytesIO(sink.getvalue()), wide, 2, groups))


def test_times_within_the_range_and_other_columns() -> None:
    times = pa.array([0, -1, None, 9_223_372_036_854, -9_223_372_036_854], pa.timestamp("ms"))
    nested = pa.array([[0], None, [], [None, -5], [7]], pa.list_(pa.timestamp("us")))
    sink = file_of(pa.table({"a": times, "n": nested, "i": [1, 2, 3, 4, 5]}))
    assert int96_columns(pq.ParquetFile(sink).schema, ["i", "n", "a"]) == ["n", "a"]
    assert sum(batch.num_rows for batch in read(sink, ["a", "n", "i"])) == 5


@pytest.mark.parametrize("millis", [253402300799999, -62135596800000])
def test_times_out_of_range(millis: int) -> None:
    far = pa.array([millis], pa.timestamp("ms"))
    for column in (far, pa.StructArray.from_arrays([far], ["t"])):
        with pytest.raises(NotSupported, match="column c holds a timestamp before 1677 or after 2262"):
            read(file_of(pa.table({"c": column})), ["c"])
        with pytest.raises(NotSupported, match="of orc files"):
            refuse_far_times(pa.table({"c": column}), "orc")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_the_last_times_that_64_bits_of_nanoseconds_hold(unit: str) -> None:
    last = (2**63 - 1) // NANOS_PER[unit]
    kept = pa.chunked_array([[None], [0, None, last], [-last], []], pa.timestamp(unit))
    refuse_far_times(pa.table({"i": pa.chunked_array([[1], [2, 3, 4], [5]]), "c": kept}), "orc")
    for far in (last + 1, -last - 1) if unit != "ns" else ():
        with pytest.raises(NotSupported, match="column c holds") as refused:
            refuse_far_times(pa.table({"i": [1, 2], "c": pa.chunked_array([[0], [far]], pa.timestamp(unit))}), "orc")
        assert refused.value.details["column"] == "c"


def test_every_column_batch_and_side_of_a_map_is_checked() -> None:
    near, far = pa.array([1] * 4, pa.timestamp("ms")), pa.array([1, 1, 1, 253_402_300_799_999], pa.timestamp("ms"))
    offsets = pa.array(range(5), pa.int32())
    columns = {
        "plain": far,
        "key": pa.MapArray.from_arrays(offsets, far, near),
        "item": pa.MapArray.from_arrays(offsets, near, far),
        "second": pa.StructArray.from_arrays([near, far], ["a", "b"]),
        "list": pa.ListArray.from_arrays(offsets, far),
    }
    for name, column in columns.items():
        with pytest.raises(NotSupported, match=f"column {name} holds a timestamp") as refused:
            read(file_of(pa.table({"first": near, name: column})), ["first", name])
        assert refused.value.details["column"] == name
        for table in (pa.table({"first": near, name: column}), pa.table({name: pa.chunked_array([column[:1], column[1:]])})):
            with pytest.raises(NotSupported, match=f"column {name} holds a timestamp"):
                refuse_far_times(table, "orc")


def test_early_times_of_java_are_accepted_within_rounding() -> None:
    """Java's negative nanoseconds of a day come out of Arrow's micros 2^64 nanoseconds later."""
    wrapped = 2**64 // 1000
    nanos = pa.array([-5_000, 5_000], pa.timestamp("ns"))

    def same(*micros: int) -> bool:
        return _same_leaf(nanos, pa.array(micros, pa.timestamp("us")))

    assert same(-5, 5) and same(-4, 6) and same(-6, 4)
    assert same(wrapped - 5, 5) and same(wrapped - 4, 5) and same(wrapped - 6, 5)
    assert not same(-5, wrapped + 5), "after 1970 nothing is negative"
    assert not any(same(-5 + off, 5) or same(-5, 5 + off) or same(wrapped - 5 + off, 5) for off in (-2, 2))


@pytest.mark.parametrize(("unit", "values"), [("us", [-1]), ("us", [5, None, -1_001]), ("ns", [-1_000_001]), ("ns", [-1000])])
def test_digits_that_the_orc_reader_of_java_cannot_read(unit: str, values: list[int | None]) -> None:
    early = pa.array(values, pa.timestamp(unit))
    for column in (early, pa.StructArray.from_arrays([early], ["t"])):
        assert holds_early_digits(pa.record_batch({"c": column}))


def test_digits_that_the_orc_reader_of_java_reads() -> None:
    times = {"us": [-1_000, 1, None, 0, 253_402_300_799_999_999], "ns": [-1_000_000, 1], "ms": [-1], "s": [-1]}
    for unit, values in times.items():
        assert not holds_early_digits(pa.record_batch({"c": pa.array(values, pa.timestamp(unit))}))


def test_columns_with_dots_in_their_names() -> None:
    far = pa.array([253_402_300_799_999], pa.timestamp("ms"))
    sink = file_of(pa.table({"at.day": far, "at": [1], "day": [2]}))
    assert int96_columns(pq.ParquetFile(sink).schema, ["day", "at.day"]) == ["at.day"]
    with pytest.raises(NotSupported):
        read(sink, ["at.day"])
