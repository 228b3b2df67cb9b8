"""`--fields`: chosen columns in a chosen order, in each format and of each kind of result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.calling import Run


@pytest.fixture
def table(run: Run, tmp_path: Path) -> Path:
    path = tmp_path / "t"
    run("create", path, "-C", "id BIGINT NOT NULL", "-C", "a_b STRING", "--primary-key", "id", "--bucket", 1)
    run("write", path, "-", "--format", "json", "--engine", "local", stdin=json.dumps({"id": 7, "a_b": "x"}))
    return path


def test_lists_and_single_results(run: Run, table: Path) -> None:
    listed = run("snapshots", "ls", table, "--fields", "kind,id", "-o", "json").json["items"]
    assert [list(item.items()) for item in listed] == [[("kind", "APPEND"), ("id", 1)]]
    assert run("snapshots", "ls", table, "--fields", "kind, id", "-o", "csv").out == "kind,id\nAPPEND,1\n"
    assert run("snapshots", "show", table, "--fields", "id", "-o", "ndjson").out == '{"id":1}\n'
    hidden = run("snapshots", "ls", table, "--fields", "watermark,id").out
    assert hidden == "Watermark  ID\n        -   1\n1 of 1 snapshot, number 1\n"


def test_rows(run: Run, table: Path) -> None:
    assert run("read", table, "--fields", "a_b,id", "-o", "ndjson").lines == [{"a_b": "x", "id": 7}]
    assert list(run("read", table, "--fields", "a_b,id", "-o", "ndjson").lines[0]) == ["a_b", "id"]
    assert run("read", table, "--fields", "`a_b`", "-o", "csv").out == "a_b\nx\n"
    assert run("read", table, "--fields", "id,`a_b`", "-o", "csv").out == "id,a_b\n7,x\n"
    assert run("read", table, "--fields", 'id, "a_b"', "-o", "csv").out == "id,a_b\n7,x\n"
    assert run("read", table, "--fields", "a_b,id").out == "a_b  id\nx     7\n1 row\n"
    assert run("read", table, "--row-kind", "--fields", "rowkind", "-o", "json").json["items"] == [{"rowkind": "+I"}]
    assert run("changelog", "read", table, "--from", 1, "--fields", "id,rowkind", "-o", "csv").out == "id,rowkind\n7,+I\n"


def test_results_with_a_text_of_their_own_become_tables(run: Run, table: Path) -> None:
    assert run("read", table, "--count", "--fields", "count").out == "Rows  1\n"
    assert run("lsm", "show", table, "--fields", "read_amplification,bucket").out == "Read amp  Bucket\n       1       0\n"
    planned = run("compact", table, "--dry-run", "--fields", "bucket,runs_before").out
    assert planned.split() == ["Bucket", "Runs", "before", "0", "1"]
    health = run("health", table, "--fields", "verdict").out
    assert health.splitlines()[0] == "Verdict" and "run:" not in health


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("snapshots", "ls", "TABLE", "--fields", "id,nope"), "there is no field 'nope'"),
        (("read", "TABLE", "--fields", "nope"), "there is no field 'nope'"),
        (("read", "TABLE", "--fields", "id,id"), "names 'id' twice"),
        (("read", "TABLE", "--fields", " , "), "names no field"),
        (("compact", "TABLE", "--watch", "--max-rounds", "1", "--fields", "round"), "rounds are logged as text"),
        (("compact", "TABLE", "--watch", "--max-rounds", "1", "-o", "ndjson", "--fields", "x"), "there is no field 'x'"),
    ],
)
def test_wrong_fields_are_refused(run: Run, table: Path, arguments: tuple[str, ...], message: str) -> None:
    assert message in run(*(table if word == "TABLE" else word for word in arguments), code=2).err


def test_a_wrong_field_does_not_make_a_failure_of_what_was_committed(run: Run, table: Path) -> None:
    row = json.dumps({"id": 8, "a_b": None})
    done = run("write", table, "-", "--format", "json", "--engine", "local", "-o", "json", "--fields", "nope", stdin=row)
    assert done.json["item"]["rows"] == 1 and "there is no field 'nope'" in done.err
    assert run("read", table, "--count").out == "2\n"


def test_rounds_of_the_compaction_service(run: Run, table: Path) -> None:
    done = run("compact", table, "--watch", "--max-rounds", 1, "-o", "ndjson", "--fields", "conflicts,round", "--engine", "local")
    assert done.lines == [{"conflicts": 0, "round": 1}]
