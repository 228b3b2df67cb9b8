"""A table of a catalog. Its metadata is read without loading Arrow; `context` is what planning, reading and writing use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from paimon_cli.catalog.table_location import TableLocation
from paimon_cli.catalog.table_site import recognised_content, similar_table
from paimon_cli.errors import BeingDropped, DamagedFile, NotFound
from paimon_cli.history.table_context import TableHistory
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import MAIN_BRANCH, TableLayout
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.option_text import plain_number
from paimon_cli.storage.catalog_options import store_options
from paimon_cli.storage.injected import NoTrace, Trace
from paimon_cli.storage.storage import Storage
from paimon_cli.storage.threads import cached_property
from paimon_cli.storage.web_address import AllowedHosts

if TYPE_CHECKING:
    from paimon_cli.history.table_context import TableContext
    from paimon_cli.maintain.mark_done import PartitionMarks
    from paimon_cli.metastore.metastore import Metastore, TableIdentifier

LATEST, EARLIEST = "latest", "earliest"


@dataclass(frozen=True)
class CatalogTable(TableHistory):
    """An opened table.

    `name`: as the user wrote it; `url`: the normalised root; `options`: override the table's own options in this call;
    `store_options`: options for other files on the same store; `metastore`, `identifier`: the catalog of the table, and its
    name there unless it was opened by its path; `argument`: as hints name it in commands, by default by its path.
    """

    name: str
    url: str
    storage: Storage
    options: Mapping[str, str] = field(default_factory=dict)
    read_optimized: bool = False
    store_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    branch: str = MAIN_BRANCH
    trace: Trace = field(default_factory=NoTrace, repr=False, compare=False)
    metastore: Metastore | None = field(default=None, repr=False, compare=False)
    identifier: TableIdentifier | None = None
    argument: str | None = field(default=None, compare=False)
    _found_at_opening: TableSchema | None = field(default=None, init=False, repr=False, compare=False)
    """The schema that was read when the table was opened, if any; `replace` does not copy it."""
    _newest_at_opening: int | None = field(default=None, init=False, repr=False, compare=False)
    """The newest schema id that was listed when the table was opened, if any; `replace` does not copy it."""

    @cached_property
    def layout(self) -> TableLayout:
        return TableLayout(self.url, self.branch, self.argument)

    @classmethod
    def open(cls, location: TableLocation, options: Mapping[str, str] | None = None, trace: Trace | None = None) -> CatalogTable:
        """Open a table. Raises `NotFound` if there is no such table or branch, `DamagedFile` if its schema files are lost."""
        table = cls._at(location, options, trace)
        table.snapshots.fetch_hint()
        if (found := table.schemas.at_opening()) is not None:
            object.__setattr__(table, "_found_at_opening", found)
            return table
        if ids := table.schemas.ids():
            object.__setattr__(table, "_newest_at_opening", ids[-1])
            return table
        missing = table.schemas.missing()
        if not isinstance(missing, NotFound) or isinstance(missing, BeingDropped):
            raise missing
        if location.branch != MAIN_BRANCH:
            main = replace(table, branch=MAIN_BRANCH, argument=None)
            if main.schemas.ids():
                raise table.branches.missing(location.branch)
            missing = main.schemas.missing()
        raise _explained(missing, table) if isinstance(missing, NotFound) else missing

    @classmethod
    def open_damaged(
        cls, location: TableLocation, options: Mapping[str, str] | None = None, trace: Trace | None = None
    ) -> CatalogTable:
        """Open a table whose schemas may be unreadable, or lost. Raises `NotFound` if there is no table."""
        try:
            return cls.open(location, options, trace)
        except (DamagedFile, BeingDropped):
            return cls._at(location, options, trace)

    @classmethod
    def _at(cls, location: TableLocation, options: Mapping[str, str] | None, trace: Trace | None) -> CatalogTable:
        storage, root = location.open_storage()
        files = store_options(location.storage_options)
        given, view = dict(options or {}), location.read_optimized
        opened = cls(location.name, root, storage, given, view, files, location.branch, trace or NoTrace())
        named = replace(opened, identifier=location.identifier, argument=location.argument)
        return replace(named, metastore=location.metastore)

    def check_commits(self) -> str | None:
        """Check the storage before work that ends in a commit; returns a warning if unsafe commits are allowed.

        Raises `Refused` if no safe commit is possible.
        """
        from paimon_cli.storage.guarded_storage import check_commits

        return check_commits(self.storage)

    def partition_marks(self) -> PartitionMarks:
        """The catalog's own ways to mark a partition as done; empty for a table that was opened by its path."""
        if self.metastore is None or self.identifier is None:
            return {}
        return self.metastore.partition_marks(self.identifier, self.branch)

    @property
    def report_hosts(self) -> AllowedHosts:
        """The hosts to which the user lets options of the table send reports."""
        return AllowedHosts() if self.metastore is None else self.metastore.report_hosts

    @cached_property
    def context(self) -> TableContext:
        """The table as planning, reading and writing use it. Raises `NotSupported` if paimon-cli cannot honour its options."""
        from paimon_cli.history.table_context import TableContext  # imports Arrow, which metadata does not need

        schema = self._found_at_opening
        if schema is None and self._newest_at_opening is not None:
            schema = self.schemas.get(self.schemas.newest_id(self._newest_at_opening))
        return TableContext.open(
            self.url,
            self.options,
            storage=self.storage,
            branch=self.branch,
            schema=schema,
            trace=self.trace,
            opened=self,
        )

    @cached_property
    def readable_context(self) -> TableContext | None:
        """The context at the newest readable schema; None if no schema is readable."""
        from paimon_cli.history.table_context import TableContext

        schema = self.schemas.newest_readable()
        if schema is None:
            return None
        return TableContext.open(
            self.url,
            self.options,
            storage=self.storage,
            branch=self.branch,
            schema=schema,
            trace=self.trace,
            opened=self,
        )

    def snapshot(self, snapshot_id: int | None = None) -> Snapshot | None:
        """The snapshot with this id, or the latest; None if the table has no snapshots.

        Raises `NotFound` for an unknown id, and if the table was dropped after it was opened.
        """
        found = self.snapshots.latest() if snapshot_id is None else self.snapshots.get(snapshot_id)
        if found is None:
            self.expect_existing()
        return found

    def named_snapshot(self, name: str) -> Snapshot:
        """The snapshot named `latest`, `earliest` or by its id. Raises `NotFound` if it does not exist."""
        snapshot_id = _number(name)
        if name in (LATEST, EARLIEST):
            snapshot_id = self.snapshots.latest_id() if name == LATEST else self.snapshots.earliest_id()
        if snapshot_id is None:
            why = "name a snapshot by its id, latest or earliest"
            raise NotFound(f"no snapshot '{name}' of {self.name}", why, f"paimon-cli snapshots ls {self.layout.argument}")
        return self.snapshots.get(snapshot_id)

    def named_schema(self, name: str) -> TableSchema:
        """The schema named `latest` or by its id. Raises `NotFound` if it does not exist."""
        number = _number(name)
        if number is not None:
            return self.schemas.get(number)
        if name != LATEST:
            raise NotFound(
                f"no schema '{name}' of {self.name}",
                "name a schema by its id or latest",
                f"paimon-cli schemas ls {self.layout.argument}",
            )
        return self.schemas.latest()


def _explained(missing: NotFound, table: CatalogTable) -> NotFound:
    """The error with what the directory contains instead of a table, if that can be recognised."""
    catalog = table.metastore if table.identifier is not None else None
    content = None if catalog is not None and catalog.keeps_entries else recognised_content(table.storage, table.url)
    if content is not None:
        return NotFound(missing.what, content, "give the path of a Paimon table", **missing.details)
    if catalog is None and (meant := _meant(table)) is not None:
        missing.set_hint(f"did you mean {meant}?")
        missing.details["did_you_mean"] = meant
        return missing
    return missing if catalog is None or table.identifier is None else catalog.no_files(table.identifier, table.url)


def _meant(table: CatalogTable) -> str | None:
    """The table that was probably meant by the path of a missing one: of the catalog, if it is a name without a database."""
    named = table.name.partition("$")[0]
    if "/" not in named and table.metastore is not None and table.metastore.has_names:
        identifier = table.metastore.similar_table(named)
        if identifier is not None:
            return identifier.argument
    return similar_table(table.storage, table.url, table.name)


def _number(name: str) -> int | None:
    number = plain_number(name)
    return number if number is not None and number >= 0 else None
