"""Prepares a snapshot for publication: writes manifests, manifest lists and the index manifest (FORMAT.md, section 10.2).

The manifests of the previous snapshot become the new base. To keep their number small they are merged first: by a full compaction
if many entries would change, otherwise by a minor one of small adjacent manifests (FORMAT.md, section 4.6; Java
ManifestFileMerger).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from paimon_cli import __version__
from paimon_cli.commit.commit_messages import SnapshotChanges, apply_index_changes
from paimon_cli.commit.deduplication import CommitIdentity, user_properties
from paimon_cli.errors import StorageUnavailable
from paimon_cli.history.file_table import FileTable, deleted_partitions
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import EntryKind, IndexManifestEntry, ManifestEntry, ManifestFileMeta
from paimon_cli.metadata.manifests import encode_index_manifest, encode_manifest_list, index_not_kept, lists_property
from paimon_cli.metadata.partition_ranges import may_hold_any
from paimon_cli.metadata.snapshot import ATTEMPTS_PROPERTY, DURATION_PROPERTY, SEQUENCE_PROPERTY, WORK_PROPERTY, Snapshot

WRITER_VERSION = f"paimon-cli {__version__}"
"""What snapshots say about the program that wrote them."""


class MetadataWriter:
    """Writes the metadata files of a commit, whose names share a UUID (FORMAT.md, section 1.1; Java FileStorePathFactory)."""

    def __init__(self, context: TableContext) -> None:
        self._context = context
        self._uuid = context.random.uuid()
        self._counters: dict[str, int] = {}
        self._lists: dict[str, Sequence[ManifestFileMeta]] = {}
        self.written: list[str] = []
        """Paths of all files, in the order in which they were written."""

    def manifests(self, entries: Sequence[ManifestEntry]) -> list[ManifestFileMeta]:
        """Write manifests of `manifest.target-file-size` with these entries; none if there are no entries."""

        return self.manifests_of(FileTable.of_entries(entries))

    def manifests_of(self, table: FileTable) -> list[ManifestFileMeta]:
        """Write manifests with the entries of a table. Entries that were read in the form that we write are copied unchanged."""
        metas = []
        for content, meta in table.encoded(self._context.options.manifest_target_file_size, self._context.partition_types):
            name = self._write("manifest", content, added=meta.num_added_files, deleted=meta.num_deleted_files)
            metas.append(replace(meta, file_name=name))
        if len(metas) == 1:
            self._context.manifest_cache.add(metas[0], table)
        return metas

    def manifest_list(self, manifests: Sequence[ManifestFileMeta], purpose: str) -> tuple[str, int]:
        """Write a manifest list, and return its name and size. `purpose`: base, delta or changelog, for the trace."""
        content = encode_manifest_list(manifests)
        name = self._write("manifest-list", content, purpose=purpose, manifests=len(manifests))
        self._context.manifests.keep_list(name, manifests)
        self._lists[name] = manifests
        return name, len(content)

    def lists_property(self, *names: str) -> dict[str, str]:
        """The property with the content of these lists.

        On object stores a snapshot has it, to save readers a request per list.
        """
        return lists_property({name: self._lists[name] for name in names}) if self._context.storage.is_remote else {}

    def index_manifest(self, entries: Sequence[IndexManifestEntry]) -> str:
        """Write an index manifest, and return its name."""
        name = self._write("index-manifest", encode_index_manifest(entries), entries=len(entries))
        self._context.manifests.keep_index(name, entries)
        return name

    def _write(self, kind: str, content: bytes, **facts: str | int) -> str:
        number = self._counters.get(kind, 0)
        self._counters[kind] = number + 1
        name = f"{kind}-{self._uuid}-{number}"
        path = self._context.layout.manifest(name)
        self.written.append(path)  # before writing, because a failed write may leave a partial file to delete
        with self._context.trace.timed(kind.replace("-", "_"), file=name, bytes=len(content), **facts):
            self._context.storage.write_new(path, content)
        return name

    def discard(self, paths: Iterable[str]) -> None:
        """Delete files that this commit wrote. Files that cannot be deleted are left as orphans."""
        for path in paths:
            with contextlib.suppress(StorageUnavailable), self._context.trace.timed("discard", file=path.rpartition("/")[2]):
                self._context.storage.delete(path)


_KEPT_RATIO = 2
"""A minor compaction keeps a manifest with more than this many times the entries of all manifests after it."""


def merge_manifests(
    context: TableContext, manifests: Sequence[ManifestFileMeta], writer: MetadataWriter, fully: bool = False
) -> list[ManifestFileMeta]:
    """Merge manifests into fewer with the same live files, oldest first, if that is worth it; `fully`: however small they are."""
    full = _full_compaction(context, manifests, writer, 1 if fully else context.options.manifest_full_compaction_threshold_size)
    return _minor_compaction(context, manifests, writer) if full is None else full


def _full_compaction(
    context: TableContext, manifests: Sequence[ManifestFileMeta], writer: MetadataWriter, threshold: int
) -> list[ManifestFileMeta] | None:
    """Rewrite the manifests of `manifests_to_rewrite`; None if those that a rewrite changes have less than `threshold` bytes."""
    target = context.options.manifest_target_file_size
    size = sum(meta.file_size for meta in manifests if _changes(meta, target))
    if size < threshold:
        return None
    rewritten = manifests_to_rewrite(context, manifests)
    if not rewritten:
        return None
    names = {meta.file_name for meta in rewritten}
    kept = [meta for meta in manifests if meta.file_name not in names]
    return kept + writer.manifests_of(FileTable.of(context.manifests.tables(rewritten)).live())


def manifests_to_rewrite(context: TableContext, manifests: Sequence[ManifestFileMeta]) -> list[ManifestFileMeta]:
    """The manifests that a full compaction rewrites: small ones, and those that hold a DELETE or may hold its ADD.

    Empty if there are fewer than two.
    """
    target = context.options.manifest_target_file_size
    with_deletes = [meta for meta in manifests if meta.num_deleted_files]
    deleted = [context.partition_values(p) for p in deleted_partitions(context.manifests.tables(with_deletes))]
    rewritten = [
        meta
        for meta in manifests
        if _changes(meta, target) or may_hold_any(meta.partition_stats, context.partition_types, deleted)
    ]
    return rewritten if len(rewritten) > 1 else []


def _changes(meta: ManifestFileMeta, target_size: int) -> bool:
    return bool(meta.num_deleted_files) or meta.file_size < target_size


def manifests_worth_rewriting(context: TableContext, latest: Snapshot | None) -> list[ManifestFileMeta]:
    """The manifests of a snapshot that a full compaction would rewrite; none if that would gain nothing."""
    rewritten = [] if latest is None else manifests_to_rewrite(context, context.manifests.manifests_of(latest))
    size, target = sum(meta.file_size for meta in rewritten), context.options.manifest_target_file_size
    gains = any(meta.num_deleted_files for meta in rewritten) or len(rewritten) > max(1, -(-size // target))
    return rewritten if gains else []


def _entry_count(manifests: Iterable[ManifestFileMeta]) -> int:
    return sum(meta.num_added_files + meta.num_deleted_files for meta in manifests)


def _minor_compaction(
    context: TableContext, manifests: Sequence[ManifestFileMeta], writer: MetadataWriter
) -> list[ManifestFileMeta]:
    """Merge adjacent manifests up to the target size; the last ones only if there are `manifest.merge-min-count` of them."""
    result: list[ManifestFileMeta] = []
    batch: list[ManifestFileMeta] = []
    size = 0
    for meta in manifests:
        batch.append(meta)
        size += meta.file_size
        if size >= context.options.manifest_target_file_size:
            result += _newest_merged(context, batch, 2, writer)
            batch, size = [], 0
    return result + _newest_merged(context, batch, context.options.manifest_merge_min_count, writer)


def _newest_merged(
    context: TableContext, batch: Sequence[ManifestFileMeta], min_count: int, writer: MetadataWriter
) -> list[ManifestFileMeta]:
    """Merge the newest manifests of the batch if there are at least `min_count`; larger ones before them are kept.

    Java rewrites the whole batch, up to the target size of a manifest every 30 commits. Here a manifest is kept if it has more
    than twice the entries of all manifests after it, so that an entry is rewritten only when its manifest grows by half.
    """
    begin, entries = len(batch), 0
    while begin and (not entries or _entry_count(batch[begin - 1 : begin]) <= _KEPT_RATIO * entries):
        begin -= 1
        entries += _entry_count(batch[begin : begin + 1])
    if len(batch) - begin < min_count:
        return list(batch)
    return [*batch[:begin], *_merged(context, batch[begin:], writer)]


def _merged(context: TableContext, batch: Sequence[ManifestFileMeta], writer: MetadataWriter) -> list[ManifestFileMeta]:
    if len(batch) == 1:
        return list(batch)
    return writer.manifests_of(FileTable.of(context.manifests.tables(batch)).net())


ListName = tuple[str, int]
"""The name of a manifest list and its size in bytes."""


@dataclass(frozen=True)
class DeltaManifests:
    """The delta and changelog lists of a commit, which all attempts with the same changes share. `files`: their paths."""

    changes: SnapshotChanges
    delta: ListName
    changelog: ListName | tuple[None, None]
    files: tuple[str, ...]

    @staticmethod
    def write(changes: SnapshotChanges, writer: MetadataWriter) -> DeltaManifests:
        before = len(writer.written)
        delta = writer.manifest_list(writer.manifests(changes.entries), "delta")
        changelog: ListName | tuple[None, None] = (None, None)
        if changes.changelog:
            changelog = writer.manifest_list(writer.manifests(changes.changelog), "changelog")
        return DeltaManifests(changes, delta, changelog, tuple(writer.written[before:]))


@dataclass(frozen=True)
class PreparedSnapshot:
    """A snapshot that is ready to be published. `files`: paths of the files that another attempt cannot use."""

    snapshot: Snapshot
    files: tuple[str, ...]


@dataclass(frozen=True)
class CommitFacts:
    """What a snapshot records about its commit: identity, watermark, number of the attempt, and when the first one started.

    `work_begin_millis`: when the job started, None if that is not recorded. `operation`: what was done to rows, if anything.
    `statistics_file`: the name of new statistics.
    """

    identity: CommitIdentity
    watermark: int | None
    attempt: int
    begin_millis: int
    work_begin_millis: int | None = None
    operation: str | None = None
    statistics_file: str | None = None

    def statistics(self, now: int) -> dict[str, str]:
        """The properties with the number of attempts, and how long the commit and the job took until `now` (epoch millis)."""
        statistics = {ATTEMPTS_PROPERTY: str(self.attempt), DURATION_PROPERTY: str(now - self.begin_millis)}
        if self.work_begin_millis is not None:
            statistics[WORK_PROPERTY] = str(max(0, now - self.work_begin_millis))
        return statistics


def prepare_snapshot(
    context: TableContext,
    latest: Snapshot | None,
    delta: DeltaManifests,
    facts: CommitFacts,
    writer: MetadataWriter,
    merges_fully: bool = False,
) -> PreparedSnapshot:
    """Write what depends on `latest`, which are the base list and the index manifest, and build the snapshot on top of it.

    `merges_fully`: whether all manifests are merged that can be.
    """
    before, changes = len(writer.written), delta.changes
    previous = context.manifests.manifests_of(latest) if latest else []
    base_list, base_size = writer.manifest_list(merge_manifests(context, previous, writer, merges_fully), "base")
    delta_list, delta_size = delta.delta
    changelog_list, changelog_size = delta.changelog
    index_manifest = _index_manifest(context, latest, changes, writer)
    # The schema may have changed since the job started. A table with snapshots exists, so its schemas need not be listed.
    schema_id = context.schemas.newest_id(context.schema.id if latest else None)
    delta_count = _records(changes.entries)
    users = user_properties(context, latest, facts.identity)
    now, uuid = context.clock.now_millis(), context.random.uuid()
    sequence, lists = _highest_sequence_number(context, latest, changes), writer.lists_property(base_list, delta_list)
    snapshot = Snapshot(
        id=latest.id + 1 if latest else 1,
        schema_id=schema_id,
        base_manifest_list=base_list,
        base_manifest_list_size=base_size,
        delta_manifest_list=delta_list,
        delta_manifest_list_size=delta_size,
        changelog_manifest_list=changelog_list,
        changelog_manifest_list_size=changelog_size,
        index_manifest=index_manifest,
        commit_user=facts.identity.user,
        commit_identifier=facts.identity.identifier,
        commit_kind=changes.kind,
        # Never earlier than its predecessor, even if the clocks of writers differ, because time travel uses binary search.
        time_millis=max(now, latest.time_millis) if latest else now,
        total_record_count=delta_count + (latest.total_record_count if latest else 0),
        delta_record_count=delta_count,
        changelog_record_count=_records(changes.changelog) if changes.changelog else None,
        watermark=_latest_watermark(facts.watermark, latest),
        statistics=facts.statistics_file or (latest.statistics if latest and latest.schema_id == schema_id else None),
        properties={**facts.statistics(now), **users, **sequence, **lists},
        next_row_id=changes.next_row_id if changes.next_row_id is not None or latest is None else latest.next_row_id,
        operation=facts.operation,
        writer_version=WRITER_VERSION,
        uuid=uuid,
    )
    return PreparedSnapshot(snapshot, tuple(writer.written[before:]))


def _highest_sequence_number(context: TableContext, latest: Snapshot | None, changes: SnapshotChanges) -> dict[str, str]:
    """The property with the highest sequence number, for `write.sequence-number-init-mode=snapshot`.

    With it, writers of newer Paimon versions number new rows without reading the live files. It must include the files of this
    commit, or else older rows could win.
    """
    if context.options.write_sequence_number_init_mode != "snapshot":
        return {}
    numbers = [entry.file.max_sequence_number for entry in changes.entries if entry.kind == EntryKind.ADD]
    if latest is not None:
        recorded = latest.greatest_sequence_number
        if recorded is None:
            numbers += context.manifests.live_files(latest).greatest_by_bucket("max_sequences").values()
        else:
            numbers.append(recorded)
    return {SEQUENCE_PROPERTY: str(max(numbers))} if numbers else {}


def _records(entries: Iterable[ManifestEntry]) -> int:
    return sum(entry.file.row_count if entry.kind == EntryKind.ADD else -entry.file.row_count for entry in entries)


def _latest_watermark(given: int | None, latest: Snapshot | None) -> int | None:
    watermarks = [watermark for watermark in (given, latest.watermark if latest else None) if watermark is not None]
    return max(watermarks, default=None)


def check_global_indexes(context: TableContext, latest: Snapshot | None) -> None:
    """Raise `NotSupported` for a change of files in a table with a global index, which refers to rows by ids and values."""
    if latest is not None and context.mode.tracks_rows:
        for entry in context.manifests.index_entries(latest):
            if entry.index_file.only_finds_rows:
                raise index_not_kept(entry)


def _index_manifest(
    context: TableContext, latest: Snapshot | None, changes: SnapshotChanges, writer: MetadataWriter
) -> str | None:
    """The name of a new index manifest if the commit changes index files, otherwise of the one of the latest snapshot."""
    if changes.entries or changes.new_indexes or changes.deleted_indexes:
        check_global_indexes(context, latest)
    if not (changes.new_indexes or changes.deleted_indexes):
        return latest.index_manifest if latest else None
    previous = context.manifests.index_entries(latest) if latest else []
    return writer.index_manifest(apply_index_changes(context, previous, changes))
