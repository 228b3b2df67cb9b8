"""Anomalies of deletion vectors and lookups: two compactions of one bucket interrupt each other. All code and files are real.

With granularity `off`, the commit checks only data files, not deletion vectors or the levels that lookups have read, and the
vectors of the last commit win, as in Java for tables with a primary key. With any other granularity it is the shipped commit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

from paimon_cli.commit.commit_messages import CommitKind, SnapshotChanges, compact_changes
from paimon_cli.commit.committer import CommitStep, Committer
from paimon_cli.commit.data_conflict import OFF
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.commit.files_conflict import check_data_files
from paimon_cli.commit.outcome import CommitResult
from paimon_cli.lab.bucket_story import Reported, tell
from paimon_cli.lab.lab_table import LabSetting
from paimon_cli.lab.simulation.actor import Job
from paimon_cli.lab.simulation.actor_jobs import in_turn, rows
from paimon_cli.lab.simulation.exploration import explore
from paimon_cli.lab.simulation.real_jobs import level_compactor, real_compactor, real_writer
from paimon_cli.lab.simulation.run import Run, after
from paimon_cli.lab.simulation.scenario import Scenario
from paimon_cli.lab.simulation.schedule import Step, parse_schedule
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
MAX_FINDINGS = 10_000
INTERRUPTIONS = 1
"""The most interruptions of one compaction by the other; the simulation in the tests has no such limit."""
TWO_ROWS, DANGLING, OLDER_BELOW = "PV033", "PV065", "PV059"

LOOKUP_OPTIONS = {"bucket": "1", "write-only": "true", "changelog-producer": "lookup"}
TWICE = in_turn(
    real_writer("first", rows(0, 8, 9)),
    real_compactor(),
    real_writer("second", rows(0, 1, value="old")),
    real_writer("third", rows(0, 1, value="new")),
)
"""Two level-0 files; the newer one replaces the row of the older one."""


class DataFilesCommitter(Committer):
    """Commits compactions without checking deletion vectors, so the last commit to a bucket replaces its vectors."""

    def commit(
        self,
        messages: Sequence[CommitMessage],
        identity: CommitIdentity,
        kind: CommitKind = CommitKind.WRITE,
        *,
        watermark: int | None = None,
        work_begin_millis: int | None = None,
    ) -> CommitResult:
        changes = functools.partial(self._replacing, compact_changes(messages))
        return self._commit([CommitStep(changes)], identity, watermark, work_begin_millis)

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
    """One compaction marks rows of a file that another one rewrites, and the last commit discards the vectors of the first."""
    return [_vector_story("lost-deletion-vectors", setting, [5], TWO_ROWS, "readers see two rows with the same key")]


def dangling_vectors(setting: LabSetting) -> list[Story]:
    """One compaction marks rows of a file that another one merges away."""
    return [
        _vector_story(
            "dangling-deletion-vectors", setting, [4, 5], DANGLING, "a deletion vector marks rows of a file that no longer exists"
        )
    ]


def older_row_below(setting: LabSetting) -> list[Story]:
    """Two compactions each take one level-0 file, and the one with the newer file writes to the deeper level."""

    def jobs(committer: type[Committer]) -> tuple[Job, ...]:
        compactor = functools.partial(level_compactor, [0], committer=committer)
        return compactor(3, picks=(0,)), compactor(4, picks=(1,))

    scenario = after(Scenario("older-row-below", (), LOOKUP_OPTIONS, real_files=True), (TWICE,))
    damage = "level 3 holds an older row than level 4, and lookups return the older row"
    return [_story(setting, scenario, jobs, OLDER_BELOW, damage)]


def _vector_story(case: str, setting: LabSetting, levels: Sequence[int], sign: str, damage: str) -> Story:
    def jobs(committer: type[Committer]) -> tuple[Job, ...]:
        return level_compactor([0], 3, committer=committer), level_compactor(levels, 5, committer=committer)

    scenario = after(Scenario(case, (), OPTIONS, real_files=True), (MARKED,))
    return _story(setting, scenario, jobs, sign, damage)


def _story(
    setting: LabSetting, beginning: Scenario, jobs: Callable[[type[Committer]], tuple[Job, ...]], sign: str, damage: str
) -> Story:
    """Search all schedules, then tell one: the first with this sign of damage, otherwise the first with a refused commit."""
    committer = DataFilesCommitter if setting.check == OFF else Committer
    refused: list[list[Step]] = []

    def note_refusal(run: Run) -> None:
        if beginning.memory is not None and run.oracle.memory.newest == beginning.memory.newest + 1:
            refused.append(run.steps.copy())

    scenario = replace(beginning, jobs=jobs(committer))
    found = explore(scenario, max_findings=MAX_FINDINGS, max_switches=INTERRUPTIONS, on_end=note_refusal)
    shown = [finding for finding in found.findings if any(sign in violation for violation in finding.violations)]
    for chosen in [parse_schedule(shown[0].schedule)] if shown else refused:
        story, reported = Story(scenario.name, (setting.check,)), Reported(committer)
        tell(story, replace(beginning, jobs=jobs(reported.committer)), chosen, reported.conflicts)
        if reported.conflicts:
            break  # in the other schedules one job starts after the other has ended, and finds nothing left to do
    if found.findings:
        damaged = f"{len(found.findings)} of {found.schedules} schedules end with damage, {len(shown)} of them with this kind"
        return story.end(False, f"{damage}; {damaged}")
    return story.end(
        True, f"no damage in any of {found.schedules} schedules with {found.states:,} states: all that have one interruption"
    )
