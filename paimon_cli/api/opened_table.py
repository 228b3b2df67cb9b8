"""What all pages of `Table` share: its context and runtime, and the checks before a call changes something."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from paimon_cli.api.arguments import checks_arguments
from paimon_cli.api.runtime import Runtime
from paimon_cli.errors import PaimonError, UsageError
from paimon_cli.options.option_catalog import Operation
from paimon_cli.options.table_options import NAMES_OF_PARTITIONS, is_of_files
from paimon_cli.requests.fields import Point, version_of

if TYPE_CHECKING:
    from paimon_cli.history.table_context import TableContext
    from paimon_cli.metadata.snapshot import Snapshot

Self = TypeVar("Self", bound="OpenedTable")
_PLUMBING = frozenset({"at", "check_call", "check_commit", "context", "orphan_rows", "supported", "warn_of_other_compactors"})
"""What only other modules of paimon_cli need of a table."""


@checks_arguments
class OpenedTable:
    """The base of all parts of `Table`: the table, its context, and the checks before a commit.

    A table keeps the schema with which it was opened, until `refresh` is called. Snapshots are looked up by each call.
    """

    def __init__(self, context: TableContext | str | os.PathLike[str], runtime: Runtime | None = None) -> None:
        if isinstance(context, (str, os.PathLike)):
            name, owner = os.fspath(context), type(self).__name__
            raise UsageError(f"{owner}({name!r}) opens no table", hint=f"{owner}.open({name!r})")
        self.context = context
        """The opened table, which jobs get. Internal to paimon_cli."""
        self.runtime = runtime or Runtime()
        context.cache.warn = self.runtime.warn

    def __repr__(self) -> str:
        return f"Table({self.name!r})"

    def __dir__(self) -> list[str]:
        """What is for callers: a notebook proposes no plumbing."""
        return [name for name in super().__dir__() if name not in _PLUMBING]

    @property
    def name(self) -> str:
        """The table as it was named when it was opened, without secrets."""
        return self.context.name

    @property
    def url(self) -> str:
        """The normalised URL of the root directory."""
        return self.context.url

    @property
    def branch(self) -> str:
        """The branch that was opened, `main` by default."""
        return self.context.branch

    @property
    def supported(self) -> TableContext:
        """The context of a table with a readable schema. Raises `NotSupported` for an option that this version cannot honour, and
        `UsageError` for one of the call that says otherwise than the table how its files are to be read: rows would be wrong.
        With other names of partitions no file is found, so a read may have them, for rows from before a change of these.
        """
        self.context.check(Operation.OPEN)
        if any(is_of_files(key) for key in self.context.given if key not in NAMES_OF_PARTITIONS):
            self._check_options_of_call((), changes=False)
        return self.context

    def refresh(self) -> None:
        """Use the latest schema from now on, in case another process has changed it."""
        self.context = self.context.reopened()

    def with_options(self: Self, options: Mapping[str, str]) -> Self:
        """The same table with other table options, which apply only to calls on the result."""
        return type(self)(self.context.with_options(options), self.runtime)

    def only_on(self: Self, snapshot_id: int | None) -> Self:
        """The same table for a change that was decided at this snapshot (None: before the first one).

        The next write, update, delete or merge on the result raises `DataConflict` if any other commit was made since then.
        """
        seen = self.context.snapshots.seen()  # a rollback may give its number to another commit
        known = seen if seen is not None and seen.id == snapshot_id else snapshot_id or 0
        return type(self)(replace(self.context, only_on=known), self.runtime)

    def _warn_of_damage(self, damage: PaimonError) -> None:
        """Warn of a file that cannot be read, which a listing leaves out."""
        self.runtime.warn(f"{damage.message}; left out; {damage.hint or self.context.layout.if_damaged}")

    def _warn_of_buckets(self, *, in_rows: bool = False) -> None:
        """Warn of what no compaction mends: partitions with a wrong number of buckets, and lost schemas of files.

        `in_rows`: the rows of buckets name the counts already.
        """
        from paimon_cli.inspect.findings.examined_table import ExaminedTable
        from paimon_cli.inspect.findings.finding import ERROR, METADATA, Code, Topic
        from paimon_cli.inspect.findings.runner import findings_of

        table = ExaminedTable(self.supported, self.context.layout.argument)
        codes = (Code.UNREADABLE,) if in_rows else (Code.MIXED_COUNTS, Code.OTHER_COUNT, Code.UNREADABLE)
        for finding in findings_of(table, ERROR, (Topic.BUCKETS,), (METADATA,)):
            if finding.code in codes:
                self.runtime.warn(f"{finding.message}; run: {finding.command}")

    def check_call(self) -> None:
        """Raise `UsageError` for a read-only view, and for options that would damage the table if set for one call only.

        Jobs that change the table call it before they plan.
        """
        opened = self.context
        if opened.place.read_optimized:
            raise UsageError(f"{opened.name} is a view", "views are read-only", "leave out $ro")
        if not opened.given:
            return
        counting: Collection[str] = ()
        if not opened.given.keys().isdisjoint(NAMES_OF_PARTITIONS):
            from paimon_cli.history.moved_partitions import PastNames

            counting = PastNames.of(opened).count
        self._check_options_of_call(counting)

    def _check_options_of_call(self, counting: Collection[str], changes: bool = True) -> None:
        from paimon_cli.catalog.option_values import check_options_of_call

        opened = self.context
        latest, has_snapshots = opened.schemas.latest(), opened.snapshots.latest_id() is not None
        merges = changes and bool(latest.primary_keys)
        check_options_of_call(latest, opened.given, has_snapshots, counting, merges=merges, changes=changes)

    def check_commit(self) -> None:
        """Check the call and the storage, once before the first commit. Raises `Refused` if no safe commit is possible.

        The newest snapshot is fetched meanwhile, for the plan of the same call only.
        """
        from paimon_cli.storage.guarded_storage import check_commits

        opened = self.context
        opened.snapshots.forget_fetched()
        call, checked = frozenset(opened.given.items()), opened.cache.checked
        if checked.get(call) is opened.storage:
            return
        self.check_call()
        opened.snapshots.fetch_latest()
        if warning := check_commits(opened.storage):
            self.runtime.warn(warning)
        checked[call] = opened.storage

    def _snapshot(self, version: Point | None) -> Snapshot | None:
        """The snapshot that a version names, or the latest; None if the table has none. Raises `NotFound`, `UsageError`."""
        named = version_of(version)
        if not isinstance(named, str):
            return self.context.snapshot(named)
        from paimon_cli.history.points_in_time import named_snapshot

        return named_snapshot(self.context, named)

    def _snapshot_id(self, version: Point | None) -> int | None:
        """The id of the snapshot that a version names; None if it names none. Only texts are looked up."""
        named = version_of(version)
        if not isinstance(named, str):
            return named
        found = self._snapshot(named)
        return None if found is None else found.id

    def _expect_existing(self) -> None:
        """Raise `NotFound` if the table was dropped after it was opened: it would look like a healthy one without snapshots."""
        if self.context.snapshots.latest_id() is None:
            self.context.expect_not_dropped()
