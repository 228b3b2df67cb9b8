"""The streaming merge against a plain dictionary, over random runs, batch sizes and key types."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli.lsm import sort_merge
from paimon_cli.lsm.engines.deduplicate import Deduplicate
from paimon_cli.lsm.engines.first_row import FirstRow
from paimon_cli.lsm.sort_merge import merge_in_memory, merge_sorted_runs
from paimon_cli.lsm.sorted_rows import KeepAllVersions, MergeEngine
from paimon_cli.pieces import PIECES

KEYS: dict[str, tuple[pa.DataType, Any]] = {
    "int": (pa.int32(), lambda r: r.randrange(-60, 60)),
    "string": (pa.string(), lambda r: "".join(r.choice("aAé数\x00z") for _ in range(r.randrange(0, 12)))),
    "binary": (pa.binary(), lambda r: bytes(r.choice([0, 1, 127, 128, 255]) for _ in range(r.randrange(0, 5)))),
    "double": (pa.float64(), lambda r: r.choice([0.0, -0.0, 1.5, -1.5, float("inf"), float("-inf"), 1e-300, -1e300])),
    "nullable": (pa.int64(), lambda r: r.choice([None, *range(20)])),
    "bool": (pa.bool_(), lambda r: r.random() < 0.5),
}


def java_order(value: Any) -> Any:
    """Sort key of one Python value in Paimon's order."""
    if value is None:
        return -1
    if isinstance(value, float):
        return (value, not str(value).startswith("-"))
    return value.encode() if isinstance(value, str) else value


def batches(rows: list[tuple[Any, ...]], schema: pa.Schema, size: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(rows), size):
        columns = zip(*rows[start : start + size], strict=True)
        yield pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


@pytest.mark.in_part(5)
@pytest.mark.parametrize(
    "kinds", [("int",), ("nullable",), ("string",), ("binary",), ("double",), ("bool", "string"), ("int", "double")]
)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rows_of_a_piece", [65536, 7])
def test_merge_equals_a_dictionary(
    kinds: tuple[str, ...], seed: int, rows_of_a_piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PIECES, "merged_piece_rows", rows_of_a_piece)
    monkeypatch.setattr(PIECES, "merged_at_once_bytes", 200 if rows_of_a_piece == 7 else 32 << 20)
    monkeypatch.setattr(PIECES, "run_column_bytes", 0)
    monkeypatch.setattr(PIECES, "merged_run_rows", 10 if rows_of_a_piece == 7 else 8192)
    r = random.Random(f"{kinds}{seed}")
    keys = [pa.field(f"k{i}", KEYS[kind][0]) for i, kind in enumerate(kinds)]
    schema = pa.schema([("_SEQUENCE_NUMBER", pa.int64()), ("_VALUE_KIND", pa.int8()), *keys, ("v", pa.int64())])
    newest: dict[Any, tuple[Any, ...]] = {}
    runs = []
    sequence = list(range(2000))
    r.shuffle(sequence)  # runs may overlap in numbers in any way
    for _ in range(r.randrange(1, 7)):
        rows: dict[Any, tuple[Any, ...]] = {}
        for _ in range(r.randrange(0, 150)):
            key = tuple(KEYS[kind][1](r) for kind in kinds)
            ordered = tuple(java_order(value) for value in key)
            row = (sequence.pop(), r.choice([0, 2, 3]), *key, r.randrange(1000))
            rows[ordered] = row
        for ordered, row in rows.items():
            if ordered not in newest or newest[ordered][0] < row[0]:
                newest[ordered] = row
        runs.append(batches([rows[key] for key in sorted(rows)], schema, r.randrange(1, 40)))
    merged = [
        tuple(row.values())
        for batch in merge_sorted_runs(runs, [k.name for k in keys], Deduplicate())
        for row in batch.to_pylist()
    ]
    assert [repr(row) for row in merged] == [repr(newest[key]) for key in sorted(newest)]


def test_sequence_field_decides_before_the_sequence_number_and_null_is_smallest() -> None:
    schema = pa.schema([("_SEQUENCE_NUMBER", pa.int64()), ("_VALUE_KIND", pa.int8()), ("k", pa.int32()), ("ts", pa.int32())])
    older = batches([(0, 0, 1, 9), (1, 0, 2, 5), (2, 0, 3, None)], schema, 10)
    newer = batches([(3, 0, 1, 8), (4, 0, 2, 5), (5, 0, 3, None)], schema, 10)
    merged = [row for batch in merge_sorted_runs([older, newer], ["k"], Deduplicate(("ts",))) for row in batch.to_pylist()]
    assert [(row["k"], row["_SEQUENCE_NUMBER"]) for row in merged] == [(1, 0), (2, 4), (3, 5)]


