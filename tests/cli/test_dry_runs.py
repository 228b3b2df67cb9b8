"""Every dry run ends in the command that carries it out, which then does it without a question."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.calling import Run
from tests.cli.test_documented_commands import COMMANDS

ROWS = [json.dumps({"id": number, "p": number % 2}) for number in range(4)]
PLANNED = {
    "truncate": ["truncate", "T"],
    "drop-partition": ["drop-partition", "T", "p=1"],
    "drop": ["drop", "T"],
    "expire": ["expire", "T", "--retain-max", "1", "--retain-min", "1"],
    "maintain": ["maintain", "T", "--option", "snapshot.num-retained.max=3", "--option", "snapshot.num-retained.min=1"],
    "rescale": ["rescale", "T", "--buckets", "3", "--engine", "local"],
    "rollback": ["rollback", "T", "--to", "1"],
    "orphans rm": ["orphans", "rm", "T", "--older-than", "0 s", "--force"],
    "compact-manifests": ["compact-manifests", "T"],
    "tags rm": ["tags", "rm", "T", "a tag"],
    "branches rm": ["branches", "rm", "T", "dev"],
    "branches fast-forward": ["branches", "fast-forward", "T", "dev"],
    "consumers rm": ["consumers", "rm", "T", "job"],
    "repair": ["repair", "T"],
    "compact": ["compact", "T", "--strategy", "full", "--engine", "local"],
    "db drop": ["db", "drop", "empty", "--warehouse", "W"],
    "trash empty": ["trash", "empty", "--warehouse", "W"],
    "erase": ["erase", "T", "-w", "id = 1", "--engine", "local"],
    "analyze": ["analyze", "T"],
    "adopt": ["adopt", "FILES", "--as", "NEW"],
    "ingest": ["ingest", "EVENTS", "--format", "json", "--into", "T"],
}

ENDS_WITH_FINDINGS = {"health"}
"""With --fix, its dry run exits with 4; `test_health_command` holds what it ends in."""


@pytest.fixture
def table(run: Run, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of a table that is made once."""
    made = tmp_path_factory.getbasetemp() / "planned"
    if not made.exists():
        make_table(run, made)
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path / "shop.db" / "my orders"


def make_table(run: Run, folder: Path) -> None:
    (folder / "empty.db").mkdir(parents=True)
    path = folder / "shop.db" / "my orders"
    columns = ("-C", "id INT NOT NULL", "-C", "p INT NOT NULL", "--primary-key", "id,p", "--partition-by", "p", "--bucket", 1)
    run("create", path, *columns)
    for row in ROWS:
        run("write", path, "-", "--format", "json", "--engine", "local", "--compact", "none", stdin=row)
    run("tags", "create", path, "a tag", "--snapshot", 2)
    run("branches", "create", path, "dev", "--snapshot", 3)
    run("write", path, "-", "--format", "json", "--engine", "local", "--branch", "dev", stdin=ROWS[0])
    run("consumers", "reset", path, "job", "--next", 3)
    run("create", path.parent / "dropped", *columns)
    run("drop", path.parent / "dropped", "--yes")


def damage(run: Run, table: Path) -> None:
    """Leave an old file behind that nothing refers to, and delete a live one."""
    stray = table / "p=0" / "bucket-0" / "data-stray-0.parquet"
    stray.write_bytes(b"x")
    os.utime(stray, (1e9, 1e9))
    (live,) = json.loads(run("files", "ls", table, "--partition", "p=1", "-o", "json", "--fields", "file").out)["items"][:1]
    (table / "p=1" / "bucket-0" / live["file"]).unlink()


def test_each_command_with_a_dry_run_is_listed() -> None:
    names = {name for name, command in COMMANDS.items() if {"dry_run", "apply"} & {p.name for p in command.params}}
    assert {name for name in names if not COMMANDS[name].hidden} == {*PLANNED, *ENDS_WITH_FINDINGS}


@pytest.mark.parametrize("name", sorted(PLANNED))
def test_a_dry_run_ends_in_the_command_that_carries_it_out(run: Run, table: Path, name: str) -> None:
    if name in ("repair", "orphans rm"):
        damage(run, table)
    events = table.parent.parent / "events.json"
    events.write_text(ROWS[0])
    files = table.parent.parent / "files"
    files.mkdir()
    pq.write_table(pa.table({"id": [1, 2]}), files / "a.parquet")
    new = str(table.parent / "adopted")
    named = {"T": str(table), "W": str(table.parent.parent), "EVENTS": str(events), "FILES": str(files), "NEW": new}
    words = [named.get(word, word) for word in PLANNED[name]]
    dry = [] if name in ("repair", "orphans rm") else ["-n"]
    before = run("snapshots", "ls", table, "-o", "json").out
    last = run(*words, *dry).out.splitlines()[-1]
    assert run("snapshots", "ls", table, "-o", "json").out == before
    assert last.startswith("run: paimon-cli ")
    shown = run(*words, *dry, "-o", "json").json
    assert shown["kind"].endswith(("Plan", "OrphanList")) and {"item", "items"} & shown.keys()
    command = shlex.split(last.removeprefix("run: paimon-cli "))
    assert command[: len(words)] == words and "-n" not in command
    done = run(*command)
    assert "dry run" not in done.out


