"""Entries of many manifests as columns, for plans over more files than Python objects could be made of in time.

The few entries that a plan is left with become `ManifestEntry` objects again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from paimon_cli.metadata.avro_columns import ABSENT, BEGIN, END, PADDING, NotColumnar, decode_columns
from paimon_cli.metadata.avro_container import ContainerContent, container_content, damage_errors, plain_times
from paimon_cli.metadata.byte_ranges import ByteRanges
from paimon_cli.metadata.data_file import DataFileMeta, ManifestEntry
from paimon_cli.metadata.manifest_file import ENTRY, VERSION, decode_manifest, entries_of, entry_of

_FEWEST_BLOCKS = 16
"""With fewer blocks side by side than this, one record after the other is as fast."""

_NUMBERS = {
    "kinds": "_KIND",
    "buckets": "_BUCKET",
    "total_buckets": "_TOTAL_BUCKETS",
    "levels": "_FILE._LEVEL",
    "sizes": "_FILE._FILE_SIZE",
    "row_counts": "_FILE._ROW_COUNT",
    "min_sequences": "_FILE._MIN_SEQUENCE_NUMBER",
    "max_sequences": "_FILE._MAX_SEQUENCE_NUMBER",
    "schema_ids": "_FILE._SCHEMA_ID",
    "creation_times": "_FILE._CREATION_TIME",
}
_RANGES = {
    "partitions": "_PARTITION",
    "names": "_FILE._FILE_NAME",
    "min_keys": "_FILE._MIN_KEY",
    "max_keys": "_FILE._MAX_KEY",
}
_SELDOM = ("_FILE._EXTRA_FILES", "_FILE._EMBEDDED_FILE_INDEX", "_FILE._EXTERNAL_PATH")
"""More of a file's identity: an array, which takes one byte when empty, and two that are null."""
OpenManifest = tuple[str, ContainerContent]
"""A path, and what is there."""
_WANTED = ("_VERSION", *_NUMBERS.values(), *_RANGES.values(), *_SELDOM)


@dataclass(frozen=True)
class EntryColumns:
    """Entries as columns of equal length, integers of any width; `ABSENT` where a number is null. `records` makes the entries.

    `plain`: partition, bucket, level and name are all there is to the identity of the entry.
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

    def take(self, rows: np.ndarray) -> EntryColumns:
        """Only some entries, in the order of `rows`."""
        taken = {
            f.name: column[rows] if isinstance(column := getattr(self, f.name), np.ndarray) else column.take(rows)
            for f in fields(self)
        }
        return EntryColumns(**taken)

    def entry(self, row: int) -> ManifestEntry:
        return self.records.entry(row)


@dataclass(frozen=True)
class Records:
    """Entries still in Avro, each with the number of its manifest; or `decoded` where they were read one by one.

    `is_ours`: what we would write has the same schema, so the bytes can be copied.
    """

    bytes: ByteRanges
    schema: object = None
    paths: tuple[str, ...] = ()
    path_of: np.ndarray | None = None
    decoded: Sequence[ManifestEntry] = ()
    rows: np.ndarray | None = None
    is_ours: bool = False

    def take(self, rows: np.ndarray) -> Records:
        if self.rows is not None:
            return replace(self, rows=self.rows[rows])
        assert self.path_of is not None
        return replace(self, bytes=self.bytes.take(rows), path_of=self.path_of[rows])

    def entry(self, row: int) -> ManifestEntry:
        """`DamagedFile` for names that are none."""
        if self.rows is not None:
            return self.decoded[self.rows[row]]
        assert self.path_of is not None
        path = self.paths[self.path_of[row]]
        return entry_of(self.bytes[row], self.schema, path)


def columns_of(entries: Sequence[ManifestEntry]) -> EntryColumns:
    """The same columns from entries that are there already."""
    files = [entry.file for entry in entries]

    def numbers(values: Iterable[int | None]) -> np.ndarray:
        return np.array([ABSENT if value is None else value for value in values], dtype=np.int64)

    return EntryColumns(
        numbers(e.kind for e in entries),
        numbers(e.bucket for e in entries),
        numbers(e.total_buckets for e in entries),
        numbers(f.level for f in files),
        numbers(f.file_size for f in files),
        numbers(f.row_count for f in files),
        numbers(f.min_sequence_number for f in files),
        numbers(f.max_sequence_number for f in files),
        numbers(f.schema_id for f in files),
        numbers(f.creation_time_millis for f in files),
        ByteRanges.of([e.partition for e in entries]),
        ByteRanges.of([f.file_name.encode() for f in files]),
        ByteRanges.of([f.min_key for f in files]),
        ByteRanges.of([f.max_key for f in files]),
        np.array([_is_plain(f) for f in files], dtype=bool),
        Records(ByteRanges.of([]), decoded=entries, rows=np.arange(len(entries))),
    )


def _is_plain(file: DataFileMeta) -> bool:
    return not file.extra_files and file.embedded_file_index is None and file.external_path is None


def decode_manifest_columns(
    manifests: Sequence[tuple[str, bytes]], partitions: Collection[bytes] | None = None
) -> Iterator[EntryColumns]:
    """Columns of the entries of manifests, (path, content) each, in their order; errors as `decode_manifest`.

    Neighbours of one writer's schema make one piece. `partitions`: blocks in which neither of these byte strings occurs,
    partitions or parts of them, are left out, undecoded.
    """
    yield from decode_opened([open_manifest(path, data, partitions) for path, data in manifests])


def open_manifest(path: str, data: bytes, partitions: Collection[bytes] | None = None) -> OpenManifest:
    """The first half of the work, outside of Python's lock: blocks are decompressed."""
    broken: tuple[type[BaseException], ...] = (MemoryError, *damage_errors())
    try:
        content = container_content(data, ENTRY)
    except broken:
        decode_manifest(data, path)  # says what is wrong
        raise
    if partitions is not None:
        held = [(count, block) for count, block in content.blocks if any(partition in block for partition in partitions)]
        content = replace(content, blocks=held)
    return path, content


