"""An abstract model of writers and compactors on a table with deletion vectors, and a complete search of its states."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from paimon_cli.commit.data_conflict import OFF
from paimon_cli.lab.lab_table import LabSetting
from paimon_cli.lab.story import Story

WRITE, COMPACT = "write", "compaction"


class Check(enum.Enum):
    """What a compaction checks before it is published. It always checks that the files that it replaces are live.

    FILES: nothing else (Java, for tables with a primary key). INDEX: if it replaces the vectors of the bucket, they are those
    that it read. VECTORS: they are those that it read in any case, and every file that it marks is live. BUCKET: no other
    compaction of the bucket since it was read; writers check for other writers in the same way (the data conflict check).
    """

    FILES = "files"
    INDEX = "index"
    VECTORS = "vectors"
    BUCKET = "bucket"


class Row(NamedTuple):
    """A row. `born`: the write that created it, counted over all writers; `sequence`: the number that its writer gave it."""

    key: int
    sequence: int
    born: int


class File(NamedTuple):
    name: str
    level: int
    rows: tuple[Row, ...]


class Mark(NamedTuple):
    """One position of a deletion vector."""

    file: str
    key: int


class Bucket(NamedTuple):
    """The state of a bucket. `replaced` counts how often its vectors were replaced; `expected` is the row that readers must see,
    by key.
    """

    files: frozenset[File] = frozenset()
    vectors: frozenset[Mark] = frozenset()
    replaced: int = 0
    expected: tuple[tuple[int, int], ...] = ()


EMPTY = Bucket()


class Change(NamedTuple):
    """What a job wants to commit. `vectors` are all vectors of the bucket afterwards, None if they stay as they are."""

    kind: str
    bucket: int
    added: File
    removed: frozenset[str]
    vectors: frozenset[Mark] | None
    marked: frozenset[str]
    read_id: int
    read_replaced: int


class Job(NamedTuple):
    """An actor at work. `prepared_on` is the snapshot on which its commit was prepared, -1 before that."""

    change: Change
    prepared_on: int = -1


class State(NamedTuple):
    """A state of the model. `log`: commit kind and bucket of each snapshot, oldest first; `jobs` has one entry per actor."""

    log: tuple[tuple[str, int], ...]
    buckets: tuple[Bucket, ...]
    jobs: tuple[Job | None, ...]
    writes: int
    compactions: int
    crashes: int


@dataclass(frozen=True)
class DvModel:
    """The parameters of the model. `own_buckets`: actor i of each kind works in bucket i only (topology 1); else all share one
    bucket.
    """

    writers: int = 1
    compactors: int = 2
    writes: int = 2
    compactions: int = 3
    highest_level: int = 3
    own_buckets: bool = False
    crashes: int = 0
    check: Check = Check.FILES
    beginning: Bucket = EMPTY

    def begin(self) -> State:
        count = max(self.writers, self.compactors) if self.own_buckets else 1
        jobs = (None,) * (self.writers + self.compactors)
        return State((), (self.beginning,) * count, jobs, self.writes, self.compactions, self.crashes)

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Every step that any actor can take, with its description."""
        for actor, job in enumerate(state.jobs):
            if job is None:
                yield from self._starts(state, actor)
            elif job.prepared_on < 0:
                yield self._prepared(state, actor, job)
            else:
                yield self._published(state, actor, job)
            if job is not None and state.crashes:
                yield f"{self.name(actor)}: crashes", _with_job(state, actor, None)._replace(crashes=state.crashes - 1)

    def name(self, actor: int) -> str:
        is_writer = actor < self.writers
        return f"writer {actor + 1}" if is_writer else f"compactor {actor - self.writers + 1}"

    def bucket_of(self, actor: int) -> int:
        if not self.own_buckets:
            return 0
        return actor if actor < self.writers else actor - self.writers

    # start of a job: read the table, write data files

    def _starts(self, state: State, actor: int) -> Iterator[tuple[str, State]]:
        number = self.bucket_of(actor)
        bucket = state.buckets[number]
        if actor < self.writers:
            if state.writes:
                yield self._write(state, actor, number, bucket)
        elif state.compactions:
            for level in sorted({file.level for file in bucket.files}):
                for target in range(level + 1, self.highest_level + 1):
                    yield self._compaction(state, actor, number, bucket, level, target)
                if any(mark.file == file.name for file in bucket.files if file.level == level for mark in bucket.vectors):
                    yield self._compaction(state, actor, number, bucket, level, level)

    def _write(self, state: State, actor: int, number: int, bucket: Bucket) -> tuple[str, State]:
        born = max((born for _, born in self.beginning.expected), default=0) + self.writes - state.writes + 1
        sequence = max((row.sequence for file in bucket.files for row in file.rows), default=0) + 1
        file = File(f"w{born}", 0, (Row(0, sequence, born),))
        change = Change(WRITE, number, file, frozenset(), None, frozenset(), len(state.log), bucket.replaced)
        label = f"{self.name(actor)}: reads snapshot {len(state.log)} and writes {file.name} to level 0"
        return label, _with_job(state, actor, Job(change))._replace(writes=state.writes - 1)

    def _compaction(self, state: State, actor: int, number: int, bucket: Bucket, level: int, target: int) -> tuple[str, State]:
        """Merge the levels from `level` to `target` into `target`; a single level is rewritten without its deleted rows."""
        merged = {file.name: file for file in bucket.files if level <= file.level <= target}
        newest: dict[int, Row] = {}
        for file in merged.values():
            for row in file.rows:
                if Mark(file.name, row.key) not in bucket.vectors and _is_newer(row, newest.get(row.key)):
                    newest[row.key] = row
        kept = frozenset(mark for mark in bucket.vectors if mark.file not in merged)
        marks = frozenset(
            Mark(file.name, row.key)
            for file in bucket.files
            if level == 0 and file.level > target
            for row in file.rows
            if row.key in newest
        )
        name = f"c{len(self.beginning.files) + self.compactions - state.compactions + 1}"
        result = File(name, target, tuple(newest[key] for key in sorted(newest)))
        vectors = kept | marks
        change = Change(
            COMPACT,
            number,
            result,
            frozenset(merged),
            None if vectors == bucket.vectors else vectors,
            frozenset(mark.file for mark in marks - kept),
            len(state.log),
            bucket.replaced,
        )
        said = f" and marks its key in {', '.join(sorted(change.marked))}" if change.marked else ""
        done = f"merges {', '.join(sorted(merged))} into {name} at level {target}{said}"
        label = f"{self.name(actor)}: reads snapshot {len(state.log)}, {done}"
        return label, _with_job(state, actor, Job(change))._replace(compactions=state.compactions - 1)

    # commit

    def _prepared(self, state: State, actor: int, job: Job) -> tuple[str, State]:
        why = self._conflict(state, job.change)
        if why:
            return f"{self.name(actor)}: aborts, {why}", _with_job(state, actor, None)
        prepared = Job(job.change, len(state.log))
        return f"{self.name(actor)}: prepares its commit on snapshot {len(state.log)}", _with_job(state, actor, prepared)

    def _conflict(self, state: State, change: Change) -> str:
        bucket = state.buckets[change.bucket]
        alive = {file.name for file in bucket.files}
        if change.removed - alive:
            return f"{min(change.removed - alive)} is gone"
        others = change.kind == COMPACT and change.read_replaced != bucket.replaced
        if others and (self.check is Check.VECTORS or (self.check is Check.INDEX and change.vectors is not None)):
            return "the vectors of the bucket were replaced"
        if self.check is Check.VECTORS and change.marked - alive:
            return f"{min(change.marked - alive)}, which it marks, is gone"
        if self.check is Check.BUCKET and (change.kind, change.bucket) in state.log[change.read_id :]:
            return f"another {change.kind} changed the bucket since snapshot {change.read_id}"
        return ""

    def _published(self, state: State, actor: int, job: Job) -> tuple[str, State]:
        if job.prepared_on != len(state.log):
            lost = f"{self.name(actor)}: finds snapshot {job.prepared_on + 1} taken, and begins again from the latest"
            return lost, _with_job(state, actor, Job(job.change))
        change = job.change
        bucket = _applied(state.buckets[change.bucket], change)
        buckets = (*state.buckets[: change.bucket], bucket, *state.buckets[change.bucket + 1 :])
        log = (*state.log, (change.kind, change.bucket))
        after = _with_job(state, actor, None)._replace(log=log, buckets=buckets)
        return f"{self.name(actor)}: publishes snapshot {len(log)}", after


