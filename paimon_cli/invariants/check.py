"""Runs the checks: over one version, over what a table holds now, with or without reading data files."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from paimon_cli.errors import DamagedFile
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants import bucket_checks, file_checks, row_checks, snapshot_checks
from paimon_cli.invariants.version import Version
from paimon_cli.invariants.violation import Violation

VersionCheck = Callable[[Version], Iterator[Violation]]
StepCheck = Callable[[Version, Version], Iterator[Violation]]

READABLE = snapshot_checks.metadata_is_readable
TABLE_CHECKS = (
    snapshot_checks.ids_have_no_gap,
    snapshot_checks.snapshots_are_readable,
    snapshot_checks.hints_are_not_ahead,
)
VERSION_CHECKS: tuple[VersionCheck, ...] = (
    snapshot_checks.schema_exists,
    file_checks.live_files_exist,
    file_checks.index_files_exist,
    file_checks.vectors_are_not_dangling,
    bucket_checks.levels_are_disjoint,
    bucket_checks.key_ranges_are_ranges,
    bucket_checks.bucket_counts_agree,
)
STEP_CHECKS: tuple[StepCheck, ...] = (
    snapshot_checks.times_do_not_go_back,
    file_checks.base_is_what_lived_before,
    bucket_checks.sequence_numbers_rise,
)
"""Compare a version with the one before it."""


def check_version(version: Version, before: Version | None) -> Iterator[Violation]:
    """The cheap group: metadata and names on storage. `before` is the version of the snapshot below, None if it is gone.

    When manifests cannot be read, that is the only thing said.
    """
    unreadable = list(READABLE(version))
    yield from unreadable
    if unreadable:
        return
    for check in VERSION_CHECKS:
        yield from check(version)
    yield from file_checks.delta_fits(before, version)
    yield from file_checks.record_counts_add_up(before, version)
    if before is not None:
        for step in STEP_CHECKS:
            yield from step(before, version)


def check_rows(version: Version) -> Iterator[Violation]:
    """The dear group: reads every live data file of a table with a primary key."""
    if not version.context.schema.primary_keys:
        return
    for entry in version.live:
        yield from row_checks.files_hold_their_rows(version, entry)
    for place in version.buckets:
        try:
            yield from row_checks.one_unmarked_row_per_key(version, place)
        except DamagedFile as error:
            yield Violation("PV031", str(error.details.get("path", version.path)), str(error))


def check_table(context: TableContext, *, rows: bool = False) -> Iterator[Violation]:
    """All snapshots that are there, the oldest first; with `rows` also the data files of the newest."""
    for check in TABLE_CHECKS:
        yield from check(context)
    before: Version | None = None
    for number in context.snapshots.ids():
        try:
            snapshot = context.snapshots.find(number)
        except DamagedFile:  # PV002 has said so
            snapshot = None
        if snapshot is None:
            before = None
            continue
        version = Version(context, snapshot)
        found = list(check_version(version, before if before and before.snapshot.id == number - 1 else None))
        yield from found
        before = None if any(violation.code == "PV005" for violation in found) else version
    if rows and before is not None:
        yield from check_rows(before)
