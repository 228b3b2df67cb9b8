"""Rules for the whole tree of commands: branches are named alike everywhere, and what deletes or repairs needs a confirmation."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest
import typer

from paimon_cli.cli import results
from paimon_cli.errors import Refused
from tests.cli.calling import Run
from tests.cli.test_documented_commands import COMMANDS

SHOWN = {name: command for name, command in COMMANDS.items() if not command.hidden}

ASKS = {
    "adopt",
    "branches fast-forward",
    "branches rm",
    "consumers rm",
    "db drop",
    "drop",
    "drop-partition",
    "erase",
    "expire",
    "locks break",
    "maintain",
    "orphans rm",
    "repair",
    "rescale",
    "rollback",
    "sql",
    "tags rm",
    "trash empty",
    "truncate",
}
"""Commands that delete, rewrite history or mend."""
DOES_NOT_ASK = {
    "alter drop-column": "a new schema: no file changes, and older snapshots still show the column",
    "alter unset": "a new schema",
    "delete": "names its rows itself, and is undone by a roll-back",
    "update": "names its rows itself, and is undone by a roll-back",
    "consumers reset": "deletes nothing",
    "stage abort": "the second half of a decision of two phases, which scripts make; what was committed is never touched",
    "write": "with --overwrite it names what it replaces, and is undone by a roll-back",
}
"""Commands that look as if they should ask, and why they do not."""
TAKES_YES = {"delete", "health"}
"""Commands that take --yes, since scripts pass it, and do not ask: `health` only with --fix, which discards nothing."""
OF_WHOLE_TABLES = {"backup run"}
"""Commands that take a table with all of its branches."""
DESTRUCTIVE = re.compile(r"\b(rm|drop|delete|abort|truncate|expire|rollback|repair|rescale|reset|unset|break|fast-forward)\b")


def spellings(name: str) -> set[str]:
    return {spelling for parameter in SHOWN[name].params for spelling in parameter.opts}


OF_ONE_SNAPSHOT = {"compact --if-snapshot", "write --read-snapshot", "update --read-snapshot", "delete --read-snapshot"}
"""Options that repeat the number of a snapshot that was read, so that another one is a conflict."""


def test_points_in_time_are_named_alike_everywhere() -> None:
    of_ids = {
        f"{name} {parameter.opts[-1]}"
        for name, command in SHOWN.items()
        for parameter in command.params
        if parameter.param_type_name == "option" and parameter.metavar == "ID" and "commit_id" not in parameter.name
    }
    assert of_ids <= OF_ONE_SNAPSHOT
    takes = {parameter.metavar for command in SHOWN.values() for parameter in command.params if parameter.name == "snapshot"}
    assert takes <= {"ID|TAG|TIME", "ID|TAG|TIME|latest|earliest", "ID|latest", "ID", None}


def test_whatever_deletes_or_mends_asks() -> None:
    asking = {name for name in SHOWN if {"-y", "--yes"} <= spellings(name)}
    assert asking == (ASKS & set(SHOWN)) | TAKES_YES
    unclear = {name for name in SHOWN if DESTRUCTIVE.search(name.replace("-", " ") + " " + name)} - ASKS - set(DOES_NOT_ASK)
    assert not unclear, "decide whether these ask"


@pytest.mark.parametrize("name", sorted((ASKS & set(SHOWN)) - {"locks break", "sql"}))  # DROP has its plan in `drop --dry-run`
def test_whatever_asks_can_show_what_it_would_do(name: str) -> None:
    assert {"-n", "--dry-run"} <= spellings(name)


@pytest.mark.parametrize("name", sorted(SHOWN))
def test_every_command_that_takes_a_table_takes_a_branch(name: str) -> None:
    arguments = {parameter.metavar for parameter in SHOWN[name].params if not parameter.opts[0].startswith("-")}
    if name in OF_WHOLE_TABLES:
        return
    takes_table = name.startswith("alter ") or any("TABLE" in (metavar or "") for metavar in arguments)
    assert ("--branch" in spellings(name)) >= takes_table


def test_branches_are_named_in_two_ways(run: Run, tmp_path: Path) -> None:
    table = tmp_path / "t"
    run("create", table, "-C", "id INT NOT NULL", "--primary-key", "id", "--bucket", 1)
    run("write", table, "-", "--format", "json", "--engine", "local", stdin='{"id":1}\n')
    run("branches", "create", table, "dev", "--snapshot", 1)
    run("write", table, "-", "--format", "json", "--engine", "local", "--branch", "dev", stdin='{"id":2}\n')
    counts = [
        run("read", *named, "--count").out.strip() for named in ([table], [f"{table}$branch_dev"], [table, "--branch", "dev"])
    ]
    assert counts == ["1", "2", "2"]
    assert run("read", f"{table}$branch_dev", "--branch", "dev", "--count").out.strip() == "2"
    assert run("snapshots", "ls", table, "--branch", "dev", "-o", "json").json["table"] == f"{table}$branch_dev"
    run("read", f"{table}$branch_dev", "--branch", "main", code=2)
    run("read", table, "--branch", "nope", code=3)
    run("read", table, "--branch", "a/b", code=2)
    run("doctor", "--branch", "dev", code=2)
    run("alter", table, "set", "write-only=true", "--branch", "dev")
    run("compact", table, "--branch", "dev", "--engine", "local")
    assert len(run("snapshots", "ls", table, "-o", "json").json["items"]) == 1, "main is as it was"
    run("truncate", table, "--branch", "dev", "-y")
    assert [run("read", table, *on, "--count").out.strip() for on in ([], ["--branch", "dev"])] == ["1", "0"]
    assert "branches rm" in run("drop", table, "--branch", "dev", "-y", code=2).err
    assert "branches create" in run("create", tmp_path / "u", "-C", "id INT", "--branch", "dev", code=2).err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answer(question: str, err: bool) -> bool:
        asked.append(question)
        return len(asked) > 1

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(typer, "confirm", answer)
    with pytest.raises(Refused, match="nothing was changed"):
        results.confirm("tag \x1b[31m will be deleted", False)
    results.confirm("tag a will be deleted", False)
    results.confirm("tag b will be deleted", True)
    assert asked == ["tag \\x1b[31m will be deleted. Continue?", "tag a will be deleted. Continue?"]


def test_names_do_not_steer_the_terminal(run: Run, tmp_path: Path) -> None:
    table = tmp_path / "t"
    run("create", table, "-C", "id INT NOT NULL", "--primary-key", "id", "--bucket", 1)
    run("write", table, "-", "--format", "json", "--engine", "local", stdin='{"id":1}\n')
    evil = "t\x1b[31mx"
    for command in (["tags", "create"], ["tags", "show"], ["tags", "rm"], ["branches", "create"], ["branches", "rm"]):
        answer = run(*command, table, evil, *(["-y"] if "rm" in command else []))
        assert "\x1b" not in answer.out + answer.err and ("\\x1b" in answer.out or command == ["tags", "rm"])
    answer = run("consumers", "reset", table, evil)
    assert "\x1b" not in answer.out and "\x1b" not in run("consumers", "rm", table, evil, code=7).err


def test_commands_print_through_one_module() -> None:
    allowed = {
        "app.py",
        "results.py",
        "text_view.py",
        "output.py",
        "service_log.py",
        "browse_commands.py",  # `watch` prints each look as it comes
        "stage_watch.py",  # a line for each checkpoint as it comes
        "first_word.py",  # completes words for the shell, before anything else is imported
        "demo_command.py",  # shows commands and answers as a shell would
    }
    folder = Path(results.__file__).parent
    printing = {path.name for path in folder.glob("*.py") if re.search(r"(?<![\w.])print\(|typer\.echo\(", path.read_text())}
    assert printing <= allowed