def decode_opened(manifests: Sequence[OpenManifest]) -> Iterator[EntryColumns]:
    """The second half, which holds Python's lock most of the time."""
    group: list[OpenManifest] = []
    for path, content in manifests:
        if group and json.dumps(group[0][1].schema) != json.dumps(content.schema):
            yield from _decoded(group)
            group = []
        group.append((path, content))
    if group:
        yield from _decoded(group)


def _decoded(group: Sequence[OpenManifest]) -> Iterator[EntryColumns]:
    blocks = [block for _, content in group for block in content.blocks]
    records = sum(max(count, 0) for count, _ in blocks)
    if records >= _FEWEST_BLOCKS * max((count for count, _ in blocks), default=0):
        try:
            yield _side_by_side(group)
            return
        except NotColumnar:
            pass  # below, each manifest is judged alone
    yield columns_of([entry for path, content in group for entry in entries_of(content, path)])


def _side_by_side(group: Sequence[OpenManifest]) -> EntryColumns:
    from fastavro.schema import parse_schema

    contents = [content for _, content in group]
    blocks = [block for content in contents for block in content.blocks]
    counts = np.array([count for count, _ in blocks], dtype=np.int64)
    sizes = np.array([len(block) for _, block in blocks], dtype=np.int64)
    data = np.frombuffer(b"".join([block for _, block in blocks] + [bytes(PADDING)]), dtype=np.uint8)
    found = decode_columns(data, contents[0].schema, counts, sizes, _WANTED)
    nothing = np.full(int(counts.sum()), ABSENT)
    if (found.get("_VERSION", nothing) != VERSION).any():
        raise NotColumnar
    numbers = {name: found.get(path, nothing) for name, path in _NUMBERS.items()}
    ranges = {name: _range(data, found, f"{path}.", nothing) for name, path in _RANGES.items()}
    for name, column in {**numbers, **{name: r.begins for name, r in ranges.items()}}.items():
        if name != "creation_times" and (column == ABSENT).any():
            raise NotColumnar
    seldom = [(found.get(f"{path}.{BEGIN}", nothing), found.get(f"{path}.{END}", nothing)) for path in _SELDOM]
    plain = (seldom[0][1] - seldom[0][0] <= 1) & (seldom[1][0] == ABSENT) & (seldom[2][0] == ABSENT)
    per_manifest = [sum(count for count, _ in content.blocks) for content in contents]
    path_of = np.repeat(np.arange(len(group)), per_manifest)
    path_of = path_of.astype(np.int32)
    paths = tuple(path for path, _ in group)
    is_ours = bool(contents[0].schema == plain_times(ENTRY))
    schema = parse_schema(contents[0].schema)  # once: it is given with every record
    records = Records(_range(data, found, "", nothing), schema, paths, path_of, is_ours=is_ours)
    columns: dict[str, Any] = {**{name: _narrow(column) for name, column in numbers.items()}, **ranges}
    return EntryColumns(**columns, plain=plain, records=records)


def _range(data: np.ndarray, found: Mapping[str, np.ndarray], prefix: str, nothing: np.ndarray) -> ByteRanges:
    return ByteRanges(data, _narrow(found.get(f"{prefix}{BEGIN}", nothing)), _narrow(found.get(f"{prefix}{END}", nothing)))


def _narrow(column: np.ndarray) -> np.ndarray:
    """Half or an eighth of the bytes, where the values allow it: a million entries are held at once."""
    least, greatest = int(column.min(initial=0)), int(column.max(initial=0))
    for narrow in (np.int8, np.int32):
        if np.iinfo(narrow).min <= least and greatest <= np.iinfo(narrow).max:
            return column.astype(narrow)
    return column
