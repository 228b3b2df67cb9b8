"""What keeps a snapshot or its files from expiring: tags, consumers, branches, changelogs (FORMAT.md, section 13)."""

from __future__ import annotations

import json
from dataclasses import dataclass

from paimon_cli.errors import DamagedFile
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.needed_files import NeededFiles
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import CONSUMER_PREFIX, TAG_PREFIX


@dataclass(frozen=True)
class Protections:
    """At one moment: tags of this branch, the oldest first, and what other branches and long-lived changelogs need."""

    tags: list[Snapshot]
    elsewhere: NeededFiles


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


@dataclass(frozen=True)
class Consumer:
    """The progress of a streaming reader; `modified_millis` is the time of its last update."""

    name: str
    next_snapshot: int
    modified_millis: int


def consumers(context: TableContext) -> list[Consumer]:
    """All consumers by name. `DamagedFile` for one that cannot be read, because it is then unknown what it still needs."""
    found = []
    for status in context.storage.list_directory(context.layout.consumer_directory):
        if status.name.startswith(CONSUMER_PREFIX) and not status.is_directory:
            content = _read(context, status.path)
            if content is not None:
                name = status.name.removeprefix(CONSUMER_PREFIX)
                found.append(Consumer(name, _next_snapshot(content, status.path), status.modified_millis))
    return sorted(found, key=lambda consumer: consumer.name)


def oldest_consumed(context: TableContext) -> int | None:
    """The first snapshot that some consumer has not read yet; None without consumers."""
    return min((consumer.next_snapshot for consumer in consumers(context)), default=None)


def _next_snapshot(content: bytes, path: str) -> int:
    try:
        return int(json.loads(content)["nextSnapshot"])
    except (ValueError, KeyError, TypeError) as error:
        hint = "delete the file if this consumer is no longer in use"
        raise DamagedFile(f"cannot read consumer file {path}", f"{type(error).__name__}: {error}", hint, path=path) from error


def _read(context: TableContext, path: str) -> bytes | None:
    """None if the file was deleted since the directory was listed."""
    try:
        return context.storage.read_bytes(path)
    except FileNotFoundError:
        return None
