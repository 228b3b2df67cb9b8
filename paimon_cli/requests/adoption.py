"""The options of `adopt`."""

from collections.abc import Sequence
from dataclasses import KW_ONLY
from typing import Annotated, Final, Literal

from paimon_cli.errors import UsageError
from paimon_cli.requests.fields import Names, Option, Request


class FilePlacement:
    """How the files of a source get into the table: as hard links, as copies, or as either before the source is deleted."""

    LINK: Final = "link"
    COPY: Final = "copy"
    MOVE: Final = "move"
    REWRITE: Final = "rewrite"
    """How the rows get into a table with a primary key; never asked for by name."""


class AdoptOptions(Request):
    """What becomes a table, and how."""

    source: Annotated[
        str,
        Option(
            "The directory of Parquet or ORC files, or of an Iceberg table (or its metadata file); or a Hive table: db.table in "
            "a Hive catalog, or thrift://HOST:9083/db.table.",
            metavar="DIR|HIVE_TABLE",
            is_argument=True,
        ),
    ]
    _: KW_ONLY
    table: Annotated[str, Option("The new table: db.table, a path or URL.", metavar="TABLE", flags=("--as",))]
    files: Annotated[
        Literal["link", "copy", "move"] | None,
        Option(
            "link: a second name for each file, on one local disk; copy; move: as these, then delete the files of the source. "
            "Default link where that is possible, else copy.",
            library="`link`: a second name for each file, on one local disk; `copy`; `move`: as these, and then the files of the "
            "source are deleted; default `link` where that is possible, else `copy`",
        ),
    ] = None
    partition_columns: Annotated[
        Sequence[str] | None,
        Option(
            "A column of partition directories, such as 'dt DATE' for dt=2026-01-01; repeatable. Default: STRING.",
            metavar="'NAME TYPE'",
            flags=("--partition-column",),
            library="Columns of partition directories, such as `dt DATE` for dt=2026-01-01; default STRING",
        ),
    ] = None
    primary_key: Annotated[
        Names,
        Option(
            "Write the rows into a table with this primary key, such as a,b; they are merged as by `write`, in the order of the "
            "files. --option bucket=4, merge-engine and sequence.field say how.",
            metavar="NAMES",
            library="The rows are written into a table with this primary key; they are merged as by `write`, in the order of the "
            "files. The options `bucket`, `merge-engine` and `sequence.field` of the catalog say how",
        ),
    ] = Names()

    def check(self) -> None:
        super().check()
        if self.primary_key and self.files not in (None, FilePlacement.MOVE):
            why = "a primary key needs rows that are sorted and merged, so the files are written again"
            raise UsageError(f"files={self.files} with a primary key", why, "leave files out, or move to delete the source's")
