"""The standard streams of the process: open, able to write any text, and flushed before the exit code is told."""

from __future__ import annotations

import contextlib
import io
import os
import sys

STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def prepare_streams() -> None:
    """What the caller has closed leads nowhere, and what goes to a pipe or file is UTF-8 whatever the locale says.

    A closed stream's number would go to the next file that is opened, a data file perhaps, for others to print into.
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
            # Terminals keep their encoding; a sign that it lacks, or half a character in a file's name, is spelled out.
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="backslashreplace")


def write_bytes(text: bytes | memoryview) -> None:
    """UTF-8 to stdout, behind what was printed before, without a way through `str` where that is its encoding."""
    stream = sys.stdout
    if (stream.encoding or "").lower().replace("-", "") != "utf8":
        stream.write(str(text, "utf-8"))
        return
    stream.flush()
    stream.buffer.write(text)


def flush_stdout() -> OSError | None:
    """Now and not at the interpreter's exit. The error if what was printed could not be written.

    A reader that has gone has had enough, and is none.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        discard_stdout()
    except OSError as error:
        discard_stdout()
        return error
    return None


def flush_stderr() -> None:
    """What cannot be said is not said; the exit code is."""
    with contextlib.suppress(OSError):
        sys.stderr.flush()


def discard_stdout() -> None:
    """Nobody takes our output any more: what is still buffered goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
