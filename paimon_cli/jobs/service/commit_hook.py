"""Tells a program or a server of the user about each commit of the service (`--hook`): JSON on standard input, or as a POST.

A hook never holds up the service nor fails a commit: events wait in a queue of bounded length, a thread delivers them one after
the other, in a few attempts each, and what could not be delivered is counted and said. An event may come twice, so it has an id.

The target is the word of the user, from the command line or the user's own file; tables and `./paimon.yaml` have no say. It may
hold a token, as the addresses of many chat programs do, so that messages name only its host or program.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from paimon_cli import __version__
from paimon_cli.errors import UsageError, importing
from paimon_cli.history.points_in_time import time_text
from paimon_cli.jobs.engine import Progress
from paimon_cli.jobs.process import environment_of_the_user
from paimon_cli.jobs.service.table_round import ServiceRound, ServiceWatcher, TableRound
from paimon_cli.metadata.snapshot import OVERWRITE
from paimon_cli.options.option_text import counted, json_text
from paimon_cli.storage.injected import Clock
from paimon_cli.storage.redaction import redacted
from paimon_cli.storage.web_address import WebAddress

if TYPE_CHECKING:
    from paimon_cli.storage.web_client import WebClient

HOOK_SETTING = "hook.commits"
"""The setting of the user's own file for `--hook`."""
DELIVERY_SECONDS = 10.0
"""The time of one delivery."""
PAUSES = (1.0, 5.0)
"""The seconds before the second and the third attempt."""
MOST_QUEUED, MOST_EVENT_BYTES, MOST_ANSWER_BYTES = 1000, 16384, 65536
DRAIN_SECONDS = 10.0
"""How long the end of the service waits for the events that are left."""
_WEB, _OTHER_SCHEME = re.compile(r"https?://", re.IGNORECASE), re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_PASSING_STATUS = (408, 425, 429)
"""Answers of servers, beside 5xx, after which the same request may succeed."""


class HookFailed(Exception):
    """An event was not taken. `may_pass`: whether another attempt may succeed."""

    def __init__(self, why: str, may_pass: bool = True) -> None:
        super().__init__(why)
        self.may_pass = may_pass


class HookTarget(ABC):
    """Where events go. `shown`: what messages name, without tokens."""

    shown: str

    @abstractmethod
    def deliver(self, event: bytes) -> None:
        """Raises `HookFailed`, whose text quotes nothing of the target."""

    @abstractmethod
    def stop(self) -> None:
        """End a delivery that is under way in another thread, as far as it would outlive this process, and all later ones."""

    @staticmethod
    def parse(text: str) -> HookTarget:
        """The target of `--hook URL|COMMAND`. Raises `UsageError` if it can be neither."""
        if _WEB.match(text):
            return WebHook.parse(text)
        if _OTHER_SCHEME.match(text):
            raise UsageError("--hook is not a URL of http or https", "other schemes are not supported", "or name a command")
        return CommandHook.parse(text)


@dataclass(frozen=True)
class WebHook(HookTarget):
    """Events are posted to a server. Redirects are not followed, and no proxy is used."""

    address: WebAddress = field(repr=False)
    shown: str

    @staticmethod
    def parse(url: str) -> WebHook:
        address = WebAddress.parse(url)
        if address is None or any(sign.isspace() or not sign.isprintable() for sign in url):
            raise UsageError("--hook is not a URL of http or https", "it has no valid host and port", "such as https://HOST/PATH")
        if "@" in url.partition("://")[2].partition("/")[0]:
            why = "a login in a URL is not sent"
            raise UsageError("--hook has a login", why, "use an address with a token in its path, or a command")
        with importing("hooks over http need urllib3", "rest"):
            import paimon_cli.storage.web_client  # noqa: F401
        return WebHook(address, f"{address.scheme}://{address.host_and_port}")

    @cached_property
    def _client(self) -> WebClient:
        from paimon_cli.storage.web_client import Bounds, WebClient

        return WebClient(self.address, Bounds(DELIVERY_SECONDS, MOST_ANSWER_BYTES))

    def deliver(self, event: bytes) -> None:
        from paimon_cli.storage.web_client import NoAnswer, NotSent

        headers = {"Content-Type": "application/json", "User-Agent": f"paimon-cli/{__version__}"}
        try:
            status = self._client.send("POST", self.address.path, event, headers).status
        except NotSent:
            raise HookFailed("it was not reached") from None
        except NoAnswer:
            raise HookFailed("it gave no complete answer in time") from None
        if not 200 <= status < 300:
            raise HookFailed(f"it answered with status {status}", may_pass=status >= 500 or status in _PASSING_STATUS)

    def stop(self) -> None:
        """An exchange ends with this process."""


