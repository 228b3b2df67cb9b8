"""Jobs of actors on real Parquet files with the local engine: writes, compactions, changes of rows, rescales and restores."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Sequence

from paimon_cli.bucket.stamped_files import new_stamp
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import BATCH_IDENTIFIER, fresh_identity
from paimon_cli.commit.outcome import CommitResult
from paimon_cli.compact.bucket_compactor import run_compaction
from paimon_cli.compact.compaction_task import CompactionTask
from paimon_cli.errors import Conflict, PaimonError, StorageUnavailable
from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.engine import NoProgress, phase
from paimon_cli.jobs.rescale_job import plan_rescale, rescale_beside_writers, rewrite_partitions
from paimon_cli.jobs.table_change import NewFiles
from paimon_cli.jobs.update_job import UpdateRequest, run_update
from paimon_cli.jobs.write_job import WriteSummary, run_write
from paimon_cli.jobs.write_request import WriteRequest
from paimon_cli.lab.simulation.actor import Actor, Job
from paimon_cli.lab.simulation.actor_jobs import MAX_INCREMENT_TRIES, compact, end_of, named, rows, run_and_report
from paimon_cli.lab.simulation.json_files import BucketRows
from paimon_cli.lab.simulation.oracle import ACKNOWLEDGED, REFUSED
from paimon_cli.lab.simulation.real_files import RealEngine, cached_result
from paimon_cli.lab.simulation.scenario import Scenario
from paimon_cli.lsm.compaction_picker import may_drop_deletes
from paimon_cli.lsm.sorted_runs import highest_level
from paimon_cli.metadata.data_file import EMPTY_ROW, BucketId, DataFileMeta
from paimon_cli.metadata.data_file_schema import RowKind
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.read.scan_plan import plan_scan
from paimon_cli.read.split_reader import read_split
from paimon_cli.requests.compaction import StrategyName
from paimon_cli.requests.maintenance import RescaleOptions
from paimon_cli.storage.memory_storage import MemoryStorage

OPS = {0: "+I", 3: "-D"}
MAX_REWRITE_TRIES = 5


def real_writer(
    user: str,
    *batches: BucketRows,
    numbers: bool = False,
    repeatable: bool = False,
    overwrite: bool = False,
    refusal: type[PaimonError] = Conflict,
) -> Job:
    """Runs one `write` of JSON rows per batch. The table derives buckets from keys; the buckets of `batches` are for the oracle.

    `repeatable`: all writes have one commit user and numbered identifiers, so a restart continues where the job stopped.
    """

    def run(actor: Actor) -> None:
        for number, batch in enumerate(batches, 1):
            source = _source(batch, numbers, actor.scenario)
            name, identifier = (user, number) if repeatable else (f"{user}-{number}", None)
            rows = FileRows((source,), "json")
            request = WriteRequest(rows, op_column="_op", commit_user=name, commit_id=identifier, overwrite=overwrite)
            job = functools.partial(run_write, actor.context, request, RealEngine(actor.disk, source), NoProgress())
            number_of_commit = identifier or BATCH_IDENTIFIER
            run_and_report(actor, name, batch, job, identifier=number_of_commit, overwrites=overwrite, refusal=refusal)

    return run


@functools.cache
def _source_of(content: bytes) -> str:
    path = f"memory://simulation/{hash(content):x}.jsonl"
    MemoryStorage().overwrite(path, content)
    return path


def _source(batch: BucketRows, numbers: bool, scenario: Scenario) -> str:
    lines: list[dict[str, object]] = []
    for bucket, key, kind, value in ((bucket, *row) for bucket, found in batch.items() for row in found):
        partition = {"p": bucket} if scenario.partitioned else {}
        lines.append({"k": key, "v": int(value) if numbers else value, **partition, "_op": OPS[kind]})
    return _source_of("".join(json.dumps(line) + "\n" for line in lines).encode())


def real_compactor(
    strategy: StrategyName = "full",
    buckets: tuple[int, ...] = (),
    order_by: str | None = None,
    ranges_over: int | None = None,
) -> Job:
    """Runs `compact`, which makes a new plan after a conflict. `ranges_over`: bytes of buckets compacted in ranges of keys."""

    def run(actor: Actor) -> None:
        request = CompactRequest(strategy, bucket=buckets or None, order_by=order_by, ranges_over=ranges_over)
        compact(actor, request, RealEngine(actor.disk))

    return run


def real_splitter() -> Job:
    """Runs a round of a service, which distributes waiting rows, and splits the buckets of partitions that have outgrown them."""

    def run(actor: Actor) -> None:
        compact(actor, CompactRequest("minor", regroups=True), RealEngine(actor.disk))

    return run


def level_compactor(
    levels: Collection[int],
    output_level: int,
    bucket: int = 0,
    picks: tuple[int, ...] | None = None,
    committer: type[Committer] = Committer,
) -> Job:
    """Merges some levels of a bucket into one, as another engine's plan might, without a retry.

    `picks`: the indexes of the files to take from these levels, oldest first; None for all.
    """

    def run(actor: Actor) -> None:
        context = actor.context

        def compact() -> None:
            snapshot = context.snapshots.latest()
            assert snapshot is not None
            found = bucket_files(context, snapshot)[BucketId(EMPTY_ROW, bucket)]
            files = [file for file in found.files if file.level in levels]
            chosen = files if picks is None else [file for number, file in enumerate(files) if number in picks]
            if not chosen:
                return
            task = _task(context, found, chosen, output_level, snapshot.id)
            new_files = NewFiles(context, task.file_stamp)
            with new_files.deleted_on_failure(), phase(NoProgress(), "compact", 1):
                messages = RealEngine(actor.disk).run_tasks(functools.partial(run_compaction, context), [task])
            new_files.commit(messages, lambda: committer(context).commit(messages, fresh_identity(context)))

        end_of(actor, compact)

    return run


def _task(context: TableContext, bucket: BucketFiles, files: Sequence[DataFileMeta], to: int, read: int) -> CompactionTask:
    looks_up = context.mode.looks_up_old_rows
    others = tuple(file for file in bucket.files if file not in files)
    marks = context.mode.deletion_vectors
    return CompactionTask(
        partition=EMPTY_ROW,
        bucket=bucket.bucket,
        total_buckets=bucket.total_buckets,
        files=tuple(files),
        output_level=to,
        max_level=context.options.num_levels - 1,
        drop_deletes=may_drop_deletes(to, highest_level(bucket.files), marks_old_rows=marks),
        reason="",
        arithmetic="",
        runs_before=len(files),
        runs_after=1,
        read_snapshot_id=read,
        file_stamp=new_stamp(context),
        others=others if looks_up else (),
        index_files=bucket.index_files if looks_up else (),
        rewrite_marked=all(file.level for file in files),
    )


def real_deleter(user: str, *keys: int) -> Job:
    """Runs `delete` on existing rows, which reads again after a conflict."""
    return _changer(user, rows(0, *keys, kind=RowKind.DELETE), keys)


def real_updater(user: str, *keys: int) -> Job:
    """Runs `update`, which sets the value of existing rows to the user and reads again after a conflict."""
    return _changer(user, rows(0, *keys, value=user), keys, f"v = '{user}'")


def _changer(user: str, effect: BucketRows, keys: Sequence[int], *assignments: str) -> Job:
    def run(actor: Actor) -> None:
        request = UpdateRequest(f"k in ({', '.join(map(str, keys))})", assignments, commit_user=user)
        job = functools.partial(run_update, actor.context, request, RealEngine(actor.disk), NoProgress())
        run_and_report(actor, user, effect, job)

    return run


def real_rescaler(user: str, buckets: int, online: bool = False) -> Job:
    """Runs `rescale` once. The option `bucket` stays, as in a rescale of single partitions, since other actors know only that.

    `online`: writers that have planned before it move their rows.
    """

    def run(actor: Actor) -> None:
        context = named(actor, user)

        def rescale() -> None:
            plan = plan_rescale(context, RescaleOptions(buckets, online=online))
            rewrite = rescale_beside_writers if online else rewrite_partitions
            try:
                rewrite(context, plan, RealEngine(actor.disk, "the table"), NoProgress())
            except StorageUnavailable as failure:
                if not CommitResult.failed(failure).snapshots:
                    raise  # otherwise a later round has failed, and the rescale is in the table

        run_and_report(actor, user, {}, rescale)

    return run


def real_rewriter(user: str) -> Job:
    """Reads all rows, and overwrites the table with them: a change that must not come after one that it has not read.

    The table needs a data conflict check. After a conflict it reads again.
    """

    def run(actor: Actor) -> None:
        for attempt in range(MAX_REWRITE_TRIES):
            snapshot = actor.context.snapshots.latest()
            assert snapshot is not None
            batch = _inserts(_all_rows(actor, snapshot))
            job = _write_job(actor, batch, name := f"{user}-{attempt}", snapshot, overwrite=True)
            if run_and_report(actor, name, {}, job) != REFUSED:
                return

    return run


def real_read_modify_write(user: str, bucket: int, key: int, refusal: type[PaimonError] = Conflict) -> Job:
    """Increments a counter as `read_modify_write` does: what was read is protected only by the table's data conflict check."""

    def run(actor: Actor) -> None:
        for attempt in range(MAX_INCREMENT_TRIES):
            snapshot = actor.context.snapshots.latest()
            assert snapshot is not None
            values = dict(_all_rows(actor, snapshot))
            batch = rows(bucket, key, value=str(int(values[key]) + 1))
            job = _write_job(actor, batch, name := f"{user}-{attempt}", snapshot)
            end = run_and_report(actor, name, batch, job, refusal=refusal)
            if end == ACKNOWLEDGED:
                actor.oracle.incremented(key)
            if end != REFUSED:
                return

    return run


