"""How values are shown (exact for programs, readable for people, safe for terminals), and messages and confirmations."""

from __future__ import annotations

import contextlib
import enum
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence, Set
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Protocol

import typer

from paimon_cli.errors import Refused, UsageError
from paimon_cli.options.option_text import counted as counted
from paimon_cli.options.option_text import human_size as human_size
from paimon_cli.options.option_text import printable as printable
from paimon_cli.storage.redaction import hide_secrets, redact

NO_VALUE, LOCAL_ENGINE = "-", "local"
BAR_WIDTH = 25
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class View:
    """How a text table is shown: `wide` with all columns, `vertical` as records."""

    wide: bool = False
    vertical: bool = False


@dataclass(frozen=True)
class Kind:
    """How values of a column are shown. None is null in JSON and `-` in text; `to_json` and `to_text` never receive it."""

    to_json: Callable[[Any], Any]
    to_text: Callable[[Any], str]
    right_aligned: bool = False
    may_shorten: bool = True

    def json(self, value: Any) -> Any:
        return None if value is None else self.to_json(value)

    def text(self, value: Any) -> str:
        return NO_VALUE if value is None else printable(self.to_text(value))


class Ran(Protocol):
    """A job's summary: duration and engine, with the reason if the engine was chosen automatically."""

    @property
    def seconds(self) -> float: ...
    @property
    def engine(self) -> str: ...
    @property
    def engine_reason(self) -> str: ...


class Verbosity(enum.IntEnum):
    """How much a command says: `-q` only results, errors and questions; `-v` also which engine ran and why, and what it cost."""

    QUIET = -1
    NORMAL = 0
    VERBOSE = 1

    @staticmethod
    def of(verbose: bool, quiet: bool) -> Verbosity:
        """The verbosity that the flags choose. Raises `UsageError` if they contradict each other."""
        if verbose and quiet:
            raise UsageError("-v cannot be combined with -q", "one asks for more, the other for less", "leave one of them out")
        return Verbosity.VERBOSE if verbose else Verbosity.QUIET if quiet else Verbosity.NORMAL


_verbosity = Verbosity.NORMAL


def verbosity() -> Verbosity:
    """The verbosity of the command that runs in this process, for all of its threads."""
    return _verbosity


@contextlib.contextmanager
def speaking(chosen: Verbosity) -> Iterator[None]:
    """Set the verbosity for the block."""
    global _verbosity
    before, _verbosity = _verbosity, chosen
    try:
        yield
    finally:
        _verbosity = before


def ran(summary: Ran) -> str:
    """The duration and engine of a job, such as `0.1 s on local`."""
    return f"{summary.seconds:.1f} s on {engine_text(summary.engine, summary.engine_reason)}"


def engine_text(name: str, reason: str) -> str:
    """The engine, and why it was chosen automatically, if that is Spark, was to be Spark, or with `-v`."""
    from paimon_cli.jobs.engine import WhyNotSpark  # loaded where a job has run

    is_told = name != LOCAL_ENGINE or isinstance(reason, WhyNotSpark) or _verbosity is Verbosity.VERBOSE
    return f"{name} ({reason})" if reason and is_told else name


class Repeated(Protocol):
    """The summary of a change that was committed before, and what was compacted now."""

    @property
    def compacted(self) -> int: ...
    @property
    def snapshots(self) -> Sequence[Any]: ...


def already_done(summary: Repeated, known_by: str = " under this user and identifier") -> str:
    """The result of a commit that an earlier run has made. `known_by`: how it was recognised."""
    if not summary.compacted:
        return f"already committed{known_by}, nothing was done"
    ids = ", ".join(str(snapshot.id) for snapshot in summary.snapshots)
    return f"already committed{known_by}; snapshot {ids}: {counted(summary.compacted, 'bucket')} compacted, which was still due"


def rfc3339(millis: int) -> str:
    """Epoch millis as `2026-11-21T00:20:11.402Z`; years after 9999 stay in millis."""
    try:
        moment = _EPOCH + timedelta(milliseconds=millis)
    except OverflowError:
        return str(millis)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def to_second(millis: int) -> str:
    """Epoch millis as `2026-11-21T00:20:11Z`, in sentences for people."""
    return re.sub(r"\.\d{3}Z$", "Z", rfc3339(millis))


