"""Pruned scans give the rows of unpruned ones, over tables of our own and the golden ones; what is skipped is counted."""

from __future__ import annotations

import json
import pickle
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli import Table
from paimon_cli.datatypes.arrow_types import arrow_field
from paimon_cli.datatypes.canonical_form import canonical_rows
from paimon_cli.datatypes.data_type import INT, BinaryType, DataField, DataType, NestedType
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.read.scan_plan import ReadPlan, plan_scan
from paimon_cli.read.split_reader import count_split, read_split
from paimon_cli.sql.predicate import Predicate, parse_predicate
from tests.goldens import GOLDENS, Golden, expected_rows, golden_table
from tests.nightly import first
from tests.tables import compact, make_table, write

COLUMNS = {"dt": "STRING NOT NULL", "k": "INT NOT NULL", "s": "STRING", "v": "INT", "g": "DOUBLE"}


def scanned(context: TableContext, plan: ReadPlan, predicate: Predicate | None = None, **kinds: Any) -> Counter[str]:
    batches = [b for split in plan.splits for b in read_split(context, split, context.schema.field_names, predicate, **kinds)]
    return Counter(json.dumps(row, sort_keys=True) for batch in batches for row in canonical_rows(batch, context.schema.fields))


def assert_pruning_changes_nothing(context: TableContext, conditions: list[str]) -> int:
    """Returns how many files were skipped in all."""
    snapshot = context.snapshots.latest()
    everything = plan_scan(context, snapshot)
    skipped = 0
    for sql in conditions:
        predicate = parse_predicate(sql, context.schema)
        plan = pickle.loads(pickle.dumps(plan_scan(context, snapshot, predicate)))
        expected = scanned(context, everything, predicate)
        assert scanned(context, plan, predicate) == expected, sql
        assert sum(count_split(context, split, predicate) for split in plan.splits) == expected.total()
        skipped += sum(len(s.bucket.files) for s in everything.splits) - sum(len(s.bucket.files) for s in plan.splits)
    return skipped


def _random_row(source: random.Random) -> dict[str, Any]:
    k = source.randrange(60)
    value = source.choice([None, source.randrange(100)])
    text = source.choice([None, "", f"text {k // 10} that is longer than sixteen", "é" * source.randrange(20)])
    number = source.choice([None, 0.5, "NaN", -0.0, float(k)])
    kind = source.choice(["+I", "+I", "+U", "-D"])
    return {"dt": source.choice(["a", "b"]), "k": k, "s": text, "v": value, "g": number, "_op": kind}


def _random_condition(source: random.Random) -> str:
    k, v = source.randrange(-5, 65), source.randrange(-10, 110)
    leaves = [
        "dt = 'a'",
        "dt > 'a'",
        f"k = {k}",
        f"k IN ({k}, {k + 1})",
        f"k < {k}",
        f"k BETWEEN {k} AND {k + 5}",
        f"v = {v}",
        f"v > {v}",
        f"v <= {v}.5",
        "v IS NULL",
        "s IS NOT NULL",
        f"s LIKE 'text {k // 10}%'",
        "s = ''",
        f"s > 'text {k // 10}'",
        f"g < {k}",
        f"NOT g < {k}",
        "g = 0",
    ]
    parts = source.sample(leaves, source.choice([1, 1, 2, 3]))
    return f" {source.choice(['AND', 'OR'])} ".join(parts)


@pytest.mark.parametrize("seed", first(1, range(4)))
def test_pruned_scans_of_random_tables(seed: int, tmp_path: Path) -> None:
    source = random.Random(seed)
    options = {"target-file-size": "1 kb", "num-sorted-run.compaction-trigger": "100"}
    context = make_table(tmp_path / "t", COLUMNS, ("dt", "k"), ("dt",), 2, options)
    for step in range(6):
        low, high = sorted((source.randrange(60), source.randrange(60)))
        rows = [row for row in (_random_row(source) for _ in range(40)) if step % 2 or low <= row["k"] <= high]
        if rows:
            write(context, rows)
        if source.random() < 0.3:
            compact(context, strategy="full")
    assert assert_pruning_changes_nothing(context, [_random_condition(source) for _ in range(15)]) > 0


