"""Actors whose clocks jump back and forth between any two readings, and what a table must hold nevertheless."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path

from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.invariants.check import check_table
from paimon_cli.jobs.compact_job import run_compact
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.write_job import run_write
from paimon_cli.jobs.write_request import WriteRequest
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.file_deletion import delete_files
from paimon_cli.maintain.retention import Retention, expire_consumers, reset_consumer
from paimon_cli.maintain.tags import create_tag, expired_tags, plan_removal, remove_tags
from paimon_cli.storage.memory_storage import MemoryStorage
from tests.faults.bench import Bench, Rows
from tests.faults.verdict import reachable
from tests.tables import rows as read_rows

HOUR, YEAR = 3_600_000, 365 * 24 * 3_600_000
NOW = 1_700_000_000_000


@dataclass
class JumpingClock:
    """A clock that is right at each call, or a moment, an hour or ten years too early or too late."""

    dice: random.Random

    def now_millis(self) -> int:
        jump = self.dice.choice([0, 0, 1, 1000, HOUR, 2 * 24 * HOUR, 10 * YEAR])
        return NOW + self.dice.choice([-1, 1]) * jump

    def sleep(self, seconds: float) -> None:
        """Nothing here has to wait."""


class ClockTrial:
    """`known` holds the rows of each snapshot, `tagged` those of each tag."""

    def __init__(self, folder: Path, seed: str) -> None:
        self.dice = random.Random(seed)
        self.bench = Bench(MemoryStorage("clock jumps"), "/clocks", folder)
        self.bench.load({})
        self.bench.make_table(options={"write-only": "true", "commit.timeout": "1 s", "num-sorted-run.compaction-trigger": "3"})
        self.known: dict[int, Rows] = {}
        self.tagged: dict[str, Rows] = {}
        self.made = 0

    def context(self) -> TableContext:
        return replace(self.bench.healthy().context(), clock=JumpingClock(self.dice))

    def step(self) -> None:
        getattr(self, self.dice.choice(["write", "write", "write", "compact", "expire", "tag", "untag", "consume"]))()
        self.made += 1
        self.check()

    def write(self) -> None:
        changes: dict[int, str | None] = {k: self.dice.choice([None, f"{self.made}"]) for k in self.dice.sample(range(8), 3)}
        request = WriteRequest(FileRows((self.bench.source(changes, False),), "json"), op_column="_op")
        (snapshot, *_) = run_write(self.context(), request, LocalEngine(), NoProgress()).snapshots
        before = self.known[max(self.known)] if self.known else {}
        self.known[snapshot.id] = {k: v for k, v in {**before, **changes}.items() if v is not None}

    def compact(self) -> None:
        if self.known:
            request = CompactRequest(strategy=self.dice.choice(["minor", "full"]))
            for snapshot in run_compact(self.context(), request, LocalEngine(), NoProgress()).snapshots:
                self.known[snapshot.id] = self.known[max(self.known)]

    def expire(self) -> None:
        """Expire by age: whatever the time seems to be, the newest snapshots stay."""
        if self.known:
            least = self.dice.randint(1, 4)
            gone = expire_snapshots(self.context(), Retention(least, 1 << 31, HOUR, None)).snapshots
            assert not set(gone) & set(sorted(self.known)[-least:]), "one of the newest has gone"
            for number in gone:
                del self.known[number]

    def tag(self) -> None:
        if self.known:
            number, name = self.dice.choice(sorted(self.known)), f"t{self.made}"
            create_tag(self.context(), name, number, self.dice.choice([None, HOUR]))
            self.tagged[name] = self.known[number]

    def untag(self) -> None:
        """Expire tags; tags without a time limit stay."""
        context = self.context()
        names = expired_tags(context)
        assert all(context.tags.get(name).retained_millis is not None for name in names)
        if names:
            remove_tags(context, plan_removal(context, names), delete_files(context))
        for name in names:
            del self.tagged[name]

    def consume(self) -> None:
        if self.known:
            reset_consumer(self.context(), "me", self.dice.choice(sorted(self.known)))
            expire_consumers(self.context().with_options({"consumer.expiration-time": "1 h"}))

    def check(self) -> None:
        """Every version has its rows, times never go back, a time names the newest version then, no file is lost or left over."""
        context = self.bench.healthy().context()
        assert context.snapshots.ids() == sorted(self.known)
        for number, expected in self.known.items():
            assert {row["k"]: row["v"] for row in read_rows(context, snapshot_id=number)} == expected, number
        assert sorted(context.tags.names()) == sorted(self.tagged)
        times = [(context.snapshots.get(number).time_millis, number) for number in sorted(self.known)]
        assert times == sorted(times), "a snapshot is older than the one before"
        for moment in {time + more for time, _ in times for more in (-1, 0, 1)}:
            found = context.snapshots.at_time(moment)
            assert (found.id if found else 0) == max((number for time, number in times if time <= moment), default=0)
        assert not list(check_table(context, rows=False))
        left = self.bench.paths() - reachable(context)
        assert all("/consumer/" in path for path in left), left


def play(folder: Path, seed: str, steps: int) -> None:
    trial = ClockTrial(folder, seed)
    for _ in range(steps):
        trial.step()
