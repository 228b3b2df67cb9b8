"""What `Table.write` takes beside Arrow data, frames and paths."""

import datetime as dt
import tempfile
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from paimon_cli import Runtime, Table
from paimon_cli.api.runtime import ProgressLine
from paimon_cli.errors import BadInput, UsageError
from paimon_cli.pieces import PIECES

COLUMNS = [
    "k BIGINT NOT NULL",
    "v STRING",
    "f FLOAT",
    "m MAP<STRING, INT>",
    "r ROW<x INT, y STRING>",
    "p DECIMAL(10, 2)",
    "day DATE",
]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table.create(tmp_path / "t", columns=COLUMNS, primary_key="k", bucket=1)


def parquet_file(folder: Path) -> str:
    pq.write_table(pa.table({"k": [1], "v": ["a"]}), folder / "rows.parquet")
    return str(folder / "rows.parquet")


TAKEN: list[Callable[[Path], Any]] = [
    lambda folder: [{"k": 1, "v": "a"}],
    lambda folder: ({"k": k, "v": v} for k, v in [(1, "a")]),
    lambda folder: {"k": [1], "v": ["a"]},
    lambda folder: {"k": np.array([1]), "v": pa.array(["a"])},
    lambda folder: [pa.table({"k": [1]}), pa.table({"v": ["a"], "k": [1]})],
    lambda folder: [pl.DataFrame({"k": [1], "v": ["a"]})],
    lambda folder: pl.LazyFrame({"k": [1], "v": ["b"]}).with_columns(v=pl.lit("a")),
    lambda folder: ds.dataset(parquet_file(folder)),
]


@pytest.mark.parametrize("number", range(len(TAKEN)))
def test_what_notebooks_have_is_written(table: Table, tmp_path: Path, number: int) -> None:
    table.write(TAKEN[number](tmp_path))
    assert table.scan(["k", "v"]).to_arrow().to_pylist() == [{"k": 1, "v": "a"}]


def test_rows_in_dicts_have_the_types_of_the_table(table: Table) -> None:
    row = {"k": 1, "f": 0.1, "m": {"x": 1}, "r": {"y": "z"}, "p": 1.25, "day": dt.date(2024, 1, 1)}
    table.write([row, {"k": 2}])
    first, second = table.to_arrow().to_pylist()
    assert first == {**row, "v": None, "f": pytest.approx(0.1), "m": [("x", 1)], "r": {"x": None, "y": "z"}, "p": Decimal("1.25")}
    assert set(second.values()) == {2, None}
    table.write([{"k": 3}, {**row, "k": 4}], overwrite=True)
    assert table.to_arrow().to_pylist()[1] == {**first, "k": 4}, "also a column that the first row lacks"


NO_MAPS = ([None], [("a", 1), None], ["ab"], "ab", 7, [("a", 1, 2)], {"a"})
"""For a pair that is None Arrow would end the process."""


@pytest.mark.parametrize(
    ("data", "what"),
    [
        ([{"k": "x"}], "column 'k' has type string"),
        ([{"k": 1, "zz": 1}], "the table has no column 'zz'"),
        ({"k": 1}, "column 'k' is no list of values: its type is int"),
        ({"k": "abc"}, "column 'k' is no list of values: its type is str"),
        ([{"k": 2**70}], "column 'k' cannot be converted"),
        ([{"k": 1, "f": 1e300}], "column 'f' cannot take"),
        ([{"k": 1, "r": {"z": 1}}], "column 'r' cannot be converted: the ROW has no field 'z'"),
        ([{"k": 1, "r": {"": 1}}], "column 'r' cannot be converted: the ROW has no field ''"),
        ([{"k": 1, "r": {None: 1}}], "column 'r' cannot be converted: the ROW has no field 'None'"),
        ([{"v": "x"}], "column 'k' is missing"),
        ([{"k": 1, "p": float("nan")}], "column 'p' cannot be converted: a DECIMAL cannot be nan"),
        *([([{"k": 1, "m": value}], "column 'm' cannot be converted: a MAP is a dict, or a list of pairs") for value in NO_MAPS]),
        ([{"k": 1, "p": True}], "column 'p' has type bool, the table's is DECIMAL"),
        ([{"k": 1, "p": 2}, {"k": 2, "p": False}], "column 'p' cannot be converted"),
    ],
)
def test_rows_that_do_not_fit_are_refused(table: Table, data: Any, what: str) -> None:
    with pytest.raises(BadInput, match=what):
        table.write(data)
    assert table.snapshot_id is None


