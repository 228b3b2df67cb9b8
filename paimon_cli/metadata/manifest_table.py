"""Manifest entries as columns, for tables with too many files to create a Python object for each entry.

Only requested entries become `ManifestEntry` objects. Byte strings stay in the buffer into which they were read, and are
compared and dictionary-encoded there.
"""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from typing import Any

import numpy as np

from paimon_cli.metadata.avro_columns import BEGIN, END, NULL_NUMBER, PADDING, NotColumnar, decode_columns
from paimon_cli.metadata.avro_reader import checked_schema, damage_errors, open_container
from paimon_cli.metadata.avro_writer import RecordSchema
from paimon_cli.metadata.byte_ranges import ByteRanges
from paimon_cli.metadata.data_file import DataFileMeta, FileIdentity, ManifestEntry
from paimon_cli.metadata.manifests import ENTRY, MANIFEST_VERSION, decode_manifest, entries_of, entry_of
from paimon_cli.metadata.possible_values import entry_faults
from paimon_cli.pieces import PIECES

_NUMBERS = {
    "kinds": ("_KIND", "kind"),
    "buckets": ("_BUCKET", "bucket"),
    "total_buckets": ("_TOTAL_BUCKETS", "total_buckets"),
    "levels": ("_FILE._LEVEL", "file.level"),
    "sizes": ("_FILE._FILE_SIZE", "file.file_size"),
    "row_counts": ("_FILE._ROW_COUNT", "file.row_count"),
    "min_sequences": ("_FILE._MIN_SEQUENCE_NUMBER", "file.min_sequence_number"),
    "max_sequences": ("_FILE._MAX_SEQUENCE_NUMBER", "file.max_sequence_number"),
    "schema_ids": ("_FILE._SCHEMA_ID", "file.schema_id"),
    "creation_times": ("_FILE._CREATION_TIME", "file.creation_time_millis"),
}
"""The number columns of a table: path in an Avro record, and attribute of a `ManifestEntry`."""
_CHECKED = [name for name in _NUMBERS if name != "creation_times"]
_numbers_of = attrgetter(*(attribute for _, attribute in _NUMBERS.values()))
_RANGES = {
    "partitions": "_PARTITION",
    "names": "_FILE._FILE_NAME",
    "min_keys": "_FILE._MIN_KEY",
    "max_keys": "_FILE._MAX_KEY",
}
_RARE = ("_FILE._EXTRA_FILES", "_FILE._EMBEDDED_FILE_INDEX", "_FILE._EXTERNAL_PATH")
"""The rarely used parts of a file's identity: an array, one byte long if empty, and two fields that are usually null."""

_WANTED = ("_VERSION", *(path for path, _ in _NUMBERS.values()), *_RANGES.values(), *_RARE)


