"""What did happen to a table: a rule for each kind of anomaly, told from what its history still retains.

Every rule reads metadata only: snapshots, manifests, and the key and sequence ranges of data files. The walk visits each retained
snapshot once, so time and memory grow with the manifests, not with the rows.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants import check, snapshot_checks
from paimon_cli.invariants.file_checks import StoredFiles
from paimon_cli.invariants.history_walk import WalkedVersion, walk
from paimon_cli.invariants.violation import Violation
from paimon_cli.metadata.data_file import BucketId, EntryKind, ManifestEntry
from paimon_cli.metadata.snapshot import APPEND, OVERWRITE, Snapshot

PROVEN, LIKELY, UNTOLD = "proven", "likely", "cannot be told"
"""Certainties: the files show it; they show most of it; what would show it has expired."""


@dataclass(frozen=True)
class Anomaly:
    """A finding of `history check`. `key`: the range of keys that is concerned; None where it is not about keys."""

    rule: str
    certainty: str
    key: str | None
    snapshots: tuple[int, ...]
    users: tuple[str, ...]
    files: tuple[str, ...]
    message: str
    prevention: str


@dataclass(frozen=True)
class AnomalyRule:
    """A kind of anomaly. `codes`: the checks of `verify` that find it, if any do."""

    name: str
    meaning: str
    prevention: str
    codes: tuple[str, ...] = ()
    certainty: str = PROVEN


_SEPARATE = "let each job write its own partitions or buckets, or write with --data-conflict-check bucket"
ANOMALY_RULES = (
    AnomalyRule(
        "lost-update",
        "two commits read the same version, and both wrote the key, so that one change was made without seeing the other",
        _SEPARATE,
    ),
    AnomalyRule("writers-beside-each-other", "two jobs wrote to one bucket from the same version", _SEPARATE, (), LIKELY),
    AnomalyRule(
        "merge-disorder", "a newer commit's row has an older sequence number than the row it follows", _SEPARATE, ("PV023",)
    ),
    AnomalyRule(
        "repeated-commit",
        "one commit identifier of a user was committed twice, so that a replayed batch may count twice",
        "one commit user per job, and no writer that skips the look for its own earlier commits",
    ),
    AnomalyRule(
        "snapshot-overwritten",
        "a snapshot does not continue the one before it: that was replaced, as a rename on an object store does",
        "a catalog or storage with put-if-absent (paimon-cli doctor TABLE), or a lock",
        ("PV010",),
    ),
    AnomalyRule(
        "bucket-counts-mixed",
        "a partition has files of several numbers of buckets, so a key may be in two of them",
        "stop writers before `bucket` is changed, then paimon-cli rescale TABLE --buckets N",
        ("PV022",),
    ),
    AnomalyRule(
        "vector-lost",
        "a deletion vector belongs to no live file, or a newer one marks fewer rows",
        "one compaction job at a time, and writers that check for files conflicts",
        ("PV016", "PV048", "PV065"),
    ),
    AnomalyRule(
        "shared-file",
        "one data file is live in two places, so its rows count twice",
        "copy files, never their entries",
        ("PV029",),
    ),
    AnomalyRule(
        "tag-lost-files",
        "an expiry took files that a tag needs",
        "expire with a tool that reads all tags, and create no tag while an expiry runs",
        ("PV050", "PV051"),
    ),
    AnomalyRule(
        "clock-ran-back",
        "a snapshot is older than the one before it, so reads as of a time and expiry choose wrongly",
        "one time service for all hosts that commit",
        ("PV004",),
    ),
)
BY_NAME = {rule.name: rule for rule in ANOMALY_RULES}
_RULE_OF_CODE = {code: rule for rule in ANOMALY_RULES for code in rule.codes}


@dataclass
class _Wrote:
    """What one commit wrote to a bucket: its snapshot, level-0 files, and range of sequence numbers."""

    snapshot: Snapshot
    files: list[ManifestEntry]

    @property
    def sequences(self) -> tuple[int, int]:
        return min(e.file.min_sequence_number for e in self.files), max(e.file.max_sequence_number for e in self.files)


def anomalies(context: TableContext, wanted: Collection[str] = (), since_millis: int | None = None) -> Iterator[Anomaly]:
    """What went wrong in the retained history, oldest first, of the rules with these names (none: all).

    `since_millis`: only commits since then. Raises no error for damage: `verify` reports it.
    """
    wants: Callable[[str], bool] = wanted.__contains__ if wanted else lambda name: True
    ids = context.snapshots.ids()
    seen: dict[tuple[str, int, str], Snapshot] = {}
    lasts: dict[BucketId, _Wrote] = {}
    found: set[Anomaly] = set()
    if not since_millis and ids and ids[0] > 1:
        yield from _expired(ids[0], wants)
    for violation in (v for of_history in check.TABLE_CHECKS for v in of_history(context)):
        yield from _translated(violation, None, wants, found)
    for version in walk(context, ids):
        if isinstance(version, Violation):
            continue
        snapshot = version.snapshot
        is_recent = since_millis is None or snapshot.time_millis >= since_millis
        steps = [*check.check_walked(version), *(check.check_state(version) if version.before is not None else ())]
        own = [*_repeated(snapshot, seen), *_beside(version, lasts)]
        if not is_recent:
            continue
        for violation in steps:
            yield from _translated(violation, snapshot, wants, found)
        yield from (anomaly for anomaly in own if wants(anomaly.rule))
    if wants("tag-lost-files"):
        stored = StoredFiles(context)
        for tagged in snapshot_checks.tagged_versions(context):
            violations = [tagged] if isinstance(tagged, Violation) else snapshot_checks.tagged_files_exist(tagged, stored)
            for violation in violations:
                yield from _translated(violation, None, wants, found)


def _translated(
    violation: Violation, snapshot: Snapshot | None, wants: Callable[[str], bool], found: set[Anomaly]
) -> Iterator[Anomaly]:
    rule = _RULE_OF_CODE.get(violation.code)
    if rule is None or not wants(rule.name):
        return
    ids, users = ((snapshot.id,), (snapshot.commit_user,)) if snapshot is not None else ((), ())
    anomaly = Anomaly(rule.name, rule.certainty, None, ids, users, (violation.path,), violation.message, rule.prevention)
    if anomaly not in found:
        found.add(anomaly)
        yield anomaly


def _repeated(snapshot: Snapshot, seen: dict[tuple[str, int, str], Snapshot]) -> Iterator[Anomaly]:
    if snapshot.commit_kind != APPEND or snapshot.commit_identifier == sys.maxsize:
        return
    # all commits of Java's batch writers have the greatest identifier, which therefore tells no repetition
    first = seen.setdefault((snapshot.commit_user, snapshot.commit_identifier, snapshot.commit_kind), snapshot)
    if first is not snapshot:
        what = f"identifier {snapshot.commit_identifier} was committed in snapshot {first.id} and again in {snapshot.id}"
        yield _of("repeated-commit", None, (first, snapshot), (), what)


def _beside(version: WalkedVersion, lasts: dict[BucketId, _Wrote]) -> Iterator[Anomaly]:
    """Commits whose sequence numbers overlap those of the commit before in their bucket: both began from the same version."""
    context, snapshot = version.context, version.snapshot
    if version.before is None:
        lasts.clear()
    if snapshot.commit_kind == OVERWRITE:  # its sequence numbers may begin anew
        for entry in version.delta:
            lasts.pop(entry.bucket_id, None)
    if snapshot.commit_kind != APPEND or not context.schema.primary_keys or context.options.sequence_snapshot_ordering:
        return
    written: dict[BucketId, list[ManifestEntry]] = {}
    for entry in version.delta:
        if entry.kind == EntryKind.ADD and entry.file.level == 0 and not entry.is_postponed:
            written.setdefault(entry.bucket_id, []).append(entry)
    for bucket_id, files in written.items():
        now, before = _Wrote(snapshot, files), lasts.get(bucket_id)
        lasts[bucket_id] = now
        if before is None or before.snapshot.commit_user == snapshot.commit_user:
            continue
        if version.before is None or now.sequences[0] > min(before.sequences[1], version.before.highest_sequence(bucket_id)):
            continue  # numbers also begin anew in a bucket that had become empty
        names = tuple(e.file.file_name for e in (*before.files, *files))
        where = context.bucket_path(*bucket_id)
        what = f"both commits began from one version of {where}: sequence numbers {before.sequences} and {now.sequences}"
        yield _of("writers-beside-each-other", None, (before.snapshot, snapshot), names, what)
        for one, other in ((one, other) for one in before.files for other in files):
            yield from _lost(context, before.snapshot, snapshot, one, other)


def _lost(context: TableContext, before: Snapshot, now: Snapshot, one: ManifestEntry, other: ManifestEntry) -> Iterator[Anomaly]:
    """Proven where both files hold one and the same key, or end in the same key; likely where only their ranges overlap."""
    key = functools.cache(context.key_of)
    low = max(one.file.min_key, other.file.min_key, key=key)
    high = min(one.file.max_key, other.file.max_key, key=key)
    if key(low) > key(high):
        return
    ends = {one.file.min_key, one.file.max_key} & {other.file.min_key, other.file.max_key}
    shown = min(ends, default=low)
    text = str(key(shown)) if ends else f"{key(low)} to {key(high)}"
    what = f"both wrote key {text}" if ends else f"both wrote keys in the range {text}"
    files = (one.file.file_name, other.file.file_name)
    yield _of("lost-update", text, (before, now), files, what, PROVEN if ends else LIKELY)


def _of(
    name: str, key: str | None, of: tuple[Snapshot, Snapshot], files: tuple[str, ...], what: str, certainty: str | None = None
) -> Anomaly:
    rule = BY_NAME[name]
    users = tuple(dict.fromkeys(snapshot.commit_user for snapshot in of))
    ids = tuple(snapshot.id for snapshot in of)
    return Anomaly(name, certainty or rule.certainty, key, ids, users, files, what, rule.prevention)


def _expired(first: int, wants: Callable[[str], bool]) -> Iterator[Anomaly]:
    for rule in ANOMALY_RULES:
        if rule.name != "tag-lost-files" and wants(rule.name):
            what = f"the snapshots before {first} have expired"
            kept = "a larger snapshot.num-retained.min and snapshot.time-retained, or changelog.time-retained"
            yield Anomaly(rule.name, UNTOLD, None, (), (), (), what, kept)
