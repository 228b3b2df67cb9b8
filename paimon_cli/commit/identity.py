"""Commit user and identifier, which together recognise a commit that is repeated (FORMAT.md, sections 10.2 and 10.6)."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_cli.history.table_context import TableContext

BATCH_IDENTIFIER = 2**63 - 1
"""The identifier of commits that are never repeated (Java BatchWriteBuilder.COMMIT_IDENTIFIER)."""


@dataclass(frozen=True)
class CommitIdentity:
    """Identifiers of one user must rise from commit to commit; repeating one is recognised and does nothing.

    `newer_than`: no snapshot up to this one can hold the commit. `assume_new`: where the history no longer shows whether the
    commit was made before, assume that it was not.
    """

    user: str
    identifier: int = BATCH_IDENTIFIER
    newer_than: int = 0
    assume_new: bool = False

    @property
    def is_repeatable(self) -> bool:
        return self.identifier != BATCH_IDENTIFIER


def fresh_identity(context: TableContext) -> CommitIdentity:
    """A unique user, with the prefix of `commit.user-prefix` if the table has one."""
    prefix = context.options.commit_user_prefix
    own = context.names.uuid()
    return CommitIdentity(f"{prefix}_{own}" if prefix else own)