@dataclass(frozen=True)
class ManifestTable:
    """Entries as columns of equal length: integers of any width, with `NULL_NUMBER` for null, and byte strings.

    `records` builds entry objects. `plain` is True for entries whose identity consists of partition, bucket, level and name only.
    """

    kinds: np.ndarray
    buckets: np.ndarray
    total_buckets: np.ndarray
    levels: np.ndarray
    sizes: np.ndarray
    row_counts: np.ndarray
    min_sequences: np.ndarray
    max_sequences: np.ndarray
    schema_ids: np.ndarray
    creation_times: np.ndarray
    partitions: ByteRanges
    names: ByteRanges
    min_keys: ByteRanges
    max_keys: ByteRanges
    plain: np.ndarray
    records: Records

    def __len__(self) -> int:
        return len(self.kinds)

    def take(self, rows: np.ndarray) -> ManifestTable:
        """The entries at the indexes `rows`, in that order."""
        taken = {
            f.name: column[rows] if isinstance(column := getattr(self, f.name), np.ndarray) else column.take(rows)
            for f in fields(self)
        }
        return ManifestTable(**taken)

    def entry(self, row: int) -> ManifestEntry:
        return self.records.entry(row)

    def entries(self) -> list[ManifestEntry]:
        return self.records.entries()

    def identities(self) -> list[FileIdentity]:
        """The identities of all entries. Plain ones are not decoded for it. Raises what `decode_manifest` does."""
        try:
            names = [name.decode() for name in self.names]
        except UnicodeDecodeError:
            return [entry.identity for entry in self.entries()]
        columns = (self.partitions, self.buckets.tolist(), self.levels.tolist(), names, self.plain.tolist())
        return [
            (partition, bucket, level, name, (), None, None) if is_plain else self.entry(row).identity
            for row, (partition, bucket, level, name, is_plain) in enumerate(zip(*columns, strict=True))
        ]

    @cached_property
    def identity_hashes(self) -> np.ndarray:
        """One uint64 per entry, equal for equal identities: a hash of name, bucket and level.

        These identify a `plain` entry within its partition. Cached, since a process may keep the table over several commits.
        """
        hashed = self.names.hashes().view(np.uint64)
        for column in (self.buckets, self.levels):
            hashed = (hashed ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
            hashed ^= hashed >> np.uint64(31)
        return hashed

    @staticmethod
    def of(entries: Sequence[ManifestEntry]) -> ManifestTable:
        """A table of existing entry objects."""
        files = [entry.file for entry in entries]
        rows = [[NULL_NUMBER if number is None else number for number in _numbers_of(entry)] for entry in entries]
        numbers = np.ascontiguousarray(np.array(rows, dtype=np.int64).reshape(-1, len(_NUMBERS)).T)
        columns: dict[str, Any] = dict(zip(_NUMBERS, numbers, strict=True))
        return ManifestTable(
            **columns,
            partitions=ByteRanges.of([e.partition for e in entries]),
            names=ByteRanges.of([f.file_name.encode() for f in files]),
            min_keys=ByteRanges.of([f.min_key for f in files]),
            max_keys=ByteRanges.of([f.max_key for f in files]),
            plain=np.array([is_plain(f) for f in files], dtype=bool),
            records=Records(ByteRanges.of([]), decoded=entries, rows=np.arange(len(entries))),
        )


@dataclass(frozen=True)
class Records:
    """The entries of a table, either still as Avro `bytes`, or as `decoded` objects of which `rows` are selected.

    `paths` are the manifests, and `path_of` is the index of each entry's manifest. `is_ours`: the schema equals that of
    our own manifests, so the bytes can be copied.
    """

    bytes: ByteRanges
    schema: RecordSchema = ENTRY
    paths: tuple[str, ...] = ()
    path_of: np.ndarray | None = None
    decoded: Sequence[ManifestEntry] = ()
    rows: np.ndarray | None = None
    is_ours: bool = False

    @property
    def are_objects(self) -> bool:
        return self.rows is not None

    def take(self, rows: np.ndarray) -> Records:
        if self.rows is not None:
            return replace(self, rows=self.rows[rows])
        assert self.path_of is not None
        return replace(self, bytes=self.bytes.take(rows), path_of=self.path_of[rows])

    def entry(self, row: int) -> ManifestEntry:
        """The entry at index `row`. Raises what `decode_manifest` does."""
        if self.rows is not None:
            return self.decoded[self.rows[row]]
        assert self.path_of is not None
        return entry_of(self.bytes[row], self.schema, self.paths[self.path_of[row]])

    def entries(self) -> list[ManifestEntry]:
        """All entries; those of one manifest are decoded in one call. Raises what `decode_manifest` does."""
        if self.rows is not None:
            return [self.decoded[row] for row in self.rows.tolist()]
        assert self.path_of is not None
        begins = np.flatnonzero(np.diff(self.path_of, prepend=-1)).tolist()
        found: list[ManifestEntry] = []
        for begin, end in pairwise([*begins, len(self.path_of)]):
            content = b"".join(self.bytes[row] for row in range(begin, end))
            found += entries_of([(end - begin, content)], self.schema, self.paths[self.path_of[begin]])
        return found


def is_plain(file: DataFileMeta) -> bool:
    """Whether the file has no extra files, embedded index or external path, the rarely used parts of its identity."""
    return not file.extra_files and file.embedded_file_index is None and file.external_path is None


def decode_manifests(manifests: Iterable[tuple[str, bytes]], partitions: Collection[bytes] | None = None) -> list[ManifestTable]:
    """Tables of the entries of manifests, given as (path, content), in order. Raises what `decode_manifest` does.

    Adjacent manifests with the same schema share a table. `partitions` are byte strings, serialised partitions or parts of them:
    blocks that contain none of them are skipped without decoding.
    """
    return [opened.columns() for opened in open_manifests(manifests, partitions)]


def open_manifests(
    manifests: Iterable[tuple[str, bytes]], partitions: Collection[bytes] | None = None
) -> Iterator[OpenManifests]:
    """The first half of `decode_manifests`: decompress the manifests, grouped by schema, without decoding their entries."""
    opened: OpenManifests | None = None
    for path, data in manifests:
        try:
            container = open_container(io.BytesIO(data))
            schema = checked_schema(container.schema, ENTRY)
            if opened is not None and not opened.is_of(schema):
                yield opened
                opened = None
            opened = opened or OpenManifests(schema)
            opened.add(path, container.blocks, partitions)
        except damage_errors():
            decode_manifest(data, path)  # raises the error that names the damage
            raise
    if opened is not None:
        yield opened


class OpenManifests:
    """Decompressed manifests that share a schema."""

    def __init__(self, schema: RecordSchema) -> None:
        self._schema = schema
        self._paths: list[str] = []
        self._counts: list[list[int]] = []
        self._blocks: list[bytes] = []
        self._joined = b""

    def is_of(self, schema: RecordSchema) -> bool:
        return self._schema is schema or json.dumps(self._schema.plain) == json.dumps(schema.plain)

    def add(self, path: str, blocks: Iterable[tuple[int, bytes]], partitions: Collection[bytes] | None) -> None:
        self._paths.append(path)
        self._counts.append([])
        for count, block in blocks:
            if partitions is None or any(partition in block for partition in partitions):
                self._counts[-1].append(count)
                self._blocks.append(block)

    @property
    def _has_many_blocks(self) -> bool:
        counts = [max(count, 0) for counts in self._counts for count in counts]
        return sum(counts) >= PIECES.min_column_blocks * max(counts, default=0)

    def joined(self) -> OpenManifests:
        """Concatenate the blocks. Most of the time is spent allocating memory, so callers may run this in another thread."""
        if self._has_many_blocks and not self._joined:
            self._joined = b"".join([*self._blocks, bytes(PADDING)])
        return self

    def columns(self) -> ManifestTable:
        """The entries as columns, decoded in parallel where that is possible and faster, otherwise manifest by manifest."""
        if self._has_many_blocks:
            try:
                return self._in_parallel()
            except NotColumnar:
                pass  # decode each manifest separately below
        entries: list[ManifestEntry] = []
        blocks = iter(self._blocks)
        for path, counts in zip(self._paths, self._counts, strict=True):
            entries += entries_of([(count, next(blocks)) for count in counts], self._schema, path)
        return ManifestTable.of(entries)

    def _in_parallel(self) -> ManifestTable:
        counts = np.array([count for counts in self._counts for count in counts], dtype=np.int64)
        sizes = np.array([len(block) for block in self._blocks], dtype=np.int64)
        data = np.frombuffer(self.joined()._joined, dtype=np.uint8)
        found = decode_columns(data, self._schema.plain, counts, sizes, _WANTED)
        nothing = np.full(int(counts.sum()), NULL_NUMBER)
        if (found.get("_VERSION", nothing) != MANIFEST_VERSION).any():
            raise NotColumnar
        numbers = {name: found.get(path, nothing) for name, (path, _) in _NUMBERS.items()}
        ranges = {name: _range(data, found, path, nothing) for name, path in _RANGES.items()}
        for name, column in {**numbers, **{name: r.begins for name, r in ranges.items()}}.items():
            if name != "creation_times" and (column == NULL_NUMBER).any():
                raise NotColumnar
        if any(wrong.any() for wrong in entry_faults(*(numbers[name] for name in _CHECKED)).values()):
            raise NotColumnar  # the record by record decoder names the entry
        rare = [(found.get(f"{path}.{BEGIN}", nothing), found.get(f"{path}.{END}", nothing)) for path in _RARE]
        plain = (rare[0][1] - rare[0][0] <= 1) & (rare[1][0] == NULL_NUMBER) & (rare[2][0] == NULL_NUMBER)
        path_of = np.repeat(np.arange(len(self._paths), dtype=np.int32), [sum(counts) for counts in self._counts])
        is_ours = bool(self._schema.plain == ENTRY.plain)
        records = Records(_range(data, found, "", nothing), self._schema, tuple(self._paths), path_of, is_ours=is_ours)
        columns: dict[str, Any] = {**{name: _narrow(column) for name, column in numbers.items()}, **ranges}
        return ManifestTable(**columns, plain=plain, records=records)


def _range(data: np.ndarray, found: Mapping[str, np.ndarray], path: str, nothing: np.ndarray) -> ByteRanges:
    return ByteRanges(data, _narrow(found.get(f"{path}.{BEGIN}", nothing)), _narrow(found.get(f"{path}.{END}", nothing)))


def _narrow(column: np.ndarray) -> np.ndarray:
    """The column as int8 or int32 if its values fit, to save memory: a million entries may be held at once."""
    least, greatest = int(column.min(initial=0)), int(column.max(initial=0))
    for narrow in (np.int8, np.int32):
        if np.iinfo(narrow).min <= least and greatest <= np.iinfo(narrow).max:
            return column.astype(narrow)
    return column
