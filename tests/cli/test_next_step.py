"""The command that the hint of an error names, from the command that failed."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from paimon_cli.cli.next_step import AGAIN, CHECK_PLACE, LIMITS, command_path, next_step
from paimon_cli.errors import (
    BadInput,
    CommitUnknown,
    DamagedFile,
    FilesConflict,
    NotFound,
    NotSupported,
    PaimonError,
    StorageUnavailable,
    UsageError,
)


def failed(command: str, params: Mapping[str, Any], above: Any = None) -> Any:
    """The context of a command, as Click has it."""
    return SimpleNamespace(
        command_path=f"paimon-cli {command}", info_name=command.rpartition(" ")[2], params=params, parent=above
    )


@pytest.mark.parametrize(("table", "shown"), [("t", "t"), ("my db/t", "'my db/t'"), ("{NAME}/{b}", "'{NAME}/{b}'")])
def test_the_path_of_a_command_names_what_was_given_to_the_groups_above(table: str, shown: str) -> None:
    top = failed("", {"warehouse": None, "table": "of another group"})
    group = failed("alter {TABLE}", {"table": table, "dry_run": True}, top)
    nested = failed("alter {TABLE} column {NAME}", {"name": "a", "table": "x"}, failed("", {"name": "n"}, group))
    assert command_path(nested) == f"paimon-cli alter {shown} column n", "its own arguments are not part of its path"
    assert command_path(failed("alter {TABLE} column {NEW-NAME}", {}, group)) == f"paimon-cli alter {shown} column NEW-NAME"


LOOK, DOCTOR, LIST = "paimon-cli verify t --all-snapshots", "paimon-cli doctor t", "paimon-cli snapshots ls t"


@pytest.mark.parametrize(
    ("error", "command", "hint"),
    [
        *((kind, "compact", "paimon-cli compact --help") for kind in (UsageError, BadInput, NotFound)),
        (FilesConflict, "compact", AGAIN),
        (NotSupported, "compact", LIMITS),
        (StorageUnavailable, "create", CHECK_PLACE),
        (StorageUnavailable, "compact", DOCTOR),
        (StorageUnavailable, "doctor", ""),
        (CommitUnknown, "write", LIST),
        (CommitUnknown, "snapshots ls", ""),
        (DamagedFile, "read", LOOK),
        (DamagedFile, "verify", ""),
        (DamagedFile, "repair", ""),
        (PaimonError, "read", ""),
    ],
)
def test_the_hint_of_an_error_without_one(error: type[PaimonError], command: str, hint: str) -> None:
    found = next_step(error("it failed"), failed(command, {"table": "t"}))
    assert found == hint or (hint == LOOK and found.endswith(hint))


@pytest.mark.parametrize(
    ("params", "shown"),
    [
        ({}, None),
        ({"table": None, "tables": ()}, None),
        ({"tables": ("a", "b")}, None),
        ({"tables": ["a b"]}, "'a b'"),
        ({"table": "t", "tables": ["a", "b"]}, "t"),
        ({"table": "t", "branch": "dev", "warehouse": "w h"}, "t --warehouse 'w h' --branch dev"),
        ({"table": "t", "profile": "prod"}, "t --profile prod"),
        ({"table": "t", "option": ["metastore=jdbc", "bucket=3"]}, "t --option metastore=jdbc --option bucket=3"),
    ],
)
def test_the_hint_names_the_only_table_as_it_was_found(params: dict[str, Any], shown: str | None) -> None:
    found = next_step(StorageUnavailable("it is away"), failed("compact", params))
    assert found == ("" if shown is None else f"paimon-cli doctor {shown}")
    if shown is not None and "bucket=3" in shown:
        made = next_step(CommitUnknown("it may be there"), failed("create", params))
        assert made == "paimon-cli snapshots ls t --option metastore=jdbc", "options of a new table are stored in it"