@pytest.mark.parametrize("engine", [Deduplicate(), Deduplicate(("ts",)), Deduplicate(("ts",), descending=True), FirstRow()])
@pytest.mark.parametrize("max_bytes", [200, 32 << 20])
def test_rows_without_numbers_are_as_old_as_their_runs(
    engine: MergeEngine, max_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PIECES, "merged_at_once_bytes", max_bytes)
    monkeypatch.setattr(PIECES, "run_column_bytes", 0)
    r = random.Random(5)
    schema = pa.schema([("_SEQUENCE_NUMBER", pa.int64()), ("_VALUE_KIND", pa.int8()), ("k", pa.int32()), ("ts", pa.int32())])
    runs = []
    for age in range(6):
        keys = sorted(r.sample(range(-40, 40), 50))
        kinds = [0] * 50 if isinstance(engine, FirstRow) else [r.choice([0, 3]) for _ in keys]
        runs.append([(100 * age + n, kind, k, r.randrange(4)) for n, (k, kind) in enumerate(zip(keys, kinds, strict=True))])
    numbered = list(merge_sorted_runs([batches(run, schema, 13) for run in runs], ["k"], engine))
    of_age = [(batch.drop_columns(["_SEQUENCE_NUMBER"]) for batch in batches(run, schema, 13)) for run in runs]
    by_age = pa.Table.from_batches(list(merge_sorted_runs(of_age, ["k"], engine)))
    assert by_age.to_pylist() == pa.Table.from_batches(numbered).drop_columns(["_SEQUENCE_NUMBER"]).to_pylist()


def test_of_equal_sequence_numbers_the_addition_wins() -> None:
    schema = pa.schema([("_SEQUENCE_NUMBER", pa.int64()), ("_VALUE_KIND", pa.int8()), ("k", pa.int32())])
    for kinds in ((0, 3), (3, 0)):
        runs = [batches([(7, kind, 1)], schema, 1) for kind in kinds]
        merged = [row for batch in merge_sorted_runs(runs, ["k"], Deduplicate()) for row in batch.to_pylist()]
        assert [row["_VALUE_KIND"] for row in merged] == [0]


def test_memory_is_one_batch_a_run_not_the_run() -> None:
    """A run is read only as far as the frontier needs: while run `a` lies below, one batch of run `b` is read."""
    schema = pa.schema([("_SEQUENCE_NUMBER", pa.int64()), ("_VALUE_KIND", pa.int8()), ("k", pa.int32())])
    asked: list[int] = []

    def run(start: int) -> Iterator[pa.RecordBatch]:
        for batch in batches([(i, 0, start + i) for i in range(100)], schema, 10):
            asked.append(start)
            yield batch

    merged = merge_sorted_runs([run(0), run(1000)], ["k"], Deduplicate())
    for _ in range(9):
        next(merged)
    assert asked.count(1000) == 1


def test_many_runs_of_wide_rows_are_merged_in_small_pieces() -> None:
    """Each of the runs holds 200 kB in memory: together they would make a piece of 36 MB."""
    schema = pa.schema([("_SEQUENCE_NUMBER", pa.int64()), ("_VALUE_KIND", pa.int8()), ("k", pa.int32()), ("v", pa.string())])

    def runs() -> list[Iterator[pa.RecordBatch]]:
        return [batches([(1000 * run + k, 0, k, f"{run:05}" * 2000) for k in range(20)], schema, 20) for run in range(180)]

    merged = list(merge_sorted_runs(runs(), ["k"], KeepAllVersions()))
    assert sum(batch.num_rows for batch in merged) == 3600 and max(batch.nbytes for batch in merged) < 9 << 20
    (sole,) = merge_sorted_runs(runs()[:20], ["k"], Deduplicate())
    assert sole["_SEQUENCE_NUMBER"].to_pylist() == [19_000 + k for k in range(20)]


