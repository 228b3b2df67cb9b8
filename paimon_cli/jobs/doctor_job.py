"""`doctor`: checks the machine, the store of a table, and the table by the rules of `health`. Findings name what mends them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from paimon_cli.errors import Refused, StorageUnavailable, UsageError, cleaning_up
from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.findings.examined_table import ExaminedTable
from paimon_cli.inspect.findings.finding import ERROR, WARNING, Finding
from paimon_cli.inspect.findings.runner import findings_of
from paimon_cli.installation import install_command
from paimon_cli.jobs.process import usable_memory
from paimon_cli.jobs.spark.java_runtime import broken_java_home, find_java
from paimon_cli.maintain.orphans import TOLERATED_MILLIS
from paimon_cli.options.option_text import human_size
from paimon_cli.processor import VARIABLE, fast_sort, sorts_slowly_with_avx512, switched_off
from paimon_cli.storage.catalog_options import EXTRAS, OBJECT_STORES
from paimon_cli.storage.guarded_storage import PROBE_PREFIX, check_commits, race_probes

PACKAGES = ("pyarrow", "pyspark", "fastavro", "numpy", "pandas", "fsspec", "typer", "pyroaring")
OF_SPARK = ("pyspark", "pandas")
"""The packages of the extra `spark`."""
RACES = 8
OF_MACHINE_AND_STORE = (*(f"PD{number:03}" for number in range(1, 11)), "PD033")
"""The codes of findings that only `doctor` looks for; all others are those of `health`."""
LITTLE_MEMORY, LITTLE_DISK = 1 << 30, 1 << 30
"""Bytes below which large jobs are likely to fail."""


SLOW_SORT, FAST_SORT = 12, 7
"""Nanoseconds a row above which a sort is slow, and what a processor takes whose sort with AVX-512 is the slow one."""
_MEASURE = "from paimon_cli.datatypes.key_order import sort_nanoseconds; print(sort_nanoseconds())"


@dataclass(frozen=True)
class Fact:
    """A check that passed."""

    subject: str
    message: str


def examine_machine() -> Iterator[Fact | Finding]:
    """Check versions, Spark and Java."""
    yield Fact("python", sys.version.split()[0])
    for name in PACKAGES:
        try:
            yield Fact(name, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            if name in OF_SPARK:
                yield Fact(
                    name, f"not installed (optional): all work runs in this process; for Spark: {install_command('spark')}"
                )
            else:
                yield Finding("PD001", ERROR, name, "is not installed", install_command())
    if importlib.util.find_spec("pyspark") is not None:
        try:
            java = find_java(os.environ)
            yield Fact("java", f"{java.version} at {java.home}")
        except UsageError as error:
            yield Finding("PD002", WARNING, "java", f"{error.message}: only --engine local works", install_command("spark"))
        if home := broken_java_home(os.environ):
            message = f"JAVA_HOME is {home}, which has no working Java; it is ignored"
            yield Finding("PD004", WARNING, "java", message, "unset JAVA_HOME")
    yield from _examine_resources()
    yield examine_sort(os.environ)


def examine_sort(environment: Mapping[str, str]) -> Fact | Finding:
    """Measure numpy's sort in a process with the switches of a command; numpy takes them only while it is imported."""
    ours = fast_sort({})
    words = [sys.executable, "-c", _MEASURE]
    done = subprocess.run(words, env={**ours, **environment}, stdout=subprocess.PIPE, text=True, check=True)
    took = f"{float(done.stdout):.0f} ns a row"
    if float(done.stdout) <= SLOW_SORT or not sorts_slowly_with_avx512():
        return Fact("sort", took)
    found, command = f"{took}, where {FAST_SORT} are possible: ", ""
    if not ours:
        found += "this release of numpy has no switch for its AVX-512 sort, which is slow on this processor"
    elif (given := environment.get(VARIABLE)) is None:
        found += "something else slows this machine down"
    else:
        is_avx512_off, is_avx2_off = switched_off(given)
        if is_avx512_off and not is_avx2_off:
            found += "something else slows this machine down"
        else:
            why = (
                "so numpy uses neither its AVX-512 sort nor the one with AVX2, which is the fast one"
                if is_avx512_off
                else "so numpy uses its AVX-512 sort, which is slow on this processor"
            )
            found += f"{VARIABLE} is '{given}', {why}"
            command = f"export {VARIABLE}={ours[VARIABLE]}"
    return Finding("PD033", WARNING, "sort", found, command)


