"""This process: the signals that stop it, packages that it does not import, and the cores and memory that it may use.

Cores and memory respect the limits of a container (cgroups 1 and 2).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FrameType, ModuleType, TracebackType
from typing import Any

from paimon_cli.processor import was_set_here
from paimon_cli.storage.redaction import environment_without_secrets

CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"
"""PySpark sets this variable for a Connect session and never removes it; while it is set, no classic session can start."""

ARENAS = 2
_M_ARENA_MAX = -8
"""The parameter of `mallopt`, from glibc's malloc.h."""


class Terminated(KeyboardInterrupt):
    """SIGTERM: a supervisor stops this process."""


def share_arenas() -> None:
    """Let the threads of this process share two arenas of glibc's `malloc`, unless the user has set how many.

    By default nearly every thread has one of its own, and what it has freed is of no use to the others: the memory of a process
    that compacts one table after the other grew by half of what a table takes. Other C libraries have none.
    """
    if "MALLOC_ARENA_MAX" in os.environ or "glibc.malloc.arena_max" in os.environ.get("GLIBC_TUNABLES", ""):
        return
    import ctypes

    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, ARENAS)


def environment_of_the_user() -> dict[str, str]:
    """The environment for a program of the user: without secrets, and without how the command uses memory and processors."""
    return {name: value for name, value in environment_without_secrets().items() if not was_set_here(name)}


def end_as_interrupted() -> None:
    """SIGTERM and SIGHUP raise `KeyboardInterrupt` in the main thread, as Ctrl-C does, unless they are ignored (nohup)."""
    for number in _heeded(signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)


class StopSignals:
    """While entered and outside `shield`, signals raise in the main thread: SIGTERM `Terminated`, others `KeyboardInterrupt`."""

    def __init__(self) -> None:
        self._depth = 0
        self._waiting: KeyboardInterrupt | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._before = {n: signal.getsignal(n) for n in _heeded(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
            self._install()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def shield(self) -> Iterator[None]:
        """Hold signals back until the outermost shield ends."""
        if self._before:
            self._install()  # Spark installs its own handler when it starts
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        if not self._depth and self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            raise waiting

    def _install(self) -> None:
        for number in self._before:
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        stop = Terminated() if number == signal.SIGTERM else KeyboardInterrupt()
        if not self._depth:
            raise stop
        self._waiting = stop


def _heeded(*numbers: int) -> list[int]:
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


PANDAS, DATEUTIL = "pandas", "dateutil"
ARROW_STORES = frozenset(f"pyarrow._{name}" for name in ("s3fs", "gcsfs", "azurefs"))
"""Arrow's own clients of object stores, which `pyarrow.fs` imports if they are there: 4 MB. Those of fsspec are used, but
for HDFS, where it has none of its own."""


class _ImportBlocker(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name == PANDAS or name in ARROW_STORES or (name.partition(".")[0] == DATEUTIL and _is_imported_by_arrow()):
            raise ModuleNotFoundError(f"{name} is not imported by this process", name=name)
        return None


def _is_imported_by_arrow() -> bool:
    """Whether the import comes from Arrow's compiled code, which sits directly below its Python caller on the stack."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("importlib"):
        frame = frame.f_back
    return frame.f_globals.get("__name__", "").partition(".")[0] in ("pyarrow", "paimon_cli")


_BLOCKER = _ImportBlocker()


def keep_pandas_out() -> None:
    """Make later imports of pandas fail, and those of `ARROW_STORES`, as if they were not installed. Call it before Arrow is
    used, which would import them.
    """
    sys.meta_path.insert(0, _BLOCKER)


def let_pandas_in() -> None:
    """Undo `keep_pandas_out`."""
    if _BLOCKER in sys.meta_path:
        sys.meta_path.remove(_BLOCKER)


MAX_CORES = 8
"""The limit on cores used by default: each of them holds batches in memory."""
CONTROL_GROUPS, OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_UNLIMITED = 1 << 60
"""cgroups 1 write "no limit" as a number close to 2**63."""


def usable_cores(groups: Path = CONTROL_GROUPS) -> int:
    """The number of cores to use, 1 to `MAX_CORES`, within the CPU affinity (`taskset`) and the quota of the container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for directory in _directories(groups, "cpu"):
        quota, period = _quota(directory)
        if quota is not None:
            cores = min(cores, max(1, quota // period))
    return min(MAX_CORES, cores)


def container_memory(groups: Path = CONTROL_GROUPS) -> int | None:
    """The memory limit of the container in bytes; None without a limit."""
    limits = [
        limit
        for directory in _directories(groups, "memory")
        for name in ("memory.max", "memory.limit_in_bytes")
        if (limit := _number(directory / name)) is not None and limit < _UNLIMITED
    ]
    return min(limits, default=None)


def usable_memory(groups: Path = CONTROL_GROUPS) -> int:
    """The memory of the machine in bytes, or the limit of the container if that is lower."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(machine, container_memory(groups) or machine)


def _directories(groups: Path, controller: str) -> Iterator[Path]:
    """The cgroup directories whose limits apply: of the process's own group and of its visible ancestors."""
    yield from (groups, groups / controller)
    for line in _text(OWN_GROUPS).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        root = groups / controllers if controllers else groups
        if controllers and controller not in controllers.split(","):
            continue
        path = Path(group.lstrip("/"))
        yield from (root / above for above in (path, *path.parents) if above != Path())


def _quota(directory: Path) -> tuple[int | None, int]:
    """CPU quota and period in microseconds; the quota is None without a limit."""
    quota, _, period = _text(directory / "cpu.max").strip().partition(" ")
    if quota.isdigit() and period.isdigit() and int(period):
        return int(quota), int(period)
    return _number(directory / "cpu.cfs_quota_us"), _number(directory / "cpu.cfs_period_us") or 100_000


def _number(file: Path) -> int | None:
    text = _text(file).strip()
    return int(text) if text.isdigit() else None


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
