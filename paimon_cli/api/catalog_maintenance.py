"""Maintenance of the tables of a catalog: compaction, expiry, orphans and a check, in one run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, replace
from functools import partial
from typing import TYPE_CHECKING

from paimon_cli.api.arguments import checks_arguments, takes
from paimon_cli.api.catalog_compaction import Compaction, as_served, look_seconds
from paimon_cli.api.maintenance_runs import MaintainingTables, planned_maintenance, run_maintenance
from paimon_cli.api.table_choice import ChosenTable, chosen_tables
from paimon_cli.api.trash import EmptiedTrash, empty_expired
from paimon_cli.catalog.table_location import TableLocation
from paimon_cli.errors import PaimonError
from paimon_cli.requests.upkeep import MaintainTables
from paimon_cli.storage.time_bounds import within

if TYPE_CHECKING:
    from paimon_cli.catalog.warehouse_policy import Policies
    from paimon_cli.history.table_context import TableContext
    from paimon_cli.jobs.service.maintenance import MaintainedTable
    from paimon_cli.jobs.service.served_table import ServedTable


class MaintainingCatalog(MaintainingTables):
    """`on_emptied`: called with what was deleted from the trash."""

    _: KW_ONLY
    on_emptied: Callable[[EmptiedTrash], None] | None = None


@checks_arguments
class Maintaining(Compaction):
    """The methods of `Catalog` for maintenance."""

    @takes(MaintainingCatalog)
    def maintain(self, chosen: MaintainingCatalog) -> list[MaintainedTable]:
        """Compact what is due, expire by the options of each table, delete orphans older than a day, and examine what is left.

        The failure of a table does not stop the others: at the end the error of a single table, or one error for all that
        failed, is raised. `on_maintained` is called with each result, also of a failed table. `shield`: holds signals back
        during a commit. `watcher`: receives one event for each table and one for the run. A table that another service holds
        is waited for as long as a lease lives without renewal; then its error is `Conflict`.

        With the tables of a database, or all of them, dropped tables are deleted from the trash of the warehouse when their time
        is over; `on_emptied` is called with the figures of these.
        """
        if chosen.is_listed:
            emptied = empty_expired(self._metastore, self.runtime.warn)
            if emptied.tables and chosen.on_emptied is not None:
                chosen.on_emptied(emptied)
        tables, damaged = self._to_maintain(chosen, commits=True)
        return run_maintenance(self.runtime, tables, chosen, look_seconds(chosen, self._metastore), damaged, chosen)

    @takes(MaintainingTables)
    def plan_maintenance(self, chosen: MaintainingTables) -> list[MaintainedTable]:
        """What `maintain` would do to each table; changes nothing. Failures are raised at the end, as by `maintain`.

        What a compaction adds to the history is not counted among what is to expire. `on_maintained`: called with each result,
        also of a failed table. `shield` and `watcher` are of no use here.
        """
        tables, damaged = self._to_maintain(chosen, commits=False)
        return planned_maintenance(self.runtime, tables, chosen, look_seconds(chosen, self._metastore), damaged, chosen)

    def _to_maintain(
        self, chosen: MaintainTables, *, commits: bool, policies: Policies | None = None
    ) -> tuple[list[ServedTable], list[PaimonError]]:
        """The chosen tables, and the errors of damaged entries of the catalog. `commits`: check each once for safe commits.
        `policies`: those of the catalog, if the caller reads them, too.
        """
        from paimon_cli.jobs.service.served_table import ServedTable

        policies, seconds = policies or self._policies(), look_seconds(chosen, self._metastore)
        damaged, checked, places = list[PaimonError](), set[TableLocation](), list[TableLocation]()

        def opened(location: TableLocation) -> TableContext:
            table = self._open(self._to_commit(location))
            if commits and location not in checked:
                table.check_commit()
                checked.add(location)
            table.check_call()
            return table.supported

        def served(table: ChosenTable) -> ServedTable:
            try:
                location = within(seconds, table.locate, table.name)
            except PaimonError as error:
                return ServedTable(table.name, partial(_raised, error))
            places.append(location)
            return replace(as_served(location, partial(opened, location), policies), name=table.name)

        found = [*chosen_tables(chosen, self._locate, self._metastore, self.branch, damaged.append)]
        tables = [served(table) for table in found]
        if chosen.is_whole and not damaged and len(places) == len(found):
            policies.know_all_tables(places)
        return tables, damaged


def _raised(error: PaimonError) -> TableContext:
    raise error
