"""The options of a table's definition: what a new table is, and changes to its columns."""

from collections.abc import Sequence
from dataclasses import KW_ONLY
from typing import TYPE_CHECKING, Annotated

from paimon_cli.errors import UsageError
from paimon_cli.requests.fields import Names, Option, Request, SourceFormat

if TYPE_CHECKING:
    import pyarrow as pa


class CreateOptions(Request):
    """A new table, whose columns come from exactly one of `columns`, `schema`, `ddl` and `from_file`."""

    _: KW_ONLY
    columns: Annotated[
        Sequence[str] | None,
        Option(
            "A column definition in SQL, such as 'id BIGINT NOT NULL'; repeatable.",
            metavar="'NAME TYPE'",
            flags=("-C", "--column"),
            library="Definitions of the columns in SQL, such as `id BIGINT NOT NULL`",
        ),
    ] = None
    schema: Annotated[
        "pa.Schema | str | None",
        Option(
            "A file with Paimon's schema JSON.",
            metavar="FILE",
            written=str,
            library="An Arrow schema, or a file with Paimon's schema JSON",
        ),
    ] = None
    ddl: Annotated[str | None, Option("A CREATE TABLE statement of Flink or Spark SQL.", metavar="FILE")] = None
    from_file: Annotated[
        str | None, Option("Take the columns from this parquet, orc, arrow, csv or json file.", metavar="FILE")
    ] = None
    format: Annotated[SourceFormat | None, Option("Format of --from-file; default by its extension.")] = None
    primary_key: Annotated[Names, Option("Columns of the primary key, such as a,b.", metavar="NAMES")] = Names()
    partition_by: Annotated[Names, Option("Partition columns, such as dt,hr.", metavar="NAMES")] = Names()
    bucket: Annotated[int | None, Option("Number of buckets in each partition; -1 dynamic, -2 postponed.", metavar="N")] = None
    comment: Annotated[str | None, Option("Comment of the table.")] = None
    if_not_exists: Annotated[bool, Option("Do nothing if the table already exists.")] = False


class ColumnPlace(Request):
    """The place of a column, and its comment."""

    _: KW_ONLY
    first: Annotated[bool, Option("Make it the first column.")] = False
    after: Annotated[str | None, Option("Put it after this column.", metavar="COLUMN")] = None
    comment: Annotated[str | None, Option("Comment of the column; '' removes it.")] = None

    def check(self) -> None:
        if self.first and self.after is not None:
            raise UsageError("--first contradicts --after")


class ColumnOptions(ColumnPlace):
    """A change to a column. What is None stays as it is."""

    _: KW_ONLY
    nullable: Annotated[bool | None, Option("Whether null is allowed.", flags=("--nullable/--not-null",))] = None
    default: Annotated[str | None, Option("Value that writers store for null or a missing column.", metavar="VALUE")] = None
    drop_default: Annotated[bool, Option("Remove the default.")] = False

    def check(self) -> None:
        super().check()
        if self.default is not None and self.drop_default:
            raise UsageError("--default contradicts --drop-default")
