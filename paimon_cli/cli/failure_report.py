"""A failure as the user sees it: three lines or one JSON object on stderr, and the exit code."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import typer

from paimon_cli.cli.trace_output import is_traced
from paimon_cli.cli.value_kinds import printable
from paimon_cli.errors import PaimonError, StorageUnavailable, UsageError
from paimon_cli.storage.redaction import without_user_info

MEANT = {(" read", "-n"): "-l N shows at most N rows (-n is --dry-run elsewhere)"}
"""Hints for options that a command does not have, by the option typed."""
SEVERAL_WORDS = "unexpected extra argument"
_TYPE_MESSAGES = (
    (re.compile(r"Input should be a valid integer.*"), "a whole number is expected"),
    (re.compile(r"Input should be a valid number.*"), "a number is expected"),
    (re.compile(r"Input should be (greater|less) than( or equal to)? (\S+)"), r"a number \1 than\2 \3 is expected"),
    (re.compile(r"Value error, ('.*') is not one of (.*?)\.?$"), r"\1 is not one of \2"),
)
COMMAND_LINE_ERROR: type[BaseException] = typer.BadParameter.__mro__[1]
"""The base class of Typer's command line errors, which Typer itself does not export."""


def report_failure(error: Exception, arguments: Sequence[str]) -> int:
    """Print the failure on stderr, as JSON or with a traceback if the command line asks for that; return the exit code."""
    if is_traced(arguments):
        _print("".join(traceback.format_exception(error)).rstrip())
    shown = _as_shown(error)
    if _wants_json(arguments):
        content = {"code": shown.code, "message": str(shown), "hint": shown.hint or None, "details": shown.details}
        _print(json.dumps({"error": content}, ensure_ascii=False, default=str))
    else:
        lines = (f"error: {shown.what}", shown.why, f"hint: {shown.hint}" if shown.hint else "")
        # Values and file names of a table must not steer the terminal.
        _print("\n".join(printable(part) for line in lines if line for part in line.split("\n")))
    return shown.exit_code


def _print(text: str) -> None:
    """Print on stderr without the credentials of URLs: the text may come from any library."""
    with contextlib.suppress(OSError):  # stderr is closed; the exit code remains
        print(without_user_info(text), file=sys.stderr)


def _as_shown(error: Exception) -> PaimonError:
    if isinstance(error, PaimonError):
        return error
    if isinstance(error, COMMAND_LINE_ERROR):
        return _command_line_error(error)
    if isinstance(error, OSError) and error.strerror:
        where = error.filename or "the output, or a temporary file"
        return StorageUnavailable(
            f"cannot write or read {where}", error.strerror, "a commit that the command made is still valid: see `snapshots ls`"
        )
    what = f"{type(error).__name__}: {error}".split("\n")[0]
    return PaimonError(what, "this is a bug of paimon-cli", "--trace for details")


def _command_line_error(error: Any) -> UsageError:
    command = error.ctx.command_path if error.ctx is not None else "paimon-cli"
    message = _plain(error.format_message().replace("\n", " "))
    if SEVERAL_WORDS in message:
        return UsageError(message, "quote arguments that contain blanks, such as 'price INT'", f"{command} --help")
    meant = next((hint for (name, flag), hint in MEANT.items() if command.endswith(name) and message.endswith(f": {flag}")), "")
    return UsageError(message, hint=meant or f"{command} --help")


def _plain(message: str) -> str:
    """The message without the wording of the validation library."""
    for pattern, words in _TYPE_MESSAGES:
        message = pattern.sub(words, message)
    return message


def _wants_json(arguments: Sequence[str]) -> bool:
    """Whether the raw command line holds `-o json`: a wrong command line fails before it is parsed."""
    text = f" {' '.join(arguments)} "
    return any(
        f" {spelling} " in text for spelling in ("-o json", "-ojson", "--output json", "--output=json", "--output-format json")
    )