@pytest.mark.parametrize("key", ["INT", "STRING", "BYTES", "TIMESTAMP(6)", "DECIMAL(20, 2)", "DOUBLE"])
def test_a_table_without_files_has_no_splits(key: str, tmp_path: Path) -> None:
    """Neither before its first snapshot nor when all of its rows are gone, whatever the type of its key."""
    context = make_table(tmp_path / "t", {"k": f"{key} NOT NULL"}, ("k",))
    assert plan_scan(context, context.snapshots.latest()).splits == ()


def test_an_older_row_that_matches_stays_hidden(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ("dt", "k"), ("dt",))
    write(context, [{"dt": "a", "k": k, "s": "old", "v": 1, "g": 1.0} for k in (1, 2)])
    write(context, [{"dt": "a", "k": k, "s": "new", "v": 2, "g": 1.0} for k in (1, 2)])
    write(context, [{"dt": "a", "k": 2, "s": "new", "v": 2, "g": 1.0}], "delete")
    predicate = parse_predicate("v = 1", context.schema)
    plan = plan_scan(context, context.snapshots.latest(), predicate)
    assert len(plan.splits[0].bucket.files) == 3 and scanned(context, plan, predicate) == Counter()
    deleted = scanned(context, plan_scan(context, context.snapshots.latest()), None, keep_kinds=True)
    assert deleted.total() == 2
    assert plan_scan(context, context.snapshots.latest(), parse_predicate("v = 3", context.schema)).splits == ()


def test_schema_changes_and_statistics(tmp_path: Path) -> None:
    """Renamed and widened columns keep their bounds, an added one is null in old files."""
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "INT", "w": "INT"}, ("k",), options={"write-only": "true"})
    write(context, [{"k": k, "v": k, "w": k} for k in range(5)])
    old = context.schema
    fields = (
        old.fields[0],
        DataField(1, "v", parse_type("BIGINT")),
        DataField(2, "x", old.fields[2].type),
        DataField(3, "w", INT),
    )
    new = TableSchema(1, fields, 3, (), ("k",), old.options, None, 0)
    (tmp_path / "t" / "schema" / "schema-1").write_text(new.to_json())
    context = TableContext.open(str(tmp_path / "t"))
    write(context, [{"k": k, "v": k, "x": k, "w": k} for k in range(5, 10)])
    conditions = ["v = 2", "v = 7", "x = 2", "x = 7", "w = 2", "w = 7", "w IS NULL", "w IS NOT NULL", "k = 2 AND w IS NULL"]
    assert assert_pruning_changes_nothing(context, conditions) >= 7

    def files(sql: str) -> int:
        plan = plan_scan(context, context.snapshots.latest(), parse_predicate(sql, context.schema))
        return sum(len(split.bucket.files) for split in plan.splits)

    assert [files(sql) for sql in ("v = 7", "x = 7", "w IS NULL", "w = 2")] == [1, 1, 1, 0]


@pytest.mark.parametrize(
    ("before", "after", "value", "condition"),
    [
        ("STRING", "VARCHAR(2)", "abc", "v = 'ab'"),
        ("DECIMAL(9, 2)", "DECIMAL(9, 1)", "1.25", "v = 1.3"),
        ("BIGINT", "INT", 2**32 + 7, "v = 7"),
        ("INT", "STRING", 7, "v = '7'"),
    ],
)
def test_bounds_of_a_type_that_had_other_values_skip_nothing(
    tmp_path: Path, before: str, after: str, value: Any, condition: str
) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": before}, ("k",), options={"write-only": "true"})
    write(context, [{"k": 1, "v": value}])
    old = context.schema
    fields = (old.fields[0], DataField(1, "v", parse_type(after)))
    (tmp_path / "t" / "schema" / "schema-1").write_text(TableSchema(1, fields, 1, (), ("k",), old.options, None, 0).to_json())
    context = TableContext.open(str(tmp_path / "t"))
    assert (
        scanned(context, plan_scan(context, context.snapshots.latest()), parse_predicate(condition, context.schema)).total() == 1
    )
    assert_pruning_changes_nothing(context, [condition])


