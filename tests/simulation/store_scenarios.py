"""Scenarios on an object store, where requests overlap and each of them may fail.

Most are the scenarios of local tables under the name `remote-NAME`, with more faults. A commit that compacts its own rows
publishes two snapshots, and an object that makes several commits caches what it has read.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

from paimon_cli.lab.simulation.actor_jobs import expirer, in_turn, rows, writer
from paimon_cli.lab.simulation.real_jobs import real_compactor, real_updater, real_writer
from paimon_cli.lab.simulation.run import after
from paimon_cli.lab.simulation.scenario import LOCK, Scenario
from paimon_cli.lab.simulation.schedule import CRASH, REQUEST_FAULTS, STORE_PUT_FAULTS
from paimon_cli.metadata.data_file_schema import RowKind
from tests.simulation.named_scenarios import planned, scenario

STORE_FAULTS = (CRASH, *STORE_PUT_FAULTS, *REQUEST_FAULTS)


def on_object_stores(local: Sequence[str]) -> tuple[str, ...]:
    """Give each of these scenarios a counterpart on an object store; returns the names of all scenarios on object stores."""
    for name in local:
        planned(f"remote-{name}")(functools.partial(_on_object_store, name))
    return (*OF_STORES_ONLY, *(f"remote-{name}" for name in local))


def _on_object_store(name: str) -> Scenario:
    local = scenario(name)
    made = replace(local, name=f"remote-{name}", is_remote=True)
    return replace(made, faults=STORE_FAULTS) if local.faults else made


INLINE = {"bucket": "1", "num-sorted-run.compaction-trigger": "1", "num-levels": "3"}
VECTORS = {"deletion-vectors.enabled": "true"}
FIRST = real_writer("first", rows(0, 1, 2, 3))


@planned("remote-inline-writer-expiry")
def _() -> Scenario:
    """Nothing competes with the compactions of the writer, so each of its commits publishes two snapshots."""
    jobs = (real_writer("a", rows(0, 1, 2, value="a"), rows(0, 1, kind=RowKind.DELETE)), expirer())
    made = Scenario("remote-inline-writer-expiry", jobs, {**INLINE, **VECTORS}, faults=STORE_FAULTS, max_faults=1)
    return after(replace(made, is_remote=True, files_vanish=True, real_files=True), (FIRST,))


@planned("remote-inline-writer-compactor")
def _() -> Scenario:
    jobs = (real_writer("a", rows(0, 1, 2, value="a"), repeatable=True), real_compactor())
    made = Scenario("remote-inline-writer-compactor", jobs, INLINE, faults=STORE_FAULTS, max_faults=1, max_restarts=1)
    return after(replace(made, is_remote=True, real_files=True), (FIRST,))


@planned("remote-update-and-write")
def _() -> Scenario:
    """One object changes a row and then writes it, beside a compaction."""
    jobs = (in_turn(real_updater("u", 1, 2, 3), real_writer("w", rows(0, 3, value="w"))), real_compactor())
    made = Scenario("remote-update-and-write", jobs, {"bucket": "1"}, faults=STORE_FAULTS, max_faults=1)
    return after(replace(made, is_remote=True, real_files=True), (FIRST,))


@planned("remote-locked-writers")
def _() -> Scenario:
    """A store without conditional puts, under the lock in a database."""
    jobs = (writer("a", rows(0, 1, 2, value="a")), writer("b", rows(1, 11, 12, value="b")))
    made = Scenario("remote-locked-writers", jobs, faults=STORE_FAULTS, max_faults=1, store=LOCK)
    return after(replace(made, is_remote=True), (writer("first", rows(0, 1)),))


@planned("remote-locked-writer-expiry")
def _() -> Scenario:
    jobs = (writer("a", rows(0, 1, 4, value="a"), rows(0, 5)), expirer())
    made = Scenario("remote-locked-writer-expiry", jobs, faults=STORE_FAULTS, max_faults=1, store=LOCK, files_vanish=True)
    return after(replace(made, is_remote=True), (writer("first", rows(0, 1, 2), rows(0, 2, 3)),))


OF_STORES_ONLY = (
    "remote-inline-writer-expiry",
    "remote-inline-writer-compactor",
    "remote-update-and-write",
    "remote-locked-writers",
    "remote-locked-writer-expiry",
)
