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
"""What somebody meant who typed an option that a command does not have."""
SEVERAL_WORDS = "unexpected extra argument"
_TYPE_MESSAGES = (
    (re.compile(r"Input should be a valid integer.*"), "it takes a whole number"),
    (re.compile(r"Input should be a valid number.*"), "it takes a number"),
    (re.compile(r"Input should be (greater|less) than( or equal to)? (\S+)"), r"it takes a number \1 than\2 \3"),
    (re.compile(r"Value error, ('.*') is not one of (.*?)\.?$"), r"\1 is none of \2"),
)
COMMAND_LINE_ERROR: type[BaseException] = typer.BadParameter.__mro__[1]
"""What Typer raises for any wrong command line; it exports only this leaf of the family."""


def report_failure(error: Exception, arguments: Sequence[str]) -> int:
    """Print on stderr, as JSON if the command line asks for it, with a traceback if it asks for that; the exit code."""
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
    """On stderr, without the credentials that a URL may carry: the text may come from any library."""
    with contextlib.suppress(OSError):  # nobody can be told, then; the exit code still can
        print(without_user_info(text), file=sys.stderr)


def _as_shown(error: Exception) -> PaimonError:
    if isinstance(error, PaimonError):
        return error
    if isinstance(error, COMMAND_LINE_ERROR):
        return _command_line_error(error)
    if isinstance(error, OSError) and error.strerror:
        where = error.filename or "the output, or a temporary file"
        return StorageUnavailable(
            f"cannot write or read {where}", error.strerror, "a commit that it made stands: see `snapshots ls`"
        )
    what = f"{type(error).__name__}: {error}".split("\n")[0]
    return PaimonError(what, "this is a bug of paimon-cli", "--trace for details")


def _command_line_error(error: Any) -> UsageError:
    command = error.ctx.command_path if error.ctx is not None else "paimon-cli"
    message = _plain(error.format_message().replace("\n", " "))
    if SEVERAL_WORDS in message:
        return UsageError(message, "what holds blanks is one argument only in quotes, such as 'price INT'", f"{command} --help")
    meant = next((hint for (name, flag), hint in MEANT.items() if command.endswith(name) and message.endswith(f": {flag}")), "")
    return UsageError(message, hint=meant or f"{command} --help")


def _plain(message: str) -> str:
    """The message without the words of the library that checks types."""
    for pattern, words in _TYPE_MESSAGES:
        message = pattern.sub(words, message)
    return message


def _wants_json(arguments: Sequence[str]) -> bool:
    """Whether `-o json` stands on the command line, parsed or not: a wrong command line fails before parsing is done."""
    text = f" {' '.join(arguments)} "
    return any(
        f" {spelling} " in text for spelling in ("-o json", "-ojson", "--output json", "--output=json", "--output-format json")
    )
