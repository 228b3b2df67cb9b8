"""Opens the table at a location, explains why there is none, and says what the catalog of an opened table does for it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from paimon_cli.catalog.metastore.metastore import DATABASE_SUFFIX, TableIdentifier
from paimon_cli.catalog.table_location import TableLocation
from paimon_cli.catalog.table_site import recognised_content, similar_table, within
from paimon_cli.errors import BeingDropped, DamagedFile, NotFound, PaimonError, TableNotFound, UnfinishedCopy
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.table_layout import MAIN_BRANCH
from paimon_cli.storage.injected import NoTrace, Trace
from paimon_cli.storage.web_address import AllowedHosts

if TYPE_CHECKING:
    from paimon_cli.catalog.metastore.metastore import Metastore
    from paimon_cli.maintain.mark_done import PartitionMarks


def open_table(location: TableLocation, given: Mapping[str, str] | None = None, trace: Trace | None = None) -> TableContext:
    """Open a table; its schema is read when it is needed. `given`: table options of the call.

    Raises `NotFound` if there is no such table or branch, `DamagedFile` if its schema files are lost.
    """
    table = _at(location, given, trace)
    table.snapshots.fetch_hint()
    if table.find_schema():
        return table
    missing = table.schemas.missing()
    if not isinstance(missing, NotFound) or isinstance(missing, (BeingDropped, UnfinishedCopy)):
        raise missing
    if location.branch != MAIN_BRANCH:
        main = replace(table, place=replace(table.place, branch=MAIN_BRANCH, argument=None))
        if main.schemas.ids():
            raise table.branches.missing(location.branch)
        missing = main.schemas.missing()
    raise _explained(missing, table, location) if isinstance(missing, NotFound) else missing


def open_damaged_table(
    location: TableLocation, given: Mapping[str, str] | None = None, trace: Trace | None = None
) -> TableContext:
    """Open a table whose schemas may be unreadable, or lost. Raises `NotFound` if there is no table."""
    try:
        return open_table(location, given, trace)
    except (DamagedFile, BeingDropped):
        return _at(location, given, trace)


def _at(location: TableLocation, given: Mapping[str, str] | None, trace: Trace | None) -> TableContext:
    storage, root = location.open_storage()
    return TableContext(replace(location, url=root), storage, given=dict(given or {}), trace=trace or NoTrace())


def entry_of(table: TableContext) -> tuple[Metastore, TableIdentifier] | None:
    """The catalog that has the table, and its name there; None for a table that was opened by its path."""
    return table.place.entry if isinstance(table.place, TableLocation) else None


def partition_marks(table: TableContext) -> PartitionMarks:
    """The catalog's own ways to mark a partition as done; empty for a table that was opened by its path."""
    if (entry := entry_of(table)) is None:
        return {}
    metastore, identifier = entry
    return metastore.partition_marks(identifier, table.branch)


def report_hosts(table: TableContext) -> AllowedHosts:
    """The hosts to which the user lets options of the table send reports."""
    metastore = table.place.metastore if isinstance(table.place, TableLocation) else None
    return AllowedHosts() if metastore is None else metastore.report_hosts


def _explained(missing: NotFound, table: TableContext, location: TableLocation) -> NotFound:
    """The error with what the directory contains instead of a table, if that can be recognised."""
    entry = location.entry
    content = None if entry is not None and entry[0].keeps_entries else recognised_content(table.storage, table.url)
    if content is not None:
        hint, warehouse = within(table.storage, table.url, location.argument or table.name)
        of_warehouse = {"warehouse": warehouse} if warehouse else {}
        return TableNotFound(missing.what, content, hint, **missing.details, **of_warehouse)
    if entry is not None:
        metastore, identifier = entry
        return metastore.no_files(identifier, table.url)
    if (meant := _meant(table, location.metastore)) is not None:
        base, at, version = table.name.rpartition("@")
        flag = "--snapshot" if version.isdecimal() else "--tag"
        is_version = bool(at and version) and base == meant
        chooses = f" {flag} {shlex.quote(version)} chooses its version" if is_version else ""
        missing.set_hint(f"did you mean {meant}?{chooses}")
        missing.details["did_you_mean"] = meant
    return missing


def _meant(table: TableContext, metastore: Metastore | None) -> str | None:
    """The table that was probably meant by the path of a missing one: of the catalog, if it is a name without a database."""
    named = table.name.partition("$")[0]
    if "/" not in named and metastore is not None and metastore.has_names:
        identifier = metastore.similar_table(named)
        if identifier is not None:
            return identifier.argument
    if metastore is not None and metastore.has_names and (found := _by_path(named, metastore)) is not None:
        return found
    return similar_table(table.storage, table.url, table.name)


def _by_path(named: str, metastore: Metastore) -> str | None:
    """The table of the catalog that is named like a path below its warehouse, as `shop/orders` and `shop.db/orders` are."""
    database, _, table = named.removeprefix("./").partition("/")
    try:
        return metastore.table(TableIdentifier.parse(f"{database.removesuffix(DATABASE_SUFFIX)}.{table}")).identifier.argument
    except PaimonError:  # whatever fails must not hide the first error
        return None