def test_what_was_skipped_is_counted(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ("dt", "k"), ("dt",), 4, {"manifest.merge-min-count": "1000"})
    for dt in ("a", "b", "c"):
        write(context, [{"dt": dt, "k": k, "s": "x", "v": k, "g": None} for k in range(100)])
    snapshot = context.snapshots.latest()
    counts = plan_scan(context, snapshot).counts
    assert (counts.manifests, counts.partitions, counts.buckets, counts.files) == (3, 3, 12, 12)
    by_key = plan_scan(context, snapshot, parse_predicate("dt <> 'c' AND k = 7", context.schema)).counts
    assert (by_key.manifests_skipped, by_key.buckets, by_key.buckets_skipped, by_key.files_skipped_by_bucket) == (0, 8, 6, 6)
    assert (by_key.partitions_skipped, by_key.files_skipped_by_partition) == (1, 4)
    by_partition = plan_scan(context, snapshot, parse_predicate("dt > 'b'", context.schema)).counts
    assert (by_partition.manifests_skipped, by_partition.partitions_skipped, by_partition.files) == (2, 0, 4)
    by_value = plan_scan(context, snapshot, parse_predicate("v > 100", context.schema)).counts
    assert by_value.files_skipped_by_value == 12
    below = plan_scan(context, snapshot, parse_predicate("k < 0", context.schema)).counts
    assert below.files_skipped_by_key == 12
    one = plan_scan(context, snapshot, keep_partition=lambda p: context.partition_values(p) == ("b",), buckets=[0, 1])
    assert [(context.partition_values(s.bucket.partition), s.bucket.bucket) for s in one.splits] == [(("b",), 0), (("b",), 1)]


def test_big_buckets_are_cut_between_sections(tmp_path: Path) -> None:
    options = {"target-file-size": "1 kb", "source.split.target-size": "3 kb", "source.split.open-file-cost": "1 b"}
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "s": "STRING"}, ("k",), options=options)
    write(context, [{"k": k, "s": f"{k * 7919 % 10007}" * 10} for k in range(8000)])
    compact(context, strategy="full")
    write(context, [{"k": k, "s": "new"} for k in range(3)])
    plan = plan_scan(context, context.snapshots.latest())
    assert len(plan.splits) > 2
    assert [split.needs_merge for split in plan.splits] == [True] + [False] * (len(plan.splits) - 1)
    keys = [k for split in plan.splits for batch in read_split(context, split, ["k"]) for k in batch["k"].to_pylist()]
    assert keys == list(range(8000))
    assert sum(count_split(context, split) for split in plan.splits) == 8000


def test_the_read_optimised_view_shows_the_top_level_only(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "s": "STRING"}, ("k",))
    write(context, [{"k": 1, "s": "old"}])
    compact(context, strategy="full")
    write(context, [{"k": 1, "s": "new"}, {"k": 2, "s": "new"}])
    plan = plan_scan(context, context.snapshots.latest(), read_optimized=True)
    assert scanned(context, plan) == Counter(['{"k": 1, "s": "old"}'])
    assert plan.counts.files_skipped_by_level == 1


def test_a_table_without_snapshots(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ("k",))
    plan = plan_scan(context, None, parse_predicate("k = 1", context.schema))
    assert plan.splits == () and plan.row_count == 0 and plan.size == 0


def _literal(value: Any, t: DataType) -> str:
    if isinstance(t, BinaryType):
        return f"X'{value}'"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value)


