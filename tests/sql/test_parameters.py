"""Parameters of conditions and expressions: values are data, whatever they hold."""

import datetime as dt
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from paimon_cli.api.table import Table
from paimon_cli.errors import BadInput, UsageError

COLUMNS = ["k BIGINT NOT NULL", "name STRING", "d DOUBLE", "day DATE", "at TIMESTAMP(6)", "price DECIMAL(10, 2)", "raw BYTES"]
ROWS = [
    (1, "O'Brien", 0.5, dt.date(2024, 1, 31), dt.datetime(2024, 1, 31, 12, 30), Decimal("1.50"), b"\x00'"),
    (2, "name", float("nan"), dt.date(2024, 2, 1), dt.datetime(2024, 2, 1), Decimal("2.00"), b""),
    (3, "x' OR 'a' = 'a", float("inf"), None, None, None, None),
]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table.create(tmp_path / "t", columns=COLUMNS, primary_key="k", bucket=1)
    names = [column.split()[0] for column in COLUMNS]
    rows = [dict(zip(names, row, strict=True)) for row in ROWS]
    schema = table.scan().schema
    table.write(pa.Table.from_pylist(rows, schema=schema))
    return table


@pytest.mark.parametrize(
    ("where", "value", "keys"),
    [
        ("name = :v", "O'Brien", [1]),
        ("name = :v", "x' OR 'a' = 'a", [3]),
        ("name = :v", "name", [2]),
        ("name LIKE :v", "x'%", [3]),
        ("name IS :v", None, []),
        ("day IS :v", None, [3]),
        ("day = :v", dt.date(2024, 1, 31), [1]),
        ("day >= :v", np.datetime64("2024-02-01"), [2]),
        ("at < :v", dt.datetime(2024, 2, 1), [1]),
        ("price > :v", Decimal("1.5"), [2]),
        ("price = :v", 1.5, [1]),
        ("raw = :v", b"\x00'", [1]),
        ("d = :v", float("inf"), [3]),
        ("d < :v", float("inf"), [1]),
        ("k > :v", np.int64(2), [3]),
        ("k > -:v", 5, [1, 2, 3]),
        ("k = :v + 1", 1, [2]),
        ("k IN :v", [1, 3], [1, 3]),
        ("k IN (:v)", {2}, [2]),
        ("k NOT IN (2, :v)", (3,), [1]),
        ("k IN :v", [], []),
        ("k NOT IN :v", [], [1, 2, 3]),
        ("name IN :v", pa.array(["name", "O'Brien"]), [1, 2]),
    ],
)
def test_a_value_is_data(table: Table, where: str, value: Any, keys: list[int]) -> None:
    assert table.scan(["k"], where, params={"v": value}).to_arrow().column("k").to_pylist() == keys


def test_wrong_parameters_are_refused(table: Table) -> None:
    refused: list[tuple[str | None, dict[str, Any], str]] = [
        ("k = :v", {}, "no value for the parameter :v"),
        ("k = 1", {"v": 1}, "parameter 'v' is not used"),
        (None, {"v": 1}, "parameter 'v' is not used"),
        ("k = :v", {"v": [1]}, "only IN takes a list"),
        ("k = :v", {"v": {}}, "has type dict"),
        ("k = :v", {"v": "abc"}, "cannot compare k .BIGINT. with :v"),
        ("k = ?", {}, "no value for the parameter"),
        (":v = k AND name = :v", {"v": 3}, "with :v"),
    ]
    for where, params, what in refused:
        with pytest.raises(UsageError, match=what):
            table.scan(where=where, params=params)


def test_a_message_quotes_the_parameter_and_not_its_value(table: Table) -> None:
    with pytest.raises(UsageError) as raised:
        table.scan(where="k = :v", params={"v": "x" * 10_000})
    assert ":v" in raised.value.message and len(raised.value.message) < 200


def test_the_order_takes_no_parameters(table: Table) -> None:
    with pytest.raises(UsageError, match="no value for the parameter :v in the order"):
        table.scan(order_by="k + :v")


def test_a_predicate_is_pickled_with_its_values(table: Table) -> None:
    predicate: Any = table.scan(where="name = :v", params={"v": "O'Brien"}).rows.predicate
    again = pickle.loads(pickle.dumps(predicate))
    assert (again.condition, again.params) == (predicate.condition, {"v": "O'Brien"})


def test_values_of_an_update_are_data(table: Table) -> None:
    assert table.update(values={"name": "name; price", "d": float("nan"), "day": None}, where="k IN :ks", params={"ks": [1]}).rows
    row = table.scan(where="k = 1").to_arrow().to_pylist()[0]
    assert (row["name"], row["day"], row["d"] != row["d"], row["price"]) == ("name; price", None, True, Decimal("1.50"))


def test_an_update_takes_expressions_values_and_parameters_at_once(table: Table) -> None:
    table.update({"price": "price * :by"}, "k = :k", values={"name": "new"}, params={"by": 2, "k": 2})
    row = table.scan(where="k = 2").to_arrow().to_pylist()[0]
    assert (row["name"], row["price"]) == ("new", Decimal("4.00"))


def test_a_value_that_its_column_cannot_hold_is_refused(table: Table) -> None:
    refused: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"price": "abc"}, BadInput, "'abc' is no value of column 'price'"),
        ({"name": 1}, BadInput, "its type is int"),
        ({"k": 1}, UsageError, "belongs to the primary key"),
        ({"nam": "x"}, UsageError, "no column 'nam'"),
        ({}, UsageError, "nothing to set"),
    ]
    for values, error, what in refused:
        with pytest.raises(error, match=what):
            table.update(values=values, where="true")
    with pytest.raises(UsageError, match="no condition"):
        table.update(values={"name": "x"})
    assert table.scan().to_arrow().num_rows == 3


def test_nested_values_of_an_update(tmp_path: Path) -> None:
    columns = ["k INT NOT NULL", "m MAP<STRING, INT>", "a ARRAY<INT>", "r ROW<x INT, y STRING>", "f FLOAT"]
    table = Table.create(tmp_path / "n", columns=columns, primary_key="k", bucket=1)
    table.write(pa.table({"k": pa.array([1], pa.int32())}))
    table.update(values={"m": {"a": 1}, "a": [1, None], "r": {"x": 1}, "f": 0.1}, where="true")
    row = table.scan().to_arrow().to_pylist()[0]
    assert (row["m"], row["a"], row["r"], round(row["f"], 6)) == ([("a", 1)], [1, None], {"x": 1, "y": None}, 0.1)


def test_delete_compare_bisect_and_changelog_take_parameters(table: Table) -> None:
    assert table.bisect("name = :n", params={"n": "name"}).snapshot_id == 1
    assert table.delete("name = :n", params={"n": "x' OR 'a' = 'a"}).rows == 1
    assert [row["k"] for row in table.changelog(2, where="name = :n", params={"n": "x' OR 'a' = 'a"}).to_arrow().to_pylist()] == [
        3
    ]
