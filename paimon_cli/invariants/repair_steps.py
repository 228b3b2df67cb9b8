"""The kinds of repairs, and what a plan consists of (`repair_plan`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from paimon_cli.history.stale_buckets import StalePartition
from paimon_cli.invariants.hash_indexes import RebuiltIndex
from paimon_cli.invariants.lost_commits import DamagedVersion, LostCommit
from paimon_cli.metadata.data_file import BucketId, CommitMessage


class RepairKind:
    """Kinds of repairs; BY_HAND is what the user has to do."""

    VERSIONS = "damaged-versions"
    HINTS = "hints"
    CHAIN = "chain"
    VECTORS = "dv"
    LOST_COMMITS = "lost-commits"
    DEAD_FILES = "dead-files"
    DAMAGED_FILES = "damaged-files"
    HASH_INDEX = "hash-index"
    FILE_INDEX = "file-index"
    STALE_BUCKETS = "stale-buckets"
    BY_HAND = "by-hand"


REPAIR_KINDS = (
    RepairKind.VERSIONS,
    RepairKind.CHAIN,
    RepairKind.HINTS,
    RepairKind.DEAD_FILES,
    RepairKind.DAMAGED_FILES,
    RepairKind.VECTORS,
    RepairKind.HASH_INDEX,
    RepairKind.FILE_INDEX,
    RepairKind.STALE_BUCKETS,
    RepairKind.LOST_COMMITS,
)


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
    def commits(self) -> bool:
        """Whether `--apply` would commit a snapshot above the newest one."""
        return bool(self.messages or self.hash_indexes or self.stale or self.lost)

    @property
    def changes(self) -> int:
        """Number of steps that `--apply` would carry out."""
        return sum(step.kind != RepairKind.BY_HAND for step in self.steps)
