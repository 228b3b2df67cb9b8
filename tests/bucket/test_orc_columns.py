"""What pyarrow's ORC writer gets comes back: nulls of structs reach what lies below them."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest
from pyarrow import orc

from paimon_cli.bucket.orc_file import orc_column

ROW = pa.struct([pa.field("r", pa.int64(), nullable=False)])
VISIBLE = pa.StructArray.from_arrays([pa.array([5, 1, 2])], fields=list(ROW), mask=pa.array([True, False, False]))
HIDDEN_LISTS = pa.ListArray.from_arrays(pa.array([0, 2, 3, 3]), pa.array([1, 2, 3]), mask=pa.array([True, False, False]))
HIDDEN_MAPS = pa.MapArray.from_arrays(
    pa.array([0, 2, 3, 3]), pa.array([1, 2, 3]), VISIBLE, type=pa.map_(pa.int64(), ROW), mask=pa.array([True, False, False])
)
COLUMNS: dict[str, tuple[pa.Array, list[object]]] = {
    "struct in struct": (pa.StructArray.from_arrays([VISIBLE], names=["q"]), [{"q": None}, {"q": {"r": 1}}, {"q": {"r": 2}}]),
    "hidden entries of lists": (HIDDEN_LISTS, [None, [3], []]),
    "hidden entries of maps": (HIDDEN_MAPS, [None, [(3, {"r": 2})], []]),
    "lists in structs": (pa.StructArray.from_arrays([HIDDEN_LISTS], names=["l"]), [{"l": None}, {"l": [3]}, {"l": []}]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_round_trip(name: str) -> None:
    column, expected = COLUMNS[name]
    for first in (0, 1):
        sink = io.BytesIO()
        writer = orc.ORCWriter(sink)
        writer.write(pa.table({"c": orc_column(pa.chunked_array([column.slice(first)]))}))
        writer.close()
        assert orc.ORCFile(io.BytesIO(sink.getvalue())).read().column("c").to_pylist() == expected[first:]


def test_times_are_integers() -> None:
    times = pa.chunked_array([pa.array([[1, None], None], pa.list_(pa.time32("ms")))])
    assert orc_column(times).to_pylist() == [[1, None], None]
