"""Every directory and file name of a table, built and parsed in one place (FORMAT.md, section 1.1; Java FileStorePathFactory).

Names that come out of metadata must stay inside the directory that they belong to.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from paimon_cli.errors import DamagedFile

SNAPSHOT_PREFIX = "snapshot-"
SCHEMA_PREFIX = "schema-"
TAG_PREFIX = "tag-"
BRANCH_PREFIX = "branch-"
CHANGELOG_PREFIX = "changelog-"
CONSUMER_PREFIX = "consumer-"
MAIN_BRANCH = "main"
POSTPONE_BUCKET = -2


class TableLayout:
    """Absolute paths below one table directory; `root` has no trailing slash.

    A branch has schemas, snapshots, tags, changelogs and consumers of its own; all else it shares with the table.
    """

    def __init__(self, root: str, branch: str = MAIN_BRANCH) -> None:
        self.root = root
        self.branch = branch
        self.manifest_directory = f"{root}/manifest"
        self.index_directory = f"{root}/index"
        self.statistics_directory = f"{root}/statistics"
        self.branches_directory = f"{root}/branch"
        own = root if branch == MAIN_BRANCH else f"{self.branches_directory}/{BRANCH_PREFIX}{branch}"
        self.version_root = own
        """The directory above `snapshot/`, `schema/` and `tag/`."""
        self.schema_directory = f"{own}/schema"
        self.snapshot_directory = f"{own}/snapshot"
        self.tag_directory = f"{own}/tag"
        self.changelog_directory = f"{own}/changelog"
        self.consumer_directory = f"{own}/consumer"
        self.lease_directory = f"{own}/lease"
        """Not part of Paimon: the leases by which compaction services share their tables."""
        self.latest_hint = f"{self.snapshot_directory}/LATEST"
        self.earliest_hint = f"{self.snapshot_directory}/EARLIEST"
        self.latest_changelog_hint = f"{self.changelog_directory}/LATEST"
        self.earliest_changelog_hint = f"{self.changelog_directory}/EARLIEST"

    @property
    def argument(self) -> str:
        """The table and its branch as one argument of a command in a hint."""
        return shlex.quote(self.root if self.branch == MAIN_BRANCH else f"{self.root}$branch_{self.branch}")

    def of_branch(self, branch: str) -> TableLayout:
        return TableLayout(self.root, branch)

    def schema(self, schema_id: int) -> str:
        return f"{self.schema_directory}/{SCHEMA_PREFIX}{schema_id}"

    def snapshot(self, snapshot_id: int) -> str:
        return f"{self.snapshot_directory}/{SNAPSHOT_PREFIX}{snapshot_id}"

    def tag(self, name: str) -> str:
        return f"{self.tag_directory}/{TAG_PREFIX}{name}"

    def changelog(self, snapshot_id: int) -> str:
        """The copy of an expired snapshot whose changes outlive it."""
        return f"{self.changelog_directory}/{CHANGELOG_PREFIX}{snapshot_id}"

    def consumer(self, name: str) -> str:
        return f"{self.consumer_directory}/{CONSUMER_PREFIX}{name}"

    def manifest(self, name: str) -> str:
        """Path of a manifest, manifest list or index manifest: names are used as stored, never parsed."""
        return f"{self.manifest_directory}/{name}"

    def index(self, name: str) -> str:
        return f"{self.index_directory}/{name}"

    def bucket_directory(self, partition_path: str, bucket: int) -> str:
        """`partition_path` is '' or 'k=v/k2=v2/' as `datatypes.partition_path` spells it."""
        name = "bucket-postpone" if bucket == POSTPONE_BUCKET else f"bucket-{bucket}"
        return f"{self.root}/{partition_path}{name}"

    def data_file(self, partition_path: str, bucket: int, file_name: str) -> str:
        return f"{self.bucket_directory(partition_path, bucket)}/{file_name}"


def parse_hint(text: bytes) -> int | None:
    """The snapshot id that a hint file holds; None for anything else (ids begin with 1 and fit into 64 bits)."""
    digits = text.strip()
    return int(digits) if digits.isdigit() and len(digits) < 20 and int(digits) > 0 else None


def parse_numbered(prefix: str, name: str) -> int | None:
    """The N of 'snapshot-N' or 'schema-N'; None for any foreign name, also 'snapshot-07' (they are ignored everywhere)."""
    digits = name[len(prefix) :]
    fits = digits.isascii() and digits.isdigit() and len(digits) < 20 and (digits == "0" or digits[0] != "0")
    return int(digits) if name.startswith(prefix) and fits else None


def is_plain_name(name: str) -> bool:
    """Whether the name stays in its directory."""
    return bool(name) and not any(c in name for c in "/\\\0") and name not in (".", "..")


def check_plain_names(names: Iterable[str], path: str) -> None:
    """Raise `DamagedFile` about the metadata file `path` if a name that it holds could lead to another directory."""
    for name in names:
        if not is_plain_name(name):
            why = "file names in metadata must not lead to another directory"
            raise DamagedFile(f"{path} names a file {name!r}", why, path=path)
