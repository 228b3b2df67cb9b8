"""The shell of `sql`: a line editor with a history and completion, and commands that begin with a dot or a backslash."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paimon_cli.cli.app import report_failure
from paimon_cli.cli.output import OutputFormat
from paimon_cli.cli.results import View, note, on_stderr, say
from paimon_cli.cli.sql_output import run_script, text_of_file
from paimon_cli.cli.terminal import has_lost_reader
from paimon_cli.errors import UsageError, importing
from paimon_cli.sql.statements import is_complete

if TYPE_CHECKING:
    from paimon_cli.api.sql_session import SqlSession
    from paimon_cli.cli.command import Call

HISTORY = "sql_history"
LINE = "line"
SHELL_MODES = (*(mode.value for mode in OutputFormat), LINE)
"""How results are shown: the formats of `-o`, and one line for each value."""
PROMPT, MORE = "paimon> ", "   ...> "
_HELP = """\
Statements end with a semicolon, and may have several lines.
.help            this text
.mode MODE       show results as {modes}
.tables          the tables; also \\d
\\d TABLE         the columns of a table
.read FILE       run the statements of a file
.timer on|off    say how long each line took
.quit            leave; also \\q, or Ctrl-D
Ctrl-C stops a query, or clears the line."""


def history_file(variables: Mapping[str, str]) -> Path:
    """The file of the history, below `$XDG_STATE_HOME` or `~/.local/state`; only its owner can read it."""
    base = variables.get("XDG_STATE_HOME", "")
    below = Path(base) if os.path.isabs(base) else Path.home() / ".local" / "state"
    directory = below / "paimon-cli"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / HISTORY
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)
    return path


@dataclass
class Shell:
    """A session on a terminal. An error of a statement does not end it."""

    call: Call
    session: SqlSession
    has_timer: bool = False

    def run(self) -> None:
        """Read and run until `.quit`, or the end of the input."""
        lines = self._line_editor()
        say("SQL on tables of Paimon. .help for help, .quit to leave")
        while True:
            try:
                text = lines()
            except KeyboardInterrupt:
                continue  # the line is cleared
            except EOFError:
                return
            if text.strip() and not self.take(text.strip()):
                return

    def _line_editor(self) -> Callable[[], str]:
        with importing("the shell needs prompt_toolkit", "sql"):
            from paimon_cli.cli.sql_line_editor import line_editor
        try:
            history = history_file(os.environ)
        except OSError as error:
            note(f"warning: no history is kept: {error.strerror}")
            history = None
        return line_editor(self.session.context, history, (PROMPT, MORE), is_finished)

    def take(self, text: str) -> bool:
        """Run a command or statements; False to leave. Errors are shown."""
        began = time.monotonic()
        try:
            if is_command(text):
                return self._command(text)
            run_script(self.call, self.session, text)
        except KeyboardInterrupt:
            on_stderr("interrupted")
        except Exception as error:  # the boundary of a line, as that of a command
            if isinstance(error, BrokenPipeError) and has_lost_reader(sys.stdout):
                raise
            sys.stdout.flush()
            report_failure(error, ())
        if self.has_timer:
            note(f"took {time.monotonic() - began:.3f} s")
        return True

    def _command(self, text: str) -> bool:
        word, _, rest = text.rstrip("; ").partition(" ")
        try:
            arguments = shlex.split(rest)
        except ValueError as error:
            raise UsageError(f"cannot read {text}", str(error)) from error
        if word in (".quit", ".exit", ".q", "\\q"):
            return False
        run = _COMMANDS.get(word)
        if run is None:
            raise UsageError(f"there is no command {word}", "commands of the shell begin with . or \\", ".help lists them")
        run(self, arguments)
        return True

    def _help(self, arguments: list[str]) -> None:
        say(_HELP.format(modes=", ".join(SHELL_MODES)))

    def _mode(self, arguments: list[str]) -> None:
        if not arguments:
            is_line = self.call.view.vertical and self.call.output is OutputFormat.TABLE
            say(f"the mode is {LINE if is_line else self.call.output.value}; others: {', '.join(SHELL_MODES)}")
            return
        mode = _one(arguments, ".mode", SHELL_MODES)
        output = OutputFormat.TABLE if mode == LINE else OutputFormat(mode)
        self.call = replace(self.call, output=output, view=View(self.call.view.wide, mode == LINE))

    def _timer(self, arguments: list[str]) -> None:
        self.has_timer = _one(arguments, ".timer", ("on", "off")) == "on"

    def _read(self, arguments: list[str]) -> None:
        if len(arguments) != 1:
            raise UsageError(".read needs one FILE", "it runs the statements of a file", ".read load.sql")
        run_script(self.call, self.session, text_of_file(os.path.expanduser(arguments[0])))

    def _describe(self, arguments: list[str]) -> None:
        run_script(self.call, self.session, f"DESCRIBE {_table(arguments)}" if arguments else "SHOW TABLES")

    def _tables(self, arguments: list[str]) -> None:
        run_script(self.call, self.session, "SHOW TABLES")


def _table(arguments: list[str]) -> str:
    """The table of `\\d` as SQL: names are written as in statements, a path is quoted."""
    name = " ".join(arguments)
    return '"' + name.replace('"', '""') + '"' if "/" in name and not name.startswith(('"', "'")) else name


def _one(arguments: list[str], command: str, choices: tuple[str, ...]) -> str:
    if len(arguments) != 1 or arguments[0].lower() not in choices:
        raise UsageError(f"{command} {' '.join(arguments)}".rstrip(), f"it takes one of {', '.join(choices)}")
    return arguments[0].lower()


def is_command(text: str) -> bool:
    """Whether a line is a command of the shell, and no SQL."""
    return text.startswith(("\\", ".")) and not text[1:2].isdigit()


def is_finished(text: str) -> bool:
    """Whether Enter runs the text, instead of beginning another line."""
    return not text.strip() or is_command(text.strip()) or is_complete(text)


_COMMANDS: dict[str, Callable[[Shell, list[str]], Any]] = {
    ".help": Shell._help,
    "\\?": Shell._help,
    ".mode": Shell._mode,
    ".timer": Shell._timer,
    ".read": Shell._read,
    "\\i": Shell._read,
    ".tables": Shell._tables,
    "\\dt": Shell._tables,
    "\\d": Shell._describe,
    ".schema": Shell._describe,
}
