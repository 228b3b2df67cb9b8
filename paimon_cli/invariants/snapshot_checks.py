"""Checks of the chain of snapshots: ids, hints, times, and that what a snapshot names can be read."""

from __future__ import annotations

from collections.abc import Iterator

from paimon_cli.errors import DamagedFile, NotFound, NotSupported
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.version import Version
from paimon_cli.invariants.violation import Violation


def ids_have_no_gap(context: TableContext) -> Iterator[Violation]:
    """PV001. Snapshots from the oldest to the newest lack none: a reader that walks them sees every commit."""
    ids = context.snapshots.ids()
    for number in sorted(set(range(ids[0], ids[-1])) - set(ids)) if ids else ():
        yield Violation("PV001", context.layout.snapshot(number), f"is missing between snapshots {ids[0]} and {ids[-1]}")


def snapshots_are_readable(context: TableContext) -> Iterator[Violation]:
    """PV002. Each snapshot file parses and holds the id of its name."""
    for number in context.snapshots.ids():
        try:
            context.snapshots.find(number)
        except DamagedFile as error:
            yield Violation("PV002", context.layout.snapshot(number), str(error))


def hints_are_not_ahead(context: TableContext) -> Iterator[Violation]:
    """PV003. LATEST and EARLIEST may be missing or lag, but never name what is not there yet or hide what is."""
    ids = context.snapshots.ids()
    for path, limit, what in (
        (context.layout.latest_hint, max(ids, default=0), "newest"),
        (context.layout.earliest_hint, min(ids, default=0), "oldest"),
    ):
        try:
            text = context.storage.read_bytes(path).strip()
        except FileNotFoundError:
            continue
        if not text.isdigit():
            yield Violation("PV003", path, f"holds {text[:20]!r}, no snapshot id")
        elif int(text) > limit:
            yield Violation("PV003", path, f"says {int(text)}, the {what} snapshot is {limit}")


def times_do_not_go_back(before: Version, version: Version) -> Iterator[Violation]:
    """PV004. Time travel searches by bisection."""
    if version.snapshot.time_millis < before.snapshot.time_millis:
        yield Violation("PV004", version.path, f"is older than snapshot {before.snapshot.id} by its time")


def metadata_is_readable(version: Version) -> Iterator[Violation]:
    """PV005. Every list and manifest of the snapshot is there and holds what it should."""
    for read in ("base", "delta", "live", "index_entries"):
        try:
            getattr(version, read)
        except (DamagedFile, NotFound, NotSupported) as error:
            yield Violation("PV005", str(error.details.get("path", version.path)), f"snapshot {version.snapshot.id}: {error}")
            return


def schema_exists(version: Version) -> Iterator[Violation]:
    """PV006."""
    try:
        version.context.schemas.get(version.snapshot.schema_id)
    except (DamagedFile, NotFound) as error:
        yield Violation("PV006", version.context.layout.schema(version.snapshot.schema_id), str(error))
