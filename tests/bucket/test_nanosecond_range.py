"""INT96 timestamps that 64-bit nanoseconds cannot hold are refused, not wrapped."""

from __future__ import annotations

import io
import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_cli.bucket.nanosecond_range import (
    NANOS_PER,
    checked_int96,
    holds_early_digits,
    int96_columns,
    raw_int96,
    refuse_far_times,
    with_far_int96,
)
from paimon_cli.bucket.parquet_chunks import footer_bytes
from paimon_cli.errors import NotSupported
from paimon_cli.metadata.compact_thrift import I32, decode, encode, number
from paimon_cli.metadata.parquet_footer import closed


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


Int96 = tuple[int, int] | None
"""Nanoseconds of the day, and days since 1970."""


def int96_file(*columns: list[tuple[int, int] | None]) -> io.BytesIO:
    """A file with columns `c`, `d` and so on of these pairs: nanoseconds of the day, and days since 1970."""
    stored = [[value and struct.pack("<qi", value[0], value[1] + 2_440_588) for value in values] for values in columns]
    table = pa.table({name: pa.array(values, pa.binary(12)) for name, values in zip("cdef", stored, strict=False)})
    sink = io.BytesIO()
    pq.write_table(table, sink, store_schema=False)
    content = sink.getvalue()
    footer = decode(footer_bytes(sink))
    for described in (*footer.elements(2)[1:], *(chunk.required(3) for g in footer.elements(4) for chunk in g.elements(1))):
        described[1] = number(3, I32)
    size = int.from_bytes(content[-8:-4], "little")
    return io.BytesIO(closed([content[4 : -size - 8]], encode(footer)))


def with_far(sink: io.BytesIO, columns: list[str], start: int = 0) -> pa.RecordBatch:
    """The rows from `start` on, with far times in microseconds."""
    nanoseconds, raw = (reader.read().to_batches()[0].slice(start) for reader in (pq.ParquetFile(sink), raw_int96(sink)))
    return with_far_int96(nanoseconds, raw, columns)


DAY = 86_400 * 10**9
YEAR_1400 = -208_190  # days


def as_int96(nanos: int, *, of_java: bool) -> tuple[int, int]:
    """Java's division goes towards zero, and leaves negative nanoseconds before 1970."""
    days = -(-nanos // DAY) if of_java and nanos < 0 else nanos // DAY
    return nanos - days * DAY, days


@pytest.mark.parametrize("of_java", [False, True])
def test_early_times_are_read_as_they_are(of_java: bool) -> None:
    times = [-1, -DAY + 1, -DAY, -5_000, 5_000, -(2**63) + 10**6, 2**63 - 1, 0]
    sink = int96_file([None, *(as_int96(nanos, of_java=of_java) for nanos in times)])
    batches = read(sink, ["c"])
    assert [time for batch in batches for time in batch["c"].cast(pa.int64()).to_pylist()] == [None, *times]


@pytest.mark.parametrize("of_java", [False, True])
@pytest.mark.parametrize(
    "nanos",
    [YEAR_1400 * DAY - 1_000, YEAR_1400 * DAY + 5_000, -(2**63) // 1000 * 1000, 2**63 // 1000 * 1000 + 1000, -719_162 * DAY],
)
def test_far_times_are_told_from_those_584_years_later(nanos: int, of_java: bool) -> None:
    """Arrow reads Java's times of 1400 as those of 1984 in every unit that it has."""
    sink = int96_file([None, as_int96(0, of_java=of_java), as_int96(nanos, of_java=of_java)])
    with pytest.raises(NotSupported, match="column c holds a timestamp before 1677 or after 2262"):
        read(sink, ["c"])
    nanoseconds, raw = (reader.read().to_batches()[0] for reader in (pq.ParquetFile(sink), raw_int96(sink)))
    found = with_far_int96(nanoseconds, raw, ["c"]).column("c")
    assert (found.type, found.cast(pa.int64()).to_pylist()) == (pa.timestamp("us"), [None, 0, nanos // 1000])


@pytest.mark.parametrize("times", [[YEAR_1400 * DAY + 1], [YEAR_1400 * DAY + 5000, 1], [YEAR_1400 * DAY + 1, 0]])
def test_far_times_with_nanoseconds_are_refused(times: list[int]) -> None:
    """Whichever of them has the nanoseconds."""
    with pytest.raises(NotSupported, match="column c holds timestamps before 1677"):
        with_far(int96_file([None, *(as_int96(nanos, of_java=True) for nanos in times)]), ["c"])


WRAPPING = 213_399_816
"""A day whose microseconds since 1970, cut to 64 bits, are those of a day within a century of it."""


@pytest.mark.parametrize("day", [2**31 - 1 - 2_440_588, -(2**31) + 1, WRAPPING, -WRAPPING])
def test_years_that_no_microseconds_hold_are_refused(day: int) -> None:
    sink = int96_file([(0, 0), (0, day)])
    with pytest.raises(NotSupported, match="column c"):
        with_far(sink, ["c"])
    with pytest.raises(NotSupported, match="column c holds a timestamp before 1677 or after 2262"):
        read(sink, ["c"])


def test_the_time_after_the_last_of_64_bits_is_refused() -> None:
    with pytest.raises(NotSupported, match="column c holds a timestamp before 1677 or after 2262"):
        read(int96_file([as_int96(2**63, of_java=False)]), ["c"])


def test_each_column_keeps_its_times_in_the_unit_that_it_needs() -> None:
    """Those of the rows that are asked for decide."""
    near, far = as_int96(5000, of_java=False), as_int96(YEAR_1400 * DAY, of_java=False)
    sink = int96_file([far, near, near], [near, far, near], [near, None, near], [near, near, far])
    found = with_far(sink, ["c", "d", "e", "f"], start=1)
    assert found.schema.types == [pa.timestamp(unit) for unit in ("ns", "us", "ns", "us")]
    early = YEAR_1400 * DAY // 1000
    stored = [column.cast(pa.int64()).to_pylist() for column in found.columns]
    assert stored == [[5000, 5000], [early, 5], [None, 5000], [5, early]]


def test_far_instants_stay_instants() -> None:
    sink = int96_file([as_int96(YEAR_1400 * DAY, of_java=False)])
    nanoseconds, raw = (reader.read().to_batches()[0] for reader in (pq.ParquetFile(sink), raw_int96(sink)))
    instants = nanoseconds.cast(pa.schema({"c": pa.timestamp("ns", "UTC")}))
    assert with_far_int96(instants, raw, ["c"]).schema.types == [pa.timestamp("us", "UTC")]


def test_far_times_in_a_nested_column_are_refused() -> None:
    far = pa.array([0, -62135596800000], pa.timestamp("ms"))
    sink = file_of(pa.table({"near": far[:1].take([0, 0]), "c": pa.StructArray.from_arrays([far], ["t"])}))
    with pytest.raises(NotSupported, match="column c holds a timestamp before 1677") as refused:
        with_far(sink, ["near", "c"])
    assert "nested" in refused.value.why


@pytest.mark.parametrize(("unit", "values"), [("us", [-1]), ("us", [5, None, -1_001]), ("ns", [-1_000_001]), ("ns", [-1000])])
def test_digits_that_the_orc_reader_of_java_cannot_read(unit: str, values: list[int | None]) -> None:
    early = pa.array(values, pa.timestamp(unit))
    for column in (early, pa.StructArray.from_arrays([early], ["t"])):
        assert holds_early_digits(pa.record_batch({"c": column}))
        fine = pa.array([1] * len(column), early.type)
        assert holds_early_digits(pa.record_batch({"fine": fine, "c": column, "more": fine}))


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
