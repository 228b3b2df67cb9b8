"""`ingest` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.calling import Run
from tests.event_streams import debezium


def events(path: Path, *found: object) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in found))
    return path


def test_the_summary(run: Run, tmp_path: Path) -> None:
    first = [
        debezium("t", "c", None, {"id": 1}),
        debezium("t", "t", None, None),
        debezium("t", "c", None, {"id": 2, "more": True}),
    ]
    file = events(tmp_path / "e.json", *first)
    call = ("ingest", file, "--format", "debezium", "--into", "shop", "--warehouse", tmp_path, "--primary-key", "t=id")
    plan = run(*call, "--dry-run").out
    assert "shop.t: to create with key id; 2 inserted; emptied 1 time" in plan and "  id STRING NOT NULL" in plan
    assert not (tmp_path / "shop.db").exists()
    assert run(*call, "--option", "bucket=1").out.splitlines()[0].endswith("snapshot 3")
    assert run("describe", tmp_path / "shop.db/t", "-o", "json").json["item"]["options"]["bucket"] == "1"
    (row,) = run(*call, "-o", "json").json["items"]
    assert (row["table"], row["inserts"], row["state"], row["primary_key"]) == ("shop.t", 0, "applied", ["id"])
    path = run("ingest", file, "--format", "debezium", "--into", tmp_path / "other.db", "--primary-key", "id")
    assert path.out.startswith("other.t: created")


def test_a_run_that_follows_says_what_it_commits(run: Run, tmp_path: Path) -> None:
    file = events(tmp_path / "e.json", debezium("t", "c", None, {"id": 1}))
    call = ("ingest", file, "--format", "debezium", "--into", "shop", "--warehouse", tmp_path, "--primary-key", "id")
    answer = run(*call, "--follow", "--max-rounds", 1)
    assert "shop.t: created with key id; 1 inserted; snapshot 1" in answer.err
    assert "1 table, 1 row" in answer.out


def test_a_table_that_stops(run: Run, tmp_path: Path) -> None:
    found = [debezium(name, "c", None, {"id": 1}) for name in ("a", "b")]
    file = events(tmp_path / "e.json", *found)
    call = ("ingest", file, "--format", "debezium", "--into", "shop", "--warehouse", tmp_path, "--primary-key", "a=id")
    answer = run(*call, code=9)
    assert (
        "shop.a: created" in answer.out and "shop.b: nothing new; stopped: the primary key of shop.b is not known" in answer.out
    )
    assert "error: 1 table of 2 stopped: shop.b" in answer.err
    assert "shop.b: created" in run(*call, "--primary-key", "b=id").out


def test_what_a_call_must_say(run: Run, tmp_path: Path) -> None:
    file = events(tmp_path / "e.json", debezium("t", "c", None, {"id": 1}))
    assert "--into" in run("ingest", file, "--format", "debezium", code=2).err
    assert "--format" in run("ingest", file, "--into", "shop", code=2).err
    given = ("ingest", file, "--format", "debezium", "--into", "shop", "--warehouse", tmp_path)
    assert "SOURCE=NAME" in run(*given, "--table-mapping", "t", code=2).err
    assert "name a FILE" in run(*given, "--on-error", "skip", code=2).err
    assert "names no topic" in run("ingest", "kafka://h", *given[2:], code=2).err
    assert "--kafka-conf must be KEY=VALUE" in run("ingest", "kafka://h/t", *given[2:], "--kafka-conf", "x", code=2).err
    assert run("ingest", tmp_path / "none.json", *given[2:], code=3).err
    assert "--interval is for --follow" in run(*given, "--interval", "5 s", code=2).err
    assert "--max-rounds is for --follow" in run(*given, "--max-rounds", 2, code=2).err


def test_each_kind_of_change_has_its_own_number(run: Run, tmp_path: Path) -> None:
    new = [debezium("t", "c", None, {"id": key}) for key in (1, 2, 3)]
    changed = [debezium("t", "u", {"id": key}, {"id": key, "n": key}) for key in (1, 2)]
    file = events(tmp_path / "e.json", *new, *changed, debezium("t", "d", {"id": 3}, None))
    call = ("ingest", file, "--format", "debezium", "--into", "shop", "--warehouse", tmp_path, "--primary-key", "id")
    assert "3 inserted, 2 updated, 1 deleted" in run(*call).out
