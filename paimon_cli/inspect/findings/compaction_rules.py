"""Rules about compactions: what is due, who compacts, small files, and rows that wait for a compaction."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from statistics import median
from typing import NamedTuple

import numpy as np

from paimon_cli.errors import DamagedFile, NotFound
from paimon_cli.inspect.compaction_scenarios import ScenarioRow
from paimon_cli.inspect.findings.examined_table import MANY_SMALL_FILES, RECENT, ExaminedTable
from paimon_cli.inspect.findings.finding import (
    ADVICE,
    ERROR,
    OK,
    REPLAY,
    WARNING,
    Code,
    Figure,
    Finding,
    Remedy,
    Topic,
    command_of,
    rule,
    well,
)
from paimon_cli.inspect.replayed_commits import history_workload
from paimon_cli.inspect.replayed_settings import WORTH_IT, judged_settings
from paimon_cli.metadata.data_file import EntryKind
from paimon_cli.metadata.snapshot import APPEND, COMPACT, Snapshot
from paimon_cli.options.option_text import counted, human_size
from paimon_cli.storage.redaction import shown_name

MIN_COMMITS = 30
"""The fewest commits of rows from which compaction is replayed: a third of them has to judge."""


@rule(Topic.COMPACTION, Code.STALLED)
def writers_need_not_wait(table: ExaminedTable) -> Iterator[Finding]:
    """Due buckets whose sorted runs have reached the stop trigger, at which writers that compact wait."""
    over = table.in_need(Code.STALLED)
    if over:
        stop, most = table.context.options.stop_trigger, max(table.due[bucket.bucket_id].runs_before for bucket in over)
        figures = {"buckets": len(over), "most_sorted_runs": most, "stop_trigger": stop}
        message = f"{len(over)} of {len(table.buckets)} buckets have up to {most} sorted runs; writers wait from {stop} on"
        threshold = f"{stop} sorted runs (num-sorted-run.stop-trigger)"
        remedy = table.compaction("minor")
        yield Finding(
            Code.STALLED, WARNING, "sorted runs", message, command_of(remedy), figures=figures, threshold=threshold, remedy=remedy
        )


@rule(Topic.COMPACTION, Code.DUE)
def no_compaction_is_due(table: ExaminedTable) -> Iterator[Finding]:
    """Buckets in which the triggers of the table pick files to compact, as `compact --dry-run --strategy minor` shows."""
    due = table.in_need(Code.DUE)
    options, has_keys = table.context.options, table.context.mode.has_keys
    trigger = options.compaction_trigger if has_keys else options.compaction_min_file_num
    most = max((decision.runs_before for decision in table.decisions.values()), default=0)
    unit = "sorted run" if has_keys else "file"
    name = "most_sorted_runs" if has_keys else "most_files"
    figures: dict[str, Figure] = {"due": len(table.due), "buckets": len(table.all_buckets), name: most, "trigger": trigger}
    if not due:
        if table.needs:
            return  # other findings call for a compaction
        why_not = table.why_not_compactable
        said = f"this version does not compact the table: {why_not}" if why_not else "no further compaction is due"
        yield Finding("", OK, "compaction", said, figures=figures)
        return
    reasons = ", ".join(sorted({table.due[bucket.bucket_id].reason for bucket in due}))
    held = f"up to {counted(most, unit)}, trigger {trigger}"
    message = f"due in {len(due)} of {counted(len(table.buckets), 'bucket')}, by {reasons}; {held}"
    threshold = f"{trigger} {unit}s ({'num-sorted-run.compaction-trigger' if has_keys else 'compaction.min.file-num'})"
    remedy = table.compaction("minor")
    yield Finding(
        Code.DUE, WARNING, "compaction", message, command_of(remedy), figures=figures, threshold=threshold, remedy=remedy
    )


@rule(Topic.OPTIONS, "PD013")
def something_compacts(table: ExaminedTable) -> Iterator[Finding]:
    """A write-only table without a compaction job.

    Fewer commits than `RECENT` may all lie between two turns of a job that runs now and then. Snapshots that have expired count.
    """
    commits = 0 if table.latest is None else min(RECENT, table.latest.id)
    if table.context.options.write_only and commits >= RECENT and not table.was_compacted and table.due:
        message = f"write-only=true, and none of the last {commits} commits was a compaction"
        command = table.compacted("--watch")
        figures = {"recent_commits": commits, "due": len(table.due)}
        yield Finding("PD013", ERROR, "compaction", message, command, figures=figures, threshold=f"{RECENT} commits")


@rule(Topic.OPTIONS, "PD014")
def only_one_compacts(table: ExaminedTable) -> Iterator[Finding]:
    """Several users compact concurrently, so that their compactions conflict.

    Users whose commits do not interleave ran one after the other.
    """
    spans: dict[str, tuple[int, int]] = {}
    for snapshot in table.recent:
        first, last = spans.get(snapshot.commit_user, (snapshot.id, snapshot.id))
        spans[snapshot.commit_user] = min(first, snapshot.id), max(last, snapshot.id)
    compacting = {s.commit_user for s in table.recent if s.commit_kind == COMPACT}
    writing = {s.commit_user for s in table.recent if s.commit_kind == APPEND}

    def overlaps_another(user: str) -> bool:
        first, last = spans[user]
        return any(first < spans[other][1] and spans[other][0] < last for other in compacting & writing if other != user)

    users = sorted(filter(overlaps_another, compacting & writing))
    if not table.context.options.write_only and users:
        named = ", ".join(map(shown_name, users[:5]))
        message = f"{len(users)} users compact concurrently: {named}; their compactions may conflict"
        message = f"{message}; with write-only=true, one job must compact (compact --dedicated --watch)"
        command = table.altered("write-only", "true")  # no remedy: the job must be there first
        figures = {"recent_commits": len(table.recent), "compacting_users": len(users)}
        yield Finding("PD014", WARNING, "compaction", message, command, figures=figures, threshold="1 user")


@rule(Topic.COMPACTION, Code.POSTPONED)
def no_row_waits_for_its_bucket(table: ExaminedTable) -> Iterator[Finding]:
    """Postponed rows, which plain reads do not show until a compaction."""
    waiting = [file for bucket in table.in_need(Code.POSTPONED) for file in bucket.files]
    if waiting:
        rows, files = sum(file.row_count for file in waiting), len(waiting)
        message = f"{counted(rows, 'row')} in {counted(files, 'file')} wait for their buckets; plain reads do not show them"
        yield _waiting(table, Code.POSTPONED, "postponed rows", message, rows, files)


@rule(Topic.COMPACTION, Code.HIDDEN)
def no_flushed_row_waits(table: ExaminedTable) -> Iterator[Finding]:
    """Rows of level 0 that reads do not show until a compaction, in tables with deletion vectors or first-row."""
    mode = table.context.mode
    waiting = [f for bucket in table.in_need(Code.HIDDEN) for f in bucket.files if mode.hides(bucket.bucket, f.level)]
    if waiting:
        rows, files = sum(file.row_count for file in waiting), len(waiting)
        message = f"{counted(rows, 'stored record')} in {counted(files, 'file')} of level 0 wait; reads do not show them"
        yield _waiting(table, Code.HIDDEN, "level 0", message, rows, files)


def _waiting(table: ExaminedTable, code: str, subject: str, message: str, rows: int, files: int) -> Finding:
    figures = {"waiting_records": rows, "files": files}
    remedy = table.compaction()
    return Finding(code, WARNING, subject, message, command_of(remedy), figures=figures, threshold="0 records", remedy=remedy)


@rule(Topic.SMALL_FILES, Code.CROWDED)
def files_are_not_small(table: ExaminedTable) -> Iterator[Finding]:
    """Buckets with many small files that a full compaction would combine.

    The answer says how many files a commit writes, to how many buckets, and how many files that makes per day.
    """
    target = table.context.mode.target_file_size
    files = [file for bucket in table.buckets for file in bucket.files]
    small = sum(file.file_size < target // 10 for file in files)
    figures: dict[str, Figure] = {
        "files": len(files),
        "small_files": small,
        "average_bytes": sum(file.file_size for file in files) // max(1, len(files)),
        "target_bytes": target,
    }
    per_commit, said = _commit_figures(table)
    is_or_are = "is" if small == 1 else "are"
    message = f"{small} of {counted(len(files), 'file')} {is_or_are} smaller than a tenth of {human_size(target)}{said}"
    crowded = table.crowded
    if not crowded:
        yield Finding("", OK, "small files", message, figures=figures | per_commit)
        return
    held = sum(len(bucket.files) for bucket in crowded)
    message = (
        f"{len(crowded)} of {len(table.buckets)} buckets hold {counted(held, 'file')} far smaller than {human_size(target)}; "
        f"{message}; fewer buckets and longer commit intervals make fewer files"
    )
    remedy, all_figures = table.compaction("full"), figures | per_commit
    threshold = f"{MANY_SMALL_FILES} files of a tenth of target-file-size on average"
    yield Finding(
        Code.CROWDED, WARNING, "small files", message, command_of(remedy), figures=all_figures, threshold=threshold, remedy=remedy
    )


@rule(Topic.COMPACTION, "PA005", cost=REPLAY)
def triggers_fit_the_commits(table: ExaminedTable) -> Iterator[Finding]:
    """Replay the table's commits with other options of the trigger together, chosen on the first and judged on the last."""
    if not table.context.schema.primary_keys:
        yield well("triggers", "a table without a primary key has no sorted runs to compact", snapshots=len(table.ids))
        return
    options = table.context.options
    workload = history_workload(table.context) if len(table.ids) >= MIN_COMMITS else None
    if workload is None or len(workload.commits) < MIN_COMMITS:
        kept = counted(len(table.ids), "snapshot")
        added = "" if workload is None else f", of which {len(workload.commits)} add rows"
        why = f"the history is too short to replay other triggers: {kept}{added}"
        yield well("triggers", f"{why}; at least {MIN_COMMITS} that add rows are needed", snapshots=len(table.ids))
        return
    judged = judged_settings(workload, options, options.given, table.on_scenario)
    as_is, better = judged.as_is, judged.better
    some = "" if judged.buckets == judged.all_buckets else f" of the {judged.buckets} buckets with the most writes"
    message = (
        f"replaying the last {counted(as_is.commits, 'commit')}{some}: compactions rewrite {human_size(as_is.compacted_bytes)} "
        f"(write amplification {as_is.write_amplification}), {as_is.read_amplification} runs to read, "
        f"space amplification {as_is.space_amplification}{_stalls(table, as_is)}"
    )
    if better is None:
        said = f"{message}; none of the {judged.tried} other settings is clearly better"
        yield Finding("", OK, "triggers", said, figures=_figures("", as_is))
        return
    message = (
        f"{message}; with {better.scenario}, the best of {judged.tried} on the commits before: "
        f"{human_size(better.compacted_bytes)} ({better.write_amplification}), {better.read_amplification} runs, "
        f"space {better.space_amplification}{_stalls(table, better)}"
    )
    figures = {**_figures("", as_is), **_figures("suggested_", better)}
    settings = " ".join(f"{key}={value}" for key, value in better.options.items())
    command = f"paimon-cli alter {table.argument} set {settings}"
    remedy = Remedy(command, options=better.options)
    threshold = f"at most {WORTH_IT:.0%} of the bytes written or the runs read"
    yield Finding("PA005", ADVICE, "triggers", message, command, figures=figures, threshold=threshold, remedy=remedy)


