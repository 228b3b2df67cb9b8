"""Bounds from the statistics of manifests: full, dense, missing, of old schemas, and those not to be trusted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.datatypes.binary_row import serialize_row
from paimon_cli.datatypes.data_type import STRING, DataField
from paimon_cli.errors import DamagedFile
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import EMPTY_ROW, ROW_ID, DataFileMeta, SimpleStats
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.read.pruning import TableBounds
from paimon_cli.sql.expressions import ColumnBounds
from tests.commit.commit_tables import data_file
from tests.tables import make_table

NAN = float("nan")


@pytest.fixture
def context(tmp_path: Path) -> TableContext:
    return make_table(tmp_path / "t", {"k": "INT NOT NULL", "s": "STRING", "g": "DOUBLE"}, ("k",))


def _stats(
    context: TableContext, names: list[str], low: list[Any], high: list[Any], nulls: tuple[int | None, ...]
) -> SimpleStats:
    types = context.schema.types_of(names)
    return SimpleStats(serialize_row(low, types), serialize_row(high, types), nulls)


def _file(context: TableContext, values: SimpleStats, **changes: Any) -> DataFileMeta:
    keys = _stats(context, ["k"], [3], [7], (0,))
    file = DataFileMeta("data-1.parquet", 1, 10, keys.min_values, keys.max_values, keys, values, 0, 9, 0, 0)
    return replace(file, **changes)


def _all(context: TableContext, file: DataFileMeta) -> dict[str, ColumnBounds | None]:
    bounds_of = TableBounds(context).of_file(EMPTY_ROW, 0, file)
    return {name: bounds_of(name) for name in context.schema.field_names}


def test_full_statistics(context: TableContext) -> None:
    stats = _stats(context, ["k", "s", "g"], [3, "a", None], [7, None, None], (0, 2, None))
    found = _all(context, _file(context, stats))
    assert found == {"k": ColumnBounds(10, 0, 3, 7), "s": ColumnBounds(10, 2, "a", None), "g": None}


def test_dense_statistics_name_their_columns(context: TableContext) -> None:
    stats = _stats(context, ["g"], [0.5], [1.5], (1,))
    assert _all(context, _file(context, stats, value_stats_cols=("g",)))["g"] == ColumnBounds(10, 1, 0.5, 1.5)
    none = _all(context, _file(context, SimpleStats(), value_stats_cols=()))
    assert none == {"k": ColumnBounds(10, 0, 3, 7), "s": None, "g": None}


@pytest.mark.parametrize(
    ("low", "high", "name"), [(NAN, 1.5, "data-1.parquet"), (0.5, NAN, "data-1.parquet"), (0.5, 1.5, "data-1.orc")]
)
def test_bounds_of_floats_that_may_hide_a_nan(context: TableContext, low: float, high: float, name: str) -> None:
    stats = _stats(context, ["g"], [low], [high], (1,))
    assert _all(context, _file(context, stats, value_stats_cols=("g",), file_name=name))["g"] == ColumnBounds(10, 1)


def test_the_first_key_column_is_known_without_statistics(context: TableContext) -> None:
    unknown = _stats(context, ["k"], [None], [None], (None,))
    for key_stats in (unknown, SimpleStats()):
        assert _all(context, _file(context, SimpleStats(), key_stats=key_stats))["k"] == ColumnBounds(10, None, 3, 7)


def test_the_first_and_the_last_key_of_a_postponed_file_are_no_bounds(context: TableContext) -> None:
    """Its rows wait in the order of arrival."""
    file = _file(context, SimpleStats(), key_stats=SimpleStats())
    assert TableBounds(context).of_file(EMPTY_ROW, POSTPONE_BUCKET, file)("k") is None


def test_statistics_of_another_arity_are_ignored(context: TableContext) -> None:
    assert _all(context, _file(context, _stats(context, ["s"], ["a"], ["b"], (0,))))["s"] is None
    assert _all(context, _file(context, SimpleStats(b"", b"", None)))["s"] is None


def test_damaged_statistics_name_the_file(context: TableContext) -> None:
    broken = SimpleStats(b"\x00\x00\x00\x03" + bytes(9), b"\x00\x00\x00\x03" + bytes(9), (0, 0, 0))
    with pytest.raises(DamagedFile, match=r"data-1\.parquet"):
        _all(context, _file(context, broken))
    counts = _stats(context, ["k", "s", "g"], [3, "a", None], [7, "b", None], (0,))
    with pytest.raises(DamagedFile, match="statistics"):
        _all(context, _file(context, counts))


def test_ids_of_rows_follow_one_another(tmp_path: Path) -> None:
    context = make_table(tmp_path / "ids", {"v": "INT"}, (), bucket=-1, options={"row-tracking.enabled": "true"})
    bounds_of = TableBounds(context).of_file(EMPTY_ROW, 0, data_file("a", first_row_id=100))
    assert bounds_of(ROW_ID) == ColumnBounds(10, 0, 100, 109)


def test_a_file_of_some_columns_says_nothing_of_the_others(context: TableContext) -> None:
    """It is one of several that make up the rows: what it lacks is not null, and what it has is not all that there is."""
    stats = _stats(context, ["s"], ["a"], ["b"], (0,))
    found = _all(context, _file(context, stats, value_stats_cols=("s",), write_cols=("s",)))
    assert (found["s"], found["g"]) == (None, None)


def test_the_first_and_the_last_key_of_a_clustered_file_are_no_bounds(tmp_path: Path) -> None:
    """Its rows are in the order of other columns."""
    options = {"deletion-vectors.enabled": "true", "pk-clustering-override": "true", "clustering.columns": "s"}
    context = make_table(tmp_path / "clustered", {"k": "INT NOT NULL", "s": "STRING"}, ("k",), options=options)
    unknown = _stats(context, ["k"], [None], [None], (None,))
    assert TableBounds(context).of_file(EMPTY_ROW, 0, _file(context, SimpleStats(), key_stats=unknown))("k") is None


def test_bounds_follow_columns_that_are_renamed(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "s": "STRING", "g": "DOUBLE"}, ("k",))
    file = _file(context, _stats(context, ["k", "s", "g"], [3, "a", None], [7, "b", None], (0, 2, None)))
    key, text, _ = context.schema.fields
    fields = (key, replace(text, name="t"), DataField(3, "s", STRING))
    assert context.schemas.commit(replace(context.schema, id=1, fields=fields, highest_field_id=3))
    found = _all(TableContext.open(context.url), file)
    assert found == {"k": ColumnBounds(10, 0, 3, 7), "t": ColumnBounds(10, 2, "a", "b"), "s": ColumnBounds(10, 10)}
