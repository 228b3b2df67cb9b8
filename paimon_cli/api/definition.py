"""The definition of a table: its columns, keys and options when it is created, and later changes to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any

from paimon_cli.api.arguments import checks_arguments, option_texts, takes
from paimon_cli.api.opened_table import OpenedTable
from paimon_cli.errors import NotFound, UsageError
from paimon_cli.requests.definition import ColumnOptions, ColumnPlace, CreateOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from paimon_cli.catalog.alter_table import AlteredTable
    from paimon_cli.catalog.column_changes import AddColumn, ColumnPosition, SchemaChange
    from paimon_cli.catalog.table_definition import TableDefinition
    from paimon_cli.catalog.table_location import TableLocation
    from paimon_cli.ingest.inference import InferredColumns
    from paimon_cli.ingest.text_form import TextForm
    from paimon_cli.metadata.table_schema import TableSchema


@dataclass(frozen=True)
class Created:
    """The result of `create`. `created` is False if the table already existed, with `if_not_exists`.

    `inferred`: the columns of `from_file`.
    """

    schema: TableSchema
    created: bool
    warnings: tuple[str, ...] = ()
    inferred: InferredColumns | None = None


class NewTable(CreateOptions):
    """A new table, with what only the library is given: the form of `from_file`, and options to be stored."""

    _: KW_ONLY
    form: TextForm | None = None
    options: Mapping[str, Any] | None = None
    strict_options: bool = False


def create_table(location: TableLocation, asked: NewTable) -> Created:
    """Create a table. Keys, options and comment given here override the source's."""
    from paimon_cli.catalog.option_values import refuse_unknown

    given, bucket = option_texts(asked.options), asked.bucket
    inferred = _inferred(asked, location.storage_options)
    definition = _definition(asked, inferred)
    merged = {**definition.options, **given}
    if bucket is not None:
        if given.get("bucket", str(bucket)).strip() != str(bucket):
            raise UsageError(f"--bucket {bucket} contradicts --option bucket={given['bucket']}")
        merged["bucket"] = str(bucket)
    definition = replace(
        definition,
        primary_keys=definition.primary_keys if asked.primary_key is None else asked.primary_key,
        partition_keys=definition.partition_keys if asked.partition_by is None else asked.partition_by,
        comment=definition.comment if asked.comment is None else asked.comment,
        options=merged,
        if_not_exists=definition.if_not_exists or asked.if_not_exists,
    )
    if asked.strict_options:
        refuse_unknown(merged)
    return create_defined(location, definition, inferred)


def create_defined(location: TableLocation, definition: TableDefinition, inferred: InferredColumns | None = None) -> Created:
    """Create the table of a definition. `inferred`: where its columns come from a file."""
    from paimon_cli.catalog import create_table as creation

    result = creation.create_table(location, definition)
    warnings = inferred.warnings if inferred is not None and result.created else ()
    return Created(result.schema, result.created, (*result.warnings, *warnings), inferred)


def _arrow_schema(schema: Any) -> pa.Schema | str | None:
    """The schema, if it is one that Arrow accepts, that of a table or frame in memory, or the path of a file.

    Raises `UsageError` for anything else.
    """
    if schema is None or isinstance(schema, str):
        return schema
    import pyarrow as pa

    if hasattr(schema, "__dataframe__") and type(schema).__module__.startswith("pandas."):
        return pa.Schema.from_pandas(schema, preserve_index=False)
    if type(schema).__module__.startswith("polars.") and hasattr(schema, "head"):
        few = schema.head(0)
        return pa.table(few.collect() if hasattr(few, "collect") else few).schema
    if isinstance(own := getattr(schema, "schema", None), pa.Schema):  # an Arrow table, batch or dataset
        return own
    if hasattr(schema, "__arrow_c_schema__"):
        return pa.schema(schema)
    raise UsageError(
        f"--schema of type {type(schema).__name__}",
        "it must be a pyarrow.Schema, data that has one, or the path of a file with Paimon's schema",
        "frame.limit(0).toArrow().schema for Spark",
    )


