"""Maintenance of a table: compaction, expiry, orphans, rollback, rescaling, success marks.

Methods that delete something come in two forms: `plan_expire(...)` returns a `Planned`, which shows what would be deleted and
carries it out when `run` is called; `expire(...)` does both at once. A dry run is a plan that is not run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from paimon_cli.api.arguments import checks_arguments, takes
from paimon_cli.api.opened_table import OpenedTable
from paimon_cli.errors import Refused, StorageUnavailable
from paimon_cli.options.option_catalog import Operation
from paimon_cli.requests.compaction import CompactCall, CompactOptions
from paimon_cli.requests.fields import Point, point_text
from paimon_cli.requests.maintenance import AnalyzeOptions, ExpireOptions, RemoveOrphans, RescaleOptions
from paimon_cli.requests.upkeep import Budgeted
from paimon_cli.requests.versions import MarkOptions, RollbackOptions

if TYPE_CHECKING:
    from paimon_cli.history.table_context import TableContext
    from paimon_cli.jobs.analyze_job import Analysis
    from paimon_cli.jobs.compact_summary import CompactSummary
    from paimon_cli.jobs.metadata_jobs import ManifestsPlan, ManifestsSummary, RolledBack
    from paimon_cli.jobs.reclaim_job import Expired, Expiry, OrphanRow
    from paimon_cli.jobs.rescale_job import RescalePlan, RescaleSummary
    from paimon_cli.jobs.round_plan import CompactionPlan
    from paimon_cli.jobs.service.maintenance import MaintainedTable
    from paimon_cli.jobs.service.served_table import ServedTable
    from paimon_cli.maintain.mark_done import MarkedPartition
    from paimon_cli.maintain.named_files import FileToDelete
    from paimon_cli.maintain.orphans import Orphans
    from paimon_cli.maintain.restore_as_new import BucketDifference
    from paimon_cli.maintain.rollback import RollbackPlan
    from paimon_cli.metadata.snapshot import Snapshot

Plan = TypeVar("Plan")
Done = TypeVar("Done")


@dataclass(frozen=True)
class Planned(Generic[Plan, Done]):
    """Planned work: `plan` describes it, `files` lists the files to delete, and `run` carries it out."""

    plan: Plan
    run: Callable[[], Done]
    files: Callable[[], list[FileToDelete]] = list

    def __repr__(self) -> str:
        return f"Planned({self.plan!r})"

    def _repr_html_(self) -> str:
        from paimon_cli.read.html_text import table_of_fields

        return table_of_fields(self.plan)


@dataclass(frozen=True)
class Restoration:
    """What `rollback(to, as_new=True)` would copy: the buckets in which `latest` and `target` differ."""

    target: Snapshot
    latest: Snapshot
    differences: list[BucketDifference]


class PlanOrphans(RemoveOrphans):
    """Which orphans to find, and to delete if the plan is run."""

    _: KW_ONLY
    deletes: bool = False


@checks_arguments
class Maintenance(OpenedTable):
    """The methods of `Table` for maintenance. Partitions are given as `{"dt": "2026-11-20"}`, or a list of such mappings."""

    @takes(CompactCall)
    def compact(self, request: CompactCall) -> CompactSummary:
        """Merge the sorted runs of buckets in one round, and drop rows that newer ones replace.

        Raises `Conflict` or `PartialSuccess` for buckets that other jobs compacted in the meantime.
        """
        from paimon_cli.jobs.compact_job import run_compact
        from paimon_cli.jobs.compact_request import CompactRequest

        self.check_commit()
        if request.dedicated:
            self.warn_of_other_compactors()
        with self.runtime.engine_running(request.parallelism) as engine:
            return run_compact(self.context, CompactRequest.of(request), engine, self.runtime.new_progress())

    def warn_of_other_compactors(self, *, is_service: bool = False) -> None:
        """Warn if writers may compact too. A single compaction expects that where it is how new rows become visible."""
        mode = self.context.mode
        is_expected = not is_service and (mode.awaits_compaction or mode.postpones_rows)
        if not self.context.options.write_only and not is_expected:
            self.runtime.warn(f"{self.name} is not write-only, so its writers may compact too: set write-only=true")

    @takes(CompactOptions)
    def plan_compaction(self, request: CompactOptions) -> CompactionPlan:
        """The plan of a compaction, bucket by bucket; changes nothing, and raises what a real run would raise."""
        from paimon_cli.jobs.compact_request import CompactRequest
        from paimon_cli.jobs.round_plan import plan_compaction

        self.check_call()
        plan = plan_compaction(self.context, CompactRequest.of(request))
        self._warn_of_buckets()
        return plan

    def plan_compact_manifests(self) -> Planned[ManifestsPlan, ManifestsSummary]:
        """Plan to rewrite manifests: small ones, and those with entries of deleted files."""
        from paimon_cli.jobs.metadata_jobs import plan_manifest_compaction, run_manifest_compaction

        context = self.supported
        plan = plan_manifest_compaction(context)

        def run() -> ManifestsSummary:
            self.check_commit()
            return run_manifest_compaction(context, plan)

        return Planned(plan, run)

    def compact_manifests(self) -> ManifestsSummary:
        """Rewrite the manifests into as few as possible, without entries of deleted files, in one commit; no data is read."""
        self.check_commit()
        return self.plan_compact_manifests().run()

    @takes(AnalyzeOptions)
    def plan_analyze(self, options: AnalyzeOptions) -> Planned[Analysis, Analysis]:
        """Count rows and values of the latest snapshot; `run` commits them as statistics that engines plan by."""
        from paimon_cli.jobs.analyze_job import analyze, commit_analysis

        self.check_call()
        context = self.supported
        context.check(Operation.COMMIT)
        found = analyze(context, () if options.only_rows else options.columns or None)
        return Planned(found, lambda: replace(found, snapshots=commit_analysis(context, found)))

    @takes(AnalyzeOptions)
    def analyze(self, options: AnalyzeOptions) -> Analysis:
        """Count rows and values of the latest snapshot, and commit them as Paimon's statistics file, which engines plan by."""
        self.check_commit()
        return self.plan_analyze(**vars(options)).run()

    @takes(ExpireOptions)
    def plan_expire(self, options: ExpireOptions) -> Planned[Expiry, Expired]:
        """Plan to expire snapshots, partitions, changelogs, tags or consumers past their retention.

        Ages are by the clock of the storage if this machine's is ahead of it. Limits default to the table's options.
        """
        from paimon_cli.jobs.reclaim_job import PARTITIONS, deletion, plan_expire
        from paimon_cli.storage.counted_storage import DELETIONS, counting_requests, counts_requests

        context, progress = self.supported, self.runtime.new_progress()

        def planned(context: TableContext) -> Expiry:
            return plan_expire(context, options, progress)

        with counting_requests() as of_plan:
            expiry = planned(context)
            if expiry.names and (trusted := self._with_storage_clock(is_required=False)) is not context:
                context, expiry = trusted, planned(trusted)
            if expiry.names:
                self._warn_of_long_silence(context)

        def run() -> Expired:
            if options.what == PARTITIONS:
                self.check_commit()
            with counting_requests() as counts, self.runtime.engine_running() as engine:
                done = expiry.run(deletion(context, engine, progress))
            sent = of_plan + counts
            if not counts_requests(context.url):
                return done
            return replace(done, requests=sent.total(), delete_requests=sent[DELETIONS])

        return Planned(expiry, run, expiry.files)

    @takes(ExpireOptions)
    def expire(self, options: ExpireOptions) -> Expired:
        """Expire items past their retention, and delete the files that only they need. See `plan_expire`.

        Tags, branches and consumers protect snapshots. Limits default to the table's options.
        """
        return self.plan_expire(**vars(options)).run()

    @takes(PlanOrphans)
    def plan_orphans(self, options: PlanOrphans) -> Planned[Orphans, tuple[int, int]]:
        """Find files that no snapshot, tag, branch or changelog refers to, and that are older than `older_than`.

        Ages are by the clock of the storage, or of this machine if the storage does not reveal its clock and `deletes`
        is False. `run` checks each file again, copies it to the directory `quarantine` if one is given, deletes it, and
        returns the number of files and their bytes.
        """
        from paimon_cli.history.points_in_time import past_millis
        from paimon_cli.jobs.reclaim_job import clean_orphans, search_orphans

        context = self._with_storage_clock(is_required=options.deletes)
        progress = self.runtime.new_progress()
        if context.external_places is not None and not options.external_paths:
            self.runtime.warn(
                f"new data files of {context.address} go to data-file.external-paths, where orphans were not looked for: "
                "--external-paths does, if no other table keeps files there"
            )
        found = search_orphans(
            context, past_millis(context, str(options.older_than)), options.force, progress, options.external_paths
        )

        def run() -> tuple[int, int]:
            with self.runtime.engine_running() as engine:
                return clean_orphans(context, found, options.quarantine, engine, progress)

        return Planned(found, run)

    @takes(RemoveOrphans)
    def remove_orphans(self, options: RemoveOrphans) -> tuple[int, int]:
        """Delete orphans; returns their number and bytes. See `plan_orphans`."""
        return self.plan_orphans(**vars(options), deletes=True).run()

    @takes(Budgeted)
    def maintain(self, asked: Budgeted) -> MaintainedTable:
        """Compact what is due, expire by the table's options, delete orphans older than a day, and examine what is left.

        A table that another service holds is waited for as long as a lease lives without renewal; then `Conflict` is raised.
        """
        from paimon_cli.api.maintenance_runs import run_maintenance

        self.check_commit()
        return run_maintenance(self.runtime, self._as_served(), asked, math.inf)[0]

    @takes(Budgeted)
    def plan_maintenance(self, asked: Budgeted) -> MaintainedTable:
        """What `maintain` would do; changes nothing. The snapshot of its compaction is not counted among what is to expire."""
        from paimon_cli.api.maintenance_runs import planned_maintenance

        self.check_call()
        return planned_maintenance(self.runtime, self._as_served(), asked, math.inf)[0]

    def _as_served(self) -> list[ServedTable]:
        """This table alone, as the compaction service takes it."""
        from paimon_cli.catalog.warehouse_policy import Policies, own_rules
        from paimon_cli.jobs.goal_merges import counted_reads
        from paimon_cli.jobs.service.served_table import ServedTable

        policies, place = Policies(own_rules(self.runtime.profile), self.runtime.warn), self.context.place
        reads = counted_reads(partial(policies.proportion_read, place))
        return [ServedTable(self.name, lambda: self.supported, policies.of(place), reads)]

    def orphan_rows(self, orphans: Orphans, *, explain: bool = False) -> list[OrphanRow]:
        """Orphans as rows. `explain`: include what each one probably is, such as a lost commit."""
        from paimon_cli.jobs.reclaim_job import orphan_rows

        return orphan_rows(self.context, orphans, explain)

    def _with_storage_clock(self, *, is_required: bool) -> TableContext:
        """The context with a clock that is not ahead of the clock of the storage.

        If the storage does not reveal its clock, for example because it is read-only, the clock of this machine is
        used, unless the storage's clock `is_required`.
        """
        from paimon_cli.maintain.orphans import TOLERATED_MILLIS, not_ahead_of_the_storage

        context, warn = self.supported, self.runtime.warn
        try:
            trusted = not_ahead_of_the_storage(context)
        except (StorageUnavailable, Refused) as error:
            if is_required:
                raise
            warn(f"ages are by the clock of this machine, because the storage's clock is unknown: {error}")
            return context
        if (ahead := context.clock.now_millis() - trusted.clock.now_millis()) >= TOLERATED_MILLIS:
            warn(f"the clock of this machine is {ahead / 1000:,.0f} s ahead of the storage's; ages follow the storage's clock")
        return trusted

    def _warn_of_long_silence(self, context: TableContext) -> None:
        """Warn if the newest snapshot looks old, because then either the table is idle or the clock is ahead."""
        from paimon_cli.maintain.orphans import DAY_MILLIS

        newest = context.snapshots.latest()
        age = 0 if newest is None else context.clock.now_millis() - newest.time_millis
        if age >= DAY_MILLIS:
            days = f"{age / DAY_MILLIS:,.1f} days"
            self.runtime.warn(
                f"by the clock, the newest snapshot is {days} old; if that is wrong, the clock is ahead, and younger items expire"
            )

    def plan_rollback(self, to: Point) -> Planned[RollbackPlan, RolledBack]:
        """Plan a rollback to a snapshot id, a tag, or a time. Raises `NotFound` if there is no such snapshot."""
        from paimon_cli.history.tiered_rows import expect_not_tiered
        from paimon_cli.jobs.metadata_jobs import find_target, run_rollback
        from paimon_cli.maintain.named_files import measured
        from paimon_cli.maintain.rollback import files_removed_by_rollback, plan_rollback

        context = self.supported
        expect_not_tiered(context, "roll back")
        plan = plan_rollback(context, find_target(context, str(point_text(to))))

        def files() -> list[FileToDelete]:
            return measured(context, files_removed_by_rollback(context, plan))

        def run() -> RolledBack:
            self.check_commit()
            return run_rollback(context, plan, self.runtime.new_progress())

        return Planned(plan, run, files)

    @takes(RollbackOptions)
    def rollback(self, options: RollbackOptions) -> RolledBack:
        """Go back to an older snapshot, deleting later snapshots and tags with the files that only they need.

        Stop the writers first: raises `Conflict` if another job commits in the meantime. With `as_new` writers may continue.
        """
        self.check_commit()
        if not options.as_new:
            return self.plan_rollback(str(options.to)).run()
        from paimon_cli.history.tiered_rows import expect_not_tiered
        from paimon_cli.jobs.metadata_jobs import find_target, run_restore

        expect_not_tiered(self.context, "roll back")
        target = find_target(self.context, str(options.to)).snapshot
        with self.runtime.engine_running() as engine:
            return run_restore(self.context, target, engine, self.runtime.new_progress(), options.compact)

    def plan_restore(self, to: Point) -> Restoration:
        """What `rollback(to, as_new=True)` would copy; changes nothing."""
        from paimon_cli.history.tiered_rows import expect_not_tiered
        from paimon_cli.jobs.metadata_jobs import find_target, plan_restore

        expect_not_tiered(self.context, "roll back")
        target = find_target(self.context, str(point_text(to))).snapshot
        return Restoration(target, *plan_restore(self.context, target))

    @takes(RescaleOptions)
    def plan_rescale(self, options: RescaleOptions) -> Planned[RescalePlan, RescaleSummary]:
        """Plan to rewrite the partitions whose bucket count is another one."""
        from paimon_cli.jobs.rescale_job import plan_rescale, run_rescale

        plan = plan_rescale(self.context, options)

        def run() -> RescaleSummary:
            self.check_commit()
            with self.runtime.engine_running() as engine:
                done = run_rescale(self.context, plan, engine, self.runtime.new_progress())
            self.refresh()
            return done

        return Planned(plan, run)

    @takes(RescaleOptions)
    def rescale(self, options: RescaleOptions) -> RescaleSummary:
        """Rewrite the table with another bucket count in one commit, and change its bucket option.

        With `partition`, only those partitions are rewritten and the option stays as it is. Raises `Conflict` if
        another job writes in the meantime; nothing is changed then. Stop other engines' writers first: those of Java that are
        running keep the old count (`stale_files` of the result; `repair` moves the rows of such files).
        """
        self.check_commit()
        return self.plan_rescale(**vars(options)).run()

    @takes(MarkOptions)
    def mark_done(self, options: MarkOptions) -> list[MarkedPartition]:
        """Mark partitions as done, for jobs that wait for complete partitions.

        `success-file` writes `_SUCCESS` into the
        directory of each partition; `http-report` posts it to `partition.mark-done-action.http.url`, if the user's
        configuration allows the host (`http-report.allowed-hosts`), and raises `Refused` otherwise; in a Hive
        metastore, `done-partition` adds a partition whose last value ends in `.done`; in a Hive metastore and on a REST
        server, `mark-event` sends an event.
        """
        from paimon_cli.catalog.open_table import partition_marks, report_hosts
        from paimon_cli.maintain.mark_done import mark_done, plan_marks

        of_catalog, hosts = partition_marks(self.context), report_hosts(self.context)
        actions = options.actions or ()
        planned = plan_marks(self.context, options.partition or (), actions, of_catalog, hosts)
        return mark_done(self.context, planned, actions, of_catalog, hosts)
