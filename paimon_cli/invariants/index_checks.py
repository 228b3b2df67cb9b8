"""Checks of index files by metadata and by content, and of the deletion vectors in them."""

from __future__ import annotations

from collections.abc import Iterator

from paimon_cli.bucket.combined_columns import check_vectors, row_ranges
from paimon_cli.errors import DamagedFile
from paimon_cli.invariants.file_checks import StoredFiles
from paimon_cli.invariants.scopes import OF_STEP, OF_VERSION
from paimon_cli.invariants.version import Version
from paimon_cli.invariants.violation import FILES, META, WARNING, CheckGroup, Invariant, Violation, declare
from paimon_cli.metadata.data_file import HASH, BucketId, IndexManifestEntry
from paimon_cli.metadata.index_files import KEY_HASH_BYTES, decode_deletion_vector
from paimon_cli.metadata.snapshot import OVERWRITE

declare(
    Invariant(
        "PV015",
        CheckGroup.VECTORS,
        FILES,
        "every index file of a snapshot exists with the size of its metadata",
        of_unreadable_file=True,
    ),
    Invariant(
        "PV040",
        CheckGroup.VECTORS,
        FILES,
        "a deletion vector is readable and marks existing rows, as many as its metadata says",
        of_unreadable_file=True,
    ),
)


def index_files_exist(version: Version, stored: StoredFiles | None = None) -> Iterator[Violation]:
    """PV015, and PV043 for the index of a dynamic bucket."""
    known, directory = stored or StoredFiles(version.context), version.context.layout.index_directory
    for entry in _fresh(version):
        index, code = entry.index_file, "PV043" if entry.index_file.index_type == HASH else "PV015"
        if index.external_path is not None:
            continue
        size = known.size(directory, index.file_name)
        if size is None:
            yield Violation(code, version.index_path(entry), f"is named by snapshot {version.snapshot.id} and is missing")
        elif size != index.file_size:
            yield Violation(code, version.index_path(entry), f"has {size} bytes, but its metadata says {index.file_size}")


@OF_VERSION.check(Invariant("PV016", CheckGroup.VECTORS, META, "every deletion vector belongs to a live file", severity=WARNING))
def vectors_are_not_dangling(version: Version) -> Iterator[Violation]:
    """PV016. A vector for a file that is not live has no effect. Java up to 1.4.2 keeps the vector of a file that it rewrites
    alone, so rows may be right; PV065 tells when they are not.
    """
    for entry in _fresh(version):
        alive = {e.file.file_name for e in version.at(entry.bucket_id)}
        for vector in entry.index_file.deletion_vector_ranges or ():
            if vector.data_file_name not in alive:
                where = version.index_path(entry)
                yield Violation("PV016", where, f"marks rows of {vector.data_file_name}, which is not in the bucket")


@OF_STEP.check(Invariant("PV065", CheckGroup.VECTORS, META, "a commit marks only rows of files that are live before or after it"))
def new_vectors_mark_live_files(before: Version, version: Version) -> Iterator[Violation]:
    """PV065. Rows that a commit marks in a file that another commit has replaced remain visible in the new file."""
    known = dict(_cardinalities(before))
    for entry in _fresh(version):
        bucket_id, alive = entry.bucket_id, {e.file.file_name for v in (before, version) for e in v.at(entry.bucket_id)}
        for vector in entry.index_file.deletion_vector_ranges or ():
            name, count = vector.data_file_name, vector.cardinality
            is_kept = (bucket_id, name) in known and known[bucket_id, name] in (count, None)
            if name not in alive and not is_kept:
                why = f"snapshot {version.snapshot.id} marks {count or 'some'} rows of {name}, which was replaced before"
                yield Violation("PV065", version.index_path(entry), why)


