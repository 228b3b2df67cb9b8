"""The rows of a query as the input of a write: they are computed once, and can be read again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from sqlglot import TokenType

from paimon_cli.api.scan import installed
from paimon_cli.api.sql_literals import MICROS
from paimon_cli.api.sql_result import SqlResult
from paimon_cli.datatypes.data_type import INTEGER_ROOTS, DataField, DataType, DecimalType, TimestampType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import NotSupported
from paimon_cli.ingest.json_rows import Needed
from paimon_cli.ingest.row_sources import ARROW, ArrowRows, RowSource, columnar_batches
from paimon_cli.ingest.source_files import RawRows, SourceSplit, plan_sources
from paimon_cli.ingest.text_form import PLAIN, TextForm
from paimon_cli.pieces import PIECES
from paimon_cli.sql.statements import Words, is_word
from paimon_cli.storage.whole_file import ScratchDirectory

THE_QUERY = "the query"
_PLAIN_TYPES = {
    "CHAR": "VARCHAR",
    "VARCHAR": "VARCHAR",
    "STRING": "VARCHAR",
    "FLOAT": "FLOAT",
    "DOUBLE": "DOUBLE",
    "DATE": "DATE",
}
_PLAIN_TYPES |= {"TIME": "TIME", "BOOLEAN": "BOOLEAN", "BINARY": "BLOB", "VARBINARY": "BLOB", "BYTES": "BLOB"}
_OF_PRECISION = {0: "TIMESTAMP_S", 3: "TIMESTAMP_MS"}
_FIRST_WITH_LOCAL_NANOS = 2
"""The release of DuckDB that has TIMESTAMPTZ_NS."""


@dataclass(frozen=True)
class SpilledRows(RowSource):
    """Rows in a temporary file of Arrow's, in this process."""

    path: str

    @property
    def form(self) -> TextForm:
        return PLAIN

    @property
    def paths(self) -> Sequence[str]:
        return ()

    def plan(self, *, allow_empty: bool = False) -> Sequence[SourceSplit]:
        splits = plan_sources((self.path,), ARROW, {}, PLAIN, allow_empty=allow_empty)
        return [replace(split, name=THE_QUERY) for split in splits]

    def raw_rows(self, split: SourceSplit, columns: Sequence[DataField], keys: Needed) -> Iterator[RawRows]:
        with open(self.path, "rb") as stream:
            yield from columnar_batches(stream, split)


@contextlib.contextmanager
def rows_of(result: SqlResult, names: Sequence[str]) -> Iterator[RowSource]:
    """All rows of a query, with these names of columns: in memory if they are few, else in a file that the block has."""
    scratch = ScratchDirectory("sql-rows")
    try:
        yield _gathered(result, names, Path(scratch.path) / "rows.arrow")
    finally:
        scratch.remove()


