"""Every directory and file name of a table, built and parsed in one place (FORMAT.md, sections 1.1 and 1.2).

Java: FileStorePathFactory, PartitionPathUtils. Readers never list the directories of partitions: they find a file only if they
spell its directory exactly as its writer did. Names that come out of metadata must stay inside the directory that they belong to.
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
)
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.datatypes.internal_values import Timestamp, date_text, sql_time_text, timestamp_parts
from paimon_cli.datatypes.java_float_text import java_double_text, java_float_text
from paimon_cli.datatypes.type_text import is_java_blank
from paimon_cli.errors import DamagedFile, NotSupported

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
        """`partition_path` is '' or 'k=v/k2=v2/', as the function of that name spells it."""
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


DEFAULT_PARTITION_NAME = "__DEFAULT_PARTITION__"
_ESCAPES = {code: f"%{code:02X}" for code in (*range(0x20), 0x7F, *map(ord, "\"#%'*/:=?\\{}[]^"))}


def partition_path(
    names: Sequence[str],
    types: Sequence[DataType],
    values: Sequence[Any],
    default_name: str = DEFAULT_PARTITION_NAME,
    legacy: bool = True,
) -> str:
    """`a=1/b=x/` for internal values, '' without partition columns. `legacy` is the table option `partition.legacy-name`."""
    parts = zip(names, types, values, strict=True)
    return "".join(f"{escape(name)}={escape(partition_text(value, t, default_name, legacy))}/" for name, t, value in parts)


def partition_text(value: Any, t: DataType, default_name: str = DEFAULT_PARTITION_NAME, legacy: bool = True) -> str:
    """Text of one partition value before escaping; null and blank texts share `default_name`."""
    text = "" if value is None else _text(value, t, legacy)
    return default_name if is_java_blank(text) else text


_NUMBER = re.compile(r"((?<==)-[0-9]{1,18}|[0-9]{1,18})")


def natural_order(partition: str) -> tuple[tuple[int | str, ...], str]:
    """Key by which texts of partitions sort as people expect: month=2 before month=10."""
    parts = _NUMBER.split(partition)
    return tuple(int(part) if number % 2 else part for number, part in enumerate(parts)), partition


def escape(text: str) -> str:
    """`text` with the characters that paths must not hold as `%XX`."""
    return text.translate(_ESCAPES)


def check_partition_types(types: Sequence[DataType]) -> None:
    """Refuse, before anything is written, partition columns whose directories other readers would not find: `NotSupported`."""
    for t in types:
        if t.root in FLOATING_ROOTS:
            raise NotSupported(
                f"{type_to_sql(t)} partition columns are not supported",
                "their directory names depend on the Java version that writes",
                "use DECIMAL or STRING",
            )
        if t.root not in _PARTITION_ROOTS:
            raise NotSupported(
                f"{type_to_sql(t)} partition columns are not supported", "their values have no text for a directory", "use STRING"
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
    raise NotSupported(f"partitions of type {type_to_sql(t)} are not supported", "their values have no text for a directory")


def _iso_text(value: Timestamp) -> str:
    """Java's LocalDateTime text: no seconds when they and the fraction are zero, fractions of 3, 6 or 9 digits."""
    date, clock, nanos = timestamp_parts(value)
    if nanos == 0:
        return f"{date}T{clock.removesuffix(':00')}"
    digits = f"{nanos:09d}"
    return f"{date}T{clock}.{digits.removesuffix('000').removesuffix('000')}"


def _padded_text(value: Timestamp, precision: int) -> str:
    """Paimon's cast to text: exactly `precision` digits of fraction."""
    date, clock, nanos = timestamp_parts(value)
    return f"{date} {clock}" + (f".{nanos:09d}"[: precision + 1] if precision else "")
