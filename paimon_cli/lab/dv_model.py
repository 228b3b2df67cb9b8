"""An abstract model of writers and compactors on a table with deletion vectors, small enough to explore completely.

Writers add level-0 files. A compactor merges some levels into the lowest of them, or one below; rows of level 0 mark older
rows of their keys, further down, in the bucket's deletion vectors. Readers see the unmarked rows above level 0. Every job
reads the table, prepares its commit on the latest snapshot, and publishes it if no other snapshot came in between. What
Paimon checks is that the files that a compaction replaces are still there; the vectors of the last commit win.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

WRITE, COMPACT = "write", "compaction"


class Check(enum.Enum):
    """What a compaction must find before it is published. That the files that it replaces are there is always checked.

    FILES: nothing more (Java, for tables with a primary key). INDEX: if it replaces the bucket's vectors, those that it had
    read. VECTORS: those that it had read in any case, and every file whose rows it marks. BUCKET: no compaction of the
    bucket since it was read; writers then look for other writers in the same way (the data conflict check).
    """

    FILES = "files"
    INDEX = "index"
    VECTORS = "vectors"
    BUCKET = "bucket"


class Row(NamedTuple):
    """`born`: the write that made it, counted over all writers; `sequence`: what its writer numbered it."""

    key: int
    sequence: int
    born: int


class File(NamedTuple):
    name: str
    level: int
    rows: tuple[Row, ...]


class Mark(NamedTuple):
    """A bit of a deletion vector."""

    file: str
    key: int


class Bucket(NamedTuple):
    """`replaced` counts how often the vectors were replaced; `expected` holds, per key, the row that readers must see."""

    files: frozenset[File] = frozenset()
    vectors: frozenset[Mark] = frozenset()
    replaced: int = 0
    expected: tuple[tuple[int, int], ...] = ()


EMPTY = Bucket()


class Change(NamedTuple):
    """What a job wants to commit. `vectors` are all of the bucket's after it, None if it leaves them alone."""

    kind: str
    bucket: int
    added: File
    removed: frozenset[str]
    vectors: frozenset[Mark] | None
    marked: frozenset[str]
    read_id: int
    read_replaced: int


class Job(NamedTuple):
    """An actor at work: `prepared_on` is the snapshot that its prepared commit follows, -1 before it is prepared."""

    change: Change
    prepared_on: int = -1


class State(NamedTuple):
    """`log`: kind and bucket of each snapshot, oldest first; `jobs` has one place per actor."""

    log: tuple[tuple[str, int], ...]
    buckets: tuple[Bucket, ...]
    jobs: tuple[Job | None, ...]
    writes: int
    compactions: int
    crashes: int


@dataclass(frozen=True)
class DvModel:
    """The constants. `own_buckets`: actor i of each kind works in bucket i only (topology 1); else all share one bucket."""

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

    # starting a job: read the table, write data files

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
        """Merge levels `level` to `target` into `target`; a level alone is rewritten without its marked rows."""
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

    # committing

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
    """Files by their difference, vectors as a whole: the last commit's are the bucket's."""
    settled = [row for file in bucket.files if file.level == 0 and file.name in change.removed for row in file.rows]
    expected = dict(bucket.expected)
    for row in settled:
        expected[row.key] = max(expected.get(row.key, 0), row.born)
    files = frozenset(file for file in bucket.files if file.name not in change.removed) | {change.added}
    if change.vectors is None:
        return Bucket(files, bucket.vectors, bucket.replaced, tuple(sorted(expected.items())))
    return Bucket(files, change.vectors, bucket.replaced + 1, tuple(sorted(expected.items())))
