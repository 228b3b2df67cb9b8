"""The Typer application, and the one error boundary: every failure becomes a message and an exit code."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, cast

import typer

from paimon_cli import __version__
from paimon_cli.cli.command_groups import CommandsOnDemand, HelpfulGroup
from paimon_cli.cli.failure_report import report_failure
from paimon_cli.cli.standard_streams import discard_stdout, flush_stderr, flush_stdout, prepare_streams
from paimon_cli.jobs.pandas_on_demand import keep_pandas_out
from paimon_cli.jobs.stop_signals import end_as_interrupted

INTERRUPTED = 130
SYSTEM_MEMORY = ("ARROW_DEFAULT_MEMORY_POOL", "system")
"""As fast as Arrow's own pool, and it returns freed memory: a write needs two thirds of the memory."""


class BoundedGroup(HelpfulGroup):
    """The outermost group: all commands, and every outcome as an exit code."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.commands = cast(Any, CommandsOnDemand())

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            discard_stdout()
            raise typer.Exit(0) from None
        except (KeyboardInterrupt, typer.Abort):
            raise typer.Exit(INTERRUPTED) from None

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *positional: Any, **settings: Any) -> Any:
        arguments = list(sys.argv[1:] if args is None else args)
        settings["standalone_mode"] = False
        try:
            code = super().main(arguments, prog_name or "paimon-cli", *positional, **settings)
        except Exception as error:
            code = report_failure(error, arguments)
        if code == INTERRUPTED:
            print("interrupted", file=sys.stderr)
        lost = flush_stdout()
        if lost is not None and not code:
            code = report_failure(lost, arguments)
        sys.exit(code)


app = typer.Typer(
    name="paimon-cli",
    cls=BoundedGroup,
    help="Create, write, read, compact and inspect Apache Paimon tables, without a Paimon installation.",
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"paimon-cli {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Options that precede the command."""


def main() -> None:
    """Run the command and leave the process at once; `paimon_cli.__main__` calls it.

    Arrow's thread pools sometimes abort a process that tears itself down with readers of Python files (apache/arrow#34314):
    all output is written and closed by then, so that a finished read does not end in a crash.
    """
    prepare_streams()
    end_as_interrupted()
    keep_pandas_out()
    os.environ.setdefault(*SYSTEM_MEMORY)
    try:
        app()
    except SystemExit as end:
        atexit._run_exitfuncs()  # temporary files go
        flush_stderr()
        os._exit(end.code if isinstance(end.code, int) else int(end.code is not None))
