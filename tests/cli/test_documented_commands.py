"""Every command and option explains itself, and what users rely on is there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from paimon_cli.cli.app import app

PROMISED = """
create write update delete read compact rescale version
stage show|stage commit|stage abort
snapshots ls|snapshots show|manifests ls|manifests show|files ls|files show|lsm show|partitions ls|buckets ls
schemas ls|schemas show|options ls|tags ls|tags show
"""


def commands(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            assert command.help, f"{path}{name} has no help"
            yield from commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


COMMANDS = dict(commands(get_command(app)))


def test_the_promised_commands_are_there() -> None:
    first, *others = PROMISED.strip().splitlines()
    promised = {*first.split(), *(name for line in others for name in line.split("|"))}
    assert promised <= set(COMMANDS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_and_parameter_has_help(name: str) -> None:
    command = COMMANDS[name]
    assert command.help and command.help.strip().splitlines()[0].endswith(".")
    for parameter in command.params:
        assert parameter.help, f"{name}: {parameter.name} has no help"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_takes_the_common_options(name: str) -> None:
    options = {spelling for parameter in COMMANDS[name].params for spelling in parameter.opts}
    assert {"-o", "--output", "--warehouse", "--option", "--trace"} <= options


def test_old_verbs_are_hidden_aliases() -> None:
    assert COMMANDS["snapshots list"].hidden and COMMANDS["snapshots get"].hidden
    assert not COMMANDS["snapshots ls"].hidden
