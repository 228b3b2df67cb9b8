"""Partitions whose directories have another name, because an option that names them was changed while the table had rows.

Manifests do not name these directories: each reader makes them from the values of the partition and from two options. Java lets
`ALTER TABLE` change these, and finds no file after that.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from paimon_cli.errors import PaimonError
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import has_legacy_text, partition_path, takes_default_name
from paimon_cli.options.table_options import NAMES_OF_PARTITIONS, TableOptions, names_of_partitions
from paimon_cli.storage.threads import in_parallel

Names = tuple[str, ...]
"""The values of `NAMES_OF_PARTITIONS`, as texts."""


class FileElsewhere(NamedTuple):
    """Why a file is not where it is searched for, and what to do. `command`: what mends it, empty if no command does."""

    why: str
    hint: str
    command: str = ""


@dataclass(frozen=True)
class PastNames:
    """What the schemas of a table say about the names of its partitions: `names`, the newest first, and which options `count`."""

    names: tuple[Names, ...]
    count: frozenset[str]
    mends: dict[Names, bool] = field(default_factory=dict)
    """Whether `alter` would accept these names, where that was asked."""

    @classmethod
    def of(cls, context: TableContext) -> PastNames:
        """An option counts if the directories of values of a partition column depend on it, in any schema."""
        names: dict[Names, None] = {}
        count: set[str] = set()
        for number in reversed(context.schemas.ids()):
            try:
                if (schema := context.schemas.find(number)) is None:
                    continue
                types = schema.types_of(schema.partition_keys)
                depends = (any(map(takes_default_name, types)), any(map(has_legacy_text, types)))
                count.update(key for key, does in zip(NAMES_OF_PARTITIONS, depends, strict=True) if does)
                names[_names(schema.typed_options)] = None
            except PaimonError:  # a damaged schema, or a value that cannot be read: no file was written with it
                count.update(NAMES_OF_PARTITIONS)
        return cls(tuple(names), frozenset(count))

    @classmethod
    def known(cls, context: TableContext) -> PastNames:
        """The same, read once for all views of an opened table."""
        cache, root = context.cache.names_of_partitions, context.layout.version_root
        if root not in cache:
            cache[root] = cls.of(context)
        found: PastNames = cache[root]
        return found

    def others(self, context: TableContext) -> list[Names]:
        """The names of other schemas, and the defaults, that may give a directory of the table another name."""
        now = dict(zip(NAMES_OF_PARTITIONS, _names(context.options), strict=True))
        every = dict.fromkeys((*self.names, _names(TableOptions({}))))
        return [names for names in every if self.count.intersection(_changes(now, names))]


def has_other_names(context: TableContext) -> bool:
    """Whether files of the table may be in directories that have other names than its options say."""
    return bool(context.schema.partition_keys and PastNames.known(context).others(context))


def is_repair(old: TableContext, new: TableContext, snapshot: Snapshot) -> bool:
    """Whether the definition `new` finds all live files of the snapshot, some of them at other places than `old` does.

    Where both find them at the same places, names of an earlier schema are accepted: back to what another engine changed.
    """
    entries = new.manifests.live_entries(snapshot)
    places = [new.data_file_path(entry.partition, entry.bucket, entry.file) for entry in entries]
    if places == [old.data_file_path(entry.partition, entry.bucket, entry.file) for entry in entries]:
        return _names(new.options) in PastNames.of(new).names
    return all(in_parallel(new.storage.exists, places, new.read_threads))


def moved_file(context: TableContext, path: str, partition: bytes | None = None) -> FileElsewhere | None:
    """Where a missing file is by the options of another schema of the table or their defaults; None if it is nowhere.

    `partition`: that of the file; it is searched for if it is not given.
    """
    root, keys = f"{context.data_root}/", context.schema.partition_keys
    if not keys or not path.startswith(root) or not (others := PastNames.known(context).others(context)):
        return None
    parts = path.removeprefix(root).split("/")
    directory, in_partition = "".join(f"{part}/" for part in parts[: len(keys)]), "/".join(parts[len(keys) :])
    if partition is None:
        partition = next((p for p, known in context.named_partitions.items() if known == directory), None)
    if partition is None:
        return None
    values = context.partition_values(partition)
    for names in others:
        default, legacy = names
        other = partition_path(keys, context.partition_types, values, default, legacy == "true")
        if other != directory and context.storage.exists(root + other + in_partition):
            return _elsewhere(context, names, directory.rstrip("/"), other.rstrip("/"))
    return None


def _elsewhere(context: TableContext, names: Names, directory: str, other: str) -> FileElsewhere:
    past, table = PastNames.known(context), context.layout.argument
    own = past.names[0] if past.names and not context.options.given.isdisjoint(NAMES_OF_PARTITIONS) else _names(context.options)
    changed = _changes(dict(zip(NAMES_OF_PARTITIONS, own, strict=True)), names)
    if not changed:
        given = [key for key in NAMES_OF_PARTITIONS if key in context.options.given]
        why = f"{' and '.join(given)} of this call names other directories than the table: the file is in {other}"
        return FileElsewhere(why, f"leave out {' and '.join(f'--option {key}' for key in given)}")
    why = f"{' and '.join(changed)} of the table was changed while it had rows: the file is in {other}"
    settings = [shlex.quote(f"{key}={value}") for key, value in changed.items()]
    if names not in past.mends:
        past.mends[names] = _mends(context, changed)
    if past.mends[names]:
        command = f"paimon-cli alter {table} set {' '.join(settings)}"
        return FileElsewhere(why, f"set the value with which it was written: {command}", command)
    flags = " ".join(f"--option {setting}" for setting in settings)
    hint = f"no value is right for all files: move those of {other} to {directory}, or read a snapshot before the change "
    return FileElsewhere(why, f"{hint}with {flags}")


def _mends(context: TableContext, changed: Mapping[str, str]) -> bool:
    """Whether `alter` would accept these options for the table."""
    try:
        latest, schema = context.snapshots.latest(), context.schemas.latest()
        schema = replace(schema, options=dict(schema.typed_options.readable.raw))
        table = replace(context, given={}, definition=None)
        new = replace(schema, options={**schema.options, **changed})
        return latest is not None and is_repair(table.defined_by(schema), table.defined_by(new), latest)
    except PaimonError:  # what is damaged is said where it is read; there is no command that surely helps
        return False


def _names(options: TableOptions) -> Names:
    return tuple(names_of_partitions(options).values())


def _changes(now: Mapping[str, str], names: Names) -> dict[str, str]:
    return {key: value for key, value in zip(NAMES_OF_PARTITIONS, names, strict=True) if value != now[key]}
