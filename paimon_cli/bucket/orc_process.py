"""The processes that decode ORC (`orc_decoder`): as many as threads of this process want at a time, kept for the next request."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
from typing import IO, BinaryIO

import pyarrow as pa

from paimon_cli.bucket.orc_decoder import ANSWER, ASK, BYTES, PLACE, READ, receive, send
from paimon_cli.errors import StorageUnavailable

PIPE_BYTES = 1 << 20
ATTEMPTS = 2
"""A process may be killed from outside; a file that ends two of them is damaged."""


class Refusal(pa.ArrowInvalid):  # type: ignore[misc]
    """The decoder lives, and says why these bytes are no ORC file."""


class Ended(Exception):
    """The decoder does not live any more."""


class OrcProcess:
    """One decoder and the pipes to it."""

    def __init__(self) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", "paimon_cli.bucket.orc_decoder"],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=os.sep,  # `-m` imports from here first: not what happens to lie where the user is
            env={**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(entry) for entry in sys.path)},
            pipesize=PIPE_BYTES,
        )

    def hear(self) -> tuple[bytes, pa.Buffer]:
        """Its next message. Raises `Ended`."""
        try:
            return receive(_pipe(self._child.stdout))
        except EOFError as error:
            raise Ended from error

    def tell(self, kind: bytes, content: bytes) -> None:
        """Raises `Ended`."""
        try:
            send(_pipe(self._child.stdin), kind, content)
        except BrokenPipeError as error:
            raise Ended from error

    def answer_to(self, request: bytes, source: BinaryIO) -> pa.Buffer:
        """Raises `Refusal`, `Ended`, and what `source` raises, from which the decoder reads what it wants."""
        self.tell(ASK, request)
        while True:
            kind, content = self.hear()
            if kind == ANSWER:
                return content
            if kind != READ:
                raise Refusal(content.to_pybytes().decode(errors="replace"))
            offset, size = PLACE.unpack(content)
            source.seek(offset)
            self.tell(BYTES, source.read(size))

    def end(self) -> str:
        """End it, if it has not; how it ended."""
        self._child.kill()
        code = self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            _pipe(pipe).close()
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"


_idle: list[OrcProcess] = []
"""Of this process; `pop` and `append` are safe among threads. They end with their pipes, if nothing else ends them."""


def answer_to(request: bytes, source: BinaryIO) -> pa.Buffer:
    """The decoder's answer. `pa.ArrowInvalid`: the bytes are no ORC file. `StorageUnavailable`: no process can be started."""
    ends: list[str] = []
    while len(ends) < ATTEMPTS:
        process = _started() if ends or not _idle else _idle.pop()
        try:
            answer = process.answer_to(request, source)
        except Ended:
            ends.append(process.end())
        except BaseException as error:
            put_away(process, error)
            raise
        else:
            _idle.append(process)
            return answer
    raise pa.ArrowInvalid(f"Arrow's ORC reader crashes on it: {', '.join(ends)}")


def put_away(process: OrcProcess, error: BaseException) -> None:
    """Who has met a damaged file, or was interrupted, is never asked again: nobody knows what is left of its memory."""
    process.end()


def _started() -> OrcProcess:
    what = "cannot start the process that decodes ORC"
    try:
        process = OrcProcess()
    except OSError as error:  # must not pass for a damaged file
        raise StorageUnavailable(what, str(error)) from error
    try:
        process.hear()
    except Ended as error:
        raise StorageUnavailable(what, f"{sys.executable}: {process.end()}") from error
    return process


def end_idle() -> None:
    """End all that wait for requests."""
    while _idle:
        _idle.pop().end()


atexit.register(end_idle)
os.register_at_fork(after_in_child=_idle.clear)


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe
