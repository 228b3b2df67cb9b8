"""The first screen of the help: it fits, it names what exists, and the way to everything else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paimon_cli import Table
from paimon_cli.cli.command_groups import LOCATIONS
from paimon_cli.cli.first_screen import FIRST_SCREEN, screen, shown_first
from tests.cli.calling import Run
from tests.cli.test_documented_commands import COMMANDS
from tests.tables import make_table

START = ["demo", "create", "write", "read", "ls", "describe", "health", "compact", "sql"]


@pytest.mark.parametrize("columns", [80, 100, 140])
@pytest.mark.parametrize("words", ["", "--help", "-h", "help"])
def test_the_help_fits_one_screen(columns: int, words: str, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    answer = run(*words.split())
    lines = answer.out.splitlines()
    assert answer.code == 0 and len(lines) <= 39  # one line is left for the prompt
    assert max(map(len, lines)) <= 80
    names = [match[1] for line in lines if (match := re.fullmatch(r"  (\S+(?: \S+)?) {2,}\S.*", line))]
    assert names[:9] == START and len(names) <= 30


def test_the_screen_still_fits_if_every_command_of_the_list_exists() -> None:
    lines = list(screen(lambda name: True))
    assert len(lines) <= 39 and max(map(len, lines)) <= 80
    assert sum(map(len, FIRST_SCREEN.values())) <= 30


def test_every_command_on_the_screen_exists() -> None:
    for entries in shown_first(LOCATIONS.__contains__).values():
        for name in entries:
            assert name in COMMANDS or any(command.startswith(f"{name} ") for command in COMMANDS), name


@pytest.mark.parametrize("words", ["--help --all", "--all --help", "-h --all", "help --all", "--all"])
def test_all_commands_are_one_option_away(words: str, run: Run) -> None:
    answer = run(*words.split())
    shown = set(re.findall(r"^│ ([a-z-]+) ", answer.out, re.MULTILINE))
    assert answer.code == 0 and set(LOCATIONS) - {"list"} <= shown  # an old name of `ls`
    assert "paimon-cli --help --all" in run("--help").out


@pytest.mark.parametrize(
    ("words", "same_as"),
    [
        ("help compact", "compact --help"),
        ("help snapshots", "snapshots --help"),
        ("help snapshots ls", "snapshots ls --help"),
        ("help alter", "alter --help"),
        ("help alter set", "alter TABLE set --help"),
        ("help compact --help", "compact --help"),
    ],
)
def test_help_is_a_command_as_well(words: str, same_as: str, run: Run) -> None:
    answer, expected = run(*words.split()), run(*same_as.split())
    assert (answer.code, answer.out) == (0, expected.out)


@pytest.mark.parametrize("flags", ["--yes --warehouse", "--yes --fields", "--yes --", "--yes --dry", "--yes"])
def test_help_runs_no_command(flags: str, tmp_path: Path, run: Run) -> None:
    """A flag without its value would take `--help` for it."""
    table = make_table(tmp_path / "t", {"id": "INT NOT NULL"}, ["id"]).url
    assert run("help", "drop", table, *flags.split()).out == run("drop", "--help").out
    assert run("help", "tags", "create", table, *flags.split()).out == run("tags", "create", "--help").out
    assert not [*Table.open(table).tags]


def test_help_names_the_command_that_was_meant(run: Run) -> None:
    answer = run("help", "healht", code=2)
    assert "paimon-cli health --help" in answer.err


@pytest.mark.parametrize(
    "words, hint",
    [
        (("eras", "T", "--yes"), "did you mean 'erase'? paimon-cli erase --help\n"),
        (("vacuum", "T", "--retain-max", "1", "--yes"), "paimon-cli expire --help\n"),
        (("merge", "T", "--yes"), "paimon-cli sql --help\n"),
        (("optimize", "T", "--all"), "paimon-cli compact T --all\n"),
    ],
)
def test_a_line_to_paste_discards_nothing_that_was_not_named(run: Run, words: tuple[str, ...], hint: str) -> None:
    assert run(*words, code=2).err.endswith(f"hint: {hint}")


def test_words_in_a_line_to_paste_are_quoted(run: Run) -> None:
    """The shell would run what a name holds."""
    for group, command in (("tags", "ls"), ("snapshots", "ls"), ("lsm", "show")):
        refused = run(group, "wh/t; touch x", "$(id)", code=2)
        assert f"paimon-cli {group} {command} 'wh/t; touch x' '$(id)'" in refused.err


def test_all_is_no_option_of_other_commands(run: Run) -> None:
    answer = run("--all", "version", code=2)
    assert "--all needs --help" in answer.err
