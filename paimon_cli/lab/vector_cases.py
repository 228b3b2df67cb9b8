"""Anomalies of deletion vectors and lookups: two compactions of one bucket interrupt each other. All code and files are real.

With granularity `off`, the commit checks only data files, not deletion vectors or the levels that lookups have read, and the
vectors of the last commit win, as in Java for tables with a primary key. With any other granularity it is the shipped commit.

A schedule is told as a story: which job takes which files, marks which rows, at which level.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paimon_cli.bucket.data_file_reader import read_data_file
from paimon_cli.bucket.deletion_vectors import load_vectors
from paimon_cli.commit.commit_messages import SnapshotChanges
from paimon_cli.commit.committer import CommitStep, Committer
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.commit.files_conflict import check_data_files
from paimon_cli.commit.outcome import CommitResult
from paimon_cli.errors import Conflict
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.invariants.version import Version
from paimon_cli.lab.lab_table import LabSetting
from paimon_cli.lab.simulation.actor import Job
from paimon_cli.lab.simulation.actor_jobs import in_turn, rows
from paimon_cli.lab.simulation.exploration import explore
from paimon_cli.lab.simulation.publication import new_reader
from paimon_cli.lab.simulation.real_files import MANY_ROWS
from paimon_cli.lab.simulation.real_jobs import level_compactor, real_compactor, real_writer
from paimon_cli.lab.simulation.run import Run, after
from paimon_cli.lab.simulation.scenario import Scenario
from paimon_cli.lab.simulation.schedule import ScheduledStep, parse_schedule
from paimon_cli.lab.story import PUBLISHED, TAKEN, Story
from paimon_cli.metadata.data_file import DELETION_VECTORS, CommitMessage, EntryKind, IndexManifestEntry, ManifestEntry
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import SNAPSHOT_PREFIX
from paimon_cli.options.choices import ConflictCheck

Marks = Mapping[str, frozenset[int]]
"""Data file name -> the positions of its rows that deletion vectors mark."""


class Reported:
    """Makes a committer that also reports its conflict, which the job of an actor otherwise keeps to itself."""

    def __init__(self, committer: type[Committer]) -> None:
        self.conflicts: list[Conflict] = []
        conflicts = self.conflicts

        class Reporting(committer):  # type: ignore[misc, valid-type]
            def commit(self, messages: Sequence[CommitMessage], identity: CommitIdentity, **options: Any) -> CommitResult:
                try:
                    result: CommitResult = super().commit(messages, identity, **options)
                except Conflict as conflict:
                    conflicts.append(conflict)
                    raise
                return result

        self.committer: type[Committer] = Reporting


class BucketPicture:
    """The only bucket of the table at one version: its files by level, their rows, and the marked ones."""

    def __init__(self, version: Version) -> None:
        self.version = version
        self.index_names = frozenset(entry.index_file.file_name for entry in version.index_entries)

    @property
    def marks(self) -> Marks:
        entries = self.version.live
        indexes = tuple(entry.index_file for entry in self.version.index_entries)
        bucket = BucketFiles(*entries[0].bucket_id, entries[0].total_buckets, (), indexes)
        vectors = load_vectors(self.version.context, bucket).by_file
        return {name: frozenset(map(int, vectors[name].positions)) for name in vectors}

    def rows(self, entry: ManifestEntry) -> list[str]:
        """The rows of a file, in file order, as `k=1 old`."""
        found: list[str] = []
        for batch in read_data_file(self.version.context, entry.bucket_id, entry.file, ("k", "v"), MANY_ROWS):
            found += (f"k={row['k']} {row['v']}" for row in batch.to_pylist())
        return found

    def drawn(self) -> list[str]:
        """One line per file, from level 0 down; marked rows in brackets. Marks of files that are not there follow."""
        marks = self.marks
        lines = []
        for entry in sorted(self.version.live, key=lambda entry: entry.file.level):
            marked = marks.get(entry.file.file_name, frozenset())
            rows = [f"[{row}]" if position in marked else row for position, row in enumerate(self.rows(entry))]
            lines.append(f"level {entry.file.level}   {entry.file.file_name}   {'  '.join(rows)}")
        live = {entry.file.file_name for entry in self.version.live}
        for name, positions in marks.items():
            if name not in live:
                rows_ = "row" if len(positions) == 1 else "rows"
                lines.append(f"a vector marks {len(positions)} {rows_} of {name}, which is not in the bucket")
        return lines


@dataclass(frozen=True)
class _Put:
    """A snapshot that an actor put, whether it was created, and the snapshot before it. `calls`: what the actor called before."""

    actor: int
    calls: tuple[str, ...]
    picture: BucketPicture
    before: BucketPicture
    created: bool


@dataclass(frozen=True)
class _Planned:
    actor: int
    calls: tuple[str, ...]
    picture: BucketPicture


@dataclass(frozen=True)
class _Aborted:
    actor: int
    calls: tuple[str, ...]
    conflict: Conflict


def tell(story: Story, scenario: Scenario, steps: Sequence[ScheduledStep], conflicts: Sequence[Conflict]) -> None:
    """Record the steps of a schedule in the story. `conflicts`: filled by the committers of the actors (`Reported`)."""
    run = Run(scenario)
    first = _latest(run)
    events = list(_events(run, steps, conflicts))
    for entry in first.version.live:
        story.name_file(entry.file.file_name, "setup")
    for name in sorted(first.index_names):
        story.name_file(name, "vectors")
    _Teller(story, events).tell()
    story.bucket_before = [story.named(line) for line in first.drawn()]
    story.bucket_after = [story.named(line) for line in _latest(run).drawn()]
    root = scenario.layout.root
    story.violations = [
        story.named(violation.replace(f"{root}/index/", "").replace(f"{root}/", "")) for violation in run.violations
    ]
    run.discard()


def _latest(run: Run) -> BucketPicture:
    """The bucket at the newest snapshot, on a copy of the disk: an actor that loses the number deletes its metadata at once."""
    context = new_reader(run.scenario, run.disk.fork().look)
    newest = context.snapshots.latest()
    assert newest is not None
    return BucketPicture(Version(context, newest))


def _events(run: Run, steps: Sequence[ScheduledStep], conflicts: Sequence[Conflict]) -> list[_Put | _Planned | _Aborted]:
    """Take the possible ones of these steps, then any to the end; returns what a reader of the story has to know."""
    events: list[_Put | _Planned | _Aborted] = []
    looking: set[int] = set()
    made: defaultdict[int, list[str]] = defaultdict(list)
    snapshots = f"{run.scenario.layout.snapshot_directory}/snapshot-"
    rest = list(steps)
    while not run.violations and not run.is_over:
        step = rest.pop(0) if rest else run.calls()[0]
        if not run.can_take(step):
            continue
        call, before, known = run.roles[step.actor].pending, _latest(run), len(conflicts)
        run.take(step)
        if call is None:
            continue
        made[step.actor].append(f"{call.operation} {call.path.rpartition('/')[2]}")
        if call.path.startswith(snapshots) and call.operation == "exists" and step.actor not in looking:
            looking.add(step.actor)
            events.append(_Planned(step.actor, tuple(made.pop(step.actor)), before))
        elif call.path.startswith(snapshots) and call.operation == "put_if_absent":
            content = call.arguments[0]
            version = Version(before.version.context, Snapshot.from_json(content, call.path))
            created = run.disk.files.get(call.path) == content
            events.append(_Put(step.actor, tuple(made.pop(step.actor)), BucketPicture(version), before, created))
        events += [_Aborted(step.actor, tuple(made.pop(step.actor, ())), conflict) for conflict in conflicts[known:]]
    run.finish()
    return events


def _name(actor: int) -> str:
    return f"compactor {actor + 1}"


class _Teller:
    def __init__(self, story: Story, events: Sequence[_Put | _Planned | _Aborted]) -> None:
        self._story = story
        self._events = events
        self._puts: defaultdict[int, list[_Put]] = defaultdict(list)
        for event in events:
            if isinstance(event, _Put):
                self._puts[event.actor].append(event)
        self._plans: dict[int, BucketPicture] = {}

    def _record(self, actor: int, what: str, outcome: str = "", *, call: str = "", is_conflict: bool = False) -> None:
        self._story.record(_name(actor), what, outcome, call=call, is_conflict=is_conflict)

    def tell(self) -> None:
        for event in self._events:
            for call in event.calls:
                self._story.called(_name(event.actor), call)
            if isinstance(event, _Planned):
                self._plans[event.actor] = event.picture
                self._tell_write_phase(event.actor, event.picture)
            elif isinstance(event, _Put):
                self._tell_put(event)
            else:
                conflict = event.conflict
                self._record(event.actor, f"aborts, exit {conflict.exit_code} {conflict.code}", str(conflict), is_conflict=True)

    def _tell_write_phase(self, actor: int, read: BucketPicture) -> None:
        """What the job did between reading the table and its first put: no other job can see it before that put."""
        prepared = self._puts[actor][0].picture if self._puts[actor] else None
        number = read.version.snapshot.id
        if prepared is None:
            self._record(actor, f"plans at snapshot {number}")
            return
        removed = [entry for entry in prepared.version.delta if entry.kind != EntryKind.ADD]
        added = [entry for entry in prepared.version.delta if entry.kind == EntryKind.ADD]
        taken = ", ".join(f"{entry.file.file_name} (level {entry.file.level})" for entry in removed)
        self._record(actor, f"plans at snapshot {number}", f"merge {taken} into level {added[0].file.level if added else '-'}")
        marks = read.marks
        for entry in removed:
            rows = read.rows(entry)
            if marked := [rows[position] for position in sorted(marks.get(entry.file.file_name, ()))]:
                self._record(actor, f"leaves out the marked rows of {entry.file.file_name}", "; ".join(marked))
        known = {entry.file.file_name for entry in removed}
        for entry in added:
            if entry.file.file_name in known:
                self._record(actor, f"moves {entry.file.file_name} to level {entry.file.level}", "it is not rewritten")
                continue
            self._story.name_file(entry.file.file_name, _name(actor))
            self._record(
                actor,
                f"writes data file {entry.file.file_name} at level {entry.file.level}",
                "; ".join(prepared.rows(entry)) or "no rows",
                call=f"open_output {entry.file.file_name}",
            )
        self._tell_marks(actor, read, prepared)

    def _tell_marks(self, actor: int, read: BucketPicture, prepared: BucketPicture) -> None:
        new = sorted(prepared.index_names - self._seen(actor))
        for name in new:
            self._story.name_file(name, "vectors")
        before, after = read.marks, prepared.marks
        entries = {entry.file.file_name: entry for entry in (*read.version.live, *prepared.version.live)}
        for name, positions in after.items():
            fresh = sorted(positions - before.get(name, frozenset()))
            if fresh and name in entries:
                rows = read.rows(entries[name])
                marked = "; ".join(rows[position] for position in fresh)
                level = entries[name].file.level
                self._record(actor, f"marks rows of {name} (level {level}) in vector file {', '.join(new)}", marked)

    def _seen(self, actor: int) -> frozenset[str]:
        """The vector files that other jobs have made, as far as this job's first put names them."""
        others = (put.picture.index_names for other, puts in self._puts.items() if other != actor for put in puts[:1])
        return self._plans[actor].index_names.union(*others)

    def _tell_put(self, put: _Put) -> None:
        name = f"{SNAPSHOT_PREFIX}{put.picture.version.snapshot.id}"
        call = f"put_if_absent {name}"
        if not put.created:
            self._record(put.actor, f"puts {name}", TAKEN, call=call, is_conflict=True)
            return
        unread = put.before.index_names - self._plans[put.actor].index_names
        outcome = PUBLISHED
        if lost := sorted(unread - put.picture.index_names):
            outcome += f"; the vector file {', '.join(lost)}, which it has not read, is replaced"
        self._record(put.actor, f"puts {name}", outcome, call=call, is_conflict=bool(lost))


_OPTIONS = {"bucket": "1", "write-only": "true", "deletion-vectors.enabled": "true"}
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

    def _changes(self, step: CommitStep, latest: Snapshot | None) -> SnapshotChanges:
        return self._replacing(super()._changes(step, latest), latest)

    def _replacing(self, compact: SnapshotChanges, latest: Snapshot | None) -> SnapshotChanges:
        touched = {entry.bucket_id for entry in (*compact.new_indexes, *compact.deleted_indexes)}
        current = self._context.manifests.index_entries(latest) if latest else []
        deleted = (
            IndexManifestEntry(EntryKind.DELETE, e.partition, e.bucket, e.index_file)
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

    scenario = after(Scenario(case, (), _OPTIONS, real_files=True), (MARKED,))
    return _story(setting, scenario, jobs, sign, damage)


def _story(
    setting: LabSetting, beginning: Scenario, jobs: Callable[[type[Committer]], tuple[Job, ...]], sign: str, damage: str
) -> Story:
    """Search all schedules, then tell one: the first with this sign of damage, otherwise the first with a refused commit."""
    committer = DataFilesCommitter if setting.check == ConflictCheck.OFF else Committer
    refused: list[list[ScheduledStep]] = []

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
