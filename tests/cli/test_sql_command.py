"""`sql` from the command line: each form of output, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.calling import Run


@pytest.fixture(autouse=True)
def warehouse(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIMON_WAREHOUSE", str(tmp_path))
    columns = ("-C", "id BIGINT NOT NULL", "-C", "p DECIMAL(10, 2)", "-C", "s STRING")
    run("create", "shop.orders", *columns, "--primary-key", "id", "--bucket", 1)
    rows = '{"id": 1, "p": "0.25", "s": "it\'s 1"}\n{"id": 7, "p": "1.75"}\n{"id": 9}\n'
    run("write", "shop.orders", "-", "--format", "json", "--engine", "local", stdin=rows)


def test_every_output_form(run: Run) -> None:
    query = "SELECT id, p, s FROM shop.orders WHERE id IN (1, 7) ORDER BY id"
    assert run("sql", query, "-o", "csv").out == "id,p,s\n1,0.25,it's 1\n7,1.75,\n"
    assert run("sql", query, "-o", "ndjson", "--fields", "s,id").out == '{"s":"it\'s 1","id":1}\n{"s":null,"id":7}\n'
    assert run("sql", query, "-o", "json").json["items"][1] == {"id": 7, "p": "1.75", "s": None}
    assert run("sql", query).out.endswith("2 rows\n")
    assert run("sql", "SELECT id, id FROM shop.orders ORDER BY 1 LIMIT 1", "-o", "ndjson").lines == [{"id": 1, "id_1": 1}]


def test_types_that_only_duckdb_has(run: Run) -> None:
    query = (
        "SELECT NULL AS n, TIME '10:00:00' AS t, [1] AS l, "
        "{'a': 1} AS r, MAP {'x': 1} AS m, 1::UTINYINT AS u, 'a'::ENUM ('a') AS e"
    )
    row = {"n": None, "t": "10:00:00", "l": [1], "r": {"a": 1}, "m": [["x", 1]], "u": 1, "e": "a"}
    assert run("sql", query, "-o", "ndjson").lines == [row]


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("SELECT idd FROM shop.orders", "did you mean 'id'?"),
        ("SELECT o.idd FROM shop.orders o", "did you mean 'id'?"),
        ('SELECT id FROM shop.orders WHERE s = "tea leaves"', "write strings in single quotes: 'tea'"),
    ],
)
def test_an_unknown_column_is_answered_with_the_nearest_one(run: Run, query: str, hint: str) -> None:
    assert f"hint: {hint}\n" in run("sql", query, code=2).err


def test_descriptions_and_refusals(run: Run) -> None:
    assert "DECIMAL(10,2)" in run("sql", "DESCRIBE shop.orders").out
    columns = {row["column_name"]: row for row in run("sql", "DESCRIBE shop.orders", "-o", "ndjson").lines}
    assert (columns["id"]["null"], columns["id"]["key"]) == ("NO", "PRI"), "keys are never null"
    assert {row["null"] for name, row in columns.items() if name != "id"} == {"YES"}
    (computed,) = run("sql", "DESCRIBE SELECT id FROM shop.orders", "-o", "ndjson").lines
    assert (computed["null"], computed["key"]) == ("YES", None), "DuckDB knows no keys of a query"
    assert "only --yes confirms" in run("sql", "DROP TABLE shop.orders", code=7).err
    assert "no table" in run("sql", "FROM shop.nothing", code=3).err
    assert run("sql", "FROM shop.orders", "--fields", "nope", code=2).out == ""


def test_files_need_permission(run: Run, tmp_path: Path) -> None:
    (tmp_path / "plain.csv").write_text("id,word\n7,seven\n")
    query = f"SELECT word FROM read_csv('{tmp_path}/plain.csv') JOIN shop.orders USING (id)"
    refused = run("sql", query, code=7).err
    assert "Cannot access file" in refused and "--allow-files" in refused
    assert run("sql", query, "--allow-files", "-o", "ndjson").lines == [{"word": "seven"}]


def test_iceberg_metadata(run: Run, tmp_path: Path) -> None:
    item = run("export", "iceberg", "shop.orders", "-o", "json").json["item"]
    assert (item["rows"], item["files"], item["format_version"], item["delete_files"]) == (3, 1, 2, 0)
    assert Path(item["metadata"]).is_file()
    assert "3 rows in 1 file" in run("export", "iceberg", "shop.orders", "--output-path", tmp_path / "out").out
    run("export", "iceberg", "shop.orders", "--snapshot", 9, code=3)


def test_a_path_without_quotes_is_shown_with_them(run: Run) -> None:
    answer = run("sql", "select id from ./wh/shop.db/orders where id = 1", code=2)
    assert answer.err.splitlines()[-1] == "hint: a path in a query is in quotes: FROM './wh/shop.db/orders'"
    assert "in quotes" not in run("sql", "select 1/2 frm x", code=2).err
