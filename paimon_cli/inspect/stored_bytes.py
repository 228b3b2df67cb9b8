"""What a table stores, by what keeps it: the rows of `cost`, and of the page of `report`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from paimon_cli.errors import PaimonError
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.owners import BRANCH, LIVE, TAG, Group, OwnedFiles, Owner, find_owners
from paimon_cli.maintain.owners import SNAPSHOTS as OLDER_SNAPSHOTS
from paimon_cli.storage.redaction import shown_name

SHOWN_COMBINATIONS = 20
"""The most sets of several owners that are shown one by one, the largest first."""
SEVERAL = "several owners"


@dataclass(frozen=True)
class CostRow:
    """Files of a table with the same owners, in bytes. The rows of a table add up to all files below its directory.

    `owner`: `live` (the latest snapshot, with schemas, hints and records), `snapshots before N` (older ones alone), `tag NAME`,
    `branch NAME`, `changelogs`, `consumer NAME`, what several of these keep (`snapshots before N, tag NAME`), `orphans`,
    `uncommitted` (in no version, but younger than a day: a job may be writing them), or `other` (no part of a Paimon table).
    A dropped table has one row, `trash`.
    """

    table: str
    owner: str
    files: int
    bytes: int


@dataclass(frozen=True)
class StoredBytes:
    """The rows of a table; or, in `problem`, why nothing is known: a version is damaged, so what it keeps cannot be told."""

    rows: tuple[CostRow, ...] = ()
    problem: str = ""

    @classmethod
    def of(cls, context: TableContext, name: str) -> StoredBytes:
        """List the files of the table, and read its versions."""
        try:
            return cls(tuple(rows_by_owner(name, find_owners(context))))
        except PaimonError as error:
            return cls(problem=error.message)


def bytes_by_kind(owned: OwnedFiles) -> dict[str, int]:
    """The bytes by the kind of what keeps them, such as `tag`, for monitoring: as many entries as there are kinds, at most.

    `SEVERAL` for what more than one owner keeps.
    """
    found: dict[str, int] = {}
    for group in owned.groups:
        kind = next(iter(group.owners)).kind if len(group.owners) == 1 else SEVERAL
        found[kind] = found.get(kind, 0) + group.size
    return found


def rows_by_owner(name: str, owned: OwnedFiles) -> Iterator[CostRow]:
    """The live files first, then the other groups by size."""
    groups = sorted(owned.groups, key=lambda group: (Owner(LIVE) not in group.owners, -group.size, _text(group, owned)))
    combined = [group for group in groups if len(group.owners) > 1][SHOWN_COMBINATIONS:]
    for group in groups:
        if group not in combined:
            yield CostRow(name, _text(group, owned), group.files, group.size)
    if combined:
        yield CostRow(name, SEVERAL, sum(group.files for group in combined), sum(group.size for group in combined))


_ORDER = {kind: number for number, kind in enumerate((LIVE, OLDER_SNAPSHOTS, TAG, BRANCH))}


def _text(group: Group, owned: OwnedFiles) -> str:
    def text(owner: Owner) -> str:
        if owner.kind == OLDER_SNAPSHOTS:
            return f"snapshots before {owned.latest}" if owned.latest else owner.kind
        return f"{owner.kind} {shown_name(owner.name)}" if owner.name else owner.kind

    return ", ".join(map(text, sorted(group.owners, key=lambda owner: (_ORDER.get(owner.kind, len(_ORDER)), owner.name))))
