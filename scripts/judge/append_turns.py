"""Paimon's Spark SQL and paimon-cli take turns on append tables: inserts, deletes, updates, compactions; an oracle checks both.

    python -m scripts.judge.append_turns --python SPARK/bin/python --jars FOLDER --rounds 10 --seed 7

FOLDER holds paimon-spark and paimon-bundle for the pyspark of that Python. Both read the table after each step; at the end,
`verify` reads all of it and one of the two expires snapshots. Prints a JSON line.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from scripts.judge.data_source import DataSource
from scripts.judge.peers import PaimonCli, SparkSql

VECTORS = {"deletion-vectors.enabled": "true"}
FIXED = {"bucket": "2", "bucket-key": "id"}
UNAWARE = {"bucket": "-1"}
SHAPES: dict[str, dict[str, str]] = {
    "unaware": UNAWARE,
    "unaware-vectors": {**UNAWARE, **VECTORS},
    "unaware-vectors-64-small-indexes": {
        **{**UNAWARE, **VECTORS},
        **{"deletion-vectors.bitmap64": "true", "deletion-vector.index-file.target-size": "64 b"},
    },
    "fixed": FIXED,
    "fixed-vectors": {**FIXED, **VECTORS},
    "unaware-bloom": {**UNAWARE, "file-index.bloom-filter.columns": "id,s", "file-index.bloom-filter.items": "100"},
}
COLUMNS = ("id", "p", "v", "s")
State = Counter[tuple[Any, ...]]


class AppendTurns:
    """One table. The seed determines everything about it."""

    def __init__(self, folder: Path, seed: str, shape: str, java: SparkSql, ours: PaimonCli) -> None:
        self.random = random.Random(seed)
        self.java, self.ours = java, ours
        self.name = "t" + seed.replace("-", "_")
        self.path = folder / "d.db" / self.name
        self.options = {**SHAPES[shape], "file.format": self.random.choice(("parquet", "parquet", "orc", "avro"))}
        self.partitioned = self.random.random() < 0.5
        self.held: State = Counter()
        self.history: list[str] = []
        self.compared = 0
        fields = [("id", "INT"), ("p", "STRING"), ("v", "BIGINT"), ("s", "STRING")]
        schema = {
            "fields": [{"id": number, "name": name, "type": t} for number, (name, t) in enumerate(fields)],
            "partitionKeys": ["p"] if self.partitioned else [],
            "primaryKeys": [],
            "options": self.options,
            "comment": "",
        }
        if self._is_java():
            listed = ", ".join(f"{name} {t}" for name, t in fields)
            by = "PARTITIONED BY (p)" if self.partitioned else ""
            texts = ", ".join(f"'{key}' = '{value}'" for key, value in self.options.items())
            java.sql(f"CREATE TABLE paimon.d.{self.name} ({listed}) {by} TBLPROPERTIES ({texts})")
        else:
            ours.create(self.path, schema)

    def _is_java(self) -> bool:
        return self.random.random() < 0.5

    def _row(self) -> tuple[Any, ...]:
        random = self.random
        s = random.choice((None, "x", "y" * 20, "日本"))
        return (random.randrange(40), random.choice(("a", "b=c", None)), random.choice((None, 1, 2, 3)), s)

    def round(self) -> None:
        for do in (self._insert, self.random.choice((self._delete, self._update)), self._insert, self._delete):
            do()
            self.check()
        self._compact()
        self.check()

    def _draw_side(self, what: str) -> bool:
        is_java = self._is_java()
        self.history.append(f"{'java' if is_java else 'ours'} {what}")
        return is_java

    def _insert(self) -> None:
        rows = [self._row() for _ in range(self.random.choice((1, 8, 30)))]
        if self._draw_side(f"inserts {len(rows)} rows"):
            values = ", ".join(f"({', '.join(map(_literal, row))})" for row in rows)
            self.java.sql(f"INSERT INTO paimon.d.{self.name} VALUES {values}")
        elif isinstance(self.ours, DataSource):
            self.ours.insert(self.path, [dict(zip(COLUMNS, row, strict=True)) for row in rows], "append")
        else:
            lines = "".join(json.dumps(dict(zip(COLUMNS, row, strict=True))) + "\n" for row in rows)
            self.ours.run("write", self.path, "-", "--format", "json", *self.ours.engine, stdin=lines)
        self.held.update(rows)

    def _condition(self) -> tuple[str, Any]:
        low = self.random.randrange(40)
        return self.random.choice(
            (
                (f"id = {low}", lambda row: row[0] == low),
                (f"id BETWEEN {low} AND {low + 6}", lambda row: low <= row[0] <= low + 6),
                ("p = 'a' AND v = 2", lambda row: row[1] == "a" and row[2] == 2),
                ("p IS NULL", lambda row: row[1] is None),
                (f"s = 'x' OR (v IS NULL AND id < {low})", lambda row: row[3] == "x" or (row[2] is None and row[0] < low)),
            )
        )

    def _delete(self) -> None:
        where, matches = self._condition()
        if self._draw_side(f"deletes {where}"):
            self.java.sql(f"DELETE FROM paimon.d.{self.name} WHERE {where}")
        else:
            self.ours.run("delete", self.path, "-w", where, *self.ours.engine)
        self.held = Counter({row: count for row, count in self.held.items() if not matches(row)})

    def _update(self) -> None:
        where, matches = self._condition()
        if self._draw_side(f"updates {where}"):
            self.java.sql(f"UPDATE paimon.d.{self.name} SET v = v + 10, s = 'new' WHERE {where}")
        else:
            self.ours.run("update", self.path, "-w", where, "--set", "v = v + 10", "--set", "s = 'new'", *self.ours.engine)
        changed: State = Counter()
        for row, count in self.held.items():
            v = None if row[2] is None else row[2] + 10
            changed[(*row[:2], v, "new") if matches(row) else row] += count
        self.held = changed

    def _compact(self) -> None:
        sorts = self.options["bucket"] == "-1" and self.random.random() < 0.4
        strategy = self.random.choice(("order", "zorder", "hilbert"))
        if self._draw_side(f"compacts{f' by {strategy}' if sorts else ''}"):
            how = f", order_strategy => '{strategy}', order_by => 'id,v'" if sorts else ""
            self.java.sql(f"CALL paimon.sys.compact(table => 'd.{self.name}'{how})")
        else:
            options = ("--order-by", "id,v", "--order-strategy", strategy) if sorts else ()
            self.ours.run("compact", self.path, *options, *self.ours.engine)

    def check(self) -> None:
        self._same("rows of ours", self._ours())
        self.java.sql(f"REFRESH TABLE paimon.d.{self.name}")
        self._same("rows of java", Counter(self.java.sql(f"SELECT {', '.join(COLUMNS)} FROM paimon.d.{self.name}")))

    def _ours(self, *moment: str) -> State:
        rows = self.ours.read(self.path, *moment)
        return Counter(tuple(row[name] for name in COLUMNS) for row in rows)

    def _same(self, what: str, found: State) -> None:
        self.compared += 1
        if +found != +self.held:
            history = "\n  ".join(self.history)
            missing, extra = self.held - found, found - self.held
            raise AssertionError(f"{what}: lacks {dict(missing)}, has {dict(extra)} too\n{self.options}\n  {history}")

    def check_history(self) -> None:
        self.ours.run("verify", self.path, "--level", "full", "--all-snapshots")
        if self._draw_side("expires"):
            self.java.sql(f"CALL paimon.sys.expire_snapshots(table => 'd.{self.name}', retain_max => 2, retain_min => 1)")
        else:
            self.ours.expire(self.path, 2)
        self.check()
        self.ours.run("verify", self.path, "--level", "full", "--all-snapshots")


def _literal(value: Any) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, required=True, help="a Python with the pyspark that the jars were built for")
    parser.add_argument("--jars", type=Path, required=True, help="folder with paimon-spark and paimon-bundle")
    parser.add_argument("--tables", type=int, default=len(SHAPES))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="only shapes whose name contains this")
    parser.add_argument("--data-source", action="store_true", help='insert our rows by Spark\'s format("paimon")')
    arguments = parser.parse_args()
    shapes = [shape for shape in SHAPES if arguments.only in shape]
    begun, compared, differences = time.monotonic(), 0, 0
    ours = (DataSource if arguments.data_source else PaimonCli)("local")
    with tempfile.TemporaryDirectory(prefix="append-turns-") as folder:
        java = SparkSql(arguments.python, sorted(arguments.jars.glob("*.jar")), Path(folder))
        java.sql("CREATE DATABASE IF NOT EXISTS paimon.d")
        for number in range(arguments.tables):
            shape = shapes[number % len(shapes)]
            try:
                turns = AppendTurns(Path(folder), f"{arguments.seed}-{shape}-{number}", shape, java, ours)
                for _ in range(arguments.rounds):
                    turns.round()
                turns.check_history()
                compared += turns.compared
            except AssertionError as difference:
                differences += 1
                print(f"table {arguments.seed}-{shape}-{number}: {difference}", file=sys.stderr, flush=True)
        java.close()
    if isinstance(ours, DataSource):
        ours.close()
    line = {"measure": "append turns", "tables": arguments.tables, "rounds": arguments.rounds, "compared": compared}
    print(json.dumps({**line, "differences": differences, "seed": arguments.seed, "seconds": round(time.monotonic() - begun, 1)}))
    return int(bool(differences))


if __name__ == "__main__":
    sys.exit(main())