NOTHING_TO_DO = {
    "truncate": [],
    "drop-partition": ["p=1"],
    "expire": ["--retain-max", "99"],
    "maintain": ["--engine", "local"],
    "rescale": ["--buckets", "1"],
    "rollback": ["--to", "5"],
    "rollback --as-new": ["--to", "5"],
    "orphans rm": [],
    "compact-manifests": [],
    "branches fast-forward": ["dev"],
    "repair": [],
    "compact": ["--engine", "local"],
}
"""Arguments of dry runs on a table that was compacted, then truncated. The other commands fail if they have nothing to do."""


@pytest.mark.parametrize("name", sorted(NOTHING_TO_DO))
def test_without_work_no_command_is_suggested(run: Run, table: Path, name: str) -> None:
    run("branches", "fast-forward", table, "dev", "--yes")
    if name != "branches fast-forward":  # which fails if main goes on
        for emptied in (["compact", table, "--engine", "local"], ["truncate", table, "--yes"], ["compact-manifests", table]):
            run(*emptied)
    latest = str(run("snapshots", "ls", table, "-o", "json").json["items"][0]["id"])
    command, *more = name.split(" --")
    arguments = [latest if word == "5" else word for word in NOTHING_TO_DO[name]]
    dry = [] if name in ("repair", "orphans rm") else ["-n"]
    shown = run(*command.split(), table, *arguments, *(f"--{flag}" for flag in more), *dry).out
    assert shown and "run:" not in shown


@pytest.mark.parametrize("name", sorted(set(PLANNED) - {"compact", "compact-manifests", "ingest", "analyze", "adopt"}))
def test_without_a_confirmation_the_hint_is_the_dry_run(run: Run, table: Path, name: str) -> None:
    if name in ("repair", "orphans rm"):
        damage(run, table)
    words = [{"T": str(table), "W": str(table.parent.parent)}.get(word, word) for word in PLANNED[name]]
    if name in ("repair", "orphans rm"):
        words += ["--apply"]
    what, why, hint = run(*words, code=7).err.splitlines()[-3:]
    assert what == "error: not confirmed, nothing was changed" and why.endswith("; without a terminal only --yes confirms it")
    assert run(*shlex.split(hint.removeprefix("hint: paimon-cli "))).out.splitlines()[-1].startswith("run: paimon-cli ")


def everything(folder: Path) -> dict[str, tuple[int, int]]:
    found = {str(path): path.lstat() for path in folder.rglob("*")}
    return {path: (status.st_ino, status.st_size) for path, status in found.items()}


@pytest.mark.parametrize("name", sorted(set(PLANNED) - {"compact", "compact-manifests", "ingest", "analyze", "adopt"}))
def test_a_dry_run_with_a_confirmation_changes_nothing(run: Run, table: Path, name: str) -> None:
    if name in ("repair", "orphans rm"):
        damage(run, table)
    warehouse = table.parent.parent
    words = [{"T": str(table), "W": str(warehouse)}.get(word, word) for word in PLANNED[name]]
    before = everything(warehouse)
    run(*words, "--dry-run", "--yes", *(["--apply"] if name in ("repair", "orphans rm") else []))
    assert everything(warehouse) == before


def timeless(shown: str) -> str:
    """The output without the time that an age means, which passes."""
    return re.sub(r"T[\d:]{8}Z", "", shown)


@pytest.mark.parametrize("name", ["orphans rm", "repair"])
def test_a_dry_run_changes_nothing_even_with_apply(run: Run, table: Path, name: str) -> None:
    damage(run, table)
    words = [str(table) if word == "T" else word for word in PLANNED[name]]
    shown = run(*words, "--apply", "--dry-run", "--yes").out
    assert "nothing was changed (dry run)" in shown and shown.endswith(f"{shlex.join([*words, '--apply', '--yes'])}\n")
    assert timeless(run(*words).out) == timeless(shown), "there is as much to do as before"
    done = run(*words, "--apply", "--yes").out
    assert "1 orphan of 1 B deleted" in done or "1 repair made" in done


def test_a_table_whose_name_looks_like_an_option(run: Run, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(table.parent)
    table.rename(table.parent / "-n")
    last = run("drop", "-n", "--", "-n").out.splitlines()[-1]
    assert last == "run: paimon-cli drop --yes -- -n"
    run(*shlex.split(last)[2:])
    assert not (table.parent / "-n").exists()


def test_machines_get_no_command(run: Run, table: Path) -> None:
    assert "run:" not in run("tags", "rm", table, "a tag", "--dry-run", "-o", "json").out
    assert run("tags", "rm", table, "a tag", "-ny").out.endswith(f"run: paimon-cli tags rm '{table}' 'a tag' --yes\n")


def test_flags_in_one_word_with_that_of_a_dry_run(run: Run, table: Path) -> None:
    """They used to be repeated whole, so that the command of the hint was another dry run."""
    assert run("tags", "rm", table, "a tag", "-no", "table").out.endswith(f"'{table}' 'a tag' -o table --yes\n")
    out = run("tags", "rm", table, "a tag", "-nv").out
    assert out.endswith(f"run: paimon-cli tags rm '{table}' 'a tag' -v --yes\n")
    run(*shlex.split(out.splitlines()[-1])[2:])
    assert "a tag" not in run("tags", "ls", table).out