@pytest.mark.parametrize(
    ("data", "what"),
    [
        ([{"k": 1}, 3], "cannot write list data: its items have type dict and int; it must be"),
        ([1, 2], "its items have type int; it must be"),
        (object(), "cannot write object data: it must be"),
        (7, "cannot write int data: it must be"),
    ],
)
def test_other_data_is_refused(table: Table, data: Any, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        table.write(data)


@pytest.mark.parametrize("empty", [[], (), iter(())])
def test_a_list_without_rows_is_an_empty_table(table: Table, empty: Any) -> None:
    table.write([{"k": 1, "v": "a"}])
    assert table.write(empty).rows == 0
    assert table.plan_write([]).plan.rows == 0
    assert table.merge([], on="k").when_not_matched_insert_all().execute().inserted == 0
    with table.transaction() as changes:
        assert changes.write([]).rows == 0
        changes.merge([], on="k").when_matched_delete().execute()
    assert table.count() == 1
    done = table.merge([], on="k").when_not_matched_by_source_delete().execute()
    assert (done.deleted, table.count()) == (1, 0)


def test_rows_without_any_value_are_rows(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "a", columns=["a INT", "b STRING"])
    assert table.write([{}, {}]).rows == 2
    assert table.to_arrow().to_pylist() == [{"a": None, "b": None}] * 2


def test_rows_without_any_value_have_no_key(table: Table) -> None:
    with pytest.raises(BadInput, match="column 'k' is missing"):
        table.write([{}])


def test_progress_true_shows_the_phases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = Table.create(tmp_path / "p", columns=COLUMNS, primary_key="k", bucket=1, runtime=Runtime(progress=True))
    table.write([{"k": 1}])
    table.delete("true")
    shown = capsys.readouterr()
    assert "Writing rows" in shown.err and "Changing rows 1 of 1" in shown.err and not shown.out


def test_a_shorter_phase_covers_the_one_before_it(capsys: pytest.CaptureFixture[str]) -> None:
    line = ProgressLine()
    line.start("Reading and routing", None)
    line.start("Sorting", None)
    line.finish()
    assert capsys.readouterr().err.split("\r")[1:] == ["Reading and routing", f"{'Sorting':<19}", "Sorting\n"]


def test_a_long_stream_is_written_from_a_temporary_file(table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "source_bytes", 1000)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    schema = pa.schema([("k", pa.int64()), ("v", pa.string())])

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, 1000, 100):
            yield pa.RecordBatch.from_pydict({"k": range(start, start + 100), "v": ["x"] * 100}, schema=schema)
            assert start < 100 or list((tmp_path / "tmp").glob("*spill*/run-*"))

    assert table.write(pa.RecordBatchReader.from_batches(schema, batches())).rows == 1000
    assert not list((tmp_path / "tmp").glob("*spill*"))
    copy = Table.create(tmp_path / "copy", columns=["k BIGINT", "v STRING"])
    copy.write(ds.dataset(table.scan(["k", "v"]).to_arrow()))
    assert copy.count() == 1000 and copy.scan(order_by="k").to_arrow() == table.scan(["k", "v"], order_by="k").to_arrow().cast(
        copy.scan().schema
    )


@pytest.mark.parametrize("verb", ["write", "merge"])
def test_a_stream_that_breaks_off_is_bad_input(table: Table, tmp_path: Path, verb: str) -> None:
    path = tmp_path / "cut.parquet"
    pq.write_table(pa.table({"k": range(1000), "v": ["x"] * 1000}), path, row_group_size=100)
    content = bytearray(path.read_bytes())
    content[400:3000] = bytes(2600)
    path.write_bytes(content)
    source = ds.dataset(path)
    with pytest.raises(BadInput, match="cannot be read to its end"):
        table.write(source) if verb == "write" else table.merge(source, on="k").when_not_matched_insert_all().execute()
    assert table.snapshot_id is None
