"""What a command says to people. All of it passes here, so that no name or value of a table can steer the terminal."""

from __future__ import annotations

import sys

import typer

from paimon_cli.cli.value_kinds import printable
from paimon_cli.errors import Refused

NOTHING_CHANGED = "nothing was changed"


def say(text: str) -> None:
    """The answer of the command, on stdout."""
    print(_safe(text))


def note(text: str) -> None:
    """Something beside the answer, on stderr."""
    print(_safe(text), file=sys.stderr)


def warn(text: str) -> None:
    note(f"warning: {text}")


def confirm(consequence: str, yes: bool) -> None:
    """Before anything is deleted or history rewritten: asked on a terminal, answered by --yes elsewhere.

    `Refused` (exit 7) if nobody is there to ask, or the answer is no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        hint = "add --yes to do it without a question, or --dry-run to see what would be done"
        raise Refused(f"not confirmed, {NOTHING_CHANGED}", consequence, hint)
    if not typer.confirm(f"{_safe(consequence)}. Go on?", err=True):
        raise Refused(f"not confirmed, {NOTHING_CHANGED}")


def _safe(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))