def _all_rows(actor: Actor, snapshot: Snapshot) -> list[tuple[int, str]]:
    """The keys and values of the snapshot, read once for all runs that see the same."""
    # On object stores a snapshot repeats its manifest lists, so the names of the lists alone would not do as a key.
    read = functools.partial(_key_values, snapshot=snapshot)
    return cached_result(("all rows", snapshot.to_json()), actor.context, read)


def _write_job(
    actor: Actor, batch: BucketRows, user: str, read: Snapshot, *, overwrite: bool = False
) -> Callable[[], WriteSummary]:
    """A write of rows that were computed from the snapshot `read`."""
    source = _source(batch, False, actor.scenario)
    request = WriteRequest(
        FileRows((source,), "json"), op_column="_op", commit_user=user, overwrite=overwrite, read_snapshot=read.id
    )
    return functools.partial(run_write, actor.context, request, RealEngine(actor.disk, source), NoProgress())


def _key_values(context: TableContext, snapshot: Snapshot) -> list[tuple[int, str]]:
    """All rows of a snapshot, also those of level 0 that plain reads do not show, by key."""
    found: list[tuple[int, str]] = []
    for split in plan_scan(context.with_level_0(), snapshot).splits:
        for batch in read_split(context.with_level_0(), split, ("k", "v")):
            found += zip(batch.column("k").to_pylist(), batch.column("v").to_pylist(), strict=True)
    return sorted(found)


def _inserts(found: Sequence[tuple[int, str]]) -> BucketRows:
    return {0: [(key, RowKind.INSERT, value) for key, value in found]}


def real_incrementer(user: str, key: int) -> Job:
    """Increments a counter by `update --set "v = v + 1"`; the oracle counts the acknowledged increments."""

    def run(actor: Actor) -> None:
        request = UpdateRequest(f"k = {key}", ("v = v + 1",), commit_user=user)
        end = end_of(actor, lambda: run_update(actor.context, request, RealEngine(actor.disk), NoProgress()))
        if end == ACKNOWLEDGED:
            actor.oracle.incremented(key)

    return run
