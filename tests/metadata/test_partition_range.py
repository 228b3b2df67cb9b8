"""The range of partitions in a manifest never excludes a partition that is inside."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from itertools import product
from typing import Any

import pytest

from paimon_cli.datatypes.binary_row import deserialize_row, serialize_row
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.errors import DamagedFile
from paimon_cli.metadata.data_file import EMPTY_ROW, SimpleStats
from paimon_cli.metadata.partition_ranges import PartitionRange, may_hold_any, partition_stats

INT, STRING = parse_type("INT"), parse_type("STRING")


def test_least_greatest_and_nulls_count_entries() -> None:
    rows = [(1, "b"), (1, "b"), (None, "a"), (300, None), (-5, "é")]
    stats = partition_stats(Counter(serialize_row(row, [INT, STRING]) for row in rows), [INT, STRING])
    assert deserialize_row(stats.min_values, [INT, STRING]) == (-5, "a")
    assert deserialize_row(stats.max_values, [INT, STRING]) == (300, "é")
    assert stats.null_counts == (1, 1)


def test_an_unpartitioned_table_has_empty_rows() -> None:
    assert partition_stats({EMPTY_ROW: 2}, []) == SimpleStats(EMPTY_ROW, EMPTY_ROW, ())
    assert may_hold_any(SimpleStats(EMPTY_ROW, EMPTY_ROW, ()), [], [()])


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("INT", [None, -3, 0, 7]),
        ("STRING", [None, "", "a", "a longer text", "\U0001f600"]),
        ("DOUBLE", [None, -1.5, -0.0, 0.0, float("inf"), float("nan")]),
        ("DECIMAL(20, 2)", [None, Decimal("-1.00"), Decimal("123456789012345.67")]),
        ("BOOLEAN", [None, False, True]),
        ("BYTES", [None, b"", b"\xff", b"abcdefghij"]),
    ],
)
def test_every_value_inside_is_found(text: str, values: list[Any]) -> None:
    types = [parse_type(text)]
    for inside in product(values, repeat=2):
        stats = partition_stats(Counter(serialize_row([value], types) for value in inside), types)
        assert all(may_hold_any(stats, types, [(value,)]) for value in inside)


def test_values_outside_are_excluded() -> None:
    stats = partition_stats({serialize_row([value], [INT]): 1 for value in (3, 5)}, [INT])
    assert [may_hold_any(stats, [INT], [(value,)]) for value in (2, 3, 4, 5, 6, None)] == [False, True, True, True, False, False]
    assert not may_hold_any(stats, [INT], [])
    assert may_hold_any(stats, [INT], [(2,), (5,)])


@pytest.mark.parametrize(
    "stats",
    [
        SimpleStats(),
        SimpleStats(b"", b"", None),
        SimpleStats(serialize_row([None], [INT]), serialize_row([None], [INT]), None),
        SimpleStats(serialize_row([None], [INT]), serialize_row([None], [INT]), (None,)),
    ],
)
def test_unknown_statistics_exclude_nothing(stats: SimpleStats) -> None:
    assert may_hold_any(stats, [INT], [(7,)]) and may_hold_any(stats, [INT], [(None,)])


def test_statistics_of_another_arity_give_no_range() -> None:
    assert PartitionRange.of(partition_stats({serialize_row([1, "a"], [INT, STRING]): 1}, [INT, STRING]), [INT]) is None


@pytest.mark.parametrize("partition", [b"", b"\xff" * 12, bytes(3)])
def test_a_partition_that_is_no_row_is_damage(partition: bytes) -> None:
    with pytest.raises(DamagedFile, match="damaged partition"):
        partition_stats({partition: 1}, [INT])


def test_nulls_are_counted_by_their_entries() -> None:
    stats = partition_stats(
        {serialize_row(row, [INT, STRING]): count for row, count in (((None, "a"), 3), ((2, None), 4), ((None, None), 5))},
        [INT, STRING],
    )
    assert stats.null_counts == (8, 9)
    assert deserialize_row(stats.min_values, [INT, STRING]) == (2, "a") == deserialize_row(stats.max_values, [INT, STRING])


@pytest.mark.parametrize("values", [(float("nan"), 1.0, 2.0), (1.0, float("nan"), 2.0), (2.0, 1.0, float("nan"))])
def test_nan_is_greater_than_any_number_wherever_it_stands(values: tuple[float, ...]) -> None:
    types = [parse_type("DOUBLE")]
    stats = partition_stats({serialize_row([value], types): 1 for value in values}, types)
    (least,), (greatest,) = deserialize_row(stats.min_values, types), deserialize_row(stats.max_values, types)
    assert least == 1.0 and greatest != greatest
    without = partition_stats({serialize_row([value], types): 1 for value in values if value == value}, types)
    assert [may_hold_any(without, types, [(value,)]) for value in (float("nan"), float("inf"), 2.0)] == [False, False, True]


def test_null_counts_of_fewer_columns_give_no_range() -> None:
    row, types = serialize_row([1, "a"], [INT, STRING]), [INT, STRING]
    assert PartitionRange.of(SimpleStats(row, row, (0,)), types) is None
    assert may_hold_any(SimpleStats(row, row, (0,)), types, [(5, None)])
    assert not may_hold_any(SimpleStats(row, row, (0, 0)), types, [(1, None)])
