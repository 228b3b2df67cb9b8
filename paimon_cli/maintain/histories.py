"""Main may hold versions of two histories: after a fast-forward to a branch whose oldest snapshots had expired, its own older
snapshots and tags stay beside those of the branch. What one history has removed may be live in the other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from itertools import pairwise

from paimon_cli.errors import DamagedFile, NotFound
from paimon_cli.history.lineage import follows
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.removed_versions import ERASURE, unfinished_removals
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.storage.capabilities import ServesVersions
from paimon_cli.storage.threads import in_parallel


def behind_gaps(context: TableContext, expired: Collection[int] = ()) -> list[Snapshot]:
    """The snapshots that follow a gap in the history. Those before it may be of another one. `expired`: ids of snapshots that
    have just gone, which leave no gap.
    """
    ids = context.snapshots.ids()
    behind = [above for below, above in pairwise(sorted({*expired, *ids})) if above > below + 1]
    return [found for number in behind if number in ids and (found := context.snapshots.find(number)) is not None]


def without_snapshot(context: TableContext, tags: Sequence[Snapshot]) -> list[Snapshot]:
    """The tags whose number is that of another snapshot, or of none: the history does not tell what they need."""
    found = in_parallel(lambda tag: context.snapshots.find(tag.id), tags, context.read_threads)
    return [tag for tag, snapshot in zip(tags, found, strict=True) if snapshot is None or snapshot.origin != tag.origin]


def false_neighbour(context: TableContext, first: Snapshot) -> int | None:
    """The id of the snapshot before `first`, which comes from elsewhere, if that was built on another one, which has expired.
    Also after a command that was killed before it removed this one. While files are being erased, versions differ by that.
    """
    if unfinished_removals(context, ERASURE):
        return None
    before = None if first.id == 1 or isinstance(context.storage, ServesVersions) else context.snapshots.find(first.id - 1)
    if before is None:
        return None
    with contextlib.suppress(DamagedFile, NotFound):
        return None if follows(context, before, context, first) else before.id
    return None  # what cannot be read is left as it is
