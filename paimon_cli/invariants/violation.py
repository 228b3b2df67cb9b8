"""What an invariant is, with its stable code, and the violations that `verify` reports.

Each invariant is declared where it is checked: at the check, if its scope calls it (`scopes`), or else at the head of its module.
Those that several modules report are declared here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from paimon_cli.options.choices import values_of

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
    of_unreadable_file: bool = False
    """Whether it is about a file that cannot be read, whose path the violation has: expiry may have removed it meanwhile."""
    repair: str = ""
    """The kind of repair that must be named to find again what only a look at all rows has found."""
    of_bounds: bool = False
    """Whether it is about facts that only help to skip a file. They cannot be taken back: a file is listed once."""
    of_permission: bool = False
    """Whether it is about files that were not checked because the user's configuration does not allow it: no damage."""
    of_support: bool = False
    """Whether it is about files that were not checked because we do not support them: no damage."""
    of_key_order: bool = False
    """Whether it is about files that are sorted by key, whose bounds are keys."""


BY_CODE: dict[str, Invariant] = {}
"""All invariants that were declared; `check` imports all modules that do. A code is never reused for another rule."""


def declare(*invariants: Invariant) -> None:
    """Raises `ValueError` for a code that is taken."""
    for invariant in invariants:
        if invariant.code in BY_CODE:
            raise ValueError(f"the code {invariant.code} is taken; the next one is {next_code()}")
        BY_CODE[invariant.code] = invariant


def next_code() -> str:
    return f"PV{max(int(code[2:]) for code in BY_CODE) + 1:03}"


LOST_SNAPSHOTS = "PV069"
"""Nothing can be repaired: the files must be restored from a backup."""
MERGE_DISORDER = "PV023"
"""Reported for live files only: once a compaction has merged them, the rows that readers see no longer change."""


class CheckGroup:
    """The groups under which violations are reported, in the order of a report."""

    METADATA = "metadata"
    CHAIN = "chain"
    HINTS = "hints"
    SCHEMAS = "schemas"
    REFERENCES = "references"
    STORED = "files"
    STATS = "stats"
    RUNS = "sorted-runs"
    SEQUENCE = "sequence"
    BUCKETS = "bucket"
    UNIQUE = "unique"
    VECTORS = "dv"
    HASH_INDEX = "bucket-index"
    CHANGELOGS = "changelog"


CHECK_GROUPS = values_of(CheckGroup)

declare(
    Invariant("PV002", CheckGroup.METADATA, META, "every snapshot file holds its own snapshot"),
    Invariant(
        "PV005", CheckGroup.METADATA, META, "every manifest and manifest list exists and is readable", of_unreadable_file=True
    ),
    Invariant("PV006", CheckGroup.SCHEMAS, META, "the schema of every snapshot and data file exists"),
    Invariant("PV026", CheckGroup.STATS, META, "the partition and the keys of every file can be decoded"),
    Invariant(
        "PV031",
        CheckGroup.STORED,
        FILES,
        "a data file can be read and holds as many rows as its metadata says",
        of_unreadable_file=True,
        repair="damaged-files",
    ),
    Invariant(
        "PV043",
        CheckGroup.HASH_INDEX,
        FILES,
        "a hash index exists, is complete and holds as many hashes as its metadata says",
        of_unreadable_file=True,
    ),
    Invariant("PV062", CheckGroup.STATS, FULL, "a file index admits every value of its columns", repair="file-index"),
)


@dataclass(frozen=True)
class Violation:
    """A broken invariant. `path`: the file or directory concerned. A warning only concerns readers of some histories.

    `hint`: what to do where no repair is needed; the message says it too.
    """

    code: str
    path: str
    message: str
    hint: str = field(default="", metadata={"shown": False})

    @property
    def invariant(self) -> Invariant:
        return BY_CODE[self.code]

    @property
    def severity(self) -> str:
        return self.invariant.severity

    @property
    def check(self) -> str:
        return self.invariant.check

    @property
    def meaning(self) -> str:
        return self.invariant.meaning

    def __str__(self) -> str:
        return f"{self.code} {self.path}: {self.message}"
