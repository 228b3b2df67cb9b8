"""Merges the manifests of the previous snapshot before they become the new base, to keep them few (FORMAT.md, section 4.6).

As Java's ManifestFileMerger does: a full compaction when much would change by it, else a minor one, but of light neighbours only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paimon_cli.commit.metadata_writer import MetadataWriter
from paimon_cli.history.live_columns import FileTable, deleted_partitions
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import ManifestFileMeta
from paimon_cli.metadata.partition_range import may_hold_any

_OUTWEIGHS = 2
"""Minor compactions leave a manifest alone that has this many times the entries of all manifests after it."""


def merge_manifests(
    context: TableContext, manifests: Sequence[ManifestFileMeta], writer: MetadataWriter
) -> list[ManifestFileMeta]:
    """Manifests with the same live files, usually fewer, oldest first."""
    full = _full_compaction(context, manifests, writer)
    return _minor_compaction(context, manifests, writer) if full is None else full


def _full_compaction(
    context: TableContext, manifests: Sequence[ManifestFileMeta], writer: MetadataWriter
) -> list[ManifestFileMeta] | None:
    """Rewrite every small manifest and every one that holds or meets a DELETE; None if that is not worth it."""
    target = context.options.manifest_target_file_size
    changing = [meta for meta in manifests if meta.num_deleted_files or meta.file_size < target]
    if sum(meta.file_size for meta in changing) < context.options.manifest_full_compaction_threshold_size:
        return None
    with_deletes = [meta for meta in manifests if meta.num_deleted_files]
    deleted = [context.partition_values(p) for p in deleted_partitions(context.manifests.tables(with_deletes))]
    kept: list[ManifestFileMeta] = []
    rewritten: list[ManifestFileMeta] = []
    for meta in manifests:
        changes = meta.num_deleted_files or meta.file_size < target
        met = changes or may_hold_any(meta.partition_stats, context.partition_types, deleted)
        (rewritten if met else kept).append(meta)
    if len(rewritten) <= 1:
        return None
    return kept + writer.manifests_of(FileTable.of(context.manifests.tables(rewritten)).live())


def _entry_count(manifests: Iterable[ManifestFileMeta]) -> int:
    return sum(meta.num_added_files + meta.num_deleted_files for meta in manifests)


def _minor_compaction(
    context: TableContext, manifests: Sequence[ManifestFileMeta], writer: MetadataWriter
) -> list[ManifestFileMeta]:
    """Fold neighbours until they reach the size of a manifest; the tail only once it has become long."""
    result: list[ManifestFileMeta] = []
    batch: list[ManifestFileMeta] = []
    size = 0
    for meta in manifests:
        batch.append(meta)
        size += meta.file_size
        if size >= context.options.manifest_target_file_size:
            result += _light_end_folded(context, batch, 2, writer)
            batch, size = [], 0
    return result + _light_end_folded(context, batch, context.options.manifest_merge_min_count, writer)


def _light_end_folded(
    context: TableContext, batch: Sequence[ManifestFileMeta], fewest: int, writer: MetadataWriter
) -> list[ManifestFileMeta]:
    """Fold the newest manifests of the batch, if they are at least `fewest`; heavier ones before them stay.

    Java rewrites the whole batch, up to the full size of a manifest every 30 commits. Here a manifest stays if it has more than
    twice the entries of all manifests after it, so that an entry is rewritten only when its manifest grows by half.
    """
    begin, weight = len(batch), 0
    while begin and (not weight or _entry_count(batch[begin - 1 : begin]) <= _OUTWEIGHS * weight):
        begin -= 1
        weight += _entry_count(batch[begin : begin + 1])
    if len(batch) - begin < fewest:
        return list(batch)
    return [*batch[:begin], *_folded(context, batch[begin:], writer)]


def _folded(context: TableContext, batch: Sequence[ManifestFileMeta], writer: MetadataWriter) -> list[ManifestFileMeta]:
    if len(batch) == 1:
        return list(batch)
    return writer.manifests_of(FileTable.of(context.manifests.tables(batch)).net())
