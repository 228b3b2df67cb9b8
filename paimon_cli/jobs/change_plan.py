"""What a write, an update or a delete would do, without doing it: the rows are read, checked and changed in memory.

A plan says at which snapshot it was made. The run that follows commits only directly on top of that snapshot
(`TableContext.only_on`), so that it does what the plan has shown, or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from paimon_cli.history.table_context import TableContext
from paimon_cli.history.tiered_rows import expect_not_tiered
from paimon_cli.ingest.faults import Tally
from paimon_cli.ingest.rows import IncomingRows
from paimon_cli.jobs.bucket_change import refuse_postponed_rows
from paimon_cli.jobs.key_index import NO_ROW, KeyIndex
from paimon_cli.jobs.merge_source import MemorySource
from paimon_cli.jobs.row_change import changed_rows
from paimon_cli.jobs.table_change import Summary, check_writable_table
from paimon_cli.jobs.update_job import UpdateRequest, check_moves, edit_of
from paimon_cli.jobs.write_request import WriteRequest, plan_write
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_mode import CHANGE_ROWS
from paimon_cli.options.choices import OnError
from paimon_cli.read.scan_plan import Split, plan_scan
from paimon_cli.read.split_reader import read_split
from paimon_cli.sql.predicate import Predicate

SAMPLE_ROWS = 5


@dataclass(frozen=True, repr=False)
class ChangePlan(Summary):
    """What a change would do at snapshot `snapshot_id` (None: the table has none) and schema `schema_id`.

    `rows`: those that change or, of a write, those to be written; `existing_rows`: how many rows of the table have the key of
    one of these, None without a primary key. `files`, `size` (bytes): the data files that hold the changing rows; of a write
    `size` is that of the input. `before`, `after`: the first of these rows; `after` is None for rows to be deleted, `before`
    for a write.
    """

    snapshot_id: int | None
    schema_id: int
    rows: int = 0
    existing_rows: int | None = None
    files: int = 0
    size: int = 0
    before: pa.Table | None = field(default=None, repr=False)
    after: pa.Table | None = field(default=None, repr=False)


def plan_update(context: TableContext, request: UpdateRequest) -> ChangePlan:
    """Read all rows that match, and compute what they would become. Raises what a run would raise for them."""
    context.check(CHANGE_ROWS)
    check_writable_table(context)
    expect_not_tiered(context, "change rows of")
    seen = context.with_level_0()
    edit = edit_of(request, seen)
    check_moves(seen, edit)
    snapshot = _latest(seen)
    if snapshot is None:
        return ChangePlan(None, seen.schema.id)
    refuse_postponed_rows(seen, snapshot, edit.where)
    names, rows, files, size = seen.schema.field_names, 0, 0, 0
    before, after = _Sample(names), _Sample(names)
    for split in _parts(seen, snapshot, edit.where):
        of_split = 0
        for batch in read_split(seen, split, [*names, *edit.tracking_columns], edit.where):
            if batch.num_rows:
                after.add(changed_rows(seen, edit, batch, rows + of_split))
                before.add(batch)
                of_split += batch.num_rows
        if of_split:
            rows, files, size = rows + of_split, files + len(split.files), size + sum(file.file_size for file in split.files)
    return ChangePlan(
        snapshot.id,
        seen.schema.id,
        rows=rows,
        files=files,
        size=size,
        before=before.table(),
        after=None if edit.drops_all else after.table(),
    )


def _parts(context: TableContext, snapshot: Snapshot, where: Predicate) -> Iterator[Split]:
    """What holds rows that may match: the splits or, where the rows of a file depend on no other one, each file."""
    by_file = not (context.mode.has_keys or context.mode.combines_columns)
    for split in plan_scan(context, snapshot, where).splits:
        files = split.bucket.files
        for part in ((file,) for file in files) if by_file else (files,):
            yield replace(split, bucket=replace(split.bucket, files=part))


def plan_rows_to_write(context: TableContext, request: WriteRequest) -> ChangePlan:
    """Check all rows of the input, and look for their keys in the table. Raises what a run would raise for them."""
    check_writable_table(context)
    snapshot, plan = _latest(context), plan_write(context, request)
    assert isinstance(plan.incoming, IncomingRows)
    if request.on_error == OnError.FAIL:
        total = Tally.of([plan.incoming.find_faults(split) for split in plan.splits])
        if total.bad_cells:
            raise total.error()
    schema, keys, sample, rows, size = context.schema, list[pa.RecordBatch](), _Sample(context.schema.field_names), 0, 0
    for split in plan.splits:
        for batch in plan.incoming.read(split, Tally()):
            sample.add(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            keys.append(batch.select(schema.primary_keys))
    existing = _existing(context, snapshot, keys) if schema.primary_keys else None
    number = None if snapshot is None else snapshot.id
    return ChangePlan(number, schema.id, rows, existing, 0, size, after=sample.table())


def _latest(context: TableContext) -> Snapshot | None:
    snapshot = context.snapshots.latest()
    if snapshot is None:
        context.expect_existing()
    return snapshot


def _existing(context: TableContext, snapshot: Snapshot | None, keys: Sequence[pa.RecordBatch]) -> int:
    """How many rows of the table have one of these keys. A null, where keys may have one, is a value like others."""
    names, fields = context.schema.primary_keys, context.schema.fields_of(context.schema.primary_keys)
    if snapshot is None or not keys:
        return 0
    seen, wanted, null_is_value = context.with_level_0(), pa.concat_batches(keys), context.options.primary_key_nullable
    where = MemorySource(wanted, fields, names).condition(seen.schema, null_is_value)
    index, found = KeyIndex(wanted.columns, null_is_value), 0
    for split in plan_scan(seen, snapshot, where).splits:
        for batch in read_split(seen, split, names, where):
            found += int(np.count_nonzero(index.rows_of([batch.column(name) for name in names]) != NO_ROW))
    return found


class _Sample:
    """The first rows of batches, in these columns."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names, self._parts, self._rows = list(names), list[pa.RecordBatch](), 0

    def add(self, batch: pa.RecordBatch) -> None:
        if self._rows < SAMPLE_ROWS:
            part = batch.select(self._names).slice(0, SAMPLE_ROWS - self._rows)
            self._parts.append(part)
            self._rows += part.num_rows

    def table(self) -> pa.Table | None:
        return pa.Table.from_batches(self._parts) if self._parts else None
