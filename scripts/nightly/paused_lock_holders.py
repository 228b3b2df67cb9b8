"""Writers that are stopped (SIGSTOP) while they hold the commit lock, until after it has expired, and then resume.

    python -m scripts.nightly.paused_lock_holders --pauses 40
    python -m scripts.nightly.paused_lock_holders --store local --writers 5

Others must take over the lock and commit; a writer that resumes must notice that the lock is lost, and publish nothing. With
`--store no-primitive` only the lock separates commits; with `local`, so does the disk's exclusive creation. The default is both.
In the end each acknowledged row must exist once and no refused one, and the table must be consistent. Prints a JSON line for each
store; the exit code is 1 if something was lost, duplicated or broken.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from paimon_cli.errors import CommitUnknown, PaimonError, Refused
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.invariants.check import check_table
from paimon_cli.invariants.violation import ERROR
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.write_job import run_write
from paimon_cli.jobs.write_request import WriteRequest
from paimon_cli.storage.catalog_options import LockSettings
from paimon_cli.storage.commit_lock import CommitLock, Lease
from paimon_cli.storage.guarded_storage import GuardedStorage
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import PutOutcome, Storage
from tests import tables

LIFE_MILLIS = 2_000
"""`lock-acquire-timeout`, after which a lock expires. A pause is longer by the second to which databases round."""
PAUSE_SECONDS = LIFE_MILLIS / 1000 + 2.5
PAUSE_PROBABILITY = 0.3
NO_PRIMITIVE, LOCAL = "no-primitive", "local"
COLUMNS = {"k": "STRING NOT NULL", "v": "INT"}


class NoPrimitive(LocalStorage):
    """A disk that cannot create a file exclusively, so that only the lock separates commits."""

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        raise Refused("no exclusive creation here", path)


class PausingLock(CommitLock):
    """A lock that sometimes stops its process, right after it was acquired."""

    def chance(self) -> random.Random:
        return random.Random(os.getpid() * 1_000_003 + time.monotonic_ns())

    @contextlib.contextmanager
    def held(self) -> Iterator[Lease]:
        with super().held() as lease:
            if self.chance().random() < PAUSE_PROBABILITY:
                os.kill(os.getpid(), signal.SIGSTOP)
            yield lease


@dataclass
class Outcome:
    """The outcomes of the commits and of the pauses."""

    measure: str
    store: str
    pauses: int = 0
    acknowledged: int = 0
    refused: int = 0
    unknown: int = 0
    lost: int = 0
    doubled: int = 0
    refused_and_there: int = 0
    died: int = 0
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_right(self) -> bool:
        return not (self.lost or self.doubled or self.refused_and_there or self.died or self.violations) and self.refused > 0


def storage_of(store: str, root: str, database: str) -> Storage:
    settings = LockSettings(f"jdbc:sqlite:{database}", acquire_timeout=LIFE_MILLIS, max_sleep=200)
    inner = NoPrimitive() if store == NO_PRIMITIVE else LocalStorage()
    return GuardedStorage(inner, root, PausingLock(settings, root))


def write_rows(store: str, root: str, database: str, writer: int, stop: Any, sink: Connection) -> None:
    """In a process of its own, commit one row at a time, and report how each commit ended."""
    opened = TableContext.open(root)
    context = replace(opened, storage=storage_of(store, root, database))
    number = 0
    while not stop.is_set():
        number += 1
        key = f"{writer}-{number}"
        source = Path(database).parent / f"{key}.jsonl"
        source.write_text(json.dumps({"k": key, "v": number}) + "\n")
        try:
            request = WriteRequest(FileRows((str(source),), "json"))
            run_write(context, request, LocalEngine(), NoProgress())
            sink.send((key, "acknowledged"))
        except CommitUnknown:
            sink.send((key, "unknown"))
        except PaimonError:
            sink.send((key, "refused"))
        finally:
            source.unlink()
    sink.close()


def is_stopped(process: BaseProcess) -> bool:
    try:
        return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except FileNotFoundError:
        return False


def run(store: str, writers: int, pauses: int, folder: str) -> Outcome:
    begun = time.monotonic()
    outcome = Outcome("paused holders of the lock", store)
    context = tables.make_table(Path(folder) / "t", COLUMNS, ["k"], options={"write-only": "true"})
    root, database = context.layout.root, f"{folder}/locks.db"
    spawn = multiprocessing.get_context("spawn")
    stop = spawn.Event()
    pipes = [spawn.Pipe(duplex=False) for _ in range(writers)]
    processes = [
        spawn.Process(target=write_rows, args=(store, root, database, number, stop, sink))
        for number, (_, sink) in enumerate(pipes)
    ]
    for process, (_, sink) in zip(processes, pipes, strict=True):
        process.start()
        sink.close()
    ends = _wake(processes, [source for source, _ in pipes], stop, pauses, outcome)
    for process in processes:
        process.join()
        outcome.died += process.exitcode != 0
    judge(context, ends, outcome)
    outcome.seconds = round(time.monotonic() - begun, 1)
    return outcome


def _wake(
    processes: Sequence[BaseProcess], sources: Sequence[Connection], stop: Any, pauses: int, outcome: Outcome
) -> dict[str, str]:
    """Let stopped writers resume when their pause is over. Returns how each commit ended."""
    ends: dict[str, str] = {}
    since: dict[int, float] = {}
    open_pipes = list(sources)
    while open_pipes:
        for source in list(open_pipes):
            try:
                while source.poll():
                    key, end = source.recv()
                    ends[key] = end
            except EOFError:
                open_pipes.remove(source)
        for number, process in enumerate(processes):
            if not is_stopped(process):
                continue
            if number not in since:
                since[number] = time.monotonic()
                outcome.pauses += 1
            elif time.monotonic() - since[number] > PAUSE_SECONDS:
                del since[number]
                os.kill(process.pid or 0, signal.SIGCONT)
        if outcome.pauses >= pauses:
            stop.set()
        time.sleep(0.02)
    return ends


def judge(context: TableContext, ends: dict[str, str], outcome: Outcome) -> None:
    """Compare the reported results with the content of the table."""
    there = [row["k"] for row in tables.rows(context)]
    by_end = {end: {key for key, reported in ends.items() if reported == end} for end in ("acknowledged", "refused", "unknown")}
    outcome.acknowledged, outcome.refused, outcome.unknown = (len(by_end[end]) for end in by_end)
    outcome.lost = len(by_end["acknowledged"] - set(there))
    outcome.refused_and_there = len(by_end["refused"] & set(there))
    records = context.snapshots.latest()
    outcome.doubled = (records.total_record_count if records else 0) - len(set(there))
    outcome.violations = [str(v) for v in check_table(context, rows=True) if v.severity == ERROR]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=(NO_PRIMITIVE, LOCAL), help="only this one")
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--pauses", type=int, default=40, help="number of pauses on each store")
    arguments = parser.parse_args()
    outcomes = []
    for store in [arguments.store] if arguments.store else [NO_PRIMITIVE, LOCAL]:
        with tempfile.TemporaryDirectory() as folder:
            outcomes.append(run(store, arguments.writers, arguments.pauses, folder))
        print(json.dumps(asdict(outcomes[-1])), flush=True)
    return 0 if all(outcome.is_right for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
