"""What a check finds: a code that never changes its meaning, the file it was found in, and a sentence for people."""

from __future__ import annotations

from dataclasses import dataclass

ERROR, WARNING = "error", "warning"

MEANINGS = {
    "PV001": "snapshot ids have no gap",
    "PV002": "every snapshot file holds its own snapshot",
    "PV003": "hint files do not point behind the newest snapshot",
    "PV004": "snapshot times do not go back",
    "PV005": "every manifest and manifest list is there and readable",
    "PV006": "the schema of every snapshot is there",
    "PV010": "the base of a snapshot is what lived in the one before",
    "PV011": "a commit deletes only what lives and adds only what is new",
    "PV012": "every live data file exists",
    "PV013": "every live data file has the size of its metadata",
    "PV014": "record counts of snapshots add up",
    "PV015": "every index file of a snapshot exists",
    "PV016": "every deletion vector belongs to a live file",
    "PV020": "key ranges of one level above 0 are disjoint",
    "PV021": "the least key of a file is not above its greatest",
    "PV022": "all files of a partition were written for one number of buckets",
    "PV023": "sequence numbers of a commit are above those of its bucket",
    "PV030": "rows of a data file ascend strictly by key",
    "PV031": "a data file can be read and holds as many rows as its metadata says",
    "PV032": "the key range and sequence range of a data file cover its rows",
    "PV033": "with deletion vectors a key has one unmarked row above level 0",
    "PV034": "a data file holds as many retractions as its metadata says",
}
"""What must hold, by code."""

_WARNINGS = {"PV004", "PV023", "PV034"}


@dataclass(frozen=True)
class Violation:
    """`path`: the file or directory that shows it. A warning hurts readers of some histories only, an error all."""

    code: str
    path: str
    message: str

    @property
    def severity(self) -> str:
        return WARNING if self.code in _WARNINGS else ERROR

    @property
    def meaning(self) -> str:
        return MEANINGS[self.code]

    def __str__(self) -> str:
        return f"{self.code} {self.path}: {self.message}"