@pytest.mark.parametrize("max_bytes_at_once", [1, 32 << 20])
def test_batches_can_be_kept_small_and_no_key_spans_two(max_bytes_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = pa.schema([("_SEQUENCE_NUMBER", pa.int64()), ("_VALUE_KIND", pa.int8()), ("k", pa.int32())])

    def runs() -> list[Iterator[pa.RecordBatch]]:
        return [batches([(1000 * run + k, 0, k) for k in range(run, 1000)], schema, 500) for run in range(4)]

    row_bytes = 8 + 1 + 4
    whole = list(merge_sorted_runs(runs(), ["k"], KeepAllVersions(), keys_repeat=True))
    monkeypatch.setattr(PIECES, "merged_at_once_bytes", max_bytes_at_once)
    monkeypatch.setattr(PIECES, "run_column_bytes", 0)
    small = list(merge_sorted_runs(runs(), ["k"], KeepAllVersions(), keys_repeat=True, batch_bytes=100 * row_bytes))
    assert pa.Table.from_batches(small).equals(pa.Table.from_batches(whole))
    assert max(batch.num_rows for batch in small) <= 104 < max(batch.num_rows for batch in whole)
    keys = [set(batch["k"].to_pylist()) for batch in small]
    assert sum(map(len, keys)) == len(set.union(*keys)) == 1000


@pytest.mark.in_part(5)
@pytest.mark.parametrize("kinds", [("int",), ("string",), ("double",), ("bool", "string"), ("int", "double")])
@pytest.mark.parametrize("rows_per_piece", [1, 20, 160, 100_000])
@pytest.mark.parametrize("least_rows_of_a_run", [1, 50])
def test_a_merge_in_memory_equals_a_dictionary(
    kinds: tuple[str, ...], rows_per_piece: int, least_rows_of_a_run: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PIECES, "merged_run_rows", least_rows_of_a_run)
    r = random.Random(f"{kinds}{rows_per_piece}")
    keys = [pa.field(f"k{i}", KEYS[kind][0]) for i, kind in enumerate(kinds)]
    schema = pa.schema([("_SEQUENCE_NUMBER", pa.int64()), ("_VALUE_KIND", pa.int8()), *keys])
    newest: dict[Any, tuple[Any, ...]] = {}
    runs: list[pa.RecordBatch] = []
    for run in range(30):
        rows = []
        for row in range(r.choice([1, 2, 40, 120])):
            key = tuple(KEYS[kind][1](r) for kind in kinds)
            ordered = tuple(java_order(value) for value in key)
            newest[ordered] = (1000 * run + row, r.choice([0, 2, 3]), *key)
            rows.append((ordered, newest[ordered]))
        runs += batches([row for _, row in sorted(rows)], schema, len(rows))
    merged = list(sort_merge.merge_in_memory(runs, [k.name for k in keys], Deduplicate(), rows_per_piece))
    assert [repr(tuple(row.values())) for batch in merged for row in batch.to_pylist()] == [
        repr(newest[k]) for k in sorted(newest)
    ]
    if rows_per_piece < 100_000 and "bool" not in kinds and "double" not in kinds:
        assert len(merged) > 1
        assert max(batch.num_rows for batch in merged) <= 40 + 2 * rows_per_piece


SCHEMA = pa.schema([("_SEQUENCE_NUMBER", pa.int64()), ("_VALUE_KIND", pa.int8()), ("k", pa.int64())])


@pytest.mark.parametrize("rows_per_piece", [1, 2, 3, 4, 100])
@pytest.mark.parametrize("lengths", [[4], [1, 3], [2, 2], [0, 4], [0, 0, 4, 0]])
def test_runs_in_memory_may_hold_a_key_several_times(rows_per_piece: int, lengths: list[int]) -> None:
    """Whether they are merged at once or cut, alone or together."""
    rows = iter([(1, 0, 5), (2, 0, 5), (3, 0, 5), (4, 0, 6)])
    runs = [
        pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, next(rows), strict=True)) for _ in range(n)], SCHEMA) for n in lengths
    ]
    found = pa.Table.from_batches(merge_in_memory(runs, ["k"], Deduplicate(), rows_per_piece), SCHEMA)
    assert found.to_pydict() == {"_SEQUENCE_NUMBER": [3, 4], "_VALUE_KIND": [0, 0], "k": [5, 6]}


def test_of_equal_numbers_an_addition_wins_over_a_retraction() -> None:
    for kinds in ([3, 0], [0, 3], [1, 2], [2, 1]):
        runs = [pa.RecordBatch.from_pydict({"_SEQUENCE_NUMBER": [7], "_VALUE_KIND": [kind], "k": [1]}, SCHEMA) for kind in kinds]
        (found,) = merge_sorted_runs([iter([run]) for run in runs], ["k"], Deduplicate())
        assert found["_VALUE_KIND"].to_pylist() == [next(kind for kind in kinds if kind % 2 == 0)]


def test_rows_of_small_batches_without_numbers_stay_in_the_order_of_arrival() -> None:
    schema = pa.schema([("k", pa.int32()), ("v", pa.int32())])
    arrived = [(key, 10 * number + key) for number in range(4) for key in (1, 2)]
    found = merge_in_memory(list(batches(arrived, schema, 2)), ["k"], KeepAllVersions(), rows_per_piece=1)
    expected = [{"k": key, "v": value} for key, value in sorted(arrived, key=lambda row: row[0])]
    assert [row for batch in found for row in batch.to_pylist()] == expected
