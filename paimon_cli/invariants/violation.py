"""The invariants that `verify` checks, each with a stable code, and the violations that it reports."""

from __future__ import annotations

from dataclasses import dataclass

ERROR, WARNING = "error", "warning"
META, FILES, FULL = "meta", "files", "full"
"""Levels of `verify`: read only metadata, also every file without its rows, or also every row."""


@dataclass(frozen=True)
class Invariant:
    """A rule that must hold. `check`: the group under which it is reported; `level`: the first level that checks it."""

    code: str
    check: str
    level: str
    meaning: str
    severity: str = ERROR


OF_MISSING_FILES = frozenset(
    {"PV005", "PV012", "PV015", "PV031", "PV040", "PV043", "PV050", "PV051", "PV054", "PV055", "PV056", "PV058"}
)
"""Reported for files that cannot be read; their path is that of the file."""
MERGE_DISORDER = "PV023"
"""Reported for live files only: once a compaction has merged them, the rows that readers see no longer change."""
METADATA, CHAIN, HINTS, SCHEMAS, REFERENCES = "metadata", "chain", "hints", "schemas", "references"
STORED, STATS, RUNS, SEQUENCE, BUCKETS = "files", "stats", "sorted-runs", "sequence", "bucket"
UNIQUE, VECTORS, HASH_INDEX, CHANGELOGS = "unique", "dv", "bucket-index", "changelog"
CHECKS = (
    *(METADATA, CHAIN, HINTS, SCHEMAS, REFERENCES, STORED, STATS, RUNS, SEQUENCE, BUCKETS),
    *(UNIQUE, VECTORS, HASH_INDEX, CHANGELOGS),
)
"""The groups in the order of a report."""

