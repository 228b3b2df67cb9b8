"""`backup`: copies a table with its history, while writers, compactions and expiries go on.

1. take the lease of the destination, so that one backup copies into it at a time.
2. hold the cut: consumers keep the snapshots that are not copied yet (`jobs/backup_cut`).
3. copy each branch: schemas, then snapshots with what they need, oldest first, then tags, changelogs, consumers and records of
   commits (`jobs/table_copy`).
4. expire what is older than `--keep` in the copy, which is a table like any other.
5. record the run (`jobs/backup_records`), and let go of what was copied.

A history of the copy that the table has otherwise is set aside as a branch of the copy: what a backup has, no change of the table
takes away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from paimon_cli.catalog.table_site import check_output_path, check_site
from paimon_cli.errors import Refused, StorageUnavailable, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.backup_aside import RunOfCopy, SetAside, is_equal, set_aside_what_differs
from paimon_cli.jobs.backup_cut import HeldCut
from paimon_cli.jobs.backup_records import BackupRecords, BackupRun
from paimon_cli.jobs.clone_job import copy_consumers, copy_records
from paimon_cli.jobs.copy_claim import check_apart, lease_of, new_lease, read_claim
from paimon_cli.jobs.copy_plan import CopiedVersion
from paimon_cli.jobs.engine import Engine, Progress
from paimon_cli.jobs.service.leases import Leases
from paimon_cli.jobs.table_copy import TableCopy
from paimon_cli.maintain.expire_changelogs import expire_changelogs, plan_changelogs
from paimon_cli.maintain.expire_snapshots import carry_out, plan_expiry
from paimon_cli.maintain.file_deletion import delete_files
from paimon_cli.maintain.needed_files import all_ids
from paimon_cli.maintain.retention import Retention
from paimon_cli.maintain.tags import plan_removal, remove_tags
from paimon_cli.metadata.table_layout import MAIN_BRANCH, SCHEMA_PREFIX, SNAPSHOT_PREFIX, TableLayout
from paimon_cli.requests.backup import BackupOptions
from paimon_cli.storage.file_copy import Throttle
from paimon_cli.storage.guarded_storage import PROBE_PREFIX
from paimon_cli.storage.storage import Storage

_ALL = 2**62


@dataclass(frozen=True)
class BackupSummary:
    """What a backup has copied; see `BackupRun`. `set_aside`: branches of the copy with what the table has otherwise, and
    `causes`, for each of them, what has happened.
    """

    table: str
    destination: str
    run: int
    snapshots: int
    first_snapshot: int | None
    last_snapshot: int | None
    tags: int
    branches: int
    files: int
    size: int
    expired: int
    gaps: tuple[str, ...]
    set_aside: tuple[str, ...]
    causes: tuple[str, ...]
    engine: str

    @staticmethod
    def of(run: BackupRun, destination: str, set_aside: Sequence[SetAside], engine: str) -> BackupSummary:
        return BackupSummary(
            run.source,
            destination,
            run.number,
            run.snapshots,
            run.first_snapshot,
            run.last_snapshot,
            run.tags,
            run.branches,
            run.files,
            run.size,
            run.expired,
            gap_texts(run.gaps),
            tuple(one.branch for one in set_aside),
            tuple(one.cause for one in set_aside),
            engine,
        )


@dataclass(frozen=True)
class Destination:
    """Where a backup goes: the storage, the root in it, and its name without secrets."""

    storage: Storage
    root: str
    name: str


def run_backup(
    context: TableContext, destination: Destination, options: BackupOptions, engine: Engine, progress: Progress
) -> BackupSummary:
    """Copy what the destination has not. Raises `UsageError` for a directory that is no backup and not empty, `Refused` for the
    backup of another table, `StorageUnavailable` if another backup into it does not end.
    """
    storage, layout = destination.storage, TableLayout(destination.root)
    if context.snapshots.latest_id() is None:
        context.expect_existing()
    _check_destination(context, destination)
    leases = new_lease(context.random, context.clock)
    with lease_of(leases, storage, layout):
        run = _Backup(context, destination, options, engine, progress, leases)
        return run.run()


@dataclass
class _Backup:
    """One run. `keep_from`: what is older, in epoch millis, is neither copied nor kept; None to keep all."""

    context: TableContext
    destination: Destination
    options: BackupOptions
    engine: Engine
    progress: Progress
    leases: Leases
    keep_from: int | None = None

    def run(self) -> BackupSummary:
        context, storage = self.context, self.destination.storage
        layout = TableLayout(self.destination.root)
        records = BackupRecords(storage, layout)
        started, number = context.clock.now_millis(), max(records.numbers(), default=0) + 1
        self.keep_from = None if self.options.keep is None else started - self.options.keep
        settings = (context, storage, layout, self.engine, self.progress, self._throttle())
        copy = TableCopy(*settings, before=self._check_lease)
        _check_same_table(copy)
        cut = HeldCut(records.identity(context.random))
        copy.is_resumed = records.begin()
        heads = {} if copy.is_resumed else records.heads(number - 1)  # a run that was killed has copied more than is recorded
        set_aside: list[SetAside] = []
        with cut.renewed():
            branches = context.branches.names()
            this = RunOfCopy(number, self.destination.name, branches)
            for branch in (MAIN_BRANCH, *branches):
                history = context if branch == MAIN_BRANCH else context.seen_from(branch)
                there = all_ids(history)
                set_aside += set_aside_what_differs(copy, history, there, heads.get(branch), this)
                self._copy_branch(copy, history, there, cut)
            if expired := self._expire(branches):
                copy.forget()
        held = copy.numbers(layout.snapshot_directory, SNAPSHOT_PREFIX)
        gaps = tuple((below + 1, above - 1) for below, above in pairwise(held) if above - below > 1)
        first, last = (held[0], held[-1]) if held else (None, None)
        tally = copy.tally
        run = BackupRun(
            number=number,
            source=context.name,
            started=started,
            time=context.clock.now_millis(),
            first_snapshot=first,
            last_snapshot=last,
            snapshots=tally.snapshots,
            tags=tally.tags,
            branches=len(branches),
            files=tally.files,
            size=tally.size,
            expired=expired,
            gaps=gaps,
            heads=tuple((branch, head) for branch in (MAIN_BRANCH, *branches) if (head := copy.newest(branch))),
        )
        records.end(run)
        if self.keep_from is not None:
            records.forget(self.keep_from)
        return BackupSummary.of(run, self.destination.name, set_aside, self.engine.name)

    def _throttle(self) -> Throttle | None:
        bandwidth = self.options.bandwidth
        return None if bandwidth is None else Throttle(bandwidth, self.context.clock)

    def _check_lease(self) -> None:
        """Stop once another backup has taken over the lease, because this one was suspended for too long."""
        if not self.leases.held:
            why = "this one was suspended for too long, or the storage did not answer"
            raise StorageUnavailable(f"another backup into {self.destination.name} has begun", why, "run it again")

    def _copy_branch(self, copy: TableCopy, history: TableContext, there: Sequence[int], cut: HeldCut) -> None:
        """Copy one history, whose snapshots are `there`, up to its newest one."""
        if there:
            cut.hold(history, max(there[0], copy.newest(history.branch) or 0))
        latest = max(there, default=0)
        copy.copy_schemas(history)
        copy.copy_snapshots(history, there, lambda version: self._is_kept(version, latest))
        copy.copy_tags(history, lambda version: version.snapshot.id <= latest)
        copy.copy_changelogs(history, self._is_kept)
        copy_records(copy, history, latest)
        copy_consumers(copy, history)
        if there:
            _let_go(copy, history, cut)

    def _is_kept(self, version: CopiedVersion, latest: int | None = None) -> bool:
        """Whether a version is young enough to be copied. The newest one always is."""
        return self.keep_from is None or version.snapshot.time_millis >= self.keep_from or version.snapshot.id == latest

    def _expire(self, branches: list[str]) -> int:
        """Remove from the copy what is older than `--keep`; returns how many snapshots."""
        if self.options.keep is None or self.keep_from is None:
            return 0
        copy = TableContext.open(self.destination.root, storage=self.destination.storage, clock=self.context.clock)
        keep = Retention(1, _ALL, self.options.keep, None, heeds_consumers=False)
        expired = 0
        for branch in (MAIN_BRANCH, *copy.branches.names()):
            history = copy if branch == MAIN_BRANCH else copy.seen_from(branch)
            self._check_lease()
            if branch == MAIN_BRANCH or branch in branches:
                source = self.context if branch == MAIN_BRANCH else self.context.seen_from(branch)
                gone = set(history.tags.names()) - set(source.tags.names())
                old = [name for name in gone if history.tags.get(name).snapshot.time_millis < self.keep_from]
                if old:
                    remove_tags(history, plan_removal(history, old), delete_files(history))
            plan = plan_expiry(history, keep)
            expired += len(carry_out(history, plan, delete_files(history)).snapshots)
            if (changelogs := plan_changelogs(history, keep)) is not None:
                expire_changelogs(history, changelogs, delete_files(history))
        return expired


def _let_go(copy: TableCopy, history: TableContext, cut: HeldCut) -> None:
    """Hold a branch from the newest snapshot that the copy and the table both have. If there is none above the place from which
    on it is held, the table was rolled back meanwhile: what has taken the numbers since then stays for the next run.
    """
    layout = copy.layout.of_branch(history.branch)
    for number in reversed(copy.numbers(layout.snapshot_directory, SNAPSHOT_PREFIX)):
        before = cut.place(history)
        if number <= before:
            return
        if is_equal(copy, layout.snapshot(number), history.layout.snapshot(number)):
            cut.go_on(history, number)
            if is_equal(copy, layout.snapshot(number), history.layout.snapshot(number)):
                return
            cut.hold(history, before)  # rolled back between the two


def _check_destination(context: TableContext, destination: Destination) -> None:
    """Raise `UsageError` for a directory within the table, around it, or within another one, and for one with other files."""
    check_apart(context, destination.name, destination.root)
    if read_claim(destination.storage, TableLayout(destination.root)) is not None:
        why, hint = "a restore into it is running, or was killed", "choose another directory"
        raise UsageError(f"{destination.name} is not empty", why, hint)
    names = {entry.name for entry in destination.storage.list_directory(destination.root)}
    names = {name for name in names if not name.startswith(PROBE_PREFIX)}
    if BackupRecords(destination.storage, TableLayout(destination.root)).exist() or (names and names <= {"lease", "backup"}):
        check_output_path(destination.storage, destination.root.rpartition("/")[0] + "/backup-of-a-table")
        return
    check_site(destination.storage, destination.root)


def _check_same_table(copy: TableCopy) -> None:
    """Raise `Refused` unless the copy is of this table, whose schemas are never changed."""
    there = copy.numbers(copy.layout.schema_directory, SCHEMA_PREFIX)
    if there and not is_equal(copy, copy.layout.schema(there[-1]), copy.source.layout.schema(there[-1])):
        raise Refused(
            f"{copy.layout.root} is the backup of another table",
            f"its schemas are not those of {copy.source.address}, which may have been dropped and created again",
            "back up into a new directory; this one keeps what it has",
        )


def gap_texts(gaps: tuple[tuple[int, int], ...]) -> tuple[str, ...]:
    """Ranges of ids, such as `983-1060`."""
    return tuple(str(first) if first == last else f"{first}-{last}" for first, last in gaps)
