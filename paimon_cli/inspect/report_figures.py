"""The figures of `report`: the current buckets of a table, and its history, walked backwards from the latest snapshot.

Their size is bounded: only the buckets with the most to merge are listed, the others are counted, and the changes of old
snapshots are not read.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile, islice
from typing import NamedTuple
from uuid import UUID

from paimon_cli.errors import DamagedFile, NotFound, PaimonError, UsageError
from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.history.partition_spec import partition_text
from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.compaction_report import DecisionRow, decision_rows, percent_above
from paimon_cli.inspect.findings.examined_table import ExaminedTable
from paimon_cli.inspect.health_report import HealthRow, health_of
from paimon_cli.inspect.lsm_report import RunRow, run_rows
from paimon_cli.inspect.spent_on_table import SpentOnTable
from paimon_cli.inspect.stored_bytes import StoredBytes
from paimon_cli.inspect.table_description import TableDescription, describe_table
from paimon_cli.inspect.version_report import SnapshotRow, snapshot_rows
from paimon_cli.lsm.sorted_runs import count_runs, sorted_runs
from paimon_cli.metadata.data_file import BucketId, DataFileMeta, EntryKind, ManifestEntry
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET, natural_order
from paimon_cli.storage.redaction import shown_name

_MAX_SNAPSHOTS, MAX_CHANGES = 20_000, 2_000
"""The most snapshots that are counted, and the most whose changes are read; newest first."""
_MAX_BUCKETS, MAX_TREES, MAX_RUNS, MAX_USERS = 30, 6, 40, 12
RANDOM_USERS = "one-off jobs"
"""The label of commit users that are random UUIDs, which jobs get without a name."""


@dataclass(frozen=True)
class Moment:
    """The table at one snapshot. `most_runs`, `mean_runs`: sorted runs per bucket; `space_percent`: space amplification.

    These three are None for append tables, and leave out rows that wait for buckets. `kind`, `written_rows`, `written_bytes`: of
    its commit; None if its changes cannot be read.
    """

    snapshot_id: int
    millis: int
    files: int
    size: int
    most_runs: int | None
    mean_runs: float | None
    space_percent: int | None
    kind: str = ""
    written_rows: int | None = None
    written_bytes: int | None = None


@dataclass(frozen=True)
class CommitterRow:
    """The commits of one user, or of several `users` counted together, by commit kind; `last`: epoch millis."""

    user: str
    users: int
    kinds: Mapping[str, int]
    last: int

    @property
    def commits(self) -> int:
        return sum(self.kinds.values())


@dataclass(frozen=True)
class BucketLevels:
    """The current bytes and files of each level of a bucket. `bucket`: partition and bucket as text."""

    bucket: str
    runs: int | None
    files: int
    size: int
    size_by_level: Mapping[int, int]
    files_by_level: Mapping[int, int]


@dataclass(frozen=True)
class TableState:
    """The current state of a table. `due`: buckets that a compaction would change now; `commits`: the newest snapshots.

    `levels`: the buckets with the most to merge, most first; `most_runs`: sorted runs of the first, None for append tables.
    """

    time: int
    snapshot_id: int | None
    files: int
    size: int
    buckets: int
    most_runs: int | None
    due: int
    commits: tuple[SnapshotRow, ...] = ()
    levels: tuple[BucketLevels, ...] = ()


@dataclass(frozen=True)
class Tree:
    """The newest sorted runs of a bucket and its oldest one; `runs_left`: how many between them are not listed."""

    bucket: str
    runs: tuple[RunRow, ...]
    runs_left: int


@dataclass(frozen=True)
class CompactionDebt:
    """What a minor compaction would do now. `rows`: the buckets with the most to read; `refusal`: why that cannot be told."""

    due: int
    buckets: int
    read_bytes: int
    write_bytes: int
    level_0_bytes: int
    rows: tuple[DecisionRow, ...]
    refusal: str | None = None


@dataclass(frozen=True)
class ReportFigures:
    """All figures of a report page. `history` and `kinds` (snapshot id and commit kind) are oldest first.

    `argument`: the table in commands. `at_snapshot`: None for the latest. `runs_of_buckets`: number of sorted runs, or of files
    -> how many buckets have it. `waiting`: files of rows that wait for buckets; `merges_waiting`: whether reads merge them.
    `stored`: now, by what keeps it. `spent`: by services, None without a ledger.
    """

    name: str
    argument: str
    at_snapshot: int | None
    millis: int
    has_keys: bool
    description: TableDescription
    health: HealthRow
    buckets: tuple[BucketLevels, ...]
    bucket_count: int
    runs_of_buckets: Mapping[int, int]
    waiting: Sequence[DataFileMeta]
    merges_waiting: bool
    trees: tuple[Tree, ...]
    debt: CompactionDebt
    history: tuple[Moment, ...]
    history_ends: str
    kinds: tuple[tuple[int, str], ...]
    committers: tuple[CommitterRow, ...]
    stored: StoredBytes
    spent: SpentOnTable | None = None


def report_figures(
    context: TableContext, name: str, argument: str, snapshot_id: int | None = None, spent: SpentOnTable | None = None
) -> ReportFigures:
    """Read the figures from the table's metadata and a listing, without opening data files. `argument`: its name in commands.

    `snapshot_id`: the files and the history at this snapshot; the definition and the findings are always those of now.
    """
    now = examined = ExaminedTable(context, argument)
    if snapshot_id is not None:
        past = context.snapshots.get(snapshot_id)
        examined = ExaminedTable.as_planned(context, argument, past, bucket_files(context, past))
    states = sorted(examined.all_buckets, key=lambda state: -_size(state.files))
    has_keys = bool(context.schema.primary_keys)
    damaged: list[PaimonError] = []  # `health` reports them
    newest = context.snapshots.newest_first(on_damage=damaged.append)
    last = examined.latest  # the buckets are its own; another may have been committed since
    until = dropwhile(lambda one: last is None or one.id > last.id, newest)
    snapshots = list(islice(until, _MAX_SNAPSHOTS))
    history, ends = _history(context, snapshots, states, has_keys)
    levels = [_levels(context, state, has_keys) for state in states]
    worst = sorted(range(len(states)), key=lambda n: _most_to_merge_first(levels[n]))
    shown = sorted((levels[n] for n in worst[:_MAX_BUCKETS]), key=lambda row: natural_order(row.bucket))
    trees = [_tree(context, states[n]) for n in worst[:MAX_TREES]] if has_keys else []
    return ReportFigures(
        name=name,
        argument=argument,
        at_snapshot=snapshot_id,
        millis=context.clock.now_millis(),
        has_keys=has_keys,
        description=describe_table(context, examined),
        health=health_of(now, name),
        buckets=tuple(shown),
        bucket_count=len(states),
        runs_of_buckets=Counter(n for row in levels if (n := row.runs if has_keys else row.files) is not None),
        waiting=[file for state in examined.postponed for file in state.files],
        merges_waiting=bool(examined.postponed) and not context.mode.hides_postponed,
        trees=tuple(tree for tree in trees if tree.runs),
        debt=_debt(examined),
        history=history,
        history_ends=ends,
        kinds=tuple((past.id, past.commit_kind) for past in reversed(snapshots)),
        committers=tuple(_committers(snapshots)),
        stored=StoredBytes.of(context, name),
        spent=spent,
    )


def table_state(context: TableContext, commits: int = 6) -> TableState:
    """The latest state; cheap enough to be read every few seconds. `commits`: how many snapshots to list."""
    examined = ExaminedTable(context, context.layout.argument)
    snapshot, states = examined.latest, examined.all_buckets
    has_keys = bool(context.schema.primary_keys)
    levels = sorted((_levels(context, state, has_keys) for state in states), key=_most_to_merge_first)
    damaged: list[PaimonError] = []  # older snapshots, which `health` reports
    return TableState(
        time=context.clock.now_millis(),
        snapshot_id=None if snapshot is None else snapshot.id,
        files=sum(bucket.files for bucket in levels),
        size=sum(bucket.size for bucket in levels),
        buckets=len(levels),
        most_runs=max((bucket.runs or 0 for bucket in levels), default=0) if has_keys else None,
        due=_debt(examined).due,
        commits=tuple(snapshot_rows(context, commits, on_damage=damaged.append)),
        levels=tuple(levels[:_MAX_BUCKETS]),
    )


def _most_to_merge_first(bucket: BucketLevels) -> tuple[int, int, int]:
    return -(bucket.runs or 0), -bucket.files, -bucket.size


def _size(files: Sequence[DataFileMeta]) -> int:
    return sum(file.file_size for file in files)


def _bucket_name(context: TableContext, state: BucketFiles) -> str:
    bucket = "waiting for buckets" if state.bucket == POSTPONE_BUCKET else f"bucket {state.bucket}"
    partition = partition_text(context, state.partition)
    return f"{partition} / {bucket}" if partition else bucket


def _levels(context: TableContext, state: BucketFiles, has_keys: bool) -> BucketLevels:
    sizes: Counter[int] = Counter()
    files: Counter[int] = Counter()
    for file in state.files:
        sizes[file.level] += file.file_size
        files[file.level] += 1
    merges = has_keys and state.bucket != POSTPONE_BUCKET
    runs = count_runs(state.files) if merges else None
    return BucketLevels(_bucket_name(context, state), runs, len(state.files), sizes.total(), sizes, files)


def _tree(context: TableContext, state: BucketFiles) -> Tree:
    runs = [] if state.bucket == POSTPONE_BUCKET else sorted_runs(state.files, context.key_of)
    rows = run_rows(context, runs, context.key_of, picked=0)
    # The oldest run is usually the largest and overlaps all others, so it is always shown.
    shown = rows if len(rows) <= MAX_RUNS else (*rows[: MAX_RUNS - 1], rows[-1])
    return Tree(_bucket_name(context, state), shown, len(rows) - len(shown))


def _debt(table: ExaminedTable) -> CompactionDebt:
    states = table.all_buckets
    level_0 = sum(file.file_size for state in table.buckets for file in state.files if file.level == 0)
    nothing = CompactionDebt(0, len(states), 0, 0, level_0, ())
    try:
        refusal, decisions, due = table.why_not_compactable, table.decisions, table.due
    except UsageError as error:  # an option that cannot be read
        return replace(nothing, refusal=error.message)
    if not decisions:
        return replace(nothing, refusal=refusal)
    rows = decision_rows(table.context, list(due.values()))
    largest = sorted(rows, key=lambda row: -row.read_bytes)[:_MAX_BUCKETS]
    totals = (sum(row.read_bytes for row in rows), sum(row.write_bytes for row in rows))
    return CompactionDebt(len(rows), len(states), *totals, level_0, tuple(largest))


class _File(NamedTuple):
    level: int
    size: int
    sequence: int


class _BucketFigures(NamedTuple):
    runs: int
    size: int
    oldest_size: int


class _State:
    """The live files at one snapshot; `undo` steps back to the previous snapshot."""

    def __init__(self, states: Sequence[BucketFiles], has_keys: bool) -> None:
        self._has_keys = has_keys
        self._files: dict[BucketId, dict[object, _File]] = defaultdict(dict)
        self._figures: dict[BucketId, _BucketFigures] = {}
        self._runs: Counter[int] = Counter()
        self._count = self._size = self._merged = self._oldest = 0
        for state in states:
            for file in state.files:
                self._add(ManifestEntry(EntryKind.ADD, state.partition, state.bucket, state.total_buckets, file))
            self._update_figures(state.bucket_id)

    def moment(self, snapshot: Snapshot) -> Moment:
        moment = Moment(snapshot.id, snapshot.time_millis, self._count, self._size, None, None, None, snapshot.commit_kind)
        if not self._has_keys:
            return moment
        buckets = self._runs.total()
        mean = sum(runs * count for runs, count in self._runs.items()) / buckets if buckets else 0.0
        return replace(
            moment,
            most_runs=max(self._runs, default=0),
            mean_runs=round(mean, 2),
            space_percent=percent_above(self._merged, self._oldest),
        )

    def undo(self, entries: Sequence[ManifestEntry]) -> None:
        for entry in reversed(entries):
            if entry.kind == EntryKind.ADD:
                removed = self._files[entry.bucket_id].pop(entry.identity, None)
                self._count -= removed is not None
                self._size -= removed.size if removed is not None else 0
            else:
                self._add(entry)
        for bucket_id in {entry.bucket_id for entry in entries}:
            self._update_figures(bucket_id)

    def _add(self, entry: ManifestEntry) -> None:
        file = entry.file
        files = self._files[entry.bucket_id]
        if entry.identity not in files:
            self._count, self._size = self._count + 1, self._size + file.file_size
        files[entry.identity] = _File(file.level, file.file_size, file.min_sequence_number)

    def _update_figures(self, bucket_id: BucketId) -> None:
        """Recount the sorted runs of a bucket and the size of its oldest run."""
        if (old := self._figures.pop(bucket_id, None)) is not None:
            self._merged, self._oldest = self._merged - old.size, self._oldest - old.oldest_size
            self._runs[old.runs] -= 1
            self._runs += Counter()  # drops zero counts
        files = self._files[bucket_id].values()
        if not files or bucket_id.bucket == POSTPONE_BUCKET:
            return
        top = max(file.level for file in files)
        levels = {file.level for file in files} - {0}
        oldest = min(files, key=lambda file: file.sequence).size if top == 0 else sum(f.size for f in files if f.level == top)
        runs = len(levels) + sum(file.level == 0 for file in files)
        new = self._figures[bucket_id] = _BucketFigures(runs, sum(file.size for file in files), oldest)
        self._merged, self._oldest = self._merged + new.size, self._oldest + new.oldest_size
        self._runs[new.runs] += 1


def _history(
    context: TableContext, snapshots: Sequence[Snapshot], states: Sequence[BucketFiles], has_keys: bool
) -> tuple[tuple[Moment, ...], str]:
    """The table at each of the newest snapshots, oldest first, and the reason if older ones are left out."""
    if not snapshots:
        return (), ""
    state = _State(states, has_keys)
    moments: list[Moment] = []
    for number, snapshot in enumerate(snapshots):
        if number == MAX_CHANGES:
            return tuple(reversed(moments)), f"the newest {MAX_CHANGES:,} of {len(snapshots):,} snapshots"
        if number and snapshot.id + 1 != snapshots[number - 1].id:
            return tuple(reversed(moments)), f"only snapshots after snapshot {snapshot.id + 1}, which is missing or damaged"
        moment = state.moment(snapshot)
        try:
            entries = context.manifests.delta_entries(snapshot)
            added = [entry.file for entry in entries if entry.kind == EntryKind.ADD]
            rows, size = sum(file.row_count for file in added), sum(file.file_size for file in added)
            moments.append(replace(moment, written_rows=rows, written_bytes=size))
            state.undo(entries)
        except (DamagedFile, NotFound) as problem:
            moments.append(moment)
            why = f"the changes of snapshot {snapshot.id} cannot be read: {problem}"
            return tuple(reversed(moments)), f"only snapshots from {snapshot.id} on; {why}"
    return tuple(reversed(moments)), ""


def _committers(snapshots: Sequence[Snapshot]) -> list[CommitterRow]:
    """The commits by user, most commits first. Users with random names share a row, and so do users beyond `MAX_USERS`."""
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    users: dict[str, set[str]] = defaultdict(set)
    last: dict[str, int] = defaultdict(int)
    for snapshot in snapshots:
        name = RANDOM_USERS if _is_random(snapshot.commit_user) else shown_name(snapshot.commit_user)
        kinds[name][snapshot.commit_kind] += 1
        users[name].add(snapshot.commit_user)
        last[name] = max(last[name], snapshot.time_millis)
    rows = [CommitterRow(name, len(users[name]), kinds[name], last[name]) for name in kinds]
    rows.sort(key=lambda row: (-row.commits, row.user))
    if len(rows) <= MAX_USERS:
        return rows
    others = rows[MAX_USERS - 1 :]
    kinds_of_others: Counter[str] = Counter()
    for row in others:
        kinds_of_others.update(row.kinds)
    summed = CommitterRow("others", sum(row.users for row in others), kinds_of_others, max(row.last for row in others))
    return [*rows[: MAX_USERS - 1], summed]


def _is_random(user: str) -> bool:
    try:
        return str(UUID(user)) == user
    except ValueError:
        return False
