"""The standard streams of the process: open, able to write any text, and flushed before the exit code is returned."""

from __future__ import annotations

import contextlib
import io
import os
import sys

STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def prepare_streams() -> None:
    """Redirect streams that the caller closed to the null device; make pipes and files UTF-8 whatever the locale is.

    The descriptor of a closed stream would be reused by the next file opened, perhaps a data file, and output would go into it.
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
            # Terminals keep their encoding; characters that it lacks, and half characters in file names, are escaped.
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="backslashreplace")


def write_bytes(text: bytes | memoryview) -> None:
    """Write UTF-8 bytes to stdout after earlier output, without decoding them if stdout is UTF-8."""
    stream = sys.stdout
    if (stream.encoding or "").lower().replace("-", "") != "utf8":
        stream.write(str(text, "utf-8"))
        return
    stream.flush()
    stream.buffer.write(text)


def flush_stdout() -> OSError | None:
    """Flush stdout now rather than at the interpreter's exit; return the error if output could not be written.

    A reader that closed its pipe is not an error.
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
    """Flush stderr and ignore errors: the exit code still reports the failure."""
    with contextlib.suppress(OSError):
        sys.stderr.flush()


def discard_stdout() -> None:
    """Discard buffered output whose reader has closed the pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
