"""Checks that merge the rows of a bucket, as readers and compactions do (FORMAT.md, section 11)."""

from __future__ import annotations

import collections
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from paimon_cli.bucket.deletion_vectors import NO_VECTORS, load_vectors
from paimon_cli.bucket.merged_rows import merge_columns, merge_section
from paimon_cli.datatypes.key_order import group_starts, null_first_words
from paimon_cli.errors import BadInput
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.invariants.scopes import OF_BUCKET, OF_MERGED
from paimon_cli.invariants.version import Version
from paimon_cli.invariants.violation import FULL, CheckGroup, Invariant, Violation
from paimon_cli.lsm.merge_engine import merge_engine
from paimon_cli.lsm.sorted_rows import LEVEL_COLUMN, EngineAround, SortedRows
from paimon_cli.lsm.sorted_runs import key_sections
from paimon_cli.metadata.data_file import BucketId
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, VALUE_KIND


@OF_BUCKET.check(
    Invariant(
        "PV059",
        CheckGroup.RUNS,
        FULL,
        "where compactions look up older rows, the row of a lower level is not older than those above it",
        of_key_order=True,
    )
)
def lower_levels_are_not_older(version: Version, bucket_id: BucketId) -> Iterator[Violation]:
    """PV059. Compactions look up the previous row of a key from level 1 on, and use the first one that they find."""
    context = version.context
    if not context.mode.bounds_are_keys:
        return
    if not context.mode.looks_up_old_rows or context.options.deletion_vectors_enabled or context.mode.merge_engine.oldest_wins:
        return
    files = tuple(entry.file for entry in version.at(bucket_id) if entry.file.level > 0)
    bucket, found = BucketFiles(*bucket_id, 0, files), 0
    engine = OlderBelow(merge_engine(context.schema, context.options))
    columns = merge_columns(context, [SEQUENCE_NUMBER, VALUE_KIND])
    for section in key_sections(files, context.key_of):
        if len({file.level for run in section for file in run.files}) > 1:
            found += sum(batch.num_rows for batch in merge_section(context, bucket, section, columns, level_engine=engine))
    if found:
        why = f"{found} keys have an older row at a lower level than their newest one, so compactions do not find the newest one"
        yield Violation("PV059", version.bucket_directory(bucket_id), why)


@OF_MERGED.check(Invariant("PV070", CheckGroup.RUNS, FULL, "the versions of every key can be merged into one row"))
def versions_can_be_merged(version: Version, bucket_id: BucketId) -> Iterator[Violation]:
    """PV070. Writers of Paimon take each row by itself: that a sum overflows its type, only readers and compactions find.

    Of all snapshots only the newest and those of tags are merged: each merges whole buckets, in which a commit changes little.
    """
    context = version.context
    entries = [entry for entry in version.at(bucket_id) if not entry.is_postponed]
    if not context.mode.bounds_are_keys or not context.mode.merge_engine.combines_versions:
        return
    files = tuple(entry.file for entry in entries)
    indexes = tuple(entry.index_file for entry in version.index_entries if entry.bucket_id == bucket_id)
    bucket, columns = BucketFiles(*bucket_id, 0, files, indexes), merge_columns(context, context.schema.field_names)
    vectors = load_vectors(context, bucket) if context.mode.deletion_vectors else NO_VECTORS
    try:
        for section in key_sections(files, context.key_of):
            if len(section) > 1:
                collections.deque(merge_section(context, bucket, section, columns, vectors=vectors), maxlen=0)
    except BadInput as problem:
        hint = f"; {problem.hint}" if problem.hint else ""
        what = f"neither a read nor a compaction can merge its rows: {problem.what}, {problem.why}{hint}"
        yield Violation("PV070", version.bucket_directory(bucket_id), what, problem.hint)


class OlderBelow(EngineAround):
    """Returns one row of each key that has an older row at a lower level than a newer row. Rows need a column LEVEL."""

    def merge(self, rows: SortedRows) -> pa.RecordBatch:
        levels = rows.rows.column(LEVEL_COLUMN).to_numpy()[rows.order]
        ordered = rows.taken(rows.order)
        fields = [ordered.column(name) for name in (*self.sequence_fields, SEQUENCE_NUMBER)]
        ties = np.union1d(rows.starts, group_starts([word for field in fields for word in null_first_words(field, False)]))
        lowest, highest = np.minimum.reduceat(levels, ties), np.maximum.reduceat(levels, ties)
        rises = np.append(False, highest[1:] > lowest[:-1]) & ~np.isin(ties, rows.starts)
        keys = np.unique(np.searchsorted(rows.starts, ties[rises], side="right") - 1)
        return ordered.take(pa.array(rows.starts[keys]))
