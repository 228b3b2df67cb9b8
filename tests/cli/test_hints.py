"""Commands and options that messages, hints and help name are there: a hint must work when it is pasted."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import paimon_cli
from tests.cli.test_documented_commands import COMMANDS

SOURCES = sorted(Path(paimon_cli.__file__).parent.rglob("*.py"))
OTHERS = {"--help", "--version", "--add-modules", "--glob", "--schedule"}
"""Options of every command, of the program, of the JVM, of hadoop and of the script that replays schedules."""
WORD = "X"
"""Stands for what a message fills in."""
PROGRAM = re.compile(r"(?:^ *|`|run |first: |again: |hint: )paimon-cli ([a-z][^`\n;]*)", re.MULTILINE)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
FOREIGN = re.compile(r"pip install|java|JVM")


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


COMMAND_TEXTS = sorted({(str(path.name), text) for path in SOURCES for text in texts(path) if PROGRAM.search(text)})


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
