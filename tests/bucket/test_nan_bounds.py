"""Parquet files with NaN: chunks that hold it have no bounds, neither of the chunk nor of its pages; all others keep theirs."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_cli.bucket.file_encoders import ParquetEncoder
from paimon_cli.bucket.nan_bounds import floating_leaves
from paimon_cli.bucket.parquet_chunks import read_footer
from paimon_cli.bucket.stitched_files import StitchedFile, StoredGroups, own_frame
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file_schema import FileLayout
from tests.tables import make_table

NAN, INFINITE = float("nan"), float("inf")
COLUMNS = {
    "id": "INT NOT NULL",
    "x": "DOUBLE",
    "a": "ARRAY<DOUBLE>",
    "m": "MAP<INT, FLOAT>",
    "r": "ROW<y FLOAT, s ROW<i INT, z DOUBLE>>",
    "r.y": "FLOAT",
}


@pytest.fixture(params=[["id"], []], ids=["keys", "append"])
def context(request: pytest.FixtureRequest, tmp_path: Path) -> TableContext:
    keys: list[str] = request.param
    return make_table(tmp_path / "t", COLUMNS, keys, bucket=1 if keys else -1)


@pytest.fixture
def layout(context: TableContext) -> FileLayout:
    return FileLayout.of(context.schema)


def rows(layout: FileLayout, **changed: Any) -> pa.Table:
    """One row; `x`, `y`, `z` and `column` are its floating-point numbers that readers may have bounds for."""
    numbers = {"x": 1.0, "y": 1.0, "z": 1.0, "column": 1.0, **changed}
    row = {
        "id": 1,
        "x": numbers["x"],
        "a": [NAN],
        "m": [(1, NAN)],
        "r": {"y": numbers["y"], "s": {"i": 1, "z": numbers["z"]}},
        "r.y": numbers["column"],
    }
    system = {field.name: 1 for field in layout.physical if field.name not in row}
    return pa.Table.from_pylist([{**system, **row}], schema=layout.physical)


def parquet(context: TableContext, groups: list[pa.Table]) -> tuple[io.BytesIO, ParquetEncoder]:
    sink = io.BytesIO()
    encoder = ParquetEncoder.of_table(sink, FileLayout.of(context.schema), context.options, 0, groups[0])
    for group in groups:
        encoder.write(group)
    encoder.close()
    return sink, encoder


def unbounded(file: io.BytesIO, layout: FileLayout) -> list[set[str]]:
    """For each row group, the floating-point leaves without bounds, of which the pages have none either."""
    metadata, footer = pq.read_metadata(file), read_footer(file)
    found = []
    for group in range(metadata.num_row_groups):
        names = set()
        for leaf in range(metadata.num_columns):
            chunk, column = metadata.row_group(group).column(leaf), metadata.schema.column(leaf)
            if column.physical_type not in ("FLOAT", "DOUBLE") or column.max_repetition_level:
                continue
            assert chunk.statistics.null_count == 0
            if layout.keys:
                assert chunk.has_column_index == (6 in footer.chunk(group, leaf)) == chunk.statistics.has_min_max
                assert chunk.has_offset_index
            if not chunk.statistics.has_min_max:
                names.add("column" if column.name == "r.y" else column.name)
        found.append(names)
    return found


def test_only_chunks_with_nan_have_no_bounds(context: TableContext, layout: FileLayout) -> None:
    """NaN in arrays and maps changes nothing, since readers have no bounds for their elements."""
    changes: list[dict[str, Any]] = [{}, {"x": NAN}, {"y": NAN}, {"z": NAN}, {"column": NAN}, {"x": NAN, "z": NAN}]
    groups = [rows(layout, **change) for change in changes]
    file, encoder = parquet(context, groups)
    assert unbounded(file, layout) == [set(), {"x"}, {"y"}, {"z"}, {"column"}, {"x", "z"}]
    assert sorted(encoder.with_nan) == ["r.y", "x"]
    assert str(pq.read_table(file).to_pylist()) == str(pa.concat_tables(groups).to_pylist())
    fields = [field for field in layout.schema.fields if field.name in ("id", "x", "r.y")]
    assert [(found.minimum, found.maximum, found.null_count) for found in encoder.statistics(fields)] == [
        (1, 1, 0),
        (None, None, 0),
        (None, None, 0),
    ]


def test_a_file_with_nan_has_the_frame_of_files_without(context: TableContext, layout: FileLayout) -> None:
    """Otherwise its row groups could not be copied into files with others."""
    file, _ = parquet(context, [rows(layout, x=NAN)])
    assert StoredGroups(file).frame == own_frame(layout, context.options, 0)


def test_closing_a_file_with_nan_again_writes_nothing(context: TableContext, layout: FileLayout) -> None:
    file, encoder = parquet(context, [rows(layout, x=NAN)])
    content = file.getvalue()
    encoder.close()
    assert file.getvalue() == content and content.endswith(b"PAR1")


def test_row_groups_copied_from_files_with_bounds_of_arrow_lose_them(context: TableContext, layout: FileLayout) -> None:
    """As pypaimon and paimon-rust write them: whether there is NaN is known only from the file's metadata."""
    theirs, made = io.BytesIO(), io.BytesIO()
    frame = own_frame(layout, context.options, 0)
    settings = {"version": "2.6", "store_schema": False, "store_decimal_as_integer": True, "write_page_index": True}
    pq.write_table(pa.concat_tables([rows(layout), rows(layout, x=NAN)]), theirs, row_group_size=1, **settings)
    stored = StoredGroups(theirs, frame)
    file = StitchedFile(made, frame, layout, context.options, 0)
    file.copy(stored, stored.groups[0], ())
    file.copy(stored, stored.groups[1], ["x"])
    file.write(rows(layout, z=NAN))
    file.close()
    assert unbounded(made, layout) == [set(), {"x"}, {"z"}]
    assert str(pq.read_table(made).column("x").to_pylist()) == "[1.0, nan, 1.0]"


@pytest.mark.parametrize(
    ("values", "has_nan"),
    [
        ([1.0, None, NAN], True),
        ([INFINITE, -INFINITE, NAN], True),
        ([INFINITE, -INFINITE, 1.0], False),
        ([1.7e308, 1.7e308, -1.7e308], False),
        ([None, None], False),
        ([], False),
    ],
)
@pytest.mark.parametrize("type_", [pa.float32(), pa.float64()])
def test_nan_is_told_from_infinities(values: list[float | None], has_nan: bool, type_: pa.DataType) -> None:
    """Their sum is NaN, too."""
    rows = pa.table({"x": pa.array(values, type_)})
    assert floating_leaves(rows.schema)[0].holds_nan(rows) is has_nan
