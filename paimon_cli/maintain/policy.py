"""The policy of a warehouse: how its tables are maintained, by catalog, database and table (FORMAT.md, section 13.11).

    catalog:                           # for all tables
      goal: balanced
      budget: 50GB/day                 # read, by compactions of all tables that this line is about, together
      windows: nights
      timezone: Europe/Berlin
    databases:
      staging:
        caps: {bytes: 10 GB}           # a round reads at most this much of a table
    tables:
      "shop.orders*":
        retention: {snapshots: 7 d, tags: 90 d}

For each key the last line that meets a table counts: first catalog, then databases, then tables, each in the order of the file;
then the same in the user's own configuration. The policy in the warehouse, which many may write, can keep things longer, never
shorter, and starts no program: what it may not set is refused, named as a finding, and the rest counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timezone, tzinfo
from fnmatch import translate
from functools import cached_property
from typing import Any, NamedTuple, get_args

from paimon_cli.errors import UsageError
from paimon_cli.maintain.policy_text import PlacedValue, at, read_policy_text, shown_key
from paimon_cli.maintain.time_windows import TimeWindow, TimeWindows, time_zone
from paimon_cli.options.option_text import did_you_mean, parse_duration, parse_size, plain_number
from paimon_cli.requests.upkeep import Allowance, GoalName

MAX_PATTERNS, MAX_MISTAKES, MAX_HOOKS, LONGEST_PATTERN, _MOST = 1000, 20, 10, 200, 2**31 - 1
"""Bounds of the patterns of one policy, of the mistakes that are named, of the hooks of a line, of a pattern, of a number."""


class PolicyLevel:
    """The parts of a policy, in the order in which they count."""

    CATALOG = "catalog"
    DATABASES = "databases"
    TABLES = "tables"


LEVEL_NOUNS = {PolicyLevel.CATALOG: "catalog", PolicyLevel.DATABASES: "database", PolicyLevel.TABLES: "table"}
"""What a rule of each part is for."""


class PolicyKey:
    """The keys that a rule may set; a dot means a mapping within."""

    GOAL = "goal"
    BUDGET = "budget"
    READS = "reads"
    WINDOWS = "windows"
    TIMEZONE = "timezone"
    RUNS = "caps.runs"
    ROUND_BYTES = "caps.bytes"
    ROUND_BUCKETS = "caps.buckets"
    SNAPSHOTS = "retention.snapshots"
    SNAPSHOTS_MIN = "retention.snapshots-min"
    SNAPSHOTS_MAX = "retention.snapshots-max"
    PARTITIONS = "retention.partitions"
    TAGS = "retention.tags"
    HOOKS = "hooks"
    HOSTS = "hosts"
    COUNT_READS = "count-reads"


_GROUPS = _CAPS, RETENTION = "caps", "retention"
_HOURS = {"h": 1, "hour": 1, "d": 24, "day": 24}


class _Key(NamedTuple):
    """How the value of a key is read. `is_list`: it may be a list. `is_own`: only the user's own configuration may set it."""

    read: Callable[[Any], Any]
    is_list: bool = False
    is_own: bool = False


def _number(text: str) -> int:
    number = plain_number(text)
    if number is None or not 1 <= number <= _MOST:
        raise UsageError(f"'{text}' is no number from 1", "such as 20")
    return number


def _goal(text: str) -> str:
    goals = get_args(GoalName)
    if text not in goals:
        raise UsageError(f"'{text}' is no goal", f"goals are {', '.join(goals)}", did_you_mean(text, goals))
    return text


def _budget(text: str) -> Allowance:
    such_as = "such as 2h/day or 50GB/day"
    try:
        allowance = Allowance.parse(text)
    except UsageError as error:
        raise UsageError(f"'{text}' is no budget", error.why, such_as) from None
    if not allowance.is_daily:
        raise UsageError(f"'{text}' is no budget of a day", "a policy holds for every day", such_as)
    return allowance


def _reads(text: str) -> float:
    """Reads of a bucket in an hour."""
    amount, slash, unit = text.partition("/")
    number = plain_number(amount)
    if number is None or not 0 <= number <= _MOST or not slash or unit.strip() not in _HOURS:
        raise UsageError(f"'{text}' is no rate of reads", "it is a number by hour or day", "such as 600/h or 5/d")
    return number / _HOURS[unit.strip()]


