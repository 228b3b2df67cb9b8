"""Scenarios of tables without a primary key: rows that are appended, deleted and compacted. Their files and vectors are real."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from paimon_cli.lab.simulation.actor import Job
from paimon_cli.lab.simulation.actor_jobs import expirer, in_turn, litterer, orphan_remover, rows
from paimon_cli.lab.simulation.real_jobs import real_compactor, real_deleter, real_updater, real_writer
from paimon_cli.lab.simulation.run import after
from paimon_cli.lab.simulation.scenario import Scenario
from tests.simulation.named_scenarios import ALL_FAULTS, CRASHES, planned

COPIES = {"bucket": "-1", "write-only": "true"}
VECTORS = {**COPIES, "deletion-vectors.enabled": "true"}
BUCKET = {"bucket": "1", "bucket-key": "k", "write-only": "true", "deletion-vectors.enabled": "true"}

FILES = in_turn(real_writer("first", rows(0, 1, 2, 3, 4)), real_writer("second", rows(0, 5, 6, 7), rows(0, 8, 9)))
"""Three small files."""
MARKED = in_turn(FILES, real_deleter("marker", 4, 7))
"""In two of them a row is deleted."""


def _made(name: str, options: Mapping[str, str], before: Job, *jobs: Job, faults: tuple[str, ...] = ALL_FAULTS) -> Scenario:
    made = Scenario(name, jobs, options, faults=faults, max_faults=1, real_files=True, has_key=False)
    return after(made, (before,))


@planned("append-writers-compactor")
def _() -> Scenario:
    jobs = (real_writer("a", rows(0, 11, 12)), real_writer("b", rows(0, 13)), real_compactor())
    return _made("append-writers-compactor", COPIES, FILES, *jobs)


@planned("append-writer-compactor")
def _() -> Scenario:
    return _made("append-writer-compactor", COPIES, FILES, real_writer("a", rows(0, 11, 12)), real_compactor())


@planned("append-compactors")
def _() -> Scenario:
    return _made("append-compactors", VECTORS, MARKED, real_compactor(), real_compactor())


@planned("append-deleters")
def _() -> Scenario:
    """Both write one file again."""
    return _made("append-deleters", COPIES, FILES, real_deleter("a", 1), real_deleter("b", 2, 5))


@planned("append-deleter-compactor")
def _() -> Scenario:
    return _made("append-deleter-compactor", COPIES, FILES, real_deleter("a", 1, 8, 9), real_compactor())


@planned("append-vectors-deleters")
def _() -> Scenario:
    """Both mark rows of a file that has no vector yet."""
    return _made("append-vectors-deleters", VECTORS, FILES, real_deleter("a", 1), real_deleter("b", 2, 5))


@planned("append-vectors-deleters-again")
def _() -> Scenario:
    """Both add to a vector that is there, and one of them to another that shares its index file."""
    return _made("append-vectors-deleters-again", VECTORS, MARKED, real_deleter("a", 1), real_deleter("b", 2, 5))


@planned("append-vectors-deleter-compactor")
def _() -> Scenario:
    return _made("append-vectors-deleter-compactor", VECTORS, MARKED, real_deleter("a", 1, 8), real_compactor())


@planned("append-vectors-first-deleter-compactor")
def _() -> Scenario:
    """The first vectors come while the rows are copied that they mark."""
    return _made("append-vectors-first-deleter-compactor", VECTORS, FILES, real_deleter("a", 1, 8), real_compactor())


@planned("append-bucket-deleters")
def _() -> Scenario:
    """All vectors of a bucket are in one file, also those of different data files."""
    return _made("append-bucket-deleters", BUCKET, FILES, real_deleter("a", 1), real_deleter("b", 5))


@planned("append-bucket-deleter-compactor")
def _() -> Scenario:
    return _made("append-bucket-deleter-compactor", BUCKET, MARKED, real_deleter("a", 1, 8), real_compactor())


@planned("append-writer-sorter")
def _() -> Scenario:
    return _made("append-writer-sorter", VECTORS, MARKED, real_writer("a", rows(0, 0, 11)), real_compactor(order_by="k"))


@planned("append-deleter-sorter")
def _() -> Scenario:
    return _made("append-deleter-sorter", VECTORS, MARKED, real_deleter("a", 1, 8, 9), real_compactor(order_by="k"))


@planned("append-deleter-expiry")
def _() -> Scenario:
    made = _made("append-deleter-expiry", VECTORS, MARKED, real_deleter("a", 1, 8, 9), expirer(), faults=CRASHES)
    return replace(made, files_vanish=True)


@planned("append-deleter-writer")
def _() -> Scenario:
    return _made("append-deleter-writer", COPIES, FILES, real_deleter("a", 1, 8, 9), real_writer("b", rows(0, 11, 12)))


@planned("append-deleter-updater")
def _() -> Scenario:
    """One deletes a row of a file that the other writes again with another value."""
    return _made("append-deleter-updater", COPIES, FILES, real_deleter("a", 1, 5), real_updater("b", 2, 8))


@planned("append-vectors-deleter-updater")
def _() -> Scenario:
    return _made("append-vectors-deleter-updater", VECTORS, MARKED, real_deleter("a", 1, 5), real_updater("b", 2, 8))


@planned("append-vectors-orphans")
def _() -> Scenario:
    jobs = (real_deleter("a", 1, 8), orphan_remover())
    made = _made("append-vectors-orphans", VECTORS, in_turn(MARKED, litterer()), *jobs, faults=CRASHES)
    return replace(made, files_vanish=True)


@planned("append-vectors-many")
def _() -> Scenario:
    jobs = (real_writer("w", rows(0, 11, 12)), real_deleter("a", 1, 8), real_compactor(), real_compactor(), expirer(2))
    return replace(_made("append-vectors-many", VECTORS, MARKED, *jobs), max_faults=2, files_vanish=True)


TWO_ACTORS = (
    *("append-writer-compactor", "append-compactors", "append-deleters", "append-deleter-compactor"),
    *("append-vectors-deleters", "append-vectors-deleters-again", "append-vectors-deleter-compactor"),
    *("append-bucket-deleters", "append-bucket-deleter-compactor", "append-writer-sorter", "append-deleter-sorter"),
    *("append-vectors-first-deleter-compactor", "append-deleter-expiry", "append-deleter-writer", "append-deleter-updater"),
    *("append-vectors-deleter-updater", "append-vectors-orphans"),
)
MANY_ACTORS = ("append-writers-compactor", "append-vectors-many")
