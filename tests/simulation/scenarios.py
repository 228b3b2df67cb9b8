"""The scenarios by name: what is explored completely, what is sampled, and what shows the anomalies of unchecked tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from paimon_cli.lab.simulation.actor import Job
from paimon_cli.lab.simulation.actor_jobs import (
    compactor,
    dropper,
    expirer,
    in_turn,
    litterer,
    orphan_remover,
    overwriter,
    read_modify_write,
    rows,
    tagger,
    writer,
)
from paimon_cli.lab.simulation.real_jobs import real_compactor, real_incrementer, real_writer
from paimon_cli.lab.simulation.run import after
from paimon_cli.lab.simulation.scenario import Scenario
from paimon_cli.lab.simulation.schedule import CRASH, LOST_ANSWER
from paimon_cli.metadata.data_file_schema import RowKind
from tests.simulation import (
    append_scenarios,
    kind_scenarios,
    rewrite_scenarios,
    source_scenarios,
    store_scenarios,
    vector_scenarios,
)
from tests.simulation.named_scenarios import ALL_FAULTS, CHECKED, CRASHES, names, planned, scenario
from tests.simulation.upgrader import upgrader

MORE_SCENARIOS = (append_scenarios, kind_scenarios, rewrite_scenarios, source_scenarios, vector_scenarios)
"""Importing them gives them their names."""
__all__ = ["CHECKED", "names", "scenario"]

MERGING = {"manifest.merge-min-count": "2"}
"""Merges manifests at every commit."""
MERGING_FULLY = {"manifest.full-compaction-threshold-size": "1 b"}

TWO_LEVEL_0_FILES = (in_turn(writer("first", rows(0, 1, 2), rows(0, 2, 3))),)
COMPACTED = (in_turn(*TWO_LEVEL_0_FILES, compactor(), writer("second", rows(0, 3, 4))),)


# two actors: complete


@planned("writer-writer")
def _() -> Scenario:
    jobs = (writer("a", rows(0, 1, 2, value="a")), writer("b", rows(1, 11, 12, value="b")))
    return after(Scenario("writer-writer", jobs, faults=ALL_FAULTS, max_faults=1), (writer("first", rows(0, 1)),))


@planned("writer-writer-restart")
def _() -> Scenario:
    jobs = (
        writer("a", rows(0, 1, value="a"), repeatable=True),
        writer("b", rows(1, 11, value="b"), repeatable=True),
    )
    return Scenario("writer-writer-restart", jobs, faults=CRASHES, max_faults=1, max_restarts=1)


@planned("twins")
def _() -> Scenario:
    """Two processes make the same commit, as when a scheduler starts a job again that was thought dead."""
    jobs = tuple(writer("a", rows(0, 1, 2, value="a"), repeatable=True) for _ in range(2))
    return after(Scenario("twins", jobs, faults=ALL_FAULTS, max_faults=1), (writer("first", rows(0, 1)),))


@planned("writer-compactor")
def _() -> Scenario:
    jobs = (writer("a", rows(0, 1, 4, value="a")), compactor())
    return after(Scenario("writer-compactor", jobs, faults=ALL_FAULTS, max_faults=1), TWO_LEVEL_0_FILES)


@planned("compactor-compactor")
def _() -> Scenario:
    options = {**MERGING}
    made = Scenario("compactor-compactor", (compactor(), compactor()), options, faults=ALL_FAULTS, max_faults=1)
    return after(made, TWO_LEVEL_0_FILES)


@planned("writer-expiry")
def _() -> Scenario:
    jobs = (writer("a", rows(0, 1, 4, value="a")), expirer())
    made = Scenario("writer-expiry", jobs, faults=ALL_FAULTS, max_faults=1, files_vanish=True)
    return after(made, (in_turn(writer("first", rows(0, 1, 2), rows(0, 2, 3)), compactor()),))


@planned("compactor-expiry")
def _() -> Scenario:
    made = Scenario("compactor-expiry", (compactor(), expirer()), faults=CRASHES, max_faults=1, files_vanish=True)
    return after(made, TWO_LEVEL_0_FILES)


@planned("expiry-expiry")
def _() -> Scenario:
    made = Scenario("expiry-expiry", (expirer(), expirer()), faults=CRASHES, max_faults=1, files_vanish=True)
    return after(made, (in_turn(writer("first", rows(0, 1, 2)), compactor(), writer("second", rows(0, 5))),))


@planned("tag-expiry")
def _() -> Scenario:
    jobs = (tagger("kept", 2), expirer())
    made = Scenario("tag-expiry", jobs, faults=CRASHES, max_faults=1, files_vanish=True)
    return after(made, (in_turn(*TWO_LEVEL_0_FILES, tagger("old", 1), compactor()),))


@planned("overwriter-compactor")
def _() -> Scenario:
    jobs = (overwriter("o", rows(0, 7, 8, value="o")), compactor())
    return after(Scenario("overwriter-compactor", jobs, faults=CRASHES, max_faults=1), TWO_LEVEL_0_FILES)


@planned("checked-writers")
def _() -> Scenario:
    """Topology 2 under the data conflict check: both write the same keys of one bucket."""
    jobs = (writer("a", rows(0, 1, 2, value="a")), writer("b", rows(0, 2, 3, value="b")))
    made = Scenario("checked-writers", jobs, CHECKED, faults=ALL_FAULTS, max_faults=1)
    return after(made, (writer("first", rows(0, 1)),))


@planned("writer-orphans")
def _() -> Scenario:
    """The files of a writer on its way are young, and those that it commits on are used by older versions."""
    jobs = (writer("a", rows(0, 1, 4, value="a")), orphan_remover())
    made = Scenario("writer-orphans", jobs, faults=CRASHES, max_faults=1, files_vanish=True)
    return after(made, (in_turn(*TWO_LEVEL_0_FILES, compactor(), litterer()),))


@planned("compactor-orphans")
def _() -> Scenario:
    made = Scenario("compactor-orphans", (compactor(), orphan_remover()), faults=CRASHES, max_faults=1, files_vanish=True)
    return after(made, (in_turn(*TWO_LEVEL_0_FILES, litterer()),))


@planned("expiry-orphans")
def _() -> Scenario:
    """What only a tag holds is not an orphan."""
    made = Scenario("expiry-orphans", (expirer(), orphan_remover()), faults=CRASHES, max_faults=1, files_vanish=True)
    return after(made, (in_turn(*TWO_LEVEL_0_FILES, tagger("old", 1), compactor(), litterer()),))


@planned("writer-drop")
def _() -> Scenario:
    """The first write to a table, and its drop."""
    jobs = (writer("a", rows(0, 1, value="a")), dropper())
    return Scenario("writer-drop", jobs, faults=ALL_FAULTS, max_faults=1, files_vanish=True)


@planned("writer-drop-later")
def _() -> Scenario:
    """A drop beside a writer that may have read any snapshot."""
    jobs = (writer("a", rows(0, 1, value="a")), dropper())
    made = Scenario("writer-drop-later", jobs, faults=CRASHES, max_faults=1, files_vanish=True)
    return after(made, (in_turn(writer("first", rows(0, 1)), writer("second", rows(0, 2))),))


@planned("drop-drop")
def _() -> Scenario:
    """A drop that is run again, while the first one may still be running."""
    made = Scenario("drop-drop", (dropper(), dropper()), faults=CRASHES, max_faults=1, max_restarts=1, files_vanish=True)
    return after(made, (writer("first", rows(0, 1)),))


# two actors: what some bugs need to show


@planned("two-batches")
def _() -> Scenario:
    jobs = (writer("a", rows(0, 1, 2, value="a1"), rows(0, 2, 3, value="a2")), writer("b", rows(1, 11, value="b")))
    return Scenario("two-batches", jobs)


@planned("merged-manifests")
def _() -> Scenario:
    """Neighbours are merged, and the DELETE of a compaction lies in another group than its ADD."""
    many = {bucket: ((10 * bucket, RowKind.INSERT, "m"), (10 * bucket + 1, RowKind.INSERT, "m")) for bucket in range(32)}
    jobs = (writer("a", rows(0, 6, value="a1"), rows(0, 7, value="a2")), writer("b", rows(1, 11, value="b")))
    made = Scenario("merged-manifests", jobs, {"bucket": "32", "manifest.target-file-size": "2200 b"})
    return after(made, (in_turn(writer("first", many), compactor(buckets=(0,))),))


@planned("merged-at-once")
def _() -> Scenario:
    """All manifests become one at every commit."""
    jobs = (writer("a", rows(0, 6, value="a1"), rows(0, 7, value="a2")), compactor())
    return after(Scenario("merged-at-once", jobs, MERGING), TWO_LEVEL_0_FILES)


@planned("tombstones")
def _() -> Scenario:
    """A minor compaction above a level with older rows must keep retractions."""
    before = in_turn(writer("first", rows(0, *range(1, 40))), compactor(), writer("second", rows(0, 1, kind=RowKind.DELETE)))
    jobs = (writer("a", rows(0, 2, value="a")), compactor("minor"))
    return after(Scenario("tombstones", jobs, {"num-sorted-run.compaction-trigger": "2", "num-levels": "6"}), (before,))


@planned("upgrades")
def _() -> Scenario:
    """Two compactors lift one level-0 file each to the top; their keys meet."""
    made = Scenario("upgrades", (upgrader(0), upgrader(1)), faults=CRASHES, max_faults=1)
    return after(made, TWO_LEVEL_0_FILES)


@planned("upgrades-expiry")
def _() -> Scenario:
    made = Scenario("upgrades-expiry", (upgrader(0), expirer()), faults=CRASHES, max_faults=1, files_vanish=True)
    return after(made, TWO_LEVEL_0_FILES)


@planned("slow-writer")
def _() -> Scenario:
    """One writer may be so slow that its snapshot number was used by others and has expired."""
    jobs = (writer("a", rows(0, 1, value="a")), in_turn(writer("b", rows(1, 11), rows(1, 12)), expirer()))
    made = Scenario("slow-writer", jobs, faults=(CRASH, LOST_ANSWER), max_faults=1, files_vanish=True)
    return after(made, (writer("first", rows(0, 1)),))


@planned("slow-writer-restart")
def _() -> Scenario:
    """Like `slow-writer`, but a job that crashed runs again as the same user with the same identifier, when its snapshot may have
    come back or expired."""
    rivals = in_turn(writer("b", rows(1, 11), rows(1, 12), rows(1, 13), repeatable=True), expirer())
    jobs = (writer("a", rows(0, 1, value="a"), repeatable=True), rivals)
    made = Scenario("slow-writer-restart", jobs, faults=CRASHES, max_faults=1, max_restarts=1, files_vanish=True)
    return after(made, (writer("first", rows(0, 1)),))


# three and four actors


@planned("writers-compactor")
def _() -> Scenario:
    jobs = (writer("a", rows(0, 1, 4, value="a")), writer("b", rows(1, 11, value="b")), compactor())
    return after(Scenario("writers-compactor", jobs, MERGING, faults=ALL_FAULTS, max_faults=1), TWO_LEVEL_0_FILES)


@planned("three-writers")
def _() -> Scenario:
    jobs = tuple(writer(name, rows(bucket, 10 * bucket, value=name)) for bucket, name in enumerate("abc"))
    return Scenario("three-writers", jobs, {"bucket": "3", **MERGING_FULLY}, faults=ALL_FAULTS, max_faults=1)


@planned("writer-compactors")
def _() -> Scenario:
    jobs = (writer("a", rows(0, 1, 4, value="a")), compactor(), compactor())
    return after(Scenario("writer-compactors", jobs, faults=ALL_FAULTS, max_faults=1), TWO_LEVEL_0_FILES)


@planned("writer-compactor-expiry")
def _() -> Scenario:
    jobs = (writer("a", rows(0, 1, 4, value="a"), rows(0, 4, 5)), compactor(), expirer())
    made = Scenario("writer-compactor-expiry", jobs, faults=ALL_FAULTS, max_faults=1, files_vanish=True)
    return after(made, TWO_LEVEL_0_FILES)


@planned("writers-compactor-expiry")
def _() -> Scenario:
    jobs = (
        writer("a", rows(0, 1, 4, value="a"), rows(0, 4, 5)),
        writer("b", rows(1, 11, value="b"), rows(1, 11, 12)),
        compactor(),
        expirer(),
    )
    made = Scenario("writers-compactor-expiry", jobs, MERGING, faults=ALL_FAULTS, max_faults=2, files_vanish=True)
    return after(made, COMPACTED)


@planned("checked-writers-compactor")
def _() -> Scenario:
    jobs = (
        writer("a", rows(0, 1, 2, value="a")),
        writer("b", rows(0, 2, 3, value="b")),
        writer("c", rows(0, 1, 3, value="c")),
        compactor(),
    )
    made = Scenario("checked-writers-compactor", jobs, CHECKED, faults=ALL_FAULTS, max_faults=1)
    return after(made, TWO_LEVEL_0_FILES)


@planned("checked-counter")
def _() -> Scenario:
    """Three read-modify-writes of one counter, each tried again after a data conflict."""
    jobs = tuple(read_modify_write(name, 0, 1) for name in "abc")
    return after(
        Scenario("checked-counter", jobs, CHECKED, faults=CRASHES, max_faults=1), (writer("zero", rows(0, 1, value="0")),)
    )


# real data files


@planned("real-writers-compactor")
def _() -> Scenario:
    jobs = (
        real_writer("a", rows(0, 1, 2, value="a"), rows(0, 1, kind=RowKind.DELETE)),
        real_writer("b", rows(0, 11, 12, value="b")),
        real_compactor(),
    )
    before = in_turn(real_writer("first", rows(0, 1, 2, 3)), real_writer("second", rows(0, 2, 3, value="s")))
    options = {"bucket": "1", **CHECKED}
    made = Scenario("real-writers-compactor", jobs, options, faults=ALL_FAULTS, max_faults=1, real_files=True)
    return after(made, (before,))


@planned("real-compactors-expiry")
def _() -> Scenario:
    jobs = (real_compactor(), real_compactor(), expirer())
    before = in_turn(real_writer("first", rows(0, 1, 2, 3)), real_writer("second", rows(0, 2, 3, value="s")))
    made = Scenario("real-compactors-expiry", jobs, faults=CRASHES, max_faults=1, files_vanish=True, real_files=True)
    return after(made, (before,))


@planned("real-updates")
def _() -> Scenario:
    jobs = (real_incrementer("a", 1), real_incrementer("b", 1), real_compactor())
    before = in_turn(
        real_writer("zero", rows(0, 1, value="0"), numbers=True), real_writer("two", rows(0, 2, value="7"), numbers=True)
    )
    made = Scenario("real-updates", jobs, {"bucket": "1"}, faults=CRASHES, max_faults=1, value_type="INT", real_files=True)
    return after(made, (before,))


@planned("real-inline-writers")
def _() -> Scenario:
    """Both writers compact after each flush, and so does a dedicated job: the late writer keeps its rows."""
    jobs = (
        real_writer("a", rows(0, 1, 2, value="a"), rows(0, 1, kind=RowKind.DELETE)),
        real_writer("b", rows(0, 11, 12, value="b")),
        real_compactor(),
        expirer(),
    )
    before = in_turn(real_writer("first", rows(0, 1, 2, 3)), real_writer("second", rows(0, 2, 3, value="s")))
    options = {"bucket": "1", "num-sorted-run.compaction-trigger": "1", "num-levels": "3", **CHECKED}
    made = Scenario("real-inline-writers", jobs, options, faults=ALL_FAULTS, max_faults=1, files_vanish=True, real_files=True)
    return after(made, (before,))


# what unchecked tables suffer: violations are wanted


@planned("merge-disorder")
def _() -> Scenario:
    """Topology 2, unchecked: the second commit numbers its rows below those of the first."""
    jobs = (writer("a", rows(0, 9, 1, value="a")), writer("b", rows(0, 1, value="b")))
    return after(Scenario("merge-disorder", jobs), (writer("first", rows(0, 1)),))


@planned("merge-disorder-seen-by-readers")
def _() -> Scenario:
    made = scenario("merge-disorder")
    return replace(made, name="merge-disorder-seen-by-readers", tolerates=frozenset({"PV023"}))


@planned("lost-update")
def _() -> Scenario:
    """Two increments of one counter, unchecked."""
    jobs = tuple(read_modify_write(name, 0, 1) for name in "ab")
    made = Scenario("lost-update", jobs, tolerates=frozenset({"PV023"}))
    return after(made, (writer("zero", rows(0, 1, value="0")),))


ANOMALIES = frozenset({"lost-update", "merge-disorder", "merge-disorder-seen-by-readers"})
"""Scenarios in which violations are wanted."""
_ON_STORES_ALREADY = frozenset(store_scenarios.OF_STORES_ONLY)
ON_STORES = store_scenarios.on_object_stores([name for name in names() if name not in ANOMALIES | _ON_STORES_ALREADY])


# large buckets, compacted in ranges of keys


def _ranged(name: str, *others: Job, **settings: Any) -> Scenario:
    """A bucket with three files at the top level and an upper one with keys of the first and the last, so that it is cut."""
    options = {"bucket": "1", "write-only": "true", "target-file-row-num": "2"}
    before = in_turn(
        real_writer("first", rows(0, *range(1, 7))), real_compactor(), real_writer("second", rows(0, 1, 6, value="s"))
    )
    jobs = (real_compactor(ranges_over=1), *others)
    return after(Scenario(name, jobs, options, faults=ALL_FAULTS, max_faults=1, real_files=True, **settings), (before,))


@planned("ranges-restart")
def _() -> Scenario:
    return _ranged("ranges-restart", max_restarts=1)


@planned("ranges-writer")
def _() -> Scenario:
    return _ranged("ranges-writer", real_writer("a", rows(0, 2, 6, value="a")))


@planned("ranges-compactor")
def _() -> Scenario:
    return _ranged("ranges-compactor", real_compactor())
