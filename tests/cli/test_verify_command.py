"""`verify` as a user runs it: text, JSON, reports, exit codes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest

from paimon_cli import Table
from paimon_cli.bucket.merged_rows import merge_section
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants import merge_checks
from paimon_cli.metadata.data_file import ManifestEntry
from tests.cli.calling import Run
from tests.goldens import golden_table
from tests.invariants.damaged_tables import Bench, keyed_table


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return keyed_table(tmp_path)


def test_a_sound_table(run: Run, table: Path) -> None:
    text = run("verify", table, "--level", "full").out
    assert "0 errors, 0 warnings" in text and "sorted-runs   ok" in text
    assert run("verify", table, "-o", "json").json["items"] == []


def test_a_damaged_table(run: Run, table: Path) -> None:
    victim = next(table.glob("dt=a/bucket-0/*"))
    victim.unlink()
    text = run("verify", table, code=4).out
    assert f"PV012  {victim}" in text and "hint: paimon-cli repair" in text
    items = run("verify", table, "--only", "PV012", "-o", "json", code=4).json["items"]
    assert {key: items[0][key] for key in ("code", "severity", "path")} == {
        "code": "PV012",
        "severity": "error",
        "path": str(victim),
    }
    assert run("verify", table, "--level", "meta").code == 0, "metadata alone does not show it"
    assert run("verify", table, "--only", "chain,hints").code == 0
    run("verify", table, "--fail-on", "warn", code=4)


def test_warnings_fail_only_when_asked(run: Run, tmp_path: Path) -> None:
    table = golden_table("pypaimon-2.1", "rowkind_deletes", tmp_path)
    assert "PV044" in run("verify", table, "--level", "full").out
    run("verify", table, "--level", "full", "--fail-on", "warn", code=4)


def test_reports(run: Run, table: Path, tmp_path: Path) -> None:
    (table / "snapshot/LATEST").write_text("99")
    junit, sarif = tmp_path / "j.xml", tmp_path / "s.json"
    run("verify", table, "--report", "junit", junit, code=4)
    suite = ElementTree.parse(junit).getroot()[0]
    assert suite.attrib["failures"] == "1" and len(suite.findall("testcase/failure")) == 1
    run("verify", table, "--report", "sarif", sarif, code=4)
    done = json.loads(sarif.read_text())["runs"][0]
    assert [result["ruleId"] for result in done["results"]] == ["PV003"]
    assert "PV003" in {rule["id"] for rule in done["tool"]["driver"]["rules"]}
    run("verify", table, "--report", "html", tmp_path / "x", code=2)
    run("verify", table, "--report", "junit", tmp_path / "no" / "where", code=2)


@pytest.mark.parametrize("lost", ["schema/schema-*", "manifest/manifest-list-*"])
def test_checks_that_could_not_run_are_skipped(run: Run, table: Path, tmp_path: Path, lost: str) -> None:
    for path in table.glob(lost):
        path.write_bytes(b"damaged")
    junit, sarif = tmp_path / "j.xml", tmp_path / "s.json"
    run("verify", table, "--report", "junit", junit, code=4)
    suite = ElementTree.parse(junit).getroot()[0]
    skipped = {case.attrib["name"][:5] for case in suite if case.find("skipped") is not None}
    failed = {case.attrib["name"][:5] for case in suite if case.find("failure") is not None}
    assert "PV012" in skipped and "PV003" not in skipped and failed and not failed & skipped
    assert suite.attrib["skipped"] == str(len(skipped))
    run("verify", table, "--report", "sarif", sarif, code=4)
    told = json.loads(sarif.read_text())["runs"][0]["invocations"][0]["toolExecutionNotifications"]
    assert {one["associatedRule"]["id"] for one in told} == skipped


def test_single_snapshots(run: Run, table: Path) -> None:
    assert "@ snapshot 2 " in run("verify", table, "--snapshot", 2).out
    run("verify", table, "--snapshot", 9, code=3)
    run("verify", table, "--snapshot", 2, "--all-snapshots", code=2)


@pytest.mark.parametrize("damage", ["garbage", "directory", "missing"])
@pytest.mark.parametrize("level", ["meta", "files", "full"])
@pytest.mark.in_part(3)
def test_a_damaged_newest_schema_is_found(run: Run, table: Path, damage: str, level: str) -> None:
    run("alter", table, "add-column", "late INT")
    newest, rows = table / "schema/schema-1", table.parent / "rows.csv"
    rows.write_text("dt,k,v,n,late\na,3,x,1,7\n")
    run("write", table, rows, "--engine", "local")
    newest.unlink()
    if damage == "garbage":
        newest.write_text('{"id": 1')
    elif damage == "directory":
        newest.mkdir()
    code = "PV006" if damage == "missing" else "PV007"
    items = run("verify", table, "--level", level, "-o", "json", code=4).json["items"]
    assert [i["path"] for i in items if i["code"] == code] == [str(newest)]
    assert {i["code"] for i in items} == {code, *(["PV031"] if level == "full" else [])}, "rows cannot be looked at without it"
    text = run("verify", table, "--level", level, code=4).out
    assert f"{code}  {newest}" in text and "hint: restore the schema file" in text
    if damage != "missing":
        assert "PV007" in run("verify", table, "--snapshot", 1, code=4).out
        assert "is not a file" in (err := run("verify", table, "--only", "files", code=10).err) or "cannot read schema" in err


def test_no_schema_can_be_read(run: Run, table: Path) -> None:
    schema = table / "schema/schema-0"
    schema.write_text("garbage")
    (table / "snapshot/LATEST").write_text("99")
    items = run("verify", table, "--level", "full", "-o", "json", code=4).json["items"]
    assert [item["code"] for item in items] == ["PV003", "PV007"]
    assert "no readable snapshot" in run("verify", table, code=4).out
    schema.unlink()
    items = run("verify", table, "--only", "schemas", "-o", "json", code=4).json["items"]
    assert {(item["code"], item["path"]) for item in items} == {("PV006", str(schema))} and len(items) == 4
    run("verify", table, "--snapshot", 9, code=3)
    run("verify", table, "--only", "chain", code=10)
    run("verify", table.parent, code=3)


@pytest.mark.parametrize("content", ["", "x", "-3", "0", "9" * 30, None])
@pytest.mark.in_part(2)
def test_an_unreadable_hint_is_reported_and_ignored(run: Run, table: Path, content: str | None) -> None:
    for hint in (table / "snapshot/LATEST", table / "snapshot/EARLIEST"):
        hint.unlink()
        hint.mkdir() if content is None else hint.write_text(content)
    items = run("verify", table, "-o", "json", code=4).json["items"]
    assert [(i["code"], i["path"].rpartition("/")[2]) for i in items] == [("PV003", "LATEST"), ("PV003", "EARLIEST")]
    assert run("read", table, "--count").out.strip() == "72"
    assert [s["id"] for s in run("snapshots", "ls", table, "-o", "json").json["items"]] == [4, 3, 2, 1]
    kinds = {step["kind"] for step in run("repair", table, "-o", "json").json["items"]}
    assert kinds == {"by-hand" if content is None else "hints"}


def test_the_catalogue(run: Run) -> None:
    items = run("verify", "--list", "-o", "json").json["items"]
    assert len(items) >= 45 and items[0]["code"] == "PV001"
    run("verify", code=2)


def test_unknown_checks(run: Run, table: Path) -> None:
    assert "no check 'chains'" in run("verify", table, "--only", "chains", code=2).err


def test_whether_readers_of_plain_files_are_right(run: Run, tmp_path: Path) -> None:
    table = tmp_path / "t"
    run("create", table, "-C", "id BIGINT NOT NULL", "--primary-key", "id", "--bucket", 1)
    for _ in range(2):
        run("write", table, "-", "--format", "json", "--engine", "local", "--compact", "none", stdin='{"id": 1}')
    assert "is right about snapshot 1" in run("verify", table, "--foreign-read-safe", "--snapshot", 1).out
    text = run("verify", table, "--foreign-read-safe", code=4).out
    command = next(line.strip().removeprefix("run: paimon-cli ") for line in text.splitlines() if "run:" in line)
    run(*command.split(), "--engine", "local")
    item = run("verify", table, "--foreign-read-safe", "-o", "json").json["item"]
    assert (item["is_safe"], item["files"], item["findings"]) == (True, 1, [])
    run("verify", table, "--foreign-read-safe", "--only", "files", code=2)
    run("verify", table, "--foreign-read-safe", "--fail-on", "warn", code=2)


@pytest.mark.parametrize(
    ("engine", "code", "results"),
    [
        ("clickhouse", 4, ["wrong", "refused"]),
        ("duckdb", 4, ["wrong", "wrong"]),
        ("polars", 4, ["wrong"]),
        ("starrocks", 0, ["right", "right"]),
        ("trino", 0, ["right"]),
        ("pypaimon", 0, ["right"]),
    ],
)
def test_readers_of_other_engines_are_judged_by_what_is_known_of_them(
    run: Run, tmp_path: Path, engine: str, code: int, results: list[str]
) -> None:
    table = tmp_path / "t"
    run("create", table, "-C", "id BIGINT NOT NULL", "--primary-key", "id", "--bucket", 1)
    for _ in range(2):
        run("write", table, "-", "--format", "json", "--engine", "local", "--compact", "none", stdin='{"id": 1}')
    named = "--foreign-read-safe", "--engine", engine
    item = run("verify", table, *named, "-o", "json", code=code).json["item"]
    assert [reader["result"] for reader in item["readers"]] == results and item["is_safe"] == (code == 0)
    assert all(reader["because"] == ["needs-merge"] for reader in item["readers"] if reader["result"] != "right")
    text = run("verify", table, *named, code=code).out
    assert all(reader["report"] in text and reader["versions"] in text for reader in item["readers"])
    assert ("  needs-merge: " in text) == (code == 4)
    assert "is right about snapshot 1" in run("verify", table, *named, "--snapshot", 1).out
    run("verify", table, "--engine", engine, code=2)


def test_its_hint_repairs_what_only_a_look_at_all_rows_finds(run: Run, tmp_path: Path) -> None:
    """The index of another file can be decoded, and hides rows: the repair of it must be asked for by name."""
    tables = []
    for name, first in (("t", 0), ("other", 500)):
        table, rows = tmp_path / name, tmp_path / f"{name}.csv"
        rows.write_text("k,v\n" + "".join(f"{n},value {n}\n" for n in range(first, first + 200)))
        columns = ("-C", "k INT", "-C", "v STRING", "--bucket", "-1")
        index = ("--option", "file-index.bloom-filter.columns=v", "--option", "file-index.in-manifest-threshold=1 b")
        run("create", table, *columns, *index)
        run("write", table, rows)
        tables.append(next(table.glob("bucket-0/*.index")))
    tables[0].write_bytes(tables[1].read_bytes())
    table = tmp_path / "t"
    lost = run("read", table, "--count", "-w", "v = 'value 7'", "-o", "json").json
    text = run("verify", table, "--level", "full", code=4).out
    hint = next(line for line in text.splitlines() if line.startswith("hint: "))
    command = hint.removeprefix("hint: paimon-cli ").partition("    #")[0].split()
    assert command == ["repair", str(table), "--only", "file-index"]
    run(*command, "--apply", "-y")
    run("verify", table, "--level", "full")
    assert run("read", table, "--count", "-w", "v = 'value 7'", "-o", "json").json != lost


def test_bounds_that_hide_rows_are_left_behind_by_a_copy(run: Run, tmp_path: Path) -> None:
    bench = Bench(keyed_table(tmp_path))

    def narrow(entry: ManifestEntry) -> ManifestEntry:
        stats = entry.file.value_stats
        return replace(entry, file=replace(entry.file, value_stats=replace(stats, max_values=stats.min_values)))

    bench.reforge(narrow)
    text = run("verify", bench.root, "--level", "full", "--only", "PV037", code=4).out
    hint = next(line for line in text.splitlines() if line.startswith("hint: "))
    copy = hint.partition("copy them: paimon-cli ")[2].replace("NEW_TABLE", str(tmp_path / "copy")).split()
    run("create", tmp_path / "copy", "--schema", bench.root / "schema" / "schema-0")
    run(*copy)
    run("verify", tmp_path / "copy", "--level", "full")
    shown = [sorted(run("read", table, "-o", "csv").out.splitlines()) for table in (bench.root, tmp_path / "copy")]
    assert shown[0] == shown[1]


def test_of_all_snapshots_only_the_newest_and_tagged_ones_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each of many commits would merge whole buckets again."""
    merged: list[int] = []

    def counting(context: TableContext, bucket: BucketFiles, *rest: Any, **how: Any) -> Iterator[pa.RecordBatch]:
        merged.append(len(bucket.files))
        return merge_section(context, bucket, *rest, **how)

    monkeypatch.setattr(merge_checks, "merge_section", counting)
    options = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum", "write-only": "true"}
    table = Table.create(tmp_path / "t", columns=["k INT NOT NULL", "v TINYINT"], primary_key="k", bucket=1, options=options)
    for value in (100, 100):
        table.write([{"k": 1, "v": value}])
    table.write([{"k": 1, "v": 1}], overwrite=True)
    for value in (2, 3):
        table.write([{"k": 1, "v": value}])
    assert not table.verify(level="full", all_snapshots=True).violations and merged == [3]
    table.tags.create("broken", snapshot=2)
    table.tags.create("newest")
    merged.clear()
    assert [violation.code for violation in table.verify(level="full", all_snapshots=True).violations] == ["PV070"]
    assert sorted(merged) == [2, 3]
    merged.clear()
    assert not table.verify(level="full").violations and merged == [3]


