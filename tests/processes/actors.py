"""The actors: each works in a loop until it is killed."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from typing import Any

from paimon_cli.errors import CommitUnknown, Conflict, PaimonError, StorageUnavailable
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.jobs.compact_job import run_compact
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.write_job import run_write
from paimon_cli.jobs.write_request import WriteRequest
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.retention import Retention
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.requests.compaction import StrategyName
from tests.processes.ledger import Rows, changes, complaints
from tests.processes.place import Place
from tests.tables import rows

PAUSE = 0.05


def write(place: Place, number: int) -> None:
    """Make the commits of the ledger one after the other, starting with the one that may have been in progress."""
    for commit in itertools.count(place.last_acknowledged(number) + 1):
        while not commit_once(place, number, commit):
            time.sleep(PAUSE)
        place.acknowledge(number, commit)


def commit_once(place: Place, writer: int, commit: int) -> bool:
    """Whether the commit is known to be in the table."""
    source = place.source(f"writer-{writer}")
    lines = [_line(place, writer, commit, k, v) for k, v in changes(place.seed, writer, commit).items()]
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    op_column = None if place.appends else "_op"
    request = WriteRequest(
        FileRows((str(source),), "json"), op_column=op_column, commit_user=f"writer-{writer}", commit_id=commit
    )
    try:
        run_write(place.open(), request, LocalEngine(), NoProgress())
    except (StorageUnavailable, CommitUnknown) as error:
        place.note(f"writer-{writer}", kind="try again", why=str(error))
        return False
    return True


def _line(place: Place, writer: int, commit: int, k: int, v: int | None) -> dict[str, Any]:
    row: dict[str, Any] = {"w": writer, "k": k, "v": v}
    if place.appends:
        return {**row, "n": commit}
    row["_op"] = "+I" if v is not None else "-D"
    return {**row, "p": (commit + k) % 3} if place.shape == "moving" else row


def compact(place: Place, number: int) -> None:
    """Compact, sometimes by the triggers, sometimes everything."""
    strategies: list[StrategyName] = ["minor", "minor", "full"]
    for strategy in itertools.cycle(strategies):
        try:
            run_compact(place.open(), CompactRequest(strategy), LocalEngine(), NoProgress())
            place.note(f"compactor-{number}", kind="round")
        except (StorageUnavailable, CommitUnknown, Conflict) as error:
            place.note(f"compactor-{number}", kind="try again", why=str(error))
        time.sleep(PAUSE)


def expire(place: Place, number: int) -> None:
    retention = Retention(at_least=place.snapshots_kept, at_most=place.snapshots_kept, millis=0, limit=None)
    while True:
        try:
            summary = expire_snapshots(place.open(), retention)
            if summary.snapshots:
                place.note(f"expirer-{number}", kind="expired", count=len(summary.snapshots))
        except StorageUnavailable as error:
            place.note(f"expirer-{number}", kind="try again", why=str(error))
        time.sleep(4 * PAUSE)


def read(place: Place, number: int) -> None:
    """Read one snapshot after the other, and report what does not add up."""
    while True:
        if (wrong := wrong_in_a_read(place)) is not None:
            place.note(f"reader-{number}", kind="read", wrong=wrong)
        time.sleep(PAUSE)


def wrong_in_a_read(place: Place) -> list[str] | None:
    """What is wrong in a read; None if there is nothing to read yet."""
    context = place.open()
    known = {writer: place.last_acknowledged(writer) for writer in range(WRITERS)}
    snapshot = context.snapshots.latest()
    if snapshot is None:
        return None if not any(known.values()) else ["acknowledged commits, and no snapshot"]
    try:
        found = rows_by_writer(place, context, snapshot)
    except (PaimonError, FileNotFoundError) as error:
        latest = place.open().snapshots.latest()
        if latest is not None and latest.id - snapshot.id >= place.snapshots_kept:
            return None  # it has expired while this process was stopped, or waited for a processor
        return [f"snapshot {snapshot.id} cannot be read: {error}"]
    return [
        f"snapshot {snapshot.id}: {complaint}"
        for writer, at_least in known.items()
        for complaint in complaints(
            place.seed,
            writer,
            found.get(writer, {}),
            0 if place.rows_wait else at_least,
            place.last_acknowledged(writer) + 1,
        )
    ]


def rows_by_writer(place: Place, context: TableContext, snapshot: Snapshot) -> dict[int, Rows]:
    """Also of level 0: the buckets of a commit may be compacted one after the other.

    Of a table without a key: what its rows come to, one commit after the other. A row that is there twice, or not at all, stands
    below a key that no commit has.
    """
    read = list(rows(context.with_level_0(), snapshot_id=snapshot.id))
    found: dict[int, Rows] = {}
    if not place.appends:
        for row in read:
            of_writer = found.setdefault(row["w"], {})
            of_writer[row["k"] if row["k"] not in of_writer else -1 - row["k"]] = int(row["v"])
        return found
    commits: dict[int, dict[int, list[tuple[int, int | None]]]] = {}
    for row in read:
        commits.setdefault(row["w"], {}).setdefault(row["n"], []).append((row["k"], row["v"]))
    for writer, by_number in commits.items():
        of_writer = found.setdefault(writer, {})
        for number in range(1, max(by_number) + 1):
            wanted = changes(place.seed, writer, number)
            if sorted(by_number.get(number, []), key=lambda row: row[0]) != sorted(wanted.items()):
                of_writer[-number] = number
            of_writer.update((k, v) for k, v in wanted.items() if v is not None)
            for k in (k for k, v in wanted.items() if v is None):
                of_writer.pop(k)
    return found


WRITERS = 2
ACTORS = {"writer": write, "compactor": compact, "expirer": expire, "reader": read}


def everybody() -> Iterator[tuple[str, int]]:
    """Role and number of the processes of a run."""
    yield from (("writer", number) for number in range(WRITERS))
    yield from (("compactor", 0), ("expirer", 0), ("reader", 0))


def act(place: Place, role: str, number: int) -> None:
    """The whole life of a process. Unless a kill ends it, its end is a failure."""
    try:
        ACTORS[role](place, number)
    except BaseException as error:
        place.note(f"{role}-{number}", kind="failed", why=f"{type(error).__name__}: {error}")
        raise
