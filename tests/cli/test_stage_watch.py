"""`stage commit --watch`: what it prints, its exit codes, and how it stops."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paimon_cli import Table
from paimon_cli.errors import PartialSuccess
from tests.cli.calling import Run

LOCAL = ("--engine", "local")


@pytest.fixture
def landing(run: Run, tmp_path: Path) -> Path:
    """A directory with the stage files of two writers, and with one that is none."""
    run("create", tmp_path / "t", "-C", "id INT NOT NULL", "--primary-key", "id", "--bucket", 2)
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"id": {number}}}\n' for number in range(10)))
    (tmp_path / "landing" / "2").mkdir(parents=True)
    for bucket in range(2):
        owned = ("--bucket", bucket, "--other-buckets", "skip")
        file = tmp_path / "landing" / "2" / f"bucket-{bucket}"
        run("write", tmp_path / "t", tmp_path / "rows.jsonl", *owned, "--stage", file, *LOCAL)
    (tmp_path / "landing" / "2" / "_SUCCESS").touch()
    (tmp_path / "landing" / "1").write_text("no stage file")
    return tmp_path / "landing"


def test_checkpoints_are_shown_and_failures_end_with_9(run: Run, landing: Path, tmp_path: Path) -> None:
    answer = run("stage", "commit", "--watch", landing, "--max-rounds", 1, *LOCAL, code=9)
    assert answer.out == "2: snapshot 1: 10 stored records of 2 writers\n"
    assert "1: failed:" in answer.err and "1 of 2 checkpoints could not be committed" in answer.err
    assert run("read", tmp_path / "t", "--count").out.strip() == "10"
    (landing / "failed" / "1").rename(landing / "3")
    (line,) = run("stage", "commit", "--watch", landing, "--max-rounds", 1, *LOCAL, "-o", "ndjson", code=9).lines
    assert (line["name"], line["state"], line["error"]["code"]) == ("3", "failed", "PC-DAMAGED")
    assert run("stage", "commit", "--watch", landing, "--max-rounds", 2, "--interval", "0s", *LOCAL).out == ""


def test_another_table_is_refused(run: Run, landing: Path, tmp_path: Path) -> None:
    run("create", tmp_path / "o", "-C", "id INT NOT NULL", "--primary-key", "id")
    run("stage", "commit", "--watch", landing, "--table", tmp_path / "o", "--max-rounds", 1, *LOCAL, code=9)
    assert (landing / "failed" / "2" / "bucket-0").exists() and run("read", tmp_path / "t", "--count").out.strip() == "0"


def test_arguments_that_do_not_go_together(run: Run, landing: Path) -> None:
    for wrong in (
        ("x", "--watch", landing),
        ("--watch", landing, "--commit-user", "u"),
        ("x", "--keep"),
        ("x", "--interval", "1s"),
        ("--watch", landing, "--interval", "soon"),
        (),
    ):
        run("stage", "commit", *wrong, code=2)
    run("stage", "commit", "--watch", landing / "none", "--max-rounds", 1, code=3)


@pytest.mark.parametrize("name", ["done", "failed"])
def test_a_file_in_the_place_of_a_directory_is_told_before_anything_is_committed(run: Run, landing: Path, name: str) -> None:
    """Trying again would not help: it is no failure of the storage."""
    (landing / name).touch()
    shown = run("stage", "commit", "--watch", landing, "--max-rounds", 1, *LOCAL, code=2)
    assert f"{landing}/{name} is no directory" in shown.err and not shown.out
    assert "is a file" in run("stage", "commit", "--watch", landing / name, "--max-rounds", 1, *LOCAL, code=2).err
    if name == "done":
        run("stage", "commit", "--watch", landing, "--keep", "--max-rounds", 1, *LOCAL, code=9)


def test_it_stops_when_it_is_asked_to(landing: Path) -> None:
    (landing / "1").unlink()
    command = [sys.executable, "-m", "paimon_cli", "stage", "commit", "--watch", str(landing), "--interval", "100ms", *LOCAL]
    process = subprocess.Popen([*command, "-o", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["snapshots"] == [1]
        until = time.monotonic() + 60
        while (landing / "2").exists() and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0 and "stopped" in process.communicate()[1]
    finally:
        process.kill()
    assert sorted(path.name for path in (landing / "done" / "2").iterdir()) == ["_SUCCESS", "bucket-0", "bucket-1"]


def test_a_write_that_was_staged_for_an_earlier_table_is_not_committed(tmp_path: Path) -> None:
    """At the same place, and even if its files are there again: their columns are those of the earlier table."""
    place, landing = tmp_path / "t", tmp_path / "landing"
    landing.mkdir()
    earlier = Table.create(place, columns=["id INT NOT NULL", "v STRING"], primary_key="id", bucket=1)
    earlier.write([{"id": 1, "v": "a"}], stage=str(landing / "1"))
    place.rename(tmp_path / "earlier")
    table = Table.create(place, columns=["id INT NOT NULL", "w STRING", "v INT"], primary_key="id", bucket=1)
    shutil.copytree(tmp_path / "earlier/bucket-0", place / "bucket-0")
    with pytest.raises(PartialSuccess):
        table.stage.watch(str(landing), max_rounds=1)
    assert table.snapshots() == [] and (landing / "failed/1").exists()
