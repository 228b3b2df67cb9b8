"""Values that need no conversion are taken without Typer's validation, and are what it would have made of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import typer
from typer.main import get_command

from paimon_cli.cli.app import app
from paimon_cli.cli.command_groups import COMMAND_LINE_ERROR, LOCATIONS, CommandsOnDemand, _processed

VALUES: tuple[Any, ...] = (None, "", "x", "5", "text", "json", "auto", "true", "1.5", "-1", True, False, 5, 0, -1, 1.5, (), [], ("a",), ["a", "b"])
VALUES += (("1", "2"), (1, 2), "a,b", b"x", ("text",), (None,))


def parameters_of(command: Any) -> Iterator[Any]:
    yield from command.params
    for inner in getattr(command, "commands", {}).values():
        yield from parameters_of(inner)


def outcome(process: Any, parameter: Any, value: Any, context: Any) -> Any:
    """What comes out, or how it is refused."""
    try:
        result = process(parameter, context, value)
    except COMMAND_LINE_ERROR as error:
        return type(error).__name__, error.format_message()
    return type(result), result


def test_every_parameter_takes_values_as_typer_would() -> None:
    commands = CommandsOnDemand()
    context = typer.Context(get_command(app))
    found: dict[str, Any] = {}
    for name in LOCATIONS:
        for parameter in parameters_of(commands[name]):
            descriptor = parameter.type_descriptor
            info = descriptor.parameter_info
            shape = (parameter.multiple, parameter.nargs, parameter.required)
            found.setdefault(f"{descriptor.annotation} {info.min} {info.max} {info.parser} {shape}", parameter)
    assert len(found) > 20
    for parameter in found.values():
        parameter.callback = None
        choices = parameter.type_descriptor.choices or ()
        for value in (*VALUES, parameter.default if not callable(parameter.default) else None, *choices):
            with contextlib.suppress(TypeError, AttributeError):  # a value that no parser hands over, refused by a library
                expected = outcome(type(parameter).process_value, parameter, value, context)
                assert outcome(_processed, parameter, value, context) == expected, (parameter.name, value)
