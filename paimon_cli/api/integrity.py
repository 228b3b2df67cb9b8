"""The integrity of a table, its repair, its backup, and its use by readers of other formats."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from paimon_cli.api.arguments import checks_arguments, takes
from paimon_cli.api.maintenance import Planned
from paimon_cli.api.opened_table import OpenedTable
from paimon_cli.api.row_input import row_source
from paimon_cli.errors import NotFound, UsageError
from paimon_cli.metadata.table_layout import MAIN_BRANCH
from paimon_cli.options.option_catalog import Operation
from paimon_cli.requests.backup import BackupCall, BackupOptions
from paimon_cli.requests.erasing import EraseCall
from paimon_cli.requests.fields import Point
from paimon_cli.requests.integrity import HistoryCheckOptions, RepairOptions, VerifyOptions

if TYPE_CHECKING:
    from paimon_cli.history.table_context import TableContext
    from paimon_cli.invariants.anomalies import Anomaly
    from paimon_cli.invariants.foreign_reads import ForeignReadReport
    from paimon_cli.invariants.repair_steps import RepairPlan
    from paimon_cli.invariants.violation import Invariant
    from paimon_cli.jobs.backup_job import BackupSummary
    from paimon_cli.jobs.engine import Engine
    from paimon_cli.jobs.erasure.erase_table import ErasePlan, EraseSummary
    from paimon_cli.jobs.iceberg_export import IcebergExport
    from paimon_cli.jobs.repair_job import RepairSummary
    from paimon_cli.jobs.verify_job import VerifyReport
    from paimon_cli.metadata.snapshot import Snapshot


@checks_arguments
class Integrity(OpenedTable):
    """The methods of `Table` that check it, repair it, back it up, and serve readers of other formats."""

    def export_iceberg(self, output_path: str | None = None, *, snapshot: Point | None = None) -> IcebergExport:
        """Write Iceberg metadata for a snapshot over the table's own files (`export iceberg`).

        `output_path`: the parent of the directory `metadata`, default the table's directory. The metadata is valid
        while the snapshot is kept. Raises `Refused` if Iceberg readers would see wrong rows.
        """
        from paimon_cli.jobs.iceberg_export import export_iceberg
        from paimon_cli.storage.storage_for_url import storage_for_url

        opened = self.context
        target = (opened.storage, opened.layout.root)
        if output_path is not None:
            target = storage_for_url(output_path, opened.place.store_options)
        return export_iceberg(*self._as_scanned(snapshot), *target)

    def foreign_reads(
        self, *, snapshot: Point | None = None, argument: str | None = None, engine: str | None = None
    ) -> ForeignReadReport:
        """Whether a reader of plain Parquet files sees the correct rows of a snapshot (`verify --foreign-read-safe`).

        Such a reader takes the live files from the manifests, and does not merge. `engine`: judge the readers of `clickhouse`,
        `starrocks`, `trino`, `duckdb`, `polars` or `pypaimon` instead, as far as they are known. `argument`: the table's name in
        hints.
        """
        from paimon_cli.invariants.foreign_reads import foreign_read_report
        from paimon_cli.invariants.known_readers import judged

        return judged(foreign_read_report(*self._as_scanned(snapshot), argument), engine)

    def _as_scanned(self, snapshot: Point | None) -> tuple[TableContext, Snapshot | None]:
        """The context with the columns of a snapshot (default: the latest), and the snapshot."""
        self.context.check(Operation.SCAN)
        found = self._snapshot(snapshot)
        return (self.context if snapshot is None or found is None else self.context.at_schema(found.schema_id)), found

    @takes(VerifyOptions)
    def verify(self, options: VerifyOptions) -> VerifyReport:
        """Check the integrity of the table without changing it. `violations` of the result lists the findings."""
        from paimon_cli.jobs.verify_job import VerifyRequest, run_verify, run_without_schemas

        request = VerifyRequest.of(options, snapshot=self._snapshot_id(options.snapshot))
        # PV006 and PV007 report lost and unreadable schemas. Without them, a check with an older schema or none would look clean.
        opened = self.context
        if not opened.schemas.ids() and (isinstance(gone := opened.schemas.missing(), NotFound) or not request.wants("PV006")):
            raise gone
        context = opened.at_newest_readable() if request.wants("PV007") or not opened.schemas.ids() else self.supported
        if context is None:
            return run_without_schemas(opened, request)
        self._expect_existing()
        with self.runtime.engine_running() as engine:
            return run_verify(context, request, engine, self.runtime.new_progress())

    @takes(BackupCall)
    def backup(self, call: BackupCall) -> BackupSummary:
        """Copy the table with its history to `destination`, a directory or URL, which then is a table that any reader can open.

        What the copy has already is not copied again. Writers, compactions and expiries may go on. Raises `UsageError` for a
        directory with other files, `Refused` for the backup of another table, and `StorageUnavailable` if another backup into it
        does not end. `Catalog.restore` makes a table of it again.
        """
        from paimon_cli.catalog.table_location import check_directory
        from paimon_cli.jobs.backup_job import Destination, run_backup
        from paimon_cli.storage.redaction import without_login
        from paimon_cli.storage.storage_for_url import storage_for_url

        self.check_call()
        opened = self.supported
        if opened.branch != MAIN_BRANCH:
            raise UsageError(f"{opened.name} is a branch", "a backup is of the table with all its branches", "name the table")
        given = os.fspath(call.destination)
        check_directory(given, "a backup")
        storage, root = storage_for_url(given, opened.place.store_options, confined=True)
        with self.runtime.engine_running() as engine:
            destination = Destination(storage, root, without_login(given))
            return run_backup(opened, destination, BackupOptions.of(call), engine, self.runtime.new_progress())

    @takes(EraseCall)
    def plan_erase(self, call: EraseCall) -> Planned[ErasePlan, EraseSummary]:
        """Plan to erase keys, or rows of an append table, from everything that the table stores: live files, older snapshots,
        tags, branches, changelogs, statistics and indexes.

        Of a table with a primary key go all versions of each key of which any stored version matches. `keys`: rows with the
        columns of the primary key, or a file with them. Everything else stays readable at every snapshot. Earlier tables at its
        place that are in the trash are treated in the same way.

        Nothing is changed before `run`. Raises `NotSupported` for what cannot be erased, `Refused` for files that may belong to a
        job at work, and for an earlier table with another primary key.
        """
        from paimon_cli.history.points_in_time import past_millis
        from paimon_cli.history.tiered_rows import expect_not_tiered
        from paimon_cli.jobs.erasure.dropped_tables import dropped_tables
        from paimon_cli.jobs.erasure.erase_job import EraseRequest, Erasure
        from paimon_cli.jobs.erasure.erase_table import TableErasure, read_keys

        self.check_call()
        context = self.supported
        expect_not_tiered(context, "erase rows of")
        if context.branch != MAIN_BRANCH:
            raise UsageError(
                f"{context.name} is a branch", "rows are erased from a table with all its branches", "name the table"
            )
        self._expect_existing()
        keys = None
        if call.keys is not None:
            if not context.schema.primary_keys:
                why = "its rows are not found by keys"
                raise UsageError(f"{context.name} has no primary key", why, "name them by a condition: --where")
            keys = tuple(read_keys(context, row_source(call.keys, None, None, None, self)))
        before = past_millis(context, str(call.older_than))

        def erasure(table: TableContext, engine: Engine, certificate: str | None = None) -> TableErasure:
            job = Erasure(table, EraseRequest(call.where, call.params, keys), engine, self.runtime.new_progress())
            return TableErasure(job, call.drop_history, before, certificate)

        with self.runtime.engine_running() as engine:
            planned = erasure(context, engine, call.certificate)
            planned.earlier += [erasure(table, engine) for table in dropped_tables(context)]
            plan = planned.plan()

        def run() -> EraseSummary:
            self.check_commit()
            with self.runtime.engine_running() as engine:
                for one in (planned, *planned.earlier):
                    one.erasure.engine = engine
                done = planned.run()
            self.refresh()
            return done

        return Planned(plan, run)

    @takes(EraseCall)
    def erase(self, call: EraseCall) -> EraseSummary:
        """Erase keys, or rows of an append table, from everything that the table stores, and prove it; see `plan_erase`.

        `keys`: rows with the columns of the primary key, or a file with them, instead of a condition. `found` of the result are
        the files in which the proof still found some, which a job has written meanwhile.
        """
        self.check_commit()
        return self.plan_erase(**vars(call)).run()

    @takes(HistoryCheckOptions)
    def history_check(self, options: HistoryCheckOptions) -> list[Anomaly]:
        """What went wrong in the retained history, with the snapshots, users and files that show it (`history check`).

        Data files are only read where metadata leaves a doubt. Raises `UsageError` for an unknown rule or key column.
        """
        from paimon_cli.history.points_in_time import past_millis
        from paimon_cli.jobs.history_check_job import run_history_check

        context = self.supported
        since = None if options.since is None else past_millis(context, options.since)
        with self.runtime.engine_running() as engine:
            return run_history_check(context, options, since, engine, self.runtime.new_progress())

    @takes(RepairOptions)
    def plan_repair(self, options: RepairOptions) -> Planned[RepairPlan, RepairSummary]:
        """Plan repairs of a damaged table; the plan names data that is permanently lost."""
        from paimon_cli.history.points_in_time import past_millis
        from paimon_cli.invariants.repair_plan import plan_repair
        from paimon_cli.invariants.repair_steps import REPAIR_KINDS
        from paimon_cli.jobs.repair_job import apply_repair

        only = options.only or ()
        if unknown := [name for name in only if name not in REPAIR_KINDS]:
            raise UsageError(f"there is no repair '{unknown[0]}'", f"choose among {', '.join(REPAIR_KINDS)}")
        context = self.supported
        plan = plan_repair(context, only, context.clock.now_millis() - past_millis(context, options.older_than))

        def run() -> RepairSummary:
            self.check_commit()
            return apply_repair(context, plan)

        return Planned(plan, run)

    @takes(RepairOptions)
    def repair(self, options: RepairOptions) -> RepairSummary:
        """Repair the table in a new snapshot; see `plan_repair`. No data file or manifest is changed or deleted."""
        self.check_commit()
        return self.plan_repair(only=options.only, older_than=options.older_than).run()


def invariants() -> Sequence[Invariant]:
    """The rules that `verify` checks (`verify --list`)."""
    from paimon_cli.invariants.check import INVARIANTS

    return INVARIANTS
