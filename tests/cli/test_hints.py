"""Commands and options that messages, hints and help name are there: a hint must work when it is pasted."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import paimon_cli
from paimon_cli.cli.app import app
from tests.cli.test_documented_commands import COMMANDS

SOURCES = sorted(Path(paimon_cli.__file__).parent.rglob("*.py"))
OTHERS = {"--help", "--version", "--install-completion", "--show-completion", "--add-modules", "--glob", "--schedule", "--json"}
"""Options of every command, of the program, of the JVM, of hadoop, of the script that replays schedules, of other programs."""
OPTIONS_FILLED_IN = {"paimon-cli partitions mark-done X X"}
"""Commands whose last part stands for options."""
WORD = "X"
"""Stands for what a message fills in."""
PROGRAM = re.compile(r"(?:^ *|`|run |first: |again: |hint: )paimon-cli ([a-z][^`\n;]*)", re.MULTILINE)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
FOREIGN = re.compile(r"pip install|java|JVM|var\(--|--accent:|complete --command")
"""Texts of other programs: pip, the JVM, style sheets, the completion of a shell."""


def texts(path: Path) -> Iterator[str]:
    """All text of a module, with `X` for what is filled in."""
    tree = ast.parse(path.read_text())
    inside = {
        id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node) if part is not node
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else WORD for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.value


def options_of(name: str) -> set[str]:
    return {spelling for parameter in COMMANDS[name].params for spelling in (*parameter.opts, *parameter.secondary_opts)}


def named_commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Command and rest of each `paimon-cli ...` in a text; the command is '' if there is none of that name."""
    for found in PROGRAM.finditer(text):
        words = found[1].split()
        if words[0] == "alter" and len(words) > 2 and WORD not in words[2]:
            words = ["alter", words[2], words[1], *words[3:]]
        names = [name for name in (" ".join(words[:2]), words[0]) if name in COMMANDS]
        yield (names[0] if names else "", words)


COMMAND_TEXTS = sorted(
    {
        (str(path.name), text)
        for path in SOURCES
        if "paimon-cli " in path.read_text()
        for text in texts(path)
        if "paimon-cli " in text and PROGRAM.search(text)
    }
)


def test_there_are_commands_in_the_texts() -> None:
    assert len(COMMAND_TEXTS) > 50


@pytest.mark.parametrize("module, text", COMMAND_TEXTS)
def test_commands_in_texts_are_there(module: str, text: str) -> None:
    for name, words in named_commands(text):
        if (
            WORD in words[:1]
            or words[0] == "alter"
            or (not name and len(words) == 1 and any(known.startswith(f"{words[0]} ") for known in COMMANDS))
        ):
            continue
        assert name, f"{module}: there is no command {' '.join(words[:3])}"
        given = {word.partition("=")[0].rstrip(".,:)") for word in words if word.startswith("-") and word not in ("-", "--")}
        unknown = {option for option in given if re.fullmatch(r"--?[a-z-]+", option)} - options_of(name) - OTHERS
        assert not unknown, f"{module}: {name} has no {unknown} ({text})"


def _leaves(group: Any) -> Iterator[Any]:
    for command in group.commands.values():
        yield from _leaves(command) if hasattr(command, "commands") else [command]


@pytest.fixture(scope="module")
def parse() -> Callable[[list[str]], int]:
    """Parses a command line as the program would, and stops before the command runs; gives the exit code."""
    root = get_command(app)
    for leaf in _leaves(root):
        leaf.callback = lambda **values: None

    def parsed(words: list[str]) -> int:
        with pytest.raises(SystemExit) as end:
            root.main(words)
        return int(end.value.code or 0)

    return parsed


ALONE = sorted({(module, line) for module, text in COMMAND_TEXTS for line in text.split("\n") if line.startswith("paimon-cli ")})


@pytest.mark.parametrize("module, line", ALONE)
def test_a_hint_that_is_a_command_is_a_whole_one(module: str, line: str, parse: Callable[[list[str]], int]) -> None:
    """What the message fills in is a number here, which names a table and counts as one."""
    words = shlex.split(line.partition("    #")[0].replace(WORD, "7").removeprefix("paimon-cli "))
    if line in OPTIONS_FILLED_IN or words[0] == "7" or words[:3] == ["alter", "7", "7"]:
        return  # the command itself is filled in
    assert parse(words) == 0


def test_options_in_texts_are_there() -> None:
    known = {option for name in COMMANDS for option in options_of(name)} | OTHERS
    wrong = {
        (path.name, option)
        for path in SOURCES
        for text in texts(path)
        if not FOREIGN.search(text)
        for option in OPTION.findall(text)
        if option not in known
    }
    assert not wrong
