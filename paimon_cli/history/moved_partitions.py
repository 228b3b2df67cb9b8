"""Partitions whose directories have another name, because an option that names them was changed while the table had rows.

Manifests do not name these directories: each reader makes them from the values of the partition and from two options. Java lets
`ALTER TABLE` change these, and finds no file after that.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import NamedTuple

from paimon_cli.errors import PaimonError
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.options.table_options import names_of_partitions
from paimon_cli.storage.threads import in_parallel


class FileElsewhere(NamedTuple):
    """Why a file is not where it is searched for, and what to do."""

    why: str
    hint: str


def is_repair(old: TableContext, new: TableContext, snapshot: Snapshot) -> bool:
    """Whether the definition `new` finds all live files of the snapshot, some of them at other places than `old` does."""
    entries = new.manifests.live_entries(snapshot)
    places = [new.data_file_path(entry.partition, entry.bucket, entry.file) for entry in entries]
    if places == [old.data_file_path(entry.partition, entry.bucket, entry.file) for entry in entries]:
        return False
    return all(in_parallel(new.storage.exists, places, new.read_threads))


def moved_file(context: TableContext, path: str) -> FileElsewhere | None:
    """Where a missing file is by the options of another schema of the table or their defaults; None if it is nowhere."""
    root = f"{context.data_root}/"
    known = context.named_partitions
    partition = next((p for p, directory in known.items() if directory and path.startswith(root + directory)), None)
    if partition is None:
        return None
    in_partition = path.removeprefix(root + known[partition])
    now = names_of_partitions(context.options)
    for names in _other_names(context):
        changed = {key: value for key, value in names.items() if value != now[key]}
        other = context.redefined(options=context.options.with_overrides(changed)).partition_path_of(partition)
        if changed and other != known[partition] and context.storage.exists(root + other + in_partition):
            keys, settings = " and ".join(changed), " ".join(shlex.quote(f"{key}={value}") for key, value in changed.items())
            why = f"{keys} of the table was changed while it had rows: the file is in {other.rstrip('/')}"
            command = f"paimon-cli alter {context.layout.argument} set {settings}"
            return FileElsewhere(why, f"set the value with which it was written: {command}")
    return None


def _other_names(context: TableContext) -> Iterator[dict[str, str]]:
    """What the options were in other schemas, the newest first, and their defaults: as texts."""
    for number in reversed(context.schemas.ids()):
        try:
            schema = context.schemas.find(number)
            if schema is not None:
                yield names_of_partitions(schema.typed_options)
        except PaimonError:  # a damaged schema, or a value that cannot be read: not the one with which a file was written
            continue
    yield names_of_partitions(type(context.options)({}))
