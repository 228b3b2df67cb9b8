"""The live files among manifest entries, found entry by entry: a model of file tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from paimon_cli.metadata.data_file import EntryKind, FileIdentity, ManifestEntry


def plain_live(batches: Iterable[Sequence[ManifestEntry]]) -> list[ManifestEntry]:
    """The live files: an ADD without a DELETE of the same identity anywhere."""
    entries = [entry for batch in batches for entry in batch]
    deleted = {entry.identity for entry in entries if entry.kind == EntryKind.DELETE}
    return [entry for entry in entries if entry.kind == EntryKind.ADD and entry.identity not in deleted]


def plain_net(entries: Iterable[ManifestEntry]) -> list[ManifestEntry]:
    """Drop each ADD together with its later DELETE; a DELETE of an older ADD stays."""
    left: dict[FileIdentity, ManifestEntry] = {}
    for entry in entries:
        known = left.get(entry.identity)
        if known is None:
            left[entry.identity] = entry
        elif known.kind == EntryKind.ADD and entry.kind == EntryKind.DELETE:
            del left[entry.identity]
    return list(left.values())


def missing_adds(entries: Iterable[ManifestEntry]) -> list[ManifestEntry]:
    """The ADDs without which the DELETEs of random entries are damage."""
    held = list(entries)
    added = {entry.identity for entry in held if entry.kind == EntryKind.ADD}
    return [
        replace(entry, kind=EntryKind.ADD) for entry in held if entry.kind == EntryKind.DELETE and entry.identity not in added
    ]
