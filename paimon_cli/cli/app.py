"""The Typer application, and its single error boundary: every failure becomes a message without secrets, and an exit code."""

from __future__ import annotations

import atexit
import itertools
import os
import re
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any, cast

import typer

from paimon_cli import __version__
from paimon_cli.cli.command_groups import COMMAND_LINE_ERROR, LOCATIONS, CommandsOnDemand, HelpfulGroup
from paimon_cli.cli.first_screen import ALL_COMMANDS, SHOWS_ALL, as_option, screen
from paimon_cli.cli.next_step import command_path
from paimon_cli.cli.results import ARGUMENTS, coloured, print_on_stderr, printable
from paimon_cli.cli.terminal import (
    COMPLETION_VARIABLE,
    discard_stdout,
    flush_stderr,
    flush_stdout,
    has_lost_reader,
    is_traced,
    prepare_streams,
)
from paimon_cli.errors import PaimonError, UsageError, as_paimon_error
from paimon_cli.jobs.process import end_as_interrupted, keep_pandas_out, share_arenas
from paimon_cli.options.option_text import is_utf8, json_text
from paimon_cli.processor import set_for_this_process
from paimon_cli.storage.redaction import hiding_secrets_of_command, redact, redacted

JSON_FLAG = "--json"
HINTS_FOR_OPTIONS = {
    (" read", "-n"): "-l N shows at most N rows (-n is --dry-run in other commands)",
    ("", JSON_FLAG): "-o json prints the result as JSON",
}
"""Hints for options that a command does not have, by the end of the command and the option."""
OPTIONS_OF_OTHERS = {
    **dict.fromkeys(("filter", "condition", "predicate"), "where"),
    **dict.fromkeys(("columns", "column", "cols", "projection"), "select"),
    **dict.fromkeys(("head", "top", "rows"), "limit"),
    **dict.fromkeys(("pk", "key", "keys"), "primary-key"),
    **dict.fromkeys(("partition-keys", "partitioned-by"), "partition-by"),
    **dict.fromkeys(("version", "at"), "snapshot"),
    **dict.fromkeys(("time", "timestamp"), "as-of"),
    **dict.fromkeys(("force", "confirm"), "yes"),
    **dict.fromkeys(("dry", "plan"), "dry-run"),
    "db": "database",
}
"""What users of other programs may call our options, without the dashes."""
COMPARED_VERSIONS = "paimon-cli compare ./wh/shop.db/orders@1 ./wh/shop.db/orders@4"
SEVERAL_WORDS = "unexpected extra argument"
_TYPE_MESSAGES = (
    (re.compile(r"Input should be a valid integer.*"), "a whole number is expected"),
    (re.compile(r"Input should be a valid number.*"), "a number is expected"),
    (re.compile(r"Input should be (greater|less) than( or equal to)? (\S+)"), r"a number \1 than\2 \3 is expected"),
    (re.compile(r"Value error, ('.*') is not one of (.*?)\.?$"), r"\1 is not one of \2"),
)
_MISSING = "MissingParameter"
"""Typer's error for an argument or an option that is missing; a class that Typer does not export."""


def report_failure(error: Exception, arguments: Sequence[str]) -> int:
    """Print the failure on stderr (with -o json as JSON, with --trace with a traceback) without secrets; return the exit code.

    Its texts may come from any library or server.
    """
    if is_traced(arguments):
        print_on_stderr(redact("".join(traceback.format_exception(error)).rstrip()))
    shown = _as_shown(error)
    if _wants_json(arguments):
        content = {"code": shown.code, "message": shown.message, "hint": shown.hint or None, "details": shown.details}
        print_on_stderr(json_text({"error": redacted(content)}))
    else:
        lines = (f"error: {shown.what}", shown.why, f"hint: {shown.hint}" if shown.hint else "")
        # Values and file names of a table must not control the terminal.
        safe = ("\n".join(map(printable, redact(line).split("\n"))) for line in lines if line)
        print_on_stderr("\n".join(coloured(line, line.partition(":")[0], sys.stderr) for line in safe))
    return shown.exit_code