@pytest.mark.in_part(20)
@pytest.mark.parametrize("golden", [g for g in GOLDENS if g.options.get("merge-engine", "deduplicate") == "deduplicate"], ids=str)
def test_pruned_scans_of_golden_tables(golden: Golden, tmp_path: Path) -> None:
    context = TableContext.open(str(golden_table(golden.writer, golden.name, tmp_path)))
    rows = expected_rows(golden)
    snapshot = context.snapshots.latest()
    fields = [field for field in context.schema.fields if not isinstance(field.type, NestedType)]
    names = [field.name for field in fields]
    everything = _table(context, plan_scan(context, snapshot), names, None)
    source = random.Random(7)
    for field in fields:
        values = [row[field.name] for row in rows if row[field.name] is not None]
        if not values:
            continue
        pair = list(dict.fromkeys([names[0], field.name]))
        column, literal = f'"{field.name}"', _literal(source.choice(values), field.type)
        for sql in (f"{column} = {literal}", f"{column} > {literal}", f"NOT {column} >= {literal}", f"{column} IS NULL"):
            predicate = parse_predicate(sql, context.schema)
            expected = _filtered(everything, predicate)
            found = _table(context, plan_scan(context, snapshot, predicate), pair, predicate)
            assert str(found.to_pylist()) == str(expected.select(pair).to_pylist()), sql
        listed = parse_predicate(f"{column} IN ({literal})", context.schema)
        assert _filtered(everything, listed).num_rows or literal == "'NaN'"


def _filtered(rows: pa.Table, predicate: Predicate) -> pa.Table:
    return pa.Table.from_batches([predicate.filtered(batch) for batch in rows.to_batches()], rows.schema)


def _table(context: TableContext, plan: ReadPlan, names: list[str], predicate: Predicate | None) -> pa.Table:
    batches = [batch for split in plan.splits for batch in read_split(context, split, names, predicate)]
    schema = pa.schema([arrow_field(field) for field in context.schema.fields_of(names)])
    return pa.Table.from_batches([pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in batches], schema)


@pytest.mark.parametrize("keys", [((3, 5, 6, 9), (0, 3, 6, 8)), ((0, 3, 6, 8), (3, 5, 6, 9))])
def test_between_equal_numbers_a_scan_and_a_compaction_choose_the_later_commit(
    tmp_path: Path, keys: tuple[tuple[int, ...], ...]
) -> None:
    """Writers that plan at the same snapshot number their rows alike. Key 6 has the same number in both; keys do not decide."""
    options = {"write-only": "true"}
    table = Table.open(make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"], options=options).url)
    stages = [str(tmp_path / name) for name in ("first", "second")]
    for stage, written in zip(stages, keys, strict=True):
        table.write(pa.table({"k": pa.array(written, pa.int32()), "v": [Path(stage).name] * len(written)}), stage=stage)
    for stage in stages:
        table.stage.commit(stage)
    shown = table.scan().to_arrow().to_pylist()
    assert {row["k"]: row["v"] for row in shown}[6] == "second"
    table.compact(strategy="full")
    assert table.scan().to_arrow().to_pylist() == shown


def test_buckets_are_not_skipped_by_hashes_of_another_type(tmp_path: Path) -> None:
    """Java lets a bucket key become a text, whose hashes are others: rows of before stay where they are."""
    context = make_table(tmp_path / "t", {"k": "INT", "v": "STRING"}, [], bucket=4, options={"bucket-key": "k"})
    write(context, [{"k": number, "v": "a"} for number in range(-20, 20)])
    old = context.schema
    fields = (DataField(0, "k", parse_type("STRING")), *old.fields[1:])
    assert context.schemas.commit(TableSchema(1, fields, 1, (), (), old.options, None, 0))
    changed = TableContext.open(context.url)
    write(changed, [{"k": str(number), "v": "b"} for number in range(-20, 20)])
    conditions = [f"k = '{number}'" for number in range(-20, 20)]
    assert_pruning_changes_nothing(changed, conditions)
    fields = (*fields, DataField(2, "w", INT))
    assert context.schemas.commit(TableSchema(2, fields, 2, (), (), old.options, None, 0))
    assert_pruning_changes_nothing(TableContext.open(context.url), conditions)


def test_a_row_that_two_files_make_together_is_found(tmp_path: Path) -> None:
    """Neither file holds its value, nor has it within its bounds."""
    options = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum", "write-only": "true"}
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "INT"}, ["k"], options=options)
    for value in (5, 7):
        write(context, [{"k": 1, "v": value}])
    predicate = parse_predicate("v = 12", context.schema)
    plan = plan_scan(context, context.snapshots.latest(), predicate)
    assert scanned(context, plan, predicate) == Counter([json.dumps({"k": 1, "v": 12})])
