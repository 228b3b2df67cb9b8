"""The two files of the configuration: `paimon.yaml` of the current directory, and the user's own file.

Both have the format of pypaimon: catalog options as a flat mapping. Under `profiles` they may hold further mappings; the selected
one overrides the rest. The nearer file wins key by key.

`./paimon.yaml` may have come with someone else's checkout. So it permits nothing, selects no profile of the own file, and
gets no secrets: beside addresses of `./paimon.yaml`, secrets of the own file are withheld, or a server of the one would receive
the credentials of the other.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paimon_cli.errors import UsageError
from paimon_cli.maintain.policy_text import PlacedValue, read_policy_text
from paimon_cli.options.option_text import did_you_mean
from paimon_cli.storage.catalog_options import TABLE_TIMEOUT, USER_PREFIXES
from paimon_cli.storage.redaction import holds_secret

CATALOG_FILE = "paimon.yaml"
PROFILE, PROFILES = "profile", "profiles"
POLICY = "policy"
"""A mapping of the own file, and of its profiles, which `own_policy` reads: how tables are maintained (`maintain/policy`)."""
_MAX_OWN_FILE = 1 << 20
"""The most bytes of an own file with a policy."""
USER_FILE, USER_FILE_VARIABLE = "paimon-cli/config.yaml", "PAIMON_CLI_CONFIG"
"""The user's own file, below `$XDG_CONFIG_HOME` or `~/.config`, and the variable that names another one."""
SETTINGS_PREFIXES = ("engine.", *USER_PREFIXES)
"""Keys that are settings of paimon-cli, not options of the catalog."""
WAREHOUSE = "warehouse"


class Origin:
    """Where the value of a setting comes from."""

    FLAG = "flag"
    ENVIRONMENT = "environment"
    PROFILE = "profile"
    FILE = "file"
    USER = "user"
    DEFAULT = "default"
    WITHHELD = "withheld"


@dataclass(frozen=True)
class ConfigurationFile:
    """A file of the configuration, which need not exist: what stands outside of profiles, and the profiles by name."""

    path: str
    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    profiles: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    has_policy: bool = False

    @staticmethod
    def near(directory: str, variables: Mapping[str, str]) -> ConfigurationFile:
        """The file of a directory. Raises `UsageError` if it cannot be read, or permits something."""
        path = os.path.join(directory, CATALOG_FILE)
        found = ConfigurationFile(path, *_read_file(path))
        for section in (found.values, *found.profiles.values()):
            _refuse_permissions(section, path, user_file_of(variables))
        if found.has_policy:
            raise _not_permitted(POLICY, path, f"put it into {user_file_of(variables)}")
        return found

    @staticmethod
    def own(variables: Mapping[str, str]) -> ConfigurationFile:
        """The user's own file. Raises `UsageError` if it cannot be read, or is named by a variable and does not exist."""
        path = user_file_of(variables)
        if variables.get(USER_FILE_VARIABLE) and not os.path.isfile(path):
            raise UsageError(f"there is no file {path}", f"{USER_FILE_VARIABLE} names it", f"unset {USER_FILE_VARIABLE}")
        return ConfigurationFile(path, *_read_file(path))


def user_file_of(variables: Mapping[str, str]) -> str:
    """The path of the user's own file, which need not exist. As the XDG specification has it, a relative directory is ignored."""
    base = variables.get("XDG_CONFIG_HOME", "")
    below = base if os.path.isabs(base) else os.path.join(os.path.expanduser("~"), ".config")
    return variables.get(USER_FILE_VARIABLE) or os.path.join(below, USER_FILE)


def chosen_by_a_file(near: ConfigurationFile, own: ConfigurationFile) -> tuple[str | None, tuple[str, str]]:
    """The profile that a file chooses with `profile: NAME`, and the origin of the choice.

    Raises `UsageError` if `paimon.yaml` chooses a profile that it does not have: those of the own file are the user's choice.
    """
    name = near.values.get(PROFILE)
    if not name:
        return own.values.get(PROFILE), (Origin.USER, own.path)
    if name not in near.profiles:
        raise unknown_profile(name, near)
    return name, (Origin.FILE, CATALOG_FILE)