def _inferred(source: NewTable, storage_options: Mapping[str, str]) -> InferredColumns | None:
    """The columns of `from_file`; None without one. Raises `UsageError` for file options without a file."""
    from paimon_cli.ingest.text_form import PLAIN, given_form

    form = given_form(source.form)
    if source.from_file is None:
        if form != PLAIN or source.format is not None:
            raise UsageError("options for input files without --from-file", "there is no file to read", "pass them to `write`")
        return None
    from paimon_cli.ingest.inference import columns_of_file

    return columns_of_file(source.from_file, source.format, form, storage_options)


def _definition(source: NewTable, inferred: InferredColumns | None) -> TableDefinition:
    """The definition from the source of columns. Raises `UsageError` unless exactly one is given."""
    schema = _arrow_schema(source.schema)
    flags = {"-C": source.columns, "--schema": schema, "--ddl": source.ddl, "--from-file": source.from_file}
    given = [flag for flag, value in flags.items() if value]
    if len(given) != 1:
        hint = "use one of -C 'id BIGINT NOT NULL', --schema, --ddl or --from-file"
        if not given:
            raise UsageError("the table has no columns", "none are declared, and no file or schema names them", hint)
        raise UsageError("the columns must come from a single source", f"{' and '.join(given)} were given", hint)
    if isinstance(schema, str):
        from paimon_cli.catalog.table_definition import parse_schema_document

        return parse_schema_document(_text(schema), schema)
    if schema is not None:
        return _of_arrow(schema)
    if source.ddl:
        from paimon_cli.catalog.ddl import parse_create_table

        return parse_create_table(_text(source.ddl), source.ddl)
    if inferred is not None:
        from paimon_cli.catalog.table_definition import TableDefinition

        return TableDefinition(inferred.fields)
    from paimon_cli.catalog.ddl import definition_of
    from paimon_cli.sql.column_definitions import parse_column

    return definition_of([parse_column(column) for column in source.columns or ()], "the columns")


def _of_arrow(schema: pa.Schema) -> TableDefinition:
    """Columns with the narrowest Paimon types that can store the values of an Arrow schema."""
    from paimon_cli.catalog.table_definition import TableDefinition
    from paimon_cli.datatypes.arrow_types import type_from_arrow
    from paimon_cli.datatypes.data_type import DataField

    return TableDefinition(tuple(DataField(0, field.name, type_from_arrow(field.type, field.nullable)) for field in schema))


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read()
    except FileNotFoundError as error:
        raise NotFound(f"no file {path}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}", getattr(error, "strerror", None) or str(error)) from error


class AddedColumn(ColumnPlace):
    """A new column."""

    column: str


class ChangedColumn(ColumnOptions):
    """A change to a column."""

    column: str
    type: str | None = None


