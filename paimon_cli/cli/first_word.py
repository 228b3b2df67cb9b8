"""Completes the name of a command without importing the commands, which took two thirds of the time of a first Tab.

Their summaries are read from the sources of their modules: the help of a group, or the docstring of a command.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec

from typer.core import TyperCommand

from paimon_cli.cli.command_groups import HIDDEN_NAMES, LOCATIONS
from paimon_cli.cli.completion import Choice, without_markup
from paimon_cli.cli.terminal import COMPLETION_VARIABLE

_ASKS = {COMPLETION_VARIABLE: "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
"""How the scripts of all shells ask for choices."""
_LINE = "_TYPER_COMPLETE_ARGS"


def answer(environment: Mapping[str, str]) -> bool:
    """Print the choices if a shell asks for the first word after the name of the program; returns whether it does.

    Another word, options before it, and modules without sources are left to Typer.
    """
    words = environment.get(_LINE, "").split(" ")
    if len(words) != 2 or words[1].startswith(("-", "'", '"', "\\")) or _ASKS.items() - environment.items():
        return False
    try:
        found = [choice for choice in choices() if choice.value.startswith(words[1])]
    except LookupError:
        return False
    for choice in found:
        print(f"{choice.value}\t{without_markup(choice.help)}")
    return bool(found)


def choices() -> Iterator[Choice]:
    """All commands with their short help. Raises `LookupError` if the source of one does not say what it is."""
    for name, (location, _) in LOCATIONS.items():
        if name not in HIDDEN_NAMES:
            module, _, group = location.partition(".")
            text = _help_of_group(_source(module), group) if group else _help_of_command(_source(module), name)
            yield Choice(name, TyperCommand(name, help=inspect.cleandoc(text)).get_short_help_str())


@cache
def _source(module: str) -> str:
    name = f"paimon_cli.cli.{module}"
    spec = find_spec(name)
    source = None if spec is None else getattr(spec.loader, "get_source", lambda name: None)(name)
    if source is None:
        raise LookupError(name)
    return str(source)


def _help_of_group(source: str, group: str) -> str:
    found = re.search(rf'^{group} = group\(\s*"([^"\\]*)"[,)]', source, re.MULTILINE)
    if found is None:
        raise LookupError(group)
    return found[1]


def _help_of_command(source: str, name: str) -> str:
    found = re.search(rf'^@command\(commands, "{name}".*?^    """([^\\]*?)"""', source, re.MULTILINE | re.DOTALL)
    if found is None:
        raise LookupError(name)
    return found[1]
