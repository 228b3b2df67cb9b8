"""What a statement of SQL answers: the rows of a query, or the summary of a change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from paimon_cli.api.scan import ReadableRows
from paimon_cli.api.sql_errors import CalledByQuery, ReadTable, translated_errors
from paimon_cli.datatypes.arrow_types import arrow_type, type_from_arrow
from paimon_cli.datatypes.data_type import STRING, DataField
from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.sql.statements import quoted


class SqlResult(ReadableRows):
    """What a statement answers. Of a query, the rows, which DuckDB computes while they are read; they can be read only once.

    Of a change, `summary` is what the method of `Table` returns that does the same, `table` the table as it was named, and the
    rows are one line about it. `is_text`: the last column is a text of several lines, such as a plan.
    """

    written = ""
    """The statement of a query, which errors about its rows may cite."""
    functions: Sequence[CalledByQuery] = ()
    """Functions of ours that the query calls."""

    def __init__(
        self,
        rows: pa.RecordBatchReader,
        datasets: Sequence[ReadTable] = (),
        release: Callable[[], None] | None = None,
        *,
        summary: Any = None,
        table: str | None = None,
        verb: str = "",
        is_text: bool = False,
    ) -> None:
        self.summary = summary
        self.table = table
        self.verb = verb
        self.is_text = is_text
        self._rows = rows
        self.datasets = datasets
        self._release = release or _nothing
        self._is_read = False
        columns = zip(_unique(rows.schema.names), rows.schema, strict=True)
        self.fields = tuple(DataField(number, name, _type_of(column)) for number, (name, column) in enumerate(columns))

    def __repr__(self) -> str:
        return f"SqlResult(columns={[field.name for field in self.fields]})"

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result."""
        return pa.schema([(field.name, arrow_type(field.type)) for field in self.fields])

    @property
    def is_query(self) -> bool:
        """Whether the statement has changed nothing: its rows are the answer."""
        return not self.verb

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The rows, batch by batch."""
        if self._is_read:
            raise UsageError(
                "the rows of a query can be read only once",
                "DuckDB computed them while they were read",
                "run the query again, or keep the result of to_arrow()",
            )
        self._is_read = True
        schema = self.schema
        try:
            with translated_errors(self.datasets, written=self.written, functions=self.functions):
                for batch in self._rows:
                    columns = [column.cast(t) for column, t in zip(batch.columns, schema.types, strict=True)]
                    yield pa.RecordBatch.from_arrays(columns, schema=schema)
        finally:
            self._rows.close()
            self._release()

    def close(self) -> None:
        """End the query, whether its rows were read or not."""
        self._is_read = True
        self._rows.close()
        self._release()

    def to_batches(self) -> pa.RecordBatchReader:
        """The rows as a reader that yields them batch by batch, as DuckDB computes them."""
        return pa.RecordBatchReader.from_batches(self.schema, self.rows())


def _nothing() -> None:
    """Nothing to release."""


def answer(columns: Mapping[str, Sequence[Any]], **facts: Any) -> SqlResult:
    """A result with these columns of texts and numbers."""
    arrays = {
        name: pa.array(values, pa.int64() if any(isinstance(value, int) for value in values) else pa.string())
        for name, values in columns.items()
    }
    return SqlResult(pa.table(arrays).to_reader(), **facts)


def snapshots_of(summary: Any) -> list[int]:
    """The ids of the snapshots that a change has committed."""
    found = getattr(summary, "snapshots", ())
    return [snapshot.id for snapshot in found] if isinstance(found, tuple) else []


def changed(verb: str, table: str, summary: Any) -> SqlResult:
    """The result of a change: `verb` says what was done."""
    snapshots = snapshots_of(summary)
    rows, newest = getattr(summary, "rows", None), snapshots[-1] if snapshots else None
    line: dict[str, list[Any]] = {"done": [verb], "table": [table], "rows": [rows], "snapshot": [newest]}
    return answer(line, summary=summary, table=table, verb=verb)


def _unique(names: Sequence[str]) -> list[str]:
    """The names, with a number appended to repeated ones."""
    unique: list[str] = []
    for name in names:
        number, candidate = 1, name
        while candidate in unique:
            number, candidate = number + 1, f"{name}_{number}"
        unique.append(candidate)
    return unique


def _type_of(column: pa.Field) -> Any:
    if pa.types.is_null(column.type):
        return STRING
    try:
        return type_from_arrow(column.type)
    except NotSupported as error:
        hint = f"cast it in the query: {quoted(column.name)}::VARCHAR"
        raise NotSupported(f"column '{column.name}' is a {column.type}", "Paimon has no such type", hint) from error
