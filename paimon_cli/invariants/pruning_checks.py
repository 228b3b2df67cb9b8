"""Checks of what readers use only to skip rows: file indexes, and the bounds and Bloom filters inside of Parquet files.

If one of them is wrong, a read misses rows and nothing else shows it. They are asked for the rows that a check reads anyway.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paimon_cli.bucket.column_statistics import GROUP_BOUNDS, footer_statistics, leaf_numbers
from paimon_cli.bucket.file_index import FileIndex
from paimon_cli.bucket.file_indexes import FileIndexes
from paimon_cli.bucket.parquet_bloom import BlockFilter, block_filter, hashes_in_parquet
from paimon_cli.bucket.parquet_chunks import read_footer
from paimon_cli.bucket.parquet_pages import PagedColumns
from paimon_cli.bucket.schema_evolution import ReadColumns
from paimon_cli.datatypes.arrow_types import values_to_arrow
from paimon_cli.datatypes.data_type import FLOATING_ROOTS, DataField
from paimon_cli.datatypes.key_order import comparable
from paimon_cli.errors import DamagedFile
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.violation import FULL, CheckGroup, Invariant, Violation, declare
from paimon_cli.metadata.data_file import ManifestEntry
from paimon_cli.metadata.parquet_footer import Footer
from paimon_cli.options.option_text import shortened
from paimon_cli.storage.capabilities import open_sized

declare(
    Invariant(
        "PV063",
        CheckGroup.STATS,
        FULL,
        "bounds of row groups and pages inside of a Parquet file cover its values",
        of_bounds=True,
    ),
    Invariant(
        "PV064",
        CheckGroup.STATS,
        FULL,
        "a Bloom filter inside of a Parquet file admits every value of its column",
        of_bounds=True,
    ),
)

_UNBOUNDED = FLOATING_ROOTS | {"CHAR", "ARRAY", "MAP", "MULTISET", "ROW", "VARIANT", "VECTOR", "BLOB"}


class SkippedRows:
    """Compares the rows of one file with everything that lets readers skip them. Rows are added in file order.

    `context`: the table at the schema of the file. What cannot be decoded is a violation, too.
    """

    def __init__(self, context: TableContext, entry: ManifestEntry) -> None:
        self._unreadable: list[tuple[str, str]] = []
        self._indexes: list[tuple[DataField, FileIndex]] = []
        self._inside: _Inside | None = None
        try:
            self._indexes = FileIndexes(context, entry.partition, entry.bucket, entry.file).known(context.schema.fields)
        except DamagedFile as error:
            self._unreadable.append(("PV062", str(error)))
        self._denied: Counter[str] = Counter()
        if entry.file.file_name.endswith(".parquet"):
            try:
                self._inside = _Inside.of(context, entry)
            except FileNotFoundError:
                pass  # reading its rows says so
            except (ValueError, LookupError) as error:
                self._unreadable.append(("PV063", f"what lets readers skip its rows cannot be read: {error}"))

    def add(self, batch: pa.RecordBatch) -> None:
        for column, index in self._indexes:
            self._denied[column.name] += int(np.count_nonzero(~index.may_hold(batch.column(column.name))))
        if self._inside is not None:
            self._inside.add(batch)

    def violations(self, path: str) -> Iterator[Violation]:
        """PV062, PV063, PV064."""
        yield from (Violation(code, path, message) for code, message in self._unreadable)
        for column, count in self._denied.items():
            if count:
                yield Violation("PV062", path, f"its file index denies {count} values of column {column} that it holds")
        if self._inside is not None:
            yield from self._inside.violations(path)


@dataclass
class _Inside:
    """The structures inside of a Parquet file: bounds of its pages and row groups, Bloom filters of its row groups."""

    bounds: list[_ColumnBounds]
    blooms: list[_ColumnBlooms]
    rows: int = 0

    @staticmethod
    def of(context: TableContext, entry: ManifestEntry) -> _Inside:
        file, schema = entry.file, context.schema
        path = context.data_file_path(entry.partition, entry.bucket, file)
        with open_sized(context.storage, path, file.file_size) as source:
            footer, content = read_footer(source), pq.ParquetFile(source)
            leaves = leaf_numbers(content.schema_arrow)
            read = {column: ReadColumns(context, file, [column.name]).physical for column in schema.fields}
            names = {column: physical[0] for column, physical in read.items() if physical}
            stored = {column: name for column, name in names.items() if name in leaves}
            bounded = [c for c in stored if c.type.root in GROUP_BOUNDS or c.name in schema.trimmed_primary_keys]
            bounds = (
                _ColumnBounds.of(context, entry, source, footer, content.metadata, column, leaves[stored[column]])
                for column in bounded
                if column.type.root not in _UNBOUNDED
            )
            blooms = (_ColumnBlooms.of(source, footer, column, leaves[name]) for column, name in stored.items())
            return _Inside([b for b in bounds if b is not None], [b for b in blooms if b is not None])

    def add(self, batch: pa.RecordBatch) -> None:
        for bounds in self.bounds:
            bounds.add(batch.column(bounds.column.name), self.rows)
        for blooms in self.blooms:
            blooms.add(batch.column(blooms.column.name), self.rows)
        self.rows += batch.num_rows

    def violations(self, path: str) -> Iterator[Violation]:
        for bounds in self.bounds:
            if wrong := bounds.wrong():
                yield Violation("PV063", path, f"column {bounds.column.name} holds values outside of {wrong}")
        for blooms in self.blooms:
            if blooms.denied:
                what = f"a Bloom filter inside of it denies {blooms.denied} values of column {blooms.column.name} that it holds"
                yield Violation("PV064", path, what)


@dataclass
class _ColumnBounds:
    """The recorded and the real bounds of one column in each block (a page, or a row group without a page index)."""

    column: DataField
    begins: np.ndarray
    ends: np.ndarray
    groups: np.ndarray
    recorded: Sequence[tuple[Any, Any]] | None
    """Of each block: null as the lowest value is no bound, null as the highest value says that the block has only nulls."""
    of_groups: Sequence[tuple[Any, Any]]
    found: dict[int, tuple[Any, Any]] = field(default_factory=dict)

    @staticmethod
    def of(
        context: TableContext,
        entry: ManifestEntry,
        source: BinaryIO,
        footer: Footer,
        metadata: pq.FileMetaData,
        column: DataField,
        leaf: int,
    ) -> _ColumnBounds | None:
        read = ReadColumns(context, entry.file, [column.name])
        pages = PagedColumns.of(source, footer, read.physical)
        if pages is None:
            return None

        def as_rows(values: pa.Array) -> list[Any]:
            batch = read.of(pa.RecordBatch.from_arrays([values], names=read.physical))
            return list(comparable(batch.column(0)).to_pylist())

        sides = pages.bounds(source, 0)
        recorded = None if sides is None else list(zip(*map(as_rows, sides), strict=True))
        groups = []
        for group in range(metadata.num_row_groups if column.type.root in GROUP_BOUNDS else 0):
            known = footer_statistics(metadata, leaf, column.type, has_nan=False, groups=(group,))
            groups.append(tuple(_comparable(value, column) for value in (known.minimum, known.maximum)))
        return _ColumnBounds(column, pages.blocks.begins, pages.blocks.ends, pages.blocks.groups, recorded, groups)

    def add(self, values: pa.Array, first_row: int) -> None:
        """Add the values of the rows from `first_row` on."""
        end = first_row + len(values)
        begin_block = int(np.searchsorted(self.ends, first_row, "right"))
        end_block = int(np.searchsorted(self.begins, end, "left"))
        for block in range(begin_block, end_block):
            begin = max(int(self.begins[block]) - first_row, 0)
            part = values.slice(begin, min(int(self.ends[block]), end) - first_row - begin).drop_null()
            if len(part):
                ends = pc.min_max(comparable(part)).as_py()
                low, high = self.found.get(block, (ends["min"], ends["max"]))
                self.found[block] = (min(low, ends["min"]), max(high, ends["max"]))

    def wrong(self) -> str:
        """What the first wrong bounds belong to, with these bounds; empty if all are right."""
        for block, (low, high) in self.found.items():
            if self.recorded is not None:
                lowest, highest = self.recorded[block]
                if highest is None or high > highest or (lowest is not None and low < lowest):
                    return f"{shortened(repr(lowest))} to {shortened(repr(highest))}, the range in the page index"
            if self.of_groups:
                lowest, highest = self.of_groups[self.groups[block]]
                if (highest is not None and high > highest) or (lowest is not None and low < lowest):
                    return f"{shortened(repr(lowest))} to {shortened(repr(highest))}, the range of row group {self.groups[block]}"
        return ""


def _comparable(value: Any, column: DataField) -> Any:
    return None if value is None else comparable(values_to_arrow([value], column.type.with_nullable(True)))[0].as_py()


@dataclass
class _ColumnBlooms:
    """The Bloom filters of one column, by row group."""

    column: DataField
    filters: Mapping[int, BlockFilter]
    group_ends: np.ndarray
    denied: int = 0

    @staticmethod
    def of(source: BinaryIO, footer: Footer, column: DataField, leaf: int) -> _ColumnBlooms | None:
        if hashes_in_parquet(values_to_arrow([], column.type), column.type) is None:
            return None
        found = {group: block_filter(source, footer, group, leaf) for group in range(len(footer.groups))}
        filters = {group: bloom for group, bloom in found.items() if bloom is not None}
        rows = np.array([group.required(3) for group in footer.groups], np.int64)
        return _ColumnBlooms(column, filters, np.cumsum(rows)) if filters else None

    def add(self, values: pa.Array, first_row: int) -> None:
        """Add the values of the rows from `first_row` on."""
        row, end = first_row, first_row + len(values)
        while row < end:
            group = int(np.searchsorted(self.group_ends, row, "right"))
            until = min(end, int(self.group_ends[group]))
            if group in self.filters:
                hashes = hashes_in_parquet(values.slice(row - first_row, until - row), self.column.type)
                assert hashes is not None
                self.denied += int(np.count_nonzero(~self.filters[group].may_hold(hashes)))
            row = until
