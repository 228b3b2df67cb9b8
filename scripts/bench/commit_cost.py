"""Commits of one file to tables of 100, 10,000 and 100,000 files: appends, compactions, and a whole `paimon-cli write`.

    python -m scripts.bench.commit_cost [--files 100 10000 100000] [--rounds 5]

The tables take turns, with 60 commits a round. The mean includes the cost of merging manifests in the long run; the median is the
cost of most commits. A process reads the manifests of its partitions only for its first commit, which is measured separately.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import fresh_identity
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import CommitMessage, FileChanges
from scripts.bench.cost_growth import Growth, cpu_of, cpu_of_process, in_turn
from scripts.bench.measure import MIN_ROUNDS
from scripts.bench.planned_table import BUCKETS, day_entries, day_of, generate

GOAL = 1.5
COMMITS = 60
OPTIONS = {"write-only": "true"}


class Table:
    """A table whose data files exist only in its manifests. Each commit has a new number."""

    def __init__(self, folder: Path, files: int) -> None:
        self.url = str(generate(folder, files, max(1, files // 1000), OPTIONS))
        self._context = TableContext.open(self.url)
        self._compacted = [entry for entry in day_entries(0, range(min(files, 1000))) if entry.file.level]
        self._next = 0

    def append(self) -> None:
        self._next += 1
        (entry, *_) = day_entries(0, range(10))
        file = replace(entry.file, file_name=f"data-append-{self._next}-0.parquet", level=0)
        self._commit(CommitMessage(entry.partition, entry.bucket, BUCKETS, append=FileChanges(added=(file,))))

    def compact(self) -> None:
        """Commit the replacement of one file by another with the same keys, which a later commit replaces in turn."""
        self._next += 1
        place = self._next % len(self._compacted)
        old = self._compacted[place]
        new = replace(old.file, file_name=f"data-compact-{self._next}-0.parquet")
        self._compacted[place] = replace(old, file=new)
        message = CommitMessage(old.partition, old.bucket, BUCKETS, compact=FileChanges(removed=(old.file,), added=(new,)))
        self._commit(message)

    def compact_first(self) -> None:
        """Commit like a process that has not read anything of the table."""
        self._context = TableContext.open(self.url)
        self.compact()

    def _commit(self, message: CommitMessage) -> None:
        Committer(self._context).commit([message], fresh_identity(self._context))


def committed(name: str, tables: Mapping[int, Table], commit: Callable[[Table], None], commits: int) -> list[Growth]:
    """The median and mean of this number of commits, after enough commits for one merge of manifests."""
    costs: dict[int, list[float]] = {files: [] for files in tables}
    for number in range(commits + COMMITS // 2):
        for files, table in tables.items():
            cost = cpu_of(partial(commit, table))
            costs[files] += [cost] if number >= COMMITS // 2 else []
    return [
        Growth(f"{name}, {kind.__name__}", "files", {files: kind(found) for files, found in costs.items()}, GOAL)
        for kind in (statistics.median, statistics.mean)
    ]


def written(url: str, source: Path) -> float:
    return cpu_of_process([sys.executable, "-m", "paimon_cli", "write", url, str(source), "--engine", "local"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, nargs="+", default=[100, 10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tables = {files: Table(Path(folder) / str(files), files) for files in arguments.files}
        source = Path(folder) / "row.parquet"
        row = {"dt": [day_of(0)], "id": [1], "a": pa.array([1], pa.int32()), "b": [1.0], "c": ["one"]}
        pq.write_table(pa.table(row), source)
        commits = COMMITS * arguments.rounds
        growths = committed("commit of an append", tables, Table.append, commits)
        growths += committed("commit of a compaction", tables, Table.compact, commits)
        met = [growth.print() for growth in growths]
        for growth in committed("first commit of a compaction in a process", tables, Table.compact_first, commits // 10):
            replace(growth, goal=None).print()
        writes = {files: partial(written, table.url, source) for files, table in tables.items()}
        met.append(Growth("paimon-cli write of a row", "files", in_turn(writes, arguments.rounds), GOAL).print())
    sys.exit(0 if all(met) else 1)


if __name__ == "__main__":
    main()
