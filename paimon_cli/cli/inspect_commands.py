"""Commands that only look at metadata: snapshots, manifests, files, partitions, buckets, schemas, options, tags. No JVM, no data read."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from paimon_cli.cli.command import Call, HelpfulGroup, command
from paimon_cli.cli.parameters import Buckets, Partitions, SnapshotId, TableName
from paimon_cli.cli.result_view import Column, Item, Listing
from paimon_cli.cli.value_kinds import CHANGE, COUNT, FLAG, ID, JSON, KEY, LONG, NAMES, SIZE, TEXT, TIME, human_size

PANEL = "Inspect"


class SnapshotKind(str, enum.Enum):
    """Choices of `snapshots ls --kind`."""

    APPEND = "APPEND"
    COMPACT = "COMPACT"
    OVERWRITE = "OVERWRITE"
    ANALYZE = "ANALYZE"


class ManifestList(str, enum.Enum):
    """Choices of `manifests ls --list`."""

    BASE = "base"
    DELTA = "delta"
    CHANGELOG = "changelog"
    INDEX = "index"

SNAPSHOT_COLUMNS = (
    Column("id", "ID", ID),
    Column("time", "Time (UTC)", TIME),
    Column("kind", "Kind"),
    Column("commit_user", "User"),
    Column("commit_identifier", None, LONG),
    Column("schema_id", "Schema", ID),
    Column("files_added", "+Files", COUNT),
    Column("files_deleted", "-Files", COUNT),
    Column("delta_record_count", "+Rows", CHANGE),
    Column("total_record_count", "Total rows", COUNT),
    Column("watermark", None, ID),
    Column("tags", "Tags", NAMES),
)
