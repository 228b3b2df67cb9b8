"""Whether one version was built on another: numbers that follow each other do not prove it after a fast-forward or a rollback."""

from __future__ import annotations

from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import EntryKind, FileIdentity
from paimon_cli.metadata.snapshot import Snapshot


def follows(older: TableContext, before: Snapshot, context: TableContext, snapshot: Snapshot) -> bool:
    """Whether the changes of a snapshot lead from the files of the one before it, in the table `older`, to its own."""
    changes = context.manifests.delta_entries(snapshot)
    added, deleted = ({e.identity for e in changes if (e.kind == EntryKind.ADD) is is_new} for is_new in (True, False))
    return _live(context, snapshot) == (_live(older, before) - deleted) | (added - deleted)


def _live(context: TableContext, snapshot: Snapshot) -> set[FileIdentity]:
    return {identity for piece in context.manifests.live_files(snapshot).pieces for identity in piece.identities()}
