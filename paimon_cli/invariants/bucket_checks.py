"""Checks of the LSM tree of each bucket, by metadata alone: levels, key ranges, bucket counts, sequence numbers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from paimon_cli.invariants.version import Version
from paimon_cli.invariants.violation import Violation
from paimon_cli.metadata.data_file import ADD, ManifestEntry
from paimon_cli.metadata.snapshot import OVERWRITE


def levels_are_disjoint(version: Version) -> Iterator[Violation]:
    """PV020. Levels above 0 are sorted runs: their files meet no key twice."""
    if not version.context.schema.primary_keys:
        return
    key_of = version.context.key_of
    for bucket_id in version.changed_buckets:
        levels: dict[int, list[ManifestEntry]] = {}
        for entry in version.at(bucket_id):
            if entry.file.level > 0:
                levels.setdefault(entry.file.level, []).append(entry)
        for level, files in levels.items():
            if len(files) < 2:
                continue
            ordered = sorted((key_of(e.file.min_key), key_of(e.file.max_key), e.file.file_name) for e in files)
            for (_, reach, left), (low, _, right) in pairwise(ordered):
                if low <= reach:
                    yield Violation("PV020", version.bucket_directory(bucket_id), f"level {level}: {left} and {right} share keys")


def key_ranges_are_ranges(version: Version) -> Iterator[Violation]:
    """PV021."""
    if not version.context.schema.primary_keys:
        return
    for entry in version.fresh:
        if not entry.is_postponed and version.context.key_of(entry.file.min_key) > version.context.key_of(entry.file.max_key):
            yield Violation("PV021", version.file_path(entry), "its least key is greater than its greatest")


def bucket_counts_agree(version: Version) -> Iterator[Violation]:
    """PV022. Two counts in one partition: keys are looked for in the wrong bucket."""
    for partition, found in version.bucket_counts().items():
        if len(found) > 1:
            where = version.context.layout.root + "/" + version.context.partition_path_of(partition)
            listed = " and ".join(map(str, sorted(found)))
            yield Violation("PV022", where.rstrip("/"), f"holds files written for {listed} buckets")


def sequence_numbers_rise(before: Version, version: Version) -> Iterator[Violation]:
    """PV023, merge disorder: new rows do not beat the rows of keys that were committed before, by their sequence numbers.

    It comes from two writers that numbered rows of one bucket without knowing of each other; compaction may then change
    what readers see. Where a sequence field orders the rows, numbers only decide between equal values of it.
    """
    context = version.context
    if version.snapshot.commit_kind == OVERWRITE or not context.schema.primary_keys or context.options.sequence_fields:
        return
    key_of = version.context.key_of
    for entry in version.delta:
        bucket_id = entry.bucket_id
        if entry.kind != ADD or entry.file.level != 0 or entry.is_postponed:
            continue
        if before.highest_sequence(bucket_id) < entry.file.min_sequence_number:
            continue
        overlapping = [
            older for older in before.at(bucket_id) if older.file.max_sequence_number >= entry.file.min_sequence_number
        ]
        if not overlapping:
            continue
        low, high = key_of(entry.file.min_key), key_of(entry.file.max_key)
        sharing = [e.file for e in overlapping if key_of(e.file.min_key) <= high and low <= key_of(e.file.max_key)]
        if sharing:
            newest = max(sharing, key=lambda file: file.max_sequence_number)
            yield Violation(
                "PV023",
                version.file_path(entry),
                f"user {version.snapshot.commit_user} numbered it from {entry.file.min_sequence_number}, but "
                f"{newest.file_name} had reached {newest.max_sequence_number}",
            )