@dataclass(eq=False)
class _AtWork:
    """The run of a command that is under way, if any, which another thread may end with all that it has started. Thread-safe."""

    _process: subprocess.Popen[bytes] | None = None
    _is_stopped: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def started(self, start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        """Start a run, unless none may start any more: under the lock, so that `stop` misses none."""
        with self._lock:
            if self._is_stopped:
                raise HookFailed("the service has ended", may_pass=False)
            self._process = start()
            return self._process

    def ended(self) -> None:
        with self._lock:
            self._process = None

    def kill(self) -> None:
        with self._lock:
            self._kill()

    def stop(self) -> None:
        with self._lock:
            self._is_stopped = True
            self._kill()

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


@dataclass(frozen=True)
class CommandHook(HookTarget):
    """Events are given to a program on standard input, one run for each; no shell, and no secrets in its environment."""

    arguments: tuple[str, ...] = field(repr=False)
    shown: str
    seconds: float = DELIVERY_SECONDS
    _at_work: _AtWork = field(default_factory=_AtWork, repr=False, compare=False)

    @staticmethod
    def parse(text: str) -> CommandHook:
        try:
            words = shlex.split(text)
        except ValueError:
            raise UsageError("--hook cannot be split into words", "a quote is not closed", "close it") from None
        if not words or "\0" in text:
            raise UsageError("--hook names nothing", "it is a URL or a command with arguments", "such as --hook 'notify.py -v'")
        program = shutil.which(os.path.expanduser(words[0]))
        if program is None:
            why = f"there is no such program: {words[0]}"
            raise UsageError("--hook cannot be run", why, "give a path, or a program on the PATH; for a server, a URL")
        return CommandHook((os.path.abspath(program), *words[1:]), os.path.basename(program))

    def deliver(self, event: bytes) -> None:
        try:
            process = self._at_work.started(self._start)
        except OSError as error:
            raise HookFailed(error.strerror or "it could not be started") from None
        with process:
            try:
                process.communicate(event + b"\n", self.seconds)
            except subprocess.TimeoutExpired:
                self._at_work.kill()
                raise HookFailed(f"it took longer than {self.seconds:g} s, and was ended") from None
            finally:
                self._at_work.ended()
        if process.returncode:
            raise HookFailed(f"it ended with code {process.returncode}")

    def stop(self) -> None:
        self._at_work.stop()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment_of_the_user(),
            start_new_session=True,  # so that Ctrl-C is for the service, and the time limit for all that it starts
        )


