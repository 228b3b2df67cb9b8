"""Locates the table that a user names by a path, a URL, or `db.table` of a catalog (FORMAT.md, section 14.1)."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from paimon_cli.catalog.metastore.configuration_files import PROFILE
from paimon_cli.catalog.metastore.metastore import Metastore, RegisteredTable, TableIdentifier, refuse_nul
from paimon_cli.catalog.metastore.settings import find_metastore, split_profile
from paimon_cli.errors import NotFound, UsageError
from paimon_cli.history.table_place import BRANCH_MARK, TablePlace
from paimon_cli.history.tags_and_branches import check_branch_name
from paimon_cli.metadata.table_layout import MAIN_BRANCH
from paimon_cli.storage.redaction import without_login
from paimon_cli.storage.storage import Storage
from paimon_cli.storage.storage_for_url import storage_for_url

READ_OPTIMIZED_SUFFIX = "ro"

_COMMAND_OF_SYSTEM_TABLE = {
    "snapshots": "snapshots ls",
    "manifests": "manifests ls",
    "files": "files ls",
    "partitions": "partitions ls",
    "buckets": "buckets ls",
    "schemas": "schemas ls",
    "options": "options ls",
    "tags": "tags ls",
    "branches": "branches ls",
    "consumers": "consumers ls",
}


@dataclass(frozen=True)
class TableLocation(TablePlace):
    """The place of a table, with the catalog in which it was looked for.

    `allow_unsafe_commit`: commit even if the storage cannot prevent concurrent commits from overwriting each other.
    `identifier`: its name in the `metastore`; None for a table that was named by its path.
    """

    allow_unsafe_commit: bool = False
    metastore: Metastore | None = field(default=None, repr=False, compare=False)
    identifier: TableIdentifier | None = None

    @staticmethod
    def of(table: RegisteredTable, metastore: Metastore) -> TableLocation:
        """The location of a table of a catalog."""
        found = TableLocation(table.url, str(table.identifier), storage_options=metastore.storage_options)
        return replace(found, metastore=metastore, identifier=table.identifier)

    @property
    def entry(self) -> tuple[Metastore, TableIdentifier] | None:
        """The catalog that has the table, and its name there; None for a table that was named by its path."""
        return None if self.metastore is None or self.identifier is None else (self.metastore, self.identifier)

    def open_storage(self) -> tuple[Storage, str]:
        """The storage, and the normalised root of the table."""
        external = None if self.metastore is None else self.metastore.external_places
        storage, root = storage_for_url(
            self.url, self.storage_options, self.allow_unsafe_commit, confined=True, external=external
        )
        return (storage if self.metastore is None else self.metastore.guarded(storage, root, self.identifier)), root


def locate_table(
    table: str,
    warehouse: str | None = None,
    options: Mapping[str, str] | None = None,
    branch: str | None = None,
    *,
    is_new: bool = False,
) -> TableLocation:
    """Locate TABLE, a path, a URL, `db.table`, or one of these after `@PROFILE/`.

    `options`: catalog options; `is_new`: the table does not exist yet.

    `$branch_b` in the name selects a branch, as `branch` does; `$ro` selects the read-optimised view; both may be combined.
    Other system tables are refused, with a hint to the command that shows the same data. Raises `UsageError` for an invalid
    name, `NotFound` for a table that the catalog does not know.
    """
    refuse_nul(table)
    table, options = of_profile(table, options)
    plain, named, suffix = _split_suffixes(table, is_new)
    branch = _one_branch(table, named, branch)
    metastore = find_metastore(warehouse, options)
    if not plain:
        raise UsageError("the table name is empty", hint="TABLE is a path, a URL or db.table")
    if _is_path(plain, metastore):
        url = os.path.expanduser(plain).rstrip("/") or "/"
        if "://" in plain and "://" not in url:
            raise UsageError(f"{plain} names no table", "nothing follows the scheme", "complete it, such as s3://bucket/db.db/t")
        location = TableLocation(url, without_login(plain), storage_options=metastore.storage_options, metastore=metastore)
    elif not metastore.has_names and os.path.isfile(plain):
        raise UsageError(f"{plain} is a file", "a table is a directory", f"paimon-cli write TABLE {shlex.quote(plain)}")
    else:
        location = _in_catalog(_identifier(plain), metastore, is_new)
    if branch != MAIN_BRANCH:
        location = location.at_branch(branch)
    if suffix == READ_OPTIMIZED_SUFFIX:
        location = replace(location, read_optimized=True, name=f"{location.name}${suffix}")
    return location


def check_directory(path: str, what: str) -> None:
    """Raise `UsageError` if a table at this path could not be named: it ends as the name of a branch or a view does."""
    last = path.rstrip("/").rpartition("/")[2]
    if "$" in last:
        raise UsageError(f"{what} cannot be at {path}", "$ starts the name of a branch or a view", "leave out the $")


def of_profile(name: str, options: Mapping[str, str] | None) -> tuple[str, Mapping[str, str]]:
    """`@prod/db.t` as `db.t`, and the options with that profile. Raises `UsageError` if `--profile` names another one."""
    profile, rest = split_profile(name)
    given = (options or {}).get(PROFILE)
    if profile is None:
        return name, options or {}
    if not rest:
        why = "it selects a profile, and names nothing in its warehouse"
        raise UsageError(f"{name} names no table", why, f"write @{profile}/db.table, or --profile {profile}")
    if given is not None and given != profile:
        raise UsageError(f"'{name}' and --profile {given} name different profiles", hint="name the profile in one of the two")
    return rest, {**(options or {}), PROFILE: profile}


def _identifier(name: str) -> TableIdentifier:
    with contextlib.suppress(UsageError):
        return TableIdentifier.parse(name)
    raise UsageError(
        f"'{name}' is neither a path nor db.table",
        "there is no such directory, and the name of a table in a warehouse has exactly one dot",
        f"write {shlex.quote(f'./{name}')} for a directory, or db.table together with --warehouse",
    )


def _in_catalog(identifier: TableIdentifier, metastore: Metastore, is_new: bool) -> TableLocation:
    if not is_new:
        return TableLocation.of(_found(identifier, metastore), metastore)
    try:
        url = metastore.url_of_new_table(identifier)
    except NotFound as missing:
        if "unknown_database" in missing.details:
            missing.set_hint(metastore.creating(identifier.database))
        raise
    return TableLocation.of(RegisteredTable(identifier, url), metastore)


def _found(identifier: TableIdentifier, metastore: Metastore) -> RegisteredTable:
    try:
        return metastore.table(identifier)
    except UsageError as error:
        path = f"./{identifier.database}/{identifier.table}"
        if metastore.warehouse is None and os.path.isdir(f"{path}/schema"):
            error.set_hint(f"the table in {path} is named by its path: {shlex.quote(path)}")
        raise


def _one_branch(table: str, in_name: str | None, given: str | None) -> str:
    """The branch named by `$branch_b` or `--branch`, else main. Raises `UsageError` if they name different branches."""
    if given is not None and given != MAIN_BRANCH:
        check_branch_name(given)
    if in_name is not None and given is not None and in_name != given:
        raise UsageError(
            f"'{without_login(table)}' and --branch {given} name different branches", hint="name the branch in one of the two"
        )
    return in_name or given or MAIN_BRANCH


def _is_path(table: str, metastore: Metastore) -> bool:
    """Whether the text is a path: anything but `db.table`, and without a catalog also an existing directory `a.b`."""
    if "/" in table or "." not in table or table in (".", ".."):
        return True
    return not metastore.has_names and os.path.isdir(table)


def _split_suffixes(table: str, is_new: bool) -> tuple[str, str | None, str | None]:
    """The table, branch and view in `table$branch_b$ro`."""
    directory, slash, last = table.rpartition("/")
    name, dollar, suffix = last.partition("$")
    plain, branch = f"{directory}{slash}{name}", None
    if suffix.startswith(BRANCH_MARK):
        branch, dollar, suffix = suffix.removeprefix(BRANCH_MARK).partition("$")
        if branch != MAIN_BRANCH:
            check_branch_name(branch)
    if not dollar:
        return plain, branch, None
    if suffix == READ_OPTIMIZED_SUFFIX:
        return plain, branch, suffix
    if is_new:
        raise UsageError(f"a table cannot be called {last}", "$ starts the name of a branch or a view", "leave out the $")
    command = _COMMAND_OF_SYSTEM_TABLE.get(suffix)
    hint = f"paimon-cli {command} {shlex.quote(plain)}" if command else "the suffixes of a table name are $ro and $branch_NAME"
    raise UsageError(f"'${suffix}' cannot be opened as a table", "commands show the content of system tables", hint)
