"""The options of `erase`."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY
from typing import Annotated, Any

from paimon_cli.errors import UsageError
from paimon_cli.requests.conditions import Conditional
from paimon_cli.requests.fields import Option, PointInTime
from paimon_cli.requests.writing import WHERE


class EraseOptions(Conditional):
    """What becomes of the history, and of the proof."""

    where: Annotated[str | None, WHERE] = None
    _: KW_ONLY
    drop_history: Annotated[
        bool,
        Option("Expire all snapshots but the newest of each branch first, and changelogs; tags stay. It leaves less to rewrite."),
    ] = False
    certificate: Annotated[
        str | None,
        Option(
            "Write the certificate there as JSON, FILE.txt with the same as text, and FILE.secret, which only you can read.",
            metavar="FILE",
            library="Write the certificate there as JSON, beside it the same as text (`.txt`), and its secret (`.secret`)",
        ),
    ] = None
    older_than: Annotated[
        PointInTime,
        Option(
            "Files that no version names are deleted if they hold such rows and are older than this; younger ones may belong to "
            "a job that is writing, and nothing is erased. Use less than 1d only while no job writes.",
            metavar="AGE|TIME",
        ),
    ] = PointInTime("1d")


class EraseCommand(EraseOptions):
    """What the command takes."""

    keys: Annotated[
        str | None, Option("File with the keys to erase: CSV, JSON lines, Parquet, ORC or Arrow.", metavar="FILE")
    ] = None

    def check(self) -> None:
        super().check()
        if (self.where is None) == (self.keys is None):
            raise UsageError("name what to erase", "by either --where or --keys", "such as --where 'id = 7'")


class EraseCall(EraseOptions):
    """An erasure by a condition, or by keys: rows with the columns of the primary key, or a file with them."""

    keys: str | os.PathLike[str] | Sequence[Mapping[str, Any]] | Any = None

    def check(self) -> None:
        super().check()
        if (self.where is None) == (self.keys is None):
            raise UsageError("name what to erase", "by either --where or --keys", "such as --where 'id = 7'")
