"""The kinds of repairs, and what a plan consists of (`repair_plan`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from paimon_cli.history.stale_buckets import StalePartition
from paimon_cli.invariants.hash_indexes import RebuiltIndex
from paimon_cli.invariants.lost_commits import DamagedVersion, LostCommit
from paimon_cli.metadata.data_file import BucketId, CommitMessage

VERSIONS, HINTS, CHAIN, VECTORS, LOST_COMMITS = "damaged-versions", "hints", "chain", "dv", "lost-commits"
DEAD_FILES, DAMAGED_FILES, HASH_INDEX, FILE_INDEX = "dead-files", "damaged-files", "hash-index", "file-index"
STALE_BUCKETS = "stale-buckets"
KINDS = (VERSIONS, CHAIN, HINTS, DEAD_FILES, DAMAGED_FILES, VECTORS, HASH_INDEX, FILE_INDEX, STALE_BUCKETS, LOST_COMMITS)
BY_HAND = "by-hand"


@dataclass(frozen=True)
class RepairStep:
    """One step of a repair. `loss`: what readers lose by it, empty for nothing; `command`: what the user has to run manually."""

    kind: str
    path: str
    action: str
    loss: str = ""
    command: str = ""


@dataclass
class RepairPlan:
    """The steps as shown to the user, and the data needed to carry them out."""

    snapshot_id: int | None
    steps: list[RepairStep] = field(default_factory=list)
    set_aside: list[DamagedVersion] = field(default_factory=list)
    hints: dict[str, int | None] = field(default_factory=dict)
    """What each hint should say; None if there is no snapshot that it could name."""
    missing_snapshots: list[int] = field(default_factory=list)
    messages: dict[BucketId, CommitMessage] = field(default_factory=dict)
    hash_indexes: list[RebuiltIndex] = field(default_factory=list)
    stale: list[StalePartition] = field(default_factory=list)
    lost: list[LostCommit] = field(default_factory=list)

    @property
    def changes(self) -> int:
        """Number of steps that `--apply` would carry out."""
        return sum(step.kind != BY_HAND for step in self.steps)
