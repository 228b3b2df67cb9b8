"""How commands are declared: a decorator adds the options that every command takes, and hands the command a `Call`."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import typer

from paimon_cli.cli.command_groups import HelpfulGroup, PlainCommand
from paimon_cli.cli.input_options import (
    ColumnNames,
    Delimiter,
    Encoding,
    Escape,
    Header,
    NullValues,
    Quote,
    TimestampFormats,
    Timezone,
)
from paimon_cli.cli.parameters import (
    BranchName,
    Engine,
    EngineName,
    MasterUrl,
    OptionPairs,
    Output,
    SparkSettings,
    SparkThreshold,
    StrictOptions,
    Trace,
    Vertical,
    WarehouseUrl,
    Wide,
    split_pairs,
)
from paimon_cli.cli.results import Item, Listing, OutputFormat, View, warn
from paimon_cli.cli.terminal import is_traced, progress_on_stderr, trace_on_stderr
from paimon_cli.errors import UsageError
from paimon_cli.ingest.text_form import TextForm, text_form
from paimon_cli.storage.catalog_options import split_options
from paimon_cli.storage.trace import NoTrace
from paimon_cli.storage.trace import Trace as StepsTrace

if TYPE_CHECKING:
    from paimon_cli.api.opened_table import Runtime
    from paimon_cli.api.table import Table
    from paimon_cli.catalog.table_location import TableLocation

HIDDEN_ALIASES = {"ls": "list", "show": "get", "rm": "delete"}


@dataclass(frozen=True)
class Call:
    """The shared options of one call, and what follows from them. `engine` and the fields after it are set for commands that run
    jobs, `form` for those that read input files.

    `--option` holds options of the table and of its catalog; the names tell them apart (`storage.catalog_options`).
    """

    output: OutputFormat = OutputFormat.TABLE
    view: View = field(default_factory=View)
    warehouse: str | None = None
    branch: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    catalog_options: dict[str, str] = field(default_factory=dict, repr=False)
    strict_options: bool = False
    engine: str = EngineName.AUTO.value
    master: str | None = None
    spark_conf: dict[str, str] = field(default_factory=dict)
    spark_threshold: str | None = None
    trace: StepsTrace = field(default_factory=NoTrace, repr=False)
    form: TextForm = field(default_factory=TextForm)

    def locate(self, table: str, allow_unsafe_commit: bool = False) -> TableLocation:
        from paimon_cli.catalog.table_location import locate_table

        location = locate_table(table, self.warehouse, self.catalog_options, self.branch)
        return replace(location, allow_unsafe_commit=allow_unsafe_commit)

    def pasted(self, table: str) -> str:
        """The table as a pasteable command must name it: quoted for the shell, with `--warehouse` if this call has one."""
        words = [table]
        words += [] if self.warehouse is None else ["--warehouse", self.warehouse]
        words += [] if self.branch is None else ["--branch", self.branch]
        return shlex.join(words)

    @property
    def runtime(self) -> Runtime:
        """How the library runs this call: warnings and progress go to stderr."""
        from paimon_cli.api.opened_table import Runtime

        settings = (self.engine, self.master, self.spark_conf, self.spark_threshold)
        return Runtime(*settings, progress=progress_on_stderr, warn=warn, trace=self.trace)

    def open(self, table: str, allow_unsafe_commit: bool = False) -> Table:
        """The table as the user names it, with `--option` over its own options."""
        return self.open_at(self.locate(table, allow_unsafe_commit))

    def open_at(self, location: TableLocation) -> Table:
        from paimon_cli.api.table import Table

        return Table.at(location, self.options, self.runtime)

    def open_damaged(self, table: str) -> Table:
        """The table as damage checks open it: some or all of its schemas may be unreadable."""
        from paimon_cli.api.table import Table

        return Table.at(self.locate(table), self.options, self.runtime, may_be_damaged=True)

    def open_to_commit(self, table: str, allow_unsafe_commit: bool) -> Table:
        """The table, opened for a command that commits; `Refused` right away where no commit is safe."""
        opened = self.open(table, allow_unsafe_commit)
        opened.check_commit()
        return opened

    @property
    def asks_for_spark(self) -> bool:
        return self.engine == EngineName.SPARK.value or self.master is not None or bool(self.spark_conf)

    def show(self, result: Listing | Item) -> None:
        show(result, self.output, self.view)


def group(help_text: str) -> typer.Typer:
    """A group of commands, named by a noun; `command` registers its commands."""
    return typer.Typer(cls=HelpfulGroup, help=help_text)


def command(
    app: typer.Typer,
    name: str,
    *,
    runs_jobs: bool = False,
    reads_files: bool = False,
    keeps_options: bool = False,
    output: Any = Output,
    **settings: Any,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register `function(call, ...)` as a command with the shared options; `output` declares `-o`.

    `runs_jobs` adds the options of the engine, `reads_files` those of text input. A command with a parameter `table` or `tables`,
    or in a group with one (`context`), also takes `--branch`. `keeps_options`: `--option` is stored in the table, and the command
    checks it together with other options.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        takes_table = not _NAMES_A_TABLE.isdisjoint(inspect.signature(function).parameters)
        form = _parameter("output", output, OutputFormat.TABLE)
        of_input = _OF_INPUT if reads_files else []
        shared = [*of_input, form, *_SHARED, *([_BRANCH] if takes_table else []), *(_OF_JOBS if runs_jobs else [])]
        wrapped = _with_shared_options(function, shared, keeps_options)
        app.command(name, cls=PlainCommand, **settings)(wrapped)
        if name in HIDDEN_ALIASES and "hidden" not in settings:
            app.command(HIDDEN_ALIASES[name], cls=PlainCommand, hidden=True)(wrapped)
        return function

    return register


def _with_shared_options(
    function: Callable[..., None], shared: list[inspect.Parameter], keeps_options: bool
) -> Callable[..., None]:
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]

    def run(**values: Any) -> None:
        given = {parameter.name: values.pop(parameter.name) for parameter in shared}
        if given.get("branch") is not None and values.get("table", "") is None and "file" not in values:
            raise UsageError("--branch needs a table", "a branch belongs to a table", "name the table before it")
        with trace_on_stderr(given["trace"] or is_traced(), given["output"]) as trace:
            call = _call({**given, "trace": trace})
            if call.options and not keeps_options:
                from paimon_cli.api.table import check_table_options

                check_table_options(call.options, call.runtime, strict=call.strict_options)
            function(call, **values)

    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*own, *shared)]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__doc__, run.__name__ = function.__doc__, function.__name__
    return run


def _call(given: dict[str, Any]) -> Call:
    given["view"] = View(given.pop("wide"), given.pop("vertical"))
    given["catalog_options"], given["options"] = split_options(split_pairs(given.pop("option"), "--option"))
    if "spark_conf" in given:
        given["spark_conf"] = split_pairs(given["spark_conf"], "--spark-conf")
        given["engine"] = given["engine"].value
    if given.get("spark_threshold") is not None:
        from paimon_cli.jobs.engine_choice import Threshold

        Threshold.parse(given["spark_threshold"], "--spark-threshold")  # report a mistake even if no engine starts
    if "delimiter" in given:
        given["form"] = text_form(**{parameter.name: given.pop(parameter.name) for parameter in _OF_INPUT})
    return Call(**given)


def _parameter(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


_SHARED = [
    _parameter("wide", Wide, False),
    _parameter("vertical", Vertical, False),
    _parameter("warehouse", WarehouseUrl),
    _parameter("option", OptionPairs),
    _parameter("strict_options", StrictOptions, False),
    _parameter("trace", Trace, False),
]
_NAMES_A_TABLE = {"table", "tables", "context"}
_BRANCH = _parameter("branch", BranchName)
_OF_JOBS = [
    _parameter("engine", Engine, EngineName.AUTO),
    _parameter("spark_threshold", SparkThreshold),
    _parameter("master", MasterUrl),
    _parameter("spark_conf", SparkSettings),
]
_OF_INPUT = [
    _parameter("delimiter", Delimiter),
    _parameter("quote", Quote),
    _parameter("escape", Escape),
    _parameter("header", Header, True),
    _parameter("column_names", ColumnNames),
    _parameter("null_values", NullValues),
    _parameter("timestamp_formats", TimestampFormats),
    _parameter("timezone", Timezone),
    _parameter("encoding", Encoding),
]


def show(result: Listing | Item, output: OutputFormat, view: View) -> None:
    """Print the result on stdout."""
    if output is OutputFormat.TABLE:
        from paimon_cli.cli import text_view

        text_view.show(result, view)
    else:
        from paimon_cli.cli import data_view

        data_view.show(result, output)
