"""A rescale of a whole table that has not come to its end: its files have the new bucket count, the option has the old one.

The files are committed before the option changes, and both cannot happen at once. So the snapshot of a rescale records what it
makes of the option (FORMAT.md, section 3.2). If the run is killed in between, that shows what is left to do: a table whose option
somebody has changed, but none of whose files, has no such record. Partitions that a writer has begun with the old count, just
before the option changed, are left, too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from paimon_cli.history.live_files import BucketCounts
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import FileFilter
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.options.table_options import MAX_BUCKETS

RESCALE_PROPERTY = "paimon-cli.rescale"
"""Snapshot property: the option `bucket` before and after a rescale, as a JSON list of two numbers."""

LOOK_BACK_SNAPSHOTS = 200
"""How many snapshots are searched for that of a rescale. Until it is finished, writers are refused, so few can follow."""


def rescale_record(before: int, after: int) -> tuple[str, str]:
    """The property of a snapshot that is to change the option `bucket`; it stays as it is if both numbers are the same."""
    return RESCALE_PROPERTY, json.dumps([before, after])


@dataclass(frozen=True)
class UnfinishedRescale:
    """What is left of a rescale from `before` to `buckets`. `changes_option`: whether the option is still to become that.

    `partitions`: those whose files have another count.
    """

    before: int
    buckets: int
    changes_option: bool
    partitions: frozenset[bytes]


def unfinished_rescale(context: TableContext, counts: BucketCounts) -> UnfinishedRescale | None:
    """What is left of the latest rescale of the whole table; None if it has ended, or if its snapshot has expired, or is
    none of the latest.

    `counts`: the bucket counts in the files of each partition (`FileTable.bucket_counts`). Schemas and snapshots are read only if
    some of them differ from the option.
    """
    if not _others(counts, context.options.bucket):
        return None
    newest = context.schemas.newest_id(context.schema.id)
    option = context.schemas.get(newest).typed_options.bucket
    others = _others(counts, option)
    if not others or (record := _latest_record(context)) is None:
        return None
    snapshot, before, after = record
    if before == after or not 0 < after <= MAX_BUCKETS:
        return None
    if option == before and any(after in found for found in counts.values()):
        if any(_bucket_option(context, number) != before for number in range(snapshot.schema_id + 1, newest)):
            return None  # it was finished, and the owner has changed the option since
        return UnfinishedRescale(before, after, True, _others(counts, after))
    if option != after:
        return None
    begun = frozenset(partition for partition in others if before in counts[partition])
    begun -= context.manifests.live_files(snapshot, FileFilter(begun.__contains__)).bucket_counts().keys()
    return UnfinishedRescale(before, after, False, begun) if begun else None


def count_that_fits(context: TableContext, snapshot: Snapshot) -> int | None:
    """The bucket count to which `rescale` brings files and option if writers refuse the files of the snapshot, else None.

    That is the count of all files, so that only the option changes; if they have several, that of the option.
    """
    option = context.options.bucket
    if option < 1:
        return None
    counts = context.manifests.live_files(snapshot).bucket_counts()
    if not _others(counts, option):
        return None
    present = {count for found in counts.values() for count in found if count != 0}
    return present.pop() if len(present) == 1 and min(present) > 0 else option


def _bucket_option(context: TableContext, schema_id: int) -> int | None:
    schema = context.schemas.find(schema_id)
    return None if schema is None else schema.typed_options.bucket


def _others(counts: BucketCounts, buckets: int) -> frozenset[bytes]:
    """The partitions with files of another bucket count. Those that wait for a bucket have none."""
    none = (buckets, 0, POSTPONE_BUCKET)
    return frozenset(partition for partition, found in counts.items() if any(count not in none for count in found))


def _latest_record(context: TableContext) -> tuple[Snapshot, int, int] | None:
    """The latest snapshot of a rescale, and the option before and after it. What does not have the form of a record is none."""
    for snapshot in context.snapshots.newest_first(LOOK_BACK_SNAPSHOTS):
        text = (snapshot.properties or {}).get(RESCALE_PROPERTY)
        if text is None:
            continue
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(content, list) or [type(number) for number in content] != [int, int]:
            return None
        return snapshot, content[0], content[1]
    return None
