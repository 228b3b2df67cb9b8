"""Which snapshot the user means, and with which schema it reads (format section 11.4)."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from paimon_cli.errors import NotFound, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import TAG_PREFIX
from paimon_cli.read.literals import epoch_nanos

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def travel(
    context: TableContext, snapshot_id: int | None = None, tag: str | None = None, as_of: str | None = None
) -> tuple[TableContext, Snapshot | None]:
    """The snapshot to read and the context to read it with: the newest schema for a plain read, else the snapshot's own.

    `as_of`: RFC 3339 (UTC where no zone is given) or epoch millis; the newest snapshot made until then. Raises NotFound for
    what is expired, not there yet or unknown, UsageError for several choices at once.
    """
    if sum(choice is not None for choice in (snapshot_id, tag, as_of)) > 1:
        raise UsageError("choose one of --snapshot, --tag and --as-of")
    if snapshot_id is not None:
        snapshot: Snapshot | None = context.snapshots.get(snapshot_id)
    elif tag is not None:
        snapshot = _tagged(context, tag)
    elif as_of is not None:
        snapshot = _as_of(context, as_of)
    else:
        return context, context.snapshots.latest()
    return (context if snapshot is None else context.at_schema(snapshot.schema_id)), snapshot


def _tagged(context: TableContext, tag: str) -> Snapshot:
    path = context.layout.tag(tag)
    try:
        return Snapshot.from_json(context.storage.read_bytes(path), path)
    except FileNotFoundError:
        entries = context.storage.list_directory(context.layout.tag_directory)
        tags = sorted(e.name[len(TAG_PREFIX) :] for e in entries if e.name.startswith(TAG_PREFIX))
        why = f"its tags are {', '.join(tags)}" if tags else "it has no tags"
        raise NotFound(f"no tag '{tag}' in {context.url}", why, "see `paimon-cli tags ls`", tag=tag) from None


def _as_of(context: TableContext, text: str) -> Snapshot:
    millis = parse_moment(text)
    snapshot = context.snapshots.at_time(millis)
    if snapshot is not None:
        return snapshot
    earliest = context.snapshots.earliest_id()
    first = context.snapshots.find(earliest) if earliest is not None else None
    why = (
        "the table has no snapshots yet" if first is None else f"the oldest, {first.id}, was made at {_shown(first.time_millis)}"
    )
    raise NotFound(f"no snapshot of {context.url} as old as {text}", why, "see `paimon-cli snapshots ls`")


def parse_moment(text: str) -> int:
    """Epoch millis of RFC 3339 text (UTC where no zone is given) or of a whole number of millis. UsageError."""
    if text.strip().lstrip("-").isdigit():
        return int(text)
    try:
        return epoch_nanos(text.strip()) // 1_000_000
    except ValueError as problem:
        raise UsageError(
            f"cannot read the time '{text}'", str(problem), "write 2024-01-31T12:00:00Z or epoch millis"
        ) from problem


def _shown(millis: int) -> str:
    return (EPOCH + timedelta(milliseconds=millis)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