INVARIANTS = (
    Invariant("PV001", CHAIN, META, "snapshot ids have no gap"),
    Invariant("PV002", METADATA, META, "every snapshot file holds its own snapshot"),
    Invariant("PV003", HINTS, META, "hint files do not point beyond the newest snapshot"),
    Invariant("PV004", CHAIN, META, "snapshot times do not go back", WARNING),
    Invariant("PV005", METADATA, META, "every manifest and manifest list exists and is readable"),
    Invariant("PV006", SCHEMAS, META, "the schema of every snapshot and data file exists"),
    Invariant("PV007", SCHEMAS, META, "every schema file holds its own schema, with unique field ids"),
    Invariant("PV008", CHAIN, META, "no expired snapshot has reappeared"),
    Invariant("PV010", CHAIN, META, "the base of a snapshot equals the live files of the one before"),
    Invariant("PV011", CHAIN, META, "a commit deletes only live files and adds only new ones"),
    Invariant("PV012", STORED, FILES, "every live data file exists"),
    Invariant("PV013", STORED, FILES, "every live data file has the size of its metadata"),
    Invariant("PV014", CHAIN, META, "record counts of snapshots add up"),
    Invariant("PV015", VECTORS, FILES, "every index file of a snapshot exists with the size of its metadata"),
    Invariant("PV016", VECTORS, META, "every deletion vector belongs to a live file", WARNING),
    Invariant(
        "PV018", METADATA, META, "a manifest holds as many entries as its list says, and the list has the size of its snapshot"
    ),
    Invariant("PV019", METADATA, META, "partitions, buckets, levels and schemas of a manifest are within the range in its list"),
    Invariant("PV020", RUNS, META, "key ranges of one level above 0 are disjoint"),
    Invariant("PV021", RUNS, META, "the least key of a file is not greater than its greatest"),
    Invariant("PV022", BUCKETS, META, "all files of a partition were written for one number of buckets"),
    Invariant(
        MERGE_DISORDER, SEQUENCE, META, "sequence numbers of a commit are greater than those already in the bucket", WARNING
    ),
    Invariant("PV024", BUCKETS, META, "every file is in a bucket that the table has"),
    Invariant("PV026", STATS, META, "the partition and the keys of every file can be decoded"),
    Invariant("PV028", STORED, META, "no file lies outside of the table"),
    Invariant("PV029", CHAIN, META, "a data file is live in one bucket and at one level only"),
    Invariant("PV030", RUNS, FULL, "rows of a data file ascend strictly by key"),
    Invariant("PV031", STORED, FILES, "a data file can be read and holds as many rows as its metadata says"),
    Invariant("PV032", STATS, FULL, "the key range and sequence range of a data file cover its rows"),
    Invariant("PV033", UNIQUE, FULL, "with deletion vectors a key has one unmarked row above level 0"),
    Invariant("PV034", STATS, FULL, "a data file holds as many retractions as its metadata says"),
    Invariant("PV035", BUCKETS, FULL, "every key is in the bucket of its hash"),
    Invariant("PV036", BUCKETS, FULL, "the partition columns of every row match its directory"),
    Invariant("PV037", STATS, FULL, "the statistics of a data file cover its values"),
    Invariant("PV038", STATS, FULL, "null counts of a data file match its rows"),
    Invariant("PV039", VECTORS, META, "a bucket has one index file of each kind, and its deletion vectors do not overlap"),
    Invariant("PV040", VECTORS, FILES, "a deletion vector is readable and marks existing rows, as many as its metadata says"),
    Invariant("PV041", HASH_INDEX, FULL, "the hash index of a dynamic bucket holds every key of the bucket"),
    Invariant("PV042", HASH_INDEX, FILES, "a key hash is in the index of only one bucket of its partition"),
    Invariant("PV043", HASH_INDEX, FILES, "a hash index exists, is complete and holds as many hashes as its metadata says"),
    Invariant("PV044", STATS, FULL, "a file whose metadata counts no retractions has none", WARNING),
    Invariant(
        "PV045",
        STATS,
        FULL,
        "the greatest key of a file of level 0 is the key of its last row, where the merge engine drops none",
        WARNING,
    ),
    Invariant("PV046", VECTORS, FULL, "with deletion vectors no file above level 0 holds retractions"),
    Invariant("PV047", STATS, FULL, "columns that are NOT NULL hold no null"),
    Invariant("PV048", VECTORS, META, "the deletion vector of a live file never shrinks"),
    Invariant("PV049", RUNS, FULL, "the _KEY_ columns of a data file, by which older readers merge, are its key's own columns"),
    Invariant("PV050", REFERENCES, META, "every tag can be read, with all its manifests"),
    Invariant("PV051", REFERENCES, FILES, "every data file of a tag exists"),
    Invariant("PV052", REFERENCES, META, "every consumer points at an existing snapshot, or at the next one"),
    Invariant("PV053", REFERENCES, META, "every branch can be read"),
    Invariant("PV054", REFERENCES, META, "every changelog that outlived its snapshot can be read"),
    Invariant("PV055", REFERENCES, FILES, "the statistics file of a snapshot exists"),
    Invariant("PV056", STORED, FILES, "every changelog file of a snapshot exists with the size of its metadata"),
    Invariant("PV057", REFERENCES, META, "a table with manifests has a snapshot, tag or changelog", WARNING),
    Invariant("PV058", CHANGELOGS, FULL, "changelogs lead from the rows of each snapshot to the rows of the next"),
    Invariant(
        "PV059", RUNS, FULL, "where compactions look up older rows, the row of a lower level is not older than those above it"
    ),
    Invariant("PV060", UNIQUE, FULL, "a key that leaves partition columns out lives in one bucket of one partition"),
    Invariant("PV062", STATS, FULL, "a file index admits every value of its columns"),
    Invariant("PV063", STATS, FULL, "bounds of row groups and pages inside of a Parquet file cover its values"),
    Invariant("PV064", STATS, FULL, "a Bloom filter inside of a Parquet file admits every value of its column"),
    Invariant("PV065", VECTORS, META, "a commit marks only rows of files that are live before or after it"),
    Invariant("PV066", BUCKETS, META, "every partition is written in one way"),
    Invariant("PV067", SCHEMAS, FILES, "a data file holds no column that its schema lacks"),
    Invariant("PV068", SCHEMAS, META, "keys, and options that cannot change once there is data, stay as they are", WARNING),
    Invariant("PV061", METADATA, META, "what a snapshot repeats of its manifest lists is what they hold"),
)
"""All rules. A code is never reused for another rule."""

REPAIRS_BY_READING = {"PV031": "damaged-files", "PV041": "hash-index", "PV062": "file-index"}
"""The kind of repair that must be named to find again what only a look at all rows has found, by code."""

WRONG_BOUNDS = frozenset({"PV037", "PV038", "PV063", "PV064"})
"""Facts about a file that only help to skip it. They cannot be taken back: a file is listed once, and what is inside stays."""

BY_CODE = {invariant.code: invariant for invariant in INVARIANTS}
MEANINGS = {invariant.code: invariant.meaning for invariant in INVARIANTS}


@dataclass(frozen=True)
class Violation:
    """A broken invariant. `path`: the file or directory concerned. A warning only concerns readers of some histories."""

    code: str
    path: str
    message: str

    @property
    def severity(self) -> str:
        return BY_CODE[self.code].severity

    @property
    def check(self) -> str:
        return BY_CODE[self.code].check

    @property
    def meaning(self) -> str:
        return MEANINGS[self.code]

    def __str__(self) -> str:
        return f"{self.code} {self.path}: {self.message}"
