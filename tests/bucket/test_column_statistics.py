"""Statistics modes, the rounding up of cut maxima, and footers of real files."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_cli.bucket import column_statistics
from paimon_cli.bucket.column_statistics import (
    NO_STATISTICS,
    ColumnStatistics,
    ColumnTally,
    footer_statistics,
    leaf_numbers,
    simple_stats,
    truncated,
)
from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.datatypes.internal_values import Timestamp
from paimon_cli.errors import DamagedFile
from tests.tables import make_table, rows, write


@pytest.mark.parametrize(
    ("low", "high", "mode", "expected"),
    [
        ("abc", "xyz", "truncate(2)", ("ab", "xz")),
        ("ab", "xy", "truncate(2)", ("ab", "xy")),
        ("a", "x\U0010ffffy", "truncate(2)", ("a", "y")),
        ("a", "\ud7ffz", "truncate(1)", ("a", "\ue000")),
        ("a", "\U0010ffff\U0010ffffz", "truncate(2)", (None, None)),
        ("数据湖", "数据湖", "truncate(2)", ("数据", "数捯")),
        ("abc", "xyz", "full", ("abc", "xyz")),
        ("abc", "xyz", "counts", (None, None)),
        (5, 7, "truncate(1)", (5, 7)),
    ],
)
def test_modes(low: object, high: object, mode: str, expected: tuple[object, object]) -> None:
    assert truncated(ColumnStatistics(low, high, 3), mode) == ColumnStatistics(*expected, 3)


def test_mode_none_has_no_statistics() -> None:
    assert truncated(ColumnStatistics("a", "b", 3), "none") == NO_STATISTICS


@pytest.mark.parametrize(
    ("type_text", "values", "arrow", "bounds"),
    [
        ("TINYINT", [3, -4, None], pa.int8(), (-4, 3)),
        ("BIGINT", [2**62, -(2**62)], pa.int64(), (-(2**62), 2**62)),
        ("DECIMAL(5, 2)", [Decimal("-1.50"), Decimal("9.99")], pa.decimal128(5, 2), (Decimal("-1.50"), Decimal("9.99"))),
        ("DECIMAL(30, 2)", [Decimal("-1.50"), Decimal("9.99")], pa.decimal128(30, 2), (Decimal("-1.50"), Decimal("9.99"))),
        ("STRING", ["é", "a"], pa.string(), ("a", "é")),
        ("BOOLEAN", [True, False], pa.bool_(), (False, True)),
        ("DATE", [-5, 7], pa.date32(), (-5, 7)),
        ("TIME", [5, 7], pa.time32("ms"), (5, 7)),
        ("TIMESTAMP(3)", [-1, 5], pa.timestamp("ms"), (Timestamp(-1, 0), Timestamp(5, 0))),
        ("TIMESTAMP(6)", [-1, 5001], pa.timestamp("us"), (Timestamp(-1, 999000), Timestamp(5, 1000))),
        ("DOUBLE", [0.0, 2.5], pa.float64(), (-0.0, 2.5)),
        ("BYTES", [b"a"], pa.binary(), (None, None)),
        ("INT", [None, None], pa.int32(), (None, None)),
        ("STRING", ["x" * 9000], pa.string(), (None, None)),
    ],
)
def test_footer_bounds(
    tmp_path: Path, type_text: str, values: list[object], arrow: pa.DataType, bounds: tuple[object, object]
) -> None:
    table = pa.table({"c": pa.array(values, arrow)})
    pq.write_table(table, tmp_path / "f.parquet", store_decimal_as_integer=True, row_group_size=1)
    found = footer_statistics(pq.read_metadata(tmp_path / "f.parquet"), 0, parse_type(type_text), has_nan=False)
    assert (found.minimum, found.maximum) == bounds
    assert found.null_count == values.count(None)


def test_a_nan_removes_the_bounds(tmp_path: Path) -> None:
    pq.write_table(pa.table({"c": [1.0, float("nan")]}), tmp_path / "f.parquet")
    found = footer_statistics(pq.read_metadata(tmp_path / "f.parquet"), 0, parse_type("DOUBLE"), has_nan=True)
    assert found == ColumnStatistics(None, None, 0)


def test_leaves_are_distinguished_by_position_not_by_path(tmp_path: Path) -> None:
    """The path of `a.w` is that of field w in column a as well: its bounds would hide rows."""
    inner = pa.struct([("w", pa.int32()), ("l", pa.list_(pa.map_(pa.string(), pa.int32())))])
    schema = pa.schema([("a", inner), ("a.w", pa.int32()), ("element", pa.list_(pa.int32())), ("z", pa.int32())])
    rows = pa.table([[{"w": 900, "l": []}], [5], [[1]], [7]], schema=schema)
    pq.write_table(rows, tmp_path / "f.parquet")
    footer, leaves = pq.read_metadata(tmp_path / "f.parquet"), leaf_numbers(schema)
    assert leaves == {"a.w": 3, "z": 5} and footer.num_columns == 6
    assert footer_statistics(footer, leaves["a.w"], parse_type("INT"), False) == ColumnStatistics(5, 5, 0)
    assert footer_statistics(footer, leaves.get("element"), parse_type("INT"), False) == NO_STATISTICS


def test_a_chunk_of_another_type_than_its_column_is_damage(tmp_path: Path) -> None:
    """Arrow ends the process when it decodes the statistics of such a chunk."""
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"])
    write(context, [{"k": 1}])
    (path,) = (tmp_path / "t").glob("bucket-0/data-*")
    content = path.read_bytes()
    before, of_kinds, of_values = content.rsplit(b"\x15\x02\x19", 2)
    """Parted at the type INT32 of the chunks of row kinds and of k, which precedes the list of encodings."""
    path.write_bytes(before + b"\x15\x04\x19" + of_kinds + b"\x15\x02\x19" + of_values)
    with pytest.raises(DamagedFile, match="has type INT32, but a chunk of INT64"):
        rows(context)


def test_maps_have_the_leaves_of_their_keys_and_values(tmp_path: Path) -> None:
    inner = pa.struct([("v", pa.int32()), ("w", pa.int32())])
    schema = pa.schema([("m", pa.map_(pa.string(), inner)), ("n", pa.map_(inner, pa.list_(inner))), ("z", pa.int32())])
    pq.write_table(schema.empty_table(), tmp_path / "f.parquet")
    assert leaf_numbers(schema) == {"z": 7} and pq.read_metadata(tmp_path / "f.parquet").num_columns == 8


def group(values: int, nulls: int | None = 0, bounds: tuple[int, int] | None = None) -> SimpleNamespace:
    """Statistics of a column chunk, as Arrow shows them; `values` without nulls."""
    low, high = bounds or (None, None)
    return SimpleNamespace(
        has_null_count=nulls is not None,
        null_count=nulls,
        num_values=values,
        has_min_max=bounds is not None,
        min_raw=low,
        max_raw=high,
    )


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([group(3, 1, (1, 5)), group(2, 2, (-1, 3))], ColumnStatistics(-1, 5, 3)),
        ([group(3, 1, (1, 5)), group(0, 4)], ColumnStatistics(1, 5, 5)),
        ([group(3, 1, (1, 5)), group(2, 2)], ColumnStatistics(None, None, 3)),
        ([group(3, 1, (1, 5)), group(2, None, (-1, 3))], NO_STATISTICS),
        ([group(3, 1, (1, 5)), None], NO_STATISTICS),
        ([group(0, 4)], ColumnStatistics(None, None, 4)),
        ([], ColumnStatistics(None, None, 0)),
    ],
)
def test_bounds_are_those_of_all_groups_with_values(
    monkeypatch: pytest.MonkeyPatch, groups: list[object], expected: ColumnStatistics
) -> None:
    monkeypatch.setattr(column_statistics, "chunk_statistics", lambda footer, number, leaf: groups[number])
    footer = cast("Any", SimpleNamespace(num_row_groups=len(groups)))
    assert footer_statistics(footer, 0, parse_type("INT"), has_nan=False) == expected
    if groups:
        assert footer_statistics(footer, 0, parse_type("INT"), False, [0]).null_count == getattr(groups[0], "null_count", None)


@pytest.mark.parametrize(
    ("type_text", "batches", "expected"),
    [
        ("INT", [[3, None], [None], [1, 9], [4]], ColumnStatistics(1, 9, 2)),
        ("STRING", [["b"], ["a", None], ["é"], ["c"]], ColumnStatistics("a", "é", 1)),
        ("DOUBLE", [[1.0], [float("nan")], [None]], ColumnStatistics(None, None, 1)),
        ("DOUBLE", [[0.0], [-0.0]], ColumnStatistics(-0.0, 0.0, 0)),
        ("BYTES", [[b"a"], [None]], ColumnStatistics(None, None, 1)),
        ("INT", [[None, None]], ColumnStatistics(None, None, 2)),
    ],
)
def test_what_was_written_is_tallied_batch_by_batch(
    type_text: str, batches: list[list[object]], expected: ColumnStatistics
) -> None:
    t = parse_type(type_text)
    tally = ColumnTally(t)
    for cells in batches:
        tally.add(pa.chunked_array([pa.array(cells, arrow_type(t))]))
    found = tally.statistics()
    assert found == expected
    if found.minimum == 0:
        assert [math.copysign(1, end) for end in (found.minimum, found.maximum)] == [-1, 1]


def test_unknown_numbers_of_nulls_stay_unknown() -> None:
    found = simple_stats([ColumnStatistics(1, 2, None), ColumnStatistics(None, None, 3)], [parse_type("INT"), parse_type("INT")])
    assert found.null_counts == (None, 3)
