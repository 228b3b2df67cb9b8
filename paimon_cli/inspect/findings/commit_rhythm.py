"""How many files the recent commits of a table wrote, to how many buckets, and how often."""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from typing import NamedTuple

import numpy as np

from paimon_cli.errors import DamagedFile, NotFound
from paimon_cli.inspect.findings.examined_table import ExaminedTable
from paimon_cli.inspect.findings.finding import Figure
from paimon_cli.metadata.data_file import EntryKind
from paimon_cli.metadata.snapshot import Snapshot

DAY_MILLIS = 86_400_000
MIN_SEEN_MILLIS = 3_600_000
"""The shortest history from which a number of files per day is derived: a shorter one may be a burst of commits."""


def commit_rhythm(table: ExaminedTable) -> tuple[dict[str, Figure], str]:
    """Average files, buckets and partitions per commit, and the median time between commits: as figures and in words."""
    added = [commit for snapshot in table.writes if (commit := _added(table, snapshot)) is not None]
    if not added:
        return {}, ""
    commits = len(added)
    files = sum(commit.files for commit in added) / commits
    figures: dict[str, Figure] = {
        "commits_looked_at": commits,
        "files_per_commit": round(files, 1),
        "buckets_per_commit": round(sum(commit.buckets for commit in added) / commits, 1),
        "partitions_per_commit": round(sum(commit.partitions for commit in added) / commits, 1),
    }
    said = (
        f"; a commit adds {figures['files_per_commit']} files to {figures['buckets_per_commit']} buckets of "
        f"{figures['partitions_per_commit']} partitions"
    )
    times = [snapshot.time_millis for snapshot in table.writes]
    if len(times) < 2:
        return figures, said
    interval, seen = median(newer - older for newer, older in pairwise(times)), times[0] - times[-1]
    seconds, looked_at = round(interval / 1000, 1), round(seen / 1000, 1)
    figures |= {"commit_interval_seconds": seconds, "seconds_looked_at": looked_at}
    if seen < MIN_SEEN_MILLIS or interval <= 0:
        return figures, f"{said}; {commits} commits within {looked_at} s are too few for a daily rate"
    per_day = round(files * DAY_MILLIS / interval)
    return figures | {"files_per_day": per_day}, f"{said}, one every {seconds} s: {per_day:,} files a day"


class _Added(NamedTuple):
    """How many files a commit added, to how many buckets of how many partitions."""

    files: int
    buckets: int
    partitions: int


def _added(table: ExaminedTable, snapshot: Snapshot) -> _Added | None:
    """What a commit added, counted in columns; None if its manifests cannot be read."""
    try:
        entries = table.context.manifests.delta_table(snapshot)
        rows = np.flatnonzero(entries.numbers("kinds") == EntryKind.ADD)
        if not len(rows):
            return _Added(0, 0, 0)
        places = np.unique(np.stack([entries.codes[rows], entries.buckets[rows]]), axis=1)
        return _Added(len(rows), places.shape[1], len(np.unique(places[0])))
    except (DamagedFile, NotFound) as error:
        table.note_damage(error)
        return None
