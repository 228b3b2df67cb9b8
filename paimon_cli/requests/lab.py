"""The options of the lab: a search for anomalies, and a comparison of granularities."""

from collections.abc import Sequence
from dataclasses import KW_ONLY
from typing import Annotated, Literal

from paimon_cli.errors import UsageError
from paimon_cli.requests.fields import Option, Parsed, Request, Time


class Actors(Parsed[str | Sequence[str], tuple[str, ...]]):
    """Kinds of actors, separated by commas in a text."""

    metavar = "KIND[,...]"

    def parse(self, given: str | Sequence[str]) -> tuple[str, ...]:
        return tuple(kind.strip() for kind in (given.split(",") if isinstance(given, str) else given) if kind.strip())


class CheckOptions(Request):
    """A search among the interleavings of concurrent actors."""

    actors: Annotated[
        Actors,
        Option(
            "Concurrent actors, up to six of: writer, rival (shares a key), counter (read-modify-write), twin (repeats a "
            "commit), overwriter, deleter, restorer (rollback --as-new), compactor, marker (writes to a table with deletion "
            "vectors and compacts level 0), assigner (of dynamic buckets), rescaler, expirer, tagger, cleaner (of orphans)."
        ),
    ] = Actors("writer,writer,compactor")
    _: KW_ONLY
    store: Annotated[
        Literal["put-if-absent", "lock", "unsafe"], Option("How commits exclude each other; unsafe: not at all.")
    ] = "put-if-absent"
    data_conflict_check: Annotated[
        Literal["off", "partition", "bucket", "range"],  # a check by key reads data files, which the simulation has not
        Option("Granularity of the data conflict check."),
    ] = "off"
    rounds: Annotated[int, Option("Commits of each writer, rival, counter and twin.", metavar="N", min=1, max=20)] = 1
    faults: Annotated[
        int, Option("Also inject crashes and lost responses, at most N per schedule.", metavar="N", min=0, max=4)
    ] = 0
    depth: Annotated[
        int | None,
        Option("Switch actors in the middle of their work at most N times; default no limit.", metavar="N", min=0),
    ] = None
    schedules: Annotated[
        int | None, Option("Stop after N schedules; default 1000 with --seed, otherwise all.", metavar="N", min=1)
    ] = None
    seed: Annotated[int | None, Option("Draw random schedules with this seed instead of trying all.", metavar="N")] = None
    finds: Annotated[int, Option("Stop after N failing schedules; default 1.", metavar="N", min=1, tells_default=True)] = 1
    time_limit: Annotated[
        Time, Option("Stop after this time, also to minimize; default 1 min.", metavar="DURATION", tells_default=True)
    ] = Time("1 min")
    minimize: Annotated[bool, Option("Shrink each failing schedule to the fewest steps, and tell it in words.")] = False

    def check(self) -> None:
        if self.depth is not None and self.seed is not None:
            raise UsageError(
                "--depth cannot be combined with --seed", "random schedules switch actors anywhere", "remove one of them"
            )


class GranularityOptions(Request):
    """The workload on which granularities are compared: counters in two partitions, which each commit increments."""

    _: KW_ONLY
    writers: Annotated[int, Option("Number of concurrent writers.", metavar="N", min=1, max=26)] = 4
    rounds: Annotated[int, Option("Rounds of writes.", metavar="N", min=1, max=1000)] = 10
    keys: Annotated[int, Option("Counters, in two partitions.", metavar="N", min=2)] = 80
    keys_per_commit: Annotated[int, Option("Adjacent counters that each commit increments.", metavar="N", min=1)] = 2
    buckets: Annotated[int, Option("Buckets of each partition.", metavar="N", min=1, max=64)] = 2
    seed: Annotated[int, Option("Seed for the choice of counters and the order of commits.", metavar="N")] = 0
