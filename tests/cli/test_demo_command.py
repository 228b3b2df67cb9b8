"""`demo` tells a true story: what it prints are commands that can be pasted, and its figures are those of its table."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from paimon_cli import Table
from paimon_cli.cli import demo_command
from tests.cli.calling import Run


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PAGER", "1")  # what the demo sets goes with the test
    monkeypatch.setattr(demo_command, "ACCOUNTS", 4000)
    monkeypatch.setattr(demo_command, "_CHANGES", 100)


def test_the_story_is_true_and_its_commands_can_be_pasted(tmp_path: Path, run: Run) -> None:
    shown = run("demo", "--keep", tmp_path / "a bank").out
    assert "30 sorted runs" in shown and "1 sorted run " in shown
    assert "was written after snapshot 30, which this job has read" in shown
    assert "The exit code is 5, and nothing was written." in shown
    assert "33 commits, one lost update prevented" in shown
    opened = Table.open(f"{tmp_path}/a bank/bank.db/accounts")
    assert opened.scan(["balance"], "id = 42").to_arrow().to_pylist() == [{"balance": 1020}]
    assert [row.commit_user for row in opened.snapshots()].count("payments") == 30
    lines = shown.replace("\\\n", "").splitlines()
    commands = [shlex.split(line[2:])[1:] for line in lines if line.startswith("$ paimon-cli ")]
    story, next_steps = commands[:10], commands[10:]
    assert " ".join(words[0] for words in story) == "create snapshots read write write update read lsm compact lsm"
    for words in next_steps:
        run(*words)
    assert len(next_steps) >= 5


def test_the_catalog_of_the_directory_is_left_alone(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "paimon.yaml").write_text("metastore: jdbc\nuri: jdbc:postgresql://nowhere.invalid/catalog\nlock.enabled: true\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PAIMON_PROFILE", "production")
    item = run("demo", "--keep", "bank", "-o", "json").json["item"]
    assert item["table"] == "bank/bank.db/accounts" and item["commits"] == 33
    assert Path.cwd() == tmp_path and (tmp_path / item["table"] / "schema").is_dir()


def test_figures_as_json(run: Run) -> None:
    item = run("demo", "-o", "json").json["item"]
    assert item["table"] is None and item["refused"] == 1 and item["balance"] == 1020 and item["commits"] == 33
    before, after = item["before"], item["after"]
    assert (before["sorted_runs"], after["sorted_runs"]) == (32, 1)
    assert before["rows"] == after["rows"] == 4000
    assert before["files"] > after["files"] == 2 and before["size"] > after["size"] > 0


def test_it_leaves_other_files_alone(tmp_path: Path, run: Run) -> None:
    (tmp_path / "precious").write_text("x")
    assert run("demo", "--keep", tmp_path, code=2).err.startswith(f"error: {tmp_path} is not empty")
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]
    assert run("demo", "--option", "bucket=3", code=2).err


def test_long_commands_break_between_options() -> None:
    lines = demo_command.command_lines(("paimon-cli", "create", "x" * 30, "-C", "id BIGINT", "--bucket", "2"), width=50)
    assert lines == ["$ paimon-cli create \\", f"      {'x' * 30} \\", "      -C 'id BIGINT' --bucket 2"]