TWO_LEVELS = Bucket(
    files=frozenset({File("c1", 3, (Row(0, 1, 1),)), File("c2", 2, (Row(0, 2, 2),))}),
    vectors=frozenset({Mark("c1", 0)}),
    replaced=1,
    expected=((0, 2),),
)
"""One key, written twice: the older row lies at level 3 and is marked, the newer one at level 2."""


def _is_newer(row: Row, other: Row | None) -> bool:
    return other is None or (row.sequence, row.born) > (other.sequence, other.born)


def _with_job(state: State, actor: int, job: Job | None) -> State:
    return state._replace(jobs=(*state.jobs[:actor], job, *state.jobs[actor + 1 :]))


def _applied(bucket: Bucket, change: Change) -> Bucket:
    """The bucket after the change: files by their difference, vectors as a whole, so that the last commit determines them."""
    compacted = [row for file in bucket.files if file.level == 0 and file.name in change.removed for row in file.rows]
    expected = dict(bucket.expected)
    for row in compacted:
        expected[row.key] = max(expected.get(row.key, 0), row.born)
    files = frozenset(file for file in bucket.files if file.name not in change.removed) | {change.added}
    if change.vectors is None:
        return Bucket(files, bucket.vectors, bucket.replaced, tuple(sorted(expected.items())))
    return Bucket(files, change.vectors, bucket.replaced + 1, tuple(sorted(expected.items())))


