"""create, write, read and compact, from the command line to the files and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.cli.calling import Run
from tests.goldens import expected_rows, golden, golden_table

LOCAL = ("--engine", "local")


@pytest.fixture
def orders(run: Run, tmp_path: Path) -> Path:
    table = tmp_path / "shop.db" / "orders"
    columns = ("-C", "id BIGINT NOT NULL", "-C", "dt DATE NOT NULL", "-C", "name STRING", "-C", "amount DECIMAL(10, 2)")
    run("create", table, *columns, "--primary-key", "id,dt", "--partition-by", "dt", "--bucket", 2)
    return table


def jsonl(folder: Path, *rows: Mapping[str, object]) -> Path:
    path = folder / f"{len(list(folder.iterdir()))}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def row(key: int, name: str | None, day: str = "2024-01-01", amount: str | None = "1.50", **more: object) -> dict[str, object]:
    return {"id": key, "dt": day, "name": name, "amount": amount, **more}


def rows_of(run: Run, table: Path, *options: object) -> list[dict[str, Any]]:
    return run("read", table, "-o", "ndjson", *options).lines


def test_write_and_read_back(run: Run, orders: Path, tmp_path: Path) -> None:
    rows = [row(1, "a"), row(2, None), row(3, "", "2024-01-02", None)]
    summary = run("write", orders, jsonl(tmp_path, *rows), *LOCAL, "-o", "json").json
    assert summary["kind"] == "WriteSummary"
    assert (summary["item"]["rows"], summary["item"]["snapshots"], summary["item"]["engine"]) == (3, [1], "local")
    assert sorted(rows_of(run, orders), key=lambda r: r["id"]) == rows
    assert run("read", orders, "--count").out == "3\n"


def test_the_output_of_read_is_an_input_of_write(run: Run, orders: Path, tmp_path: Path) -> None:
    run("write", orders, jsonl(tmp_path, row(1, 'x "q", y'), row(2, None), row(3, "")), *LOCAL)
    before = rows_of(run, orders)
    for form, text in (("json", run("read", orders, "-o", "ndjson").out), ("csv", run("read", orders, "-o", "csv").out)):
        run("write", orders, "-", "--format", form, *LOCAL, stdin=text)
        assert rows_of(run, orders) == before


def test_operations_and_row_kinds(run: Run, orders: Path, tmp_path: Path) -> None:
    run("write", orders, jsonl(tmp_path, row(1, "a"), row(2, "b"), row(3, "c")), *LOCAL)
    changes = jsonl(tmp_path, row(1, "a2", op="+U"), row(2, "b", op="-D"))
    run("write", orders, changes, "--op-column", "op", *LOCAL)
    run("write", orders, jsonl(tmp_path, row(3, "c")), "--op", "delete", *LOCAL)
    assert rows_of(run, orders) == [row(1, "a2")]
    kinds = {r["id"]: r["rowkind"] for r in rows_of(run, orders, "--row-kind")}
    assert kinds == {1: "+U", 2: "-D", 3: "-D"}


def test_select_where_limit_and_time_travel(run: Run, orders: Path, tmp_path: Path) -> None:
    run("write", orders, jsonl(tmp_path, row(1, "a"), row(2, "b"), row(3, "c")), *LOCAL)
    run("write", orders, jsonl(tmp_path, row(1, "new")), *LOCAL)
    assert rows_of(run, orders, "-s", "name,id", "-w", "id = 1") == [{"name": "new", "id": 1}]
    assert rows_of(run, orders, "--snapshot", 1, "-w", "id = 1") == [row(1, "a")]
    assert len(rows_of(run, orders, "-l", 2)) == 2
    assert rows_of(run, orders, "-l", 0) == []
    assert run("read", orders, "--count", "-l", 2).out == "2\n"
    assert run("read", orders, "--count", "-w", "name = 'nobody'", "-o", "json").json["item"] == {
        "count": 0,
        "waiting_records": 0,
    }
    assert "nope" in run("read", orders, "-s", "nope", code=2).err
    assert run("read", orders, "--snapshot", 9, code=3)
    assert run("read", orders, "--count", "--explain", code=2)


def test_explain_shows_what_is_skipped(run: Run, orders: Path, tmp_path: Path) -> None:
    run("write", orders, jsonl(tmp_path, row(1, "a"), row(1, "b", "2024-01-02")), *LOCAL)
    plan = run("read", orders, "-w", "dt = DATE '2024-01-02'", "--explain", "-o", "json").json
    assert plan["kind"] == "ScanPlan"
    assert (plan["item"]["partitions"], plan["item"]["partitions_skipped"], plan["item"]["rows"]) == (2, 1, 1)


def test_explain_shows_which_levels_are_read(run: Run, orders: Path, tmp_path: Path) -> None:
    run("write", orders, jsonl(tmp_path, row(1, "a"), row(2, "a")), *LOCAL)
    run("compact", orders, *LOCAL)
    run("write", orders, jsonl(tmp_path, row(1, "b"), row(3, "b")), *LOCAL)
    names = ("levels", "files_skipped_by_level", "rows_skipped_by_level", "rows")
    shown = {name: run("read", f"{orders}{name}", "--explain", "-o", "json").json["item"] for name in ("", "$ro")}
    assert [shown[""][name] for name in names] == ["all", 0, 0, 4]
    assert [shown["$ro"][name] for name in names] == ["5 only", 2, 2, 2]


def test_a_contradiction_about_buckets_is_refused(run: Run, tmp_path: Path) -> None:
    columns = ("-C", "id INT", "--primary-key", "id")
    refused = run("create", tmp_path / "t", *columns, "--bucket", 1, "--option", "bucket=4", code=2)
    assert "contradict" in refused.err
    run("create", tmp_path / "t", *columns, "--bucket", 4, "--option", "bucket=4")


def test_columns_without_quotes_get_a_hint(run: Run, orders: Path) -> None:
    assert "quote one that contains spaces" in run("alter", orders, "add-column", "c", "INT", code=2).err


@pytest.mark.parametrize("command", [("compact", *LOCAL), ("compact", "--dry-run"), ("lsm", "show")])
def test_unknown_buckets_are_reported(run: Run, orders: Path, tmp_path: Path, command: tuple[str, ...]) -> None:
    run("write", orders, jsonl(tmp_path, row(1, "a")), *LOCAL)
    assert "its buckets are 0 to 1" in run(*command, orders, "--bucket", 9, code=2).err
    held = {item["bucket"] for item in run("buckets", "ls", orders, "-o", "json").json["items"]}
    (empty,) = {0, 1} - held
    run(*command, orders, "--bucket", empty)


@pytest.mark.parametrize("command", [("compact", *LOCAL), ("compact", "--dry-run"), ("alter",)])
def test_views_are_not_changed(run: Run, orders: Path, command: tuple[str, ...]) -> None:
    changes = ("set", "a=b") if command == ("alter",) else ()
    assert "is a view" in run(*command, f"{orders}$ro", *changes, code=2).err


def test_a_dry_run_refuses_the_options_that_the_run_refuses(run: Run, orders: Path, tmp_path: Path) -> None:
    run("write", orders, jsonl(tmp_path, row(1, "a")), *LOCAL)
    for way in (LOCAL, ("--dry-run",)):
        assert "cannot be changed" in run("compact", orders, *way, "--option", "merge-engine=aggregation", code=2).err


def test_invalid_increments(run: Run, orders: Path, tmp_path: Path) -> None:
    run("write", orders, jsonl(tmp_path, row(1, "a")), *LOCAL)
    assert "without --incremental" in run("read", orders, "--incremental-mode", "diff", code=2).err
    assert "no increments" in run("read", f"{orders}$ro", "--incremental", "0..1", code=2).err
    by_option = ("--option", "incremental-between=1,1", "--count")
    assert [run("read", orders, *by_option, *more).out for more in ((), ("--snapshot", 1))] == ["0\n", "1\n"]
    found = run("read", orders, "--incremental", "0..1", "--incremental-mode", "diff", "--row-kind", "-o", "ndjson").lines
    assert [(item["rowkind"], item["id"]) for item in found] == [("+I", 1)]


def test_rows_as_text_and_json(run: Run, orders: Path, tmp_path: Path) -> None:
    run("write", orders, jsonl(tmp_path, row(1, "a\x1b[31mred"), row(20, None)), *LOCAL)
    text = run("read", orders, "-s", "id,name").out
    assert sorted(text.splitlines()) == sorted(["id  name", " 1  a\\x1b[31mred", "20  NULL", "2 rows"])
    document = run("read", orders, "-o", "json").json
    assert (document["kind"], document["apiVersion"]) == ("RowList", "paimon-cli/v1")
    assert document["items"] == rows_of(run, orders)
    assert run("read", orders, "-w", "id = 7", "-o", "json").json["items"] == []


def test_export_to_parquet(run: Run, orders: Path, tmp_path: Path) -> None:
    run("write", orders, jsonl(tmp_path, row(1, "a"), row(2, "b", "2024-01-02")), *LOCAL)
    target = tmp_path / "export"
    summary = run("read", orders, "-s", "id,name", "--output-path", target, *LOCAL, "-o", "json").json["item"]
    assert summary["rows"] == 2
    assert sorted(pq.read_table(target)["id"].to_pylist()) == [1, 2]
    assert run("read", orders, "--output-path", target, *LOCAL, code=2)


def test_a_commit_is_made_once_per_identifier(run: Run, orders: Path, tmp_path: Path) -> None:
    once = ("--commit-user", "etl", "--commit-id", 7, *LOCAL, "-o", "json")
    first = run("write", orders, jsonl(tmp_path, row(1, "a")), *once).json["item"]
    again = run("write", orders, jsonl(tmp_path, row(1, "b")), *once).json["item"]
    assert (first["already_committed"], again["already_committed"]) == (False, True)
    assert rows_of(run, orders) == [row(1, "a")]
    assert run("write", orders, jsonl(tmp_path, row(1, "b")), "--commit-id", 8, *LOCAL, code=2)


def test_overwrite(run: Run, orders: Path, tmp_path: Path) -> None:
    run("write", orders, jsonl(tmp_path, row(1, "a"), row(2, "b", "2024-01-02")), *LOCAL)
    run("write", orders, jsonl(tmp_path, row(3, "c")), "--overwrite", "--partition", "dt=2024-01-01", *LOCAL)
    assert {r["id"] for r in rows_of(run, orders)} == {2, 3}
    assert run("snapshots", "ls", orders, "--limit", 1, "-o", "json").json["items"][0]["kind"] == "OVERWRITE"
    assert run("write", orders, jsonl(tmp_path, row(3, "c")), "--partition", "dt=2024-01-01", *LOCAL, code=2)


def test_bad_input_commits_nothing(run: Run, orders: Path, tmp_path: Path) -> None:
    answer = run("write", orders, jsonl(tmp_path, row(1, "a"), {**row(2, "b"), "id": None}), *LOCAL, code=2)
    assert "row 2" in answer.err and "'id'" in answer.err
    assert run("snapshots", "ls", orders, "-o", "json").json["items"] == []
    assert run("write", orders, tmp_path / "nope.csv", *LOCAL, code=3)
    assert run("write", orders, "--op", "delete", "--op-column", "op", jsonl(tmp_path, row(1, "a")), *LOCAL, code=2)


def test_compact_plans_then_compacts(run: Run, tmp_path: Path) -> None:
    table = golden_table("java-0.9", "write_only_never_compacted", tmp_path)
    plan = run("compact", table, "--dry-run", "-o", "json").json
    assert (plan["kind"], plan["table"], plan["snapshot_id"]) == ("CompactionPlan", str(table), 9)
    assert [(item["reason"], item["runs_before"], item["output_level"]) for item in plan["items"]] == [("full", 9, 5)]
    assert run("snapshots", "ls", table, "--limit", 1, "-o", "json").json["items"][0]["id"] == 9
    summary = run("compact", table, "--dedicated", *LOCAL, "-o", "json").json
    assert summary["kind"] == "CompactSummary"
    assert (summary["item"]["files_before"], summary["item"]["files_after"], summary["item"]["snapshots"]) == (9, 1, [10])
    expected = expected_rows(golden("java-0.9", "write_only_never_compacted"))
    assert rows_of(run, table) == sorted(expected, key=lambda r: r["k"])
    assert run("compact", table, *LOCAL).out == f"{table}: nothing to compact\n"


def test_write_warns_of_files_that_two_sources_name(run: Run, orders: Path, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    first, second = jsonl(folder, row(1, "a")), jsonl(folder, row(2, "b"))
    both = f"warning: named more than once, and read as often: {first} and 1 other file\n"
    assert run("write", orders, folder / "*.jsonl", folder, *LOCAL).err == both
    assert str(second) in run("write", orders, folder / "1*", folder / "?.jsonl", *LOCAL).err
    assert run("write", orders, folder, *LOCAL).err == run("write", orders, first, second, *LOCAL).err == ""


def test_compact_warns_beside_writers_that_compact(run: Run, orders: Path, tmp_path: Path) -> None:
    run("write", orders, jsonl(tmp_path, row(1, "a")), *LOCAL)
    assert "write-only" in run("compact", orders, "--dedicated", *LOCAL).err
    assert run("compact", orders, *LOCAL).err == ""


def test_compact_expects_writers_to_show_their_rows_by_compacting(run: Run, tmp_path: Path) -> None:
    table = tmp_path / "t"
    columns = ("-C", "k INT NOT NULL", "-C", "v STRING")
    run("create", table, *columns, "--primary-key", "k", "--bucket", 1, "--option", "changelog-producer=lookup")
    run("write", table, jsonl(tmp_path, {"k": 1, "v": "a"}), *LOCAL)
    assert run("compact", table, "--dedicated", *LOCAL).err == ""
    assert "write-only" in run("compact", table, "--dedicated", "--watch", "--max-rounds", "1", *LOCAL).err


def test_compact_a_database_and_choose_buckets(run: Run, tmp_path: Path) -> None:
    for name in ("a", "b"):
        golden_table("java-0.9", "write_only_never_compacted", tmp_path / "x").rename(tmp_path / f"shop.{name}")
    (tmp_path / "shop.db").mkdir()
    for name in ("a", "b"):
        (tmp_path / f"shop.{name}").rename(tmp_path / "shop.db" / name)
    (tmp_path / "shop.db" / "no_table").mkdir()
    nothing = run("compact", "--database", "shop", "--warehouse", tmp_path, "--bucket", 7, *LOCAL, "-o", "json").json
    assert [(item["table"], item["buckets"]) for item in nothing["items"]] == [("shop.a", 0), ("shop.b", 0)]
    done = run("compact", "--database", "shop", "--warehouse", tmp_path, *LOCAL, "-o", "json").json
    assert [(item["table"], item["files_before"]) for item in done["items"]] == [("shop.a", 9), ("shop.b", 9)]
    assert run("compact", "--database", "nope", "--warehouse", tmp_path, code=3)
    shop = ("compact", "--database", "shop", "--warehouse", tmp_path, *LOCAL, "-o", "json")
    assert [item["table"] for item in run(*shop, "--include", "a|b.*", "--exclude", "b").json["items"]] == ["shop.a"]
    assert run(*shop, "--include", "(", code=2)
    assert run("compact", tmp_path / "shop.db" / "a", "--include", "a", code=2)
    assert run("compact", tmp_path / "shop.db" / "a", *LOCAL, "--memory", "1 kb", code=2)
    assert run("compact", code=2)
    assert run("compact", "shop.a", "--database", "shop", "--warehouse", tmp_path, code=2)


def test_programs_get_the_plans_of_several_tables_as_one_result(run: Run, tmp_path: Path) -> None:
    shop = tmp_path / "shop.db"
    shop.mkdir()
    for name in ("a", "b"):
        golden_table("java-0.9", "write_only_never_compacted", tmp_path / name).rename(shop / name)
    database = ("compact", "--database", "shop", "--warehouse", tmp_path, "--dry-run", *LOCAL)
    two = ("compact", shop / "a", shop / "b", "--dry-run", *LOCAL)
    for command, names in ((database, ["shop.a", "shop.b"]), (two, [str(shop / "a"), str(shop / "b")])):
        plans = run(*command, "-o", "json").json
        assert (plans["kind"], plans["table"], "snapshot_id" in plans) == ("CompactionPlanList", None, False)
        found = [(item["table"], item["reason"], item["runs_before"]) for item in plans["items"]]
        assert found == [(name, "full", 9) for name in names]
        assert run(*command, "-o", "ndjson").lines == plans["items"]
        header, *lines = run(*command, "-o", "csv").out.splitlines()
        assert header.startswith("table,partition,bucket,") and [line.split(",")[0] for line in lines] == names


def test_one_failing_table_does_not_stop_the_others(run: Run, tmp_path: Path) -> None:
    good = golden_table("java-0.9", "write_only_never_compacted", tmp_path)
    answer = run("compact", tmp_path / "nope", good, *LOCAL, code=9)
    assert "1 of 2 tables" in answer.err
    assert "9 files -> 1" in answer.out
    assert run("compact", tmp_path / "nope", *LOCAL, code=3)


def test_watch_runs_round_by_round(run: Run, tmp_path: Path) -> None:
    table = golden_table("java-0.9", "write_only_never_compacted", tmp_path)
    other = golden_table("java-0.9", "dedup_partitioned", tmp_path)
    watch = ("--watch", "--max-rounds", 2, "--interval", "1 ms")
    answer = run("compact", table, *watch, *LOCAL)
    started, first, second = answer.err.splitlines()
    assert started.endswith(" started, and looking at the tables")
    assert answer.out == ""
    assert "9 files -> 1" in first
    assert second.endswith("round 2: nothing to compact in 1 table")
    assert run("compact", table, "--watch", "--dry-run", code=2)
    rounds = run("compact", table, other, *watch, *LOCAL, "-o", "ndjson").lines
    assert [(r["round"], [t["state"] for t in r["tables"]]) for r in rounds] == [(n, ["nothing to do"] * 2) for n in (1, 2)]


def test_write_with_compaction_after(run: Run, orders: Path, tmp_path: Path) -> None:
    for number in range(5):
        run("write", orders, jsonl(tmp_path, row(1, f"v{number}")), "--compact", "none", *LOCAL)
    done = run("write", orders, jsonl(tmp_path, row(1, "last")), "--compact", "after", *LOCAL)
    assert "snapshot 6" in done.out and "snapshot 7" in done.err
    (file,) = run("files", "ls", orders, "-o", "json").json["items"]
    assert (file["level"], file["rows"]) == (5, 1)
    assert rows_of(run, orders) == [row(1, "last")]


def test_the_local_engine_refuses_spark_settings(run: Run, orders: Path, tmp_path: Path) -> None:
    source = jsonl(tmp_path, row(1, "a"))
    assert "--master" in run("write", orders, source, *LOCAL, "--master", "local[1]", code=2).err
    assert run("write", orders, source, *LOCAL, "--spark-conf", "a=b", code=2)


def test_read_optimized_view_and_dynamic_options(run: Run, orders: Path, tmp_path: Path) -> None:
    run("write", orders, jsonl(tmp_path, row(1, "a")), *LOCAL)
    assert rows_of(run, Path(f"{orders}$ro")) == []
    run("compact", orders, *LOCAL)
    assert rows_of(run, Path(f"{orders}$ro")) == [row(1, "a")]
    plan = run("compact", orders, "--strategy", "minor", "-n", "--option", "num-sorted-run.compaction-trigger=1", "-o", "json")
    assert plan.json["items"][0]["runs_before"] == 1


def test_increments_and_changelog(run: Run, orders: Path, tmp_path: Path) -> None:
    run("write", orders, jsonl(tmp_path, row(1, "a")), *LOCAL)
    run("write", orders, jsonl(tmp_path, row(2, "b")), *LOCAL)
    run("write", orders, jsonl(tmp_path, row(1, "a")), "--op", "delete", *LOCAL)
    assert rows_of(run, orders, "--incremental", "0..2") == [row(1, "a"), row(2, "b")]
    assert rows_of(run, orders, "--incremental", "1..") == [row(2, "b")]
    assert run("read", orders, "--incremental", "1..", "--count").out.split() == ["1"]
    assert rows_of(run, orders, "--option", "incremental-between=0,1") == [row(1, "a")]
    kinds = run("changelog", "read", orders, "--from", 2, "-o", "ndjson").out
    assert '"-D"' in kinds and '"+I"' in kinds
    for wrong in (("--incremental", "3"), ("--incremental", "2..1"), ("--incremental", "0..1", "--snapshot", "1")):
        run("read", orders, *wrong, code=2)
    run("read", orders, "--incremental", "0..9", code=3)


@pytest.mark.parametrize("text", ["²", "--5", "٣", "9" * 200])
@pytest.mark.parametrize(
    "command",
    [
        ("read", "--as-of={}"),
        ("read", "--incremental={}..3"),
        ("read", "--incremental=1..{}"),
        ("read", "--option", "scan.version={}"),
        ("read", "--option", "scan.snapshot-id={}"),
        ("rollback", "-n", "--to={}"),
        ("orphans", "ls", "--older-than={}"),
        ("expire", "-n", "--older-than={}"),
        ("schemas", "show", "{}"),
        ("snapshots", "show", "{}"),
    ],
)
@pytest.mark.in_part(3)
def test_invalid_numbers_are_refused(run: Run, orders: Path, tmp_path: Path, command: tuple[str, ...], text: str) -> None:
    run("write", orders, jsonl(tmp_path, row(1, "a")), *LOCAL)
    words = [word.format(text) for word in command]
    place = 2 if command[1] in ("ls", "show") else 1
    divider = ["--"] if command[1] == "show" else []
    refused = run(*words[:place], orders, *divider, *words[place:], code=None)
    assert refused.code in (2, 3) and "bug of paimon-cli" not in refused.err


@pytest.mark.parametrize("text", ["1_0", "1.0", "0x1", "1e0", ""])
def test_whole_numbers_are_written_in_digits(run: Run, orders: Path, text: str) -> None:
    for command in (("read", "--limit"), ("expire", "-n", "--retain-max")):
        assert "a whole number is expected" in run(command[0], orders, *command[1:], text, code=2).err
    assert f"--bucket {text} is neither a bucket nor a range" in run("compact", orders, "--bucket", text, code=2).err
    assert run("read", orders, "--limit", " +1 ", "--count").out.strip().startswith("0")


def test_floating_numbers_are_found_by_their_values_everywhere(run: Run, tmp_path: Path) -> None:
    table = tmp_path / "f"
    run("create", table, "-C", "k INT NOT NULL", "-C", "d DOUBLE", "-C", "f FLOAT", "--primary-key", "k", "--bucket", 1)
    values = [-0.0, 0.0, "NaN", 1.5, None]
    run("write", table, jsonl(tmp_path, *({"k": k, "d": v, "f": v} for k, v in enumerate(values, start=1))), *LOCAL)

    def found(condition: str) -> list[int]:
        return [row["k"] for row in run("read", table, "-w", condition, "-s", "k", "-o", "ndjson").lines]

    for name in ("d", "f"):
        assert found(f"{name} = 0.0") == found(f"{name} IN (0.0)") == found(f"{name} IN (-0.0)") == [1, 2]
        assert found(f"{name} <> 0.0") == found(f"{name} NOT IN (0.0)") == [3, 4]
        assert found(f"{name} = 'NaN'") == found(f"{name} IN ('NaN')") == []
        assert found(f"{name} <> 'NaN'") == found(f"{name} NOT IN ('NaN')") == [1, 2, 3, 4]
        assert found(f"isnan({name})") == [3]
    assert "isnan(d) finds it" in run("read", table, "-w", "d = 'NaN'").err
    assert "isnan(d) finds it" in run("delete", table, "-w", "d IN ('NaN')", *LOCAL).err
    run("update", table, "--set", "f = 7", "-w", "isnan(f) OR d IN (0)", *LOCAL)
    assert found("f = 7") == [1, 2, 3]
    run("delete", table, "-w", "d IN (0.0)", *LOCAL)
    assert found("k > 0") == [3, 4, 5]


def test_write_from_a_table_names_it_and_its_snapshot(run: Run, tmp_path: Path) -> None:
    for name in ("s", "t"):
        run("create", tmp_path / name, "-C", "id INT")
    (tmp_path / "in.json").write_text('{"id":1}\n{"id":2}\n')
    run("write", tmp_path / "s", tmp_path / "in.json")
    run("delete", tmp_path / "s", "-w", "id = 1")
    from_s = (tmp_path / "t", "--from-table", tmp_path / "s")
    assert f"2 rows from {tmp_path}/s at snapshot 1 in " in run("write", *from_s, "--snapshot", "1").out
    item = run("write", *from_s, "-o", "json").json["item"]
    assert (item["source_table"], item["source_snapshot"], item["rows"]) == (f"{tmp_path}/s", 2, 1)
    assert (
        run("write", *from_s, "--stage", tmp_path / "stage").out
        and "stored records" in run("stage", "show", tmp_path / "stage").out
    )
    loose = run("write", tmp_path / "t", tmp_path / "s", code=2).err
    assert f"hint: read it as a table: paimon-cli write {tmp_path}/t --from-table {tmp_path}/s" in loose


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["x.csv", "--from-table", "s"], "cannot be combined"),
        (["x.csv", "--snapshot", "1"], "--snapshot needs --from-table"),
        ([], "no input is named"),
        (["--from-table", "s", "--format", "csv"], "--format cannot be combined"),
        (["--from-table", "s", "--delimiter", ";"], "--delimiter has no effect"),
        (["--from-table", "t", "--snapshot", "1"], "is its own source"),
    ],
)
def test_write_takes_either_files_or_a_table(
    words: list[str], why: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("s", "t"):
        run("create", name, "-C", "id INT")
    (tmp_path / "in.json").write_text('{"id":1}\n')
    run("write", "t", "in.json")
    assert why in run("write", "t", *words, code=2).err


def test_writers_that_own_buckets(run: Run, tmp_path: Path) -> None:
    table, source = tmp_path / "t", tmp_path / "rows.jsonl"
    source.write_text("".join(f'{{"id": {number}}}\n' for number in range(50)))
    run("create", table, "-C", "id INT NOT NULL", "--primary-key", "id", "--bucket", 8)
    mine = ("--bucket", "0,3,5-7", "--other-buckets", "skip", *LOCAL)
    answer = run("write", table, source, *mine, "-o", "json")
    item = answer.json["item"]
    assert item["rows"] + item["other_bucket_rows"] == 50 and item["buckets"] == 5 and item["rows_read"] == item["rows"]
    assert f"note: {item['other_bucket_rows']} rows of other buckets left out" in answer.err
    refusal = run("write", table, source, "--bucket", 3, *LOCAL, code=2).err
    assert "this writer only writes bucket 3" in refusal and "--other-buckets skip" in refusal
    assert "rows of other buckets" in run("write", table, source, *mine, "--stage", tmp_path / "s").err
    run("write", table, source, "--other-buckets", "skip", *LOCAL, code=2)
    run("write", table, source, "--bucket", "0-8", *LOCAL, code=2)
    run("create", tmp_path / "d", "-C", "id INT NOT NULL", "--primary-key", "id", "--bucket", -1)
    assert "dynamic buckets" in run("write", tmp_path / "d", source, "--bucket", 0, *LOCAL, code=8).err


@pytest.mark.parametrize("of_sequence", ["INT", "INT NOT NULL"])
def test_a_delete_without_its_sequence_is_told(run: Run, tmp_path: Path, of_sequence: str) -> None:
    table, columns = tmp_path / "db.db" / "t", ("-C", "k INT NOT NULL", "-C", f"s {of_sequence}")
    run("create", table, *columns, "--primary-key", "k", "--bucket", 1, "--option", "sequence.field=s")
    run("write", table, jsonl(tmp_path, {"k": 1, "s": 5}, {"k": 2, "s": 5}), *LOCAL)
    told = run("write", table, jsonl(tmp_path, {"k": 1}, {"k": 2, "s": 6}), "--op", "delete", *LOCAL, "-o", "json")
    assert told.json["item"]["unordered_deletes"] == 1
    assert "warning: 1 delete without a value of 's' (sequence.field) cannot remove rows that have one" in told.err
    assert rows_of(run, table) == [{"k": 1, "s": 5}]
    changes = jsonl(tmp_path, {"k": 1, "s": 7, "op": "-D"}, {"k": 3, "s": 1, "op": "+I"})
    told = run("write", table, changes, "--op-column", "op", *LOCAL, "-o", "json")
    assert told.json["item"]["unordered_deletes"] == 0 and "warning" not in told.err
    assert rows_of(run, table) == [{"k": 3, "s": 1}]
    if of_sequence == "INT":
        changes = jsonl(tmp_path, {"k": 4, "op": "+I"}, {"k": 3, "op": "-D"}, {"k": 5, "op": "+I"})
        told = run("write", table, changes, "--op-column", "op", *LOCAL, "-o", "json")
        assert told.json["item"]["unordered_deletes"] == 1


@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_of_several_sequence_fields_the_first_decides(run: Run, tmp_path: Path, order: str) -> None:
    table, columns = tmp_path / "db.db" / "t", ("-C", "k INT NOT NULL", "-C", "s INT", "-C", "u INT")
    options = ("--option", "sequence.field=s,u", "--option", f"sequence.field.sort-order={order}")
    run("create", table, *columns, "--primary-key", "k", "--bucket", 1, *options)
    run("write", table, jsonl(tmp_path, *({"k": k, "s": 5, "u": 1} for k in (1, 2, 3))), *LOCAL)
    later = 6 if order == "ascending" else 4
    deletes = jsonl(tmp_path, {"k": 1, "s": later}, {"k": 2, "u": later}, {"k": 3, "s": later, "u": 1})
    told = run("write", table, deletes, "--op", "delete", *LOCAL, "-o", "json")
    assert rows_of(run, table) == [{"k": 2, "s": 5, "u": 1}] and told.json["item"]["unordered_deletes"] == 1
    assert "1 delete without a value of 's' (the first of sequence.field) cannot remove rows that have one" in told.err


def test_a_delete_that_is_ordered_by_its_commit_is_not(run: Run, tmp_path: Path) -> None:
    for option in ("ignore-delete=true", "merge-engine=aggregation"):
        table = tmp_path / "db.db" / option.partition("=")[0]
        columns, functions = ("-C", "k INT NOT NULL", "-C", "s INT"), ("--option", "sequence.field=s", "--option", option)
        run("create", table, *columns, "--primary-key", "k", "--bucket", 1, *functions)
        changes = jsonl(tmp_path, {"k": 1, "s": 5, "op": "+I"}, {"k": 1, "s": None, "op": "-D"})
        told = run("write", table, changes, "--op-column", "op", *LOCAL, "-o", "json")
        assert told.json["item"]["unordered_deletes"] == 0


@pytest.mark.parametrize("granularity", ["partition", "key"])
def test_the_data_conflict_check_of_a_call_is_that_of_its_commit(run: Run, tmp_path: Path, granularity: str) -> None:
    path, row = tmp_path / "t", '{"id": 1, "v": 5}'
    run("create", path, "-C", "id INT NOT NULL", "-C", "v INT", "--primary-key", "id", "--bucket", 1)
    for words in (
        ("write", path, "-", "--format", "json"),
        ("update", path, "--set", "v = v + 1", "--where", "id = 1"),
        ("delete", path, "--where", "id = 1"),
    ):
        done = run(*words, "--engine", "local", "--data-conflict-check", granularity, "--trace", stdin=row)
        assert f"data_conflict_check={granularity}" in done.err, words[0]
