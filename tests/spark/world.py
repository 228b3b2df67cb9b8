"""A table in a Spark session beside what it must hold, in plain Python; and the ways to look at it."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from paimon_cli import Runtime, Table, spark
from paimon_cli.maintain.used_names import UsedNames
from tests.tables import data_files, named_files

SQL = "k int, p string, v string, n bigint, `Odd Name` int, at timestamp_ntz"
COLUMNS = ["k INT NOT NULL", "p STRING NOT NULL", "v STRING", "n BIGINT", "`Odd Name` INT", "at TIMESTAMP(6)"]
K, P, V, N, ODD, AT = range(6)
Values = tuple[Any, ...]
TEXTS = ("x", "it's", "", None, "$(ö)", "d")
KEYS = 16


@dataclass(frozen=True)
class Kind:
    """`changes`: whether rows can be updated, deleted and merged; `follows`: whether a changelog leads to what the table holds.

    `waits`: whether written rows are seen only after a compaction that the writer leaves to others.
    """

    key: tuple[str, ...] = ("k",)
    partition: tuple[str, ...] = ()
    bucket: str = "2"
    options: Mapping[str, str] = field(default_factory=dict)
    changes: bool = True
    follows: bool = False
    waits: bool = False

    @property
    def engine(self) -> str:
        return self.options.get("merge-engine", "deduplicate") if self.key else "append"


def _sums(**more: str) -> dict[str, str]:
    functions = {f"fields.{name}.aggregate-function": "last_value" for name in ("p", "v", "Odd Name", "at")}
    return {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", **functions, **more}


VECTORS = {"deletion-vectors.enabled": "true"}
KINDS: dict[str, Kind] = {
    "fixed": Kind(options={"num-sorted-run.compaction-trigger": "3"}),
    "partitioned": Kind(("p", "k"), ("p",), "1"),
    "dynamic": Kind(bucket="-1", options={"dynamic-bucket.target-row-num": "4"}),
    "dynamic by partition": Kind(("p", "k"), ("p",), "-1", {"dynamic-bucket.target-row-num": "3"}),
    "any partition": Kind(("k",), ("p",), "-1"),
    "postponed": Kind(bucket="-2", options={"postpone.batch-write-fixed-bucket": "false"}, waits=True),
    "counted": Kind(bucket="-2", options={"postpone.batch-write-fixed-bucket": "true"}, waits=True),
    "vectors": Kind(options=VECTORS),
    "lookup": Kind(options={"changelog-producer": "lookup"}, follows=True),
    "input": Kind(options={"changelog-producer": "input"}, follows=True),
    "full compaction": Kind(options={"changelog-producer": "full-compaction"}, follows=True),
    "write-only": Kind(options={"write-only": "true"}),
    "orc": Kind(options={"file.format": "orc"}),
    "sequence": Kind(options={"sequence.field": "n"}, changes=False),
    "partial-update": Kind(options={"merge-engine": "partial-update"}, changes=False),
    "sums": Kind(options=_sums(), changes=False),
    "dynamic sums": Kind(bucket="-1", options=_sums(), changes=False),
    "first-row": Kind(options={"merge-engine": "first-row"}, changes=False),
    "append": Kind((), (), "-1"),
    "append by partition": Kind((), ("p",), "-1"),
    "append in buckets": Kind((), (), "2", {"bucket-key": "k"}),
    "append with vectors": Kind((), (), "-1", VECTORS),
}


class World:
    """A table and its rows."""

    def __init__(self, session: SparkSession, folder: Path, kind: str, seed: str, faults: Iterable[Callable[[], None]]) -> None:
        self.session, self.folder, self.kind, self.dice = session, folder, KINDS[kind], random.Random(f"{kind}-{seed}")
        folder.mkdir(parents=True)
        self.faults = list(faults)
        self.url = str(folder / "t")
        options = {"bucket": self.kind.bucket, **self.kind.options}
        Table.create(self.url, columns=COLUMNS, primary_key=self.kind.key, partition_by=self.kind.partition, options=options)
        self.table = Table.open(self.url, runtime=Runtime(session=session))
        self.rows: list[Values] = []
        self.versions: dict[int, list[Values]] = {}
        self.number = 0

    def next(self) -> int:
        self.number += 1
        return self.number

    # What the table must hold

    def key_of(self, row: Values) -> Values:
        return tuple(row[0 if name == "k" else 1] for name in self.kind.key)

    def upsert(self, new: Iterable[Values]) -> None:
        """As the merge engine does it; the later of two rows with one key is the newer."""
        if not self.kind.key:
            self.rows += new
            return
        held = {self.key_of(row): row for row in self.rows}
        for row in new:
            old = held.get(self.key_of(row))
            held[self.key_of(row)] = row if old is None else self.combined(old, row)
        self.rows = list(held.values())

    def combined(self, old: Values, new: Values) -> Values:
        if self.kind.engine == "first-row":
            return old
        if self.kind.engine == "partial-update":
            return tuple(before if after is None else after for before, after in zip(old, new, strict=True))
        if self.kind.engine == "aggregation":
            total = new[N] if old[N] is None else old[N] if new[N] is None else old[N] + new[N]
            return (*new[:N], total, *new[N + 1 :])
        if "sequence.field" in self.kind.options and new[N] < old[N]:
            return old
        return new

    def remove(self, goes: Callable[[Values], bool]) -> None:
        self.rows = [row for row in self.rows if not goes(row)]

    # Rows for it

    def some_rows(self, most: int = 9) -> list[Values]:
        """Rows with different keys. In a table that is partitioned by its key, a key has one partition."""
        keys = self.dice.sample(range(KEYS), self.dice.randrange(1, most))
        return [self.row(k) for k in keys]

    def row(self, k: int) -> Values:
        dice = self.dice
        partition = dice.choice("abc") if self.kind.partition and "p" not in self.kind.key else "abc"[k % 3]
        n = dice.randrange(100) if "sequence.field" in self.kind.options else dice.choice((None, 1, 7, 50, 10**12))
        early = 1980 if self.kind.options.get("file.format") == "orc" else 1580  # its timestamps are read as nanoseconds
        at = dice.choice((None, datetime.datetime(2024, 3, 31, 2, 30, 0, 5), datetime.datetime(early, 1, 1)))
        return (k, partition, dice.choice(TEXTS), n, dice.choice((None, 0, -5)), at)

    def frame(self, rows: list[Values], schema: str = SQL) -> DataFrame:
        frame = self.session.createDataFrame(rows, schema)
        return frame.repartition(self.dice.choice((1, 2, 3))) if self.dice.random() < 0.7 else frame

    # Looking at it

    def check(self, say: Callable[[str], None]) -> None:
        self.table.refresh()
        latest = self.table.context.snapshots.latest_id()
        if latest is not None:
            self.versions[latest] = list(self.rows)
        way = self.dice.choice(WAYS)
        say(f"look by {way.__name__}")
        found, expected = way(self)
        assert found == expected, f"{way.__name__} found {_difference(found, expected)}"
        assert data_files(self.table.context) == named_files(self.table.context), "files that no snapshot names"
        used = UsedNames(self.table.context)
        used.refresh()
        assert {path.name for path in (self.folder / "t" / "index").glob("*")} <= used.names, "index files that nothing names"

    def check_all(self) -> None:
        self.table.refresh()
        for way in WAYS:
            found, expected = way(self)
            assert found == expected, f"{way.__name__} found {_difference(found, expected)}"
        assert self.table.verify(level="full").errors == 0
        left = {path for path in (self.folder / "t").rglob("*") if path.name.startswith(("_temporary", ".tmp"))}
        assert not left, left


def _difference(found: list[Any], expected: list[Any]) -> str:
    more, less = [row for row in found if row not in expected], [row for row in expected if row not in found]
    return f"{len(found)} rows, expected {len(expected)}; too many: {more[:3]}; missing: {less[:3]}"


def ordered(rows: Iterable[Any]) -> list[Values]:
    return sorted((tuple(row) for row in rows), key=repr)


Look = Callable[[World], tuple[list[Any], list[Any]]]


def by_scan(world: World) -> tuple[list[Any], list[Any]]:
    rows = Table.open(world.url).scan().to_arrow().to_pylist()
    return ordered(row.values() for row in rows), ordered(world.rows)


def by_read(world: World) -> tuple[list[Any], list[Any]]:
    native = world.dice.choice((None, None, False))
    return ordered(spark.read(world.session, world.url, native=native).collect()), ordered(world.rows)


def by_format(world: World) -> tuple[list[Any], list[Any]]:
    return ordered(world.session.read.format("paimon").load(world.url).collect()), ordered(world.rows)


def by_condition(world: World) -> tuple[list[Any], list[Any]]:
    """By a condition of the read, and by one of the DataFrame; columns in another order."""
    most = world.dice.randrange(KEYS)
    columns = ["Odd Name", "v", "k"]
    if world.dice.random() < 0.5:
        frame = spark.read(world.session, world.url, columns=["`Odd Name`", "v", "k"], where=f"k <= {most} AND v <> 'x'")
    else:
        frame = spark.read(world.session, world.url).where(f"k <= {most} AND v <> 'x'").select("`Odd Name`", "v", "k")
    assert frame.columns == columns
    rows = [(row[ODD], row[V], row[K]) for row in world.rows if row[K] <= most and row[V] not in (None, "x")]
    return ordered(frame.collect()), ordered(rows)


def by_format_condition(world: World) -> tuple[list[Any], list[Any]]:
    reader = world.session.read.format("paimon").schema("n bigint, k int").option("where", "n > 5")
    expected = [(row[N], row[K]) for row in world.rows if row[N] is not None and row[N] > 5 and row[K] != 3]
    return ordered(reader.load(world.url).where("k <> 3").collect()), ordered(expected)


def by_sql(world: World) -> tuple[list[Any], list[Any]]:
    world.session.sql(f"CREATE OR REPLACE TEMPORARY VIEW looked USING paimon OPTIONS (path '{world.url}')")
    spark.read(world.session, world.url).createOrReplaceTempView("also")
    query = "SELECT p, count(*), sum(n) FROM {} GROUP BY p ORDER BY p"
    expected = {p: [row[N] for row in world.rows if row[P] == p] for p in sorted({row[P] for row in world.rows})}
    sums = [
        (p, len(ns), sum(n for n in ns if n is not None) if any(n is not None for n in ns) else None)
        for p, ns in expected.items()
    ]
    both = [tuple(row) for name in ("looked", "also") for row in world.session.sql(query.format(name)).collect()]
    return both, [*sums, *sums]


def by_count(world: World) -> tuple[list[Any], list[Any]]:
    return [spark.read(world.session, world.url).count()], [len(world.rows)]


def by_version(world: World) -> tuple[list[Any], list[Any]]:
    if not world.versions:
        return [], []
    number = world.dice.choice(sorted(world.versions))
    if world.dice.random() < 0.5:
        frame = spark.read(world.session, world.url, snapshot=number)
    else:
        frame = world.session.read.format("paimon").option("versionAsOf", number).load(world.url)
    return ordered(frame.collect()), ordered(world.versions[number])


WAYS: tuple[Look, ...] = (by_scan, by_read, by_read, by_format, by_condition, by_format_condition, by_sql, by_count, by_version)
