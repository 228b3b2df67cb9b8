"""The kinds of anomalies that `history check` tells, and what a finding is.

`past_commits` finds them in metadata, or asks a question about rows (`past_questions`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.storage.redaction import shown_name

PROVEN, LIKELY, UNTOLD = "proven", "likely", "cannot be told"
"""Certainties: the files show it; they show most of it; what would show it has expired."""


@dataclass(frozen=True)
class Anomaly:
    """A finding of `history check`. `key`: a key that is concerned, or the range of keys; None where it is not about keys."""

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
    AnomalyRule("merge-disorder", "a newer commit's row has an older sequence number than the row it follows", _SEPARATE),
    AnomalyRule(
        "row-came-back",
        "a row is visible again after its deletion, which the commit that shows it had not read, or has lost",
        "one compaction job at a time, writers that check for files conflicts, and --data-conflict-check bucket",
    ),
    AnomalyRule(
        "compaction-changed-rows",
        "readers see other rows after a compaction than before it",
        "one compaction job at a time, one engine and version for it, and writers that number their rows from the newest version",
    ),
    AnomalyRule(
        "key-in-two-places",
        "two buckets or partitions show one key, so that reads return it twice",
        "one writer at a time for dynamic buckets and keys without partition columns, and paimon-cli rescale to change `bucket`",
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
        "a commit marked rows of a file that was replaced before, or a newer deletion vector marks fewer rows",
        "one compaction job at a time, and writers that check for files conflicts",
        ("PV048", "PV065"),
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
RULE_OF_CODE = {code: rule for rule in ANOMALY_RULES for code in rule.codes}
LOST_UPDATE, BESIDE, DISORDER, CAME_BACK, REWRITTEN, TWO_PLACES, SNAPSHOT_OVERWRITTEN, REPEATED_COMMIT, RAN_BACK, TAG_LOST = (
    "lost-update",
    "writers-beside-each-other",
    "merge-disorder",
    "row-came-back",
    "compaction-changed-rows",
    "key-in-two-places",
    "snapshot-overwritten",
    "repeated-commit",
    "clock-ran-back",
    "tag-lost-files",
)
VECTOR_LOST, SHARED_FILE = "vector-lost", "shared-file"


class Commit(NamedTuple):
    """Who committed, and when: the id of a snapshot, and the user as it is shown."""

    snapshot_id: int
    user: str

    @staticmethod
    def of(snapshot: Snapshot) -> Commit:
        return Commit(snapshot.id, shown_name(snapshot.commit_user))


def anomaly(
    rule: str,
    message: str,
    commits: Iterable[Commit] = (),
    *,
    key: str | None = None,
    files: Iterable[str] = (),
    certainty: str | None = None,
) -> Anomaly:
    """A finding of a rule, with the certainty and the prevention of the rule unless another certainty is given."""
    declared, by = BY_NAME[rule], sorted(set(commits))
    users, ids = tuple(dict.fromkeys(commit.user for commit in by)), tuple(dict.fromkeys(commit.snapshot_id for commit in by))
    return Anomaly(rule, certainty or declared.certainty, key, ids, users, tuple(files), message, declared.prevention)
