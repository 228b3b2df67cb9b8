"""What actors do: jobs of the command line that need no real data files, each as a function from its parameters to a `Job`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from paimon_cli.commit.deduplication import BATCH_IDENTIFIER
from paimon_cli.errors import CommitUnknown, Conflict, DamagedFile, NotFound, PaimonError, PartialSuccess, StorageUnavailable
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.invariants.version import Version
from paimon_cli.jobs.compact_job import run_compact
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.compact_summary import CompactSummary
from paimon_cli.jobs.engine import Engine, NoProgress
from paimon_cli.jobs.metadata_jobs import run_restore
from paimon_cli.jobs.write_job import WriteSummary, run_write
from paimon_cli.jobs.write_request import WriteRequest
from paimon_cli.lab.simulation.actor import Actor, Job
from paimon_cli.lab.simulation.json_files import BucketRows, JsonFileEngine, json_rows, merged
from paimon_cli.lab.simulation.oracle import ACKNOWLEDGED, REFUSED, UNKNOWN, announced_user
from paimon_cli.maintain.drop_table import drop_table
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.file_deletion import delete_files
from paimon_cli.maintain.orphans import find_orphans, remove_orphans
from paimon_cli.maintain.retention import Retention
from paimon_cli.maintain.tags import create_tag
from paimon_cli.metadata.data_file import EMPTY_ROW, BucketId
from paimon_cli.metadata.data_file_schema import RowKind
from paimon_cli.options.choices import CompactionMode
from paimon_cli.requests.compaction import StrategyName

MAX_INCREMENT_TRIES = 10


def rows(bucket: int, *keys: int, value: str = "", kind: int = RowKind.INSERT) -> BucketRows:
    """Rows of one bucket; the default value is the text of the key."""
    return {bucket: [(key, kind, value or f"v{key}") for key in keys]}


def writer(user: str, *batches: BucketRows, repeatable: bool = False) -> Job:
    """Runs one `write` per batch.

    `repeatable`: all writes have one commit user and numbered identifiers, so a restart continues where the job stopped.
    """

    def run(actor: Actor) -> None:
        for number, batch in enumerate(batches, 1):
            if repeatable:
                write(actor, batch, WriteRequest(FileRows(), commit_user=user, commit_id=number))
            else:
                write(actor, batch, WriteRequest(FileRows(), commit_user=f"{user}-{number}"))

    return run


def overwriter(user: str, batch: BucketRows) -> Job:
    """Replaces all rows with these."""

    def run(actor: Actor) -> None:
        write(actor, batch, WriteRequest(FileRows(), commit_user=user, overwrite=True))

    return run


def write(actor: Actor, batch: BucketRows, request: WriteRequest) -> str:
    """Run `write`; returns its outcome."""
    user, identifier = str(request.commit_user), request.commit_id or BATCH_IDENTIFIER

    def job() -> WriteSummary:
        return run_write(actor.context, request, JsonFileEngine(batch), NoProgress())

    return run_and_report(actor, user, batch, job, identifier=identifier, overwrites=request.overwrite)


def run_and_report(
    actor: Actor,
    user: str,
    batch: BucketRows,
    job: Callable[[], object],
    *,
    identifier: int = BATCH_IDENTIFIER,
    overwrites: bool = False,
    refusal: type[PaimonError] = Conflict,
) -> str:
    """Run a job that is to commit these rows, and report its start and outcome to the oracle."""
    actor.oracle.announces(user, identifier, batch, overwrites)
    end = end_of(actor, job, refusal)
    actor.oracle.ended(user, identifier, end)
    return end


def compactor(strategy: StrategyName = "full", buckets: tuple[int, ...] = ()) -> Job:
    """Runs `compact`, which makes a new plan after a conflict."""

    def run(actor: Actor) -> None:
        compact(actor, CompactRequest(strategy=strategy, bucket=buckets or None), JsonFileEngine())

    return run


def compact(actor: Actor, request: CompactRequest, engine: Engine) -> None:
    """Run `compact`. A conflict that other actors have not caused is a failure."""

    def job() -> CompactSummary:
        try:
            return run_compact(actor.context, request, engine, NoProgress())
        except Conflict as conflict:
            actor.oracle.lost_compaction(actor.number, str(conflict))
            raise

    end_of(actor, job)


def end_of(actor: Actor, job: Callable[[], object], refusal: type[PaimonError] = Conflict, *, puts_once: bool = False) -> str:
    """Run a job; returns its outcome. Errors that an expiry or outage can cause are failures only in scenarios without one.

    `refusal`: another error than a conflict by which a commit may be refused. `puts_once`: the job does not repeat a put that
    was not answered, so it may end without knowing its outcome.
    """
    oracle, scenario = actor.oracle, actor.scenario
    actor.check_commit()
    oracle.began(actor.number)
    try:
        result = job()
        _judge_summary(actor, result)
        return ACKNOWLEDGED
    except (Conflict, refusal):
        return REFUSED
    except (StorageUnavailable, PartialSuccess) as error:
        if not actor.had_outage:
            oracle.failed(actor.number, error)
        return REFUSED
    except CommitUnknown as error:
        oracle.gave_up(actor.number)
        oracle.left_files(actor.number)
        if not actor.had_outage and not scenario.files_vanish and not (puts_once and actor.lost_a_request):
            oracle.failed(actor.number, error)
        return UNKNOWN
    except (NotFound, DamagedFile) as error:
        if not scenario.files_vanish:
            oracle.failed(actor.number, error)
        return REFUSED


def _judge_summary(actor: Actor, summary: object) -> None:
    """Report the compactions that were refused although the job succeeded."""
    if isinstance(summary, WriteSummary) and (why := summary.compaction_repeated or summary.compaction_lost):
        actor.oracle.lost_compaction(actor.number, why)
    if isinstance(summary, CompactSummary) and summary.conflicts:
        actor.oracle.lost_compaction(actor.number, "other jobs have changed its buckets")


def _delete_files(actor: Actor, job: Callable[[], object], *, puts_once: bool = False) -> str:
    """Run a job that may be left half done, with files that nothing names any more."""
    end = end_of(actor, job, puts_once=puts_once)
    if end != ACKNOWLEDGED:
        actor.oracle.left_files(actor.number)
    return end


def named(actor: Actor, user: str) -> TableContext:
    """The actor's table, in which jobs that choose a user of their own begin it with this one."""
    return actor.context.with_options({"commit.user-prefix": user})


