"""Groups of commands. The outermost group imports each command when it is called, so that a call does not import the others."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from paimon_cli.cli.first_screen import HELP
from paimon_cli.cli.next_step import next_step
from paimon_cli.cli.terminal import COMPLETION_VARIABLE
from paimon_cli.errors import PaimonError, UsageError
from paimon_cli.options.option_text import nearest

PANELS = {
    "Data": {
        "create": "definition_commands",
        "write": "write_command",
        "ingest": "ingest_command",
        "update": "update_commands",
        "delete": "update_commands",
        "read": "read_commands",
        "sql": "sql_command",
        "export": "read_commands.export",
        "compact": "compact_command",
        "adopt": "adopt_command",
        "truncate": "drop_commands",
        "drop-partition": "drop_commands",
        "drop": "drop_commands",
        "undrop": "trash_commands",
        "alter": "definition_commands.alter",
        "changelog": "snapshot_commands.changelog",
        "stage": "stage_commands.stage",
    },
    "Maintain": {
        "maintain": "maintain_command",
        "backup": "backup_commands.backup",
        "restore": "backup_commands",
        "trash": "trash_commands.trash",
        "ledger": "ledger_commands.ledger",
        "policy": "policy_commands.policy",
        "expire": "expire_command",
        "rescale": "stage_commands",
        "rollback": "drop_commands",
        "orphans": "expire_command.orphans",
        "erase": "erase_command",
        "compact-manifests": "compaction_commands",
        "analyze": "analyze_command",
    },
    "Inspect": {
        "describe": "catalog_commands",
        "cost": "cost_command",
        "ls": "catalog_commands",
        "list": "catalog_commands",
        "blame": "snapshot_commands",
        "history": "history_commands.history",
        "report": "doctor_command",
        "compare": "compare_commands",
        "bisect": "compare_commands",
        "tables": "catalog_commands.tables",
        "db": "catalog_commands.databases",
        "snapshots": "snapshot_commands.snapshots",
        "tags": "reference_commands.tags",
        "branches": "reference_commands.branches",
        "consumers": "reference_commands.consumers",
        "manifests": "file_commands.manifests",
        "files": "file_commands.files",
        "lsm": "lsm_commands.lsm",
        "compactions": "compaction_commands.compactions",
        "partitions": "file_commands.partitions",
        "buckets": "file_commands.buckets",
        "indexes": "file_commands.indexes",
        "dv": "file_commands.vectors",
        "schemas": "catalog_commands.schemas",
        "options": "catalog_commands.options",
    },
    "Safety": {
        "verify": "verify_command",
        "repair": "verify_command",
        "doctor": "doctor_command",
        "health": "health_command",
        "advise": "health_command",
        "locks": "doctor_command.locks",
    },
    "Other": {
        "demo": "demo_command",
        "tui": "browse_commands",
        "watch": "browse_commands",
        "simulate": "lsm_commands",
        "lab": "lab_commands.lab",
        "mcp": "mcp_command",
        "config": "catalog_commands.config",
        "version": "doctor_command",
    },
}
"""For each panel of the help and each command, the module that declares it in `commands`, or a group as `module.name`."""

HIDDEN_NAMES = frozenset({"list"})
"""Second names of commands, which no help and no completion shows."""
LOCATIONS = {name: (location, panel) for panel, commands in PANELS.items() for name, location in commands.items()}


_MARKUP = re.compile(r"(?<!\\)\[(?=[a-z])")
"""A bracket that Rich would interpret as markup, as in `paimon-cli[sql]`."""
_WHOLE_NUMBER = re.compile(r"\s*[-+]?[0-9]+\s*", re.ASCII)


class PlainHelp:
    """Help that shows value types for options, but not for flags and arguments."""

    def get_params(self, ctx: Any) -> list[Any]:
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if getattr(parameter, "is_flag", False) or parameter.param_type_name == "argument":
                parameter.display_type_rich = _no_type
        if COMPLETION_VARIABLE in os.environ:
            from paimon_cli.cli.completion import attach  # only completion needs it

            attach(parameters)
        return parameters

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.help: str | None = _MARKUP.sub(r"\\[", self.help or "")
        super().format_help(ctx, formatter)  # type: ignore[misc]


def _no_type(ctx: Any) -> str | None:
    return None


SHOWS_A_TABLE = ("ls", "show", "read")
"""The command of a group that is meant by `GROUP TABLE`: the first of them that the group has, else its first about a table."""
RAW_ARGUMENTS = "paimon-cli.given"
"""Key in the `meta` of a context for the raw arguments of the command."""


FLAGS_BEFORE = {"-v": "verbose", "--verbose": "verbose", "-q": "quiet", "--quiet": "quiet", "--no-pager": "no_pager"}
_SAID = "paimon-cli.flags"
"""Key in the `meta` of a context for the flags before the command."""


def _take_flags(ctx: Any, args: list[str]) -> list[str]:
    """The arguments without the flags at their beginning that may precede a command, which are remembered for it."""
    while args and args[0] in FLAGS_BEFORE:
        ctx.meta.setdefault(_SAID, set()).add(FLAGS_BEFORE[args[0]])
        args = args[1:]
    return args


class PlainCommand(PlainHelp, TyperCommand):
    """A command with plain help, which accepts only digits for whole numbers, and whose errors all say what to do next."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[RAW_ARGUMENTS] = tuple(args)
        try:
            return super().parse_args(ctx, args)
        except COMMAND_LINE_ERROR as error:
            error.ctx = error.ctx or ctx  # an option without its value has none, and its hint would name no command
            raise

    def invoke(self, ctx: Any) -> Any:
        ctx.params.update(dict.fromkeys(ctx.meta.get(_SAID, ()), True))
        try:
            return super().invoke(ctx)
        except PaimonError as error:
            if not error.hint:
                error.set_hint(next_step(error, ctx))
            elif "tables" in ctx.params and (warehouse := error.details.get("warehouse")) is not None:
                every = " --all-tables" if "all_tables" in ctx.params else ""
                error.set_hint(f"all of its tables: {ctx.command_path}{every} --warehouse {shlex.quote(warehouse)}")
            raise

    def get_params(self, ctx: Any) -> list[Any]:
        parameters = super().get_params(ctx)
        for parameter in parameters:
            if parameter.bare_type() in ("int", "list[int]"):
                parameter.process_value = partial(_digits_only, parameter)
        return parameters


