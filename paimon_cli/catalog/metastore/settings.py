"""The configuration of a catalog: options of the call, environment variables, and two files with their profiles
(`catalog/metastore/configuration_files`).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from paimon_cli.catalog.metastore.configuration_files import (
    CATALOG_FILE,
    PROFILE,
    PROFILES,
    SETTINGS_PREFIXES,
    ConfigurationFile,
    Origin,
    beside_near,
    chosen_by_a_file,
    chosen_profiles,
    unknown_profile,
)
from paimon_cli.errors import NotSupported, importing
from paimon_cli.storage.catalog_options import EXTERNAL_PLACES, table_seconds
from paimon_cli.storage.external_storage import AllowedPlaces
from paimon_cli.storage.redaction import names_secret, remember_secrets, shown_value, without_login
from paimon_cli.storage.web_address import REPORT_HOSTS, AllowedHosts

if TYPE_CHECKING:
    from paimon_cli.catalog.metastore.metastore import Metastore

WAREHOUSE_VARIABLE, PROFILE_VARIABLE = "PAIMON_WAREHOUSE", "PAIMON_PROFILE"
METASTORE = "metastore"
FILESYSTEM, JDBC, HIVE, REST = "filesystem", "jdbc", "hive", "rest"


@dataclass(frozen=True)
class SettingRow:
    """A value, with secrets hidden, and its origin: `flag`, `environment`, `profile`, `file`, `user` or `default`.

    `source`: the flag, the variable, the section of the file, or the path of the user's own file. `withheld`: the own file has a
    secret, which is not used beside the addresses of `paimon.yaml`.
    """

    key: str
    value: str
    origin: str
    source: str | None = None


@dataclass(frozen=True)
class CatalogSettings:
    """Values by key, and the origin and source of each. `withheld`: keys of secrets that are not used."""

    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    sources: Mapping[str, tuple[str, str | None]] = field(default_factory=dict)
    withheld: tuple[str, ...] = ()

    @property
    def warehouse(self) -> str | None:
        return self.values.get("warehouse")

    @property
    def metastore(self) -> str:
        """The kind of catalog: `filesystem` unless configured."""
        return self.values.get(METASTORE, FILESYSTEM)

    @property
    def catalog_options(self) -> dict[str, str]:
        """The options of the catalog, without the warehouse and the settings of paimon-cli."""
        own = {"warehouse", PROFILE}
        return {key: value for key, value in self.values.items() if key not in own and not key.startswith(SETTINGS_PREFIXES)}

    @property
    def report_hosts(self) -> AllowedHosts:
        """The hosts to which options of tables may send reports. Raises `UsageError` for an invalid list."""
        return AllowedHosts.parse(self.values.get(REPORT_HOSTS))

    @property
    def external_places(self) -> AllowedPlaces:
        """The places outside of tables where these may keep data files. Raises `UsageError` for an invalid list."""
        return AllowedPlaces.parse(self.values.get(EXTERNAL_PLACES))

    @property
    def flags(self) -> str:
        """The flags of this call that name the catalog, each after a space and without secrets, for commands in hints."""
        words = flags_of({key: self.values[key] for key, (origin, _) in self.sources.items() if origin == Origin.FLAG})
        return "".join(f" {shlex.quote(word)}" for word in words)

    def rows(self) -> list[SettingRow]:
        """All values by key, secrets hidden."""
        used = [SettingRow(key, shown_value(key, self.values[key]), *self.sources[key]) for key in self.values]
        why = f"{CATALOG_FILE} names addresses"
        return sorted([*used, *(SettingRow(key, "***", Origin.WITHHELD, why) for key in self.withheld)], key=lambda row: row.key)


def flags_of(given: Mapping[str, str]) -> list[str]:
    """The words of a command line that give these values once more, without secrets, for commands in hints."""
    own = {"warehouse": "--warehouse", PROFILE: "--profile"}
    shown = {key: shown_value(key, value) for key, value in given.items() if not names_secret(key)}
    return [word for key, value in shown.items() for word in _flag(own.get(key), key, value)]


def table_argument(table: str, warehouse: str | None, branch: str | None, options: Mapping[str, str]) -> str:
    """A table as the argument of a command: quoted for the shell, and without secrets.

    The flags follow that locate it or change its options for one call; `options`: those of `--option`, and the profile.
    """
    located = {"warehouse": warehouse or options.get("warehouse"), PROFILE: options.get(PROFILE)}
    given = {**{key: value for key, value in located.items() if value is not None}, **options}
    if warehouse is not None:
        given["warehouse"] = warehouse
    of_branch = [] if branch is None else ["--branch", branch]
    return shlex.join([without_login(table), *flags_of(given), *of_branch])


def find_metastore(
    warehouse: str | None = None,
    options: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    directory: str = ".",
) -> Metastore:
    """The catalog that `--warehouse`, `--option`, the environment and `paimon.yaml` in `directory` configure."""
    return open_metastore(read_settings(warehouse, options, environment, directory))


def open_metastore(settings: CatalogSettings) -> Metastore:
    """The catalog with these settings, not connected yet. Raises `NotSupported` for an unknown kind of catalog."""
    found = replace(_metastore_of(settings), report_hosts=settings.report_hosts, external_places=settings.external_places)
    return replace(found, table_seconds=table_seconds(settings.values))


def _metastore_of(settings: CatalogSettings) -> Metastore:
    kind, options = settings.metastore, settings.catalog_options
    if kind == FILESYSTEM:
        from paimon_cli.catalog.metastore.filesystem import FileSystemMetastore

        del options[METASTORE]
        return FileSystemMetastore(settings.warehouse, options, settings.flags)
    if kind == JDBC:
        with importing("a jdbc catalog needs SQLAlchemy", "jdbc"):
            from paimon_cli.catalog.metastore.jdbc import JdbcMetastore

        return JdbcMetastore(settings.warehouse, options, settings.flags)
    if kind == HIVE:
        from paimon_cli.catalog.metastore.hive import HiveMetastore

        return HiveMetastore(settings.warehouse, options, settings.flags)
    if kind == REST:
        from paimon_cli.catalog.metastore.rest import RestMetastore

        return RestMetastore(settings.warehouse, options, settings.flags)
    origin, source = settings.sources[METASTORE]
    raise NotSupported(
        f"catalogs of the kind '{kind}' are not supported",
        f"metastore={kind} ({source or origin}) is none of {', '.join((FILESYSTEM, JDBC, HIVE, REST))}",
        "correct metastore, or name the table by its path with --option metastore=filesystem",
    )


def read_settings(
    warehouse: str | None = None,
    options: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    directory: str = ".",
) -> CatalogSettings:
    """The settings of a call. Options of the call override environment variables, which override the files: a profile overrides
    what stands outside of profiles, and `paimon.yaml` the user's own file, key by key.

    `options`: from `--option`; the key `profile` is from `--profile`. A profile that was selected by the call also overrides the
    environment. Raises `UsageError` if a file is not a flat mapping or has keys that belong into another one, or if the profile
    is unknown.
    """
    variables = os.environ if environment is None else environment
    near, own = ConfigurationFile.near(directory, variables), ConfigurationFile.own(variables)
    given = dict(options or {})
    profile, source = given.pop(PROFILE, None), (Origin.FLAG, "--profile")
    if profile is None:
        profile, source = variables.get(PROFILE_VARIABLE), (Origin.ENVIRONMENT, PROFILE_VARIABLE)
    if not profile:
        profile, source = chosen_by_a_file(near, own)
    of_near, of_own = chosen_profiles(profile, near, own)
    kept, withheld = beside_near(own.values, {**near.values, **of_near})
    kept_of_profile, withheld_of_profile = beside_near(of_own, {**near.values, **of_near})
    layers = [
        ({METASTORE: FILESYSTEM}, (Origin.DEFAULT, None)),
        (kept, (Origin.USER, own.path)),
        (near.values, (Origin.FILE, CATALOG_FILE)),
        (of_near, (Origin.PROFILE, f"{CATALOG_FILE}, {PROFILES}.{profile}")),
    ]
    # What only the own file chooses stays below the nearer file.
    layers.insert(2 if source[0] == Origin.USER else 3, (kept_of_profile, (Origin.PROFILE, f"{own.path}, {PROFILES}.{profile}")))
    named = variables.get(WAREHOUSE_VARIABLE)
    from_environment = ({"warehouse": named} if named else {}, (Origin.ENVIRONMENT, WAREHOUSE_VARIABLE))
    layers.insert(3 if source[0] == Origin.FLAG else 5, from_environment)
    layers.append(({PROFILE: profile} if profile else {}, source))
    layers.append((given, (Origin.FLAG, "--option")))
    layers.append(({"warehouse": warehouse} if warehouse else {}, (Origin.FLAG, "--warehouse")))
    values: dict[str, str] = {}
    sources: dict[str, tuple[str, str | None]] = {}
    for layer, origin in layers:
        values |= layer
        sources |= dict.fromkeys(layer, origin)
        remember_secrets(layer)
    return CatalogSettings(values, sources, tuple(key for key in (*withheld, *withheld_of_profile) if key not in values))


def split_profile(table: str, directory: str = ".") -> tuple[str | None, str]:
    """The profile and the rest of `@prod/db.t`, which is empty for `@prod`; None for any other text.

    A directory whose name begins with `@` is meant if there is no such profile; `./@prod/t` always is one. Raises `UsageError`
    if there is neither.
    """
    if not table.startswith("@"):
        return None, table
    name, slash, rest = table[1:].partition("/")
    files = ConfigurationFile.near(directory, os.environ), ConfigurationFile.own(os.environ)
    if any(name in file.profiles for file in files):
        return name, rest
    if slash and os.path.isdir(os.path.join(directory, f"@{name}")):
        return None, table
    raise unknown_profile(name, *files)


def catalog_setting(key: str, profile: str | None = None) -> str | None:
    """The value of a setting of paimon-cli in `paimon.yaml`, a profile of it or the user's own file; None if it is not set.

    `profile`: the one that the call names; None for that of the environment or of the file.
    """
    return read_settings(options={} if profile is None else {PROFILE: profile}).values.get(key)


def _flag(name: str | None, key: str, value: str) -> tuple[str, str]:
    return ("--option", f"{key}={value}") if name is None else (name, value)
