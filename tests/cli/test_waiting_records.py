"""Records that are committed and wait for a compaction: every command that passes over them says so, and how to see them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.api.table import Table
from paimon_cli.cli.results import note_waiting
from tests.cli.calling import Run
from tests.tables import make_table

COLUMNS = {"id": "INT NOT NULL", "n": "INT"}
VECTORS = {"deletion-vectors.enabled": "true"}
WRITE_ONLY = {"write-only": "true"}
KINDS: dict[str, dict[str, Any]] = {
    "vectors": {"options": {**VECTORS, **WRITE_ONLY}},
    "first row": {"options": {"merge-engine": "first-row", **WRITE_ONLY}},
    "gentle lookup": {"options": {"merge-engine": "first-row", "lookup-compact": "gentle", **WRITE_ONLY}},
    "postponed": {"options": {"postpone.batch-write-fixed-bucket": "false"}, "bucket": -2},
}
LOCAL = ("--engine", "local")
TOLD = "are not visible yet, because they wait for a compaction: paimon-cli compact "


@pytest.fixture
def content(tmp_path: Path) -> Path:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(f'{{"id": {number}, "n": 1}}\n' for number in range(6)))
    return file


def command_of(err: str) -> list[str]:
    """The words of the command in the only line that names one."""
    (line,) = [line for line in err.splitlines() if TOLD in line]
    return shlex.split(line.partition(": paimon-cli ")[2])


@pytest.mark.parametrize("kind", KINDS)
def test_every_command_says_how_many_wait_and_what_shows_them(kind: str, run: Run, tmp_path: Path, content: Path) -> None:
    path = tmp_path / "t"
    make_table(path, COLUMNS, ["id"], **KINDS[kind])
    written = run("write", path, content, *LOCAL, "-o", "json")
    assert written.json["item"]["waiting_records"] == 6 and f"6 stored records {TOLD}{path}" in written.err
    assert written.err.count("wait for a compaction") == 1
    counted = run("read", path, "--count", "-o", "json")
    assert counted.json["item"] == {"count": 0, "waiting_records": 6} and TOLD in counted.err
    for command in (("read", path), ("compare", path, content, "--key", "id"), ("sql", f'SELECT count(*) FROM "{path}"')):
        assert run(*command, code=None).err.count(f"6 stored records {TOLD}") == 1, command
    assert "Waiting" in run("describe", path).out
    assert run("describe", path, "-o", "json").json["item"]["waiting_records"] == 6
    listed = run("tables", "ls", tmp_path, "-o", "json")
    assert [row["waiting_records"] for row in listed.json["items"]] == [6] and TOLD in listed.err
    assert [row["waiting_records"] for row in run("buckets", "ls", path, "-o", "json").json["items"]] == [6]
    (row,) = run("health", path, "-o", "json", code=4).json["items"]
    (finding,) = [found for found in row["findings"] if found["code"] in ("PD023", "PD025")]
    run(*shlex.split(finding["command"])[1:], *LOCAL)
    shown = run("read", path, "--count", "-o", "json")
    assert shown.json["item"] == {"count": 6, "waiting_records": 0} and not shown.err
    assert run("health", path).out.count("healthy")


@pytest.mark.parametrize("kind", ["vectors", "postponed"])
def test_the_command_that_is_named_shows_them(kind: str, run: Run, tmp_path: Path, content: Path) -> None:
    make_table(tmp_path / "t", COLUMNS, ["id"], **KINDS[kind])
    err = run("write", tmp_path / "t", content, *LOCAL).err
    run(*command_of(err), *LOCAL)
    assert run("read", tmp_path / "t", "--count").out == "6\n"


def test_a_compaction_that_leaves_them_waiting_says_so(run: Run, tmp_path: Path, content: Path) -> None:
    make_table(tmp_path / "t", COLUMNS, ["id"], **KINDS["gentle lookup"])
    run("write", tmp_path / "t", content, *LOCAL)
    gentle = run("compact", tmp_path / "t", "--strategy", "minor", *LOCAL)
    assert "nothing to compact" in gentle.out
    run(*command_of(gentle.err), *LOCAL)
    assert run("read", tmp_path / "t", "--count").out == "6\n"


def test_a_table_whose_readers_see_everything_says_nothing(run: Run, tmp_path: Path, content: Path) -> None:
    make_table(tmp_path / "t", COLUMNS, ["id"], options=WRITE_ONLY)
    written = run("write", tmp_path / "t", content, *LOCAL, "-o", "json")
    assert written.json["item"]["waiting_records"] == 0 and not written.err
    assert not run("read", tmp_path / "t", "--count").err and "Waiting" not in run("tables", "ls", tmp_path).out


def test_an_older_snapshot_is_told_apart(run: Run, tmp_path: Path, content: Path) -> None:
    make_table(tmp_path / "t", COLUMNS, ["id"], options=VECTORS)
    run("write", tmp_path / "t", content, *LOCAL)
    assert "6 stored records of snapshot 1 waited" in run("read", tmp_path / "t", "--snapshot", 1).err
    assert not run("read", tmp_path / "t", "--snapshot", 2).err


def test_changes_of_rows_say_what_readers_do_not_see(run: Run, tmp_path: Path, content: Path) -> None:
    make_table(tmp_path / "t", COLUMNS, ["id"], options={**VECTORS, **WRITE_ONLY})
    run("write", tmp_path / "t", content, *LOCAL)
    changed = run("update", tmp_path / "t", "--set", "n = 2", "-w", "id = 1", *LOCAL, "-o", "json")
    assert (changed.json["item"]["unseen_records"], changed.json["item"]["waiting_records"]) == (6, 7)
    assert "reads did not show 6 stored records that still had to be compacted" in changed.err
    assert "matching rows among them were changed, too" in changed.err and f"7 stored records {TOLD}" in changed.err


def test_a_staged_commit_compacts_as_a_write_does(run: Run, tmp_path: Path, content: Path) -> None:
    path, stage = tmp_path / "t", tmp_path / "s"
    make_table(path, COLUMNS, ["id"], options=VECTORS)
    run("write", path, content, "--stage", stage, *LOCAL)
    left = run("stage", "commit", stage, "--compact", "none", *LOCAL, "-o", "json")
    assert left.json["item"]["waiting_records"] == 6 and TOLD in left.err
    assert run("read", path, "--count").out == "0\n"
    repeated = run("stage", "commit", stage, *LOCAL)
    assert "snapshot 2: 1 bucket compacted, which was still due" in repeated.out and not repeated.err
    assert run("read", path, "--count").out == "6\n"
    assert run("stage", "commit", stage, *LOCAL).out == "already committed, nothing was done\n"
    run("write", path, content, "--stage", tmp_path / "again", *LOCAL)
    assert run("stage", "commit", tmp_path / "again", *LOCAL, "-o", "json").json["item"]["compacted"] == 1


@pytest.mark.parametrize("compact", [None, "after"])
def test_a_staged_commit_of_a_write_only_table_compacts_only_on_request(
    compact: str | None, run: Run, tmp_path: Path, content: Path
) -> None:
    make_table(tmp_path / "t", COLUMNS, ["id"], options={**VECTORS, **WRITE_ONLY})
    run("write", tmp_path / "t", content, "--stage", tmp_path / "s", *LOCAL)
    run("stage", "commit", tmp_path / "s", *LOCAL, *(("--compact", compact) if compact else ()))
    assert run("read", tmp_path / "t", "--count").out == ("6\n" if compact else "0\n")


@pytest.mark.parametrize("options", [VECTORS, {"num-sorted-run.compaction-trigger": "1"}])
def test_a_repeated_write_makes_the_compaction_that_was_due(
    options: dict[str, str], run: Run, tmp_path: Path, content: Path
) -> None:
    path, identity = tmp_path / "t", ("--commit-user", "u", "--commit-id", 1)
    make_table(path, COLUMNS, ["id"], options=options)
    run("write", path, content, *LOCAL)
    run("write", path, content, "--compact", "none", *identity, *LOCAL)  # as if it had died before its compaction
    repeated = run("write", path, content, *identity, *LOCAL)
    assert repeated.out.startswith("already committed") and "1 bucket compacted, which was still due" in repeated.out
    assert "nothing was done" in run("write", path, content, *identity, *LOCAL).out


def test_changes_that_no_changelog_holds_yet(run: Run, tmp_path: Path, content: Path) -> None:
    make_table(tmp_path / "t", COLUMNS, ["id"], options={"changelog-producer": "lookup"})
    run("write", tmp_path / "t", content, "--compact", "none", *LOCAL)
    told = f"the changes of 6 stored records {TOLD}"
    assert told in run("changelog", "read", tmp_path / "t", "--from", 1).err
    assert told in run("read", tmp_path / "t", "--incremental", "0..1").err
    assert not run("read", tmp_path / "t", "--count").err
    run("compact", tmp_path / "t", *LOCAL)
    assert not run("changelog", "read", tmp_path / "t", "--from", 1).err


def test_the_library_counts_and_warns_once_per_call(tmp_path: Path, content: Path) -> None:
    make_table(tmp_path / "t", COLUMNS, ["id"], options={**VECTORS, **WRITE_ONLY})
    table = Table.open(str(tmp_path / "t"))
    assert table.write(str(content)).waiting_records == 6
    with pytest.warns(UserWarning, match="6 stored records are not visible yet") as warned:
        scan = table.scan()
        assert (scan.count(), scan.waiting_records) == (0, 6)
    assert len(warned) == 1
    table.compact()
    assert (table.scan().count(), table.scan().waiting_records) == (6, 0)


@pytest.mark.parametrize(
    ("records", "told"),
    [
        (0, ""),
        (1, "1 stored record is not visible yet, because it waits"),
        (7, "7 stored records are not visible yet, because they wait"),
        (None, "whether reads show them before a compaction is not known"),
    ],
)
def test_an_unknown_number_is_told_and_none_is_not(capsys: pytest.CaptureFixture[str], records: int | None, told: str) -> None:
    note_waiting("T", records)
    shown = capsys.readouterr().err
    assert told in shown and bool(shown) == bool(told)
