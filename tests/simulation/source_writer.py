"""Actors that write as `df.write.format("paimon")` and `writeStream` do, by the classes that Spark calls."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pyarrow as pa

from paimon_cli.commit.deduplication import BATCH_IDENTIFIER, CommitIdentity
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.write_request import WriteRequest, plan_write
from paimon_cli.lab.simulation.actor import Actor, Job
from paimon_cli.lab.simulation.actor_jobs import run_and_report
from paimon_cli.lab.simulation.json_files import BucketRows
from paimon_cli.lab.simulation.real_files import RealEngine, cached_result
from paimon_cli.lab.simulation.real_jobs import OPS
from paimon_cli.lab.simulation.scenario import Scenario
from paimon_cli.spark.source_writing import BATCH_DIGITS, StreamWriter, TaskMessage
from paimon_cli.spark.task_rows import FrameRows


def source_writer(user: str, *batches: BucketRows, repeatable: bool = False, overwrite: bool = False) -> Job:
    """Writes each batch with two tasks. `repeatable`: as a query whose batches have numbers, so that a restart continues.

    The table derives buckets from keys; the buckets of `batches` are for the oracle.
    """

    def run(actor: Actor) -> None:
        for number, batch in enumerate(batches, 1):
            name, identifier = (user, number) if repeatable else (f"{user}-{number}", BATCH_IDENTIFIER)
            identity = CommitIdentity(name, identifier)
            query = hashlib.sha256(f"{name} {number}".encode()).hexdigest()[:BATCH_DIGITS] if repeatable else ""

            def write(batch: BucketRows = batch, identity: CommitIdentity = identity, query: str = query) -> None:
                _write(actor, batch, identity, query, overwrite)

            run_and_report(actor, name, batch, write, identifier=identifier, overwrites=overwrite)

    return run


def _write(actor: Actor, batch: BucketRows, identity: CommitIdentity, query: str, overwrite: bool) -> None:
    """One write of a DataFrame in two partitions. If a task fails, Spark has the files of the others deleted."""
    request = WriteRequest(FrameRows(), op_column="_op", overwrite=overwrite, allow_empty=True, compact="none")
    plan = plan_write(actor.context, request, identity.user)
    writer = StreamWriter(plan, request, RealEngine(actor.disk, (identity, repr(batch))))
    messages: list[TaskMessage] = []
    try:
        for part in _partitions(batch, actor.scenario):
            messages.append(_task(writer, actor.scenario, part, query))
    except Exception:
        writer.delete_written([*messages, None])
        raise
    writer.commit_written(messages, identity)


def _task(writer: StreamWriter, scenario: Scenario, part: pa.RecordBatch, query: str) -> TaskMessage:
    plan = writer.plan
    key = ("task", scenario.name, plan.file_stamp, plan.read_snapshot_id, query, repr(part.to_pylist()))

    def run(recorded: TableContext) -> TaskMessage:
        return replace(writer, plan=replace(plan, context=recorded)).written(iter([part]), query, query)

    found: TaskMessage = cached_result(key, plan.context, run)
    return found


def _partitions(batch: BucketRows, scenario: Scenario) -> list[pa.RecordBatch]:
    """The rows in two halves, the first of which comes first."""
    rows = [(bucket, *row) for bucket, found in batch.items() for row in found]
    half = (len(rows) + 1) // 2
    parts = []
    for part in (rows[:half], rows[half:]):
        buckets, keys, kinds, values = (list(column) for column in zip(*part, strict=True)) if part else ([], [], [], [])
        partition = {"p": pa.array(buckets, pa.int32())} if scenario.partitioned else {}
        columns = {"k": pa.array(keys, pa.int32()), "v": pa.array(values, pa.string()), **partition}
        parts.append(pa.record_batch({**columns, "_op": pa.array([OPS[kind] for kind in kinds], pa.string())}))
    return parts
