"""Knows what the table must contain, and checks every change that a reader could notice.

The acknowledged rows are folded along the published snapshots. Each version is checked by the shipped invariants, the final table
by all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from paimon_cli.bucket.merged_rows import read_bucket
from paimon_cli.errors import PaimonError
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.check import check_table, check_version
from paimon_cli.invariants.version import Version
from paimon_cli.lab.simulation.paper_files import BucketRows, merged, paper_rows
from paimon_cli.lab.simulation.scenario import Memory, Rows, Scenario, Wanted
from paimon_cli.lab.simulation.sim_storage import DiskStorage, SimDisk
from paimon_cli.metadata.snapshot import COMPACT, Snapshot
from paimon_cli.metadata.table_layout import SNAPSHOT_PREFIX, parse_numbered

COUNTER = 1
ACKNOWLEDGED, REFUSED, UNKNOWN = "acknowledged", "refused", "unknown"


def incremented(before: Rows) -> Rows:
    """The rows after a commit that did not announce any: the counter, key 1, is raised by one."""
    return {key: str(int(value) + 1) if key == COUNTER else value for key, value in before.items()}


def real_rows(version: Version) -> Rows:
    """Rows of real data files, read by the shipped reader."""
    found: dict[int, str] = {}
    for place, entries in version.buckets.items():
        bucket = BucketFiles(*place, entries[-1].total_buckets, tuple(entry.file for entry in entries))
        for batch in read_bucket(version.context, bucket, ("k", "v")):
            found.update(zip(batch.column("k").to_pylist(), map(str, batch.column("v").to_pylist()), strict=True))
    return found


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
                self._tags[path] = self._names[number]

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
        self._names[number] = self._named_by(version)
        self._check_once(snapshot)
        self._check_rows(version)

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
        return real_rows(version) if self.scenario.real_files else self._rows_on_paper(version)

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
        return frozenset([*map(layout.manifest, (*lists, *manifests)), *(version.file_path(entry) for entry in version.live)])

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
        yield from (str(v) for v in check_table(context, rows=self.scenario.real_files) if v.code not in self.scenario.tolerates)
        for path in self._tags:
            tag = Snapshot.from_json(self._disk.read(path), path)
            yield from self._wrong_rows(Version(context, tag), path)
        for number in context.snapshots.ids():
            yield from self._wrong_rows(Version(context, context.snapshots.get(number)), f"snapshot {number}")
