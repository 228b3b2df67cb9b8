"""Golden tables with vectors, changelogs, dynamic buckets or without a key: we read and change them, then others read them.

    python -m scripts.judge.goldens --jars FOLDER --reader 'pypaimon=python read_pypaimon.py' --reader 'rust=python read_rust.py'

First we must read the recorded rows of each golden at every snapshot. Then we compact it, write upserts and deletes, compact
again and expire. Java and each further reader must then see the rows of a plain oracle, and Java our changelog. A reader that
cannot read a table is listed with its message. Prints a JSON line; the exit code is 1 if rows or changes differ.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from scripts.judge.peers import JavaPaimon, PaimonCli, Reader, Row
from tests.goldens import GOLDENS, Golden, expected_rows, golden_table

STEPS = 4


State = dict[tuple[object, ...], Row]


def bag(rows: Iterable[Row], without: str = "_kind") -> Counter[str]:
    return Counter(json.dumps({name: row[name] for name in sorted(row.keys() - {without})}) for row in rows)


class Continued:
    """A golden table in a folder, and the rows that it must hold."""

    def __init__(self, golden: Golden, folder: Path, java: JavaPaimon, readers: list[Reader]) -> None:
        self.golden, self.java, self.readers, self.ours = golden, java, readers, PaimonCli()
        self.table = golden_table(golden.writer, golden.name, folder)
        self.keys = tuple(golden.schema["primaryKeys"])
        self.engine = golden.options.get("merge-engine", "deduplicate")
        self.random = random.Random(str(golden))
        self.cannot: dict[str, str] = {}
        self.compared = 0

    def _latest(self) -> int:
        return max(int(path.name.rsplit("-", 1)[1]) for path in (self.table / "snapshot").glob("snapshot-*"))

    def _same(self, what: str, found: Iterable[Row], wanted: Iterable[Row], without: str = "_kind") -> None:
        left, right = bag(found, without), bag(wanted, without)
        self.compared += 1
        wrong, missing = (sorted(rest.elements())[:3] for rest in (left - right, right - left))
        assert left == right, f"{what}: {wrong} instead of {missing}"

    def read_as_written(self) -> None:
        for moment in self.golden.moments:
            wanted = expected_rows(self.golden, moment)
            if moment == "changelog":
                found = self.ours.changelog(self.table, 1, self._latest())
                self._same("changelog", found, wanted, "_snapshot")
                continue
            kind, _, name = moment.partition("-")
            self._same(moment, self.ours.read(self.table, *((f"--{kind}", name) if name else ())), wanted)

    def _changed(self, rows: list[Row]) -> list[Row]:
        """Rows with the values of other rows, under old and new keys; some are deletes."""
        written = []
        for row in self.random.choices(rows, k=12):
            cells = {**self.random.choice(rows), **{key: row[key] for key in self.keys}}
            if self.random.random() < 0.3:
                cells[self.keys[-1]] += 1000 + self.random.randrange(50)
            deletes = self.engine == "deduplicate" and self.random.random() < 0.3
            written.append({**cells, "_kind": "-D" if deletes else "+I"})
        return written

    def _merged(self, old: Row | None, new: Row) -> Row | None:
        if self.engine == "deduplicate" or old is None:
            return None if new["_kind"] == "-D" else new
        if self.engine == "first-row":
            return old
        assert self.engine == "aggregation" and self.golden.options["fields.a.aggregate-function"] == "sum"
        total = [row["a"] for row in (old, new) if row["a"] is not None]
        latest = {name: new[name] if new[name] is not None else old[name] for name in new}
        return {**latest, "a": sum(total) if total else None}

    def continue_it(self) -> None:
        self.ours.compact(self.table, full=True)
        rows = {tuple(row[key] for key in self.keys): row for row in self.ours.read(self.table)}
        self._same("java, compacted by us", self.java.read(self.table), rows.values())
        for step in range(STEPS):
            before, first = dict(rows), self._latest() + 1
            written = self._changed(list(rows.values()))
            for row in written:
                key = tuple(row[name] for name in self.keys)
                merged = self._merged(rows.pop(key, None), row)
                if merged is not None:
                    rows[key] = merged
            self.ours.write(self.table, written, compact=step % 2 == 0)
            self.ours.compact(self.table, full=step % 2 == 1 or "full-compaction" in self.golden.options.values())
            self._check(rows.values())
            self._check_changes(first, written, before, rows)
        self.ours.expire(self.table, 1)
        self._check(rows.values(), further=True)
        self.ours.run("verify", self.table, "--level", "full")

    def _check(self, rows: Iterable[Row], *, further: bool = False) -> None:
        self._same("our rows", self.ours.read(self.table), rows)
        self._same("rows of java", self.java.read(self.table), rows)
        for reader in self.readers if further else ():
            found = reader.read(self.table)
            if isinstance(found, str):
                self.cannot[reader.name] = found
            else:
                self._same(f"rows of {reader.name}", found, rows)

    def _check_changes(self, first: int, written: list[Row], before: State, after: State) -> None:
        producer = self.golden.options.get("changelog-producer", "none")
        if producer == "none":
            return
        changes = list(written) if producer == "input" else []
        once = self.golden.options.get("changelog-producer.row-deduplicate") == "true"
        for key in {tuple(row[name] for name in self.keys) for row in written} if producer != "input" else ():
            old, new = before.get(key), after.get(key)
            unchanged = self.engine == "first-row" or once
            if old is not None and new is not None and unchanged and bag([old]) == bag([new]):
                continue
            changes += [{**old, "_kind": "-U" if new else "-D"}] if old is not None else []
            changes += [{**new, "_kind": "+U" if old else "+I"}] if new is not None else []
        for peer in (self.java, self.ours):
            found = peer.changelog(self.table, first, self._latest())
            self._same(f"changelog of {peer.name}", found, changes, "_snapshot")


class ContinuedAppend(Continued):
    """An append table. Rows are added, deleted, changed and compacted, first by copying files, then with deletion vectors."""

    def continue_it(self) -> None:
        rows = self.ours.read(self.table)
        texts = [f["name"] for f in self.golden.schema["fields"] if f["type"].startswith("STRING")]
        self.text = next(name for name in texts if name not in self.golden.schema["partitionKeys"])
        for uses_vectors in (False, True):
            if uses_vectors:
                self.ours.run("alter", self.table, "set", "deletion-vectors.modifiable=true")
                self.ours.run("alter", self.table, "set", "deletion-vectors.enabled=true")
            for full in (False, True):
                added = [{**row, "_kind": "+I"} for row in self.random.choices(rows, k=12)]
                self.ours.write(self.table, added, compact=False)
                rows = self._changed_by_us([*rows, *({**row} for row in added)])
                self._check(rows)
                self.ours.compact(self.table, full=full)
                self._check(rows)
        if self.golden.options.get("bucket") == "-1":
            self.ours.run("compact", self.table, "--order-by", f"k,{self.text}", "--order-strategy", "hilbert", *self.ours.engine)
        rows = self._changed_by_us(rows)
        self.ours.expire(self.table, 1)
        self._check(rows, further=True)
        self.ours.run("verify", self.table, "--level", "full")

    def _changed_by_us(self, rows: list[Row]) -> list[Row]:
        keys = sorted(row["k"] for row in rows if row["k"] is not None)
        first, second = self.random.choice(keys), self.random.choice(keys)
        self.ours.run("delete", self.table, "-w", f"k = {first}", *self.ours.engine)
        self.ours.run("update", self.table, "-w", f"k >= {second}", "--set", f"{self.text} = 'changed'", *self.ours.engine)
        left = [row for row in rows if row["k"] != first]
        return [{**row, self.text: "changed"} if row["k"] is not None and row["k"] >= second else row for row in left]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jars", type=Path, required=True, help="folder with paimon-bundle and Hadoop's client jars")
    how = "a command that prints the rows of the table in its last argument; repeatable"
    parser.add_argument("--reader", type=Reader.of, action="append", default=[], metavar="NAME=COMMAND", help=how)
    parser.add_argument("--only", default="", help="only goldens whose name contains this")
    arguments = parser.parse_args()
    java = JavaPaimon(arguments.jars)
    tables = compared = differences = 0
    for golden in GOLDENS:
        is_dynamic = golden.options.get("bucket") == "-1" and golden.schema["primaryKeys"]
        is_append = not golden.schema["primaryKeys"]
        is_judged = is_dynamic or is_append or {"deletion-vectors.enabled", "changelog-producer"} & golden.options.keys()
        if not is_judged or arguments.only not in str(golden):
            continue
        tables += 1
        with tempfile.TemporaryDirectory(prefix="goldens-") as folder:
            continued = (ContinuedAppend if is_append else Continued)(golden, Path(folder), java, arguments.reader)
            try:
                continued.read_as_written()
                continued.continue_it()
            except AssertionError as difference:
                differences += 1
                print(f"{golden}: {difference}", file=sys.stderr, flush=True)
        compared += continued.compared
        for name, why in continued.cannot.items():
            print(f"{golden}: {name} cannot read it: {why}", file=sys.stderr, flush=True)
    java.close()
    print(json.dumps({"measure": "continued goldens", "tables": tables, "compared": compared, "differences": differences}))
    return int(bool(differences))


if __name__ == "__main__":
    sys.exit(main())
