"""The operations that faults are tried on: what each does to a table, and how to see in the table that it was done."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from paimon_cli.bucket.stamped_files import delete_stamped_files
from paimon_cli.catalog.create_table import create_table
from paimon_cli.catalog.table_definition import TableDefinition
from paimon_cli.catalog.table_location import TableLocation
from paimon_cli.commit.commit_messages import removed_on_refusal
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.compact.bucket_compactor import run_compaction
from paimon_cli.compact.compaction_task import CompactionTask
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.history.schema_history import SchemaHistory
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.engine import LocalEngine, NoProgress, TasksFailed
from paimon_cli.jobs.metadata_jobs import run_restore
from paimon_cli.jobs.round_plan import plan_compaction
from paimon_cli.jobs.staging.stage_commit import StagedWrite, Together, commit_staged
from paimon_cli.jobs.staging.stage_job import StageFile, stage_write
from paimon_cli.jobs.table_change import write_files
from paimon_cli.jobs.update_job import UpdateRequest, run_update
from paimon_cli.jobs.write_request import WriteRequest, plan_write
from paimon_cli.maintain.branches import fast_forward, plan_fast_forward
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.file_deletion import delete_files
from paimon_cli.maintain.orphans import find_orphans, remove_orphans
from paimon_cli.maintain.retention import Retention
from paimon_cli.maintain.rollback import plan_rollback, roll_back, rollback_target
from paimon_cli.maintain.tags import create_tag
from paimon_cli.metadata.data_file import CommitMessage
from paimon_cli.metadata.snapshot import OVERWRITE
from paimon_cli.options.choices import WriterOrder
from paimon_cli.storage.catalog_options import LockSettings
from paimon_cli.storage.commit_lock import CommitLock
from paimon_cli.storage.guarded_storage import GuardedStorage
from paimon_cli.storage.storage import Storage
from tests.faults import removals, table_kinds
from tests.faults.bench import Actor, Rows
from tests.faults.operation import (
    IDENTIFIER,
    RIVALS,
    USER,
    Operation,
    times_anonymous,
    times_compacted,
    times_job,
    write_of,
)
from tests.faults.start_tables import (
    LITTER,
    branched,
    empty_table,
    littered,
    long_history,
    merging_table,
    parted,
    partitioned_table,
    two_writes,
    with_later_versions,
    without_hints,
)

CHANGES: dict[int, str | None] = {0: "job", 3: None, 6: "job", 7: "job"}
CHECKED = {"commit.data-conflict-check": "bucket"}
EAGER = {"num-sorted-run.compaction-trigger": "1", "num-sorted-run.stop-trigger": "2"}
FLUSHING = {"write-buffer-size": "1 b", "write-buffer-spillable": "false"}


def changed(rows: Rows, changes: Mapping[int, str | None]) -> Rows:
    after = {**rows, **changes}
    return {key: value for key, value in after.items() if value is not None}


def write_job(actor: Actor, options: Mapping[str, str] | None = None) -> None:
    actor.write(CHANGES, options, commit_user=USER, commit_id=IDENTIFIER)


def write_checked(actor: Actor) -> None:
    write_job(actor, CHECKED)


def write_inline(actor: Actor) -> None:
    """One commit of two snapshots: the rows, and the compaction that they trigger in their writer."""
    write_job(actor, EAGER)


def write_inline_over_compactions(actor: Actor) -> None:
    """Each flush is compacted at once: files that no snapshot ever names are created and deleted."""
    write_job(actor, {**EAGER, **FLUSHING})


def write_under_lock(actor: Actor) -> None:
    """On a store without a primitive of its own: look, then write, both under a lock."""
    with tempfile.TemporaryDirectory() as folder:
        lock = CommitLock(LockSettings(f"jdbc:sqlite:{folder}/locks.db"), actor.bench.root, actor.clock, actor.random)
        storage = GuardedStorage(actor.storage, actor.bench.root, lock, random=actor.random)
        storage.__dict__["_has_primitive"] = False
        write_job(Actor(actor.bench, storage, actor.life))


@dataclass(frozen=True)
class _StageFile(StageFile):
    """A staged commit on the storage of an actor, beside the table."""

    storage: Storage

    def _location(self) -> tuple[Storage, str]:
        return self.storage, self.name


def stage_and_commit(actor: Actor) -> None:
    """Both phases of a write, or the rest of them."""
    file = _StageFile(f"{actor.bench.base}/staged/job.json", actor.storage)
    context = actor.context()
    if not file.exists():
        source = actor.bench.source(CHANGES, False)
        request = WriteRequest(FileRows((source,), "json"), op_column="_op", commit_user=USER, commit_id=IDENTIFIER)
        stage_write(context, request, file, LocalEngine(), NoProgress())
    commit_staged(context, [StagedWrite(file, file.read())], Together(), LocalEngine(), NoProgress())


def stage_several_and_commit(actor: Actor) -> None:
    """Two writers, whose rows get an order, and one committer; or the rest of that."""
    context, writes = actor.context(), []
    earlier: dict[int, str | None] = dict.fromkeys(CHANGES, "earlier")
    for number, rows in enumerate((earlier, CHANGES)):
        file = _StageFile(f"{actor.bench.base}/staged/{number}.json", actor.storage)
        if not file.exists():
            rows_of = FileRows((actor.bench.source(rows, False),), "json")
            request = WriteRequest(rows_of, op_column="_op", commit_user=f"{USER}-{number}", commit_id=IDENTIFIER)
            stage_write(context, request, file, LocalEngine(), NoProgress())
        writes.append(StagedWrite(file, file.read()))
    commit_staged(context, writes, Together(WriterOrder.GIVEN, CommitIdentity(USER, IDENTIFIER)), LocalEngine(), NoProgress())


def write_anonymously(actor: Actor) -> None:
    actor.write(CHANGES)


def overwrite_all(actor: Actor) -> None:
    actor.write({8: "job", 9: "job"}, commit_user=USER, commit_id=IDENTIFIER, overwrite=True)


def overwrite_partition(actor: Actor) -> None:
    actor.write({8: "job"}, commit_user=USER, commit_id=IDENTIFIER, overwrite=True, partition={"p": "0"})


def odd_rows_and_8(rows: Rows) -> Rows:
    return {8: "job", **{k: v for k, v in rows.items() if k % 2}}


def update(actor: Actor) -> None:
    request = UpdateRequest("k >= 2", ("v = v || '!'",), commit_user=USER, commit_id=IDENTIFIER)
    run_update(actor.context(), request, LocalEngine(), NoProgress())


def updated(rows: Rows) -> Rows:
    return {k: v + "!" if k >= 2 else v for k, v in rows.items()}


def compaction(actor: Actor) -> None:
    actor.compact()


def write_and_compact(actor: Actor) -> None:
    """One commit of two snapshots."""
    context, engine = actor.context(), LocalEngine()
    committer, identity = Committer(context), CommitIdentity(USER, IDENTIFIER)
    if committer.is_committed(identity):
        return
    source = actor.bench.source(CHANGES, False)
    plan = plan_write(context, WriteRequest(FileRows((source,), "json"), op_column="_op"))
    messages = write_files(plan, engine, NoProgress()).messages
    with removed_on_refusal(context, messages):
        tasks = plan_compaction(context, CompactRequest(), "0123456789abcdef").tasks
        messages += _compacted(context, tasks)
    with removed_on_refusal(context, messages):
        committer.commit(messages, identity)


def _compacted(context: TableContext, tasks: list[CompactionTask]) -> list[CommitMessage]:
    try:
        return LocalEngine().run_tasks(functools.partial(run_compaction, context), tasks)
    except TasksFailed as failure:
        delete_stamped_files(context, tasks[0].file_stamp)
        raise failure.error from failure


def create(actor: Actor) -> None:
    columns = (DataField(0, "k", parse_type("INT NOT NULL")), DataField(1, "v", parse_type("STRING")))
    definition = TableDefinition(columns, ("k",), options={"bucket": "2"}, if_not_exists=actor.life > 0)
    create_table(_Location(actor.bench.root, "t", storage=actor.storage), definition, actor.clock)


@dataclass(frozen=True)
class _Location(TableLocation):
    """A table on the storage of an actor."""

    storage: Storage | None = None

    def open_storage(self) -> tuple[Storage, str]:
        assert self.storage is not None
        return self.storage, self.url


def times_created(actor: Actor) -> int:
    return len(SchemaHistory(actor.storage, actor.bench.layout).ids())


def alter(actor: Actor) -> None:
    """A new schema, as the next one unless it exists already."""
    context = actor.context()
    if "comment" not in context.schema.options:
        altered = replace(context.schema, id=context.schema.id + 1, options={**context.schema.options, "comment": USER})
        if not context.schemas.commit(altered):
            raise AssertionError("no other job makes schemas here")


def times_altered(actor: Actor) -> int:
    return len(actor.context().schemas.ids()) - 1


def expire(actor: Actor) -> None:
    expire_snapshots(actor.context(), Retention(at_least=2, at_most=2, millis=0, limit=None))


def is_expired(actor: Actor) -> int:
    return int(len(actor.context().snapshots.ids()) == 2)


def rollback(actor: Actor) -> None:
    context = actor.context()
    roll_back(context, plan_rollback(context, rollback_target(context, 3)), delete_files(context))


def is_rolled_back(actor: Actor) -> int:
    return int(actor.context().snapshots.latest_id() == 3)


def restore(actor: Actor) -> None:
    """Publish the rows of an earlier snapshot as a new one, unless that has been done."""
    context = actor.context()
    if not is_restored(actor):
        run_restore(context, context.snapshots.get(3), LocalEngine(), NoProgress())


def is_restored(actor: Actor) -> int:
    latest = actor.context().snapshots.latest()
    return int(latest is not None and latest.commit_kind == OVERWRITE)


def forward(actor: Actor) -> None:
    context = actor.context()
    fast_forward(context, plan_fast_forward(context, "b"), delete_files(context))


def is_forward(actor: Actor) -> int:
    return sum(snapshot.commit_user == "branch" for snapshot in actor.context().snapshots.newest_first())


def rows_of_branch(rows: Rows) -> Rows:
    return {**{k: v for k, v in rows.items() if k != 9}, 8: "branch"}


def clean(actor: Actor) -> None:
    """No other job writes, so all files count as old."""
    context = actor.context()
    remove_orphans(context, find_orphans(context, 1 << 60, force=True), delete_files(context))


def is_clean(actor: Actor) -> int:
    return int(not any(actor.bench.inner.exists(f"{actor.bench.root}/{path}") for path in LITTER))


def tag(actor: Actor) -> None:
    context = actor.context()
    if context.tags.find("made") is None:
        create_tag(context, "made", 1)


def is_tagged(actor: Actor) -> int:
    return int(actor.context().tags.find("made") is not None)


def _version_operations() -> list[Operation]:
    """What rewrites the history."""
    earlier: dict[str, Any] = {"start": with_later_versions, "effect": lambda rows: {**rows, 1: "a"}}
    forwards: dict[str, Any] = {"act": forward, "done": is_forward, "effect": rows_of_branch, "is_gradual": True}
    return [
        Operation("rollback", act=rollback, done=is_rolled_back, is_gradual=True, reopens_records=True, **earlier),
        Operation("restore", act=restore, done=is_restored, **earlier),
        Operation("fast-forward", branched, **forwards),
        Operation("fast-forward-over-main", parted, **forwards),
        *_removals(),
        Operation("orphans", littered, clean, is_clean, is_gradual=True),
        Operation("tag", two_writes, tag, is_tagged),
    ]


def _removals() -> list[Operation]:
    drops: dict[str, Any] = {"done": removals.times_dropped}
    chain: dict[str, Any] = {"act": removals.repair_chain, "done": removals.is_repaired}
    forgets: dict[str, Any] = {"act": removals.forget_changelogs, "done": removals.is_forgotten}
    found = [
        Operation("drop-partition", partitioned_table, removals.drop_partition, effect=_of_odd_keys, **drops),
        Operation("truncate", two_writes, removals.truncate, effect=lambda rows: {}, **drops),
    ]
    return found + [
        replace(operation, is_gradual=True)
        for operation in (
            Operation("tag-rm", removals.with_an_old_tag, removals.remove_old_tag, removals.is_untagged),
            Operation("branch", long_history, removals.branch_off, removals.is_branched),
            Operation("branch-rm", parted, removals.remove_the_branch, removals.is_pruned, leaves_orphans=True),
            Operation("repair-chain", removals.without_snapshot_2, **chain, leaves_orphans=True),
            Operation("expire-changelogs", removals.with_changelogs, **forgets),
        )
    ]


def _of_odd_keys(rows: Rows) -> Rows:
    return {k: v for k, v in rows.items() if k % 2}


def _operations() -> list[Operation]:
    changes: dict[str, Any] = {"done": times_job, "effect": lambda rows: changed(rows, CHANGES)}
    rival: dict[str, Any] = {"rival": write_of, "rival_effect": lambda rows: changed(rows, RIVALS)}
    compacts: dict[str, Any] = {"act": compaction, "done": times_compacted, "may_be_needless": True}
    compacted: dict[str, Any] = {"rival": lambda bench: bench.healthy().compact()}
    updates: dict[str, Any] = {"act": update, "done": times_job, "effect": updated}
    tells_input = functools.partial(two_writes, options={"changelog-producer": "input"})
    looks_up = functools.partial(two_writes, options={"changelog-producer": "lookup"})
    looks_up_vectors = functools.partial(two_writes, options={"changelog-producer": "lookup", "deletion-vectors.enabled": "true"})
    tells_full = functools.partial(two_writes, options={"changelog-producer": "full-compaction"})
    full: dict[str, Any] = {**compacts, "act": lambda actor: actor.compact(strategy="full")}
    return [
        Operation("write-input-changelog", tells_input, write_job, **changes, **rival),
        Operation("update-input-changelog", tells_input, **updates),
        Operation("write-lookup-changelog", looks_up, write_job, **changes, is_gradual=True),
        Operation("write-lookup-changelog-after-compaction", looks_up, write_inline, **changes, **compacted, is_gradual=True),
        Operation("write-lookup-vectors", looks_up_vectors, write_job, **changes, is_gradual=True),
        Operation("compact-full-changelog", tells_full, **full, **rival),
        Operation("create", lambda bench: {}, create, times_created),
        Operation("write", two_writes, write_job, **changes),
        Operation("write-first", empty_table, write_job, **changes),
        Operation("write-without-hints", without_hints, write_job, **changes),
        Operation("write-merging-manifests", merging_table, write_job, **changes),
        Operation("write-after-rival", two_writes, write_job, **changes, **rival),
        Operation("write-checked-after-rival", two_writes, write_checked, **changes, **rival),
        Operation("write-inline", two_writes, write_inline, **changes, is_gradual=True),
        Operation("write-inline-many-flushes", two_writes, write_inline_over_compactions, **changes, is_gradual=True),
        Operation("write-inline-after-rival", two_writes, write_inline, **changes, **rival, is_gradual=True),
        Operation("write-inline-after-compaction", two_writes, write_inline, **changes, **compacted, is_gradual=True),
        Operation("write-under-lock", two_writes, write_under_lock, **changes),
        Operation("stage-and-commit", two_writes, stage_and_commit, **changes, is_gradual=True),
        Operation("stage-several-and-commit", two_writes, stage_several_and_commit, **changes, is_gradual=True),
        Operation("write-anonymous", two_writes, write_anonymously, **{**changes, "done": times_anonymous}, is_repeatable=False),
        Operation("write-and-compact", two_writes, write_and_compact, **changes, is_gradual=True),
        Operation("compact", two_writes, **compacts),
        Operation("compact-after-write", two_writes, **compacts, **rival),
        Operation("compact-after-compaction", two_writes, **compacts, rival=lambda bench: bench.healthy().compact()),
        Operation("overwrite", two_writes, overwrite_all, times_job, lambda rows: {8: "job", 9: "job"}),
        Operation("overwrite-partition", partitioned_table, overwrite_partition, times_job, odd_rows_and_8),
        Operation("update", two_writes, **updates),
        Operation("update-after-rival", two_writes, **updates, **rival),
        Operation("alter", two_writes, alter, times_altered),
        Operation("expire", long_history, expire, is_expired, is_gradual=True),
    ]


OPERATIONS = {operation.name: operation for operation in (*_operations(), *_version_operations(), *table_kinds.operations())}