def _from_wall_clock(millis: int) -> int:
    """Convert local wall-clock millis, in the time zone of this machine, to epoch millis."""
    try:
        shown = (_EPOCH + timedelta(milliseconds=millis)).replace(tzinfo=None)
        return int(shown.timestamp() * 1000)
    except (OverflowError, ValueError, OSError):
        return millis


def _text_time(millis: int) -> str:
    return rfc3339(millis)[:19].replace("T", " ")


def _bar(begin: float, end: float) -> str:
    first, last = round(begin * (BAR_WIDTH - 1)), round(end * (BAR_WIDTH - 1))
    return (" " * first + "=" * (last - first + 1)).ljust(BAR_WIDTH)


def cell_text(value: Any) -> str:
    """A JSON value as one cell: strings unquoted, anything else as JSON."""
    return NO_VALUE if value is None else printable(value if isinstance(value, str) else _compact_json(value))


def _compact_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _unchanged(value: Any) -> Any:
    return value


TEXT = Kind(_unchanged, str)
WHOLE_TEXT = Kind(_unchanged, str, may_shorten=False)
FLAG = Kind(_unchanged, lambda value: "yes" if value else "no")
ID = Kind(_unchanged, str, right_aligned=True)
COUNT = Kind(_unchanged, lambda value: f"{value:,}", right_aligned=True)
CHANGE = Kind(_unchanged, lambda value: f"{value:+,}" if value else "0", right_aligned=True)
LEVEL = Kind(_unchanged, lambda level: f"L{level}", right_aligned=True)
LONG = Kind(str, str, right_aligned=True)
"""Sequence numbers and commit identifiers; strings in JSON, because most parsers round numbers above 2^53."""

SIZE = Kind(_unchanged, human_size, right_aligned=True)
TIME = Kind(rfc3339, _text_time)
NAMES = Kind(list, ", ".join)
SNAPSHOT_IDS = Kind(lambda snapshots: [s.id for s in snapshots], lambda snapshots: ", ".join(str(s.id) for s in snapshots))
"""Snapshots, shown by their ids."""

JSON = Kind(_unchanged, _compact_json)
SETTINGS = Kind(dict, lambda options: ", ".join(f"{key}={value}" for key, value in sorted(options.items())) or "none")
SPAN = Kind(list, lambda span: _bar(*span), may_shorten=False)
"""A range (begin, end) between 0 and 1; a bar in text."""
WALL_CLOCK = Kind(lambda millis: rfc3339(_from_wall_clock(millis)), lambda millis: _text_time(_from_wall_clock(millis)))
"""Times that Paimon stores as local wall-clock times; converted with the time zone of this machine, as in Java."""
KEY = Kind(list, lambda values: ", ".join(map(cell_text, values)))
"""A key as the list of its columns' values in canonical form."""
NUMBERS = Kind(list, lambda numbers: ", ".join(map(str, numbers)) or NO_VALUE)
PERCENT = Kind(_unchanged, lambda share: f"{100 * share:.1f}%", right_aligned=True)
DECIMAL = Kind(lambda value: round(value, 3), lambda value: f"{value:,.3f}", right_aligned=True)
"""Figures of which three decimals say enough."""
SECONDS = Kind(lambda seconds: round(seconds, 3), lambda seconds: f"{seconds:,.0f} s", right_aligned=True)


NOTHING_CHANGED = "nothing was changed"
ARGUMENTS: ContextVar[Sequence[str]] = ContextVar("arguments", default=())
"""The words of the command line."""
_PLANNED, _APPLY, _END_OF_OPTIONS = "--dry-run", "--apply", "--"
_ONLY_PLANNED, _FLAGS = re.compile("-[ny]+"), re.compile("-[nqvy]+o?")


_BOLD, _RED, _YELLOW, _GREEN, _CYAN = "1", "1;31", "1;33", "32", "36"
COLOUR_OF_LABEL = {"error": _RED, "warning": _YELLOW, "note": _CYAN, "advice": _CYAN, "info": _CYAN, "ok": _GREEN, "hint": _BOLD}
"""The colours of severities and labels; the words stay, so that nothing depends on the colours."""


