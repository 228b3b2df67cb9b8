"""Finds the policies that are about a table: of its warehouse, and of the user's own configuration."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from paimon_cli.catalog.metastore.configuration_files import PROFILE, own_policy, user_file_of
from paimon_cli.catalog.metastore.metastore import DATABASE_SUFFIX, Metastore
from paimon_cli.catalog.metastore.settings import read_settings
from paimon_cli.catalog.table_location import TableLocation
from paimon_cli.errors import Conflict, DamagedFile, NotSupported, PaimonError, UsageError
from paimon_cli.history.table_place import TablePlace
from paimon_cli.maintain.policy import Policy, PolicyKey, TablePolicy
from paimon_cli.maintain.policy_text import PlacedValue
from paimon_cli.maintain.read_rates import MOST_READS_OBJECTS, READS_DIRECTORY, READS_FILE, ReadCounts, day_of
from paimon_cli.maintain.trash import KEPT_DIRECTORY
from paimon_cli.options.option_text import printable
from paimon_cli.storage.capabilities import link_target, swap
from paimon_cli.storage.catalog_options import database_and_table, store_options
from paimon_cli.storage.storage import Storage
from paimon_cli.storage.storage_for_url import storage_for_url
from paimon_cli.storage.time_bounds import within

POLICY_FILE = "policy.yaml"
NO_VERSION = "none"
"""The version of a policy that does not exist."""
_VERSION_LENGTH, _SHOWN_TABLES = 16, 5
_NO_RULES, _NO_COUNTS = Policy(), ReadCounts()
MAX_KEPT_TABLES, COUNTS_EVERY = 100_000, 30
"""Tables whose policy is kept from round to round, and after how many rounds counts of reads are read again."""


@dataclass(frozen=True)
class PolicyFile:
    """The file of the policy in the warehouse at `root`, which `storage` reaches."""

    storage: Storage
    root: str

    @property
    def path(self) -> str:
        return f"{self.root.rstrip('/')}/{KEPT_DIRECTORY}/{POLICY_FILE}"

    def content(self) -> bytes | None:
        """What the file holds; None if there is none. Raises `DamagedFile` for a link."""
        for path in (self.path.rpartition("/")[0], self.path):
            if link_target(self.storage, path) is not None:
                raise DamagedFile(f"{path} is a link", "a policy is a file of its own", "delete the link", path=path)
        try:
            return self.storage.read_bytes(self.path)
        except FileNotFoundError:
            return None

    @property
    def counted_directory(self) -> str:
        """The directory of what processes counted."""
        return f"{self.path.rpartition('/')[0]}/{READS_DIRECTORY}"

    def counted_names(self) -> list[str]:
        """The objects of what processes counted, the newest first. Raises `DamagedFile` for a link."""
        self._refuse_links(self.counted_directory.rpartition("/")[0], self.counted_directory)
        found = (status.name for status in self.storage.list_directory(self.counted_directory) if not status.is_directory)
        return sorted((name for name in found if day_of(name) is not None), reverse=True)

    def reads(self) -> ReadCounts:
        """The counts in the file beside it, and the counts of processes. Raises `UsageError` for too many."""
        directory = self.counted_directory
        found = [(f"{directory.rpartition('/')[0]}/{READS_FILE}", READS_FILE)]
        found += [(f"{directory}/{name}", f"{READS_DIRECTORY}/") for name in self.counted_names()[:MOST_READS_OBJECTS]]
        return ReadCounts.together(self._counts(path, source) for path, source in found)

    def _counts(self, path: str, source: str) -> ReadCounts:
        self._refuse_links(path)
        try:
            return replace(ReadCounts.read(self.storage.read_bytes(path), path), source=source)
        except FileNotFoundError:
            return _NO_COUNTS

    def _refuse_links(self, *paths: str) -> None:
        for path in paths:
            if link_target(self.storage, path) is not None:
                raise DamagedFile(f"{path} is a link", "counts of reads are files of their own", "delete the link", path=path)

    def policy(self) -> Policy:
        """The rules; none without a file. Raises `UsageError` for mistakes, `DamagedFile` for a link."""
        content = self.content()
        return _NO_RULES if content is None else Policy.read(content, self.path)

    def replace(self, content: bytes, name: str, if_version: str | None = None) -> tuple[str, str]:
        """Replace the policy by compare-and-swap; returns the versions before and after.

        `name`: how errors call the new one. `if_version`: what must be replaced; None for what is there now. Raises `UsageError`
        for mistakes and for settings that only the user's own configuration may make, `Conflict` if it is another version, or
        changes meanwhile.
        """
        found = Policy.read(content, name)
        if found.refused:
            first = found.refused[0]
            raise UsageError(
                f"{first.place}: {first.key} is not taken from a warehouse",
                "many may write there, so its policy starts no program, names no host and lets no reader write",
                f"put it under policy in {user_file_of(os.environ)}",
            )
        before = self.content()
        if if_version is not None and version_of(before) != if_version:
            raise self._conflict(if_version, version_of(before))
        if not swap(self.storage, self.path, before, content):
            raise self._conflict(version_of(before), version_of(self.content()))
        return version_of(before), version_of(content)

    def _conflict(self, expected: str, found: str) -> Conflict:
        why = f"it was to replace version {expected}, and the warehouse has version {found}"
        return Conflict("the policy was changed meanwhile", why, path=self.path)


def version_of(content: bytes | None) -> str:
    """The version of a policy: the beginning of its SHA-256, or `none`."""
    return NO_VERSION if content is None else hashlib.sha256(content).hexdigest()[:_VERSION_LENGTH]


def policy_of_warehouse(metastore: Metastore) -> PolicyFile:
    """The policy of a catalog. Raises `NotSupported` without a warehouse, or if a server keeps its files."""
    if metastore.warehouse is None:
        raise NotSupported(
            "there is no warehouse that could have a policy",
            "neither --warehouse nor PAIMON_WAREHOUSE nor ./paimon.yaml names one",
            "pass --warehouse URI",
        )
    if not metastore.takes_files:
        raise metastore.unsupported("a policy", "its warehouse belongs to a server")
    return _file_at(metastore.warehouse, metastore.storage_options)


def policy_of_place(location: TablePlace) -> PolicyFile | None:
    """The policy of the warehouse of a table; None for a table outside of one, and for the tables of a server."""
    warehouse = warehouse_of_place(location)
    return None if warehouse is None else _file_at(warehouse, location.storage_options)


def warehouse_of_place(location: TablePlace) -> str | None:
    """The warehouse of a table: that of its catalog, or of its path WAREHOUSE/DATABASE.db/TABLE; None if it is in none."""
    entry = location.entry if isinstance(location, TableLocation) else None
    if entry is not None:
        metastore = entry[0]
        return metastore.warehouse if metastore.takes_files else None
    warehouse, slash, name = location.url.rstrip("/").rpartition("/")[0].rpartition("/")
    if not name.endswith(DATABASE_SUFFIX) or name == DATABASE_SUFFIX or warehouse.endswith(("/", ":")):
        return None
    return warehouse or slash or "."


def name_of_place(location: TablePlace) -> tuple[str, str]:
    """The database and the name of a table: in its catalog, or by its path."""
    identifier = location.identifier if isinstance(location, TableLocation) else None
    return database_and_table(location.url) if identifier is None else identifier


def own_rules(profile: str | None) -> Policy:
    """The rules in the user's own configuration, also those of its profile: the one of the call, or that which a file or the
    environment chooses. Raises `UsageError` for mistakes.
    """
    profile = read_settings(options={} if profile is None else {PROFILE: profile}).values.get(PROFILE)
    source = user_file_of(os.environ)
    found = [Policy.of(_mapping(given.value, source), source, is_own=True) for given in own_policy(os.environ, profile)]
    return Policy(tuple(rule for policy in found for rule in policy.rules))


def own_hooks(own: Policy) -> dict[str, Callable[[str], bool]]:
    """The hooks in the user's own configuration, each with the function that says which tables it is about, by their names."""

    def about(hook: str, name: str) -> bool:
        database, dot, table = name.partition(".")
        known = (database, table) if dot and "/" not in name else database_and_table(name)
        last = TablePolicy(tuple(own.about(*known).settings)).value(PolicyKey.HOOKS)
        return last is not None and hook in last

    hooks = {hook for setting in own.settings if setting.key == PolicyKey.HOOKS for hook in setting.value}
    return {hook: partial(about, hook) for hook in sorted(hooks)}


