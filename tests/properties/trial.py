"""One table under any sequence of operations, held against the oracle after each of them."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import dataclass, replace
from pathlib import Path

from paimon_cli.datatypes.canonical_form import canonical_rows
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.table_place import TablePlace
from paimon_cli.invariants.anomalies import UNTOLD
from paimon_cli.invariants.check import check_table
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.history_check_job import run_history_check
from paimon_cli.jobs.metadata_jobs import run_rollback
from paimon_cli.jobs.rescale_job import plan_rescale, run_rescale
from paimon_cli.jobs.update_job import UpdateRequest, run_update
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.retention import Retention
from paimon_cli.maintain.rollback import plan_rollback, rollback_target
from paimon_cli.metadata.data_file import EntryKind, ManifestEntry
from paimon_cli.metadata.snapshot import COMPACT
from paimon_cli.metadata.table_mode import CHANGE_ROWS, RESCALE
from paimon_cli.read.scan_plan import plan_scan
from paimon_cli.read.split_reader import count_split, read_split
from paimon_cli.read.time_travel import travel
from paimon_cli.requests.integrity import HistoryCheckOptions
from paimon_cli.requests.maintenance import RescaleOptions
from paimon_cli.sql.predicate import parse_predicate
from paimon_cli.storage.memory_storage import MemoryStorage
from tests.properties.oracle import Change, Key, Row, current_rows
from tests.properties.shapes import Layout, random_changes
from tests.tables import compact, make_table, write

_NUMBERS = itertools.count()
PREDICATES = (
    ("k < 3", lambda row: row["k"] is not None and row["k"] < 3),
    ("k = 5 OR k = 0", lambda row: row["k"] in (0, 5)),
    ("k IS NULL", lambda row: row["k"] is None),
)
PREDICATES_OF_N = (
    ("n > 0", lambda row: row["n"] is not None and row["n"] > 0),
    ("n IS NULL AND k > 1", lambda row: row["n"] is None and row["k"] is not None and row["k"] > 1),
)


@dataclass
class Commit:
    """`files`: those that its snapshots have added."""

    changes: tuple[Change, ...]
    files: frozenset[str]


class Trial:
    """`steps`: what was really done, one text each.

    `states` holds the rows of each snapshot that must be there, `compacted` what the top level must show where that is known,
    `marks` what was known at the snapshots that a rollback may go to.
    """

    def __init__(self, folder: Path, layout: Layout) -> None:
        self.layout = layout
        partitions = ("p",) if layout.partitioned else ()
        made = make_table(folder / f"t{next(_NUMBERS)}", layout.columns, layout.key, partitions, layout.buckets, layout.options)
        # Commits to memory cost half of those to a disk; what is written is the same.
        storage = MemoryStorage(f"trial-{made.url}")
        storage.write_new(made.layout.schema(0), made.storage.read_bytes(made.layout.schema(0)))
        self.context = replace(TableContext.open(made.url, storage=storage), read_threads=1)
        self.commits: list[Commit] = []
        self.states: dict[int, list[Row]] = {}
        self.compacted: tuple[Change, ...] | None = ()
        self.marks: dict[int, tuple[list[Commit], tuple[Change, ...] | None]] = {}
        self.steps: list[str] = []

    @property
    def is_deduplicated(self) -> bool:
        return self.layout.options.get("merge-engine") == "deduplicate"

    @property
    def replaces_all(self) -> bool:
        """Whether an overwrite replaces the whole table."""
        return not self.layout.partitioned or self.layout.options.get("dynamic-partition-overwrite") == "false"

    def key_of(self, row: Row) -> Key:
        return tuple(row[name] for name in self.layout.key)

    @property
    def changes(self) -> tuple[Change, ...]:
        return tuple(change for commit in self.commits for change in commit.changes)

    def write(self, changes: list[Change], overwrite: bool = False) -> None:
        """Write rows. An overwrite replaces the partitions of its rows."""
        if self.layout.shape.name == "retracting":
            # What is retracted must have been there: a lone retraction passes through, or is dropped at the top level.
            there = {self.key_of(row) for row in self.expected()}
            changes = [change for change in changes if change.is_add or self.key_of(change.row) in there]
        overwrite = overwrite and (not self.layout.crosses or self.replaces_all or self.is_deduplicated)
        if overwrite:
            changes = [change for change in changes if change.is_add]
        if overwrite and self.layout.crosses:
            # Whether the place that a key leaves within one overwrite counts as replaced is nowhere said.
            changes = list({self.key_of(change.row): change for change in changes}.values())
        elif self.layout.crosses and self.layout.options["merge-engine"] == "first-row":
            # A row is dropped at once where its key lives, even if that one is still hidden.
            there = {self.key_of(row) for row in self.expected()}
            changes = [change for change in changes if self.key_of(change.row) not in there]
        if not changes:
            return
        self.steps.append(f"write({[(c.kind, c.row) for c in changes]}, overwrite={overwrite})")
        self._write([{**change.row, "_op": change.kind} for change in changes], overwrite)
        if overwrite:
            self._replace({change.row.get("p") for change in changes})
        self.committed(changes)

    def _replace(self, partitions: set[int | None]) -> None:
        """Forget the rows of these partitions, or of all. Rows that moved out of one before must not return to it."""
        self.compacted = None
        if self.layout.crosses and not self.replaces_all:
            gone = [Change("-D", row) for row in self.expected() if row["p"] in partitions]
            self.commits.append(Commit(tuple(gone), frozenset()))
            return
        for commit in self.commits:
            kept = (change for change in commit.changes if not self.replaces_all and change.row.get("p") not in partitions)
            commit.changes = tuple(kept)

    def _write(self, rows: list[Row], overwrite: bool) -> None:
        write(self.context, rows, overwrite=overwrite)

    def committed(self, changes: list[Change]) -> None:
        """Note the rows of a commit, with the files in which they wait to be compacted."""
        fresh = range(max(self.states, default=0) + 1, (self.context.snapshots.latest_id() or 0) + 1)
        deltas = (self.context.manifests.delta_entries(self.context.snapshots.get(number)) for number in fresh)
        added = (entry.file for entries in deltas for entry in entries if entry.kind == EntryKind.ADD)
        self.commits.append(Commit(tuple(changes), frozenset(file.file_name for file in added)))
        self.look()

    def waiting_files(self) -> frozenset[str]:
        """Postponed files, and those of level 0 where plain reads skip it."""
        return frozenset(entry.file.file_name for entry in self._live() if entry.is_postponed) | self._hidden_files().keys()

    def _hidden_files(self) -> dict[str, int]:
        """The files of level 0 that plain reads skip, and how many rows they have."""
        hidden = self._live() if self.context.mode.hides_level_0 else []
        return {e.file.file_name: e.file.row_count for e in hidden if e.file.level == 0 and not e.is_postponed}

    def _live(self) -> list[ManifestEntry]:
        snapshot = self.context.snapshots.latest()
        return self.context.manifests.live_entries(snapshot) if snapshot else []

    def visible(self) -> list[Row] | None:
        """The rows that plain reads show; None where some files of a commit wait, and others do not."""
        waiting, chosen = self.waiting_files(), list[Change]()
        for commit in self.commits:
            if commit.files & waiting and not commit.files <= waiting:
                return None
            if not commit.files & waiting:
                chosen += commit.changes
        return current_rows(chosen, self.layout.key, self.layout.options)

    def compact(self, strategy: str) -> None:
        """A full compaction sorts rows that are in no bucket every other time."""
        self.steps.append(f"compact({strategy})")
        can_sort = strategy == "full" and not self.context.mode.bucket_mode.has_buckets
        compact(self.context, strategy=strategy, order_by="k,v" if can_sort and len(self.steps) % 2 else None)
        self.look(fully_compacted=strategy == "full")

    def update(self, key: int | None, value: int | None) -> None:
        """SET n, or delete the rows where it is None; a read of an old snapshot where the engine does not support the step."""
        is_plain = self.layout.shape.name == "plain" and (self.is_deduplicated or not self.layout.has_keys)
        if not is_plain or self.context.mode.limits(CHANGE_ROWS):
            return self.look_back(key)
        if self.context.mode.bucket_mode.postpones and self.waiting_files():
            return self.look_back(key)
        self.steps.append(f"update({key}, {value})")
        new = {} if value is None else {"p": 1} if value == 7 and self.layout.crosses else {"n": value}
        assignments = tuple(f"{name} = {number}" for name, number in new.items())
        where = "k IS NULL" if key is None else f"k = {key}"
        run_update(self.context, UpdateRequest(where, assignments), LocalEngine(), NoProgress())
        if not self.layout.has_keys:
            return self._change_rows(key, new)
        rows = [row for row in self.expected() if row["k"] == key]
        self.committed([Change("-D" if value is None else "+U", {**row, **new}) for row in rows])

    def _change_rows(self, key: int | None, new: Row) -> None:
        """Rows of an append table are replaced, or go."""
        for commit in self.commits:
            commit.changes = tuple(
                Change(change.kind, {**change.row, **new}) if change.row["k"] == key else change
                for change in commit.changes
                if new or change.row["k"] != key
            )
        self.compacted = None
        self.committed([])

    def rescale(self, buckets: int) -> None:
        """Into another number of buckets; the table stays in it, whatever its buckets were before."""
        if self.context.mode.limits(RESCALE) or not self.states:
            return self.look_back(buckets)
        self.steps.append(f"rescale({buckets})")
        table = TableContext(TablePlace(self.context.url, self.context.url), self.context.storage)
        hidden = self._hidden_files()
        run_rescale(table, plan_rescale(self.context, RescaleOptions(buckets)), LocalEngine(), NoProgress())
        self.context = replace(TableContext.open(self.context.url, storage=self.context.storage), read_threads=1)
        self.compacted = None
        self._follow(hidden)
        self.committed([])
        self.marks = {}

    def _follow(self, hidden: dict[str, int]) -> None:
        """Rows that waited before a rescale wait in other files, unless their runs were due to be merged on the way."""
        waiting = self._hidden_files()
        moved = waiting.keys() - hidden.keys()
        partly = {"rows that wait no more"} if moved and sum(waiting.values()) != sum(hidden.values()) else set()
        for commit in self.commits:
            if moved and commit.files & hidden.keys():
                commit.files = (commit.files - hidden.keys()) | moved | partly

    def roll_back(self, which: int) -> None:
        """Roll back to an existing snapshot, but not beyond a rescale, which has changed the number of buckets."""
        if not self.marks:
            return self.look_back(which)
        number = sorted(self.marks)[which % len(self.marks)]
        self.steps.append(f"roll_back({number})")
        plan = plan_rollback(self.context, rollback_target(self.context, number))
        run_rollback(self.context, plan, NoProgress())
        self.commits, self.compacted = [replace(commit) for commit in self.marks[number][0]], self.marks[number][1]
        self.states = {kept: rows for kept, rows in self.states.items() if kept <= number}
        self.marks = {kept: mark for kept, mark in self.marks.items() if kept <= number}
        assert self.context.snapshots.ids() == sorted(self.states), self.story()
        self.compare(self.read(), self.states[number])
        self.look()

    def expire(self, keep: int) -> None:
        self.steps.append(f"expire({keep})")
        expire_snapshots(self.context, Retention(keep, keep, 0, None))
        left = sorted(self.states)[-keep:]
        assert self.context.snapshots.ids() == left, self.story()
        self.states = {number: self.states[number] for number in left}
        self.marks = {number: mark for number, mark in self.marks.items() if number in left}

    def expected(self) -> list[Row]:
        return current_rows(self.changes, self.layout.key, self.layout.options)

    def look(self, fully_compacted: bool = False) -> None:
        """The newest rows must be right; what was seen of a snapshot stays as it was. Writes may compact, too."""
        fresh = range(max(self.states, default=0) + 1, (self.context.snapshots.latest_id() or 0) + 1)
        if fully_compacted:
            self.compacted = self.changes
        elif any(self.context.snapshots.get(number).commit_kind == COMPACT for number in fresh):
            self.compacted = None
        found, mode = self.read(), self.context.mode
        hides_some = mode.hides_level_0 or mode.bucket_mode.postpones
        self.compare(found, self.visible() if hides_some else self.expected())
        if mode.hides_level_0 and not mode.bucket_mode.postpones:
            self.compare(self.read(level_0=True), self.expected())
        for number in fresh:
            self.states[number] = found if number == fresh[-1] else self.read(number)
        if fresh:
            self.marks[fresh[-1]] = [replace(commit) for commit in self.commits], self.compacted

    def compare(self, found: list[Row], expected: list[Row] | None) -> None:
        if expected is not None:
            assert sorted(map(_text, found)) == sorted(map(_text, expected)), self.story(found, expected)

    def read(
        self, snapshot: int | None = None, where: str | None = None, *, read_optimized: bool = False, level_0: bool = False
    ) -> list[Row]:
        context, chosen = travel(self.context.with_level_0() if level_0 else self.context, snapshot)
        predicate = None if where is None else parse_predicate(where, context.schema)
        plan = plan_scan(context, chosen, predicate, read_optimized=read_optimized)
        names = context.schema.field_names
        batches = [batch for split in plan.splits for batch in read_split(context, split, names, predicate)]
        rows = [row for batch in batches for row in canonical_rows(batch, context.schema.fields)]
        return rows

    def look_back(self, which: int | None) -> None:
        """Check an older snapshot, whatever has happened since."""
        self.steps.append(f"look_back({which})")
        if self.states:
            number = sorted(self.states)[(which or 0) % len(self.states)]
            found, expected = self.read(number), self.states[number]
            self.compare(found, expected)

    def filter(self, which: int) -> None:
        self.steps.append(f"filter({which})")
        choices = PREDICATES + (PREDICATES_OF_N if "n" in self.layout.shape.columns else ())
        where, matches = choices[which % len(choices)]
        found, expected = self.read(where=where), [row for row in self.read() if matches(row)]
        assert sorted(map(_text, found)) == sorted(map(_text, expected)), self.story(where, found, expected)
        predicate = parse_predicate(where, self.context.schema)
        plan = plan_scan(self.context, self.context.snapshots.latest(), predicate)
        counted = sum(count_split(self.context, split, predicate) for split in plan.splits)
        assert counted == len(found), self.story(where, counted, found)

    def look_at_top(self) -> None:
        """The read-optimised view: what the last full compaction saw, whatever was written since."""
        self.steps.append("look_at_top()")
        found = self.read(read_optimized=True)
        if not self.layout.has_keys:
            self.compare(found, self.expected())
        elif self.compacted is not None:
            expected = current_rows(self.compacted, self.layout.key, self.layout.options)
            self.compare(found, expected)

    def close(self) -> None:
        self.context.storage.delete_directory(self.context.url)

    def check(self) -> None:
        """Nothing is wrong with the table, and nothing did happen to it: one job after the other is a right history."""
        violations = [str(v) for v in check_table(self.context, rows=True)]
        assert not violations, self.story(violations)
        told = run_history_check(self.context, HistoryCheckOptions(), None, LocalEngine(1), NoProgress())
        assert not (anomalies := [anomaly for anomaly in told if anomaly.certainty != UNTOLD]), self.story(anomalies)

    def story(self, *figures: object) -> str:
        """What happened, for a failure that is not shrunk."""
        return "\n".join([str(self.layout), *self.steps[-60:], *map(str, figures)])

    def random_step(self, dice: random.Random) -> None:
        chance = dice.random()
        if chance < 0.42:
            self.write(random_changes(self.layout, dice), overwrite=dice.random() < 0.06)
        elif chance < 0.54:
            self.compact("minor")
        elif chance < 0.62:
            self.compact("full")
        elif chance < 0.70:
            self.update(dice.choice((None, *range(8))), dice.choice((None, 1, 7)))
        elif chance < 0.74:
            self.expire(dice.randrange(1, 5))
        elif chance < 0.76:
            self.roll_back(dice.randrange(100))
        elif chance < 0.78:
            self.rescale(dice.choice((1, 2, 3)))
        elif chance < 0.84:
            self.look_back(dice.randrange(100))
        elif chance < 0.94:
            self.filter(dice.randrange(100))
        else:
            self.look_at_top()


def _text(row: Row) -> str:
    return json.dumps(row, ensure_ascii=False, sort_keys=True)
