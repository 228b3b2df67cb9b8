"""Builds and parses all directory and file names of a table (FORMAT.md, sections 1.1 and 1.2).

Java: FileStorePathFactory, PartitionPathUtils. Readers never list partition directories: they find a file only if they build the
same directory name as its writer. File names in metadata must not lead outside their directory.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from paimon_cli.datatypes.data_type import (
    FLOATING_ROOTS,
    INTEGER_ROOTS,
    STRING_ROOTS,
    TIMESTAMP_ROOTS,
    DataType,
    DecimalType,
    StringType,
    TimestampType,
    TimeType,
    is_java_blank,
)
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.datatypes.internal_values import Timestamp, date_text, sql_time_text, timestamp_parts
from paimon_cli.datatypes.java_float_text import java_double_text, java_float_text
from paimon_cli.errors import DamagedFile, NotSupported, if_damaged
from paimon_cli.options.option_text import is_utf8

SNAPSHOT_PREFIX = "snapshot-"
SCHEMA_PREFIX = "schema-"
TAG_PREFIX = "tag-"
BRANCH_PREFIX = "branch-"
CHANGELOG_PREFIX = "changelog-"
CONSUMER_PREFIX = "consumer-"
BACKUP_CONSUMER = "paimon-cli-backup-"
"""How the names of the consumers begin by which backups keep the snapshots that they have not copied yet."""
REMOVAL_PREFIX = "removal-"
COMMIT_PREFIX = "commit-"
MAIN_BRANCH = "main"
POSTPONE_BUCKET = -2
POSTPONE_DIRECTORY = "bucket-postpone"


class TableLayout:
    """Absolute paths below one table directory; `root` has no trailing slash.

    A branch has schemas, snapshots, tags, changelogs, consumers and records of commits of its own.

    It shares everything else with the table.
    """

    def __init__(self, root: str, branch: str = MAIN_BRANCH, argument: str | None = None) -> None:
        self.root = root
        self.branch = branch
        self.given_argument = argument
        """The table and its branch as the user named them, as a shell-quoted argument; None if only the path is known."""
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
        """Not part of Paimon: leases by which compaction services divide tables among themselves."""
        self.removal_directory = f"{own}/removal"
        """Not part of Paimon: records of removals that were begun (`maintain.removed_versions`)."""
        self.commit_user_directory = f"{own}/commit-user"
        """Not part of Paimon: records of repeatable commits (`commit.commit_records`)."""
        self.backup_directory = f"{root}/backup"
        """Not part of Paimon: what a backup says of itself (`jobs.backup_records`)."""
        self.unfinished_copy = f"{self.backup_directory}/unfinished-copy"
        """Not part of Paimon: there while the table is being made of a copy (`jobs.copy_claim`)."""
        self.latest_hint = f"{self.snapshot_directory}/LATEST"
        self.earliest_hint = f"{self.snapshot_directory}/EARLIEST"
        self.latest_changelog_hint = f"{self.changelog_directory}/LATEST"
        self.earliest_changelog_hint = f"{self.changelog_directory}/EARLIEST"

    @property
    def argument(self) -> str:
        """The table and its branch as a shell-quoted argument, for commands in hints: as the user named it, or by its path."""
        if self.given_argument is not None:
            return self.given_argument
        return shlex.quote(self.root if self.branch == MAIN_BRANCH else f"{self.root}$branch_{self.branch}")

    @property
    def if_damaged(self) -> str:
        """The hint about a damaged file of the table."""
        return if_damaged(self.argument)

    def of_branch(self, branch: str) -> TableLayout:
        if branch == self.branch:
            return self
        is_named = self.given_argument is not None and self.branch == MAIN_BRANCH
        return TableLayout(self.root, branch, f"{self.given_argument} --branch {shlex.quote(branch)}" if is_named else None)

    @property
    def record_directories(self) -> tuple[str, ...]:
        """Directories of small records; a process that died while it wrote one may leave a temporary file there."""
        of_versions = self.schema_directory, self.tag_directory, self.consumer_directory
        return (*of_versions, self.commit_user_directory, self.lease_directory)

    def schema(self, schema_id: int) -> str:
        return f"{self.schema_directory}/{SCHEMA_PREFIX}{schema_id}"

    def snapshot(self, snapshot_id: int) -> str:
        return f"{self.snapshot_directory}/{SNAPSHOT_PREFIX}{snapshot_id}"

    def tag(self, name: str) -> str:
        return f"{self.tag_directory}/{TAG_PREFIX}{name}"

    def changelog(self, snapshot_id: int) -> str:
        """Path of the copy of an expired snapshot whose changelog is kept longer than the snapshot."""
        return f"{self.changelog_directory}/{CHANGELOG_PREFIX}{snapshot_id}"

    def consumer(self, name: str) -> str:
        return f"{self.consumer_directory}/{CONSUMER_PREFIX}{name}"

    def removal(self, name: str) -> str:
        return f"{self.removal_directory}/{REMOVAL_PREFIX}{name}"

    def commit_record(self, name: str) -> str:
        return f"{self.commit_user_directory}/{COMMIT_PREFIX}{name}"

    def manifest(self, name: str) -> str:
        """Path of a manifest, manifest list or index manifest: names are used as stored."""
        return f"{self.manifest_directory}/{name}"

    def index(self, name: str) -> str:
        return f"{self.index_directory}/{name}"

    def bucket_directory(self, partition_path: str, bucket: int) -> str:
        """Path of a bucket; `partition_path` is '' or 'k=v/k2=v2/', as returned by the function of that name."""
        name = POSTPONE_DIRECTORY if bucket == POSTPONE_BUCKET else f"bucket-{bucket}"
        return f"{self.root}/{partition_path}{name}"

    def data_file(self, partition_path: str, bucket: int, file_name: str) -> str:
        return f"{self.bucket_directory(partition_path, bucket)}/{file_name}"


def parse_hint(text: bytes) -> int | None:
    """The snapshot id in a hint file; None if the content is not a valid id, a positive number of at most 19 digits."""
    digits = text.strip()
    return int(digits) if digits.isdigit() and len(digits) < 20 and int(digits) > 0 else None


def parse_numbered(prefix: str, name: str) -> int | None:
    """The N of 'snapshot-N' or 'schema-N'; None for any other name, including 'snapshot-07', which all readers ignore."""
    digits = name[len(prefix) :]
    fits = digits.isascii() and digits.isdigit() and len(digits) < 20 and (digits == "0" or digits[0] != "0")
    return int(digits) if name.startswith(prefix) and fits else None


def is_plain_name(name: str) -> bool:
    """Whether `name` is a file name that cannot lead to another directory."""
    return bool(name) and not any(c in name for c in "/\\\0") and name not in (".", "..")


def check_plain_names(names: Iterable[str], path: str) -> None:
    """Raise `DamagedFile` about the metadata file `path` if one of its `names` could lead to another directory, or is no text."""
    for name in names:
        if not is_utf8(name):
            raise DamagedFile(f"{path} names a file {name!r}", "half of a surrogate pair is no part of a name", path=path)
        if not is_plain_name(name):
            why = "file names in metadata must not lead to another directory"
            raise DamagedFile(f"{path} names a file {name!r}", why, path=path)


DEFAULT_PARTITION_NAME = "__DEFAULT_PARTITION__"
_ESCAPES = {code: f"%{code:02X}" for code in (*range(0x20), 0x7F, *map(ord, "\"#%'*/:=?\\{}[]^"))}


def partition_path(
    names: Sequence[str],
    types: Sequence[DataType],
    values: Sequence[Any],
    default_name: str = DEFAULT_PARTITION_NAME,
    legacy: bool = True,
) -> str:
    """The directory of a partition, such as `a=1/b=x/`, or '' without partition columns.

    `values` are internal values, one per column. `legacy` is the table option `partition.legacy-name`.
    """
    parts = zip(names, types, values, strict=True)
    return "".join(f"{escape(name)}={escape(partition_text(value, t, default_name, legacy))}/" for name, t, value in parts)


def partition_text(value: Any, t: DataType, default_name: str = DEFAULT_PARTITION_NAME, legacy: bool = True) -> str:
    """The unescaped text of one partition value; `default_name` for null and for blank strings."""
    text = "" if value is None else _text(value, t, legacy)
    return default_name if is_java_blank(text) else text


def takes_default_name(t: DataType) -> bool:
    """Whether a value of this type can have the default name as its text."""
    return t.nullable or isinstance(t, StringType)


def has_legacy_text(t: DataType) -> bool:
    """Whether the option `partition.legacy-name` changes the text of values of this type."""
    return t.root == "DATE" or isinstance(t, (TimeType, TimestampType))


_NUMBER = re.compile(r"((?<==)-[0-9]{1,18}|[0-9]{1,18})")


def natural_order(partition: str) -> tuple[tuple[int | str, ...], str]:
    """Sort key that orders numbers in partition names by value: month=2 before month=10."""
    parts = _NUMBER.split(partition)
    return tuple(int(part) if number % 2 else part for number, part in enumerate(parts)), partition


def escape(text: str) -> str:
    """`text` with the characters that are not allowed in paths replaced by `%XX`."""
    return text.translate(_ESCAPES)


def check_partition_types(types: Sequence[DataType]) -> None:
    """Raise `NotSupported` for types of partition columns whose directories other readers could not find."""
    for t in types:
        if t.root in FLOATING_ROOTS:
            raise NotSupported(
                f"{type_to_sql(t)} partition columns are not supported",
                "their directory names depend on the Java version that writes",
                "use DECIMAL or STRING",
            )
        if t.root not in _PARTITION_ROOTS:
            raise NotSupported(
                f"{type_to_sql(t)} partition columns are not supported",
                "their values cannot be part of a directory name",
                "use STRING",
            )


_PARTITION_ROOTS = INTEGER_ROOTS | STRING_ROOTS | TIMESTAMP_ROOTS | {"BOOLEAN", "DECIMAL", "DATE", "TIME"}


def _text(value: Any, t: DataType, legacy: bool) -> str:
    if isinstance(t, StringType):
        return str(value)
    if t.root == "BOOLEAN":
        return "true" if value else "false"
    if t.root in INTEGER_ROOTS:
        return str(value)
    if isinstance(t, DecimalType):
        return format(value, "f")
    if t.root == "FLOAT":
        return java_float_text(value)
    if t.root == "DOUBLE":
        return java_double_text(value)
    if t.root == "DATE":
        return str(value) if legacy else date_text(value)
    if isinstance(t, TimeType):
        return str(value) if legacy else sql_time_text(value, t.precision)
    if isinstance(t, TimestampType):
        return _iso_text(value) if legacy else _padded_text(value, t.precision)
    raise NotSupported(
        f"partitions of type {type_to_sql(t)} are not supported", "their values cannot be part of a directory name"
    )


def _iso_text(value: Timestamp) -> str:
    """The text of Java's LocalDateTime: seconds are omitted if zero, a fraction has 3, 6 or 9 digits."""
    date, clock, nanos = timestamp_parts(value)
    if nanos == 0:
        return f"{date}T{clock.removesuffix(':00')}"
    digits = f"{nanos:09d}"
    return f"{date}T{clock}.{digits.removesuffix('000').removesuffix('000')}"


def _padded_text(value: Timestamp, precision: int) -> str:
    """The text of Paimon's cast to STRING, with exactly `precision` fractional digits."""
    date, clock, nanos = timestamp_parts(value)
    return f"{date} {clock}" + (f".{nanos:09d}"[: precision + 1] if precision else "")
