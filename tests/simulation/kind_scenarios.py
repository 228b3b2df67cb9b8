"""Scenarios of tables whose rows get their buckets later, or by an index: postponed and dynamic buckets. Their files are real."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from paimon_cli.errors import UsageError
from paimon_cli.lab.simulation.actor import Job
from paimon_cli.lab.simulation.actor_jobs import expirer, in_turn, restorer, rows
from paimon_cli.lab.simulation.real_jobs import real_compactor, real_rescaler, real_splitter, real_writer
from paimon_cli.lab.simulation.run import after
from paimon_cli.lab.simulation.scenario import Scenario
from tests.simulation.named_scenarios import ALL_FAULTS, CRASHES, planned

POSTPONED = {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false", "postpone.default-bucket-num": "2"}
COUNTED = {"bucket": "-2", "postpone.target-row-num-per-bucket": "2"}
FIXED = {"bucket": "2", "write-only": "true"}
CROSSING = {
    "bucket": "-1",
    "dynamic-bucket.target-row-num": "2",
    "write-only": "true",
    "dynamic-partition-overwrite": "false",
}
DYNAMIC = {"bucket": "-1", "dynamic-bucket.target-row-num": "2", "write-only": "true"}

WAITING = in_turn(real_writer("first", rows(0, 0, 1, 2, 3)), real_compactor(), real_writer("second", rows(0, 2, 3, 4, value="s")))
FULL_BUCKETS = real_writer("first", rows(0, 0, 1, 2))
"""Two keys in one bucket, one in another."""


def made(name: str, options: Mapping[str, str], before: Job, *jobs: Job, **more: object) -> Scenario:
    made = Scenario(name, jobs, options, faults=ALL_FAULTS, max_faults=1, real_files=True)
    return after(replace(made, **more), (before,))  # type: ignore[arg-type]


# postponed buckets

WAITER = real_writer("a", rows(0, 3, 6, 7, value="a"))


@planned("postponed-writer-compactor")
def _() -> Scenario:
    return made("postponed-writer-compactor", POSTPONED, WAITING, WAITER, real_compactor())


@planned("postponed-compactors")
def _() -> Scenario:
    return made("postponed-compactors", POSTPONED, WAITING, real_compactor(), real_compactor())


@planned("postponed-writers")
def _() -> Scenario:
    return made("postponed-writers", POSTPONED, WAITING, WAITER, real_writer("b", rows(0, 8, 9, value="b")))


@planned("postponed-overwriter-compactor")
def _() -> Scenario:
    overwriter = real_writer("o", rows(0, 7, 8, value="o"), overwrite=True)
    return made("postponed-overwriter-compactor", POSTPONED, WAITING, overwriter, real_compactor())


@planned("postponed-restart")
def _() -> Scenario:
    jobs = (real_writer("a", rows(0, 3, 6, value="a"), repeatable=True), real_compactor())
    return made("postponed-restart", POSTPONED, WAITING, *jobs, faults=CRASHES, max_restarts=1)


@planned("postponed-expiry")
def _() -> Scenario:
    return made("postponed-expiry", POSTPONED, WAITING, real_compactor(), expirer(), faults=CRASHES, files_vanish=True)


@planned("counted-writers")
def _() -> Scenario:
    """Both count their rows, and would give a partition without buckets different numbers of them."""
    jobs = (real_writer("a", rows(0, 1, 2, value="a")), real_writer("b", rows(0, 3, 4, 5, 6, 7, value="b")))
    made = Scenario("counted-writers", jobs, COUNTED, faults=ALL_FAULTS, max_faults=1, real_files=True)
    return replace(made, tolerates=frozenset({"PV023"}))


@planned("counted-writer-compactor")
def _() -> Scenario:
    """A batch brings rows for buckets while a compaction distributes what waits there."""
    before = in_turn(real_writer("first", rows(0, 0, 1, 2, 3)), real_writer("second", rows(0, 2, 3, 4, value="s")))
    jobs = (real_writer("a", rows(0, 3, 6, 7, value="a")), real_compactor())
    return made("counted-writer-compactor", COUNTED, before, *jobs)


# postponed buckets that are split: three keys in one bucket of two are above twice the target

GROWN = {**POSTPONED, "postpone.target-row-num-per-bucket": "1"}
BATCHES = {"bucket": "-2", "postpone.target-row-num-per-bucket": "1", "postpone.default-bucket-num": "2"}
DISTRIBUTED = in_turn(real_writer("first", rows(0, 0, 1, 2, 3, 4, 5)), real_compactor())


@planned("splitter-writer")
def _() -> Scenario:
    return made("splitter-writer", GROWN, DISTRIBUTED, WAITER, real_splitter())


@planned("splitter-compactor")
def _() -> Scenario:
    return made("splitter-compactor", GROWN, in_turn(DISTRIBUTED, WAITER), real_splitter(), real_compactor())


@planned("splitters")
def _() -> Scenario:
    return made("splitters", GROWN, DISTRIBUTED, real_splitter(), real_splitter())


@planned("splitter-batch")
def _() -> Scenario:
    """A batch into buckets that were split since its plan moves its rows."""
    batch = real_writer("a", rows(0, 3, 6, 7, value="a"))
    before = real_writer("first", rows(0, 0, 1, 2, 3, 4, 5))
    return made("splitter-batch", BATCHES, before, batch, real_splitter(), tolerates=frozenset({"PV023"}))


@planned("splitter-restart")
def _() -> Scenario:
    jobs = (real_writer("a", rows(0, 3, 6, value="a"), repeatable=True), real_splitter())
    return made("splitter-restart", GROWN, DISTRIBUTED, *jobs, faults=CRASHES, max_restarts=1)


@planned("splitter-expiry")
def _() -> Scenario:
    return made("splitter-expiry", GROWN, DISTRIBUTED, real_splitter(), expirer(), faults=CRASHES, files_vanish=True)


# fixed buckets whose count changes while writers go on

LATE_WRITER = real_writer("a", rows(0, 3, 6, 7, value="a"), refusal=UsageError)
"""A writer that begins after the rescale finds the option with the old count, and is refused."""
ONLINE = real_rescaler("r", 4, online=True)
COMPACTED = in_turn(
    real_writer("first", rows(0, 0, 1, 2, 3, 4, 5)), real_compactor(), real_writer("second", rows(0, 2, 6, value="s"))
)


@planned("online-writer")
def _() -> Scenario:
    return made("online-writer", FIXED, COMPACTED, LATE_WRITER, ONLINE)


@planned("online-compactor")
def _() -> Scenario:
    return made("online-compactor", FIXED, COMPACTED, ONLINE, real_compactor())


@planned("online-rescalers")
def _() -> Scenario:
    """Each takes the other's count for one that writers have brought."""
    return made("online-rescalers", FIXED, COMPACTED, ONLINE, real_rescaler("q", 8, online=True))


