"""Scenarios of tables with deletion vectors and with each changelog producer. Their data files and vectors are real."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from paimon_cli.lab.simulation.actor import Job
from paimon_cli.lab.simulation.actor_jobs import expirer, in_turn, litterer, orphan_remover, rows, tagger
from paimon_cli.lab.simulation.real_jobs import level_compactor, real_compactor, real_writer
from paimon_cli.lab.simulation.run import after
from paimon_cli.lab.simulation.scenario import Scenario
from paimon_cli.metadata.data_file_schema import RowKind
from tests.simulation.named_scenarios import ALL_FAULTS, CRASHES, planned

VECTORS = {"bucket": "1", "write-only": "true", "deletion-vectors.enabled": "true"}
LOOKUP = {"bucket": "1", "write-only": "true", "changelog-producer": "lookup"}
FULL = {"bucket": "1", "write-only": "true", "changelog-producer": "full-compaction"}
INPUT = {"bucket": "1", "write-only": "true", "changelog-producer": "input"}

LIFTED = in_turn(
    real_writer("first", rows(0, 1, 2, 3, 4)),
    real_compactor(),
    real_writer("second", rows(0, 2, value="s")),
    level_compactor([0], 4),
)
"""A file at level 5, and one at level 4 whose key is marked in it."""
LEVELS = in_turn(LIFTED, real_writer("third", rows(0, 2, 3, value="t"), rows(0, 1, kind=RowKind.DELETE)))
"""In addition two files of level 0: one more change of a row, and a delete."""
FLAT = in_turn(real_writer("first", rows(0, 1, 2, 3)), real_compactor(), real_writer("second", rows(0, 2, 5, value="s")))

BOTH = {**rows(0, 1, 2, 4, 5, 6), **rows(1, 0, 3, 7)}
BOTH_AGAIN = {**rows(0, 1, 6, value="s"), **rows(1, 0, 7, value="s")}
"""Keys where the shipped hash puts them in two buckets."""

TWICE = in_turn(real_writer("second", rows(0, 1)), real_writer("third", rows(0, 1, value="t")))
"""Two files of level 0 with the same key."""


def _made(
    name: str, options: Mapping[str, str], before: Job, *jobs: Job, faults: tuple[str, ...] = ALL_FAULTS, **more: object
) -> Scenario:
    made = Scenario(name, jobs, options, faults=faults, max_faults=1, real_files=True)
    return after(replace(made, **more), (before,))  # type: ignore[arg-type]


# deletion vectors


@planned("vectors-writer-compactor")
def _() -> Scenario:
    return _made("vectors-writer-compactor", VECTORS, LEVELS, real_writer("a", rows(0, 3, 6, value="a")), real_compactor())


@planned("vectors-compactors")
def _() -> Scenario:
    return _made("vectors-compactors", VECTORS, LEVELS, real_compactor(), real_compactor())


@planned("vectors-levels")
def _() -> Scenario:
    """A compaction of level 0 marks rows of files that another one merges away."""
    return _made("vectors-levels", VECTORS, LEVELS, level_compactor([0], 3), level_compactor([4, 5], 5))


@planned("vectors-rewrite")
def _() -> Scenario:
    """A compaction of level 0 adds to the vector of a file that another one rewrites without its marked rows."""
    return _made("vectors-rewrite", VECTORS, LEVELS, level_compactor([0], 3), level_compactor([5], 5))


@planned("vectors-expiry")
def _() -> Scenario:
    jobs = (level_compactor([0], 3), expirer())
    return _made("vectors-expiry", VECTORS, LEVELS, *jobs, faults=CRASHES, files_vanish=True)


@planned("vectors-tag-expiry")
def _() -> Scenario:
    """The tag holds a snapshot whose index file a later compaction has replaced."""
    before = in_turn(LEVELS, level_compactor([0], 3))
    jobs = (tagger("kept", 4), expirer())
    return _made("vectors-tag-expiry", VECTORS, before, *jobs, faults=CRASHES, files_vanish=True)


@planned("vectors-orphans")
def _() -> Scenario:
    before = in_turn(LEVELS, litterer())
    jobs = (level_compactor([0], 3), orphan_remover())
    return _made("vectors-orphans", VECTORS, before, *jobs, faults=CRASHES, files_vanish=True)


@planned("vectors-upgrade")
def _() -> Scenario:
    """The only file of level 0 is lifted as it is; its row replaces one of level 4, and the vector of level 5 stays as it was."""
    before = in_turn(LIFTED, real_writer("third", rows(0, 2, value="t")))
    jobs = (level_compactor([0], 3), real_writer("a", rows(0, 3, 6, value="a")))
    return _made("vectors-upgrade", VECTORS, before, *jobs)


@planned("vectors-overwriter-compactor")
def _() -> Scenario:
    jobs = (real_writer("o", rows(0, 7, 8, value="o"), overwrite=True), level_compactor([0], 3))
    return _made("vectors-overwriter-compactor", VECTORS, LEVELS, *jobs)


@planned("vectors-restart")
def _() -> Scenario:
    """What crashes is run again: a writer under its user and identifier, a compactor from the latest snapshot."""
    jobs = (real_writer("a", rows(0, 3, 6, value="a"), repeatable=True), level_compactor([0], 3))
    return _made("vectors-restart", VECTORS, LEVELS, *jobs, faults=CRASHES, max_restarts=1)


@planned("vectors-buckets")
def _() -> Scenario:
    """Compactors of two buckets, whose vectors are in one index manifest."""
    before = in_turn(real_writer("first", BOTH), real_compactor(), real_writer("second", BOTH_AGAIN))
    jobs = (real_compactor("full", (0,)), real_compactor("full", (1,)))
    return _made("vectors-buckets", {**VECTORS, "bucket": "2"}, before, *jobs)


@planned("vectors-levels-of-buckets")
def _() -> Scenario:
    """Compactions of level 0 in two buckets, each of which has vectors."""
    before = in_turn(real_writer("first", BOTH), real_compactor(), real_writer("second", BOTH_AGAIN))
    jobs = (level_compactor([0], 4, 0), level_compactor([0], 4, 1))
    return _made("vectors-levels-of-buckets", {**VECTORS, "bucket": "2"}, before, *jobs)


INLINE = {"bucket": "1", "deletion-vectors.enabled": "true", "num-sorted-run.compaction-trigger": "2"}


@planned("vectors-inline-writers")
def _() -> Scenario:
    """Two writers of one bucket compact what they have just flushed, and do not know of each other."""
    before = in_turn(real_writer("first", rows(0, *range(100, 140))), real_compactor())
    jobs = (real_writer("a", rows(0, 1, 2, value="same")), real_writer("b", rows(0, 2, 3, value="same")))
    return _made("vectors-inline-writers", INLINE, before, *jobs, tolerates=frozenset({"PV023"}))


@planned("vectors-disjoint-picks")
def _() -> Scenario:
    """Compactions of different files of level 0 into different levels, as jobs make them that know of their own files only."""
    before = in_turn(real_writer("first", rows(0, 8, 9)), real_compactor(), TWICE)
    jobs = (level_compactor([0], 3, picks=(0,)), level_compactor([0], 4, picks=(1,)))
    return _made("vectors-disjoint-picks", VECTORS, before, *jobs)


# changelogs


@planned("lookup-writer-compactor")
def _() -> Scenario:
    return _made("lookup-writer-compactor", LOOKUP, LEVELS, real_writer("a", rows(0, 3, 6, value="a")), real_compactor())


@planned("lookup-compactors")
def _() -> Scenario:
    return _made("lookup-compactors", LOOKUP, LEVELS, real_compactor(), real_compactor())


@planned("lookup-levels")
def _() -> Scenario:
    """The values before a change are read from files that another compaction merges away."""
    return _made("lookup-levels", LOOKUP, LEVELS, level_compactor([0], 3), level_compactor([4, 5], 5))


@planned("lookup-disjoint-picks")
def _() -> Scenario:
    before = in_turn(real_writer("first", rows(0, 8, 9)), real_compactor(), TWICE)
    jobs = (level_compactor([0], 3, picks=(0,)), level_compactor([0], 4, picks=(1,)))
    return _made("lookup-disjoint-picks", LOOKUP, before, *jobs)


@planned("lookup-restart")
def _() -> Scenario:
    jobs = (real_writer("a", rows(0, 3, 6, value="a"), repeatable=True), level_compactor([0], 3))
    return _made("lookup-restart", LOOKUP, LEVELS, *jobs, faults=CRASHES, max_restarts=1)


@planned("lookup-expiry")
def _() -> Scenario:
    jobs = (level_compactor([0], 3), expirer())
    return _made("lookup-expiry", LOOKUP, LEVELS, *jobs, faults=CRASHES, files_vanish=True)


@planned("lookup-vectors-compactors")
def _() -> Scenario:
    options = {**VECTORS, **LOOKUP}
    return _made("lookup-vectors-compactors", options, LEVELS, level_compactor([0], 3), real_compactor())


@planned("full-changelog-writer-compactor")
def _() -> Scenario:
    return _made("full-changelog-writer-compactor", FULL, FLAT, real_writer("a", rows(0, 3, 6, value="a")), real_compactor())


@planned("full-changelog-compactors")
def _() -> Scenario:
    return _made("full-changelog-compactors", FULL, FLAT, real_compactor(), real_compactor())


@planned("input-changelog-writers")
def _() -> Scenario:
    jobs = (real_writer("a", rows(0, 3, 6, value="a")), real_writer("b", rows(0, 7, 8, value="b")))
    return _made("input-changelog-writers", INPUT, FLAT, *jobs, tolerates=frozenset({"PV023"}))


@planned("input-changelog-compactor")
def _() -> Scenario:
    return _made("input-changelog-compactor", INPUT, FLAT, real_writer("a", rows(0, 3, 6, value="a")), real_compactor())


@planned("input-changelog-restart")
def _() -> Scenario:
    jobs = (
        real_writer("a", rows(0, 3, value="a"), repeatable=True),
        real_writer("b", rows(0, 7, value="b"), repeatable=True),
    )
    more: dict[str, object] = {"faults": CRASHES, "max_restarts": 1, "tolerates": frozenset({"PV023"})}
    return _made("input-changelog-restart", INPUT, FLAT, *jobs, **more)  # type: ignore[arg-type]


@planned("input-changelog-expiry")
def _() -> Scenario:
    jobs = (real_writer("a", rows(0, 3, 6, value="a")), expirer())
    return _made("input-changelog-expiry", INPUT, FLAT, *jobs, faults=CRASHES, files_vanish=True)


# three and four actors


def _many(name: str, options: Mapping[str, str]) -> Scenario:
    jobs = (
        real_writer("a", rows(0, 3, 6, value="a"), rows(0, 2, kind=RowKind.DELETE)),
        level_compactor([0], 3),
        level_compactor([3, 4, 5], 5),
        real_compactor(),
        expirer(2),
    )
    return _made(name, options, LEVELS, *jobs, max_faults=2, files_vanish=True)


@planned("vectors-many")
def _() -> Scenario:
    return _many("vectors-many", VECTORS)


@planned("lookup-many")
def _() -> Scenario:
    return _many("lookup-many", LOOKUP)


@planned("lookup-vectors-many")
def _() -> Scenario:
    return _many("lookup-vectors-many", {**VECTORS, **LOOKUP})


@planned("input-changelog-many")
def _() -> Scenario:
    jobs = (
        real_writer("a", rows(0, 3, 6, value="a"), rows(0, 2, kind=RowKind.DELETE)),
        real_writer("b", rows(0, 7, 8, value="b")),
        real_compactor(),
        expirer(2),
    )
    more: dict[str, object] = {"max_faults": 2, "files_vanish": True, "tolerates": frozenset({"PV023"})}
    return _made("input-changelog-many", INPUT, FLAT, *jobs, **more)  # type: ignore[arg-type]


@planned("full-changelog-many")
def _() -> Scenario:
    jobs = (
        real_writer("a", rows(0, 3, 6, value="a"), rows(0, 2, kind=RowKind.DELETE)),
        real_compactor(),
        real_compactor(),
        expirer(2),
    )
    return _made("full-changelog-many", FULL, FLAT, *jobs, max_faults=2, files_vanish=True)


TWO_ACTORS = (
    "vectors-writer-compactor",
    "vectors-compactors",
    "vectors-levels",
    "vectors-rewrite",
    "vectors-expiry",
    "vectors-tag-expiry",
    "vectors-orphans",
    "vectors-upgrade",
    "vectors-overwriter-compactor",
    "vectors-restart",
    "vectors-buckets",
    "vectors-levels-of-buckets",
    "vectors-inline-writers",
    "vectors-disjoint-picks",
    "lookup-writer-compactor",
    "lookup-compactors",
    "lookup-levels",
    "lookup-disjoint-picks",
    "lookup-restart",
    "lookup-expiry",
    "lookup-vectors-compactors",
    "full-changelog-writer-compactor",
    "full-changelog-compactors",
    "input-changelog-writers",
    "input-changelog-compactor",
    "input-changelog-restart",
    "input-changelog-expiry",
)
MANY_ACTORS = ("vectors-many", "lookup-many", "lookup-vectors-many", "input-changelog-many", "full-changelog-many")
