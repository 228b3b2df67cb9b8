"""Messages for people. All of them pass here, so that no name or value of a table can control the terminal."""

from __future__ import annotations

import sys

import typer

from paimon_cli.cli.value_kinds import printable
from paimon_cli.errors import Refused

NOTHING_CHANGED = "nothing was changed"
UNASKED = "add --yes to go ahead without confirmation, or --dry-run to see what would be done"


def say(text: str) -> None:
    """Print the result of the command on stdout."""
    print(_safe(text))


def note(text: str) -> None:
    """Print a note about the result on stderr."""
    print(_safe(text), file=sys.stderr)


def warn(text: str) -> None:
    note(f"warning: {text}")


def confirm(consequence: str, yes: bool, hint: str = UNASKED) -> None:
    """Ask for confirmation before deleting anything or rewriting history; without a terminal only --yes confirms.

    `Refused` (exit 7) if there is no terminal, or the answer is no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise Refused(f"not confirmed, {NOTHING_CHANGED}", consequence, hint)
    if not typer.confirm(f"{_safe(consequence)}. Continue?", err=True):
        raise Refused(f"not confirmed, {NOTHING_CHANGED}")


def _safe(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))
