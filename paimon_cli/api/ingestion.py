"""Change streams into the tables of a catalog: each event is applied once, whatever happens in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paimon_cli.api.arguments import checks_arguments, takes
from paimon_cli.api.ingest_call import IngestCall
from paimon_cli.api.opened_catalog import OpenedCatalog

if TYPE_CHECKING:
    from paimon_cli.api.ingested_table import IngestedTable


@checks_arguments
class Ingesting(OpenedCatalog):
    """The methods of `Catalog` that apply change streams."""

    @takes(IngestCall)
    def ingest(self, call: IngestCall) -> list[IngestedTable]:
        """Apply the events of change streams to tables: Debezium, Canal, Maxwell, or plain JSON.

        - `sources`: files, globs and URLs with one event a line, which may be compressed, or `-`; or `kafka://broker/topic`.
        - `into`: a database, whose tables are created as needed, or one table for all events.
        - `on_commit`: called with what was done so far to a table, after each of its commits.

        Tables follow the columns of their sources: columns are added, types widened. The snapshots of each table remember how far
        each source was read, so that a repeated call applies only what is new. A table that cannot go on stops alone, and the
        error of this call says so at the end: `PartialSuccess` if others went on.
        """
        return self._ingest(call, is_dry=False)

    @takes(IngestCall)
    def plan_ingest(self, call: IngestCall) -> list[IngestedTable]:
        """What `ingest` would do: tables, columns, types, and rows by kind; nothing is changed.

        `sources`, `into` and `on_commit` are as for `ingest`; nothing is committed.
        """
        return self._ingest(call, is_dry=True)

    def _ingest(self, call: IngestCall, *, is_dry: bool) -> list[IngestedTable]:
        from paimon_cli.api.ingest_rounds import run_ingest
        from paimon_cli.api.ingest_site import IngestSite

        site = IngestSite(self.runtime, self.url, self._options, self._table_options, self.branch, self._allow_unsafe_commit)
        return run_ingest(site, call, is_dry)
