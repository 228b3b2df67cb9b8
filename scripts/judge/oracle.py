"""The shapes of the tables in `turns`, and a plain oracle of what such a table must hold."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from scripts.judge.peers import Row

Key = tuple[Any, ...]
State = dict[Key, Row]
Merge = Callable[[Row | None, Row], Row | None]

VALUES = ("v", "w", "s")
COLUMNS = {"p": "STRING", "id": "INT", "k": "STRING", "v": "BIGINT", "w": "BIGINT", "s": "STRING"}


def deduplicate(old: Row | None, new: Row) -> Row | None:
    return None if new["_kind"] == "-D" else new


def first_row(old: Row | None, new: Row) -> Row | None:
    return old or new


def partial_update(old: Row | None, new: Row) -> Row | None:
    return {name: new[name] if new[name] is not None else (old or new)[name] for name in new}


def aggregate(old: Row | None, new: Row) -> Row | None:
    v, w, s = ([row[name] for row in (old, new) if row is not None and row[name] is not None] for name in VALUES)
    return {**new, "v": sum(v) if v else None, "w": max(w, default=None), "s": s[-1] if s else None}


def at_home(merge: Merge) -> Merge:
    """The merge, with the result in the partition of the old row, whatever the new row says."""

    def merged(old: Row | None, new: Row) -> Row | None:
        return merge(old, new if old is None else {**new, "p": old["p"]})

    return merged


def by_sequence(old: Row | None, new: Row) -> Row | None:
    return new if old is None or new["w"] >= old["w"] else old


AGGREGATION = {
    "merge-engine": "aggregation",
    "fields.v.aggregate-function": "sum",
    "fields.w.aggregate-function": "max",
    "fields.s.aggregate-function": "last_non_null_value",
}
FIRST_ROW = {"merge-engine": "first-row"}
PARTIAL_UPDATE = {"merge-engine": "partial-update"}
ENGINES: dict[str, Merge] = {
    "deduplicate": deduplicate,
    "first-row": first_row,
    "partial-update": partial_update,
    "aggregation": aggregate,
}

CROSSING = "crossing"
"""In shapes with this name, the key does not include the partition. Java needs rocksdbjni for them, a jar that pyspark brings."""
NULLABLE = {"primary-key.nullable": "true"}
"""Java 1.4 does not know the option, but reads and writes tables with nullable key columns."""
VECTORS = {"deletion-vectors.enabled": "true"}
LOOKUP, INPUT, FULL = ({"changelog-producer": producer} for producer in ("lookup", "input", "full-compaction"))
ONCE = {"changelog-producer.row-deduplicate": "true"}
DYNAMIC = {"bucket": "-1", "dynamic-bucket.target-row-num": "7"}
"""Dynamic buckets of few keys each, so that most rounds open new ones."""
LONGER = {"changelog.num-retained.min": "1000", "changelog.num-retained.max": "1000", "changelog.time-retained": "10 d"}
"""With these options, changelogs outlive their snapshots."""
NO_WAIT = {"lookup-wait": "false"}
GENTLE = {"lookup-compact": "gentle", "lookup-compact.max-interval": "3"}
POSTPONED = {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false"}
"""Java compacts tables with these options only in Spark SQL. There it replays the files of several commits in an undefined order,
and mistakes deletes for inserts, so we compact such rows.
"""
SHAPES: dict[str, dict[str, str]] = {
    "vectors": VECTORS,
    "vectors-64": {**VECTORS, "deletion-vectors.bitmap64": "true"},
    "vectors-small-indexes": {**VECTORS, "deletion-vector.index-file.target-size": "64 b", "target-file-size": "4 kb"},
    "vectors-merged": {**VECTORS, "deletion-vectors.merge-on-read": "true"},
    "vectors-aggregation": {**VECTORS, **AGGREGATION},
    "vectors-partial-update": {**VECTORS, **PARTIAL_UPDATE},
    "vectors-sequence": {**VECTORS, "sequence.field": "w"},
    "vectors-input": {**VECTORS, **INPUT},
    "vectors-lookup": {**VECTORS, **LOOKUP},
    "vectors-64-lookup-once": {**VECTORS, **LOOKUP, **ONCE, "deletion-vectors.bitmap64": "true"},
    "vectors-lookup-aggregation": {**VECTORS, **LOOKUP, **AGGREGATION},
    "vectors-lookup-partial-update": {**VECTORS, **LOOKUP, **PARTIAL_UPDATE},
    "vectors-no-wait": {**VECTORS, **NO_WAIT},
    "vectors-gentle": {**VECTORS, **GENTLE},
    "vectors-lookup-no-wait": {**VECTORS, **LOOKUP, **NO_WAIT},
    "vectors-lookup-gentle-aggregation": {**VECTORS, **LOOKUP, **GENTLE, **AGGREGATION},
    "lookup-gentle": {**LOOKUP, **GENTLE},
    "first-row-no-wait": {**FIRST_ROW, **NO_WAIT},
    "input": INPUT,
    "input-partial-update": {**INPUT, **PARTIAL_UPDATE},
    "lookup": LOOKUP,
    "lookup-once": {**LOOKUP, **ONCE},
    "lookup-once-ignoring": {**LOOKUP, **ONCE, "changelog-producer.row-deduplicate-ignore-fields": "s"},
    "lookup-first-row": {**LOOKUP, **FIRST_ROW},
    "lookup-partial-update": {**LOOKUP, **PARTIAL_UPDATE},
    "lookup-aggregation": {**LOOKUP, **AGGREGATION},
    "lookup-sequence": {**LOOKUP, "sequence.field": "w"},
    "force-lookup": {"force-lookup": "true"},
    "full-compaction": FULL,
    "full-compaction-once": {**FULL, **ONCE},
    "full-compaction-partial-update": {**FULL, **PARTIAL_UPDATE},
    "full-compaction-aggregation": {**FULL, **AGGREGATION},
    "full-compaction-once-ignoring": {**FULL, **ONCE, "changelog-producer.row-deduplicate-ignore-fields": "s"},
    "first-row": FIRST_ROW,
    "bucket-mod": {"bucket-function.type": "mod", "bucket-key": "id"},
    "bucket-hive": {"bucket-function.type": "hive"},
    "bucket-hive-vectors": {**VECTORS, "bucket-function.type": "hive", "bucket-key": "k"},
    "postponed": POSTPONED,
    "postponed-vectors": {**POSTPONED, **VECTORS},
    "postponed-first-row": {**POSTPONED, **FIRST_ROW},
    "postponed-partial-update": {**POSTPONED, **PARTIAL_UPDATE},
    "postponed-aggregation": {**POSTPONED, **AGGREGATION},
    "postponed-sequence": {**POSTPONED, "sequence.field": "w"},
    "postponed-lookup": {**POSTPONED, **LOOKUP},
    "crossing": DYNAMIC,
    "crossing-vectors": {**DYNAMIC, **VECTORS},
    "crossing-lookup": {**DYNAMIC, **LOOKUP},
    "crossing-partial-update": {**DYNAMIC, **PARTIAL_UPDATE},
    "crossing-lookup-aggregation": {**DYNAMIC, **LOOKUP, **AGGREGATION},
    "crossing-first-row": {**DYNAMIC, **FIRST_ROW},
    "crossing-nullable": {**DYNAMIC, **NULLABLE},
    "nullable": NULLABLE,
    "nullable-vectors": {**NULLABLE, **VECTORS},
    "nullable-lookup-aggregation": {**NULLABLE, **LOOKUP, **AGGREGATION},
    "nullable-first-row": {**NULLABLE, **FIRST_ROW},
    "dynamic": DYNAMIC,
    "dynamic-partial-update": {**DYNAMIC, **PARTIAL_UPDATE},
    "dynamic-assigners": {**DYNAMIC, "dynamic-bucket.initial-buckets": "3"},
    "dynamic-limited": {**DYNAMIC, "dynamic-bucket.max-buckets": "3", "dynamic-bucket.initial-buckets": "2"},
    "dynamic-vectors-lookup": {**DYNAMIC, **VECTORS, **LOOKUP},
    "dynamic-input": {**DYNAMIC, **INPUT},
    "dynamic-input-sequence": {**DYNAMIC, **INPUT, "sequence.field": "w"},
    "dynamic-nullable": {**DYNAMIC, **NULLABLE},
}


@dataclass
class Oracle:
    """What the table must hold: all committed rows, the rows after compactions, and the changes that are not yet visible."""

    options: dict[str, str]
    keys: tuple[str, ...]
    crosses: bool = False
    committed: State = field(default_factory=dict)
    compacted: State = field(default_factory=dict)
    waiting: set[Key] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.producer = self.options.get("changelog-producer", "none")
        self.engine = self.options.get("merge-engine", "deduplicate")
        self.merge = by_sequence if "sequence.field" in self.options else ENGINES[self.engine]
        self.postpones = self.options["bucket"] == "-2"
        self.hides_level_0 = "deletion-vectors.enabled" in self.options or self.engine == "first-row" or self.postpones
        self.has_deletes = self.merge is deduplicate
        if self.crosses and self.engine in ("partial-update", "aggregation"):
            self.merge = at_home(self.merge)

    def key(self, row: Row) -> Key:
        return tuple(row[name] for name in self.keys)

    def write(self, rows: Sequence[Row]) -> list[Row]:
        for row in rows:
            key = self.key(row)
            self.waiting.add(key)
            merged = self.merge(self.committed.get(key), row)
            if merged is None:
                self.committed.pop(key, None)
            else:
                self.committed[key] = merged
        if self.producer != "input":
            return []
        return sorted(rows, key=lambda row: int(row["w"])) if self.merge is by_sequence else list(rows)

    def compact(self, partitions: Collection[str] | None = None) -> list[Row]:
        """The changes that become visible when the waiting rows of these partitions (None: of all) are compacted."""
        seen = [key for key in self.waiting if partitions is None or key[0] in partitions]
        changes = [change for key in seen for change in self._change(self.compacted.pop(key, None), self.committed.get(key))]
        self.waiting.difference_update(seen)
        self.compacted.update({key: self.committed[key] for key in seen if key in self.committed})
        return [] if self.producer in ("input", "none") else changes

    def _change(self, old: Row | None, new: Row | None) -> list[Row]:
        if old is None or new is None:
            return [{**row, "_kind": kind} for row, kind in ((old, "-D"), (new, "+I")) if row is not None]
        if self.crosses and old["p"] != new["p"]:
            return [{**old, "_kind": "-D"}, {**new, "_kind": "+I"}]
        ignored = self.options.get("changelog-producer.row-deduplicate-ignore-fields", "").split(",")
        same = all(old[name] == new[name] for name in VALUES if name not in ignored)
        if self.engine == "first-row" or (same and "changelog-producer.row-deduplicate" in self.options):
            return []
        return [{**old, "_kind": "-U"}, {**new, "_kind": "+U"}]

    def rows(self, *, java: bool) -> list[Row]:
        """Java 1.4 does not know `merge-on-read`, which shows level 0 in spite of the vectors."""
        hidden = self.hides_level_0 and (java or "deletion-vectors.merge-on-read" not in self.options)
        return list((self.compacted if hidden else self.committed).values())
