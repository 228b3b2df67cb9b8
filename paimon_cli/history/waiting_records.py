"""Records that are committed but wait for a compaction: ordinary reads skip their files (FORMAT.md, section 11.1).

These are files of level 0 in tables with deletion vectors or merge engine first-row, and files in `bucket-postpone`. Reads,
reports and jobs count them here, from the file table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np
import numpy.typing as npt

from paimon_cli.history.file_table import FileTable
from paimon_cli.history.live_files import live_files_of_buckets
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import ALL_FILES, BucketId, DataFileMeta, FileFilter
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_mode import TableMode
from paimon_cli.options.option_text import counted


def files_that_wait(mode: TableMode, table: FileTable) -> npt.NDArray[np.bool_]:
    """For each file, whether ordinary reads skip it until a compaction."""
    places = np.stack([table.buckets, table.numbers("levels")], axis=1)
    known, of = np.unique(places, axis=0, return_inverse=True)
    return np.array([mode.hides(bucket, level) for bucket, level in known.tolist()], dtype=bool)[of.reshape(-1)]


def records_that_wait(mode: TableMode, table: FileTable) -> int:
    """How many stored records ordinary reads skip until a compaction."""
    return int(table.numbers("row_counts")[files_that_wait(mode, table)].sum())


def waiting_rows(mode: TableMode, bucket: int, files: Iterable[DataFileMeta]) -> int:
    """The same for files of one bucket that are already objects."""
    return sum(file.row_count for file in files if mode.hides(bucket, file.level))


def waiting_records(context: TableContext, snapshot: Snapshot | None, buckets: Collection[BucketId] | None = None) -> int:
    """The same for the live files of a snapshot, or of some of its buckets. Reads nothing if no record of the table can wait."""
    if snapshot is None or not context.mode.hides_files:
        return 0
    if buckets is None:
        return records_that_wait(context.mode, context.manifests.live_files(snapshot, ALL_FILES))
    return records_that_wait(context.mode, FileTable.of_entries(live_files_of_buckets(context, snapshot, buckets).entries))


def waiting_partitions(context: TableContext, snapshot: Snapshot | None, partitions: Collection[bytes]) -> set[bytes]:
    """The partitions among these with records that wait for a compaction."""
    if snapshot is None or not context.mode.hides_files:
        return set()
    table = context.manifests.live_files(snapshot, FileFilter(set(partitions).__contains__))
    return {table.partitions[code] for code in np.unique(table.codes[files_that_wait(context.mode, table)]).tolist()}


def waiting_text(table: str, records: int | None, *, of_changes: bool = False) -> str:
    """What to tell the user about these records, with the command that shows them.

    `table`: as an argument of commands. `records`: None if their number is not known. `of_changes`: it is the changes of the
    records that a reader does not see.
    """
    if records is None:
        return f"the rows are committed; whether reads show them before a compaction is not known: paimon-cli describe {table}"
    is_one = records == 1
    what, wait = counted(records, "stored record"), "it waits" if is_one else "they wait"
    shown = f"the changes of {what} are" if of_changes else f"{what} {'is' if is_one else 'are'}"
    return f"{shown} not visible yet, because {wait} for a compaction: paimon-cli compact {table}"
