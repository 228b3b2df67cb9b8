"""Shell completion of tables, snapshots, tags, branches, columns and options, and the scripts for the shells.

A completer has two seconds. Errors are never shown; they give no choices.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from paimon_cli.cli.terminal import COMPLETION_VARIABLE

if TYPE_CHECKING:
    from paimon_cli.api.table import Table
    from paimon_cli.catalog.metastore.metastore import Metastore
    from paimon_cli.errors import PaimonError
    from paimon_cli.options.option_catalog import TableOption

MAX_CHOICES = 500
NEWEST = 50
"""The most snapshots that are offered."""
_SECONDS = 2.0


@dataclass(frozen=True)
class Choice:
    """A completion. After one that ends in `/` or `=`, the shell adds no space."""

    value: str
    help: str = ""
    type: str = "plain"


Completer = Callable[[Any, str], Iterable[Choice]]
"""A function from the parsed command line and the incomplete word to the choices."""


def attach(parameters: Iterable[Any]) -> None:
    """Attach completers to the parameters of a command."""
    for parameter in parameters:
        completer = _completer_of(parameter)
        if completer is not None:
            parameter.shell_complete = partial(_choices, completer)


def _completer_of(parameter: Any) -> Completer | None:
    if parameter.param_type_name == "argument":
        return OF_ARGUMENTS.get(parameter.name)
    flag = parameter.opts[-1].removeprefix("--").replace("-", "_")
    return OF_OPTIONS.get(parameter.name) or OF_OPTIONS.get(flag)


def _choices(completer: Completer, context: Any, incomplete: str) -> list[Choice]:
    """The choices that the completer finds within its time limit."""
    from threading import Thread

    found: list[Choice] = []

    def search() -> None:
        try:
            found.extend(islice(completer(context, incomplete), MAX_CHOICES))
        except Exception:  # such as a damaged table, or an incomplete name
            return

    thread = Thread(target=search, daemon=True)
    thread.start()
    thread.join(_SECONDS)
    return list(found)


def _given(context: Any, name: str) -> Any:
    """The value of a parameter of the command, or of its group (`alter TABLE set`), on the command line so far."""
    while context is not None:
        if context.params.get(name) is not None:
            return context.params[name]
        context = context.parent
    return None


def _tables(context: Any, incomplete: str) -> Iterator[Choice]:
    """Tables by path and, with a warehouse, as `db.table`; branches and views after a `$`."""
    if "://" in incomplete:
        return
    plain, dollar, suffix = incomplete.partition("$")
    if dollar:
        views = [("ro", "the read-optimized view"), *((f"branch_{name}", "branch") for name in _branch_names(context, plain))]
        yield from _starting((Choice(f"{plain}${view}", what) for view, what in views), f"{plain}${suffix}")
        return
    if incomplete.startswith("@"):
        yield from _starting(_of_profiles(context, incomplete), incomplete)
    elif "/" not in incomplete:
        yield from _starting(_of_catalog(_metastore(context)), incomplete)
    yield from _paths(incomplete)


def _of_profiles(context: Any, incomplete: str) -> Iterator[Choice]:
    """`@PROFILE/`, or the tables of a profile after it."""
    from paimon_cli.catalog.metastore.configuration_files import ConfigurationFile

    profile, slash, _ = incomplete[1:].partition("/")
    if slash:
        metastore = _metastore(context, profile)
        yield from (Choice(f"@{profile}/{table.value}", table.help) for table in _of_catalog(metastore))
        return
    files = ConfigurationFile.near(".", os.environ), ConfigurationFile.own(os.environ)
    yield from (Choice(f"@{name}/", "profile") for name in sorted({name for file in files for name in file.profiles}))


def _of_catalog(metastore: Metastore) -> Iterator[Choice]:
    if metastore.has_names:
        for database in metastore.databases(_leave_out):
            yield from (Choice(str(table.identifier), "table") for table in metastore.tables(database.name, _leave_out))


def _profiles(context: Any, incomplete: str) -> Iterator[Choice]:
    for choice in _of_profiles(context, "@"):
        yield from _starting([Choice(choice.value.strip("@/"), "profile")], incomplete)


def _leave_out(damage: PaimonError) -> None:
    """What is damaged in the catalog completes nothing; `tables ls` names it."""


def _metastore(context: Any, profile: str | None = None) -> Metastore:
    from paimon_cli.catalog.metastore.configuration_files import PROFILE
    from paimon_cli.catalog.metastore.settings import find_metastore
    from paimon_cli.storage.catalog_options import split_options

    options = split_options(_options(context))[0] | ({} if profile is None else {PROFILE: profile})
    return find_metastore(_given(context, "warehouse"), options)


def _options(context: Any) -> dict[str, str]:
    """The options on the command line so far, with the profile of the catalog."""
    from paimon_cli.catalog.metastore.configuration_files import PROFILE
    from paimon_cli.requests.selections import split_pairs

    profile = _given(context, "profile")
    return split_pairs(_given(context, "option"), "--option") | ({} if profile is None else {PROFILE: profile})


def _database_names(context: Any, incomplete: str) -> Iterator[Choice]:
    yield from _starting((Choice(found.name, "database") for found in _metastore(context).databases(_leave_out)), incomplete)


def _paths(incomplete: str) -> Iterator[Choice]:
    """Directories that complete the word; those that are not tables end in a slash."""
    folder, _, begin = incomplete.rpartition("/")
    shown = f"{folder}/" if "/" in incomplete else ""
    where = os.path.expanduser(shown) or "."
    entries = sorted((entry for entry in os.scandir(where) if entry.is_dir()), key=lambda entry: entry.name)
    for entry in entries:
        if entry.name.startswith(begin) and (begin.startswith(".") or not entry.name.startswith(".")):
            is_table = _is_table(entry.path)
            yield Choice(f"{shown}{entry.name}{'' if is_table else '/'}", "table" if is_table else "directory")


def _is_table(path: str) -> bool:
    return os.path.isdir(os.path.join(path, "schema")) and any(
        name.startswith("schema-") for name in os.listdir(os.path.join(path, "schema"))
    )


def _table(context: Any, name: str | None = None) -> Table:
    """The table on the command line so far."""
    from paimon_cli.api.table import Table

    given = name or _given(context, "table")
    words = _given(context, "tables") or context.args  # the parser stops at an option without a value
    chosen = given if isinstance(given, str) else words[0]
    return Table.open(chosen, _options(context), warehouse=_given(context, "warehouse"), branch=_given(context, "branch"))


def _snapshots(context: Any, incomplete: str, names: tuple[str, ...] = ()) -> Iterator[Choice]:
    from paimon_cli.cli.results import TIME

    table = _table(context).context
    yield from _starting((Choice(name, "snapshot") for name in names), incomplete)
    for number in reversed([number for number in table.snapshots.ids() if str(number).startswith(incomplete)][-NEWEST:]):
        snapshot = table.snapshots.find(number)
        if snapshot is not None:
            yield Choice(str(number), f"{snapshot.commit_kind} {TIME.text(snapshot.time_millis)}")


def _schemas(context: Any, incomplete: str) -> Iterator[Choice]:
    ids = _table(context).context.schemas.ids()
    yield from _starting((Choice(text, "schema") for text in ("latest", *map(str, reversed(ids)))), incomplete)


def _tags(context: Any, incomplete: str) -> Iterator[Choice]:
    yield from _starting((Choice(name, "tag") for name in _table(context).context.tags.names()), incomplete)


def _versions(context: Any, incomplete: str, names: tuple[str, ...] = ()) -> Iterator[Choice]:
    """What names a version; times are not completed."""
    yield from _snapshots(context, incomplete, names)
    yield from _tags(context, incomplete)


def _times(context: Any, incomplete: str) -> Iterator[Choice]:
    """Ages as examples, and tags, which mean the time of their snapshots."""
    yield from _starting((Choice(text, "age") for text in ("1h", "1d", "7d", "30d")), incomplete)
    yield from _starting((Choice(text, "00:00 UTC") for text in ("today", "yesterday")), incomplete)
    yield from _tags(context, incomplete)


def _branch_names(context: Any, table: str | None = None) -> list[str]:
    return list(_table(context, table).context.branches.names())


def _branches(context: Any, incomplete: str) -> Iterator[Choice]:
    context.params.pop("branch", None)  # the incomplete name
    yield from _starting((Choice(name, "branch") for name in _branch_names(context)), incomplete)


def _consumers(context: Any, incomplete: str) -> Iterator[Choice]:
    yield from _starting((Choice(row.name, "consumer") for row in _table(context).consumers.ls()), incomplete)


def _columns(context: Any, incomplete: str, ends: str = "") -> Iterator[Choice]:
    """Columns of the table, as an item of a comma-separated list."""
    from paimon_cli.datatypes.field_types import type_to_sql

    before, comma, begin = incomplete.rpartition(",")
    taken = set(before.split(","))
    for field in _table(context).context.schemas.latest().fields:
        if field.name.startswith(begin) and field.name not in taken:
            yield Choice(f"{before}{comma}{field.name}{ends}", type_to_sql(field.type))


def _keys(context: Any, incomplete: str) -> Iterator[Choice]:
    """`column=` for a key; values are not completed."""
    return iter(()) if "=" in incomplete else _columns(context, incomplete, ends="=")


def _partitions(context: Any, incomplete: str) -> Iterator[Choice]:
    found = (row.partition.replace("/", ",") for row in _table(context).partitions() if row.partition)
    yield from _starting((Choice(text, "partition") for text in found), incomplete)


def _option_pairs(context: Any, incomplete: str) -> Iterator[Choice]:
    """Keys of table options, then their possible values."""
    key, equals, _ = incomplete.partition("=")
    if not equals:
        yield from (Choice(f"{choice.value}=", choice.help) for choice in _option_keys(context, incomplete))
        return
    from paimon_cli.options.option_catalog import find_option

    option = find_option(key)
    if option is not None:
        yield from _starting((Choice(f"{key}={value}", what) for value, what in _values(option)), incomplete)


def _values(option: TableOption) -> Iterator[tuple[str, str]]:
    values = option.choices or (("true", "false") if option.type.lower() == "boolean" else ())
    if option.default is not None and option.default not in values:
        yield option.default, "default"
    for value in values:
        yield value, "default" if value == option.default else ""


def _option_keys(context: Any, incomplete: str) -> Iterator[Choice]:
    from paimon_cli.options.option_catalog import OPTIONS, OWN_OPTIONS

    options = sorted((*OPTIONS, *OWN_OPTIONS), key=lambda option: option.key)
    yield from _starting((Choice(option.key, option.description) for option in options), incomplete)


def _set_keys(context: Any, incomplete: str) -> Iterator[Choice]:
    from paimon_cli.inspect.schema_report import shown_options

    yield from _starting((Choice(key, value) for key, value in shown_options(_table(context).options).items()), incomplete)


def _users(context: Any, incomplete: str) -> Iterator[Choice]:
    from paimon_cli.storage.redaction import shown_name

    users = {snapshot.commit_user for snapshot in _table(context).context.snapshots.newest_first(NEWEST)}
    harmless = sorted(user for user in users if shown_name(user) == user)
    yield from _starting((Choice(user, "commit user") for user in harmless), incomplete)


def _lab_cases(context: Any, incomplete: str) -> Iterator[Choice]:
    from paimon_cli.lab.case_catalog import CASES

    yield from _starting((Choice(case.name, case.title) for case in CASES), incomplete)


def _starting(choices: Iterable[Choice], incomplete: str) -> Iterator[Choice]:
    return (choice for choice in choices if choice.value.startswith(incomplete))


_named_snapshots = partial(_versions, names=("latest", "earliest"))
_tables_at_once: dict[str, Completer] = dict.fromkeys(("table", "tables", "a", "b"), _tables)
OF_ARGUMENTS: dict[str, Completer] = {
    **_tables_at_once,
    **dict.fromkeys(("before", "after", "snapshot"), _named_snapshots),
    **dict.fromkeys(("tag", "names"), _tags),
    "name": _branches,
    "case": _lab_cases,
    "column": _columns,
    "consumer": _consumers,
    "schema": _schemas,
    "pairs": _option_pairs,
    "key": _option_keys,
    "keys": _set_keys,
    "partitions": _partitions,
    "place": _tables,
}
"""Completers by the name of the parameter, which has the same meaning in every command."""
OF_OPTIONS: dict[str, Completer] = {
    **dict.fromkeys(("read_snapshot", "if_snapshot"), _snapshots),
    **dict.fromkeys(("snapshot", "begin", "end", "first", "last", "next_snapshot", "to"), _versions),
    **dict.fromkeys(("as_of", "older_than"), _times),
    "tag": _tags,
    "branch": _branches,
    "table": _tables,
    "warehouse": lambda context, incomplete: _paths(incomplete),
    "database": _database_names,
    **dict.fromkeys(("select", "order_by"), _columns),
    "key": _keys,
    "partition": _partitions,
    **dict.fromkeys(("option", "changes"), _option_pairs),
    "user": _users,
    "profile": _profiles,
}

_ASK = f"{COMPLETION_VARIABLE}=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args"
BASH = f"""
%(complete_func)s() {{
    local line="${{COMP_LINE:0:COMP_POINT}}" IFS=$'\\n' word prefix choice value
    word="${{line##*[[:space:]]}}"
    prefix=""
    [[ $word == *[=:]* && $COMP_WORDBREAKS == *[=:]* ]] && prefix="${{word%%"${{word##*[=:]}}"}}"
    COMPREPLY=()
    for choice in $(env {_ASK} _TYPER_COMPLETE_ARGS="$line" "$1" 2>/dev/null); do
        value="${{choice%%%%$'\\t'*}}"
        [[ $value == */ || $value == *= ]] && compopt -o nospace
        value="${{value#"$prefix"}}"
        [[ $word == [\\"\\']* ]] || printf -v value %%q "$value"
        [[ $value == "''" ]] || COMPREPLY+=("$value")
    done
}}

complete -o default -o bashdefault -F %(complete_func)s %(prog_name)s
"""
ZSH = f"""
#compdef %(prog_name)s

%(complete_func)s() {{
    local line value
    local -a ended open shown_ended shown_open
    for line in "${{(@f)$(env {_ASK} _TYPER_COMPLETE_ARGS="${{(j: :)words[1,CURRENT]}}" %(prog_name)s 2>/dev/null)}}"; do
        [[ -z $line ]] && continue
        value="${{line%%%%$'\\t'*}}"
        line="${{line/$'\\t'/  -- }}"
        if [[ $value == */ || $value == *= ]]; then
            open+=("$value"); shown_open+=("$line")
        else
            ended+=("$value"); shown_ended+=("$line")
        fi
    done
    (( $#ended + $#open )) || {{ _files; return }}
    (( $#ended )) && compadd -l -d shown_ended -- "${{ended[@]}}"
    (( $#open )) && compadd -l -S '' -d shown_open -- "${{open[@]}}"
}}

if [[ "$funcstack[1]" == "_%(prog_name)s" ]]; then
    %(complete_func)s "$@"
else
    compdef %(complete_func)s %(prog_name)s
fi
"""
FISH = f"""
function %(complete_func)s
    set -l choices (env {_ASK} _TYPER_COMPLETE_ARGS=(commandline -cp) %(prog_name)s 2>/dev/null)
    if string length -q -- $choices
        printf '%%s\\n' $choices
    else
        __fish_complete_path (commandline -ct)
    end
end

complete --command %(prog_name)s --no-files --arguments "(%(complete_func)s)"
"""


_MARKUP = re.compile(r"(?<!\\)\[(/[a-z ]*|[a-z][a-z ]*)\]")


def without_markup(text: str) -> str:
    """A help text as Rich would show it, without loading Rich, which took most of the time of a Tab."""
    return _MARKUP.sub("", text).replace("\\[", "[")


def answer_quickly() -> None:
    """Make Typer answer shells without Rich."""
    from typer import _completion_classes

    _completion_classes._sanitize_help_text = without_markup


def use_own_scripts() -> None:
    """Make `--show-completion` and `--install-completion` use these scripts, which complete `key=` and `url:` and quote names."""
    from typer import _completion_shared

    _completion_shared._completion_scripts |= {"bash": BASH, "zsh": ZSH, "fish": FISH}
