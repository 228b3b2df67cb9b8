"""Arrow data in memory becomes rows by the same rules as files."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_cli import Table
from paimon_cli.datatypes.canonical_form import canonical_rows
from paimon_cli.errors import BadInput
from paimon_cli.ingest.faults import Tally
from paimon_cli.ingest.json_rows import Needed
from paimon_cli.ingest.row_sources import ArrowRows, FileRows, RowSource
from paimon_cli.ingest.rows import IncomingRows
from paimon_cli.pieces import PIECES
from tests.ingest.input_files import one_column, schema_of

SCHEMA = schema_of({"k": "INT NOT NULL", "v": "STRING", "m": "DECIMAL(10, 2)", "n": {"type": "ARRAY", "element": "INT"}})
GIVEN = pa.table(
    {
        "n": pa.array([[1], None, []] * 400, pa.large_list(pa.int64())),
        "v": pa.array(["a", None, "c"] * 400, pa.large_string()),
        "k": pa.array(range(1200), pa.uint16()),
        "m": pa.array([1, 2, None] * 400, pa.int8()),
    }
)


def read(source: RowSource) -> pa.Table:
    incoming = pickle.loads(pickle.dumps(IncomingRows(SCHEMA, source=source)))
    return pa.Table.from_batches([batch for split in source.plan() for batch in incoming.read(split, Tally())])


def test_arrow_data_becomes_the_rows_that_its_file_becomes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "arrow_split_bytes", 4096)
    path = str(tmp_path / "given.parquet")
    pq.write_table(GIVEN, path, store_schema=False)
    in_memory = read(ArrowRows(GIVEN))
    assert in_memory.combine_chunks().equals(read(FileRows((path,))).combine_chunks())
    assert in_memory["_SEQUENCE_NUMBER"].to_pylist() == list(range(1200))


def test_splits_cover_all_rows_once_and_share_the_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "arrow_split_bytes", 4096)
    splits = ArrowRows(GIVEN).plan()
    assert len(splits) > 3 and [split.first_row for split in splits] == [split.order_base for split in splits]
    assert sum(split.length or 0 for split in splits) == 1200
    assert GIVEN.nbytes - len(splits) <= sum(split.size for split in splits) <= GIVEN.nbytes


def test_small_chunks_are_read_as_one_batch() -> None:
    """Each batch is routed and sorted by itself."""
    chunks = pa.concat_tables([GIVEN.slice(begin, 100) for begin in range(0, 1200, 100)])
    (split,) = ArrowRows(chunks).plan()
    (batch,) = IncomingRows(SCHEMA, source=ArrowRows(chunks)).read(split, Tally())
    assert batch.num_rows == 1200 and read(ArrowRows(chunks)).equals(read(ArrowRows(GIVEN)))


@pytest.mark.parametrize("wrap", [lambda texts: texts, lambda texts: pa.StructArray.from_arrays([texts], ["a"])])
def test_chunks_whose_dictionaries_do_not_become_one_are_read_one_by_one(wrap: Callable[[pa.Array], pa.Array]) -> None:
    """There are more texts than int8 numbers, and Arrow joins no dictionaries of rows."""
    texts = [wrap(pa.array([f"{part}-{number}" for number in range(100)])) for part in range(2)]
    cells = pa.chunked_array([pa.DictionaryArray.from_arrays(pa.array(range(100), pa.int8()), one) for one in texts])
    source = ArrowRows(pa.table({"v": cells}))
    (split,) = source.plan()
    assert [raw.batch.num_rows for raw in source.raw_rows(split, [], Needed())] == [100, 100]


def test_arrow_data_without_rows_or_columns_is_one_split() -> None:
    (split,) = ArrowRows(GIVEN.slice(0, 0)).plan()
    assert list(IncomingRows(SCHEMA, source=ArrowRows(GIVEN.slice(0, 0))).read(split, Tally())) == []
    with pytest.raises(BadInput, match="my frame: column 'k' is missing"):
        read(ArrowRows(pa.table({}), "my frame"))


def test_times_of_arrow_data_need_a_zone_where_the_column_has_one() -> None:
    given = ArrowRows(pa.table({"k": pa.array([1], pa.int32()), "v": [datetime(2024, 5, 1, 12)]}))
    schema = one_column("TIMESTAMP(3) WITH LOCAL TIME ZONE")
    (split,) = given.plan()
    with pytest.raises(BadInput, match="give the zone"):
        list(IncomingRows(schema, source=given).read(split, Tally()))
    zoned = IncomingRows(schema, source=ArrowRows(given.table, timezone="Europe/Berlin"))
    (batch,) = zoned.read(split, Tally())
    assert next(iter(canonical_rows(batch, schema.fields)))["v"] == "2024-05-01T10:00:00Z"


@pytest.mark.parametrize("years", [[2024], [1, 2024], [1600, 9999], [1969, 9999]])
def test_int96_of_all_years(tmp_path: Path, years: list[int]) -> None:
    """Arrow reads them as 64-bit nanoseconds, which wrap around before 1677 and after 2262."""
    times = [datetime(year, 12, 31, 1, 2, 3, 456789) for year in years]
    pq.write_table(pa.table({"t": [None, *times]}), tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    table = Table.create(str(tmp_path / "t"), columns=["t TIMESTAMP(6)"])
    table.write(str(tmp_path / "a.parquet"))
    assert table.scan().to_arrow()["t"].to_pylist() == [None, *times]


def test_int96_of_far_years_beside_nanoseconds(tmp_path: Path) -> None:
    """They would need more than 64 bits."""
    nanos = pa.table({"t": pa.array([1], pa.timestamp("ns")), "n": [1]})
    pq.write_table(nanos, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    far = pa.table({"t": pa.array([datetime(9999, 1, 1)], pa.timestamp("us")), "n": [1]})
    pq.write_table(far, tmp_path / "b.parquet", use_deprecated_int96_timestamps=True)
    table = Table.create(str(tmp_path / "t"), columns=["t TIMESTAMP(9)", "n BIGINT"])
    table.write(str(tmp_path / "a.parquet"))
    with pytest.raises(BadInput):
        table.write(str(tmp_path / "b.parquet"))
    assert table.scan().to_arrow()["t"].cast(pa.int64()).to_pylist() == [1]
