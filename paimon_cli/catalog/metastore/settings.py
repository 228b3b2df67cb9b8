"""The configuration of a catalog: options of the call, environment variables, and `paimon.yaml` with its profiles.

The file has the format of pypaimon: catalog options as a flat mapping. Under `profiles` it may hold further mappings; the
selected one overrides the rest of the file.

`./paimon.yaml` may have come with a checkout of somebody else, so it cannot permit anything. Permissions are in the user's own
file, which in turn holds no catalog options: else an address of the one could get the credentials of the other.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from paimon_cli.errors import NotSupported, UsageError, importing
from paimon_cli.storage.catalog_options import USER_PREFIXES, table_seconds
from paimon_cli.storage.redaction import names_secret, remember_secrets, shown_value
from paimon_cli.storage.web_address import REPORT_HOSTS, AllowedHosts

if TYPE_CHECKING:
    from paimon_cli.catalog.metastore.metastore import Metastore

CATALOG_FILE = "paimon.yaml"
WAREHOUSE_VARIABLE, PROFILE_VARIABLE = "PAIMON_WAREHOUSE", "PAIMON_PROFILE"
PROFILE, PROFILES = "profile", "profiles"
USER_FILE, USER_FILE_VARIABLE = "paimon-cli/config.yaml", "PAIMON_CLI_CONFIG"
"""The user's own file, below `$XDG_CONFIG_HOME` or `~/.config`, and the variable that names another one."""
SETTINGS_PREFIXES = ("engine.", *USER_PREFIXES)
"""Keys that are settings of paimon-cli, not options of the catalog."""
METASTORE = "metastore"
FILESYSTEM, JDBC, HIVE, REST = "filesystem", "jdbc", "hive", "rest"


class Origin:
    """Where the value of a setting comes from."""

    FLAG = "flag"
    ENVIRONMENT = "environment"
    PROFILE = "profile"
    FILE = "file"
    USER = "user"
    DEFAULT = "default"


@dataclass(frozen=True)
class SettingRow:
    """A value, with secrets hidden, and its origin: `flag`, `environment`, `profile`, `file`, `user` or `default`.

    `source`: the flag, the variable, the section of the file, or the path of the user's own file.
    """

    key: str
    value: str
    origin: str
    source: str | None = None


@dataclass(frozen=True)
class CatalogSettings:
    """Values by key, and the origin and source of each."""

    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    sources: Mapping[str, tuple[str, str | None]] = field(default_factory=dict)

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
    def flags(self) -> str:
        """The flags of this call that name the catalog, each after a space and without secrets, for commands in hints."""
        words = flags_of({key: self.values[key] for key, (origin, _) in self.sources.items() if origin == Origin.FLAG})
        return "".join(f" {shlex.quote(word)}" for word in words)

    def rows(self) -> list[SettingRow]:
        """All values by key, secrets hidden."""
        return [SettingRow(key, shown_value(key, self.values[key]), *self.sources[key]) for key in sorted(self.values)]


def flags_of(given: Mapping[str, str]) -> list[str]:
    """The words of a command line that give these values once more, without secrets, for commands in hints."""
    own = {"warehouse": "--warehouse", PROFILE: "--profile"}
    shown = {key: shown_value(key, value) for key, value in given.items() if not names_secret(key)}
    return [word for key, value in shown.items() for word in _flag(own.get(key), key, value)]


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
    hosts, seconds = settings.report_hosts, table_seconds(settings.values)
    return replace(_metastore_of(settings), report_hosts=hosts, table_seconds=seconds)


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
    """The settings of a call. Options of the call override environment variables, which override `paimon.yaml`.

    `options`: from `--option`; the key `profile` is from `--profile`. A profile that was selected by the call also overrides the
    environment. The user's own file holds settings of paimon-cli, which all others override. Raises `UsageError` if a file is
    not a flat mapping or has keys that belong into another one, or if the profile is unknown.
    """
    variables = os.environ if environment is None else environment
    path = os.path.join(directory, CATALOG_FILE)
    user_file = user_file_of(variables)
    of_user = _user_settings(user_file, is_named=bool(variables.get(USER_FILE_VARIABLE)))
    listed, profiles = _read_file(path)
    for section in (listed, *profiles.values()):
        _refuse_permissions(section, path, user_file)
    given = dict(options or {})
    profile, source = given.pop(PROFILE, None), (Origin.FLAG, "--profile")
    if profile is None:
        profile, source = variables.get(PROFILE_VARIABLE), (Origin.ENVIRONMENT, PROFILE_VARIABLE)
    if not profile:
        profile, source = listed.get(PROFILE), (Origin.FILE, CATALOG_FILE)
    chosen = _profile(profile, profiles, path)
    layers = [
        ({METASTORE: FILESYSTEM}, (Origin.DEFAULT, None)),
        (of_user, (Origin.USER, user_file)),
        (listed, (Origin.FILE, CATALOG_FILE)),
        (chosen, (Origin.PROFILE, f"{CATALOG_FILE}, {PROFILES}.{profile}")),
    ]
    named = variables.get(WAREHOUSE_VARIABLE)
    from_environment = ({"warehouse": named} if named else {}, (Origin.ENVIRONMENT, WAREHOUSE_VARIABLE))
    layers.insert(3 if source[0] == Origin.FLAG else 4, from_environment)
    layers.append(({PROFILE: profile} if profile else {}, source))
    layers.append((given, (Origin.FLAG, "--option")))
    layers.append(({"warehouse": warehouse} if warehouse else {}, (Origin.FLAG, "--warehouse")))
    values: dict[str, str] = {}
    sources: dict[str, tuple[str, str | None]] = {}
    for layer, origin in layers:
        values |= layer
        sources |= dict.fromkeys(layer, origin)
        remember_secrets(layer)
    return CatalogSettings(values, sources)


