"""Rules about the history of a table: snapshots and what keeps them, hints, manifests, and files that nothing refers to."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from paimon_cli.errors import DamagedFile, NotFound, NotSupported
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.tags_and_branches import ChangelogHistory, TagHistory
from paimon_cli.inspect.findings.examined_table import ExaminedTable
from paimon_cli.inspect.findings.finding import ADVICE, ERROR, LISTING, OK, WARNING, Figure, Finding, Remedy, Topic, rule, well
from paimon_cli.invariants.lost_commits import lost_commits
from paimon_cli.invariants.snapshot_checks import hints_are_not_ahead, ids_have_no_gap, manifests_have_a_version
from paimon_cli.invariants.version import Version
from paimon_cli.maintain.orphans import DAY_MILLIS, find_orphans
from paimon_cli.maintain.retention import Retention, expiring_range
from paimon_cli.metadata.table_layout import CONSUMER_PREFIX, MAIN_BRANCH
from paimon_cli.options.option_text import counted, human_size
from paimon_cli.storage.threads import in_parallel

MANY_SNAPSHOTS = 1000
MANY_CHANGELOGS = 100
"""The most changelogs, the newest ones, that are read by commands that must be fast."""
STALE_CONSUMER_DAYS = 7
MANY_MANIFESTS = 60
MERGED_BY_DEFAULT = 30
"""The default of `manifest.merge-min-count`. Where it is set and there are many manifests nevertheless, writers merge none."""


@rule(Topic.HISTORY, "PD021")
def hints_are_right(table: ExaminedTable) -> Iterator[Finding]:
    """Hint files that name the wrong snapshot."""
    if not table.ids:
        table.context.expect_existing()
    for violation in hints_are_not_ahead(table.context):
        message, command = violation.message, f"paimon-cli repair {table.argument} --only hints --apply --yes"
        if violation.path == table.context.layout.latest_hint and table.ids and _lost_a_commit(table.context):
            message += ": a commit was lost, and its files are still there"
            command = f"paimon-cli repair {table.argument}"  # shows what it would commit again; the hint alone is its only sign
        yield Finding("PD021", ERROR, violation.path.rpartition("/")[2], message, command)


def _lost_a_commit(context: TableContext) -> bool:
    """Whether `repair` may commit again what LATEST points to."""
    try:
        newest = context.snapshots.latest()
        return newest is not None and any(lost_commits(context, Version(context, newest)))
    except (DamagedFile, NotFound, NotSupported):
        return True


@rule(Topic.HISTORY, "PD022")
def numbers_are_unbroken(table: ExaminedTable) -> Iterator[Finding]:
    """A missing snapshot, or a snapshot file with a wrong number."""
    if not table.ids:
        table.context.expect_existing()
    gaps = list(ids_have_no_gap(table.context) if table.ids else manifests_have_a_version(table.context))
    figures = {"snapshots": len(table.ids), "gaps": len(gaps)}
    if not gaps:
        yield well("numbers", f"{counted(len(table.ids), 'snapshot')} without a gap", **figures)
    for violation in gaps:
        is_of_file = violation.path != table.context.layout.snapshot_directory
        message = f"{violation.path.rpartition('/')[2]} {violation.message}" if is_of_file else violation.message
        yield Finding("PD022", violation.severity, "snapshots", message, f"paimon-cli verify {table.argument}", figures=figures)


@rule(Topic.OPTIONS, "PD015", "PA003")
def snapshots_are_few(table: ExaminedTable) -> Iterator[Finding]:
    """More snapshots than the options keep, not counting those that expiry always keeps; or many that could expire.

    A busy table has more than a limit between two expiries, and many within the time for which it keeps them. So it must not be
    expired for a day, and most of its many snapshots must be past their limits.
    """
    if table.latest is None:
        yield well("retention", "the table has no snapshots", snapshots=0)
        return
    options, count = table.context.options, len(table.ids)
    least = options.snapshot_num_retained_min
    most = max(least, options.snapshot_num_retained_max)
    figures: dict[str, Figure] = {"snapshots": count, "num_retained_min": least}
    if count > most and _is_neglected(table, most):
        command = f"paimon-cli expire {table.argument} --retain-max {min(most, max(least, 10))} --yes"
        message = f"{count} snapshots, each of which keeps old files; the command deletes the oldest"
        yield Finding("PD015", WARNING, "snapshots", message, command, figures=figures, threshold=f"{most} snapshots")
        return
    limits = Retention.of(options)
    backlog = len(expiring_range(table.context, Retention(limits.at_least, limits.at_most, limits.millis, None)))
    if count > MANY_SNAPSHOTS and backlog > max(least, count - backlog):
        command = f"paimon-cli expire {table.argument} --yes"
        message = f"{count} snapshots, of which {backlog} are past the limits of the table's options; the command deletes these"
        yield Finding("PD015", WARNING, "snapshots", message, command, figures=figures, threshold=f"{MANY_SNAPSHOTS} snapshots")
        return
    oldest = table.context.snapshots.get(table.ids[0])
    hours = max(0, table.context.clock.now_millis() - oldest.time_millis) / 3_600_000
    figures |= {
        "snapshots_that_may_go": backlog,
        "oldest_hours": round(hours, 1),
        "time_retained_hours": round(options.snapshot_time_retained / 3_600_000, 2),
    }
    message = f"{counted(count, 'snapshot')}, the oldest {hours:.1f} h old; {backlog} are past the limits of the table's options"
    if backlog <= least:
        yield Finding("", OK, "retention", message, figures=figures)
        return
    message = f"{message}, and no job expires them (commits of paimon-cli never do); the command deletes them"
    command = f"paimon-cli expire {table.argument} --yes"
    threshold = f"{least} snapshots past their time (snapshot.num-retained.min)"
    yield Finding("PA003", ADVICE, "retention", message, command, figures=figures, threshold=threshold)


def _is_neglected(table: ExaminedTable, most: int) -> bool:
    """Whether nothing has ever expired, or the oldest snapshot has been one too many for a day."""
    first = table.ids[0]
    if first == 1:
        return True
    surplus_since = table.context.snapshots.find(first + most)
    return surplus_since is None or table.context.clock.now_millis() - surplus_since.time_millis > DAY_MILLIS


@rule(Topic.OPTIONS, "PA004")
def manifests_are_few(table: ExaminedTable) -> Iterator[Finding]:
    """Many small manifests, which slow down every plan."""
    if table.latest is None:
        return
    metas = table.context.manifests.manifests_of(table.latest)
    least, target = table.context.options.manifest_merge_min_count, table.context.options.manifest_target_file_size
    size = sum(meta.file_size for meta in metas)
    figures: dict[str, Figure] = {"manifests": len(metas), "manifest_bytes": size, "merge_min_count": least}
    message = f"{counted(len(metas), 'manifest')} of {human_size(size)}; {least} small ones are merged at a time"
    most = max(2 * least, MANY_MANIFESTS)
    if len(metas) <= most or size >= len(metas) * target // 10:
        yield Finding("", OK, "manifests", message, figures=figures)
        return
    remedy: Remedy | None = Remedy(f"paimon-cli compact-manifests {table.argument}", rewrites_manifests=True)
    if least > MERGED_BY_DEFAULT:
        remedy = table.setting("manifest.merge-min-count", str(MERGED_BY_DEFAULT))
    message, command = f"{message}: every plan reads all of them", remedy.command if remedy else ""
    threshold = f"{most} small manifests"
    yield Finding("PA004", ADVICE, "manifests", message, command, figures=figures, threshold=threshold, remedy=remedy)


@rule(Topic.HISTORY)
def tags_can_be_read(table: ExaminedTable) -> Iterator[Finding]:
    """Each tag that cannot be read is recorded, so that all commands name it, also those that do not search for orphans."""
    table.context.tags.all(on_damage=table.note_damage)
    yield from ()


@rule(Topic.HISTORY)
def changelogs_can_be_read(table: ExaminedTable) -> Iterator[Finding]:
    """The newest long-lived changelogs; the search for orphans reads all."""
    context = table.context
    for damage in ChangelogHistory(context.storage, context.layout).damage(context.read_threads, MANY_CHANGELOGS):
        table.note_damage(damage)
    yield from ()


@rule(Topic.HISTORY)
def schemas_of_recent_snapshots_can_be_read(table: ExaminedTable) -> Iterator[Finding]:
    """The schemas by which time travel reads the recent snapshots."""
    for schema_id in sorted({snapshot.schema_id for snapshot in table.recent}):
        try:
            table.context.schemas.named(schema_id)
        except DamagedFile as damage:
            table.note_damage(damage)
    yield from ()


@rule(Topic.BUCKETS)
def schemas_can_be_read(table: ExaminedTable) -> Iterator[Finding]:
    """The schemas that the latest snapshot and its files name; with another one, readers would take their columns for others.

    Neither can the buckets be compacted.
    """
    named = set() if table.latest is None else {table.latest.schema_id, *table.state.table.schema_ids}
    for schema_id in sorted(named):
        try:
            table.context.schemas.named(schema_id)
        except DamagedFile as damage:
            table.note_damage(damage)
    yield from ()


@rule(Topic.HISTORY, "PD021")
def branches_can_be_read(table: ExaminedTable) -> Iterator[Finding]:
    """The newest schema and snapshot, the tags and the hints of each branch. A branch itself has none."""
    context = table.context
    if context.branch != MAIN_BRANCH:
        return

    def look(name: str) -> tuple[list[DamagedFile], list[Finding]]:
        damage, branch = list[DamagedFile](), context.seen_from(name)
        try:
            if context.branches.newest(name) is None:
                return damage, []
            TagHistory(context.storage, branch.layout).all(on_damage=damage.append)
        except DamagedFile as error:
            damage.append(error)
        command = f"paimon-cli health {branch.layout.argument}"
        ahead = [f"{violation.path.rpartition('/')[2]} {violation.message}" for violation in hints_are_not_ahead(branch)]
        return damage, [Finding("PD021", ERROR, f"branch {name}", message, command) for message in ahead]

    for damage, found in in_parallel(look, context.branches.directories(), context.read_threads):
        for error in damage:
            table.note_damage(error)
        yield from found


@rule(Topic.HISTORY, "PD016")
def consumers_are_alive(table: ExaminedTable) -> Iterator[Finding]:
    """A consumer that stopped reading keeps all later snapshots."""
    context = table.context
    for status in context.storage.list_directory(context.layout.consumer_directory):
        if not status.name.startswith(CONSUMER_PREFIX) or status.is_directory:
            continue
        days = (context.clock.now_millis() - status.modified_millis) // DAY_MILLIS
        if days >= STALE_CONSUMER_DAYS:
            name = status.name.removeprefix(CONSUMER_PREFIX)
            command = f"paimon-cli consumers rm {table.argument} {shlex.quote(name)} --yes"
            message = f"has not advanced for {days} days and keeps snapshots from expiring; the command deletes it"
            threshold = f"{STALE_CONSUMER_DAYS} days"
            yield Finding("PD016", WARNING, f"consumer {name}", message, command, figures={"days": days}, threshold=threshold)


@rule(Topic.HISTORY, "PD017", cost=LISTING)
def no_file_is_left_over(table: ExaminedTable) -> Iterator[Finding]:
    """Files left by jobs that died."""
    context = table.context
    if table.latest is None:
        return
    orphans = find_orphans(context, context.clock.now_millis() - DAY_MILLIS)
    if orphans.files:
        found = f"{counted(len(orphans.files), 'file')} older than a day ({human_size(orphans.size)})"
        message = f"no version refers to {found}; the command deletes them"
        figures = {"files": len(orphans.files), "bytes": orphans.size}
        command = f"paimon-cli orphans rm {table.argument} --apply --yes"
        yield Finding("PD017", WARNING, "orphans", message, command, figures=figures, threshold="0 files older than a day")
