"""Plans the repair of a damaged table (`repair`) without changing anything.

Nothing is repaired in place: existing snapshots and manifests are kept, and a new snapshot leaves out lost files. Files whose
content follows from others are written again: hints, a snapshot file missing between two others, and hash indexes. Unreadable
version files are moved aside. Wrong file indexes are no longer listed.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace

from paimon_cli.errors import DamagedFile, NotFound, NotSupported, SnapshotExpired
from paimon_cli.history.snapshot_history import LONGEST_GAP, gaps
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.file_repairs import plan_file_repairs
from paimon_cli.invariants.lost_commits import DIRECTORY, DamagedVersion, damaged_versions, lost_commits
from paimon_cli.invariants.repair_steps import REPAIR_KINDS, RepairKind, RepairPlan, RepairStep
from paimon_cli.invariants.snapshot_checks import branches_are_readable, consumers_stand_somewhere, no_snapshot_has_come_back
from paimon_cli.invariants.version import Version
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import CONSUMER_PREFIX, parse_hint
from paimon_cli.options.option_text import counted
from paimon_cli.storage.threads import in_parallel


def plan_repair(context: TableContext, only: Sequence[str] = (), min_age_millis: int = 0) -> RepairPlan:
    """Look for damage that can be repaired; `only`: kinds of steps, empty for all.

    Lost commits younger than `min_age_millis` are left alone, because their writer may still be running. Raises
    `SnapshotExpired` if snapshots disappear meanwhile, since their files would look lost.
    """
    context = context.unread()
    listed = context.snapshots.ids()
    if not listed:
        context.expect_existing()
    plan = _damage_found(context, listed, only, min_age_millis)
    _let_commits_set_latest(context, plan)
    for number in (*listed[:1], *listed[-1:]) if plan.steps else ():
        if not context.storage.exists(context.layout.snapshot(number)):
            what = f"snapshot {number} of {context.address} was deleted while the table was examined"
            raise SnapshotExpired(what, "files that were deleted with it would look lost", "run it again")
    return plan


def _damage_found(context: TableContext, listed: Sequence[int], only: Sequence[str], min_age_millis: int) -> RepairPlan:
    """The plan for a table with the `listed` snapshots."""
    wanted = set(only) or set(REPAIR_KINDS)
    newest = _newest_readable(context)
    plan = RepairPlan(None if newest is None else newest.id)
    damaged = damaged_versions(context, listed)
    if RepairKind.VERSIONS in wanted:
        _plan_set_aside(plan, damaged)
    unreadable = {version_file.snapshot_id for version_file in damaged}
    ids = [number for number in listed if number not in unreadable]
    if RepairKind.CHAIN in wanted:
        _plan_chain(context, plan, ids, set(listed) - set(ids))
    if RepairKind.HINTS in wanted and (ids or not listed):
        _plan_hints(context, plan, ids, RepairKind.LOST_COMMITS in wanted)
    if not only:
        plan.steps += [*_references_by_hand(context), *_resurrected_by_hand(context)]
    if newest is None:
        return plan
    version = Version(context, newest)
    try:
        plan_file_repairs(version, plan, wanted, only)
    except (DamagedFile, NotFound) as error:
        _plan_by_hand(context, plan, newest, error)
        return plan
    # The files of an unreadable tag or changelog would look like a lost commit.
    if RepairKind.LOST_COMMITS in wanted and all(version_file.snapshot_id for version_file in damaged):
        was_newest = any((version_file.snapshot_id or 0) > newest.id for version_file in damaged)
        _plan_lost_commits(context, plan, version, only, min_age_millis, was_newest)
    return plan


def _plan_set_aside(plan: RepairPlan, damaged: Sequence[DamagedVersion]) -> None:
    for version_file in damaged:
        plan.set_aside.append(version_file)
        action = f"set it aside in {DIRECTORY}/: {version_file.why}"
        plan.steps.append(RepairStep(RepairKind.VERSIONS, version_file.path, action, version_file.loss))


def _newest_readable(context: TableContext) -> Snapshot | None:
    for number in reversed(context.snapshots.ids()):
        try:
            return context.snapshots.find(number)
        except DamagedFile:
            continue
    return None


def _resurrected_by_hand(context: TableContext) -> Iterator[RepairStep]:
    """Snapshots below a gap below EARLIEST. Nothing but the hint says that they had expired, so they are not deleted."""
    for found in no_snapshot_has_come_back(context):
        command = f"paimon-cli expire {context.layout.argument} --yes"
        loss = "the snapshots that have expired by the table's retention settings, for time travel"
        yield RepairStep(RepairKind.BY_HAND, found.path, found.message, loss, command)


def _plan_chain(context: TableContext, plan: RepairPlan, ids: Sequence[int], unreadable: set[int]) -> None:
    """Snapshot files missing between readable ones, whose changes can be derived from their neighbours."""
    waiting = unreadable - {version_file.snapshot_id for version_file in plan.set_aside}
    expired = [gap for gap in gaps(ids) if len(gap) <= LONGEST_GAP and _has_expired(context, gap)]
    for gap in gaps(ids):
        if len(gap) > LONGEST_GAP:
            action = f"{len(gap):,} snapshots are missing below it: move it away if it is not a snapshot of this table"
            plan.steps.append(RepairStep(RepairKind.BY_HAND, context.layout.snapshot(gap.stop), action))
        elif gap in expired:
            action = f"files that it held are gone: they are lost, or the history begins anew at snapshot {gap.stop}, as after a "
            action += "fast-forward to a branch that had lost its oldest snapshots; the gap ends when the older ones expire"
            plan.steps.append(RepairStep(RepairKind.BY_HAND, context.layout.snapshot(gap.start), action))
    derived = (gap for gap in gaps(ids) if len(gap) <= LONGEST_GAP and gap not in expired)
    for number in (number for gap in derived for number in gap):
        if number in waiting:  # damaged, and not to be set aside now
            continue
        action = f"write it again from what snapshots {number - 1} and above hold"
        loss = "its user, time and kind; rows of its files stay as the next snapshot has them"
        plan.missing_snapshots.append(number)
        plan.steps.append(RepairStep(RepairKind.CHAIN, context.layout.snapshot(number), action, loss))


def _has_expired(context: TableContext, gap: range) -> bool:
    """Whether files are gone that only the missing snapshots needed: those that the first one above them has removed. They are
    there if no more than the snapshot files was lost.
    """
    try:
        above = Version(context, context.snapshots.get(gap.stop))
        removed = [entry for entry in above.base if not above.holds(entry) and context.can_open(entry.file)]
    except (DamagedFile, NotFound):
        return False
    return not all(in_parallel(context.storage.exists, map(above.file_path, removed), context.read_threads))


def _plan_hints(context: TableContext, plan: RepairPlan, ids: Sequence[int], finds_lost: bool) -> None:
    """`finds_lost`: the same plan commits the snapshot again to which LATEST points, if its files still exist."""
    newest, oldest = (ids[-1], ids[0]) if ids else (None, None)
    for path, right in ((context.layout.latest_hint, newest), (context.layout.earliest_hint, oldest)):
        try:
            text = context.storage.read_bytes(path)
        except FileNotFoundError:
            continue
        except DamagedFile as error:
            action = f"cannot be read: {error.why}; move it away, it is created again when needed"
            plan.steps.append(RepairStep(RepairKind.BY_HAND, path, action))
            continue
        hint = parse_hint(text)
        if hint is None or hint > (right or 0):
            is_latest = path == context.layout.latest_hint
            if is_latest and hint is not None and _is_newest(context, hint):
                continue
            recorded = text.strip()[:20].decode(errors="replace") or "nothing"
            plan.hints[path] = right
            action = f"set it to {right} instead of {recorded}"
            if right is None:
                action = f"delete it: it says {recorded}, and there is no snapshot"
            loss = f"the only sign that snapshot {hint} existed" if is_latest and hint is not None and not finds_lost else ""
            plan.steps.append(RepairStep(RepairKind.HINTS, path, action, loss))


def _let_commits_set_latest(context: TableContext, plan: RepairPlan) -> None:
    """LATEST will have the number of the last commit that the same plan makes, not that of the newest snapshot now."""
    path = context.layout.latest_hint
    if plan.commits and path in plan.hints:
        action = f"the newest snapshot is {plan.hints[path]}: it gets the number of the commit that this repair makes"
        plan.steps = [
            replace(step, action=action) if (step.kind, step.path) == (RepairKind.HINTS, path) else step for step in plan.steps
        ]


def _is_newest(context: TableContext, number: int) -> bool:
    """Whether a snapshot can be read and has no successor. Listings are not relied on, because on some stores they lag."""
    try:
        return context.snapshots.find(number) is not None and not context.storage.exists(context.layout.snapshot(number + 1))
    except DamagedFile:
        return False


def _references_by_hand(context: TableContext) -> Iterator[RepairStep]:
    """Consumers and branches that refer to missing versions."""
    for found in consumers_stand_somewhere(context):
        name = found.path.rpartition(f"/{CONSUMER_PREFIX}")[2]
        command = f"paimon-cli consumers reset {context.layout.argument} {shlex.quote(name)}"
        loss = "the consumer skips the changes that have expired"
        yield RepairStep(RepairKind.BY_HAND, found.path, f"{found.message}: reset it to the next snapshot", loss, command)
    for found in branches_are_readable(context):
        name = found.message.removeprefix("branch ").partition(":")[0]
        command = f"paimon-cli branches rm {context.layout.argument} {shlex.quote(name)} --yes"
        action, loss = f"{found.message}: restore the file, or delete the branch", "the commits of the branch"
        yield RepairStep(RepairKind.BY_HAND, found.path, action, loss, command)


def _plan_lost_commits(
    context: TableContext, plan: RepairPlan, version: Version, only: Sequence[str], min_age_millis: int, is_sure: bool
) -> None:
    """Lost commits, repaired if a snapshot is known to be lost; otherwise on request only, as the commit may have failed."""
    try:
        candidates = list(lost_commits(context, version))
    except DamagedFile as error:
        path = error.path or context.layout.root
        if all(step.path != path for step in plan.steps):
            action = f"commits of its branch would look lost, so lost ones are not searched for: {error}"
            plan.steps.append(RepairStep(RepairKind.BY_HAND, path, action))
        return
    except NotSupported as error:
        action = f"lost commits are not searched for: {error.why}"
        plan.steps.append(RepairStep(RepairKind.BY_HAND, error.path or context.layout.root, action))
        return
    for lost in candidates:
        rows = sum(entry.file.row_count for entry in lost.entries)
        age = context.clock.now_millis() - lost.modified_millis
        changes = f" and {counted(len(lost.changelog), 'changelog file')}" if lost.changelog else ""
        found = f"{counted(len(lost.entries), 'data file')} with {counted(rows, 'row')}{changes}, {age // 1000} s old"
        if is_sure or lost.is_sure or (RepairKind.LOST_COMMITS in only and age >= min_age_millis):
            plan.lost.append(lost)
            why = "a snapshot with this number existed" if is_sure or lost.is_sure else "no snapshot refers to it"
            plan.steps.append(RepairStep(RepairKind.LOST_COMMITS, lost.path, f"commit it again: {why}; {found}"))
        else:
            command = f"paimon-cli repair {context.layout.argument} --only {RepairKind.LOST_COMMITS} --apply --yes"
            action = f"looks like a commit that was lost, or one that failed: {found}"
            if age < min_age_millis:
                command += " --older-than '0 s'"
                action += "; it is young, so run this only if no job is writing"
            plan.steps.append(RepairStep(RepairKind.BY_HAND, lost.path, action, "", command))


def _plan_by_hand(context: TableContext, plan: RepairPlan, newest: Snapshot, error: DamagedFile | NotFound) -> None:
    path = error.path or context.layout.snapshot(newest.id)
    good = next(_readable_below(context, newest.id), None)
    action = f"cannot be repaired: {error}"
    if good is None:
        plan.steps.append(RepairStep(RepairKind.BY_HAND, path, action))
        return
    loss = f"the commits after snapshot {good}"
    command = f"paimon-cli rollback {context.layout.argument} --to {good} --yes"
    plan.steps.append(RepairStep(RepairKind.BY_HAND, path, action, loss, command))


def _readable_below(context: TableContext, number: int) -> Iterator[int]:
    for below in reversed([i for i in context.snapshots.ids() if i < number]):
        try:
            Version(context, context.snapshots.get(below)).live  # noqa: B018
        except (DamagedFile, NotFound, NotSupported):
            continue
        yield below
