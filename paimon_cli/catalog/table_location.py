"""Finds the table that the user names by a path, a URL, or `db.table` of a warehouse (FORMAT.md, section 14.1)."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.history.tags_and_branches import check_branch_name
from paimon_cli.metadata.table_layout import MAIN_BRANCH
from paimon_cli.storage.catalog_options import without_user_info
from paimon_cli.storage.storage import Storage
from paimon_cli.storage.storage_for_url import storage_for_url

CATALOG_FILE = "paimon.yaml"
WAREHOUSE_VARIABLE = "PAIMON_WAREHOUSE"
SETTINGS_PREFIX = "engine."
"""Keys of `paimon.yaml` that are settings of paimon-cli, not options of the catalog."""
READ_OPTIMIZED_SUFFIX = "ro"
BRANCH_MARK = "branch_"

_NAME = re.compile(r"[^./\\$]+")
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
class Warehouse:
    """Root directory of a catalog and its options (`storage.catalog_options`: endpoint, credentials, commit lock)."""

    url: str | None
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def root_url(self, sought: str = "tables") -> str:
        """The URL of the root; `UsageError` that names what is `sought` if no warehouse was given."""
        if self.url is None:
            raise UsageError(
                f"no warehouse to look for {sought} in",
                f"neither --warehouse nor {WAREHOUSE_VARIABLE} nor ./{CATALOG_FILE} names one",
                "pass --warehouse URI, or a path instead of a name",
            )
        return self.url

    def database_url(self, database: str) -> str:
        return f"{self.root_url(f'database {database}').rstrip('/')}/{database}.db"


@dataclass(frozen=True)
class TableLocation:
    """The location of a table: `url` as the storage takes it, `name` as the user wrote it, without secrets.

    `name` ends in `$branch_NAME` for any branch but main, even if the branch was given separately. `allow_unsafe_commit`: commit
    even if the storage cannot keep concurrent commits apart.
    """

    url: str
    name: str
    read_optimized: bool = False
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    allow_unsafe_commit: bool = False
    branch: str = MAIN_BRANCH

    def at_branch(self, branch: str) -> TableLocation:
        """The location of a branch of this table, which must be at main."""
        return replace(self, branch=branch, name=f"{self.name}${BRANCH_MARK}{branch}")

    def open_storage(self) -> tuple[Storage, str]:
        """The storage, and the normalised root of the table."""
        return storage_for_url(self.url, self.storage_options, self.allow_unsafe_commit, confined=True)


def find_warehouse(
    warehouse: str | None,
    environment: Mapping[str, str] | None = None,
    directory: str = ".",
    options: Mapping[str, str] | None = None,
) -> Warehouse:
    """The warehouse of `--warehouse`, else of the environment, else of `paimon.yaml` in `directory`.

    The other keys of the file are catalog options, wherever the warehouse was named; `options` (of `--option`) override them. A
    jdbc catalog has the layout of a filesystem catalog, and a commit lock. `UsageError` for a file that is not a flat mapping.
    """
    variables = os.environ if environment is None else environment
    listed = _catalog_file(os.path.join(directory, CATALOG_FILE))
    catalog = {key: value for key, value in listed.items() if not key.startswith(SETTINGS_PREFIX)} | dict(options or {})
    metastore = catalog.get("metastore")
    if metastore == "filesystem":
        del catalog["metastore"]
    elif metastore not in (None, "jdbc"):
        raise NotSupported(
            f"catalog type '{metastore}'",
            "only filesystem warehouses, and those of a jdbc catalog, are supported",
            "name the table by its path",
        )
    own = catalog.pop("warehouse", None)
    return Warehouse(warehouse or variables.get(WAREHOUSE_VARIABLE) or own, catalog)


def catalog_setting(key: str, directory: str = ".") -> str | None:
    """The value of a setting of paimon-cli in `paimon.yaml`; None if it is not set."""
    return _catalog_file(os.path.join(directory, CATALOG_FILE)).get(key)


def locate_table(
    table: str, warehouse: str | None = None, options: Mapping[str, str] | None = None, branch: str | None = None
) -> TableLocation:
    """Locate TABLE: a path or URL as it is, `db.table` as WAREHOUSE/db.db/table. `options` are those of the catalog.

    `$branch_b` names a branch, as `branch` does (`UsageError` if they differ), `$ro` selects the read-optimised view,
    `$branch_b$ro` both; other system tables are refused with the command that shows the same data.
    """
    plain, named, suffix = _split_suffixes(table)
    branch = _one_branch(table, named, branch)
    found = find_warehouse(warehouse, options=options)
    if not plain:
        raise UsageError("the table name is empty", hint="TABLE is a path, a URL or db.table")
    if _is_path(plain, found):
        url = os.path.expanduser(plain).rstrip("/") or "/"
    elif found.url is None and os.path.isfile(plain):
        raise UsageError(f"{plain} is a file", "a table is a directory", f"paimon-cli write TABLE {shlex.quote(plain)}")
    else:
        database, name = _split_name(plain)
        url = f"{found.database_url(database)}/{name}"
    location = TableLocation(url, without_user_info(plain), storage_options=found.storage_options)
    if branch != MAIN_BRANCH:
        location = location.at_branch(branch)
    if suffix == READ_OPTIMIZED_SUFFIX:
        location = replace(location, read_optimized=True, name=f"{location.name}${suffix}")
    return location


def _one_branch(table: str, in_name: str | None, given: str | None) -> str:
    """The branch of `$branch_b` and `--branch`, which may both name it; main if neither does."""
    if given is not None and given != MAIN_BRANCH:
        check_branch_name(given)
    if in_name is not None and given is not None and in_name != given:
        raise UsageError(
            f"'{without_user_info(table)}' and --branch {given} name different branches", hint="name the branch in one of the two"
        )
    return in_name or given or MAIN_BRANCH


def _is_path(table: str, warehouse: Warehouse) -> bool:
    """Whether the text is a path: anything that cannot be `db.table`, and a directory with a dot in its name if there is no
    warehouse.
    """
    if "/" in table or "." not in table or table in (".", ".."):
        return True
    return warehouse.url is None and os.path.isdir(table)


def _split_name(table: str) -> tuple[str, str]:
    database, dot, name = table.partition(".")
    if not dot or not _NAME.fullmatch(database) or not _NAME.fullmatch(name):
        raise UsageError(
            f"'{table}' is neither a path nor db.table",
            "there is no such directory, and a table of a warehouse has exactly one dot in its name",
            f"write ./{table} for a directory, or db.table together with --warehouse",
        )
    return database, name


def _split_suffixes(table: str) -> tuple[str, str | None, str | None]:
    """Table, branch and view of `table$branch_b$ro`."""
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
    command = _COMMAND_OF_SYSTEM_TABLE.get(suffix)
    hint = f"paimon-cli {command} {shlex.quote(plain)}" if command else "the suffixes of a table name are $ro and $branch_NAME"
    raise UsageError(f"'${suffix}' is not a view of a table that can be opened", "system tables are shown by commands", hint)


def _catalog_file(path: str) -> dict[str, str]:
    if not os.path.isfile(path):
        return {}
    import yaml

    try:
        with open(path, encoding="utf-8") as stream:
            content: Any = yaml.safe_load(stream)
    except yaml.YAMLError as error:
        raise UsageError(f"{path} is not YAML", str(error).replace("\n", " ")) from error
    if content is None:
        return {}
    if not isinstance(content, dict) or any(isinstance(value, (dict, list)) for value in content.values()):
        raise UsageError(f"{path} is not a flat list of `key: value`", "this is the form that pypaimon reads")
    return {str(key): _text(value) for key, value in content.items() if value is not None}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
