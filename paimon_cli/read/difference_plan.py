"""Which files tell how two snapshots differ, as splits that name the files of both (format section 11.4, mode diff)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from paimon_cli.errors import NotSupported
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.table_state import BucketFiles, bucket_files
from paimon_cli.lsm.key_intervals import key_sections
from paimon_cli.metadata.data_file import DataFileMeta, ManifestFileMeta
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.read.file_bounds import TableBounds
from paimon_cli.read.predicate import Predicate
from paimon_cli.read.scan_plan import ABOVE_0, ALL_LEVELS, ScanPlan
from paimon_cli.read.split import ScanCounts, Split

Place = tuple[bytes, int]


def plan_difference(
    context: TableContext, before: Snapshot | None, after: Snapshot | None, predicate: Predicate | None = None
) -> ScanPlan:
    """A split for all files of both snapshots that may share keys, unless they are the same ones; None is the empty table.

    Java merges only what the other side does not have, so it shows partial rows for engines that mix versions; here
    each side is merged as its readers see it. NotSupported where a partition's number of buckets changed in between.
    """
    planner = _Planner(context, predicate)
    old, new = (bucket_files(context, snapshot, keep_manifest=planner.keep_manifest) for snapshot in (before, after))
    _refuse_rescaled(context, old, new)
    splits: list[Split] = []
    for place in sorted(old.keys() | new.keys(), key=lambda place: (context.partition_path_of(place[0]), *place)):
        if place[1] >= 0:
            empty = BucketFiles(*place, 1, ())
            splits += planner.splits(old.get(place, empty), new.get(place, empty))
    return ScanPlan(after, tuple(splits), planner.counts, ABOVE_0 if context.options.hides_level_0 else ALL_LEVELS)


def _refuse_rescaled(context: TableContext, old: Mapping[Place, BucketFiles], new: Mapping[Place, BucketFiles]) -> None:
    if context.options.bucket < 1:
        return
    former = {bucket.partition: bucket.total_buckets for bucket in old.values()}
    for bucket in new.values():
        count = former.get(bucket.partition, bucket.total_buckets)
        if count != bucket.total_buckets:
            raise NotSupported(
                f"the difference of two snapshots of {context.partition_path_of(bucket.partition).rstrip('/') or context.url}",
                f"the older one has {count} buckets, the newer {bucket.total_buckets}: rows have moved between them",
            )


class _Planner:
    """Leaves out what cannot differ or cannot match, and keeps count."""

    def __init__(self, context: TableContext, predicate: Predicate | None) -> None:
        self.counts = ScanCounts()
        self._context = context
        self._predicate = predicate
        self._bounds = TableBounds(context)
        self._kept_partitions: dict[bytes, bool] = {}

    def keep_manifest(self, manifest: ManifestFileMeta) -> bool:
        self.counts.manifests += 1
        kept = self._predicate is None or self._predicate.may_match(self._bounds.of_manifest(manifest))
        self.counts.manifests_skipped += not kept
        return kept

    def splits(self, old: BucketFiles, new: BucketFiles) -> Iterator[Split]:
        self.counts.files += len({file.file_name for file in (*old.files, *new.files)})
        if not self._keep_partition(old.partition):
            self.counts.files_skipped_by_partition += len({file.file_name for file in (*old.files, *new.files)})
            return
        self.counts.buckets += 1
        before, after = self._visible(old), self._visible(new)
        same_vectors = old.index_files == new.index_files
        for members in self._groups({**before, **after}.values()):
            earlier = tuple(file for file in members if file.file_name in before)
            later = tuple(file for file in members if file.file_name in after)
            if same_vectors and len(members) == len(earlier) == len(later):
                self.counts.files_skipped_as_unchanged += len(members)
            elif not self._may_match(old.partition, members):
                self.counts.files_skipped_by_key += len(members)
            else:
                yield Split(replace(new, files=later), True, replace(old, files=earlier))

    def _keep_partition(self, partition: bytes) -> bool:
        kept = self._kept_partitions.get(partition)
        if kept is None:
            kept = self._predicate is None or self._predicate.may_match(self._bounds.of_partition(partition))
            self._kept_partitions[partition] = kept
            self.counts.partitions += 1
            self.counts.partitions_skipped += not kept
        return kept

    def _visible(self, bucket: BucketFiles) -> dict[str, DataFileMeta]:
        """Files that plain reads show."""
        hides = bool(self._context.schema.primary_keys) and self._context.options.hides_level_0
        shown = {file.file_name: file for file in bucket.files if not hides or file.level > 0}
        self.counts.files_skipped_by_level += len(bucket.files) - len(shown)
        self.counts.rows_skipped_by_level += sum(file.row_count for file in bucket.files if file.file_name not in shown)
        return shown

    def _groups(self, files: Iterable[DataFileMeta]) -> list[list[DataFileMeta]]:
        """Files that may hold versions of the same keys; without keys all of a bucket's."""
        if not self._context.schema.primary_keys:
            return [list(files)]
        return [[file for run in section for file in run.files] for section in key_sections(files, self._context.key_of)]

    def _may_match(self, partition: bytes, files: list[DataFileMeta]) -> bool:
        predicate = self._predicate
        return predicate is None or any(predicate.may_match(self._bounds.of_keys(partition, file)) for file in files)
