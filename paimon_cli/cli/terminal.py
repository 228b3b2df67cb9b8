"""The standard streams of the process, the pager, progress bars, and the output of `--trace`."""

from __future__ import annotations

import contextlib
import io
import os
import select
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from paimon_cli.cli.output import OutputFormat
from paimon_cli.cli.results import Verbosity, on_stderr, rfc3339, verbosity
from paimon_cli.jobs.engine import NoProgress
from paimon_cli.jobs.process import environment_of_the_user
from paimon_cli.options.option_text import json_text
from paimon_cli.storage.injected import Clock, NoTrace, Step, StepTrace, SystemClock, Trace
from paimon_cli.storage.redaction import redacted

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

    from paimon_cli.jobs.engine import Progress

STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def prepare_streams() -> None:
    """Redirect closed standard streams to the null device, and use UTF-8 for pipes and files in any locale.

    Otherwise the next file opened, perhaps a data file, would get the descriptor of a closed stream and receive its output.
    """
    for number, (name, mode) in enumerate(STREAMS):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Terminals keep their encoding. Characters that it lacks, and undecodable bytes in file names, are escaped.
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="backslashreplace")


def write_bytes(text: bytes | memoryview) -> None:
    """Write UTF-8 bytes to stdout, in order with other output; they are decoded only if stdout is not UTF-8."""
    stream = sys.stdout
    if (stream.encoding or "").lower().replace("-", "") != "utf8":
        stream.write(str(text, "utf-8"))
        return
    stream.flush()
    stream.buffer.write(text)


def flush_stdout() -> OSError | None:
    """Flush stdout now rather than at exit; returns the error if output could not be written.

    A reader that has closed the pipe is not an error.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        discard_stdout()
    except OSError as error:
        discard_stdout()
        return error
    return None


def has_lost_reader(stream: TextIO) -> bool:
    """Whether what reads a stream has closed its pipe.

    A `BrokenPipeError` says that of any pipe or connection: the work may have lost another one, and has failed then.
    """
    poll = select.poll()
    try:
        poll.register(stream.fileno(), select.POLLOUT)  # for no event at all, macOS does not tell that the reader has gone
    except io.UnsupportedOperation:  # it is in memory
        return False
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def flush_stderr() -> None:
    """Flush stderr and ignore errors: the exit code still reports the failure."""
    with contextlib.suppress(OSError):
        sys.stderr.flush()


def discard_stdout() -> None:
    """Discard buffered output whose reader has closed the pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


PAGER_VARIABLES = ("PAIMON_PAGER", "PAGER")
NO_PAGER_VARIABLE = "NO_PAGER"
PAGER, PAGER_OPTIONS = "less", "FRX"


_may_page = True


@contextlib.contextmanager
def paging(is_allowed: bool) -> Iterator[None]:
    """Whether long lists go to a pager in the block (`--no-pager`)."""
    global _may_page
    before, _may_page = _may_page, is_allowed
    try:
        yield
    finally:
        _may_page = before


class _Paged(io.TextIOWrapper):
    """Standard output while it goes to a pager; it still counts as a terminal."""

    def isatty(self) -> bool:
        return True


@contextlib.contextmanager
def paged(lines: int) -> Iterator[None]:
    """Send the output of the block to a pager, if it has more lines than the terminal.

    The pager is `PAIMON_PAGER`, `PAGER` or less, as with git; an empty value, `cat` or NO_PAGER disables it. Quitting the
    pager early is not an error.
    """
    pager = _pager() if _may_page and sys.stdout.isatty() and lines >= shutil.get_terminal_size().lines else ""
    if not pager or isinstance(sys.stdout, _Paged):
        yield
        return
    import subprocess

    terminal, environment = sys.stdout, {"LESS": PAGER_OPTIONS, **environment_of_the_user()}
    terminal.flush()
    process = subprocess.Popen(pager, shell=True, stdin=subprocess.PIPE, env=environment)
    assert process.stdin is not None
    page = _Paged(process.stdin, encoding=terminal.encoding, errors="backslashreplace")
    sys.stdout = page
    try:
        yield
    except BrokenPipeError:
        if not has_lost_reader(page):
            raise
    finally:
        sys.stdout = terminal
        with contextlib.suppress(BrokenPipeError):  # here, so that it does not take the place of the block's own error
            page.close()
        while process.poll() is None:  # also after an error: a pager that is left behind would fight for the terminal
            with contextlib.suppress(KeyboardInterrupt):  # the pager handles Ctrl-C
                process.wait()


