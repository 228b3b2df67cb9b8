"""Creates a partitioned table with very many data files, to measure plans and commits. The files exist only in its manifests."""

from __future__ import annotations

import datetime
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from paimon_cli.datatypes.binary_row import serialize_row
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.metadata.data_file import DataFileMeta, EntryKind, ManifestEntry, ManifestFileMeta, SimpleStats
from paimon_cli.metadata.manifests import encode_manifest_list, encode_manifests
from paimon_cli.metadata.partition_ranges import partition_stats
from paimon_cli.metadata.snapshot import APPEND, Snapshot
from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.metadata.table_schema import TableSchema

FIELDS = {"dt": "STRING NOT NULL", "id": "BIGINT NOT NULL", "a": "INT", "b": "DOUBLE", "c": "STRING"}
BUCKETS = 10
MANIFEST_BYTES = 8 << 20
NOW_MILLIS = 1_750_000_000_000
_ROWS = 1000
_FILE_BYTES = 32 << 20
_LEVEL_0 = 10
"""One of this number of files is in level 0, and overlaps two others."""
_DAY = datetime.date(2020, 1, 1)
_TYPES = [parse_type(text) for text in FIELDS.values()]


def generate(folder: Path, files: int, partitions: int, options: dict[str, str] | None = None) -> Path:
    """Create a table with one snapshot in `folder`, which must not exist. Its files are spread over days and 10 buckets."""
    layout = TableLayout(str(folder))
    for name in ("schema", "snapshot", "manifest"):
        (folder / name).mkdir(parents=True)
    fields = tuple(DataField(i, name, t) for i, (name, t) in enumerate(zip(FIELDS, _TYPES, strict=True)))
    given = {"bucket": str(BUCKETS), "file.format": "parquet", **(options or {})}
    schema = TableSchema(0, fields, len(fields) - 1, ("dt",), ("dt", "id"), given, None, NOW_MILLIS)
    Path(layout.schema(0)).write_text(schema.to_json())
    manifests: list[ManifestFileMeta] = []
    waiting: list[ManifestEntry] = []
    for number in range(partitions):
        waiting += day_entries(number, range(number * files // partitions, (number + 1) * files // partitions))
        if len(waiting) >= 200_000 or number == partitions - 1:
            manifests += _manifests(layout, waiting, len(manifests))
            waiting = []
    lists = [_list(layout, f"manifest-list-{uuid.UUID(int=1)}-{i}", some) for i, some in enumerate((manifests, []))]
    (base, base_size), (delta, delta_size) = lists
    snapshot = Snapshot(1, 0, base, delta, "bench", 1, APPEND, NOW_MILLIS, files * _ROWS, 0, base_size, delta_size)
    Path(layout.snapshot(1)).write_text(snapshot.to_json())
    Path(layout.latest_hint).write_text("1")
    return folder


def day_of(number: int) -> str:
    return str(_DAY + datetime.timedelta(days=number))


def day_entries(number: int, files: range) -> Iterator[ManifestEntry]:
    """The entries of a day, bucket by bucket, in key order. File names and keys are derived from `files`."""
    partition = serialize_row([day_of(number)], _TYPES[:1])
    for place, file in enumerate(files):
        low, level = file * _ROWS, 0 if place % _LEVEL_0 == _LEVEL_0 - 1 else 5
        high = low + (_ROWS - 1 if level else -1)
        low -= 0 if level else 2 * _ROWS
        yield ManifestEntry(
            EntryKind.ADD, partition, place * BUCKETS // len(files), BUCKETS, _file(number, file, low, high, level)
        )


def _file(day: int, file: int, low: int, high: int, level: int) -> DataFileMeta:
    least, greatest = serialize_row([low], _TYPES[1:2]), serialize_row([high], _TYPES[1:2])
    rows = [serialize_row([day_of(day), key, key % 1000, key * 0.5, f"item-{key}"[:16]], _TYPES) for key in (low, high)]
    return DataFileMeta(
        f"data-{uuid.UUID(int=file * 0x9E3779B97F4A7C15F39CC0605CEDC834 % 2**128)}-0.parquet",
        _FILE_BYTES + file % 7919,
        _ROWS,
        least,
        greatest,
        SimpleStats(least, greatest, (0,)),
        SimpleStats(rows[0], rows[1], (0, 0, 3, 1, 2)),
        low,
        high,
        0,
        level,
        (),
        NOW_MILLIS + file,
        0,
        None,
        0 if level == 0 else 1,
    )


def _manifests(layout: TableLayout, entries: list[ManifestEntry], already: int) -> Iterator[ManifestFileMeta]:
    end = 0
    for number, (content, count) in enumerate(encode_manifests(entries, MANIFEST_BYTES), already):
        inside, end = entries[end : end + count], end + count
        name = f"manifest-{uuid.UUID(int=1)}-{number}"
        Path(layout.manifest(name)).write_bytes(content)
        stats = partition_stats(Counter(entry.partition for entry in inside), _TYPES[:1])
        yield ManifestFileMeta(name, len(content), count, 0, stats, 0, 0, BUCKETS - 1, 0, 5)


def _list(layout: TableLayout, name: str, manifests: list[ManifestFileMeta]) -> tuple[str, int]:
    content = encode_manifest_list(manifests)
    Path(layout.manifest(name)).write_bytes(content)
    return name, len(content)
