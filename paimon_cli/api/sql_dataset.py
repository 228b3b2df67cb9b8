"""A table as a PyArrow dataset, from which DuckDB requests the columns and rows that a query needs."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds

from paimon_cli.api.pushed_filters import pushed_condition
from paimon_cli.api.scan import narrowed
from paimon_cli.api.sql_variants import json_schema, with_json
from paimon_cli.errors import PaimonError
from paimon_cli.metadata.table_schema import TableSchema

if TYPE_CHECKING:
    from paimon_cli.api.scan import Scan
    from paimon_cli.api.table import Table
    from paimon_cli.storage.injected import Trace


class ClosableRows:
    """Batches for a thread that this process does not control. Once they are closed, no thread is in the Python that makes them,
    nor will be: Python aborts the process if such a thread is there when the interpreter ends.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._making = threading.RLock()  # reentrant, as garbage that is collected in between may close a query
        self._is_closed = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        with self._making:
            if self._is_closed:
                raise ValueError("the query has ended")  # not the end of the rows: whoever still reads must not take it for that
            return next(self._batches)

    def end(self) -> None:
        """Make no more batches than the one that is being made."""
        self._is_closed = True

    def close(self) -> None:
        """Waits for the batch that is being made."""
        self.end()
        with self._making:
            pass


class TableDataset(ds.Dataset):  # type: ignore[misc]
    """A table at one version, as a PyArrow dataset for DuckDB. `tracking`: columns of row tracking to show, if it has any."""

    def __init__(self, table: Table, version: Mapping[str, Any], trace: Trace, tracking: Sequence[str] = ()) -> None:
        # The constructor of the base class cannot be called.
        self._table = table
        self._trace = trace
        self._scan = table.scan(**version)
        self.tracking = tracking if self._scan.rows.context.mode.tracks_rows else ()
        if self.tracking:
            self._scan = table.scan(**version, columns=[*self._scan.schema.names, *self.tracking])
        self.failure: PaimonError | None = None
        self._readers: list[ClosableRows] = []

    def end(self) -> None:
        """Begin no more batches."""
        for reader in self._readers:
            reader.end()

    def close(self) -> None:
        """Read no more. Arrow reads ahead in threads of its own, whether a query has failed or has all that it needs."""
        for reader in self._readers:
            reader.close()

    @property
    def schema(self) -> pa.Schema:
        """The columns as DuckDB sees them: a VARIANT is JSON."""
        with self._remembering_failure():
            return json_schema(self._scan.schema, self.table_schema.fields)

    @property
    def table_schema(self) -> TableSchema:
        """The schema with which the rows are read."""
        context = self._scan.rows.context
        return context.readable_schema if self.tracking else context.schema

    def is_of(self, table: Table) -> bool:
        """Whether its rows are of this branch of this table: snapshots of another branch have the same numbers."""
        return (self._table.url, self._table.branch) == (table.url, table.branch)

    @property
    def snapshot_id(self) -> int:
        """The snapshot that is read; 0 if the table has none."""
        snapshot = self._scan.rows.plan.snapshot
        return 0 if snapshot is None else snapshot.id

    @contextlib.contextmanager
    def _remembering_failure(self) -> Iterator[None]:
        """Keep an error of the scan, because DuckDB would wrap it in its own."""
        try:
            yield
        except PaimonError as error:
            self.failure = error
            raise

    def scanner(self, columns: Sequence[str] | None = None, filter: Any = None, **options: Any) -> ds.Scanner:
        """The rows that satisfy `filter`, with these columns; called by DuckDB."""
        with self._remembering_failure():
            return self._scanner(columns, filter)

    def _scanner(self, columns: Sequence[str] | None, filter: Any) -> ds.Scanner:
        names = list(self.schema.names if columns is None else columns)
        text = None if filter is None else str(filter)
        read = [name for name in self.schema.names if name in names or (text is not None and _may_name(text, name))]
        schema = self.table_schema
        where = None if text is None else pushed_condition(text, schema)
        scan = narrowed(self._scan, read or self.schema.names[:1], where)
        if self._trace.is_on:
            files = sum(len(split.files) for split in scan.rows.plan.splits)
            self._trace.step("sql-scan", table=self._table.name, columns=read, where=where, files=files)
        fields = schema.fields
        rows = ClosableRows(with_json(batch, fields) for batch in self._rows(scan))
        self._readers.append(rows)
        batches = pa.RecordBatchReader.from_batches(json_schema(scan.schema, fields), rows)
        return ds.Scanner.from_batches(batches, columns=names, filter=filter)

    def _rows(self, scan: Scan) -> Iterator[pa.RecordBatch]:
        with self._remembering_failure():
            yield from scan.to_batches()


def _may_name(text: str, column: str) -> bool:
    """Whether an expression with this text may read the column."""
    return re.search(rf"(?<!\w){re.escape(column)}(?!\w)", text) is not None
