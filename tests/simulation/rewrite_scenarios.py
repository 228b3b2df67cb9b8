"""Scenarios in which whole partitions are written again beside changes of single rows, for every kind of table.

A rescale, an overwrite with rows that were read before, and a restore replace files that others change meanwhile. In tables with
deletion vectors such a change may leave all files in place, and only mark rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from paimon_cli.errors import UsageError
from paimon_cli.lab.simulation.actor import Job
from paimon_cli.lab.simulation.actor_jobs import in_turn, restorer, rows
from paimon_cli.lab.simulation.real_jobs import (
    real_compactor,
    real_deleter,
    real_rescaler,
    real_rewriter,
    real_updater,
    real_writer,
)
from paimon_cli.lab.simulation.run import after
from paimon_cli.lab.simulation.scenario import Scenario
from tests.simulation.named_scenarios import ALL_FAULTS, planned

MARKS = {"deletion-vectors.enabled": "true"}
FIXED = {"bucket": "1", "write-only": "true"}


@dataclass(frozen=True)
class Kind:
    """A kind of table. `has_buckets`: a fixed number of them. `changes_rows`: whether rows can be updated and deleted in it."""

    options: Mapping[str, str]
    has_key: bool = True
    has_buckets: bool = True
    changes_rows: bool = True


KINDS = {
    "append": Kind({"bucket": "-1", "write-only": "true"}, has_key=False, has_buckets=False),
    "append-vectors": Kind({"bucket": "-1", "write-only": "true", **MARKS}, has_key=False, has_buckets=False),
    "append-buckets": Kind({**FIXED, "bucket-key": "k"}, has_key=False),
    "append-bucket-vectors": Kind({**FIXED, "bucket-key": "k", **MARKS}, has_key=False),
    "fixed": Kind(FIXED),
    "fixed-vectors": Kind({**FIXED, **MARKS, "deletion-vectors.merge-on-read": "true"}),
    "dynamic": Kind({"bucket": "-1", "dynamic-bucket.target-row-num": "4", "write-only": "true"}, has_buckets=False),
    "first-row": Kind({**FIXED, "merge-engine": "first-row"}, changes_rows=False),
}
FIRST = rows(0, 1, 2, 3, 4)
BEFORE = in_turn(real_writer("first", FIRST), real_compactor(), real_writer("second", rows(0, 5, 6)))
"""Snapshot 1 has the first rows in one file."""


def _made(name: str, kind: Kind, *jobs: Job) -> Scenario:
    options = {**kind.options, "commit.data-conflict-check": "partition"}
    tolerates = frozenset({"PV023"})
    made = Scenario(name, jobs, options, faults=ALL_FAULTS, max_faults=1, real_files=True, tolerates=tolerates)
    return after(replace(made, has_key=kind.has_key), (BEFORE,))


def _rewriters(kind: Kind) -> Mapping[str, Job]:
    """The actors that replace all files."""
    found = {"rewriter": real_rewriter("w"), "restorer": restorer("s", 1, FIRST)}
    return {**found, "rescaler": real_rescaler("r", 2)} if kind.has_buckets else found


def _changers(kind: Kind) -> Mapping[str, Job]:
    """The actors that change single rows. A writer that begins after a rescale has the old bucket count."""
    if not kind.changes_rows:
        return {"writer": real_writer("a", rows(0, 7, 8), refusal=UsageError)}
    return {"deleter": real_deleter("d", 3), "updater": real_updater("u", 2, 4)}


def _register(name: str, kind: Kind, *jobs: Job) -> str:
    planned(name)(lambda: _made(name, kind, *jobs))
    return name


TWO_ACTORS = tuple(
    _register(f"{table}-{change}-{rewrite}", kind, changer, rewriter)
    for table, kind in KINDS.items()
    for change, changer in _changers(kind).items()
    for rewrite, rewriter in _rewriters(kind).items()
)
MANY_ACTORS = tuple(
    _register(f"{table}-rewrites-many", kind, *_changers(kind).values(), *_rewriters(kind).values(), real_compactor())
    for table, kind in KINDS.items()
)