@planned("online-restart")
def _() -> Scenario:
    writer = real_writer("a", rows(0, 3, 6, value="a"), repeatable=True, refusal=UsageError)
    return made("online-restart", FIXED, COMPACTED, writer, ONLINE, faults=CRASHES, max_restarts=1)


@planned("online-expiry")
def _() -> Scenario:
    return made("online-expiry", FIXED, COMPACTED, ONLINE, expirer(), faults=CRASHES, files_vanish=True)


@planned("online-restorer")
def _() -> Scenario:
    return made("online-restorer", FIXED, COMPACTED, ONLINE, restorer("s", 1, rows(0, 0, 1, 2, 3, 4, 5)))


@planned("online-many")
def _() -> Scenario:
    jobs = (LATE_WRITER, real_writer("b", rows(0, 8, 9, value="b"), refusal=UsageError), ONLINE, real_compactor(), expirer(2))
    return made("online-many", FIXED, COMPACTED, *jobs, max_faults=2, files_vanish=True)


# dynamic buckets


@planned("dynamic-writers-of-a-new-key")
def _() -> Scenario:
    """Each would put the new keys into a bucket of its own."""
    jobs = (real_writer("a", rows(0, 5, 6, value="same")), real_writer("b", rows(0, 6, 7, 8, value="same")))
    return made("dynamic-writers-of-a-new-key", DYNAMIC, FULL_BUCKETS, *jobs, tolerates=frozenset({"PV023"}))


@planned("dynamic-writer-compactor")
def _() -> Scenario:
    before = in_turn(FULL_BUCKETS, real_writer("second", rows(0, 0, 2, value="s")))
    return made("dynamic-writer-compactor", DYNAMIC, before, real_writer("a", rows(0, 1, 5, 6, value="a")), real_compactor())


@planned("dynamic-writer-overwriter")
def _() -> Scenario:
    """The index of the overwrite replaces the one by which the writer has chosen buckets."""
    overwriter = real_writer("o", rows(0, 2, 7, 8, value="o"), overwrite=True)
    jobs = (real_writer("a", rows(0, 1, 5, 6, value="a")), overwriter)
    return made("dynamic-writer-overwriter", DYNAMIC, FULL_BUCKETS, *jobs, tolerates=frozenset({"PV023"}))


