"""What actors do: the shipped jobs, with the oracle told what they want and how they ended."""

from __future__ import annotations

from collections.abc import Callable

from paimon_cli.errors import CommitUnknown, Conflict, DamagedFile, NotFound, StorageUnavailable
from paimon_cli.jobs.compact_job import CompactRequest, run_compact
from paimon_cli.jobs.progress import NoProgress
from paimon_cli.jobs.write_job import WriteRequest, run_write
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.retention import Retention
from tests.simulation.actor import Actor, Job
from tests.simulation.oracle import ACKNOWLEDGED, REFUSED, UNKNOWN
from tests.simulation.paper_files import INSERT, BucketRows, PaperEngine

BATCH = 2**63 - 1


def rows(bucket: int, *keys: int, value: str = "", kind: int = INSERT) -> BucketRows:
    """Rows of one bucket; the value defaults to the key's own text."""
    return {bucket: [(key, kind, value or f"v{key}") for key in keys]}


def writer(user: str, *batches: BucketRows, repeatable: bool = False) -> Job:
    """One `write` after the other."""

    def run(actor: Actor) -> None:
        for number, batch in enumerate(batches, 1):
            identifier = number if repeatable else BATCH - number
            _commit(actor, f"{user}-{number}" if not repeatable else user, identifier, batch, repeatable)

    return run


def _commit(actor: Actor, user: str, identifier: int, batch: BucketRows, repeatable: bool) -> None:
    request = WriteRequest((), commit_user=user, commit_id=identifier if repeatable else None)
    known = identifier if repeatable else BATCH
    actor.run.oracle.wants(user, known, batch)
    _settle(actor, user, known, lambda: run_write(actor.context, request, PaperEngine(batch), NoProgress()))


def compactor(strategy: str = "full", rounds: int = 1, on_conflict: str = "retry") -> Job:
    """`compact`, as often as told."""

    def run(actor: Actor) -> None:
        for _ in range(rounds):
            request = CompactRequest(strategy=strategy, on_conflict=on_conflict)
            _settle(actor, "", 0, lambda: run_compact(actor.context, request, PaperEngine(), NoProgress()))

    return run


def _settle(actor: Actor, user: str, identifier: int, job: Callable[[], object]) -> None:
    """Run and tell how it ended. Errors that only an expiry or an outage explains are refusals there, else failures."""
    oracle, scenario = actor.run.oracle, actor.run.scenario
    try:
        job()
        end = ACKNOWLEDGED
    except Conflict:
        end = REFUSED
    except StorageUnavailable as error:
        end = REFUSED
        if not actor.had_outage:
            oracle.failed(actor, error)
    except CommitUnknown as error:
        end = UNKNOWN
        if not actor.had_outage:
            oracle.failed(actor, error)
    except (NotFound, DamagedFile) as error:
        end = REFUSED
        if not scenario.files_vanish:
            oracle.failed(actor, error)
    if user:
        oracle.ended(user, identifier, end)


def expirer(keep: int = 1, limit: int | None = None) -> Job:
    """Expire all snapshots but the newest `keep`, whatever their age."""

    def run(actor: Actor) -> None:
        retention = Retention(at_least=keep, at_most=keep, millis=0, limit=limit)
        _settle(actor, "", 0, lambda: expire_snapshots(actor.context, retention))

    return run


def tagger(name: str, snapshot_id: int) -> Job:
    """Tag a snapshot, and take the tag back if the snapshot went meanwhile."""

    def run(actor: Actor) -> None:
        storage, layout = actor.context.storage, actor.context.layout
        path = layout.snapshot(snapshot_id)
        try:
            content = storage.read_bytes(path)
        except FileNotFoundError:
            return
        storage.put_if_absent(layout.tag(name), content)
        if not storage.exists(path):
            storage.delete(layout.tag(name))

    return run


def in_turn(*jobs: Job) -> Job:
    """One actor that does several things."""

    def run(actor: Actor) -> None:
        for job in jobs:
            job(actor)

    return run

