"""`sql` from the command line: each form of output, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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


def test_statements_of_a_file_and_of_stdin(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "load.sql"
    script.write_text("\ufeffINSERT INTO shop.orders (id, s) VALUES (2, 'a;b'); -- 1; 2\nSELECT s FROM shop.orders WHERE id = 2")
    assert run("sql", "-f", script, "-o", "ndjson").out.splitlines()[-1] == '{"s":"a;b"}'
    assert run("sql", "-o", "ndjson", stdin="SELECT 1 AS x;\nSELECT 2 AS y;\n").lines == [{"x": 1}, {"y": 2}]
    assert run("sql", "-", "-o", "csv", stdin="SELECT 1 AS x").out == "x\n1\n"
    assert "no file" in run("sql", "--file", tmp_path / "none.sql", code=3).err
    assert "one place" in run("sql", "SELECT 1", "--file", script, code=2).err
    assert "there is no statement" in run("sql", stdin=" -- nothing\n", code=2).err


def test_changes_answer_as_their_commands_do(run: Run) -> None:
    def kind(statement: str, *more: object) -> tuple[str, object]:
        answer = run("sql", statement, "-o", "json", *more).json
        return answer["kind"], answer["item"]

    kinds = {
        "INSERT INTO shop.orders (id) VALUES (20), (21)": ("WriteSummary", 2),
        "UPDATE shop.orders SET s = 'x' WHERE id = 20": ("UpdateSummary", 1),
        "UPDATE shop.orders SET s = CASE WHEN id = 20 THEN 'y' ELSE 'z' END WHERE id > 19": ("UpdateSummary", 2),
        "DELETE FROM shop.orders WHERE id = 21": ("DeleteSummary", 1),
        "MERGE INTO shop.orders o USING (SELECT 7 AS id) s USING (id) WHEN MATCHED THEN UPDATE SET s = 'm'": (
            "MergeSummary",
            1,
        ),
    }
    for statement, expected in kinds.items():
        name, item = kind(statement)
        assert isinstance(item, dict) and (name, item["rows"]) == expected
        assert item["snapshots"]
        if name == "MergeSummary":
            assert [item[field] for field in ("source_rows", "inserted", "updated", "deleted")] == [1, 0, 1, 0]
    assert kind("TRUNCATE TABLE shop.orders", "--yes")[0] == "DropSummary"
    assert kind("DROP TABLE shop.orders", "-y")[0] == "TableDropSummary"


def test_texts_of_changes(run: Run) -> None:
    assert run("sql", "INSERT INTO shop.orders (id) VALUES (20)").out.startswith("snapshot 2: 1 row in 1 file")
    assert "1 row deleted in 1 bucket" in run("sql", "DELETE FROM shop.orders WHERE id = 20").out
    merge = "MERGE INTO shop.orders o USING (SELECT 77 AS id) s USING (id) WHEN {} THEN {}"
    assert "1 row inserted, 0 updated, 0 deleted" in run("sql", merge.format("NOT MATCHED", "INSERT *")).out
    assert "nothing was committed" in run("sql", merge.format("MATCHED AND o.id < 0", "DELETE")).out
    assert run("sql", "CREATE DATABASE IF NOT EXISTS shop").out == "shop already exists, nothing was changed\n"
    assert "CREATE TABLE `shop`.`orders` (\n  `id` BIGINT NOT NULL,\n" in run("sql", "SHOW CREATE TABLE shop.orders").out
    assert "PYTHON_ARROW_SCAN" in run("sql", "EXPLAIN SELECT id FROM shop.orders").out


def test_what_discards_asks(run: Run) -> None:
    for statement in ("DROP TABLE shop.orders", "TRUNCATE shop.orders", "DROP DATABASE shop CASCADE"):
        refused = run("sql", f"SELECT 1; {statement}; SELECT 2", code=7).err
        assert "only --yes confirms it" in refused and "not run: 3" in refused
    assert run("read", "shop.orders", "--count").out.strip().endswith("3")


def test_a_failed_script_says_what_is_committed(run: Run) -> None:
    script = "INSERT INTO shop.orders (id) VALUES (30); DELETE FROM shop.orders WHERE nope = 1; SELECT 1"
    failed = run("sql", script, "-o", "json", code=2)
    details = failed.error["details"]
    committed = {"statement": 1, "done": "inserted", "table": "shop.orders", "snapshots": [2]}
    assert (details["statement"], details["committed"], details["not_run"]) == (2, [committed], [3])
    assert "committed before: 1 (inserted, shop.orders, snapshot" in run("sql", script, code=2).err


def test_parameters_are_data(run: Run) -> None:
    text = "x'; DROP TABLE shop.orders; --"
    run("sql", "INSERT INTO shop.orders (id, s) VALUES (:id, :s)", "--param", "id=50", "--param", f"s={text}")
    assert run("sql", "SELECT id FROM shop.orders WHERE s = :s", "--param", f"s={text}", "-o", "ndjson").lines == [{"id": 50}]
    run("sql", "UPDATE shop.orders SET p = :p WHERE id = :id", "--param", "id=50", "--param", "p=2.50")
    assert "--param id=VALUE" in run("sql", "SELECT * FROM shop.orders WHERE id = :id", code=2).err


@pytest.mark.parametrize(
    "statement", ["COPY (SELECT 1) TO 'x'", "ATTACH 'x.db'", "PRAGMA x", "SET threads = 1", "BEGIN", "VACUUM shop.orders"]
)
def test_statements_of_others_are_not_supported(run: Run, statement: str) -> None:
    assert run("sql", statement, "-o", "json", code=8).error["code"] == "PC-NOT-SUPPORTED"


def test_lines_of_a_script_are_the_rows_of_its_queries(run: Run) -> None:
    script = "UPDATE shop.orders SET s = 'x' WHERE id = 1; SELECT s FROM shop.orders WHERE id = 1; CREATE DATABASE more"
    for output, rows in (("csv", "s\nx\n"), ("ndjson", '{"s":"x"}\n')):
        done = run("sql", script, "-o", output)
        assert done.out == rows and "1 row changed" in done.err and "more" in done.err
        run("sql", "DROP DATABASE more", "--yes")
    assert run("sql", "UPDATE shop.orders SET s = 'y' WHERE id = 1", "-o", "ndjson").lines[0]["rows"] == 1


def test_a_comment_at_the_beginning_is_no_option(run: Run) -> None:
    assert run("sql", "-- how many\nSELECT count(*) AS n FROM shop.orders", "-o", "csv").out == "n\n3\n"
    assert "No such option" in run("sql", "--how", code=2).err


def test_a_variant_is_the_value_that_it_holds(run: Run) -> None:
    run("create", "shop.v", "-C", "k INT", "-C", "v VARIANT", "-C", "r ROW<w VARIANT, l ARRAY<VARIANT>>", "--bucket", "-1")
    first: dict[str, Any] = {"k": 1, "v": {"a": [1, "\u009b\n"]}, "r": {"w": "x", "l": [1.5, None]}}
    lines = "".join(json.dumps(row) + "\n" for row in (first, {"k": 2, "v": None, "r": None}))
    run("write", "shop.v", "-", "--format", "json", "--engine", "local", stdin=lines)
    query = ("sql", "SELECT * FROM shop.v ORDER BY k")
    assert run(*query, "-o", "ndjson").out == run("read", "shop.v", "-o", "ndjson", "--order-by", "k").out
    assert run(*query, "-o", "json").json["items"][0] == first
    assert run(*query, "-o", "csv").out == run("read", "shop.v", "-o", "csv", "--order-by", "k").out
    assert run("sql", "SELECT v -> '$.a' AS a, v ->> '$.a[1]' AS b FROM shop.v WHERE k = 1", "-o", "ndjson").lines == [
        {"a": first["v"]["a"], "b": "\u009b\n"}
    ]


@pytest.mark.parametrize(
    ("text", "shown"), [("[1,]", "[1,]"), ("[NaN]", "[NaN]"), ('{"inf":\n1}', {"inf": 1}), ("nan", "nan"), ("1e-400", 0)]
)
def test_what_only_duckdb_takes_for_json_is_shown_as_text(run: Run, text: str, shown: object) -> None:
    query = f"SELECT '{text}'::JSON AS j, {{'j': '{text}'::JSON}} AS s, NULL::JSON AS n"
    assert run("sql", query, "-o", "ndjson").lines == [{"j": shown, "s": {"j": shown}, "n": None}]
