"""Texts of the command line, said for callers of the library: commands become calls, options become parameters.

Errors and warnings are written once, with the names that people type; `Table` and `Catalog` show them in their own names.
"""

from __future__ import annotations

import re
import shlex

_FLAG = re.compile(r"(?<![\w-])(?:--([a-z][a-z-]*)|-C\b)(?: (?=[A-Z]{3,}\b))?")
_SETTING = re.compile(
    r"--(?:(?P<engine>engine) (?P<kind>local|spark|auto)\b"
    r"|(?P<master>master|remote) '?(?P<url>[\w.-]+(?:\[[\w*]+\]|://[\w.:-]*\w)|yarn\b)'?"
    r"|spark-conf (?P<key>spark\.[\w.]+)=(?P<value>\w+)"
    r"|param (?P<parameter>\w+)=VALUE)"
)
"""Options with a value: settings of Spark (in the library arguments of `Table.open` and `Catalog`), and parameters of SQL."""
COMMAND = re.compile(r"(?P<quote>`?)paimon-cli (?P<words>[a-z](?:'[^'\n]*'|[^`\n;])*)(?P=quote)")
_SMALL_NUMBER = re.compile("[0-9]{1,18}")
METHODS = {
    **{name: name for name in ("advise", "compact", "describe", "doctor", "rescale", "verify")},
    **{f"{name} ls": name for name in ("buckets", "compactions", "files", "manifests", "partitions", "schemas", "snapshots")},
    **{f"{name} ls": f"{name}.ls" for name in ("branches", "consumers", "tags")},
    **{f"tags {name}": f"tags.{name}" for name in ("replace", "create")},
    "branches create": "branches.create",
    "compact-manifests": "compact_manifests",
    "analyze": "analyze",
    "health": "health",
    "repair": "plan_repair",
}
"""Methods of `Table` by the command that does the same with a table and options that have the names of parameters.

Commands that discard something ask, and calls do not: they are not among these.
"""
NAMES_ONE = ("tags replace", "tags create", "branches create")
"""Those with a name after the table."""
OPENS, NO_ARGUMENTS = ("--warehouse", "--branch"), ("--option", "--profile", "--trace")
"""Options that are arguments of `Table.open`, and those of which one word is not a whole argument of a call."""
METHODS_OF_CATALOG = {"tables ls": "tables", "db ls": "databases", "db create": "create_database", "tables clone": "clone_table"}
METHODS_OF_CATALOG |= {"undrop": "undrop", "compare": "compare"}
"""Methods of `Catalog` by the command that does the same, with names and a warehouse."""
MOST_NAMES = {"tables ls": 1, "db ls": 0, "db create": 1, "tables clone": 2, "undrop": 1, "compare": 2}
CALLS = {"create": "Table.create", "compact": "Table.compact", "delete": "Table.delete", "rescale": "Table.rescale"}
CALLS |= {"tables ls": "Catalog.tables", "db ls": "Catalog.databases", "alter": "Table.alter", "repair": "Table.plan_repair"}
"""What texts for callers of the library name instead of commands without arguments."""


def in_python(text: str) -> str:
    """The text for callers of the library: `--retain-max` becomes `retain_max`, `--warehouse URI` becomes `warehouse=URI`, and
    `--engine local` becomes `engine='local'`.

    A command to paste becomes a call of the library if `METHODS` has it; a text with another command is unchanged.
    """
    text = COMMAND.sub(lambda command: _call(command["words"]) or command[0], text)
    return text if "paimon-cli " in text else _FLAG.sub(_parameter, _SETTING.sub(_setting, text))


def _setting(setting: re.Match[str]) -> str:
    if setting["engine"]:
        return f"engine={setting['kind']!r}"
    if setting["master"]:
        return f"master={setting['url']!r}"
    if setting["parameter"]:
        return f"params={{{setting['parameter']!r}: ...}}"
    return f"spark_conf={ {setting['key']: setting['value']}!r}"


def _parameter(flag: re.Match[str]) -> str:
    return (flag[1] or "columns").replace("-", "_") + ("=" if flag[0].endswith(" ") else "")


def _call(command: str) -> str | None:
    """The call that does what a command does; None if the library has no such call, or its arguments are others."""
    if command.rstrip() in CALLS:
        return CALLS[command.rstrip()]
    try:
        words = [word for word in shlex.split(command, comments=True) if word != "--yes"]  # the library asks no questions
    except ValueError:
        return None
    if words[0] == "alter":
        return _alteration(words[1:])
    if words[0] == "create":
        return _creation(words[1:])
    for size in (2, 1):
        if (name := " ".join(words[:size])) in METHODS_OF_CATALOG:
            return _call_of_catalog(name, words[size:])
    size = next((size for size in (2, 1) if len(words) > size and " ".join(words[:size]) in METHODS), 0)
    if not size or words[size].startswith("-"):
        return None
    command = " ".join(words[:size])
    names = 1 if command in NAMES_ONE and len(words) > size + 1 else 0
    arguments, rest = [repr(name) for name in words[size + 1 : size + 1 + names]], words[size + 1 + names :]
    method, opening = METHODS[command], [repr(words[size])]
    if "--apply" in rest:
        rest, method = [word for word in rest if word != "--apply"], method.removeprefix("plan_")
    while rest:
        flag, *values = rest[: 2 if len(rest) > 1 and not rest[1].startswith("-") else 1]
        if not flag.startswith("--") or "=" in flag:
            return None
        if flag in NO_ARGUMENTS:
            return None
        value = True if not values else int(values[0]) if _SMALL_NUMBER.fullmatch(values[0]) else values[0]
        argument = f"{flag.removeprefix('--').replace('-', '_')}={value!r}"
        (opening if flag in OPENS else arguments).append(argument)
        rest = rest[1 + len(values) :]
    return f"Table.open({', '.join(opening)}).{method}({', '.join(arguments)})"


def _creation(words: list[str]) -> str | None:
    """The call that creates a table with columns; None if the command has other options, or no columns."""
    table, *rest = words
    if table.startswith("-") or not rest or len(rest) % 2 or any(flag != "-C" for flag in rest[::2]):
        return None
    return f"Table.create({table!r}, columns={rest[1::2]!r})"


def _call_of_catalog(name: str, words: list[str]) -> str | None:
    """The call that does the same with a catalog; None if the command has other options."""
    at = words.index("--warehouse") if "--warehouse" in words[:-1] else len(words)
    places, url = words[:at], words[at + 1 : at + 2]
    if words[at + 2 :] or len(places) > MOST_NAMES[name] or any(place.startswith("-") for place in places):
        return None
    return f"Catalog({', '.join(map(repr, url))}).{METHODS_OF_CATALOG[name]}({', '.join(map(repr, places))})"


def _alteration(words: list[str]) -> str | None:
    """The call that sets or removes options or adds a column, as `alter TABLE set|unset|add-column ...` does; None for other
    changes and for flags.
    """
    if len(words) < 3 or words[1] not in ("set", "unset", "add-column") or any(word.startswith("-") for word in words):
        return None
    table, kind, *options = words
    if kind == "add-column":
        return f"Table.open({table!r}).alter.add_column({options[0]!r})" if len(options) == 1 else None
    pairs = dict(option.partition("=")[::2] for option in options)
    arguments = repr(pairs) if kind == "set" else ", ".join(map(repr, options))
    return f"Table.open({table!r}).alter.{kind}({arguments})"
