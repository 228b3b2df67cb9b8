"""Moves the rows of a writer that are not committed yet to other buckets, if the bucket count of their partition has changed.

A writer plans with the bucket counts of the snapshot that it reads. If a partition has been split or merged since, or is new and
the table's option has changed, the check of its commit finds two counts (`CountConflict`). Its rows need not be written again:
each of its level-0 files is divided by the hash of its keys, or copied, and these files are committed instead. Compactions that
the writer made are dropped; others follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from paimon_cli.bucket.stamped_files import new_stamp
from paimon_cli.commit.files_conflict import newest_bucket_option
from paimon_cli.compact.bucket_regrouper import regroup_buckets, regroup_tasks
from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.bucket_regroup import can_regroup
from paimon_cli.jobs.table_change import NewFiles
from paimon_cli.metadata.data_file import CommitMessage, FileChanges, FileFilter

MOST_MOVES = 20
"""How often the rows of one write are moved. Counts change rarely, so that a second time is an exception already."""


def why_not_moved(context: TableContext) -> str | None:
    """Why rows of writers of this table cannot be moved to other buckets; None if they can."""
    mode = context.mode
    if not mode.has_keys or not mode.bucket_mode.has_buckets or context.options.bucket == -1:
        return "its rows are not in buckets by the hash of a key"
    if mode.deletion_vectors or mode.looks_up_old_rows:
        return "its writers look up or mark older rows in their buckets (deletion vectors, lookup, first-row)"
    if mode.changelog_producer.records_input:
        return "its writers record their input in changelog files by bucket (changelog producer input)"
    return None


def moved(context: TableContext, messages: Sequence[CommitMessage]) -> list[CommitMessage] | None:
    """The messages with their rows in the buckets that the partitions have now; None if they cannot be moved there.

    The files of `messages` stay. If it fails, no new file remains.
    """
    if why_not_moved(context) is not None:
        return None
    counts = _present_counts(context, {message.partition for message in messages})
    option = newest_bucket_option(context)
    wanted = {m.partition: counts.get(m.partition, option if option > 0 else m.total_buckets) for m in messages}
    if not all(can_regroup(context, message.total_buckets, wanted[message.partition]) for message in messages):
        return None
    stays = [m for m in messages if m.total_buckets == wanted[m.partition]]
    goes = [m for m in messages if m.total_buckets != wanted[m.partition] and m.append.added]
    new_files = NewFiles(context, new_stamp(context))
    with new_files.deleted_on_failure():
        return [*stays, *_regrouped(new_files, goes, wanted)]


def _regrouped(new_files: NewFiles, messages: Sequence[CommitMessage], counts: dict[bytes, int]) -> Iterator[CommitMessage]:
    held: dict[bytes, list[BucketFiles]] = {}
    written = {message.bucket_id: message for message in messages}
    for message in messages:
        held.setdefault(message.partition, []).append(
            BucketFiles(*message.bucket_id, message.total_buckets, message.append.added)
        )
    for partition, buckets in sorted(held.items()):
        for task in regroup_tasks(buckets, counts[partition], 0, new_files.stamp, merges=False):
            first = written[task.buckets[0].bucket_id]
            for made in regroup_buckets(new_files.context, task):
                if made.compact.added:
                    yield replace(
                        first, bucket=made.bucket, total_buckets=made.total_buckets, append=made.compact, compact=FileChanges()
                    )


def _present_counts(context: TableContext, partitions: set[bytes]) -> dict[bytes, int]:
    """The bucket count of each of these partitions that has exactly one."""
    live = bucket_files(context, context.snapshots.latest(), FileFilter(partitions.__contains__)).table.bucket_counts()
    fixed = {partition: {count for count in counts if count > 0} for partition, counts in live.items()}
    return {partition: counts.pop() for partition, counts in fixed.items() if len(counts) == 1}
