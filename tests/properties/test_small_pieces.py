"""Tables of twenty rows in pieces of one to seven rows: no operation depends on where one piece ends and the next begins."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from paimon_cli import Table
from tests.nightly import first
from tests.pieces import injected
from tests.tables import make_table

Row = dict[str, Any]
COLUMNS = {"p": "INT", "k": "INT", "v": "STRING", "n": "INT"}
ARROW = pa.schema([("p", pa.int32()), ("k", pa.int32()), ("v", pa.string()), ("n", pa.int32())])
VECTORS = {"deletion-vectors.enabled": "true"}
KEYS, ROWS = 23, 20


@dataclass(frozen=True)
class Kind:
    """A kind of table. `key`: none if rows may repeat."""

    key: tuple[str, ...] = ("k",)
    partitions: tuple[str, ...] = ()
    bucket: int = 1
    options: dict[str, str] = field(default_factory=dict)


KINDS = {
    "fixed buckets": Kind(bucket=2),
    "no compaction while writing": Kind(options={"write-only": "true"}),
    "partitions": Kind(("p", "k"), ("p",)),
    "vectors": Kind(options=VECTORS),
    "lookup changelog": Kind(options={"changelog-producer": "lookup"}),
    "full changelog": Kind(options={"changelog-producer": "full-compaction"}),
    "dynamic buckets": Kind(bucket=-1, options={"dynamic-bucket.target-row-num": "4"}),
    "cross-partition": Kind(("k",), ("p",), -1, {"dynamic-bucket.target-row-num": "4"}),
    "postponed": Kind(bucket=-2),
    "ORC": Kind(options={"file.format": "orc"}),
    "Avro": Kind(options={"file.format": "avro"}),
    "append": Kind((), bucket=-1),
    "append with vectors": Kind((), bucket=-1, options=VECTORS),
    "append in partitions": Kind((), ("p",), -1),
    "append in buckets": Kind((), bucket=2, options={"bucket-key": "k"}),
}


class Model:
    """What the table must hold: its rows by key, or as a list if they may repeat."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.rows: list[Row] = []

    def write(self, rows: list[Row]) -> None:
        if not self.kind.key:
            self.rows += rows
            return
        latest = {tuple(row[name] for name in self.kind.key): row for row in [*self.rows, *rows]}
        self.rows = list(latest.values())

    def sorted(self) -> list[Row]:
        return _sorted(self.rows)


def _sorted(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: [(value is not None, value) for value in row.values()])


def _rows(dice: random.Random, count: int = ROWS) -> list[Row]:
    return [
        {
            "p": dice.randrange(2),
            "k": dice.randrange(KEYS),
            "v": dice.choice([None, "", "é" * dice.randrange(5), f"text {dice.randrange(100)}"]),
            "n": dice.choice([None, dice.randrange(50)]),
        }
        for _ in range(count)
    ]


def _check(table: Table, model: Model) -> None:
    assert _sorted(table.scan().to_arrow().to_pylist()) == model.sorted()
    for key in (0, 11, KEYS - 1):
        found = table.scan(where=f"k = {key}").to_arrow().to_pylist()
        assert _sorted(found) == _sorted([row for row in model.rows if row["k"] == key])


def _run(table: Table, kind: Kind, dice: random.Random) -> None:
    model = Model(kind)
    postponed = kind.bucket == -2
    for turn in range(4):
        rows = _rows(dice)
        table.write(pa.Table.from_pylist(rows, ARROW))
        model.write(rows)
        if postponed or turn == 2:
            table.compact("full")
        _check(table, model)
        low = dice.randrange(KEYS)
        where = f"k >= {low} AND k < {low + 4} AND n > 10"
        matches = [low <= row["k"] < low + 4 and (row["n"] or 0) > 10 for row in model.rows]
        if turn % 2:
            table.delete(where)
            model.rows = [row for row, match in zip(model.rows, matches, strict=True) if not match]
        else:
            table.update({"v": "'new'", "n": "n + 1"}, where)
            changed = [{**row, "v": "new", "n": (row["n"] or 0) + 1} for row in model.rows]
            model.rows = [new if match else row for row, new, match in zip(model.rows, changed, matches, strict=True)]
        if postponed:
            table.compact("full")
        _check(table, model)
    table.compact("full")
    _check(table, model)
    assert table.verify("full").violations == []


