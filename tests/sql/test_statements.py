"""Scripts cut into statements, names and parameters found in them, and what DuckDB and our own SQL read instead."""

from __future__ import annotations

import pytest

from paimon_cli.errors import UsageError
from paimon_cli.sql.statement_text import JoinedSide, columns_in, duckdb_text, parameters_of, reads, resolved
from paimon_cli.sql.statements import is_complete, statements_of


def texts(script: str) -> list[str]:
    return [statement.text for statement in statements_of(script)]


@pytest.mark.parametrize(
    "script, expected",
    [
        ("SELECT 1; SELECT 2", ["SELECT 1", "SELECT 2"]),
        (";; SELECT 1 ;\n;", ["SELECT 1"]),
        ("SELECT ';' ; SELECT \"a;b\", `c;d`", ["SELECT ';'", 'SELECT "a;b", `c;d`']),
        ("SELECT 'it''s; here'; x", ["SELECT 'it''s; here'", "x"]),
        ("SELECT $$a;b$$; SELECT $t$c;$$;d$t$", ["SELECT $$a;b$$", "SELECT $t$c;$$;d$t$"]),
        ("SELECT E'a\\';b'; y", ["SELECT E'a\\';b'", "y"]),
        ("SELECT 1 -- a; b\n; SELECT 2 /* c; /* d; */ ; */ + 1", ["SELECT 1", "SELECT 2 /* c; /* d; */ ; */ + 1"]),
        ("COPY (SELECT ';') TO 'x;y'; SHOW TABLES; CALL f(';')", ["COPY (SELECT ';') TO 'x;y'", "SHOW TABLES", "CALL f(';')"]),
        ("-- nothing; at all", []),
        ("SELECT 1;\r\nSELECT 2\r\n", ["SELECT 1", "SELECT 2"]),
    ],
)
def test_statements(script: str, expected: list[str]) -> None:
    assert texts(script) == expected


@pytest.mark.parametrize("script", ["SELECT 'a", 'SELECT "a', "SELECT `a", "SELECT $$a", "/* open", "SELECT 1; SELECT 'x"])
def test_open_quotes_are_refused_as_a_whole(script: str) -> None:
    with pytest.raises(UsageError, match="not closed"):
        statements_of(script)
    assert not is_complete(script + ";")


def test_lines_are_those_of_the_script() -> None:
    assert [one.line for one in statements_of("SELECT 1;\n\n  SELECT\n2; SELECT 3")] == [1, 3, 4]


def names(text: str) -> list[str]:
    return [name for _, name in parameters_of(statements_of(text)[0].words())]


def test_what_is_a_parameter() -> None:
    assert names("SELECT :a, x = :b, f(:c) IN :d LIMIT :e") == ["a", "b", "c", "d", "e"]
    assert names("SELECT x::int, a[1:n], {'k':v}, a[b:c], 'x :y', \":z\" -- :w") == []


def test_texts_for_duckdb() -> None:
    def text(script: str) -> str:
        return duckdb_text(statements_of(script)[0].words(), {"id": 1, "ids": [1, 2]})

    assert text('SELECT `a``b`, "c" FROM `x`.t -- `q`') == 'SELECT "a`b", "c" FROM "x".t'
    assert text("SELECT :id, :other, ':id'") == "SELECT getvariable('id'), :other, ':id'"
    assert text("SELECT a IN (:ids), a NOT IN (:ids)").split() == [
        "SELECT",
        "a",
        "IN",
        "getvariable('ids')",
        ",",
        "a",
        "NOT",
        "IN",
        "getvariable('ids')",
    ]
    assert text("SELECT a IN (:id), f(:ids)") == "SELECT a IN (getvariable('id')), f(getvariable('ids'))"
    assert " ".join(text("FROM t FOR VERSION AS OF 3 AS o WHERE x").split()) == "FROM t AS o AT (VERSION => 3) WHERE x"
    assert " ".join(text("FROM t TIMESTAMP AS OF '2026-01-01' JOIN u").split()) == "FROM t AT (TIMESTAMP => '2026-01-01') JOIN u"
    assert text("SELECT TIMESTAMP '2026-01-01' AS of") == "SELECT TIMESTAMP '2026-01-01' AS of"


def test_names_of_columns() -> None:
    own, other = JoinedSide.of("target.", ["id", "Name", "date"]), JoinedSide.of("source.", ["id", "word"])
    sides = {"t": own, "s": other, "shop.orders": own}

    def text(script: str) -> str:
        return resolved(statements_of(script)[0].words(), sides, [own, other])

    assert text("t.id = s.ID") == 'target.id = source."id"'
    assert text("NAME = word || 't.id'") == '"Name" = source."word" || \'t.id\''
    assert text("shop.orders.id + x.id") == "target.id + x.id"
    assert text("DATE '2026-01-01' = date AND lower(word(1))") == "DATE '2026-01-01' = date AND lower(word(1))"
    words = statements_of("s.id + (SELECT max(id) FROM u) + t.r")[0].words()
    assert columns_in(words, own, ["o"]) == {'"id"'}
    assert reads(words, "t", set(), "s") and not reads(statements_of("s.id + 1")[0].words(), "t", {"id", "s"}, "s")
    assert reads(statements_of("s.id + id")[0].words(), "t", {"id"}, "s")


def test_parts_of_a_statement() -> None:
    words = statements_of("a = CASE WHEN x THEN 1 WHEN y THEN 2 END, b = f(c, d) WHERE e IS DISTINCT FROM f FROM g")[0].words()
    assignments = words.until(("WHERE",), ("WHEN", "MATCHED"))
    assert [part.text for part in assignments.parts()] == ["a = CASE WHEN x THEN 1 WHEN y THEN 2 END", "b = f(c, d)"]
    words.expect("WHERE")
    assert words.until(("FROM",)).text == "e IS DISTINCT FROM f"
    with pytest.raises(UsageError, match="SET is expected before 'FROM g'"):
        words.expect("SET")
