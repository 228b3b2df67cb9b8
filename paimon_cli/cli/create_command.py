"""`create`: a new table from column definitions, schema JSON, DDL or the schema of a data file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.catalog_commands import SCHEMA_DETAILS
from paimon_cli.cli.command import Call, command
from paimon_cli.cli.input_options import SourceFormat
from paimon_cli.cli.parameters import AllowUnsafeCommit, TableName, value_of
from paimon_cli.cli.results import Item, OutputFormat, counted, say, warn

if TYPE_CHECKING:
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
    from paimon_cli.api.definition import Columns, create_table

    location = call.locate(table, allow_unsafe_commit)
    source = Columns(columns, schema, ddl, from_file, value_of(file_format), call.form)
    made = create_table(
        location,
        source,
        primary_key=primary_key,
        partition_by=partition_by,
        bucket=bucket,
        options=call.options,
        comment=comment,
        if_not_exists=if_not_exists,
        strict_options=call.strict_options,
    )
    for warning in made.warnings:
        warn(warning)
    if call.output is OutputFormat.TABLE:
        say(f"created {location.name}" if made.created else f"{location.name} already exists, nothing was changed")
        if made.inferred is not None and made.created:
            say(_columns_text(made.schema, made.inferred, from_file))
        return
    from paimon_cli.inspect.schema_report import schema_details

    call.show(Item("Schema", location.name, SCHEMA_DETAILS, schema_details(made.schema)))


def _columns_text(schema: TableSchema, inferred: InferredColumns, source: str | None) -> str:
    from paimon_cli.datatypes.field_types import type_to_sql

    width = max(len(field.name) for field in schema.fields)
    lines = [f"  {field.name:{width}}  {type_to_sql(field.type)}" for field in schema.fields]
    looked = "" if inferred.rows is None else f", inferred from {counted(inferred.rows, 'row')} (all)"
    return "\n".join([*lines, f"{counted(len(lines), 'column')} as in {source}{looked}"])