def _share(text: str) -> float:
    """A share above 0, at most 1."""
    percent = plain_number(text.removesuffix("%").strip()) if text.endswith("%") else None
    if percent is None or not 1 <= percent <= 100:
        raise UsageError(f"'{text}' is no share of reads", "it is a whole number of percent from 1 to 100", "such as 5%")
    return percent / 100


def _time(text: str) -> int:
    if text.strip().isdigit():
        raise UsageError(f"'{text}' is a time without a unit", "it could be meant in any", "such as 7 d or 12 h")
    return parse_duration(text)


def _size(text: str) -> int:
    size = parse_size(text)
    if not size:
        raise UsageError(f"'{text}' is no size", "nothing would ever be compacted", "such as 10 GB")
    return size


def _hooks(texts: tuple[str, ...]) -> tuple[str, ...]:
    if not texts or len(texts) > MAX_HOOKS:
        raise UsageError(f"there are {len(texts)} hooks", f"from 1 to {MAX_HOOKS} are taken")
    return texts


def _hosts(texts: tuple[str, ...]) -> tuple[str, ...]:
    what = "hosts have a key of their own outside of the policy"
    raise UsageError(what, "they count for all tables", "set http-report.allowed-hosts")


_KEYS: Mapping[str, _Key] = {
    PolicyKey.GOAL: _Key(_goal),
    PolicyKey.BUDGET: _Key(_budget),
    PolicyKey.READS: _Key(_reads),
    PolicyKey.WINDOWS: _Key(TimeWindows.parse, is_list=True),
    PolicyKey.TIMEZONE: _Key(time_zone),
    PolicyKey.RUNS: _Key(_number),
    PolicyKey.ROUND_BYTES: _Key(_size),
    PolicyKey.ROUND_BUCKETS: _Key(_number),
    PolicyKey.SNAPSHOTS: _Key(_time),
    PolicyKey.SNAPSHOTS_MIN: _Key(_number),
    PolicyKey.SNAPSHOTS_MAX: _Key(_number),
    PolicyKey.PARTITIONS: _Key(_time),
    PolicyKey.TAGS: _Key(_time),
    PolicyKey.HOOKS: _Key(_hooks, is_list=True, is_own=True),
    PolicyKey.HOSTS: _Key(_hosts, is_list=True, is_own=True),
    PolicyKey.COUNT_READS: _Key(_share, is_own=True),
}
"""How the value of each key is read."""


@dataclass(frozen=True)
class Setting:
    """One line of a policy. `value`: as its key means it; `text`: as it is written; `level`, `pattern`: whom it is for."""

    key: str
    value: Any
    text: str
    source: str
    line: int
    level: str
    pattern: str
    is_own: bool

    @property
    def place(self) -> str:
        """The file, without its directory, and the line."""
        return f"{self.source.rpartition('/')[2]}:{self.line}"


@dataclass(frozen=True)
class PolicyRule:
    """What a policy sets for the tables that a pattern meets, in the order of its lines. `refused`: what it may not set."""

    level: str
    pattern: str
    settings: tuple[Setting, ...]
    refused: tuple[Setting, ...] = ()

    @cached_property
    def _parts(self) -> tuple[re.Pattern[str], re.Pattern[str]]:
        """Of the database, and of the table."""
        database, _, table = self.pattern.partition(".")
        return _expression(database), _expression(table or "*")

    def meets(self, database: str, table: str | None) -> bool:
        """Whether it is about a table; None: about some table that the database could have."""
        if self.level == PolicyLevel.CATALOG:
            return True
        of_database, of_table = self._parts
        return of_database.match(database) is not None and (table is None or of_table.match(table) is not None)


def _expression(pattern: str) -> re.Pattern[str]:
    """A pattern in which `*` means any letters and `?` one; nothing else is special."""
    return re.compile(translate(pattern.replace("[", "[[]")))


