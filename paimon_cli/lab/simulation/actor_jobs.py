"""What actors do: the shipped jobs, with the oracle told what they want and how they ended."""

from __future__ import annotations

from collections.abc import Callable

from paimon_cli.commit.identity import BATCH_IDENTIFIER
from paimon_cli.errors import CommitUnknown, Conflict, DamagedFile, NotFound, StorageUnavailable
from paimon_cli.invariants.version import Version
from paimon_cli.jobs.compact_job import CompactRequest, run_compact
from paimon_cli.jobs.progress import NoProgress
from paimon_cli.jobs.write_job import WriteRequest, run_write
from paimon_cli.lab.simulation.actor import Actor, Job
from paimon_cli.lab.simulation.oracle import ACKNOWLEDGED, REFUSED, UNKNOWN
from paimon_cli.lab.simulation.paper_files import INSERT, BucketRows, PaperEngine, merged, paper_rows
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.orphans import find_orphans, remove_orphans
from paimon_cli.maintain.retention import Retention
from paimon_cli.maintain.side_by_side import delete_files
from paimon_cli.maintain.tags import create_tag
from paimon_cli.metadata.data_file import EMPTY_ROW, BucketId

MOST_INCREMENT_TRIES = 10


def rows(bucket: int, *keys: int, value: str = "", kind: int = INSERT) -> BucketRows:
    """Rows of one bucket; the value defaults to the key's own text."""
    return {bucket: [(key, kind, value or f"v{key}") for key in keys]}


def writer(user: str, *batches: BucketRows, repeatable: bool = False) -> Job:
    """One `write` after the other. `repeatable`: under one user with identifiers, so that a restart goes on where it was."""

    def run(actor: Actor) -> None:
        for number, batch in enumerate(batches, 1):
            if repeatable:
                write(actor, batch, WriteRequest((), commit_user=user, commit_id=number))
            else:
                write(actor, batch, WriteRequest((), commit_user=f"{user}-{number}"))

    return run


def overwriter(user: str, batch: BucketRows) -> Job:
    """Put these rows in the place of all others."""

    def run(actor: Actor) -> None:
        write(actor, batch, WriteRequest((), commit_user=user, overwrite=True))

    return run


def write(actor: Actor, batch: BucketRows, request: WriteRequest) -> str:
    """`write` as asked; how it ended."""
    user, identifier = str(request.commit_user), request.commit_id or BATCH_IDENTIFIER

    def job() -> None:
        run_write(actor.context, request, PaperEngine(batch), NoProgress())

    return settled(actor, user, batch, job, identifier=identifier, overwrites=request.overwrite)


def settled(
    actor: Actor,
    user: str,
    batch: BucketRows,
    job: Callable[[], object],
    *,
    identifier: int = BATCH_IDENTIFIER,
    overwrites: bool = False,
) -> str:
    """Run a job that is to commit these rows; the oracle hears of it before and after."""
    actor.oracle.wants(user, identifier, batch, overwrites)
    end = end_of(actor, job)
    actor.oracle.ended(user, identifier, end)
    return end


def compactor(strategy: str = "full", buckets: tuple[int, ...] = ()) -> Job:
    """`compact`; a conflict makes it plan again."""

    def run(actor: Actor) -> None:
        request = CompactRequest(strategy=strategy, buckets=buckets)
        end_of(actor, lambda: run_compact(actor.context, request, PaperEngine(), NoProgress()))

    return run


def end_of(actor: Actor, job: Callable[[], object]) -> str:
    """Run and tell how it ended. Errors that only an expiry or an outage explains are refusals there, else failures."""
    oracle, scenario = actor.oracle, actor.scenario
    try:
        job()
        return ACKNOWLEDGED
    except Conflict:
        return REFUSED
    except StorageUnavailable as error:
        if not actor.had_outage:
            oracle.failed(actor.number, error)
        return REFUSED
    except CommitUnknown as error:
        actor.was_unsure = True
        if not actor.had_outage and not scenario.files_vanish:
            oracle.failed(actor.number, error)
        return UNKNOWN
    except (NotFound, DamagedFile) as error:
        if not scenario.files_vanish:
            oracle.failed(actor.number, error)
        return REFUSED


def expirer(keep: int = 1, limit: int | None = None) -> Job:
    """Expire all snapshots but the newest `keep`, whatever their age."""

    def run(actor: Actor) -> None:
        retention = Retention(at_least=keep, at_most=keep, millis=0, limit=limit)
        end_of(actor, lambda: expire_snapshots(actor.context, retention))

    return run


def tagger(name: str, snapshot_id: int) -> Job:
    """Tag a snapshot; it may be gone, or go while we do."""

    def run(actor: Actor) -> None:
        end_of(actor, lambda: create_tag(actor.context, name, snapshot_id))

    return run


LITTER = ("bucket-0/data-litter.paper", "manifest/manifest-litter-0")


def litterer() -> Job:
    """What a writer leaves that dies before its commit."""

    def run(actor: Actor) -> None:
        for path in LITTER:
            actor.context.storage.write_new(f"{actor.context.layout.root}/{path}", b"litter")

    return run


def orphan_remover() -> Job:
    """Delete what is as old as the beginning and no version names; nothing of the litter may be left by one that finished."""

    def run(actor: Actor) -> None:
        def clean() -> None:
            orphans = find_orphans(actor.context, older_than=1)
            remove_orphans(actor.context, orphans, delete_files(actor.context))

        if end_of(actor, clean) == ACKNOWLEDGED:
            left = [path for path in LITTER if actor.context.storage.exists(f"{actor.context.layout.root}/{path}")]
            if left:
                actor.oracle.failed(actor.number, AssertionError(f"orphans are left: {left}"))

    return run


def in_turn(*jobs: Job) -> Job:
    """One actor that does several things."""

    def run(actor: Actor) -> None:
        for job in jobs:
            job(actor)

    return run


def read_modify_write(user: str, bucket: int, key: int) -> Job:
    """Add one to a counter: read it at the latest snapshot, write it as a job that has read that snapshot.

    A data conflict starts it again, as `update` does; the oracle counts the increments that were acknowledged.
    """

    def run(actor: Actor) -> None:
        for attempt in range(MOST_INCREMENT_TRIES):
            snapshot = actor.context.snapshots.latest()
            assert snapshot is not None
            value = str(int(_value(actor, Version(actor.context, snapshot), bucket, key)) + 1)
            request = WriteRequest((), commit_user=f"{user}-{attempt}", read_snapshot=snapshot.id)
            if write(actor, rows(bucket, key, value=value), request) != REFUSED:
                actor.oracle.incremented(key)
                return

    return run


def _value(actor: Actor, version: Version, bucket: int, key: int) -> str:
    """What a reader sees of one key, through the actor's own storage."""
    storage = actor.context.storage
    entries = version.buckets[BucketId(EMPTY_ROW, bucket)]
    found = merged((entry.file, paper_rows(storage.read_bytes(version.file_path(entry)))) for entry in entries)
    return next(row[3] for row in found if row[0] == key)
