"""The JVM's own archive of Spark's classes in the user's cache: with it, Spark starts with half of the work.

The first JVM writes it as it exits, which takes some seconds in the background; later ones map it into memory. A JVM checks
by itself whether an archive fits (its own build, the names, sizes and times of all jars) and does without one that does not.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

import pyspark

from paimon_cli.jobs.java_runtime import JavaRuntime
from paimon_cli.storage.clock_and_names import RandomNames

PREFIX, SUFFIX = "spark-classes-", ".jsa"
MOST_ARCHIVES = 3
"""About 70 MB each; one is needed per pair of Java and PySpark."""
NOT_YET = b"\0\0\0\0"
"""What stands at the beginning of an archive until all the rest is written."""


def archive_options(java: JavaRuntime, cache: Path | None, only_use: bool = False) -> list[str]:
    """What to tell the JVM: to use the archive in `cache`, or else (unless `only_use`) to write it.

    Nothing where there is no cache. Writing has a JVM say a few words on its output.
    """
    if cache is None:
        return []
    installation = f"{java.build} {Path(pyspark.__file__).parent} {pyspark.__version__}"
    key = PREFIX + hashlib.sha256(installation.encode()).hexdigest()[:16]
    archives = sorted(cache.glob(f"{PREFIX}*{SUFFIX}"), key=_written, reverse=True)
    usable = [path for path in archives if path.name.startswith(key) and _is_whole(path)]
    # JVMs that started at the same time have each written one; what others are still writing is not whole yet.
    for path in {*archives[MOST_ARCHIVES:], *usable[1:]} - {*usable[:1]}:
        with contextlib.suppress(OSError):  # somebody else cleans up too, or it is not ours to delete
            path.unlink()
    if usable:
        return [f"-XX:SharedArchiveFile={usable[0]}"]
    if only_use:
        return []
    # A name of its own: two JVMs that write into one file would spoil it.
    return [f"-XX:ArchiveClassesAtExit={cache / f'{key}-{RandomNames().uuid()}{SUFFIX}'}"]


def _written(path: Path) -> int:
    """When, in nanoseconds; long ago for one that is gone."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _is_whole(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(NOT_YET)) > NOT_YET
    except OSError:
        return False
