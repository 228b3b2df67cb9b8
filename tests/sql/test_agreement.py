"""UPDATE and DELETE change the rows that SELECT shows, and set the values that it computes: one table for all constructs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paimon_cli import Catalog, Table

_CONDITIONS = [
    *(
        "n = 2",
        "n <> 2",
        "-n < -1",
        "id = n",
        "NULL",
        "n <= 3 AND NOT s = 'b'",
        "n IN (1, 3)",
        "n NOT IN (1, 3)",
        "n NOT IN (1, NULL)",
    ),
    *(
        "n BETWEEN 1 AND 2",
        "n NOT BETWEEN 1 AND 2",
        "n IS NULL",
        "s IS NOT NULL OR n > 2",
        "n + 1 = 3",
        "n - 1 > n * 0",
    ),
    *("n / 2 = 1", "n / 2 = 0.5", "n / 2 > 1", "n % 2 = 1", "p * 2 = 3", "p + n > 4", "p / 2 > 1", "p = 1.5", "p > 1.50"),
    *("x > 1", "x = 1.5", "x >= 'NaN'::DOUBLE", "x < 1e308", "NOT x < 5", "x IN (0.5, 1.5)", "isnan(x)", "round(x) = 2"),
    *("s LIKE 'a%'", "s NOT LIKE 'a%'", r"s LIKE 'a\_b'", r"s LIKE 'a\\%'", "s LIKE 'a!_b' ESCAPE '!'", "s LIKE '%_b'"),
    *("concat(s, 'x') = 'x'", "s || 'x' = 'bx'", "s || NULL IS NULL", "upper(s) = 'B'", "length(s) = 3", "coalesce(n, 0) = 0"),
    *("d = '2024-01-02'", "d > DATE '2024-01-01'", "d IS DISTINCT FROM '2024-01-02'", "b", "NOT b", "b = TRUE", "b IS NOT TRUE"),
    *(
        "(n > 1) IS NULL",
        "n = 1 IS NULL",
        "abs(n) = 2",
        "floor(p) = 1",
        "ts >= '2024-01-02 03:04:05'",
        "s > 'B'",
    ),
    *("n > 0 AND x > 1", "x > 1 AND n > 0", "n < 0 OR x > 1"),  # one part decides for the whole condition
]
_VALUES = [
    *("n", "n + 1", "n - 5", "n * 2", "NULL", "7", "n % 2", "abs(n)", "coalesce(n, 0)", "length(s)", "round(p)", "floor(p)"),
    *("CASE WHEN n > 1 THEN 1 END", "n / 2 * 2", "cast(p AS INT)"),
]
_TEXTS = ["s", "'t'", "s || '!'", "concat(s, 'x')", "upper(s)", "coalesce(s, '-')", "NULL", "lower(s) || n"]
_DOUBLES = ["0.1", "1.5", "n / 2", "n / 0", "x * 3", "x + 0.1", "p / 3", "1e300"]
_ROWS = r"""(1, 1, 1.5, 'a_b', 0.5, DATE '2024-01-01', TRUE, TIMESTAMP '2024-01-02 03:04:05'),
    (2, 2, 2.25, 'b', 1.5, DATE '2024-01-02', FALSE, TIMESTAMP '2024-01-02 03:04:04.999'),
    (3, 3, NULL, 'a\b', 'NaN'::DOUBLE, NULL, NULL, NULL),
    (4, NULL, 4, 'axb', 2.5, DATE '2024-01-03', TRUE, NULL), (5, 5, 0.75, NULL, 'Infinity'::DOUBLE, NULL, TRUE, NULL),
    (6, -1, 1, '', NULL, NULL, FALSE, NULL), (7, 0, 3, 'a\_b', -1, NULL, NULL, NULL)"""


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """With the table `m.t`, which no test changes."""
    catalog = Catalog(str(Path(tmp_path_factory.mktemp("meaning")) / "wh"))
    catalog.sql(
        f"""CREATE DATABASE m;
        CREATE TABLE m.t (id BIGINT NOT NULL, n INT, p DECIMAL(10, 2), s STRING, x DOUBLE, d DATE, b BOOLEAN,
            ts TIMESTAMP(3), PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '1');
        INSERT INTO m.t VALUES {_ROWS}"""
    )
    return catalog


@pytest.fixture
def copy(catalog: Catalog) -> Iterator[Table]:
    """A table with the rows of `m.t`: its files are copied, which takes less than a write."""
    source = Path(catalog.table("m.t").url)
    target = source.with_name("copy")
    shutil.copytree(source, target)
    yield catalog.table("m.copy")
    shutil.rmtree(target)


def _rows(catalog: Catalog, query: str) -> list[Any]:
    return [tuple(map(repr, row.values())) for row in catalog.sql(query).to_arrow().to_pylist()]


@pytest.mark.in_part(3)
@pytest.mark.parametrize("condition", _CONDITIONS)
def test_a_delete_removes_what_a_select_shows(catalog: Catalog, copy: Table, condition: str) -> None:
    chosen = catalog.sql(f"SELECT id FROM m.t WHERE {condition}").to_arrow().column("id").to_pylist()
    catalog.sql(f"DELETE FROM m.copy WHERE {condition}")
    assert sorted(copy.scan(columns=["id"]).to_arrow().column("id").to_pylist()) == sorted({*range(1, 8)} - {*chosen})


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    "column, value",
    [*(("n", value) for value in _VALUES), *(("s", value) for value in _TEXTS), *(("x", value) for value in _DOUBLES)],
)
def test_an_update_sets_what_a_select_computes(catalog: Catalog, copy: Table, column: str, value: str) -> None:
    where = "id IN (1, 2, 4, 6)"
    of_type = {"n": "INT", "s": "VARCHAR", "x": "DOUBLE"}[column]
    expected = _rows(catalog, f"SELECT id, CAST(({value}) AS {of_type}) FROM m.t WHERE {where} ORDER BY id")
    if column == "n" and value in ("round(p)", "n / 2 * 2", "cast(p AS INT)", "floor(p)"):
        where = "id IN (1, 2)"
        expected = expected[:2]
    catalog.sql(f"UPDATE m.copy SET {column} = {value} WHERE {where}")
    assert _rows(catalog, f"SELECT id, {column} FROM m.copy WHERE {where} ORDER BY id") == expected
