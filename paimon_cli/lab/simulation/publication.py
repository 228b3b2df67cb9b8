"""Checks each snapshot when it is published, and the whole table at the end.

Rows, vectors and changelogs are read by the shipped readers, checked by the shipped invariants, and compared with what the
commits so far were to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from paimon_cli.errors import PaimonError
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.table_place import TablePlace
from paimon_cli.invariants.check import check_table, check_version
from paimon_cli.invariants.version import Version
from paimon_cli.lab.simulation.json_files import json_rows, merged
from paimon_cli.lab.simulation.real_files import RealChange, real_changes, real_rows, real_violations
from paimon_cli.lab.simulation.scenario import Published, Rows, Scenario
from paimon_cli.lab.simulation.sim_storage import Ask, ReadOnly, SimDisk
from paimon_cli.maintain.named_files import changelog_entries
from paimon_cli.metadata.data_file import EntryKind
from paimon_cli.metadata.data_file_schema import RowKind
from paimon_cli.metadata.snapshot import COMPACT, OVERWRITE, Snapshot

COUNTER = 1
_UNREADABLE = "PV005"


def new_reader(scenario: Scenario, ask: Ask) -> TableContext:
    """The table for a new reader, which has cached nothing yet."""
    place = TablePlace(scenario.layout.root, scenario.layout.root)
    return TableContext(place, ReadOnly(ask), scenario.definition, read_threads=1)


def incremented(before: Rows) -> Rows:
    """The rows after a commit that announced none: the counter, key 1, is incremented if it is a number."""
    is_counted = before.get(COUNTER, "").isdigit()
    return {**before, COUNTER: str(int(before[COUNTER]) + 1)} if is_counted else before


def input_applied(before: Rows, changes: list[RealChange]) -> tuple[Rows, list[str]]:
    """The rows after changes that do not depend on the rows before, as in an input changelog."""
    rows = dict(before)
    for kind, key, value in changes:
        if kind & 1:
            rows.pop(key, None)
        else:
            rows[key] = value
    return rows, []


def replayed(before: Rows, changes: list[RealChange]) -> tuple[Rows, list[str]]:
    """The rows after changes, and descriptions of the changes that contradict the rows before."""
    rows, wrong = dict(before), list[str]()
    for index, (kind, key, value) in enumerate(changes):
        follows = changes[index + 1][:2] if index + 1 < len(changes) else None
        precedes = changes[index - 1][:2] if index else None
        if kind in (RowKind.UPDATE_BEFORE, RowKind.DELETE) and rows.pop(key, None) != value:
            wrong.append(
                f"{'-U' if kind == RowKind.UPDATE_BEFORE else '-D'} of key {key} has value {value}, which its row did not have"
            )
        if kind == RowKind.INSERT and key in rows:
            wrong.append(f"+I of key {key}, which already exists")
        if kind == RowKind.UPDATE_BEFORE and follows != (RowKind.UPDATE_AFTER, key):
            wrong.append(f"-U without +U of key {key}")
        if kind == RowKind.UPDATE_AFTER and precedes != (RowKind.UPDATE_BEFORE, key):
            wrong.append(f"+U without -U of key {key}")
        if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER):
            rows[key] = value
    return rows, wrong


class Publication:
    """Checks a new snapshot, and fills in the derived fields of `new`."""

    def __init__(self, scenario: Scenario, new: Published, has_previous: bool, ask: Ask) -> None:
        self._scenario = scenario
        self._new = new
        self._context = new_reader(scenario, ask)
        self._version = Version(self._context, new.snapshot)
        self._before = Version(self._context, new.before.snapshot) if new.before and has_previous else None

    def judge(self) -> Published:
        try:
            return self._judge()
        except Exception as error:
            wrong = f"snapshot {self._new.snapshot.id} cannot be read: {type(error).__name__}: {error}"
            self._new.violations += (wrong,)
            return self._new

    def _judge(self) -> Published:
        new, tolerates = self._new, self._scenario.tolerates
        found = [v for v in check_version(self._version, self._before) if v.code not in tolerates]
        new.violations = tuple(map(str, found))
        if any(v.code == _UNREADABLE for v in found):
            return new
        new.version_files = self._named_by_version()
        new.names = new.version_files | self._named_by_changelog()
        new.mark = hash(frozenset((path, self._content(path)) for path in (self._version.path, *new.names)))
        new.violations += (*self._commits_made_twice(), *self._wrong_rows())
        if self._scenario.real_files and not new.violations:
            new.violations = tuple(self._wrong_files())
        return new

    def _content(self, path: str) -> bytes | None:
        try:
            return self._context.storage.read_bytes(path)
        except FileNotFoundError:
            return None

    def _named_by_version(self) -> frozenset[str]:
        snapshot, layout, version = self._new.snapshot, self._context.layout, self._version
        lists = (snapshot.base_manifest_list, snapshot.delta_manifest_list)
        manifests = [meta.file_name for name in lists for meta in self._context.manifests.manifest_list(name)]
        if snapshot.index_manifest is not None:
            manifests.append(snapshot.index_manifest)
        data = [*map(version.file_path, version.live), *map(version.index_path, version.index_entries)]
        return frozenset([*map(layout.manifest, (*lists, *manifests)), *data])

    def _named_by_changelog(self) -> frozenset[str]:
        """The changelog files of the snapshot, which a tag of it does not keep."""
        listed, context = self._new.snapshot.changelog_manifest_list, self._context
        if listed is None:
            return frozenset()
        manifests = [meta.file_name for meta in context.manifests.manifest_list(listed)]
        data = [context.data_file_path(e.partition, e.bucket, e.file) for e in changelog_entries(context, self._new.snapshot)]
        return frozenset([*map(context.layout.manifest, (listed, *manifests)), *data])

    def _commits_made_twice(self) -> Iterator[str]:
        new = self._new.snapshot
        snapshots = [published.snapshot for published in self._new.history()]
        names = [(s.id, (s.commit_user, s.commit_identifier, s.commit_kind)) for s in snapshots]
        same = [number for number, name in names if name == names[-1][1]]
        if len(same) > 1:
            yield f"commit of {new.commit_user} was made twice: snapshots {same}"

    def _wrong_rows(self) -> Iterator[str]:
        new = self._new
        new.rows = new.before.rows if new.before else {}
        if new.snapshot.commit_kind != COMPACT and new.announced:
            new.rows = new.announced.applied_to(new.rows)
        elif new.snapshot.commit_kind != COMPACT:
            new.rows = incremented(new.rows)
        found = rows_at(self._scenario, self._version)
        if found != new.rows:
            yield wrong_rows(f"snapshot {new.snapshot.id}", found, new.rows)

    # deletion vectors and changelogs

    def _wrong_files(self) -> Iterator[str]:
        """The errors found by plain readers, by changelog readers and by the checks of rows."""
        new, version, number = self._new, self._version, self._new.snapshot.id
        added = (e for e in version.delta if e.kind == EntryKind.ADD and e.file.level == 0)
        new.flushed = frozenset((e.bucket, e.file.file_name) for e in added)
        yield from (str(v) for v in real_violations(version) if v.code not in self._scenario.tolerates)
        mode, visible = self._context.mode, self._above_level_0()
        if mode.deletion_vectors and mode.hides_level_0 and (shown := real_rows(version, level_0=False)) != visible:
            yield f"plain readers of snapshot {number} see {shown}, but the compacted rows are {visible}"
        if not mode.changelog_producer.writes_files:
            return
        changes = list(real_changes(version, changelog_entries(self._context, new.snapshot)))
        is_input = mode.changelog_producer.records_input
        expected = new.rows if is_input else visible
        if new.snapshot.commit_kind == OVERWRITE:
            new.changes = expected
            return
        replay = input_applied if is_input else replayed
        new.changes, wrong = replay(new.before.changes if new.before else {}, changes)
        yield from (f"changelog of snapshot {number}: {text}" for text in wrong)
        if new.changes != expected:
            yield f"the changelogs up to snapshot {number} replay to {new.changes}, but the state is {expected}"
        if is_input:
            yield from self._wrong_input(changes)

    def _wrong_input(self, changes: list[RealChange]) -> Iterator[str]:
        """Report a changelog that does not consist of exactly the written rows."""
        announced, snapshot = self._new.announced, self._new.snapshot
        is_write = announced is not None and snapshot.commit_kind != COMPACT
        rows = (
            [(kind, key, value) for batch in announced.rows.values() for key, kind, value in batch]
            if announced and is_write
            else []
        )
        if sorted(rows) != sorted(map(tuple, changes)):
            yield f"changelog of snapshot {snapshot.id} is {changes}, but the commit wrote {rows}"

    def _above_level_0(self) -> Rows:
        """The rows of all commits whose files have left level 0."""
        waiting = {(entry.bucket, entry.file.file_name) for entry in self._version.live if entry.file.level == 0}
        found: Rows = {}
        for earlier in self._new.history():
            if earlier.snapshot.commit_kind != COMPACT and earlier.announced is not None:
                hidden = {bucket for bucket, _ in earlier.flushed & waiting}
                found = earlier.announced.without(hidden).applied_to(found)
        return found


def rows_at(scenario: Scenario, version: Version) -> Rows | str:
    """The rows that a reader sees, or why it cannot read them."""
    try:
        return real_rows(version, level_0=True) if scenario.real_files else _rows_of_json_files(version)
    except (PaimonError, FileNotFoundError) as error:
        return f"unreadable: {error}"


def _rows_of_json_files(version: Version) -> Rows:
    found: dict[int, str] = {}
    for entries in version.buckets.values():
        files = [(e.file, json_rows(version.context.storage.read_bytes(version.file_path(e)))) for e in entries]
        found.update({row[0]: row[3] for row in merged(files) if not row[2] & 1})
    return found


def wrong_rows(name: str, found: Rows | str, expected: Rows) -> str:
    return f"rows at {name} are {found}, but the commits result in {expected}"


@dataclass(frozen=True)
class TableEnd:
    """The final table as readers see it. `rows`: for each tag and snapshot, its name, its number and its rows."""

    latest: int
    violations: tuple[str, ...]
    rows: tuple[tuple[str, int, Rows | str], ...]


def table_end(scenario: Scenario, disk: SimDisk, tags: Iterable[str]) -> TableEnd:
    """Run all checks on the final table, and read it at every tag and snapshot."""
    context = new_reader(scenario, disk.look)
    violations = tuple(str(v) for v in check_table(context) if v.code not in scenario.tolerates)
    named = [(path, Snapshot.from_json(disk.files[path], path)) for path in tags]
    named += [(f"snapshot {number}", context.snapshots.get(number)) for number in context.snapshots.ids()]
    rows = tuple((name, snapshot.id, rows_at(scenario, Version(context, snapshot))) for name, snapshot in named)
    return TableEnd(context.snapshots.latest_id() or 0, violations, rows)
