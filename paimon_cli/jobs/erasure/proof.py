"""The proof of an erasure: everything that is in the table is read again, and searched for what was erased.

Nothing that the erasure knew is used: no bounds that would leave a file out, and no list of files but that of the storage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from paimon_cli.bucket.hash_index import read_key_hashes
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.engine import Engine, Progress, Work, phase
from paimon_cli.jobs.erasure.erased_rows import ErasedKeys, ErasedRows
from paimon_cli.jobs.erasure.file_rewrite import Histories
from paimon_cli.jobs.erasure.inventory import Inventory, StoredFile
from paimon_cli.jobs.erasure.metadata_rewrite import ErasedHashes
from paimon_cli.jobs.erasure.unnamed_files import holding, lasting, unnamed_files
from paimon_cli.metadata.data_file import HASH


@dataclass(frozen=True)
class Proof:
    """What was searched, and what was found. `found`: the paths of files below the table that hold erased rows, or remember
    their keys; `unreadable` ones are among them. `rows`: rows that were read.
    """

    data_files: int
    rows: int
    manifests: int
    index_files: int
    unnamed_files: int
    found: tuple[str, ...]


def search(
    context: TableContext, inventory: Inventory, rows: ErasedRows, hashes: ErasedHashes, engine: Engine, progress: Progress
) -> Proof:
    """Read all files of the table, and search them. Raises `DamagedFile` for one that cannot be read.

    `inventory`: what the erasure knew; versions that others have made since are searched, too.
    """
    inventory = Inventory.take(context, inventory)
    files = list(inventory.files.values())
    found = _with_rows(context, inventory, files, rows, engine, progress)
    others = unnamed_files(context, inventory)
    held = holding(context, rows, others, engine, progress)
    # A compaction that had read an old file is refused by the check of its commit, and deletes what it has written.
    left = lasting(context, inventory, held)
    found += [file.path for file in left]
    if len(left) < len(held):
        later = Inventory.take(context, inventory)
        new = [file for key, file in later.files.items() if key not in inventory.files]
        found += _with_rows(context, later, new, rows, engine, progress)
        inventory, files = later, [*files, *new]
    if isinstance(rows, ErasedKeys):
        found += _in_metadata(context, inventory, rows, hashes)
    indexes = {entry.index_file.file_name for entries in inventory.indexes.values() for entry in entries}
    return Proof(
        data_files=len(files),
        rows=sum(file.entry.file.row_count for file in files),
        manifests=len(inventory.manifests) + len(inventory.lists) + len(inventory.indexes),
        index_files=len(indexes),
        unnamed_files=len(others),
        found=tuple(sorted({path.removeprefix(f"{context.layout.root}/") for path in found})),
    )


def _with_rows(
    context: TableContext, inventory: Inventory, files: list[StoredFile], rows: ErasedRows, engine: Engine, progress: Progress
) -> list[str]:
    """The paths of the data files that hold erased rows."""
    histories = Histories(inventory.branches, rows)
    engine.prepare(Work.of(file.entry.file for file in files), progress)
    with phase(progress, "Looking again", len(files)) as on_done:
        counts = engine.run_tasks(histories.count_if_there, files, on_done, [file.entry.file.file_size for file in files])
    return [context.data_file_path_of(*file.key) for file, count in zip(files, counts, strict=True) if count]


def _in_metadata(context: TableContext, inventory: Inventory, keys: ErasedKeys, hashes: ErasedHashes) -> Iterator[str]:
    """The manifests that have an erased key as a bound of a file, and hash indexes with the hash of one that no other key has.

    An index of a partition without files holds no rows any more, yet its entry has the partition's values.
    """
    for name in inventory.manifests:
        if any(keys.are_bounds(context, entry) for entry in context.manifests.manifest(name)):
            yield context.layout.manifest(name)
    listed = {entry.index_file: entry for entries in inventory.indexes.values() for entry in entries}
    for file, entry in listed.items():
        if file.index_type == HASH:
            stored = read_key_hashes(context, file)
            if np.isin(stored, hashes(entry.bucket_id, stored)).any():
                yield context.layout.index(file.file_name)
    live = {file.entry.partition for file in inventory.files.values()}
    for name, entries in inventory.indexes.items():
        left = {entry.partition for entry in entries if entry.index_file.index_type == HASH} - live
        if any(len(keys.in_partition(context, partition)) for partition in left):
            yield context.layout.manifest(name)
