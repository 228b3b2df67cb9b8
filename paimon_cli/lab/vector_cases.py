"""The anomalies of deletion vectors and lookups: two compactions of a bucket that interrupt each other, on shipped code with real
files.

`off` takes the check of vectors, and of where older rows were looked for, out of the commit. It then looks at the data files only
and lets the vectors of the last commit stand, as Java does for tables with a primary key. Under any other granularity the commit
is the shipped one.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from paimon_cli.commit.commit_messages import SnapshotChanges, compact_changes
from paimon_cli.commit.committer import CommitResult, CommitStep, Committer
from paimon_cli.commit.data_conflict import OFF
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.commit.files_conflict import check_data_files
from paimon_cli.lab.lab_table import LabSetting
from paimon_cli.lab.simulation.actor import Job, in_turn, rows
from paimon_cli.lab.simulation.exploration import explore
from paimon_cli.lab.simulation.real_jobs import level_compactor, real_compactor, real_writer
from paimon_cli.lab.simulation.run import Run, after, narrate
from paimon_cli.lab.simulation.scenario import Scenario
from paimon_cli.lab.simulation.schedule import parse_schedule
from paimon_cli.lab.story import Story
from paimon_cli.metadata.data_file import DELETE, DELETION_VECTORS, CommitMessage, IndexManifestEntry
from paimon_cli.metadata.snapshot import Snapshot

OPTIONS = {"bucket": "1", "write-only": "true", "deletion-vectors.enabled": "true"}
MARKED = in_turn(
    real_writer("first", rows(0, 1, 2, 3, value="old")),
    real_compactor(),
    real_writer("second", rows(0, 1, value="new")),
    level_compactor([0], 4),
    real_writer("third", rows(0, 2, value="new")),
)
"""Keys 1 to 3 at level 5, where key 1 is marked; its new row at level 4, and one of key 2 at level 0."""
MOST_FINDINGS = 10_000
INTERRUPTIONS = 1
"""How often one compaction interrupts the other in the middle of its work; the simulation of the tests sets no limit."""
TWO_ROWS, DANGLING, OLDER_BELOW = "PV033", "PV016", "PV059"

LOOKUP_OPTIONS = {"bucket": "1", "write-only": "true", "changelog-producer": "lookup"}
TWICE = in_turn(
    real_writer("first", rows(0, 8, 9)),
    real_compactor(),
    real_writer("second", rows(0, 1, value="old")),
    real_writer("third", rows(0, 1, value="new")),
)
"""Two files of level 0, the newer of which replaces the row of the older one."""


class DataFilesCommitter(Committer):
    """Commits a compaction as an engine that does not check vectors: those of the last commit of a bucket stand."""

    def commit(self, messages: Sequence[CommitMessage], identity: CommitIdentity, **options: Any) -> CommitResult:
        compact = compact_changes(messages)
        return self._commit([CommitStep(functools.partial(self._replacing, compact))], identity, None)

    def _replacing(self, compact: SnapshotChanges, latest: Snapshot | None) -> SnapshotChanges:
        touched = {entry.bucket_id for entry in (*compact.new_indexes, *compact.deleted_indexes)}
        current = self._context.manifests.index_entries(latest) if latest else []
        deleted = (
            IndexManifestEntry(DELETE, e.partition, e.bucket, e.index_file)
            for e in current
            if e.bucket_id in touched and e.index_file.index_type == DELETION_VECTORS
        )
        return replace(compact, deleted_indexes=tuple(deleted))

    def _check(self, step: CommitStep, changes: SnapshotChanges, latest: Snapshot | None, attempt: int) -> None:
        check_data_files(self._context, latest, changes)


def lost_vectors(setting: LabSetting) -> list[Story]:
    """One compaction marks rows of a file that another one rewrites; the vectors of the last commit replace the others."""
    return [_told("lost-deletion-vectors", setting, [5], TWO_ROWS, "two rows of one key are shown to readers")]


def dangling_vectors(setting: LabSetting) -> list[Story]:
    """One compaction marks rows of a file that another one merges away."""
    return [_told("dangling-deletion-vectors", setting, [4, 5], DANGLING, "a deletion vector marks rows of a file that is gone")]


def older_row_below(setting: LabSetting) -> list[Story]:
    """Each compaction takes the file of level 0 that it knows, and the one with the older file writes to the lower level."""
    compactor = functools.partial(level_compactor, [0], committer=_committer(setting))
    jobs = (compactor(3, picks=(0,)), compactor(4, picks=(1,)))
    scenario = after(Scenario("older-row-below", jobs, LOOKUP_OPTIONS, real_files=True), (TWICE,))
    return [_story(setting, scenario, OLDER_BELOW, "level 3 holds an older row than level 4, and lookups take it")]


def _told(case: str, setting: LabSetting, levels: Sequence[int], sign: str, damage: str) -> Story:
    compactor = functools.partial(level_compactor, committer=_committer(setting))
    jobs: tuple[Job, ...] = (compactor([0], 3), compactor(levels, 5))
    return _story(setting, after(Scenario(case, jobs, OPTIONS, real_files=True), (MARKED,)), sign, damage)


def _committer(setting: LabSetting) -> type[Committer]:
    return DataFilesCommitter if setting.check == OFF else Committer


def _story(setting: LabSetting, scenario: Scenario, sign: str, damage: str) -> Story:
    found = explore(scenario, most_findings=MOST_FINDINGS, most_switches=INTERRUPTIONS)
    story = Story(scenario.name, (setting.check,))
    shown = [finding for finding in found.findings if sign in finding.violations[0]]
    if shown:
        _tell(story, scenario, shown[0].schedule)
    if found.findings:
        damaged = f"{len(found.findings)} of {found.schedules} schedules end with damage, {len(shown)} of them with this one"
        return story.end(False, f"{damage}; {damaged}")
    return story.end(
        True, f"no damage in any of {found.schedules} schedules with {found.states:,} states, which are all with one interruption"
    )


def _tell(story: Story, scenario: Scenario, schedule: str) -> None:
    run = Run(scenario)
    for told in narrate(run, parse_schedule(schedule)):
        story.tell(f"compactor {told.actor + 1}", told.call)
    story.violations = list(run.violations)
    run.discard()
