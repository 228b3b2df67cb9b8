"""Which rows of overlapping files are no longer current, found by merging their keys alone (FORMAT.md, section 11.2).

Merge engines that choose among whole rows leave the other columns as the files hold them. A reader of Parquet files that leaves
out the superseded rows by their positions then shows the rows of the table, without this package.
"""

from __future__ import annotations

import numpy as np

from paimon_cli.bucket.deletion_vectors import vector_files
from paimon_cli.bucket.merged_rows import ROW_NUMBER, merge_columns, merge_section
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.sorted_runs import follow_each_other, key_sections
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, VALUE_KIND


def merge_chooses_rows(context: TableContext, bucket: BucketFiles) -> bool:
    """Whether each merged row of the bucket is a row of one of its files, so that `superseded_rows` can tell which."""
    return not context.options.merge_engine.combines_versions and not vector_files(bucket)


def superseded_rows(context: TableContext, bucket: BucketFiles) -> dict[str, np.ndarray]:
    """For each file that overlaps another one: its name, and for each row (bool) whether reads must leave it out.

    These are older versions of a key, ignored rows, and retractions. Takes about 50 ns a row. Raises `DamagedFile`.
    """
    superseded: dict[str, np.ndarray] = {}
    for section in key_sections(bucket.files, context.key_of):
        if len(section) == 1:
            continue
        files = [file for run in section for file in run.files]
        ends = np.cumsum([file.row_count for file in files])
        first_numbers = {file.file_name: int(end) - file.row_count for file, end in zip(files, ends, strict=True)}
        columns = merge_columns(context, ())
        if follow_each_other(section):
            columns.remove(SEQUENCE_NUMBER)
        old = np.ones(ends[-1], bool)
        for merged in merge_section(context, bucket, section, columns, first_numbers=first_numbers):
            inserted = (merged.column(VALUE_KIND).to_numpy() & 1) == 0
            old[merged.column(ROW_NUMBER).to_numpy()[inserted]] = False
        superseded |= zip(first_numbers, np.split(old, ends[:-1]), strict=True)
    return superseded
