"""Five services share a warehouse of many tables, of which two are killed: the real rounds and leases, with simulated tables.

    python -m scripts.nightly.shared_warehouse [--tables 10000] [--rounds 40] [--seed 1]

The clock and the store are simulated. A table is a number of sorted runs, of which some tables get many more than others, and its
compaction takes a while. Meanwhile other services have whole rounds of their own, so that any of them may meet a table that is
being compacted. Probes, order, turns and leases are those of `CompactionService`. Prints a line of JSON; the exit code is 1 if

- a table was compacted by two services at once,
- a table with work waited for more than two rounds of all services, and two leases if its service was killed,
- a table of a killed service was taken over later than after two leases, or
- a service asked more than once in a round for an idle table.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.compact_summary import CompactionAccount, CompactSummary
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.round_plan import NO_BUCKETS
from paimon_cli.jobs.service import compaction_service
from paimon_cli.jobs.service.budget import Budget
from paimon_cli.jobs.service.compaction_service import SMALL_BYTES, CompactionService
from paimon_cli.jobs.service.leases import Leases
from paimon_cli.jobs.service.served_table import ServedTable
from paimon_cli.jobs.service.service_turn import Turn
from paimon_cli.jobs.service.turn_steps import TurnDone
from paimon_cli.jobs.service.wanted_merges import Need
from paimon_cli.storage.memory_storage import MemoryStorage

SERVICES, KILLED, TRIGGER = 5, 2, 5
LEASE_MILLIS, INTERVAL, MERGE_MILLIS = 60_000, 10.0, 2_000


MORE_ROUNDS = 20
"""The most rounds after the last commit in which services may be replaced."""


class Killed(Exception):
    """Ends a service at once, and leaves its leases behind."""


@dataclass
class SimClock:
    """A clock that the simulation moves. `moved`: called whenever it has."""

    millis: int = 0
    moved: Callable[[], None] = lambda: None

    def now_millis(self) -> int:
        return self.millis

    def sleep(self, seconds: float) -> None:
        self.millis += int(seconds * 1000)
        self.moved()


@dataclass
class SimTable:
    """A table: its snapshots, its sorted runs, since when they are too many, and who compacts it."""

    name: str
    rate: float
    snapshot: int = 1
    runs: int = 1
    since: int | None = None
    lost_by: str | None = None
    died: int = 0
    compacting: set[str] = field(default_factory=set)


@dataclass
class Warehouse:
    """The tables, the services, and what was found."""

    tables: dict[str, SimTable]
    clock: SimClock
    source: random.Random
    storage: MemoryStorage
    services: list[CompactionService] = field(default_factory=list)
    busy: set[str] = field(default_factory=set)
    dying: set[str] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)
    probes: Counter[tuple[str, int, str]] = field(default_factory=Counter)
    rounds: Counter[str] = field(default_factory=Counter)
    waits: list[int] = field(default_factory=list)
    takeovers: list[int] = field(default_factory=list)
    twice: int = 0
    compactions: int = 0

    def write(self) -> None:
        """A commit to some tables: each adds a run."""
        for table in self.tables.values():
            if self.source.random() < table.rate:
                table.snapshot += 1
                table.runs += 1
                if table.runs > TRIGGER and table.since is None:
                    table.since = self.clock.millis

    def renew(self) -> None:
        """What the threads of the living services do."""
        for service in self.services:
            if service.leases is not None and service.leases.holder not in self.dead:
                service.leases.renew()

    def look(self, holder: str, name: str) -> Turn:
        """The plan of a table, as `service_turn.look` makes it."""
        table = self.tables[name]
        is_due = table.runs > TRIGGER
        size = SMALL_BYTES + 1  # larger turns are taken one after the other
        need = Need(0.0, TRIGGER - table.runs, table.since or 0, size, name)
        history = SimpleNamespace(exists=lambda number: self.probed(holder, name, number))
        layout = SimpleNamespace(lease_directory=f"memory://wh/{name}/lease")
        context = SimpleNamespace(layout=layout, storage=self.storage, clock=self.clock)
        budget = Budget(self.clock)
        return Turn(
            table=name,
            open=lambda: context,  # type: ignore[arg-type, return-value]
            history=history,  # type: ignore[arg-type]
            need=need,
            snapshot_id=table.snapshot,
            figures=NO_BUCKETS,
            has_compaction=is_due,
            expiries=(),
            cleans_orphans=False,
            must_look_again=False,
            idle_at=None,
            planned_files=0,
            plan=None,
            budget=budget,
            opened=context,  # type: ignore[arg-type]
        )

    def probed(self, holder: str, name: str, number: int) -> bool:
        self.probes[holder, self.rounds[holder], name] += 1
        return self.tables[name].snapshot >= number

    def take(self, holder: str, name: str) -> TurnDone:
        """A compaction, during which other services have their rounds."""
        table = self.tables[name]
        self.twice += bool(table.compacting - self.dead)
        table.compacting.add(holder)
        planned = table.runs
        if holder in self.dying:
            self.dead.add(holder)
            table.lost_by = holder
            service = next(each for each in self.services if each.leases is not None and each.leases.holder == holder)
            assert service.leases is not None
            service.leases._held.clear()  # nothing is released
            table.died = self.clock.millis
            raise Killed
        self.clock.sleep(MERGE_MILLIS / 1000)
        if self.source.random() < 0.05:
            self.other_round()
        table.compacting.discard(holder)
        if table.lost_by is not None:
            self.takeovers.append(self.clock.millis - table.died)
            table.lost_by = None
        if table.since is not None:
            self.waits.append(self.clock.millis - table.since)
        table.snapshot, table.runs, table.since = table.snapshot + 1, table.runs - planned + 1, None
        self.compactions += 1
        return TurnDone(account=CompactionAccount(CompactSummary(buckets=1)))

    def other_round(self) -> None:
        idle = [service for service in self.services if self._holder(service) not in self.busy | self.dead]
        if idle:
            self.round(self.source.choice(idle))

    def round(self, service: CompactionService) -> None:
        """A round of one service, with the compactions that it makes."""
        holder = self._holder(service)
        self.busy.add(holder)
        self.rounds[holder] += 1
        try:
            service._round(self.rounds[holder], INTERVAL)
        except Killed:
            pass
        finally:
            self.busy.discard(holder)

    @staticmethod
    def _holder(service: CompactionService) -> str:
        assert service.leases is not None
        return service.leases.holder


class Quiet:
    """A watcher that says nothing."""

    def table_begins(self, number: int, table: str) -> NoProgress:
        return NoProgress()

    def table_done(self, done: object) -> None: ...

    def round_done(self, done: object, pause_seconds: float | None) -> None: ...


def run(tables: int, rounds: int, seed: int) -> dict[str, Any]:
    """Simulate the services, and return the figures; `faults` names what is wrong."""
    source, clock = random.Random(seed), SimClock(10**12)
    names = [f"t{number:05}" for number in range(tables)]
    busy = {name: min(1.0, 3.0 / (1 + number) ** 0.7) for number, name in enumerate(source.sample(names, tables))}
    storage = MemoryStorage(f"shared-{tables}-{rounds}-{seed}", clock)
    warehouse = Warehouse(
        {name: SimTable(name, busy[name], runs=source.randint(1, TRIGGER)) for name in names}, clock, source, storage
    )
    clock.moved = warehouse.renew
    for number in range(SERVICES):
        holder = f"service-{number}"
        leases = Leases("compaction", holder, LEASE_MILLIS, clock)
        request, engine, shield = CompactRequest("minor"), LocalEngine(), contextlib.nullcontext
        warehouse.services.append(CompactionService(partial(_served, names), request, engine, clock, Quiet(), shield, leases))
    longest = 0
    with _simulated(warehouse):
        for number in range(rounds + MORE_ROUNDS):
            if number < rounds:
                warehouse.write()
            elif len(warehouse.takeovers) == len(warehouse.dead):
                break
            if number == rounds // 3:
                warehouse.dying |= {f"service-{dying}" for dying in range(KILLED)}
            began = clock.millis
            for service in source.sample(warehouse.services, SERVICES):
                if warehouse._holder(service) not in warehouse.busy | warehouse.dead:
                    warehouse.round(service)
            clock.sleep(INTERVAL)
            longest = max(longest, clock.millis - began)
    starved = [t.name for t in warehouse.tables.values() if t.since is not None and clock.millis - t.since > _patience(longest)]
    faults = [f"{warehouse.twice} compactions of a table that another service compacted"] if warehouse.twice else []
    faults += [f"{len(starved)} tables were starved"] if starved else []
    faults += [f"a table waited {max(warehouse.waits)} ms"] if max(warehouse.waits, default=0) > _patience(longest) else []
    late = [millis for millis in warehouse.takeovers if millis > 2 * LEASE_MILLIS + longest]
    faults += [f"{len(late)} tables of killed services were taken over late"] if late else []
    faults += ["a killed service was not replaced"] if len(warehouse.takeovers) < len(warehouse.dead) else []
    asked = max(warehouse.probes.values(), default=0)
    faults += [f"{asked} requests for an idle table in one round"] if asked > 1 else []
    figures = {"tables": tables, "services": SERVICES, "killed": len(warehouse.dead), "compactions": warehouse.compactions}
    times = {"longest_wait_ms": max(warehouse.waits, default=0), "takeovers_ms": warehouse.takeovers, "longest_round_ms": longest}
    return {"measure": "shared warehouse", "seed": seed, **figures, **times, "requests_per_idle_table": asked, "faults": faults}


def _served(names: Sequence[str]) -> list[ServedTable]:
    return [ServedTable(name, lambda: None) for name in names]  # type: ignore[arg-type, return-value]


def _patience(longest: int) -> int:
    """How long a table may wait: two rounds of all services, and two leases where one was killed."""
    return 2 * longest + 2 * LEASE_MILLIS


@contextlib.contextmanager
def _simulated(warehouse: Warehouse) -> Any:
    """The looks and turns of services are those of the simulated tables; the service is found by the one that runs."""

    def look_of(service: CompactionService, table: ServedTable) -> Turn:
        return warehouse.look(warehouse._holder(service), table.name)

    def served(service: CompactionService, turn: Turn, progress: Any, shield: Any, **how: Any) -> Any:
        def take(turn: Turn, *rest: Any) -> TurnDone:
            return warehouse.take(warehouse._holder(service), turn.table)

        with mock.patch.object(compaction_service, "take", take):
            return real_served(service, turn, progress, shield, **how)

    real_served = CompactionService._served
    with mock.patch.object(CompactionService, "_look", look_of), mock.patch.object(CompactionService, "_served", served):
        yield


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    found = run(asked.tables, asked.rounds, asked.seed)
    print(json.dumps(found))
    return 1 if found["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