def _gathered(result: SqlResult, names: Sequence[str], path: Path) -> RowSource:
    schema = pa.schema([field.with_name(name) for field, name in zip(result.schema, names, strict=True)])
    batches, few, size = result.rows(), list[pa.RecordBatch](), 0
    for batch in batches:
        few.append(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
        size += batch.nbytes
        if size > PIECES.arrow_split_bytes:
            break
    else:
        return ArrowRows(pa.Table.from_batches(few, schema), THE_QUERY)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for batch in few:
            writer.write_batch(batch)
        few.clear()
        for batch in batches:
            writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
    return SpilledRows(str(path))


def assigned(expression: str, t: DataType, given: str | None = None) -> str:
    """The expression of DuckDB as a value of a column of this type, as SQL assigns it: decimals are rounded, texts are read.

    `given`: the type of the expression. A number or a text that is not whole is an error for a column of whole numbers.
    """
    target = duckdb_type(t)
    if target is not None:
        return f"CAST({expression} AS {target})"
    if t.root not in INTEGER_ROOTS or given is None:
        return f"({expression})"
    cast = f"CAST({expression} AS {_integer_type(t)})"
    if given == "VARCHAR":
        is_fraction = f"regexp_matches({expression}, '[.][0-9]*[1-9]|[eE]-')"
        return f"CASE WHEN {is_fraction} THEN {_refused(expression)} ELSE {cast} END"
    if not given.startswith(("DECIMAL", "DOUBLE", "FLOAT")):
        return cast
    is_whole = f"{expression} IS NULL OR {expression} = trunc({expression})"
    return f"CASE WHEN {is_whole} THEN {cast} ELSE {_refused(expression)} END"


def sql_type(t: DataType) -> str | None:
    """DuckDB's type for values of this type; None for nested values."""
    return _integer_type(t) if t.root in INTEGER_ROOTS else duckdb_type(t)


def _integer_type(t: DataType) -> str:
    return "INTEGER" if t.root == "INT" else t.root


def _refused(expression: str) -> str:
    return f"error(concat('cannot take ', {expression}, ': it is not a whole number'))"


def duckdb_type(t: DataType) -> str | None:
    """DuckDB's type for values that are cast when they are assigned; None for those that are checked as they are."""
    if isinstance(t, DecimalType):
        return f"DECIMAL({t.precision}, {t.scale})"
    if isinstance(t, TimestampType):
        return _time_type(t)
    return _PLAIN_TYPES.get(t.root)


def _time_type(t: TimestampType) -> str:
    """Raises `NotSupported` if this release of DuckDB would round such times."""
    is_local = t.root == "TIMESTAMP_LTZ"
    if t.precision <= MICROS:
        return "TIMESTAMPTZ" if is_local else _OF_PRECISION.get(t.precision, "TIMESTAMP")
    release = installed("duckdb").__version__
    if is_local and int(release.partition(".")[0]) < _FIRST_WITH_LOCAL_NANOS:
        what = f"SQL cannot compute values of type {type_to_sql(t)} with DuckDB {release}"
        why = f"it would round them to {MICROS} digits"
        raise NotSupported(what, why, "use DuckDB 2 (Python 3.11 or newer), or load the rows with `write`")
    return "TIMESTAMPTZ_NS" if is_local else "TIMESTAMP_NS"


def values_text(values: Words, targets: Sequence[DataType], text_of: Callable[[Words], str]) -> str | None:
    """`VALUES (1, 'a'), ('2', 'b')` as a query of DuckDB; None if its rows have not one value for each of the targets.

    A table of values has one type for each column, so that '8.25' beside 3.5 would lose a digit. Where the values of a column
    differ in kind, each is cast to the type to which it goes. `text_of`: a value as DuckDB reads it.
    """
    values.expect("VALUES")
    rows = []
    for part in values.parts():
        if not part.peeks("("):
            return None
        rows.append(part.in_brackets().parts())
        if not part.is_at_end or len(rows[-1]) != len(targets):
            return None
        if any(cell.peeks("DEFAULT") for cell in rows[-1]):
            why = "the columns that an INSERT does not name get their default"
            raise NotSupported("DEFAULT as a value", why, "leave the column out: INSERT INTO t (a, b) VALUES ...")
    kinds = [{_kind(row[column]) for row in rows} - {"NULL"} for column in range(len(targets))]
    texts = []
    for row in rows:
        cells = zip(row, targets, kinds, strict=True)
        alone = (assigned_alone(cell, t, text_of) if len(of_column) > 1 else text_of(cell) for cell, t, of_column in cells)
        texts.append(", ".join(alone))
    return f"VALUES {', '.join(f'({text})' for text in texts)}"


def _kind(value: Words) -> str:
    """Of a literal, its kind; other values may have any type, and are their own."""
    tokens = value.tokens[1:] if len(value.tokens) == 2 and is_word(value.tokens[0], "-") else value.tokens
    if len(tokens) != 1:
        return value.text
    if tokens[0].token_type == TokenType.NUMBER:
        return "DOUBLE" if "e" in tokens[0].text.lower() else "DECIMAL"
    return "TEXT" if tokens[0].token_type == TokenType.STRING else tokens[0].text.upper()


def assigned_alone(words: Words, t: DataType, text_of: Callable[[Words], str]) -> str:
    """A value whose type only DuckDB knows, as `assigned` to a column of this type. `text_of`: a value as DuckDB reads it."""
    value = text_of(words)
    if t.root not in INTEGER_ROOTS or _kind(words) == "TEXT":
        return assigned(value, t, "VARCHAR")
    cast = f"CAST(({value}) AS {_integer_type(t)})"
    return f"CASE WHEN ({value}) IS NOT DISTINCT FROM {cast} THEN {cast} ELSE {_refused(value)} END"