def _as_shown(error: Exception) -> PaimonError:
    return _command_line_error(error) if isinstance(error, COMMAND_LINE_ERROR) else as_paimon_error(error)


def _command_line_error(error: Any) -> UsageError:
    command = command_path(error.ctx) if error.ctx is not None else "paimon-cli"
    message = _plain(error.format_message().replace("\n", " "))
    if SEVERAL_WORDS in message and command.endswith(" compare"):
        return UsageError(message, "it takes two sides; a version is written with its table", COMPARED_VERSIONS)
    if SEVERAL_WORDS in message:
        return UsageError(
            message, "the command takes fewer; quote one that contains spaces, such as 'price INT'", f"{command} --help"
        )
    if type(error).__name__ == _MISSING and (example := _example(error.ctx)):
        return UsageError(message.rstrip("."), f"such as: {example}", f"{command} --help")
    option = getattr(error, "option_name", None)
    if (known := _known_option(error.ctx, option)) is not None:
        return UsageError(f"No such option: {option}", hint=f"did you mean {known}? {command} --help")
    hints = (hint for (name, flag), hint in HINTS_FOR_OPTIONS.items() if command.endswith(name) and option == flag)
    hint = next(hints, f"{command} --help")
    return UsageError(message.split(" (Possible")[0] if option == JSON_FLAG else message, hint=hint)


def _example(context: Any) -> str:
    """The first example in the help of a command; empty if it has none."""
    paragraphs = (context.command.help or "").split("\n\n") if context is not None else ()
    return next((text for text in paragraphs if text.startswith("paimon-cli ")), "")


def _known_option(context: Any, option: str | None) -> str | None:
    """The option of a command that was probably meant by one of other programs, or by one in the other case."""
    if context is None or option is None:
        return None
    known = [spelling for parameter in context.command.params for spelling in parameter.opts]
    if option in known:
        return None
    meant = f"--{OPTIONS_OF_OTHERS.get(option.removeprefix('--'), '')}"
    return meant if meant in known else next((each for each in known if each.lower() == option.lower()), None)


def _plain(message: str) -> str:
    """The message without the wording of the validation library."""
    for pattern, words in _TYPE_MESSAGES:
        message = pattern.sub(words, message)
    return message


def _no_option(argument: str) -> str:
    """An argument as it is; SQL that begins with a comment (`-- text`) with a space before it, so that it is no option."""
    return f" {argument}" if argument.startswith("--") and argument[2:3].isspace() else argument


def _wants_json(arguments: Sequence[str]) -> bool:
    """Whether the raw command line selects JSON output or logs; an invalid one fails before it is parsed."""
    return _JSON.search(f" {' '.join(arguments)} ") is not None


_JSON = re.compile(r" (?:-[nqvy]*o ?|--(?:output|output-format|log-format)[ =])json ")
"""`-vo json` is `-v -o json`."""
_ASKS_FOR_COMPLETION = re.compile(r"--(show|install)-completion")
INTERRUPTED = 130
RUST_PANIC = "PanicException"
"""What libraries in Rust raise for their own bugs; no module exports the class, which is no `Exception`."""
_BUG_IN_LIBRARY = ("a library has failed", "this is a bug of it, or of paimon-cli", "--trace for details")
SYSTEM_MEMORY = ("ARROW_DEFAULT_MEMORY_POOL", "system")
"""As fast as Arrow's default pool, but it returns freed memory: a write takes a third less memory."""
NO_ALGEBRA = ("OPENBLAS_NUM_THREADS", "1")
"""numpy's library for linear algebra, of which nothing is used, starts a thread for each core, and each looks for work for a
while: with two cores that is a quarter of the time of importing numpy."""