@OF_VERSION.check(
    Invariant(
        "PV039", CheckGroup.VECTORS, META, "a bucket has one index file of each kind, and its deletion vectors do not overlap"
    )
)
def indexes_are_one_of_a_kind(version: Version) -> Iterator[Violation]:
    """PV039. With two index files for a bucket, readers may use either; overlapping vectors cannot both be right."""
    seen: set[tuple[object, ...]] = set()
    marked: set[tuple[BucketId, str]] = set()
    unaware = not version.context.schema.primary_keys and version.context.options.bucket == -1
    for entry in _fresh(version):
        index, bucket_id = entry.index_file, entry.bucket_id
        kind = (bucket_id, index.index_type, index.file_name if unaware else "")
        if kind in seen and not index.only_finds_rows:
            yield Violation("PV039", version.index_path(entry), f"is the second {index.index_type} index of its bucket")
        seen.add(kind)
        end = 1
        for vector in sorted(index.deletion_vector_ranges or (), key=lambda r: r.offset):
            if vector.offset < end:
                why = f"the vector of {vector.data_file_name} at byte {vector.offset} overlaps another"
                yield Violation("PV039", version.index_path(entry), why)
            if (bucket_id, vector.data_file_name) in marked:
                yield Violation("PV039", version.index_path(entry), f"is the second to mark rows of {vector.data_file_name}")
            marked.add((bucket_id, vector.data_file_name))
            end = vector.offset + vector.length


@OF_STEP.check(Invariant("PV048", CheckGroup.VECTORS, META, "the deletion vector of a live file never shrinks"))
def vectors_do_not_shrink(before: Version, version: Version) -> Iterator[Violation]:
    """PV048. A vector shrinks when a commit restores vectors that it read before a concurrent compaction changed them."""
    if version.snapshot.commit_kind == OVERWRITE:
        return
    now = {key: count for key, count in _cardinalities(version)}
    for (bucket_id, name), count in _cardinalities(before):
        left = now.get((bucket_id, name), 0)
        is_less = (bucket_id, name) not in now or (left is not None and count is not None and left < count)
        if is_less and any(entry.file.file_name == name for entry in version.at(bucket_id)):
            yield Violation(
                "PV048", version.path, f"marks {left} rows of {name}, snapshot {before.snapshot.id} marked {count or 'some'}"
            )


def _cardinalities(version: Version) -> Iterator[tuple[tuple[BucketId, str], int | None]]:
    for entry in version.index_entries:
        for vector in entry.index_file.deletion_vector_ranges or ():
            yield (entry.bucket_id, vector.data_file_name), vector.cardinality


def _fresh(version: Version) -> Iterator[IndexManifestEntry]:
    bucket_ids = version.changed_buckets
    return (entry for entry in version.index_entries if entry.bucket_id in bucket_ids)


def index_can_be_read(version: Version, entry: IndexManifestEntry) -> Iterator[Violation]:
    """PV040 and PV043 for one index file; a missing file is reported by another check. No row depends on an index of values."""
    if entry.index_file.only_finds_rows:
        return
    try:
        content = version.context.storage.read_bytes(version.index_path(entry))
    except FileNotFoundError:
        return
    if entry.index_file.index_type == HASH:
        found = len(content) // KEY_HASH_BYTES
        if len(content) % KEY_HASH_BYTES or found != entry.index_file.row_count:
            recorded = entry.index_file.row_count
            yield Violation("PV043", version.index_path(entry), f"holds {found} hashes, but its metadata says {recorded}")
        return
    if version.context.mode.combines_columns:
        yield from _vectors_that_do_not_count(version, entry)
    rows = {e.file.file_name: e.file.row_count for e in version.at(entry.bucket_id)}
    for vector in entry.index_file.deletion_vector_ranges or ():
        path = version.index_path(entry)
        try:
            positions = decode_deletion_vector(content, vector.offset, vector.length, path).positions
        except DamagedFile as error:
            yield Violation("PV040", path, str(error))
            continue
        if positions and positions.max() >= rows.get(vector.data_file_name, positions.max() + 1):
            have = rows[vector.data_file_name]
            yield Violation("PV040", path, f"marks row {positions.max()} of {vector.data_file_name}, which has {have}")
        if vector.cardinality is not None and vector.cardinality != len(positions):
            yield Violation(
                "PV040",
                path,
                f"marks {len(positions)} rows of {vector.data_file_name}, but its metadata says {vector.cardinality}",
            )


def _vectors_that_do_not_count(version: Version, entry: IndexManifestEntry) -> Iterator[Violation]:
    names = {vector.data_file_name for vector in entry.index_file.deletion_vector_ranges or ()}
    try:
        for members in row_ranges(e.file for e in version.at(entry.bucket_id)):
            check_vectors(members, names)
    except DamagedFile as error:
        yield Violation("PV040", version.index_path(entry), str(error))
