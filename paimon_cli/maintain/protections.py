"""What keeps a snapshot, or its files, from expiring: tags and consumers (format sections 13.2, 13.3)."""

from __future__ import annotations

import json

from paimon_cli.errors import DamagedFile
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import TAG_PREFIX

CONSUMER_PREFIX = "consumer-"


def tagged_snapshots(context: TableContext) -> list[Snapshot]:
    """The snapshots that tags hold, the oldest first."""
    tagged: dict[int, Snapshot] = {}
    for status in context.storage.list_directory(context.layout.tag_directory):
        if status.name.startswith(TAG_PREFIX) and not status.is_directory:
            content = _read(context, status.path)
            if content is not None:
                snapshot = Snapshot.from_json(content, status.path)
                tagged[snapshot.id] = snapshot
    return [tagged[number] for number in sorted(tagged)]


def oldest_consumed(context: TableContext) -> int | None:
    """The first snapshot that some consumer has not read yet; None without consumers."""
    pending = []
    for status in context.storage.list_directory(f"{context.layout.root}/consumer"):
        if status.name.startswith(CONSUMER_PREFIX) and not status.is_directory:
            content = _read(context, status.path)
            if content is not None:
                pending.append(_next_snapshot(content, status.path))
    return min(pending, default=None)


def _next_snapshot(content: bytes, path: str) -> int:
    try:
        return int(json.loads(content)["nextSnapshot"])
    except (ValueError, KeyError, TypeError) as error:
        hint = "delete the file if nobody reads as this consumer any more"
        raise DamagedFile(f"cannot read consumer file {path}", f"{type(error).__name__}: {error}", hint, path=path) from error


def _read(context: TableContext, path: str) -> bytes | None:
    """None if the file was deleted since the directory was listed."""
    try:
        return context.storage.read_bytes(path)
    except FileNotFoundError:
        return None
