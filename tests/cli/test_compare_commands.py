"""`compare` and `bisect` from the command line."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.cli.calling import Run


@pytest.fixture
def table(run: Run, tmp_path: Path) -> Path:
    path = tmp_path / "t"
    run("create", path, "-C", "id BIGINT NOT NULL", "-C", "v STRING", "--primary-key", "id", "--bucket", 1)
    for rows in ([{"id": 1, "v": "a"}, {"id": 2, "v": None}], [{"id": 1, "v": "b\x1b"}, {"id": 3, "v": "c"}]):
        lines = "\n".join(map(json.dumps, rows))
        run("write", path, "-", "--format", "json", "--engine", "local", "--compact", "none", stdin=lines)
    return path


def test_compare(run: Run, table: Path, tmp_path: Path) -> None:
    text = run("compare", f"{table}@1", table, code=4).out
    assert text.splitlines() == [
        f"- {table}@1: 2 rows",
        f"+ {table}: 3 rows",
        "paired by id",
        "1 equal, 1 different, 0 only here (-), 1 only there (+)",
        "different in v (1)",
        '~ id=1: v "a" -> "b\\\\u001b"'.replace("\\\\", "\\"),
        '+ id=3: v="c"',
    ]
    item = run("compare", table, table, "--snapshot-a", 1, "-o", "json", "-l", 0, code=4).json["item"]
    assert (item["equal"], item["different"], item["only_there"], item["differences"]) == (1, 1, 1, [])
    assert "2 more differences; --limit shows more" in run("compare", table, table, "--snapshot-a", 1, "-l", 0, code=4).out
    run("read", table, "--output", tmp_path / "t.csv", "-w", "id <> 1")
    assert run("compare", table, tmp_path / "t.csv", "-w", "id > 1", "-o", "ndjson", "--fields", "equal").out == '{"equal":2}\n'
    semicolons = tmp_path / "s.csv"
    semicolons.write_text("id;v\n2;\n3;c\n")
    run("compare", table, semicolons, "-w", "id > 1", "--delimiter", ";")
    whole = run("compare", table, semicolons, "--delimiter", ";", "--key", "", code=4).out
    assert "compared as whole rows" in whole and '- id=1, v="b' in whole


def test_rows_that_were_written_to_a_file_are_equal(run: Run, tmp_path: Path) -> None:
    """NaN beside numbers, maps as lists of pairs and binary text have types that no inference could find."""
    columns = ("id INT NOT NULL", "f DOUBLE", "m MAP<STRING, INT>", "r ROW<a INT>", "b BYTES", "t TIMESTAMP(9)")
    table = tmp_path / "t"
    run("create", table, *(word for column in columns for word in ("-C", column)), "--primary-key", "id", "--bucket", 1)
    rows = [
        '{"id": 1, "f": "NaN", "m": [["k", 1]], "r": {"a": null}, "b": "00ff", "t": "2026-01-01T00:00:00.123456789"}',
        '{"id": 2, "f": 1.5, "m": null, "r": null, "b": null, "t": "1999-01-01T00:00:00"}',
    ]
    run("write", table, "-", "--format", "json", "--engine", "local", stdin="\n".join(rows))
    for name in ("rows.ndjson", "rows.csv"):
        run("read", table, "--output", tmp_path / name)
        assert "2 equal, 0 different" in run("compare", table, tmp_path / name).out


def test_narrow_numbers_are_compared_with_doubles(run: Run, tmp_path: Path) -> None:
    tables = [tmp_path / name for name in "ab"]
    for table, (f, g, m) in zip(tables, (("FLOAT", "INT", "BIGINT"), ("DOUBLE", "DOUBLE", "DOUBLE")), strict=True):
        run("create", table, "-C", "id INT", "-C", f"f {f}", "-C", f"g {g}", "-C", f"m {m}", "--bucket", -1)
        row = '{"id": null, "f": 0.5, "g": 7, "m": 1}\n'
        run("write", table, "-", "--format", "json", "--engine", "local", stdin=2 * row)
    assert "2 equal, 0 only here" in run("compare", *tables, "--select", "id,f,g").out
    assert "neither type can hold every value of the other" in run("compare", *tables, code=2).err
    assert "the key id=NULL is not unique" in run("compare", *tables, "--key", "id", "--select", "f", code=2).err


def test_bisect(run: Run, table: Path) -> None:
    text = run("bisect", table, "-w", "id = 3").out
    assert text.splitlines()[:2] == ["snapshot 2: 1 row, as expected", "snapshot 1: 0 rows"]
    command = text.splitlines()[-1].removeprefix("see: paimon-cli ").split()
    assert command == ["compare", f"{table}@1", f"{table}@2"] and "+ id=3" in run(*command, code=4).out
    item = run("bisect", table, "-w", "id = 3", "-o", "json").json["item"]
    assert (item["snapshot_id"], item["before"], item["kind"], item["tried"][1]["holds"]) == (2, 1, "APPEND", False)
    failed = run("bisect", table, "-w", "id = 9", "-o", "json", code=3)
    assert failed.error["details"]["tried"] == [{"snapshot_id": 2, "rows": 0}]
    assert "may be older" in run("bisect", table, "-w", "id = 2").out


def test_explain_and_analyze(run: Run, table: Path) -> None:
    item = run("read", table, "--explain", "-o", "json").json
    assert item["kind"] == "ScanPlan" and item["item"]["splits_to_merge"] == 1
    analyzed = run("read", table, "--explain", "--analyze", "-w", "id = 1", "-o", "json").json
    assert analyzed["kind"] == "ScanAnalysis" and analyzed["item"]["rows_returned"] == 1
    assert [stage["stage"] for stage in analyzed["item"]["stages"]] == ["plan", "fetch", "decode and merge", "filter"]
    assert "Stages" in run("read", table, "--analyze").out
    run("read", table, "--analyze", "--count", code=2)


def test_explain_begins_with_what_matters(run: Run, table: Path) -> None:
    sentence, command, empty, *figures = run("read", table, "--explain").out.splitlines()
    assert sentence.startswith("reads 2 files of 2, ") and "1 is merged from up to 2 sorted runs per bucket" in sentence
    assert command == f"run: paimon-cli compact {table} --strategy full" and empty == ""
    assert not any(re.search(r"  +(0|-)$", line) for line in figures), "zeros are left out"
    measured = run("read", table, "--analyze").out.splitlines()
    assert re.match(r"\d+% of \d+ ms goes into ", measured[0])
    assert re.search(r"fetch +[\d.]+ +- +\d+ +[\d.]+ k?B$", "\n".join(measured), re.MULTILINE), "sizes have one style"
    assert "run:" not in run("read", table, "--explain", "--snapshot", "1").out, "a compaction does not change old snapshots"
    run(*command.removeprefix("run: paimon-cli ").split())
    assert "nothing has to be merged" in run("read", table, "--explain").out.splitlines()[0]
    assert run("read", table, "--explain", "-w", "id = 99").out.startswith("reads nothing: no file can hold a matching row\n")


def test_the_hint_of_bisect_names_the_table_as_the_call_did(run: Run, table: Path) -> None:
    run("branches", "create", table, "dev")
    for number in (8, 9):
        run("write", table, "-", "--format", "json", "--branch", "dev", stdin=f'{{"id": {number}, "v": "z"}}')
    shown = run("bisect", table, "-w", "id = 9", "--branch", "dev", "--option", "read.batch-size=7").out
    _, *command = shlex.split(shown.splitlines()[-1].removeprefix("see: "))
    assert "+ id=9" in run(*command, code=4).out


def test_the_files_between_two_versions(run: Run, table: Path) -> None:
    run("tags", "create", table, "first", "--snapshot", 1)
    run("compact", table)
    shown = run("compare", f"{table}@first", table, "--files", code=4).out
    assert "1 file added, 1 file removed from snapshot 1 to 3" in shown
    old = run("snapshots", "diff", table, 1, 3, "-o", "json").json
    assert run("compare", f"{table}@first", table, "--files", "-o", "json", code=4).json == old
    assert len(run("compare", f"{table}@1", table, "--files", "-l", 1, "-o", "json", code=4).json["items"]) == 1
    assert run("compare", f"{table}@3", table, "--files", "-o", "json").json["items"] == []


def test_the_changelog_between_two_versions(run: Run, table: Path) -> None:
    changes = run("compare", f"{table}@1", f"{table}@2", "--changelog", "-o", "ndjson", code=4).out
    assert changes == run("changelog", "read", table, "--from", 2, "--to", 2, "-o", "ndjson").out and '"rowkind":"+I"' in changes
    narrow = run("compare", table, table, "--snapshot-a", 1, "--changelog", "-s", "id", "-w", "id = 3", "-o", "ndjson", code=4)
    assert narrow.lines == [{"rowkind": "+I", "id": 3}]
    bound = ("-w", "id = :id", "--param", "id=3", "-s", "id", "-o", "ndjson")
    assert run("compare", f"{table}@1", table, "--changelog", *bound, code=4).lines == narrow.lines
    assert "0 rows" in run("compare", f"{table}@2", table, "--changelog").out
    assert run("compare", f"{table}@2", table, "--changelog", "-o", "json").json["items"] == []
    assert "snapshot 2 is newer than snapshot 1" in run("compare", table, f"{table}@1", "--changelog", code=2).err


def test_what_lies_between_versions_needs_one_table(run: Run, table: Path, tmp_path: Path) -> None:
    run("create", tmp_path / "u", "-C", "id BIGINT NOT NULL", "--primary-key", "id", "--bucket", 1)
    assert "not versions of one table" in run("compare", table, tmp_path / "u", "--files", code=2).err
    run("branches", "create", table, "dev")
    assert "not versions of one table" in run("compare", table, table, "--branch-b", "dev", "--changelog", code=2).err
    assert "there is no table" in run("compare", table, tmp_path / "x.csv", "--files", code=3).err
    assert "u has no snapshots" in run("compare", tmp_path / "u", tmp_path / "u", "--files", code=3).err
    assert "--files cannot be combined with --changelog" in run("compare", table, table, "--files", "--changelog", code=2).err
    assert "--key cannot be combined with --files" in run("compare", table, table, "--files", "--key", "id", code=2).err
    assert "--select cannot be combined with --files" in run("compare", table, table, "--files", "-s", "id", code=2).err
    assert "--param cannot be combined with --files" in run("compare", table, table, "--files", "--param", "a=1", code=2).err
    assert "--key cannot be combined with --changelog" in run("compare", table, table, "--changelog", "--key", "id", code=2).err


def test_other_words_for_compare(run: Run, table: Path) -> None:
    assert "a version is written with its table" in run("compare", table, 1, 2, code=2).err
    assert f"paimon-cli compare {table}@1 {table}@2" in run("diff", table, 1, 2, code=2).err
    assert f"paimon-cli compare {table} u" in run("diff", table, "u", code=2).err
