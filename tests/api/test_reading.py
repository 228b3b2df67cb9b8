"""A table at a glance, and scans that are refined."""

import datetime as dt
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from paimon_cli import Catalog, Runtime, Table
from paimon_cli.errors import AlreadyExists, NotFound, SnapshotNotFound, TableNotFound, UsageError
from paimon_cli.sql import predicate_sql
from tests.tables import make_table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Catalog(str(tmp_path)).create_table(
        "shop.t", columns=["dt STRING NOT NULL", "k BIGINT NOT NULL", "v STRING"], primary_key="dt,k", partition_by="dt", bucket=1
    )
    table.write(pa.table({"dt": ["a", "a", "b"], "k": [1, 2, 3], "v": ["x", "y", "z"]}))
    return table


def test_a_table_says_what_it_is(table: Table) -> None:
    assert (table.columns, table.primary_keys, table.partition_keys) == (["dt", "k", "v"], ["dt", "k"], ["dt"])
    assert (table.snapshot_id, table.count(), table.head(2).num_rows, table.to_arrow().num_rows) == (1, 3, 2, 3)
    assert table.to_pandas().shape == (3, 3)
    assert table.schema().to_arrow().field("k") == pa.field("k", pa.int64(), nullable=False)
    assert pa.table(table).num_rows == 3 and pa.schema(table).names == ["dt", "k", "v"]


def test_a_notebook_proposes_no_plumbing(table: Table) -> None:
    proposed = set(dir(table))
    assert {"scan", "merge", "transaction", "tags", "compact"} <= proposed
    assert not {"at", "context", "check_call", "check_commit", "supported"} & proposed
    for thing, kept, hidden in (
        (Catalog("w"), {"tables", "sql"}, {"at"}),
        (Runtime(), {"engine", "progress"}, {"open_engine", "engine_running", "new_progress", "given_engine"}),
        (table.scan(), {"to_arrow", "filter"}, {"rows"}),
    ):
        assert kept <= set(dir(thing)) and not hidden & set(dir(thing))


def test_the_constructor_names_the_way_to_open_a_table() -> None:
    with pytest.raises(UsageError) as refused:
        Table("wh/t")
    assert refused.value.hint == "Table.open('wh/t')"