@pytest.mark.parametrize(("narrow", "value"), [("TINYINT", 100), ("BIGINT", 2**63 - 2)])
def test_rows_that_cannot_be_merged_are_found_and_mended_as_the_error_says(
    run: Run, tmp_path: Path, narrow: str, value: int
) -> None:
    options = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum", "write-only": "true"}
    table = Table.create(tmp_path / "t", columns=["k INT NOT NULL", f"v {narrow}"], primary_key="k", bucket=1, options=options)
    for _ in range(2):
        table.write([{"k": 1, "v": value}])
    found = [violation.code for violation in table.verify(level="full").violations]
    verified = run("verify", table.url, "--level", "full", code=4)
    assert found == ["PV070"] and "PV070" in verified.out
    assert "hint: give the column and its old rows a wider type" in verified.out and "repair" not in verified.out
    for command in (("read", table.url), ("compact", table.url)):
        hint = run(*command, "-o", "json", code=2).error["hint"]
    shown, _, change = hint.rpartition(": `paimon-cli alter` with ")
    assert shown == "give the column and its old rows a wider type"
    run("alter", table.url, *shlex.split(change))
    table.refresh()
    assert not table.verify(level="full").violations
    assert table.scan().to_arrow().column("v").to_pylist() == [2 * value]


def test_files_in_a_directory_of_another_name_need_no_repair(run: Run, tmp_path: Path) -> None:
    """Another engine's ALTER changed the name of null: the hint is to set it back, at each level."""
    made = Table.create(str(tmp_path / "t"), columns=["k INT", "p INT"], partition_by="p")
    made.write([{"k": 1, "p": None}, {"k": 2, "p": 2}])
    schema = json.loads((tmp_path / "t" / "schema" / "schema-0").read_text())
    schema |= {"id": 1, "options": schema["options"] | {"partition.default-name": "zz"}}
    (tmp_path / "t" / "schema" / "schema-1").write_text(json.dumps(schema))
    command = f"paimon-cli alter {tmp_path / 't'} set partition.default-name=__DEFAULT_PARTITION__"
    for level in ("files", "full"):
        out = run("verify", tmp_path / "t", "--level", level, code=4).out
        assert f"hint: set the value with which it was written: {command}" in out
        assert "paimon-cli repair" not in out
    assert f"run: {command}" in run("repair", tmp_path / "t").out
    run("repair", tmp_path / "t", "--apply", "--yes", code=4)
    run(*command.split()[1:])
    run("verify", tmp_path / "t", "--level", "full")
    next(tmp_path.glob("t/p=2/**/data-*")).unlink()
    assert "hint: paimon-cli repair" in run("verify", tmp_path / "t", "--level", "files", code=4).out
