"""How a table has grown: the bytes that each day's commits added to its live files, and took from them.

Read from the snapshots that are retained. A file that only changed its level was neither added nor removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np

from paimon_cli.errors import DamagedFile
from paimon_cli.history.manifest_reader import SnapshotGone
from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.compaction_history import RewrittenFiles, rewritten_files
from paimon_cli.metadata.snapshot import COMPACT, Snapshot
from paimon_cli.storage.threads import in_parallel

MAX_GROWTH_SNAPSHOTS = 2_000
"""The most snapshots whose changes are read, the newest."""


@dataclass(frozen=True)
class GrowthRow:
    """What the commits of one day (UTC) did to the data files of the latest state, in bytes.

    `added_bytes`: of new files, of which compactions wrote `rewritten_bytes`; `removed_bytes`: of files that later states no
    longer have; they stay stored until their snapshots expire. So the live data grew by the difference, and storage by
    `added_bytes` until then.
    """

    table: str
    day: str
    commits: int
    added_bytes: int
    rewritten_bytes: int
    removed_bytes: int


Changes = tuple[Snapshot, RewrittenFiles | None]
"""A snapshot and what it changed; None if that cannot be read."""


def retained_changes(context: TableContext, limit: int = MAX_GROWTH_SNAPSHOTS) -> list[Changes]:
    """The newest snapshots and what each changed, newest first. Snapshots that cannot be read are left out."""
    damaged: list[DamagedFile] = []  # `verify` reports them
    newest = islice(context.snapshots.newest_first(on_damage=damaged.append), limit)
    return [*in_parallel(partial(_changes, context), newest, context.read_threads)]


def growth_by_day(retained: Iterable[Changes], name: str) -> list[GrowthRow]:
    """The growth of the table called `name`, oldest day first. Days without a commit have no row."""
    days: dict[np.datetime64, list[int]] = {}
    for snapshot, changes in retained:
        if changes is not None:
            day = days.setdefault(np.datetime64(snapshot.time_millis, "ms").astype("datetime64[D]"), [0, 0, 0, 0])
            rewritten = changes.bytes_after if snapshot.commit_kind == COMPACT else 0
            for number, figure in enumerate((1, changes.bytes_after, rewritten, changes.bytes_before)):
                day[number] += figure
    return [*_rows(name, days)]


def _rows(name: str, days: dict[np.datetime64, list[int]]) -> Iterator[GrowthRow]:
    for day in sorted(days):
        yield GrowthRow(name, str(day), *days[day])


def _changes(context: TableContext, snapshot: Snapshot) -> Changes:
    try:
        return snapshot, rewritten_files(context, snapshot)
    except (DamagedFile, SnapshotGone):
        return snapshot, None
