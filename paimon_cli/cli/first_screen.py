"""What `paimon-cli --help` shows first: the commands to start with, those that keep a table in order, and those that look inside.

The list of all commands is longer than a screen, so that a new user finds nothing in it; `--help --all` shows it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import typer

FIRST_SCREEN = {
    "Start here": {
        "demo": "a short tour: write, read, compact, and what went on inside",
        "create": "create a table, from columns or from a file",
        "write": "write files, standard input or another table, in one commit",
        "read": "print the rows, merged by key, now or as they were",
        "ls": "list the tables of a warehouse or directory",
        "describe": "a table on one screen: columns, keys, options, contents",
        "health": "is it all right, and what should I do? --fix does it",
        "compact": "merge sorted runs, so that reads are fast again",
        "sql": "SQL over tables: queries, changes, a shell",
    },
    "Keep": {
        "maintain": "compact what is due, expire, remove orphans, check",
        "expire": "remove old snapshots, and the files that only they need",
        "orphans": "find and remove files that no snapshot refers to",
        "rollback": "go back to an older snapshot",
        "tags": "name snapshots, which then do not expire",
        "branches": "separate lines of snapshots",
        "verify": "check metadata, files and rows for damage",
        "repair": "mend a damaged table",
        "backup": "copy tables, with their history, to another place",
        "restore": "make a table of a backup",
        "undrop": "bring back a table that was dropped",
    },
    "Look inside": {
        "compare": "what changed? Rows or files of two versions or tables",
        "snapshots ls": "what each commit did",
        "files ls": "data files with levels, keys and sequence numbers",
        "lsm show": "sorted runs of each bucket, and the next compaction",
        "buckets ls": "buckets by size, and what would improve them",
        "report": "the state and history of a table as a page with charts",
        "doctor": "is this machine, and the store of a table, fit for work?",
    },
}
"""For each heading the commands, with a few words about each. One that this version does not have is left out."""
FOOTER = (
    ("help COMMAND", "the options of a command, with examples"),
    ("--help --all", "all commands"),
)
HELP, ALL_COMMANDS = "help", "--all"
SHOWS_ALL = "paimon-cli.all"
"""Key in the `meta` of the outermost context: whether its help shows all commands."""


def shown_first(known: Callable[[str], bool]) -> dict[str, dict[str, str]]:
    """The list of the first screen; `known`: whether there is a command with this name."""
    return {
        heading: {name: text for name, text in entries.items() if known(name.split()[0])}
        for heading, entries in FIRST_SCREEN.items()
    }


def screen(known: Callable[[str], bool]) -> Iterator[str]:
    """The lines of the first screen: at most 40, of at most 80 characters."""
    yield "Usage: paimon-cli COMMAND ..."
    yield "Create, write, read, compact and inspect Apache Paimon tables."
    for heading, entries in shown_first(known).items():
        yield ""
        yield _bold(heading)
        for name, text in entries.items():
            yield f"  {name:<14}{text}"
    yield ""
    for words, text in FOOTER:
        yield f"paimon-cli {words:<14}{text}"


def _bold(heading: str) -> str:
    return typer.style(heading, bold=True) if sys.stdout.isatty() else heading


def as_option(group: Any, ctx: Any, words: Sequence[str]) -> list[str]:
    """`help alter set` as `alter TABLE set --help`, and `help --all` as `--help --all`; other words as they are.

    A command gets no flags: one without its value would take `--help` for it, and the command would run; so it would after `--`.
    """
    if not words or words[0] != HELP:
        return list(words)
    named = [word for word in words[1:] if not word.startswith("-")]
    flags = [word for word in words[1:] if word.startswith("-") and word not in ("-h", "--help")]
    if ctx.resilient_parsing:  # completion goes on as if `help` were not there
        return named
    command = group.get_command(ctx, named[0]) if named else None
    arguments = [parameter for parameter in getattr(command, "params", ()) if parameter.param_type_name == "argument"]
    if len(named) > 1 and hasattr(command, "commands") and arguments:
        named.insert(1, "TABLE")
    if flags and not named:
        return ["--help", *flags]
    return [*named, "--help"]
