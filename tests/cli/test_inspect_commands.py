"""Inspection of tables that Java, pypaimon and paimon-rust wrote: stable JSON names and figures that add up."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli import Table
from paimon_cli.cli.lsm_commands import _footer
from paimon_cli.inspect.lsm_report import lsm_rows
from tests.cli.calling import Run
from tests.goldens import golden_table
from tests.tables import make_table, write

NAMES = {
    "snapshots": "id kind time commit_user commit_identifier schema_id delta_record_count total_record_count files_added "
    "files_deleted watermark tags",
    "files": "partition bucket level file rows delete_rows size min_key max_key min_seq max_seq source schema_id created "
    "dv_cardinality",
    "manifests": "list file size added deleted schema_id",
}


@pytest.fixture
def partitioned(tmp_path: Path) -> Path:
    return golden_table("java-0.9", "dedup_partitioned", tmp_path)


@pytest.fixture
def never_compacted(tmp_path: Path) -> Path:
    return golden_table("java-0.9", "write_only_never_compacted", tmp_path)


@pytest.mark.parametrize("noun", NAMES)
def test_item_names_are_stable(run: Run, partitioned: Path, noun: str) -> None:
    document = run(noun, "ls", partitioned, "-o", "json").json
    assert document["apiVersion"] == "paimon-cli/v1"
    assert document["kind"] == f"{noun.removesuffix('s').capitalize()}List"
    assert document["table"] == str(partitioned)
    assert list(document["items"][0])[: len(NAMES[noun].split())] == NAMES[noun].split()


def test_snapshots_come_newest_first_with_exact_values(run: Run, partitioned: Path) -> None:
    items = run("snapshots", "ls", partitioned, "-o", "json").json["items"]
    assert [item["id"] for item in items] == list(range(15, 0, -1))
    newest = items[0]
    assert (newest["kind"], newest["commit_identifier"], newest["watermark"], newest["tags"]) == ("COMPACT", "10", None, [])
    assert newest["time"].endswith("Z") and newest["time"][10] == "T"
    assert (newest["files_added"], newest["files_deleted"]) == (1, 5)
    assert (newest["delta_record_count"], newest["total_record_count"]) == (-13, 88)


def test_snapshot_filters(run: Run, partitioned: Path) -> None:
    def ids(*options: object) -> list[int]:
        return [item["id"] for item in run("snapshots", "ls", partitioned, "-o", "json", *options).json["items"]]

    assert ids("--limit", 2) == [15, 14]
    assert ids("--kind", "COMPACT") == [15, 13, 10, 8, 6]
    assert ids("--kind", "COMPACT", "--limit", 1) == [15]
    assert ids("--user", "nobody") == []


def test_forms_of_output_agree(run: Run, partitioned: Path) -> None:
    items = run("snapshots", "ls", partitioned, "-o", "json").json["items"]
    assert run("snapshots", "ls", partitioned, "-o", "ndjson").lines == items
    header, first, *others = run("snapshots", "ls", partitioned, "-o", "csv").out.splitlines()
    assert header.split(",") == list(items[0])
    assert first.split(",")[:3] == ["15", "COMPACT", items[0]["time"]]
    assert len(others) == len(items) - 1
    text = run("snapshots", "ls", partitioned).out.splitlines()
    assert text[0].split()[:3] == ["ID", "Kind", "Time"]
    assert text[-1] == "15 of 15 snapshots, 1 to 15"


def test_show_snapshot_by_number_and_name(run: Run, partitioned: Path) -> None:
    latest = run("snapshots", "show", partitioned, "-o", "json").json
    assert latest["kind"] == "Snapshot"
    assert latest["item"]["id"] == 15
    assert latest["item"]["delta_manifest_list"].startswith("manifest-list-")
    assert run("snapshots", "show", partitioned, "earliest", "-o", "json").json["item"]["id"] == 1
    assert run("snapshots", "show", partitioned, "7", "-o", "json").json["item"]["id"] == 7
    assert run("snapshots", "show", partitioned, "99", code=3).out == ""
    assert "'newest'" in run("snapshots", "show", partitioned, "newest", code=3).err


def test_tags_and_the_snapshots_they_name(run: Run, tmp_path: Path) -> None:
    table = golden_table("java-0.9", "tags_and_expire", tmp_path)
    tags = run("tags", "ls", table, "-o", "json").json["items"]
    assert [(tag["name"], tag["snapshot_id"]) for tag in tags] == [("t2", 2), ("t5", 6)]
    assert run("tags", "show", table, "t2", "-o", "json").json["item"] == tags[0]
    assert run("tags", "show", table, "nope", code=3).err.startswith("error: no tag 'nope'")


def test_files_add_up_to_the_snapshot(run: Run, partitioned: Path) -> None:
    files = run("files", "ls", partitioned, "-o", "json").json["items"]
    snapshot = run("snapshots", "show", partitioned, "-o", "json").json["item"]
    assert sum(file["rows"] for file in files) == snapshot["total_record_count"]
    buckets = run("buckets", "ls", partitioned, "-o", "json").json["items"]
    partitions = run("partitions", "ls", partitioned, "-o", "json").json["items"]
    for figure in ("rows", "size"):
        assert sum(f[figure] for f in files) == sum(b[figure] for b in buckets) == sum(p[figure] for p in partitions)
    assert len(files) == sum(b["files"] for b in buckets)
    assert [p["partition"] for p in partitions] == ["dt=2024-01-01", "dt=2024-01-02"]


def test_file_filters(run: Run, partitioned: Path) -> None:
    def files(*options: object) -> list[dict[str, object]]:
        return run("files", "ls", partitioned, "-o", "json", *options).json["items"]

    assert {file["partition"] for file in files("--partition", "dt=2024-01-02")} == {"dt=2024-01-02"}
    assert {file["bucket"] for file in files("--bucket", 1, "--bucket", 3)} == {1, 3}
    assert {file["level"] for file in files("--level", 5)} == {5}
    assert files("--level", 0) == [file for file in files() if file["level"] == 0] != files()
    assert len(files("--partition", "dt=2024-01-01", "--partition", "dt=2024-01-02")) == len(files())
    assert len(files("--snapshot", 1)) == 7
    assert set(files("--columns", "file,size")[0]) == {"file", "size"}
    assert "region" in run("files", "ls", partitioned, "--partition", "region=x", code=2).err


def test_file_values_are_readable(run: Run, partitioned: Path) -> None:
    file = run("files", "ls", partitioned, "-o", "json").json["items"][0]
    assert isinstance(file["min_seq"], str) and int(file["min_seq"]) <= int(file["max_seq"])
    assert isinstance(file["min_key"], list) and file["min_key"] <= file["max_key"]
    assert file["source"] in ("APPEND", "COMPACT")
    assert file["created"].endswith("Z")
    shown = run("files", "show", partitioned, file["file"], "-o", "json").json["item"]
    assert {name: shown[name] for name in file} == file
    assert Path(shown["path"]).stat().st_size == file["size"]
    assert [column["column"] for column in shown["columns"]] == ["dt", "k", "v", "n"]
    assert run("files", "show", partitioned, "nope.parquet", code=3)


def test_manifests_and_their_entries(run: Run, partitioned: Path) -> None:
    manifests = run("manifests", "ls", partitioned, "-o", "json").json["items"]
    assert [item["list"] for item in manifests] == sorted((item["list"] for item in manifests), key=["base", "delta"].index)
    for manifest in manifests:
        entries = run("manifests", "show", partitioned, manifest["file"], "-o", "json").json["items"]
        kinds = [entry["kind"] for entry in entries]
        assert (kinds.count("ADD"), kinds.count("DELETE")) == (manifest["added"], manifest["deleted"])
    delta = run("manifests", "ls", partitioned, "--list", "delta", "-o", "json").json["items"]
    assert (sum(m["added"] for m in delta), sum(m["deleted"] for m in delta)) == (1, 5)
    assert run("manifests", "show", partitioned, "manifest-nope", code=3)


def test_deletion_vectors_show_at_their_files(run: Run, tmp_path: Path) -> None:
    table = golden_table("java-0.9", "dv_dedup", tmp_path)
    manifests = run("manifests", "ls", table, "-o", "json").json["items"]
    assert manifests[-1]["list"] == "index"
    refused = run("manifests", "show", table, manifests[-1]["file"], code=2).err
    assert "its entries are index files" in refused and f"paimon-cli indexes ls {table}" in refused
    snapshot = run("snapshots", "show", table, "-o", "json").json["item"]
    refused = run("manifests", "show", table, snapshot["delta_manifest_list"], code=2).err
    assert "its entries are manifests" in refused and f"paimon-cli manifests ls {table}" in refused


def test_lsm_tree(run: Run, never_compacted: Path) -> None:
    (bucket,) = run("lsm", "show", never_compacted, "-o", "json").json["items"]
    runs = bucket["runs"]
    assert [r["run"] for r in runs] == list(range(1, 10))
    assert {r["level"] for r in runs} == {0}
    assert bucket["read_amplification"] == 9
    assert all(1 <= r["overlap"] <= 9 and 0 <= r["span"][0] <= r["span"][1] <= 1 for r in runs)
    assert all(r["picked"] for r in runs) and bucket["output_level"] == 5
    assert "size-amplification" in bucket["would_compact"]
    text = run("lsm", "show", never_compacted).out
    assert "next compaction: WOULD PICK runs 1-9 by size-amplification" in text and "-> L5" in text
    assert "=" * 10 in text and "last full compaction: none: there is no run" in text


def test_no_share_of_tombstones_is_shown_where_a_file_does_not_record_them(never_compacted: Path) -> None:
    context = Table.open(str(never_compacted)).context
    (row,) = lsm_rows(context, context.snapshots.latest())
    known = _footer(row)
    assert "tombstones" in known
    unknown = replace(row, runs=(*row.runs[:-1], replace(row.runs[-1], delete_rows=None)))
    assert _footer(unknown) == re.sub(r" +tombstones [\d.]+%", "", known)


def test_tables_that_are_not_compacted_promise_no_compaction(run: Run, tmp_path: Path) -> None:
    table, why = golden_table("java-0.9", "write_only_never_compacted", tmp_path), "row-tracking.enabled"
    newest = max((table / "schema").iterdir())
    schema = json.loads(newest.read_text())
    newest.write_text(json.dumps({**schema, "options": {**schema["options"], why: "true"}}))
    run("compact", table, "--engine", "local", code=8)
    items = run("lsm", "show", table, "-o", "json").json["items"]
    assert items and all(why in item["not_supported"] and item["not_supported"] in item["would_compact"] for item in items)
    assert not any(item["output_level"] or run_["picked"] for item in items for run_ in item["runs"])
    text = run("lsm", "show", table).out
    assert "WOULD PICK" not in text and "next compaction: none: this version does not compact the table" in text


def test_rows_that_wait_for_buckets_form_no_tree(run: Run, tmp_path: Path) -> None:
    table = golden_table("java-1.4", "postpone", tmp_path)
    text = run("lsm", "show", table).out
    assert "next compaction: postponed rows get their buckets" in text and "WOULD PICK" not in text
    waiting = [row["waiting_records"] for row in run("lsm", "show", table, "-o", "json").json["items"]]
    assert all(waiting) and waiting == [row["waiting_records"] for row in run("buckets", "ls", table, "-o", "json").json["items"]]
    assert f"not visible yet: {waiting[0]} stored record" in text
    assert "has no sorted runs" in run("lsm", "explain", table, code=2).err
    plan = run("compact", table, "--dry-run", "-o", "json").json["items"]
    assert [(item["bucket"], item["runs_before"], item["output_level"]) for item in plan] == [(-2, 5, 0), (-2, 4, 0), (-2, 5, 0)]
    assert "3 buckets to compact, 14 files" in run("compact", table, "--dry-run").out
    run("compact", table, "--engine", "local")
    assert run("read", table, "--count").out.strip() == "39"


def test_lsm_shows_the_last_full_compaction(run: Run, partitioned: Path) -> None:
    compactions = {item["id"]: item["time"] for item in run("snapshots", "ls", partitioned, "-o", "json").json["items"]}
    items = run("lsm", "show", partitioned, "-o", "json").json["items"]
    known = [(item["last_full_snapshot"], item["last_full"]) for item in items if item["last_full_snapshot"]]
    assert known and all(compactions[number] == time for number, time in known)
    assert f"snapshot {known[0][0]}" in run("lsm", "show", partitioned).out


def test_lsm_explain_compares_both_compactions(run: Run, never_compacted: Path) -> None:
    item = run("lsm", "explain", never_compacted, "-o", "json").json["item"]
    universal, leveled = item["strategies"]
    assert (universal["strategy"], leveled["strategy"], item["replayed"]) == ("universal", "leveled", "history")
    assert all(row["write_amplification"] > 1 and row["rewritten_bytes"] > 0 for row in item["strategies"])
    assert "size-amplification" in item["next_compaction"] and item["next_rewrites"] == item["biggest_bucket_bytes"]
    assert (item["lookup"]["runs"], item["lookup"]["files"], item["lookup"]["comparisons"]) == (9, 9, 9)
    text = run("lsm", "explain", never_compacted).out
    assert "sparse index of every run" in text.replace("\n", " ") and "Universal compaction waits for 5 runs" in text
    assert max(map(len, text.splitlines())) < 100


def test_lsm_explain_agrees_with_simulate(run: Run, partitioned: Path) -> None:
    item = run("lsm", "explain", partitioned, "-o", "json").json["item"]
    as_is = run("simulate", partitioned, "-o", "json").json["items"][0]
    for name in ("write_amplification", "read_amplification", "most_runs", "space_amplification", "compactions"):
        assert item["strategies"][0][name] == as_is[name]


def test_lsm_explain_without_a_history(run: Run, tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL"}, ["id"])
    assert "the table has no files" in run("lsm", "explain", context.url, code=2).err
    write(context, [{"id": 1}])
    assert run("lsm", "explain", context.url, "-o", "json").json["item"]["replayed"] == "runs"


def test_lsm_of_an_append_table_is_refused(run: Run, tmp_path: Path) -> None:
    assert "no primary key" in run("lsm", "show", golden_table("java-0.9", "append_unaware", tmp_path), code=2).err


def test_schemas_newest_first(run: Run, tmp_path: Path) -> None:
    table = golden_table("java-0.9", "schema_evolution", tmp_path)
    assert [item["id"] for item in run("schemas", "ls", table, "-o", "json").json["items"]] == [3, 2, 1, 0]
    first = run("schemas", "show", table, "0", "-o", "json").json["item"]
    assert [field["name"] for field in first["fields"]] == ["k", "a", "b", "c"]
    assert first["primary_keys"] == ["k"]
    assert run("schemas", "show", table, "9", code=3)


def test_options(run: Run, never_compacted: Path) -> None:
    own = run("options", "ls", never_compacted, "-o", "json").json["items"]
    assert all(option["is_set"] for option in own)
    every = {option["key"]: option for option in run("options", "ls", never_compacted, "--all", "-o", "json").json["items"]}
    assert every["write-only"]["value"] == "true"
    assert (every["num-sorted-run.compaction-trigger"]["value"], every["merge-engine"]["immutable"]) == ("5", True)


@pytest.mark.parametrize(
    "command", ["snapshots ls", "files ls", "manifests ls", "partitions ls", "buckets ls", "lsm show", "tags ls"]
)
def test_a_table_without_snapshots_is_empty_not_an_error(run: Run, tmp_path: Path, command: str) -> None:
    run("create", tmp_path / "t", "-C", "id INT", "--primary-key", "id", "--bucket", 1)
    assert run(*command.split(), tmp_path / "t", "-o", "json").json["items"] == []
    run(*command.split(), tmp_path / "t")


@pytest.mark.parametrize("writer", ["pypaimon-2.1", "rust-0.4"])
def test_tables_of_other_writers(run: Run, tmp_path: Path, writer: str) -> None:
    table = golden_table(writer, "dedup_partitioned", tmp_path)
    for command in ("snapshots ls", "manifests ls", "files ls", "lsm show", "partitions ls", "buckets ls", "schemas ls"):
        assert run(*command.split(), table, "-o", "json").json["items"]


def test_people_see_the_newest_snapshots_machines_all(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from paimon_cli.cli import snapshot_commands

    monkeypatch.setattr(snapshot_commands, "MAX_IN_TEXT", 2)
    table = golden_table("java-0.9", "sixty_commits", tmp_path)
    total = len(run("snapshots", "ls", table, "-o", "json").json["items"])
    assert total > 2 and f"--limit {total} shows all" in run("snapshots", "ls", table).out
    assert "shows all" not in run("snapshots", "ls", table, "--limit", 3).out


def test_all_options_without_a_table(run: Run) -> None:
    listed = run("options", "ls", "--all", "-o", "json").json
    assert listed["table"] is None and len(listed["items"]) > 200
    bucket = next(item for item in listed["items"] if item["key"] == "bucket")
    assert (bucket["value"], bucket["is_set"], bucket["status"]) == ("-1", False, "honoured")
    assert "hint: paimon-cli options ls --all" in run("options", "ls", code=2).err
