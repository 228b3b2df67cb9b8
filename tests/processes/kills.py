"""Starts the processes, kills one after the other at random moments, starts them again, and checks the table."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from multiprocessing.context import ForkServerProcess
from typing import Any

from paimon_cli.invariants.check import check_table
from paimon_cli.metadata.snapshot import APPEND, Snapshot
from tests.faults.verdict import reachable
from tests.processes.actors import WRITERS, act, commit_once, everybody, rows_by_writer, wrong_in_a_read
from tests.processes.ledger import complaints
from tests.processes.place import Place

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.processes.actors", "tests.processes.killed_commands"])
"""Clean processes, forked from one that has loaded what takes long; each is a process of its own to kill."""

LONGEST_DELAY = 0.15
PATIENCE = 300.0
"""Seconds within which a writer must get on, however busy the machine is."""


@dataclass
class KillFigures:
    """`tries_again`: jobs that ended with an error that one may try again after. `unseen`: snapshots that expired unlooked at.

    `recovery`: from the restart of a writer to its next acknowledged commit.
    """

    store: str
    seed: int
    kills: int = 0
    pauses: int = 0
    killed: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    snapshots: int = 0
    unseen: int = 0
    reads: int = 0
    compactions: int = 0
    expired: int = 0
    tries_again: int = 0
    orphans: int = 0
    recovery_median_seconds: float = 0.0
    recovery_longest_seconds: float = 0.0
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "killed": dict(sorted(self.killed.items())), "wrong": len(self.wrong)}


class Killing:
    """One run over an empty table."""

    def __init__(self, place: Place, store: str) -> None:
        self._place = place
        self._random = random.Random(place.seed)
        self._processes: dict[tuple[str, int], ForkServerProcess] = {}
        self._restarted: list[tuple[int, float]] = []
        self._deck: list[tuple[str, int]] = []
        self._seen: dict[int, Snapshot] = {}
        self.figures = KillFigures(store, place.seed)

    def run(self, kills: int) -> KillFigures:
        begun = time.monotonic()
        self._place = self._place.for_kills(kills)
        self._place.make_table()
        for actor in everybody():
            self._start(actor)
        try:
            self._wait_for(0, 1)
            for _ in range(kills):
                self._kill_one()
                self._look_at_snapshots()
            for writer in range(WRITERS):  # each of them continues after the last kill
                self._wait_for(writer, self._place.last_acknowledged(writer) + 1)
        finally:
            self._look_at_snapshots()
            for process in self._processes.values():
                process.kill()
                process.join()
        self.look_at_the_end()
        self.figures.seconds = round(time.monotonic() - begun, 1)
        return self.figures

    def _start(self, actor: tuple[str, int]) -> None:
        process = PROCESSES.Process(target=act, args=(self._place, *actor), daemon=True)
        process.start()
        self._processes[actor] = process

    def _kill_one(self) -> None:
        """Kill each actor in turn, writers twice, mostly in the middle of a commit."""
        if not self._deck:
            self._deck = [*everybody(), *(("writer", number) for number in range(WRITERS))]
            self._random.shuffle(self._deck)
        actor = self._deck.pop()
        process, (role, number) = self._processes[actor], actor
        if role == "writer" and self._random.random() < 0.7:
            self._wait_for(number, self._place.last_acknowledged(number) + 1)
        time.sleep(self._random.random() * LONGEST_DELAY)
        if self._random.random() < 0.2:
            self._pause(process)
        process.kill()
        process.join()
        if process.exitcode != -signal.SIGKILL:
            self.figures.wrong.append(f"{role} {number} had ended by itself")
        self.figures.kills += 1
        self.figures.killed[role] += 1
        self._start(actor)
        if role == "writer":
            self._restarted.append((number, time.time()))

    def _pause(self, process: ForkServerProcess) -> None:
        """Stop a process for a while, as garbage collection or swapping would: others get far ahead."""
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(2 * LONGEST_DELAY)
        os.kill(process.pid, signal.SIGCONT)
        time.sleep(self._random.random() * LONGEST_DELAY / 3)
        self.figures.pauses += 1

    def _wait_for(self, writer: int, number: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while self._place.last_acknowledged(writer) < number:
            if time.monotonic() > deadline:
                raise AssertionError(f"writer {writer} does not get on; notes: {self._place.notes()}")
            time.sleep(0.005)

    # what is there

    def _look_at_snapshots(self) -> None:
        """Remember every snapshot before it expires."""
        snapshots = self._place.open().snapshots
        for snapshot in snapshots.newest_first(self._place.snapshots_kept):
            if snapshot.id in self._seen:
                break
            self._seen[snapshot.id] = snapshot

    def look_at_the_end(self) -> None:
        self._look_at_acknowledgements()
        self._look_at_commits()
        self._look_at_notes()
        self._look_at_table()

    def _look_at_acknowledgements(self) -> None:
        """Every writer's numbers follow each other; what was under way can be done again, once."""
        waits = []
        for writer in range(WRITERS):
            lines = self._place.acknowledged(writer)
            numbers = [line["number"] for line in lines]
            if numbers != list(range(1, len(numbers) + 1)):
                self.figures.wrong.append(f"writer {writer} acknowledged {numbers}")
            self.figures.acknowledged += len(numbers)
            for restarted in [at for number, at in self._restarted if number == writer]:
                waits += [line["at"] - restarted for line in lines if line["at"] > restarted][:1]
            if not commit_once(self._place, writer, len(numbers) + 1):
                self.figures.wrong.append(f"writer {writer} cannot commit in the end")
            self._place.acknowledge(writer, len(numbers) + 1)
        if waits:
            waits.sort()
            self.figures.recovery_median_seconds = round(waits[len(waits) // 2], 3)
            self.figures.recovery_longest_seconds = round(waits[-1], 3)

    def _look_at_commits(self) -> None:
        """Each number of each writer is one APPEND snapshot, in order, and none is missing but those that expired unseen."""
        self._look_at_snapshots()
        newest = max(self._seen)
        self.figures.snapshots = newest
        self.figures.unseen = newest - len(self._seen)
        made = [s for _, s in sorted(self._seen.items()) if s.commit_kind == APPEND]
        for writer in range(WRITERS):
            numbers = [s.commit_identifier for s in made if s.commit_user == f"writer-{writer}"]
            expected = list(range(1, self._place.last_acknowledged(writer) + 1))
            doubled = [number for number, times in Counter(numbers).items() if times > 1]
            if doubled:
                self.figures.wrong.append(f"writer {writer} committed {doubled} more than once")
            missing = set(expected) - set(numbers)
            if numbers != [number for number in expected if number not in missing] or len(missing) > self.figures.unseen:
                self.figures.wrong.append(f"writer {writer} has commits {numbers}, not {expected}")

    def _look_at_notes(self) -> None:
        for actor, notes in self._place.notes().items():
            for note in notes:
                kind = note["kind"]
                self.figures.reads += kind == "read"
                self.figures.compactions += kind == "round"
                self.figures.expired += note.get("count", 0)
                self.figures.tries_again += kind == "try again"
                self.figures.wrong += note.get("wrong", [])
                if kind == "failed":
                    self.figures.wrong.append(f"{actor} failed: {note['why']}")

    def _look_at_table(self) -> None:
        """The invariants, the last rows, and the rows again when every unreferenced file is gone."""
        context = self._place.open()
        # PV023 is what writers of one bucket do to each other, and here their keys share partitions.
        excused = "PV023" if self._place.shape == "moving" else ""
        self.figures.wrong += [str(v) for v in check_table(context, rows=True) if v.code != excused]
        self.figures.wrong += wrong_in_a_read(self._place) or []
        orphans = _files_below(context.storage, context.url) - reachable(context)
        self.figures.orphans = len(orphans)
        for path in orphans:
            context.storage.delete(path)
        for number in context.snapshots.ids():
            found = rows_by_writer(self._place, context, context.snapshots.get(number))
            for writer in range(WRITERS):
                self.figures.wrong += complaints(
                    self._place.seed, writer, found.get(writer, {}), 0, self._place.last_acknowledged(writer)
                )


def _files_below(storage: Any, directory: str) -> set[str]:
    found: set[str] = set()
    for entry in storage.list_directory(directory):
        found |= _files_below(storage, entry.path) if entry.is_directory else {entry.path}
    return found
