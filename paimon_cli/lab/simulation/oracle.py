"""Knows what the table must contain, and checks every change that a reader could notice.

The acknowledged rows are folded along the published snapshots. Each version is checked by the shipped invariants, the final table
by all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from paimon_cli.errors import PaimonError
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.check import check_table, check_version
from paimon_cli.invariants.version import Version
from paimon_cli.lab.simulation.paper_files import BucketRows, merged, paper_rows
from paimon_cli.lab.simulation.real_files import Change, real_changes, real_rows, real_violations
from paimon_cli.lab.simulation.scenario import Memory, Rows, Scenario, Wanted
from paimon_cli.lab.simulation.sim_storage import DiskStorage, SimDisk
from paimon_cli.maintain.needed_files import changelog_entries
from paimon_cli.metadata.data_file import ADD
from paimon_cli.metadata.data_file_schema import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from paimon_cli.metadata.snapshot import COMPACT, OVERWRITE, Snapshot
from paimon_cli.metadata.table_layout import SNAPSHOT_PREFIX, parse_numbered
from paimon_cli.metadata.table_mode import INPUT

COUNTER = 1
ACKNOWLEDGED, REFUSED, UNKNOWN = "acknowledged", "refused", "unknown"


def incremented(before: Rows) -> Rows:
    """The rows after a commit that did not announce any: the counter, key 1, is raised by one."""
    return {key: str(int(value) + 1) if key == COUNTER else value for key, value in before.items()}


def _taken_in(before: Rows, changes: list[Change]) -> tuple[Rows, list[str]]:
    """The rows after changes that say nothing of what was there before."""
    rows = dict(before)
    for kind, key, value in changes:
        if kind & 1:
            rows.pop(key, None)
        else:
            rows[key] = value
    return rows, []


def _replayed(before: Rows, changes: list[Change]) -> tuple[Rows, list[str]]:
    """The rows after changes, and which of these do not fit what was there before."""
    rows, wrong = dict(before), list[str]()
    for place, (kind, key, value) in enumerate(changes):
        follows = changes[place + 1][:2] if place + 1 < len(changes) else None
        precedes = changes[place - 1][:2] if place else None
        if kind in (UPDATE_BEFORE, DELETE) and rows.pop(key, None) != value:
            wrong.append(f"{'-U' if kind == UPDATE_BEFORE else '-D'} of key {key} says {value}, which was not its row")
        if kind == INSERT and key in rows:
            wrong.append(f"+I of key {key}, which is there")
        if kind == UPDATE_BEFORE and follows != (UPDATE_AFTER, key):
            wrong.append(f"-U without +U of key {key}")
        if kind == UPDATE_AFTER and precedes != (UPDATE_BEFORE, key):
            wrong.append(f"+U without -U of key {key}")
        if kind in (INSERT, UPDATE_AFTER):
            rows[key] = value
    return rows, wrong


class Suspect(Protocol):
    """The actor that changed a file."""

    number: int

    @property
    def gave_up(self) -> bool:
        """Whether it crashed, or knew too little to clean up after itself."""
        ...


class Oracle:
    """Checks a run. `violations` gets an entry as soon as something is wrong. `digest` is equal for disks that no reader can
    distinguish.
    """

    def __init__(self, scenario: Scenario, disk: SimDisk) -> None:
        self.scenario = scenario
        self.memory = scenario.memory.copy() if scenario.memory else Memory()
        self.violations: list[str] = []
        self.digest = 0
        self._disk = disk
        self._layout = scenario.layout
        self._context = self._fresh_context()
        self._shared: dict[str, int] = {}
        self._names = self.memory.names
        self._tags: dict[str, frozenset[str]] = {}
        self._undead: dict[int, Suspect] = {}
        """Numbers that had expired when a slow writer put its snapshot there; it has to take it back."""
        self._versions: dict[int, Version] = {}
        for number in sorted(self.memory.snapshots):
            if number > self.memory.gone:
                self._versions[number] = Version(self._context, self.memory.snapshots[number])
        for path in disk.files:
            if path.startswith(self._layout.tag_directory):
                self._tagged(path, disk.files[path])

    def _fresh_context(self, disk: SimDisk | None = None) -> TableContext:
        s = self.scenario
        return TableContext(s.layout.root, DiskStorage(disk or self._disk), s.schema, s.options, read_threads=1)

    # reports of jobs

    def wants(self, user: str, identifier: int, rows: BucketRows, overwrites: bool = False) -> None:
        """A job starts that is to commit these rows."""
        self.memory.wanted[user, identifier] = Wanted(rows, overwrites)
        self.memory.tries[user, identifier] = self.memory.tries.get((user, identifier), 0) + 1

    def ended(self, user: str, identifier: int, end: str) -> None:
        self.memory.ends[user, identifier] = end
        self.digest ^= hash((user, identifier, end))
        count = self._times_published(user, identifier)
        if end == ACKNOWLEDGED and count == 0:
            self._object(f"commit of {user} was acknowledged and is in no snapshot")
        if end == REFUSED and count and self.memory.tries[user, identifier] == 1:
            self._object(f"commit of {user} was refused and is in the table")

    def incremented(self, key: int) -> None:
        """A read-modify-write that raised a counter by one was acknowledged."""
        self.memory.increments[key] = self.memory.increments.get(key, 0) + 1
        self.digest ^= hash((key, self.memory.increments[key]))

    def failed(self, number: int, error: BaseException) -> None:
        self._object(f"actor {number} failed: {type(error).__name__}: {error}")

    def _times_published(self, user: str, identifier: int) -> int:
        return sum((s.commit_user, s.commit_identifier) == (user, identifier) for s in self.memory.snapshots.values())

    def _object(self, message: str) -> None:
        self.violations.append(message)

    # changes of the storage

    def changed(self, actor: Suspect, path: str) -> None:
        """A file was written or deleted."""
        data = self._disk.files.get(path)
        directory, _, name = path.rpartition("/")
        if directory == self._layout.snapshot_directory:
            number = parse_numbered(SNAPSHOT_PREFIX, name)
            if number is None:
                self._note(path, hash(data))
                self._check_hint(path, data)
            elif data is None:
                self._vanished(number)
                self._note(path, 0)
            elif number <= self.memory.gone:
                self._undead[number] = actor
                self._note(path, hash(data))
            else:
                self._published(number, data)
                self._note(path, hash((data, self._content_of(self._names.get(number, frozenset())))))
        elif directory == self._layout.tag_directory:
            self._tagged(path, data)
            self._note(path, hash(data))
        elif data is None and (naming := self._who_names(path)):
            self._object(f"{path} was deleted, {naming} names it")
        elif data is None and path in self._shared:
            self._note(path, 0)

    def _who_names(self, path: str) -> str:
        snapshots = [f"snapshot {number}" for number, names in self._names.items() if path in names]
        return next(iter([*snapshots, *(tag for tag, names in self._tags.items() if path in names)]), "")

    def _note(self, path: str, mark: int) -> None:
        self.digest ^= self._shared.get(path, 0)
        self._shared[path] = hash((path, mark))
        self.digest ^= self._shared[path]

    def _content_of(self, paths: frozenset[str]) -> int:
        return hash(frozenset((path, self._disk.files.get(path)) for path in paths))

    def _check_hint(self, path: str, data: bytes | None) -> None:
        newest = max(self.memory.snapshots, default=0)
        if data is not None and (not data.isdigit() or int(data) > newest):
            self._object(f"{path} says {data!r}, the newest snapshot is {newest}")

    def _tagged(self, path: str, data: bytes | None) -> None:
        """A tag protects its snapshot once `tagger` has seen that the snapshot exists; otherwise it deletes the tag again."""
        self._tags.pop(path, None)
        if data is not None:
            number = Snapshot.from_json(data, path).id
            if number in self._names:
                self._tags[path] = self._named_by(self._versions[number])

    def _vanished(self, number: int) -> None:
        if self._undead.pop(number, None):
            return
        if number != min(self._names, default=0):
            self._object(f"snapshot {number} was deleted while older ones are there")
        if number == max(self.memory.snapshots):
            self._object(f"snapshot {number} was deleted, it is the newest")
        self._names.pop(number, None)
        self.memory.gone = max(self.memory.gone, number)

    def _published(self, number: int, data: bytes) -> None:
        path = self._layout.snapshot(number)
        if number in self.memory.snapshots:
            lost = self.memory.snapshots[number].commit_user
            self._object(f"snapshot {number} was published twice: that of {lost} is overwritten")
            return
        if number != max(self.memory.snapshots, default=0) + 1:
            self._object(f"snapshot {number} does not follow {max(self.memory.snapshots, default=0)}")
            return
        snapshot = Snapshot.from_json(data, path)
        version = Version(self._context, snapshot)
        before = self._versions.get(number - 1) if number - 1 > self.memory.gone else None
        self.memory.snapshots[number] = snapshot
        self._versions[number] = version
        found = [v for v in check_version(version, before) if v.code not in self.scenario.tolerates]
        self.violations += map(str, found)
        if any(v.code == "PV005" for v in found):
            return
        self._names[number] = self._named_by(version) | self._changelog_of(version)
        self._check_once(snapshot)
        self._check_rows(version)
        if self.scenario.real_files and not self.violations:
            self.violations += self._wrong_files(version)

    def _check_once(self, snapshot: Snapshot) -> None:
        same = [
            s.id
            for s in self.memory.snapshots.values()
            if (s.commit_user, s.commit_identifier, s.commit_kind)
            == (snapshot.commit_user, snapshot.commit_identifier, snapshot.commit_kind)
        ]
        if len(same) > 1:
            self._object(f"commit of {snapshot.commit_user} was made twice: snapshots {same}")

    def _check_rows(self, version: Version) -> None:
        snapshot = version.snapshot
        expected = self.memory.rows.get(snapshot.id - 1, {})
        wanted = self.memory.wanted.get((snapshot.commit_user, snapshot.commit_identifier))
        if snapshot.commit_kind != COMPACT:
            expected = wanted.applied_to(expected) if wanted else incremented(expected)
        self.memory.rows[snapshot.id] = expected
        self.violations += self._wrong_rows(version, f"snapshot {snapshot.id}")

    def _wrong_rows(self, version: Version, name: str) -> Iterator[str]:
        """Whether a reader sees other rows than the acknowledged ones."""
        expected = self.memory.rows.get(version.snapshot.id)
        try:
            actual = self._rows_at(version)
        except (PaimonError, FileNotFoundError) as error:
            yield f"{name} cannot be read: {error}"
            return
        if actual != expected:
            yield f"rows at {name} are {actual}, the commits give {expected}"

    def _rows_at(self, version: Version) -> Rows:
        return real_rows(version, level_0=True) if self.scenario.real_files else self._rows_on_paper(version)

    def _rows_on_paper(self, version: Version) -> Rows:
        found: dict[int, str] = {}
        for entries in version.buckets.values():
            files = [(e.file, paper_rows(self._disk.read(version.file_path(e)))) for e in entries]
            found.update({row[0]: row[3] for row in merged(files) if not row[2] & 1})
        return found

    def _named_by(self, version: Version) -> frozenset[str]:
        snapshot, layout = version.snapshot, self._layout
        lists = (snapshot.base_manifest_list, snapshot.delta_manifest_list)
        manifests = [meta.file_name for name in lists for meta in self._context.manifests.manifest_list(name)]
        if snapshot.index_manifest is not None:
            manifests.append(snapshot.index_manifest)
        data = [*map(version.file_path, version.live), *map(version.index_path, version.index_entries)]
        return frozenset([*map(layout.manifest, (*lists, *manifests)), *data])

    def _changelog_of(self, version: Version) -> frozenset[str]:
        """What a snapshot names besides; a tag of it does not keep that."""
        listed = version.snapshot.changelog_manifest_list
        if listed is None:
            return frozenset()
        context = self._context
        manifests = [meta.file_name for meta in context.manifests.manifest_list(listed)]
        data = [context.data_file_path(e.partition, e.bucket, e.file) for e in changelog_entries(context, version.snapshot)]
        return frozenset([*map(self._layout.manifest, (listed, *manifests)), *data])

    # deletion vectors and changelogs

    def _wrong_files(self, version: Version) -> Iterator[str]:
        """What plain readers, readers of the changelog and the checks of the table's rows find wrong with a new snapshot."""
        number = version.snapshot.id
        added = (e for e in version.delta if e.kind == ADD and e.file.level == 0)
        self.memory.flushed[number] = frozenset((e.bucket, e.file.file_name) for e in added)
        yield from (str(v) for v in real_violations(version) if v.code not in self.scenario.tolerates)
        mode, visible = self._context.mode, self._above_level_0(version)
        if mode.hides_level_0 and (shown := real_rows(version, level_0=False)) != visible:
            yield f"plain readers of snapshot {number} see {shown}, compacted are {visible}"
        if mode.changelog_producer == "none":
            return
        before = self.memory.changes.get(number - 1, {})
        changes = list(real_changes(version, changelog_entries(self._context, version.snapshot)))
        is_input = mode.changelog_producer == INPUT
        if version.snapshot.commit_kind == OVERWRITE:
            self.memory.changes[number] = self.memory.rows[number] if is_input else visible
            return
        replayed, wrong = _taken_in(before, changes) if is_input else _replayed(before, changes)
        self.memory.changes[number] = replayed
        yield from (f"changelog of snapshot {number}: {text}" for text in wrong)
        expected = self.memory.rows[number] if is_input else visible
        if replayed != expected:
            yield f"the changelogs up to snapshot {number} replay to {replayed}, the state is {expected}"
        if is_input:
            yield from self._wrong_input(version.snapshot, changes)

    def _wrong_input(self, snapshot: Snapshot, changes: list[Change]) -> Iterator[str]:
        """Each written row is in the changelog once, and no other."""
        wanted = self.memory.wanted.get((snapshot.commit_user, snapshot.commit_identifier))
        is_write = wanted is not None and snapshot.commit_kind != COMPACT
        rows = [(kind, key, value) for batch in wanted.rows.values() for key, kind, value in batch] if wanted and is_write else []
        if sorted(rows) != sorted(map(tuple, changes)):
            yield f"changelog of snapshot {snapshot.id} is {changes}, written were {rows}"

    def _above_level_0(self, version: Version) -> Rows:
        """The rows of all commits whose files have left level 0."""
        waiting = {(entry.bucket, entry.file.file_name) for entry in version.live if entry.file.level == 0}
        found: Rows = {}
        for number, snapshot in sorted(self.memory.snapshots.items()):
            wanted = self.memory.wanted.get((snapshot.commit_user, snapshot.commit_identifier))
            if number <= version.snapshot.id and snapshot.commit_kind != COMPACT and wanted is not None:
                hidden = {bucket for bucket, _ in self.memory.flushed.get(number, frozenset()) & waiting}
                found = wanted.without(hidden).applied_to(found)
        return found

    # the end of a run

    def look_at_the_end(self) -> None:
        self.violations += self._at_the_end()

    def _context_of_the_end(self) -> TableContext:
        """The table without the resurrected snapshots of writers that crashed or knew too little to withdraw them, a known
        limit.
        """
        left = {self._layout.snapshot(number) for number, actor in self._undead.items() if actor.gave_up}
        if not left:
            return self._fresh_context()
        return self._fresh_context(SimDisk({path: data for path, data in self._disk.files.items() if path not in left}))

    def _at_the_end(self) -> Iterator[str]:
        for (user, identifier), end in self.memory.ends.items():
            if end == ACKNOWLEDGED and not self._times_published(user, identifier):
                yield f"acknowledged commit of {user} is lost"
        final = self.memory.rows.get(max(self.memory.snapshots, default=0), {})
        for key, count in self.memory.increments.items():
            if int(final[key]) < count:
                yield f"lost update: {count} increments were acknowledged, the counter is {final[key]}"
        context = self._context_of_the_end()
        newest = max(self.memory.snapshots, default=None)
        if context.snapshots.latest_id() != newest:
            yield f"a reader takes snapshot {context.snapshots.latest_id()} for the newest, it is {newest}"
        yield from (str(v) for v in check_table(context) if v.code not in self.scenario.tolerates)
        for path in self._tags:
            tag = Snapshot.from_json(self._disk.read(path), path)
            yield from self._wrong_rows(Version(context, tag), path)
        for number in context.snapshots.ids():
            yield from self._wrong_rows(Version(context, context.snapshots.get(number)), f"snapshot {number}")
