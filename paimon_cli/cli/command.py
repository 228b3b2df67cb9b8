"""Declares commands: a decorator adds the shared options to a command and passes their values to it as a `Call`."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, is_dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import typer

from paimon_cli.catalog.metastore.configuration_files import PROFILE
from paimon_cli.catalog.metastore.settings import split_profile, table_argument
from paimon_cli.cli.columns import Column
from paimon_cli.cli.command_groups import HelpfulGroup, PlainCommand
from paimon_cli.cli.output import Item, Listing, OutputFormat, show_data, with_fields
from paimon_cli.cli.parameters import (
    BranchName,
    CommonOptions,
    EngineName,
    EngineOptions,
    Given,
    Output,
    TextOptions,
    given_of,
    option,
    options_of,
)
from paimon_cli.cli.results import NAMES, Verbosity, View, carried_out, say, speaking, warn
from paimon_cli.cli.terminal import cost_on_stderr, is_traced, paging, progress_on_stderr, trace_on_stderr
from paimon_cli.errors import UsageError
from paimon_cli.ingest.text_form import TextForm, text_form
from paimon_cli.options.option_text import names
from paimon_cli.requests.selections import split_pairs
from paimon_cli.storage.catalog_options import split_options
from paimon_cli.storage.injected import NoTrace
from paimon_cli.storage.injected import Trace as StepsTrace
from paimon_cli.storage.redaction import remember_secrets, shown_value

if TYPE_CHECKING:
    from paimon_cli.api.catalog import Catalog
    from paimon_cli.api.runtime import Runtime
    from paimon_cli.api.table import Table
    from paimon_cli.catalog.table_location import TableLocation

_LINE_BREAK = re.compile(r"(?<!\n)\n(?!\n)")
Function = Callable[..., bool | None]
HIDDEN_ALIASES = {"ls": "list", "show": "get", "rm": "delete"}


@dataclass(frozen=True)
class Call:
    """The shared options of one call. The options of the engine are set only for commands that run jobs.

    `form`: the format of text input, for commands that read files. `options`, `catalog_options`: the options of the table
    and of its catalog, both from `--option`; their keys distinguish them (`storage.catalog_options`). `keeps_options`: the
    former are stored in the table.
    """

    output: OutputFormat = OutputFormat.TABLE
    view: View = field(default_factory=View)
    fields: tuple[str, ...] = ()
    changes_tables: bool = False
    keeps_options: bool = False
    warehouse: str | None = None
    branch: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    catalog_options: dict[str, str] = field(default_factory=dict, repr=False)
    strict_options: bool = False
    engine: EngineName = "auto"
    master: str | None = None
    spark_conf: dict[str, str] = field(default_factory=dict, repr=False)
    spark_threshold: str | None = None
    trace: StepsTrace = field(default_factory=NoTrace, repr=False)
    form: TextForm = field(default_factory=TextForm)

    def locate(self, table: str, allow_unsafe_commit: bool = False, *, is_new: bool = False) -> TableLocation:
        from paimon_cli.catalog.table_location import locate_table

        location = locate_table(table, self.warehouse, self.catalog_options, self.branch, is_new=is_new)
        return replace(location, allow_unsafe_commit=allow_unsafe_commit, argument=self.pasted(table))

    def pasted(self, table: str) -> str:
        """The table as an argument for commands in hints: quoted for the shell, with the flags of this call that concern it."""
        of_table = {} if self.keeps_options else self.options
        return table_argument(table, self.warehouse, self.branch, {**self.catalog_options, **of_table})

    @property
    def runtime(self) -> Runtime:
        """The settings for the library; warnings and progress go to stderr."""
        from paimon_cli.api.runtime import Runtime

        settings = (self.engine, self.master, self.spark_conf, self.spark_threshold)
        profile = self.catalog_options.get(PROFILE)
        return Runtime(*settings, progress=progress_on_stderr, warn=warn, trace=self.trace, profile=profile)

    def open(self, table: str, allow_unsafe_commit: bool = False) -> Table:
        """Open the table that the user named, with `--option` overriding its own options."""
        return self.open_at(self.locate(table, allow_unsafe_commit), split_profile(table)[0])

    def open_at(self, location: TableLocation, profile: str | None = None, *, may_be_damaged: bool = False) -> Table:
        """Open a table at its location. `profile`: the one in its name, whose settings of the engine count."""
        from paimon_cli.api.table import Table

        runtime = self.runtime if profile is None else replace(self.runtime, profile=profile)
        return Table.at(location, self.options, runtime, may_be_damaged=may_be_damaged)

    def catalog(self, allow_unsafe_commit: bool = False, runtime: Runtime | None = None) -> Catalog:
        """The catalog of this call."""
        from paimon_cli.api.catalog import Catalog

        return Catalog.at(
            self.warehouse,
            self.catalog_options,
            self.options,
            runtime or self.runtime,
            branch=self.branch,
            allow_unsafe_commit=allow_unsafe_commit,
            argument=self.pasted,
        )

    def open_damaged(self, table: str) -> Table:
        """Open a table for damage checks: its schemas may be unreadable."""
        return self.open_at(self.locate(table), split_profile(table)[0], may_be_damaged=True)

    def open_to_commit(self, table: str, allow_unsafe_commit: bool) -> Table:
        """Open a table for a command that commits. Raises `Refused` if no safe commit is possible."""
        opened = self.open(table, allow_unsafe_commit)
        opened.check_commit()
        return opened

    @property
    def names_spark(self) -> bool:
        return self.engine == "spark" or self.master is not None or bool(self.spark_conf)

    @property
    def is_for_people(self) -> bool:
        """Whether the result is shown as text for people: neither chosen fields nor a format for programs."""
        return self.output is OutputFormat.TABLE and not self.fields

    def show(self, result: Listing | Item, text: str | None = None) -> None:
        """Print the result on stdout. For people, `text` replaces the table if given."""
        if self.fields:
            result = self._with_fields(result)
        if self.output is not OutputFormat.TABLE:
            show_data(result, self.output)
        elif text is not None and self.is_for_people:
            say(text)
        else:
            from paimon_cli.cli import text_view

            text_view.show(result, self.view)

    def _with_fields(self, result: Listing | Item) -> Listing | Item:
        """Apply `--fields`. After a change, an unknown name is only a warning: an error would look like a failed change."""
        try:
            return with_fields(result, self.fields)
        except UsageError as error:
            if not self.changes_tables:
                raise
            warn(f"{error.message}; all fields are shown")
            return result


def group(help_text: str, cls: type[HelpfulGroup] = HelpfulGroup) -> typer.Typer:
    """A group of commands; `command` registers commands in it."""
    return typer.Typer(cls=cls, help=help_text)


def top_level() -> typer.Typer:
    """The top-level commands of a module."""
    return typer.Typer(rich_markup_mode="rich")


def command(
    app: typer.Typer,
    name: str,
    *,
    runs_jobs: bool = False,
    reads_files: bool = False,
    keeps_options: bool = False,
    output: Any = Output,
    **settings: Any,
) -> Callable[[Function], Function]:
    """Register `function(call, ...)` as a command with the shared options; `output` declares `-o`.

    A dry run ends in the command that carries it out, unless the function returns False because there is nothing to do.

    `runs_jobs` adds the options of the engine, `reads_files` those of text input. A parameter whose type is a dataclass
    adds the options that the dataclass declares; `options: Annotated[Given, CompactTables]` adds those of a request, and takes
    the given ones as keywords for the library. A parameter with the name of a shared option stands in for it. A command with a
    parameter `table` or `tables`, or in a group with one (`context`), also has `--branch`. `keeps_options`: `--option` is stored
    in the table, so the command checks it itself.
    """

    def register(function: Function) -> Function:
        wrapped = _with_shared_options(function, output, runs_jobs, reads_files, keeps_options)
        app.command(name, cls=PlainCommand, **settings)(wrapped)
        if name in HIDDEN_ALIASES and "hidden" not in settings:
            app.command(HIDDEN_ALIASES[name], cls=PlainCommand, hidden=True)(wrapped)
        return function

    return register


def _with_shared_options(
    function: Function, output: Any, runs_jobs: bool, reads_files: bool, keeps_options: bool
) -> Callable[..., None]:
    declared = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    bundles: dict[str, Any] = {parameter.name: parameter.annotation for parameter in declared if _is_bundle(parameter)}
    requests = {parameter.name: request for parameter in declared if (request := _request_of(parameter)) is not None}
    own = [expanded for parameter in declared for expanded in _expanded(parameter)]
    shared = [*(_OF_INPUT if reads_files else []), option("output", output, OutputFormat.TABLE), *options_of(CommonOptions)]
    shared += [_BRANCH] if any(parameter.name in _NAMES_A_TABLE for parameter in own) else []
    shared += [*options_of(EngineOptions), _CONTEXT] if runs_jobs else []
    own_names = {parameter.name for parameter in own}
    shared = [parameter for parameter in shared if parameter.name not in own_names]
    changes_tables = any(parameter.name in _OF_CHANGES for parameter in own)

    def run(**values: Any) -> None:
        given = {parameter.name: values.pop(parameter.name) for parameter in shared}
        context = given.pop("context", None)
        if given.get("branch") is not None and values.get("table", "") is None and "file" not in values:
            raise UsageError("--branch needs a table", "a branch belongs to a table", "name a TABLE")
        for name, request in requests.items():
            values[name] = given_of(request, values)
        for name, bundle in bundles.items():
            values[name] = bundle(**{field.name: values.pop(field.name) for field in fields(bundle)})
        said = Verbosity.of(given.pop("verbose"), given.pop("quiet"))
        with ExitStack() as around:
            for context_of_call in (speaking(said), paging(not given.pop("no_pager")), cost_on_stderr(said)):
                around.enter_context(context_of_call)
            trace = around.enter_context(trace_on_stderr(given["trace"] or is_traced(), given["output"]))
            prints_only = given.pop("print_spark_submit", False)
            call = _call({**given, "trace": trace, "changes_tables": changes_tables, "keeps_options": keeps_options})
            if call.options and not keeps_options:
                from paimon_cli.api.table import check_table_options

                check_table_options(call.options, call.runtime, strict=call.strict_options)
            if prints_only:
                _print_spark_submit(call, context)
            else:
                has_work = function(call, **values)
                is_dry_run = values.get("dry_run") or not values.get("apply", True)
                if call.is_for_people and is_dry_run and has_work is not False and said is not Verbosity.QUIET:
                    applied = ["--apply"] if values.get("apply") is False else []
                    say(f"run: {carried_out(*applied, *(['--yes'] if 'yes' in values else []))}")

    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*own, *shared)]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__doc__, run.__name__ = _in_paragraphs(function), function.__name__
    return run


def _expanded(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    if (request := _request_of(parameter)) is not None:
        return options_of(request)
    return options_of(parameter.annotation) if _is_bundle(parameter) else [parameter]


def _request_of(parameter: inspect.Parameter) -> type | None:
    """The request whose given options the parameter takes."""
    of_type, *notes = get_args(parameter.annotation) if get_origin(parameter.annotation) is Annotated else (None,)
    return notes[0] if of_type == Given else None


def _in_paragraphs(function: Function) -> str:
    """The docstring without line breaks inside paragraphs, which the help would keep."""
    return _LINE_BREAK.sub(" ", inspect.getdoc(function) or "")


def _is_bundle(parameter: inspect.Parameter) -> bool:
    return is_dataclass(parameter.annotation)


def _call(given: dict[str, Any]) -> Call:
    given["view"] = View(given.pop("wide"), given.pop("vertical"))
    given["fields"] = _field_names(given["fields"])
    given["catalog_options"], given["options"] = split_options(split_pairs(given.pop("option"), "--option"))
    if (profile := given.pop("profile")) is not None:
        given["catalog_options"][PROFILE] = profile
    if "spark_conf" in given:
        given["spark_conf"] = split_pairs(given["spark_conf"], "--spark-conf")
        remember_secrets(given["spark_conf"])
    remember_secrets({**given["catalog_options"], **given["options"]})
    if (remote := given.pop("remote", None)) is not None:
        given["master"] = _connect_url(remote, given["master"])
    if given.get("spark_threshold") is not None:
        from paimon_cli.jobs.engine_choice import Threshold

        Threshold.parse(given["spark_threshold"], "--spark-threshold")  # raises even if no engine is started
    if "delimiter" in given:
        given["form"] = text_form(**{parameter.name: given.pop(parameter.name) for parameter in _OF_INPUT})
    return Call(**given)


def _field_names(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    if "`" in text or '"' in text:
        from paimon_cli.datatypes.type_text import quoted_names

        found = quoted_names(text)
    else:
        found = names(text)
    if not found:
        raise UsageError("--fields names no field", "fields have the names of the JSON output", "such as --fields id,time")
    return found


def _connect_url(remote: str, master: str | None) -> str:
    """The URL of a Spark Connect server, which replaces the master. Raises `UsageError` if both are given."""
    if master is not None:
        raise UsageError("--remote cannot be combined with --master", "each names the Spark to run on", "use one of them")
    if not remote.startswith("sc://"):
        raise UsageError(
            f"--remote {shown_value('remote', remote)}",
            "it is not a Spark Connect server",
            "such as --remote sc://localhost:15002",
        )
    return remote


def _print_spark_submit(call: Call, context: Any) -> None:
    from paimon_cli.cli.spark_submit_line import Submission, line_of

    options = {**call.catalog_options, **call.options}
    words = line_of(Submission(call.engine, call.master, call.spark_conf, call.warehouse is not None, options), context)
    call.show(Item("SparkSubmit", None, SimpleNamespace(command=words), [Column("command", "Command", NAMES)]), shlex.join(words))


_CONTEXT = option("context", typer.Context)
_NAMES_A_TABLE = {"table", "tables", "context"}
_OF_CHANGES = {"yes", "dry_run", "allow_unsafe_commit"}
"""Parameters that only commands have that change tables."""
_BRANCH = option("branch", BranchName)
_OF_INPUT = options_of(TextOptions)
