"""Damaged copies of every kind of table file, and what must become of them: an error that names the file, or the same content."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from paimon_cli.bucket import orc_file
from paimon_cli.bucket.data_file_reader import read_data_file
from paimon_cli.bucket.deletion_vectors import load_vectors
from paimon_cli.errors import PaimonError
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.hash_indexes import hashes_of
from paimon_cli.metadata.data_file import BucketId, DataFileMeta
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, VALUE_KIND
from paimon_cli.metadata.manifests import decode_index_manifest, decode_manifest, decode_manifest_list
from paimon_cli.metadata.snapshot import Snapshot, Tag
from paimon_cli.metadata.table_schema import TableSchema

Decode = Callable[[bytes, str], Any]
PATH = "/table/the-file"


@dataclass(frozen=True)
class Specimen:
    """A sound file and how it is decoded. `checked`: its content has checksums, so that no damage may pass for content."""

    kind: str
    content: bytes
    decode: Decode
    checked: bool = False


@dataclass
class FuzzFigures:
    """The results of the mutated files, by kind."""

    files: int = 0
    refused: int = 0
    unchanged: int = 0
    changed: dict[str, int] = field(default_factory=dict)
    """Damage that went unnoticed: only where the format has no checksum."""
    failures: list[str] = field(default_factory=list)


def mutated(content: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """One of: bits or bytes turned, cut off, a part doubled, removed or zeroed, a huge length, a splice, another file."""
    if not content:
        return bytes([chance.randrange(256)])
    place = chance.randrange(len(content))
    kind = chance.randrange(9)
    data = bytearray(content)
    if kind == 0:
        data[place] ^= 1 << chance.randrange(8)
    elif kind == 1:
        for _ in range(chance.randrange(1, 8)):
            data[chance.randrange(len(data))] = chance.randrange(256)
    elif kind == 2:
        return content[:place]
    elif kind == 3:
        return content[:place] + content[chance.randrange(len(content)) :]
    elif kind == 4:
        end = min(len(content), place + chance.randrange(1, 64))
        return content[:end] + content[place:end] * chance.randrange(1, 4) + content[end:]
    elif kind == 5:
        data[place : place + 8] = bytes(len(data[place : place + 8]))
    elif kind == 6:
        data[place : place + 9] = chance.choice([b"\xff" * 9, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x80" * 9])[
            : len(data) - place
        ]
    elif kind == 7:
        other = chance.choice(others)
        return content[:place] + other[chance.randrange(len(other) + 1) :]
    else:
        return chance.choice(others)
    return bytes(data)


@mock.patch.object(orc_file, "discard", lambda process, error: orc_file._idle.append(process))
def fuzz(specimens: Sequence[Specimen], count: int, seed: int) -> FuzzFigures:
    """`count` mutated files, spread over the specimens. A failure names specimen, seed and number, to make it again.

    A process that decodes ORC goes on after a damaged file here: starting one takes as long as decoding a hundred files.
    """
    figures = FuzzFigures()
    sound = [normal(specimen.decode(specimen.content, PATH)) for specimen in specimens]
    others = [specimen.content for specimen in specimens]
    for number in range(count):
        chance = random.Random(f"{seed}/{number}")
        index = number % len(specimens)
        specimen = specimens[index]
        data = mutated(specimen.content, others, chance)
        if data == specimen.content:
            continue
        figures.files += 1
        try:
            found = normal(specimen.decode(data, PATH))
        except PaimonError as error:
            if error.exit_code not in (8, 10) or not _names_the_file(error):
                figures.failures.append(f"{specimen.kind} {seed}/{number}: {type(error).__name__} {error} {error.details}")
            figures.refused += 1
            continue
        except Exception as error:
            figures.failures.append(f"{specimen.kind} {seed}/{number}: {type(error).__name__}: {error}")
            continue
        if found == sound[index] or data in others:
            figures.unchanged += 1
        else:
            figures.changed[specimen.kind] = figures.changed.get(specimen.kind, 0) + 1
            if specimen.checked:
                figures.failures.append(f"{specimen.kind} {seed}/{number}: silently other content")
    return figures


def normal(content: Any) -> str:
    """Content as text, so that equal content is equal whatever its type (NaN too)."""
    return repr(content)


def _names_the_file(error: PaimonError) -> bool:
    return bool(error.details.get("path")) or PATH in str(error) or error.exit_code == 8


class OneFileStorage:
    """Every read returns the file under test."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read_bytes(self, path: str) -> bytes:
        return self.data

    def open_input(self, path: str) -> Any:
        return io.BytesIO(self.data)