def chosen_profiles(
    name: str | None, near: ConfigurationFile, own: ConfigurationFile
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """The profile of this name in each file; empty where it has none. Raises `UsageError` if no file has it."""
    if not name:
        return {}, {}
    if name not in near.profiles and name not in own.profiles:
        raise unknown_profile(name, near, own)
    return near.profiles.get(name, {}), own.profiles.get(name, {})


def unknown_profile(name: str, *files: ConfigurationFile) -> UsageError:
    """The error for a profile that these files do not have."""
    known = {file.path: sorted(file.profiles) for file in files if file.profiles}
    listed = (f"{path} has the profiles {', '.join(names)}" for path, names in known.items())
    why = "; ".join(listed) or f"{files[0].path} has no profiles"
    similar = did_you_mean(name, [profile for names in known.values() for profile in names])
    return UsageError(f"there is no profile '{name}'", why, f"{similar}paimon-cli config show")


def beside_near(own: Mapping[str, str], near: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """What counts of the own file beside `near`, from the current directory, and the keys of secrets that are withheld."""
    withheld = [key for key, value in own.items() if holds_secret(key, value)] if any(map(_leads_away, near.items())) else []
    return {key: value for key, value in own.items() if key not in withheld}, withheld


def _leads_away(setting: tuple[str, str]) -> bool:
    """Whether a setting may decide where credentials go: all but a warehouse on this machine and settings of paimon-cli."""
    key, value = setting
    if key == WAREHOUSE:
        return ":" in value
    return key not in (PROFILE, TABLE_TIMEOUT) and not key.startswith(SETTINGS_PREFIXES)


def _refuse_permissions(section: Mapping[str, str], path: str, user_file: str) -> None:
    for key in section:
        if key.startswith(USER_PREFIXES):
            raise _not_permitted(key, path, f"put it into {user_file}, or pass --option {key}=...")


def _not_permitted(key: str, path: str, hint: str) -> UsageError:
    why = "a file in the current directory may come from someone else, and cannot permit anything"
    return UsageError(f"'{key}' is not taken from {path}", why, hint)


def own_policy(variables: Mapping[str, str], profile: str | None) -> list[PlacedValue]:
    """The policies in the user's own file: what stands outside of profiles, then in the selected one, each with its lines.

    Raises `UsageError` for a file whose YAML has more than mappings, lists and texts, if it has a policy.
    """
    own = ConfigurationFile.own(variables)
    if not own.has_policy:
        return []
    with open(own.path, "rb") as source:
        found = read_policy_text(source.read(_MAX_OWN_FILE + 1), own.path, _MAX_OWN_FILE)
    profiles = found.get(PROFILES)
    of_profiles = profiles.value if profiles is not None and isinstance(profiles.value, dict) else {}
    chosen = of_profiles.get(profile or "")
    sections = [found, chosen.value if chosen is not None and isinstance(chosen.value, dict) else {}]
    return [section[POLICY] for section in sections if POLICY in section]


def _read_file(path: str) -> tuple[dict[str, str], dict[str, dict[str, str]], bool]:
    """The catalog options in the file, its profiles, and whether it has policies. Raises `UsageError` if it cannot be read."""
    if not os.path.isfile(path):
        return {}, {}, False
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
        return {}, {}, False
    if not isinstance(content, dict):
        raise _not_flat(path)
    profiles = content.pop(PROFILES, None) or {}
    if not isinstance(profiles, dict):
        raise UsageError(f"{PROFILES} in {path} is not a mapping", "it must map names to catalog options")
    sections = [content, *(profile for profile in profiles.values() if isinstance(profile, dict))]
    has_policy = [section.pop(POLICY, None) is not None for section in sections]
    listed = {str(name): _flat(f"{PROFILES}.{name} in {path}", profile or {}) for name, profile in profiles.items()}
    return _flat(path, content), listed, any(has_policy)


def _flat(source: str, content: Any) -> dict[str, str]:
    if not isinstance(content, dict) or any(isinstance(value, (dict, list)) for value in content.values()):
        raise _not_flat(source)
    return {str(key): _text(value) for key, value in content.items() if value is not None}


def _not_flat(source: str) -> UsageError:
    return UsageError(f"{source} is not a flat list of `key: value`", "pypaimon reads the same file in this form")


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
