"""`sql`: DuckDB over our scans, what is pushed into them, and what is refused."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from paimon_cli import Catalog, Runtime, Table
from paimon_cli.api.pushed_filters import pushed_condition
from paimon_cli.api.sql_dataset import TableDataset
from paimon_cli.api.sql_query import QueryBounds, run_query
from paimon_cli.api.sql_result import SqlResult
from paimon_cli.errors import DamagedFile, NotFound, NotSupported, PaimonError, Refused, UsageError
from paimon_cli.storage.injected import Step, StepTrace, SystemClock

COLUMNS = [
    "id BIGINT NOT NULL",
    "s STRING",
    "p DECIMAL(10, 2)",
    "d DATE",
    "t TIMESTAMP(6)",
    "z TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "b BYTES",
    "f DOUBLE",
    "flag BOOLEAN",
    "`my col` INT",
]
DAY = datetime.date(2024, 1, 1)
NOON = datetime.datetime(2024, 1, 1, 12)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """shop.orders: ten days as partitions of one file each, keys 0 to 99."""
    path = tmp_path_factory.mktemp("wh")
    table = Table.create("shop.orders", columns=COLUMNS, primary_key=["id", "d"], partition_by="d", bucket=1, warehouse=str(path))
    for day in range(10):
        ids = range(10 * day, 10 * day + 10)
        rows = {
            "id": pa.array(ids, pa.int64()),
            "s": [None if i % 7 == 0 else f"it's {i % 5}" for i in ids],
            "p": [Decimal(i) / 4 for i in ids],
            "d": [DAY + datetime.timedelta(day)] * 10,
            "t": [NOON + datetime.timedelta(hours=i) for i in ids],
            "z": pa.array([NOON + datetime.timedelta(hours=i) for i in ids], pa.timestamp("us", "UTC")),
            "b": [bytes([i]) for i in ids],
            "f": [float("nan") if i % 9 == 0 else i / 2 for i in ids],
            "flag": [None if i % 3 == 0 else i % 2 == 0 for i in ids],
            "my col": pa.array([i % 4 for i in ids], pa.int32()),
        }
        table.write(pa.table(rows))
    table.tags.create("half", snapshot=5)
    return path


class Seen:
    """The scans that a query made."""

    def __init__(self, warehouse: Path) -> None:
        self.steps: list[Step] = []
        self.catalog = Catalog(str(warehouse), runtime=Runtime(trace=StepTrace(SystemClock(), self.steps.append)))

    def rows(self, query: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.catalog.sql(query).to_arrow().to_pylist()
        return rows

    @property
    def scans(self) -> list[dict[str, Any]]:
        return [step.facts for step in self.steps if step.name == "sql-scan"]


@pytest.mark.parametrize(
    "where, pushed, files",
    [
        ("id >= 95", "`id` >= 95", 1),
        ("id = 7 AND s = 'x'", None, 0),
        ("d = DATE '2024-01-03'", "`d` = DATE '2024-01-03'", 1),
        ("d IN (DATE '2024-01-03', DATE '2024-01-05')", "`d` IN (DATE '2024-01-03', DATE '2024-01-05')", 2),
        ("t < TIMESTAMP '2024-01-01 14:00:00'", "`t` < TIMESTAMP '2024-01-01 14:00:00.000000'", 1),
        ("id IN (1, 99)", "`id` IN (1, 99)", 2),
        ("id < 5 OR id > 95", "(`id` < 5 OR `id` > 95)", 2),
        ("s = 'it''s 1' AND id < 30", None, 3),
        ('"my col" = 2', "`my col` = 2", 10),
        ("s LIKE 'x%'", None, 10),
        ("s IS NULL", "`s` IS NULL", 10),
        ("p > 24.5", "`p` > 24.50", 1),
        ("b = '\\x07'::BLOB", "`b` = X'07'", 10),
        ("f > 40", None, 10),
    ],
)
def test_conditions_skip_files(warehouse: Path, where: str, pushed: str | None, files: int) -> None:
    seen = Seen(warehouse)
    found = {row["id"] for row in seen.rows(f"SELECT id FROM shop.orders WHERE {where}")}
    everything = seen.catalog.table("shop.orders").scan().to_arrow()
    import duckdb

    expected = duckdb.connect().register("everything", everything).sql(f"SELECT id FROM everything WHERE {where}").fetchall()
    assert found == {row[0] for row in expected}
    (scan,) = seen.scans
    if int(duckdb.__version__.partition(".")[0]) >= 2:  # DuckDB 1, the last for Python 3.10, passes other conditions to a scan
        assert scan["files"] == files
        assert pushed is None or scan["where"] == pushed


def test_only_the_columns_that_are_needed_are_read(warehouse: Path) -> None:
    seen = Seen(warehouse)
    assert seen.rows("SELECT sum(p) AS total FROM shop.orders WHERE id < 4") == [{"total": Decimal("1.50")}]
    assert seen.scans[0]["columns"] == ["id", "p"]
    assert seen.rows("SELECT count(*) AS n FROM shop.orders") == [{"n": 100}]
    assert len(seen.scans[1]["columns"]) == 1


def test_versions_joins_and_paths(warehouse: Path) -> None:
    catalog = Catalog(str(warehouse))
    (row,) = (
        catalog.sql(
            """WITH old AS (SELECT o.id FROM shop.orders AS o AT (VERSION => 2)), orders AS (SELECT 1)
        SELECT (SELECT count(*) FROM old) AS a, (SELECT count(*) FROM orders) AS b,
               (SELECT count(*) FROM shop.orders AT (VERSION => 'half')) AS c,
               (SELECT max(shop.orders.id) FROM shop.orders) AS d"""
        )
        .to_arrow()
        .to_pylist()
    )
    assert row == {"a": 20, "b": 1, "c": 50, "d": 99}
    path = f"{warehouse}/shop.db/orders"
    assert catalog.sql(f'SELECT count(*) AS n FROM "{path}" JOIN shop.orders USING (id)').to_arrow().to_pylist() == [{"n": 100}]
    snapshots = catalog.table("shop.orders").snapshots()
    old = next(snapshot.time for snapshot in snapshots if snapshot.id == 3)
    newest = max(snapshot.id for snapshot in snapshots if snapshot.time <= old)  # of one millisecond
    found = catalog.sql(f"FROM shop.orders AT (TIMESTAMP => '{old}') SELECT count(*)").to_arrow()[0].to_pylist()
    assert found == [10 * newest]


@pytest.mark.parametrize(
    "query, error, message",
    [
        ("INSERT INTO shop.orders VALUES (1)", UsageError, "the query has 1 column, and 10 columns are to be written"),
        ("COPY (SELECT 1) TO 'x.csv'", NotSupported, "the statement COPY"),
        ("ATTACH 'x.db'", NotSupported, "the statement ATTACH"),
        ("SET threads = 1", NotSupported, "the statement SET"),
        ("", UsageError, "there is no statement"),
        ("-- only a comment", UsageError, "there is no statement"),
        ("SELECT 'a", UsageError, "a quote or a comment is not closed"),
        ("SELEC 1", UsageError, "syntax error"),
        ("SELECT nope FROM shop.orders", UsageError, "nope"),
        ("SELECT 'a'::INT", UsageError, "Could not convert"),
        ("SELECT * FROM shop.nothing", NotFound, "no table"),
        ("SELECT * FROM nothing", NotFound, "nothing does not exist"),
        ("SELECT * FROM a.b.c", UsageError, "3 parts"),
        ("SELECT * FROM shop.orders AT (VERSION => 77)", NotFound, "77"),
        ("SELECT * FROM shop.orders AT (VERSION => 1 + 1)", UsageError, "literal"),
        ("SELECT INTERVAL 1 DAY AS i", NotSupported, "column 'i'"),
        pytest.param("SELECT amount" + " + 0" * 700 + " FROM shop.orders", UsageError, "nested too deeply", id="a long chain"),
    ],
)
def test_what_is_refused(warehouse: Path, query: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Catalog(str(warehouse)).sql(query).to_arrow()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM read_csv('{file}')",
        "FROM '{file}'",
        'FROM "{file}" JOIN shop.orders USING (id)',
        "SELECT * FROM glob('{folder}/*')",
        "SELECT * FROM sniff_csv('{file}')",
        "FROM query('FROM read_blob(''{file}'')')",
        "SELECT (SELECT content FROM read_text('{file}')) AS c FROM shop.orders",
        "SELECT * FROM read_json('http://127.0.0.1:1/x')",
        "FROM duckdb_secrets()",
    ],
)
def test_a_query_opens_nothing_but_tables(warehouse: Path, tmp_path: Path, query: str) -> None:
    (tmp_path / "plain.csv").write_text("id,secret\n1,hunter2\n")
    with pytest.raises(Refused) as refused:
        Catalog(str(warehouse)).sql(query.format(file=tmp_path / "plain.csv", folder=tmp_path)).to_arrow()
    assert "add --allow-files" in refused.value.hint and "hunter2" not in str(refused.value)


def test_files_are_read_where_the_call_allows_them(warehouse: Path, tmp_path: Path) -> None:
    (tmp_path / "plain.csv").write_text("id,word\n7,seven\n")
    query = f"SELECT word, p FROM '{tmp_path}/plain.csv' JOIN shop.orders USING (id)"
    assert Catalog(str(warehouse)).sql(query, allow_files=True).to_arrow().to_pylist() == [
        {"word": "seven", "p": Decimal("1.75")}
    ]


@pytest.mark.parametrize("allow_files", [False, True])
def test_a_query_finds_the_settings_of_duckdb_locked(warehouse: Path, allow_files: bool) -> None:
    names = "'enable_external_access', 'autoload_known_extensions', 'autoinstall_known_extensions', 'lock_configuration'"
    query = f"SELECT name, value FROM duckdb_settings() WHERE name IN ({names})"
    found = {
        row["name"]: row["value"] for row in Catalog(str(warehouse)).sql(query, allow_files=allow_files).to_arrow().to_pylist()
    }
    off = {"autoload_known_extensions": "false", "autoinstall_known_extensions": "false"}
    assert found == {**off, "enable_external_access": str(allow_files).lower(), "lock_configuration": "true"}


def test_tables_whose_names_differ_in_case_are_two(tmp_path: Path) -> None:
    """DuckDB takes their names for one."""
    catalog = Catalog(str(tmp_path))
    for name, ids in (("shop.orders", [1, 2]), ("shop.Orders", [2, 3, 4])):
        catalog.create_table(name, columns=["id INT"]).write([{"id": id} for id in ids])

    def counts(query: str) -> list[Any]:
        return catalog.sql(query).to_arrow().to_pylist()

    of_both = "(SELECT count(*) FROM shop.orders) AS small, (SELECT count(*) FROM shop.Orders) AS large"
    assert counts(f"SELECT {of_both}") == [{"small": 2, "large": 3}]
    assert counts("SELECT Orders.id FROM shop.Orders JOIN shop.orders AS o USING (id)") == [{"id": 2}]
    assert counts("SELECT shop.orders.id + o.id AS both FROM shop.orders JOIN shop.Orders AS o USING (id)") == [{"both": 4}]


@pytest.mark.parametrize("database", ["main", "memory", "temp", "system", "information_schema", "pg_catalog"])
def test_databases_may_be_called_as_those_of_duckdb(tmp_path: Path, database: str) -> None:
    """With USE, `orders` and `main.orders` gave the rows of the first."""
    catalog = Catalog(str(tmp_path))
    for name, ids in (("shop.orders", [1, 2]), (f"{database}.orders", [2, 3, 4])):
        catalog.create_table(name, columns=["id INT"]).write([{"id": id} for id in ids])

    def counts(query: str) -> list[Any]:
        return catalog.sql(f"USE shop; {query}").to_arrow().to_pylist()

    of_all = [f"(SELECT count(*) FROM {name}) AS n{number}" for number, name in enumerate(("orders", f"{database}.orders"))]
    assert counts(f"SELECT {', '.join(of_all)}") == [{"n0": 2, "n1": 3}]
    assert counts(f"SELECT {', '.join(of_all[::-1])}") == [{"n1": 3, "n0": 2}]
    assert counts(f"SELECT a.id FROM orders AS a JOIN {database}.orders AS b USING (id)") == [{"id": 2}]
    assert catalog.sql(f"SELECT max(id) AS id FROM {database}.orders").to_arrow().to_pylist() == [{"id": 4}]


@pytest.fixture
def alike(tmp_path: Path) -> Catalog:
    """Four tables whose names DuckDB takes for one, or for its own, with other rows."""
    catalog = Catalog(str(tmp_path))
    for name, rows in (("shop.t", "(1, 1), (2, 2), (3, 3)"), ("shop.T", "(1, 100)"), ("temp.t", "(2, 7)"), ("main.t", "(3, 8)")):
        catalog.create_table(name, columns=["id INT NOT NULL", "w INT"], primary_key="id", bucket=1)
        catalog.sql(f"INSERT INTO {name} VALUES {rows}")
    return catalog


def _tuples(catalog: Catalog, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in catalog.sql(query).to_arrow().to_pylist()]


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    ("change", "left"),
    [
        ("DELETE FROM shop.t WHERE EXISTS (SELECT 1 FROM shop.T WHERE shop.T.id = shop.t.id)", [(2, 2), (3, 3)]),
        ("DELETE FROM shop.t WHERE EXISTS (SELECT 1 FROM shop.T WHERE T.id = t.id)", [(2, 2), (3, 3)]),
        ("DELETE FROM shop.t USING shop.T WHERE shop.T.id = shop.t.id", [(2, 2), (3, 3)]),
        ("UPDATE shop.t SET w = (SELECT shop.T.w FROM shop.T WHERE shop.T.id = shop.t.id)", [(1, 100), (2, None), (3, None)]),
        ("UPDATE shop.t SET w = shop.T.w + shop.t.w FROM shop.T WHERE shop.T.id = shop.t.id", [(1, 101), (2, 2), (3, 3)]),
        ("DELETE FROM shop.t WHERE EXISTS (SELECT 1 FROM temp.t WHERE temp.t.id = shop.t.id)", [(1, 1), (3, 3)]),
        ("UPDATE shop.t SET w = (SELECT temp.t.w FROM temp.t WHERE temp.t.id = shop.t.id)", [(1, None), (2, 7), (3, None)]),
        ("DELETE FROM shop.t WHERE EXISTS (SELECT 1 FROM shop.t AT (VERSION => 1) WHERE shop.t.id = 1)", []),
    ],
)
def test_a_change_by_a_table_that_is_called_alike(alike: Catalog, change: str, left: list[Any]) -> None:
    """`shop.T.id = shop.t.id` compared a column with itself, and all rows were deleted."""
    alike.sql(change)
    assert _tuples(alike, "SELECT * FROM shop.t ORDER BY id") == left
    assert _tuples(alike, "SELECT * FROM shop.T") == [(1, 100)]


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("SELECT shop.t.id, shop.T.w, shop.t.w FROM shop.{0} JOIN shop.{1} ON shop.t.id = shop.T.id", [(1, 100, 1)]),
        ("SELECT t.id, T.w, T.* EXCLUDE (T.w) FROM shop.{0} JOIN shop.{1} ON t.id = T.id", [(1, 100, 1)]),
        ("SELECT shop.{0}.id FROM shop.{0} WHERE EXISTS (SELECT 1 FROM shop.{1} WHERE shop.{1}.id = shop.{0}.id)", [(1,)]),
        ("SELECT x FROM shop.{0}, LATERAL (SELECT shop.t.w + shop.T.w AS x FROM shop.{1}) ORDER BY x", [(101,), (102,), (103,)]),
        ("WITH c AS (SELECT shop.{1}.id FROM shop.{1}) SELECT shop.{0}.id FROM shop.{0} JOIN c ON c.id = shop.{0}.id", [(1,)]),
        ("SELECT [{0}.w FOR {0} IN [{{'w': 5}}]] FROM shop.t JOIN shop.T ON t.id = T.id", [([5],)]),
        ("SELECT sum(shop.t.w) FROM shop.{0} AS o, shop.{1} AS p, shop.t HAVING count(shop.T.w) = 1", None),
        ("SELECT shop.{0}.id FROM shop.{0}, shop.{1} WHERE Shop.{1}.id = 1", None),
        ("USE shop; SELECT t.w FROM {0}, shop.{1} AS o, temp.t", None),
        ("USE shop; SELECT main.t.w FROM {0} AS o, main.t LIMIT 1", [(8,)]),
        ("USE shop; SELECT main.t.w FROM main.t, {0} AS o LIMIT 1", [(8,)]),
        ("SELECT temp.t.w, Temp.T.w, t.w FROM temp.t", [(7, 7, 7)]),
        ("SELECT shop.t.w FROM shop.t AT (VERSION => 1) WHERE shop.t.id = 2", [(2,)]),
    ],
)
@pytest.mark.parametrize("order", ["tT", "Tt"])
def test_a_qualified_column_is_of_the_table_that_is_named(
    alike: Catalog, query: str, found: list[Any] | None, order: str
) -> None:
    """Of tables that DuckDB takes for one, the first in the query had all columns. None: an error, not the other table."""
    if found is not None:
        assert _tuples(alike, query.format(*order)) == found
        return
    with pytest.raises(UsageError):
        alike.sql(query.format(*order))


def test_results_in_the_forms_of_libraries(warehouse: Path) -> None:
    def result() -> SqlResult:
        return Catalog(str(warehouse)).sql("SELECT min(id) AS least, count(*) AS n FROM shop.orders")

    assert repr(result()) == "SqlResult(columns=['least', 'n'])"
    (row,) = result().to_arrow().to_pylist()
    assert result().to_pandas().to_dict("records") == [row]
    assert result().to_polars().to_dicts() == [row]
    assert pa.table(result()).to_pylist() == [row]
    assert [batch.num_rows for batch in result().to_batches()] == [1]


def test_the_rows_of_a_query_can_be_read_once(warehouse: Path) -> None:
    result = Catalog(str(warehouse)).sql("SELECT 1 AS one")
    assert result.to_arrow().num_rows == 1
    with pytest.raises(UsageError, match="the rows of a query can be read only once"):
        result.to_arrow()


def test_variables_of_the_caller_are_not_tables(warehouse: Path) -> None:
    frame = pa.table({"a": [1]})
    with pytest.raises(NotFound):
        Catalog(str(warehouse)).sql("SELECT * FROM frame")
    assert frame.num_rows == 1


def test_an_error_of_the_scan_stays_one_of_ours(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), columns=["id BIGINT NOT NULL"], primary_key="id", bucket=1)
    table.write(pa.table({"id": [1]}))
    for file in (tmp_path / "t" / "bucket-0").iterdir():
        file.unlink()
    with pytest.raises(DamagedFile):
        Catalog().sql(f'SELECT * FROM "{table.url}"').to_arrow()


def test_filters_are_read_with_certainty_or_not_at_all(warehouse: Path) -> None:
    schema = Catalog(str(warehouse)).table("shop.orders").context.schema
    both = (pc.field("id") > 3) & (pc.field("s") == 'a "quoted" \\ text')
    assert pushed_condition(str(both), schema) == "`id` > 3"
    assert pushed_condition(str((pc.field("id") > 3) | (pc.field("s") == 'a"')), schema) is None
    assert pushed_condition(str(pc.field("s") == ") and (id > 3"), schema) == "`s` = ') and (id > 3'"
    assert pushed_condition(str(pc.field("s") == "x' OR 1=1 --"), schema) == "`s` = 'x'' OR 1=1 --'"
    assert pushed_condition(str(pc.field("id") + 1 > 3), schema) is None
    assert pushed_condition(str(pc.field("id").isin(list(range(100)))), schema) is None
    for texts, pushed in ((["a", "b"], "`s` IN ('a', 'b')"), (["a", "b\\"], None), (["b\\", "a"], None)):
        one_of = pc.if_else(pc.field("s").is_valid(), pc.field("s").isin(texts), pa.scalar(None, pa.bool_()))
        assert pushed_condition(str(one_of), schema) == pushed, "a value that is not certain must not be left out"
    assert pushed_condition(str(~pc.field("s").is_null()), schema) == "`s` IS NOT NULL"
    assert pushed_condition("(id > 3) and more", schema) is None
    assert pushed_condition("(nope > 3)", schema) is None


@pytest.mark.parametrize("kinds", [("of_caller",), ("of_bounds",), ("of_caller", "of_bounds")])
def test_a_query_has_bounds_and_each_who_asks_can_interrupt_it(warehouse: Path, kinds: tuple[str, ...]) -> None:
    stops: dict[str, Callable[[], None]] = {}

    def noting(kind: str) -> Callable[[Callable[[], None]], object] | None:
        return partial(stops.__setitem__, kind) if kind in kinds else None

    bounds = QueryBounds("300 MB", "1 GB", 1, noting("of_bounds") or (lambda stop: None))
    catalog, query = Catalog(str(warehouse)), "SELECT current_setting('threads') AS n, current_setting('memory_limit') AS m"
    given: dict[str, Any] = {"bounds": bounds} if "of_bounds" in kinds else {}
    result = run_query(query, catalog.table, catalog.runtime.trace, on_begin=noting("of_caller"), **given)
    (row,) = result.to_arrow().to_pylist()
    assert (row["n"] == 1 and row["m"] == "286.1 MiB") == bool(given)
    assert tuple(stops) == kinds
    for stop in stops.values():
        stop()  # the query has ended


def test_nothing_is_left_of_a_query(warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    closed: list[str] = []
    close = TableDataset.close

    def noted(self: TableDataset) -> None:
        closed.append(self.table_schema.fields[0].name)
        close(self)

    monkeypatch.setattr(TableDataset, "close", noted)
    catalog = Catalog(str(warehouse))
    of_two = "FROM shop.orders JOIN (SELECT id FROM shop.orders AT (VERSION => 3)) AS b USING (id)"
    assert catalog.sql(f"SELECT count(*) AS n {of_two}").to_arrow().to_pylist() == [{"n": 30}]
    assert len(closed) == 2 and list(tmp_path.iterdir()) == []
    for wrong in (f"SELECT nonsense {of_two}", f"SELECT count(*) {of_two} JOIN shop.gone USING (id)"):
        del closed[:]
        with pytest.raises(PaimonError):
            catalog.sql(wrong)
        assert len(closed) == 2 and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("database", ["Main", "TEMP", "System"])
def test_a_database_called_as_one_of_duckdb_in_other_letters(tmp_path: Path, database: str) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_table(f"{database}.orders", columns=["id INT"]).write([{"id": 1}])
    assert catalog.sql(f"SELECT orders.id FROM {database}.orders").to_arrow().to_pylist() == [{"id": 1}]


def test_a_name_of_with_hides_no_table_of_a_database(warehouse: Path) -> None:
    query = "WITH ORDERS AS (SELECT 7 AS id) SELECT (SELECT count(*) FROM shop.orders) AS n, (SELECT id FROM orders) AS id"
    assert Seen(warehouse).rows(query) == [{"n": 100, "id": 7}]


def test_a_table_has_each_of_its_versions_in_a_query(warehouse: Path) -> None:
    versions = ["shop.orders", *(f"shop.orders AT (VERSION => {version})" for version in (1, 3, "'half'"))]
    counts = ", ".join(f"(SELECT count(*) FROM {version}) AS n{number}" for number, version in enumerate(versions))
    assert Seen(warehouse).rows(f"SELECT {counts}") == [{"n0": 100, "n1": 10, "n2": 30, "n3": 50}]
    made = [row.time for row in Table.open("shop.orders", warehouse=str(warehouse)).snapshots()][::-1]
    at = datetime.datetime.fromtimestamp(made[1] / 1000, datetime.timezone.utc).isoformat(sep=" ", timespec="milliseconds")
    rows = Seen(warehouse).rows(f"SELECT count(*) AS n FROM shop.orders AT (timestamp => '{at}')")
    assert rows[0]["n"] == 10 * sum(time <= made[1] for time in made)
