"""Increments of random histories against lists of what each commit added and what each version held."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paimon_cli.errors import NotFound
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.retention import Retention
from paimon_cli.maintain.tags import create_tag
from paimon_cli.metadata.snapshot import APPEND, COMPACT, OVERWRITE
from tests.read.test_increments import changes
from tests.tables import compact, make_table, write

Row = dict[str, Any]
Changes = list[tuple[str, Row]]
COLUMNS = {"p": "INT NOT NULL", "k": "INT NOT NULL", "v": "STRING"}
FORMATS = ("parquet", "orc", "avro")


@dataclass(frozen=True)
class Version:
    """A snapshot: its kind, what its commit added, and the rows of the table by key."""

    kind: str
    brought: Changes
    rows: dict[tuple[int, int], Row]


@dataclass
class IncrementTrial:
    """A table of two partitions and the versions that it must have; `versions[0]` is the empty table."""

    folder: Path
    dice: random.Random
    context: TableContext = field(init=False)
    versions: list[Version] = field(init=False)
    earliest: int = 1

    def __post_init__(self) -> None:
        options = {
            "write-only": "true",
            "file.format": self.dice.choice(FORMATS),
            "num-sorted-run.compaction-trigger": str(self.dice.choice([2, 3, 5])),
            "target-file-size": self.dice.choice(["128 mb", "1 kb"]),
        }
        self.context = make_table(self.folder / "t", COLUMNS, ["p", "k"], ["p"], self.dice.choice([1, 2]), options)
        self.versions = [Version("", [], {})]

    def step(self) -> None:
        getattr(self, self.dice.choice(["write", "write", "write", "overwrite", "compact", "tag", "expire"]))()

    def write(self) -> None:
        brought: Changes = []
        for p, k in self.dice.sample([(p, k) for p in (1, 2) for k in range(8)], self.dice.randint(1, 6)):
            kind = self.dice.choice(["+I", "+I", "+U", "-D"])
            brought.append((kind, {"p": p, "k": k, "v": self.dice.choice([None, "a", "b", f"{len(self.versions)}"])}))
        write(self.context, [{**row, "_op": kind} for kind, row in brought])
        after = dict(self.versions[-1].rows)
        for kind, row in brought:
            after.pop((row["p"], row["k"]), None)
            if kind != "-D":
                after[row["p"], row["k"]] = row
        self.versions.append(Version(APPEND, brought, after))

    def overwrite(self) -> None:
        """Overwrite one partition, whose old rows are removed."""
        p = self.dice.choice([1, 2])
        rows: list[Row] = [{"p": p, "k": k, "v": "new"} for k in self.dice.sample(range(8), self.dice.randint(1, 3))]
        write(self.context, rows, overwrite=True)
        others = {key: row for key, row in self.versions[-1].rows.items() if key[0] != p}
        new = {(p, row["k"]): row for row in rows}
        self.versions.append(Version(OVERWRITE, [], {**others, **new}))

    def compact(self) -> None:
        done = compact(self.context, strategy=self.dice.choice(["minor", "full"]))
        self.versions += [Version(COMPACT, [], self.versions[-1].rows)] * len(done.snapshots)

    def tag(self) -> None:
        if len(self.versions) > self.earliest:
            create_tag(self.context, f"t{len(self.context.tags.names())}", self.dice.randrange(self.earliest, len(self.versions)))

    def expire(self) -> None:
        if self.dice.random() < 0.3:
            keep = self.dice.randint(2, 6)
            gone = expire_snapshots(self.context, Retention(keep, keep, 0, None)).snapshots
            self.earliest += len(gone)

    def check(self, ranges: int) -> int:
        """Check some ranges in each mode. Returns how many were read."""
        read = 0
        for _ in range(ranges):
            begin = self.dice.randrange(len(self.versions))
            end = self.dice.randrange(begin, len(self.versions))
            read += self._check_delta(begin, end) + self._check_difference(begin, end)
        read += self._check_tags()
        return read

    def _check_delta(self, begin: int, end: int) -> int:
        """Every version of every key, in the order of the snapshots; of expired ones nothing but an error."""
        if begin + 1 < self.earliest and begin < end:
            self._refused(begin, end, "delta")
            return 1
        found = changes(self.context, str(begin), str(end), "delta")
        expected = [rows for version in self.versions[begin + 1 : end + 1] for rows in version.brought]
        assert _counted(found) == _counted(expected), (begin, end, "delta")
        for bucket in {(row["p"], row["k"]) for _, row in expected}:
            assert _of_key(found, bucket) == _of_key(expected, bucket), (begin, end, "order", bucket)
        return 1

    def _check_difference(self, begin: int, end: int) -> int:
        held = {tag.snapshot.id for tag in self.context.tags.all().values()}
        if any(0 < number < self.earliest and number not in held for number in (begin, end)):
            self._refused(begin, end, "diff")
            return 1
        found = _as_inserts(changes(self.context, str(begin), str(end), "diff"))
        assert _counted(found) == _counted(self._difference(begin, end)), (begin, end, "diff")
        return 1

    def _check_tags(self) -> int:
        """Between two tags, also of snapshots that have expired, an increment is the difference."""
        tags = sorted((tag.snapshot.id, name) for name, tag in self.context.tags.all().items())
        if len(tags) < 2:
            return 0
        (begin, first), (end, last) = sorted(self.dice.sample(tags, 2))
        found = _as_inserts(changes(self.context, first, last))
        assert _counted(found) == _counted(self._difference(begin, end)), (first, last)
        return 1

    def _difference(self, begin: int, end: int) -> Changes:
        before, after = self.versions[begin].rows, self.versions[end].rows
        gone = [("-D", row) for key, row in before.items() if key not in after]
        return gone + [("+I", row) for key, row in after.items() if before.get(key) != row]

    def _refused(self, begin: int, end: int, mode: str) -> None:
        try:
            changes(self.context, str(begin), str(end), mode)
        except NotFound:
            return
        raise AssertionError(f"{begin} to {end} in mode {mode} was read although it has expired")


def _as_inserts(rows: Changes) -> Changes:
    """Rows have the kind that they were written with."""
    return [("+I" if kind == "+U" else kind, row) for kind, row in rows]


def _counted(rows: Changes) -> Counter[str]:
    return Counter(json.dumps([kind, row], sort_keys=True) for kind, row in rows)


def _of_key(rows: Changes, key: tuple[int, int]) -> Changes:
    return [(kind, row) for kind, row in rows if (row["p"], row["k"]) == key]


def play(folder: Path, seed: str, steps: int) -> int:
    """One table; the ranges that were read. `AssertionError` where they differ from what they must be."""
    trial = IncrementTrial(folder, random.Random(seed))
    trial.write()
    read = 0
    for number in range(1, steps + 1):
        trial.step()
        if number % 8 == 0 or number == steps:
            read += trial.check(6)
    return read
