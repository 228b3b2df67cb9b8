"""Rows of two versions against each other: by key as a dictionary would do it, and as a whole."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from paimon_cli.lsm.row_difference import AFTER, BEFORE, Difference, equality_codes, unmatched
from paimon_cli.lsm.sort_merge import merge_sorted_runs
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, VALUE_KIND

VERSION = st.dictionaries(st.integers(0, 9), st.sampled_from([None, "a", "b"]))
KINDS = ("+I", "-U", "+U", "-D")


def run_of(version: dict[int, str | None], number: int) -> pa.RecordBatch:
    keys = sorted(version)
    return pa.record_batch(
        {
            SEQUENCE_NUMBER: pa.array([number] * len(keys), pa.int64()),
            VALUE_KIND: pa.array([0] * len(keys), pa.int8()),
            "k": pa.array(keys, pa.int32()),
            "v": pa.array([version[key] for key in keys], pa.string()),
        }
    )


@settings(max_examples=150)
@given(VERSION, VERSION, st.booleans())
def test_difference_by_key(old: dict[int, str | None], new: dict[int, str | None], both_sides: bool) -> None:
    expected = []
    for key in sorted(old.keys() | new.keys()):
        if key not in new:
            expected.append(("-D", key, old[key]))
        elif key not in old:
            expected.append(("+I", key, new[key]))
        elif old[key] != new[key]:
            changed = [("-U", key, old[key]), ("+U", key, new[key])]
            expected += changed if both_sides else [("+I", key, new[key])]
    runs = [iter([run_of(old, BEFORE)]), iter([run_of(new, AFTER)])]
    found = []
    for batch in merge_sorted_runs(runs, ["k"], Difference(both_sides=both_sides), keys_repeat=True):
        found += [(KINDS[row[VALUE_KIND]], row["k"], row["v"]) for row in batch.to_pylist()]
    assert found == expected


def test_a_row_has_changed_when_any_of_its_columns_has() -> None:
    def side(number: int, **columns: list[int]) -> pa.RecordBatch:
        system = {SEQUENCE_NUMBER: pa.array([number] * 4, pa.int64()), VALUE_KIND: pa.array([2] * 4, pa.int8())}
        return pa.record_batch(
            {**system, "k": pa.array([1, 2, 3, 4]), **{name: pa.array(column) for name, column in columns.items()}}
        )

    old, new = side(BEFORE, a=[0, 0, 0, 0], b=[0, 0, 0, 0]), side(AFTER, a=[9, 0, 9, 0], b=[0, 9, 9, 0])
    (found,) = merge_sorted_runs([iter([old]), iter([new])], ["k"], Difference())
    assert found.to_pylist() == [row for row in new.to_pylist() if row["k"] != 4], "as they are, kind and number, too"
    (both,) = merge_sorted_runs([iter([old]), iter([new])], ["k"], Difference(both_sides=True))
    assert both["k"].to_pylist() == [1, 1, 2, 2, 3, 3] and both[VALUE_KIND].to_pylist() == [1, 2] * 3
    engine = Difference()
    assert (engine.columns_for(["a"]), engine.refusal(3), engine.sequence_fields, engine.descending) == ((), None, (), False)


@pytest.mark.parametrize(("old", "new"), [(0, 0), (0, 3), (3, 0)])
def test_nothing_to_match_leaves_both_sides_as_they_are(old: int, new: int) -> None:
    sides = [pa.table({"v": pa.array(range(count), pa.int64())}) for count in (old, new)]
    assert [side.num_rows for side in unmatched(*sides)] == [old, new]
    bare = [side.select([]) for side in sides]
    assert list(unmatched(*bare)) == bare


def test_rows_are_matched_by_all_columns_and_across_chunks() -> None:
    old = pa.table({"a": pa.chunked_array([[1, 1], [2]]), "b": pa.chunked_array([["x"], ["y", "x"]])})
    new = pa.table({"a": pa.chunked_array([[2], [1, 2]]), "b": pa.chunked_array([["x", "x"], ["z"]])})
    gone, come = unmatched(old, new)
    assert (gone.to_pylist(), come.to_pylist()) == ([{"a": 1, "b": "y"}], [{"a": 2, "b": "z"}])


@pytest.mark.parametrize(
    ("type_", "values", "equal"),
    [
        (pa.float64(), [math.nan, math.nan, 0.0, -0.0, None], [(0, 1)]),
        (pa.list_(pa.float32()), [[math.nan], [math.nan], [], None, [None]], [(0, 1)]),
        (pa.map_(pa.int32(), pa.string()), [[(1, "a"), (2, "b")], [(2, "b"), (1, "a")], [(1, "b")], [], None], [(0, 1)]),
        (pa.struct([("a", pa.int32())]), [{"a": None}, None, {"a": 1}, {"a": 1}, {"a": 2}], [(2, 3)]),
        (pa.binary(), [b"", None, b"x", b"x", b"y"], [(2, 3)]),
    ],
)
def test_equal_values_have_equal_codes(type_: pa.DataType, values: list[object], equal: list[tuple[int, int]]) -> None:
    codes = list(zip(*(word.tolist() for word in equality_codes(pa.array(values, type_))), strict=True))
    found = [(i, j) for i in range(len(codes)) for j in range(i + 1, len(codes)) if codes[i] == codes[j]]
    assert found == equal


@settings(max_examples=100)
@given(st.lists(st.sampled_from([None, "a", "b"])), st.lists(st.sampled_from([None, "a", "b"])))
def test_rows_without_keys_are_counted(old: list[str | None], new: list[str | None]) -> None:
    gone, come = unmatched(*(pa.table({"v": pa.array(side, pa.string())}) for side in (old, new)))
    for value in (None, "a", "b"):
        surplus = new.count(value) - old.count(value)
        assert come.column("v").to_pylist().count(value) == max(surplus, 0)
        assert gone.column("v").to_pylist().count(value) == max(-surplus, 0)


def test_lists_of_any_year_and_digit_are_compared() -> None:
    days = pa.array([[5_000_000], [-1_000_000, None], [5_000_000], None], pa.list_(pa.int32()))
    nanos = pa.array([[1], [2], [1], None], pa.list_(pa.int64()))
    for column in (days.cast(pa.list_(pa.date32())), nanos.cast(pa.list_(pa.timestamp("ns", "UTC")))):
        (codes,) = equality_codes(column)
        assert codes[0] == codes[2] and len(set(codes.tolist())) == 3
