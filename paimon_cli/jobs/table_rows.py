"""The rows of a table as the input of a write: the table is read at one snapshot, as `read` reads it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from paimon_cli.datatypes.arrow_types import arrow_field
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.errors import NotFound
from paimon_cli.history.manifest_reader import SnapshotGone
from paimon_cli.ingest.json_rows import Needed
from paimon_cli.ingest.row_sources import ARROW, RowSource
from paimon_cli.ingest.source_files import RawRows, SourceSplit, no_rows
from paimon_cli.ingest.text_form import TextForm
from paimon_cli.jobs.row_scan import RowScan
from paimon_cli.lsm.sorted_runs import shares
from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.pieces import PIECES


@dataclass(frozen=True)
class TableRows(RowSource):
    """The rows of a scan: merged, without those that were deleted. Splits of the scan are read independently, in bounded memory.

    `name`: of the table, for messages. `timezone`: converts between timestamps with and without a zone, where the types differ.
    """

    name: str
    scan: RowScan = field(repr=False)
    timezone: str | None = None

    @property
    def form(self) -> TextForm:
        return TextForm(timezone=self.timezone)

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.scan.context.url,)

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot that is read; None if the table has none."""
        snapshot = self.scan.plan.snapshot
        return None if snapshot is None else snapshot.id

    @property
    def is_whole(self) -> bool:
        """Whether these are all rows of the table at a snapshot."""
        request = self.scan.request
        return (request.where, request.limit, request.increment) == (None, None, None)

    def is_of(self, layout: TableLayout) -> bool:
        """Whether the rows come from this branch of this table."""
        own = self.scan.context.layout
        return own.branch == layout.branch and _real(own.root) == _real(layout.root)

    def plan(self, *, allow_empty: bool = False) -> list[SourceSplit]:
        """One split for several small ones of the scan; a single one if it has an order or a limit, which hold as a whole.

        Without rows there is one split, too, so that the columns are checked.
        """
        splits, options = self.scan.plan.splits, self.scan.context.options
        sizes, rows = [split.size for split in splits], [split.row_count for split in splits]
        parts = [range(len(splits))]
        if splits and self.scan.request.limit is None and self.scan.order is None:
            parts = shares(sizes, options.split_open_file_cost, options.split_target_size)
        at = "" if self.snapshot_id is None else f" at snapshot {self.snapshot_id}"
        planned, order_base = [], 0
        for number, part in enumerate(parts, 1):
            name = f"{self.name}{at}, part {number} of {len(parts)}"
            size, arrivals = sum(sizes[part.start : part.stop]), sum(rows[part.start : part.stop])
            path = f"{self.scan.context.url}#{number}"
            planned.append(SourceSplit(path, ARROW, part.start, len(part), 0, order_base, name, size, arrivals))
            order_base += arrivals
        return planned

    def raw_rows(self, split: SourceSplit, columns: Sequence[DataField], keys: Needed) -> Iterator[RawRows]:
        scan, schema = self._part(split), pa.schema([arrow_field(field) for field in self.scan.fields])
        yield RawRows(no_rows(schema), np.arange(0))
        row = 0
        try:
            for batch in scan.rows():
                typed = batch.cast(schema)
                for start in range(0, batch.num_rows, PIECES.batch_rows):
                    piece = typed.slice(start, PIECES.batch_rows)
                    yield RawRows(piece, np.arange(row, row + piece.num_rows))
                    row += piece.num_rows
        except SnapshotGone as gone:
            raise NotFound(gone.what, gone.why, "run it again, or tag the snapshot and read the tag") from gone

    def _part(self, split: SourceSplit) -> RowScan:
        """The part of the scan that one task reads, in one thread."""
        end = split.start + (split.length or 0)
        plan = replace(self.scan.plan, splits=tuple(self.scan.plan.splits[split.start : end]))
        return replace(self.scan, context=replace(self.scan.context, read_threads=1), plan=plan)


def _real(root: str) -> str:
    return root if "://" in root else os.path.realpath(root)