def _pager() -> str:
    if NO_PAGER_VARIABLE in os.environ or os.environ.get("TERM") == "dumb":
        return ""
    named = next((os.environ[name] for name in PAGER_VARIABLES if name in os.environ), None)
    pager = shutil.which(PAGER) or "" if named is None else named.strip()
    return "" if pager == "cat" else pager


def progress_on_stderr() -> Progress:
    """A progress bar on a terminal; nothing in a pipe or file, or if the command is to be quiet."""
    return ProgressBar() if sys.stderr.isatty() and verbosity() is not Verbosity.QUIET else NoProgress()


class ProgressBar:
    """A bar for one phase at a time, which disappears when the phase ends."""

    def __init__(self) -> None:
        self._bar: RichProgress | None = None

    def start(self, description: str, total: int | None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self.finish()
        known = (BarColumn(), MofNCompleteColumn())
        steps = known if total is not None else (TextColumn("{task.fields[so_far]}"),)
        columns = (SpinnerColumn(), TextColumn("{task.description}"), *steps, TimeElapsedColumn())
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._bar.start()
        self._bar.add_task(description, total=total, so_far="")

    def advance(self, n: int = 1) -> None:
        if self._bar is not None:
            task = self._bar.tasks[0]
            self._bar.update(task.id, advance=n, so_far=f"{task.completed + n:,.0f}")

    def finish(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


COMPLETION_VARIABLE = "_PAIMON_CLI_COMPLETE"
"""Set by a shell that starts this program to complete a word."""
TRACE_VARIABLE = "PAIMON_CLI_TRACE"
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+.:/=$%")


def is_traced(arguments: Sequence[str] = ()) -> bool:
    """Whether `--trace` is on the command line, or PAIMON_CLI_TRACE is set."""
    return "--trace" in arguments or os.environ.get(TRACE_VARIABLE, "") not in ("", "0")


@contextlib.contextmanager
def trace_on_stderr(wanted: bool, output: OutputFormat, clock: Clock | None = None) -> Iterator[Trace]:
    """The trace of one command: none unless `wanted`; lines of text or, with a JSON output, lines of JSON."""
    if not wanted:
        yield NoTrace()
        return
    clock = clock or SystemClock()
    lines = _TraceLines(clock.now_millis(), is_json=output in (OutputFormat.JSON, OutputFormat.NDJSON))
    trace = StepTrace(clock, lines.show)
    try:
        yield trace
    finally:
        trace.step("end", **lines.counts)


@contextlib.contextmanager
def cost_on_stderr(chosen: Verbosity) -> Iterator[None]:
    """With `-v`, say after the block how long it took, and what it asked of the storage; also if it fails."""
    if chosen is not Verbosity.VERBOSE:
        yield
        return
    from paimon_cli.storage.counted_storage import counting_requests

    began = time.perf_counter()
    with counting_requests() as counts:
        try:
            yield
        finally:
            asked = ", ".join(f"{kind}: {count:,}" for kind, count in counts.items() if count)
            on_stderr(f"took {time.perf_counter() - began:.2f} s; {asked or 'nothing was asked of the storage'}")


class _TraceLines:
    """Prints the steps of a trace; times are seconds since the command started."""

    def __init__(self, began: int, is_json: bool) -> None:
        self._began = began
        self._form = self._json if is_json else self._text
        self.counts: Counter[str] = Counter()

    def show(self, step: Step) -> None:
        self.counts[step.name] += 1
        on_stderr(self._form(step))

    def _text(self, step: Step) -> str:
        facts = [f"{name}={_shown(value)}" for name, value in step.facts.items()]
        took = [f"took={step.took / 1000:.3f}s"] if step.took else []
        return " ".join([f"trace {self._seconds(step):9.3f}s {step.name:<14}", *facts, *took]).rstrip()

    def _json(self, step: Step) -> str:
        line = {"trace": step.name, "seconds": self._seconds(step), "time": rfc3339(step.millis), "took": step.took / 1000}
        return json_text(line | redacted(step.facts))

    def _seconds(self, step: Step) -> float:
        return (step.millis - self._began) / 1000


def _shown(value: Any) -> str:
    """A value in logfmt: quoted if it contains spaces or quotes, so that lines can be parsed."""
    if isinstance(value, list):
        return ",".join(map(_shown, value)) or "-"
    if value is None:
        return "-"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if text and _PLAIN.issuperset(text) else json_text(text)
