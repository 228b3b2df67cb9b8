"""update, delete, stage and the data conflict check, from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paimon_cli.cli.update_commands import note_changed
from tests.cli.calling import Run
from tests.tables import make_table, write

LOCAL = ("--engine", "local")


@pytest.fixture
def players(run: Run, tmp_path: Path) -> Path:
    table = tmp_path / "game.db" / "players"
    columns = ("-C", "id INT NOT NULL", "-C", "name STRING", "-C", "points INT")
    run("create", table, *columns, "--primary-key", "id", "--bucket", 2)
    run("write", table, source(tmp_path, *[{"id": n, "name": f"n{n}", "points": n} for n in range(1, 5)]), *LOCAL)
    return table


def source(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / f"{len(list(folder.iterdir()))}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def points(run: Run, table: Path) -> dict[int, int]:
    return {row["id"]: row["points"] for row in run("read", table, "-o", "ndjson").lines}


def data_files(table: Path) -> set[str]:
    return {str(path) for path in table.glob("bucket-*/*")}


def test_update(run: Run, players: Path) -> None:
    answer = run("update", players, "--set", "points = points + 1", "--set", "name = upper(name)", "-w", "id > 2", *LOCAL)
    assert answer.out.startswith("snapshot 2: 2 rows changed in ")
    assert "1 attempt, 0 conflicts" in answer.out
    assert run("read", players, "-o", "ndjson", "-w", "id = 4").lines == [{"id": 4, "name": "N4", "points": 5}]
    assert points(run, players) == {1: 1, 2: 2, 3: 4, 4: 5}


def test_update_in_json(run: Run, players: Path) -> None:
    answer = run("update", players, "--set", "points = 0", "-w", "true", *LOCAL, "-o", "json").json
    item = answer["item"]
    assert answer["kind"] == "UpdateSummary"
    assert (item["rows"], item["snapshots"], item["attempts"], item["conflicts"]) == (4, [2], 1, 0)


def test_delete(run: Run, players: Path) -> None:
    assert run("delete", players, "-w", "points >= 3", *LOCAL).out.startswith("snapshot 2: 2 rows deleted in ")
    assert points(run, players) == {1: 1, 2: 2}
    assert run("delete", players, "-w", "points >= 3", *LOCAL).out == "no row matches, nothing was committed\n"
    assert run("delete", players, "-w", "id = 1", *LOCAL, "-o", "json").json["kind"] == "DeleteSummary"


def test_a_repeated_update_is_recognised(run: Run, players: Path) -> None:
    once = ("update", players, "--set", "points = points + 1", "-w", "id = 1", "--commit-user", "u", "--commit-id", 1, *LOCAL)
    run(*once)
    assert "already committed" in run(*once).out
    assert points(run, players)[1] == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("--set", "points = 1"),
        ("-w", "id = 1"),
        ("--set", "id = 1", "-w", "id = 1"),
        ("--set", "points = 'a'", "-w", "id = 1"),
        ("--set", "points", "-w", "id = 1"),
        ("--set", "points = 1", "-w", "nope = 1"),
        ("--set", "points = points * 1000000000", "-w", "id = 4"),
        ("--set", "points = 1", "-w", "id = 1", "--max-attempts", "0"),
        ("--set", "points = 1", "-w", "id = 1", "--data-conflict-check", "row"),
        ("--set", "points = 1", "-w", "id = 1", "--data-conflict-check", "off"),
        ("--set", "points = 1", "-w", "id = 1", "--option", "commit.data-conflict-check=off"),
        ("--set", "points = 1", "-w", "id = 1", "--option", "commit.data-conflict-check=OFF"),
    ],
)
def test_updates_that_cannot_be_done(run: Run, players: Path, arguments: tuple[str, ...]) -> None:
    before = data_files(players)
    run("update", players, *arguments, *LOCAL, code=2)
    assert data_files(players) == before
    assert points(run, players) == {n: n for n in range(1, 5)}


def test_a_stale_write_fails_with_5_and_names_what_was_in_the_way(run: Run, players: Path, tmp_path: Path) -> None:
    run("write", players, source(tmp_path, {"id": 1, "name": "x", "points": 50}), "--commit-user", "rival", *LOCAL)
    before = data_files(players)
    stale = ("write", players, source(tmp_path, {"id": 1, "name": "y", "points": 9}), "--read-snapshot", 1, *LOCAL)
    error = run(*stale, "--data-conflict-check", "bucket", "-o", "json", code=5).error
    assert error["code"] == "PC-CONFLICT-DATA"
    assert (error["details"]["snapshot_id"], error["details"]["commit_user"]) == (2, "rival")
    assert data_files(players) == before and points(run, players)[1] == 50
    run(*stale, "--option", "commit.data-conflict-check=partition", code=5)
    answer = run(*stale)
    assert "warning: --read-snapshot has no effect" in answer.err
    assert points(run, players)[1] == 9


def test_the_check_can_be_the_tables_own(run: Run, tmp_path: Path) -> None:
    table = tmp_path / "t"
    run(
        "create",
        table,
        "-C",
        "id INT NOT NULL",
        "--primary-key",
        "id",
        "--bucket",
        1,
        "--option",
        "commit.data-conflict-check=bucket",
    )
    for number in (1, 2):
        run("write", table, source(tmp_path, {"id": number}), *LOCAL)
    stale = ("write", table, source(tmp_path, {"id": 3}), "--read-snapshot", 1, *LOCAL)
    assert "warning" not in run(*stale, code=5).err
    run(*stale, "--data-conflict-check", "off")
    run("write", table, source(tmp_path, {"id": 3}), "--read-snapshot", 99, *LOCAL, code=3)
    run("create", tmp_path / "bad", "-C", "id INT", "--option", "commit.data-conflict-check=row", code=2)


def test_a_commit_in_two_phases(run: Run, players: Path, tmp_path: Path) -> None:
    file = tmp_path / "f.stage"
    answer = run("write", players, source(tmp_path, {"id": 1, "name": "x", "points": 50}), "--stage", file, *LOCAL)
    assert answer.out.startswith("staged 1 stored record in 1 file of 1 bucket") and f"stage commit {file}" in answer.out
    assert points(run, players)[1] == 1
    shown = run("stage", "show", file, "-o", "json").json
    assert (shown["kind"], shown["table"], shown["item"]["state"]) == ("StagedCommit", str(players), "staged")
    (bucket,) = shown["item"]["buckets"]
    assert (bucket["files_added"], bucket["files_deleted"], bucket["rows"]) == (1, 0, 1)
    assert run("stage", "commit", file).out.startswith("snapshot 2: 1 stored record in 1 file of 1 bucket")
    assert points(run, players)[1] == 50
    assert run("stage", "commit", file).out == "already committed, nothing was done\n"
    assert "was committed" in run("stage", "abort", file, code=7).err
    assert run("stage", "commit", file, "-o", "json").json["item"]["snapshots"] == [2]
    text = run("stage", "show", file).out
    assert "State                committed" in text and "Snapshots            2" in text


def test_several_writers_and_one_committer(run: Run, players: Path, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a", "b")]
    for number, file in enumerate(files):
        run("write", players, source(tmp_path, {"id": 1, "name": "x", "points": 50 + number}), "--stage", file, *LOCAL)
    shown = run("stage", "show", *files, "-o", "json").json
    assert (shown["kind"], shown["item"]["rows"], len(shown["item"]["writers"])) == ("JointCommit", 2, 2)
    assert [(bucket["writers"], bucket["rows"]) for bucket in shown["item"]["buckets"]] == [(2, 2)]
    refusal = run("stage", "commit", *files, code=2).err
    assert "hold rows of the same bucket" in refusal and "--order given" in refusal
    committer = ("--order", "given", "--commit-user", "committer", "--commit-id", 3)
    assert (
        run("stage", "commit", *files, *committer).out.startswith("snapshot 2: 2 stored records in 2 files of 1 bucket")
        and points(run, players)[1] == 51
    )
    assert run("stage", "commit", *files).out == "already committed, nothing was done\n"
    snapshot = run("snapshots", "show", players, 2, "-o", "json").json["item"]
    assert (snapshot["commit_user"], snapshot["commit_identifier"]) == ("committer", "3")
    assert len(json.loads(snapshot["properties"]["paimon-cli.writers"])) == 2
    third = tmp_path / "c"
    run("write", players, source(tmp_path, {"id": 2, "name": "y", "points": 1}), "--stage", third, *LOCAL)
    assert f"{files[0]} was committed before, {third} not" in run("stage", "commit", files[0], third, code=7).err
    run("stage", "commit", third, "--commit-user", "committer", code=2)


def test_a_staged_commit_is_aborted(run: Run, players: Path, tmp_path: Path) -> None:
    before, file = data_files(players), tmp_path / "f.stage"
    content = source(tmp_path, {"id": 1, "name": "x", "points": 50})
    item = run("write", players, content, "--stage", file, *LOCAL, "-o", "json").json["item"]
    assert (item["state"], item["rows"], item["commit_identifier"]) == ("staged", 1, "0")
    assert run("stage", "abort", file).out == "aborted: 1 file deleted, nothing was committed\n"
    assert data_files(players) == before
    run("stage", "commit", file, code=7)
    assert run("stage", "abort", file, "-o", "json").json["item"]["state"] == "aborted"


def test_stage_files_that_are_refused(run: Run, players: Path, tmp_path: Path) -> None:
    file, content = tmp_path / "f.stage", source(tmp_path, {"id": 1, "name": "x", "points": 50})
    run("write", players, content, "--stage", file, *LOCAL)
    assert "exists" in run("write", players, content, "--stage", file, *LOCAL, code=2).err
    run("write", players, content, "--stage", tmp_path / "g", "--compact", "after", *LOCAL, code=2)
    other = tmp_path / "other"
    run("create", other, "-C", "id INT NOT NULL", "--primary-key", "id", "--bucket", 1)
    assert "was staged for" in run("stage", "commit", file, "--table", other, code=2).err
    run("stage", "show", tmp_path / "none", code=3)
    file.write_text(file.read_text().replace('"row_count": 1', '"row_count": 2'))
    for verb in ("show", "commit", "abort"):
        assert "checksum" in run("stage", verb, file, code=10).err
    assert points(run, players)[1] == 1


@pytest.mark.parametrize("name", ["update", "delete", "stage show", "stage commit", "stage abort", "write"])
def test_help_has_an_example(run: Run, name: str) -> None:
    assert f"paimon-cli {name} " in run(*name.split(), "--help").out


def test_a_delete_takes_the_flag_of_commands_that_ask(run: Run, tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", {"id": "BIGINT NOT NULL"}, ["id"], bucket=1)
    write(table, [{"id": 1}, {"id": 2}])
    assert "1 row deleted" in run("delete", table.url, "-w", "id = 1", "-y").out


@pytest.mark.parametrize("unseen", [0, 2])
def test_a_lost_compaction_is_told_whatever_else_is(unseen: int, capsys: pytest.CaptureFixture[str]) -> None:
    summary: Any = SimpleNamespace(unseen_records=unseen, compaction_lost="another job has compacted the bucket")
    note_changed(summary, "deleted")
    told = capsys.readouterr().err
    assert "but its compaction failed: another job has compacted the bucket" in told
    assert ("matching rows among them were deleted, too" in told) == bool(unseen)
