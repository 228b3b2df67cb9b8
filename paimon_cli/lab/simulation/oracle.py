"""Knows what the table must contain, and checks every change that a reader could observe.

The announced rows are applied in the order of the published snapshots. Each version is checked by the shipped invariants for
versions, the final table by all of them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace

from paimon_cli.commit.commit_records import CommitRecord, records_of
from paimon_cli.errors import BeingDropped
from paimon_cli.lab.simulation.json_files import BucketRows
from paimon_cli.lab.simulation.publication import Publication, TableEnd, new_reader, table_end, wrong_rows
from paimon_cli.lab.simulation.scenario import Announcement, Memory, Published, Scenario
from paimon_cli.lab.simulation.script import count_lines, observed, scripts_of
from paimon_cli.lab.simulation.sim_storage import CHANGE_CALLS, LISTING_CALLS, Ask, SimDisk
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import SNAPSHOT_PREFIX, parse_numbered

_SECOND = "-made-"
ACKNOWLEDGED, REFUSED, UNKNOWN = "acknowledged", "refused", "unknown"


def announced_user(snapshot: Snapshot) -> str:
    """The user under which a commit was announced: without the UUID that jobs add to `commit.user-prefix`."""
    return snapshot.commit_user.partition("_")[0]


class Oracle:
    """Checks a run and collects `violations`. `digest` is equal for disks that no reader can distinguish."""

    def __init__(self, scenario: Scenario, disk: SimDisk) -> None:
        self.scenario = scenario
        self.memory = scenario.memory.copy() if scenario.memory else Memory()
        self.violations: list[str] = []
        self.digest = 0
        self._disk = disk
        self._layout = scenario.layout
        self._shared: dict[str, int] = {}
        self._tags: dict[str, frozenset[str]] = {}
        self._undead: dict[int, int] = {}
        """Expired snapshot number -> the slow writer that published it again, and must withdraw it."""
        self._gave_up: frozenset[int] = frozenset()
        self._met_faults: frozenset[int] = frozenset()
        self._incomplete: frozenset[str] = frozenset()
        """The second files of records of commits that could not be written."""
        self._may_leave_files = False
        """Whether files that nothing names are excused: a process has crashed, or could not delete them."""
        self._end: int | None = None
        """The number of the snapshot that ended the history, also after a drop has deleted it; None while there was no drop."""
        self._is_dropped = False
        """Whether a drop has finished, after which nothing may be left."""
        self._newest_at_begin: dict[int, int] = {}
        """Actor -> the newest snapshot when its job began."""
        for path in disk.files:
            if path.startswith(self._layout.tag_directory):
                self._tagged(path, disk.files[path])

    def fork(self, disk: SimDisk) -> Oracle:
        """A copy of the oracle for a fork of the run."""
        fork = copy.copy(self)
        fork.memory, fork.violations, fork._disk = self.memory.copy(), self.violations.copy(), disk
        fork._shared, fork._tags, fork._undead = self._shared.copy(), self._tags.copy(), self._undead.copy()
        fork._newest_at_begin = self._newest_at_begin.copy()
        return fork

    # reports of jobs

    def announces(self, user: str, identifier: int, rows: BucketRows, overwrites: bool = False) -> None:
        """A job that is to commit these rows starts."""
        self.memory.announced[user, identifier] = Announcement(rows, overwrites)
        self.memory.tries[user, identifier] = self.memory.tries.get((user, identifier), 0) + 1

    def ended(self, user: str, identifier: int, end: str) -> None:
        self.memory.ends[user, identifier] = end
        self.digest ^= hash((user, identifier, end))
        is_published = self._is_published(user, identifier)
        if end == ACKNOWLEDGED and not is_published:
            self._report(f"commit of {user} was acknowledged but is in no snapshot")
        if end == REFUSED and is_published and self.memory.tries[user, identifier] == 1:
            self._report(f"commit of {user} was refused but is in the table")

    def incremented(self, key: int) -> None:
        """An increment of a counter was acknowledged."""
        self.memory.increments[key] = self.memory.increments.get(key, 0) + 1
        self.digest ^= hash((key, self.memory.increments[key]))

    def dropped(self) -> None:
        """A drop has finished."""
        self._is_dropped = True
        self.digest ^= hash("dropped")

    def gave_up(self, number: int) -> None:
        """An actor crashed, or could not clean up because a put was never answered."""
        if number not in self._gave_up:
            self._gave_up |= {number}
            self.digest ^= hash(("gave up", number))

    def crashed(self, number: int) -> None:
        """A process has ended, with all that it was to clean up."""
        self.gave_up(number)
        self.left_files(number)

    def left_files(self, number: int) -> None:
        """An actor could not delete all files that nothing names."""
        if not self._may_leave_files:
            self._may_leave_files = True
            self.digest ^= hash("files are left")

    def met_fault(self, number: int, operation: str) -> None:
        """A call of an actor fails, or its answer is lost. After a conflict it may be a call of the clean-up."""
        if number not in self._met_faults:
            self._met_faults |= {number}
            self.digest ^= hash(("met a fault", number))
        is_of_clean_up = operation not in CHANGE_CALLS and self._others_have_committed(number, since=0)
        if operation == "delete" or operation in LISTING_CALLS or is_of_clean_up:
            self.left_files(number)

    def could_not_write(self, path: str) -> None:
        """A file was not written, or nobody knows whether it was."""
        if path not in self._incomplete and path.startswith(self._layout.commit_user_directory) and _SECOND in path:
            self._incomplete |= {path}
            self.digest ^= hash(("could not write", path))

    def began(self, number: int) -> None:
        """An actor begins to read and change the table."""
        self.digest ^= hash(("began", number, self._newest_at_begin.get(number)))
        self._newest_at_begin[number] = self.memory.newest
        self.digest ^= hash(("began", number, self.memory.newest))

    def lost_compaction(self, number: int, why: str) -> None:
        """A compaction was refused because of what another commit has changed."""
        if number not in self._met_faults and not self._others_have_committed(number, self._newest_at_begin[number]):
            self._report(f"a compaction was refused, but no other actor has committed anything: {why}")

    def _others_have_committed(self, number: int, since: int) -> bool:
        """Whether other actors have published snapshots after this one."""
        makers = (self._disk.makers.get(self._layout.snapshot(later)) for later in range(since + 1, self.memory.newest + 1))
        return any(maker not in (None, number) for maker in makers)

    def failed(self, number: int, error: BaseException) -> None:
        self._report(f"actor {number} failed: {type(error).__name__}: {error}")

    def _is_published(self, user: str, identifier: int) -> bool:
        snapshots = (published.snapshot for published in self.memory.published.values())
        return any((announced_user(s), s.commit_identifier) == (user, identifier) for s in snapshots)

    def _report(self, message: str) -> None:
        self.violations.append(message)

    # changes of the storage

    def changed(self, actor: int, path: str) -> None:
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
                self._note(path, self._published(number, data))
        elif directory == self._layout.tag_directory:
            self._tagged(path, data)
            self._note(path, hash(data))
        elif data is None and self._end is None and (naming := self._referrer(path)):
            self._report(f"{path} was deleted, but {naming} references it")
        elif data is None and path in self._shared:
            self._note(path, 0)

    def _referrer(self, path: str) -> str:
        snapshots = [f"snapshot {number}" for number, names in self.memory.names.items() if path in names]
        return next(iter([*snapshots, *(tag for tag, names in self._tags.items() if path in names)]), "")

    def _note(self, path: str, mark: int) -> None:
        self.digest ^= self._shared.get(path, 0)
        self._shared[path] = hash((path, mark))
        self.digest ^= self._shared[path]

    def _check_hint(self, path: str, data: bytes | None) -> None:
        if data is not None and (not data.isdigit() or int(data) > (self._end or self.memory.newest)):
            self._report(f"{path} contains {data!r}, but the newest snapshot is {self.memory.newest}")

    def _tagged(self, path: str, data: bytes | None) -> None:
        """A tag protects its snapshot if that still exists; otherwise `tagger` deletes the tag again."""
        self._tags.pop(path, None)
        if data is not None:
            number = Snapshot.from_json(data, path).id
            if number in self.memory.names:
                self._tags[path] = self.memory.published[number].version_files

    def _vanished(self, number: int) -> None:
        if self._undead.pop(number, None) is not None:
            return
        if number == self._end:
            if self.memory.names or self._layout.schema(0) in self._disk.files:
                self._report("the end of the history was deleted before the snapshots and the schema")
            self.memory.gone = number
            return
        if number != min(self.memory.names, default=0):
            self._report(f"snapshot {number} was deleted before older ones")
        if number == self.memory.newest and self._end is None:
            self._report(f"snapshot {number} was deleted although it is the newest")
        self.memory.names.pop(number, None)
        self.memory.gone = max(self.memory.gone, number)

    def _published(self, number: int, data: bytes) -> int:
        """Check a new snapshot; returns a digest of the files that it references."""
        memory = self.memory
        if number in memory.published:
            lost = memory.published[number].snapshot.commit_user
            self._report(f"snapshot {number} was published twice: that of {lost} is overwritten")
            return hash(data)
        if number != memory.newest + 1:
            self._report(f"snapshot {number} does not follow {memory.newest}")
            return hash(data)
        try:
            snapshot = Snapshot.from_json(data, self._layout.snapshot(number))
        except BeingDropped:
            self._end = number
            self.digest ^= hash(("ended", number))
            return hash(data)
        announced = memory.announced.get((announced_user(snapshot), snapshot.commit_identifier))
        before = memory.published.get(number - 1)
        has_previous = number - 1 > memory.gone
        key = ("published", before, data, announced and announced.signature, has_previous)

        def judged(ask: Ask) -> Published:
            return Publication(self.scenario, Published(before, snapshot, announced), has_previous, ask).judge()

        found = observed(scripts_of(self.scenario), key, self._disk, judged)
        memory.published[number] = found
        memory.names[number] = found.names
        self.violations += found.violations
        return found.mark

    # the end of a run

    def check_final_table(self) -> None:
        self.violations += self._final_violations()

    def _final_violations(self) -> Iterator[str]:
        for (user, identifier), end in self.memory.ends.items():
            if end == ACKNOWLEDGED and not self._is_published(user, identifier):
                yield f"acknowledged commit of {user} is lost"
        newest = self.memory.newest
        for key, count in self.memory.increments.items():
            value = self.memory.published[newest].rows[key]
            if int(value) < count:
                yield f"lost update: {count} increments were acknowledged, the counter is {value}"
        if self._end is not None:
            yield from self._wrong_after_drop()
            return
        found = self._table_end()
        if found.latest != newest:
            yield f"readers find snapshot {found.latest} as the newest, but it is {newest}"
        yield from found.violations
        if left := self._left_over():
            yield f"files are left that nothing names: {left}"
        for name, number, rows in found.rows:
            if rows != self.memory.published[number].rows:
                yield wrong_rows(name, rows, self.memory.published[number].rows)

    def _left_over(self) -> list[str]:
        """The files of actors that no version names, unless a crash or a failed deletion excuses them."""
        if self._may_leave_files:
            return []
        versions = (self._layout.snapshot_directory, self._layout.tag_directory)
        named = frozenset[str]().union(*self.memory.names.values(), *self._tags.values())
        made = [path for path in self._disk.makers if path in self._disk.files]
        # A complete record stays, and an open one beside it, of a twin or a failed put, or of a commit whose second file could
        # not be written; others must not be left.
        records = records_of(made)
        complete = {(r.digest, r.identifier) for r in records if r.snapshot in self.memory.published}
        done = [r for r in records if (r.digest, r.identifier) in complete or self._could_not_complete(r)]
        recorded = {path for record in done for path in record.paths(self._layout)}
        return [path for path in made if path not in named | recorded and path.rpartition("/")[0] not in versions]

    def _could_not_complete(self, record: CommitRecord) -> bool:
        """Whether the second file of an open record could not be written, and nobody came who would have completed it."""
        tries = [count for (user, i), count in self.memory.tries.items() if i == record.identifier and record.is_of(user)]
        if tries != [1]:
            return False
        made = [replace(record, snapshot=number) for number in self.memory.published if number > record.after]
        return any(completed.paths(self._layout)[1] in self._incomplete for completed in made)

    def _wrong_after_drop(self) -> Iterator[str]:
        """What is wrong with a table of which a drop has begun."""
        hints = {self._layout.latest_hint} if self.scenario.is_remote else set()
        left = [path for path in self._disk.files if path.startswith(f"{self._layout.root}/") and path not in hints]
        if left and self._is_dropped and not self._may_leave_files:
            yield f"files are left after the drop: {left}"
        if self._layout.schema(0) in left and not new_reader(self.scenario, self._disk.look).snapshots.is_ended():
            yield "a drop has begun, but readers do not notice it"

    def _table_end(self) -> TableEnd:
        """The final table without snapshots published again after expiry that their writers could not withdraw, a known limit."""
        left = {self._layout.snapshot(number) for number, actor in self._undead.items() if actor in self._gave_up}
        files = {path: data for path, data in self._disk.files.items() if path not in left}
        known, key = scripts_of(self.scenario).results, (frozenset(files.items()), *self._tags)
        found: TableEnd | None = known.get(key)
        if found is None:
            count_lines(len(files))
            found = known[key] = table_end(self.scenario, SimDisk(files) if left else self._disk, self._tags)
        return found
