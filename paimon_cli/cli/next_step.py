"""The hint of an error that names none: the command that helps further."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from paimon_cli.catalog.metastore.configuration_files import PROFILE
from paimon_cli.catalog.metastore.settings import table_argument
from paimon_cli.errors import (
    BadInput,
    CommitUnknown,
    Conflict,
    DamagedFile,
    NotFound,
    NotSupported,
    PaimonError,
    StorageUnavailable,
    UsageError,
    if_damaged,
)
from paimon_cli.requests.selections import split_pairs
from paimon_cli.storage.catalog_options import split_options

LOOKS_AT_THE_TABLE = ((StorageUnavailable, "doctor"), (CommitUnknown, "snapshots ls"))
"""Commands that show what is wrong with a table, or what became of a commit."""
EXPLAINED_BY_HELP = (UsageError, BadInput, NotFound)
EXAMINES_DAMAGE = ("verify", "repair")
MAKES_A_TABLE = ("create",)
"""Commands whose table does not exist yet, so that nothing can be said about it."""
CHECK_PLACE = "check the address, and that you may write there"
AGAIN = "run the job again: it will start from the latest snapshot"
LIMITS = "what this version does not support is listed in README.md, under Limits"


def command_path(context: Any) -> str:
    """The command as it is typed, such as `paimon-cli alter shop/orders set`; Typer puts names of arguments into braces."""
    given, above = dict[str, str](), context.parent
    while above is not None:
        texts = {name.upper(): shlex.quote(value) for name, value in above.params.items() if isinstance(value, str)}
        given, above = {**texts, **given}, above.parent
    return re.sub(r"\{([^{}]+)\}", lambda named: given.get(named[1], named[1]), str(context.command_path))


def next_step(error: PaimonError, context: Any) -> str:
    """What to do about the error of a command with this Click context; empty if there is nothing to say."""
    if isinstance(error, EXPLAINED_BY_HELP):
        return f"{command_path(context)} --help"
    if isinstance(error, Conflict):
        return AGAIN
    if isinstance(error, NotSupported):
        return LIMITS
    if isinstance(error, StorageUnavailable) and context.info_name in MAKES_A_TABLE:
        return CHECK_PLACE
    table = _only_table(context.params, is_new=context.info_name in MAKES_A_TABLE)
    if table and isinstance(error, DamagedFile) and context.info_name not in EXAMINES_DAMAGE:
        return if_damaged(table)
    commands = (name for kind, name in LOOKS_AT_THE_TABLE if isinstance(error, kind))
    command = f"paimon-cli {next(commands, '')}"
    return f"{command} {table}" if table and command not in ("paimon-cli ", command_path(context)) else ""


def _only_table(parameters: Mapping[str, Any], is_new: bool) -> str | None:
    """The table of the command; None if it has none or several. `is_new`: `--option` is stored in it, not of the call."""
    tables = [parameters["table"]] if parameters.get("table") else parameters.get("tables") or []
    if len(tables) != 1:
        return None
    of_catalog, of_table = split_options(split_pairs(parameters.get("option"), "--option"))
    if parameters.get("profile") is not None:
        of_catalog[PROFILE] = parameters["profile"]
    options = of_catalog if is_new else {**of_catalog, **of_table}
    return table_argument(tables[0], parameters.get("warehouse"), parameters.get("branch"), options)