def test_an_empty_table_has_no_snapshot(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", columns=["k INT"])
    assert (table.snapshot_id, table.count(), table.head().num_rows, table.primary_keys) == (None, 0, 0, [])


def test_a_scan_is_refined(table: Table) -> None:
    scan = table.scan(where="k > :low -- a comment", params={"low": 1})
    assert scan.filter("v <> :v", {"v": "z"}).select("v").to_arrow().to_pylist() == [{"v": "y"}]
    assert scan.filter("dt = 'a' OR dt = 'b'").count() == 2
    assert scan.count() == 2
    for condition in ("k = 1) OR (true", "nothing = 1"):
        with pytest.raises(UsageError):
            scan.filter(condition)
    with pytest.raises(UsageError, match="has a value already"):
        scan.filter("k < :low", {"low": 2})
    with pytest.raises(UsageError, match="limit"):
        table.scan(limit=1).filter("k = 1")
    assert scan.select(["v", "k"]).schema.names == scan.select("v", "k").schema.names == ["v", "k"]
    with pytest.raises(UsageError, match="no column"):
        scan.select()
    with pytest.raises(UsageError, match="no column"):
        scan.select([])


def test_a_refined_scan_reads_the_same_snapshot(table: Table) -> None:
    scan = table.scan()
    table.write(pa.table({"dt": ["a"], "k": [9], "v": ["new"]}))
    assert (scan.select("k").count(), scan.filter("k > 0").count(), table.count()) == (3, 3, 4)


def test_a_refined_scan_keeps_columns_that_are_newer_than_its_snapshot(table: Table) -> None:
    table.alter.add_column("more INT")
    table.alter.rename_column("v", "w")
    table.refresh()
    scan = table.scan(["k", "w", "more"])
    table.write(pa.table({"dt": ["a"], "k": [9], "w": ["new"]}))
    assert scan.filter("more IS NULL AND w > 'y'").to_arrow().to_pylist() == [{"k": 3, "w": "z", "more": None}]


def test_errors_have_classes_of_their_own(table: Table, tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    creations: list[Callable[[], object]] = [
        lambda: catalog.create_table("shop.t", columns=["k INT"]),
        lambda: catalog.create_database("shop"),
        lambda: [table.tags.create("x") for _ in range(2)],
        lambda: [table.branches.create("x") for _ in range(2)],
        lambda: table.alter.add_column("v STRING"),
    ]
    for create in creations:
        with pytest.raises(AlreadyExists) as exists:
            create()
        assert isinstance(exists.value, UsageError) and exists.value.exit_code == 2
    searches: list[Callable[[], object]] = [lambda: catalog.table("shop.nothing"), lambda: Table.open(tmp_path / "nothing")]
    for find in searches:
        with pytest.raises(TableNotFound) as missing:
            find()
        assert isinstance(missing.value, NotFound) and missing.value.exit_code == 3
    scans: list[Callable[[], object]] = [lambda: table.scan(snapshot=77), lambda: table.scan(as_of="2000-01-01")]
    for scan in scans:
        with pytest.raises(SnapshotNotFound):
            scan()


def test_a_refined_scan_parses_no_condition_again(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of values may be long: each condition is parsed once, however often the scan is refined."""
    parsed: list[str] = []
    parse = predicate_sql.condition_of

    def counting(sql: str, *others: Any) -> Any:
        parsed.append(sql)
        return parse(sql, *others)

    monkeypatch.setattr(predicate_sql, "condition_of", counting)
    scan = table.scan(where="k IN :keys", params={"keys": [1, 2, 3]})
    scan = scan.filter("k > :low", {"low": 1}).filter("k IN :keys", {"keys": [1, 2, 3]}).filter("k > :low AND k < 9", {"low": 1})
    assert scan.select("k").to_arrow().column("k").to_pylist() == [2, 3]
    assert parsed == ["k IN :keys", "k > :low", "k IN :keys", "k > :low AND k < 9"]
    copy = pickle.loads(pickle.dumps(scan.rows.predicate))
    assert copy.filtered(table.to_arrow().to_batches()[0]).column("k").to_pylist() == [2], "a task parses it again"
    with pytest.raises(UsageError, match="'keys' has a value already"):
        scan.filter("k IN :keys", {"keys": [1, 2]})
    arrays = table.scan().filter("k IN :keys", {"keys": np.array([1])}).filter("k IN :keys", {"keys": np.array([1])})
    assert arrays.count() == 1
    with pytest.raises(UsageError, match="parameter 'none' is not used"):
        scan.filter("k > 1", {"none": 1})


def test_errors_of_calls_name_the_method(table: Table) -> None:
    with pytest.raises(
        TypeError, match=r"^Table.scan\(\) got an unexpected keyword argument 'snapshto'. did you mean 'snapshot'\?$"
    ):
        table.scan(snapshto=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^Table.delete\(\) missing the argument 'where'$"):
        table.delete()  # type: ignore[call-arg]
    with pytest.raises(SnapshotNotFound, match="as old as 2 h ago"):
        table.scan(as_of=dt.timedelta(hours=2))


@pytest.mark.parametrize("given", [{"merge-engine": "deduplicate"}, {"data-evolution.enabled": "true"}])
def test_options_of_a_call_do_not_say_how_rows_are_read(tmp_path: Path, given: dict[str, str]) -> None:
    """A table of sums would show its last addends as rows, and a data-evolution table values that were replaced."""
    options = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
    table = Table.open(make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "INT"}, ["k"], (), 1, options).url)
    table.write([{"k": 1, "v": 2}])
    with pytest.raises(UsageError, match=next(iter(given))):
        table.with_options(given).scan()
    with pytest.raises(UsageError, match=next(iter(given))):
        table.with_options(given).buckets()
    assert table.with_options({"merge-engine": "aggregation"}).scan().to_arrow().num_rows == 1
