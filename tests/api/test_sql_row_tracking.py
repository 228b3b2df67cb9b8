"""The columns of row tracking in SQL: named, they are there; a star does not show them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli import Catalog
from paimon_cli.errors import NotSupported, UsageError


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    found = Catalog(str(tmp_path / "wh"))
    found.create_table("d.t", columns=["k INT", "s STRING"], options={"row-tracking.enabled": "true"})
    found.create_table("d.plain", columns=["k INT"])
    for part in (["a", "b"], ["c", "d"]):
        found.table("d.t").write(pa.table({"k": pa.array([1, 2], pa.int32()), "s": part}))
    found.table("d.plain").write(pa.table({"k": pa.array([1], pa.int32())}))
    return found


@pytest.mark.parametrize(
    ("query", "columns", "rows"),
    [
        ("SELECT _ROW_ID, _SEQUENCE_NUMBER, s FROM d.t ORDER BY 1", 3, [(0, 1, "a"), (1, 1, "b"), (2, 2, "c"), (3, 2, "d")]),
        ("SELECT * FROM d.t WHERE _row_id > 2", 2, [(2, "d")]),
        ("FROM d.t WHERE _ROW_ID = 1", 2, [(2, "b")]),
        ("SELECT *, _ROW_ID FROM d.t WHERE s = 'c'", 3, [(1, "c", 2)]),
        ("SELECT x.*, p.* FROM d.t x JOIN d.plain p USING (k) WHERE x._SEQUENCE_NUMBER = 2", 3, [(1, "c", 1)]),
        ("SELECT * FROM d.t x, d.plain WHERE _ROW_ID = 0", 3, [(1, "a", 1)]),
        ("SELECT * FROM (SELECT k, _ROW_ID FROM d.t WHERE s = 'd')", 2, [(2, 3)]),
        ("WITH w AS (SELECT * FROM d.t WHERE _ROW_ID = 3) SELECT * FROM w", 2, [(2, "d")]),
        ("SELECT * FROM d.t AT (VERSION => 1) WHERE _ROW_ID > 0", 2, [(2, "b")]),
        ("SELECT * EXCLUDE (s, _ROW_ID) FROM d.t WHERE _ROW_ID = 0", 1, [(1,)]),
        ("SELECT count(*) FROM d.t WHERE _ROW_ID >= 1", 1, [(3,)]),
        ("SELECT count(*) FROM d.t", 1, [(4,)]),
        ("SELECT max(COLUMNS(*)) FROM d.t WHERE _ROW_ID >= 0", 2, [(2, "d")]),
        ("SELECT t FROM d.t WHERE _ROW_ID = 1", 1, [({"k": 2, "s": "b"},)]),
        ("SELECT [x] AS l FROM d.t x WHERE x._ROW_ID = 1 ORDER BY x", 1, [([{"k": 2, "s": "b"}],)]),
        ("SELECT s FROM d.t s WHERE s._ROW_ID = 1", 1, [("b",)]),
        ("WITH w AS (SELECT t FROM d.t WHERE _ROW_ID = 1) SELECT w FROM w", 1, [({"t": {"k": 2, "s": "b"}},)]),
        ("SELECT p.k FROM d.t NATURAL JOIN d.plain p WHERE _ROW_ID = 2", 1, [(1,)]),
    ],
)
def test_queries(catalog: Catalog, query: str, columns: int, rows: list[Any]) -> None:
    found = catalog.sql(query).to_arrow()
    assert len(found.schema) == columns
    assert list(zip(*(column.to_pylist() for column in found.columns), strict=True)) == rows


def test_changes_keep_ids(catalog: Catalog) -> None:
    catalog.sql("DELETE FROM d.t WHERE _ROW_ID = 0").to_arrow()
    catalog.sql("UPDATE d.t SET s = 'z' WHERE _ROW_ID = 2").to_arrow()
    catalog.table("d.t").compact(strategy="full")
    found = catalog.sql("SELECT _ROW_ID, _SEQUENCE_NUMBER, s FROM d.t ORDER BY 1").to_arrow()
    assert found["_ROW_ID"].to_pylist() == [1, 2, 3]
    assert found["s"].to_pylist() == ["b", "z", "d"] and found["_SEQUENCE_NUMBER"].to_pylist() == [1, 4, 2]


NONE = ("SELECT _ROW_ID FROM d.plain", "UPDATE d.t SET _ROW_ID = 7", "DELETE FROM d.plain WHERE _ROW_ID = 1")


@pytest.mark.parametrize("query", NONE)
def test_where_there_are_none(catalog: Catalog, query: str) -> None:
    with pytest.raises(UsageError, match="_ROW_ID"):
        catalog.sql(query).to_arrow()


def test_a_natural_join_would_compare_ids(catalog: Catalog) -> None:
    assert catalog.sql("SELECT * FROM d.t NATURAL JOIN d.t AS u").to_arrow().num_rows == 4
    with pytest.raises(NotSupported, match=r"NATURAL join .* names _ROW_ID"):
        catalog.sql("SELECT * FROM d.t NATURAL JOIN d.t AS u WHERE t._ROW_ID = 0").to_arrow()


def test_a_table_as_a_value_beside_other_sources(catalog: Catalog) -> None:
    with pytest.raises(NotSupported, match="as a value beside other sources"):
        catalog.sql("SELECT t FROM d.t, d.plain WHERE _ROW_ID = 1").to_arrow()
