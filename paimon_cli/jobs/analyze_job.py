"""`analyze`: counts what a table holds, and commits it as Paimon's statistics file (FORMAT.md, section 3.4; Java Statistics).

Engines plan joins by it: Spark's optimiser reads the number of rows and, for each column, nulls, bounds, distinct values and
lengths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.bucket.bloom_index import index_hashes
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import fresh_identity
from paimon_cli.datatypes.arrow_types import arrow_type, values_from_arrow
from paimon_cli.datatypes.data_type import (
    BINARY_ROOTS,
    FLOATING_ROOTS,
    INTEGER_ROOTS,
    STRING_ROOTS,
    TIMESTAMP_ROOTS,
    DataField,
)
from paimon_cli.datatypes.internal_values import Timestamp, date_text, parse_date, timestamp_text
from paimon_cli.errors import CommitUnknown, PaimonError, UsageError, cleaning_up
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.row_scan import ReadRequest, plan_rows
from paimon_cli.metadata.snapshot import Snapshot, dump_java_json

_ORDERED = INTEGER_ROOTS | FLOATING_ROOTS | TIMESTAMP_ROOTS | {"DATE", "DECIMAL"}
"""The types whose least and greatest value are recorded, as by Spark."""
_HASHED = STRING_ROOTS | BINARY_ROOTS | INTEGER_ROOTS | FLOATING_ROOTS | TIMESTAMP_ROOTS | {"DATE", "TIME"}
_LENGTHS = {"BOOLEAN": 1, "TINYINT": 1, "SMALLINT": 2, "INT": 4, "BIGINT": 8, "FLOAT": 4, "DOUBLE": 8, "DATE": 4, "TIME": 4}
_LONGEST_LENGTH = 8
"""Of the other types without a length of their own."""
_HASHES = 1 << 16
"""The least hashes of a column that are kept: the estimate is off by half a percent."""
_ALL_HASHES = 2.0**64


@dataclass(frozen=True)
class AnalyzedColumn:
    """What was found in a column. `distinct_count` is an estimate above some ten thousand values; `low`, `high`: as text."""

    name: str
    null_count: int
    distinct_count: int | None
    low: str | None
    high: str | None
    avg_length: int | None
    max_length: int | None


@dataclass(frozen=True)
class Analysis:
    """What a snapshot holds: visible rows, their share of the bytes of its files, and its columns.

    `snapshots`: the snapshot that was committed with the statistics, none in a dry run.
    """

    snapshot_id: int
    schema_id: int
    rows: int
    size: int
    columns: tuple[AnalyzedColumn, ...]
    snapshots: tuple[Snapshot, ...] = ()

    def to_json(self, fields: Mapping[str, DataField]) -> str:
        """The statistics file. `fields`: of each column, by its name."""
        columns = {column.name: _column_json(column, fields[column.name]) for column in self.columns}
        content = {
            "snapshotId": self.snapshot_id,
            "schemaId": self.schema_id,
            "mergedRecordCount": self.rows,
            "mergedRecordSize": self.size,
            "colStats": columns,
        }
        return dump_java_json(content)


def _column_json(column: AnalyzedColumn, field: DataField) -> dict[str, Any]:
    low, high = column.low, column.high
    if field.type.root == "DATE" and low is not None and high is not None:
        low, high = str(parse_date(low)), str(parse_date(high))  # Java's serializers read days since 1970
    content = {
        "colId": field.id,
        "distinctCount": column.distinct_count,
        "min": low,
        "max": high,
        "nullCount": column.null_count,
        "avgLen": column.avg_length,
        "maxLen": column.max_length,
    }
    return {key: value for key, value in content.items() if value is not None}


def analyze(context: TableContext, columns: Sequence[str] | None = None) -> Analysis:
    """Read the rows of the latest snapshot, and count them. `columns`: default all, none for the rows alone."""
    snapshot = context.snapshot()
    if snapshot is None:
        raise UsageError(
            f"there is nothing to analyze in {context.address}", "the table has no snapshots yet", "write to it first"
        )
    fields = context.schema.fields if columns is None else context.schema.fields_of(columns)
    names = [column.name for column in fields] or None
    scan = plan_rows(context, ReadRequest(columns=names, snapshot=snapshot.id, with_newest_schema=True))
    tallies = [_Tally(column) for column in fields]
    rows = 0 if tallies else scan.count()
    for batch in scan.rows() if tallies else ():
        rows += batch.num_rows
        for tally, values in zip(tallies, batch.columns, strict=True):
            tally.add(values)
    stored = max(scan.plan.row_count, 1)
    found = tuple(tally.result(rows) for tally in tallies)
    return Analysis(snapshot.id, context.schema.id, rows, scan.plan.size * rows // stored, found)


def commit_analysis(context: TableContext, analysis: Analysis) -> tuple[Snapshot, ...]:
    """Write the statistics file, and commit a snapshot of kind ANALYZE that names it. Returns the snapshot."""
    name = f"stat-{context.random.uuid()}-0"
    path = f"{context.layout.statistics_directory}/{name}"
    fields = {column.name: column for column in context.schema.fields}
    context.storage.write_new(path, analysis.to_json(fields).encode())
    try:
        return Committer(context).commit_statistics(fresh_identity(context), name).snapshots
    except CommitUnknown:
        raise  # a snapshot may name the file
    except PaimonError as failure:
        with cleaning_up(failure):
            context.storage.delete(path)
        raise


@dataclass
class _Tally:
    """Counts the values of a column, batch by batch."""

    column: DataField
    nulls: int = 0
    length: int = 0
    longest: int = 0
    ends: pa.Array | None = None
    hashes: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint64))

    def add(self, values: pa.Array) -> None:
        t, present = self.column.type, values.drop_null()
        self.nulls += values.null_count
        if not len(present):
            return
        if t.root in STRING_ROOTS | BINARY_ROOTS:
            lengths = pc.binary_length(present)
            self.length += pc.sum(lengths).as_py()
            self.longest = max(self.longest, pc.max(lengths).as_py())
        if t.root in _HASHED:
            # The least hashes: of many distinct values their density tells how many there are.
            kept = np.unique(np.concatenate([self.hashes, index_hashes(present, t).view(np.uint64)]))
            self.hashes = kept[:_HASHES]
        if t.root in _ORDERED:
            numbers = present.filter(pc.invert(pc.is_nan(present))) if t.root in FLOATING_ROOTS else present
            if t.root in TIMESTAMP_ROOTS:
                numbers = numbers.cast(pa.int64())  # Python has no years above 9999
            if len(numbers):
                found = pc.min_max(numbers)
                ends = pa.array([found["min"].as_py(), found["max"].as_py()], numbers.type)
                both = ends if self.ends is None else pa.concat_arrays([self.ends, ends])
                order = pc.sort_indices(both)
                self.ends = both.take(pa.array([order[0].as_py(), order[-1].as_py()]))

    def result(self, rows: int) -> AnalyzedColumn:
        t, present = self.column.type, rows - self.nulls
        found = [] if self.ends is None else values_from_arrow(self.ends.cast(arrow_type(t)), t)
        ends = tuple(_text(value, t.root) for value in found)
        low, high = ends if ends and None not in ends else (None, None)
        average: int | None = _LENGTHS.get(t.root, _LONGEST_LENGTH)
        longest = average
        if t.root in STRING_ROOTS | BINARY_ROOTS:
            average, longest = -(-self.length // present) if present else 0, self.longest
        distinct = self._distinct() if t.root in _HASHED else None
        return AnalyzedColumn(self.column.name, self.nulls, distinct, low, high, average, longest)

    def _distinct(self) -> int:
        if len(self.hashes) < _HASHES:
            return len(self.hashes)
        return round((len(self.hashes) - 1) * _ALL_HASHES / float(self.hashes[-1]))


def _text(value: Any, root: str) -> str | None:
    """A value as text; timestamps as Java's serializers read them. None for what they cannot: years of more than four digits.
    Java's writers read the statistics with each commit, so that a wrong text would stop them.
    """
    if isinstance(value, Timestamp):
        text = timestamp_text(value).replace("T", " ")
        return text if text[:4].isdigit() and text[4] == "-" else None
    if root == "DATE":
        return date_text(value)
    if root == "DECIMAL":
        return f"{value:f}"
    return {"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), str(value))
