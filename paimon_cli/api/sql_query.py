"""SQL queries over tables, run by DuckDB.

Each table is a dataset, from which DuckDB requests the columns and rows that it needs. Only queries are accepted; nothing is
written. DuckDB itself opens no file and no address, and loads no extension, unless the caller allows files: a query may come
from elsewhere, and `read_text` would show it any file of the user.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from paimon_cli.api.scan import installed
from paimon_cli.api.sql_dataset import TableDataset
from paimon_cli.api.sql_description import describes_a_table, shows_columns, with_constraints
from paimon_cli.api.sql_errors import EXTRA, translated_errors
from paimon_cli.api.sql_literals import literal_text, refuse_cut_times
from paimon_cli.api.sql_names import check_columns_differ
from paimon_cli.api.sql_references import Renamed, RenamedTables, expands_values, plain_columns
from paimon_cli.api.sql_result import SqlResult
from paimon_cli.api.sql_row_tracking import HiddenColumns, named_tracking_columns
from paimon_cli.api.sql_variants import VariantFunctions, with_json_texts
from paimon_cli.errors import NotFound, NotSupported, UsageError
from paimon_cli.pieces import PIECES
from paimon_cli.sql.statements import check_names, quoted
from paimon_cli.storage.whole_file import ScratchDirectory

if TYPE_CHECKING:
    from paimon_cli.api.table import Table
    from paimon_cli.storage.injected import Trace

SHOW_HINT = "`paimon-cli tables ls` lists the tables of the warehouse"
_VIEW = "__table_"
"""How the views begin that stand for tables at a version."""
_OF_DUCKDB = ("memory", "temp", "system", "information_schema", "pg_catalog")
"""Databases in which DuckDB makes no view."""
OpenTable = Callable[[str], "Table"]
"""Opens a table by `db.table` or by its path; raises `NotFound`."""
Wrap = Callable[[str, Sequence[tuple[str, str]]], str]
"""Makes a query out of the text of another one, and the names and types of its columns."""


@dataclass(frozen=True)
class NamedTable:
    """A table reference in a query: the parts of its name, and its version (`AT`)."""

    parts: tuple[str, ...]
    unit: str | None = None
    version: str | None = None

    @property
    def name(self) -> str:
        return ".".join(self.parts)

    def scan_options(self) -> dict[str, Any]:
        """The version as keyword arguments of `Table.scan`."""
        if self.version is None:
            return {}
        if self.unit == "TIMESTAMP":
            return {"as_of": self.version}
        return {"snapshot": self.version}


@dataclass(frozen=True)
class Query:
    """A query of DuckDB. `params`: values by the names that it reads by `getvariable`.

    `wraps`: make another query out of the text and the columns of this one, one after the other.
    `explain`: EXPLAIN or EXPLAIN ANALYZE, which shows the plan instead of the rows. `written`: the statement of the user, if the
    text is made from it.
    """

    text: str
    params: Mapping[str, Any] = field(default_factory=dict)
    wraps: tuple[Wrap, ...] = ()
    explain: str = ""
    written: str = ""

    @property
    def cited(self) -> str:
        """What errors may show of the statement."""
        return self.written or self.text


@dataclass(frozen=True)
class QueryBounds:
    """What a query may take. `on_begin` gets a function that interrupts it, which may be called in another thread."""

    memory: str
    scratch: str
    threads: int
    on_begin: Callable[[Callable[[], None]], object]

    @property
    def settings(self) -> dict[str, Any]:
        return {"memory_limit": self.memory, "max_temp_directory_size": self.scratch, "threads": self.threads}


def run_query(
    query: str | Query,
    open_table: OpenTable,
    trace: Trace,
    *,
    allow_files: bool = False,
    bounds: QueryBounds | None = None,
    on_begin: Callable[[Callable[[], None]], object] | None = None,
) -> SqlResult:
    """Run one SELECT over the tables that it names; with `allow_files`, also over files that DuckDB reads.

    `on_begin`, and that of `bounds`, get a function that interrupts the query from another thread.

    Raises `UsageError` for other statements and errors in the query, `NotFound` for a missing table, and `Refused` for a
    query that would read files without `allow_files`.
    """
    if isinstance(query, str):
        query = Query(query)
    duckdb = installed("duckdb", EXTRA)
    scratch = ScratchDirectory("sql")
    settings = {
        "python_enable_replacements": False,  # Python variables of the caller are not tables
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "enable_external_access": allow_files,
        "temp_directory": str(scratch.path),
        **({} if bounds is None else bounds.settings),
    }
    connection = duckdb.connect(config=settings)
    datasets: list[TableDataset] = []
    views: dict[NamedTable, str] = {}
    missing: list[NotFound] = []
    functions = VariantFunctions(connection)

    def stop() -> None:
        with contextlib.suppress(duckdb.Error):  # the query has just ended
            connection.interrupt()

    for begun in (on_begin, None if bounds is None else bounds.on_begin):
        if begun is not None:
            begun(stop)

    release = functools.partial(_end, connection, datasets, scratch)
    try:
        with translated_errors(datasets, missing, query.cited, (functions,)):
            for name, value in query.params.items():
                connection.execute(f"SET VARIABLE {quoted(name)} = $value", {"value": value}).fetchall()
            opening = _remembering(open_table, missing)
            written = functions.named_in(query.text)
            text, is_description = _registered(connection, written, query.cited, opening, trace, datasets, views)
            connection.execute("SET lock_configuration = true").fetchall()
            for wrap in query.wraps:
                relation = connection.sql(text)
                text = wrap(text, list(zip(relation.columns, map(str, relation.types), strict=True)))
                text = functions.named_in(text)
                text, _ = _registered(connection, text, query.cited, opening, trace, datasets, views)
            relation = connection.sql(f"{query.explain} {text}")
            types, reader = relation.types, relation.to_arrow_reader(PIECES.batch_rows)
            if is_description and datasets and not query.explain:
                reader = with_constraints(reader, datasets[0].table_schema, datasets[0].schema.names)
        result = SqlResult(reader, datasets, release, is_text=bool(query.explain))
        result.fields = with_json_texts(result.fields, types)
        result.written, result.functions = query.cited, (functions,)
        return result
    except BaseException:
        release()
        raise


def _end(connection: Any, datasets: Sequence[TableDataset], scratch: ScratchDirectory) -> None:
    try:
        for dataset in datasets:
            dataset.end()  # all of them before one is waited for
        for dataset in datasets:
            dataset.close()
    finally:
        connection.close()
        scratch.remove()


def _remembering(open_table: OpenTable, missing: list[NotFound]) -> OpenTable:
    """Opens tables, and keeps the errors about those that are not there: DuckDB may know the names, or not."""

    def opened(name: str) -> Table:
        try:
            return open_table(name)
        except NotFound as error:
            missing.append(error)
            raise

    return opened


def _registered(
    connection: Any,
    query: str,
    cited: str,
    open_table: OpenTable,
    trace: Trace,
    datasets: list[TableDataset],
    views: dict[NamedTable, str],
) -> tuple[str, bool]:
    """Register a view for each table of the query, and return the query with references to the views.

    `views`: those for an inner query, which stay as they are. `cited`: the statement as it was written. Also returned:
    whether it only describes a table.
    """
    tree = _parsed(connection, query)
    (statement,) = tree["statements"]
    tracking, tables = named_tracking_columns(query), list[tuple[dict[str, Any], NamedTable]]()
    for node in _tables_of(statement, frozenset()):
        named = _named(node)
        table = None if named.name.startswith(_VIEW) else _opened(named, open_table)
        if table is None:
            continue
        tables.append((node, named))
        if named not in views:
            views[named] = f"{_VIEW}{len(datasets)}"
            datasets.append(TableDataset(table, named.scan_options(), trace, tracking))
            if not shows_columns(statement):
                check_columns_differ(named.name, datasets[-1].table_schema, cited, expands=expands_values(statement))
            connection.register(views[named], datasets[-1])
    tracked, renamed, columns = dict[int, list[str]](), dict[int, Renamed](), dict[int, frozenset[str]]()
    for node, named in tables:
        if _needs_other_name(named, views):
            renamed[id(node)] = Renamed(named.parts, views[named], _has_twin(named, views))
        else:
            _create_view(connection, named, views[named])
        dataset = datasets[int(views[named].removeprefix(_VIEW))]
        columns[id(node)] = frozenset(name.lower() for name in dataset.schema.names)
        if dataset.tracking:
            tracked[id(node)] = [name for name in dataset.schema.names if name not in dataset.tracking]
    RenamedTables(renamed, columns).rename_in(statement)
    HiddenColumns(tracking, tracked, functools.partial(_expression, connection)).hide_in(statement)
    if not tracked and not renamed:
        return query, describes_a_table(statement)
    rewritten = connection.execute("SELECT json_deserialize_sql(?)", [json.dumps(tree)]).fetchall()[0][0]
    return str(rewritten), describes_a_table(statement)


def _needs_other_name(named: NamedTable, views: Iterable[NamedTable]) -> bool:
    """Whether DuckDB takes the name for another table, or for none: for its latest version, for one whose name differs only in
    case, or, as names without a database are in its `main`, for one of the database that USE has chosen.
    """
    if named.version is not None or (len(named.parts) == 2 and named.parts[0].lower() in _OF_DUCKDB):
        return True
    return _has_twin(named, views)


def _has_twin(named: NamedTable, views: Iterable[NamedTable]) -> bool:
    """Whether DuckDB takes its name for that of another table of the query."""
    return any(other.parts != named.parts and _as_in_duckdb(other) == _as_in_duckdb(named) for other in views)


def _as_in_duckdb(named: NamedTable) -> str:
    return named.name.lower().removeprefix("main.")


def _expression(connection: Any, text: str) -> dict[str, Any]:
    """The syntax tree of an expression."""
    (statement,) = _parsed(connection, f"SELECT {text}")["statements"]
    (found,) = statement["node"]["select_list"]
    return dict(found)


def columns_without_qualifier(text: str) -> set[str]:
    """The columns that an expression of DuckDB names without saying of what table, as far as it can be read alone.

    Those in subqueries, which may be of tables there, and the parameters of lambdas are not among them.
    """
    duckdb = installed("duckdb", EXTRA)
    with duckdb.connect(config={"enable_external_access": False}) as connection:
        try:
            return set(plain_columns(_expression(connection, text)))
        except (UsageError, NotSupported, duckdb.Error):  # the query with it says what is wrong
            return set()


def _create_view(connection: Any, named: NamedTable, source: str) -> None:
    """Create a view with the name in the query, so that columns can be qualified with it."""
    *schemas, name = (quoted(part) for part in named.parts)
    for schema in schemas:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}").fetchall()
    connection.execute(f"CREATE VIEW IF NOT EXISTS {'.'.join([*schemas, name])} AS FROM {source}").fetchall()


def _parsed(connection: Any, query: str) -> dict[str, Any]:
    """The syntax tree of the query. Raises `UsageError` unless it is a single SELECT."""
    statements = connection.extract_statements(query)
    if len(statements) != 1:
        raise UsageError(f"the query has {len(statements)} statements", "it must be a single SELECT")
    (row,) = connection.execute("SELECT json_serialize_sql(?)", [query]).fetchall()
    tree: dict[str, Any] = json.loads(row[0])
    if tree["error"]:
        kind = str(statements[0].type).rpartition(".")[2]
        if kind == "MULTI":  # DuckDB would find the values by a statement of its own
            hint = "name them: ON status IN ('open', 'paid'), or FOR status IN (...)"
            raise NotSupported("PIVOT without the values of its column", "a query is a single statement", hint)
        what = "this statement cannot be run" if kind == "SELECT" else f"{kind} is not a query"
        raise UsageError(what, "queries are SELECT, WITH, FROM, VALUES, DESCRIBE, SUMMARIZE")
    refuse_cut_times(tree)
    return tree


def _tables_of(node: Any, hidden: frozenset[str]) -> Iterator[dict[str, Any]]:
    """The nodes that name tables. Names defined by WITH are `hidden` within their query."""
    if isinstance(node, list):
        for inner in node:
            yield from _tables_of(inner, hidden)
        return
    if not isinstance(node, dict):
        return
    hidden |= {entry["key"].lower() for entry in (node.get("cte_map") or {}).get("map", ())}
    if node.get("type") == "SHOW_REF" and node["query"] is None:
        raise UsageError("DuckDB cannot list the tables of a warehouse", "it sees only tables that a query names", SHOW_HINT)
    if node.get("type") == "BASE_TABLE" and (node["schema_name"] or node["table_name"].lower() not in hidden):
        yield node
    for inner in node.values():
        yield from _tables_of(inner, hidden)


def _named(node: Mapping[str, Any]) -> NamedTable:
    parts = tuple(part for part in (node["catalog_name"], node["schema_name"], node["table_name"]) if part)
    clause = node["at_clause"]
    if clause is None:
        return NamedTable(parts)
    version = literal_text(clause["expr"])
    if version is None:
        raise UsageError("AT needs a literal", "the version must be known before the query runs", "such as AT (VERSION => 3)")
    return NamedTable(parts, clause["unit"].upper(), version)


def _opened(named: NamedTable, open_table: OpenTable) -> Table | None:
    """The table; None for a name that DuckDB may resolve itself, such as a file or a table function."""
    if len(named.parts) > 2:
        raise UsageError(
            f"'{named.name}' has {len(named.parts)} parts", "a table is named db.table, or by a path in double quotes"
        )
    check_names(named.parts)
    try:
        return open_table(named.name)
    except (NotFound, UsageError):
        if named.version is not None or len(named.parts) == 2:
            raise
        return None
