"""Runs tasks in processes of their own beside this one: threads of one process take a sixth more CPU time for merges.

Such a process imports the package itself, inherits neither signals nor the main module, and ends as soon as this process does,
even if it is killed. The function, its tasks and their results go through a socket without a name, which no others can open.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Generic, TypeVar

from paimon_cli.errors import PaimonError, StorageUnavailable
from paimon_cli.jobs.process import keep_pandas_out
from paimon_cli.processor import fast_sort

T = TypeVar("T")
R = TypeVar("R")
_PROGRAM = "import sys; sys.path[:] = sys.argv[2:]; from paimon_cli.jobs.task_processes import serve; serve(int(sys.argv[1]))"


class TaskProcesses(Generic[T, R]):
    """Calls a function of tasks in `count` processes, of which this one is the first; each runs one task at a time.

    `count` threads may call it at the same time. The others start when they are needed, and end when the `with` block does;
    `stop` ends them earlier, in the middle of their tasks. Raises what the function raises, and `StorageUnavailable` if a
    process ends before its task does.
    """

    def __init__(self, function: Callable[[T], R], count: int) -> None:
        self._function = function
        self._idle: SimpleQueue[_Process | None] = SimpleQueue()
        self._processes = [_Process() for _ in range(count - 1)]
        for process in (None, *self._processes):
            self._idle.put(process)

    def __enter__(self) -> TaskProcesses[T, R]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
        for process in self._processes:
            process.close()

    def __call__(self, task: T) -> R:
        process = self._idle.get()
        try:
            if process is None:
                return self._function(task)
            result: R = process.run(self._function, task)
            return result
        finally:
            self._idle.put(process)

    def stop(self) -> None:
        for process in self._processes:
            process.stop()


class _Process:
    """One of the other processes. While a thread is in `run`, others may only call `stop`."""

    def __init__(self) -> None:
        self._running: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._is_stopped = False
        self._changing = threading.Lock()

    def run(self, function: Callable[[Any], Any], task: Any) -> Any:
        try:
            connection = self._connection or self._start(function)
            connection.send(task)
            is_result, outcome = connection.recv()
        except (EOFError, OSError) as error:
            raise self._ended(error) from error
        if is_result:
            return outcome
        raise outcome

    def _start(self, function: Callable[[Any], Any]) -> Connection:
        with self._changing:
            if self._is_stopped:
                raise EOFError
            own, its = Pipe()
            with its:
                number = its.fileno()
                self._running = subprocess.Popen(
                    [sys.executable, "-c", _PROGRAM, str(number), *sys.path],
                    pass_fds=[number],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env={**os.environ, **fast_sort(os.environ)},
                    start_new_session=True,  # Ctrl-C reaches this process only, which ends the others
                )
            self._connection = own
        own.send(function)
        return own

    def _ended(self, error: EOFError | OSError) -> PaimonError:
        """The error about a process that has ended, is about to, or was never started."""
        if self._running is None:
            return StorageUnavailable("a process for this job cannot be started", str(error), "use fewer cores")
        code = self._running.wait()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        why = f"it ended with {how}; a process that is killed has usually run out of memory"
        return StorageUnavailable(
            "a process of this job has died", why, "give its merges less memory (--memory), or use fewer cores"
        )

    def stop(self) -> None:
        with self._changing:
            self._is_stopped = True
            if self._running is not None:
                self._running.kill()
                self._running.wait()

    def close(self) -> None:
        """Release the socket, once no thread uses it."""
        if self._connection is not None:
            self._connection.close()


def serve(number: int) -> None:
    """Be one of the other processes: receive a function and its tasks from the socket `number`, and answer with their results,
    until the process that began this one ends.
    """
    keep_pandas_out()
    connection = Connection(number)
    received: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_receive, args=(connection, received), daemon=True).start()
    function = pickle.loads(received.get())
    while True:
        connection.send_bytes(_outcome(function, pickle.loads(received.get())))


def _receive(connection: Connection, received: SimpleQueue[bytes]) -> None:
    while True:
        try:
            received.put(connection.recv_bytes())
        except (EOFError, OSError):
            os._exit(0)  # also in the middle of a task: its result is not wanted any more


def _outcome(function: Callable[[Any], Any], task: Any) -> bytes:
    """Whether the call has a result, and the result or the error, as bytes."""
    try:
        return pickle.dumps((True, function(task)))
    except Exception as error:
        try:
            return pickle.dumps((False, error))
        except Exception:  # an error of a library that cannot be sent
            return pickle.dumps((False, RuntimeError("".join(traceback.format_exception(error)))))
