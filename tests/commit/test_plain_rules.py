"""What commits make of messages, snapshots and manifests, compared with plain rules for one entry at a time."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import count, pairwise
from operator import attrgetter
from typing import Any

import pytest

from paimon_cli.commit import prepared_snapshot
from paimon_cli.commit.commit_messages import (
    CommitKind,
    SnapshotChanges,
    append_changes,
    compact_changes,
    created_files,
    delete_created_files,
    files_named_since,
    overwrite_changes,
)
from paimon_cli.commit.commit_records import CommitIntents
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import (
    BATCH_IDENTIFIER,
    MAX_NAMED_USERS,
    PROPERTY,
    CommitIdentity,
    CommitUsers,
    Deduplication,
    recorded_users,
)
from paimon_cli.commit.files_conflict import check_bucket_counts, check_files, removing_snapshot
from paimon_cli.commit.outcome import CommitOutcome, CommitResult
from paimon_cli.commit.prepared_snapshot import MetadataWriter, merge_manifests
from paimon_cli.commit.retry_policy import RetryPolicy
from paimon_cli.commit.snapshot_publish import publish
from paimon_cli.commit.written_places import WrittenRanges
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.errors import CommitUnknown, Conflict, FilesConflict, Refused, UsageError
from paimon_cli.history.manifest_reader import SnapshotGone
from paimon_cli.history.schema_history import SchemaHistory
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import (
    EMPTY_ROW,
    CommitMessage,
    EntryKind,
    FileChanges,
    IndexFileMeta,
    IndexManifestEntry,
    ManifestEntry,
    ManifestFileMeta,
)
from paimon_cli.metadata.manifests import encode_manifest_list
from paimon_cli.metadata.snapshot import ATTEMPTS_PROPERTY, DURATION_PROPERTY, Snapshot
from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.pieces import PIECES
from paimon_cli.storage.injected import Step, StepTrace
from paimon_cli.storage.memory_storage import MemoryStorage
from paimon_cli.storage.storage import PutOutcome
from tests.commit.commit_tables import COLUMNS, SteppingClock, data_file, partition
from tests.history.plain_fold import plain_live, plain_net

ME = CommitIdentity("me")
SPACES = count()
DAYS = [partition(f"2024-01-{day:02}") for day in range(1, 5)]


def bare_table(options: dict[str, str] | None = None, *, partitioned: bool = True, **storage: MemoryStorage) -> TableContext:
    """A table in memory, on a clock whose time passes only in `sleep`."""
    clock = SteppingClock()
    space = storage.get("storage") or MemoryStorage(f"rules-{next(SPACES)}", clock)
    fields = tuple(DataField(i, name, parse_type(text)) for i, (name, text) in enumerate(COLUMNS.items()))
    key = ("dt", "k") if partitioned else ("k",)
    all_options = {"bucket": "2", "file.format": "parquet", **(options or {})}
    schema = TableSchema(0, fields, 2, ("dt",) if partitioned else (), key, all_options, None, 0)
    SchemaHistory(space, TableLayout("/t")).commit(schema)
    return replace(TableContext.open("/t", storage=space, clock=clock), read_threads=1)


# ---- messages as changes ------------------------------------------------------------------------------------------------


def index(name: str, kind: str = "HASH") -> IndexFileMeta:
    return IndexFileMeta(kind, name, 4, 1)


def full_message(number: int, read: int | None) -> CommitMessage:
    files = {
        name: (data_file(f"{name}-{number}"), data_file(f"{name}-{number}b"))
        for name in ("new", "deleted", "changelog", "before", "after", "compact-changelog")
    }
    return CommitMessage(
        DAYS[number],
        number,
        2 + number,
        append=FileChanges(
            added=files["new"],
            removed=files["deleted"],
            changelog=files["changelog"],
            added_indexes=(index(f"new-{number}"),),
            removed_indexes=(index(f"old-{number}"),),
        ),
        compact=FileChanges(
            removed=files["before"],
            added=files["after"],
            changelog=files["compact-changelog"],
            added_indexes=(index(f"compact-new-{number}"),),
            removed_indexes=(index(f"compact-old-{number}"),),
        ),
        read_snapshot_id=read,
    )


def entries(kind: int, messages: list[CommitMessage], name: str) -> tuple[ManifestEntry, ...]:
    return tuple(
        ManifestEntry(kind, m.partition, m.bucket, m.total_buckets, file) for m in messages for file in attrgetter(name)(m)
    )


def indexes(kind: int, messages: list[CommitMessage], name: str) -> tuple[IndexManifestEntry, ...]:
    return tuple(IndexManifestEntry(kind, m.partition, m.bucket, file) for m in messages for file in attrgetter(name)(m))


@pytest.mark.parametrize(("reads", "oldest"), [((4, 3), 3), ((3, 4), 3), ((None, 3), None), ((3, None), None), ((0, 2), 0)])
def test_every_part_of_a_message_is_committed(reads: tuple[int | None, int | None], oldest: int | None) -> None:
    messages = [full_message(number, read) for number, read in enumerate(reads)]
    assert append_changes(messages, CommitKind.WRITE) == SnapshotChanges(
        "OVERWRITE",
        entries(EntryKind.DELETE, messages, "append.removed") + entries(EntryKind.ADD, messages, "append.added"),
        entries(EntryKind.ADD, messages, "append.changelog"),
        indexes(EntryKind.ADD, messages, "append.added_indexes"),
        indexes(EntryKind.DELETE, messages, "append.removed_indexes"),
        check_files=True,
        read_snapshot_id=oldest,
    )
    assert compact_changes(messages) == SnapshotChanges(
        "COMPACT",
        entries(EntryKind.DELETE, messages, "compact.removed") + entries(EntryKind.ADD, messages, "compact.added"),
        entries(EntryKind.ADD, messages, "compact.changelog"),
        indexes(EntryKind.ADD, messages, "compact.added_indexes"),
        indexes(EntryKind.DELETE, messages, "compact.removed_indexes"),
        check_files=True,
        read_snapshot_id=oldest,
    )
    assert append_changes([], CommitKind.REPAIR).read_snapshot_id is None


def test_deletes_and_vectors_make_an_overwrite() -> None:
    plain = CommitMessage(DAYS[0], 0, 2, append=FileChanges(added=(data_file("a"),), added_indexes=(index("h"),)))
    assert _kind(plain) == ("APPEND", False)
    assert _kind(plain, kind=CommitKind.DISTRIBUTE) == ("APPEND", False)
    assert _kind(plain, kind=CommitKind.REPAIR) == ("APPEND", True)
    assert _kind(plain, kind=CommitKind.RESTORE) == ("OVERWRITE", True)
    vectors = replace(plain, append=replace(plain.append, added_indexes=(index("v", "DELETION_VECTORS"),)))
    restored = CommitMessage(DAYS[0], 0, 2, append=FileChanges(removed_indexes=vectors.append.added_indexes))
    for one in (vectors, restored, replace(plain, append=replace(plain.append, removed=(data_file("b"),)))):
        assert _kind(plain, one) == ("OVERWRITE", True)


def _kind(*messages: CommitMessage, kind: CommitKind = CommitKind.WRITE) -> tuple[str, bool]:
    changes = append_changes(messages, kind)
    return changes.kind, changes.check_files


@pytest.mark.parametrize("part", ["entries", "changelog", "new_indexes", "deleted_indexes"])
def test_changes_are_empty_only_without_any_part(part: str) -> None:
    empty = SnapshotChanges("APPEND", ())
    one: dict[str, Any] = {part: (ManifestEntry(EntryKind.ADD, DAYS[0], 0, 2, data_file("a")),)}
    assert empty.is_empty and not replace(empty, **one).is_empty


def test_an_overwrite_removes_the_live_files_of_its_partitions() -> None:
    context = bare_table()
    committer = Committer(context)
    for day in (0, 1):
        for bucket in (0, 1):
            message = CommitMessage(
                DAYS[day],
                bucket,
                2,
                append=FileChanges(added=(data_file(f"f{day}{bucket}"),), added_indexes=(index(f"i{day}{bucket}"),)),
            )
            committer.commit([message], ME)
    latest = context.snapshots.latest()
    new = CommitMessage(
        DAYS[1], 0, 3, append=FileChanges(added=(data_file("new"),), added_indexes=(index("i"),)), read_snapshot_id=2
    )
    only_compact = CommitMessage(DAYS[0], 0, 2, compact=FileChanges(added=(data_file("c"),)), read_snapshot_id=3)
    found = overwrite_changes(context, [new, only_compact], {DAYS[1]}.__contains__, latest)
    assert [(e.kind, e.partition, e.bucket, e.total_buckets, e.file.file_name) for e in found.entries] == [
        (EntryKind.DELETE, DAYS[1], 0, 2, "f10"),
        (EntryKind.DELETE, DAYS[1], 1, 2, "f11"),
        (EntryKind.ADD, DAYS[1], 0, 3, "new"),
    ]
    assert [(e.kind, e.partition, e.bucket, e.index_file.file_name) for e in found.new_indexes] == [
        (EntryKind.ADD, DAYS[1], 0, "i")
    ]
    assert sorted((e.kind, e.partition, e.bucket, e.index_file.file_name) for e in found.deleted_indexes) == [
        (EntryKind.DELETE, DAYS[1], 0, "i10"),
        (EntryKind.DELETE, DAYS[1], 1, "i11"),
    ]
    assert (found.kind, found.check_files, found.replaces_partitions, found.read_snapshot_id) == ("OVERWRITE", True, True, 2)
    assert overwrite_changes(context, [new], lambda _: True, None).deleted_indexes == ()
    with pytest.raises(UsageError, match="2024-01-02"):
        overwrite_changes(context, [new], {DAYS[0]}.__contains__, latest)


# ---- the snapshot -------------------------------------------------------------------------------------------------------


def test_all_fields_of_a_snapshot() -> None:
    context = bare_table()
    clock = context.clock
    assert isinstance(clock, SteppingClock)
    message = CommitMessage(
        DAYS[0],
        0,
        2,
        append=FileChanges(added=(data_file("a", rows=7), data_file("b", rows=5)), changelog=(data_file("c", rows=3),)),
    )
    (first,) = Committer(context).commit([message], CommitIdentity("me", 4), watermark=10).snapshots
    assert (first.id, first.schema_id, first.commit_user, first.commit_identifier, first.commit_kind) == (1, 0, "me", 4, "APPEND")
    assert (first.total_record_count, first.delta_record_count, first.changelog_record_count) == (12, 12, 3)
    assert (first.time_millis, first.watermark, first.statistics, first.index_manifest) == (clock.now, 10, None, None)
    clock.now -= 500
    change = CommitMessage(
        DAYS[0],
        0,
        2,
        append=FileChanges(added=(data_file("d", rows=2),), removed=(data_file("a", rows=7),), added_indexes=(index("i"),)),
    )
    with_statistics = replace(first, statistics="stats-1")
    context.storage.overwrite(context.layout.snapshot(1), with_statistics.to_json().encode())
    (second,) = Committer(context).commit([change], ME, watermark=9).snapshots
    assert (second.total_record_count, second.delta_record_count, second.changelog_record_count) == (7, -5, None)
    assert (second.time_millis, second.watermark, second.statistics) == (first.time_millis, 10, "stats-1")
    assert second.changelog_manifest_list is None and second.changelog_manifest_list_size is None
    assert second.index_manifest is not None and second.uuid not in (None, first.uuid)
    clock.now += 5_000
    schema = replace(context.schema, id=1)
    SchemaHistory(context.storage, context.layout).commit(schema)
    (third,) = (
        Committer(context)
        .commit([CommitMessage(DAYS[1], 0, 2, append=FileChanges(added=(data_file("e"),)))], ME, watermark=11)
        .snapshots
    )
    assert (third.schema_id, third.statistics, third.index_manifest, third.watermark) == (1, None, second.index_manifest, 11)
    assert (third.time_millis, third.total_record_count) == (clock.now, 17)
    for snapshot in (first, second, third):
        for name, size in (
            (snapshot.base_manifest_list, snapshot.base_manifest_list_size),
            (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
            (snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size),
        ):
            assert name is None or context.storage.file_size(context.layout.manifest(name)) == size
    again = CommitResult((second,), 2, CommitOutcome.DUPLICATE)
    assert CommitResult((first,), 3).followed_by(again) == CommitResult((first, second), 4, CommitOutcome.DUPLICATE)
    assert CommitResult().followed_by(CommitResult((second,), 2)) == CommitResult((second,), 2)


def test_nothing_of_a_lost_attempt_is_left() -> None:
    """Changes that stay the same keep their manifests; base lists and index manifests go with each attempt."""

    class Rivals(MemoryStorage):
        """A storage on which others are faster three times."""

        wins = 3

        def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
            if "snapshot-" in path and self.wins and data.count(b'"me"'):
                self.wins -= 1
                rival = TableContext.open("/t", storage=MemoryStorage(space))
                Committer(rival).commit(
                    [CommitMessage(DAYS[3], 0, 2, append=FileChanges(added=(data_file(f"theirs-{self.wins}"),)))],
                    CommitIdentity("you"),
                )
            return super().put_if_absent(path, data)

    space = f"rules-{next(SPACES)}"
    steps: list[Step] = []
    context = bare_table({"manifest.merge-min-count": "2"}, storage=Rivals(space))
    context = replace(context, trace=StepTrace(context.clock, steps.append))
    message = CommitMessage(DAYS[0], 0, 2, append=FileChanges(added=(data_file("mine"),), added_indexes=(index("i"),)))
    result = Committer(context).commit([message], ME)
    assert (result.attempts, [one.id for one in result.snapshots]) == (4, [4])
    named = set()
    for snapshot in context.snapshots.newest_first():
        named |= {snapshot.base_manifest_list, snapshot.delta_manifest_list, snapshot.index_manifest or ""}
        named |= {meta.file_name for meta in context.manifests.manifests_of(snapshot)}
    on_disk = {status.name for status in context.storage.list_directory(context.layout.manifest_directory)}
    assert on_disk == named - {""}
    names = [step.name for step in steps]
    assert [names.count(name) for name in ("check", "snapshot", "wait", "hint")] == [4, 4, 3, 1]
    checks = [step.facts for step in steps if step.name == "check"]
    assert [(c["attempt"], c["latest"], c["added"], c["deleted"], c["kind"]) for c in checks] == [
        (number + 1, number or None, 1, 0, "APPEND") for number in range(4)
    ]
    assert {c["data_conflict_check"] for c in checks} == {"off"}
    assert [step.facts["before_attempt"] for step in steps if step.name == "wait"] == [2, 3, 4]
    assert [step.facts["outcome"] for step in steps if step.name == "snapshot"] == ["exists"] * 3 + ["created"]
    written = [step for step in steps if step.name == "manifest_list"]
    assert [step.facts["purpose"] for step in written] == ["delta"] + ["base"] * 4
    assert {step.facts["file"] for step in steps if step.name == "discard"} & named == set()
    assert all(
        step.facts["bytes"] > 0 for step in steps if step.name in ("snapshot", "manifest", "manifest_list", "index_manifest")
    )


def test_five_puts_without_an_answer_are_enough() -> None:
    class Silent(MemoryStorage):
        puts = 0

        def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
            if "snapshot-" in path:
                self.puts += 1
                return PutOutcome.UNKNOWN
            return super().put_if_absent(path, data)

    storage = Silent(f"rules-{next(SPACES)}")
    context = bare_table({"commit.min-retry-wait": "10 ms"}, storage=storage)
    with pytest.raises(CommitUnknown, match=r"the storage gave no clear answer and does not show the snapshot file\nhint: "):
        publish(context, Snapshot(1, 0, "base", "delta", "me", 1, "APPEND", 0, 0, 0))
    clock = context.clock
    assert isinstance(clock, SteppingClock)
    assert storage.puts == 5 and clock.sleeps == pytest.approx([0.01, 0.02, 0.04, 0.08, 0.16])


def test_time_is_counted_from_the_first_attempt() -> None:
    context = bare_table({"commit.timeout": "7 s", "commit.max-retries": "3"})
    attempts = RetryPolicy(context)
    assert (attempts.attempts, attempts.elapsed_millis) == (0, 0)
    context.clock.sleep(1.5)
    assert attempts.elapsed_millis == 1500
    assert "1.5 s (commit.max-retries=3, commit.timeout=7000 ms)" in attempts.exhausted().why


# ---- manifests ----------------------------------------------------------------------------------------------------------


def check_line(context: TableContext, meta: ManifestFileMeta) -> list[ManifestEntry]:
    """Check that the list entry of a manifest agrees with its content."""
    inside = context.manifests.manifest(meta.file_name)
    assert meta.file_size == context.storage.file_size(context.layout.manifest(meta.file_name))
    assert meta.num_added_files == sum(entry.kind == EntryKind.ADD for entry in inside)
    assert meta.num_deleted_files == sum(entry.kind == EntryKind.DELETE for entry in inside)
    buckets, levels = [entry.bucket for entry in inside], [entry.file.level for entry in inside]
    assert (meta.min_bucket, meta.max_bucket) == (min(buckets), max(buckets))
    assert (meta.min_level, meta.max_level) == (min(levels), max(levels))
    assert meta.schema_id == max(entry.file.schema_id for entry in inside)
    days = [context.partition_values(entry.partition) for entry in inside]
    stats = meta.partition_stats
    assert context.partition_values(stats.min_values) == min(days) and context.partition_values(stats.max_values) == max(days)
    return inside


def plain_merge(
    context: TableContext, metas: list[ManifestFileMeta], inside: dict[str, list[ManifestEntry]]
) -> list[str | list[ManifestEntry]]:
    """The result of a merge: the names of manifests that stay, and the entries of those that are rewritten."""
    options = context.options
    target = options.manifest_target_file_size
    changing = [meta for meta in metas if meta.num_deleted_files > 0 or meta.file_size < target]
    if sum(meta.file_size for meta in changing) >= options.manifest_full_compaction_threshold_size:
        hit = {entry.partition for meta in metas for entry in inside[meta.file_name] if entry.kind == EntryKind.DELETE}
        values = [context.partition_values(day) for day in hit]

        def meets(meta: ManifestFileMeta) -> bool:
            low, high = (
                context.partition_values(row) for row in (meta.partition_stats.min_values, meta.partition_stats.max_values)
            )
            return any(low <= value <= high for value in values)

        again = [meta for meta in metas if meta in changing or meets(meta)]
        if len(again) > 1:
            stay: list[str | list[ManifestEntry]] = [meta.file_name for meta in metas if meta not in again]
            return [*stay, plain_live([inside[meta.file_name] for meta in again])]
    left: list[str | list[ManifestEntry]] = []
    batch: list[ManifestFileMeta] = []
    for place, meta in enumerate(metas):
        batch.append(meta)
        is_whole = sum(one.file_size for one in batch) >= target
        if not is_whole and place < len(metas) - 1:
            continue
        weights = [len(inside[one.file_name]) for one in batch]
        begin = next(
            start
            for start in range(len(batch))
            if all(weights[n] <= 2 * sum(weights[n + 1 :]) for n in range(start, len(batch) - 1))
        )
        fewest = 2 if is_whole else options.manifest_merge_min_count
        if len(batch) - begin < max(fewest, 2):
            left += [one.file_name for one in batch]
        else:
            left += [one.file_name for one in batch[:begin]]
            left.append(plain_net([entry for one in batch[begin:] for entry in inside[one.file_name]]))
        batch = []
    return left


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("seed", range(30))
def test_merged_manifests(seed: int, columns: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(seed)
    if columns:
        monkeypatch.setattr(PIECES, "min_column_blocks", 0)
    options = {
        "manifest.target-file-size": f"{dice.choice([1, 3000, 5000, 9000])} b",
        "manifest.full-compaction-threshold-size": f"{dice.choice([1, 9000, 30_000, 10**7])} b",
        "manifest.merge-min-count": str(dice.choice([1, 2, 3, 5, 30])),
    }
    context = bare_table(options)
    writer = MetadataWriter(context.with_options({"manifest.target-file-size": "1 gb"}))
    alive: list[ManifestEntry] = []
    metas: list[ManifestFileMeta] = []
    inside: dict[str, list[ManifestEntry]] = {}
    for number in range(dice.randint(0, 9)):
        gone = dice.sample(alive, dice.randint(0, min(2, len(alive)))) if dice.random() < 0.4 else []
        day = dice.choice(DAYS)
        files = [
            replace(data_file(f"f{number}-{n}", level=dice.randint(0, 5)), schema_id=dice.randint(0, 3))
            for n in range(dice.choice([0, 1, 1, 2, 3, 12]))
        ]
        new = [ManifestEntry(EntryKind.ADD, dice.choice([day, dice.choice(DAYS)]), dice.randint(0, 3), 4, file) for file in files]
        alive = [entry for entry in alive if entry not in gone] + new
        for meta in writer.manifests([*(replace(entry, kind=EntryKind.DELETE) for entry in gone), *new]):
            metas.append(meta)
            inside[meta.file_name] = check_line(context, meta)
    expected = plain_merge(context, metas, inside)
    own = MetadataWriter(context)
    found = merge_manifests(context, metas, own)
    written = [meta for meta in found if meta.file_name not in inside]
    assert own.written == [context.layout.manifest(meta.file_name) for meta in written]
    rewritten = [(meta.file_name, check_line(context, meta)) for meta in written]
    assert all(rows for _, rows in rewritten)
    for block in expected:
        if isinstance(block, str):
            assert found[0].file_name == block
            found = found[1:]
            continue
        rows: list[ManifestEntry] = []
        while len(rows) < len(block):
            rows += dict(rewritten)[found[0].file_name]
            found = found[1:]
        assert rows == block
    assert not found


# ---- conflicts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_overlapping_key_ranges(seed: int) -> None:
    dice = random.Random(seed)
    context = bare_table(partitioned=False)

    def some_file() -> tuple[int, int]:
        low = dice.randint(-300, 300)
        return low, low + dice.choice([0, 1, 20, 90])

    new, deleted, other = ([some_file() for _ in range(dice.randint(0, 3))] for _ in range(3))
    as_files = [
        tuple(data_file(f"{n}-{place}", *reach) for place, reach in enumerate(found))
        for n, found in enumerate((new, deleted, other))
    ]
    messages = [
        CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=as_files[0])),
        CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(removed=as_files[1])),
        CommitMessage(EMPTY_ROW, 1, 2, append=FileChanges(added=as_files[2])),
    ]
    written = WrittenRanges(context, messages)
    for bucket, ours in ((0, new + deleted), (1, other), (2, [])):
        for low in range(-310, 410, 7):
            high = low + dice.choice([0, 0, 3, 50])
            theirs = ManifestEntry(EntryKind.ADD, EMPTY_ROW, bucket, 2, data_file("x", low, high))
            assert written.meets(theirs) == any(mine[0] <= high and low <= mine[1] for mine in ours)
    for part in ("added_indexes", "removed_indexes", "changelog"):
        change: dict[str, Any] = {part: (data_file("c", 0, 1),) if part == "changelog" else (index("i"),)}
        whole = WrittenRanges(context, [replace(messages[2], append=replace(messages[2].append, **change))])
        assert whole.meets(ManifestEntry(EntryKind.ADD, EMPTY_ROW, 1, 2, data_file("x", 900, 900)))
        assert not whole.meets(ManifestEntry(EntryKind.ADD, EMPTY_ROW, 0, 2, data_file("x", 900, 900)))


@pytest.mark.parametrize("seed", range(60))
def test_changes_that_fit(seed: int) -> None:
    """They delete live files, add new ones, and keep the key ranges within a level disjoint."""
    dice = random.Random(seed)
    context = bare_table({"bucket": "2"}, partitioned=False)

    def some_file(name: str) -> ManifestEntry:
        low = dice.randint(0, 60)
        return ManifestEntry(
            EntryKind.ADD,
            EMPTY_ROW,
            dice.randint(0, 1),
            2,
            data_file(name, low, low + dice.choice([0, 4]), dice.choice([0, 1, 5])),
        )

    base: list[ManifestEntry] = []
    for number in range(dice.randint(1, 5)):
        one = some_file(f"old{number}")
        meet = [b for b in base if b.bucket == one.bucket and b.file.level == one.file.level > 0]
        if not any(reach(b)[0] <= reach(one)[1] and reach(one)[0] <= reach(b)[1] for b in meet):
            base.append(one)
    messages = [CommitMessage(EMPTY_ROW, entry.bucket, 2, append=FileChanges(added=(entry.file,))) for entry in base]
    latest = Committer(context).commit(messages, ME).snapshots[-1]
    listed = [replace(entry, kind=EntryKind.DELETE) for entry in dice.sample(base, dice.randint(0, len(base)))]
    listed += [some_file(f"new{number}") for number in range(dice.randint(0, 2))]
    trouble = dice.choice(["none", "none", "unknown", "again", "twice", "moved"])
    if trouble == "unknown":
        listed.append(replace(some_file("never"), kind=EntryKind.DELETE))
    elif trouble == "again":
        listed.append(dice.choice(base))
    elif trouble == "twice" and listed:
        listed.append(replace(dice.choice(listed), kind=dice.choice([EntryKind.ADD, EntryKind.DELETE])))
    elif trouble == "moved":
        listed.append(replace(base[0], file=base[0].file.upgraded(4)))
    gone, new = ([entry for entry in listed if entry.kind == kind] for kind in (EntryKind.DELETE, EntryKind.ADD))
    names = [entry.identity for entry in listed]
    left = [entry for entry in base if entry.identity not in {one.identity for one in gone}]
    fits = len(set(names)) == len(names)
    fits &= all(entry.identity in {one.identity for one in base} for entry in gone)
    fits &= all(entry.identity not in {one.identity for one in left} for entry in new)
    for entry in new:
        for other in (*left, *new):
            same = (
                other is not entry
                and (other.bucket, other.file.level) == (entry.bucket, entry.file.level)
                and entry.file.level > 0
            )
            fits &= not (same and reach(entry)[0] <= reach(other)[1] and reach(other)[0] <= reach(entry)[1])
    changes = SnapshotChanges("OVERWRITE", tuple(listed), check_files=True, read_snapshot_id=latest.id)
    if fits:
        check_files(context, latest, changes)
        return
    with pytest.raises(FilesConflict):
        check_files(context, latest, changes)


def reach(entry: ManifestEntry) -> tuple[int, int]:
    low, high = (int.from_bytes(key[12:16], "little") for key in (entry.file.min_key, entry.file.max_key))
    return low, high


def test_keys_in_lower_levels_are_where_the_oracle_reads_them() -> None:
    assert reach(ManifestEntry(EntryKind.ADD, EMPTY_ROW, 0, 2, data_file("x", 3, 57))) == (3, 57)


def test_counts_of_one_partition_must_agree() -> None:
    context = bare_table()
    check_bucket_counts(context, [(DAYS[0], 2), (DAYS[1], 3), (DAYS[0], -1), (DAYS[0], 2), (DAYS[1], 0)])
    for first, second in pairwise((2, 3, 1)):
        with pytest.raises(FilesConflict, match=f"dt=2024-01-01.*|files for {first} and for {second}"):
            check_bucket_counts(context, [(DAYS[1], 3), (DAYS[0], first), (DAYS[0], second)])


def test_the_snapshot_that_removed_a_file() -> None:
    context = bare_table()
    committer = Committer(context)
    file = data_file("a")
    committer.commit([CommitMessage(DAYS[0], 0, 2, append=FileChanges(added=(file, data_file("b"))))], ME)
    committer.commit([CommitMessage(DAYS[0], 0, 2, append=FileChanges(removed=(file,)))], CommitIdentity("thief"))
    committer.commit([CommitMessage(DAYS[0], 0, 2, append=FileChanges(removed=(data_file("b"),)))], ME)
    latest = context.snapshots.latest()
    entry = ManifestEntry(EntryKind.DELETE, DAYS[0], 0, 2, file)
    for read, expected in ((None, 2), (1, 2), (2, None), (3, None), (0, 2)):
        found = removing_snapshot(context, latest, entry, read)
        assert (found.id if found else None) == expected
    assert removing_snapshot(context, None, entry, None) is None
    assert removing_snapshot(context, latest, replace(entry, bucket=1), None) is None


# ---- files of messages --------------------------------------------------------------------------------------------------


def test_files_that_exist_for_messages_only() -> None:
    context = bare_table()
    message = replace(
        full_message(1, None),
        compact=replace(
            full_message(1, None).compact, added=(data_file("before-1"), data_file("after", extra_files=("after.x", "y")))
        ),
    )
    base = f"{context.layout.root}/dt=2024-01-02/bucket-1/"
    found = created_files(context, [message])
    names = ["new-1", "new-1b", "changelog-1", "changelog-1b", "after", "compact-changelog-1", "compact-changelog-1b"]
    expected = {(name, base + name) for name in names} | {("after", f"{base}after.x"), ("after", f"{base}y")}
    expected |= {(name, context.layout.index(name)) for name in ("new-1", "compact-new-1")}
    assert set(found) == expected and len(found) == len(expected)
    for _, path in found:
        context.storage.write_new(path, b"x")
    assert delete_created_files(context, [message]) == len(found)
    assert not any(context.storage.exists(path) for _, path in found)


def test_files_that_came_since_a_message_was_begun() -> None:
    context = bare_table()
    committer = Committer(context)
    for number in range(1, 5):
        message = CommitMessage(
            DAYS[0],
            0,
            2,
            append=FileChanges(
                added=(data_file(f"f{number}"),), changelog=(data_file(f"c{number}"),), added_indexes=(index(f"i{number}"),)
            ),
        )
        committer.commit([message], ME)
    committer.commit([CommitMessage(DAYS[0], 0, 2, append=FileChanges(removed=(data_file("f3"),)))], ME)

    def named(*reads: int | None) -> set[str]:
        return files_named_since(context, [CommitMessage(DAYS[0], 0, 2, read_snapshot_id=read) for read in reads])

    assert named(3) == {"f4", "c4", "i4"}
    assert named(4) == {"i4"} and named(5) == set()
    assert named(3, 2) == {"f3", "f4", "c3", "c4", "i3", "i4"} == named(2, 3)
    everything = {f"{kind}{number}" for kind in "fci" for number in range(1, 5)}
    assert named(None, 3) == everything == named(0) == named()
    for number in (1, 2):
        context.storage.delete(context.layout.snapshot(number))
    assert named(1) == {"f1", "f2", "f3", "f4", "c3", "c4", "i3", "i4"}
    assert named(2) == {"f1", "f2", "f3", "f4", "c3", "c4", "i3", "i4"}


# ---- who has committed before -------------------------------------------------------------------------------------------


def past(dice: random.Random) -> tuple[TableContext, list[Snapshot]]:
    """Snapshots of some users, newest last; some of them record the users of earlier commits."""
    context = bare_table()
    first, listed = dice.choice([1, 1, 3]), []
    for number in range(first, first + dice.randint(1, 6)):
        user = dice.choice(["me", "you", "she"])
        identifier = dice.choice([BATCH_IDENTIFIER, 1, 2, 3, 4, 5])
        noted = CommitUsers(
            dice.randint(1, number), {name: dice.randint(0, 6) for name in dice.sample(["me", "you", "x"], dice.randint(0, 2))}
        )
        properties = {PROPERTY: noted.to_text()} if dice.random() < 0.3 else dice.choice([None, {"other": "1"}])
        kind = dice.choice(["APPEND", "COMPACT", "OVERWRITE"])
        snapshot = Snapshot(number, 0, "base", "delta", user, identifier, kind, 0, 0, 0, properties=properties)
        context.storage.overwrite(context.layout.snapshot(number), snapshot.to_json().encode())
        listed.append(snapshot)
    if dice.random() < 0.3:
        context.storage.overwrite(context.layout.earliest_hint, str(dice.choice(listed).id).encode())
    return context, listed


def begin_a_commit(context: TableContext, user: str, identifier: int) -> None:
    """An open record beside the snapshots, since before the first one."""
    CommitIntents(context, [(user, identifier)]).announce(None)


@pytest.mark.in_part(5)
@pytest.mark.parametrize("seed", range(250))
def test_earlier_commits_of_a_user(seed: int) -> None:
    dice = random.Random(seed)
    context, listed = past(dice)
    identity = CommitIdentity("me", dice.choice([BATCH_IDENTIFIER, 1, 3, 5]), dice.choice([0, 0, 1, 3]), dice.random() < 0.3)
    earliest = (
        int(context.storage.read_bytes(context.layout.earliest_hint))
        if context.storage.exists(context.layout.earliest_hint)
        else 1
    )
    proofs = [snapshot for snapshot in reversed(listed) if snapshot.id >= earliest]
    expected: bool | str = False
    if identity.is_repeatable:
        for snapshot in proofs:
            users = CommitUsers.from_properties(snapshot.properties)
            if snapshot.id <= identity.newer_than:
                break
            if snapshot.commit_user == "me" and snapshot.commit_identifier != BATCH_IDENTIFIER:
                expected = snapshot.commit_identifier >= identity.identifier
                break
            if users is not None:
                if "me" in users.highest:
                    expected = users.highest["me"] >= identity.identifier
                elif users.since > identity.newer_than + 1:
                    expected = "untold"
                break
        else:
            if proofs and proofs[-1].id > max(1, identity.newer_than + 1):
                expected = "untold"
        if dice.random() < 0.5:
            begin_a_commit(context, "me", identity.identifier)
        elif expected == "untold":
            expected = False
        if expected == "untold" and identity.assume_new:
            expected = False
    own = Deduplication(context, identity)
    if expected == "untold":
        with pytest.raises(Refused):
            own.already_committed()
    else:
        assert own.already_committed() is expected


@pytest.mark.in_part(5)
@pytest.mark.parametrize("seed", range(150))
def test_concurrent_commits_of_a_user(seed: int) -> None:
    dice = random.Random(seed)
    context, listed = past(dice)
    identity = CommitIdentity("me", dice.choice([1, 3, 5, BATCH_IDENTIFIER]), listed[0].id - 1, assume_new=True)
    own = Deduplication(context, identity)
    assert not own.committed_since_begin(None, "APPEND")
    seen = dice.randint(0, len(listed))
    own._checked = listed[seen - 1].id if seen else listed[0].id - 1
    lost = dice.choice([None, *listed[:-1]])
    if lost is not None:
        context.storage.delete(context.layout.snapshot(lost.id))
    kind = dice.choice(["APPEND", "COMPACT", "OVERWRITE"])
    expected: bool | str = False
    for snapshot in listed[seen:] if identity.is_repeatable else ():
        if snapshot is lost:
            expected = "expired"
        elif snapshot.commit_user != "me" or snapshot.commit_identifier == BATCH_IDENTIFIER:
            continue
        elif snapshot.commit_identifier > identity.identifier:
            expected = "overtaken"
        elif (snapshot.commit_identifier, snapshot.commit_kind) == (identity.identifier, kind):
            expected = True
        if expected:
            break
    if isinstance(expected, str):
        with pytest.raises(Conflict, match=expected):
            own.committed_since_begin(listed[-1], kind)
    else:
        assert own.committed_since_begin(listed[-1], kind) is expected
        if not expected and identity.is_repeatable:
            for snapshot in listed:
                context.storage.delete(context.layout.snapshot(snapshot.id))
            assert not own.committed_since_begin(listed[-1], kind), "each is looked at once"


@pytest.mark.in_part(5)
@pytest.mark.parametrize("seed", range(150))
def test_users_that_are_handed_on(seed: int) -> None:
    dice = random.Random(seed)
    context, listed = past(dice)
    if dice.random() < 0.5:
        context.storage.delete(context.layout.earliest_hint)
    earliest = (
        int(context.storage.read_bytes(context.layout.earliest_hint))
        if context.storage.exists(context.layout.earliest_hint)
        else 1
    )
    identity = CommitIdentity(dice.choice(["me", "new"]), dice.choice([BATCH_IDENTIFIER, 2]))
    found = recorded_users(context, listed[-1], identity)
    passed: list[Snapshot] = []
    users: CommitUsers | None = None
    for snapshot in reversed(listed):
        if snapshot.id < earliest:
            break
        users = CommitUsers.from_properties(snapshot.properties)
        if users is not None:
            break
        passed.append(snapshot)
    if users is None and (identity.is_repeatable or passed[-1].id == 1):
        users = CommitUsers(passed[-1].id)
    if users is None:
        assert found is None
        return
    highest = dict(users.highest)
    for snapshot in reversed(passed):
        if snapshot.commit_identifier != BATCH_IDENTIFIER:
            highest[snapshot.commit_user] = max(snapshot.commit_identifier, highest.get(snapshot.commit_user, 0))
    if identity.is_repeatable:
        highest[identity.user] = max(2, highest.get(identity.user, 0))
    assert found is not None and (found.since, dict(found.highest)) == (users.since, highest)


@pytest.mark.parametrize(("others", "is_found"), [(31, True), (32, True), (33, False)])
def test_commits_that_are_never_repeated_search_only_recent_snapshots(others: int, is_found: bool) -> None:
    context = bare_table()
    noted = CommitUsers(1, {"me": 7})
    for number in range(2, 3 + others):
        properties = {PROPERTY: noted.to_text()} if number == 2 else None
        latest = Snapshot(number, 0, "base", "delta", "java", BATCH_IDENTIFIER, "APPEND", 0, 0, 0, properties=properties)
        context.storage.overwrite(context.layout.snapshot(number), latest.to_json().encode())
    assert recorded_users(context, latest, CommitIdentity("batch")) == (noted if is_found else None)
    assert recorded_users(context, latest, CommitIdentity("you", 1)) == noted.with_commit("you", 1)
    assert recorded_users(context, None, CommitIdentity("you", 1)) == CommitUsers(1, {"you": 1})
    assert recorded_users(context, None, CommitIdentity("batch")) == CommitUsers(1)


@pytest.mark.parametrize("is_recorded", [True, False])
def test_what_a_snapshot_notes_of_its_commit(is_recorded: bool) -> None:
    context = bare_table()
    notes = {PROPERTY: CommitUsers(1, {"you": 7}).to_text()} if is_recorded else None
    for number in range(2, 40):
        others = Snapshot(number, 0, "none", "none", "java", BATCH_IDENTIFIER, "APPEND", 0, 0, 0, properties=notes)
        context.storage.overwrite(context.layout.snapshot(number), others.to_json().encode())
    context.storage.write_new(context.layout.manifest("none"), encode_manifest_list([]))
    (made,) = Committer(context).commit([CommitMessage(DAYS[0], 0, 2, append=FileChanges(added=(data_file("a"),)))], ME).snapshots
    assert made.properties == {ATTEMPTS_PROPERTY: "1", DURATION_PROPERTY: "0", **(notes or {})}
    (repeatable,) = (
        Committer(context)
        .commit(
            [CommitMessage(DAYS[0], 0, 2, append=FileChanges(added=(data_file("b"),)))], CommitIdentity("me", 1, assume_new=True)
        )
        .snapshots
    )
    users = CommitUsers.from_properties(repeatable.properties)
    assert users is not None and dict(users.highest) == {"me": 1, **({"you": 7} if is_recorded else {})}


def test_an_attempt_whose_snapshot_expires_meanwhile_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With new files under new names: those of the first attempt were deleted."""
    context = bare_table()
    Committer(context).commit([CommitMessage(DAYS[0], 0, 2, append=FileChanges(added=(data_file("old"),)))], ME)
    calls = []

    def gone_at_first(*arguments: Any) -> Any:
        calls.append({status.name for status in context.storage.list_directory(context.layout.manifest_directory)})
        if len(calls) == 1:
            raise SnapshotGone("snapshot 1 has expired")
        return merge_manifests(*arguments)

    before = {status.name for status in context.storage.list_directory(context.layout.manifest_directory)}
    monkeypatch.setattr(prepared_snapshot, "merge_manifests", gone_at_first)
    result = Committer(context).commit([CommitMessage(DAYS[0], 0, 2, append=FileChanges(added=(data_file("new"),)))], ME)
    assert (result.attempts, [snapshot.id for snapshot in result.snapshots]) == (2, [2])
    assert {entry.file.file_name for entry in context.manifests.live_entries(result.snapshots[0])} == {"old", "new"}
    first, second = (found - before for found in calls)
    assert len(first) == len(second) == 2 and not first & second, "manifest and list of the delta, each time"
    assert not any(context.storage.exists(context.layout.manifest(name)) for name in first)


