"""CREATE TABLE in the syntax of Flink SQL, Spark SQL or Paimon's documentation: it is parsed, and written for a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from paimon_cli.catalog.option_values import is_secret
from paimon_cli.catalog.table_definition import TableDefinition
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.sql.column_definitions import SqlColumn, SqlTokens, TokenKind, check_named_once, read_column

OPTION_CLAUSES = ("WITH", "TBLPROPERTIES", "OPTIONS")


def parse_create_table(sql: str, what: str, of_query: Sequence[DataField] | None = None) -> TableDefinition:
    """The table that the statement defines; the name in it is ignored. `what`: the source of the text, for messages.

    `of_query`: the columns of CREATE TABLE AS, whose statement is given without AS and the query.

    Raises `UsageError` with line and column for other statements, `NotSupported` for computed columns, watermarks and
    CREATE TABLE AS.
    """
    tokens = SqlTokens(sql, what)
    tokens.expect("CREATE")
    tokens.expect("TABLE")
    if_not_exists = tokens.accept("IF", "NOT", "EXISTS")
    tokens.name("a table name")
    while tokens.accept("."):
        tokens.name("a table name")
    if of_query is not None:
        if tokens.peek.is_sign("("):
            raise NotSupported(
                "columns in CREATE TABLE AS", "the query says which they are", "leave them out, or cast in the query"
            )
        definition = TableDefinition(tuple(of_query), if_not_exists=if_not_exists)
        return _read_clauses(tokens, definition)
    columns, primary_keys = _read_columns(tokens)
    declared = definition_of(columns, what)
    if primary_keys and declared.primary_keys:
        raise UsageError(f"two primary keys in {what}", "one after a column, one as a constraint")
    definition = replace(declared, primary_keys=primary_keys or declared.primary_keys, if_not_exists=if_not_exists)
    return _read_clauses(tokens, definition)


def definition_of(columns: list[SqlColumn], what: str) -> TableDefinition:
    """A definition with the columns of `-C` options or of a statement; a column declared PRIMARY KEY becomes the primary key."""
    keys = tuple(column.field.name for column in columns if column.is_key)
    if len(keys) > 1:
        raise UsageError(
            f"two columns of {what} are declared PRIMARY KEY",
            hint="a key of several columns is PRIMARY KEY (a, b) or --primary-key a,b",
        )
    return TableDefinition(
        fields=tuple(column.field for column in columns),
        primary_keys=keys,
        declared_null=frozenset(column.field.name for column in columns if column.declared_null),
    )


def _read_columns(tokens: SqlTokens) -> tuple[list[SqlColumn], tuple[str, ...]]:
    columns: list[SqlColumn] = []
    primary_keys: tuple[str, ...] = ()
    tokens.expect("(")
    while True:
        if tokens.accept("CONSTRAINT"):
            tokens.name("a constraint name")
        if tokens.accept("PRIMARY", "KEY"):
            if primary_keys:
                raise tokens.unexpected("one PRIMARY KEY only")
            primary_keys = tokens.names_in_parentheses("a key column")
            tokens.accept("NOT", "ENFORCED")
        elif tokens.accept("WATERMARK", "FOR"):
            raise NotSupported("WATERMARK in CREATE TABLE", "a table stores no watermark rule", "leave out the clause")
        else:
            columns.append(_read_stored_column(tokens))
        if not tokens.accept(","):
            break
    tokens.expect(")")
    return columns, primary_keys


def _read_stored_column(tokens: SqlTokens) -> SqlColumn:
    column = read_column(tokens)
    if tokens.peek.is_word("AS", "METADATA", "GENERATED"):
        raise NotSupported(
            f"column '{column.field.name}' is computed", "a table can only store plain columns", "leave out the column"
        )
    return column


def _read_clauses(tokens: SqlTokens, definition: TableDefinition) -> TableDefinition:
    seen = set[str]()
    while tokens.peek.kind != TokenKind.END:
        tokens.expect_once(seen, "COMMENT", "PARTITIONED")
        if tokens.accept("COMMENT"):
            definition = replace(definition, comment=tokens.string("a comment"))
        elif tokens.accept("PARTITIONED", "BY"):
            definition = replace(definition, partition_keys=tokens.names_in_parentheses("a partition column"))
        elif tokens.accept("USING"):
            _expect_paimon(tokens)
        elif any(tokens.accept(clause) for clause in OPTION_CLAUSES):
            definition = replace(definition, options=_read_options(tokens, definition.options))
        elif tokens.peek.is_word("AS", "SELECT"):
            raise NotSupported("CREATE TABLE AS", "`create` writes no rows", "create the table, then use paimon-cli write")
        elif not tokens.accept(";"):
            raise tokens.unexpected("COMMENT, PARTITIONED BY, WITH (...), TBLPROPERTIES (...) or the end")
    return definition


def _expect_paimon(tokens: SqlTokens) -> None:
    provider = tokens.name("a provider")
    if provider.lower() != "paimon":
        raise UsageError(f"USING {provider} is not a Paimon table", hint="write USING paimon, or leave out the clause")


def _read_options(tokens: SqlTokens, before: Mapping[str, str]) -> dict[str, str]:
    """The options of a clause, and those of clauses before."""
    options = dict(before)
    tokens.expect("(")
    while True:
        key = _read_option_key(tokens)
        tokens.expect("=")
        check_named_once(key, options)
        options[key] = _read_option_value(tokens)
        if not tokens.accept(","):
            break
    tokens.expect(")")
    return options


def _read_option_key(tokens: SqlTokens) -> str:
    """Read an option key: `'bucket-key'` or, as Spark allows, words joined by dots."""
    if tokens.peek.kind == TokenKind.STRING:
        return tokens.string("an option")
    key = tokens.name("an option in single quotes")
    while tokens.accept("."):
        key += "." + tokens.name("an option")
    return key


def _read_option_value(tokens: SqlTokens) -> str:
    if tokens.peek.kind in (TokenKind.NUMBER, TokenKind.WORD):
        return tokens.take().text
    return tokens.string("a value")


def create_table_text(name: str, schema: TableSchema) -> str:
    """A CREATE TABLE statement for a table like this; values of options that are secrets are left out."""
    lines = [f"  {_column_text(field)}" for field in schema.fields]
    if schema.primary_keys:
        lines.append(f"  PRIMARY KEY ({', '.join(map(_tick, schema.primary_keys))}) NOT ENFORCED")
    text = f"CREATE TABLE {'.'.join(map(_tick, name.split('.')))} (\n" + ",\n".join(lines) + "\n)"
    if schema.comment:
        text += f" COMMENT {_string(schema.comment)}"
    if schema.partition_keys:
        text += f"\nPARTITIONED BY ({', '.join(map(_tick, schema.partition_keys))})"
    options = {key: value for key, value in sorted(schema.options.items()) if not is_secret(key)}
    if options:
        pairs = ",\n".join(f"  {_string(key)} = {_string(value)}" for key, value in options.items())
        text += f"\nWITH (\n{pairs}\n)"
    return f"{text};"


def _column_text(field: DataField) -> str:
    default = "" if field.default_value is None else f" DEFAULT {_string(field.default_value)}"
    comment = "" if not field.description else f" COMMENT {_string(field.description)}"
    return f"{_tick(field.name)} {type_to_sql(field.type)}{default}{comment}"


def _tick(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _string(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