def has_colours(stream: Any) -> bool:
    """Whether a stream shows colours: a terminal does. NO_COLOR turns them off, FORCE_COLOR on, also in pipes."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return bool(stream.isatty()) and os.environ.get("TERM") != "dumb"


def bold(text: str) -> str:
    """Text for stdout in bold, if that shows colours."""
    return f"\x1b[{_BOLD}m{text}\x1b[0m" if has_colours(sys.stdout) else text


def coloured(text: str, label: str, stream: Any) -> str:
    """Safe text, in which the label that it begins with has the colour of its severity, if the stream shows colours."""
    colour = COLOUR_OF_LABEL.get(label.strip().lower())
    start = text.find(label)
    if colour is None or start < 0 or text[:start].strip() or not has_colours(stream):
        return text
    return f"{text[:start]}\x1b[{colour}m{label}\x1b[0m{text[start + len(label) :]}"


def say(text: str, label: str = "") -> None:
    """Print the result of the command on stdout. `label`: the severity with which the text begins."""
    print(coloured(_safe(hide_secrets(text)), label, sys.stdout))


def note(text: str) -> None:
    """Print a note about the result on stderr, unless the command is to be quiet."""
    if _verbosity is not Verbosity.QUIET:
        on_stderr(text)


def on_stderr(text: str) -> None:
    """Print what was asked for on stderr, without secrets. A severity with which it begins, as in `warning:`, is coloured."""
    print_on_stderr(coloured(_safe(redact(text)), text.partition(":")[0], sys.stderr))


def print_on_stderr(line: str) -> None:
    """Print a line, and its end in the same write, because other threads may say something, too.

    One that cannot be written must not stop the work: the reader of stderr may have closed the pipe.
    """
    with contextlib.suppress(OSError):
        print(f"{line}\n", end="", file=sys.stderr)


def note_waiting(table: str, records: int | None) -> None:
    """Print a note about committed records that reads do not show yet (None: perhaps), as `waiting_text` has it."""
    if records != 0:
        from paimon_cli.history.waiting_records import waiting_text  # imports numpy, which few commands need

        note(f"note: {waiting_text(table, records)}")


def note_gone(url: str) -> None:
    """Print a note if a new table is in memory, where it ends with this process."""
    if url.startswith("memory://"):
        note(f"note: {url} was in the memory of this process, and is gone now; name a directory, or use the library")


def warn(text: str) -> None:
    note(f"warning: {text}")


def asks() -> bool:
    """Whether `confirm` can ask at a terminal."""
    return sys.stdin.isatty()


def confirm(consequence: str, yes: bool, has_dry_run: bool = True) -> None:
    """Ask for confirmation before deleting data or rewriting history; without a terminal, only `yes` confirms.

    Raises `Refused` (exit 7) if there is no terminal, or the answer is no. The hint is the dry run, if the command has one.
    """
    if yes:
        return
    if not asks():
        hint = only_planned() if has_dry_run else carried_out("--yes")
        raise Refused(f"not confirmed, {NOTHING_CHANGED}", f"{consequence}; without a terminal only --yes confirms it", hint)
    if not typer.confirm(f"{_safe(redact(consequence))}. Continue?", err=True):
        raise Refused(f"not confirmed, {NOTHING_CHANGED}")


def carried_out(*options: str) -> str:
    """This command line as a command that does what its dry run showed, with these options added."""
    return _again([word for word in options if word not in ARGUMENTS.get()], {_PLANNED})


def only_planned() -> str:
    """This command line as a command that only shows what would be done."""
    return _again([] if _APPLY in ARGUMENTS.get() else [_PLANNED], {_APPLY})


def _again(added: Sequence[str], without: Set[str]) -> str:
    words = list(ARGUMENTS.get())
    end = words.index(_END_OF_OPTIONS) if _END_OF_OPTIONS in words else len(words)
    kept = [word for word in words[:end] if word not in without and not _ONLY_PLANNED.fullmatch(word)]
    remaining = [re.sub("[ny]", "", word) if _FLAGS.fullmatch(word) else word for word in kept]
    return shlex.join(["paimon-cli", *remaining, *added, *words[end:]])


def _safe(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))
