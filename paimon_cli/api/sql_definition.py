"""SHOW, USE, CREATE, ALTER and DROP: what a catalog has, and changes of definitions, by the methods of `Catalog` and `Table`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from paimon_cli.api.sql_context import SqlContext
from paimon_cli.api.sql_result import SqlResult, answer, changed
from paimon_cli.api.sql_rows import rows_of
from paimon_cli.errors import CommitUnknown, NotFound, NotSupported, PaimonError, UsageError
from paimon_cli.options.option_text import counted
from paimon_cli.sql.changes import partition_columns, partition_value
from paimon_cli.sql.column_definitions import check_named_once
from paimon_cli.sql.statements import Words, is_name

if TYPE_CHECKING:
    from paimon_cli.api.definition import Alter
    from paimon_cli.catalog.alter_table import AlteredTable

_END = "the end of the statement"
_CLAUSES = {
    "--if-not-exists": "IF NOT EXISTS",
    "--primary-key": "PRIMARY KEY (...) NOT ENFORCED",
    "--partition-by": "PARTITIONED BY (...)",
    "--option": "WITH (...)",
}
"""What options of `create` are in SQL."""


def show(context: SqlContext, words: Words) -> SqlResult:
    """SHOW TABLES, DATABASES, COLUMNS, CREATE TABLE."""
    if words.accept("TABLES"):
        return _tables(context, words)
    if words.accept("DATABASES") or words.accept("SCHEMAS"):
        pattern = _pattern(words)
        names = [row.name for row in context.catalog._metastore.databases(None)]
        return answer({"database": [name for name in names if pattern(name)]})
    if words.accept("CREATE", "TABLE"):
        return _create_text(context, words)
    if words.accept("COLUMNS") or words.accept("FIELDS"):
        words.accept("FROM") or words.accept("IN")
        return described(context, words)
    hints = {"PARTITIONS": "partitions ls", "TBLPROPERTIES": "options ls"}
    hint = next((f"the command `{name}` lists them" for word, name in hints.items() if words.peeks(word)), "")
    raise NotSupported(f"SHOW {words.rest.text}", "SHOW has TABLES, DATABASES, COLUMNS and CREATE TABLE", hint)


def _tables(context: SqlContext, words: Words) -> SqlResult:
    metastore, database = context.catalog._metastore, context.database
    if words.accept("FROM") or words.accept("IN"):
        database = words.database_name()
    pattern = _pattern(words)
    if database is not None:
        metastore.database(database)
    databases = [row.name for row in metastore.databases(None)] if database is None else [database]
    found = [table.identifier for name in databases for table in metastore.tables(name, None)]
    found = [identifier for identifier in found if pattern(identifier.table)]
    return answer({"database": [one.database for one in found], "table": [one.table for one in found]})


def _pattern(words: Words) -> Callable[[str], bool]:
    """What `LIKE 'ord%'` at the end of a statement takes; everything without it."""
    if not words.accept("LIKE"):
        words.expect_end(_END)
        return lambda name: True
    text = _text(words, "a pattern in quotes")
    words.expect_end(_END)
    parts = {"%": ".*", "_": ".", "*": ".*"}
    expression = re.compile("".join(parts.get(sign, re.escape(sign)) for sign in text), re.IGNORECASE | re.DOTALL)
    return lambda name: expression.fullmatch(name) is not None


def _create_text(context: SqlContext, words: Words) -> SqlResult:
    from paimon_cli.catalog.ddl import create_table_text

    parts = words.path("the name of a table")
    words.expect_end(_END)
    table = context.table(parts)
    return answer({"statement": [create_table_text(table.name, table.context.schema)]}, is_text=True)


def described(context: SqlContext, words: Words) -> SqlResult:
    """DESCRIBE of a table or a query."""
    for word in ("EXTENDED", "FORMATTED"):
        if words.peeks(word):
            raise NotSupported(f"DESCRIBE {word}", "it shows the columns", "the command `describe` tells all about a table")
    for word, hint in (("HISTORY", "the command `snapshots ls`"), ("DETAIL", "the command `describe` tells all about a table")):
        if words.peeks(word) and len(words.tokens) > 2 and not words.peeks(word, "."):
            raise NotSupported(f"DESCRIBE {word}", "it shows the columns", hint)
    words.accept("TABLE")
    rest = words.rest
    return context.query(f"DESCRIBE {context.duckdb_text(rest)}", context.values_in(rest))


def use(context: SqlContext, words: Words) -> SqlResult:
    """Choose the database of tables that are named without one."""
    words.accept("DATABASE") or words.accept("SCHEMA")
    name = words.database_name()
    words.expect_end(_END)
    context.catalog._metastore.database(name)
    context.database = name
    return changed("used", name, None)


def create(context: SqlContext, words: Words) -> SqlResult:
    """CREATE TABLE, with the rows of a query after AS, and CREATE DATABASE."""
    whole = words.rest
    if words.accept("DATABASE") or words.accept("SCHEMA"):
        if_not_exists = words.accept("IF", "NOT", "EXISTS")
        name = words.database_name()
        words.expect_end(_END)
        done = context.catalog.create_database(name, if_not_exists=if_not_exists)
        return changed("created" if done else "existed", name, None)
    if words.peeks("OR", "REPLACE"):
        hint = "DROP TABLE, then CREATE TABLE; or INSERT OVERWRITE, which keeps the history"
        raise NotSupported("CREATE OR REPLACE", "a table is not replaced by another one", hint)
    if not words.accept("TABLE"):
        kind = words.rest.first(1).text.upper()
        raise NotSupported(f"CREATE {kind}", "a warehouse holds databases and tables", "parts of a query may stand in WITH")
    words.accept("IF", "NOT", "EXISTS")
    parts = words.path("the name of a table")
    head, query = _as_query(words, whole)
    return _created(context, parts, head, query)


def _as_query(words: Words, whole: Words) -> tuple[str, Words | None]:
    """The statement without AS and its query; None without one."""
    before = words.until(*(("AS", word) for word in ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "(")))
    head = whole.first(len(whole.tokens) - len(words.rest.tokens))
    if not words.accept("AS"):
        if before.peeks("LIKE"):
            raise NotSupported(
                "CREATE TABLE LIKE",
                "it is not read",
                "SHOW CREATE TABLE writes its statement; `tables clone` copies a table with its rows",
            )
        return f"CREATE {head.text}", None
    return f"CREATE {head.text}", words.rest


def _created(context: SqlContext, parts: tuple[str, ...], head: str, query: Words | None) -> SqlResult:
    with _in_words_of_sql():
        return _created_as(context, context.name_of(parts), head, query)


def _created_as(context: SqlContext, name: str, head: str, query: Words | None) -> SqlResult:
    from paimon_cli.catalog.ddl import parse_create_table

    what = "CREATE TABLE"
    if not {".", "/"} & set(name):
        raise UsageError(
            f"CREATE TABLE {name} names no database", "a new table needs one", f"CREATE TABLE db.{name}, or USE db before"
        )
    if query is None:
        is_new = context.catalog._create_defined(name, parse_create_table(head, what))
        return changed("created" if is_new else "existed", name, None)
    if parse_create_table(head, what, ()).if_not_exists and _exists(context, name):
        return changed("existed", name, None)
    result = context.query(context.duckdb_text(query), context.values_in(query))
    names = [field.name for field in result.fields]
    with rows_of(result, names) as rows:
        if not context.catalog._create_defined(name, parse_create_table(head, what, result.fields)):
            return changed("existed", name, None)
        try:
            summary = context.catalog.table(name).write(rows)
        except BaseException as error:
            _take_back(context, name, error)
            raise
    return changed("created", name, summary)


def _take_back(context: SqlContext, name: str, error: BaseException) -> None:
    """Drop the new table whose rows were not written. It stays if the commit may have happened, or others have written to it."""
    if not isinstance(error, CommitUnknown) and not context.catalog.table(name).snapshots():
        context.catalog.plan_drop_table(name, purge=True).run()
    elif isinstance(error, PaimonError):
        error.extend_why(f"table {name} was created, and stays")


@contextmanager
def _in_words_of_sql() -> Iterator[None]:
    """Give errors hints that name clauses of CREATE TABLE instead of options of `create`."""
    try:
        yield
    except PaimonError as error:
        hint = error.hint
        for option, clause in _CLAUSES.items():
            hint = re.sub(rf"{option}\b", clause, hint)
        error.set_hint(hint)
        raise


def _exists(context: SqlContext, name: str) -> bool:
    try:
        context.catalog.table(name)
    except NotFound:
        return False
    return True


def drop(context: SqlContext, words: Words) -> SqlResult:
    """DROP TABLE and DROP DATABASE, after a confirmation."""
    is_database = words.accept("DATABASE") or words.accept("SCHEMA")
    if not is_database and not words.accept("TABLE"):
        raise NotSupported(f"DROP {words.rest.first(1).text.upper()}", "a warehouse holds databases and tables")
    if_exists = words.accept("IF", "EXISTS")
    name = words.database_name() if is_database else context.name_of(words.path("the name of a table"))
    cascade = is_database and words.accept("CASCADE")
    if not cascade:
        words.accept("RESTRICT")
    purge = words.accept("PURGE")
    words.expect_end(_END)
    try:
        planned: Any = (
            context.catalog.plan_drop_database(name, cascade=cascade, purge=purge)
            if is_database
            else context.catalog.plan_drop_table(name, purge=purge)
        )
    except NotFound:
        if not if_exists:
            raise
        return changed("not there", name, None)
    if context.confirm is not None:
        context.confirm(_consequence(name, planned.plan, is_database))
    return changed("dropped", name, planned.run())


def _consequence(name: str, plan: Any, is_database: bool) -> str:
    if is_database:
        tables = f" with {counted(len(plan.table_names), 'table')}" if plan.table_names else ""
        trashed = ", its tables will be moved to the trash" if plan.table_names and not plan.for_good else ""
        return f"database {name}{tables} will be deleted{trashed}"
    end = "will be deleted for good" if plan.until is None else "will be moved to the trash"
    return f"table {name} with {counted(plan.snapshots, 'snapshot')} {end}"


def alter(context: SqlContext, words: Words) -> SqlResult:
    """ALTER TABLE: one change of the definition."""
    if not words.accept("TABLE"):
        raise NotSupported(f"ALTER {words.rest.first(1).text.upper()}", "only tables are altered")
    parts = words.path("the name of a table")
    name = context.name_of(parts)
    if words.accept("RENAME", "TO"):
        new = ".".join(words.path("the new name"))
        words.expect_end(_END)
        database, dot, _ = name.partition(".")
        if dot and "/" not in name and not {".", "/"} & set(new):
            new = f"{database}.{new}"  # it stays in its own database, not in that of USE
        context.catalog.rename_table(name, new)
        return changed("altered", new, None)
    table = context.catalog.table(name)
    table.check_commit()
    if words.accept("DROP", "IF", "EXISTS", "PARTITION") or words.accept("DROP", "PARTITION"):
        return _drop_partition(context, table, words)
    change = _alteration(table.alter, words)
    words.expect_end(_END)
    summary = change()
    return changed("altered" if summary.changed else "unchanged", table.name, summary)


def _drop_partition(context: SqlContext, table: Any, words: Words) -> SqlResult:
    values = {}
    for key, part in partition_columns(words):
        part.expect("=")
        values[key] = partition_value(part.rest, key, may_be_name=True)
    words.expect_end(_END)
    planned = table.plan_truncate(partition=[values])
    if planned.plan.files and context.confirm is not None:
        what = f"{counted(planned.plan.rows, 'stored record')} in {counted(planned.plan.partitions, 'partition')}"
        context.confirm(f"{what} of {table.name} will be deleted")
    return changed("partition dropped", table.name, planned.run())


def _alteration(alter: Alter, words: Words) -> Callable[[], AlteredTable]:
    """The change that is meant; it is made once nothing unknown is left of the statement."""
    if words.accept("SET", "TBLPROPERTIES") or words.peeks("SET", "("):
        words.accept("SET")
        return partial(alter.set, _pairs(words))
    if words.accept("UNSET", "TBLPROPERTIES") or words.accept("RESET"):
        if_exists, keys = words.accept("IF", "EXISTS"), []
        for part in words.in_brackets().parts():
            keys.append(".".join(part.path("an option in quotes")))
            part.expect_end("a comma")
        if if_exists:
            is_set = alter._table.context.schema.options
            return lambda: alter.unset(*(key for key in keys if key in is_set))
        return partial(alter.unset, *keys)
    if words.accept("ADD"):
        return _added_columns(alter, words)
    if words.accept("DROP"):
        words.accept("COLUMNS") or words.accept("COLUMN")
        inner = words.in_brackets() if words.peeks("(") else words.until()
        columns = []
        for part in inner.parts():
            columns.append(_column(part))
            part.expect_end("a comma")
        return partial(alter.drop_columns, *columns)
    if words.accept("RENAME"):
        words.accept("COLUMN")
        column = _column(words)
        words.expect("TO")
        return partial(alter.rename_column, column, words.name("the new name"))
    if words.accept("ALTER") or words.accept("MODIFY"):
        words.accept("COLUMN")
        return _changed_column(alter, words)
    what = f"ALTER TABLE ... {words.rest.text}"
    raise NotSupported(what, "ALTER TABLE has SET, UNSET, ADD, DROP, RENAME and ALTER COLUMN", "the command `alter` has them all")


def _pairs(words: Words) -> dict[str, str]:
    found = dict[str, str]()
    for part in words.in_brackets().parts():
        key = ".".join(part.path("an option in quotes"))
        check_named_once(key, found)
        part.expect("=")
        found[key] = _literal(part)
    words.expect_end(_END)
    return found


def _literal(words: Words) -> str:
    """The text or number that is left, without quotes. NULL is neither: it would be stored as a text."""
    sign = "-" if words.accept("-") else ""
    if len(words.rest.tokens) != 1 or words.peeks("NULL"):
        raise words.unexpected("a single text or number")
    return f"{sign}{words.rest.tokens[0].text}"


def _text(words: Words, meaning: str) -> str:
    """A text in quotes, which may be those of names."""
    ahead = words.rest.tokens
    return words.name(meaning) if ahead and is_name(ahead[0]) else words.path(meaning)[0]


def _column(words: Words) -> str:
    """The column that is named next, as the methods of `Table` take it."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in words.path("a column"))


