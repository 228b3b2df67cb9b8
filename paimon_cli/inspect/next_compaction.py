"""What a minor compaction would do to each bucket: the answer that reports and findings share with `compact --dry-run`."""

from __future__ import annotations

from collections.abc import Collection

from paimon_cli.compact.compaction_plan import MINOR_STRATEGY, plan_bucket
from paimon_cli.compact.compaction_task import Decision, left_to_expiry
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.expire_partitions import expiring_partitions
from paimon_cli.metadata.data_file import BucketId


def next_compactions(context: TableContext, buckets: Collection[BucketFiles], snapshot_id: int) -> dict[BucketId, Decision]:
    """The decision about each bucket, by the triggers of the table; the table must be one that this version can compact."""
    expiring = expiring_partitions(context, {bucket.partition for bucket in buckets})
    return {
        bucket.bucket_id: left_to_expiry(bucket)
        if bucket.partition in expiring
        else plan_bucket(context, bucket, MINOR_STRATEGY, snapshot_id)
        for bucket in buckets
    }
