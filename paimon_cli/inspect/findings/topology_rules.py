"""Rules about the arrangement of writers: who writes which buckets at the same time, who commits, and who compacts.

The history shows it, whichever engine wrote it: a writer numbers its rows above those that it has seen. If the level-0 files of a
commit begin at or below the numbers that another user had reached in the same bucket, its writer had not seen that commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from paimon_cli.commit.deduplication import commits_in
from paimon_cli.errors import DamagedFile, NotFound
from paimon_cli.inspect.findings.examined_table import ExaminedTable
from paimon_cli.inspect.findings.finding import OK, TOPOLOGY, WARNING, Figure, Finding, Topic, rule, well
from paimon_cli.metadata.data_file import BucketId, EntryKind
from paimon_cli.metadata.snapshot import APPEND, COMPACT, OVERWRITE, Snapshot
from paimon_cli.options.choices import ConflictCheck
from paimon_cli.options.option_text import counted
from paimon_cli.storage.redaction import shown_name

LOOKED_AT = 200
"""The number of recent snapshots from which the arrangement is derived."""
_OURS = "paimon-cli."
"""How the properties of our snapshots begin."""
SHOWN_USERS = 3
CHECKED = ("commit.data-conflict-check", "bucket")
"""The option that makes the second of two writers that did not see each other start again."""


@dataclass
class Writers:
    """Who wrote where in the recent history. `spans`: first and last snapshot id of the rows of a user. `unseen`: snapshots whose
    writer had not seen an earlier commit of another user in the same bucket, with that user. `jointly`: the most writers that one
    commit was made for.
    """

    snapshots: int = 0
    spans: dict[str, tuple[int, int]] = field(default_factory=dict)
    buckets: dict[str, set[BucketId]] = field(default_factory=dict)
    compacting: set[str] = field(default_factory=set)
    unseen: list[tuple[Snapshot, str]] = field(default_factory=list)
    foreign: set[str] = field(default_factory=set)
    jointly: int = 0
    _reached: dict[BucketId, dict[str, int]] = field(default_factory=dict)

    @staticmethod
    def of(table: ExaminedTable) -> Writers:
        found = Writers()
        for snapshot in reversed(list(table.context.snapshots.newest_first(LOOKED_AT, on_damage=table.note_damage))):
            try:
                found.add(table, snapshot)
            except (DamagedFile, NotFound) as error:
                table.note_damage(error)
        return found

    def add(self, table: ExaminedTable, snapshot: Snapshot) -> None:
        """Take the next snapshot into account; older ones come first."""
        self.snapshots += 1
        user, properties = snapshot.commit_user, snapshot.properties or {}
        if snapshot.commit_kind == COMPACT:
            self.compacting.add(user)
            return
        if snapshot.commit_kind not in (APPEND, OVERWRITE):
            return
        entries = table.context.manifests.delta_entries(snapshot)
        for entry in entries:
            if entry.kind == EntryKind.DELETE:  # an overwrite: the rows before it have no versions any more
                self._reached.pop(entry.bucket_id, None)
        first, _ = self.spans.get(user, (snapshot.id, snapshot.id))
        self.spans[user] = first, snapshot.id
        if not any(name.startswith(_OURS) for name in properties):
            self.foreign.add(user)
        self.jointly = max(self.jointly, len(commits_in(snapshot)) - 1)
        before: set[str] = set()
        numbers: dict[BucketId, int] = {}
        for entry in entries:
            if entry.kind == EntryKind.ADD:
                self.buckets.setdefault(user, set()).add(entry.bucket_id)
            if entry.kind == EntryKind.ADD and entry.file.level == 0 and entry.bucket >= 0 and table.context.mode.has_keys:
                others = self._reached.get(entry.bucket_id, {})
                before |= {o for o, highest in others.items() if o != user and entry.file.min_sequence_number <= highest}
                numbers[entry.bucket_id] = max(numbers.get(entry.bucket_id, -1), entry.file.max_sequence_number)
        self.unseen += [(snapshot, other) for other in sorted(before)]
        for bucket_id, highest in numbers.items():
            reached = self._reached.setdefault(bucket_id, {})
            reached[user] = max(highest, reached.get(user, -1))

    @property
    def concurrent(self) -> set[str]:
        """The users that wrote at the same time as another: their commits interleave, or they did not see each other."""
        users = sorted(self.spans, key=lambda user: self.spans[user])
        found = {snapshot.commit_user for snapshot, _ in self.unseen} | {other for _, other in self.unseen}
        last = None
        for user in users:
            if last is not None and self.spans[user][0] < self.spans[last][1]:
                found |= {user, last}
            if last is None or self.spans[user][1] > self.spans[last][1]:
                last = user
        return found

    def shared_partitions(self, users: Iterable[str]) -> bool:
        """Whether several of these users wrote to the same partition."""
        partitions = [{bucket_id.partition for bucket_id in self.buckets.get(user, set())} for user in users]
        return len(set[bytes]().union(*partitions)) < sum(map(len, partitions))

    def shared(self, users: Iterable[str]) -> set[BucketId]:
        """The buckets to which several of these users wrote."""
        seen, twice = set[BucketId](), set[BucketId]()
        for user in users:
            own = self.buckets.get(user, set())
            twice |= own & seen
            seen |= own
        return twice


@rule(Topic.HISTORY, "PD029", cost=TOPOLOGY)
def writers_of_a_bucket_see_each_other(table: ExaminedTable) -> Iterator[Finding]:
    """The arrangement in which the table is really written, and whether concurrent writers of a bucket have an order."""
    writers = Writers.of(table)
    if not writers.spans:
        yield well("topology", "no recent commit wrote rows", snapshots=writers.snapshots)
        return
    concurrent = writers.concurrent
    shared = writers.shared(concurrent)
    figures: dict[str, Figure] = {
        "snapshots": writers.snapshots,
        "writing_users": len(writers.spans),
        "concurrent_users": len(concurrent),
        "shared_buckets": len(shared),
        "unseen_commits": len(writers.unseen),
        "compacting_users": len(writers.compacting),
    }
    said = f"{_arrangement(table, writers, concurrent, shared)}; {_compactors(table, writers)}"
    wrong = _wrong(table, writers, concurrent)
    if wrong is None:
        yield Finding("", OK, "topology", f"{said}; {_why_right(table, writers, concurrent, shared)}", figures=figures)
        return
    is_foreign = bool(concurrent & writers.foreign)
    cure, command = _cure(table, is_foreign)
    remedy = None if is_foreign else table.setting(*CHECKED)
    message = f"{said}; {wrong}; {cure}"
    yield Finding("PD029", WARNING, "topology", message, command, figures=figures, threshold="0 commits", remedy=remedy)


def _arrangement(table: ExaminedTable, writers: Writers, concurrent: set[str], shared: set[BucketId]) -> str:
    looked = f"in the last {counted(writers.snapshots, 'snapshot')}"
    if not concurrent:
        if writers.jointly > 1:
            return f"{looked}, up to {writers.jointly} writers had one committer"
        users = counted(len(writers.spans), "user")
        if len(writers.spans) == 1:
            return f"{looked}, {users} wrote and committed alone"
        is_told = not table.context.options.sequence_snapshot_ordering  # otherwise all rows have the number of their snapshot
        return f"{looked}, {users} {'wrote and committed' if is_told else 'committed'}, one after the other"
    names = ", ".join(map(shown_name, sorted(concurrent)[:SHOWN_USERS])) + (", ..." if len(concurrent) > SHOWN_USERS else "")
    when = "at the same time" if writers.unseen else "by turns"
    who = f"{looked}, {counted(len(concurrent), 'user')} wrote and committed {when} ({names})"
    if not shared:
        return f"{who}, each to buckets of its own (topology 1)"
    return f"{who}, several of them to the same {counted(len(shared), 'bucket')} (topology 2)"


def _compactors(table: ExaminedTable, writers: Writers) -> str:
    also_wrote, dedicated = writers.compacting & writers.spans.keys(), writers.compacting - writers.spans.keys()
    between = "between writes" if table.context.options.write_only else "inline"
    parts = [f"{counted(len(also_wrote), 'writer')} compacted {between}"] if also_wrote else []
    parts += [f"{counted(len(dedicated), 'dedicated job')} compacted"] if dedicated else []
    return " and ".join(parts) or "no compaction ran"


def _wrong(table: ExaminedTable, writers: Writers, concurrent: set[str]) -> str | None:
    """What is wrong with the arrangement; None if nothing is."""
    mode, options = table.context.mode, table.context.options
    if not concurrent or not mode.has_keys:
        return None
    is_checked = options.commit_data_conflict_check != ConflictCheck.OFF and not concurrent & writers.foreign
    dynamic = mode.bucket_mode.is_chosen_by_writers
    if dynamic and writers.shared_partitions(concurrent) and concurrent & writers.foreign:
        return "with dynamic buckets, two writers of a partition may give a new key two buckets"
    if not writers.unseen or is_checked or options.sequence_snapshot_ordering or options.sequence_fields:
        return None
    snapshot, other = writers.unseen[-1]
    return (
        f"{counted(len(writers.unseen), 'commit')} did not see what another user had committed to the same bucket, the last one "
        f"in snapshot {snapshot.id} (user {shown_name(snapshot.commit_user)}, after {shown_name(other)}): which row of a key "
        "wins is left to chance"
    )


def _cure(table: ExaminedTable, is_foreign: bool) -> tuple[str, str]:
    """What the users of these writers can do, and a command for it; other engines know none of our options."""
    options = table.context.options
    if not is_foreign:
        return "a check refuses the second of two such writers", table.altered(*CHECKED)
    one_job = "let one job write each bucket, for example one Flink job with a UNION ALL or a statement set"
    if table.context.mode.bucket_mode.is_chosen_by_writers:
        return f"{one_job}; the command finds keys in two buckets", f"paimon-cli verify {table.argument} --only bucket-index"
    if options.merge_engine.oldest_wins:
        return one_job, ""
    return f"{one_job}, or name a column that orders the rows", table.altered("sequence.field", "COLUMN")


def _why_right(table: ExaminedTable, writers: Writers, concurrent: set[str], shared: set[BucketId]) -> str:
    options = table.context.options
    if not concurrent and options.sequence_snapshot_ordering and len(writers.spans) > 1:
        return "whether they met cannot be told, nor does it matter: the later commit wins (sequence.snapshot-ordering)"
    if not concurrent:
        return "no two writers met"
    if not table.context.mode.has_keys:
        return "rows without a key have no order to keep"
    if not shared:
        return "no check is needed while buckets have one writer each"
    if options.sequence_snapshot_ordering:
        return "the later commit wins (sequence.snapshot-ordering)"
    if options.sequence_fields:
        return "a column decides which row wins (sequence.field)"
    if options.commit_data_conflict_check != ConflictCheck.OFF:
        return "the data conflict check refuses the second of two writers (commit.data-conflict-check)"
    return "so far each writer has seen the rows before its own; nothing ensures that"
