"""What can be mended in a table, found and spelled out before anything is changed (`repair`).

Nothing is mended in place: snapshots and manifests stay as they are, a new snapshot leaves out what is lost. Two things
are made anew because their content follows from what is there: hint files, and snapshot files that are missing between
two others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from paimon_cli.errors import DamagedFile, NotFound, NotSupported
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.lost_commits import LostCommit, lost_commits
from paimon_cli.invariants.version import Place, Version
from paimon_cli.metadata.commit_message import CommitMessage
from paimon_cli.metadata.data_file import DataFileMeta, IndexFileMeta
from paimon_cli.metadata.snapshot import Snapshot

HINTS, CHAIN, DEAD_FILES, VECTORS, LOST_COMMITS = "hints", "chain", "dead-files", "dv", "lost-commits"
KINDS = (CHAIN, HINTS, DEAD_FILES, VECTORS, LOST_COMMITS)
BY_HAND = "by-hand"


@dataclass(frozen=True)
class RepairStep:
    """One thing to do. `loss`: what readers lose by it, '' for nothing; `command`: what the user has to do by hand."""

    kind: str
    path: str
    action: str
    loss: str = ""
    command: str = ""


@dataclass
class RepairPlan:
    """Steps for people, and what carries them out."""

    snapshot_id: int | None
    steps: list[RepairStep] = field(default_factory=list)
    hints: dict[str, int] = field(default_factory=dict)
    missing_snapshots: list[int] = field(default_factory=list)
    messages: dict[Place, CommitMessage] = field(default_factory=dict)
    lost: list[LostCommit] = field(default_factory=list)

    @property
    def changes(self) -> int:
        """Steps that `--apply` would carry out."""
        return sum(step.kind != BY_HAND for step in self.steps)


def plan_repair(context: TableContext, only: Sequence[str] = (), min_age_millis: int = 0) -> RepairPlan:
    """Look for what can be mended; `only`: kinds of steps, empty for all.

    Lost commits that are younger than `min_age_millis` may be of a writer that is still at work, and are left alone.
    """
    wanted = set(only) or set(KINDS)
    newest = _newest_readable(context)
    plan = RepairPlan(None if newest is None else newest.id)
    if CHAIN in wanted:
        _plan_chain(context, plan)
    if HINTS in wanted:
        _plan_hints(context, plan)
    if newest is None:
        return plan
    try:
        version = Version(context, newest)
        if DEAD_FILES in wanted or VECTORS in wanted:
            _plan_files(version, plan, wanted)
        if LOST_COMMITS in wanted:
            _plan_lost_commits(context, plan, version, only, min_age_millis)
    except (DamagedFile, NotFound, NotSupported) as error:
        _plan_by_hand(context, plan, newest, error)
    return plan


def _newest_readable(context: TableContext) -> Snapshot | None:
    for number in reversed(context.snapshots.ids()):
        try:
            return context.snapshots.find(number)
        except DamagedFile:
            continue
    return None


def _plan_chain(context: TableContext, plan: RepairPlan) -> None:
    """Snapshot files that are missing between others: what they changed follows from their neighbours."""
    ids = context.snapshots.ids()
    for number in sorted(set(range(ids[0], ids[-1])) - set(ids)) if ids else ():
        action = f"write it again from what snapshots {number - 1} and above hold"
        loss = "its user, time and kind; rows of its files stay as the next snapshot has them"
        plan.missing_snapshots.append(number)
        plan.steps.append(RepairStep(CHAIN, context.layout.snapshot(number), action, loss))
    for number in ids:
        try:
            context.snapshots.find(number)
        except DamagedFile as error:
            above = "roll back to the one below it" if number == ids[-1] else "expire it with all that are older"
            command = f"paimon-cli expire {context.address} --retain-max {ids[-1] - number}"
            if number == ids[-1]:
                command = f"paimon-cli rollback {context.address} --to {number - 1}"
            plan.steps.append(RepairStep(BY_HAND, context.layout.snapshot(number), f"{error.why}: {above}", "", command))


def _plan_hints(context: TableContext, plan: RepairPlan) -> None:
    ids = context.snapshots.ids()
    if not ids:
        return
    for path, right in ((context.layout.latest_hint, ids[-1]), (context.layout.earliest_hint, ids[0])):
        try:
            text = context.storage.read_bytes(path).strip()
        except FileNotFoundError:
            continue
        if not text.isdigit() or len(text) > 19 or int(text) > right:
            plan.hints[path] = right
            plan.steps.append(RepairStep(HINTS, path, f"let it say {right} instead of {text[:20].decode(errors='replace')}"))


def _plan_files(version: Version, plan: RepairPlan, wanted: set[str]) -> None:
    """Live files that are not on storage, and vectors of files that do not live."""
    for place in sorted(version.places):
        entries = list(version.at(place))
        dead = [e.file for e in entries if _is_missing(version, place, e.file)] if DEAD_FILES in wanted else []
        for file in dead:
            loss = f"{file.row_count} rows of level {file.level}, sequence numbers {file.min_sequence_number} to "
            loss += f"{file.max_sequence_number}; older values of their keys may show again"
            path = version.context.data_file_path(*place, file)
            plan.steps.append(RepairStep(DEAD_FILES, path, "leave the missing file out of a new snapshot", loss))
        alive = {e.file.file_name for e in entries} - {file.file_name for file in dead}
        old, new = _without_dangling(version, plan, place, alive) if VECTORS in wanted or dead else ([], [])
        if dead or old:
            total = next((e.total_buckets for e in entries), version.context.options.bucket)
            plan.messages[place] = CommitMessage(
                *place,
                total,
                deleted_files=tuple(dead),
                deleted_index_files=tuple(old),
                new_index_files=tuple(new),
                read_snapshot_id=version.snapshot.id,
            )


def _is_missing(version: Version, place: Place, file: DataFileMeta) -> bool:
    return file.external_path is None and not version.context.storage.exists(version.context.data_file_path(*place, file))


def _without_dangling(
    version: Version, plan: RepairPlan, place: Place, alive: set[str]
) -> tuple[list[IndexFileMeta], list[IndexFileMeta]]:
    """The same index files with fewer vectors listed; the files themselves stay."""
    old, new = [], []
    for entry in version.index_entries:
        ranges = entry.index_file.deletion_vector_ranges
        if (entry.partition, entry.bucket) != place or ranges is None:
            continue
        kept = tuple(r for r in ranges if r.data_file_name in alive)
        for gone in (r for r in ranges if r.data_file_name not in alive):
            action = f"list no vector for {gone.data_file_name}, which does not live, in a new snapshot"
            plan.steps.append(RepairStep(VECTORS, version.index_path(entry), action))
        if len(kept) < len(ranges):
            old.append(entry.index_file)
            if kept:
                new.append(replace(entry.index_file, deletion_vector_ranges=kept, row_count=len(kept)))
    return old, new


def _plan_lost_commits(
    context: TableContext, plan: RepairPlan, version: Version, only: Sequence[str], min_age_millis: int
) -> None:
    """Sure when a number is missing that the table has had; else only on demand, for it may be a commit that failed."""
    for lost in lost_commits(context, version):
        rows = sum(entry.file.row_count for entry in lost.entries)
        age = context.clock.now_millis() - lost.modified_millis
        found = f"{len(lost.entries)} data files with {rows} rows, {age // 1000} s old"
        if lost.is_sure or (LOST_COMMITS in only and age >= min_age_millis):
            plan.lost.append(lost)
            why = "a snapshot of this number was there" if lost.is_sure else "no snapshot names it"
            plan.steps.append(RepairStep(LOST_COMMITS, lost.path, f"commit it again: {why}; {found}"))
        else:
            command = f"paimon-cli repair {context.address} --only lost-commits --apply"
            action = f"looks like a commit that was lost, or one that failed: {found}"
            plan.steps.append(RepairStep(BY_HAND, lost.path, action, "", command))


def _plan_by_hand(
    context: TableContext, plan: RepairPlan, newest: Snapshot, error: DamagedFile | NotFound | NotSupported
) -> None:
    path = str(error.details.get("path", context.layout.snapshot(newest.id)))
    good = next(_readable_below(context, newest.id), None)
    action = f"cannot be mended: {error}"
    command = "" if good is None else f"paimon-cli rollback {context.address} --to {good}"
    plan.steps.append(RepairStep(BY_HAND, path, action, "", command))


def _readable_below(context: TableContext, number: int) -> Iterator[int]:
    for below in reversed([i for i in context.snapshots.ids() if i < number]):
        try:
            Version(context, context.snapshots.get(below)).live  # noqa: B018
        except (DamagedFile, NotFound, NotSupported):
            continue
        yield below