def metadata_specimens(root: Path) -> Iterator[Specimen]:
    """The small files of a table: JSON and Avro."""
    for path in sorted(root.glob("snapshot/snapshot-*"))[-1:]:
        yield Specimen("snapshot", path.read_bytes(), Snapshot.from_json)
    for path in sorted(root.glob("schema/schema-*"))[-1:]:
        yield Specimen("schema", path.read_bytes(), TableSchema.from_json)
    for path in sorted(root.glob("tag/tag-*"))[:1]:
        yield Specimen("tag", path.read_bytes(), Tag.from_json)
    lists = sorted((path for path in root.glob("manifest/manifest-list-*")), key=lambda p: (p.stat().st_size, p.name))
    manifests = sorted(p for p in root.glob("manifest/manifest-*") if "list" not in p.name)
    yield Specimen("manifest list", lists[-1].read_bytes(), decode_manifest_list)
    yield Specimen("manifest", manifests[-1].read_bytes(), decode_manifest)
    for path in sorted(root.glob("manifest/index-manifest-*"))[-1:]:
        yield Specimen("index manifest", path.read_bytes(), decode_index_manifest)


def data_specimens(context: TableContext, *, checked: bool) -> Iterator[Specimen]:
    """A data file of each format, and index files, read as a read of the table would."""
    snapshot = context.snapshots.latest()
    assert snapshot is not None
    formats = set()
    for entry in context.manifests.live_entries(snapshot):
        form = entry.file.file_name.rsplit(".", 1)[-1]
        if form not in formats:
            formats.add(form)
            content = context.storage.read_bytes(context.data_file_path(entry.partition, entry.bucket, entry.file))
            yield Specimen(form, content, _data_decoder(context, entry.partition, entry.file), checked and form == "parquet")
    for index in context.manifests.index_entries(snapshot):
        path = context.layout.index(index.index_file.file_name)
        content = context.storage.read_bytes(path)
        if index.index_file.index_type == "HASH":
            yield Specimen("hash index", content, partial(_hashes, context))
            return
        if index.index_file.deletion_vector_ranges:
            bucket = BucketFiles(index.partition, index.bucket, 1, (), (index.index_file,))
            yield Specimen("deletion vectors", content, partial(_vectors, context, bucket), True)
            return


def _hashes(context: TableContext, data: bytes, path: str) -> Any:
    return hashes_of(_reading(context, data), path).tolist()


def _vectors(context: TableContext, bucket: BucketFiles, data: bytes, path: str) -> Any:
    vectors = load_vectors(_reading(context, data), bucket)
    return sorted((name, list(vector.positions)) for name, vector in vectors.by_file.items())


def _reading(context: TableContext, data: bytes) -> TableContext:
    """The table on a storage that has only one file; schemas are cached."""
    reading = replace(context, storage=OneFileStorage(data))  # type: ignore[arg-type]
    reading.schemas.known.update(context.schemas.known)
    return reading


def _data_decoder(context: TableContext, partition: bytes, file: DataFileMeta) -> Decode:
    names = [SEQUENCE_NUMBER, VALUE_KIND] if context.schema.primary_keys else []
    columns = [*names, *context.schema.field_names]

    def decode(data: bytes, path: str) -> Any:
        batches = read_data_file(_reading(context, data), BucketId(partition, 0), file, columns, 1024)
        return [batch.serialize().to_pybytes() for batch in batches]

    return decode
