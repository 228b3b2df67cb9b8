"""Which timestamps in ORC files Java's Paimon cannot read: the values were tried with Java 1.4.2, in each form."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyorc
import pytest
from pyorc.converters import ORCConverter

from paimon_cli.bucket.orc_converters import Days
from paimon_cli.bucket.orc_file import OrcFile
from paimon_cli.bucket.orc_times import misread_times
from paimon_cli.errors import DamagedFile

SECOND, MILLI = 10**9, 10**6
DAY_OF_1960 = -315_619_200 * SECOND
READ = [0, 1, 123_456_789, -999 * MILLI, -SECOND, -SECOND - MILLI, -500 * MILLI, -2 * SECOND, DAY_OF_1960 + 123 * MILLI]
NOT_READ = [-1, -1000, -999_999, -MILLI - 1, -999 * MILLI - 1, -SECOND - 1, -SECOND - MILLI - 1000, DAY_OF_1960 + 456]
"""If Arrow has written them; of Java, nanoseconds since 1970."""


class Down(ORCConverter):
    """Rounds the seconds down, as Java's writers do."""

    @staticmethod
    def from_orc(seconds: int, nanos: int, zone: Any) -> int:
        return seconds * SECOND + nanos

    @staticmethod
    def to_orc(nanos: int, zone: Any) -> tuple[int, int]:
        return divmod(nanos, SECOND)


def of_arrow(rows: pa.Table) -> OrcFile:
    sink = io.BytesIO()
    orc.write_table(rows, sink)
    return OrcFile(sink)


def of_others(nanos: list[int]) -> OrcFile:
    sink = io.BytesIO()
    with pyorc.Writer(sink, "struct<t:timestamp>", converters={pyorc.TypeKind.TIMESTAMP: Down}) as writer:
        writer.writerows([(one,) for one in nanos])
    return OrcFile(sink)


@pytest.mark.parametrize("nanos", NOT_READ)
def test_what_java_ends_on_is_found(nanos: int) -> None:
    times = pa.array([*READ, None, nanos], pa.timestamp("ns"))
    assert list(misread_times(of_arrow(pa.table({"a": times[:-1], "t": times[1:]})), ["a", "t"])) == ["t"]


def test_what_java_reads_is_not() -> None:
    assert not list(misread_times(of_arrow(pa.table({"t": pa.array([*READ, None], pa.timestamp("ns"))})), ["t"]))
    assert not list(misread_times(of_others([*READ, *NOT_READ]), ["t"])), "seconds are rounded down"


def test_times_within_other_columns_are_found_also_under_odd_names() -> None:
    zoned = pa.array([1, NOT_READ[0] - SECOND], pa.timestamp("ns", "UTC"))
    columns = {
        "id": pa.array([1, 2]),
        "a.b": pa.StructArray.from_arrays([pa.array([5, 6]), zoned], ["x", "y"]),
        "list": pa.ListArray.from_arrays([0, 1, 2], zoned),
        "map": pa.MapArray.from_arrays([0, 1, 2], pa.array(["k", "l"]), zoned),
        "keys": pa.MapArray.from_arrays([0, 1, 2], pa.ListArray.from_arrays([0, 1, 2], zoned), pa.array([1, 2])),
        "fine": pa.StructArray.from_arrays([pa.array([5, 6], pa.timestamp("ns"))], ["x"]),
    }
    assert list(misread_times(of_arrow(pa.table(columns)), [*columns, "absent"])) == ["a.b", "list", "map", "keys"]


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_instants_are_looked_at_like_local_times(zone: str | None) -> None:
    kind = pa.timestamp("ns", zone)
    times = pa.table({"fine": pa.array(READ, kind), "t": pa.array([NOT_READ[-1], *READ[1:]], kind)})
    assert list(misread_times(of_arrow(times), ["fine", "t"])) == ["t"]


def test_each_stripe_is_looked_at() -> None:
    sink = io.BytesIO()
    nanos = [number * 7919**3 % SECOND**2 for number in range(20_000)]
    orc.write_table(pa.table({"t": pa.array([*nanos, NOT_READ[0]], pa.timestamp("ns"))}), sink, stripe_size=4096)
    file = OrcFile(sink)
    assert file.nstripes > 1 and list(misread_times(file, ["t"])) == ["t"]


def test_a_damaged_file_is_no_file_that_java_reads() -> None:
    from paimon_cli.bucket.decoding import decoding

    sink = io.BytesIO()
    orc.write_table(pa.table({"t": pa.array(NOT_READ * 50, pa.timestamp("ns"))}), sink)
    file, content = OrcFile(sink), sink.getbuffer()
    content[3:200] = b"\xff" * 197
    with pytest.raises(DamagedFile), decoding("f.orc"):
        file.has_negative_digits(0, "t")


def test_a_date_beyond_those_of_python_beside_a_time_is_no_damage() -> None:
    sink, converters = io.BytesIO(), {pyorc.TypeKind.DATE: Days, pyorc.TypeKind.TIMESTAMP: Down}
    with pyorc.Writer(sink, "struct<s:struct<t:timestamp,d:date>>", converters=converters) as writer:
        writer.write(((DAY_OF_1960 + 456, 4_000_000),))
    assert not OrcFile(sink).has_negative_digits(0, "s")