def restorer(user: str, target: int, rows_then: BucketRows) -> Job:
    """Runs `rollback TARGET --as-new`, which starts again after a conflict. `rows_then`: the rows of the target."""

    def run(actor: Actor) -> None:
        context = named(actor, user)

        def restore() -> None:
            done = run_restore(context, context.snapshots.get(target), JsonFileEngine(), NoProgress(), CompactionMode.NONE)
            try:
                newest = context.snapshots.get(done.snapshot)
            except StorageUnavailable as error:
                raise CommitUnknown("the restorer cannot see whether there was anything to restore", str(error)) from error
            if announced_user(newest) != user:
                raise Conflict("there is nothing to restore, so there is no commit")

        run_and_report(actor, user, rows_then, restore, overwrites=True)

    return run


def expirer(keep: int = 1, limit: int | None = None) -> Job:
    """Expires all snapshots except the newest `keep`, regardless of their age."""

    def run(actor: Actor) -> None:
        retention = Retention(at_least=keep, at_most=keep, millis=0, limit=limit)
        _delete_files(actor, lambda: expire_snapshots(actor.context, retention))

    return run


def tagger(name: str, snapshot_id: int) -> Job:
    """Tags a snapshot, which may have expired, or may expire at the same time."""

    def run(actor: Actor) -> None:
        _delete_files(actor, lambda: create_tag(actor.context, name, snapshot_id), puts_once=True)

    return run


def dropper() -> Job:
    """Drops the table; nothing may be left, and no commit may be acknowledged after it has begun."""

    def run(actor: Actor) -> None:
        context = actor.context
        drop = partial(drop_table, context.storage, context.layout, context.schema, context.clock, context.random)
        if _delete_files(actor, drop) == ACKNOWLEDGED:
            actor.oracle.dropped()

    return run


LITTER = ("bucket-0/data-litter.json", "manifest/manifest-litter-0")


def litterer() -> Job:
    """Leaves files like a writer that crashed before its commit."""

    def run(actor: Actor) -> None:
        for path in LITTER:
            actor.context.storage.write_new(f"{actor.context.layout.root}/{path}", b"litter")

    return run


def orphan_remover() -> Job:
    """Deletes initial files that nothing references; once it finishes, all files of `litterer` must be gone."""

    def run(actor: Actor) -> None:
        def clean() -> None:
            orphans = find_orphans(actor.context, older_than=1)
            remove_orphans(actor.context, orphans, delete_files(actor.context))

        if _delete_files(actor, clean) == ACKNOWLEDGED:
            left = [path for path in LITTER if actor.context.storage.exists(f"{actor.context.layout.root}/{path}")]
            if left:
                actor.oracle.failed(actor.number, AssertionError(f"orphans are left: {left}"))

    return run


def in_turn(*jobs: Job) -> Job:
    """One actor that runs several jobs in turn."""

    def run(actor: Actor) -> None:
        for job in jobs:
            job(actor)

    return run


def read_modify_write(user: str, bucket: int, key: int) -> Job:
    """Increments a counter: reads it at the latest snapshot, and writes it with that snapshot as the one that was read.

    After a data conflict it retries, as `update` does; the oracle counts the acknowledged increments.
    """

    def run(actor: Actor) -> None:
        for attempt in range(MAX_INCREMENT_TRIES):
            snapshot = actor.context.snapshots.latest()
            assert snapshot is not None
            value = str(int(_value(actor, Version(actor.context, snapshot), bucket, key)) + 1)
            request = WriteRequest(FileRows(), commit_user=f"{user}-{attempt}", read_snapshot=snapshot.id)
            end = write(actor, rows(bucket, key, value=value), request)
            if end == ACKNOWLEDGED:
                actor.oracle.incremented(key)
            if end != REFUSED:
                return

    return run


def _value(actor: Actor, version: Version, bucket: int, key: int) -> str:
    """The value of a key, read through the actor's storage."""
    storage = actor.context.storage
    entries = version.buckets[BucketId(EMPTY_ROW, bucket)]
    found = merged((entry.file, json_rows(storage.read_bytes(version.file_path(entry)))) for entry in entries)
    return next(row[3] for row in found if row[0] == key)
