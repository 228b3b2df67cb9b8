"""A table as an object: each command of the command line is a method with the same name and options."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from paimon_cli.api.arguments import checks_arguments, option_texts, takes
from paimon_cli.api.definition import NewTable, create_table
from paimon_cli.api.health import Care
from paimon_cli.api.history import History
from paimon_cli.api.integrity import Integrity
from paimon_cli.api.maintenance import Planned
from paimon_cli.api.reading import Reading
from paimon_cli.api.runtime import Runtime
from paimon_cli.api.table_ingestion import TakesEvents
from paimon_cli.catalog.open_table import entry_of, open_damaged_table, open_table
from paimon_cli.catalog.table_location import TableLocation, locate_table
from paimon_cli.errors import NotFound, Refused, UsageError
from paimon_cli.metadata.table_layout import MAIN_BRANCH
from paimon_cli.requests.dropping import DropOptions
from paimon_cli.requests.writing import Identity
from paimon_cli.storage.catalog_options import database_and_table, split_options, trash_millis

if TYPE_CHECKING:
    from paimon_cli.api.definition import Alter
    from paimon_cli.api.transaction import Transaction
    from paimon_cli.api.versions import Branches, Consumers, Tags
    from paimon_cli.history.table_context import TableContext
    from paimon_cli.maintain.trash import Trash
    from paimon_cli.maintain.trash_entry import TrashEntry
    from paimon_cli.metadata.table_schema import TableSchema


@dataclass(frozen=True)
class TableDropped:
    """What a drop removes. `left`: the paths that remain, relative to the table's directory `path`.

    `only_entry`: the files no longer exist, and only the entry in the catalog is removed. `link_to`: the table was named by a
    symbolic link, which is all that is deleted; the table itself, at the path to which the link leads, remains. `kept`: the bytes
    that stay in the trash of the warehouse, from which the table can be brought back, and `until` when (epoch millis).
    """

    table: str
    path: str
    snapshots: int
    files: int
    size: int
    left: list[str]
    only_entry: bool = False
    link_to: str | None = None
    kept: int = 0
    until: int | None = None


class CreateCall(NewTable):
    """A table to create and open."""

    name: str | os.PathLike[str]
    _: KW_ONLY
    warehouse: str | None = None
    allow_unsafe_commit: bool = False
    runtime: Runtime | None = None


@checks_arguments
class Table(Reading, TakesEvents, Integrity, Care, History):
    """An Apache Paimon table.

    Opening a table reads only its latest schema. Arrow is imported when rows or statistics are needed, Spark when a job is
    large enough. Commands such as `tags create` and `alter set` are `table.tags.create(...)` and `table.alter.set(...)`.
    Failures are raised as errors of `paimon_cli.errors`; warnings are issued through Python's `warnings`.

    >>> import pyarrow as pa
    >>> columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
    >>> table = Table.create("wh/shop.db/orders", schema=columns, primary_key=["id"], options={"bucket": "2"})
    >>> table.write(pa.table({"id": [1, 2, 2], "name": ["a", "b", "c"]})).rows
    2
    >>> table.scan(where="id = 2").to_arrow().to_pylist()
    [{'id': 2, 'name': 'c'}]
    >>> table.update({"name": "upper(name)"}, where="id = 1").rows
    1
    >>> table.delete(where="id = 2").rows
    1
    >>> table.scan(columns=["name"]).to_arrow().to_pylist()
    [{'name': 'A'}]
    >>> table.scan(snapshot=1).count()
    2
    >>> [snapshot.kind for snapshot in table.snapshots()]
    ['APPEND', 'APPEND', 'APPEND']
    >>> table.verify().errors
    0
    """

    @classmethod
    def open(
        cls,
        name: str | os.PathLike[str],
        options: Mapping[str, Any] | None = None,
        *,
        warehouse: str | None = None,
        branch: str | None = None,
        strict_options: bool = False,
        allow_unsafe_commit: bool = False,
        runtime: Runtime | None = None,
    ) -> Table:
        """Open a table by its path or URL, or as `db.table` of a warehouse.

        The warehouse is `warehouse`, else `PAIMON_WAREHOUSE`, else the one in `./paimon.yaml`. `options`: catalog
        options (`s3.endpoint`), and table options, which override the table's own in calls on this object.
        `strict_options`: raise `UsageError` for unknown options instead of warning. Raises `NotFound` if there is no
        such table or branch.
        """
        catalog_options, table_options = split_options(option_texts(options))
        runtime = runtime or Runtime()
        check_table_options(table_options, runtime, strict=strict_options)
        location = locate_table(os.fspath(name), warehouse, catalog_options, branch)
        return cls.at(replace(location, allow_unsafe_commit=allow_unsafe_commit), table_options, runtime)

    @classmethod
    def at(cls, location: TableLocation, options: Mapping[str, str], runtime: Runtime, *, may_be_damaged: bool = False) -> Table:
        """Open a table whose location and options have been checked. `may_be_damaged`: even if no schema is readable."""
        find = open_damaged_table if may_be_damaged else open_table
        return cls(find(location, options, runtime.trace), runtime)

    @classmethod
    @takes(CreateCall)
    def create(cls, call: CreateCall) -> Table:
        """Create a table and open it.

        - `name`, `warehouse`, `allow_unsafe_commit` and `runtime` are those of `open`.
        - `options`: stored in the table, except catalog options. `strict_options`: raise `UsageError` for unknown ones.
        - `form`: a `TextForm`, if `from_file` is CSV or JSON.

        The columns come from exactly one of `columns`, `schema`, `ddl` and `from_file`. Raises `AlreadyExists` if the table
        exists, unless `if_not_exists`, and `NotSupported` for a table that `write` would refuse.
        """
        catalog_options, table_options = split_options(option_texts(call.options))
        runtime = call.runtime or Runtime()
        name, unsafe = os.fspath(call.name), call.allow_unsafe_commit
        location = replace(locate_table(name, call.warehouse, catalog_options, is_new=True), allow_unsafe_commit=unsafe)
        created = create_table(location, NewTable.of(call, options=table_options))
        for warning in created.warnings:
            runtime.warn(warning)
        # a server chooses the location only when it creates the table
        location = locate_table(name, call.warehouse, catalog_options)
        return cls.at(replace(location, allow_unsafe_commit=unsafe), {}, runtime)

    @takes(Identity)
    def transaction(self, identity: Identity) -> Transaction:
        """Begin a transaction: changes of rows that become one commit at the end of the block.

        Each change sees those before it. Nothing is committed if the block raises an exception, and `DataConflict` is raised if
        another commit has changed the same buckets meanwhile.

        >>> table = example_table()
        >>> with table.transaction() as t:
        ...     t.update({"price": "price * 2"}, where="id = 1").rows, t.delete(where="id = 2").rows, t.count()
        (1, 1, 2)
        """
        from paimon_cli.api.transaction import Transaction

        return Transaction(self, identity)

    @property
    def tags(self) -> Tags:
        """Named snapshots, which are protected from expiry."""
        from paimon_cli.api.versions import Tags

        return Tags(self)

    @property
    def branches(self) -> Branches:
        """Separate histories over shared files."""
        from paimon_cli.api.versions import Branches

        return Branches(self)

    @property
    def consumers(self) -> Consumers:
        """Streaming readers, for which snapshots are kept."""
        from paimon_cli.api.versions import Consumers

        return Consumers(self)

    @property
    def alter(self) -> Alter:
        """Changes to options and columns."""
        from paimon_cli.api.definition import Alter

        return Alter(self)

    @takes(DropOptions)
    def plan_drop(self, options: DropOptions) -> Planned[TableDropped, TableDropped]:
        """Plan to move the table to the trash of its warehouse, or with `purge` to delete it at once.

        A table outside of a warehouse is deleted, and so is one whose deletion was interrupted; an interrupted move goes on. The
        plan names the files in its directory that would remain. If the table was named by a symbolic link, only the link is
        deleted. Raises `Refused` in a catalog whose server deletes files by itself, without `purge`.
        """
        from paimon_cli.catalog.warehouse_trash import trash_of_table
        from paimon_cli.maintain.drop_table import plan_table_drop
        from paimon_cli.maintain.named_files import total_size
        from paimon_cli.maintain.needed_files import files_elsewhere
        from paimon_cli.storage.capabilities import link_target

        self.check_call()
        opened = self.context
        if opened.branch != MAIN_BRANCH:
            hint = f"delete the branch: paimon-cli branches rm {shlex.quote(opened.url)} {shlex.quote(opened.branch)}"
            raise UsageError(f"{opened.name} is a branch", "drop deletes a whole table", hint)
        link_to = link_target(opened.storage, opened.url)
        if link_to is not None:
            dropped = TableDropped(opened.name, opened.url, 0, 0, 0, [], link_to=link_to)
            return Planned(dropped, self._dropping(dropped, lambda: opened.storage.delete(opened.url)))
        is_repeated = opened.snapshots.is_ended()
        if is_repeated and (trash := trash_of_table(opened.place, opened.url)) and (entry := trash.at(opened.url)):
            return _plan_purge(opened.name, trash, entry, options.purge)
        schema = None if is_repeated and not opened.schemas.ids() else opened.schemas.latest()
        plan = plan_table_drop(opened.storage, opened.layout, schema)
        elsewhere = files_elsewhere(opened)
        plan.files.extend(elsewhere)
        size, snapshots = total_size(plan.files), len(opened.snapshots.ids()) - is_repeated
        stays = [path.removeprefix(f"{opened.url}/") for path in plan.stays]
        dropped = TableDropped(opened.name, opened.url, snapshots, len(plan.files), size, stays)
        kept_millis, named, purge = trash_millis(opened.place.storage_options), entry_of(opened), options.purge
        if not purge and named is not None and not named[0].takes_files:
            why = f"the server of the {named[0].kind} catalog deletes the files, so that nothing could be brought back"
            raise Refused(f"{opened.name} cannot be moved to a trash", why, "delete it for good: add --purge")
        trash = None if purge or not kept_millis else trash_of_table(opened.place, opened.url, opened.clock)
        begun = trash.begun(opened.url) if trash is not None and is_repeated else None
        if elsewhere and trash is not None:
            why = (
                f"{len(elsewhere)} of its data files lie outside of its directory, and would stay there when the trash is emptied"
            )
            raise Refused(f"{opened.name} cannot be moved to a trash", why, "delete it for good: add --purge")
        if trash is None or (is_repeated and begun is None):
            begun_in = trash_of_table(opened.place, opened.url, opened.clock) if is_repeated else None
            delete_files = partial(_delete_for_good, opened, schema, [file.path for file in elsewhere], begun_in)
            return Planned(dropped, self._dropping(dropped, delete_files), lambda: plan.files)
        name = ".".join(database_and_table(opened.url))
        into = trash.new_entry(name, opened.url, kept_millis, snapshots, len(plan.files), size)
        into = into if begun is None else replace(into, id=begun.id)
        kept = replace(dropped, kept=size, until=into.until)
        take = partial(trash.take, opened.storage, opened.layout, into, plan.stays)
        return Planned(kept, self._dropping(kept, take), lambda: plan.files)

    def _dropping(self, dropped: TableDropped, delete_files: Callable[[], None]) -> Callable[[], TableDropped]:
        """A function that drops the table from its catalog, if it has one."""
        entry = entry_of(self.context)

        def run() -> TableDropped:
            if entry is None:
                delete_files()
            else:
                metastore, identifier = entry
                metastore.drop_table(identifier, delete_files)
            return dropped

        return run

    @takes(DropOptions)
    def drop(self, options: DropOptions) -> TableDropped:
        """Move the table to the trash of its warehouse: its files, snapshots, tags and branches; see `Catalog.undrop`.

        With `purge`, or outside of a warehouse, it is deleted for good. Other files in its directory remain.
        """
        return self.plan_drop(purge=options.purge).run()


def _delete_for_good(opened: TableContext, schema: TableSchema | None, elsewhere: Sequence[str], begun_in: Trash | None) -> None:
    """Delete a table. `begun_in`: the trash into which a drop that was interrupted may have copied versions of it."""
    from paimon_cli.maintain.drop_table import drop_table

    if begun_in is not None:
        begun_in.give_up(opened.url)
    drop_table(opened.storage, opened.layout, schema, elsewhere=elsewhere)


def _plan_purge(name: str, trash: Trash, entry: TrashEntry, purge: bool) -> Planned[TableDropped, TableDropped]:
    """Plan to delete a table for good whose data is still in its place, though it is in the trash."""
    if not purge:
        hint = f"bring it back: paimon-cli undrop {shlex.quote(entry.url)}; or delete it for good: add --purge"
        raise NotFound(f"table {name} was dropped", "it is in the trash of its warehouse", hint)
    dropped = TableDropped(name, entry.url, entry.snapshots, entry.files, entry.size, [])

    def run() -> TableDropped:
        trash.delete(entry)
        return dropped

    return Planned(dropped, run)


def plan_drop_of_entry(location: TableLocation) -> Planned[TableDropped, TableDropped] | None:
    """Plan to remove an entry without a table; None if the catalog does not store entries apart from files."""
    if location.entry is None or not location.entry[0].keeps_entries:
        return None
    metastore, identifier = location.entry
    storage, root = location.open_storage()
    left = sorted(entry.name for entry in storage.list_directory(root))
    dropped = TableDropped(location.name, root, 0, 0, 0, left, only_entry=True)

    def run() -> TableDropped:
        metastore.drop_table(identifier, lambda: None)
        return dropped

    return Planned(dropped, run)


def check_table_options(options: Mapping[str, str], runtime: Runtime, *, strict: bool) -> None:
    """Warn about doubtful options of a call; if `strict`, raise `UsageError` for unknown ones."""
    if not options:
        return
    from paimon_cli.catalog.option_values import odd_options, refuse_unknown

    if strict:
        refuse_unknown(options)
    for oddity in odd_options(options):
        runtime.warn(oddity)
