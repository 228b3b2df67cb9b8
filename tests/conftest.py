"""What every test shares: a fixed environment, the same random examples each time, and which tests keep to one worker."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadGroupScheduling

from tests.pieces import RUN_TWICE, injected

if TYPE_CHECKING:
    from tests.jobs.spark_cluster import SparkCluster

TESTS = Path(__file__).parent
STARTUP = str(TESTS / "startup")
"""A directory for the Python path of child processes: see its `sitecustomize`."""

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background has it ignored, and children inherit that
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # so has nohup

# Set before anything is imported: widths and colours of text output, and no setting of the developer's own.
os.environ.update(COLUMNS="200", NO_COLOR="1", SPARK_LOCAL_IP="127.0.0.1", PYTHONHASHSEED="0", XDG_CONFIG_HOME="/nonexistent")
for name in [key for key in os.environ if key.startswith("PAIMON_")]:
    del os.environ[name]

# Compiled modules are kept, and the hundreds of processes that tests start find them, as a user's processes do.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
os.environ["PYTHONPATH"] = os.pathsep.join(path for path in (STARTUP, os.environ.get("PYTHONPATH", "")) if path)

# What workers of Spark on this machine have from their start; others get the package from the session (see `startup`).
os.environ["TEST_LOADED"] = "pandas pyarrow.parquet paimon_cli.spark.source_writing paimon_cli.spark.reading"
os.environ["TEST_TASK_END"] = "0"

# What a power cut takes back is simulated (`faults/test_local_durability`), so no test waits for the disk. Descriptors are open.
os.environ["TEST_UNSYNCED"] = "1"
os.fsync = os.fstat  # type: ignore[assignment]


# A busy machine is no reason to fail. Which examples are tried is the same each time; at night others are searched for.
settings.register_profile("night", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("tests", settings.get_profile("night"), derandomize=True)
settings.load_profile("tests")


LONGEST_GROUPS = ("cluster", "spark", "s3")


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    """Deeply nested texts leave no stack for finalizers that happen to run meanwhile. pytest's hook fails there as well, and
    takes that for a failure of the test.
    """
    noted = sys.unraisablehook

    def note(unraisable: sys.UnraisableHookArgs) -> None:
        if not isinstance(unraisable.exc_value, RecursionError):
            noted(unraisable)

    sys.unraisablehook = note


def _at_night(config: pytest.Config) -> bool:
    return bool(config.getoption("markexpr") == "nightly")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: tests of Spark, stores and processes wait much of their time."""
    return len(os.sched_getaffinity(0)) + 1


class ByModule(LoadGroupScheduling):  # type: ignore[misc]
    """Tests without a group go to a worker with their module: what a module makes is made once, and there are few units.

    pytest-xdist counts all units that a worker has had whenever a test ends, which takes seconds for thousands of them.
    """

    def _split_scope(self, nodeid: str) -> str:
        group = super()._split_scope(nodeid)
        return nodeid.partition("::")[0] if group == nodeid else group


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadGroupScheduling | None:
    """At night few tests of a module take minutes each: any worker may have the next one."""
    return None if _at_night(config) else ByModule(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--pieces", type=int, default=0, help="run all tests with pieces of this many rows, files or calls")
    parser.addoption("--part-of-the-day", type=int, default=1, help="run one of so many parts of the tests, another one each day")
    parser.addoption("--day", type=int, default=date.today().toordinal(), help="the number of the day; by default that of today")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests of whole tables run twice: with the pieces of a user, in one of which their tables fit, and with small ones."""
    if metafunc.config.getoption("--pieces"):
        metafunc.parametrize("pieces", [metafunc.config.getoption("--pieces")], ids=[pytest.HIDDEN_PARAM], indirect=True)
    elif metafunc.definition.path.relative_to(TESTS).as_posix() in RUN_TWICE:
        metafunc.parametrize("pieces", [0, 3], ids=[pytest.HIDDEN_PARAM, "small-pieces"], indirect=True)


@pytest.fixture(autouse=True)
def pieces(request: pytest.FixtureRequest) -> Iterator[None]:
    with injected(request.param) if getattr(request, "param", 0) else nullcontext():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Garbage collection leaves out modules and tests, half a million objects that are there until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that need Spark share one session, so pytest-xdist must keep them together. Of several workers, one begins with each
    of the longest groups, so that none is left with it in the end."""
    _leave_cases_to_the_night(items)
    parts, day = config.getoption("--part-of-the-day"), config.getoption("--day")
    other = [item for item in items if not is_of_the_day(item.nodeid, parts, day)]
    if other:
        config.hook.pytest_deselected(items=other)
        items[:] = [item for item in items if is_of_the_day(item.nodeid, parts, day)]
    for item in items:
        names = (item.path.name, item.path.parent.name, *getattr(item, "fixturenames", ()))
        if item.get_closest_marker("xdist_group") is None and any("spark" in name for name in names):
            item.add_marker(pytest.mark.xdist_group("spark"))
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=_place_of_group)


def is_of_the_day(test: str, parts: int, day: int) -> bool:
    """Whether a test is in the part of this day: each is in the part of one of so many days that follow each other."""
    return crc32(test.encode()) % parts == day % parts


def _leave_cases_to_the_night(items: list[pytest.Item]) -> None:
    """Of each `step` cases of a test that is marked `in_part(step)`, all but one are marked `nightly`.

    The one is at another place in each turn, else it might have the same value of a parameter each time.
    """
    turns: Counter[str] = Counter()
    for item in items:
        marker = item.get_closest_marker("in_part")
        if marker is not None and item.get_closest_marker("nightly") is None:
            test, step = item.nodeid.partition("[")[0], marker.args[0]
            if (turns[test] + turns[test] // step) % step:
                item.add_marker(pytest.mark.nightly)
            turns[test] += 1


def pytest_sessionfinish() -> None:
    local_spark = sys.modules.get("tests.local_spark")
    if local_spark is not None:
        local_spark.end_shared_spark()


def _place_of_group(item: pytest.Item) -> int:
    marker = item.get_closest_marker("xdist_group")
    group = marker.args[0] if marker else ""
    return LONGEST_GROUPS.index(group) if group in LONGEST_GROUPS else len(LONGEST_GROUPS)


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A real standalone cluster; an application must have ended before the next one gets executors."""
    from tests.jobs.spark_cluster import SparkCluster
    from tests.local_spark import end_shared_spark

    cluster = SparkCluster(tmp_path_factory.mktemp("cluster"))
    try:
        cluster.start(executors=2)
        yield cluster
    finally:
        end_shared_spark()
        cluster.stop()
