"""`alter` from the command line, and old rows under the new schema."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.calling import Run


@pytest.fixture
def table(run: Run, tmp_path: Path) -> Path:
    path = tmp_path / "t"
    columns = ("-C", "id INT NOT NULL", "-C", "v INT", "-C", "s STRING", "-C", "r ROW<a INT, l ARRAY<INT>>")
    run("create", path, *columns, "--primary-key", "id", "--bucket", 1)
    add(run, path, id=1, v=300, s="12", r={"a": 1, "l": [1, None]})
    return path


def add(run: Run, table: Path, **row: object) -> int:
    source = table.parent / "row.jsonl"
    source.write_text(json.dumps(row))
    return run("write", table, source, "--engine", "local").code


def rows(run: Run, table: Path, *options: str) -> list[dict[str, object]]:
    return sorted(run("read", table, "-o", "ndjson", *options).lines, key=lambda row: str(row))


def test_old_and_new_rows_after_every_kind_of_change(run: Run, table: Path) -> None:
    changes = [
        ("add-column", "c STRING DEFAULT 'new' COMMENT 'x'", "--first"),
        ("rename-column", "v", "w"),
        ("alter-column", "w", "TINYINT"),
        ("alter-column", "s", "BIGINT", "--after", "id"),
        ("rename-column", "r.a", "b"),
        ("add-column", "r.c STRING", "--first"),
        ("alter-column", "r.l.element", "STRING"),
        ("set", "write-only=true", "fields.w.stats-mode=full"),
        ("unset", "write-only"),
    ]
    for number, change in enumerate(changes, 1):
        assert run("alter", table, *change).out == f"{table} now has schema {number}\n"
    assert add(run, table, id=2, w=7, s=5, r={"b": 2, "c": "x", "l": ["y"]}) == 0
    old = {"c": None, "id": 1, "s": 12, "w": 44, "r": {"c": None, "b": 1, "l": ["1", None]}}
    new = {"c": "new", "id": 2, "s": 5, "w": 7, "r": {"c": "x", "b": 2, "l": ["y"]}}
    assert rows(run, table) == sorted([old, new], key=str)
    assert rows(run, table, "-w", "w = 44") == rows(run, table, "-w", "s > 10") == rows(run, table, "-w", "c IS NULL") == [old]
    assert rows(run, table, "--snapshot", "1") == [{"id": 1, "v": 300, "s": "12", "r": {"a": 1, "l": [1, None]}}]
    assert run("compact", table, "--strategy", "full", "--engine", "local").code == 0
    assert rows(run, table) == sorted([old, new], key=str)


def test_json_answer_and_refusals(run: Run, table: Path) -> None:
    item = run("alter", table, "alter-column", "v", "BIGINT DEFAULT 5", "-o", "json").json["item"]
    assert (item["id"], item["fields"][1]["type"], item["fields"][1]["default_value"]) == (1, "BIGINT", "5")
    refused = run("alter", table, "drop-column", "id", "-o", "json", code=2)
    assert refused.error["message"] == "column 'id' cannot be dropped: it is a primary key or partition column"
    assert run("alter", table, "set", "file.format=parquet").out == f"{table} is unchanged, at schema 1\n"
    assert "did you mean 'write-only'" in run("alter", table, "set", "writ-only=true").err
    assert run("alter", table.parent / "nope", "set", "a=b", code=3).code == 3
    for wrong in (("alter-column", "v"), ("alter-column", "v", "--first", "--after", "id"), ("set", "x"), ("add-column", "c")):
        assert run("alter", table, *wrong, code=2).err


def test_a_value_that_cannot_be_cast_fails_the_read(run: Run, table: Path) -> None:
    add(run, table, id=2, v=1, s="x", r=None)
    run("alter", table, "alter-column", "s", "INT")
    assert "column s was changed from STRING to INT: cannot cast 'x' to INT" in run("read", table, code=2).err
    assert rows(run, table, "-s", "id") == [{"id": 1}, {"id": 2}]


def test_defaults_fill_missing_columns_and_nulls(run: Run, table: Path) -> None:
    run("alter", table, "alter-column", "v", "--default", "7")
    run("alter", table, "add-column", "d DATE DEFAULT '2024-01-31'")
    source = table.parent / "rows.csv"
    source.write_text("id,s\n2,x\n")
    assert "column 'r' is missing" in run("write", table, source, "--missing-columns", "error", "--engine", "local", code=2).err
    add(run, table, id=3, v=None, s=None, r=None)
    assert rows(run, table)[1] == {"id": 3, "v": 7, "s": None, "r": None, "d": "2024-01-31"}
    run("alter", table, "drop-column", "r")
    run("write", table, source, "--engine", "local")
    assert {"id": 2, "v": 7, "s": "x", "d": "2024-01-31"} in rows(run, table)
    run("update", table, "--set", "v = NULL", "-w", "id = 1", "--engine", "local")
    assert rows(run, table, "-w", "id = 1") == [{"id": 1, "v": 7, "s": "12", "d": "2024-01-31"}]


def test_odd_options_are_reported_and_strict_ones_refused(run: Run, table: Path) -> None:
    assert "unknown to Paimon; did you mean 'write-only'?" in run("alter", table, "set", "write-onli=true").err
    refused = run("alter", table, "set", "write-onli=false", "--strict-options", code=2)
    assert "did you mean 'write-only'?" in refused.err
    refused = run("read", table, "--option", "scan.snapshotid=1", "--strict-options", code=2)
    assert "did you mean 'scan.snapshot-id'?" in refused.err
    assert run("read", table, "--option", "my.key=1").code == 0
    warning = run("alter", table, "set", "manifest.compression=none").err
    assert "only partly honoured: manifests are read in every codec, and always written with zstd" in warning
    lost = run("alter", table, "set", "orc.encrypt=id", code=8).err
    assert "cannot change like that" in lost and "with orc.encrypt=id" in lost


def test_secrets_are_neither_stored_nor_shown(run: Run, table: Path) -> None:
    for key in ("secret.key", "fs.s3a.secret.key", "my.password"):
        refused = run("alter", table, "set", f"{key}=S3CR3T", code=2)
        assert "S3CR3T" not in refused.err
    schema = table / "schema" / "schema-0"
    schema.write_text(schema.read_text().replace('"options" : {', '"options" : {\n    "db.password" : "S3CR3T",'))
    for shown in (("options", "ls", table), ("options", "ls", table, "-o", "json"), ("schemas", "show", table)):
        result = run(*shown)
        assert "db.password" in result.out and "S3CR3T" not in result.out and "***" in result.out
