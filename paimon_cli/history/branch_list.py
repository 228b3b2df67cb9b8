"""The branches of a table, each a directory with its own history (FORMAT.md, section 1.5; Java FileSystemBranchManager)."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from paimon_cli.errors import NotFound, UsageError
from paimon_cli.history.schema_history import SchemaHistory
from paimon_cli.metadata.file_names import is_plain_name
from paimon_cli.metadata.table_layout import BRANCH_PREFIX, MAIN_BRANCH, TableLayout
from paimon_cli.storage.storage import Storage


@dataclass(frozen=True)
class BranchList:
    """Reads `branch/`; a branch without a schema does not exist, since its making was not finished."""

    storage: Storage
    layout: TableLayout

    def directories(self) -> list[str]:
        """Names of all branches but main, begun ones too: what is in them is protected as soon as it is there."""
        found = self.storage.list_directory(self.layout.branches_directory)
        names = (s.name.removeprefix(BRANCH_PREFIX) for s in found if s.name.startswith(BRANCH_PREFIX))
        return sorted(name for name in names if name)

    def names(self) -> list[str]:
        """Finished branches but main, by name."""
        return [name for name in self.directories() if self.exists(name)]

    def exists(self, name: str) -> bool:
        return bool(SchemaHistory(self.storage, self.layout.of_branch(name)).ids())

    def missing(self, name: str) -> NotFound:
        """The error for a branch that is not there."""
        names = self.names()
        why = f"its branches are {', '.join([MAIN_BRANCH, *names])}" if names else "it has no branches"
        return NotFound(
            f"no branch '{name}' of {self.layout.root}",
            why,
            f"paimon-cli branches ls {shlex.quote(self.layout.root)}",
            branch=name,
        )


def check_branch_name(name: str) -> None:
    """`UsageError` for names that Paimon refuses too: main, blank, or digits only; and for what is no file name."""
    if name == MAIN_BRANCH or name.isdigit() or not is_plain_name(name) or not name.strip() or "$" in name:
        why = f"it must be a file name without $, not all digits, and not {MAIN_BRANCH}"
        raise UsageError(f"'{name}' cannot be the name of a branch", why)