@dataclass(frozen=True)
class Policy:
    """The rules of one file, in the order in which they count."""

    rules: tuple[PolicyRule, ...] = ()

    @staticmethod
    def read(content: bytes, source: str) -> Policy:
        """The policy of a warehouse. Raises `UsageError` that names the first mistakes with their lines."""
        return Policy.of(read_policy_text(content, source), source, is_own=False)

    @staticmethod
    def of(found: Mapping[str, PlacedValue], source: str, *, is_own: bool) -> Policy:
        """The policy in a mapping. Raises `UsageError` that names the first mistakes with their lines."""
        reader = _Reader(source, is_own)
        rules = tuple(reader.rules(found))
        reader.raise_mistakes()
        return Policy(rules)

    @property
    def refused(self) -> list[Setting]:
        """The settings that this file may not make."""
        return [setting for rule in self.rules for setting in rule.refused]

    @property
    def settings(self) -> list[Setting]:
        """What counts of the file, in the order in which it counts."""
        return [setting for rule in self.rules for setting in rule.settings]

    def about(self, database: str, table: str | None) -> Policy:
        """The rules that meet a table; None: the tables of a database."""
        return Policy(tuple(rule for rule in self.rules if rule.meets(database, table)))


@dataclass
class _Reader:
    """Reads the rules of a file, and collects its mistakes."""

    source: str
    is_own: bool
    mistakes: list[UsageError] = field(default_factory=list)

    def rules(self, found: Mapping[str, PlacedValue]) -> Iterator[PolicyRule]:
        for name, given in found.items():
            if name not in LEVEL_NOUNS:
                self._unknown(name, given.line, LEVEL_NOUNS)
        for level, given in ((level, found[level]) for level in LEVEL_NOUNS if level in found):
            if level == PolicyLevel.CATALOG:
                yield from self._rule(level, "*", given)
                continue
            patterns = self._mapping(level, given)
            if len(patterns) > MAX_PATTERNS:
                self._mistake(given.line, f"there are {len(patterns):,} patterns", f"at most {MAX_PATTERNS:,} are taken")
                return
            for pattern, settings in patterns.items():
                yield from self._rule(level, pattern, settings)

    def raise_mistakes(self) -> None:
        if not self.mistakes:
            return
        first, *others = self.mistakes
        if not others:
            raise first
        shown = [error.message for error in self.mistakes[:MAX_MISTAKES]]
        more = len(self.mistakes) - len(shown)
        lines = "\n".join([*(f"  {text}" for text in shown), *([f"  and {more:,} more"] if more else [])])
        raise UsageError(f"{self.source} has {len(self.mistakes)} mistakes", lines, first.hint)

    def _rule(self, level: str, pattern: str, given: PlacedValue) -> Iterator[PolicyRule]:
        dots = pattern.count(".")
        if len(pattern) > LONGEST_PATTERN:
            why = f"it has {len(pattern):,} characters, and at most {LONGEST_PATTERN} are taken"
            self._mistake(given.line, f"the pattern '{shown_key(pattern)}' is too long", why)
            return
        if not pattern or dots != (level == PolicyLevel.TABLES):
            form = "database.table, such as shop.orders_*" if level == PolicyLevel.TABLES else "a database, such as staging_*"
            self._mistake(given.line, f"'{shown_key(pattern)}' is no pattern of {level}", f"it must have the form of {form}")
            return
        name = level if level == PolicyLevel.CATALOG else pattern
        found = tuple(self._settings(level, pattern, self._mapping(name, given)))
        refused = tuple(setting for setting in found if _KEYS[setting.key].is_own and not self.is_own)
        yield PolicyRule(level, pattern, tuple(setting for setting in found if setting not in refused), refused)

    def _mapping(self, name: str, given: PlacedValue) -> Mapping[str, PlacedValue]:
        if isinstance(given.value, dict):
            return given.value
        if given.has_value:
            self._mistake(given.line, f"'{shown_key(name)}' is no mapping", "it holds keys and their values")
        return {}

    def _settings(self, level: str, pattern: str, found: Mapping[str, PlacedValue]) -> Iterator[Setting]:
        flat: dict[str, PlacedValue] = {}
        for name, given in found.items():
            if name in _GROUPS:
                flat.update((f"{name}.{inner}", each) for inner, each in self._mapping(name, given).items())
            elif name in _KEYS and "." not in name:
                flat[name] = given
            else:
                self._unknown(name, given.line, [key for key in (*_KEYS, *_GROUPS) if "." not in key])
        for key, given in flat.items():
            if key not in _KEYS:
                group, _, inner = key.partition(".")
                known = [each.partition(".")[2] for each in _KEYS if each.startswith(f"{group}.")]
                self._unknown(inner, given.line, known)
                continue
            setting = self._setting(key, given, level, pattern)
            if setting is not None:
                yield setting

    def _setting(self, key: str, given: PlacedValue, level: str, pattern: str) -> Setting | None:
        declared = _KEYS[key]
        texts = _texts(given)
        if texts is None or (isinstance(given.value, list) and not declared.is_list):
            kind = "texts" if declared.is_list else "one value"
            self._mistake(given.line, f"{key} has no value that can be taken", f"it takes {kind}")
            return None
        shown = ", ".join(map(_without_token, texts) if key == PolicyKey.HOOKS else texts)
        if declared.is_own and not self.is_own:
            return Setting(key, texts, shown, self.source, given.line, level, pattern, False)
        try:
            value = declared.read(texts if declared.is_list else texts[0])
        except UsageError as error:
            self._mistake(given.line, f"{key}: {error.what}", error.why, error.hint)
            return None
        return Setting(key, value, shown, self.source, given.line, level, pattern, self.is_own)

    def _unknown(self, name: str, line: int, known: Sequence[str] | Mapping[str, str]) -> None:
        similar = did_you_mean(name, known) if len(self.mistakes) < MAX_MISTAKES else ""
        self._mistake(line, f"unknown key '{shown_key(name)}'", f"known here: {', '.join(known)}", similar)

    def _mistake(self, line: int, what: str, why: str, hint: str = "") -> None:
        self.mistakes.append(at(self.source, line, what, why, hint))