def user_file_of(variables: Mapping[str, str]) -> str:
    """The path of the user's own file, which need not exist. As the XDG specification has it, a relative directory is ignored."""
    base = variables.get("XDG_CONFIG_HOME", "")
    below = base if os.path.isabs(base) else os.path.join(os.path.expanduser("~"), ".config")
    return variables.get(USER_FILE_VARIABLE) or os.path.join(below, USER_FILE)


def _user_settings(path: str, *, is_named: bool) -> Mapping[str, str]:
    """The settings in the user's own file. Raises `UsageError` for other keys, and for a named file that does not exist."""
    if is_named and not os.path.isfile(path):
        raise UsageError(f"there is no file {path}", f"{USER_FILE_VARIABLE} names it", f"unset {USER_FILE_VARIABLE}")
    found, profiles = _read_file(path)
    foreign = next((key for key in (*found, *profiles) if not key.startswith(SETTINGS_PREFIXES)), None)
    if foreign is not None:
        allowed = ", ".join(f"{prefix}*" for prefix in SETTINGS_PREFIXES)
        why = f"this file holds settings of paimon-cli only ({allowed}), no options or profiles of a catalog"
        raise UsageError(f"'{foreign}' does not belong into {path}", why, f"put it into ./{CATALOG_FILE}")
    return found


def _refuse_permissions(section: Mapping[str, str], path: str, user_file: str) -> None:
    for key in section:
        if key.startswith(USER_PREFIXES):
            raise UsageError(
                f"'{key}' is not taken from {path}",
                "a file in the current directory may come from someone else, and cannot permit anything",
                f"put it into {user_file}, or pass --option {key}=...",
            )


def catalog_setting(key: str, profile: str | None = None) -> str | None:
    """The value of a setting of paimon-cli in `paimon.yaml`, a profile of it or the user's own file; None if it is not set.

    `profile`: the one that the call names; None for that of the environment or of the file.
    """
    return read_settings(options={} if profile is None else {PROFILE: profile}).values.get(key)


def _profile(name: str | None, profiles: Mapping[str, Mapping[str, str]], path: str) -> Mapping[str, str]:
    if not name:
        return {}
    if name not in profiles:
        known = ", ".join(sorted(profiles))
        why = f"{path} has the profiles {known}" if known else f"{path} has no profiles"
        raise UsageError(f"there is no profile '{name}'", why, "paimon-cli config show")
    return profiles[name]


def _read_file(path: str) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """The catalog options in the file, and its profiles. Raises `UsageError` if the file cannot be read."""
    if not os.path.isfile(path):
        return {}, {}
    import yaml

    try:
        with open(path, encoding="utf-8") as stream:
            content: Any = yaml.safe_load(stream)
    except RecursionError:
        raise UsageError(f"{path} is not a flat list of `key: value`", "it is nested too deeply") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        # The parser's own words quote the file, which may hold secrets.
        mark = getattr(error, "problem_mark", None)
        where = "it is not UTF-8" if mark is None else f"the parser stopped at line {mark.line + 1}, column {mark.column + 1}"
        hint = "put values that contain one of : # @ % & * ! ? { [ in quotes"
        raise UsageError(f"{path} is not YAML", where, hint) from None
    except OSError as error:
        raise UsageError(f"cannot read {path}", error.strerror or "") from error
    if content is None:
        return {}, {}
    if not isinstance(content, dict):
        raise _not_flat(path)
    profiles = content.pop(PROFILES, None) or {}
    if not isinstance(profiles, dict):
        raise UsageError(f"{PROFILES} in {path} is not a mapping", "it must map names to catalog options")
    listed = {str(name): _flat(f"{PROFILES}.{name} in {path}", profile or {}) for name, profile in profiles.items()}
    return _flat(path, content), listed


def _flat(source: str, content: Any) -> dict[str, str]:
    if not isinstance(content, dict) or any(isinstance(value, (dict, list)) for value in content.values()):
        raise _not_flat(source)
    return {str(key): _text(value) for key, value in content.items() if value is not None}


def _not_flat(source: str) -> UsageError:
    return UsageError(f"{source} is not a flat list of `key: value`", "pypaimon reads the same file in this form")


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _flag(name: str | None, key: str, value: str) -> tuple[str, str]:
    return ("--option", f"{key}={value}") if name is None else (name, value)
