"""Times with nine digits of a second in SQL, most of whose types in DuckDB have six."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from paimon_cli import Catalog
from paimon_cli.api import sql_rows
from paimon_cli.errors import NotSupported, UsageError

TIME = "2024-01-01 00:00:00.123456789"
HAS_LOCAL_NANOS = int(duckdb.__version__.partition(".")[0]) >= 2


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    catalog = Catalog(str(tmp_path / "wh"))
    catalog.sql(
        f"""CREATE DATABASE d; USE d;
        CREATE TABLE t (k INT NOT NULL, ts TIMESTAMP(9), PRIMARY KEY (k) NOT ENFORCED) WITH ('bucket' = '1');
        CREATE TABLE z (k INT NOT NULL, ts TIMESTAMP_LTZ(9), PRIMARY KEY (k) NOT ENFORCED) WITH ('bucket' = '1');
        CREATE TABLE s (k INT NOT NULL, ts TIMESTAMP(7), PRIMARY KEY (k) NOT ENFORCED) WITH ('bucket' = '1');
        INSERT INTO t VALUES (1, '{TIME}'), (2, '2024-01-01 00:00:00.123456')"""
    )
    return catalog


def times(catalog: Catalog, table: str) -> list[str]:
    return [str(time) for time in catalog.table(table).scan().to_arrow().sort_by("k")["ts"].cast("string").to_pylist()]


@pytest.mark.parametrize(
    "statement",
    [
        f"SELECT k FROM d.t WHERE ts = TIMESTAMP '{TIME}'",
        f"SELECT k FROM d.t WHERE ts < CAST('{TIME}' AS datetime)",
        f"SELECT k FROM (FROM d.t) WHERE ts IN (SELECT '{TIME}'::timestamp)",
        f"SELECT k FROM d.t WHERE ts = TIMESTAMP_US '{TIME}'",
        f"SELECT TRY_CAST('{TIME}Z' AS timestamptz)",
        f"INSERT INTO d.t VALUES (3, TIMESTAMP '{TIME}')",
        f"INSERT INTO d.t SELECT 3, TIMESTAMP '{TIME}'",
        f"UPDATE d.t SET ts = greatest(ts, TIMESTAMP '{TIME}') WHERE k = 1",
    ],
)
def test_no_literal_is_cut(catalog: Catalog, statement: str) -> None:
    with pytest.raises(UsageError, match=r"has 6 digits of a second[\s\S]*_NS '2024") as refused:
        catalog.sql(statement)
    assert "would cut" in str(refused.value) and catalog.table("d.t").snapshots()[-1].id == 1


@pytest.mark.parametrize("given", [f"TIMESTAMP_NS '{TIME}'", f"'{TIME}'", f"CAST('{TIME}' AS TIMESTAMP(9))"])
def test_all_nine_digits_count(catalog: Catalog, given: str) -> None:
    assert catalog.sql(f"SELECT k FROM d.t WHERE ts = {given}").to_arrow()["k"].to_pylist() == [1]
    catalog.sql(f"INSERT INTO d.t VALUES (3, {given}); INSERT INTO d.t SELECT k + 3, ts FROM d.t")
    assert times(catalog, "d.t")[2:] == [TIME, TIME, "2024-01-01 00:00:00.123456000", TIME]


def test_zeros_after_six_digits_are_no_loss(catalog: Catalog) -> None:
    assert catalog.sql("SELECT k FROM d.t WHERE ts = TIMESTAMP '2024-01-01 00:00:00.123456000'").to_arrow()["k"].to_pylist() == [
        2
    ]


def test_seven_digits_are_seven(catalog: Catalog) -> None:
    catalog.sql(f"INSERT INTO d.s VALUES (1, '{TIME[:-2]}'); UPDATE d.s SET ts = ts + INTERVAL 1 DAY WHERE k = 1")
    assert times(catalog, "d.s") == ["2024-01-02 00:00:00.123456700"]


def test_times_of_a_zone_keep_nine_digits(catalog: Catalog) -> None:
    if not HAS_LOCAL_NANOS:
        with pytest.raises(NotSupported, match="DuckDB 1"):
            catalog.sql(f"INSERT INTO d.z VALUES (1, '{TIME}Z')")
        return
    catalog.sql(
        f"INSERT INTO d.z VALUES (1, '{TIME}Z'), (2, TIMESTAMPTZ_NS '{TIME}Z'); INSERT INTO d.z SELECT k + 2, ts FROM d.z"
    )
    assert times(catalog, "d.z") == [f"{TIME}Z"] * 4


def test_a_release_that_would_round_them_computes_none(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    class Release:
        __version__ = "1.5.6"

    monkeypatch.setattr(sql_rows, "installed", lambda name: Release)
    with pytest.raises(NotSupported, match=r"TIMESTAMP\(9\) WITH LOCAL TIME ZONE with DuckDB 1.5.6"):
        catalog.sql(f"INSERT INTO d.z VALUES (1, '{TIME}Z')")
    assert catalog.table("d.z").snapshots() == []
