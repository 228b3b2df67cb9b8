"""ORC files with early timestamps: the rows and the form of Arrow's files, seconds rounded down; what has no form is refused."""

from __future__ import annotations

import io
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyorc
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyarrow import orc

from paimon_cli.bucket import orc_rows
from paimon_cli.bucket.orc_converters import LOST
from paimon_cli.bucket.orc_file import orc_column
from paimon_cli.bucket.orc_rows import OrcRows
from paimon_cli.datatypes.internal_values import Timestamp, timestamp_text
from paimon_cli.errors import NotSupported
from paimon_cli.history.live_files import bucket_files
from paimon_cli.pieces import PIECES
from tests.tables import compact, make_table, rows, write

EARLY = -2_000_000_500
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "self": (pa.bool_(), [True, None, False]),
    "i1": (pa.int8(), [-128, None, 127]),
    "i2": (pa.int16(), [None, -5, 5]),
    "i4": (pa.int32(), [1, None, -1]),
    "i8": (pa.int64(), [-(2**63), 2**63 - 1, None]),
    "f4": (pa.float32(), [0.5, None, float("inf")]),
    "f8": (pa.float64(), [-0.0, 1e300, None]),
    "s": (pa.string(), ["ü", "", None]),
    "b": (pa.binary(), [b"\0\xff", b"", None]),
    "short": (pa.decimal128(5, 2), [Decimal("-123.45"), None, Decimal("0.01")]),
    "long": (pa.decimal128(38, 20), [Decimal("-123456789012345678.12345678901234567890"), None, Decimal(0)]),
    "day": (pa.date32(), [-3_000_000, None, 8_000_000]),
    "time": (pa.time32("ms"), [0, None, 86_399_999]),
    "milli": (pa.timestamp("ms"), [-1, None, 1]),
    "micro": (pa.timestamp("us", "UTC"), [-1_000_001, None, 1]),
    "nano": (pa.timestamp("ns"), [EARLY, None, -1_000_000]),
    "list": (pa.list_(pa.timestamp("ns")), [[EARLY, None], [], None]),
    "map": (pa.map_(pa.timestamp("us"), pa.timestamp("ns")), [[(-1_000_001, EARLY), (5, None)], [], None]),
    "row": (
        pa.struct([("self", pa.timestamp("ns")), ("d", pa.date32())]),
        [{"self": EARLY, "d": 1}, {"self": None, "d": None}, None],
    ),
    "deep": (pa.list_(pa.struct([("x", pa.list_(pa.string()))])), [[{"x": ["a", None]}, None], [{"x": None}], None]),
}
QUICK = settings(max_examples=25, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None)


def table(repeated: int = 1) -> pa.Table:
    columns = {name: pa.chunked_array([pa.array(values * repeated, t)]) for name, (t, values) in TYPES.items()}
    return pa.table({name: orc_column(column) for name, column in columns.items()})


def by_rows(rows_: pa.Table, codec: str = "zstd", stripe_bytes: int = 16 << 20, dictionary_threshold: float = 0.5) -> bytes:
    sink = io.BytesIO()
    writer = OrcRows(sink, rows_.schema, codec, stripe_bytes, dictionary_threshold)
    writer.write(rows_)
    writer.close()
    return sink.getvalue()


