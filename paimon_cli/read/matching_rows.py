"""Decides which row groups and pages of a Parquet file may hold a matching row, by statistics and page indexes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paimon_cli.bucket.column_statistics import GROUP_BOUNDS, footer_statistics, leaf_numbers
from paimon_cli.bucket.page_selection import BlockBounds
from paimon_cli.bucket.parquet_chunks import Rows
from paimon_cli.bucket.parquet_pages import Flags
from paimon_cli.bucket.schema_evolution import as_declared
from paimon_cli.datatypes.arrow_types import arrow_type, values_from_arrow
from paimon_cli.datatypes.data_type import TIMESTAMP_ROOTS, DataField
from paimon_cli.sql.expressions import BoundsOf, ColumnBounds
from paimon_cli.sql.predicate import Predicate

PAGE_BOUNDS = GROUP_BOUNDS | TIMESTAMP_ROOTS
"""Types whose bounds of pages are compared. Those of floating-point numbers may ignore NaN."""


@dataclass(frozen=True)
class MatchingRows:
    """The rows of one file that a condition may select.

    `of_file`: bounds of the table's columns in the whole file. `stored`: the columns of the condition whose type in the file is
    that of the table, and how they are called there.
    """

    predicate: Predicate
    of_file: BoundsOf
    stored: Mapping[str, DataField]

    def __call__(self, content: pq.ParquetFile, group: int) -> bool:
        """Whether a row group may hold a matching row, by statistics in the footer."""
        leaves = leaf_numbers(content.schema_arrow)

        def bounds_of(name: str) -> ColumnBounds | None:
            old = self.stored.get(name)
            if old is None or old.name not in leaves or old.type.root not in GROUP_BOUNDS:
                return self.of_file(name)
            found = footer_statistics(content.metadata, leaves[old.name], old.type, has_nan=False, groups=(group,))
            return ColumnBounds(content.metadata.row_group(group).num_rows, found.null_count, found.minimum, found.maximum)

        return self.predicate.may_match(bounds_of)

    @property
    def columns(self) -> Sequence[str]:
        return [old.name for old in self.stored.values() if old.type.root in PAGE_BOUNDS]

    def kept(self, bounds: Mapping[str, BlockBounds], rows: Rows) -> Flags:
        known = {name: _of_blocks(bounds[old.name], old, rows) for name, old in self.stored.items() if old.name in bounds}

        def may_match(block: int) -> bool:
            return self.predicate.may_match(lambda name: known[name][block] if name in known else self.of_file(name))

        return np.array([may_match(block) for block in range(len(rows))], bool)


def _of_blocks(bounds: BlockBounds, column: DataField, rows: Rows) -> list[ColumnBounds]:
    lows, highs = (_values(side, column) for side in (bounds.lows, bounds.highs))
    nulls = (None if count < 0 else count for count in bounds.nulls.tolist())
    return [ColumnBounds(*block) for block in zip(rows.tolist(), nulls, lows, highs, strict=True)]


def _values(side: pa.Array, column: DataField) -> list[Any]:
    return values_from_arrow(as_declared(side, arrow_type(column.type)), column.type)
