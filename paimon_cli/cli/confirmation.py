"""The question before anything is deleted or history rewritten: asked on a terminal, answered by -y elsewhere."""

from __future__ import annotations

import sys

import typer

from paimon_cli.errors import Refused

NOTHING_CHANGED = "nothing was changed"


def confirm(question: str, yes: bool) -> None:
    """Return if it may be done. `Refused` (exit 7) if nobody is there to ask, or the answer is no."""
    if yes:
        return
    if not sys.stdin.isatty():
        hint = "pass -y to do it without a question, -n to see what would be done"
        raise Refused(f"not confirmed, {NOTHING_CHANGED}", question, hint)
    if not typer.confirm(question, err=True):
        raise Refused(f"not confirmed, {NOTHING_CHANGED}")
