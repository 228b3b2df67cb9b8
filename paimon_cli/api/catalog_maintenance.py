"""Maintenance of the tables of a catalog: compaction, expiry, orphans and a check, in one run."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from paimon_cli.api.arguments import checks_arguments, takes
from paimon_cli.api.catalog_compaction import Compaction, look_seconds
from paimon_cli.api.maintenance_runs import MaintainingTables, planned_maintenance, run_maintenance
from paimon_cli.api.table_choice import ChosenTable, chosen_tables
from paimon_cli.errors import PaimonError
from paimon_cli.requests.upkeep import MaintainTables

if TYPE_CHECKING:
    from paimon_cli.history.table_context import TableContext
    from paimon_cli.jobs.service.compaction_service import ServedTable
    from paimon_cli.jobs.service.maintenance import MaintainedTable


@checks_arguments
class Maintaining(Compaction):
    """The methods of `Catalog` for maintenance."""

    @takes(MaintainingTables)
    def maintain(self, chosen: MaintainingTables) -> list[MaintainedTable]:
        """Compact what is due, expire by the options of each table, delete orphans older than a day, and examine what is left.

        The failure of a table does not stop the others: at the end the error of a single table, or one error for all that
        failed, is raised. `on_maintained` is called with each result, also of a failed table. `shield`: holds signals back
        during a commit. `watcher`: receives one event for each table and one for the run. A table that another service holds
        is waited for as long as a lease lives without renewal; then its error is `Conflict`.
        """
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

    def _to_maintain(self, chosen: MaintainTables, *, commits: bool) -> tuple[list[ServedTable], list[PaimonError]]:
        """The chosen tables, and the errors of damaged entries of the catalog. `commits`: check each once for safe commits."""
        from paimon_cli.jobs.service.compaction_service import ServedTable

        damaged, checked = list[PaimonError](), set[str]()

        def opened(chosen: ChosenTable) -> TableContext:
            table = self._open(self._to_commit(chosen.locate()))
            if commits and chosen.name not in checked:
                table.check_commit()
                checked.add(chosen.name)
            table.check_call()
            return table.supported

        found = chosen_tables(chosen, self._locate, self._metastore, self.branch, damaged.append)
        return [ServedTable(table.name, partial(opened, table)) for table in found], damaged