def _added_columns(alter: Alter, words: Words) -> Callable[[], AlteredTable]:
    words.accept("COLUMNS") or words.accept("COLUMN")
    if words.peeks("IF"):
        raise NotSupported("ADD COLUMN IF NOT EXISTS", "an ALTER TABLE changes something, or fails", "leave it out")
    return partial(alter.add_columns, words.until().text)


def _changed_column(alter: Alter, words: Words) -> Callable[[], AlteredTable]:
    column = _column(words)
    if words.accept("SET", "NOT", "NULL"):
        return partial(alter.alter_column, column, nullable=False)
    if words.accept("DROP", "NOT", "NULL"):
        return partial(alter.alter_column, column, nullable=True)
    if words.accept("DROP", "DEFAULT") or words.accept("SET", "DEFAULT", "NULL"):
        return partial(alter.alter_column, column, drop_default=True)
    if words.accept("SET", "DEFAULT"):
        return partial(alter.alter_column, column, default=_literal(words.until()))
    if words.accept("COMMENT"):
        return partial(alter.alter_column, column, comment=_text(words, "a text in quotes"))
    if words.accept("FIRST"):
        return partial(alter.alter_column, column, first=True)
    if words.accept("AFTER"):
        return partial(alter.alter_column, column, after=words.name("a column"))
    words.accept("SET", "DATA")
    words.accept("TYPE")
    if words.is_at_end:
        raise UsageError("nothing to change", f"ALTER COLUMN {column} names no type", "ALTER COLUMN c TYPE BIGINT")
    return partial(alter.alter_column, column, words.until().text)