@planned("dynamic-restart")
def _() -> Scenario:
    jobs = (
        real_writer("a", rows(0, 5, value="same"), repeatable=True),
        real_writer("b", rows(0, 5, 6, value="same"), repeatable=True),
    )
    more: dict[str, object] = {"faults": CRASHES, "max_restarts": 1, "tolerates": frozenset({"PV023"})}
    return made("dynamic-restart", DYNAMIC, FULL_BUCKETS, *jobs, **more)


@planned("dynamic-expiry")
def _() -> Scenario:
    jobs = (real_writer("a", rows(0, 1, 5, 6, value="a")), expirer())
    return made("dynamic-expiry", DYNAMIC, FULL_BUCKETS, *jobs, faults=CRASHES, files_vanish=True)


# keys across partitions: the bucket that a job names is the partition


def _crossing(name: str, *jobs: Job, before: Job, **more: object) -> Scenario:
    return made(name, CROSSING, before, *jobs, partitioned=True, tolerates=frozenset({"PV023"}), **more)


@planned("cross-partition-writers-of-a-key")
def _() -> Scenario:
    """Both take key 1 out of partition 0, into another one each; the later commit wins."""
    jobs = (real_writer("a", rows(1, 1, value="a")), real_writer("b", rows(2, 1, 7, value="b")))
    return _crossing("cross-partition-writers-of-a-key", *jobs, before=real_writer("first", rows(0, 0, 1, 2)))


@planned("cross-partition-writer-compactor")
def _() -> Scenario:
    before = in_turn(real_writer("first", rows(0, 0, 1, 2)), real_writer("second", rows(1, 1, value="s")))
    jobs = (real_writer("a", rows(2, 1, 5, value="a")), real_compactor())
    return _crossing("cross-partition-writer-compactor", *jobs, before=before)


@planned("cross-partition-writer-overwriter")
def _() -> Scenario:
    overwriter = real_writer("o", rows(1, 1, 8, value="o"), overwrite=True)
    jobs = (real_writer("a", rows(2, 1, 5, value="a")), overwriter)
    return _crossing("cross-partition-writer-overwriter", *jobs, before=real_writer("first", rows(0, 0, 1, 2)))


# three and four actors


@planned("splitter-many")
def _() -> Scenario:
    jobs = (WAITER, real_writer("b", rows(0, 8, 9, value="b")), real_splitter(), real_splitter(), real_compactor(), expirer(2))
    return made("splitter-many", GROWN, DISTRIBUTED, *jobs, max_faults=2, files_vanish=True)


@planned("postponed-many")
def _() -> Scenario:
    jobs = (WAITER, real_writer("b", rows(0, 8, 9, value="b")), real_compactor(), real_compactor(), expirer(2))
    return made("postponed-many", POSTPONED, WAITING, *jobs, max_faults=2, files_vanish=True)


@planned("dynamic-many")
def _() -> Scenario:
    jobs = (
        real_writer("a", rows(0, 5, 6, value="same")),
        real_writer("b", rows(0, 6, 7, 8, value="same")),
        real_compactor(),
        expirer(2),
    )
    more: dict[str, object] = {"max_faults": 2, "files_vanish": True, "tolerates": frozenset({"PV023"})}
    return made("dynamic-many", DYNAMIC, FULL_BUCKETS, *jobs, **more)


TWO_ACTORS = (
    "splitter-writer",
    "splitter-compactor",
    "splitters",
    "splitter-batch",
    "splitter-restart",
    "splitter-expiry",
    "online-writer",
    "online-compactor",
    "online-restart",
    "online-expiry",
    "online-restorer",
    "postponed-writer-compactor",
    "postponed-compactors",
    "postponed-writers",
    "postponed-overwriter-compactor",
    "postponed-restart",
    "postponed-expiry",
    "counted-writers",
    "counted-writer-compactor",
    "dynamic-writers-of-a-new-key",
    "dynamic-writer-compactor",
    "dynamic-writer-overwriter",
    "dynamic-restart",
    "dynamic-expiry",
    "cross-partition-writers-of-a-key",
    "cross-partition-writer-compactor",
    "cross-partition-writer-overwriter",
)
MANY_ACTORS = ("postponed-many", "splitter-many", "online-many", "online-rescalers", "dynamic-many")
