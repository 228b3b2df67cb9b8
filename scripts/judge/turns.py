"""Java Paimon and paimon-cli take turns on a table; after each round an oracle checks the rows and changelogs that both read.

    python -m scripts.judge.turns --jars FOLDER --rounds 10 --tables 40 --seed 7
    python -m scripts.judge.turns --jars FOLDER --table 7-vectors-3 --keep FOLDER
    python -m scripts.judge.turns --jars FOLDER --only postponed --spark-python PYTHON --spark-jars PAIMON_SPARK PAIMON_BUNDLE
    python -m scripts.judge.turns --jars FOLDER --only dynamic --data-source

A round is one write that compacts, or several writes that do not and then a compaction, each by one of the two. Then both read
the table and the changelog of the round. With `--data-source` our writes go through Spark, and the last one is an overwrite. With
`--spark-jars` Paimon's Spark SQL reads the table in the end. Prints a JSON line; a difference is printed with the name of its
table, and ends it.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from scripts.judge.data_source import DataSource
from scripts.judge.oracle import COLUMNS, CROSSING, GENTLE, LONGER, NO_WAIT, NULLABLE, POSTPONED, SHAPES, VALUES, Key, Oracle
from scripts.judge.peers import JavaPaimon, PaimonCli, Row, SparkSql

TOP_LEVEL = 3
DATABASE = "turns.db"
OTHER_CHECKS = (
    *("metadata", "chain", "references", "files", "stats"),
    *("sorted-runs", "sequence", "bucket", "unique", "bucket-index"),
)
"""The groups that `verify` checks, besides deletion vectors."""
OF_MOVES = {"-U": "-D", "+U": "+I", "-D": "-D", "+I": "+I"}


class Turns:
    """One table and its rounds. The seed determines everything about them."""

    def __init__(
        self, folder: Path, seed: str, shape: str, java: JavaPaimon, ours: PaimonCli, spark: SparkSql | None = None
    ) -> None:
        self.random = random.Random(seed)
        self.java, self.ours, self.spark = java, ours, spark
        self.table = folder / DATABASE / seed
        self.table.parent.mkdir(exist_ok=True)
        keys = self.random.choice((("id",), ("k",), ("id", "k")))
        if "bucket-key" in SHAPES[shape]:
            keys = ("id", "k")
        partition = ("p",) if self.random.random() < 0.6 else ()
        buckets = self.random.choice((1, 1, 2, 3))
        self.may_leave_level_0 = bool({*NO_WAIT.items(), *GENTLE.items()} & SHAPES[shape].items())
        crosses = shape.startswith(CROSSING)
        if crosses or self.may_leave_level_0 or "full-compaction" in SHAPES[shape].values():
            partition, buckets = ("p",), 1  # what was compacted shows in the files of a partition
        self.columns = (*partition, *keys, *VALUES)
        options = {"bucket": str(buckets), "file.format": self.random.choice(("parquet", "parquet", "orc", "avro"))}
        if self.random.random() < 0.5 and "changelog-producer" in SHAPES[shape]:
            options |= LONGER
        if POSTPONED.items() <= SHAPES[shape].items():
            options["postpone.default-bucket-num"] = str(buckets)
        self.options = {**options, "num-sorted-run.compaction-trigger": str(TOP_LEVEL), **SHAPES[shape]}
        key = keys if crosses else (*partition, *keys)
        self.oracle = Oracle(self.options, key, crosses)
        self.history: list[str] = []
        self.changes: list[Row] = []
        self.compared = self.commits_waiting = 0
        self.deletes_wait = False
        self.left_by_java: set[str] = set()
        self.nullable = {*partition, *keys} if NULLABLE.items() <= self.options.items() else frozenset()
        not_null = {*partition, *keys} - self.nullable
        fields = [
            {"id": number, "name": name, "type": COLUMNS[name] + (" NOT NULL" if name in not_null else "")}
            for number, name in enumerate(self.columns)
        ]
        lists = {"partitionKeys": list(partition), "primaryKeys": list(key)}
        creator = self.ours if self.nullable else self._draw_side()
        creator.create(self.table, {"fields": fields, **lists, "options": self.options, "comment": ""})

    def _draw_side(self) -> JavaPaimon | PaimonCli:
        return self.random.choice((self.java, self.ours))

    def _rows(self) -> list[Row]:
        number = self.random.choice((1, 5, 25, 60))
        deletes = self.oracle.has_deletes and not (self.oracle.postpones and self.random.random() < 0.5)
        return [self._row(0.25 if deletes else 0) for _ in range(number)]

    def _row(self, deletes: float) -> Row:
        draw = self.random.random
        cells = {
            "p": self.random.choice(("a", "b=c")),
            "id": self.random.randrange(30),
            "k": self.random.choice(("", "é", "key-with-a-long-common-prefix-")) + str(self.random.randrange(8)),
            "v": None if draw() < 0.2 else self.random.randrange(3),
            "w": self.random.randrange(100),
            "s": None if draw() < 0.2 else self.random.choice(("x", "y" * 30, "日本")),
        }
        kind = "-D" if draw() < deletes else "+I"
        cells |= {name: None for name in sorted(self.nullable) if draw() < 0.15}
        return {"_kind": kind, **{name: cells[name] for name in self.columns}}

    def _write(self, *, compact: bool) -> list[Row]:
        side, rows = self._draw_side(), self._rows()
        self.history.append(f"{side.name} writes {len(rows)} rows{' and compacts' if compact else ''}")
        side.write(self.table, rows, compact=compact)
        self.commits_waiting += 1
        self.deletes_wait |= any(row["_kind"] == "-D" for row in rows)
        changes = self.oracle.write(rows)
        return changes + (self._seen_by_compaction(full=False) if compact else [])

    def _compact(self) -> list[Row]:
        side, full = self._draw_side(), self.random.random() < 0.5
        if self.oracle.postpones:
            return self._distribute(side if self.commits_waiting == 1 and not self.deletes_wait else self.ours)
        by_service = side is self.ours and not full and self.random.random() < 0.5
        self.history.append(f"{side.name} {'serves' if by_service else 'compacts fully' if full else 'compacts'}")
        if by_service:
            self.ours.serve(self.table)
        else:
            side.compact(self.table, full=full)
        return self._seen_by_compaction(full=full)

    def _distribute(self, side: JavaPaimon | PaimonCli) -> list[Row]:
        self.history.append(f"{side.name} distributes the rows of {self.commits_waiting} commits")
        self.commits_waiting, self.deletes_wait = 0, False
        if side is self.ours:
            self.ours.compact(self.table, full=self.random.random() < 0.5)
        else:
            assert self.spark is not None, "postponed tables need --spark-python and --spark-jars"
            self.spark.sql(f"CALL paimon.sys.compact(table => '{self.table.parent.stem}.`{self.table.name}`')")
        return self._seen_by_compaction(full=True)

    def _seen_by_compaction(self, *, full: bool) -> list[Row]:
        """The changes that a compaction makes visible.

        A pick of all runs is a full compaction, too; the changelog producer full-compaction reports only such. Where a compaction
        may skip level 0, partitions in which it did so show no changes.
        """
        looks_at_full = self.oracle.producer == "full-compaction"
        if full or not (looks_at_full or self.may_leave_level_0):
            return self.oracle.compact()
        least = TOP_LEVEL if looks_at_full else 1
        files = json.loads(self.ours.run("files", "ls", self.table, "-o", "json"))["items"]
        partial = {file["partition"].removeprefix("p=") for file in files if file["level"] < least}
        return self.oracle.compact({"a", "b=c"} - partial)

    def _latest(self) -> int:
        return max((int(path.name.rsplit("-", 1)[1]) for path in (self.table / "snapshot").glob("snapshot-*")), default=0)

    def round(self) -> None:
        before = self._latest()
        if self.random.random() < 0.4 and not self.oracle.waiting and not self.oracle.postpones:
            changes = self._write(compact=True)
        else:
            changes = [change for _ in range(self.random.choice((1, 1, 2, 3))) for change in self._write(compact=False)]
            self.check_rows()
            changes += self._compact()
        self.check_rows()
        self.changes += changes
        if self.oracle.producer == "none":
            return
        for peer in (self.java, self.ours):
            self._same(f"changelog of {peer.name}", peer.changelog(self.table, before + 1, self._latest()), changes)

    def check_rows(self) -> None:
        if not self._latest():
            return
        for peer in (self.java, self.ours):
            self._same(f"rows of {peer.name}", peer.read(self.table), self.oracle.rows(java=peer is self.java), rows=True)

    def check_history(self) -> None:
        """Check the changelog of all rounds before and after an expiry by one of the two, and the whole table with `verify`."""
        self._check_changelogs()
        for peer in (self.java, self.ours) if self.oracle.producer != "none" else ():
            if peer is self.java and self.oracle.hides_level_0 and self.oracle.producer == "input":
                continue  # Java leaves out level 0 of changelogs, too, even in its own tables
            increment = self._sorted(peer.incremental(self.table, 1, self._latest()))
            changes = self._sorted(self.ours.changelog(self.table, 2, self._latest()))
            self._same(f"increment of {peer.name}", increment, changes)
        self._verify()
        lasting = LONGER.items() <= self.options.items()
        side = self.ours if lasting else self._draw_side()  # Java 1.4 looks for changelog--990 where fewer than 1000 are left
        self.history.append(f"{side.name} expires")
        side.expire(self.table, 2)
        self.check_rows()
        if lasting:
            self._check_changelogs()
        if isinstance(self.ours, DataSource) and (not self.oracle.crosses or self.oracle.has_deletes):
            self._overwrite(self.ours)
        if self.spark is not None:
            self._check_in_spark(self.spark)
        self._verify()

    def _overwrite(self, ours: DataSource) -> None:
        """Replace the partitions of some rows by them, and compact what waits."""
        rows = [self._row(0) for _ in range(20)]
        self.history.append(f"ours overwrites with {len(rows)} rows")
        ours.insert(self.table, rows, "overwrite")
        replaced = {row.get("p") for row in rows}
        kept = [row for row in self.oracle.committed.values() if "p" in row and row["p"] not in replaced]
        self.oracle = Oracle(self.options, self.oracle.keys, self.oracle.crosses)
        self.oracle.write([*kept, *rows])
        ours.compact(self.table, full=True)
        self.oracle.compact()
        self.check_rows()

    def _check_in_spark(self, spark: SparkSql) -> None:
        name = f"paimon.{self.table.parent.stem}.`{self.table.name}`"
        spark.sql(f"REFRESH TABLE {name}")
        rows = spark.sql(f"SELECT {', '.join(self.columns)} FROM {name}")
        found = [{"_kind": "+I", **dict(zip(self.columns, row, strict=True))} for row in rows]
        self._same("rows of Spark SQL", found, self.oracle.rows(java=True), rows=True)

    def _verify(self) -> None:
        """Expect no finding except vectors without a file, which full compactions of Java 1.4 may leave; ours may not."""
        for number in sorted(int(path.name.rsplit("-", 1)[1]) for path in (self.table / "snapshot").glob("snapshot-*")):
            by_java = json.loads((self.table / "snapshot" / f"snapshot-{number}").read_text())["commitUser"].startswith("java")
            listed = json.loads(self.ours.run("dv", "ls", self.table, "--dangling", "--snapshot", number, "-o", "json"))["items"]
            dangling = {item["file"] for item in listed}
            assert by_java or dangling <= self.left_by_java, f"vectors without a file since snapshot {number}: {dangling}"
            self.left_by_java |= dangling
        checks = ("--only", ",".join(OTHER_CHECKS)) if self.left_by_java else ()
        self.ours.run("verify", self.table, "--level", "full", "--all-snapshots", *checks)

    def _sorted(self, changes: Sequence[Row]) -> list[Row]:
        """The changes in a fixed order: Java guarantees no order among the snapshots of an increment."""
        return sorted(changes, key=lambda change: repr([change["_kind"], *(change[name] for name in self.columns)]))

    def _check_changelogs(self) -> None:
        for peer in (self.java, self.ours) if self.oracle.producer != "none" else ():
            self._same(f"whole changelog of {peer.name}", peer.changelog(self.table, 1, self._latest()), self.changes)

    def _same(self, what: str, found: Sequence[Row], wanted: Sequence[Row], *, rows: bool = False) -> None:
        found_by_key, wanted_by_key = (self._by_key(side, rows) for side in (found, wanted))
        self.compared += 1
        for key in found_by_key.keys() | wanted_by_key.keys():
            if found_by_key.get(key) != wanted_by_key.get(key):
                difference = f"{key}: {found_by_key.get(key)} instead of {wanted_by_key.get(key)}"
                history = "\n  ".join(self.history)
                raise AssertionError(f"{what}: {difference}\n{self.options}, key {self.oracle.keys}\n  {history}")

    def _by_key(self, found: Sequence[Row], rows: bool) -> dict[Key, list[Key]]:
        """The changes of each key, in order. The kind of `rows` is ignored: the oracle keeps rows as they were written."""
        by_key: dict[Key, list[Key]] = {}
        for row in found:
            cells = tuple(row[name] for name in self.columns)
            by_key.setdefault(self.oracle.key(row), []).append(cells if rows else (row["_kind"], *cells))
        if self.oracle.crosses and not rows:  # buckets are read in any order, and a key may return to another one
            by_key = {key: sorted([(OF_MOVES[c[0]], *c[1:]) for c in changes], key=repr) for key, changes in by_key.items()}
        return by_key


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jars", type=Path, required=True, help="folder with paimon-bundle and Hadoop's client jars")
    parser.add_argument("--tables", type=int, default=len(SHAPES))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", default="local", choices=("local", "spark"))
    parser.add_argument("--only", default="", help="only shapes whose name contains this")
    parser.add_argument(
        "--spark-python", type=Path, default=Path(sys.executable), help="a Python with the pyspark that --spark-jars are for"
    )
    parser.add_argument("--spark-jars", type=Path, nargs="*", default=[], help="paimon-spark and paimon-bundle")
    parser.add_argument("--table", help="the seed of a table that differed")
    parser.add_argument("--keep", type=Path, help="create the tables in this folder and keep them")
    parser.add_argument("--data-source", action="store_true", help='write our rows by Spark\'s format("paimon")')
    arguments = parser.parse_args()
    shapes = [shape for shape in SHAPES if arguments.only in shape]
    if not arguments.spark_jars:
        shapes = [shape for shape in shapes if not POSTPONED.items() <= SHAPES[shape].items()]
    seeds = [f"{arguments.seed}-{shapes[number % len(shapes)]}-{number}" for number in range(arguments.tables)]
    begun, compared, differences = time.monotonic(), 0, 0
    java, ours = JavaPaimon(arguments.jars), (DataSource if arguments.data_source else PaimonCli)(arguments.engine)
    with tempfile.TemporaryDirectory(prefix="turns-") as scratch:
        folder = arguments.keep or Path(scratch)
        spark = SparkSql(arguments.spark_python, arguments.spark_jars, folder) if arguments.spark_jars else None
        for seed in [arguments.table] if arguments.table else seeds:
            try:
                turns = Turns(folder, seed, seed.split("-", 1)[1].rsplit("-", 1)[0], java, ours, spark)
                for _ in range(arguments.rounds):
                    turns.round()
                turns.check_history()
                compared += turns.compared
            except AssertionError as difference:
                differences += 1
                print(f"table {seed}: {difference}", file=sys.stderr, flush=True)
        if spark is not None:
            spark.close()
    java.close()
    if isinstance(ours, DataSource):
        ours.close()
    line = {"measure": "turns", "tables": 1 if arguments.table else len(seeds), "rounds": arguments.rounds, "compared": compared}
    print(json.dumps({**line, "differences": differences, "seed": arguments.seed, "seconds": round(time.monotonic() - begun, 1)}))
    return int(bool(differences))


if __name__ == "__main__":
    sys.exit(main())
