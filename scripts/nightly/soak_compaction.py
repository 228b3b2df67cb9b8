"""A soak test: writers of a write-only table beside the compaction service and expiry.

    python -m scripts.nightly.soak_compaction --seconds 600

Each writer has keys of its own and remembers what it wrote. In the end the service must have met no conflict and ended cleanly,
there must never have been more sorted runs than can be written between two of its rounds, the rows must be right, and no file may
be an orphan.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.retention import Retention
from tests.tables import data_files, live_files, make_table, rows, write

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = {"id": "BIGINT NOT NULL", "n": "BIGINT", "text": "STRING"}
OPTIONS = {
    "write-only": "true",
    "num-sorted-run.compaction-trigger": "4",
    "commit.min-retry-wait": "2 ms",
    "commit.max-retries": "100",
}
BUCKETS, TRIGGER, KEYS = 2, 4, 2_000
WRITER_PAUSE = 0.2
PATIENCE = 300.0
"""Seconds within which something must happen, however busy the machine is."""


@dataclass
class Soak:
    """The table, and what was observed. It goes on for these seconds, and until the service has compacted `least_buckets`."""

    folder: Path
    seconds: float
    writers: int
    engine: str = "local"
    least_buckets: int = 0
    most_runs: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def table(self) -> Path:
        return self.folder / "t"

    def run(self) -> dict[str, Any]:
        context = make_table(self.table, COLUMNS, ["id"], bucket=BUCKETS, options=OPTIONS)
        service = self._start_service()
        self._wait_for_rounds(1)
        begun = time.monotonic()
        writers = [self._start_writer(number) for number in range(self.writers)]
        while time.monotonic() - begun < self.seconds or not self._has_compacted(begun):
            self._look(context)
        stop_file(self.folder).touch()
        while any(writer.poll() is None for writer in writers):
            self._look(context)
        for writer in writers:
            if writer.wait() != 0:
                self.faults.append(f"a writer ended with {writer.returncode}")
        self._wait_for_rounds(len(self._done_rounds()) + 2)  # the one under way, and one without writers
        service.send_signal(signal.SIGTERM)
        if service.wait(timeout=PATIENCE) != 0:
            self.faults.append(f"the service ended with {service.returncode}: {self.errors.read_text()}")
        return self._figures(context, self._done_rounds())

    def _look(self, context: TableContext) -> None:
        self.most_runs = max(self.most_runs, sorted_runs(context))
        expire_snapshots(context, Retention(20, 20, 0, None))
        time.sleep(0.25)

    def _has_compacted(self, begun: float) -> bool:
        """Whether the service has compacted as much as it should, or had more than enough time to."""
        is_late = time.monotonic() - begun > self.seconds + PATIENCE
        return is_late or sum(done["buckets"] for done in self._done_rounds()) >= self.least_buckets

    def _wait_for_rounds(self, number: int) -> None:
        begun = time.monotonic()
        while len(self._done_rounds()) < number:
            if time.monotonic() - begun > PATIENCE:
                self.faults.append(f"the service has ended {len(self._done_rounds())} rounds, not {number}")
                return
            time.sleep(0.1)

    def _done_rounds(self) -> list[dict[str, Any]]:
        lines = self.rounds.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    @property
    def rounds(self) -> Path:
        """The file with a line for each round. A pipe that is not read for ten minutes would fill up and block the service."""
        return self.folder / "rounds.ndjson"

    @property
    def errors(self) -> Path:
        return self.folder / "errors.txt"

    def _start_service(self) -> subprocess.Popen[bytes]:
        watch = ("--dedicated", "--watch", "--interval", "500 ms", "--engine", self.engine, "-o", "ndjson")
        command = [sys.executable, "-m", "paimon_cli", "compact", str(self.table), *watch]
        with self.rounds.open("wb") as output, self.errors.open("wb") as errors:
            return subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=errors)

    def _start_writer(self, number: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "scripts.nightly.soak_compaction", "--writer", str(number)]
        return subprocess.Popen([*command, "--folder", str(self.folder)], cwd=ROOT)

    def _figures(self, context: TableContext, rounds: list[dict[str, Any]]) -> dict[str, Any]:
        notes = [json.loads((self.folder / f"writer-{number}.json").read_text()) for number in range(self.writers)]
        expected = {int(key): n for note in notes for key, n in note["rows"].items()}
        found = {row["id"]: row["n"] for row in rows(context, ["id", "n"])}
        if found != expected:
            self.faults.append(f"{len(expected.items() ^ found.items())} rows differ")
        conflicts = sum(done["conflicts"] for done in rounds)
        errors = [table["error"] for done in rounds for table in done["tables"] if table["error"]]
        if conflicts or errors:
            self.faults.append(f"{conflicts} conflicts, errors {errors[:3]}")
        commits = sum(note["commits"] for note in notes)
        allowed = self._allowed(rounds)
        if self.most_runs > allowed:
            self.faults.append(f"{self.most_runs} sorted runs, but at most {allowed} can be written between two rounds")
        if sorted_runs(context) > TRIGGER:
            self.faults.append(f"{sorted_runs(context)} sorted runs are left without writers")
        orphans = data_files(context) - named_files(context)
        if orphans:
            self.faults.append(f"orphans: {sorted(orphans)[:3]}")
        return {
            "measure": "soak-compaction",
            "seconds": self.seconds,
            "commits": commits,
            "rounds": len(rounds),
            "compacted_buckets": sum(done["buckets"] for done in rounds),
            "conflicts": conflicts,
            "most_runs": self.most_runs,
            "allowed_runs": allowed,
            "rows": len(found),
            "faults": len(self.faults),
        }

    def _allowed(self, rounds: list[dict[str, Any]]) -> int:
        """The runs that a round may leave, and what writers that never wait could commit until the end of the next: two gaps."""
        starts = [_seconds_of_day(done["time"]) for done in rounds]
        gaps = [(b - a) % 86400 for a, b in itertools.pairwise(starts)]
        return TRIGGER + int(2 * max(gaps, default=self.seconds) * self.writers / WRITER_PAUSE) + self.writers


def _seconds_of_day(text: str) -> float:
    hours, minutes, seconds = text[11:-1].split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)


def sorted_runs(context: TableContext) -> int:
    """The maximum number of sorted runs of any bucket."""
    states = bucket_files(context, context.snapshots.latest()).values()
    levels = [[file.level for file in state.files] for state in states]
    return max((each.count(0) + len(set(each) - {0}) for each in levels), default=0)


def named_files(context: TableContext) -> set[str]:
    """The data files of all remaining snapshots."""
    named = live_files(context)
    for number in context.snapshots.ids():
        for state in bucket_files(context, context.snapshots.get(number)).values():
            named |= {f"bucket-{state.bucket}/{file.file_name}" for file in state.files}
    return named


def stop_file(folder: Path) -> Path:
    """Writers end when it exists."""
    return folder / "stop"


def write_on(folder: Path, number: int) -> None:
    """Upsert and delete this writer's keys until the end, and record the rows that must remain."""
    context, generator = TableContext.open(str(folder / "t")), random.Random(number)
    kept: dict[int, int] = {}
    commits = 0
    while not stop_file(folder).exists():
        changes = []
        for key in generator.sample(range(KEYS), 40):
            identifier, n = number * KEYS + key, generator.randrange(10**9)
            kind = "-D" if generator.random() < 0.1 else "+I"
            changes.append({"id": identifier, "n": n, "text": f"{n:x}" * 4, "_op": kind})
            if kind == "-D":
                kept.pop(identifier, None)
            else:
                kept[identifier] = n
        write(context, changes)
        commits += 1
        time.sleep(WRITER_PAUSE)
    (folder / f"writer-{number}.json").write_text(json.dumps({"rows": kept, "commits": commits}))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--writers", type=int, default=2)
    parser.add_argument("--engine", choices=("local", "spark"), default="local")
    parser.add_argument("--writer", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.writer is not None:
        write_on(arguments.folder, arguments.writer)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(Path(folder), arguments.seconds, arguments.writers, arguments.engine)
        print(json.dumps(soak.run()))
    for fault in soak.faults:
        print(fault, file=sys.stderr)
    sys.stdout.flush()
    os._exit(int(bool(soak.faults)))


if __name__ == "__main__":
    sys.exit(main())
