"""`expire` and `orphans`: plan what a table no longer needs, then show or delete exactly that.

1. plan which snapshots, changelogs, tags, consumers or partitions have expired (`plan_expire`), or look for orphans
   (`search_orphans`).
2. list the files that only these need (`Expiry.files`, `orphan_rows`); a dry run ends here.
3. remove the versions, oldest first, and then their files (`Expiry.run`), or the orphans (`clean_orphans`). What is needed is
   determined again before files are deleted; `maintain/expire_snapshots` explains the order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from paimon_cli.errors import UsageError
from paimon_cli.history.partition_spec import partition_text
from paimon_cli.history.points_in_time import past_millis
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.engine import Engine, Progress, Work, phase
from paimon_cli.jobs.engine_choice import LOCAL
from paimon_cli.maintain.expire_changelogs import (
    changelog_retention,
    expire_changelogs,
    files_removed_with_changelogs,
    plan_changelogs,
)
from paimon_cli.maintain.expire_partitions import PartitionPlan, expire_partitions, plan_partitions
from paimon_cli.maintain.expire_snapshots import bytes_to_write, carry_out, files_to_delete_now, plan_expiry
from paimon_cli.maintain.file_deletion import DeleteFiles, check_deletions, delete_files, delete_portion
from paimon_cli.maintain.named_files import FileToDelete, measured
from paimon_cli.maintain.orphan_origin import origins
from paimon_cli.maintain.orphans import Orphans, SetAside, find_orphans, remove_orphans
from paimon_cli.maintain.retention import (
    Consumer,
    Retention,
    expire_consumers,
    expired_consumers,
    expiring_range,
    holding_consumer,
)
from paimon_cli.maintain.tags import expired_tags, files_removed_with_tags, plan_removal, remove_tags
from paimon_cli.pieces import PIECES
from paimon_cli.requests.maintenance import ExpireOptions
from paimon_cli.storage.deletions import Deletions
from paimon_cli.storage.storage_for_url import storage_for_url

DELETIONS_PER_READ = 100
"""How many deletions cost about as much as reading one file."""


def deletion(context: TableContext, engine: Engine | None, progress: Progress) -> DeleteFiles:
    """A function that deletes files: as engine tasks if `engine` is Spark or chooses it, else in threads of this process.

    A task that runs twice finds its files already deleted, which is not an error.
    """

    def delete(paths: Iterable[str]) -> int:
        files = list(paths)
        if engine is not None:
            engine.prepare(Work(files=len(files) // DELETIONS_PER_READ), progress)
        with phase(progress, "Deleting files", len(files)):
            if engine is None or engine.name == LOCAL:
                return delete_files(context, progress.advance)(files)
            portions = [
                tuple(files[start : start + PIECES.reclaimed_task_files])
                for start in range(0, len(files), PIECES.reclaimed_task_files)
            ]
            done = Deletions()
            for of_portion in engine.run_tasks(
                functools.partial(delete_portion, context.storage), portions, lambda part: progress.advance(part.deleted)
            ):
                done.add(of_portion)
            return check_deletions(context, done)

    return delete


EXPIRED_KINDS = SNAPSHOTS, PARTITIONS, CHANGELOGS, TAGS, CONSUMERS = "snapshots", "partitions", "changelogs", "tags", "consumers"


@dataclass(frozen=True)
class Expired:
    """The result: ids or names that were removed, deleted files, their known bytes, and the snapshot if one was committed.

    `requests`: to an object store, by this process, with those of the plan; `delete_requests` of them delete.
    """

    what: str
    removed: tuple[str, ...]
    files: int = 0
    size: int | None = None
    snapshot: int | None = None
    requests: int | None = None
    delete_requests: int | None = None


@dataclass(frozen=True)
class Expiry:
    """A planned expiry: the ids or names to expire, and exactly the `files` that `run` will delete.

    `before`: what is older than this expires, in epoch millis, if the request named a time. `held_by`: the consumer without
    which snapshots would expire, if none do. `written`: the bytes of the changelogs that `run` writes in place of snapshots.
    """

    what: str
    names: tuple[str, ...]
    files: Callable[[], list[FileToDelete]]
    delete: Callable[[DeleteFiles], Expired]
    before: int | None = None
    held_by: Callable[[], Consumer | None] = lambda: None
    written: Callable[[], int] = lambda: 0

    def run(self, delete: DeleteFiles) -> Expired:
        """Delete and count what `files` lists. Expired partitions keep their files until their snapshots expire."""
        files = self.files()
        expired = self.delete(delete)
        if self.what == PARTITIONS:
            return expired
        deleted = files if expired.removed else []
        return replace(expired, files=len(deleted), size=sum(file.size or 0 for file in deleted))


def plan_expire(
    context: TableContext, request: ExpireOptions, progress: Progress, limit_of_tag: Callable[[int], int] = lambda own: own
) -> Expiry:
    """Plan an expiry. Changes nothing, except that a missing EARLIEST hint is written if there is nothing to expire.

    `limit_of_tag`: see `expired_tags`.
    """
    before = None if request.older_than is None else past_millis(context, request.older_than)
    plans: dict[str, Callable[[TableContext, ExpireOptions, int | None, Progress], Expiry]] = {
        SNAPSHOTS: _snapshots,
        PARTITIONS: _partitions,
        CHANGELOGS: _changelogs,
        TAGS: functools.partial(_tags, limit_of=limit_of_tag),
        CONSUMERS: _consumers,
    }
    return replace(plans[request.what](context, request, before, progress), before=before)


def _retention(context: TableContext, own: Retention, request: ExpireOptions, before: int | None) -> Retention:
    return own.asking(context, request.retain_max, request.retain_min, before, request.limit)


def _snapshots(context: TableContext, request: ExpireOptions, before: int | None, progress: Progress) -> Expiry:
    retention = _retention(context, Retention.of(context.options), request, before)
    with phase(progress, "Reading snapshots", len(expiring_range(context, retention))):
        plan = plan_expiry(context, retention, progress.advance)
    names = () if plan is None else tuple(map(str, plan.snapshot_ids))

    def files() -> list[FileToDelete]:
        return [] if plan is None else measured(context, files_to_delete_now(context, plan))

    def run(delete: DeleteFiles) -> Expired:
        return Expired(SNAPSHOTS, tuple(map(str, carry_out(context, plan, delete).snapshots)))

    def written() -> int:
        return 0 if plan is None else bytes_to_write(context, plan)

    held_by = functools.partial(holding_consumer, context, retention)
    return Expiry(SNAPSHOTS, names, files, run, held_by=held_by, written=written)


def _changelogs(context: TableContext, request: ExpireOptions, before: int | None, progress: Progress) -> Expiry:
    plan = plan_changelogs(context, _retention(context, changelog_retention(context), request, before))
    names = () if plan is None else tuple(map(str, plan.ids))

    def files() -> list[FileToDelete]:
        return [] if plan is None else measured(context, files_removed_with_changelogs(context, plan))

    def run(delete: DeleteFiles) -> Expired:
        if plan is not None:
            expire_changelogs(context, plan, delete)
        return Expired(CHANGELOGS, names)

    return Expiry(CHANGELOGS, names, files, run)


def _tags(
    context: TableContext, request: ExpireOptions, before: int | None, progress: Progress, limit_of: Callable[[int], int]
) -> Expiry:
    removal = plan_removal(context, expired_tags(context, before, limit_of)[: request.limit])

    def files() -> list[FileToDelete]:
        tags = [FileToDelete(context.layout.tag(name), "tag") for name in removal.names]
        return measured(context, [*tags, *files_removed_with_tags(context, removal)])

    def run(delete: DeleteFiles) -> Expired:
        remove_tags(context, removal, delete)
        return Expired(TAGS, removal.affected)

    return Expiry(TAGS, removal.affected, files, run)


def _consumers(context: TableContext, request: ExpireOptions, before: int | None, progress: Progress) -> Expiry:
    names = tuple(consumer.name for consumer in expired_consumers(context, before))

    def files() -> list[FileToDelete]:
        return measured(context, [FileToDelete(context.layout.consumer(name), "consumer") for name in names])

    def run(delete: DeleteFiles) -> Expired:
        return Expired(CONSUMERS, tuple(consumer.name for consumer in expire_consumers(context, before)))

    return Expiry(CONSUMERS, names, files, run)


def _partitions(context: TableContext, request: ExpireOptions, before: int | None, progress: Progress) -> Expiry:
    def named(plan: PartitionPlan) -> tuple[str, ...]:
        return tuple(partition_text(context, found.partition) for found in plan.expired)

    plan = plan_partitions(context, before, request.limit)

    def files() -> list[FileToDelete]:
        paths = [context.layout.root + "/" + context.partition_path_of(found.partition) for found in plan.expired]
        return [FileToDelete(path.rstrip("/"), "partition", found.size) for path, found in zip(paths, plan.expired, strict=True)]

    def run(delete: DeleteFiles) -> Expired:
        done, result = expire_partitions(context, before, request.limit)
        snapshot = result.snapshots[-1].id if result.snapshots else None
        return Expired(PARTITIONS, named(done), snapshot=snapshot)

    return Expiry(PARTITIONS, named(plan), files, run)


@dataclass(frozen=True)
class OrphanRow:
    """An orphan or an empty directory. `path`: relative to the table; `modified`: epoch millis; `origin`: only if requested."""

    path: str
    kind: str
    size: int
    modified: int
    origin: str | None = None


def search_orphans(
    context: TableContext, older_than: int, force: bool, progress: Progress, external_paths: bool = False
) -> Orphans:
    with phase(progress, "Looking for orphans", None):
        return find_orphans(context, older_than, force, external_paths)


def orphan_rows(context: TableContext, orphans: Orphans, explain: bool) -> list[OrphanRow]:
    """The orphan files, then the empty directories. `explain`: find out where each file came from."""
    texts = origins(context, orphans.files, orphans.used) if explain else {}
    root = context.url + "/"
    rows = [OrphanRow(f.path.removeprefix(root), f.kind, f.size, f.modified_millis, texts.get(f.path)) for f in orphans.files]
    empty = [path for path in sorted(orphans.empty_directories) if not context.storage.list_directory(path)]
    return [*rows, *(OrphanRow(path.removeprefix(root) + "/", "empty directory", 0, orphans.older_than) for path in empty)]


def clean_orphans(
    context: TableContext, orphans: Orphans, quarantine: str | None, engine: Engine | None, progress: Progress
) -> tuple[int, int]:
    """Delete the orphans, after copying them to `quarantine` if given; returns the number of files and their bytes."""
    keep = None if quarantine is None else _set_aside(context, quarantine)
    deleted = remove_orphans(context, orphans, deletion(context, engine, progress), keep)
    return len(deleted), sum(file.size for file in deleted)


def _set_aside(context: TableContext, quarantine: str) -> SetAside:
    """A function that copies a file to the same relative path in the quarantine, replacing an earlier copy. Files from other
    places go to `external`: their names are unique.

    Raises `UsageError` for a directory inside the table.
    """
    storage, directory = storage_for_url(quarantine)
    if f"{directory.rstrip('/')}/".startswith(f"{context.url}/"):
        raise UsageError(f"{quarantine} is inside the table", "the copies would be orphans too", "choose another directory")

    def copy(path: str) -> None:
        inside = path.startswith(f"{context.url}/")
        target = directory + (path.removeprefix(context.url) if inside else f"/external/{path.rpartition('/')[2]}")
        storage.delete(target)
        try:
            source = context.storage.open_input(path)
        except FileNotFoundError:
            return
        with source, storage.open_output(target) as sink:
            while block := source.read(PIECES.copied_bytes):
                sink.write(block)

    return copy
