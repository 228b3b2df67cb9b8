"""Runs the checks of a version, of the whole history and of data files, and defines which checks `verify` runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from paimon_cli.errors import DamagedFile, NotFound
from paimon_cli.history.table_context import TableContext, TableHistory
from paimon_cli.invariants import (
    changelog_checks,
    file_checks,
    hash_indexes,
    index_checks,
    metadata_checks,
    row_checks,
    snapshot_checks,
)
from paimon_cli.invariants.file_checks import StoredFiles
from paimon_cli.invariants.history_walk import WalkedVersion, walk
from paimon_cli.invariants.version import Version
from paimon_cli.invariants.violation import Violation
from paimon_cli.metadata.data_file import BucketId, ManifestEntry

TableCheck = Callable[[TableContext], Iterator[Violation]]
HistoryCheck = Callable[[TableHistory], Iterator[Violation]]
VersionCheck = Callable[[Version], Iterator[Violation]]
BucketCheck = Callable[[Version, BucketId], Iterator[Violation]]
StepCheck = Callable[[Version, Version], Iterator[Violation]]

READABLE = snapshot_checks.metadata_is_readable
TABLE_CHECKS: tuple[HistoryCheck, ...] = (
    snapshot_checks.ids_have_no_gap,
    snapshot_checks.no_snapshot_has_come_back,
    snapshot_checks.hints_are_not_ahead,
    snapshot_checks.schemas_are_readable,
    snapshot_checks.schemas_keep_what_is_fixed,
)
WITHOUT_SCHEMAS: tuple[HistoryCheck, ...] = (
    *TABLE_CHECKS,
    snapshot_checks.snapshots_are_readable,
    snapshot_checks.schemas_of_snapshots_exist,
)
"""The checks that need no readable schema."""
META_CHECKS: tuple[VersionCheck, ...] = (
    metadata_checks.files_lie_inside,
    metadata_checks.buckets_are_valid,
    metadata_checks.files_live_once,
    snapshot_checks.schemas_exist,
    index_checks.vectors_are_not_dangling,
    index_checks.indexes_are_one_of_a_kind,
    metadata_checks.levels_are_disjoint,
    metadata_checks.key_ranges_are_ranges,
    metadata_checks.bucket_counts_agree,
    metadata_checks.partitions_are_written_in_one_way,
)
"""Checks of a single version that read only metadata."""
REFERENCE_CHECKS: tuple[TableCheck, ...] = (
    snapshot_checks.manifests_have_a_version,
    snapshot_checks.consumers_stand_somewhere,
    snapshot_checks.branches_are_readable,
    snapshot_checks.changelogs_are_readable,
)
"""Checks of other references to snapshots."""
STEP_CHECKS: tuple[StepCheck, ...] = (
    snapshot_checks.times_do_not_go_back,
    snapshot_checks.base_is_what_lived_before,
    metadata_checks.sequence_numbers_rise,
    index_checks.vectors_do_not_shrink,
    index_checks.new_vectors_mark_live_files,
)
"""Checks that compare a version with the previous one."""


BUCKET_CHECKS: tuple[BucketCheck, ...] = (
    row_checks.one_unmarked_row_per_key,
    row_checks.lower_levels_are_not_older,
    hash_indexes.hash_index_holds_every_key,
)
"""Checks of the rows of a bucket, across all its files."""


def check_version(version: Version, before: Version | None) -> Iterator[Violation]:
    """The checks of metadata and of the existence of files. `before` is the previous version, None if it no longer exists.

    If manifests cannot be read, only that is reported.
    """
    unreadable = list(READABLE(version))
    yield from unreadable
    if unreadable:
        return
    yield from check_metadata(version, before)
    stored = StoredFiles(version.context)
    yield from file_checks.live_files_exist(version, stored)
    yield from index_checks.index_files_exist(version, stored)


def check_metadata(version: Version, before: Version | None) -> Iterator[Violation]:
    """Checks of manifests, on their own and against the previous version."""
    yield from check_state(version)
    yield from check_change(version, before)


def check_state(version: Version) -> Iterator[Violation]:
    """Checks of the live files by their metadata."""
    for check in META_CHECKS:
        yield from _reporting_decode_errors(version, check(version))


def check_change(version: Version, before: Version | None) -> Iterator[Violation]:
    """Checks of what a commit changed, compared with the previous version."""
    yield from _reporting_decode_errors(version, snapshot_checks.delta_fits(before, version))
    yield from _reporting_decode_errors(version, snapshot_checks.record_counts_add_up(before, version))
    if before is not None:
        for step in STEP_CHECKS:
            yield from _reporting_decode_errors(version, step(before, version))


def check_walked(version: WalkedVersion) -> Iterator[Violation]:
    """Checks of what a commit changed, including its new manifests; `check_state` checks the resulting live files."""
    yield from _reporting_decode_errors(version, metadata_checks.manifests_hold_what_is_listed(version))
    yield from _reporting_decode_errors(version, metadata_checks.lists_are_what_is_noted(version))
    yield from check_change(version, version.before)


def _reporting_decode_errors(version: Version, violations: Iterable[Violation]) -> Iterator[Violation]:
    """Pass violations on; if a partition or key cannot be decoded, the check ends with PV026."""
    try:
        yield from violations
    except DamagedFile as error:
        yield Violation("PV026", error.path or version.path, f"snapshot {version.snapshot.id}: {error}")


def check_stored(version: Version, stored: StoredFiles) -> Iterator[Violation]:
    """Checks that the files of a version exist and have the right sizes."""
    for violations in (
        file_checks.live_files_exist(version, stored),
        file_checks.changelog_files_exist(version, stored),
        file_checks.statistics_exist(version, stored),
        index_checks.index_files_exist(version, stored),
    ):
        yield from _reporting_decode_errors(version, violations)


def check_file(version: Version, entry: ManifestEntry, *, rows: bool) -> Iterator[Violation]:
    """Checks of the content of a data file: its footer, or with `rows` every row."""
    if entry.file.external_path is None:
        checks = (
            row_checks.file_holds_its_rows(version, entry) if rows else file_checks.file_can_be_opened(version.context, entry)
        )
        yield from checks
        if rows:
            yield from file_checks.file_holds_columns_of_its_schema(version.context, entry)


def check_bucket(version: Version, bucket_id: BucketId, *, rows: bool) -> Iterator[Violation]:
    """Checks of a bucket as a whole: its index files, and with `rows` the keys of all its files together."""
    for index in version.index_entries:
        if index.bucket_id == bucket_id and index.index_file.external_path is None:
            yield from index_checks.index_can_be_read(version, index)
    if rows:
        for check in BUCKET_CHECKS:
            try:
                yield from check(version, bucket_id)
            except (DamagedFile, NotFound) as error:
                yield Violation("PV031", error.path or version.path, str(error))


def check_rows(version: Version) -> Iterator[Violation]:
    """The expensive checks, which read every live data file."""
    for bucket_id in sorted(version.changed_buckets):
        for entry in version.at(bucket_id):
            yield from check_file(version, entry, rows=True)
        yield from check_bucket(version, bucket_id, rows=True)
    yield from hash_indexes.hashes_are_in_one_bucket(version)
    yield from row_checks.keys_live_in_one_bucket(version)


def check_changelogs(context: TableContext) -> Iterator[Violation]:
    """Replay all changelogs that have not expired."""
    for replay in changelog_checks.replays(context):
        yield from changelog_checks.check_replay(context, replay)


def check_table(context: TableContext, *, rows: bool = False) -> Iterator[Violation]:
    """Checks of all existing snapshots, oldest first; with `rows` also of the data files of the newest."""
    for check in TABLE_CHECKS:
        yield from check(context)
    stored = StoredFiles(context)
    newest: WalkedVersion | None = None
    for version in walk(context, context.snapshots.ids()):
        newest = None
        if isinstance(version, Violation):
            yield version
            continue
        newest = version
        yield from check_walked(version)
        yield from check_state(version)
        yield from check_stored(version, stored)
    if rows and newest is not None:
        yield from check_rows(newest.whole())
        yield from check_changelogs(context)
