"""A change stream into one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paimon_cli.api.arguments import checks_arguments, takes
from paimon_cli.api.ingest_call import IngestCall, TableIngestCall
from paimon_cli.api.writing import Writing

if TYPE_CHECKING:
    from paimon_cli.api.ingested_table import IngestedTable


@checks_arguments
class TakesEvents(Writing):
    """The method of `Table` that applies a change stream."""

    @takes(TableIngestCall)
    def ingest(self, call: TableIngestCall) -> IngestedTable:
        """Apply the events of a change stream to this table, whichever tables they name.

        `sources`: files, globs and URLs with one event a line, which may be compressed, or `-`. See `Catalog.ingest`, which
        creates tables and applies streams of many.
        """
        from paimon_cli.api.ingest_rounds import run_ingest
        from paimon_cli.api.ingest_site import IngestSite

        site = IngestSite(self.runtime, options=self.context.place.store_options, table=self)
        found = run_ingest(site, IngestCall.of(call, into=self.name), is_dry=False)
        self.refresh()
        return found[0] if found else nothing_new(self.name)


def nothing_new(name: str) -> IngestedTable:
    """The result for a stream without events."""
    from paimon_cli.api.ingested_table import IngestedTable

    return IngestedTable(name)