def _stalls(table: ExaminedTable, row: ScenarioRow) -> str:
    """How often writers would have waited; empty where they never do."""
    return "" if table.context.leaves_compaction else f", {row.stalls} stalls"


def _figures(prefix: str, row: ScenarioRow) -> dict[str, Figure]:
    names = (
        "commits",
        "compactions",
        "compacted_bytes",
        "write_amplification",
        "read_amplification",
        "space_amplification",
        "stalls",
    )
    return {f"{prefix}{name}": getattr(row, name) for name in names}


DAY_MILLIS = 86_400_000
MIN_SEEN_MILLIS = 3_600_000
"""The shortest history from which a number of files per day is derived: a shorter one may be a burst of commits.

The rate is that of the whole history. The median interval would be that of a burst, if most commits belong to one.
"""


def _commit_figures(table: ExaminedTable) -> tuple[dict[str, Figure], str]:
    """Average files, buckets and partitions per commit, and the median time between commits: as figures and in words."""
    added = [commit for snapshot in table.writes if (commit := _added(table, snapshot)) is not None]
    if not added:
        return {}, ""
    commits = len(added)
    files = sum(commit.files for commit in added) / commits
    figures: dict[str, Figure] = {
        "commits_looked_at": commits,
        "files_per_commit": round(files, 1),
        "buckets_per_commit": round(sum(commit.buckets for commit in added) / commits, 1),
        "partitions_per_commit": round(sum(commit.partitions for commit in added) / commits, 1),
    }
    said = (
        f"; a commit adds {figures['files_per_commit']} files to {figures['buckets_per_commit']} buckets of "
        f"{figures['partitions_per_commit']} partitions"
    )
    times = [snapshot.time_millis for snapshot in table.writes]
    if len(times) < 2:
        return figures, said
    interval, seen = median(newer - older for newer, older in pairwise(times)), times[0] - times[-1]
    seconds, looked_at = round(interval / 1000, 1), round(seen / 1000, 1)
    figures |= {"commit_interval_seconds": seconds, "seconds_looked_at": looked_at}
    if seen < MIN_SEEN_MILLIS:
        return figures, f"{said}; {commits} commits within {looked_at} s are too few for a daily rate"
    per_day = round(files * (len(times) - 1) * DAY_MILLIS / seen)
    return figures | {"files_per_day": per_day}, f"{said}, the median interval is {seconds} s: {per_day:,} files a day"


class _Added(NamedTuple):
    """How many files a commit added, to how many buckets of how many partitions."""

    files: int
    buckets: int
    partitions: int


def _added(table: ExaminedTable, snapshot: Snapshot) -> _Added | None:
    """What a commit added, counted in columns; None if its manifests cannot be read."""
    try:
        entries = table.context.manifests.delta_table(snapshot)
        rows = np.flatnonzero(entries.numbers("kinds") == EntryKind.ADD)
        if not len(rows):
            return _Added(0, 0, 0)
        places = np.unique(np.stack([entries.codes[rows], entries.buckets[rows]]), axis=1)
        return _Added(len(rows), places.shape[1], len(np.unique(places[0])))
    except (DamagedFile, NotFound) as error:
        table.note_damage(error)
        return None
