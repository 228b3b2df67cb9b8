"""The same actors with nothing on paper: `write`, `compact`, `update` and `delete` with the local engine and real Parquet."""

from __future__ import annotations

import functools
import json

from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.jobs.compact_job import CompactRequest, run_compact
from paimon_cli.jobs.engine import NoProgress
from paimon_cli.jobs.engine_choice import LocalEngine
from paimon_cli.jobs.update_job import UpdateRequest, run_update
from paimon_cli.jobs.write_job import WriteRequest, run_write
from paimon_cli.lab.simulation.actor import Actor, Job, end_of, run_and_report
from paimon_cli.lab.simulation.oracle import ACKNOWLEDGED
from paimon_cli.lab.simulation.paper_files import BucketRows
from paimon_cli.storage.memory_storage import MemoryStorage

OPS = {0: "+I", 3: "-D"}


def real_writer(user: str, *batches: BucketRows, numbers: bool = False) -> Job:
    """One `write` of JSON rows after the other; the bucket that a row names means nothing here."""

    def run(actor: Actor) -> None:
        for number, batch in enumerate(batches, 1):
            request = WriteRequest(FileRows((_source(batch, numbers),), "json"), op_column="_op", commit_user=f"{user}-{number}")
            job = functools.partial(run_write, actor.context, request, LocalEngine(), NoProgress())
            run_and_report(actor, f"{user}-{number}", batch, job)

    return run


@functools.cache
def _source_of(content: bytes) -> str:
    path = f"memory://simulation/{hash(content):x}.jsonl"
    MemoryStorage().overwrite(path, content)
    return path


def _source(batch: BucketRows, numbers: bool) -> str:
    rows = [row for rows in batch.values() for row in rows]
    lines = [{"k": key, "v": int(value) if numbers else value, "_op": OPS[kind]} for key, kind, value in rows]
    return _source_of("".join(json.dumps(line) + "\n" for line in lines).encode())


def real_compactor() -> Job:
    """A full `compact`."""
    return lambda actor: _compact(actor)


def _compact(actor: Actor) -> None:
    end_of(actor, lambda: run_compact(actor.context, CompactRequest("full"), LocalEngine(), NoProgress()))


def real_incrementer(user: str, key: int) -> Job:
    """`update --set "v = v + 1"` adds one to a counter; the oracle counts what was acknowledged, the rows follow from it."""

    def run(actor: Actor) -> None:
        request = UpdateRequest(f"k = {key}", ("v = v + 1",), commit_user=user)
        end = end_of(actor, lambda: run_update(actor.context, request, LocalEngine(), NoProgress()))
        if end == ACKNOWLEDGED:
            actor.oracle.incremented(key)

    return run
