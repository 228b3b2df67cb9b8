"""Every option of Paimon, how far this version honours it, and the gates that refuse a table because of an option.

The catalog itself is a packaged data file. A refusal is better than a wrong result, or than a commit that other readers would
misread; so every operation calls `refuse` before it starts.
"""

from __future__ import annotations

import json
import pkgutil
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any

from paimon_cli.errors import UnsupportedOption
from paimon_cli.options.changelog_producers import CHANGELOG_PRODUCERS
from paimon_cli.options.merge_engines import MERGE_ENGINES
from paimon_cli.options.own_options import DECLARED

HONOURED, IN_PART, HARMLESS = "honoured", "honoured in part", "harmless"
REFUSED_ON_READ, REFUSED_ON_WRITE = "refused on read", "refused on write"
STATUSES = (HONOURED, IN_PART, HARMLESS, REFUSED_ON_READ, REFUSED_ON_WRITE)
OF_CATALOG = "catalog"
"""Group of the options for the location of a catalog and access to it; in a table they have no effect."""
_NO_LIMIT = "9223372036854775807 bytes"
PLACEHOLDER = re.compile(r"<[a-z]+>")


@dataclass(frozen=True)
class Gate:
    """Refuses one operation, unless the option has its default value or one of the values in `unless`.

    `at`, the operation: open, scan, write, compact, commit or tag. `of_keys`: also for tables with a primary key, where some
    options have no effect.
    """

    at: str
    unless: tuple[str, ...] = ()
    of_keys: bool = True


@dataclass(frozen=True)
class TableOption:
    """One option, or a family of them: `fields.<column>.aggregate-function`.

    `type`: as Java names it; `default`: as text, None if unset; `immutable`: cannot be changed once the table has data; `group`:
    the component of Paimon that it belongs to; `since`: the first release of Paimon with it; `status`: one of `STATUSES`;
    `reason`: why it has that status.
    """

    key: str
    type: str
    default: str | None
    description: str
    group: str
    status: str
    reason: str = ""
    gates: tuple[Gate, ...] = ()
    since: str | None = None
    immutable: bool = False
    choices: tuple[str, ...] = ()
    older_keys: tuple[str, ...] = ()

    @property
    def documented_default(self) -> str | None:
        """The default as Paimon's documentation writes it."""
        return "infinite" if self.default == _NO_LIMIT else self.default

    @property
    def is_family(self) -> bool:
        return "<" in self.key

    def passes(self, at: str, text: str, has_keys: bool = False) -> bool:
        """Whether the operation `at` is allowed on a table with this option set to `text`. `has_keys`: it has a primary key."""
        value = text.strip().lower()
        harmless = {"", (self.default or "").lower()}
        gates = (gate for gate in self.gates if gate.at == at and (gate.of_keys or not has_keys))
        return all(value in harmless or value in gate.unless for gate in gates)


_CHOICES = {"merge-engine": tuple(MERGE_ENGINES), "changelog-producer": tuple(CHANGELOG_PRODUCERS)}
"""Values that are listed elsewhere, by option."""


def _option(row: Mapping[str, Any]) -> TableOption:
    gates = tuple(Gate(gate["at"], tuple(gate["unless"]), gate.get("of_keys", True)) for gate in row.get("gates", ()))
    lists = {name: tuple(row.get(name, ())) for name in ("choices", "older_keys")}
    if row["key"] in _CHOICES:
        lists["choices"] = _CHOICES[row["key"]]
    return TableOption(**{"default": None, **row, **lists, "gates": gates})


def _load() -> tuple[TableOption, ...]:
    content = pkgutil.get_data("paimon_cli.options", "option_catalog.json")  # importlib.resources takes longer to load
    assert content is not None
    return tuple(map(_option, json.loads(content)))


OPTIONS = _load()
"""All options of Paimon, sorted by key."""

OWN_OPTIONS = tuple(
    TableOption(
        own.key, own.type, own.default_text, f"unknown to Paimon: {own.meaning}", "paimon-cli", HONOURED, choices=own.choices
    )
    for own in DECLARED
)
"""Options that only paimon-cli has; Paimon's engines ignore them."""

_BY_KEY = {key: option for option in OPTIONS for key in option.older_keys}
_BY_KEY |= {option.key: option for option in (*OPTIONS, *OWN_OPTIONS)}


@cache
def _families() -> tuple[tuple[re.Pattern[str], TableOption], ...]:
    """The option families with their patterns, the most specific first."""
    families = sorted((option for option in OPTIONS if option.is_family), key=lambda o: -len(PLACEHOLDER.sub("", o.key)))
    return tuple((re.compile(".+".join(map(re.escape, PLACEHOLDER.split(option.key)))), option) for option in families)


def find_option(key: str) -> TableOption | None:
    """The option with this current or older key, or the family that the key belongs to; None if Paimon has no such option."""
    found = _BY_KEY.get(key)
    return found or next((option for pattern, option in _families() if pattern.fullmatch(key)), None)


def nearest_key(key: str, cutoff: float) -> str | None:
    """The known key most similar to this one, None if none has a similarity of `cutoff` (0 to 1)."""
    found = get_close_matches(key, [known for known, option in _BY_KEY.items() if not option.is_family], 1, cutoff)
    return found[0] if found else None


class Operation:
    """What an option may forbid."""

    OPEN = "open"
    """Any access to the files of a table."""
    SCAN = "scan"
    """Reading rows."""
    WRITE = "write"
    """Writing rows to new data files."""
    COMPACT = "compact"
    """Rewriting data files."""
    COMMIT = "commit"
    """Publishing a snapshot."""
    TAG = "tag"
    """Creating a tag."""


_MESSAGES = {
    Operation.OPEN: "table {} has the option {}",
    Operation.SCAN: "cannot read table {} with {}",
    Operation.WRITE: "cannot write table {} with {}",
    Operation.COMPACT: "cannot compact table {} with {}",
    Operation.COMMIT: "cannot commit to table {} with {}",
    Operation.TAG: "cannot tag table {} with {}",
}
_OVERRIDABLE = (Operation.SCAN, Operation.COMMIT, Operation.TAG)
"""Operations for which a dynamic option may reset the option to its default, because the data files do not depend on it."""


def refuse(at: str, options: Mapping[str, str], table: str, has_keys: bool = False) -> None:
    """Raise `NotSupported`, naming the first option that forbids the operation `at`. `has_keys`: the table has a primary key."""
    for key, value, option in _refused(at, options, has_keys):
        hint = "use a Paimon engine that supports the option"
        if at in _OVERRIDABLE and not option.immutable:
            hint = f"to ignore the option for this command, add --option {key}={option.default or ''}"
        raise UnsupportedOption(_MESSAGES[at].format(table, f"{key}={value}"), option.reason, hint, option=key, value=value)


def refusals(at: str, options: Mapping[str, str], has_keys: bool = False) -> list[str]:
    """One sentence for each option that forbids the operation `at`. `has_keys`: the table has a primary key."""
    return [f"with {key}={value} {option.reason}" for key, value, option in _refused(at, options, has_keys)]


def _refused(at: str, options: Mapping[str, str], has_keys: bool) -> Iterator[tuple[str, str, TableOption]]:
    for key, value in options.items():
        option = find_option(key)
        if option is not None and not option.passes(at, value, has_keys):
            yield key, value, option