@pytest.fixture(params=first(1, (3, 1, 2, 7)))
def small_pieces(request: pytest.FixtureRequest) -> Iterator[int]:
    with injected(request.param):
        yield request.param


@pytest.mark.in_part(6)
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_table(name: str, small_pieces: int, tmp_path: Path) -> None:
    kind = KINDS[name]
    context = make_table(tmp_path / "t", COLUMNS, kind.key, kind.partitions, kind.bucket, kind.options)
    _run(Table.open(context.url), kind, random.Random(small_pieces))


def _written(tmp_path: Path, dice: random.Random, kind: Kind, commits: int = 5) -> tuple[Table, Model]:
    context = make_table(tmp_path / "t", COLUMNS, kind.key, kind.partitions, kind.bucket, kind.options)
    table, model = Table.open(context.url), Model(kind)
    for _ in range(commits):
        rows = _rows(dice)
        table.write(pa.Table.from_pylist(rows, ARROW))
        model.write(rows)
    return table, model


SPILLED = {"write-buffer-size": "1 kb", "sort-spill-threshold": "2", "write-buffer-spillable": "true"}


@pytest.mark.parametrize("name", first(1, ["cross-partition", "fixed buckets", "append"]))
def test_rows_from_files_that_are_spilled(name: str, small_pieces: int, tmp_path: Path) -> None:
    kind = replace(KINDS[name], options={**KINDS[name].options, **SPILLED})
    table, model = _written(tmp_path, random.Random(small_pieces), kind, 1)
    for form in ("csv", "json", "parquet"):
        rows = [{**row, "v": row["v"] or None} for row in _rows(random.Random(form), 200)]
        file, given = tmp_path / f"rows.{form}", pa.Table.from_pylist(rows, ARROW)
        if form == "csv":
            pa.csv.write_csv(given, file)
        elif form == "json":
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        else:
            pa.parquet.write_table(given, file, row_group_size=small_pieces * 5)
        table.write(str(file))
        model.write(rows)
        _check(table, model)


@pytest.mark.parametrize("order", ["order", "zorder", "hilbert"])
def test_rows_that_are_put_in_order(order: Any, small_pieces: int, tmp_path: Path) -> None:
    table, model = _written(tmp_path, random.Random(small_pieces), KINDS["append in partitions"])
    table.compact(order_by=["k", "n"], order_strategy=order)
    _check(table, model)


def test_rows_are_read_in_order_and_up_to_a_limit(small_pieces: int, tmp_path: Path) -> None:
    table, model = _written(tmp_path, random.Random(small_pieces), KINDS["append"])
    first = sorted(model.rows, key=lambda row: (row["k"], -(row["n"] or 0)))
    for limit in (None, 1, 5, 17):
        found = table.scan(order_by="k, n DESC NULLS LAST", limit=limit).to_arrow().to_pylist()
        assert [(row["k"], row["n"] or 0) for row in found] == [(row["k"], row["n"] or 0) for row in first[:limit]]


def test_old_snapshots_go_and_their_files(small_pieces: int, tmp_path: Path) -> None:
    table, model = _written(tmp_path, random.Random(small_pieces), KINDS["fixed buckets"])
    for number in range(9):
        stray = tmp_path / "t" / "bucket-0" / f"data-stray-{number}-0.parquet"
        stray.write_bytes(b"stray")
        os.utime(stray, (0, 0))
    table.compact("full")
    table.expire(retain_max=1, retain_min=1)
    assert table.remove_orphans()[0] == 9
    _check(table, model)
    assert table.verify("full").violations == []
