"""Splits: files of one bucket that hold whole keys and can be read independently (FORMAT.md, sections 11.1 and 11.2)."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_cli.history.table_state import BucketFiles
from paimon_cli.metadata.data_file import DataFileMeta


@dataclass(frozen=True)
class Split:
    """Files of one bucket that hold whole keys: no version of their keys is in another split. Picklable.

    With `before` its rows are what leads from those files to these, which are in `beside` too where rows have moved
    between buckets.
    """

    bucket: BucketFiles
    needs_merge: bool
    before: tuple[BucketFiles, ...] | None = None
    beside: tuple[BucketFiles, ...] = ()

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        """All that have to be read."""
        return tuple(file for bucket in (*(self.before or ()), self.bucket, *self.beside) for file in bucket.files)

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(file.file_size for file in self.files)

    @property
    def row_count(self) -> int:
        """Rows in the files: older versions and deletes count too."""
        return sum(file.row_count for file in self.files)


@dataclass
class ScanCounts:
    """What a plan looked at and what it skipped, by reason; files in skipped manifests, or parts of them, are not counted."""

    manifests: int = 0
    manifests_skipped: int = 0
    partitions: int = 0
    partitions_skipped: int = 0
    buckets: int = 0
    buckets_skipped: int = 0
    files: int = 0
    files_skipped_by_partition: int = 0
    files_skipped_by_bucket: int = 0
    files_skipped_by_level: int = 0
    rows_skipped_by_level: int = 0
    files_skipped_by_key: int = 0
    files_skipped_by_value: int = 0
    files_skipped_by_index: int = 0
    files_skipped_as_unchanged: int = 0
