"""`create`: a new table from column definitions, schema JSON, DDL or the schema of a data file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.catalog_commands import SCHEMA_DETAILS
from paimon_cli.cli.command import Call, command
from paimon_cli.cli.input_options import SourceFormat
from paimon_cli.cli.parameters import AllowUnsafeCommit, TableName
from paimon_cli.cli.results import Item, OutputFormat, counted, say, warn
from paimon_cli.errors import NotFound, UsageError

if TYPE_CHECKING:
    from paimon_cli.catalog.table_definition import TableDefinition
    from paimon_cli.ingest.inference import InferredColumns
    from paimon_cli.metadata.table_schema import TableSchema


def register(app: typer.Typer, panel: str) -> None:
    command(app, "create", reads_files=True, keeps_options=True, rich_help_panel=panel)(create)


def create(
    call: Call,
    table: TableName,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "-C", "--column", metavar="'NAME TYPE'", help="A column definition in SQL, such as 'id BIGINT NOT NULL'; repeatable."
        ),
    ] = None,
    schema: Annotated[str | None, typer.Option("--schema", metavar="FILE", help="A file with Paimon's schema JSON.")] = None,
    ddl: Annotated[
        str | None, typer.Option("--ddl", metavar="FILE", help="A CREATE TABLE statement of Flink or Spark SQL.")
    ] = None,
    from_file: Annotated[
        str | None,
        typer.Option("--from-file", metavar="FILE", help="A parquet, orc, arrow, csv or json file whose columns the table gets."),
    ] = None,
    file_format: Annotated[
        SourceFormat | None, typer.Option("--format", help="Format of --from-file; default by its extension.")
    ] = None,
    primary_key: Annotated[
        str | None, typer.Option("--primary-key", metavar="NAMES", help="Columns of the primary key, such as a,b.")
    ] = None,
    partition_by: Annotated[
        str | None, typer.Option("--partition-by", metavar="NAMES", help="Partition columns, such as dt,hr.")
    ] = None,
    bucket: Annotated[
        int | None, typer.Option("--bucket", metavar="N", help="Number of buckets in each partition; -1 dynamic, -2 postponed.")
    ] = None,
    comment: Annotated[str | None, typer.Option("--comment", help="Comment of the table.")] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Do nothing if the table already exists.")] = False,
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> None:
    """Create a table.

    paimon-cli create ./wh/shop.db/orders -C 'id BIGINT NOT NULL' -C 'name STRING' --primary-key id --bucket 4
    """
    from paimon_cli.catalog.create_table import create_table
    from paimon_cli.catalog.option_values import refuse_unknown

    inferred = _inferred(call, from_file, file_format)
    definition = _with_clauses(_definition(columns, schema, ddl, from_file, inferred), primary_key, partition_by, comment)
    options = {**definition.options, **call.options}
    if bucket is not None:
        if call.options.get("bucket", str(bucket)).strip() != str(bucket):
            raise UsageError(f"--bucket {bucket} and --option bucket={call.options['bucket']} contradict each other")
        options["bucket"] = str(bucket)
    definition = replace(definition, options=options, if_not_exists=definition.if_not_exists or if_not_exists)
    if call.strict_options:
        refuse_unknown(options)
    location = call.locate(table, allow_unsafe_commit)
    made = create_table(location, definition)
    for warning in (*made.warnings, *(inferred.warnings if inferred is not None and made.created else ())):
        warn(warning)
    if call.output is OutputFormat.TABLE:
        say(f"created {location.name}" if made.created else f"{location.name} already exists, nothing was changed")
        if inferred is not None and made.created:
            say(_columns_text(made.schema, inferred, from_file))
        return
    from paimon_cli.inspect.schema_report import schema_details

    call.show(Item("Schema", location.name, SCHEMA_DETAILS, schema_details(made.schema)))


def _inferred(call: Call, from_file: str | None, file_format: SourceFormat | None) -> InferredColumns | None:
    """The columns of `--from-file`, read with the input options of the call."""
    if from_file is None:
        if call.form != type(call.form)() or file_format is not None:
            raise UsageError("options for input files without --from-file", "there is no file to read", "pass them to `write`")
        return None
    from paimon_cli.ingest.inference import columns_of_file

    return columns_of_file(from_file, file_format.value if file_format else None, call.form, call.catalog_options)


def _columns_text(schema: TableSchema, inferred: InferredColumns, source: str | None) -> str:
    from paimon_cli.datatypes.field_types import type_to_sql

    width = max(len(field.name) for field in schema.fields)
    lines = [f"  {field.name:{width}}  {type_to_sql(field.type)}" for field in schema.fields]
    looked = "" if inferred.rows is None else f", inferred from {counted(inferred.rows, 'row')} (all)"
    return "\n".join([*lines, f"{counted(len(lines), 'column')} as in {source}{looked}"])


def _definition(
    columns: Sequence[str] | None,
    schema: str | None,
    ddl: str | None,
    from_file: str | None,
    inferred: InferredColumns | None,
) -> TableDefinition:
    """The table definition, from exactly one of the four sources of columns."""
    given = [flag for flag, value in (("-C", columns), ("--schema", schema), ("--ddl", ddl), ("--from-file", from_file)) if value]
    if len(given) != 1:
        why = f"{' and '.join(given)} were given" if given else "the table has no columns"
        raise UsageError(
            "the columns must come from a single source", why, "use -C 'id BIGINT NOT NULL', --schema, --ddl or --from-file"
        )
    if schema:
        from paimon_cli.catalog.table_definition import parse_schema_document

        return parse_schema_document(_text(schema), schema)
    if ddl:
        from paimon_cli.catalog.ddl import parse_create_table

        return parse_create_table(_text(ddl), ddl)
    if inferred is not None:
        from paimon_cli.catalog.table_definition import TableDefinition

        return TableDefinition(inferred.fields)
    from paimon_cli.catalog.ddl import definition_of
    from paimon_cli.sql.column_definitions import parse_column

    return definition_of([parse_column(column) for column in columns or ()], "the columns")


def _with_clauses(
    definition: TableDefinition, primary_key: str | None, partition_by: str | None, comment: str | None
) -> TableDefinition:
    """The definition with the command's own options taking precedence over those of the source."""
    from paimon_cli.catalog.table_definition import split_names

    if primary_key is not None:
        definition = replace(definition, primary_keys=split_names(primary_key))
    if partition_by is not None:
        definition = replace(definition, partition_keys=split_names(partition_by))
    return definition if comment is None else replace(definition, comment=comment)


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read()
    except FileNotFoundError as error:
        raise NotFound(f"no file {path}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}", str(error)) from error