def _without_token(hook: str) -> str:
    """A hook as it may be shown: the host of a URL, or the program of a command."""
    scheme, mark, rest = hook.partition("://")
    return f"{scheme}{mark}{re.split('[/?#]', rest, maxsplit=1)[0].rpartition('@')[2]}" if mark else hook.partition(" ")[0]


def _texts(given: PlacedValue) -> tuple[str, ...] | None:
    """A text, or a list of texts; None for anything else."""
    if isinstance(given.value, str):
        return (given.value,) if given.has_value else None
    if isinstance(given.value, list) and all(isinstance(each.value, str) and each.has_value for each in given.value):
        return tuple(str(each.value) for each in given.value)
    return None


@dataclass(frozen=True)
class TablePolicy:
    """What the policies say about one table. `met`: all settings that meet it, in the order in which they count; `refused`:
    those of the warehouse that only the user's own configuration may make.
    """

    met: tuple[Setting, ...] = ()
    refused: tuple[Setting, ...] = ()

    @cached_property
    def settings(self) -> Mapping[str, Setting]:
        """The settings in force by their keys; of retention, `kept` decides."""
        return {setting.key: setting for setting in self.met}

    def value(self, key: str) -> Any:
        """The value in force; None if no line sets it."""
        setting = self.settings.get(key)
        return None if setting is None else setting.value

    @cached_property
    def windows(self) -> TimeWindows | None:
        """When the table is maintained; None for always."""
        windows: tuple[TimeWindow, ...] | None = self.value(PolicyKey.WINDOWS)
        zone: tzinfo = self.value(PolicyKey.TIMEZONE) or timezone.utc
        return None if windows is None else TimeWindows(windows, zone)

    def closes(self, now_millis: int) -> int | None:
        """When the maintenance of the table must end, in epoch millis; None if it need not."""
        return None if self.windows is None else self.windows.closes(now_millis)

    def is_closed(self, now_millis: int) -> bool:
        """Whether the table is not maintained now."""
        return self.windows is not None and self.windows.closes(now_millis) is None

    def last_of(self, key: str, of_table: int | None = None) -> tuple[Setting | None, Setting | None]:
        """The last lines about a setting: of the user's own configuration, and of the warehouse.

        `of_table`: a retention of the table; lines of the warehouse that would shorten it do not count, nor override others.
        """
        of_key = [setting for setting in self.met if setting.key == key]
        own = [setting for setting in of_key if setting.is_own]
        others = [setting for setting in of_key if not setting.is_own and (of_table is None or setting.value >= of_table)]
        return (own[-1] if own else None), (others[-1] if others else None)

    def kept(self, key: str, of_table: int) -> tuple[int, Setting | None]:
        """A retention, given the table's own, and the line that set it: that of the user, else the longer one."""
        own, other = self.last_of(key, of_table)
        counts = own if own is not None else other
        return (of_table, None) if counts is None else (counts.value, counts)


NO_POLICY = TablePolicy()
