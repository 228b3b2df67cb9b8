"""Which rows and files an erasure takes for those that it must erase: one that is missed keeps what was to be forgotten."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from paimon_cli.datatypes.arrow_types import arrow_field
from paimon_cli.datatypes.binary_row import serialize_row
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.erasure.erased_rows import ErasedKeys, ErasedMatches, key_fields
from paimon_cli.jobs.erasure.inventory import StoredFile
from paimon_cli.metadata.data_file import EMPTY_ROW, DataFileMeta, EntryKind, ManifestEntry, SimpleStats
from paimon_cli.sql.predicate import parse_predicate
from tests.tables import make_table

COLUMNS = {"p": "STRING NOT NULL", "a": "INT NOT NULL", "b": "STRING NOT NULL", "v": "INT"}
KEY = ("p", "a", "b")
Key = tuple[str, int, str]


@pytest.fixture
def context(tmp_path: Path) -> TableContext:
    return make_table(tmp_path / "t", COLUMNS, ["p", "a", "b"], ["p"])


def batch(context: TableContext, *keys: Key) -> pa.RecordBatch:
    schema = pa.schema([arrow_field(one) for one in key_fields(context.schema)])
    return pa.RecordBatch.from_pylist([dict(zip(KEY, key, strict=True)) for key in keys], schema=schema)


def held(keys: ErasedKeys) -> list[Key]:
    return [(row["p"], row["a"], row["b"]) for row in keys.rows.to_pylist()]


def stored(context: TableContext, low: tuple[int, str], high: tuple[int, str], in_order: bool = True, p: str = "x") -> StoredFile:
    types = context.schema.types_of(context.schema.trimmed_primary_keys)
    least, greatest = (serialize_row(list(key), types) for key in (low, high))
    stats = SimpleStats()
    file = DataFileMeta("f", 1, 2, least, greatest, stats, stats, 0, 1, 0, 0)
    return StoredFile("main", ManifestEntry(EntryKind.ADD, serialize_row([p], context.partition_types), 0, 1, file), in_order)


def test_keys_of_several_batches_are_kept_once_in_their_order(context: TableContext) -> None:
    given = [("x", 2, "b"), ("x", 1, "b"), ("x", 1, "a"), ("y", 1, "a"), ("x", 2, "b")]
    keys = ErasedKeys.of(context.schema, [batch(context, *given[:2]), batch(context), batch(context, *given[2:])])
    assert held(keys) == given[:4] and len(keys) == 4
    more = keys.joined(batch(context, ("y", 1, "a"), ("z", 9, "z")))
    assert held(more) == [*given[:4], ("z", 9, "z")]
    other_order = batch(context, ("q", 5, "five")).select(["b", "a", "p"])
    assert held(ErasedKeys.of(context.schema, [other_order])) == [("q", 5, "five")]
    none = ErasedKeys.of(context.schema, [])
    assert len(none) == 0 and not none.mask("main", batch(context, *given)).any()
    assert (
        list(none.may_be_in(context, [stored(context, (1, "a"), (9, "z"), in_order) for in_order in (True, False)]))
        == [False] * 2
    )


def test_a_row_is_erased_if_its_whole_key_is(context: TableContext) -> None:
    keys = ErasedKeys.of(context.schema, [batch(context, ("x", 1, "a"), ("y", 2, "b"))])
    every = [*itertools.product("xy", (1, 2), "ab")]
    wide = batch(context, *every).append_column("v", pa.array([1] * len(every), pa.int32()))
    found = keys.mask("main", wide)
    assert found.dtype == bool and found.tolist() == [key in {("x", 1, "a"), ("y", 2, "b")} for key in every]
    assert keys.mask("main", wide.slice(0, 0)).tolist() == [] and keys.columns("main") == KEY


def test_files_are_skipped_only_if_no_key_is_between_their_bounds(context: TableContext) -> None:
    """Against a look at each key, with keys that are asked for in no order, and files with unknown bounds in between."""
    given = [("x", 5, "m"), ("y", 2, "z"), ("x", 5, "a"), ("x", 11, "b"), ("z", 2, "c")]
    keys = ErasedKeys.of(context.schema, [batch(context, *given)])
    wanted = sorted((a, b) for _, a, b in given)
    ends = [(a, b) for a in (1, 2, 3, 5, 11, 12) for b in ("a", "c", "m", "zz")]
    ranges = [(low, high) for low in ends for high in ends if low <= high]
    files = [stored(context, low, high, in_order=number % 5 != 3) for number, (low, high) in enumerate(ranges)]
    expected = [
        not file.in_order or any(low <= key <= high for key in wanted) for file, (low, high) in zip(files, ranges, strict=True)
    ]
    assert list(keys.may_be_in(context, files)) == expected and len(set(expected)) == 2
    assert list(keys.may_be_in(context, [file for file in files if not file.in_order][:3])) == [True] * 3
    assert list(keys.may_be_in(context, [])) == []


def test_keys_below_zero_and_long_texts_are_compared_by_value(tmp_path: Path) -> None:
    context = make_table(
        tmp_path / "n", {"p": "STRING NOT NULL", "a": "INT NOT NULL", "b": "STRING NOT NULL"}, ["p", "a", "b"], ["p"]
    )
    keys = ErasedKeys.of(context.schema, [batch(context, ("x", -3, "a" * 40), ("x", 7, "é"))])
    files = [
        stored(context, low, high) for low, high in (((-4, "z"), (-2, "a")), ((-3, "a"), (-3, "a" * 39)), ((7, "f"), (7, "ü")))
    ]
    assert list(keys.may_be_in(context, files)) == [True, False, True]


def test_of_a_partition_only_its_own_keys_are_sought_in_metadata(context: TableContext) -> None:
    keys = ErasedKeys.of(context.schema, [batch(context, ("x", 1, "a"), ("y", 2, "b"), ("x", 3, "c"))])
    x, y, z = (serialize_row([p], context.partition_types) for p in "xyz")
    assert [keys.in_partition(context, p).num_rows for p in (x, y, z)] == [2, 1, 0]
    for low, high, p, is_bound in (
        *(((1, "a"), (9, "z"), "x", True), ((0, "a"), (3, "c"), "x", True), ((1, "a"), (9, "z"), "y", False)),
        *(((2, "b"), (2, "b"), "y", True), ((1, "b"), (9, "z"), "x", False), ((1, "a"), (2, "b"), "z", False)),
    ):
        assert keys.are_bounds(context, stored(context, low, high, p=p).entry) == is_bound


def test_rows_of_an_append_table_are_found_by_the_condition_of_their_branch(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"v": "INT", "w": "INT"}, [], bucket=-1)
    types = context.schema.types_of(("v", "w"))
    conditions = {"main": parse_predicate("v = 1", context.schema, {}), "dev": parse_predicate("w > 5", context.schema, {})}
    matches = ErasedMatches(conditions)
    rows = pa.record_batch({"v": pa.array([1, 2, None], pa.int32()), "w": pa.array([None, 9, 6], pa.int32())})
    found = {branch: matches.mask(branch, rows) for branch in conditions}
    assert {branch: mask.tolist() for branch, mask in found.items()} == {"main": [True, False, False], "dev": [False, True, True]}
    assert all(isinstance(mask, np.ndarray) and mask.dtype == bool for mask in found.values())
    assert {branch: matches.columns(branch) for branch in conditions} == {"main": ("v",), "dev": ("w",)}
    stats = [
        SimpleStats(serialize_row(low, types), serialize_row(high, types), (0, 0))
        for low, high in (([1, 1], [3, 5]), ([4, 6], [9, 9]))
    ]
    files = [DataFileMeta(f"f{at}", 1, 2, EMPTY_ROW, EMPTY_ROW, SimpleStats(), one, 0, 1, 0, 0) for at, one in enumerate(stats)]
    entries = [ManifestEntry(EntryKind.ADD, EMPTY_ROW, 0, -1, file) for file in files]
    for branch, expected in (("main", [True, False]), ("dev", [False, True])):
        assert list(matches.may_be_in(context, [StoredFile(branch, entry, False) for entry in entries])) == expected
