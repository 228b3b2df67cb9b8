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
    for batch in merge_sorted_runs(runs, ["k"], Difference(both_sides), keys_repeat=True):
        found += [(KINDS[row[VALUE_KIND]], row["k"], row["v"]) for row in batch.to_pylist()]
    assert found == expected


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
