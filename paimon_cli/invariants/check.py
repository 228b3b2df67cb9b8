"""Runs the checks of a version, of the whole history and of data files, and defines which checks `verify` runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from paimon_cli.errors import DamagedFile, NotFound
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants import (
    changelog_checks,
    file_checks,
    hash_indexes,
    index_checks,
    merge_checks,
    metadata_checks,
    pruning_checks,
    row_checks,
    snapshot_checks,
)
from paimon_cli.invariants.file_checks import StoredFiles
from paimon_cli.invariants.history_walk import WalkedVersion, walk
from paimon_cli.invariants.scopes import (
    OF_BUCKET,
    OF_HISTORY,
    OF_MERGED,
    OF_REFERENCES,
    OF_STEP,
    OF_VERSION,
    WITHOUT_SCHEMA,
    Check,
)
from paimon_cli.invariants.version import Version
from paimon_cli.invariants.violation import BY_CODE, Violation
from paimon_cli.metadata.data_file import BucketId, ManifestEntry

_MODULES = (
    snapshot_checks,
    metadata_checks,
    index_checks,
    file_checks,
    row_checks,
    merge_checks,
    hash_indexes,
    pruning_checks,
    changelog_checks,
)
TABLE_CHECKS = OF_HISTORY.checks_in(_MODULES)
WITHOUT_SCHEMAS = (*TABLE_CHECKS, *WITHOUT_SCHEMA.checks_in(_MODULES))
"""The checks that need no readable schema."""
REFERENCE_CHECKS = OF_REFERENCES.checks_in(_MODULES)
META_CHECKS = OF_VERSION.checks_in(_MODULES)
STEP_CHECKS = OF_STEP.checks_in(_MODULES)
BUCKET_CHECKS = OF_BUCKET.checks_in(_MODULES)
MERGED_CHECKS = OF_MERGED.checks_in(_MODULES)
INVARIANTS = tuple(sorted(BY_CODE.values(), key=lambda invariant: invariant.code))
"""All invariants."""


def not_checked(context: TableContext) -> dict[str, str]:
    """Why invariants cannot be checked, wholly or in part, in tables of this kind, by code."""
    if context.mode.clusters_rows:
        why = "with pk-clustering-override files are sorted by clustering.columns, and their bounds are no keys"
        return {invariant.code: why for invariant in INVARIANTS if invariant.of_key_order}
    if context.mode.tracks_keyed_rows:
        return {"PV032": "with row-tracking.enabled and a primary key manifests record numbers of snapshots, not of rows"}
    return {}


def check_version(version: Version, before: Version | None) -> Iterator[Violation]:
    """The checks of metadata and of the existence of files. `before` is the previous version, None if it no longer exists.

    If manifests cannot be read, only that is reported.
    """
    unreadable = list(snapshot_checks.metadata_is_readable(version))
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
    yield from _reporting_decode_errors(version, metadata_checks.inlined_lists_are_the_stored_ones(version))
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
    if version.context.can_open(entry.file):
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
        yield from _of_rows(BUCKET_CHECKS, version, bucket_id)


def check_merged(version: Version, bucket_id: BucketId) -> Iterator[Violation]:
    """Checks that merge all rows of a bucket."""
    yield from _of_rows(MERGED_CHECKS, version, bucket_id)


def _of_rows(checks: Iterable[Check[[Version, BucketId]]], version: Version, bucket_id: BucketId) -> Iterator[Violation]:
    if not all(version.context.can_open(entry.file) for entry in version.at(bucket_id)):
        return  # of these PV028 says enough
    for check in checks:
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
        yield from check_merged(version, bucket_id)
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
