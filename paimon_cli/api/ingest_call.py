"""What `Catalog.ingest` and `Table.ingest` are called with."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY
from typing import TYPE_CHECKING

from paimon_cli.errors import UsageError
from paimon_cli.requests.ingesting import IngestOptions, TableIngestOptions

if TYPE_CHECKING:
    from paimon_cli.api.ingested_table import IngestedTable


class IngestCall(IngestOptions):
    """Events to apply to the tables of a catalog."""

    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    _: KW_ONLY
    into: str | None = None
    on_commit: Callable[[IngestedTable], None] | None = None

    def check(self) -> None:
        super().check()
        if (self.into is None) == (self.database_from is None):
            raise UsageError("name where the events go", "by either --into or --database-from source", "such as --into shop")


class TableIngestCall(TableIngestOptions):
    """Events to apply to one table."""

    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