def _digits_only(parameter: Any, ctx: Any, value: Any) -> Any:
    """Reject whole numbers such as `1_0` and `1.0`, which Typer would accept as 10 and 1."""
    for text in value if isinstance(value, (list, tuple)) else (value,):
        if isinstance(text, str) and _WHOLE_NUMBER.fullmatch(text) is None:
            raise typer.BadParameter("a whole number is expected", ctx, parameter)
    return type(parameter).process_value(parameter, ctx, value)


COMMAND_LINE_ERROR: Any = typer.BadParameter.__mro__[1]
"""The base class of Typer's command line errors, which Typer itself does not export."""
WORDS_OF_OTHERS = {
    **dict.fromkeys(("show", "desc", "info", "inspect", "schema"), "describe"),
    **dict.fromkeys(("insert", "load", "import", "append", "upsert"), "write"),
    **dict.fromkeys(("cat", "head", "scan"), "read"),
    **dict.fromkeys(("select", "query"), "sql"),
    **dict.fromkeys(("log", "commits"), "snapshots ls"),
    "optimize": "compact",
    "vacuum": "expire",
    "diff": "compare",
    "merge": "sql --help",
}
"""What users of other programs may call our commands."""


class HelpfulGroup(PlainHelp, TyperGroup):
    """A group of commands that shows its help when it is called without a command, and names the command that was meant."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        args = _take_flags(ctx, args)
        names_table = any(parameter.param_type_name == "argument" for parameter in self.params)
        if names_table and args and not args[0].startswith("-") and not _has_command(args):
            found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
            known = [name for name, command in found if command is not None and not command.hidden]
            why, hint = f"its commands are {', '.join(known)}", f"{ctx.command_path} {shlex.join(args[:1])} {known[0]} --help"
            raise UsageError(f"{ctx.info_name} {args[0]} does not say what to do", why, hint)
        return super().parse_args(ctx, (_flags_after_command(args) if names_table else args) or ["--help"])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None and (meant := self._meant(ctx, args)):
            raise UsageError(f"no command '{args[0]}'", hint=meant)
        return super().resolve_command(ctx, args)

    def _meant(self, ctx: Any, args: list[str]) -> str | None:
        """The line that was probably meant by words that begin with no command; None if that cannot be told."""
        if ctx.parent is None:
            known = WORDS_OF_OTHERS.get(args[0].lower())
            if known == "sql":
                return f"paimon-cli sql {shlex.quote(_query(args))}"
            if known == "compare":
                here, *others = _sides(args)
                return f"paimon-cli compare {shlex.quote(here)} {shlex.join(others)}"
            return self._similar(ctx, args) if known is None else shlex.join(self._line(ctx, ("paimon-cli",), known, args[1:]))
        if "table" in ctx.params:
            return self._similar(ctx, args)
        is_table = "/" in args[0] or "." in args[0] or os.path.isdir(args[0])
        first = self._first_arguments(ctx) if is_table else {}
        about_tables = (name for name, argument in first.items() if argument == "table")
        shown_by = next(filter(first.__contains__, SHOWS_A_TABLE), None) or next(about_tables, None)
        return f"{ctx.command_path} {shown_by} {shlex.join(args)}" if shown_by is not None else None

    def _similar(self, ctx: Any, args: list[str]) -> str | None:
        """The line with the command whose name is similar, or is the beginning of what was given, as `set` is of `set-option`."""
        names = [name for name in self.list_commands(ctx) if not name.startswith("_")]
        names += [HELP] if ctx.parent is None else []
        known = nearest(args[0], names)
        if known is None:
            known = next((name for name in names if args[0].startswith((f"{name}-", f"{name}_"))), None)
        table = ctx.params.get("table")
        before = ("paimon-cli",) if ctx.parent is None else ("paimon-cli", ctx.info_name, *((str(table),) if table else ()))
        return None if known is None else f"did you mean '{known}'? {shlex.join(self._line(ctx, before, known, args[1:]))}"

    def _line(self, ctx: Any, before: Sequence[str], known: str, args: Sequence[str]) -> tuple[str, ...]:
        """The line of a command; of one that asks before it discards something its help, as other words were given."""
        name, *more = known.split()
        command = self.get_command(ctx, name)
        asks = command is not None and any(parameter.name == "yes" for parameter in command.params)
        return (*before, name, *(["--help"] if asks else [*more, *args]))

    def _first_arguments(self, ctx: Any) -> dict[str, str]:
        """The commands that take arguments, each with the name of the first."""
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        arguments = {
            name: [parameter.name for parameter in command.params if parameter.param_type_name == "argument"]
            for name, command in found
            if command is not None and not command.hidden
        }
        return {name: names[0] for name, names in arguments.items() if names}


class GroupWithDefault(HelpfulGroup):
    """A group whose command `run` is meant where none is named: `backup TABLE DEST` beside `backup ls DEST`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        args = _take_flags(ctx, args)
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


