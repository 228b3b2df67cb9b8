"""A table that steps of all kinds change through the library, held against its lines after each of them."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from paimon_cli import Table
from paimon_cli.api.runtime import Runtime
from paimon_cli.catalog.table_location import TableLocation
from paimon_cli.commit.commit_records import all_records
from paimon_cli.errors import Conflict, Refused
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.table_place import TablePlace
from paimon_cli.jobs.clone_job import clone_table
from paimon_cli.jobs.engine import LocalEngine
from paimon_cli.maintain.orphans import DAY_MILLIS
from paimon_cli.metadata.snapshot import COMPACT
from paimon_cli.metadata.table_layout import MAIN_BRANCH
from paimon_cli.storage.injected import Clock
from paimon_cli.storage.memory_storage import MemoryStorage
from paimon_cli.storage.storage import Storage
from tests.commit.commit_tables import SteppingClock
from tests.faults.bench import CountedRandom
from tests.faults.verdict import _files_of, reachable
from tests.model.lines import Line, Version, folded, named, texts
from tests.model.meetings import Crash, Meeting
from tests.properties.oracle import Change, Row
from tests.properties.shapes import Layout
from tests.tables import make_table

Changes = tuple[Change, ...]
_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Step:
    """A call of the library on one branch.

    `act` does it, and can be repeated after a crash. `effect` is what its commit makes of the changes so far (None: readers see
    the same rows before and after). `user`: the commit user of its snapshots, if it takes one.
    """

    text: str
    branch: str
    act: Callable[[Table], object]
    effect: Callable[[Changes], Changes] | None = None
    user: str | None = None


class World:
    """`steps`: what was done, one text each."""

    def __init__(self, folder: Path, layout: Layout, seed: str) -> None:
        self.layout = layout
        self.folder = folder / f"w{next(_NUMBERS)}"
        self.folder.mkdir()
        partitions = ("p",) if layout.partitioned else ()
        options = {"commit.min-retry-wait": "1 ms", **layout.options}
        made = make_table(self.folder / "made", layout.columns, layout.key, partitions, layout.buckets, options)
        self.url = made.url
        self.clock = SteppingClock(int(time.time() * 1000))
        self.storage = (MemoryStorage if random.Random(f"{seed}-store").random() < 0.5 else ObjectStore)(
            f"model-{made.url}", self.clock
        )
        self.storage.write_new(made.layout.schema(0), made.storage.read_bytes(made.layout.schema(0)))
        self.lines = {MAIN_BRANCH: Line({name: name for name in layout.columns})}
        self.steps: list[str] = []
        self.crashes = self.rivals = self.thirds = self.refusals = self.clones = 0
        self._meetings = random.Random(f"{seed}-meetings")

    # tables

    def table(self, branch: str = MAIN_BRANCH, storage: Storage | None = None) -> Table:
        """The table as a new process opens it."""
        return self._opened(TablePlace(self.url, self.url).at_branch(branch), storage or self.storage)

    def _opened(self, place: TablePlace, storage: Storage) -> Table:
        """A table whose jobs make their storage calls in the same order each time."""
        opened = TableContext(place, storage, clock=self.clock, random=CountedRandom(next(_NUMBERS)), read_threads=1)
        return Table(opened, Runtime(given_engine=LocalEngine(), warn=lambda text: None))

    def context(self, branch: str = MAIN_BRANCH) -> TableContext:
        return self.table(branch).context

    # steps

    def play(self, step: Step, rival: Step | None = None, chance_of_crash: float = 0.0, third: Step | None = None) -> bool:
        """Do a step, with a rival in its midst (and a third one in the midst of that), or a crash now and then.

        Returns whether it was done, not refused.
        """
        line = self.lines[step.branch]
        dies = rival is None and self._meetings.random() < chance_of_crash
        at, later = self._some_call(), self._some_call()
        came: dict[Step, bool] = {}
        other = None if rival is None else self._played(rival, came, later, third)
        meeting = Meeting(self.storage, at if other or dies else 0, other)
        self.steps.append(f"{step.text} on {step.branch}" + self._told(rival, dies, at, later, third))
        is_done = True
        try:
            step.act(self.table(step.branch, meeting))
        except Crash:
            self.crashes += 1
            step.act(self.table(step.branch))
        except (Conflict, Refused) as refused:
            assert rival is not None and meeting.has_come, self.story(repr(refused))
            self.refusals += 1
            is_done = False
        self.rivals += bool(came)
        self.thirds += len(came) > 1
        self._note(line, step, came, is_done)
        return is_done

    def _some_call(self) -> int:
        return self._meetings.choice((self._meetings.randrange(1, 12), self._meetings.randrange(1, 70)))

    def _played(self, rival: Step, came: dict[Step, bool], at: int, third: Step | None) -> Callable[[], object]:
        """A call that does the rival's step, and notes in `came` whether it was done; the third one ends before it."""

        def play() -> None:
            deed = None if third is None else self._played(third, came, 0, None)
            meeting = Meeting(self.storage, at if deed else 0, deed)
            try:
                rival.act(self.table(rival.branch, meeting))
            except (Conflict, Refused) as refused:
                assert meeting.has_come, self.story(repr(refused))
                self.refusals += 1
                came[rival] = False
            else:
                came[rival] = True

        return play

    @staticmethod
    def _told(rival: Step | None, dies: bool, at: int, later: int, third: Step | None) -> str:
        if rival is not None:
            return f", and at call {at}: {rival.text}" + (f", and at call {later} of that: {third.text}" if third else "")
        return f", dies at call {at} and is repeated" if dies else ""

    def _note(self, line: Line, step: Step, came: Mapping[Step, bool], is_done: bool) -> None:
        """Take over the snapshots since the last look, each with the effect of the step that made it."""
        context = self.context(step.branch)
        done: list[Step] = []
        begun = line.changes
        for number in range(line.newest + 1, (context.snapshots.latest_id() or 0) + 1):
            snapshot = context.snapshots.get(number)
            by_rival = [other for other in came if snapshot.commit_user == other.user]
            maker = by_rival[0] if by_rival else step
            changes, other = line.changes, None
            if snapshot.commit_kind != COMPACT and maker.effect is not None:
                assert maker.user is None or maker not in done, self.story(f"snapshot {number}: done twice", maker.text)
                done.append(maker)
                changes = maker.effect(changes)
                if maker is step and came and done[0] is not step and not self.layout.key:
                    # Rows that were appended since an update has read need not be seen by it: it is as if it came first.
                    other = _as_if_first(step, done[0], begun)
            self._see(line, step.branch, number, changes, other)
        for each, expected in ((step, is_done), *came.items()):
            if each.effect is not None and expected and each not in done:
                # Nothing to do, before what the other did or after it.
                assert self._is_needless(each, begun, line) or self._is_needless(each, line.changes, line), self.story(
                    "not done", each.text
                )
            assert expected or each not in done, self.story("refused, and done", each.text)

    def _is_needless(self, step: Step, changes: Changes, line: Line) -> bool:
        assert step.effect is not None
        before, after = (texts(folded(each, line.names, self.layout)) for each in (changes, step.effect(changes)))
        return before == after

    def _see(self, line: Line, branch: str, number: int, changes: Changes, other: Changes | None) -> None:
        """A new version. `other`: the changes in the other order that is allowed."""
        found, waiting, schema = self.read(branch, number)
        if not waiting:
            expected = texts(named(folded(changes, line.names, self.layout), line.names))
            if found != expected and other is not None:
                changes, expected = other, texts(named(folded(other, line.names, self.layout), line.names))
            assert found == expected, self.story(f"snapshot {number} of {branch}", found, expected)
        line.add(number, Version(changes, dict(line.names), found, schema, waiting))

    # looks

    def read(self, branch: str, number: int | None = None) -> tuple[tuple[str, ...], int, int]:
        """The rows of a version, how many records wait there, and its schema."""
        table = self.table(branch)
        scan = table.scan(snapshot=number)
        schema = table.context.snapshots.get(number).schema_id if number is not None else 0
        found = texts(scan.to_arrow().to_pylist())
        assert scan.count() == len(found), self.story(f"count of {number}", scan.count(), found)
        return found, scan.waiting_records, schema

    def check(self) -> None:
        """Every version of every branch is there, as it was seen first."""
        table = self.table()
        names = {branch.name for branch in table.branches}
        assert names == set(self.lines), self.story(names)
        for branch, line in self.lines.items():
            table = self.table(branch)
            assert list(table.snapshot_ids()) == sorted(line.versions), self.story(
                branch, list(table.snapshot_ids()), line.versions.keys()
            )
            for number, version in line.versions.items():
                assert self.read(branch, number)[0] == version.rows, self.story(f"snapshot {number} of {branch}")
            tags = {tag.name: tag.snapshot_id for tag in table.tags}
            assert tags == {name: number for name, (number, _) in line.tags.items()}, self.story(branch, tags, line.tags)
            for name, (_, version) in line.tags.items():
                found = texts(table.scan(tag=name).to_arrow().to_pylist())
                assert found == version.rows, self.story(f"tag {name} of {branch}", found, version.rows)

    def compare_versions(self, dice: random.Random) -> None:
        """The difference of two versions with the same columns, as an incremental read tells it."""
        branch = dice.choice(sorted(self.lines))
        versions, names = self.lines[branch].versions, self.lines[branch].names
        if not self.layout.key or len(versions) < 2:
            return
        before, after = sorted(dice.sample(sorted(versions), 2))
        old, new = versions[before], versions[after]
        if old.names != names or new.names != names or old.waiting or new.waiting or self.layout.crosses:
            return
        was, now = ({self._key_text(row): row for row in version.rows} for version in (old, new))
        expected = [("-D", row) for key, row in was.items() if key not in now]
        expected += [("+I", row) for key, row in now.items() if was.get(key) != row]
        scan = self.table(branch).scan(incremental=f"{before}..{after}", incremental_mode="diff", row_kind=True)
        rows = scan.to_arrow().to_pylist()
        found = [("-D" if row["rowkind"] in ("-D", "-U") else "+I", texts([_without_kind(row)])[0]) for row in rows]
        assert sorted(found) == sorted(expected), self.story(f"{before}..{after} of {branch}", sorted(found), sorted(expected))

    def _key_text(self, text: str) -> str:
        row = json.loads(text)
        return json.dumps([row[name] for name in self.layout.key])

    def clone(self, rival: Step | None) -> None:
        """A copy holds what the newest version at some moment of the copying held, needs nothing of the table, and is sound."""
        target = _InMemory(f"{self.url}-clone{next(_NUMBERS)}", "clone", store=self.storage)
        came: dict[Step, bool] = {}
        at = self._some_call()
        meeting = Meeting(self.storage, at if rival else 0, None if rival is None else self._played(rival, came, 0, None))
        self.steps.append("clone()" + self._told(rival, False, at, 0, None))
        made = clone_table(self.table(storage=meeting).context, "clone", target)
        line = self.lines[MAIN_BRANCH]
        if rival is not None and came:
            self._note(line, rival, {}, came[rival])
        copy = self._opened(TablePlace(target.url, target.url), self.storage)
        assert list(copy.snapshot_ids()) == [number for number in (made.snapshot_id,) if number], self.story("clone", made)
        if made.snapshot_id is not None:
            scan = copy.scan(snapshot=made.snapshot_id)  # with the columns of then: the table may have got others
            found, expected = texts(scan.to_arrow().to_pylist()), line.versions[made.snapshot_id].rows
            assert found == expected, self.story(f"clone of {made.snapshot_id}", found, expected)
            wrong = [violation for violation in copy.verify("full").violations if violation.code != "PV023"]
            assert not wrong, self.story("clone", *wrong)
        self.clones += 1
        self.storage.delete_directory(target.url)

    def check_files(self) -> None:
        """No violation, and after a search for orphans no file that no version needs."""
        for branch, line in self.lines.items():
            report = self.table(branch).verify("full")
            # PV023 is what two writers of one bucket do to each other that the check of keys lets pass: they number alike.
            allowed = {"PV023", *(("PV001",) if line.has_gap else ())}
            found = [violation for violation in report.violations if violation.code not in allowed]
            assert not found, self.story(branch, *found)
        if any(line.versions for line in self.lines.values()):
            self.clock.now += 2 * DAY_MILLIS
            self.table().remove_orphans(older_than="0 s", force=True)
            left = self.paths() - set().union(*(_named(self.context(branch)) for branch in self.lines))
            assert not left, self.story("left over", left)

    def paths(self) -> set[str]:
        return set(_paths(self.storage, self.url))

    def story(self, *figures: object) -> str:
        return "\n".join([str(self.layout), *self.steps[-40:], *map(str, figures)])

    def close(self) -> None:
        self.storage.delete_directory(self.url)
        shutil.rmtree(self.folder)


class ObjectStore(MemoryStorage):
    """Calls take a round trip, so that jobs read ahead, and build commits on the snapshot that they have read."""

    is_remote = True

    def __reduce__(self) -> tuple[type[MemoryStorage], tuple[str, Clock]]:
        return ObjectStore, super().__reduce__()[1]


@dataclass(frozen=True)
class _InMemory(TableLocation):
    """A place for a clone beside the table."""

    store: Storage = field(kw_only=True)

    def open_storage(self) -> tuple[Storage, str]:
        return self.store, self.url


def _as_if_first(step: Step, rival: Step, changes: Changes) -> Changes:
    assert step.effect is not None and rival.effect is not None
    return rival.effect(step.effect(changes))


def _named(context: TableContext) -> set[str]:
    """All files of a branch. Tags of the same snapshot may differ in their changelog; a rollback leaves open records."""
    records = (record.paths(context.layout) for record in all_records(context))
    return reachable(context).union(*records, *(_files_of(context, tag.snapshot) for tag in context.tags.all().values()))


def _without_kind(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "rowkind"}


def _paths(storage: Storage, directory: str) -> list[str]:
    found = []
    for entry in storage.list_directory(directory):
        found += _paths(storage, entry.path) if entry.is_directory else [entry.path]
    return found
