"""Checks of what a version says of files: its entries follow from the version before, and the files are on storage."""

from __future__ import annotations

from collections.abc import Iterator

from paimon_cli.invariants.version import Version
from paimon_cli.invariants.violation import Violation
from paimon_cli.metadata.data_file import ADD, ManifestEntry


def base_is_what_lived_before(before: Version, version: Version) -> Iterator[Violation]:
    """PV010. live(N) = live(N - 1) + delta(N): no commit takes anything along, or drops it, in silence."""
    expected = {entry.identity: entry for entry in before.live}
    actual = {entry.identity: entry for entry in version.base}
    for identity in expected.keys() - actual.keys():
        yield Violation("PV010", version.path, f"has lost {_label(version, expected[identity])}")
    for identity in actual.keys() - expected.keys():
        yield Violation("PV010", version.path, f"has {_label(version, actual[identity])} that nobody added")


def delta_fits(before: Version | None, version: Version) -> Iterator[Violation]:
    """PV011. A DELETE finds its file alive, an ADD does not, and no identity occurs twice."""
    alive = {entry.identity for entry in before.live} if before else set()
    seen: set[tuple[object, ...]] = set()
    for entry in version.delta:
        label = _label(version, entry)
        if entry.identity in seen:
            yield Violation("PV011", version.path, f"changes {label} twice")
        elif entry.kind == ADD and entry.identity in alive:
            yield Violation("PV011", version.path, f"adds {label}, which is there already")
        elif entry.kind != ADD and entry.identity not in alive and before is not None:
            yield Violation("PV011", version.path, f"deletes {label}, which is not there")
        seen.add(entry.identity)


def live_files_exist(version: Version) -> Iterator[Violation]:
    """PV012 and PV013. One listing per bucket; files outside of the table are asked for one by one."""
    storage = version.context.storage
    for place, entries in version.buckets.items():
        sizes = {status.name: status.size for status in storage.list_directory(version.bucket_directory(place))}
        for entry in entries:
            path, file = version.file_path(entry), entry.file
            for name in file.extra_files:
                if name not in sizes and file.external_path is None:
                    yield Violation("PV012", path, f"lives in snapshot {version.snapshot.id}, its extra file {name} is missing")
            size = sizes.get(file.file_name) if file.external_path is None else _size_of(version, path)
            if size is None:
                yield Violation("PV012", path, f"lives in snapshot {version.snapshot.id} and is missing")
            elif size != file.file_size:
                yield Violation("PV013", path, f"has {size} bytes, its metadata says {file.file_size}")


def record_counts_add_up(before: Version | None, version: Version) -> Iterator[Violation]:
    """PV014. The totals count rows of files, unmerged."""
    snapshot = version.snapshot
    delta = sum(e.file.row_count if e.kind == ADD else -e.file.row_count for e in version.delta)
    total = sum(e.file.row_count for e in version.live)
    if snapshot.delta_record_count != delta:
        yield Violation("PV014", version.path, f"says that it added {snapshot.delta_record_count} records, its delta has {delta}")
    if snapshot.total_record_count != total:
        yield Violation("PV014", version.path, f"says it holds {snapshot.total_record_count} records, its files have {total}")
    if before is not None and snapshot.total_record_count - before.snapshot.total_record_count != snapshot.delta_record_count:
        yield Violation("PV014", version.path, f"does not continue the count of snapshot {before.snapshot.id}")


def index_files_exist(version: Version) -> Iterator[Violation]:
    """PV015."""
    for entry in version.index_entries:
        path = entry.index_file.external_path or version.context.layout.index(entry.index_file.file_name)
        if not version.context.storage.exists(path):
            yield Violation("PV015", path, f"is named by snapshot {version.snapshot.id} and is missing")


def vectors_are_not_dangling(version: Version) -> Iterator[Violation]:
    """PV016. A vector of a file that is gone marks nothing, and what it should have marked is visible again."""
    for entry in version.index_entries:
        alive = {e.file.file_name for e in version.buckets.get((entry.partition, entry.bucket), ())}
        for vector in entry.index_file.deletion_vector_ranges or ():
            if vector.data_file_name not in alive:
                path = entry.index_file.external_path or version.context.layout.index(entry.index_file.file_name)
                yield Violation("PV016", path, f"marks rows of {vector.data_file_name}, which is not in the bucket")


def _size_of(version: Version, path: str) -> int | None:
    try:
        return version.context.storage.file_size(path)
    except FileNotFoundError:
        return None


def _label(version: Version, entry: ManifestEntry) -> str:
    partition = version.context.partition_path_of(entry.partition)
    return f"{entry.file.file_name} (level {entry.file.level}, {partition}bucket-{entry.bucket})"
