"""How rows get their buckets (FORMAT.md, section 12; Java BucketMode): the only list of bucket modes.

The rest of the program asks for these properties, never for a mode.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from paimon_cli.metadata.table_layout import POSTPONE_BUCKET

DYNAMIC_BUCKET = -1
"""The value of the option `bucket` for buckets that writers choose, or for none."""


@dataclass(frozen=True)
class BucketMode:
    """How rows are assigned to buckets. No property has a default, so that a new mode must set each."""

    name: str
    text: str
    """What the table has, for messages."""
    has_buckets: bool
    """Otherwise rows belong to partitions alone: files have no order, any task may add some, and all numbers start at 0."""
    follows_from_row: bool
    """Whether a row and the number of buckets decide the bucket, without regard to other rows."""
    is_chosen_by_writers: bool
    """Whether writers choose the bucket of a new key, so that two of them may choose different ones."""
    indexes_keys: bool
    """Whether index files record the keys of each bucket."""
    moves_keys: bool
    """Whether a key may live in any partition, so that writers search all of them, and a row may leave its partition."""
    postpones: bool
    """Whether rows may wait in `bucket-postpone` until a compaction assigns their buckets."""


FIXED = BucketMode(
    name="fixed",
    text="a fixed number of buckets",
    has_buckets=True,
    follows_from_row=True,
    is_chosen_by_writers=False,
    indexes_keys=False,
    moves_keys=False,
    postpones=False,
)
DYNAMIC = BucketMode(
    name="dynamic",
    text="dynamic buckets",
    has_buckets=True,
    follows_from_row=False,
    is_chosen_by_writers=True,
    indexes_keys=True,
    moves_keys=False,
    postpones=False,
)
CROSS_PARTITION = BucketMode(
    name="cross_partition",
    text="dynamic buckets across partitions",
    has_buckets=True,
    follows_from_row=False,
    is_chosen_by_writers=True,
    indexes_keys=False,
    moves_keys=True,
    postpones=False,
)
POSTPONED = BucketMode(
    name="postponed",
    text="postponed buckets",
    has_buckets=True,
    follows_from_row=False,
    is_chosen_by_writers=False,
    indexes_keys=False,
    moves_keys=False,
    postpones=True,
)
UNAWARE = BucketMode(
    name="unaware",
    text="no buckets",
    has_buckets=False,
    follows_from_row=False,
    is_chosen_by_writers=False,
    indexes_keys=False,
    moves_keys=False,
    postpones=False,
)


def bucket_mode_of(primary_keys: Collection[str], partition_keys: Collection[str], bucket: int) -> BucketMode:
    """The mode of a table with these keys and this value of the option `bucket`."""
    if bucket == POSTPONE_BUCKET:
        return POSTPONED
    if bucket != DYNAMIC_BUCKET:
        return FIXED
    if not primary_keys:
        return UNAWARE
    return DYNAMIC if set(partition_keys) <= set(primary_keys) else CROSS_PARTITION
