"""Keys of many types with null parts, in tables that merge, look up, spill, rescale and prune, beside a plain oracle."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.datatypes.key_order import NULL_PART, comparable_key
from paimon_cli.errors import BadInput, DataConflict
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.check import check_table
from paimon_cli.read.difference import row_changes
from paimon_cli.read.key_history import key_history, key_predicate
from paimon_cli.read.scan_plan import plan_scan
from paimon_cli.read.split_reader import read_split
from paimon_cli.requests.selections import WrittenText
from paimon_cli.sql.predicate import parse_predicate
from tests.jobs.test_rescale_job import rescale
from tests.nightly import first
from tests.tables import Row, compact, make_table, rows, write

VALUES: dict[str, tuple[Any, ...]] = {
    "INT": (-(2**31), -1, 0, 7),
    "BIGINT": (-(2**63), 0, 2**63 - 1),
    "BOOLEAN": (False, True),
    "STRING": ("", "a", "aa", "key-with-a-long-common-prefix-1", "key-with-a-long-common-prefix-2", "ü"),
    "DOUBLE": (-1.5, 0.0, 2.5),
    "DECIMAL(25, 2)": ("-3.00", "0.00", "12345678901234567890.25"),
    "TIMESTAMP(6)": ("1969-12-30T23:59:59.999999", "2024-01-01T00:00:00.000001"),
    "DATE": ("1969-01-01", "2024-02-29"),
}
SHAPES: dict[str, dict[str, str]] = {
    "merged": {},
    "vectors": {"deletion-vectors.enabled": "true"},
    "lookup": {"changelog-producer": "lookup"},
    "snapshot-ordering": {"sequence.snapshot-ordering": "true", "write-only": "true"},
    "spilled": {"write-buffer-size": "64 b", "sort-spill-threshold": "2", "local-sort.max-num-file-handles": "2"},
    "orc": {"file.format": "orc"},
    "avro": {"file.format": "avro", "deletion-vectors.enabled": "true"},
    "pages": {"parquet.page.row.count.limit": "1", "deletion-vectors.enabled": "true"},
}


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(value for name, value in row.items() if name.startswith("k"))


@pytest.mark.in_part(4)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", first(1, range(3)))
def test_tables_with_null_keys(shape: str, seed: int, tmp_path: Path) -> None:
    dice = random.Random(f"{shape}-{seed}")
    types = dice.sample(sorted(VALUES), dice.choice((1, 2, 2, 3)))
    columns = {f"k{number}": t for number, t in enumerate(types)}
    options = {"primary-key.nullable": "true", **SHAPES[shape]}
    context = make_table(tmp_path / "t", {**columns, "v": "INT"}, tuple(columns), bucket=dice.choice((1, 2)), options=options)
    expected: dict[tuple[Any, ...], Row] = {}

    def some_row() -> Row:
        return {name: dice.choice((None, *VALUES[t])) for name, t in columns.items()} | {"v": dice.randrange(100)}

    for number in range(8):
        changes = [(dice.choice(("+I", "+I", "-D")), some_row()) for _ in range(dice.choice((1, 4, 30)))]
        write(context, [{**row, "_op": kind} for kind, row in changes])
        for kind, row in changes:
            if kind == "-D":
                expected.pop(_key(row), None)
            else:
                expected[_key(row)] = row
        if number % 3 == 1 or shape in ("vectors", "avro", "pages", "lookup"):
            compact(context, strategy=dice.choice(("minor", "minor", "full")))
        compact(context, strategy="minor")
        assert _texts(rows(context)) == _texts(expected.values())
        _compare_where(context, "k0 IS NULL", [row for row in expected.values() if row["k0"] is None])
        _compare_where(context, "k0 IS NOT NULL", [row for row in expected.values() if row["k0"] is not None])
    rescale(context, 3)
    context = TableContext.open(context.url)
    assert _texts(rows(context)) == _texts(expected.values())
    assert not list(check_table(context, rows=True))


def _texts(found: Any) -> list[str]:
    return sorted(repr([_plain(value) for value in row.values()]) for row in found)


def _plain(value: Any) -> Any:
    return str(Decimal(value)) if isinstance(value, Decimal) else value


def _compare_where(context: TableContext, where: str, expected: list[Row]) -> None:
    predicate = parse_predicate(where, context.schema)
    plan = plan_scan(context, context.snapshots.latest(), predicate)
    names = context.schema.field_names
    found = sum(b.num_rows for split in plan.splits for b in read_split(context, split, names, predicate))
    assert found == len(expected)


def test_null_is_the_smallest_part() -> None:
    keys = [(1, "a"), (None, "b"), (1, None), (None, None), (-5, "z")]
    ordered = sorted(keys, key=comparable_key)
    assert ordered == [(None, None), (None, "b"), (-5, "z"), (1, None), (1, "a")]
    assert comparable_key((None,)) <= comparable_key((None,)) and not comparable_key((None,)) < comparable_key((None,))
    assert comparable_key((3,)) >= comparable_key((None,)) and comparable_key((3,)) != comparable_key((None,))
    assert NULL_PART not in comparable_key((0, "", False))


def test_changes_between_snapshots_pair_null_keys(tmp_path: Path) -> None:
    context = _small_table(tmp_path)
    first = context.snapshots.latest()
    write(context, [{"a": None, "b": "x", "v": 9}, {"a": None, "b": None, "v": 5}])
    last = context.snapshots.latest()
    assert first is not None and last is not None
    changes = [(change.kind, *change.values.values()) for change in row_changes(context, first, last)]
    assert sorted(changes, key=repr) == [("+I", None, None, 5), ("+U", None, "x", 9), ("-U", None, "x", 1)]


def test_null_keys_conflict_with_each_other(tmp_path: Path) -> None:
    context = _small_table(tmp_path, {"commit.data-conflict-check": "key"})
    read = context.snapshots.latest_id()
    write(context, [{"a": None, "b": "x", "v": 2}])
    write(context, [{"a": 1, "b": None, "v": 3}], read_snapshot=read)
    with pytest.raises(DataConflict, match="a=NULL, b=x"):
        write(context, [{"a": None, "b": "x", "v": 4}], read_snapshot=read)


def test_versions_of_a_null_key_are_shown(tmp_path: Path) -> None:
    context = _small_table(tmp_path)
    write(context, [{"a": None, "b": "x", "v": 2}])
    written: dict[str, str | None] = {"a": WrittenText("NULL"), "b": "x"}
    for key in (written, {"a": None, "b": "x"}):
        versions = key_history(context, key_predicate(context, key)).versions
        assert [version.values["v"] for version in versions if version.values] == [1, 2]


def test_a_table_without_the_option_takes_no_null_keys(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"a": "INT", "v": "INT"}, ["a"])
    with pytest.raises(BadInput, match="NOT NULL"):
        write(context, [{"a": None, "v": 1}])


def _small_table(folder: Path, options: dict[str, str] | None = None) -> TableContext:
    context = make_table(
        folder / "t",
        {"a": "INT", "b": "STRING", "v": "INT"},
        ["a", "b"],
        options={"primary-key.nullable": "true", **(options or {})},
    )
    write(context, [{"a": None, "b": "x", "v": 1}, {"a": 1, "b": "x", "v": 1}])
    return context
