"""Walks through the retained commits of a table, and tells from metadata which anomalies did happen (`anomalies`).

What only rows can prove becomes a question (`past_questions`). Each commit is visited once, so time grows with the manifests.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from paimon_cli.errors import DamagedFile
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants import check
from paimon_cli.invariants.anomalies import (
    BESIDE,
    CAME_BACK,
    DISORDER,
    LOST_UPDATE,
    RAN_BACK,
    REPEATED_COMMIT,
    REWRITTEN,
    RULE_OF_CODE,
    SHARED_FILE,
    SNAPSHOT_OVERWRITTEN,
    TAG_LOST,
    TWO_PLACES,
    VECTOR_LOST,
    Anomaly,
    Commit,
    anomaly,
)
from paimon_cli.invariants.history_walk import WalkedVersion, walk
from paimon_cli.invariants.key_places import (
    KeysOfBuckets,
    RowsElsewhere,
    indexes_by_bucket,
    several_buckets,
    with_ends_elsewhere,
)
from paimon_cli.invariants.past_questions import Question
from paimon_cli.invariants.past_rows import RewrittenBucket, SharedKeys, may_share_keys
from paimon_cli.invariants.past_vectors import IfHeld, lost_marks, visible_rows
from paimon_cli.invariants.retained_past import (
    commits_without_snapshot,
    holds_any,
    lost_from_tags,
    outlived_commits,
    ran_back,
    untold_before,
    untold_between,
    untold_of_unreadable,
)
from paimon_cli.invariants.violation import Violation
from paimon_cli.metadata.data_file import BucketId, DataFileMeta, EntryKind, IndexFileMeta, ManifestEntry
from paimon_cli.metadata.snapshot import APPEND, COMPACT, OVERWRITE, Snapshot

REMEMBERED_COMMITS = 32
"""The commits of a bucket with which a later one is compared: a job that read an older version is not noticed."""
_OF_VERSION = tuple(each for each in check.META_CHECKS if set(each.codes) & set(RULE_OF_CODE))
_OF_STEP = tuple(each for each in check.STEP_CHECKS if set(each.codes) & set(RULE_OF_CODE))
Found = Anomaly | Question


@dataclass
class _Wrote:
    """What one commit wrote to a bucket: its level-0 files, and their range of sequence numbers."""

    commit: Commit
    entries: tuple[ManifestEntry, ...]

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        return tuple(entry.file for entry in self.entries)

    @property
    def sequences(self) -> tuple[int, int]:
        return min(f.min_sequence_number for f in self.files), max(f.max_sequence_number for f in self.files)


def _regrouped(delta: Iterable[ManifestEntry]) -> set[bytes]:
    """The partitions whose bucket count a commit has changed."""
    counts: dict[bytes, set[int]] = {}
    for entry in delta:
        counts.setdefault(entry.partition, set()).add(entry.total_buckets)
    return {partition for partition, found in counts.items() if len(found) > 1}


@dataclass
class PastCommits:
    """The walk. `wanted`: rules, none for all; `since_millis`: only commits since then; `holds`: for which files."""

    context: TableContext
    wanted: Collection[str] = ()
    since_millis: int | None = None
    holds: Callable[[ManifestEntry], bool] = holds_any
    _found: set[Anomaly] = field(default_factory=set)
    _commits: dict[tuple[str, int], tuple[Snapshot, tuple[ManifestEntry, ...]]] = field(default_factory=dict)
    """For each identity the first commit, and its files if keys are asked for."""
    _added: dict[str, tuple[int, Commit]] = field(default_factory=dict)
    """For each live file, by name: its place in the order of files, and the commit that added it."""
    _removed: dict[str, Commit] = field(default_factory=dict)
    _lasts: dict[BucketId, deque[_Wrote]] = field(default_factory=dict)
    _mixed: set[bytes] = field(default_factory=set)
    _lists: set[str] = field(default_factory=set)
    _indexes: dict[BucketId, tuple[IndexFileMeta, ...]] = field(default_factory=dict)

    def wants(self, *rules: str) -> tuple[str, ...]:
        """The rules among these that are asked for."""
        return tuple(rule for rule in rules if not self.wanted or rule in self.wanted)

    def findings(self) -> Iterator[Found]:
        """Findings and questions, oldest first. Damage is no error: `verify` reports it, and here it says what cannot be told."""
        context, ids = self.context, self.context.snapshots.ids()
        yield from self._of_retention(ids)
        yield from (untold for untold in untold_between(ids) if self.wants(untold.rule))
        last: WalkedVersion | None = None
        unreadable = list[str]()
        for version in walk(context, ids):
            last = version if isinstance(version, WalkedVersion) else None
            if isinstance(version, Violation):
                unreadable.append(version.path)
            if last is not None:
                recent = self.since_millis is None or last.snapshot.time_millis >= self.since_millis
                for found in list(self._of_step(last)):
                    if recent:
                        yield found
        yield from (untold for untold in untold_of_unreadable(unreadable) if self.wants(untold.rule))
        if last is not None:
            yield from self._of_state(last)
            if self.wants(SNAPSHOT_OVERWRITTEN):
                yield from commits_without_snapshot(context, last, self._lists, self.holds)
        if self.wants(TAG_LOST):
            for violation, snapshot in lost_from_tags(context, self.holds):
                yield from self._translated(violation, snapshot)

    def _of_retention(self, ids: Sequence[int]) -> Iterator[Found]:
        """What cannot be told any more, after the commits that tags and changelogs have kept beyond their snapshots."""
        context = self.context
        oldest = context.snapshots.find(ids[0]) if ids else None
        if oldest is None or (self.since_millis is not None and oldest.time_millis <= self.since_millis):
            return
        before, outlived = None, outlived_commits(context, oldest.id)
        for snapshot in outlived if self.holds is holds_any else ():
            if self.since_millis is None or snapshot.time_millis >= self.since_millis:
                yield from self._repeated(snapshot, ()) if self.wants(REPEATED_COMMIT) else ()
                yield from ran_back(before, snapshot) if self.wants(RAN_BACK) else ()
            before = snapshot
        yield from ran_back(before, oldest) if self.wants(RAN_BACK) else ()
        yield from (untold for untold in untold_before(oldest.id, outlived) if self.wants(untold.rule))

    def _of_step(self, version: WalkedVersion) -> Iterator[Found]:
        snapshot = version.snapshot
        if version.before is None:
            self._lasts.clear()
            self._removed.clear()
        delta = [entry for entry in version.delta if self.holds(entry)]
        self._lists |= {snapshot.base_manifest_list, snapshot.delta_manifest_list}
        is_concerned = bool(delta) or self.holds is holds_any
        if is_concerned and self.wants(REPEATED_COMMIT):
            yield from self._repeated(snapshot, delta)
        for violation in _violations(version):
            if is_concerned:
                yield from self._if_held(self._translated(violation, snapshot), delta)
        indexes = self._indexes
        if version.index_changed:
            indexes = indexes_by_bucket(version)
            yield from lost_marks(version, self._indexes, indexes, self.holds) if self.wants(VECTOR_LOST) else ()
        yield from self._of_compaction(version, delta, self._indexes, indexes)
        self._indexes = indexes
        again = self._added_again(version.delta)
        yield from self._shared(version, again)
        delta = [entry for entry in delta if entry.file.file_name not in again]  # these rows are no new ones
        yield from self._disorder(version, delta)
        yield from self._beside(version, delta)
        yield from self._files_again(version, delta)
        yield from self._mixed_buckets(version)

    def _translated(self, violation: Violation, snapshot: Snapshot | None) -> Iterator[Anomaly]:
        rule = RULE_OF_CODE[violation.code].name
        if not self.wants(rule):
            return
        commits = () if snapshot is None else (Commit.of(snapshot),)
        found = anomaly(rule, violation.message, commits, files=(violation.path,))
        if found not in self._found:
            self._found.add(found)
            yield found

    def _if_held(self, found: Iterable[Anomaly], *groups: Iterable[ManifestEntry]) -> Iterator[Found]:
        """Findings of metadata; where a key is asked for, only if the files of each group hold it, which their rows tell."""
        if self.holds is holds_any:
            yield from found
        elif told := tuple(found):
            yield IfHeld(told, tuple(map(tuple, groups)))

    def _repeated(self, snapshot: Snapshot, delta: Iterable[ManifestEntry]) -> Iterator[Found]:
        # all commits of Java's batch writers have the greatest identifier, which therefore tells no repetition
        if snapshot.commit_kind != APPEND or snapshot.commit_identifier == sys.maxsize:
            return
        files = () if self.holds is holds_any else tuple(delta)
        first, its_files = self._commits.setdefault((snapshot.commit_user, snapshot.commit_identifier), (snapshot, files))
        if first.id != snapshot.id:
            what = f"identifier {snapshot.commit_identifier} was committed in snapshot {first.id} and again in {snapshot.id}"
            found = anomaly(REPEATED_COMMIT, what, (Commit.of(first), Commit.of(snapshot)))
            yield from self._if_held([found], its_files, files)

    def _added_again(self, delta: Iterable[ManifestEntry]) -> set[str]:
        """The names of files that a commit adds while they are live: it does not remove their entries."""
        names = {e.file.file_name for e in delta if e.kind == EntryKind.ADD and e.file.file_name in self._added}
        return names - {e.file.file_name for e in delta if e.kind != EntryKind.ADD} if names else names

    def _shared(self, version: WalkedVersion, again: Collection[str]) -> Iterator[Found]:
        """Files that a commit adds although their rows are live already, in this bucket or by their path in another one."""
        if not again or not self.wants(SHARED_FILE):
            return
        live = [entry for entry in version.whole().live if entry.file.file_name in again]
        for entry in version.delta:
            if entry.kind != EntryKind.ADD or entry.file.file_name not in again or not self.holds(entry):
                continue
            path, (_, by) = version.file_path(entry), self._added[entry.file.file_name]
            same = [e for e in live if version.file_path(e) == path]
            added = version.before is not None and version.before.holds(entry)
            if added or len(same) > 1:
                what = f"{path} was added by snapshot {by.snapshot_id}, and again by snapshot {version.snapshot.id}"
                found = anomaly(SHARED_FILE, what, (by, Commit.of(version.snapshot)), files=(entry.file.file_name,))
                yield from self._if_held([found], [entry])

    def _of_compaction(
        self,
        version: WalkedVersion,
        delta: Iterable[ManifestEntry],
        old: dict[BucketId, tuple[IndexFileMeta, ...]],
        new: dict[BucketId, tuple[IndexFileMeta, ...]],
    ) -> Iterator[Found]:
        context, before, rules = self.context, version.before, self.wants(CAME_BACK, REWRITTEN)
        if version.snapshot.commit_kind != COMPACT or before is None or not rules:
            return
        if context.options.record_level_expire_time is not None:
            return  # rows that have expired are left out
        delta = list(delta)
        # rows come from the postponed bucket, or change their bucket
        elsewhere = {entry.partition for entry in version.delta if entry.is_postponed} | _regrouped(delta)
        commit = Commit.of(version.snapshot)
        marked = (
            {bucket_id for bucket_id in {*old, *new} if old.get(bucket_id) != new.get(bucket_id)} if new is not old else set()
        )
        for bucket_id in sorted({entry.bucket_id for entry in delta} | marked):
            if bucket_id.partition in elsewhere:
                continue
            sides = [
                BucketFiles(*bucket_id, 0, self._ordered(each.at(bucket_id)), indexes.get(bucket_id, ()))
                for each, indexes in ((before, old), (version, new))
            ]
            if context.schema.primary_keys:
                yield RewrittenBucket(rules, (commit,), version.snapshot.schema_id, *sides)
            elif (
                (counts := [visible_rows(side) for side in sides])[0] != counts[1]
                and None not in counts
                and self.wants(REWRITTEN)
            ):
                what = f"{context.bucket_path(*bucket_id)} had {counts[0]} rows before the compaction, and {counts[1]} after it"
                yield anomaly(REWRITTEN, what, (commit,))

    def _ordered(self, entries: Iterable[ManifestEntry]) -> tuple[DataFileMeta, ...]:
        """The files of entries, those first that were added first."""
        unknown = (len(self._added) + len(self._removed), None)
        return tuple(sorted((e.file for e in entries), key=lambda file: self._added.get(file.file_name, unknown)[0]))

    def _disorder(self, version: WalkedVersion, delta: Iterable[ManifestEntry]) -> Iterator[SharedKeys]:
        """New files whose sequence numbers are not above older files with keys in their range."""
        context, before, rules = self.context, version.before, self.wants(DISORDER)
        is_numbered = context.schema.primary_keys and not context.options.sequence_fields
        if before is None or not rules or not is_numbered or version.snapshot.commit_kind == OVERWRITE:
            return
        delta = list(delta)
        regrouped = _regrouped(delta) if version.snapshot.commit_kind == COMPACT else set()  # its rows keep their numbers
        for entry in delta:
            bucket_id, least = entry.bucket_id, entry.file.min_sequence_number
            if entry.partition in regrouped or entry.kind != EntryKind.ADD or entry.file.level != 0 or entry.is_postponed:
                continue
            if before.highest_sequence(bucket_id) < least:
                continue
            older = [e.file for e in before.at(bucket_id) if e.file.max_sequence_number >= least]
            sharing = tuple(file for file in older if may_share_keys(context, (file,), (entry.file,)))
            if sharing:
                yield SharedKeys(rules, (*self._writers(sharing), Commit.of(version.snapshot)), bucket_id, sharing, (entry.file,))

    def _writers(self, files: Iterable[DataFileMeta]) -> Iterator[Commit]:
        for file in files:
            if file.file_name in self._added:
                yield self._added[file.file_name][1]

    def _beside(self, version: WalkedVersion, delta: Iterable[ManifestEntry]) -> Iterator[Found]:
        """Commits whose sequence numbers overlap those of earlier ones in their bucket: both began from the same version."""
        context, snapshot, before = self.context, version.snapshot, version.before
        if snapshot.commit_kind == OVERWRITE:  # its sequence numbers may start over
            for entry in version.delta:
                self._lasts.pop(entry.bucket_id, None)
        if snapshot.commit_kind != APPEND or not context.schema.primary_keys or context.options.sequence_snapshot_ordering:
            return
        written: dict[BucketId, list[ManifestEntry]] = {}
        for entry in delta:
            if entry.kind == EntryKind.ADD and entry.file.level == 0 and not entry.is_postponed:
                written.setdefault(entry.bucket_id, []).append(entry)
        for bucket_id, entries in written.items():
            now = _Wrote(Commit.of(snapshot), tuple(entries))
            lasts = self._lasts.setdefault(bucket_id, deque(maxlen=REMEMBERED_COMMITS))
            least, met = now.sequences[0], list[_Wrote]()
            if before is not None and least <= before.highest_sequence(bucket_id):
                # a compaction drops rows: the next writer continues from the greatest number that is left
                top = max((entry.file.max_sequence_number for entry in before.at(bucket_id)), default=-1)
                met = [last for last in lasts if least <= min(last.sequences[1], top)]
            lasts.append(now)
            for last in met:
                yield from self._met(bucket_id, last, now)

    def _met(self, bucket_id: BucketId, last: _Wrote, now: _Wrote) -> Iterator[Found]:
        context, commits = self.context, (last.commit, now.commit)
        if self.wants(BESIDE):
            where = context.bucket_path(*bucket_id)
            what = f"both commits began from one version of {where}: sequence numbers {last.sequences} and {now.sequences}"
            found = anomaly(BESIDE, what, commits, files=[file.file_name for file in (*last.files, *now.files)])
            yield from self._if_held([found], last.entries, now.entries)
        rules = self.wants(LOST_UPDATE, CAME_BACK)
        # where versions of a key are combined, neither of two changes is lost
        if rules and context.mode.merge_engine.newest_wins and may_share_keys(context, last.files, now.files):
            yield SharedKeys(rules, commits, bucket_id, last.files, now.files)

    def _files_again(self, version: WalkedVersion, delta: Iterable[ManifestEntry]) -> Iterator[Found]:
        """Files that a commit adds although an earlier one has removed them, and what is known of files from now on."""
        commit = Commit.of(version.snapshot)
        wants = self.wants(CAME_BACK) and version.before is not None and version.snapshot.commit_kind != OVERWRITE
        if wants:
            for entry in delta:
                name = entry.file.file_name
                if entry.kind == EntryKind.ADD and name not in self._added and (by := self._removed.get(name)) is not None:
                    what = f"its file {name} is live again, which snapshot {by.snapshot_id} had removed"
                    yield from self._if_held([anomaly(CAME_BACK, what, (by, commit), files=(name,))], [entry])
        for entry in version.fresh:
            self._added.setdefault(entry.file.file_name, (len(self._added) + len(self._removed), commit))
        kept = {entry.file.file_name for entry in version.delta if entry.kind == EntryKind.ADD}
        for entry in version.delta:
            name = entry.file.file_name
            if entry.kind != EntryKind.ADD and name not in kept:
                self._added.pop(name, None)
                self._removed[name] = commit

    def _mixed_buckets(self, version: WalkedVersion) -> Iterator[Question]:
        """Partitions that have just got files of another number of buckets, so that keys may be in two of them."""
        mixed = {partition for partition, counts in version.bucket_counts().items() if len(counts) > 1}
        if (new := mixed - self._mixed) and (rules := self.wants(TWO_PLACES)) and self.context.schema.primary_keys:
            for buckets in several_buckets(version.whole(), new):
                yield KeysOfBuckets((Commit.of(version.snapshot),), buckets, rules)
        self._mixed |= mixed

    def _of_state(self, last: WalkedVersion) -> Iterator[Question]:
        """Questions about the newest version: where its keys are."""
        context = self.context
        if not context.schema.primary_keys or not self.wants(TWO_PLACES):
            return
        version, commit = last.whole(), Commit.of(last.snapshot)
        if context.mode.bucket_mode.moves_keys or context.options.bucket == -1:
            partitions = {entry.partition for entry in version.live}
            for buckets in several_buckets(version, partitions, together=context.mode.bucket_mode.moves_keys):
                yield KeysOfBuckets((commit,), buckets)
            return
        for partition in sorted(self._mixed):
            for buckets in several_buckets(version, {partition}):
                yield KeysOfBuckets((commit,), buckets)
        for entries in version.buckets.values():
            held = [entry for entry in entries if self.holds(entry) and not entry.is_postponed]
            with suppress(DamagedFile):  # `verify` reports it
                if held and (suspects := with_ends_elsewhere(context, held)):
                    yield RowsElsewhere(tuple(self._writers(entry.file for entry in suspects)), suspects)


def _violations(version: WalkedVersion) -> Iterator[Violation]:
    """What the checks of `verify` find that are anomalies."""
    with suppress(DamagedFile):  # `verify` reports it
        for each in _OF_VERSION:
            yield from each(version)
        if version.before is not None:
            for step in _OF_STEP:
                yield from step(version.before, version)
