"""Scripts of SQL: what the last statement answers, and what an error says about the others."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paimon_cli import Catalog
from paimon_cli.api import sql_session
from paimon_cli.api.sql_session import SqlSession, _say_what_is_done
from paimon_cli.errors import NotFound, NotSupported, UsageError
from paimon_cli.sql.statements import statements_of


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    made = Catalog(str(tmp_path / "wh"))
    made.sql(
        "CREATE DATABASE d; CREATE TABLE d.t (id INT NOT NULL, s STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '1')"
    )
    made.sql("INSERT INTO d.t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    return made


_LATE = "SELECT CASE WHEN range < 30000 THEN 1 ELSE CAST('x' || range AS INT) END FROM range(40000)"
"""Fails after its first batches."""


def test_the_last_statement_answers_and_queries_before_it_are_read(catalog: Catalog) -> None:
    assert SqlSession(catalog).last("SELECT 1 AS a; SELECT 2 AS b").to_arrow().to_pylist() == [{"b": 2}]
    for script, not_run in ((f"SELECT 1; {_LATE}; SELECT 3; DELETE FROM d.t", [3, 4]), (f"SELECT 1; {_LATE}; SELECT 3", [3])):
        with pytest.raises(UsageError, match=r"in statement 2 of .*, line 1: SELECT CASE") as raised:
            SqlSession(catalog).last(script)
        assert (raised.value.details["statement"], raised.value.details["not_run"]) == (2, not_run)
    assert catalog.table("d.t").count() == 3


def test_each_value_of_a_parameter_is_used_somewhere(catalog: Catalog) -> None:
    assert SqlSession(catalog, params={"x": 1, "y": 2}).last("SELECT :x; SELECT :y AS y").to_arrow().to_pylist() == [{"y": 2}]
    with pytest.raises(UsageError, match="no parameter :z"):
        SqlSession(catalog, params={"x": 1, "z": 2}).last("SELECT :x; SELECT 2")


@pytest.mark.parametrize(
    ("change", "left"),
    [
        ("WITH x AS (SELECT 2 AS i) DELETE FROM d.t WHERE id IN (SELECT i FROM x)", {1: "a", 3: "c"}),
        ("WITH x AS (SELECT 2 AS i) UPDATE d.t SET s = 'z' WHERE id IN (SELECT i FROM x)", {1: "a", 2: "z", 3: "c"}),
        ("WITH x AS (SELECT 4 AS i) INSERT INTO d.t SELECT i, 'n' FROM x", {1: "a", 2: "b", 3: "c", 4: "n"}),
        ("WITH x AS (SELECT 1 AS i) MERGE INTO d.t USING x ON t.id = x.i WHEN MATCHED THEN DELETE", {2: "b", 3: "c"}),
    ],
)
def test_changes_see_what_stands_before_them_in_with(catalog: Catalog, change: str, left: dict[int, str]) -> None:
    catalog.sql(change)
    assert {row["id"]: row["s"] for row in catalog.sql("SELECT * FROM d.t").to_arrow().to_pylist()} == left


def test_a_table_is_not_truncated_behind_with(catalog: Catalog) -> None:
    words = statements_of("WITH x AS (SELECT 1) TRUNCATE TABLE d.t")[0].words()
    with pytest.raises(UsageError):
        catalog.sql(words.text)
    assert catalog.table("d.t").count() == 3


def test_plans_are_shown_with_what_was_measured(catalog: Catalog) -> None:
    plans = [
        str(catalog.sql(f"{verb} SELECT * FROM d.t WHERE id = :i", params={"i": 2}).to_arrow().to_pylist())
        for verb in ("EXPLAIN", "EXPLAIN ANALYZE")
    ]
    assert ["Total Time" in plan for plan in plans] == [False, True]
    with pytest.raises(NotSupported, match="EXPLAIN of a change"):
        catalog.sql("EXPLAIN DELETE FROM d.t")
    assert catalog.table("d.t").count() == 3


def test_an_error_says_what_was_committed(catalog: Catalog) -> None:
    script = """USE d;
        CREATE DATABASE IF NOT EXISTS d;
        DELETE FROM t WHERE id = 1;
        ALTER TABLE t SET ('bucket' = '1');
        SELECT * FROM gone;
        SELECT 2; SELECT 3"""
    with pytest.raises(NotFound) as raised:
        SqlSession(catalog).last(script)
    details = raised.value.details
    assert (details["statement"], details["line"], details["not_run"]) == (5, 5, [6, 7])
    assert details["committed"] == [{"statement": 3, "done": "deleted", "table": "d.t", "snapshots": [2]}]
    assert "committed before: 3 (deleted, d.t, snapshot 2); not run: 6, 7" in str(raised.value)


def test_all_snapshots_and_details_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_session, "snapshots_of", lambda summary: summary)
    done: Any = [
        (number, SimpleNamespace(verb="merged", table="d.t", summary=[number * 10, number * 10 + 1])) for number in (1, 2)
    ]
    statements = statements_of("a; b; c; d")
    error = UsageError("no", "why", table="d.t")
    _say_what_is_done(error, 3, statements, done)
    assert error.details["table"] == "d.t" and error.details["not_run"] == [4]
    text = "committed before: 1 (merged, d.t, snapshot 10, 11), 2 (merged, d.t, snapshot 20, 21); not run: 4"
    assert text in error.why
    interrupt = KeyboardInterrupt()
    _say_what_is_done(interrupt, 3, statements, done)
    assert text in str(interrupt) and "in statement 3 of 4" in str(interrupt)


def test_only_an_error_after_an_interrupt_is_one(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB raises a `RuntimeError` when it is interrupted. Others are bugs, and are shown as such."""
    session = SqlSession(catalog)
    execute = session.execute

    def fail(statement: Any) -> Any:
        if statement.text == "SELECT 2":
            raise RuntimeError("stopped")
        return execute(statement)

    monkeypatch.setattr(session, "execute", fail)
    script = "DELETE FROM d.t WHERE id = 1; SELECT 2; SELECT 3"
    with pytest.raises(RuntimeError, match="stopped"):
        session.last(script)
    session.context.interrupt()
    with pytest.raises(KeyboardInterrupt, match=r"in statement 2 of 3, .*\n.*not run: 3"):
        session.last(script)
