"""Where the rows of a write come from: input files, or Arrow data in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol

import numpy as np
import pyarrow as pa

from paimon_cli.datatypes.data_type import DataField
from paimon_cli.ingest.csv_and_columnar import BATCH_ROWS, columnar_batches, csv_batches, no_rows
from paimon_cli.ingest.json_rows import Needed, json_batches
from paimon_cli.ingest.sources import text_stream
from paimon_cli.ingest.splits import RawRows, SourceSplit, plan_sources
from paimon_cli.ingest.text_form import TextForm
from paimon_cli.ingest.text_values import PLAIN
from paimon_cli.storage.storage_for_url import storage_for_url

ARROW = "arrow"
"""Format of the splits of Arrow data in memory."""
ARROW_SPLIT_BYTES = 32 << 20


class RowSource(Protocol):
    """Rows before they are checked against a table. Picklable, so that Spark tasks can read their splits."""

    @property
    def form(self) -> TextForm:
        """How texts of the source are written, and the zone of its times."""
        ...

    @property
    def paths(self) -> Sequence[str]:
        """Local paths or URLs as the user gave them; none for rows in memory."""
        ...

    def plan(self, *, may_be_none: bool = False) -> Sequence[SourceSplit]:
        """Cut the rows into splits, in the order of arrival. `may_be_none`: a source that does not exist has no rows."""
        ...

    def raw_rows(self, split: SourceSplit, columns: Sequence[DataField], needed: Needed) -> Iterator[RawRows]:
        """The rows of one split. `columns` are those that the write can use; `needed` is for formats whose rows have keys."""
        ...


@dataclass(frozen=True)
class FileRows:
    """Rows of files: `paths` are files, directories, globs or '-'. The format follows from the extension unless it is given.

    `storage_options`: of the catalog, for files in an object store.
    """

    paths: tuple[str, ...] = ()
    format: str | None = None
    form: TextForm = PLAIN
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def plan(self, *, may_be_none: bool = False) -> list[SourceSplit]:
        """Raises NotFound, UsageError, or BadInput for a file that is not of its format."""
        return plan_sources(self.paths, self.format, self.storage_options, self.form, may_be_none=may_be_none)

    def raw_rows(self, split: SourceSplit, columns: Sequence[DataField], needed: Needed) -> Iterator[RawRows]:
        storage, path = storage_for_url(split.path, self.storage_options)

        def open_source() -> BinaryIO:
            return storage.open_input(path)

        if split.format == "csv":
            names = () if self.form.header else [column.name for column in columns]
            yield from csv_batches(open_source, split, self.form, names)
            return
        with open_source() as stream:
            if split.format == "json":
                text = text_stream(stream, split.path, split.name, None if self.form.is_utf8 else self.form.encoding)
                yield from json_batches(text, split, columns, needed)
            else:
                yield from columnar_batches(stream, split)


@dataclass(frozen=True)
class ArrowRows:
    """Rows of an Arrow table in this process. `name` is what messages call it.

    `timezone`: the zone of timestamps that have none, and that in which columns without zone show instants.
    """

    table: pa.Table = field(repr=False)
    name: str = "the Arrow data"
    timezone: str | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        return ()

    @property
    def form(self) -> TextForm:
        return TextForm(timezone=self.timezone)

    def plan(self, *, may_be_none: bool = False) -> list[SourceSplit]:
        """Pieces of about `ARROW_SPLIT_BYTES`; a table without rows is one piece, so that its columns are checked."""
        rows, size = self.table.num_rows, self.table.nbytes
        step = max(1, rows * ARROW_SPLIT_BYTES // max(1, size))
        return [self._split(start, min(step, rows - start), size) for start in range(0, max(1, rows), step)]

    def _split(self, start: int, length: int, size: int) -> SourceSplit:
        share = size * length // max(1, self.table.num_rows)
        return SourceSplit("", ARROW, start, length, start, start, self.name, share, length)

    def raw_rows(self, split: SourceSplit, columns: Sequence[DataField], needed: Needed) -> Iterator[RawRows]:
        row, piece = 0, self.table.slice(split.start, split.length)
        batches = piece.to_batches(max_chunksize=BATCH_ROWS) or [no_rows(piece.schema)]
        for batch in batches:
            yield RawRows(batch, np.arange(row, row + batch.num_rows))
            row += batch.num_rows
