"""Whether a table is sound, its repair, and what readers that know less of it would see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from paimon_cli.api.maintenance import Planned
from paimon_cli.api.opened_table import OpenedTable, check_choice
from paimon_cli.errors import UsageError
from paimon_cli.options.option_catalog import SCAN

if TYPE_CHECKING:
    from paimon_cli.history.table_context import TableContext
    from paimon_cli.invariants.foreign_reads import ForeignReadReport
    from paimon_cli.invariants.repair_plan import RepairPlan
    from paimon_cli.invariants.violation import Invariant
    from paimon_cli.jobs.iceberg_export import IcebergExport
    from paimon_cli.jobs.metadata_jobs import RepairSummary
    from paimon_cli.jobs.verify_job import VerifyReport
    from paimon_cli.metadata.snapshot import Snapshot


class Integrity(OpenedTable):
    """The methods of `Table` that check and repair it, and that serve readers of other formats."""

    def export_iceberg(self, output_path: str | None = None, *, snapshot: int | None = None) -> IcebergExport:
        """Write Iceberg metadata of a snapshot over the table's own files, below `output_path` or the table (`export iceberg`).

        It is valid as long as the snapshot is kept. `Refused` where Iceberg's readers would see wrong rows.
        """
        from paimon_cli.jobs.iceberg_export import export_iceberg
        from paimon_cli.storage.storage_for_url import storage_for_url

        opened = self.catalog_table
        place = (opened.storage, opened.layout.root)
        if output_path is not None:
            place = storage_for_url(output_path, opened.store_options)
        return export_iceberg(*self._as_scanned(snapshot), *place)

    def foreign_reads(self, *, snapshot: int | None = None, argument: str | None = None) -> ForeignReadReport:
        """Whether a reader that knows Parquet alone, and merges nothing, is right about a snapshot, and if not, why.

        Such a reader takes the live files from the manifests (`verify --foreign-read-safe`). `argument` names the table in hints.
        """
        from paimon_cli.invariants.foreign_reads import foreign_read_report

        return foreign_read_report(*self._as_scanned(snapshot), argument)

    def _as_scanned(self, snapshot: int | None) -> tuple[TableContext, Snapshot | None]:
        """The table with the columns that a scan of the snapshot shows, and the snapshot; by default the latest."""
        self.context.check(SCAN)
        found = self._snapshot(snapshot)
        return (self.context if snapshot is None or found is None else self.context.at_schema(found.schema_id)), found

    def verify(
        self,
        level: str = "files",
        *,
        snapshot: int | None = None,
        all_snapshots: bool = False,
        only: Sequence[str] = (),
    ) -> VerifyReport:
        """Check the integrity of the table; changes nothing. `report.violations` lists the findings.

        `level` is `meta` (metadata), `files` (every file exists and can be opened) or `full` (every row). `only` names checks
        or codes.
        """
        from paimon_cli.jobs.verify_job import LEVELS, VerifyRequest, check_request, run_verify, run_without_schemas

        check_choice("level", level, LEVELS)
        if snapshot is not None and all_snapshots:
            raise UsageError("--snapshot and --all-snapshots exclude each other")
        request = VerifyRequest(level, snapshot, all_snapshots, tuple(only))
        check_request(request)
        # Without this finding a check with an older schema, or none, would look clean.
        context = self.catalog_table.readable_context if request.wants("PV007") else self.context
        if context is None:
            return run_without_schemas(self.catalog_table, request)
        with self.runtime.engine_running() as engine:
            return run_verify(context, request, engine, self.runtime.new_progress())

    def plan_repair(self, *, only: Sequence[str] = (), older_than: str = "1 h") -> Planned[RepairPlan, RepairSummary]:
        """Repairs of a damaged table, with the data that is lost for good; `only`: some kinds of them.

        Lost commits younger than `older_than` are ignored: their writers may still be running.
        """
        from paimon_cli.invariants.repair_plan import KINDS, plan_repair
        from paimon_cli.jobs.metadata_jobs import apply_repair
        from paimon_cli.options.option_text import parse_duration

        if unknown := [name for name in only if name not in KINDS]:
            raise UsageError(f"no repair '{unknown[0]}'", f"there are {', '.join(KINDS)}")
        context = self.context
        plan = plan_repair(context, tuple(only), parse_duration(older_than))

        def run() -> RepairSummary:
            self.check_commit()
            return apply_repair(context, plan)

        return Planned(plan, run)

    def repair(self, *, only: Sequence[str] = (), older_than: str = "1 h") -> RepairSummary:
        """Carry the repairs out in a new snapshot. No data file or manifest is changed or deleted. See `plan_repair`."""
        self.check_commit()
        return self.plan_repair(only=only, older_than=older_than).run()


def invariants() -> Sequence[Invariant]:
    """The rules that `verify` checks (`verify --list`)."""
    from paimon_cli.invariants.violation import INVARIANTS

    return INVARIANTS