def _examine_resources() -> Iterator[Fact | Finding]:
    """Check memory, and free disk space for spilled runs."""
    memory, shown = usable_memory(), ""
    if "SC_AVPHYS_PAGES" in os.sysconf_names:  # not on macOS
        shown = f", {human_size(min(memory, os.sysconf('SC_AVPHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')))} of it unused"
    yield Fact("memory", f"{human_size(memory)}{shown}")
    if memory < LITTLE_MEMORY:
        yield Finding("PD005", WARNING, "memory", f"{human_size(memory)} is too little for Spark; prefer --engine local")
    scratch = tempfile.gettempdir()
    disk = shutil.disk_usage(scratch)
    if disk.free < LITTLE_DISK:
        what = f"only {human_size(disk.free)} is free in {scratch}, where large writes and compactions spill"
        yield Finding("PD006", WARNING, "disk", what, "export TMPDIR=/path/with/space")
    else:
        yield Fact("disk", f"{human_size(disk.free)} free in {scratch}, for spilled runs")


def examine_table(context: TableContext, argument: str) -> Iterator[Fact | Finding]:
    """Check the storage, then the rules about the table, as far as its metadata can be read."""
    yield from _examine_storage(context)
    yield from findings_of(ExaminedTable(context, argument))


def _examine_storage(context: TableContext) -> Iterator[Fact | Finding]:
    service = OBJECT_STORES.get(context.url.partition("://")[0])
    if service is not None and importlib.util.find_spec("obstore") is None:
        yield Finding("PD003", ERROR, "storage", f"{context.url} needs the package obstore", install_command(EXTRAS[service]))
    try:
        yield from _try_commits(context)
        yield from _try_listing_and_clock(context)
    except StorageUnavailable as error:
        yield Finding("PD007", ERROR, "storage", f"cannot be written to: {error.message}")


def _try_commits(context: TableContext) -> Iterator[Fact | Finding]:
    lock = "give the catalog a lock: --option lock.enabled=true --option uri=jdbc:postgresql://HOST/DB"
    try:
        warning = check_commits(context.storage)
    except Refused as error:
        yield Finding("PD010", ERROR, "storage", f"no safe commit: {error.message}", lock)
        return
    if warning:
        yield Finding("PD010", ERROR, "storage", warning, lock)
    proven = race_probes(context.storage, context.layout.root, context.random, RACES)
    if proven:
        yield Fact("storage", f"put-if-absent had exactly one winner in each of {RACES} races")
    else:
        yield Finding("PD010", ERROR, "storage", "put-if-absent had two winners, or none, in a race of two writers", lock)


def _try_listing_and_clock(context: TableContext) -> Iterator[Fact | Finding]:
    """Whether a new file is listed at once, and is gone when it was deleted; and how far the clocks are apart.

    Orphans are told from files in use by listing, and by their age.
    """
    directory = f"{context.layout.root}/{PROBE_PREFIX}{context.random.uuid()}"
    try:
        before = context.clock.now_millis()
        context.storage.write_new(f"{directory}/time", b"")
        after = context.clock.now_millis()
        listed = context.storage.list_directory(directory)
    finally:
        with cleaning_up():
            context.storage.delete_directory(directory)
    if not listed:
        what = "a new file is not listed at once, so that files in use can be missed: remove no orphans there"
        yield Finding("PD008", ERROR, "storage", what)
        return
    if context.storage.list_directory(directory):
        yield Finding("PD008", ERROR, "storage", f"a file was deleted but is still there; delete {directory}")
    else:
        yield Fact("storage", "a new file is listed at once, and gone when it is deleted")
    modified = listed[0].modified_millis
    ahead = before - modified if modified < before else min(0, after - modified)
    if abs(ahead) <= TOLERATED_MILLIS:
        yield Fact("clock", f"within {TOLERATED_MILLIS // 1000} s of the store's")
        return
    which = "ahead of" if ahead > 0 else "behind"
    what = f"this machine's is {abs(ahead) / 1000:,.0f} s {which} the store's; ages of files and snapshots are wrong by that"
    yield Finding("PD009", WARNING, "clock", what, "timedatectl set-ntp true")