class CommitHook:
    """The queue of events for one target, and the thread that delivers them.

    `warn`: receives what was not delivered. `pauses`: the seconds between the attempts, of which there is one more.
    """

    def __init__(
        self, target: HookTarget, warn: Callable[[str], None], pauses: Sequence[float] = PAUSES, most_queued: int = MOST_QUEUED
    ) -> None:
        self._target, self._warn, self._pauses, self._most = target, warn, pauses, most_queued
        self._changed = threading.Condition()
        self._queue: deque[tuple[str, bytes]] = deque()
        self._ends = threading.Event()
        self._is_busy = False
        self.delivered, self.dropped = 0, 0
        threading.Thread(target=self._deliver_all, name="paimon-cli-hook", daemon=True).start()

    def offer(self, event: dict[str, Any]) -> None:
        """Queue an event; it is dropped if the queue is full. Never waits."""
        name = f"snapshot {event['snapshot']} of {event['table']}"
        content = json_text(redacted(event)).encode("utf-8", "surrogatepass")
        with self._changed:
            is_lost = len(content) > MOST_EVENT_BYTES or len(self._queue) >= self._most
            self.dropped += is_lost
            if not is_lost:
                self._queue.append((name, content))
                self._changed.notify_all()
        if is_lost and not self.dropped & (self.dropped - 1):  # at 1, 2, 4, 8 ...
            self._warn(f"hook {self._target.shown}: {counted(self.dropped, 'event')} dropped so far, because they wait too long")

    def close(self, seconds: float = DRAIN_SECONDS) -> None:
        """Wait for the queue for a while, then give up what is left, end a program that still runs, and say how much was lost."""
        try:
            with self._changed:
                self._changed.wait_for(lambda: not self._queue and not self._is_busy, seconds)
                lost = len(self._queue) + self._is_busy + self.dropped
                self._queue.clear()
                self._ends.set()
                self._changed.notify_all()
        finally:  # also if the wait is interrupted
            self._target.stop()
        if lost:
            self._warn(f"hook {self._target.shown}: {counted(lost, 'event')} not delivered, {self.delivered:,} delivered")

    def _deliver_all(self) -> None:
        while True:
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._queue or self._ends.is_set())
                if self._ends.is_set():
                    return
                name, content = self._queue.popleft()
                self._is_busy = True
            failure = self._tried(content)
            with self._changed:
                if failure is not None and self._ends.is_set():
                    return  # `close` has counted it
                self.delivered += failure is None
                self.dropped += failure is not None
            if failure is not None:
                self._warn(f"hook {self._target.shown}: {name} was not delivered: {failure}")

    def _tried(self, content: bytes) -> str | None:
        """Deliver an event in a few attempts; the reason if none has succeeded."""
        for number in range(len(self._pauses) + 1):
            try:
                self._target.deliver(content)
            except HookFailed as failed:
                attempts = counted(number + 1, "attempt")
                if not failed.may_pass or number == len(self._pauses) or self._ends.wait(self._pauses[number]):
                    return f"{failed} ({attempts})"
            except Exception as bug:  # of a library: it must not end the thread, and its text may quote the target
                return type(bug).__name__
            else:
                return None
        return None


def close_all(hooks: Sequence[CommitHook], seconds: float = DRAIN_SECONDS, now: Callable[[], float] = time.monotonic) -> None:
    """Close all hooks within the time of one."""
    ends = now() + seconds
    with contextlib.ExitStack() as stack:  # an interrupt ends the programs of the others, too
        for hook in hooks:
            stack.callback(lambda hook: hook.close(max(0.0, ends - now())), hook)


@dataclass
class HookedWatcher:
    """A service watcher that passes everything on, and tells the hook about the commits of each table that it is `about`."""

    inner: ServiceWatcher
    hook: CommitHook
    clock: Clock
    about: Callable[[str], bool] = lambda table: True

    def table_begins(self, number: int, table: str) -> Progress:
        return self.inner.table_begins(number, table)

    def table_done(self, done: TableRound) -> None:
        self.inner.table_done(done)
        if self.about(done.table):
            for event in events_of(done, self.clock.now_millis()):
                self.hook.offer(event)

    def round_done(self, done: ServiceRound, pause_seconds: float | None) -> None:
        self.inner.round_done(done, pause_seconds)


_COUNTS = ("buckets", "files_before", "files_after", "bytes_before", "bytes_after", "bytes_read", "bytes_written", "conflicts")


def events_of(done: TableRound, now_millis: int) -> Iterator[dict[str, Any]]:
    """One event for each commit of a turn. `turn`: the counts of the turn, which may have made several."""
    turn = {name: getattr(done.summary, name) for name in _COUNTS}
    for snapshot in done.summary.snapshots:
        counts = {"total_record_count": snapshot.total_record_count, "delta_record_count": snapshot.delta_record_count}
        yield {**_event(done.table, snapshot.id, snapshot.commit_kind, snapshot.time_millis), **counts, "turn": turn}
    for number in done.expired_by:
        counts = {"partitions_expired": done.upkeep.partitions_expired}
        yield {**_event(done.table, number, OVERWRITE, now_millis), **counts}


def _event(table: str, snapshot: int, kind: str, millis: int) -> dict[str, Any]:
    return {
        "event": "commit",
        "id": f"{table}@{snapshot}",
        "table": table,
        "snapshot": snapshot,
        "kind": kind,
        "time": time_text(millis),
    }
