"""`rescale --online`: another bucket count for a table with fixed buckets, while writers of paimon-cli go on.

The buckets are split or merged as by `rescale` (`bucket_regrouper`). What writers have committed by then is split, too, in a
round of its own that is much shorter, and so on until one commit finds nothing new; only a bucket that was compacted meanwhile is
read again. Writers that planned before move their own files (`moved_rows`). Writers of other engines would go on with the old
count, so tables to which they write are refused. A run that was killed has either committed nothing, or left the option to the
next run.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from paimon_cli.bucket.stamped_files import new_stamp
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity, fresh_identity
from paimon_cli.compact.bucket_regrouper import RegroupTask, regroup_tasks
from paimon_cli.errors import FilesConflict, NotSupported, Refused, StorageUnavailable, UsageError
from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.history.partition_spec import partition_text
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.bucket_regroup import can_regroup, run_regroup_tasks
from paimon_cli.jobs.engine import Engine, Progress
from paimon_cli.jobs.moved_rows import why_not_moved
from paimon_cli.jobs.table_change import NewFiles, expiry_noticed
from paimon_cli.metadata.data_file import CommitMessage
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.storage.redaction import shown_name

MOST_ROUNDS = 50
"""How often what was written meanwhile is split, before the command gives up."""


def others_were_faster(what: str) -> StorageUnavailable:
    """The error for a table that never was as it was planned, however often that was tried."""
    why = f"other jobs have written to it in each of {MOST_ROUNDS} rounds"
    return StorageUnavailable(what, why, "run the command again, or stop the writers for a moment")


def check_online(context: TableContext, present: int, total: int, counts: Mapping[bytes, int]) -> None:
    """Raise the error for a table that cannot be rescaled from `present` to `total` buckets while writers go on.

    `counts`: the bucket count of each partition that is to be rescaled.
    """
    name = context.layout.argument
    if present < 1:
        what = f"{context.address} has no fixed bucket count"
        why = (
            "its writers choose the bucket of each key, and maintain or compact --watch splits partitions with postponed buckets"
        )
        raise UsageError(f"{what}, so that --online has no meaning", why, f"paimon-cli buckets plan {name}")
    if (limit := why_not_moved(context)) is not None:
        hint = f"stop the writers, and run: paimon-cli rescale {name} --buckets {total} --yes"
        raise NotSupported(f"rescale --online of {context.address}", limit, hint)
    for partition, count in ((None, present), *counts.items()):
        if not can_regroup(context, count, total):
            where = "" if partition is None else partition_text(context, partition)
            what = f"--online from {count} to {total} buckets{f' in {where}' if where else ''}"
            why = f"{total} is neither a multiple nor a part of {count}, so that each row would have to be routed again"
            both = math.lcm(present, count)
            raise UsageError(what, why, f"choose {2 * present if both == present else both}, or stop the writers")
    refuse_foreign(context, 0)


def refuse_foreign(context: TableContext, after: int) -> None:
    """Raise `Refused` if a snapshot after this id was committed by another engine, whose writers may be running."""
    for snapshot in context.snapshots.newest_first():
        if snapshot.id <= after:
            return
        if not snapshot.is_ours:
            raise Refused(
                f"snapshot {snapshot.id} of {context.address} was committed by another engine",
                f"a writer of user {shown_name(snapshot.commit_user)} that is still running would commit with the old count, "
                "and keys would be read twice",
                "stop such writers and run without --online, or wait until that snapshot has expired",
                snapshot_id=snapshot.id,
                commit_user=shown_name(snapshot.commit_user),
            )


@dataclass
class OnlineRescale:
    """The rounds of one online rescale. `identity`: makes that of a commit. `done`: the tasks that were carried out, each with
    its messages.
    """

    context: TableContext
    buckets: int
    engine: Engine
    progress: Progress
    identity: Callable[[TableContext], CommitIdentity] = fresh_identity
    done: list[tuple[RegroupTask, tuple[CommitMessage, ...]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.new_files = NewFiles(self.context, new_stamp(self.context))

    def run(self) -> tuple[list[CommitMessage], tuple[Snapshot, ...]]:
        """Commit all partitions in their new buckets; returns what was committed. If it fails, no new file remains."""
        context, committer, checked = self.context, Committer(self.context), 0
        for _ in range(MOST_ROUNDS):
            with self.new_files.deleted_on_failure():
                latest = context.snapshots.latest_to_plan()
                refuse_foreign(context, checked)
                if latest is None or not self._catch_up(latest):
                    return [], ()
            checked = latest.id
            messages = [replace(message, read_snapshot_id=latest.id) for _, made in self.done for message in made]
            publish = functools.partial(committer.commit, messages, self.identity(context))
            try:
                return messages, self.new_files.commit(messages, publish, keep_on=FilesConflict).snapshots
            except FilesConflict:
                continue
        self.new_files.delete_all_but(())
        raise others_were_faster(f"the bucket count of {context.address} was not changed")

    def _catch_up(self, latest: Snapshot) -> bool:
        """Split or merge the files that no task has read yet, and forget tasks whose files others have replaced.

        Returns whether there is anything to commit.
        """
        live: dict[bytes, list[BucketFiles]] = {}
        names: set[tuple[str, int]] = set()
        for bucket in bucket_files(self.context, latest).values():
            if bucket.total_buckets != self.buckets:
                live.setdefault(bucket.partition, []).append(bucket)
                names.update((file.file_name, file.level) for file in bucket.files)
        self.done = [(task, made) for task, made in self.done if {(f.file_name, f.level) for f in task.files} <= names]
        read = {file.file_name for task, _ in self.done for file in task.files}
        tasks = [
            task
            for _, buckets in sorted(live.items())
            if (left := _without(buckets, read))
            for task in regroup_tasks(left, self.buckets, latest.id, self.new_files.stamp, merges=not read)
        ]
        with expiry_noticed(self.context, latest.id):
            results = run_regroup_tasks(self.context, tasks, self.engine, self.progress)
        self.done += zip(tasks, results, strict=True)
        self.new_files.delete_all_but([message for _, made in self.done for message in made])
        return bool(self.done)


def _without(buckets: Sequence[BucketFiles], read: set[str]) -> list[BucketFiles]:
    """The buckets with those files that were not read yet."""
    left = (replace(bucket, files=tuple(file for file in bucket.files if file.file_name not in read)) for bucket in buckets)
    return [bucket for bucket in left if bucket.files]