DANGLING, TWO_ROWS, WRONG_ROW = "dangling vector", "two live rows", "wrong row"
DAMAGES = {
    DANGLING: "a deletion vector marks rows of a file that is gone",
    TWO_ROWS: "two rows of one key are shown to readers",
    WRONG_ROW: "readers see another row than the one committed last",
}


@dataclass
class Exploration:
    """The result of a search. `traces`: the steps that lead to each kind of damage. `complete`: all reachable states were
    visited.
    """

    states: int = 0
    complete: bool = False
    traces: dict[str, list[str]] = field(default_factory=dict)


def damages_of(bucket: Bucket) -> Iterator[str]:
    """The damage that a reader of the latest snapshot sees."""
    alive = {file.name for file in bucket.files}
    if any(mark.file not in alive for mark in bucket.vectors):
        yield DANGLING
    shown: dict[int, list[int]] = {}
    for file in bucket.files:
        for row in file.rows if file.level else ():
            if Mark(file.name, row.key) not in bucket.vectors:
                shown.setdefault(row.key, []).append(row.born)
    if any(len(rows) > 1 for rows in shown.values()):
        yield TWO_ROWS
    elif {key: rows[0] for key, rows in shown.items()} != dict(bucket.expected):
        yield WRONG_ROW


def explore(model: DvModel, *, most_states: int | None = None, until: frozenset[str] = frozenset()) -> Exploration:
    """Visit all states, or stop when every damage of `until` was found. Damaged states are not followed any further."""
    begin = model.begin()
    parents: dict[State, tuple[State, str] | None] = {begin: None}
    level, result = [begin], Exploration()
    while level:
        following: list[State] = []
        for state in level:
            for label, after in model.steps(state):
                if after in parents:
                    continue
                parents[after] = (state, label)
                damages = [d for bucket in after.buckets for d in damages_of(bucket)] if after.log != state.log else []
                for damage in damages:
                    result.traces.setdefault(damage, _trace(parents, after))
                if not damages:
                    following.append(after)
            if (until and until <= result.traces.keys()) or (most_states is not None and len(parents) >= most_states):
                result.states = len(parents)
                return result
        level = following
    result.states, result.complete = len(parents), True
    return result


def _trace(parents: dict[State, tuple[State, str] | None], state: State) -> list[str]:
    steps: list[str] = []
    while (parent := parents[state]) is not None:
        state, label = parent
        steps.append(label)
    return steps[::-1]


def lost_vectors(setting: LabSetting) -> list[Story]:
    """One compactor marks rows while another one rewrites marked files; the vectors of the last commit replace the others."""
    model = DvModel(writers=1, compactors=2, writes=1, compactions=2, check=_check(setting.check), beginning=TWO_LEVELS)
    return [_told("lost-deletion-vectors", setting.check, explore(model), TWO_ROWS)]


def dangling_vectors(setting: LabSetting) -> list[Story]:
    """One compactor marks rows of a file while another one removes that file by a merge."""
    model = DvModel(writers=1, compactors=2, writes=2, compactions=3, highest_level=3, check=_check(setting.check))
    return [_told("dangling-deletion-vectors", setting.check, explore(model), DANGLING)]


def _check(check: str) -> Check:
    return Check.FILES if check == OFF else Check.BUCKET


def _told(case: str, check: str, found: Exploration, damage: str) -> Story:
    story = Story(case, (check,), "model")
    for step in found.traces.get(damage, []):
        who, _, what = step.partition(": ")
        story.tell(who, what)
    if found.traces:
        listed = ", ".join(f"{name} after {len(steps)} steps" for name, steps in sorted(found.traces.items()))
        return story.end(False, f"{DAMAGES[damage]}; {found.states:,} states explored, damage found: {listed}")
    return story.end(True, f"no damage in any of {found.states:,} states, which are all there are")
