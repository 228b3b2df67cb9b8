"""Scenarios of `format("paimon")` on tables where only one writer may add files to a bucket: tasks write temporary files, and the
process that commits writes their rows to the buckets."""

from __future__ import annotations

from paimon_cli.lab.simulation.actor_jobs import expirer, in_turn, rows
from paimon_cli.lab.simulation.real_jobs import real_compactor, real_writer
from paimon_cli.lab.simulation.scenario import Scenario
from tests.simulation.kind_scenarios import COUNTED, CROSSING, DYNAMIC, FULL_BUCKETS, made
from tests.simulation.named_scenarios import CRASHES, planned
from tests.simulation.source_writer import source_writer

SOME = source_writer("a", rows(0, 1, 5, 6, value="a"))
TWO_FILES = in_turn(FULL_BUCKETS, real_writer("second", rows(0, 0, 2, value="s")))


@planned("source-writers-of-a-new-key")
def _() -> Scenario:
    """Each would put the new keys into a bucket of its own."""
    jobs = (source_writer("a", rows(0, 5, 6, value="same")), source_writer("b", rows(0, 6, 7, 8, value="same")))
    return made("source-writers-of-a-new-key", DYNAMIC, FULL_BUCKETS, *jobs, tolerates=frozenset({"PV023"}))


@planned("source-writer-and-write")
def _() -> Scenario:
    jobs = (SOME, real_writer("b", rows(0, 6, 7, value="a")))
    return made("source-writer-and-write", DYNAMIC, FULL_BUCKETS, *jobs, tolerates=frozenset({"PV023"}))


@planned("source-writer-compactor")
def _() -> Scenario:
    return made("source-writer-compactor", DYNAMIC, TWO_FILES, SOME, real_compactor())


@planned("source-writer-expiry")
def _() -> Scenario:
    return made("source-writer-expiry", DYNAMIC, FULL_BUCKETS, SOME, expirer(), faults=CRASHES, files_vanish=True)


@planned("source-overwriter-writer")
def _() -> Scenario:
    """The index of the overwrite replaces the one by which the writer has chosen buckets."""
    jobs = (source_writer("o", rows(0, 2, 7, 8, value="o"), overwrite=True), SOME)
    return made("source-overwriter-writer", DYNAMIC, FULL_BUCKETS, *jobs, tolerates=frozenset({"PV023"}))


@planned("source-restart")
def _() -> Scenario:
    """Queries that die and repeat their batches beside each other."""
    jobs = (
        source_writer("a", rows(0, 5, value="same"), repeatable=True),
        source_writer("b", rows(0, 5, 6, value="same"), repeatable=True),
    )
    more: dict[str, object] = {"faults": CRASHES, "max_restarts": 1, "tolerates": frozenset({"PV023"})}
    return made("source-restart", DYNAMIC, FULL_BUCKETS, *jobs, **more)


@planned("source-writers-across-partitions")
def _() -> Scenario:
    """Both take key 1 out of partition 0, into another one each; the later commit wins."""
    jobs = (source_writer("a", rows(1, 1, value="a")), source_writer("b", rows(2, 1, 7, value="b")))
    before = real_writer("first", rows(0, 0, 1, 2))
    more: dict[str, object] = {"partitioned": True, "tolerates": frozenset({"PV023"})}
    return made("source-writers-across-partitions", CROSSING, before, *jobs, **more)


@planned("source-counted-writer-compactor")
def _() -> Scenario:
    """A batch brings rows for buckets while a compaction distributes what waits there."""
    before = in_turn(real_writer("first", rows(0, 0, 1, 2, 3)), real_writer("second", rows(0, 2, 3, 4, value="s")))
    jobs = (source_writer("a", rows(0, 3, 6, 7, value="a")), real_compactor())
    return made("source-counted-writer-compactor", COUNTED, before, *jobs)


@planned("source-many")
def _() -> Scenario:
    jobs = (
        source_writer("a", rows(0, 5, value="same"), rows(0, 9, value="same"), repeatable=True),
        source_writer("b", rows(0, 5, 6, 7, value="same"), repeatable=True),
        real_compactor(),
        expirer(2),
    )
    more: dict[str, object] = {"max_faults": 2, "max_restarts": 1, "files_vanish": True, "tolerates": frozenset({"PV023"})}
    return made("source-many", DYNAMIC, TWO_FILES, *jobs, **more)


TWO_ACTORS = (
    "source-writers-of-a-new-key",
    "source-writer-and-write",
    "source-writer-compactor",
    "source-writer-expiry",
    "source-overwriter-writer",
    "source-restart",
    "source-writers-across-partitions",
    "source-counted-writer-compactor",
)
MANY_ACTORS = ("source-many",)