def _mapping(value: Any, source: str) -> dict[str, PlacedValue]:
    if not isinstance(value, dict):
        raise UsageError(f"policy in {source} is no mapping", "it has the keys catalog, databases and tables")
    return value


def _file_at(warehouse: str, options: Mapping[str, str]) -> PolicyFile:
    storage, root = storage_for_url(warehouse, store_options(options))
    return PolicyFile(storage, root)


@dataclass
class Policies:
    """The policies of tables: of the user (`own`), and of each warehouse, which are read again after `renew`.

    If a policy cannot be read at the start, its error is raised: without it, too much might be deleted. Later, the last one that
    could be read counts, with a warning. `seconds`: after which a store that does not answer is given up.
    """

    own: Policy
    warn: Callable[[str], None]
    seconds: float = math.inf
    _files: dict[str, PolicyFile] = field(default_factory=dict)
    _kept: dict[str, Policy] = field(default_factory=dict)
    _fresh: set[str] = field(default_factory=set)
    _tables: dict[tuple[str, str, str], TablePolicy] = field(default_factory=dict)
    _counts: dict[str, ReadCounts] = field(default_factory=dict)
    _warned: dict[str, str] = field(default_factory=dict)
    _renewals: int = 0
    _all_tables: frozenset[str] | None = None
    _of_tables: dict[str, ReadCounts] = field(default_factory=dict)

    @property
    def read(self) -> Mapping[str, Policy]:
        """The policies that were read, by their warehouses."""
        return self._kept

    def renew(self, all_tables: Sequence[TablePlace] | None = None) -> None:
        """Read each policy again when it is next asked for. `all_tables`: of the warehouse, if they are known."""
        if all_tables is not None:
            self.know_all_tables(all_tables)
        self._fresh.clear()
        self._renewals += 1
        if self._renewals % COUNTS_EVERY == 0:
            self._counts.clear()
        if len(self._tables) > MAX_KEPT_TABLES:
            self._tables.clear()

    def know_all_tables(self, places: Iterable[TablePlace]) -> None:
        """Note all tables of the warehouse: counts of reads of others weigh nothing, with a warning that names them."""
        names = frozenset(".".join(name_of_place(place)) for place in places)
        if names != self._all_tables:
            self._all_tables = names
            self._of_tables.clear()

    def of(self, location: TablePlace) -> TablePolicy:
        """What the policies say about a table."""
        warehouse = warehouse_of_place(location)
        database, table = name_of_place(location)
        policy = _NO_RULES if warehouse is None else self._policy(warehouse, location.storage_options)
        key = warehouse or "", database, table
        if key not in self._tables:
            of_warehouse = policy.about(database, table)
            met = [*of_warehouse.settings, *self.own.about(database, table).settings]
            self._tables[key] = TablePolicy(tuple(met), tuple(of_warehouse.refused))
        return self._tables[key]

    def about(self, name: str) -> TablePolicy:
        """What the policies that were read say about a table by its name, `db.table`, which may be no table any more."""
        database, _, table = name.partition(".")
        met = [setting for policy in (*self._kept.values(), self.own) for setting in policy.about(database, table).settings]
        return TablePolicy(tuple(met))

    def proportion_read(self, location: TablePlace, partition: str) -> float:
        """How often a partition of a table is read, in proportion to the mean; 1 where nothing is known."""
        return self.reads(location).proportion(".".join(name_of_place(location)), partition)

    def reads_from(self, location: TablePlace) -> str:
        """Which files have counts of reads, if there are counts; else empty."""
        return self.reads(location).source

    def reads(self, location: TablePlace) -> ReadCounts:
        """The counts of reads in the warehouse of a table. They only say what comes first, so that damage is a warning."""
        warehouse = warehouse_of_place(location)
        if warehouse is None:
            return _NO_COUNTS
        if warehouse not in self._counts:
            self._of_tables.pop(warehouse, None)
            try:
                file = self._file(warehouse, location.storage_options)
                self._counts[warehouse] = within(self.seconds, file.reads, READS_FILE)
                for number, text in enumerate(self._counts[warehouse].complaints):
                    self._warn(f"{warehouse}/{READS_DIRECTORY}/{number}", f"some reads are not known: {text}")
            except PaimonError as error:
                self._counts[warehouse] = _NO_COUNTS
                self._warn(f"{warehouse}/{READS_FILE}", f"nothing is known about reads: {error.message}")
        if self._all_tables is None:
            return self._counts[warehouse]
        if warehouse not in self._of_tables:
            self._of_tables[warehouse], others = self._counts[warehouse].of_tables(self._all_tables)
            if others:
                shown = ", ".join(printable(name) for name in others[:_SHOWN_TABLES])
                more = f" and {len(others) - _SHOWN_TABLES:,} more" if len(others) > _SHOWN_TABLES else ""
                text = f"counts of reads of tables that do not exist weigh nothing: {shown}{more}"
                self._warn(f"{warehouse}/{READS_DIRECTORY}/tables", text)
        return self._of_tables[warehouse]

    def _file(self, warehouse: str, options: Mapping[str, str]) -> PolicyFile:
        if warehouse not in self._files:
            self._files[warehouse] = _file_at(warehouse, options)
        return self._files[warehouse]

    def _warn(self, path: str, text: str) -> None:
        """Warn about a file, unless that was the last thing said about it."""
        if self._warned.get(path) != text:
            self._warned[path] = text
            self.warn(text)

    def _policy(self, warehouse: str, options: Mapping[str, str]) -> Policy:
        if warehouse in self._fresh:
            return self._kept[warehouse]
        try:
            policy = within(self.seconds, self._file(warehouse, options).policy, POLICY_FILE)
        except PaimonError as error:
            if warehouse not in self._kept:
                raise
            self._warn(f"{warehouse}/{POLICY_FILE}", f"the policy cannot be read, so the last one counts: {error.message}")
            policy = self._kept[warehouse]
        if self._kept.get(warehouse) != policy:
            self._tables.clear()
        self._kept[warehouse] = policy
        self._fresh.add(warehouse)
        return policy
