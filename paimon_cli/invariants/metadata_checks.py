"""Checks that read only metadata: manifests against their lists, single entries, and the LSM tree of each bucket."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from paimon_cli.history.live_files import written_again
from paimon_cli.invariants.history_walk import ReadManifest, WalkedVersion
from paimon_cli.invariants.scopes import OF_STEP, OF_VERSION
from paimon_cli.invariants.version import Version
from paimon_cli.invariants.violation import MERGE_DISORDER, META, WARNING, CheckGroup, Invariant, Violation, declare
from paimon_cli.metadata.data_file import EntryKind, ManifestEntry
from paimon_cli.metadata.manifests import inlined_lists
from paimon_cli.metadata.partition_ranges import PartitionRange
from paimon_cli.metadata.snapshot import OVERWRITE
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.storage.external_storage import place_not_allowed
from paimon_cli.storage.redaction import shown_name, without_login

declare(
    Invariant(
        "PV018",
        CheckGroup.METADATA,
        META,
        "a manifest holds as many entries as its list says, and the list has the size of its snapshot",
    ),
    Invariant(
        "PV019",
        CheckGroup.METADATA,
        META,
        "partitions, buckets, levels and schemas of a manifest are within the range in its list",
    ),
    Invariant("PV061", CheckGroup.METADATA, META, "what a snapshot repeats of its manifest lists is what they hold"),
)


def manifests_hold_what_is_listed(version: WalkedVersion) -> Iterator[Violation]:
    """PV018 and PV019: readers rely on the counts and ranges in the list to skip manifests, and the search for DELETE entries."""
    for manifest in version.new_manifests:
        path = version.context.layout.manifest(manifest.meta.file_name)
        added = int((manifest.table.numbers("kinds") == EntryKind.ADD).sum())
        found, recorded = (added, len(manifest.table) - added), (manifest.meta.num_added_files, manifest.meta.num_deleted_files)
        if found != recorded:
            yield Violation(
                "PV018", path, f"adds {found[0]} and deletes {found[1]} files, but its list says {recorded[0]} and {recorded[1]}"
            )
        if outside := _outside_of_range(version, manifest):
            yield Violation("PV019", path, outside)


def inlined_lists_are_the_stored_ones(version: WalkedVersion) -> Iterator[Violation]:
    """PV061. Snapshots may repeat their manifest lists, which saves requests on object stores; other readers use the lists."""
    snapshot, reader = version.snapshot, version.context.manifests
    for name, inlined in inlined_lists(snapshot.properties).items():
        if name in (snapshot.base_manifest_list, snapshot.delta_manifest_list) and inlined != reader.manifest_list(name):
            yield Violation("PV061", version.path, f"repeats {len(inlined)} manifests of {name}, which holds others")


def _outside_of_range(version: WalkedVersion, manifest: ReadManifest) -> str:
    meta, table = manifest.meta, manifest.table
    if not len(table):
        return ""
    for name, least, greatest, column in (
        ("buckets", meta.min_bucket, meta.max_bucket, "buckets"),
        ("levels", meta.min_level, meta.max_level, "levels"),
        ("schemas", None, meta.schema_id, "schema_ids"),
    ):
        low, high = int(table.numbers(column).min()), int(table.numbers(column).max())
        if (least is not None and low < least) or (greatest is not None and high > greatest):
            return f"holds {name} {low} to {high}, but its list says {least} to {greatest}"
    types = version.context.partition_types
    known = PartitionRange.of(meta.partition_stats, types) if types else None
    for partition in table.partitions:
        if known is not None and not known.may_hold(version.context.partition_values(partition)):
            return f"holds partition {version.context.partition_path_of(partition).rstrip('/')}, outside the range in its list"
    return ""


@OF_VERSION.check(Invariant("PV024", CheckGroup.BUCKETS, META, "every file is in a bucket that the table has"))
def buckets_are_valid(version: Version) -> Iterator[Violation]:
    """PV024: only tables with postponed buckets have files whose rows wait for a bucket. Others are not read there."""
    if version.context.options.bucket == POSTPONE_BUCKET:
        return
    for entry in version.fresh:
        if entry.is_postponed:
            yield Violation("PV024", version.path, f"has bucket {entry.bucket} of {entry.total_buckets}: {version.label(entry)}")


@OF_VERSION.check(
    Invariant(
        "PV028",
        CheckGroup.STORED,
        META,
        "no file lies at a place outside of the table that is not allowed",
        of_permission=True,
    )
)
def files_lie_inside(version: Version) -> Iterator[Violation]:
    """PV028: data files may lie where the user's configuration allows it (`external-paths.allowed`).

    What may not be opened is not checked, so this is no success; but it is no damage either, and nothing is to be repaired.
    """
    for entry in version.fresh:
        if not version.context.can_open(entry.file):
            refused = place_not_allowed(f"data file {entry.file.file_name}", str(entry.file.external_path))
            yield Violation("PV028", version.path, f"{refused.what}, and was not checked: {refused.why}; {refused.hint}")


@OF_VERSION.check(
    Invariant("PV071", CheckGroup.STORED, META, "no index file lies outside of the table", of_support=True),
)
def index_files_lie_inside(version: Version) -> Iterator[Violation]:
    """PV071: no configuration allows them to lie elsewhere. They are not read, so this is neither a success nor a damage."""
    for index in version.index_entries:
        if (recorded := index.index_file.external_path) is not None:
            what = f"index file {index.index_file.file_name} lies outside of the table, at {without_login(recorded)}"
            yield Violation("PV071", version.path, f"{what}, and was not checked: index files are read from the table only")


@OF_VERSION.check(Invariant("PV029", CheckGroup.CHAIN, META, "a data file is live in one bucket and at one level only"))
def files_live_once(version: Version) -> Iterator[Violation]:
    """PV029. The rows of a file that is live at two levels, or with two lists of extra files, are read twice."""
    for bucket_id in version.changed_buckets:
        seen: set[str] = set()
        for entry in version.at(bucket_id):
            if entry.file.file_name in seen:
                yield Violation("PV029", version.bucket_directory(bucket_id), f"holds {entry.file.file_name} twice")
            seen.add(entry.file.file_name)


@OF_VERSION.check(Invariant("PV020", CheckGroup.RUNS, META, "key ranges of one level above 0 are disjoint", of_key_order=True))
def levels_are_disjoint(version: Version) -> Iterator[Violation]:
    """PV020. Levels above 0 are sorted runs: no two of their files share a key."""
    if not version.context.mode.bounds_are_keys:
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


@OF_VERSION.check(
    Invariant("PV021", CheckGroup.RUNS, META, "the least key of a file is not greater than its greatest", of_key_order=True)
)
def key_ranges_are_ranges(version: Version) -> Iterator[Violation]:
    """PV021: the minimum key of a file is not greater than its maximum key."""
    if not version.context.mode.bounds_are_keys:
        return
    for entry in version.fresh:
        if not entry.is_postponed and version.context.key_of(entry.file.min_key) > version.context.key_of(entry.file.max_key):
            yield Violation("PV021", version.file_path(entry), "its least key is greater than its greatest")


@OF_VERSION.check(Invariant("PV022", CheckGroup.BUCKETS, META, "all files of a partition were written for one number of buckets"))
def bucket_counts_agree(version: Version) -> Iterator[Violation]:
    """PV022. With different bucket counts in a partition, keys are looked up in the wrong bucket."""
    for partition, found in version.bucket_counts().items():
        if len(found) > 1:
            where = version.context.layout.root + "/" + version.context.partition_path_of(partition)
            listed = " and ".join(map(str, sorted(found)))
            yield Violation("PV022", where.rstrip("/"), f"holds files written for {listed} buckets")


@OF_VERSION.check(Invariant("PV066", CheckGroup.BUCKETS, META, "every partition of a table with keys is written in one way"))
def partitions_are_written_in_one_way(version: Version) -> Iterator[Violation]:
    """PV066. Otherwise readers take a bucket of the partition for two, and do not merge them."""
    for partition in written_again(version.context, version.bucket_counts() if version.context.mode.has_keys else ()):
        where = f"{version.context.layout.root}/{version.context.partition_path_of(partition)}"
        yield Violation("PV066", where.rstrip("/"), f"snapshot {version.snapshot.id} writes this partition in two ways")


@OF_STEP.check(
    Invariant(
        MERGE_DISORDER,
        CheckGroup.SEQUENCE,
        META,
        "sequence numbers of a commit are greater than those already in the bucket",
        severity=WARNING,
        of_key_order=True,
    )
)
def sequence_numbers_rise(before: Version, version: Version) -> Iterator[Violation]:
    """PV023, merge disorder: by their sequence numbers, new rows do not replace older rows of the same keys.

    It occurs when two writers number rows of one bucket independently; a compaction may then change what readers see.
    Tables with a sequence field are not checked, because their sequence numbers only break ties.
    """
    context = version.context
    if version.snapshot.commit_kind == OVERWRITE or not context.mode.bounds_are_keys or context.options.sequence_fields:
        return
    key_of = version.context.key_of
    for entry in version.delta:
        bucket_id = entry.bucket_id
        if entry.kind != EntryKind.ADD or entry.file.level != 0 or entry.is_postponed:
            continue
        if before.highest_sequence(bucket_id) < entry.file.min_sequence_number:
            continue
        overlapping = [  # another bucket count: files that were split or merged with their numbers
            older
            for older in before.at(bucket_id)
            if older.file.max_sequence_number >= entry.file.min_sequence_number and older.total_buckets == entry.total_buckets
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
                f"user {shown_name(version.snapshot.commit_user)} numbered it from {entry.file.min_sequence_number}, but "
                f"{newest.file_name} had reached {newest.max_sequence_number}",
            )