@checks_arguments
class Alter:
    """Changes to the options and columns of a table. Data files are not rewritten; they are read with the new schema.

    Columns are named as in SQL: `a.b` is a field of a nested column, `a.element` the elements of a list, `a.value` the
    values of a map. Each call creates one new schema; `changed` of the result is False if there was nothing to change.


    >>> table = example_table()
    >>> table.alter.add_column("note STRING", after="id").schema.field_names
    ('id', 'note', 'name', 'price')
    >>> table.alter.set({"snapshot.num-retained.max": "20"}).schema.id
    2
    >>> table.options["snapshot.num-retained.max"]
    '20'
    """

    def __init__(self, table: OpenedTable) -> None:
        self._table = table

    def set(self, options: Mapping[str, Any], *, strict_options: bool = False) -> AlteredTable:
        """Set options. `strict_options`: raise `UsageError` for options unknown to Paimon."""
        from paimon_cli.catalog.column_changes import SetOption
        from paimon_cli.catalog.option_values import refuse_unknown

        if strict_options:
            refuse_unknown(options)
        return self._change([SetOption(key, value) for key, value in option_texts(options).items()])

    def unset(self, *keys: str) -> AlteredTable:
        """Remove options, so that their defaults apply again."""
        from paimon_cli.catalog.column_changes import UnsetOption

        return self._change([UnsetOption(key) for key in keys])

    def comment(self, text: str | None) -> AlteredTable:
        """Set the comment of the table; an empty one, or None, removes it."""
        from paimon_cli.catalog.column_changes import SetComment

        return self._change([SetComment(text or None)])

    @takes(AddedColumn)
    def add_column(self, added: AddedColumn) -> AlteredTable:
        """Add a `column`, such as `price DECIMAL(10, 2) DEFAULT 0`; it is null in existing rows."""
        return self._change([_addition(added)])

    def add_columns(self, columns: str) -> AlteredTable:
        """Add several columns in one new schema, such as `a INT FIRST, tags MAP<STRING, INT> AFTER a`; see `add_column`."""
        from paimon_cli.sql.column_definitions import split_placed_columns

        placed = split_placed_columns(columns)
        return self._change([_addition(AddedColumn(each.declared, first=each.first, after=each.after)) for each in placed])

    def drop_column(self, column: str) -> AlteredTable:
        """Drop a column. Adding a column with the same name later does not restore its values."""
        return self.drop_columns(column)

    def drop_columns(self, *columns: str) -> AlteredTable:
        """Drop several columns in one new schema; see `drop_column`."""
        from paimon_cli.catalog.column_changes import DropColumn
        from paimon_cli.sql.column_definitions import parse_path

        return self._change([DropColumn(parse_path(column)) for column in columns])

    def rename_column(self, column: str, name: str) -> AlteredTable:
        """Rename a column, including in options that name it."""
        from paimon_cli.catalog.column_changes import RenameColumn
        from paimon_cli.sql.column_definitions import parse_path

        return self._change([RenameColumn(parse_path(column), name)])

    @takes(ChangedColumn)
    def alter_column(self, change: ChangedColumn) -> AlteredTable:
        """Change the type, nullability, comment, default or position of a `column`; values in old files are cast on read.

        `type` is in SQL: `BIGINT`, `INT NOT NULL DEFAULT 5`.
        """
        from paimon_cli.catalog.column_changes import AlterColumn
        from paimon_cli.sql.column_definitions import parse_declaration, parse_path

        path = parse_path(change.column)
        nullable, comment, default = change.nullable, change.comment, change.default
        declared = None if change.type is None else parse_declaration(change.type, path[-1])
        if declared is not None:
            nullable = declared.nullable if nullable is None else nullable
            comment = declared.field.description if comment is None else comment
            default = declared.field.default_value if default is None else default
        changed = AlterColumn(
            path, declared.field.type if declared else None, nullable, comment, default, change.drop_default, _position(change)
        )
        if changed == AlterColumn(path):
            raise UsageError(
                "nothing to change",
                "neither a type nor an option is given",
                f"paimon-cli alter {self._table.context.layout.argument} alter-column --help",
            )
        return self._change([changed])

    def _change(self, changes: Sequence[SchemaChange]) -> AlteredTable:
        from paimon_cli.catalog.alter_table import alter_table

        self._table.check_commit()
        altered = alter_table(self._table.context, changes)
        for warning in altered.warnings:
            self._table.runtime.warn(warning)
        self._table.refresh()
        return altered


def _addition(added: AddedColumn) -> AddColumn:
    from paimon_cli.catalog.column_changes import AddColumn
    from paimon_cli.sql.column_definitions import parse_nested_column

    path, declared = parse_nested_column(added.column)
    if declared.is_key:
        raise UsageError(
            f"new column '{declared.field.name}' cannot be a primary key", "the primary key of a table cannot be changed"
        )
    field = declared.field
    text = field.description if added.comment is None else added.comment or None
    return AddColumn(path, field.type, text, field.default_value, _position(added))


def _position(place: ColumnPlace) -> ColumnPosition | None:
    from paimon_cli.catalog.column_changes import ColumnPosition

    return ColumnPosition(place.after) if place.first or place.after is not None else None
