"""Maintenance of a table: compaction, expiry, orphans, rollback, rescaling, verification and repair.

What removes something comes in two forms: `plan_expire(...)` gives a `Planned` that shows what would go and carries it out when
its `run` is called, which is what a dry run is; `expire(...)` does both at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from paimon_cli.api.opened_table import OpenedTable, Partitions, check_choice, check_positive, partition_list
from paimon_cli.errors import Refused, StorageUnavailable, UsageError

if TYPE_CHECKING:
    from paimon_cli.history.table_context import TableContext
    from paimon_cli.invariants.repair_plan import RepairPlan
    from paimon_cli.jobs.compact_job import CompactionPlan, CompactRequest, CompactSummary
    from paimon_cli.jobs.engine import Engine
    from paimon_cli.jobs.metadata_jobs import RepairSummary, RolledBack
    from paimon_cli.jobs.reclaim_job import Expired, Expiry, OrphanRow
    from paimon_cli.jobs.rescale_job import RescalePlan, RescaleSummary
    from paimon_cli.jobs.table_change import Shield
    from paimon_cli.jobs.verify_job import VerifyReport, VerifyRequest
    from paimon_cli.maintain.needed_files import FileToDelete
    from paimon_cli.maintain.orphans import Orphans
    from paimon_cli.maintain.restore_as_new import BucketDifference
    from paimon_cli.maintain.rollback import RollbackPlan
    from paimon_cli.metadata.snapshot import Snapshot

Plan = TypeVar("Plan")
Done = TypeVar("Done")


@dataclass(frozen=True)
class Planned(Generic[Plan, Done]):
    """Work that was planned and not done: `plan` says what, `files` lists the files that would go, `run` does it."""

    plan: Plan
    run: Callable[[], Done]
    files: Callable[[], list[FileToDelete]] = list


@dataclass(frozen=True)
class Restoration:
    """What going back in a new snapshot would copy: the buckets in which `latest` and `target` differ."""

    target: Snapshot
    latest: Snapshot
    differences: list[BucketDifference]


class Maintenance(OpenedTable):
    """The methods of `Table` that keep it in order. Partitions are given as `{"dt": "2026-11-20"}`, or a list of those."""

    def compact(
        self,
        strategy: str = "full",
        *,
        partition: Partitions | None = None,
        bucket: Sequence[int] | None = None,
        on_conflict: str = "retry",
        idle_time: str | None = None,
        if_snapshot: int | None = None,
        memory: str | None = None,
        max_bytes: str | None = None,
        max_buckets: int | None = None,
        parallelism: int | None = None,
    ) -> CompactSummary:
        """Merge the sorted runs of buckets in one round, and drop the rows that newer ones replace.

        `strategy` is `full` (merge everything into the top level) or `minor` (what the triggers pick); `on_conflict` is
        `retry`, `skip` or `fail`. Sizes and times are texts with a unit: `512 mb`, `10 min`. Raises `Conflict` or
        `PartialSuccess` for buckets that other jobs have compacted meanwhile.
        """
        request = compact_request(
            strategy=strategy,
            partition=partition,
            bucket=bucket,
            on_conflict=on_conflict,
            idle_time=idle_time,
            if_snapshot=if_snapshot,
            memory=memory,
            max_bytes=max_bytes,
            max_buckets=max_buckets,
        )
        self.check_commit()  # before an engine is started
        with self.runtime.engine_running(parallelism) as engine:
            return self.run_compaction(request, engine)

    def run_compaction(self, request: CompactRequest, engine: Engine, shield: Shield | None = None) -> CompactSummary:
        """`compact` on an engine that runs already, for several tables in turn; `shield` holds signals back during a commit."""
        from contextlib import nullcontext

        from paimon_cli.jobs.compact_job import run_compact

        self.check_commit()
        return run_compact(self.context, request, engine, self.runtime.new_progress(), shield=shield or nullcontext)

    def plan_compaction(self, request: CompactRequest) -> CompactionPlan:
        """What a compaction would do, bucket by bucket; refuses what a real run would refuse, and changes nothing."""
        from paimon_cli.jobs.compact_job import plan_compaction

        self.check_call()
        return plan_compaction(self.context, request)

    def plan_expire(
        self,
        what: str = "snapshots",
        *,
        retain_max: int | None = None,
        retain_min: int | None = None,
        older_than: str | None = None,
        limit: int | None = None,
    ) -> Planned[Expiry, Expired]:
        """What is past its retention: of `snapshots`, `partitions`, `changelogs`, `tags` or `consumers`.

        Keeps at most the newest `retain_max` and at least the newest `retain_min`; `older_than` is an age such as `1d`, or a
        time. Limits default to the table's options.
        """
        from paimon_cli.jobs.reclaim_job import KINDS, PARTITIONS, ExpireRequest, deletion, plan_expire
        from paimon_cli.read.time_travel import moment_of

        check_choice("what", what, KINDS)
        check_positive(retain_max=retain_max, retain_min=retain_min, limit=limit)
        context, progress = self.context, self.runtime.new_progress()
        before = None if older_than is None else moment_of(older_than, context.clock.now_millis())
        expiry = plan_expire(context, ExpireRequest(what, retain_max, retain_min, before, limit), progress)

        def run() -> Expired:
            if what == PARTITIONS:
                self.check_commit()
            with self.runtime.engine_running() as engine:
                return expiry.run(deletion(context, engine, progress))

        return Planned(expiry, run, expiry.files)

    def expire(
        self,
        what: str = "snapshots",
        *,
        retain_max: int | None = None,
        retain_min: int | None = None,
        older_than: str | None = None,
        limit: int | None = None,
    ) -> Expired:
        """Delete what is past its retention, and the files that only it needs. See `plan_expire`.

        Tags, branches and consumers protect snapshots.
        """
        return self.plan_expire(what, retain_max=retain_max, retain_min=retain_min, older_than=older_than, limit=limit).run()

    def plan_orphans(self, *, older_than: str = "1d", force: bool = False) -> Planned[Orphans, tuple[int, int]]:
        """Files that no snapshot, tag, branch or changelog refers to, and that are older than `older_than`.

        Ages follow the storage's clock. `run` deletes the files after checking each again, and returns their number and bytes.
        `force` also takes files younger than a day, which is safe only while no job writes.
        """
        return self._orphans(older_than, force, None, must_tell=False)

    def remove_orphans(self, *, older_than: str = "1d", force: bool = False, quarantine: str | None = None) -> tuple[int, int]:
        """Delete orphans, after copying them to the directory `quarantine` if one is given; their number and bytes."""
        return self.plan_orphan_removal(older_than=older_than, force=force, quarantine=quarantine).run()

    def plan_orphan_removal(
        self, *, older_than: str = "1d", force: bool = False, quarantine: str | None = None
    ) -> Planned[Orphans, tuple[int, int]]:
        """The same as `plan_orphans`, for a deletion: the storage has to tell its time."""
        return self._orphans(older_than, force, quarantine, must_tell=True)

    def _orphans(
        self, older_than: str, force: bool, quarantine: str | None, *, must_tell: bool
    ) -> Planned[Orphans, tuple[int, int]]:
        from paimon_cli.jobs.reclaim_job import clean_orphans, search_orphans
        from paimon_cli.read.time_travel import moment_of

        context = self._by_the_storages_clock(must_tell=must_tell)
        progress = self.runtime.new_progress()
        found = search_orphans(context, moment_of(older_than, context.clock.now_millis()), force, progress)

        def run() -> tuple[int, int]:
            with self.runtime.engine_running() as engine:
                return clean_orphans(context, found, quarantine, engine, progress)

        return Planned(found, run)

    def orphan_rows(self, orphans: Orphans, *, explain: bool = False) -> list[OrphanRow]:
        """Orphans as rows; `explain`: with what each one probably is, such as a lost commit."""
        from paimon_cli.jobs.reclaim_job import orphan_rows

        return orphan_rows(self.context, orphans, explain)

    def _by_the_storages_clock(self, *, must_tell: bool) -> TableContext:
        """The context with a clock that is not ahead of the storage's.

        Where the storage does not tell the time, as one that can only be read, this machine's clock counts, unless files are
        to be deleted.
        """
        from paimon_cli.maintain.orphans import TOLERATED_MILLIS, not_ahead_of_the_storage

        context, warn = self.context, self.runtime.warn
        try:
            trusted = not_ahead_of_the_storage(context)
        except (StorageUnavailable, Refused) as error:
            if must_tell:
                raise
            warn(f"ages are by the clock of this machine, since the storage's cannot be asked: {error}")
            return context
        if (ahead := context.clock.now_millis() - trusted.clock.now_millis()) >= TOLERATED_MILLIS:
            warn(
                f"the clock of this machine is {ahead / 1000:,.0f} s ahead of the storage's; file ages follow the storage's clock"
            )
        return trusted

    def plan_rollback(self, to: int | str) -> Planned[RollbackPlan, RolledBack]:
        """The snapshots and tags that would go with a rollback to a snapshot id, a tag, or a time. `NotFound`."""
        from paimon_cli.jobs.metadata_jobs import find_target, run_rollback
        from paimon_cli.maintain.needed_files import measured
        from paimon_cli.maintain.rollback import files_removed_by_rollback, plan_rollback

        context = self.context
        plan = plan_rollback(context, find_target(context, str(to)))

        def files() -> list[FileToDelete]:
            return measured(context, files_removed_by_rollback(context, plan))

        def run() -> RolledBack:
            self.check_commit()
            return run_rollback(context, plan, self.runtime.new_progress())

        return Planned(plan, run, files)

    def rollback(self, to: int | str, *, as_new: bool = False) -> RolledBack:
        """Go back to an older version, deleting later snapshots and tags with the files that only they need.

        Stop the writers first: a commit made meanwhile is a `Conflict`. With `as_new` the history is kept, the old state
        becomes a new snapshot, and writers may continue.
        """
        self.check_commit()
        if not as_new:
            return self.plan_rollback(to).run()
        from paimon_cli.jobs.metadata_jobs import find_target, run_restore

        return run_restore(self.context, find_target(self.context, str(to)).snapshot)

    def plan_restore(self, to: int | str) -> Restoration:
        """What `rollback(to, as_new=True)` would copy."""
        from paimon_cli.jobs.metadata_jobs import find_target, plan_restore

        target = find_target(self.context, str(to)).snapshot
        return Restoration(target, *plan_restore(self.context, target))

    def plan_rescale(self, buckets: int, *, partition: Partitions | None = None) -> Planned[RescalePlan, RescaleSummary]:
        """The partitions that have another number of buckets. NotSupported for tables without a fixed number of buckets."""
        from paimon_cli.jobs.rescale_job import plan_rescale, run_rescale

        check_positive(buckets=buckets)
        plan = plan_rescale(self.context, buckets, partition_list(partition))

        def run() -> RescaleSummary:
            self.check_commit()
            with self.runtime.engine_running() as engine:
                done = run_rescale(self.catalog_table, plan, engine, self.runtime.new_progress())
            self.refresh()
            return done

        return Planned(plan, run)

    def rescale(self, buckets: int, *, partition: Partitions | None = None) -> RescaleSummary:
        """Rewrite the table with another number of buckets, in one commit, and change its bucket option.

        A `Conflict` if another job writes meanwhile; the table is unchanged then.
        """
        self.check_commit()
        return self.plan_rescale(buckets, partition=partition).run()

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
        return self.run_verification(verify_request(level, snapshot, all_snapshots, only))

    def run_verification(self, request: VerifyRequest) -> VerifyReport:
        """`verify` as a request has it."""
        from paimon_cli.jobs.verify_job import run_verify, run_without_schemas

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


def compact_request(
    *,
    strategy: str = "full",
    partition: Partitions | None = None,
    bucket: Sequence[int] | None = None,
    on_conflict: str = "retry",
    idle_time: str | None = None,
    if_snapshot: int | None = None,
    memory: str | None = None,
    max_bytes: str | None = None,
    max_buckets: int | None = None,
    unknown_buckets_allowed: bool = False,
) -> CompactRequest:
    """The options of a compaction, checked. `unknown_buckets_allowed`: for a request to many tables."""
    from paimon_cli.compact.compaction_plan import FULL_STRATEGY, MINOR_STRATEGY, RoundLimits
    from paimon_cli.jobs.compact_job import FAIL, LEAST_MEMORY, RETRY, SKIP, CompactRequest
    from paimon_cli.options.option_text import parse_duration, parse_size

    check_choice("strategy", strategy, (FULL_STRATEGY, MINOR_STRATEGY))
    check_positive(if_snapshot=if_snapshot, max_buckets=max_buckets)
    check_choice("on-conflict", on_conflict, (RETRY, SKIP, FAIL))
    held = None if memory is None else parse_size(memory)
    if held is not None and held < LEAST_MEMORY:
        raise UsageError(f"--memory {memory} is too little", "a compaction needs at least 1 mb")
    return CompactRequest(
        strategy,
        tuple(partition_list(partition)),
        tuple(bucket or ()),
        on_conflict,
        RoundLimits(None if max_bytes is None else parse_size(max_bytes), max_buckets),
        None if idle_time is None else parse_duration(idle_time),
        if_snapshot,
        held,
        unknown_buckets_allowed,
    )


def verify_request(level: str, snapshot: int | None, all_snapshots: bool, only: Sequence[str]) -> VerifyRequest:
    """The options of a verification, checked."""
    from paimon_cli.jobs.verify_job import LEVELS, VerifyRequest, check_request

    check_choice("level", level, LEVELS)
    if snapshot is not None and all_snapshots:
        raise UsageError("--snapshot and --all-snapshots exclude each other")
    request = VerifyRequest(level, snapshot, all_snapshots, tuple(only))
    check_request(request)
    return request