def _sides(args: list[str]) -> list[str]:
    """The sides for `compare`, from words such as `diff t 1 4`."""
    table, *versions = args[1:] or ["A"]
    if len(versions) == 2 and not any(word.startswith("-") for word in versions):
        return [f"{table}@{version}" for version in versions]
    return [table, *(versions or ["B"])]


def _query(args: list[str]) -> str:
    """The query for `sql`, from words such as `select shop/orders` or `select count(*) from t`."""
    if len(args) < 2 or " " in args[1]:
        return " ".join(args[1:]) or "SELECT 1"
    if len(args) > 2:
        return " ".join(("SELECT", *args[1:]))
    path = args[1] if "/" in args[1] or not os.path.isdir(args[1]) else f"./{args[1]}"
    name = path.replace('"', '""')
    return f'SELECT * FROM "{name}" LIMIT 10' if "/" in path else f"SELECT * FROM {path} LIMIT 10"


FLAGS_OF_A_TABLE = ("--warehouse", "--profile", "--branch", "--option")
"""The flags that follow a table in hints."""


def _has_command(words: list[str]) -> bool:
    """Whether anything follows a table and its flags."""
    end = 1
    while words[end : end + 1] and words[end] in FLAGS_OF_A_TABLE:
        end += 2
    return end < len(words)


def _flags_after_command(words: list[str]) -> list[str]:
    """`TABLE --warehouse W set ...` as `TABLE set --warehouse W ...`: a table with its flags is one argument of a hint."""
    end = 1
    while words[end : end + 1] and words[end] in FLAGS_OF_A_TABLE:
        end += 2
    return [*words[:1], *words[end : end + 1], *words[1:end], *words[end + 1 :]]


class CommandsOnDemand(Mapping[str, Any]):
    """The Click commands by name; a command is imported when it is looked up."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._load(name)
        return self._loaded[name]

    def _load(self, name: str) -> None:
        """Import the module of a command, with all commands that it declares."""
        module_name, _, group_name = LOCATIONS[name][0].partition(".")
        found: Any = get_group(getattr(import_module(f"paimon_cli.cli.{module_name}"), group_name or "commands"))
        for loaded_name, loaded in {name: found}.items() if group_name else found.commands.items():
            loaded.name = loaded_name
            loaded.rich_help_panel = LOCATIONS[loaded_name][1]
            self._loaded[loaded_name] = loaded

    def __iter__(self) -> Iterator[str]:
        return iter(LOCATIONS)

    def __len__(self) -> int:
        return len(LOCATIONS)
