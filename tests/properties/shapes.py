"""The tables to try: for each merge engine, columns and options whose result does not depend on when compactions happen."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from paimon_cli.metadata.bucket_modes import DYNAMIC_BUCKET
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from tests.properties.oracle import Change, Row

APPEND = "append"
"""In the place of a merge engine: a table without keys, of rows that may repeat."""
PRODUCERS = ("none", "input", "lookup", "full-compaction")
INT, SMALL, TEXT, BOOLEAN = "INT", "BIGINT", "STRING", "BOOLEAN"


@dataclass(frozen=True)
class Shape:
    """`columns` beside the key `k` and the partition `p`; `kinds`: which rows may come."""

    name: str
    columns: dict[str, str]
    options: dict[str, str]
    kinds: tuple[str, ...] = ("+I", "+U")

    def may_cross(self, engine: str) -> bool:
        """Whether Paimon lets its keys live in any partition."""
        return "sequence.field" not in self.options and not (engine == "deduplicate" and "ignore-delete" in self.options)


def _functions(**functions: str) -> dict[str, str]:
    return {f"fields.{column}.aggregate-function": function for column, function in functions.items()}


SHAPES: dict[str, tuple[Shape, ...]] = {
    "deduplicate": (
        Shape("plain", {"v": TEXT, "n": INT}, {}, ("+I", "+U", "-D", "-U")),
        Shape("sequence", {"v": TEXT, "n": INT}, {"sequence.field": "n"}),
        Shape("descending", {"v": TEXT, "n": INT}, {"sequence.field": "n", "sequence.field.sort-order": "descending"}),
        Shape("deaf", {"v": TEXT, "n": INT}, {"ignore-delete": "true"}, ("+I", "-D")),
    ),
    "partial-update": (
        Shape("plain", {"v": TEXT, "n": INT, "m": INT}, {}),
        Shape("deaf", {"v": TEXT, "n": INT}, {"ignore-delete": "true"}, ("+I", "-D")),
        Shape(
            "groups",
            {"s": INT, "v": TEXT, "n": INT, "t": INT, "m": INT, "w": TEXT},
            {"fields.s.sequence-group": "v,n", "fields.t.sequence-group": "m"},
        ),
        Shape(
            "sums", {"s": INT, "v": TEXT, "n": SMALL}, {"fields.s.sequence-group": "v,n", "fields.n.aggregate-function": "sum"}
        ),
    ),
    "aggregation": (
        Shape(
            "numbers",
            {"n": SMALL, "m": INT, "o": INT, "v": TEXT, "w": TEXT},
            _functions(n="sum", m="max", o="min", v="last_value", w="first_value"),
        ),
        Shape(
            "texts",
            {"v": TEXT, "w": TEXT, "x": TEXT, "b": BOOLEAN, "c": BOOLEAN},
            _functions(v="listagg", w="first_non_null_value", b="bool_and", c="bool_or"),
        ),
        Shape(
            "retracting",
            {"n": SMALL, "m": INT},
            {**_functions(n="sum", m="max"), "fields.m.ignore-retract": "true"},
            ("+I", "-D"),
        ),
    ),
    "first-row": (
        Shape("plain", {"v": TEXT, "n": INT}, {}),
        Shape("deaf", {"v": TEXT, "n": INT}, {"ignore-delete": "true"}, ("+I", "-D")),
    ),
}
ENGINES = tuple(SHAPES)


COPIES = Shape("plain", {"v": TEXT, "n": INT}, {}, ("+I",))


@dataclass(frozen=True)
class Layout:
    """The layout of a table. `crosses`: the key does not include the partition, so rows move between partitions."""

    shape: Shape
    partitioned: bool
    buckets: int
    options: dict[str, str]
    crosses: bool = False
    has_keys: bool = True

    @property
    def key(self) -> tuple[str, ...]:
        if not self.has_keys:
            return ()
        return ("p", "k") if self.partitioned and not self.crosses else ("k",)

    @property
    def columns(self) -> dict[str, str]:
        of_key = dict.fromkeys(self.key, "INT" if self.has_null_keys else "INT NOT NULL")
        return {**({"p": "INT"} if self.partitioned else {}), "k": "INT", **of_key, **self.shape.columns}

    @property
    def has_null_keys(self) -> bool:
        return "primary-key.nullable" in self.options or not self.has_keys


def random_layout(engine: str, dice: random.Random) -> Layout:
    if engine == APPEND:
        return _append_layout(dice)
    shape = dice.choice(SHAPES[engine])
    options = {"merge-engine": engine, **shape.options, "file.format": dice.choice(("parquet", "parquet", "orc", "avro"))}
    if dice.random() < 0.5:
        options["num-sorted-run.compaction-trigger"] = str(dice.choice((1, 2, 3)))
    if dice.random() < 0.3:
        options["num-levels"] = str(dice.choice((2, 3, 4)))
    if dice.random() < 0.5:
        options["target-file-size"] = "1 kb"
    if dice.random() < 0.3:
        options["write-buffer-size"] = "64 b"
    if dice.random() < 0.3:
        options["source.split.target-size"], options["source.split.open-file-cost"] = "1 b", "1 b"
    if dice.random() < 0.3:
        options["file.format.per.level"] = f"0:{dice.choice(('avro', 'orc', 'parquet'))}"
    if dice.random() < 0.3:
        options["write-only"] = "true"
    options["manifest.merge-min-count"] = dice.choice(("2", "5", "30"))
    options |= _changelog_and_vectors(engine, dice)
    if dice.random() < 0.3:
        options["primary-key.nullable"] = "true"
    partitioned, buckets = dice.random() < 0.3, dice.choice((1, 1, 1, 2, 3))
    if dice.random() < 0.15:
        buckets, options["postpone.batch-write-fixed-bucket"] = POSTPONE_BUCKET, dice.choice(("true", "false"))
    elif dice.random() < 0.4:
        buckets, options["dynamic-bucket.target-row-num"] = DYNAMIC_BUCKET, dice.choice(("1", "2", "5", "100"))
    if partitioned and dice.random() < 0.3:
        options["dynamic-partition-overwrite"] = "false"
    crosses = buckets == DYNAMIC_BUCKET and shape.may_cross(engine) and dice.random() < 0.6
    return Layout(shape, partitioned or crosses, buckets, options, crosses)


def _append_layout(dice: random.Random) -> Layout:
    options = {"file.format": dice.choice(("parquet", "parquet", "orc", "avro"))}
    options["manifest.merge-min-count"] = dice.choice(("2", "5", "30"))
    options["target-file-size"] = dice.choice(("1 b", "1 kb", "2 kb", "256 mb"))
    if dice.random() < 0.5:
        options["deletion-vectors.enabled"] = "true"
        options["deletion-vectors.bitmap64"] = dice.choice(("true", "false"))
    if dice.random() < 0.5:
        options["compaction.min.file-num"] = dice.choice(("2", "3"))
    if dice.random() < 0.3:
        options["write-only"] = "true"
    if dice.random() < 0.3:
        options["source.split.target-size"], options["source.split.open-file-cost"] = "1 b", "1 b"
    partitioned, buckets = dice.random() < 0.4, dice.choice((DYNAMIC_BUCKET, 1, 2, 3))
    if buckets != DYNAMIC_BUCKET:
        options["bucket-key"] = "k"
    if partitioned and dice.random() < 0.3:
        options["dynamic-partition-overwrite"] = "false"
    return Layout(COPIES, partitioned, buckets, options, has_keys=False)


def _changelog_and_vectors(engine: str, dice: random.Random) -> dict[str, str]:
    if dice.random() < 0.5:
        return {}
    options = {"changelog-producer": dice.choice(("none", "lookup") if engine == "first-row" else PRODUCERS)}
    if dice.random() < 0.3:
        options["changelog-producer.row-deduplicate"] = "true"
    if engine != "first-row" and options["changelog-producer"] != "full-compaction" and dice.random() < 0.5:
        options["deletion-vectors.enabled"] = "true"
        options["deletion-vectors.bitmap64"] = dice.choice(("true", "false"))
        options["deletion-vectors.merge-on-read"] = dice.choice(("false", "false", "true"))
    return options


def random_changes(layout: Layout, dice: random.Random) -> list[Change]:
    return [Change(dice.choice(layout.shape.kinds), _random_row(layout, dice)) for _ in range(dice.randrange(1, 6))]


def _random_row(layout: Layout, dice: random.Random) -> Row:
    row: Row = {"k": dice.randrange(8)}
    if layout.partitioned:
        row = {"p": dice.randrange(3 if layout.crosses else 2), **row}
    if layout.has_null_keys:
        row = {name: None if dice.random() < 0.25 else value for name, value in row.items()}
    row |= {name: _random_value(kind, dice) for name, kind in layout.shape.columns.items()}
    for name, columns in layout.shape.options.items():
        if columns == "listagg":
            column = name.removeprefix("fields.").removesuffix(".aggregate-function")
            row[column] = row[column] or None  # a lone blank stays, a joined one vanishes: again as compactions happen
        sequence = name.removeprefix("fields.").removesuffix(".sequence-group")
        if name.endswith(".sequence-group") and row[sequence] is None:
            # A lone row passes through with such values, a merged one loses them: Paimon's outcome depends on compactions.
            row |= dict.fromkeys(columns.split(","))
    return row


def _random_value(kind: str, dice: random.Random) -> Any:
    if dice.random() < 0.25:
        return None
    if kind == TEXT:
        return dice.choice(("", "a", "b", "zz", "ä€"))
    return dice.random() < 0.5 if kind == BOOLEAN else dice.randrange(-5, 6)