class BoundedGroup(HelpfulGroup):
    """The outermost group: it holds all commands, and turns every outcome into an exit code."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.commands = cast(Any, CommandsOnDemand())

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = as_option(self, ctx, args)
        leading = list(itertools.takewhile(lambda word: word.startswith("-"), words))
        ctx.meta[SHOWS_ALL] = ALL_COMMANDS in leading
        return super().parse_args(ctx, ["--help"] if words == [ALL_COMMANDS] else words)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        if ctx.meta.get(SHOWS_ALL):
            super().format_help(ctx, formatter)
        else:
            formatter.write("\n".join(screen(LOCATIONS.__contains__)))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            if not has_lost_reader(sys.stdout):
                raise as_paimon_error(error) from error
            discard_stdout()
            raise typer.Exit(0) from None
        except (KeyboardInterrupt, typer.Abort):
            raise typer.Exit(INTERRUPTED) from None

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *positional: Any, **settings: Any) -> Any:
        arguments = list(sys.argv[1:] if args is None else args)
        ARGUMENTS.set(arguments)
        if any(map(_ASKS_FOR_COMPLETION.match, arguments)):
            from paimon_cli.cli.completion import use_own_scripts

            use_own_scripts()
        if COMPLETION_VARIABLE in os.environ:
            from paimon_cli.cli import first_word
            from paimon_cli.cli.completion import answer_quickly

            if first_word.answer(os.environ):
                sys.exit(0)
            answer_quickly()
        settings["standalone_mode"] = False
        with hiding_secrets_of_command(arguments):
            sys.exit(self._exit_code(arguments, prog_name or "paimon-cli", *positional, **settings))

    def _exit_code(self, arguments: Sequence[str], *positional: Any, **settings: Any) -> Any:
        try:
            _check_text(arguments)
            code = super().main([_no_option(argument) for argument in arguments], *positional, **settings)
        except SystemExit as end:  # Rich exits when the reader of its output has closed the pipe
            if not isinstance(end.__context__, BrokenPipeError):
                raise
            discard_stdout()
            code = 0
        except Exception as error:
            code = report_failure(error, arguments)
        except BaseException as error:
            if type(error).__name__ != RUST_PANIC:
                raise
            code = report_failure(PaimonError(*_BUG_IN_LIBRARY), arguments)
        if code == INTERRUPTED:
            print_on_stderr("interrupted")
        lost = flush_stdout()
        if lost is not None and not code:
            code = report_failure(lost, arguments)
        return code


def _check_text(arguments: Sequence[str]) -> None:
    """Raise `UsageError` for an argument that is not UTF-8, which no table can store, unless it is the path of what exists."""
    for argument in arguments:
        value = argument.partition("=")[2] if argument.startswith("-") else argument
        if not is_utf8(argument) and not os.path.lexists(value):
            why = "names, conditions and options are texts in UTF-8, and no file or directory is called so"
            raise UsageError(f"cannot read the argument {printable(argument)}", why)


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
    verbose: Annotated[
        bool,
        typer.Option("-v", "--verbose", help="Also say which engine ran, what was asked of the storage, and how long."),
    ] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print only results and errors.")] = False,
    no_pager: Annotated[bool, typer.Option("--no-pager", help="Show long lists without a pager.")] = False,
    show_all: Annotated[bool, typer.Option(ALL_COMMANDS, help="With --help: show all commands.")] = False,
) -> None:
    """Options that precede the command; `-v` and `-q` also follow it. `HelpfulGroup` reads these where they precede it."""
    if show_all:
        raise UsageError(
            f"{ALL_COMMANDS} needs --help", "it only says how much the help shows", f"paimon-cli --help {ALL_COMMANDS}"
        )


def prepare_process() -> None:
    """Set how this process uses memory and libraries, before it imports numpy and Arrow."""
    keep_pandas_out()
    set_for_this_process(dict((SYSTEM_MEMORY, NO_ALGEBRA)))
    share_arenas()


def main() -> None:
    """Run the command and exit the process immediately; called by `paimon_cli.__main__`.

    Arrow's thread pools sometimes abort a process during interpreter shutdown (apache/arrow#34314). All output is written
    and closed before, so the shutdown is skipped.
    """
    prepare_streams()
    end_as_interrupted()
    prepare_process()
    try:
        app()
    except SystemExit as end:
        atexit._run_exitfuncs()  # deletes temporary files
        flush_stderr()
        os._exit(end.code if isinstance(end.code, int) else int(end.code is not None))