@pytest.mark.parametrize("codec", ["zstd", "snappy", "lz4", "zlib", "uncompressed"])
def test_the_same_file_as_arrows(codec: str) -> None:
    expected = table(2 * PIECES.orc_batch_rows // 3)
    sink = io.BytesIO()
    writer = orc.ORCWriter(sink, compression=codec, dictionary_key_size_threshold=0.5)
    writer.write(expected)
    writer.close()
    ours, arrows = (orc.ORCFile(io.BytesIO(content)) for content in (by_rows(expected, codec), sink.getvalue()))
    assert ours.read().equals(arrows.read())
    assert ours.schema.equals(arrows.schema)
    form = ("compression", "compression_size", "row_index_stride", "file_version", "writer", "writer_version", "metadata")
    assert [getattr(ours, name) for name in form] == [getattr(arrows, name) for name in form]
    schemas = [pyorc.Reader(io.BytesIO(content)).schema for content in (by_rows(expected.drop("self").drop("row")),)]
    assert "micro:timestamp with local time zone,nano:timestamp,list:array<timestamp>" in str(schemas[0])


def test_stripes_end_where_they_should() -> None:
    numbers = pa.table({"t": pa.array(range(EARLY * 1000, EARLY * 1000 + 100_000 * 7, 7), pa.timestamp("ns"))})
    file = orc.ORCFile(io.BytesIO(by_rows(numbers, stripe_bytes=64 << 10)))
    assert file.nstripes > 1
    assert file.read().equals(numbers)


def test_texts_are_in_dictionaries_as_the_threshold_says() -> None:
    texts = pa.table({"s": [f"{n % 40:0500}" for n in range(100)], "t": pa.array([EARLY] * 100, pa.timestamp("ns"))})
    sizes = {share: len(by_rows(texts, "uncompressed", dictionary_threshold=share)) for share in (0.0, 0.3, 0.5, 1.0)}
    assert sizes[0.0] == sizes[0.3] > 50_000 > 25_000 > sizes[0.5] == sizes[1.0], "0.4 of the texts are different"


@given(nanos=st.lists(st.integers(-(10**18), 10**18) | st.integers(-3 * 10**9, 10**9) | st.none(), min_size=1, max_size=50))
@QUICK
def test_seconds_are_rounded_down(nanos: list[int | None]) -> None:
    readable = [n for n in nanos if n is None or not LOST[0] < n < LOST[1] or n % 10**6 == 0]
    times = pa.table({"t": pa.array(readable, pa.timestamp("ns"))})
    content = by_rows(times)
    assert orc.ORCFile(io.BytesIO(content)).read().equals(times)
    found = [pair for (pair,) in pyorc.Reader(io.BytesIO(content), converters={pyorc.TypeKind.TIMESTAMP: Pairs})]
    expected = [n if n is None else (0, n) if LOST[0] <= n < LOST[1] else divmod(n, 10**9) for n in readable]
    assert found == expected


class Pairs(pyorc.converters.TimestampConverter):
    @staticmethod
    def from_orc(seconds: int, nanoseconds: int, timezone: object) -> Any:
        return seconds, nanoseconds


@pytest.mark.parametrize("nanos", [-1, -998_999_999, -1_000_001, -500_000_500])
def test_what_has_no_form_is_refused(nanos: int) -> None:
    leaf = pa.array([EARLY, nanos], pa.timestamp("ns"))
    for column in (leaf, pa.StructArray.from_arrays([leaf], ["t"]), pa.array([leaf.to_numpy()], pa.list_(leaf.type))):
        for chunks in ([column], [pa.nulls(1, column.type), column]):  # a row group is made of several batches
            with pytest.raises(NotSupported, match="column c holds a timestamp in the last second before 1970"):
                by_rows(pa.table({"c": pa.chunked_array(chunks)}))
            fine = pa.array([EARLY] * sum(map(len, chunks)), leaf.type)
            with pytest.raises(NotSupported, match="column c holds a timestamp in the last second before 1970"):
                by_rows(pa.table({"fine": fine, "c": pa.chunked_array(chunks), "more": fine}))


@pytest.mark.parametrize("keys", [pa.array([1, 1]), pa.array([{"x": 1}, {"x": 2}])])
def test_maps_that_are_not_dictionaries_are_refused(keys: pa.Array) -> None:
    maps = pa.MapArray.from_arrays(pa.array([0, 2], pa.int32()), keys, pa.array([1, 2]))
    with pytest.raises(NotSupported, match="a map has equal keys"):
        by_rows(pa.table({"m": maps}))


def times(precision: int) -> st.SearchStrategy[str]:
    step = 10 ** (9 - precision)
    near = st.integers(-5 * 10**9 // step, 10**9 // step) | st.integers(-(9 * 10**18) // step, 10**18 // step)
    kept = near.map(lambda n: n * step).filter(lambda n: not LOST[0] < n < LOST[1] or n % 10**6 == 0)
    return kept.map(lambda n: timestamp_text(Timestamp(*divmod(n, 10**6))))


@given(data=st.data())
@QUICK
def test_tables_keep_them_through_writes_and_compactions(data: st.DataObject) -> None:
    columns = {
        "a": "TIMESTAMP(3)",
        "b": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
        "c": "TIMESTAMP(9)",
        "n": "ROW<x ARRAY<TIMESTAMP(9)>>",
    }
    row: dict[str, st.SearchStrategy[Any]] = {
        "id": st.integers(0, 30),
        "t": times(6),
        "a": st.none() | times(3),
        "b": st.none() | times(6).map(lambda text: text + "Z"),
        "c": st.none() | times(9),
        "n": st.none() | st.fixed_dictionaries({"x": st.lists(st.none() | times(9), max_size=3)}),
    }
    with tempfile.TemporaryDirectory() as folder:
        types = {"id": "INT NOT NULL", "t": "TIMESTAMP(6) NOT NULL", **columns}
        context = make_table(Path(folder) / "t", types, ["id", "t"], options={"file.format": "orc"})
        expected: dict[tuple[int, str], dict[str, Any]] = {}
        for _ in range(2):
            drawn = data.draw(st.lists(st.fixed_dictionaries(row), min_size=1, max_size=8))
            unique = {(one["id"], one["t"]): one for one in drawn}
            write(context, list(unique.values()))
            expected |= unique
        for _ in range(2):
            assert {(row["id"], row["t"]): row for row in rows(context)} == expected
            compact(context, strategy="full")


def test_only_files_that_need_it_go_by_rows(tmp_path: Path) -> None:
    columns = {"id": "INT NOT NULL", "t": "TIMESTAMP(6)"}
    options = {"file.format": "orc", "file.block-size": "64 kb"}
    context = make_table(tmp_path / "t", columns, ["id"], options=options)
    early = "1969-12-31T23:00:00.000001"
    many = [{"id": n, "t": early if n == 7_000 else "2026-11-22T04:00:00.000001"} for n in range(20_000)]
    with mock.patch.object(orc_rows, "OrcRows", wraps=OrcRows) as opened:
        write(context, many)
        assert opened.call_count == 1
        compact(context, strategy="full")
        assert opened.call_count == 2
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    first, second = sorted(bucket.files, key=lambda file: file.max_sequence_number)
    assert first.level == second.level > 0 and 0 < first.row_count <= 7_000 and first.row_count + second.row_count == 20_000
    assert sorted(rows(context), key=lambda row: row["id"]) == many