@pytest.mark.parametrize(
    ("users", "why"),
    [
        (None, "snapshots before 5 have expired, and the remaining ones do not record who committed in them"),
        (
            CommitUsers(3, {"you": 1}),
            "the users who committed before snapshot 3 had already expired when users were first recorded",
        ),
        ("many", "the table records its last 256 users by name, and this is probably an older one"),
    ],
)
def test_why_an_earlier_commit_cannot_be_ruled_out(users: CommitUsers | str | None, why: str) -> None:
    if users == "many":
        users = CommitUsers().with_commit("me", 3)
        for number in range(MAX_NAMED_USERS):
            users = users.with_commit(f"user-{number}", 1)
    assert not isinstance(users, str)
    context = bare_table()
    properties = None if users is None else {PROPERTY: users.to_text()}
    for number in (5, 6):
        snapshot = Snapshot(number, 0, "base", "delta", "java", BATCH_IDENTIFIER, "APPEND", 0, 0, 0, properties=properties)
        context.storage.overwrite(context.layout.snapshot(number), snapshot.to_json().encode())
    begin_a_commit(context, "me", 4)
    with pytest.raises(Refused) as refusal:
        Deduplication(context, CommitIdentity("me", 4)).already_committed()
    assert refusal.value.what == "cannot determine whether commit 4 of user me was made before"
    assert refusal.value.why == why
    assert refusal.value.details == {"commit_user": "me", "commit_identifier": "4"}
    assert not Deduplication(context, CommitIdentity("me", 4, assume_new=True)).already_committed()


def test_what_a_commit_has_published_after_a_rollback_keeps_its_files() -> None:
    """Its snapshot has a number below those that its writer has read."""
    context = bare_table()
    mine = CommitMessage(DAYS[0], 0, 2, append=FileChanges(added=(data_file("mine"),)), read_snapshot_id=7)
    (published,) = Committer(context).commit([mine], ME).snapshots
    assert files_named_since(context, [mine], [published.id]) == {"mine"}
    assert files_named_since(context, [mine]) == set()
