"""What tells of the past beside snapshots: tags, changelogs, commits that no snapshot names; and what cannot be told any more."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise

from paimon_cli.errors import DamagedFile, NotFound, NotSupported
from paimon_cli.history.lost_history import LIST_PREFIX
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.tags_and_branches import ChangelogHistory
from paimon_cli.invariants import snapshot_checks
from paimon_cli.invariants.anomalies import (
    ANOMALY_RULES,
    LIKELY,
    PROVEN,
    RAN_BACK,
    REPEATED_COMMIT,
    SNAPSHOT_OVERWRITTEN,
    TAG_LOST,
    UNTOLD,
    Anomaly,
    Commit,
    anomaly,
)
from paimon_cli.invariants.file_checks import StoredFiles
from paimon_cli.invariants.history_walk import WalkedVersion
from paimon_cli.invariants.lost_commits import lost_commits
from paimon_cli.invariants.violation import Violation
from paimon_cli.metadata.data_file import ManifestEntry
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.options.option_text import counted
from paimon_cli.storage.redaction import shown_name

HoldsKey = Callable[[ManifestEntry], bool]
"""Whether a file may hold one of the keys that are asked for."""


def holds_any(entry: ManifestEntry) -> bool:
    """No keys are asked for."""
    return True


def commits_without_snapshot(
    context: TableContext, newest: WalkedVersion, named: Collection[str], holds: HoldsKey
) -> Iterator[Anomaly]:
    """Commits that were written, but that no snapshot names. `named`: the manifest lists of all snapshots.

    Whether a snapshot was replaced or never published, the files do not say, unless the hint names it. A commit that is younger
    than the newest snapshot may still be under way.
    """
    listed = {status.name for status in context.storage.list_directory(context.layout.manifest_directory)}
    if not any(name.startswith(LIST_PREFIX) for name in listed - set(named)):
        return
    try:
        lost = list(lost_commits(context, newest.whole()))
    except (DamagedFile, NotFound, NotSupported):
        return
    published = max(newest.snapshot.time_millis, _modified_millis(context, newest.snapshot.id))
    for each in lost:
        held = [entry.file for entry in each.entries if holds(entry)]
        if held and (each.is_sure or each.modified_millis <= published):
            rows = counted(sum(file.row_count for file in held), "row")
            what = (
                f"a commit of {rows} was written that no snapshot names: its snapshot was "
                "replaced, or its writer died before it published. It can be made again: "
                f"paimon-cli repair {context.layout.argument} --only lost-commits"
            )
            names = [each.path, *(file.file_name for file in held)]
            yield anomaly(SNAPSHOT_OVERWRITTEN, what, files=names, certainty=PROVEN if each.is_sure else LIKELY)


def _modified_millis(context: TableContext, number: int) -> int:
    """When the file of a snapshot was written, which is later than its time: that is of when its commit was prepared."""
    name = context.layout.snapshot(number).rpartition("/")[2]
    listed = context.storage.list_directory(context.layout.snapshot_directory)
    return max((status.modified_millis for status in listed if status.name == name), default=0)


def lost_from_tags(context: TableContext, holds: HoldsKey) -> Iterator[tuple[Violation, Snapshot | None]]:
    """Tags that cannot be read, and files of tags that are gone, with the snapshot of the tag."""
    stored = StoredFiles(context)
    for tagged in snapshot_checks.tagged_versions(context):
        if isinstance(tagged, Violation):
            yield tagged, None
            continue
        tagged.live = [entry for entry in tagged.live if holds(entry)]
        for violation in snapshot_checks.tagged_files_exist(tagged, stored):
            yield violation, tagged.snapshot


def outlived_commits(context: TableContext, oldest: int) -> list[Snapshot]:
    """The commits before the `oldest` snapshot that tags and changelogs have kept, oldest first. Damaged ones are left out."""
    kept, changelogs = dict[int, Snapshot](), ChangelogHistory(context.storage, context.layout)
    damaged: list[DamagedFile] = []
    kept.update((tag.snapshot.id, tag.snapshot) for tag in context.tags.all(damaged.append).values())
    for number in changelogs.ids():
        try:
            found = changelogs.find(number)
        except DamagedFile:
            continue
        if found is not None:
            kept[number] = found
    return [kept[number] for number in sorted(kept) if number < oldest]


def ran_back(before: Snapshot | None, snapshot: Snapshot) -> Iterator[Anomaly]:
    """Whether a snapshot is older than an earlier one."""
    if before is not None and snapshot.time_millis < before.time_millis:
        what = f"snapshot {snapshot.id} is older than snapshot {before.id} by its time"
        yield anomaly(RAN_BACK, what, (Commit.of(before), Commit.of(snapshot)))


def untold_between(ids: Sequence[int]) -> Iterator[Anomaly]:
    """What cannot be told because snapshots between others are missing: none expires before an older one. `ids`: ascending."""
    gaps = [(before + 1, after) for before, after in pairwise(ids) if after - before > 1]
    if gaps:
        missing = counted(sum(after - first for first, after in gaps), "snapshot")
        yield from _untold(f"{missing} from {gaps[0][0]} on, between others, cannot be found")


def untold_of_unreadable(paths: Sequence[str]) -> Iterator[Anomaly]:
    """What cannot be told because these files are damaged, missing, or hold another snapshot."""
    if paths:
        more = f", and {counted(len(paths) - 1, 'other file')}" if len(paths) > 1 else ""
        yield from _untold(f"{shown_name(paths[0])}{more} cannot be read; `paimon-cli verify` says why")


def _untold(what: str) -> Iterator[Anomaly]:
    """A part of the history that no rule on commits has seen."""
    for rule in ANOMALY_RULES:
        if rule.name != TAG_LOST:
            yield Anomaly(rule.name, UNTOLD, None, (), (), (), what, "copies of the table, as `paimon-cli backup` makes them")


def untold_before(oldest: int, outlived: Sequence[Snapshot]) -> Iterator[Anomaly]:
    """What cannot be told any more of each rule, and which retention would have kept it. `outlived`: see `outlived_commits`."""
    kept = "a larger snapshot.num-retained.min and snapshot.time-retained, or tags at the versions in question"
    longer = "a larger snapshot.time-retained, or changelog.time-retained, which keeps commits beyond their snapshots"
    is_whole = [snapshot.id for snapshot in outlived] == list(range(oldest - len(outlived), oldest))
    for rule in ANOMALY_RULES:
        of_commits = rule.name in (REPEATED_COMMIT, RAN_BACK)
        first = oldest - len(outlived) if of_commits and is_whole else oldest
        if rule.name != TAG_LOST and first > 1:
            what = f"the snapshots before {first} have expired"
            yield Anomaly(rule.name, UNTOLD, None, (), (), (), what, longer if of_commits else kept)
